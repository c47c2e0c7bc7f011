"""What people run in notebooks works behind the walls; and every kind of interpreter runs cells.

Interpreters: those of CELLBLOCK_TEST_PYTHONS (separated by ':'), else this one, the system's, and those of
~/.pyenv/versions; the names of the tests say which.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import kernels
from prefixes import conda_like
from rawclient import Client
from workloads import NEEDS, WORKLOADS

pytestmark = pytest.mark.cellblock_only
SYSTEM = "/usr/bin/python3"
PATIENCE = 150  # s


def versions():
    """One interpreter of each version."""
    listed = [p for p in os.environ.get("CELLBLOCK_TEST_PYTHONS", "").split(":") if p]
    pyenv = sorted(str(p) for p in Path("~/.pyenv/versions").expanduser().glob("3.*/bin/python"))
    found = {}
    for path in listed or [sys.executable, SYSTEM, *pyenv]:
        ask = [path, "-Ic", "import sys; print('%d.%d.%d' % sys.version_info[:3], sys.version_info >= (3, 9))"]
        try:
            version, good = subprocess.run(ask, check=True, capture_output=True, text=True).stdout.split()
        except (OSError, subprocess.CalledProcessError):
            continue
        if good == "True":
            found.setdefault(version, path)
    return found


VERSIONS = versions()


def start(place, python, workspace=None, args=(), env=None, ready=True):
    program = kernels.spec_argv()[0][0]
    kernel = kernels.Kernel(
        place,
        argv=[program, "kernel", "--python", str(python), *args, "-f", "{connection_file}"],
        workspace=workspace,
        env={"VIRTUAL_ENV": None, "CONDA_PREFIX": None, **(env or {})},
    )
    client = Client(kernel)
    client.ready()
    return kernel, client


class Lab:
    def __init__(self, folder, python, **how):
        self.kernel, self.client = start(folder, python, **how)

    def run(self, code, timeout=PATIENCE):
        cell = self.client.run(code, timeout=timeout)
        assert cell.ok, cell.content.get("traceback") or cell.content
        return cell

    def close(self):
        self.client.close()
        self.kernel.stop()


class Shared:
    def __init__(self, folder, *args):
        self.folder, self.args, self.labs = folder, args, []
        self.renew()

    def renew(self):
        self.labs.append(Lab(self.folder / f"lab{len(self.labs)}", sys.executable, args=self.args))

    @property
    def kernel(self):
        return self.labs[-1].kernel


# They make what programs outside would execute: refused in a writable workspace, and not committed from a layer.
LAYERED = {"git", "venv"}


@pytest.fixture(scope="module")
def shared(nothing_left):
    (nothing_left / "layered").mkdir()
    both = {False: Shared(nothing_left), True: Shared(nothing_left / "layered", "--set", "workspace.mode=overlay")}
    yield both
    for each in both[False].labs + both[True].labs:
        each.close()


@pytest.fixture
def lab(shared, name):
    """The module's; a new one after a test that failed (conftest.py ends its kernel)."""
    one = shared[name in LAYERED]
    if one.kernel.closed or not one.kernel.alive():
        one.renew()
    return one.labs[-1]


@pytest.fixture
def new_lab(nothing_left, request):
    labs = []

    def make(python, **how):
        labs.append(Lab(nothing_left / f"{request.node.name[:40]}-{len(labs)}", python, **how))
        return labs[-1]

    yield make
    for each in labs:
        each.close()


@pytest.mark.parametrize("name", WORKLOADS)
def test_workload(lab, name):
    for need in NEEDS.get(name, ()):
        if not shutil.which(need) and importlib.util.find_spec(need) is None:
            pytest.skip(f"{need} is not there, so the workload {name} was not tried")
    lab.run("mark = 'kept'")
    lab.run(WORKLOADS[name])
    assert lab.run("mark").result == "'kept'"
    assert not os.listdir(lab.kernel.workspace), "left in the workspace"


