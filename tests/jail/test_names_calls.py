"""The calls by which cells write a workspace,
as an attacker makes them: with threads that change what a call is about,
under signals, stopped, killed; files whose bits or other names make them more than they seem; sockets of the host.
"""

import errno
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import psutil
import pytest

import kernels
import nameslab
from nameslab import PYTHON

pytestmark = [pytest.mark.cellblock_only, pytest.mark.timeout(600)]
halves = nameslab.halves
TIMES = 10_000
SERVER = "cellblock-names"  # the process that judges names and writes, by its comm
LINUX = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
judged = pytest.mark.skipif(LINUX < (5, 14), reason="before Linux 5.14 no calls are served by name: see docs/hosts.md")


def servers(started):
    """Those below a process that the test has started: others' jails on this machine are left alone."""
    found = []
    for p in psutil.Process(started.pid).children(recursive=True):
        try:
            if Path(f"/proc/{p.pid}/comm").read_text().strip() == SERVER:
                found.append(p)
        except OSError:
            pass
    return found


# ---- races of the caller ----

PROTECTED = [".git/", ".envrc ", "cell-alias"]
RACES = {
    "path": ("cell-folder/raced", ".git/hooks/raced"),
    "path to an existing file": ("cell-folder/file", ".git/hooks/pre-commit"),
    "path to .envrc": ("cellrc", ".envrc"),
    "dirfd": ("cell-folder/raced", ".git/hooks/raced"),
    "dirfd-path": ("cell-folder/raced", ".git/hooks/raced"),
    "cwd": ("cell-folder/raced", ".git/hooks/raced"),
    "link": ("cell-folder/raced", ".git/hooks/raced"),
    "folder": ("cell-folder/raced", ".git/hooks/raced"),
    "o-path": ("cell-folder/file", ".git/config"),
}


@halves("root without cgroups")
@pytest.mark.parametrize("kind", RACES)
def test_what_a_thread_changes_during_the_call(lab, kind):
    harmless, protected = RACES[kind]
    lab.furnish()
    lab.compile("race")
    lab.put("cell-folder/file", "mine\n")
    lab.put("cellrc", "mine\n")
    lab.give()
    before = sorted(os.listdir(lab.work / ".git/hooks"))
    times = TIMES // (10 if kind in ("link", "folder") else 4)
    done = lab.run("./race", kind.split(" ")[0], times, harmless, protected, timeout=400)
    assert done.returncode == 0 and "DONE" in done.stdout, (done.returncode, done.stdout, done.stderr[-1000:])
    granted = int(re.search(r"DONE (\d+) of", done.stdout)[1])
    left = lab.work / "cellrc"  # made by one name; the call that was to remove it had the other
    left.rmdir() if left.is_dir() else left.unlink(missing_ok=True)
    # Halves of two names are nobody's.
    faults = [f for f in lab.faults(absent=[".git/hooks/raced", ".git/raced"]) if f.startswith(tuple(PROTECTED))]
    after = sorted(os.listdir(lab.work / ".git/hooks"))
    assert not faults and after == before, (faults, after)
    assert granted > 0, "what is harmless was never granted, so the race was not run"


@judged
def test_no_folder_on_a_writable_mount(lab_of_user):
    """A folder's descriptor that lies on a writable mount writes without being judged."""
    lab = lab_of_user
    lab.furnish()
    code = (
        "import os\nfor flags in (0, os.O_PATH, os.O_CREAT, os.O_TRUNC, os.O_RDWR, os.O_CREAT | os.O_DIRECTORY, "
        "os.O_WRONLY | os.O_DIRECTORY, os.O_TMPFILE & ~os.O_RDWR):\n    for name in ('.', 'sub', 'venv/..'):\n"
        "        try: fd = os.open(name, flags)\n        except OSError: continue\n"
        "        print(name, oct(flags), 'ro' if os.fstatvfs(fd).f_flag & os.ST_RDONLY else 'WRITABLE')"
    )
    assert servers_in(lab)
    assert "WRITABLE" not in lab.good(code)


