"""Two jails that work in one folder: what both make or move in one moment has to be right by the name it gets."""

import errno
import os
import subprocess

import pytest

import nameslab
from nameslab import PYTHON

pytestmark = [pytest.mark.cellblock_only, pytest.mark.timeout(600)]
TIMES = 3000

# what both find, what one does and what the other does in the same moment; what must not come of it
RACES = {
    "a folder of hooks": (
        "os.makedirs(w + '/q')",
        "os.mkdir(w + '/q/hooks')",
        "os.rename(w + '/q', w + '/.svn')",
        ".svn/hooks",
    ),
    "a program of an environment": (
        "os.makedirs(w + '/q')",
        "os.close(os.open(w + '/q/activate', os.O_CREAT | os.O_WRONLY, 0o755))",
        "os.rename(w + '/q', w + '/bin')",
        "bin/activate",
    ),
    "a link that leads out": (
        "os.makedirs(w + '/a/b/c'); os.makedirs(w + '/a/b/d'); os.symlink('../../../../OUT', w + '/a/b/d/l')",
        "os.rename(w + '/a/b/d/l', w + '/a/b/c/l')",
        "os.rename(w + '/a/b/c', w + '/c')",
        "c/l",
    ),
    "a link in the place of what is moved": (
        "os.makedirs(w + '/a/b'); open(w + '/a/b/f', 'w').close(); os.symlink('../../../OUT', w + '/a/b/l')",
        "os.rename(w + '/a/b/l', w + '/a/b/f')",
        "os.rename(w + '/a/b/f', w + '/f')",
        "f",
    ),
    "a link in the place of what is linked": (
        "os.makedirs(w + '/a/b'); open(w + '/a/b/f', 'w').close(); os.symlink('../../../OUT', w + '/a/b/l')",
        "os.rename(w + '/a/b/l', w + '/a/b/f')",
        "os.link(w + '/a/b/f', w + '/f')",
        "f",
    ),
    "a repository by a socket": (
        "os.makedirs(w + '/d/objects')",
        "socket.socket(socket.AF_UNIX).bind(w + '/d/refs')",
        "os.close(os.open(w + '/d/HEAD', os.O_CREAT | os.O_WRONLY))",
        "d/refs d/HEAD",
    ),
}
# What both find is made outside: the judge has no part in it.
PREPARED = """
import os, time
for i in range(%d):
    w = "cell-%%d" %% i
    os.mkdir(w)
    %s
time.sleep(2.5)  # what others have made this moment is held back
"""
BOTH = """
import mmap, os, random, socket, struct, sys, time
mine, times = sys.argv[1], %d
other = {"one": "other", "other": "one"}[mine]
with open("turn-" + mine, "w+b") as f:
    f.write(bytes(4))
    f.flush()
    turn = mmap.mmap(f.fileno(), 4)
open("ready-" + mine, "w").close()
while not os.path.exists("ready-" + other):
    time.sleep(0.001)
with open("turn-" + other, "rb") as f:
    others = mmap.mmap(f.fileno(), 4, prot=mmap.PROT_READ)
met = 0

def both_at(step, spin):  # who finds nobody soon sleeps: who spins has no processor left when it matters
    struct.pack_into("I", turn, 0, step)
    spins = time.perf_counter() + spin
    while struct.unpack_from("I", others)[0] < step:
        if time.perf_counter() > spins:
            time.sleep(0.0001)

for i in range(times):  # each turn when both are there, however busy the machine is, and both awake
    w = "cell-%%d" %% i
    both_at(2 * i + 1, 0)
    both_at(2 * i + 2, 0.0005)
    at = time.perf_counter() + random.uniform(0, 12e-5)
    while time.perf_counter() < at:
        pass
    try:
        if mine == "one":
            %s
        else:
            %s
        met += 1
    except OSError:
        pass
print(met)
"""


def race(lab, prepare, one, other):
    """How often each of the two jails has done what it was to do."""
    lab.furnish()
    lab.host(PYTHON, "-c", PREPARED % (TIMES, prepare))
    both = [lab.start(PYTHON, "-c", BOTH % (TIMES, one, other), who) for who in ("one", "other")]
    met = []
    for p in both:
        out, err = p.communicate(timeout=300)
        assert p.returncode == 0, err[-2000:]
        met.append(int(out.split()[-1]))
    return met


