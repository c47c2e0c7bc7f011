"""Programs outside save a file under another name and rename it: nobody in a jail gets hold of it meanwhile.

What others have made a moment ago is not opened to write, linked, moved, removed or given another mode: such a call
waits until the file is older, and is judged by the name that it has then. What the jail has made itself never waits.
"""

import errno
import os
import shutil
import subprocess
import time

import pytest

from nameslab import PYTHON, halves

pytestmark = [pytest.mark.cellblock_only, pytest.mark.timeout(600)]
ROUNDS = 40
MOMENT = 1.5  # a save that has taken longer than that may have been seen

# Says how long a name of it was there: the start of an interpreter takes longer on a busy machine.
TEMPORARY = """
import os, sys, tempfile, time
for entry in sys.argv[1:]:
    began = time.monotonic()
    fd, name = tempfile.mkstemp(dir=os.path.dirname(entry))
    os.write(fd, b"HOST saved this\\n")
    os.fsync(fd)
    os.close(fd)
    os.replace(name, entry)
    print(time.monotonic() - began, entry)
"""


def save_by_program(lab, argv, entries):
    """Those that took so long that the temporary file was none of a moment's."""
    late = []
    for entry in entries:
        began = time.monotonic()
        lab.host(*argv, entry)
        late += [entry] * (time.monotonic() - began >= MOMENT)
    return late


def save_by_temporary(lab, argv, entries):
    said = map(str.split, lab.host(*argv, *entries).splitlines())
    return [entry for took, entry in said if float(took) >= MOMENT]


SAVERS = {
    "sed": (save_by_program, ["sed", "-i", "s/.*/HOST saved this/"]),
    "perl": (save_by_program, ["perl", "-i", "-pe", "s/.*/HOST saved this/"]),
    "temporary": (save_by_temporary, [PYTHON, "-c", TEMPORARY]),
}


@halves("root without cgroups")
@pytest.mark.parametrize("saver", SAVERS)
def test_temporary_files_of_saves(lab, saver):
    """By descriptors and second names from before the rename."""
    save, argv = SAVERS[saver]
    if not shutil.which(argv[0]):
        pytest.skip(f"no {argv[0]}: how it saves was not tried")
    lab.compile("grab")
    entries = [f"d/lefthook.{i}" for i in range(ROUNDS)]
    for entry in entries:
        lab.put(entry)
    lab.give()
    grabbing = lab.start("./grab", "stop", "d")
    lab.until("cell-ready", grabbing)
    late = entries
    for _ in range(20):
        late = late and save(lab, argv, late)
    if late:
        pytest.skip("this machine takes too long for a save")
    (lab.work / "stop").touch()
    out, err = grabbing.communicate(timeout=120)
    assert grabbing.returncode == 0, (out, err)
    won = {e: (lab.work / e).read_bytes() for e in entries if b"CELL" in (lab.work / e).read_bytes()}
    assert not won, (len(won), out)


REPLACE = """
import os, sys
with open("cell-mine", "w") as f:
    f.write("CELL was here")
open("cell-ready", "w").close()
while not os.path.exists("d/temporary"):
    if os.path.exists("over"):
        sys.exit("missed")
try:
    {act}
except OSError as e:
    print(e)
"""
# What becomes of a temporary file before it is renamed: each leaves "d/temporary" as the cell wants it.
REPLACES = {
    "unlink": "os.unlink('d/temporary'); os.rename('cell-mine', 'd/temporary')",
    "rename over": "os.rename('cell-mine', 'd/temporary')",
    "rename away": "os.rename('d/temporary', 'd/cell-other'); os.rename('cell-mine', 'd/temporary')",
    "truncate": "os.truncate('d/temporary', 0); open('d/temporary', 'w').write('CELL was here')",
    "chmod": "os.chmod('d/temporary', 0o777)",
    "append": "open('d/temporary', 'a').write('CELL was here')",
    "create": "os.write(os.open('d/temporary', os.O_WRONLY | os.O_CREAT), b'CELL was here')",
    "link": "os.link('d/temporary', 'cell-alias'); open('cell-alias', 'a').write('CELL was here')",
    "read and truncate": "os.open('d/temporary', os.O_RDONLY | os.O_TRUNC)",
    "another folder": "os.rename('d', 'cell-d'); os.mkdir('d'); there = os.path.exists('cell-d/temporary'); "
    "os.rename('cell-mine', 'd/temporary') if there else os.rename('cell-d', 'd')",
}