def servers_in(lab):
    """Whether jails have that process here."""
    p = lab.start(PYTHON, "-c", "import time; open('cell-up', 'w').close(); time.sleep(100)")
    lab.until("cell-up", p)
    there = bool(servers(p))
    p.terminate()
    p.communicate()
    (lab.work / "cell-up").unlink()
    return there


@pytest.fixture
def lab_of_user(nothing_left, request):
    lab = nameslab.Lab(nothing_left / request.node.name[:40], "user", None)
    yield lab
    lab.end()


# ---- files that are more than they seem ----

WRITES = r"""
import json, mmap, os, sys
def tried(f):
    try:
        f()
    except OSError:
        return False
    return True
def opened(name, flags):
    fd = os.open(name, flags)
    if flags & 3:
        os.write(fd, b"CELL was here")
    os.close(fd)
def mapped(name):
    with open(name, "r+b") as f, mmap.mmap(f.fileno(), 4) as m:
        m[:4] = b"CELL"
def again(name):
    with open(name, "rb") as f:
        opened(f"/proc/self/fd/{f.fileno()}", os.O_WRONLY)
won = []
for name in sys.argv[1:]:
    for what, f in {
        "write": lambda: opened(name, os.O_WRONLY), "read and write": lambda: opened(name, os.O_RDWR),
        "append": lambda: opened(name, os.O_WRONLY | os.O_APPEND), "cut": lambda: opened(name, os.O_TRUNC),
        "create": lambda: opened(name, os.O_WRONLY | os.O_CREAT), "map": lambda: mapped(name),
        "truncate": lambda: os.truncate(name, 2), "again": lambda: again(name),
    }.items():
        if tried(f):
            won.append(f"{what} {name}")
print(json.dumps(won))
"""


AROUND = """
import os
for name in ("inside", "plain"):
    for call in (lambda: os.link(name, "two"), lambda: os.unlink("two"), lambda: os.rename(name, "moved-" + name),
                 lambda: os.chmod(name, 0o777), lambda: os.chmod("moved-" + name, 0o777)):
        try:
            call()
        except OSError:
            pass
"""


@halves("root without cgroups")
@pytest.mark.parametrize("bits", [0o4755, 0o2755, 0o6755])
def test_no_write_to_a_program_with_set_uid_or_set_gid(lab, bits):
    """Bytes that come through a shared mapping would leave the bits as they are."""
    lab.put("program", "HOST\n")
    lab.give()
    (lab.work / "program").chmod(bits)
    assert (lab.work / "program").stat().st_mode & 0o7777 == bits
    assert json.loads(lab.good(WRITES, "program")) == []
    assert (lab.work / "program").read_text() == "HOST\n"
    assert (lab.work / "program").stat().st_mode & 0o7777 == bits


@halves("root without cgroups")
def test_no_write_to_a_file_that_has_a_name_elsewhere(lab):
    """The host linked it: one of its names lies outside of the workspace, or is a protected one inside."""
    outside = lab.folder / "outside"
    outside.write_text("HOST\n")
    lab.put(".envrc")
    lab.give()
    os.link(outside, lab.work / "inside")
    os.link(lab.work / ".envrc", lab.work / "plain")
    lab.give()
    won = json.loads(lab.good(WRITES, "inside", "plain"))
    assert won == [] and outside.read_text() == "HOST\n" and (lab.work / ".envrc").read_text() == "HOST\n", won
    lab.good(AROUND)
    for name in ("inside", "plain", "moved-inside", "moved-plain"):
        if (lab.work / name).exists():
            assert json.loads(lab.good(WRITES, name)) == []
    assert outside.stat().st_mode & 0o777 != 0o777, "chmod reached the file outside"


@halves("root without cgroups")
def test_what_the_jail_linked_itself_can_be_written(lab):
    said = lab.good(
        "import os\nopen('one', 'w').write('1'); os.link('one', 'two'); open('two', 'a').write('2')\n"
        "open('one', 'a').write('3'); os.rename('two', 'three'); open('three', 'a').write('4')\n"
        "os.link('three', 'four'); os.unlink('one'); open('four', 'r+').write('0'); print(open('three').read())"
    )
    assert said == "0234\n"


# ---- sockets ----

