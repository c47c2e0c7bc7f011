"""What people do every day in JupyterLab and Notebook 7, done in a real Chromium.

Run, complete, look up, move a slider, answer, interrupt, restart, reload, share a kernel, stop at a breakpoint. One
server and one browser; each test has a notebook and a kernel of its own.
"""

import contextlib
import os
import re
import sys
from pathlib import Path

import pexpect
import pytest

import browser

BIN = Path(sys.executable).parent
pytestmark = pytest.mark.timeout(1200)  # each step has a limit of its own


@pytest.fixture(scope="module")
def at_lab(nothing_left):
    policy = nothing_left / "policy.json"
    policy.write_text('{"transactions.mode": "always"}')  # with auto a quick person's last cells may be undone
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CELLBLOCK_POLICY", str(policy))
        with browser.at_jupyterlab(nothing_left / "lab") as person:
            yield person


@pytest.fixture
def person(at_lab):
    yield at_lab
    at_lab.leaves()


CELLS = [
    "print('said in', __import__('os').getcwd().split('/')[-1])",
    "1/0",
    "open('/etc/shadow')",
    "from IPython.display import HTML\nHTML('<b id=\"bold\">shown as HTML</b>')",
    "import matplotlib.pyplot as plt\nplt.plot([1, 2, 1]);",
    "kept = 42",
]
SLEEP = "import time\nprint('asleep', flush=True)\ntime.sleep(600)"


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


RICH = [
    "import matplotlib.pyplot as plt\nplt.plot([1, 2, 1]);",
    "import pandas as pd\npd.DataFrame({'planet': ['Mercury', 'Venus'], 'moons': [0, 0]})",
    "from IPython.display import HTML, Latex, Markdown, display\ndisplay(Markdown('**bold** words'))\n"
    "display(Latex(r'$\\frac{1}{2}$'))\nHTML('<b id=\"tag\">a tag</b>')",
    "shown = display('first', display_id=True)\nshown.update('second')",
    "import sys\nprint('to stderr', file=sys.stderr)\nprint('and ' + 'stdout')",
    "print('the', 'end')",
]


def test_notebook_7_runs_a_rich_notebook(person):
    pytest.importorskip("notebook", reason="NOT RUN: no release of Notebook's is pinned for this Python")
    person.opens("rich", browser.notebook(RICH), page="notebooks/")
    person.command("notebook:run-all-cells")
    person.sees(5, "the end")
    person.idle()
    plot = person.one(".jp-RenderedImage img")
    person.until("the plot is drawn", lambda: person.js("return arguments[0].naturalWidth", plot) > 100)
    assert person.text(".jp-Notebook table td").split() == ["Mercury", "0", "Venus", "0"]
    person.until("the formula is set", lambda: person.all(".jp-RenderedLatex mjx-container"))
    assert person.text(".jp-RenderedMarkdown strong") == "bold" and person.text("#tag") == "a tag"
    assert "second" in person.said(3) and "first" not in person.said(3)
    assert "to stderr" in person.said(4) and "and stdout" in person.said(4)
    saved = person.saves()
    assert [cell["execution_count"] for cell in saved] == [1, 2, 3, 4, 5, 6]


# the names are nowhere in the notebook's text, which JupyterLab completes from as well
NAMES = "globals().update({f'kept_{word}': 1 for word in ('apple'[::-1], 'berry'[::-1])})"
SPIN = "print('spin' + 'ning', flush=True)\nwhile True: pass"


def completed(person, index, wanted):
    from selenium.webdriver.common.keys import Keys

    person.edits(index)

    def offered():  # JupyterLab asks each source for a second only
        if not person.text(".jp-Completer-item"):
            person.edits(index)
            person.types(Keys.TAB)
        items = person.text(".jp-Completer-item")
        return items if wanted in items else None

    return person.until(f"{wanted} is offered", offered)