@halves("root without cgroups")
@pytest.mark.parametrize("act", REPLACES)
def test_a_temporary_file_is_not_replaced(lab, act):
    """The call waits; it is judged when the file has its other name, and finds what is there then."""
    lab.put("d/.envrc")
    lab.give()
    for _ in range(10):
        cell = lab.start(PYTHON, "-c", REPLACE.format(act=REPLACES[act]))
        lab.until("cell-ready", cell)
        began = time.monotonic()
        lab.host(PYTHON, "-c", SAVED_SLOWLY)
        quick = time.monotonic() - began < MOMENT
        lab.put("over")
        out, err = cell.communicate(timeout=120)
        missed = err.strip() == "missed"  # it had no processor
        assert missed or cell.returncode == 0, (out, err)
        for left in ("d/temporary", "cell-alias", "cell-ready", "over"):
            (lab.work / left).unlink(missing_ok=True)
        if quick and not missed:
            break
    else:
        pytest.skip("this machine takes too long for a save")
    entry = lab.work / "d/.envrc"
    assert entry.read_bytes() == b"HOST" and entry.stat().st_mode & 0o777 == 0o600, out
    assert entry.stat().st_nlink == 1


SAVED_SLOWLY = """
import os, time
fd = os.open("d/temporary", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
os.write(fd, b"HO")
time.sleep(0.5)  # an attacker has all the time that a slow program gives it
os.write(fd, b"ST")
os.close(fd)
os.replace("d/temporary", "d/.envrc")
"""


# ---- waiting ----

WRITES = """
import os, sys, time
while not os.path.exists("file"):
    pass
with open("file", "r+") as f:
    # nothing has changed since it was made
    age = time.time() - os.fstat(f.fileno()).st_ctime
    f.write("CELL")
print(age)
"""


@halves("root without cgroups")
def test_what_others_have_just_made_is_waited_for(lab):
    cell = lab.start(PYTHON, "-c", WRITES)
    lab.host(PYTHON, "-c", "open('made', 'w').write('HOST'); import os; os.rename('made', 'file')")
    out, err = cell.communicate(timeout=120)
    assert cell.returncode == 0, (out, err)
    assert float(out) > 1.9 and (lab.work / "file").read_text() == "CELL"


MOVES = """
import os, time
while not os.path.exists("p/q/file"):
    pass
os.utime("p/q", (0, 0))  # what it says of itself by that is the cell's word
os.rename("p", "moved")
print(time.time() - os.stat("moved/q/file").st_ctime)
"""


@halves("root without cgroups")
def test_a_folder_above_what_others_have_just_made_waits(lab):
    lab.put("p/q/old")
    lab.give()
    cell = lab.start(PYTHON, "-c", MOVES)
    lab.host(PYTHON, "-c", "open('p/q/file', 'w').write('HOST')")
    out, err = cell.communicate(timeout=120)
    assert cell.returncode == 0, (out, err)
    assert float(out) > 1.9 and (lab.work / "moved/q/file").read_text() == "HOST"


OWN = """
import os, socket
for i in range(200):
    name = f"own{i}"
    with open(name, "w") as f:
        f.write("x")
    with open(name, "r+") as f:
        f.write("y")
    os.truncate(name, 0)
    os.chmod(name, 0o600)
    os.link(name, name + ".link")
    open(name, "a").close()
    os.rename(name, name + ".renamed")
    os.unlink(name + ".renamed")
    open(name + ".link", "w").close()
    os.symlink("own", name)
    os.rename(name, name + ".link")
    os.unlink(name + ".link")
    os.mkfifo(name)
    os.unlink(name)
    os.mknod(name)
    open(name, "w").close()
    os.unlink(name)
    socket.socket(socket.AF_UNIX).bind(name)
    os.unlink(name)
    os.makedirs(f"{name}/a/b")
    with open(f"{name}/a/b/file", "w") as f:
        f.write("x")
    os.link(f"{name}/a/b/file", f"{name}/a/link")
    os.symlink("b/file", f"{name}/a/symlink")
    os.mkfifo(f"{name}/a/fifo")
    socket.socket(socket.AF_UNIX).bind(f"{name}/a/socket")
    os.rename(f"{name}/a/b/file", f"{name}/a/b/renamed")
    os.rename(f"{name}/a/b", f"{name}/a/c")
    os.rename(name, name + ".folder")
print("done")
"""