BASIC = r"""
import asyncio, ctypes, hashlib, json, multiprocessing, sqlite3, ssl, subprocess, sys, threading, zlib
def double(n):
    return 2 * n
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(double, [1, 2]) == [2, 4]
assert subprocess.check_output([sys.executable, "-c", "print(1)"]) == b"1\n"
await asyncio.sleep(0.001)
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_interpreter(new_lab, version):
    lab = new_lab(VERSIONS[version])
    assert lab.run("import sys\n'%d.%d.%d' % sys.version_info[:3]").result == repr(version)
    lab.run(BASIC)
    prefix = lab.run("sys.prefix").result[1:-1]
    lab.client.run(f"open({prefix!r} + '/planted', 'w')", timeout=PATIENCE)  # read-only, or a layer over it
    assert not os.path.exists(prefix + "/planted")


def test_a_venv_in_the_workspace(new_lab, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    tmp_path.chmod(0o755)
    venv.create(work / "env", symlinks=True, with_pip=False)
    site = next((work / "env/lib").glob("python3*")) / "site-packages"
    (site / "mine.py").write_text("x = 42\n")
    lab = new_lab(work / "env/bin/python", workspace=work)
    assert lab.run("import mine, sys\nmine.x, sys.prefix, sys.prefix != sys.base_prefix").result == repr(
        (42, str(work / "env"), True)
    )
    lab.run("import os\nopen('free', 'w').close(); os.unlink('free')")
    lab.client.run(f"open({str(site / 'evil.pth')!r}, 'w')", timeout=PATIENCE)  # read-only, or a layer over it
    assert not (site / "evil.pth").exists()


def test_a_conda_like_prefix_under_a_hidden_home(new_lab, tmp_path):
    """The home is nobody else's to enter; of it the jail shows the prefix alone."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "secret").write_text("secret")
    tmp_path.chmod(0o755)
    python = conda_like(home / "conda")
    lab = new_lab(python, env={"HOME": str(home), "CONDA_PREFIX": str(home / "conda")})
    code = f"import os, sys, ssl, sqlite3\nsys.prefix, os.environ.get('CONDA_PREFIX'), os.listdir({str(home)!r})"
    assert lab.run(code).result == repr((str(home / "conda"), str(home / "conda"), ["conda"]))
    lab.client.run(f"open({str(home / 'conda/conda-meta/history')!r}, 'a').write('x')", timeout=PATIENCE)
    assert (home / "conda/conda-meta/history").read_text() == ""


def test_an_editable_install_next_door(new_lab, tmp_path):
    """Its sources lie outside: not seen, and named with the cure when the kernelspec is made; a mount is the cure."""
    env, beside = tmp_path / "env", tmp_path / "beside"
    tmp_path.chmod(0o755)
    venv.create(env, symlinks=True, with_pip=False)
    beside.mkdir()
    (beside / "nextdoor.py").write_text("x = 42\n")
    site = next((env / "lib").glob("python3*")) / "site-packages"
    (site / "__editable__.nextdoor-1.pth").write_text(f"{beside}\n")
    (site / "nextdoor-1.dist-info").mkdir()
    direct = {"url": f"file://{beside}", "dir_info": {"editable": True}}
    (site / "nextdoor-1.dist-info/direct_url.json").write_text(json.dumps(direct))
    said = subprocess.run(
        [kernels.spec_argv()[0][0], "install", "--python", env / "bin/python", "--prefix", tmp_path / "spec"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HOME": str(tmp_path)},
    ).stderr
    assert str(beside) in said and "mounts" in said
    cell = new_lab(env / "bin/python").client.run("import nextdoor", timeout=PATIENCE)
    assert cell.content["ename"] == "ModuleNotFoundError"
    cure = '[{"source": "%s"}]' % beside
    lab = new_lab(env / "bin/python", args=["--set", f"mounts={cure}"])
    assert lab.run("import nextdoor\nnextdoor.x").result == "42"