def test_completion_while_idle_and_while_busy(person):
    from selenium.webdriver.common.keys import Keys

    person.opens("completer", browser.notebook([NAMES, SPIN, "kept_"]))
    person.runs(0)
    person.ran(0)
    person.idle()
    assert "kept_yrreb" in completed(person, 2, "kept_elppa")
    person.types(Keys.ESCAPE)
    person.runs(1)
    person.sees(1, "spinning")
    person.busy()
    assert "kept_yrreb" in completed(person, 2, "kept_elppa")
    person.busy()  # the request's own idle is followed by a busy, which the page may not have yet
    person.types(Keys.ESCAPE)
    person.presses("notebook:interrupt-kernel")
    person.sees(1, "KeyboardInterrupt")
    person.idle()


def test_the_tooltip(person):
    from selenium.webdriver.common.keys import Keys

    define = "def measure(width, height=3): pass\nmeasure.__doc__ = 'Tells' + ' how large.'\nprint('de' + 'fined')"
    person.opens("tooltip", browser.notebook([define, "measure("]))
    person.runs(0)
    person.sees(0, "defined")
    person.idle()
    person.edits(1)
    person.holds(Keys.SHIFT, Keys.TAB)
    said = person.until("the tooltip is there", lambda: person.text(".jp-Tooltip"))
    assert "Tells how large." in said and "height=3" in said


SLIDER = """import ipywidgets
slider, label = ipywidgets.IntSlider(5, 0, 10), ipywidgets.Label()
slider.observe(lambda change: setattr(label, 'value', f'Python has {change.new}'), 'value')
ipywidgets.VBox([slider, label])"""


def test_a_slider_moved_is_known_in_python(person):
    from selenium.webdriver.common.keys import Keys

    person.opens("slider", browser.notebook([SLIDER, "print('it', 'is', slider.value)\nslider.value = 2"]))
    person.runs(0)
    handle = person.one(".widget-slider .noUi-handle")
    for value in ("6", "7", "8"):
        handle.send_keys(Keys.ARROW_RIGHT)
        person.sees(0, f"Python has {value}")  # the slider itself shows it before it is sent
    person.runs(1)
    person.sees(1, "it is 8")
    person.until("Python moved it", lambda: person.text(".widget-readout").strip() == "2")


def test_a_question_and_a_password(person):
    from selenium.webdriver.common.keys import Keys

    cells = ["name = input('who? ')\nprint(name[::-1])", "import getpass\nprint(getpass.getpass('word? ')[::-1])"]
    person.opens("input", browser.notebook(cells))
    for index, kind, prompt in ((0, "text", "who?"), (1, "password", "word?")):
        person.runs(index)
        box = person.one(f"{browser.cell(index)} .jp-Stdin-input")
        assert box.get_attribute("type") == kind and prompt in person.said(index)
        box.send_keys("olleh" + kind, Keys.ENTER)
        person.sees(index, kind[::-1] + "hello")
        person.idle()


C_LOOP = "print('count' + 'ing', flush=True)\nsum(iter(int, 1))"
KEPT = "kept = ['in', 'memory']\nprint('now', *kept)"


@pytest.mark.cellblock_only("C code that holds the interpreter can be interrupted")
def test_the_interrupt_button_on_a_loop_in_c(person):
    """The first click says what is the matter, the second ends it; the variables stay."""
    person.opens("interrupt", browser.notebook([KEPT, C_LOOP, "print('still', *kept)"]))
    person.runs(0)
    person.sees(0, "now in memory")
    person.idle()
    person.runs(1)
    person.sees(1, "counting")
    person.busy()
    person.presses("notebook:interrupt-kernel")
    person.sees(1, "interrupt again")
    person.presses("notebook:interrupt-kernel")
    person.sees(1, "KeyboardInterrupt")
    person.idle()
    person.runs(2)
    person.sees(2, "still in memory")


