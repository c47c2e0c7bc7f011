"""Open Interpreter's way to a kernel: the one module of it that starts kernels, from its wheel, with stand-ins for what
it imports of the rest; the whole package pins versions that nothing else here can live with.

It asks for `python3`, sends a first cell of its own, takes the next idle for the end, and interrupts.
"""

import importlib.util
import os
import subprocess
import sys
import types
import zipfile

import pytest

import kernels
import pages
from suites import CACHE

VERSION = "0.4.3"
UNDER = "Open Interpreter"


def wheel():
    path = CACHE / f"open_interpreter-{VERSION}-py3-none-any.whl"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        pip = ["timeout", "120", sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--ignore-requires-python"]
        got = subprocess.run([*pip, "-d", CACHE, f"open-interpreter=={VERSION}"], capture_output=True, text=True)
        if got.returncode or not path.exists():
            pytest.skip(f"NOT RUN: the wheel of Open Interpreter {VERSION} can't be had: {got.stderr[-300:]}")
    return path


@pytest.fixture(scope="module")
def language(nothing_left):
    """Its JupyterLanguage."""
    with zipfile.ZipFile(wheel()) as z:
        z.extractall(nothing_left / "its", [n for n in z.namelist() if "computer/terminal/" in n])
    folder = nothing_left / "its/interpreter/core/computer/terminal"
    with pytest.MonkeyPatch.context() as patch:
        for name, where in (("its", folder), ("its.languages", folder / "languages")):
            package = types.ModuleType(name)
            package.__path__ = [str(where)]
            patch.setitem(sys.modules, name, package)
        patch.setitem(sys.modules, "litellm", types.ModuleType("litellm"))  # asked only after 15 s of silence
        patch.setattr(sys, "argv", ["interpreter"])
        spec = importlib.util.find_spec("its.languages.jupyter_language")
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        patch.setitem(os.environ, "INTERPRETER_TERMINAL_INPUT_PATIENCE", "600")
        yield module.JupyterLanguage


@pytest.fixture
def interpreter(language, nothing_left, monkeypatch):
    """Started where the page's commands say, and ended."""
    pytest.importorskip("matplotlib", reason="its first cell imports matplotlib")
    install, start = pages.blocks("frameworks.md", "sh", UNDER)[0].splitlines()
    kernels.let_in(nothing_left / "work")
    monkeypatch.chdir(nothing_left / "work")
    program = kernels.spec_argv()[0][0]
    subprocess.run([program, *install.split()[1:], "--python", sys.executable], check=True, capture_output=True)
    name, _, value = start.split()[0].partition("=")
    monkeypatch.setenv(name, value.replace("$PWD", os.getcwd()))
    computer = types.SimpleNamespace(interpreter=types.SimpleNamespace(messages=[]))
    made = language(computer)
    yield made
    made.terminate()


def said(interpreter, code):
    return "".join(str(part["content"]) for part in interpreter.run(code) if part["format"] == "output")


def test_its_cells_are_jailed(interpreter):
    assert said(interpreter, "import os\nx = 41\nprint(os.path.exists('/etc/shadow'), os.environ['HOME'])").split() == [
        "False", "/home/user"]
    assert said(interpreter, "x + 1").strip() == "42"
    assert "ZeroDivisionError" in said(interpreter, "1 / 0")
    assert "KernelDiedError" in said(interpreter, "import os\nos._exit(3)")
    assert said(interpreter, "!echo from a shell").strip() == "from a shell"
    assert said(interpreter, "x + 1").strip() == "42"


def test_a_plot_and_an_interrupt(interpreter):
    shown = list(interpreter.run("plt.plot([1, 2])\nplt.show()"))
    assert any(part["format"] == "base64.png" for part in shown)
    running = interpreter.run("y = 5\nprint('runs', flush=True)\nwhile True: pass")
    for part in running:
        if "runs" in str(part["content"]):
            break
    interpreter.stop()
    list(running)
    interpreter.listener_thread.join(60)  # it does not wait for the cell's end
    kernels.idle_after(interpreter.kc, "execute_request")
    assert said(interpreter, "y").strip().endswith("5")
