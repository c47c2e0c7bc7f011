"""Calls with odd arguments fail, or do, in the workspace what they do on a plain folder; what is by design otherwise is
named here.
"""

import json
import os
import shutil
import subprocess

import pytest

import nameslab
from nameslab import PYTHON, halves

pytestmark = [pytest.mark.cellblock_only, pytest.mark.timeout(600)]

# By what a case begins with: what comes of it in a jail.
OTHERWISE = {
    "openat RDWR TMPFILE": "ENOTSUP",  # a name for it later could not be judged
    "open RDWR TMPFILE": "ENOTSUP",
    "fchownat 1000": "EROFS",  # AT_EMPTY_PATH is not served
    "linkat 1000 |  | ": "EROFS",
    "linkat of an fd | fd f |  | ": "EROFS",
    "symlinkat xxxxx": "EPERM",  # a target that is too long to be judged
}


@halves("root", "root without cgroups")
def test_calls_with_odd_arguments(lab):
    lab.put("calls.py", (nameslab.HERE / "calls.py").read_text())
    plain = lab.folder / "plain"
    shutil.copytree(lab.work, plain)
    lab.give()
    want = json.loads(lab.host(PYTHON, "calls.py", cwd=plain, stderr=subprocess.DEVNULL))
    done = lab.run(PYTHON, "calls.py", timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    got = json.loads(done.stdout)
    assert want.keys() == got.keys() and len(want) > 1000
    faults, used = [], set()
    for case in want:
        if want[case] == got[case]:
            continue
        reason = [k for k, said in OTHERWISE.items() if case.startswith(k) and got[case][0] == said]
        used.update(reason)
        if not reason or got[case][-1]:
            faults.append((case, want[case], got[case]))
    assert not faults, (len(faults), faults[:20])
    if tuple(int(n) for n in os.uname().release.split(".")[:2]) >= (6, 10):
        assert used == set(OTHERWISE), "what is the same by now"


FULL = """
import errno, os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
open("old", "w").write("old")
said = []
def tried(*how):
    try: os.close(os.open(*how))
    except OSError as e: said.append(errno.errorcode[e.errno])
    else: said.append("ok")
names = os.listdir(".")
fds = []
try:
    while True: fds.append(os.dup(0))
except OSError: pass
tried("new", os.O_CREAT | os.O_WRONLY, 0o600)
tried("new2", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
tried("old", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
os.close(fds.pop())
print(*said, sorted(os.listdir(".")) == sorted(names), open("old").read())
"""


@halves("root without cgroups")
def test_nothing_is_made_without_a_free_descriptor(lab):
    assert lab.host(PYTHON, "-c", FULL) == "EMFILE EMFILE EMFILE True old\n"
    (lab.work / "old").unlink()
    assert lab.good(FULL) == "EMFILE EMFILE EMFILE True old\n"


GONE = """
import errno, os, sys, time
os.chdir(sys.argv[1])
print("here", flush=True)
while os.stat(".").st_nlink: time.sleep(0.01)
open("/tmp/f", "w").close()
for act in (lambda: open("x", "w"), lambda: os.mkdir("x"), lambda: os.symlink("a", "x"), lambda: os.mkfifo("x"),
            lambda: os.unlink("x"), lambda: os.rmdir("x"), lambda: os.rename("x", "y"), lambda: os.chmod("x", 0o600),
            lambda: os.utime("x"), lambda: os.truncate("x", 1), lambda: os.open("x", os.O_WRONLY)):
    try: act()
    except OSError as e: print(errno.errorcode[e.errno])
    else: print("ok")
"""


@halves("root without cgroups")
@pytest.mark.parametrize("which", ["", "sub"])
def test_a_folder_that_is_removed_outside(lab, which):
    """The workspace itself, or one in it; in the place of this another one is made, which nobody writes."""
    if which:
        (lab.work / which).mkdir()
        (lab.work / (which + " (deleted)")).mkdir()
        lab.give()
    p = lab.start(PYTHON, "-c", GONE, lab.work / which)
    assert p.stdout.readline() == "here\n", p.communicate()
    shutil.rmtree(lab.work / which)
    out, err = p.communicate(timeout=60)
    assert out.split() == ["ENOENT"] * 11, (out, err)
    assert which == "" or not os.listdir(lab.work / (which + " (deleted)"))


LEASE = """
import fcntl, os, signal
fd = os.open("leased", os.O_RDWR)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("leased", flush=True)
signal.sigwait({signal.SIGIO})
os.write(fd, b"from outside")
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
"""
OPENS = "with open('leased', 'r+') as f: print(f.read())"


@halves("root without cgroups")
def test_a_lease_of_a_program_outside_is_waited_for(lab):
    """As anywhere: who holds it is told first, and lets go."""
    lab.put("leased", "")
    lab.give()
    for jailed in (False, True):
        holder = subprocess.Popen([PYTHON, "-c", LEASE], cwd=lab.work, stdout=subprocess.PIPE, text=True, **lab.who())
        try:
            assert holder.stdout.readline() == "leased\n"
            assert (lab.good(OPENS) if jailed else lab.host(PYTHON, "-c", OPENS)) == "from outside\n"
        finally:
            holder.kill()
            holder.communicate()
        (lab.work / "leased").write_text("")
        lab.give()