CONNECTS = r"""
import json, os, socket, sys
won = []
def tries(name):
    for kind in ("STREAM", "SEQPACKET", "DGRAM"):
        for how in ("connect", "sendto", "sendmsg"):
            try:
                s = socket.socket(socket.AF_UNIX, getattr(socket, "SOCK_" + kind))
            except OSError:  # datagrams, without a network
                continue
            s.settimeout(2)
            try:
                if how == "connect":
                    s.connect(name); s.send(b"CELL")
                elif how == "sendto":
                    s.sendto(b"CELL", name)
                else:
                    s.sendmsg([b"CELL"], [], 0, name)
            except OSError:
                continue
            finally:
                s.close()
            won.append(f"{how} {kind} {name}")
cwd = os.getcwd()
for kind in ("stream", "seqpacket", "dgram"):
    name = "host-" + kind
    tries(name); tries("./" + name); tries("/proc/self/cwd/" + name)
    tries(f"/proc/self/fd/{os.open('.', os.O_RDONLY)}/{name}")
    tries(f"/proc/self/fd/{os.open(name, os.O_PATH)}")
    for what, f in {"symlink": lambda n: os.symlink(cwd + "/" + name, n), "link": lambda n: os.link(name, n),
                    "tmp": lambda n: os.symlink(cwd + "/" + name, "/tmp/" + n),
                    "rename": lambda n: os.rename(name, n)}.items():
        new = f"cell-{what}-{kind}"
        try:
            f(new)
        except OSError:
            continue
        tries(new if what != "tmp" else "/tmp/" + new)
    if os.path.exists("cell-rename-" + kind):
        os.rename("cell-rename-" + kind, name)
    try:  # a name of our own becomes the host's
        s = socket.socket(socket.AF_UNIX); s.bind("cell-bound-" + kind); s.close()
        os.rename(name, "cell-bound-" + kind)
    except OSError:
        continue
    tries("cell-bound-" + kind)
    os.rename("cell-bound-" + kind, name)  # the host's own name again, for the next
print(json.dumps(won))
"""


class HostServers:
    """Listens in the workspace, as the host; counts who comes."""

    def __init__(self, lab):
        self.came, self.sockets = [], []
        here = os.open(".", os.O_RDONLY)
        os.chdir(lab.work)
        try:
            for kind in ("stream", "seqpacket", "dgram"):
                s = socket.socket(socket.AF_UNIX, getattr(socket, "SOCK_" + kind.upper()))
                s.bind("host-" + kind)
                os.chmod("host-" + kind, 0o777)
                if kind != "dgram":
                    s.listen(100)
                self.sockets.append(s)
                threading.Thread(target=self.serve, args=(kind, s), daemon=True).start()
        finally:
            os.fchdir(here)
            os.close(here)
        lab.give()

    def serve(self, kind, s):
        while True:
            try:
                if kind == "dgram":
                    self.came.append((kind, s.recv(100)))
                else:
                    s.accept()[0].close()
                    self.came.append((kind, None))
            except OSError:
                return

    def close(self):
        for s in self.sockets:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()


@pytest.fixture
def host_servers(lab):
    servers = HostServers(lab)
    yield servers
    servers.close()


@halves("root without cgroups")
@pytest.mark.parametrize("mode", ["rw", "ro", "overlay"])
def test_servers_of_the_host_in_the_workspace(lab, host_servers, mode):
    won = json.loads(lab.good(CONNECTS, settings=[f"workspace.mode={mode}"]))
    assert not won and not host_servers.came, (won[:10], host_servers.came[:10])