def test_restart(person):
    person.opens("restart", browser.notebook([KEPT, "print('kept' in globals())"]))
    person.runs(0)
    person.sees(0, "now in memory")
    person.idle()
    person.runs(1)
    person.sees(1, "True")
    kernel = person.kernel()
    person.restarts()
    person.runs(1)
    person.sees(1, "False")
    assert person.kernel() == kernel and person.saves()[1]["execution_count"] == 1


@pytest.mark.cellblock_only("a cell that kills itself kills ipykernel")
def test_a_death_is_shown_and_recovered(person):
    kill = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
    person.opens("death", browser.notebook([KEPT, kill, "print('kept' in globals(), 'after')"]))
    person.runs(0)
    person.sees(0, "now in memory")
    person.idle()
    person.runs(1)
    person.sees(1, "KernelDiedError", "killed by signal 9", "as they were before cell [2]")
    person.idle()
    person.runs(2)
    assert "True after" in person.sees(2, "after")
    assert [cell["execution_count"] for cell in person.saves()] == [1, 2, 3]


def test_the_resource_monitor_shows_this_kernel(person):
    pytest.importorskip("jupyter_resource_usage")
    person.opens("monitor", browser.notebook([KEPT]))
    person.runs(0)
    person.sees(0, "now in memory")
    person.js("const it = [...document.querySelectorAll('.lm-TabBar-tab')].find(e => /Kernel Usage/i.test(e.title));"
              "window.jupyterapp.shell.activateById(it.dataset.id)")
    shown = r"Kernel Host:[\s\S]*\bMemory: [1-9][\d.]* [KMG]B"  # at first maybe as it was while the kernel started
    person.until("the sidebar shows its memory", lambda: re.search(shown, person.text(".jp-KernelUsage-view")))
    assert person.kernel() in person.text(".jp-KernelUsage-view")


WAITS = """import os, time
print('be' + 'fore', flush=True)
while not os.path.exists('go'): time.sleep(0.01)
kept = 'after'
print(kept)"""


def test_a_reload_in_the_middle_of_a_cell_keeps_its_output(person):
    """The page does not know what it asked for any more; the kernel goes on, and what was saved is there."""
    person.opens("reload", browser.notebook([WAITS, "print('it', 'is', kept)"]))
    person.runs(0)
    person.sees(0, "before")
    person.busy()
    kernel = person.kernel()
    person.saves()
    person.driver.refresh()
    person.until("the notebook is open again", lambda: person.status() == "busy")
    person.turns_to(person.driver.current_window_handle)
    person.sees(0, "before")
    assert person.kernel() == kernel
    go = person.folder / "work/go"
    go.touch()
    person.idle()
    person.runs(1)
    person.sees(1, "it is after")
    assert "before" in person.said(0)
    go.unlink()


@contextlib.contextmanager
def console(person):
    """A jupyter console on the notebook's kernel; gives it when it asks for a cell."""
    runtime = person.folder / ".local/share/jupyter/runtime"
    argv = ["--existing", str(runtime / f"kernel-{person.kernel()}.json"), "--simple-prompt"]
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    env |= {"HOME": str(person.folder), "TERM": "dumb"}
    child = pexpect.spawn(str(BIN / "jupyter-console"), argv, env=env, encoding="utf-8", timeout=60)
    try:
        child.expect(r"In \[\d+\]:")
        yield child
    finally:
        child.close(force=True)