@halves("root without cgroups")
def test_what_the_jail_has_made_itself_never_waits(lab):
    """Each wait would take two seconds, of thousands."""
    assert lab.good(OWN, timeout=300) == "done\n"


# Says the longest time that the file was let be.
KEPT_NEW = """
import os, sys, time
longest, last = 0, time.monotonic()
while not os.path.exists("stop"):
    with open("made", "w") as f:
        f.write("HOST")
    os.rename("made", "file")
    now = time.monotonic()
    longest, last = max(longest, now - last), now
    time.sleep(0.1)
print(longest)
"""
NEVER_OLD = """
import errno, os, signal, sys, threading, time

class Alarm(Exception):
    pass

def ring(*a):
    raise Alarm

while not os.path.exists("file"):
    time.sleep(0.01)
signal.signal(signal.SIGALRM, ring)
try:
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    open("file", "r+")
except Alarm:
    print("interrupted")

said = []
def wait():
    try:
        open("file", "r+")
    except OSError as e:
        said.append(errno.errorcode[e.errno])
threads = [threading.Thread(target=wait) for _ in range(80)]
for t in threads:
    t.start()
made = 0
while any(t.is_alive() for t in threads):
    open(f"cell-{made % 10}", "w").close()
    made += 1
print(*sorted(set(said)), len(said), "made" if made > 10 else made)

kids = []
for _ in range(200):
    pid = os.fork()
    if pid == 0:
        open("file", "r+")
        os._exit(0)
    kids.append(pid)
    if len(kids) == 20:
        time.sleep(0.05)
        for k in kids:
            os.kill(k, signal.SIGKILL)
        for k in kids:
            os.waitpid(k, 0)
        kids = []
open("stop", "w").close()
open("file", "r+").close()
print("opened")
"""


@halves("root without cgroups")
def test_waiting_has_an_end(lab):
    """The file is made anew all the time: no call waits for ever, nor keeps others from being served."""
    for _ in range(5):
        saving = subprocess.Popen([PYTHON, "-c", KEPT_NEW], cwd=lab.work, stdout=subprocess.PIPE, **lab.who())
        try:
            said = lab.good(NEVER_OLD, timeout=300).splitlines()
        finally:
            (lab.work / "stop").touch()
            longest = float(saving.communicate(timeout=300)[0])
        if said == ["interrupted", "EBUSY 80 made", "opened"] or longest < MOMENT:
            break  # else this machine took too long for a save
        for left in ("stop", "file"):
            (lab.work / left).unlink()
    assert said == ["interrupted", "EBUSY 80 made", "opened"], (said, longest)


SWITCHED = """
import os, time
while not os.path.exists("file"):
    time.sleep(0.01)
try:
    os.write(os.open("file", os.O_WRONLY), b"CELL was here")
except OSError as e:
    print(e.errno)
"""


@halves("root without cgroups")
def test_after_the_wait_the_name_of_then_is_judged(lab):
    """Of the path: what it leads to by then."""
    lab.put("d/.envrc")
    lab.give()
    cell = lab.start(PYTHON, "-c", SWITCHED)
    began = time.monotonic()
    lab.host(PYTHON, "-c", "open('made', 'w').write('HOST'); import os; os.rename('made', 'file')")
    lab.host("sh", "-c", "sleep 0.5; ln -s d/.envrc other; mv -T other file")
    quick = time.monotonic() - began < MOMENT
    out, err = cell.communicate(timeout=120)
    assert (lab.work / "d/.envrc").read_text() == "HOST\n", out
    assert not quick or out == f"{errno.EROFS}\n", (out, err)
