"""What a wheel puts into an environment works from wherever that is: venv, conda's and other prefixes, an environment
that was moved; with pip and uv. The kernelspec has no absolute path in it."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

import kernels
import prefixes
import wheels

pytestmark = [pytest.mark.cellblock_only, pytest.mark.once]
SPEC = "share/jupyter/kernels/cellblock"
CODE = "import os, sys\nprint(sys.executable, sys.prefix, os.path.exists('/etc/shadow'))"
RUN = """import sys
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import run_kernel
print(KernelSpecManager().find_kernel_specs()['cellblock'], flush=True)
with run_kernel(kernel_name='cellblock') as client:
    def show(message):
        if message['msg_type'] in ('stream', 'error'):
            print(message['content'].get('text') or message['content']['evalue'], end='')
    client.execute_interactive(sys.argv[1], timeout=100, output_hook=show)
"""
FIRST_START = """import glob, os, sys, time
import psutil
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name='cellblock')
kernel, end = psutil.Process(manager.provisioner.pid), time.monotonic() + 60
dead = lambda: [p for p in kernel.children() if p.status() == psutil.STATUS_ZOMBIE]
written = lambda: glob.glob(os.path.expanduser('~/.cache/cellblock/*/pycache/bundle.pyc'))
while (dead() or not written()) and time.monotonic() < end:
    time.sleep(0.05)
print(len(written()), dead())
manager.shutdown_kernel()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return wheels.make(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def env(tmp_path):
    """A user's environment: a home of his own, nothing of ours on a path."""
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "work").mkdir()
    kept = {k: v for k, v in os.environ.items() if not re.match("PYTEST|JUPYTER|VIRTUAL_ENV|XDG_|PYTHON|UV_", k)}
    kept["JUPYTER_PREFER_ENV_PATH"] = "no"  # of the Jupyter that runs these tests
    return {**kept, "HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin"}


def venv(folder):
    wheels.run(os.path.realpath(sys.executable), "-m", "venv", "--without-pip", folder)
    return folder


