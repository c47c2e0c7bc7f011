"""packages.mode: what `%pip install` brings is there at once, outlives a Python that died, and never reaches the
host."""

import functools
import importlib.util
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

import kernels
from prefixes import conda_like
from warmth import Warm

pytestmark = pytest.mark.cellblock_only
ROOT = os.geteuid() == 0
PATIENCE = 150  # s: pip computes for seconds, which on a busy machine take as many times longer
SYSTEM_PYTHON = "/usr/bin/python3"
PIP = "import subprocess, sys; print(subprocess.run([sys.executable, '-m', 'pip', *{!r}], capture_output=True))"


def wheel(folder):
    info = "cellblock_tiny-1.0.dist-info"
    path = folder / "cellblock_tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("cellblock_tiny.py", "answer = 42\n")
        z.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: cellblock-tiny\nVersion: 1.0\n")
        z.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(f"{info}/RECORD", f"cellblock_tiny.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    path.chmod(0o644)
    return path.name


def files(folder):
    return sorted(str(p) for p in folder.rglob("*") if "__pycache__" not in p.parts)


def kernel_with(start, python, *sets, user=None):
    if user:
        kernels.let_in(start.folder)
    argv = [kernels.spec_argv()[0][0], "kernel", "--python", str(python)]
    for s in (*sets, "transactions.mode=off"):  # what kills Python is to end the jail
        argv += ["--set", s]
    return start(argv=[*argv, "-f", "{connection_file}"], user=user)


@functools.cache
def has_system_pip():
    done = subprocess.run([SYSTEM_PYTHON, "-m", "pip", "--version"], capture_output=True, check=False, cwd="/")
    return done.returncode == 0


def needs_system_pip():
    if not has_system_pip():
        pytest.skip(f"{SYSTEM_PYTHON} has no pip")


def small_venv(folder):
    needs_system_pip()
    make = [SYSTEM_PYTHON, "-m", "venv", "--without-pip", "--system-site-packages", folder]
    subprocess.run(make, check=True)
    return folder / "bin/python"


def install_and_look(k, python_folder):
    name = wheel(k.workspace)
    before = files(python_folder)
    cell = k.client.run(PIP.format(["install", name]), timeout=PATIENCE)
    assert "Successfully installed cellblock-tiny" in cell.text(), (cell.text(), cell.content)
    assert k.client.run("import cellblock_tiny; cellblock_tiny.answer").result == "42"
    assert files(python_folder) == before


def test_pip_magic(start, nothing_left):
    """In the interpreter that the tests' own kernelspec names."""
    k = start()
    name = wheel(k.workspace)
    cell = k.client.run(f"%pip install ./{name}", timeout=PATIENCE)
    assert "Successfully installed cellblock-tiny" in cell.text(), cell
    assert k.client.run("import cellblock_tiny; cellblock_tiny.answer").result == "42"
    k.client.run("import os; os._exit(1)")
    assert k.client.run("import cellblock_tiny; cellblock_tiny.answer").result == "42", "gone with Python's death"
    other = start()
    assert other.client.run("import cellblock_tiny").content["ename"] == "ModuleNotFoundError"


def test_read_only_says_so(start):
    k = start(args=("--set", "packages.mode=ro"))
    name = wheel(k.workspace)
    cell = k.client.run(f"%pip install ./{name}", timeout=PATIENCE)
    assert cell.content["ename"] == "UsageError"
    assert "packages.mode" in cell.content["evalue"]
    said = k.client.run(PIP.format(["install", name]), timeout=PATIENCE).text()
    assert "Read-only file system" in said, said
    assert k.client.run("%pip --version").ok


@pytest.mark.parametrize("who", ["caller", "user", "user, root's venv"])
def test_venv(start, nothing_left, request, who):
    user = request.getfixturevalue("ordinary_user") if who != "caller" else None
    folder = nothing_left / ("venv-" + who.replace(", root's ", "-"))
    python = small_venv(folder)
    if who == "user":
        for d, names, others in os.walk(folder):
            for n in [d, *(os.path.join(d, x) for x in names + others)]:
                os.chown(n, user.pw_uid, user.pw_gid, follow_symlinks=False)
    install_and_look(kernel_with(start, python, user=user), folder)


def test_venv_in_the_workspace(start, nothing_left):
    python = small_venv(nothing_left / "work" / "venv")
    argv = [kernels.spec_argv()[0][0], "kernel", "--python", str(python), "-f", "{connection_file}"]
    k = start(argv=argv, workspace=nothing_left / "work")
    install_and_look(k, nothing_left / "work/venv")


# where the link is, where it leads, and where the environment lies
LINKS = {
    "leads out of the workspace": ("work/.venv", "../envs/own", "envs/own"),
    "leads to its neighbour": ("work/.venv", "envs/own", "work/envs/own"),
    "leads into the workspace": ("own", "work/.venv", "work/.venv"),
}


def linked_venv(folder, way="leads out of the workspace"):
    """An environment and a link to it, at least one in the workspace: how a kernel starts by the link, and both."""
    link, to, real = LINKS[way]
    (folder / "work").mkdir(parents=True)
    small_venv(folder / real)
    (folder / link).symlink_to(to)
    python = folder / link / "bin/python"
    argv = [kernels.spec_argv()[0][0], "kernel", "--python", str(python), "-f", "{connection_file}"]
    return {"argv": argv, "workspace": folder / "work"}, folder / link, folder / real


@pytest.mark.parametrize("way", LINKS)
def test_a_link_to_a_venv(start, nothing_left, way):
    how, link, real = linked_venv(nothing_left / way.replace(" ", "-"), way)
    install_and_look(start(**how), real)
    k = start(**how, args=["--set", "packages.mode=ro"])
    assert k.client.run("import sys; sys.prefix").result == repr(str(link))
    assert "Read-only" in k.client.run("open(sys.prefix + '/new', 'w')").content["evalue"]


@pytest.mark.parametrize("mode", ["session", "ro"])
def test_a_link_in_the_workspace_and_a_warm_start(start, nothing_left, no_zygotes_left, mode):
    how, link, _ = linked_venv(nothing_left / f"linked-warm-{mode}")
    warmth = Warm(lambda **more: start(**how, **more), f"packages.mode={mode}")
    try:
        k = warmth.begin().warm()
        assert k.client.run("import sys, fractions; sys.prefix").result == repr(str(link))
    finally:
        warmth.end()


@pytest.mark.parametrize("who", ["caller", "user"])
def test_system_interpreter(start, nothing_left, request, who):
    needs_system_pip()
    user = request.getfixturevalue("ordinary_user") if who == "user" else None
    k = kernel_with(start, SYSTEM_PYTHON, user=user)
    install_and_look(k, nothing_left)


def test_a_conda_like_prefix(start, nothing_left):
    """All that Python is made of lies in the layer's prefix: what is installed is there, what is deleted comes back."""
    pip = importlib.util.find_spec("pip")
    if pip is None:
        pytest.skip("these tests run without pip")
    prefix = nothing_left / "conda"
    python = conda_like(prefix)
    library = next(prefix.glob("lib/python3*"))  # of what else is on the path, distributions have their own ideas
    shutil.copytree(Path(pip.origin).parent, library / "pip")
    k = kernel_with(start, python)
    before = files(prefix)
    cell = k.client.run(PIP.format(["install", f"--target={library}", wheel(k.workspace)]), timeout=PATIENCE)
    assert "Successfully installed cellblock-tiny" in cell.text(), (cell.text(), cell.content)
    assert k.client.run("import cellblock_tiny; cellblock_tiny.answer").result == "42"
    assert files(prefix) == before
    k.client.run("import encodings, os, shutil; shutil.rmtree(os.path.dirname(encodings.__file__)); os._exit(1)")
    cell = k.client.run("6*7", timeout=PATIENCE)
    assert cell.result == "42" and "packages: what was installed or deleted" in cell.text("stderr"), cell
    assert k.client.run("import cellblock_tiny").content["ename"] == "ModuleNotFoundError"


def test_the_layer_is_limited(start):
    k = start(args=("--set", "limits.tmp=1M"))
    code = "import sys\nwith open(sys.prefix + '/big', 'wb') as f:\n    f.write(bytes(4 << 20))"
    cell = k.client.run(code)
    assert "No space left" in cell.content["evalue"], cell
    assert k.client.run("6*7").result == "42"


def test_a_full_layer_goes_on_in_the_next_jail(start, nothing_left):
    k = kernel_with(start, small_venv(nothing_left / "full"), "limits.inodes=1000")
    code = "import os, sys\nn = 0\ntry:\n    while True: open(f'{sys.prefix}/n{n}', 'x').close(); n += 1\n"
    cell = k.client.run(code + "except OSError as e:\n    print(e.errno)")
    assert cell.text().startswith("28"), cell
    k.client.run("os._exit(1)")
    cell = k.client.run("import os, sys; os.remove(sys.prefix + '/n0'); open(sys.prefix + '/new', 'x').close()")
    assert cell.ok and "packages:" not in cell.text("stderr"), cell


BROKEN = {
    "another program": "os.unlink(sys.executable); open(sys.executable, 'w').write('#!/bin/sh\\n'); "
    "os.chmod(sys.executable, 0o755)",
    "a module ends it": "open(sysconfig.get_path('purelib') + '/x.pth', 'w').write('import os; os._exit(3)')",
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_python_that_does_not_start_comes_back(start, nothing_left, how):
    """What a session has done to its interpreter is undone when that does not start with it."""
    k = kernel_with(start, small_venv(nothing_left / how.replace(" ", "-")))
    assert k.client.run(f"import os, sys, sysconfig; {BROKEN[how]}").ok
    k.client.run("os._exit(1)")
    cell = k.client.run("6*7", timeout=PATIENCE)
    assert cell.result == "42" and "packages: what was installed or deleted" in cell.text("stderr"), cell
    cell = k.client.run("6*7")
    assert cell.result == "42" and not cell.text("stderr"), "said once"


def test_a_deleted_interpreter_comes_back(start, nothing_left):
    k = kernel_with(start, small_venv(nothing_left / "deleted"), "transactions.mode=off")
    k.client.run("import os, sys, sysconfig; os.unlink(sys.executable); os._exit(1)")
    cell = k.client.run("6*7", timeout=PATIENCE)
    assert cell.result == "42" and "packages: what was installed or deleted" in cell.text("stderr")