@nameslab.halves("root without cgroups")
@pytest.mark.parametrize("kind", RACES)
def test_two_jails_race(lab, kind):
    prepare, one, other, made = RACES[kind]
    met = race(lab, prepare, one, other)
    there = os.path.islink if kind.startswith("a link") else os.path.lexists
    won = [i for i in range(TIMES) if all(there(lab.work / f"cell-{i}" / each) for each in made.split())]
    assert not won, (kind, len(won), met)
    assert all(met), "one of the two never did anything"


# What one does while the other moves "x", which nobody else may write, into a git folder.
MAKE_X = "os.makedirs(w + '/.git'); os.close(os.open(w + '/x', os.O_CREAT, 0o600)); "
OPENERS = {
    "its mode": ("", "os.chmod(w + '/x', 0o622)"),
    "its mode, which is closed by who moves it": ("os.chmod(w + '/x', 0o622); ", "os.chmod(w + '/x', 0o622)"),
    "another in its place": (
        "os.close(os.open(w + '/y', os.O_CREAT, 0o600)); os.chmod(w + '/y', 0o622); ",
        "os.rename(w + '/y', w + '/x')",
    ),
    "a name outside": ("", "os.link(w + '/x', w + '/y'); os.chmod(w + '/y', 0o622)"),
}


@nameslab.halves("root without cgroups")
@pytest.mark.parametrize("kind", OPENERS)
def test_what_is_moved_into_a_git_folder_is_not_open_to_others(lab, kind):
    prepare, opens = OPENERS[kind]
    closes = "os.chmod(w + '/x', 0o600); " if "closed" in kind else ""
    met = race(lab, MAKE_X + prepare, opens, closes + "os.rename(w + '/x', w + '/.git/MERGE_MSG')")
    moved = [lab.work / f"cell-{i}/.git/MERGE_MSG" for i in range(TIMES)]
    opened = [p for p in moved if p.exists() and p.stat().st_mode & 0o022]
    assert not opened, (kind, len(opened), met)
    assert all(met), "one of the two never did anything"


@nameslab.halves("root without cgroups")
def test_one_file_that_both_replace(lab):
    """Each has what it did: neither is told that it failed, and nothing comes back from where it went."""
    met = race(
        lab,
        "[open(w + '/' + each, 'w').close() for each in 'abx']",
        "os.replace(w + '/a', w + '/x')",
        "os.replace(w + '/b', w + '/x')",
    )
    assert met == [TIMES, TIMES]
    assert all(os.listdir(lab.work / f"cell-{i}") == ["x"] for i in range(TIMES))


TAKEN = """
import os
os.mkdir("q")
for i in range(2000):
    open("t", "w").close()
    os.rename("t", "q/x")
    open("u", "w").close()
    try:
        os.link("u", "q/y")
    except FileExistsError:
        pass
    os.unlink("u")
print("done")
"""


@nameslab.halves("root without cgroups")
def test_what_is_taken_at_once(lab):
    """As by who watches a folder: that it has gone again is no failure."""
    lab.furnish()
    taken, cell = 0, lab.start(PYTHON, "-c", TAKEN)
    while cell.poll() is None:
        for name in "xy":
            try:
                os.unlink(lab.work / "q" / name)
                taken += 1
            except FileNotFoundError:
                pass
    out, err = cell.communicate(timeout=300)
    assert out.split() == ["done"] and taken, (out, err[-2000:], taken)


DEEP = """
import os
fd = os.open(".", os.O_RDONLY)
for name in ["deep"] + ["d"] * 1500:
    os.mkdir(name, dir_fd=fd)
    inner = os.open(name, os.O_RDONLY, dir_fd=fd)
    os.close(fd)
    fd = inner
for _ in range(5):
    try:
        os.rename("deep", "deeper")
    except OSError as e:
        print(e.errno)
open("after", "w").close()
"""


@nameslab.halves("root without cgroups")
def test_a_very_deep_folder_is_not_moved(lab):
    """By the error that has programs copy it; who looks through it outlives that."""
    lab.furnish()
    done = lab.run(PYTHON, "-c", DEEP)
    assert done.stdout.split() == [str(errno.EXDEV)] * 5, (done.stdout, done.stderr[-1000:])
    assert (lab.work / "after").exists()
    subprocess.run(["rm", "-rf", lab.work / "deep"], check=True)  # too deep for shutil