@halves("root without cgroups")
@pytest.mark.parametrize("kind", ["stream", "dgram"])
def test_an_address_that_changes_during_connect(lab, host_servers, kind):
    lab.compile("race")
    done = lab.run("./race", "address", TIMES // 4, "cell-own", "host-" + kind, timeout=400)
    assert done.returncode == 0, done
    assert not host_servers.came, f"{len(host_servers.came)} came through: {host_servers.came[:3]}"


BINDS = r"""
import os, socket, sys
for line in sys.stdin:
    s = socket.socket(socket.AF_UNIX)
    try:
        if line == "bind\n": s.bind("app"); print(os.lstat("app").st_ino, flush=True)
        else: s.connect("app"); print("connected", flush=True)
    except OSError as e: print(e.errno, flush=True)
    s.close()
"""


@halves("root without cgroups")
def test_a_server_of_the_host_with_the_inode_number_of_a_cells_socket(lab):
    """The name that a cell has bound is the host's by now, and the number of its inode too."""
    cell = lab.start(PYTHON, "-c", BINDS, stdin=subprocess.PIPE)
    folder = os.open(lab.work, os.O_PATH)

    def ask(word):
        cell.stdin.write(word + "\n")
        cell.stdin.flush()
        return cell.stdout.readline()

    for _ in range(50):
        number, now = int(ask("bind")), time.time()
        (lab.work / "app").unlink()
        while time.clock_gettime(5) <= now:  # CLOCK_REALTIME_COARSE, by which inodes are born
            pass
        server = socket.socket(socket.AF_UNIX)
        server.bind(f"/proc/self/fd/{folder}/app")
        if os.lstat(lab.work / "app").st_ino == number:
            break
        server.close()
        (lab.work / "app").unlink()
    else:
        pytest.skip("the file system of the tests gives no number twice, or other programs have taken it")
    os.close(folder)
    os.chmod(lab.work / "app", 0o777)
    server.listen()
    assert ask("connect") == f"{errno.ENETUNREACH}\n"
    server.close()


OWN_SOCKETS = r"""
import array, asyncio, multiprocessing.managers, os, socket, struct, tempfile, threading
def serves(kind, address, rename=None):
    a, b = socket.socket(socket.AF_UNIX, kind), socket.socket(socket.AF_UNIX, kind)
    a.bind(address)
    said = address if not address.startswith("\0") else address.encode()
    # multiprocessing tells others this name; one with slashes is made whole
    assert a.getsockname() in (said, os.path.abspath(address)), (a.getsockname(), said)
    if rename:
        os.rename(address, rename)
        address = rename
    if kind == socket.SOCK_DGRAM:
        b.sendto(b"hi", address); assert a.recv(9) == b"hi"
        b.connect(address); b.send(b"ho"); assert a.recv(9) == b"ho"
        b.sendmsg([b"hu"], [], 0, address) if address == "here" else b.send(b"hu"); assert a.recv(9) == b"hu"
    else:
        a.listen(5); b.connect(address); c, _ = a.accept()
        b.send(b"hi"); assert c.recv(9) == b"hi"
        socket.send_fds(c, [b"x"], [0]); assert socket.recv_fds(b, 9, 1)[0] == b"x"
        pid, uid, gid = struct.unpack("3i", c.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        assert uid == os.getuid(), (uid, os.getuid())
        assert b.getpeername() == a.getsockname(), b.getpeername()
        c.close()
    a.close(); b.close()
    if isinstance(address, str) and not address.startswith("\0"): os.unlink(address)
os.mkdir("folder")
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    for address in ("here", "./folder/there", os.path.abspath("absolute")[-107:], "/tmp/in-tmp", "\0abstract",
        "a" * 107,
                    "/dev/shm/in-shm"):
        serves(kind, address)
    serves(kind, "old", rename="folder/new")
    s = socket.socket(socket.AF_UNIX, kind); s.bind("twice")
    try: socket.socket(socket.AF_UNIX, kind).bind("twice"); raise SystemExit("bound twice")
    except OSError as e: assert e.errno == 98, e
    s.close(); os.unlink("twice")
    os.chdir("folder"); serves(kind, "near"); os.chdir("..")
try: socket.socket(socket.AF_UNIX).connect("nobody"); raise SystemExit("connected to nobody")
except FileNotFoundError: pass
s = socket.socket(socket.AF_UNIX); s.bind("dead"); s.listen(); s.close()
try: socket.socket(socket.AF_UNIX).connect("dead"); raise SystemExit("connected to the dead")
except ConnectionRefusedError: os.unlink("dead")
old = os.umask(0o077); s = socket.socket(socket.AF_UNIX); s.bind("masked"); os.umask(old)
assert os.stat("masked").st_mode & 0o777 == 0o700, oct(os.stat("masked").st_mode); s.close(); os.unlink("masked")
tempfile.tempdir = os.getcwd()
class M(multiprocessing.managers.BaseManager): pass
M.register("d", dict)
if __name__ == "__main__":
    for address in (None, "manager"):
        m = M(address=address); m.start(); d = m.d(); d.update(a=1); assert d.get("a") == 1; m.shutdown()
    with multiprocessing.Manager() as m:
        l = m.list([1]); l.append(2); assert list(l) == [1, 2]
    async def go():
        async def serve(r, w):
            w.write(await r.readline()); await w.drain(); w.close()
        server = await asyncio.start_unix_server(serve, "asyncio")
        for _ in range(20):
            r, w = await asyncio.open_unix_connection("asyncio")
            w.write(b"line\n"); assert await r.readline() == b"line\n"; w.close()
        server.close()
    asyncio.run(go())
    p = os.fork()
    if p == 0:
        s = socket.socket(socket.AF_UNIX); s.bind("child"); s.listen(); c, _ = s.accept(); c.send(b"!"); os._exit(0)
    while True:
        try: s = socket.socket(socket.AF_UNIX); s.connect("child"); break
        except OSError: os.sched_yield()
    assert s.recv(9) == b"!"; os.waitpid(p, 0)
    print("good")
"""


@halves("root without cgroups")
def test_sockets_of_the_jails_own(lab):
    assert lab.good(OWN_SOCKETS) == "good\n"


PEER = """
import os, socket, struct
a = socket.socket(socket.AF_UNIX); a.bind("here"); a.listen()
pid = os.fork()
if pid == 0:
    b = socket.socket(socket.AF_UNIX); b.connect("here"); b.recv(1); os._exit(0)
c, _ = a.accept()
print(struct.unpack("3i", c.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1:] == (os.getuid(), os.getgid()))
c.close(); os.waitpid(pid, 0)
"""


@halves("root without cgroups")
def test_the_peer_of_a_connection_is_who_connected(lab):
    assert lab.good(PEER) == "True\n"


# Connections to who takes none, by sockets whose flag, not to wait, others take away as soon as it is set: more of them
# than there are threads to serve calls. Then what each cell does.
STUCK = r"""
import fcntl, os, signal, socket, sys, time
server = socket.socket(socket.AF_UNIX); server.bind("full"); server.listen(0)
first = socket.socket(socket.AF_UNIX); first.connect("full")
children = []
for _ in range(8):
    s = socket.socket(socket.AF_UNIX)
    for connects in (True, False):
        children.append(os.fork())
        if children[-1] == 0:
            while connects:
                try: s.connect("full")
                except OSError: pass
            while True: fcntl.fcntl(s, fcntl.F_SETFL, 0)
def work(i):
    os.mkdir(f"folder{i}"); os.rename(f"folder{i}", f"other{i}")
    socket.socket(socket.AF_UNIX).bind(f"{os.getcwd()}/bound{i}")
for i in range(50):
    work(i); time.sleep(0.02)
for pid in children: os.kill(pid, signal.SIGKILL)
for pid in children: os.waitpid(pid, 0)
work(50)
print("good")
"""


@halves("root without cgroups")
def test_connections_that_are_made_to_wait(lab):
    """All other calls go on, also after whoever did that has ended."""
    assert lab.good(STUCK) == "good\n"


FIRST_THREAD_ENDS = r"""
import ctypes, os, socket, threading
a = socket.socket(socket.AF_UNIX); a.bind("here"); a.listen()
me, d = f"/proc/self/task/{os.getpid()}/stat", os.open(".", os.O_RDONLY)
def last():
    try:
        while open(me).read().rsplit(")", 1)[1].split()[0] != "Z": pass
        b = socket.socket(socket.AF_UNIX); b.connect("here")
        f = os.open("made", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=d); os.fchmod(f, 0o622)
        os.write(1, b"%o" % os.fstat(f).st_mode)
    finally: os._exit(0)
threading.Thread(target=last).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"""


@pytest.mark.skipif(LINUX < (6, 9), reason="before Linux 6.9 such a process is not known by another thread")
@halves("root without cgroups")
def test_a_process_whose_first_thread_has_ended(lab):
    done = lab.python(FIRST_THREAD_ENDS)
    assert done.stdout == "100622", done


# ---- callers that are signalled, stopped, killed ----


@halves("root without cgroups")
@pytest.mark.parametrize("how", [[], ["restart"]], ids=["plain", "SA_RESTART"])
def test_each_call_happens_once_under_signals(lab, how):
    lab.compile("once")
    done = lab.run("./once", 1000, *how, timeout=300)
    assert done.returncode == 0 and "DONE faults 0 signals 1" in done.stdout, done.stdout + done.stderr


ENDED = r"""
import os, random, signal, sys, time
how = getattr(signal, sys.argv[1])
def work(name):
    n = 0
    while True:
        n += 1
        os.mkdir(f"{name}-d"); open(f"{name}-d/f", "x").write("1"); os.link(f"{name}-d/f", f"{name}-l")
        os.rename(f"{name}-l", f"{name}-d/f"); os.unlink(f"{name}-d/f")
        if os.path.exists(f"{name}-l"): os.unlink(f"{name}-l")
        os.rmdir(f"{name}-d")
r, w = os.pipe()
def started(name):
    p = os.fork()
    if p == 0:
        try: work(name)
        except BaseException as e: os.write(w, f"{name}: {e!r}\n".encode()); os._exit(1)
    return p
random.seed(1)
for n in range(150):
    p = started(f"v{n}")
    for k in range(3):
        time.sleep(random.random() / 200)
        os.kill(p, how)
        open("other", "w").write("goes on"); os.unlink("other"); os.mkdir("o"); os.rmdir("o")
        if how == signal.SIGSTOP: os.kill(p, signal.SIGCONT)
    time.sleep(random.random() / 200)
    os.kill(p, signal.SIGKILL); os.waitpid(p, 0)
os.set_blocking(r, False)
try: print(os.read(r, 9999).decode())
except BlockingIOError: print("good")
"""


@halves("root without cgroups")
@pytest.mark.parametrize("how", ["SIGKILL", "SIGSTOP"])
def test_callers_that_are_killed_or_stopped(lab, how):
    """In the midst of calls: others go on, and one that goes on later finds each of its calls made once."""
    assert lab.good(ENDED, how, timeout=200) == "good\n"


MANY_STOPPED = r"""
import os, signal, time
def work(n):
    while True:
        open(f"s{n}", "w").close(); os.unlink(f"s{n}")
pids = []
for n in range(100):
    p = os.fork()
    if p == 0:
        work(n)
    pids.append(p)
time.sleep(0.3)
for p in pids: os.kill(p, signal.SIGSTOP)
for n in range(500):
    open("other", "x").close(); os.unlink("other")
for p in pids: os.kill(p, signal.SIGKILL)
for p in pids: os.waitpid(p, 0)
print("good")
"""


@halves("root without cgroups")
def test_a_hundred_stopped_callers_hold_nobody_up(lab):
    assert lab.good(MANY_STOPPED, timeout=200) == "good\n"


BLOCKS = r"""
import os, threading, time
os.mkfifo("fifo")
def opens():
    open("fifo", "w")   # waits until somebody reads
threads = [threading.Thread(target=opens, daemon=True) for _ in range(40)]
for t in threads: t.start()
for n in range(300):
    open("other", "x").close(); os.unlink("other")
r = os.open("fifo", os.O_RDONLY)
for t in threads: t.join(20)
print("good" if not any(t.is_alive() for t in threads) else "hang")
"""


@halves("root without cgroups")
def test_a_call_that_waits_blocks_no_other(lab):
    """Opening a named pipe to write waits for a reader, as ever."""
    assert lab.good(BLOCKS, timeout=120) == "good\n"


# ---- the process that judges ends ----

WRITING = r"""
import errno, os, sys, time
n, errors, last = 0, {}, time.monotonic()
open("cell-ready", "w").close()
while not os.path.exists("stop"):
    for f in (lambda: open("cell-w", "w").close(), lambda: os.mkdir("cell-d"), lambda: os.rmdir("cell-d"),
              lambda: open(".git/hooks/x", "w"), lambda: open(".envrc", "a").write("CELL was here")):
        t = time.monotonic()
        try:
            f(); n += 1
        except OSError as e:
            errors[e.errno] = errors.get(e.errno, 0) + 1
        if time.monotonic() - t > 120:
            print("HUNG")
    if os.path.exists("again"):
        open("cell-again", "w").write("written"); os.unlink("cell-again"); os.rename("cell-w", "cell-back")
        os.unlink("again")
print("good", n, errors)
"""


@judged
@halves("root without cgroups")
def test_the_judge_is_killed_during_writes(lab):
    """Calls fail or wait, none hangs; a new one serves; nothing protected is written meanwhile."""
    lab.furnish()
    writing = lab.start(PYTHON, "-c", WRITING)
    lab.until("cell-ready", writing)
    assert servers(writing)
    for _ in range(20):
        kernels.kill_all(servers(writing))
        time.sleep(0.05)
        assert writing.poll() is None, writing.communicate()
    (lab.work / "again").touch()
    deadline = time.monotonic() + 300
    while not (lab.work / "cell-back").exists():
        assert writing.poll() is None, writing.communicate()
        assert time.monotonic() < deadline, "nothing serves again"
        time.sleep(0.02)
    (lab.work / "stop").touch()
    out, err = writing.communicate(timeout=300)
    assert out.startswith("good") and "HUNG" not in out, (out, err[-1000:])
    assert not lab.faults(absent=[".git/hooks/x"]), lab.faults()


@halves()
def test_the_judge_is_there_before_the_first_program(lab):
    """One that takes all processes at once could keep it from starting."""
    lab.compile("bomb", "-static")
    for _ in range(20):
        done = lab.run("./bomb", settings=["limits.pids=20"])
        assert done.returncode == 0, done.stderr
        (lab.work / "cell-made").unlink()


@judged
@halves("root without cgroups")
def test_the_judge_is_out_of_reach(lab):
    """Not seen, signalled or traced by cells; ends with the jail."""
    p = lab.start(PYTHON, "-c", "import time; open('cell-up', 'w').close(); time.sleep(100)")
    lab.until("cell-up", p)
    there = servers(p)
    assert there
    status = Path(f"/proc/{there[0].pid}/status").read_text()
    assert re.search(r"Seccomp:\s+2", status) and re.search(r"NoNewPrivs:\s+1", status), status
    p.send_signal(signal.SIGTERM)
    p.communicate(timeout=300)
    gone = psutil.wait_procs(there, timeout=300)[1]
    assert not gone, gone
    code = "import os\nfor p in os.listdir('/proc'):\n    if p.isdigit():\n"
    code += "        print(open(f'/proc/{p}/comm').read().strip())"
    assert SERVER not in lab.good(code).split()


ERRNOS = """
import errno, os, socket
def number(act):
    try: act()
    except OSError as e: return errno.errorcode[e.errno]
    return "none"
top = os.getcwd()
for i in range(20): os.chdir("n" * 250)
print(number(lambda: open("new", "w")), number(lambda: os.mkdir("new")), number(lambda: open("/tmp/x", "w").close()))
os.chdir(top)
open("/tmp/a", "w").close()
print(number(lambda: os.link("/tmp/a", "b")), number(lambda: os.link("/tmp/none", "b")))
s = socket.socket(socket.AF_UNIX); s.bind("one"); s.listen(9); os.link("one", "two"); os.unlink("one")
print(number(lambda: socket.socket(socket.AF_UNIX).connect("two")))
"""


@halves("root without cgroups")
def test_errors_are_the_kernels(lab):
    """Of paths that are too long, of names on two file systems; and a socket stays the jail's by its other name."""
    deep = "import os\nfor i in range(20): os.mkdir('n' * 250); os.chdir('n' * 250)"
    lab.host(PYTHON, "-c", deep)
    out = lab.good(ERRNOS).splitlines()
    assert out == ["ENAMETOOLONG ENAMETOOLONG none", "EXDEV ENOENT", "none"]
