"""nbclient, papermill, nbmake, nbval and testbook with the kernel's name as docs/frameworks.md has it: the page's very
commands and lines. tests/frontends has the same tools with a kernelspec `python3`, and their own suites."""

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

import kernels
import pages

UNDER = "Notebooks as tests"
BIN = Path(sys.executable).parent
COMMANDS = pages.blocks("frameworks.md", "sh", UNDER)[0].splitlines()
LINES = dict(re.findall(r"^\| (\w+) \| `(.*)` \|$", (pages.ROOT / "docs/frameworks.md").read_text(), re.M))
NEEDS = {"--nbmake": "nbmake", "--nbval": "nbval", "papermill": "papermill", "testbook": "testbook"}

PLUGINS = {"--nbmake": "nbmake.pytest_plugin", "--nbval": "nbval.plugin"}


def needs(line):
    for word, module in NEEDS.items():
        if word in line:
            pytest.importorskip(module, reason=f"NOT RUN: {module} is not pinned for this Python")


@pytest.fixture
def work(nothing_left, monkeypatch, request):
    """A folder with a notebook that asks for python3, and says whether it is jailed."""
    folder = nothing_left / re.sub(r"\W+", "-", request.node.name)
    kernels.let_in(folder)
    monkeypatch.chdir(folder)
    source = "import os\njailed = not os.path.exists('/etc/shadow') and os.environ['HOME'] == '/home/user'\njailed"
    cell = nbformat.v4.new_code_cell(source, outputs=[
        nbformat.v4.new_output("execute_result", {"text/plain": "True"}, execution_count=1)], execution_count=1)
    about = {"kernelspec": {"name": "python3", "display_name": "p", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=[cell], metadata=about), folder / "n.ipynb")
    return folder


def shown(path):
    return nbformat.read(path, 4).cells[-1].outputs[-1]["data"]["text/plain"]


@pytest.mark.parametrize("command", COMMANDS)
def test_command(work, command):
    needs(command)
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    env["PATH"] = f"{BIN}:{env['PATH']}"
    plugins = [module for word, module in PLUGINS.items() if word in command]
    env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": ",".join(plugins)}  # those of others are many
    if command.startswith("jupyter execute"):
        command += " --output=out"
    done = subprocess.run(["sh", "-c", command], env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    if command.startswith("pytest"):
        assert "1 passed" in done.stdout
    else:
        assert shown(work / "out.ipynb") == "True"


@pytest.mark.parametrize("tool", LINES)
def test_line(work, tool):
    needs(tool)
    notebook = nbformat.read("n.ipynb", 4)
    made = eval(LINES[tool], {  # noqa: S307
        "NotebookClient": pytest.importorskip("nbclient").NotebookClient, "notebook": notebook,
        "papermill": pytest.importorskip("papermill") if tool == "papermill" else None,
        "testbook": pytest.importorskip("testbook").testbook,
    })
    if tool == "testbook":
        with made as book:
            assert book.get("jailed") is True
    else:
        assert made.cells[-1].outputs[-1]["data"]["text/plain"] == "True"


def test_all_are_tried():
    assert len(COMMANDS) == 4 and set(LINES) >= {"nbclient", "papermill", "testbook"}


def test_a_cell_that_hangs_fails_alone(nothing_left, monkeypatch):
    """The kernel's own limit, of which the page speaks, under nbclient that has none."""
    nbclient = pytest.importorskip("nbclient")
    limits = re.search(r"`cellblock (install --set timeout.cell=)\d+`", (pages.ROOT / "docs/frameworks.md").read_text())
    program = kernels.spec_argv()[0][0]
    monkeypatch.setenv("JUPYTER_PATH", str(nothing_left / "share/jupyter"))
    kernels.let_in(nothing_left / "hangs")
    monkeypatch.chdir(nothing_left / "hangs")
    cells = [nbformat.v4.new_code_cell(c) for c in ("x = 1\nprint('seen')\nwhile True: pass", "x + 1")]
    for limit in (2, 10, 30):  # on a busy machine the good one may take as long
        words = f"{limits[1]}{limit} --prefix {nothing_left} --name short{limit}".split()
        subprocess.run([program, *words, "--python", sys.executable], check=True, capture_output=True)
        notebook = nbformat.v4.new_notebook(cells=cells)
        done = nbclient.NotebookClient(notebook, kernel_name=f"short{limit}", allow_errors=True).execute()
        if len(done.cells[0].outputs) == 2 and "data" in done.cells[1].outputs[-1]:
            break
    assert done.cells[0].outputs[0].text == "seen\n" and done.cells[0].outputs[-1].ename == "CellTimeoutError"
    assert done.cells[1].outputs[-1]["data"]["text/plain"] == "2"
