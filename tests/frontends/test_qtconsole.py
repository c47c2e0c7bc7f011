"""A person at the real qtconsole, offscreen: run, plot, answer, interrupt, complete, look up, see Python die, restart.

Needs Debian's libgl1, libglib2.0-0, libfontconfig1 and libxext6, which ./check installs; skipped where they are
missing. Traffic stays on loopback.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kernels

PROGRAM = Path(__file__).parents[1] / "lib/qtwindow.py"
KEPT = "kept = ['in', 'memory']\nprint('now', *kept)"


class Person:
    """At a qtconsole of their own; all that lib/qtwindow.py's Window can do."""

    def __init__(self, folder):
        (folder / "work").mkdir(parents=True)
        (folder / "run").mkdir(0o700)
        (folder / "policy.json").write_text('{"transactions.mode": "always"}')  # else quick cells share a copy
        self.said = folder / "said"
        shots = Path(os.environ.get("CELLBLOCK_BUILD", folder)) / "screenshots"
        shots.mkdir(exist_ok=True)
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "XDG_"))}
        env |= {"HOME": str(folder), "IPYTHONDIR": str(folder / "ipython"), "XDG_RUNTIME_DIR": str(folder / "run")}
        env |= {"QT_QPA_PLATFORM": "offscreen", "QT_API": "pyqt5", "CELLBLOCK_POLICY": str(folder / "policy.json")}
        options = ["--kernel", kernels.NAME, "--JupyterConsoleApp.confirm_exit=False"]
        with open(self.said, "w") as said:
            self.process = subprocess.Popen(
                [sys.executable, PROGRAM, shots, *options],
                cwd=folder / "work",
                env=env,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
            )

    def __getattr__(self, name):
        return lambda *arguments: self.ask(name, *arguments)

    def ask(self, *call):
        print(json.dumps(call), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        answer = json.loads(line or '{"fault": "it ended"}')
        if "fault" in answer:
            self.ends()
            pytest.fail(f"{answer['fault']}; it said: {self.said.read_text()[-3000:]}")
        return answer["is"]

    def ends(self):
        self.process.stdin.close()
        try:
            assert self.process.wait(60) == 0, self.said.read_text()[-3000:]
        finally:
            self.process.kill()
            self.process.stdout.close()


def needed():
    """Skips the tests where qtconsole or what its Qt needs is missing; without a library Qt aborts."""
    for name in ("qtconsole", "PyQt5"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"NOT RUN: {name} is not there for this Python or machine")
    qt = Path(importlib.util.find_spec("PyQt5").origin).parent / "Qt5"
    files = [qt / "plugins/platforms/libqoffscreen.so", qt / "lib/libQt5Widgets.so.5"]
    said = subprocess.run(["ldd", *files], capture_output=True, text=True).stdout
    lacking = sorted(set(re.findall(r"(\S+) => not found", said)))
    if lacking:
        pytest.skip(f"NOT RUN: Qt lacks {' '.join(lacking)}")


@pytest.fixture(scope="module")
def people(nothing_left):
    needed()
    found = [Person(nothing_left / "1")]
    yield found
    if found[-1].process.poll() is None:
        found[-1].ends()


@pytest.fixture
def person(people, nothing_left):
    """One for all tests; a new one after a wait that failed."""
    if people[-1].process.poll() is not None:
        people.append(Person(nothing_left / str(len(people) + 1)))
    people[-1].asks()
    return people[-1]


def test_a_cell(person):
    person.runs("print('said')\n['a', 'result'][::-1]")
    person.asks()
    assert re.fullmatch(r"\s*said\s+Out\[\d+\]: \['result', 'a'\]\s+In \[\d+\]: ", person.sees("Out["))
    person.runs("1/0")
    person.sees("ZeroDivisionError", "division by zero")


def test_a_figure(person):
    person.runs("import matplotlib.pyplot as plt\nplt.plot([1, 2, 1]);")
    person.asks()
    ((width, height),) = person.images()
    assert width > 100 and height > 100


def test_a_question_and_a_password(person):
    person.runs("name = input('who? ')\nprint(name[::-1])")
    person.is_asked("who? ")
    person.types("olleh")
    person.presses("Return")
    assert "olleh" in person.sees("hello")
    person.runs("import getpass\nprint(getpass.getpass('word? ')[::-1])")
    person.is_asked("word? ")
    person.types("terces")
    person.presses("Return")
    person.sees("does not support password mode", "secret")


def test_interrupts(person):
    person.runs("print('spinning', flush=True)\nwhile True: pass")
    person.sees("spinning")
    person.interrupts()
    person.sees("KeyboardInterrupt")
    person.runs("name = input('who? ')")
    person.is_asked("who? ")
    person.interrupts()
    person.sees("KeyboardInterrupt")
    person.runs("name = input('who? ')\nprint(name[::-1])")
    person.is_asked("who? ")
    person.types("olleh")
    person.presses("Return")
    person.sees("hello")


def test_completion(person):
    person.runs("globals().update({f'kept_{word}': 1 for word in ('apple'[::-1], 'berry'[::-1])})")
    person.asks()
    person.types("kept_")
    person.presses("Tab")
    person.sees("kept_elppa", "kept_yrreb")
    person.types("y")
    person.presses("Tab")
    person.sees("kept_yrreb")
    person.presses("Return")


def test_the_tooltip_and_help(person):
    person.runs("def measure(width, height=3): pass\nmeasure.__doc__ = 'Tells how large.'")
    person.asks()
    person.types("measure(")
    said = person.tip()
    assert "Tells how large." in said and "height=3" in said
    person.runs("measure?")
    person.sees("Docstring: Tells how large.")


@pytest.mark.cellblock_only("a cell that kills itself kills ipykernel")
def test_a_death_is_shown_and_recovered(person):
    person.runs(KEPT)
    person.sees("now in memory")
    person.runs("import os\nos._exit(1)")
    person.sees("KernelDiedError", "exited with status 1", "as they were before cell")
    person.runs("print('still', *kept)")
    person.sees("still in memory")


def test_restart(person):
    """Prompts are counted anew from the first cell after it on, as with any kernel."""
    person.runs(KEPT)
    person.sees("now in memory")
    person.runs("'kept' in globals()")
    person.sees("True")
    person.restarts()
    person.runs("'kept' in globals()")
    person.sees("False")
    assert person.asks() == "In [2]: "
