"""What several files of jails start from: attacks on names (lib/nameslab.py), snapshots (lib/overlayfiles.py)."""

import contextlib
import fcntl
import os
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import psutil
import pytest

import kernels
import nameslab
from overlayfiles import BUILD, Files
from warmth import Warm


def set_apart(folder):
    """What is made in it gets a part of the disk of its own, as by chattr +T: an ext4 without a journal passes over all
    that was removed nearby in the last minutes, one by one, for each file that is made."""
    fd = os.open(folder, os.O_RDONLY)
    with contextlib.suppress(OSError):  # another file system
        flags = int.from_bytes(fcntl.ioctl(fd, 0x80086601, bytes(8)), sys.byteorder)  # FS_IOC_GETFLAGS
        fcntl.ioctl(fd, 0x40086602, (flags | 0x20000).to_bytes(8, sys.byteorder))  # FS_IOC_SETFLAGS, FS_TOPDIR_FL
    os.close(fd)


@pytest.fixture
def lab(request, nothing_left):
    """A folder with the host's files and a way of starting jails in it; the parameter is one of nameslab.halves()."""
    user = request.getfixturevalue("ordinary_user") if request.param == "user" and nameslab.ROOT else None
    # Not below pytest's folder: it keeps those of the last three runs, and these are full of junk.
    folder = tempfile.mkdtemp(prefix="cb-names-")
    set_apart(folder)
    lab = nameslab.Lab(Path(folder) / Path(folder).name, request.param, user)  # the name is by what a part is found
    os.chmod(folder, 0o755)
    yield lab
    lab.end()
    subprocess.run(["rm", "-rf", folder], check=False)  # in less time than Python


def who():
    yield pytest.param((), id="me")
    if os.geteuid() == 0:
        yield pytest.param(("setpriv", "--reuid=65533", "--regid=65533", "--clear-groups"), id="user")


@pytest.fixture(params=who())
def files(request, tmp_path):
    prefix = list(request.param)
    for folder in (tmp_path, *tmp_path.parents):
        if prefix and str(folder).count("/") > 1:
            folder.chmod(folder.stat().st_mode | 0o055)
    work = tmp_path / "work"
    (work / "old/deep/er").mkdir(parents=True)
    for name in ("a", "b", "old/c", "old/deep/d", "old/deep/er/e"):
        (work / name).write_text(name * 100)
    (work / "link").symlink_to("old/c")
    if prefix:
        subprocess.run(["chown", "-R", "65533:65533", str(work)], check=True)
        if subprocess.run([*prefix, "test", "-x", f"{BUILD}/tests/spec-make"], check=False).returncode != 0:
            pytest.skip("the build folder is out of the other user's reach")
    made = []

    def make(*more, prefix=prefix):
        made.append(Files(work, prefix, *more))
        return made[-1]

    make.work, make.prefix = work, prefix
    yield make
    for each in made:
        each.broker.close()


@pytest.fixture(params=["caller", "user"])
def overlay(start, nothing_left, request):
    """A kernel with an overlay on a small folder."""
    user = request.getfixturevalue("ordinary_user") if request.param == "user" else None
    work = nothing_left / request.node.name.replace("/", "_") / "work"
    for name, text in {"a": "a", "b": "b", "d/x": "x", "d/e/y": "y", "f/g": "g", ".git/hooks/old": "host"}.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text)
    (work / "b").chmod(0o755)
    (work / "link").symlink_to("a")
    if user:
        for d, names, files in os.walk(work):
            for n in [d, *(os.path.join(d, x) for x in names + files)]:
                os.chown(n, user.pw_uid, user.pw_gid, follow_symlinks=False)
        kernels.let_in(start.folder, work.parent)
    return start(argv=kernels.system_argv("workspace.mode=overlay"), workspace=work, user=user)


@pytest.fixture(scope="module")
def no_zygotes_left(nothing_left):
    """A cold kernel starts a zygote at its end, when its test is over."""
    yield
    end = time.monotonic() + 30
    while time.monotonic() < end:
        coming = False
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                alive = process.status() != psutil.STATUS_ZOMBIE
                # who has just been made by a broker, which has ended, is still named like it
                made = process.name() == "cellblock-jail" and process.ppid() == os.getpid()
                coming = coming or alive and (made or process.name() == "cellblock-warm")
        marks = [b"\0CELLBLOCK_TEST=" + mark.encode() for mark in Warm.marks]
        for process in psutil.process_iter():
            if kernels.is_zygote(process.pid) and any(kernels.is_zygote(process.pid, mark) for mark in marks):
                kernels.kill_all([process])
        if not coming:
            return
        time.sleep(0.25)


@pytest.fixture
def warmth(start):
    """Makes a zygote, of the first kernel that is started; see lib/warmth.py."""
    made = []

    def make(*sets, by=start, **variables):
        made.append(Warm(by, *sets, **variables))
        return made[-1].begin()

    yield make
    for each in made:
        each.end()


@pytest.fixture
def module():
    """Makes a module of the interpreter's, by its text."""
    site = Path(kernels.spec_argv()[0][0]).resolve().parent.parent / "lib"
    folders = list(site.glob("python3*/site-packages"))
    if not folders or not os.access(folders[0], os.W_OK):
        pytest.skip("the interpreter's site-packages can't be written")
    made = []

    def make(text):
        made.append(folders[0] / f"cellblock_test_{uuid.uuid4().hex}.py")
        made[-1].write_text(text)
        return made[-1].stem

    make.folder = folders[0]
    yield make
    for each in made:
        each.unlink()
