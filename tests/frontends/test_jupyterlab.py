"""A person at JupyterLab, in a real Chromium: opens a notebook, runs all cells, interrupts one, reads what is shown,
stops at a breakpoint.

Needs Debian's chromium and chromium-driver; skipped where they are missing. Traffic stays on loopback.
"""

import json

import pytest

import browser
from session_state import BAD_LIMITS, bad_notebook

pytestmark = pytest.mark.once

CELLS = [
    "print('said in', __import__('os').getcwd().split('/')[-1])",
    "1/0",
    "open('/etc/shadow')",
    "from IPython.display import HTML\nHTML('<b id=\"bold\">shown as HTML</b>')",
    "import matplotlib.pyplot as plt\nplt.plot([1, 2, 1]);",
    "kept = 42",
]
SLEEP = "import time\nprint('asleep', flush=True)\ntime.sleep(600)"
FUNCTION = "def add(a, b):\n    total = a + b\n    return total\nadd(20, 22)"


@pytest.fixture
def person(nothing_left, request):
    with browser.at_jupyterlab(nothing_left / request.node.name) as person:
        yield person


@pytest.mark.timeout(280)
def test_a_notebook_in_jupyterlab(person):
    person.opens("first", browser.notebook([*CELLS, SLEEP]))
    for index in range(len(CELLS)):
        person.command("notebook:run-cell-and-select-next")
        if index in (1, 2):
            person.sees(index, "Traceback")
            person.idle()  # what is sent before a failed cell has ended is aborted
    person.until("the plot is shown", lambda: person.all(".jp-RenderedImage img"))
    person.sees(0, "said in work")
    person.sees(1, "ZeroDivisionError")
    person.sees(2, "No such file or directory: '/etc/shadow'")
    assert person.one("#bold").text == "shown as HTML"
    person.command("notebook:run-cell")
    person.sees(6, "asleep")
    person.busy()
    person.command("notebook:interrupt-kernel")
    person.sees(6, "KeyboardInterrupt")
    person.idle()
    saved = person.saves()
    assert [c["execution_count"] for c in saved] == [1, 2, 3, 4, 5, 6, 7]
    assert saved[-1]["outputs"][-1]["ename"] == "KeyboardInterrupt"


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


def switched_on(person):  # a click that comes before the page knows the kernel's debugger does nothing
    person.one(".jp-DebuggerBugButton").click()
    return person.waits(lambda: person.all(".jp-DebuggerBugButton[aria-pressed=true]"), 10)


@pytest.mark.timeout(280)
def test_a_breakpoint_in_jupyterlab(person):
    pytest.importorskip("debugpy", reason="NOT RUN: debugpy is missing")
    person.opens("debugger", browser.notebook([FUNCTION]))

    def shows(panel, word):
        said = lambda: person.text(f".jp-Debugger{panel}")  # noqa: E731
        return person.until(f"the debugger's {panel} have {word}", lambda: word in said() and said())

    person.until("the debugger is switched on", lambda: switched_on(person))
    person.command("debugger:show-panel")
    shows("Variables", "special variables")
    person.one(".jp-Notebook .cm-breakpoint-gutter .cm-gutterElement", 2).click()
    shows("Breakpoints", "Cell")
    person.command("notebook:run-cell")
    shows("Callstack", "add")
    variables = shows("Variables", "total").split()
    assert "42" in variables[variables.index("total") :] and "20" in variables and "42" not in person.said(0)
    person.command("debugger:continue")
    person.sees(0, "42")
    person.idle()
    assert person.saves()[0]["outputs"][0]["data"]["text/plain"] in ("42", ["42"])