@pytest.mark.cellblock_only("a cell that kills itself kills ipykernel")
def test_two_tabs_and_a_console_share_a_kernel(person):
    pytest.importorskip("notebook", reason="NOT RUN: no release of Notebook's is pinned for this Python")
    from selenium.webdriver.common.keys import Keys

    cells = [KEPT, "name = input('who? ')\nprint(name[::-1])", "shared_", NAMES.replace("kept_", "shared_"), SPIN]
    person.opens("shared", browser.notebook([*cells, "print('kept' in globals(), 'after')"]))
    kernel, first = person.kernel(), person.driver.current_window_handle
    person.runs(0)
    person.sees(0, "now in memory")
    person.idle()
    person.saves()
    person.driver.switch_to.new_window("tab")
    person.goes_to("notebooks/shared.ipynb")  # Notebook 7: of two JupyterLabs only one would be current
    second = person.driver.current_window_handle
    assert person.kernel() == kernel
    with console(person) as child:
        # each is asked for what it runs itself
        child.sendline("word = input('con' + 'sole? ')")
        child.expect("console\\?")
        person.busy()
        assert not person.all(".jp-Stdin-input")
        child.sendline("given")
        child.expect(r"In \[\d+\]:")
        person.idle()
        person.runs(1)
        box = person.one(".jp-Stdin-input")
        person.turns_to(first)
        person.busy()
        assert not person.all(".jp-Stdin-input")
        person.turns_to(second)
        box.send_keys("olleh", Keys.ENTER)
        person.sees(1, "hello")
        person.runs(3)
        person.ran(3)
        person.idle()
        # what one runs, the other interrupts, and completes beside it
        child.sendline("print('run' + 'ning', flush=True); exec('while True: pass')")
        child.expect("running")
        person.turns_to(first)
        person.busy()
        assert "shared_yrreb" in completed(person, 2, "shared_elppa")
        person.types(Keys.ESCAPE)
        person.presses("notebook:interrupt-kernel")
        child.expect("KeyboardInterrupt")
        child.expect(r"In \[\d+\]:")
        # Python's death in one is told there; all go on
        child.sendline("import os; os.kill(os.getpid(), 9)")
        child.expect("KernelDiedError")
        child.expect(r"In \[\d+\]:")
        person.idle()
        person.runs(5)
        person.sees(5, "True after")
        # a restart by one tab: the other goes on with the new kernel
        person.restarts()
        person.runs(5)
        person.sees(5, "False after")
    person.turns_to(second)
    person.idle()
    person.runs(5)
    person.sees(5, "False after")
    assert person.kernel() == kernel


HOSTILE = [
    ("while True: pass", {"timeout": 1}, "CellTimeoutError"),
    ("print('t' + '1')", {"timeout": 1e308, "memory": "999T", "isolation": {"minimum": "none"}}, "t1"),
    ("print('t' + '2')", {"__proto__": {"colour": 0}, "\x00": [[[]]], "network.mode": "full"}, "t2"),
    ("print('t' + '3')", {"timeout": "1; import os"}, "timeout"),
    ("print('t' + '4')", {"memory": {"$ref": "#"}}, "memory"),
    ("print('t' + '5')", ["timeout", 1], "cellblock"),
    ("import socket; socket.create_connection(('192.0.2.1', 80), 5)", {"network": {"mode": "full"}}, "network.mode"),
    ("print('still', *kept)", None, "still in memory"),
]


@pytest.mark.cellblock_only("metadata of cells")
def test_a_strangers_notebook_with_metadata_for_the_kernel(person):
    """It may lower limits; it raises none, and what is wrong gets an error where it stands."""
    cells = [KEPT, *((source, {"cellblock": about}) for source, about, _ in HOSTILE)]
    person.opens("hostile", browser.notebook(cells))
    for index, wanted in enumerate(["now in memory", *(wanted for _, _, wanted in HOSTILE)]):
        person.runs(index)
        person.sees(index, wanted)
        person.idle()


FUNCTION = "def add(a, b):\n    total = a + b\n    return total\nadd(20, 22)"


def switched_on(person):  # a click that comes before the page knows the kernel's debugger does nothing
    pressed = lambda: person.all(".jp-DebuggerBugButton[aria-pressed=true]")  # noqa: E731
    if not pressed():  # one that came late
        person.one(".jp-DebuggerBugButton").click()
    return person.waits(pressed, 10)


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