def nbclient(python, work, env, name="cellblock", code=CODE):
    """What a notebook's only cell printed; run by the Jupyter that `python` imports."""
    cell = nbformat.v4.new_code_cell(code)
    about = {"kernelspec": {"name": name, "display_name": name, "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=[cell], metadata=about), work / "n.ipynb")
    command = [python, "-c", "from nbclient.cli import main; main()", "--inplace", "n.ipynb"]
    wheels.run(*command, cwd=work, env=env)
    return "".join(o.text for o in nbformat.read(work / "n.ipynb", 4).cells[0].outputs)


def works_in(python, prefix, env, work, jailed=None, inside=None):
    """Where the kernelspec is found, a notebook and jupyter_client, all with the Jupyter of that environment."""
    told = f"{jailed or python} {inside or prefix} False\n"
    lent = wheels.lend_packages(prefix)
    assert nbclient(python, work, env) == told
    assert wheels.run(python, "-c", RUN, CODE, cwd=work, env=env) == f"{prefix / SPEC}\n{told}"
    lent.unlink()


def finds_its_environment(prefix, env, folder):
    """Commands find Python and package of the environment, also where the program is a link to uv's cache, and started
    by a link to that (uv tool, pipx)."""
    tools = folder / "tools"
    tools.mkdir()
    (tools / "cellblock").symlink_to(prefix / "bin/cellblock")
    for program in (prefix / "bin/cellblock", tools / "cellblock"):
        told = wheels.run(program, "install", "--sys-prefix", "--name", "own", env=env, cwd=folder)
        assert str(prefix / "bin/python") in told, told
        spec = json.loads((prefix / "share/jupyter/kernels/own/kernel.json").read_text())
        assert spec["argv"][0] == str(prefix / "bin/cellblock")
        assert (prefix / "share/jupyter/kernels/own/logo-64x64.png").exists()
        wheels.run(program, "uninstall", "--sys-prefix", "--name", "own", env=env, cwd=folder)
        done = subprocess.run([program, "mcp", "--http", "x"], env=env, capture_output=True, text=True, cwd=folder)
        assert str(prefix / "bin/python") in done.stderr and "pip install" in done.stderr, done.stderr


def cached(env):
    """What kernels keep about an interpreter, whose kernelspec's folder belongs to pip."""
    return sorted(Path(env["HOME"]).glob(".cache/cellblock/*/interpreter.json"))


def test_the_three_that_know_the_dependencies():
    """pyproject.toml has what the client's has, and the version of CMakeLists.txt."""
    sys.path.insert(0, str(wheels.ROOT / "tests/packaging"))
    import check_wheel

    assert list(check_wheel.of_sources()) == []


def test_venv(wheel, env, tmp_path):
    """pip in a venv; uninstalling leaves no file of it, compiled ones of the guest and of the package included."""
    prefix = venv(tmp_path / "v")
    before = wheels.files_below(prefix)
    wheels.install(prefix / "bin/python", wheel, env=env)
    assert str(tmp_path) not in (prefix / SPEC / "kernel.json").read_text()
    works_in(prefix / "bin/python", prefix, env, tmp_path / "work")
    assert len(cached(env)) == 1 and env["HOME"] not in str(wheels.files_below(prefix))
    said = wheels.run(prefix / "bin/cellblock", "explain", "--json", env=env, cwd=tmp_path / "work")
    assert json.loads(said)["interpreter"]["executable"] == str(prefix / "bin/python")
    assert wheels.run(prefix / "bin/cellblock-python", env=env).strip() == str(prefix / "bin/python")
    wheels.pip(prefix / "bin/python", "uninstall", "-y", "cellblock", env=env)
    assert wheels.files_below(prefix) == before


def test_a_first_start_leaves_no_dead_child(wheel, env, tmp_path):
    """The process that keeps what it finds out about the interpreter ends, and is waited for."""
    prefix = venv(tmp_path / "v")
    wheels.install(prefix / "bin/python", wheel, env=env)
    wheels.lend_packages(prefix)
    assert wheels.run(prefix / "bin/python", "-c", FIRST_START, cwd=tmp_path / "work", env=env) == "1 []\n"


def test_a_venv_that_was_moved(wheel, env, tmp_path):
    """Its scripts' first lines are stale: the Python beside them is taken. When that is gone too, one error says so."""
    wheels.install(venv(tmp_path / "old") / "bin/python", wheel, env=env)
    prefix = tmp_path / "moved/v v"
    prefix.parent.mkdir()
    (tmp_path / "old").rename(prefix)
    works_in(prefix / "bin/python", prefix, env, tmp_path / "work")
    for name in ("python", "python3"):
        (prefix / "bin" / name).unlink()
    lost = {**env, "JUPYTER_PATH": str(prefix / "share/jupyter")}
    with pytest.raises(AssertionError) as told:
        nbclient(sys.executable, tmp_path / "work", lost)
    said = "cellblock-python names the Python that Cellblock was installed for, and that is gone"
    assert f"{said} ({tmp_path}/old" in str(told.value) and "install --user --python EXE" in str(told.value)


def test_long_paths_and_blanks(wheel, env, tmp_path):
    """Where no first line of a script can hold the path."""
    prefix = venv(tmp_path / ("long " * 20) / ("er" * 40))
    wheels.install(prefix / "bin/python", wheel, env=env)
    works_in(prefix / "bin/python", prefix, env, tmp_path / "work")


def test_conda_like_prefix(wheel, env, tmp_path):
    base = os.path.realpath(sys.executable)
    if wheels.run(base, "-Ic", "import sysconfig; print(sysconfig.get_default_scheme())").strip() == "posix_local":
        pytest.skip("Debian's own Python installs below PREFIX/local, and no conda has that one")
    python = prefixes.conda_like(tmp_path / "conda", base)
    wheels.install(python, wheel, env=env)
    works_in(python, tmp_path / "conda", env, tmp_path / "work")


def test_user(wheel, env, tmp_path):
    """pip install --user: the kernelspec lies in the home, the interpreter does not."""
    base = os.path.realpath(sys.executable)
    inside = wheels.run(base, "-c", "import sys; print(sys.prefix)").strip()
    wheels.install(base, wheel, "--user", "--break-system-packages", env=env)
    local = Path(env["HOME"]) / ".local"
    assert (local / SPEC / "kernel.json").exists()
    assert nbclient(sys.executable, tmp_path / "work", env) == f"{base} {inside} False\n"
    # the package finds its program, and `cellblock mcp` the package, though neither is in sys.prefix
    lent = wheels.lend_packages(local)
    find = "from cellblock._launch import find_binary; print(find_binary())"
    assert wheels.run(base, "-c", find, env=env).strip() == str(local / "bin/cellblock")
    words = [local / "bin/cellblock", "mcp", "--http", "x"]
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    assert done.returncode == 2 and "the Python package is not there" not in done.stderr, done.stderr
    lent.unlink()
    wheels.pip(base, "uninstall", "-y", "--break-system-packages", "cellblock", env=env)
    assert [p for p in wheels.files_below(local) if "history.sqlite" not in p] == []


def test_a_prefix_of_the_system(wheel, env, tmp_path):
    """As in /usr/local: the Python lies elsewhere."""
    base = os.path.realpath(sys.executable)
    prefix = tmp_path / "local"
    wheels.install(base, wheel, "--prefix", prefix, env=env)
    spec = next(prefix.rglob("kernel.json")).parents[2]
    told = nbclient(sys.executable, tmp_path / "work", {**env, "JUPYTER_PATH": str(spec)})
    assert told.startswith(f"{base} ") and told.endswith(" False\n")


@pytest.mark.skipif(not wheels.uv(), reason="NOT RUN: uv is not there")
@pytest.mark.parametrize("mode", ["copy", "symlink", "relocatable"])
def test_uv(wheel, env, tmp_path, mode):
    """uv venv and uv pip install, however uv brings files from its cache."""
    prefix = tmp_path / "v"
    more = ["--relocatable"] if mode == "relocatable" else []
    base = os.path.realpath(sys.executable)
    wheels.run(wheels.uv(), "venv", "-q", "--offline", *more, "--python", base, prefix, env=env)
    before = wheels.files_below(prefix)
    link = ["--link-mode", "copy" if mode == "relocatable" else mode]
    to = ["--python", prefix / "bin/python"]
    wheels.run(wheels.uv(), "pip", "install", "-q", "--offline", "--no-deps", *link, *to, wheel, env=env)
    works_in(prefix / "bin/python", prefix, env, tmp_path / "work")
    finds_its_environment(prefix, env, tmp_path)
    wheels.run(wheels.uv(), "pip", "uninstall", "-q", *to, "cellblock", env=env)
    left = wheels.files_below(prefix) - before - {".lock"}
    assert not {p for p in left if not p.startswith("lib/python3") or "cellblock" in p}, left
