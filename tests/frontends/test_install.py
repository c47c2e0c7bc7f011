"""`cellblock install`: several interpreters side by side, and `python3` that is ours, as nbclient, papermill and
jupyter_client find them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

import kernels
import suites

pytestmark = pytest.mark.cellblock_only
PROGRAM = None if not kernels.is_cellblock(kernels.spec_argv()[0]) else kernels.spec_argv()[0][0]
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """A prefix with three kernelspecs: python3 shadowed, the system's interpreter, a policy of its own."""
    folder = tmp_path_factory.mktemp("prefix")
    strict = folder / "strict.json"
    strict.write_text(json.dumps({"workspace.mode": "ro"}))
    for options in (
        ["--name", "python3", "--python", sys.executable],
        [
            "--name",
            "system",
            "--python",
            "/usr/bin/python3",
            "--display-name",
            "The system's",
            "--env",
            "GREETING",
            "hi",
        ],
        ["--name", "strict", "--python", "/usr/bin/python3", "--policy", str(strict)],
    ):
        subprocess.run([PROGRAM, "install", "--prefix", str(folder), *options], check=True, capture_output=True)
    return folder


@pytest.fixture
def env(prefix, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    found = {
        **os.environ,
        "JUPYTER_PATH": str(prefix / "share/jupyter"),
        "HOME": str(home),
        "IPYTHONDIR": str(home / "i"),
    }
    found["PATH"] = f"{BIN}:{found['PATH']}"
    return {k: v for k, v in found.items() if not k.startswith("PYTEST")}


def spec(prefix, name):
    return json.loads((prefix / "share/jupyter/kernels" / name / "kernel.json").read_text())


def test_kernelspecs(prefix, env):
    done = subprocess.run([BIN / "jupyter", "kernelspec", "list", "--json"], env=env, capture_output=True, text=True)
    listed = json.loads(done.stdout)["kernelspecs"]
    for name in ("python3", "system", "strict"):
        assert listed[name]["resource_dir"] == str(prefix / "share/jupyter/kernels" / name)
        about = listed[name]["spec"]
        assert (
            os.path.isabs(about["argv"][0]) and about["interrupt_mode"] == "message" and about["language"] == "python"
        )
        for logo in ("logo-32x32.png", "logo-64x64.png", "logo-svg.svg"):
            assert (prefix / "share/jupyter/kernels" / name / logo).stat().st_size > 100
    assert spec(prefix, "system")["display_name"] == "The system's" and spec(prefix, "system")["env"] == {
        "GREETING": "hi"
    }
    assert "(Cellblock)" in spec(prefix, "python3")["display_name"]
    assert isinstance(spec(prefix, "python3")["metadata"]["debugger"], bool)


def notebook(path, name, *sources):
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    kernelspec = {"name": name, "display_name": name, "language": "python"}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernelspec}), path)


def printed(path):
    """By all its cells; nbclient leaves the text of each message by itself."""
    return "".join(o.get("text", "") for c in nbformat.read(path, 4).cells for o in c.outputs)


JAILED = "import os, sys\nprint(os.path.exists('/etc/shadow'), 'ipykernel.zmqshell' in sys.modules, os.environ['HOME'])"


@pytest.mark.parametrize("name", ["python3", "python"])
def test_a_notebook_that_asks_for_python3_runs_jailed(env, tmp_path, name):
    """A hostile notebook chooses its kernel by name; `python` is another word for python3."""
    work = tmp_path / "work"
    work.mkdir()
    notebook(work / "n.ipynb", name, JAILED)
    done = subprocess.run(
        [BIN / "jupyter", "execute", "--inplace", "n.ipynb"], cwd=work, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert printed(work / "n.ipynb") == "False True /home/user\n"


@pytest.mark.once
def test_papermill(env, tmp_path):
    """Parameters, and the kernel's name given on the command line."""
    work = tmp_path / "work"
    work.mkdir()
    notebook(work / "n.ipynb", "python3", "a = 1", "print(a)\n" + JAILED)
    nb = nbformat.read(work / "n.ipynb", 4)
    nb.cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(nb, work / "n.ipynb")
    argv = [
        BIN / "papermill",
        "n.ipynb",
        "out.ipynb",
        "-p",
        "a",
        "7",
        "--no-progress-bar",
        "--no-request-save-on-cell-execute",
    ]
    done = subprocess.run(argv, cwd=work, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert printed(work / "out.ipynb") == "7\nFalse True /home/user\n"


@pytest.mark.parametrize("name, result", [("system", "('/usr', 'hi')"), ("strict", "('Read-only', None)")])
def test_each_has_its_own_interpreter_and_policy(prefix, nothing_left, name, result):
    argv = [
        a.replace("{resource_dir}", str(prefix / "share/jupyter/kernels" / name)) for a in spec(prefix, name)["argv"]
    ]
    with kernels.Kernel(nothing_left / name, argv=argv) as kernel, kernels.Client(kernel) as client:
        client.ready()
        if name == "strict":
            assert "Read-only" in client.run("open('new', 'w')").error["evalue"]
        else:
            assert client.run("import os, sys\nsys.prefix, os.environ['GREETING']").result == result


def test_a_project(env, prefix, tmp_path):
    """`install --project`: a notebook sees the project that it lies in, from its own folder."""
    argv = [PROGRAM, "install", "--prefix", str(prefix), "--python", "/usr/bin/python3", "--name", "whole", "--project"]
    subprocess.run(argv, check=True, capture_output=True)
    work = tmp_path / "proj/nb"
    work.mkdir(parents=True)
    (tmp_path / "proj/.git").mkdir()
    (tmp_path / "proj/data.csv").write_text("a,b\n")
    notebook(work / "n.ipynb", "whole", "import os\nprint(os.path.basename(os.getcwd()), open('../data.csv').read())")
    argv = [BIN / "jupyter", "execute", "--inplace", "n.ipynb"]
    done = subprocess.run(argv, cwd=work, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert printed(work / "n.ipynb") == "nb a,b\n\n"


@pytest.mark.once
def test_nbmake(env, tmp_path):
    pytest.importorskip("nbmake", reason="NOT RUN: nbmake is not pinned for this Python")
    work = tmp_path / "work"
    work.mkdir()
    notebook(work / "good.ipynb", "python3", JAILED)
    notebook(work / "bad.ipynb", "python3", "assert 0, 'so it is'")
    argv = [*suites.PYTEST, "-p", "nbmake", "--nbmake", "good.ipynb", "bad.ipynb"]
    done = subprocess.run(argv, cwd=work, env=env, capture_output=True, text=True)
    assert "1 failed, 1 passed" in done.stdout and "so it is" in done.stdout, done.stdout[-2000:]


@pytest.mark.once
def test_testbook(prefix, env, tmp_path, monkeypatch):
    testbook = pytest.importorskip("testbook", reason="NOT RUN: testbook is not pinned for this Python").testbook
    monkeypatch.setenv("JUPYTER_PATH", env["JUPYTER_PATH"])
    notebook(tmp_path / "n.ipynb", "python3", "def double(n):\n    return 2 * n", "x = 21")
    monkeypatch.chdir(tmp_path)
    with testbook(str(tmp_path / "n.ipynb"), execute=True) as tb:
        assert tb.ref("double")(21) == 42 and tb.get("x") == 21
