"""A person at JupyterLab, in a real Chromium: opens a notebook, runs all cells, interrupts one, reads what is shown,
stops at a breakpoint.

Needs Debian's chromium and chromium-driver; skipped where they are missing. Traffic stays on loopback.
"""

import functools
import json
import os
import subprocess
import sys
import textwrap

import pytest

import browser
import kernels
import servers
from session_state import BAD_LIMITS, bad_notebook

CELLS = [
    "print('said in', __import__('os').getcwd().split('/')[-1])",
    "1/0",
    "open('/etc/shadow')",
    "from IPython.display import HTML\nHTML('<b id=\"bold\">shown as HTML</b>')",
    "import matplotlib.pyplot as plt\nplt.plot([1, 2, 1]);",
    "kept = 42",
]
SLEEP = "import time\nprint('asleep', flush=True)\ntime.sleep(600)"
PERSON = r"""
import json, sys
from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

url, profile, shot, kernel = sys.argv[1:]
options = webdriver.ChromeOptions()
options.binary_location = "/usr/bin/chromium"
for flag in ("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
             "disable-component-update", "disable-sync", "disable-dev-shm-usage", "window-size=1400,2400",
             "user-data-dir=" + profile):
    options.add_argument("--" + flag)
browser = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
def until(what, condition, seconds=90):
    try:
        return WebDriverWait(browser, seconds, 0.1).until(lambda b: condition())
    except TimeoutException:
        raise TimeoutException(f"{what}; kernel {status()}; shown: {text()}") from None
def command(name):
    browser.execute_script("window.jupyterapp.commands.execute(arguments[0])", name)
def text():
    return browser.execute_script(
        "return [...document.querySelectorAll('.jp-Cell-outputArea')].map(e => e.innerText).join('\\n')")
def status():  # of the kernel as the page knows it; None until it has one
    return browser.execute_script(
        "return window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status")
try:
    browser.get(url)
    until("the notebook is open and its kernel idle", lambda: status() == "idle")
    said = {}
    ACT
    command("docmanager:save")
    until("it is saved", lambda: not browser.find_elements(By.CSS_SELECTOR, ".jp-mod-dirty"))
    print(json.dumps(said))
finally:
    browser.save_screenshot(shot)
    browser.quit()
"""
BY_HAND = """
for index in range(5):
    command("notebook:run-cell-and-select-next")
    if index in (1, 2):
        until("the error is shown", lambda: text().count("Traceback") == index)
command("notebook:run-cell-and-select-next")
until("the plot is shown", lambda: browser.find_elements(By.CSS_SELECTOR, ".jp-RenderedImage img"))
said = {"outputs": text(), "bold": browser.find_element(By.ID, "bold").text}
command("notebook:run-cell")
until("the last cell sleeps", lambda: "asleep" in text())
said["busy"] = until("the kernel is shown as busy", lambda: status() == "busy")
command("notebook:interrupt-kernel")
until("the interrupt is shown", lambda: "KeyboardInterrupt" in text())
said["idle"] = until("the kernel is shown as idle", lambda: status() == "idle")
"""
ALL_CELLS = """
command("notebook:run-all-cells")
last = "return JSON.stringify(window.jupyterapp.shell.currentWidget.content.model.toJSON().cells.at(-1).outputs)"
until("the last cell has run", lambda: "the end" in browser.execute_script(last), 180)  # it need not be in sight
until("the kernel is shown as idle", lambda: status() == "idle")
"""
FUNCTION = "def add(a, b):\n    total = a + b\n    return total\nadd(20, 22)"
DEBUGGED = r"""
def debugger(part):
    return browser.execute_script(
        "return [...document.querySelectorAll('.jp-Debugger' + arguments[0])].map(e => e.innerText).join('\\n')", part)
def click(css, index=0):
    until(css, lambda: len(browser.find_elements(By.CSS_SELECTOR, css)) > index)
    browser.find_elements(By.CSS_SELECTOR, css)[index].click()
def switched_on():  # a click that comes before the page knows the kernel's debugger does nothing
    click(".jp-DebuggerBugButton")
    pressed = ".jp-DebuggerBugButton[aria-pressed=true]"
    try:
        return until("the button is down", lambda: browser.find_elements(By.CSS_SELECTOR, pressed), 10)
    except TimeoutException:
        return False
until("the debugger is switched on", switched_on)
command("debugger:show-panel")
until("the debugger is on", lambda: "special variables" in debugger("Variables"))
click(".jp-Notebook .cm-breakpoint-gutter .cm-gutterElement", 3)
until("the kernel has the breakpoint", lambda: "Cell" in debugger("Breakpoints"))
command("notebook:run-cell")
until("the debugger stops", lambda: "add" in debugger("Callstack"))
said["variables"] = until("the variables are shown", lambda: "total" in debugger("Variables") and
                          debugger("Variables"))
said["before"] = text()
command("debugger:continue")
until("the cell goes on", lambda: "42" in text())
until("the kernel is shown as idle", lambda: status() == "idle")
"""


