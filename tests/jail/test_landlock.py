"""The second wall, where this kernel has Landlock: what it refuses that no mount refuses, and that work goes on behind
it. Its bits by version are in tests/unit/sandbox/walls/test_landlock.c."""

import ctypes
import os
import socket
import subprocess
import uuid
from pathlib import Path

import pytest

import kernels

pytestmark = pytest.mark.cellblock_only
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
VERSION = libc.syscall(ctypes.c_long(444), None, ctypes.c_size_t(0), ctypes.c_uint32(1))

BUILD = Path(os.environ.get("CELLBLOCK_BUILD") or Path(__file__).resolve().parents[2] / "build/check")
PYTHON = "/usr/bin/python3"
CONNECT = """
import socket, sys
s = socket.socket(socket.AF_UNIX)
try:
    s.connect(sys.argv[1].replace("@", chr(0)))
    print("reached")
except OSError as e:
    print(type(e).__name__)
"""
WORK = """
set -e
mkdir a; echo text > a/f; mkdir b; mv a/f b/g; ln b/g h; ln -s h s; mkfifo p; cat s; rm -r a b h s p
echo x > /dev/null; echo x > /tmp/f; mv /tmp/f /tmp/g; echo x > /dev/shm/f; echo x > ~/f; echo said
echo in > data/f; mv data/f data/g
"""


@pytest.fixture(scope="module", autouse=True)
def has_landlock():
    if VERSION < 2:
        pytest.skip("this kernel has no Landlock (or only its first version): the second wall was not tried")


def jailed(*argv, cwd, settings=()):
    program = kernels.spec_argv()[0][0]
    sets = [a for s in settings for a in ("--set", s)]
    return subprocess.run([program, "run", *sets, "--", *argv], cwd=cwd, capture_output=True, text=True, timeout=60)


@pytest.fixture
def abstract():
    name = f"cellblock-{uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind("\0" + name)
        s.listen(5)
        yield "@" + name


def test_abstract_sockets_beside_the_hosts_network(tmp_path, abstract):
    """With network full the jail shares the network namespace that such sockets live in."""
    if VERSION < 6:
        pytest.skip("Landlock before version 6 has no scopes: host's abstract sockets are open to network.mode full")
    outside = subprocess.run([PYTHON, "-c", CONNECT, abstract], capture_output=True, text=True)
    assert outside.stdout == "reached\n"
    done = jailed(PYTHON, "-c", CONNECT, abstract, cwd=tmp_path, settings=["network.mode=full"])
    assert done.stdout == "PermissionError\n", done


@pytest.mark.parametrize("name, text", [("comm", "mine"), ("oom_score_adj", "0"), ("oom_score_adj", "1000")])
def test_proc_is_not_written(tmp_path, name, text):
    done = jailed("sh", "-c", f"echo {text} > /proc/self/{name}", cwd=tmp_path)
    assert done.returncode != 0 and "denied" in done.stderr, done


WRITABLE_OF_PROC = """
import os, stat
found = []
for at, folders, names in os.walk("/proc"):
    folders[:] = [name for name in folders if not name.isdigit()]
    for path in (os.path.join(at, name) for name in names):
        try:
            if stat.S_ISREG(os.lstat(path).st_mode):
                os.close(os.open(path, os.O_WRONLY))
                found.append(path)
        except OSError:
            pass
print(found)
"""


def test_proc_is_not_written_without_it_either(tmp_path):
    """What of the kernel's own the jail's /proc shows is closed by its mounts alone."""
    like = BUILD / "tests/host-like"
    if not like.exists():
        pytest.skip("host-like is not built: set CELLBLOCK_BUILD")
    command = [like, "no-landlock", kernels.spec_argv()[0][0], "run", "--", PYTHON, "-c", WRITABLE_OF_PROC]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done


def test_work_goes_on(tmp_path):
    data = tmp_path / "data"
    for d in (data, tmp_path / "work", tmp_path / "work/data"):
        d.mkdir()
    mount = '[{"source": "%s", "target": "%s/work/data", "mode": "rw"}]' % (data, tmp_path)
    done = jailed("sh", "-c", WORK, cwd=tmp_path / "work", settings=["mounts=" + mount])
    assert (done.returncode, done.stdout, done.stderr) == (0, "text\nsaid\n", "")
    assert os.listdir(data) == ["g"]


def test_output_that_is_a_file(tmp_path):
    out = tmp_path / "out"
    with open(out, "wb") as f:
        os.fchmod(f.fileno(), 0o666)
        done = subprocess.run(
            [kernels.spec_argv()[0][0], "run", "sh", "-c", "echo one > /dev/stdout; cat < /dev/stdout"],
            cwd=tmp_path,
            stdout=f,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert out.read_text() == "one\n" and done.returncode != 0, "may be written again, but not read"
