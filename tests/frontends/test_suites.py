"""nbclient and papermill run the notebooks of their own source archives, checked by their own tests; and
ipykernel's own tests of a kernel, as far as they speak to it by messages."""

import pytest

from suites import check_suite


@pytest.mark.timeout(1200)
def test_nbclient(nothing_left):
    check_suite("nbclient", ["tests/test_client.py"], nothing_left / "nbclient", 80)


@pytest.mark.timeout(1200)
def test_papermill(nothing_left):
    check_suite(
        "papermill",
        [f"papermill/tests/test_{n}.py" for n in ("execute", "engines", "autosave", "clientwrap", "inspect")],
        nothing_left / "papermill",
        60,
    )


@pytest.mark.timeout(1200)
def test_ipykernel(nothing_left):
    check_suite(
        "ipykernel",
        [f"tests/test_{n}.py" for n in ("kernel", "message_spec", "async", "subshells", "debugger")],
        nothing_left / "ipykernel",
        60,
    )
