"""The clients of Debian 12 (jupyter_client 7.4.9, nbclient 0.7.2, jupyter_kernel_test 0.4.5): an older generation.

They run in a venv of their own: CELLBLOCK_TEST_OLD_PYTHON names its python; without it one is made in the cache folder.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kernels
from rawclient import DEADLINE
from suites import CACHE, as_python3

pytestmark = [pytest.mark.once, pytest.mark.timeout(1200)]

HERE = Path(__file__).parent
PINS = [
    "jupyter_client==7.4.9",
    "nbclient==0.7.2",
    "jupyter_kernel_test==0.4.5",
    "nbformat==5.5.0",
    "pytest==7.2.1",
    "pyzmq==24.0.1",
]


@pytest.fixture(scope="module")
def old_python():
    given = os.environ.get("CELLBLOCK_TEST_OLD_PYTHON")
    if given:
        return given
    venv = CACHE / "debian12"
    python = venv / "bin/python"
    if not (venv / "whole").exists() or not os.access(python, os.X_OK):  # or made by a user with a Python of their own
        base = shutil.which("python3.11") or sys.executable
        made = subprocess.run([base, "-m", "venv", "--clear", "--without-pip", venv], capture_output=True, text=True)
        if made.returncode == 0:
            pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-compile", *PINS]
            made = subprocess.run(pip, capture_output=True, text=True, timeout=1000)
        if made.returncode:
            pytest.skip(f"NOT RUN: the clients of Debian 12 can't be had: {made.stderr[-300:]}")
        (venv / "whole").touch()
    return str(python)


def run(python, folder, *argv):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    env.update(JUPYTER_PATH=as_python3(folder), IPYTHONDIR=str(folder / "ip"), CELLBLOCK_TEST_KERNEL="python3")
    env["XDG_DATA_HOME"] = str(folder / "data")  # the history that whoever runs this has is not searched
    (folder / "work").mkdir()
    return subprocess.run([python, *argv], cwd=folder / "work", env=env, capture_output=True, text=True, timeout=600)


CLIENT = """
import asyncio, sys, jupyter_client, nbformat
from jupyter_client.manager import start_new_kernel
assert jupyter_client.__version__.startswith("7.4."), jupyter_client.__version__
km, kc = start_new_kernel(kernel_name="python3")
got = []
def hook(msg):
    got.append((msg["msg_type"], msg["content"]))
def run(code, **how):
    got.clear()
    return kc.execute_interactive(code, output_hook=hook, timeout=60, **how)["content"]
assert run("print('x')\\n6*7", allow_stdin=False)["status"] == "ok"
kinds = [k for k, _ in got if k != "status"]
assert kinds == ["execute_input", "stream", "execute_result"] or kinds == ["stream", "execute_result"], got
assert run("1/0", allow_stdin=False)["ename"] == "ZeroDivisionError"
assert run("input('p')", allow_stdin=True, stdin_hook=lambda m: kc.input("typed"))["status"] == "ok"
assert "'typed'" in str(got)
msg = kc.complete("imp"); assert "import" in kc.get_shell_msg(timeout=30)["content"]["matches"]
kc.execute("import time; time.sleep(600)", reply=False)
while kc.get_iopub_msg(timeout=30)["msg_type"] != "execute_input": pass
km.interrupt_kernel()
assert kc.get_shell_msg(timeout=30)["content"]["ename"] == "KeyboardInterrupt"
km.restart_kernel()
kc.wait_for_ready(timeout=60)
assert run("x = 1", allow_stdin=False)["status"] == "ok"
kc.stop_channels()
km.shutdown_kernel()
assert not km.is_alive()
from nbclient import NotebookClient
nb = nbformat.read(sys.argv[1], 4)
NotebookClient(nb, kernel_name="python3", timeout=60).execute()
assert any("hello from the notebook" in str(c.get("outputs")) for c in nb.cells)
print("all done")
"""


def test_client_and_nbclient(old_python, nothing_left):
    folder = nothing_left / "client"
    folder.mkdir()
    (folder / "client.py").write_text(CLIENT)
    done = run(old_python, folder, str(folder / "client.py"), str(HERE / "nbval.ipynb"))
    assert done.returncode == 0 and done.stdout.endswith("all done\n"), done.stdout[-2000:] + done.stderr[-2000:]


def test_its_jupyter_kernel_test(old_python, nothing_left):
    folder = nothing_left / "suite"
    folder.mkdir()
    text = (
        (HERE / "test_jupyter_kernel_test.py")
        .read_text()
        .replace("import kernels\n", "")
        .replace("from rawclient import DEADLINE\n", f"DEADLINE = {DEADLINE}\n")
        .replace("kernels.NAME", repr("python3"))
    )
    text = text.replace("'python3'.startswith(\"cellblock\")", str(kernels.is_cellblock(kernels.spec_argv()[0])))
    (folder / "test_old.py").write_text(text)
    done = run(old_python, folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder / "test_old.py"))
    assert done.returncode == 0, done.stdout[-3000:]
