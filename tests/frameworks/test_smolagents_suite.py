"""smolagents' own tests of its executors and of final answers, out of its source archive, with our executor in the
place of its remote ones. smolagents_judges.py says what is adapted; what is left out concerns how its executors reach
Docker, E2B, Modal and Blaxel, and the text of the code that they send."""

import os
from pathlib import Path

import pytest

pytest.importorskip("smolagents", reason="smolagents needs Python 3.11 here")

import kernels  # noqa: E402
from suites import run_suite  # noqa: E402

JUDGES = Path(__file__).with_name("smolagents_judges.py")
ADDED = {
    "tests/__init__.py": "",
    "tests/utils/__init__.py": "",
    # the archive lacks it; all that it marks is to be run
    "tests/utils/markers.py": "require_run_all = require_soundfile = require_torch = lambda marked: marked\n",
    # imported, not used by what is run
    "docker.py": "",
}


@pytest.mark.timeout(560)
def test_the_judges(nothing_left, monkeypatch):
    kernels.let_in(nothing_left / "work")
    monkeypatch.setenv("JUDGED_IN", os.fspath(nothing_left / "work"))
    added = {**ADDED, "tests/test_cellblock.py": JUDGES.read_text()}
    failed, passed = run_suite("smolagents", ["tests/test_cellblock.py"], nothing_left / "suite", add=added)
    assert not failed and passed == 25, (passed, failed)
