"""A person at JupyterLab, in a real Chromium, with a notebook that goes wrong in every other cell, and its limits.

Needs Debian's chromium and chromium-driver; skipped where they are missing. Traffic stays on loopback.
"""

import json

import pytest

import browser
from session_state import BAD_LIMITS, bad_notebook

pytestmark = pytest.mark.once


@pytest.fixture
def person(nothing_left, request):
    with browser.at_jupyterlab(nothing_left / request.node.name) as person:
        yield person


@pytest.fixture
def bad_limits(nothing_left, monkeypatch):
    policy = nothing_left / "policy.json"
    policy.write_text(json.dumps({**BAD_LIMITS, "transactions.mode": "always"}))
    monkeypatch.setenv("CELLBLOCK_POLICY", str(policy))


@pytest.mark.cellblock_only("transactions")
@pytest.mark.timeout(600)
def test_a_bad_notebook_runs_to_its_end(bad_limits, person):
    """Every other cell ends its Python; the tag lets JupyterLab go on after an error."""
    cells = bad_notebook()
    sources = [*(code for code, _ in cells), "print('the', 'end')"]
    person.opens("bad", browser.notebook(sources, tags=["raises-exception"]))
    person.command("notebook:run-all-cells")
    person.until("the last cell has run", lambda: "the end" in person.said(-1), 400)
    person.idle()
    saved = person.saves()
    assert [c["execution_count"] for c in saved] == list(range(1, len(sources) + 1))
    for (_, fails), cell in zip(cells, saved):
        assert any(out["output_type"] == "error" for out in cell["outputs"]) == fails, cell
    good = list(range(0, len(cells) - 1, 2))
    assert saved[-2]["outputs"][0]["text"] in (f"{good}\n", [f"{good}\n"])