@pytest.fixture
def lab(nothing_left):
    """Starts JupyterLab, if it can be had, for open_lab()."""
    browser.needed()
    return functools.partial(open_lab, nothing_left)


def open_lab(nothing_left, name, book, act):
    """A person opens the notebook, does what `act` says and saves it: what they saw, and the cells in the end."""
    folder = nothing_left / name
    (folder / "work").mkdir(parents=True)
    (folder / "work/first.ipynb").write_text(json.dumps(book))
    (folder / "person.py").write_text(PERSON.replace("    ACT\n", textwrap.indent(act, "    ")))
    address = r"http://127\.0\.0\.1:(\d+)/lab\?token=(\w+)"
    with servers.running("jupyterlab", folder, ["--expose-app-in-browser"], address) as found:
        url = f"http://127.0.0.1:{found[1]}/lab/tree/first.ipynb?token={found[2]}"
        argv = [sys.executable, folder / "person.py", url, folder / "profile", folder / "shot.png", kernels.NAME]
        env = {**os.environ, "HOME": str(folder)}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout), json.loads((folder / "work/first.ipynb").read_text())["cells"]


@pytest.mark.timeout(280)
def test_a_notebook_in_jupyterlab(lab):
    said, saved = lab("lab", browser.notebook([*CELLS, SLEEP]), BY_HAND)
    for words in ("said in work", "ZeroDivisionError", "No such file or directory: '/etc/shadow'"):
        assert words in said["outputs"]
    assert said["bold"] == "shown as HTML" and said["busy"] and said["idle"]
    assert [c["execution_count"] for c in saved] == [1, 2, 3, 4, 5, 6, 7]
    assert saved[-1]["outputs"][-1]["ename"] == "KeyboardInterrupt"


@pytest.mark.cellblock_only("transactions")
@pytest.mark.timeout(280)
def test_a_bad_notebook_runs_to_its_end(lab, nothing_left, monkeypatch):
    """Every other cell ends its Python; the tag lets JupyterLab go on after an error."""
    policy = nothing_left / "policy.json"
    policy.write_text(json.dumps({**BAD_LIMITS, "transactions.mode": "always"}))
    monkeypatch.setenv("CELLBLOCK_POLICY", str(policy))
    cells = bad_notebook()
    sources = [*(code for code, _ in cells), "print('the', 'end')"]
    _, saved = lab("bad", browser.notebook(sources, tags=["raises-exception"]), ALL_CELLS)
    assert [c["execution_count"] for c in saved] == list(range(1, len(sources) + 1))
    for (_, fails), cell in zip(cells, saved):
        assert any(out["output_type"] == "error" for out in cell["outputs"]) == fails, cell
    good = list(range(0, len(cells) - 1, 2))
    assert saved[-2]["outputs"][0]["text"] in (f"{good}\n", [f"{good}\n"])


@pytest.mark.timeout(280)
def test_a_breakpoint_in_jupyterlab(lab):
    pytest.importorskip("debugpy", reason="NOT RUN: debugpy is missing")
    said, saved = lab("debugger", browser.notebook([FUNCTION]), DEBUGGED)
    shown = said["variables"].split()
    assert "42" in shown[shown.index("total") :] and "20" in shown and "42" not in said["before"]
    assert saved[0]["outputs"][0]["data"]["text/plain"] in ("42", ["42"])
