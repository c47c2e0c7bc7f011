"""nbval, nbconvert, jupyter run and jupyter console, as a user calls them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pexpect
import pytest

import kernels
import suites

pytestmark = pytest.mark.once

# Its handler of ^C waits for an answer in the middle of whatever was at work, which may hold what the answer needs: one
# key in 150 then hangs it for good, with any kernel (jupyter_console 6.6). So the handler gets a thread of its own.
CONSOLE = """
import threading
from jupyter_console.app import ZMQTerminalIPythonApp as App, main
handle = App.handle_sigint
App.handle_sigint = lambda self, *_: threading.Thread(target=handle, args=(self,)).start()
main()
"""
HERE = Path(__file__).parent
BIN = Path(sys.executable).parent


@pytest.fixture
def env(tmp_path):
    e = {
        **os.environ,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": str(tmp_path / "home"),
        "IPYTHONDIR": str(tmp_path / "home/ip"),
        "TERM": "dumb",
        "JUPYTER_ALLOW_INSECURE_WRITES": "1",
    }
    (tmp_path / "home").mkdir()
    return {k: v for k, v in e.items() if not k.startswith("PYTEST")}


@pytest.fixture
def work(tmp_path):
    """A workspace that is no parent of the home."""
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def run(argv, work, env, **how):
    return subprocess.run([str(a) for a in argv], cwd=work, env=env, capture_output=True, text=True, timeout=120, **how)


def nbval(notebook, work, env):
    argv = [*suites.PYTEST, "-p", "nbval", "--nbval", "--nbval-kernel-name", kernels.NAME, notebook]
    return run(argv, work, env)


def test_nbval(work, env):
    shutil.copy(HERE / "nbval.ipynb", work)
    done = nbval("nbval.ipynb", work, env)
    assert done.returncode == 0, done.stdout[-4000:]


def test_nbval_sees_a_difference(work, env):
    """It would not do to pass whatever comes."""
    nb = nbformat.read(HERE / "nbval.ipynb", 4)
    next(c for c in nb.cells if c.get("outputs") and c.outputs[0].output_type == "stream").outputs[
        0
    ].text = "something else\n"
    nbformat.write(nb, work / "other.ipynb")
    done = nbval("other.ipynb", work, env)
    assert done.returncode == 1


def test_nbconvert_execute(work, env):
    shutil.copy(HERE / "nbval.ipynb", work)
    done = run(
        [
            sys.executable,
            "-m",
            "nbconvert",
            "--to",
            "html",
            "--execute",
            f"--ExecutePreprocessor.kernel_name={kernels.NAME}",
            "nbval.ipynb",
        ],
        work,
        env,
    )
    assert done.returncode == 0, done.stderr
    html = (work / "nbval.html").read_text()
    assert "ZeroDivisionError" in html and "hello from the notebook" in html


def test_jupyter_run(work, env):
    (work / "script.py").write_text("print('ran', 6 * 7)\nimport sys\nprint('on stderr', file=sys.stderr)\n")
    done = run([BIN / "jupyter", "run", "--kernel", kernels.NAME, "script.py"], work, env)
    assert done.returncode == 0 and "ran 42" in done.stdout and "on stderr" in done.stderr, done


def test_jupyter_run_from_stdin(work, env):
    done = run([BIN / "jupyter", "run", "--kernel", kernels.NAME], work, env, input="print('piped', 6 * 7)\n")
    assert done.returncode == 0 and "piped 42" in done.stdout, done


def test_jupyter_console(work, env):
    """A person at a terminal: a cell, an input, an interrupt, the end."""
    os.mkfifo(work / "gate")
    owner = work.stat()
    os.chown(work / "gate", owner.st_uid, owner.st_gid)
    c = pexpect.spawn(
        sys.executable,
        ["-c", CONSOLE, "--kernel", kernels.NAME, "--simple-prompt"],
        cwd=str(work),
        env=env,
        encoding="utf-8",
        timeout=240,  # a busy machine; a test has 300
    )
    try:
        c.expect(r"In \[1\]:")
        c.sendline("print('console', 6 * 7, flush=True); done = open('gate').read()")
        # Before the cell's end, also if it was sent while Python started: test_waits_for_start (unit) is sure to.
        c.expect("console 42")
        (work / "gate").write_text("go")
        c.expect(r"In \[2\]:")
        c.sendline("x = input('name? ')")
        c.expect(r"name\? ")
        c.sendline("Ada")
        c.expect(r"In \[3\]:")
        c.sendline("x * 2")
        c.expect("'AdaAda'")
        c.expect(r"In \[4\]:")
        c.sendline("import time; print('wait' + 'ing', flush=True); time.sleep(600)")
        c.expect("waiting")
        c.sendintr()
        c.expect("KeyboardInterrupt")
        c.expect(r"In \[5\]:")
        c.sendline("exit")
        c.expect(pexpect.EOF)
    finally:
        c.close(force=True)
    assert not c.isalive()
