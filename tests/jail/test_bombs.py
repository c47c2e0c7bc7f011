"""Bombs of every kind: each names its limit, the kernel answers throughout, the next cell is right, the host as before.

Run as root the limits are those of control groups, as an ordinary user those of the watchdog and of single processes,
unless systemd delegates a group. docs/limits.md has the table of who holds what; each of its rows is a bomb here.
"""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from broker import Broker
from prober import Prober
from rawclient import DEADLINE

pytestmark = pytest.mark.cellblock_only("limits of a jail")

MIB = 1 << 20
LIMITS = {
    "limits.memory": "400M",
    "limits.pids": "24",  # of Pythons that have copied all their pages: below limits.memory
    "limits.open_files": "256",
    "limits.tmp": "32M",
    "limits.shm": "32M",
    "limits.inodes": "2000",
    "limits.output": "1M",
    "limits.message": "1M",
}
OK = "ok"
PYTHON = "/usr/bin/python3"
STAYS = "\nimport time\nwhile True: time.sleep(1)"  # the watchdog may be late to look at what has been filled

# name: code, what the cell ends with, its `limit`, whether the state is kept
BOMBS = {
    "fork": ("import os, signal\nwhile True:\n    if not os.fork(): signal.pause()", "BlockingIOError", None, True),
    "fork of forks": (
        "import os, signal, time\nend = time.monotonic() + 2\nme, full = os.getpid(), False\n"
        "while time.monotonic() < end or not full:\n"
        "    try: os.fork()\n    except OSError: full = True\n"
        "if os.getpid() != me: signal.pause()\nos.fork()",
        "BlockingIOError",
        None,
        True,
    ),
    "threads": (
        "import threading\ngate = threading.Event()\nwhile True: threading.Thread(target=gate.wait).start()",
        "RuntimeError",
        None,
        True,
    ),
    "heap": ("x = []\nwhile True: x.append(bytearray(1 << 20))", "MemoryError", "memory", True),
    "one array": ("x = bytearray(1 << 40)", "MemoryError", "memory", True),
    "private mapping": ("import mmap\nmmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE)", "OSError", None, True),
    "shared mapping": (
        "import mmap\nm = mmap.mmap(-1, 1 << 31)\nfor i in range(0, 1 << 31, 4096): m[i] = 1" + STAYS,
        "CellMemoryError",
        "memory",
        False,
    ),
    "many processes": (
        "import os, signal\n"
        "for i in range(10):\n"
        "    if not os.fork():\n"
        "        x = bytes([1]) * (100 << 20)\n"
        "        signal.pause()\n"
        "os.wait()",
        None,  # the kernel kills children, the watchdog all
        "memory",
        None,
    ),
    "page tables": (
        "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.mmap.restype = ctypes.c_void_p\n"
        "libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]\n"
        "at = libc.mmap(None, 1 << 40, 1, 0x4022, -1, 0)\nread = ctypes.c_char.from_address\n"
        "for i in range(0, 1 << 40, 2 << 20): read(at + i).value" + STAYS,
        "CellMemoryError",
        "memory",
        False,
    ),
    "memfd": ("import os\nos.memfd_create('x')", "OSError", None, True),
    "shm": ("with open('/dev/shm/x', 'wb') as f:\n    while True: f.write(bytes(1 << 20))", "OSError", None, True),
    "tmp": ("with open('/tmp/x', 'wb') as f:\n    while True: f.write(bytes(1 << 20))", "OSError", None, True),
    "home": (
        "import os\nwith open(os.path.expanduser('~/x'), 'wb') as f:\n    while True: f.write(bytes(1 << 20))",
        "OSError",
        None,
        True,
    ),
    "inodes": ("i = 0\nwhile True:\n    i += 1\n    open(f'/tmp/{i}', 'w').close()", "OSError", None, True),
    "descriptors": ("import os\nfds = []\nwhile True: fds.append(os.dup(1))", "OSError", None, True),
    "pipes": (
        "import os, fcntl\nends = []\nwhile True:\n    r, w = os.pipe()\n    ends += r, w\n"
        "    try: n = fcntl.fcntl(w, 1031, 1 << 20)\n    except OSError: n = 65536\n"
        "    os.set_blocking(w, False)\n    try: os.write(w, bytes(n))\n    except OSError: pass",
        "OSError",
        None,
        True,
    ),
    "sockets": (
        "import socket\nends = []\nwhile True:\n    a, b = socket.socketpair()\n    ends += a, b\n"
        "    a.setblocking(False)\n    try:\n        while True: a.send(bytes(65536))\n"
        "    except BlockingIOError: pass",
        "OSError",
        None,
        True,
    ),
    "output": ("for i in range(300): print('x' * (1 << 20))", OK, "output", True),
    "output of a child": ("import os\nos.system('head -c 300000000 /dev/zero')", OK, "output", True),
    "displays": ("for i in range(30000): display({'text/plain': 'x' * 100}, raw=True)", OK, "output", True),
    "message": ("display({'text/plain': 'x' * (8 << 20)}, raw=True)", None, None, True),
    "comms": (
        "from comm import create_comm\nc = create_comm(target_name='x')\n"
        "for i in range(30000): c.send({'x': 'x' * 100})",
        None,
        None,
        True,
    ),
}
ERRNO = {"descriptors": 24, "pipes": 24, "sockets": 24, "shm": 28, "tmp": 28, "home": 28, "inodes": 28, "memfd": 38}
# what they leave behind and the next bomb is not to find
TIDY = (
    "import os, glob\n"
    "for f in globals().get('fds', []) + globals().get('ends', []):\n    if isinstance(f, int): os.close(f)\n"
    "for name in ('gate', 'x', 'm', 'fds', 'ends', 'a', 'b'): globals().pop(name, None)\n"
    "os.system('rm -rf /tmp/x /tmp/[0-9]* /dev/shm/x ~/x')\n"
)


@pytest.fixture(scope="module")
def report():
    """The worst latency of each bomb; written where CELLBLOCK_BOMBS names a file."""
    found = {}
    yield found
    if os.environ.get("CELLBLOCK_BOMBS"):
        Path(os.environ["CELLBLOCK_BOMBS"]).write_text(json.dumps(found, indent=1))


@pytest.fixture(scope="module")
def prober():
    with Prober() as process:
        yield process


def kernel_peak(kernel):
    """The most bytes that the kernel's own process has ever held."""
    status = Path(f"/proc/{kernel.process.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


def host_used(folder):
    """Bytes of shared memory in use, and of the disk below the workspace: others write to the rest, and for long."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    shm = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Shmem:"))
    said = subprocess.run(["du", "-s", "--block-size=1", folder], capture_output=True, text=True).stdout
    return shm + int(said.split()[0])


@pytest.fixture
def bombed(nothing_left, shared):
    """The module's kernel with small limits."""
    if not hasattr(shared, "bombed") or shared.bombed.closed or not shared.bombed.alive():
        shared.bombed = shared(args=[word for k, v in LIMITS.items() for word in ("--set", f"{k}={v}")])
        shared.kernel = shared.bombed  # that is the one that conftest.py ends after a test that failed
    return shared.bombed


@pytest.mark.parametrize("name", BOMBS)
def test_bomb(bombed, prober, report, name):
    code, ename, limit, kept = BOMBS[name]
    client = bombed.client
    client.run("import os, builtins\nkept = 1")
    before = host_used(bombed.workspace)
    prober.begin(bombed.connection)
    try:
        cell = client.run(code)
    finally:
        worst, count = prober.end()
    report[name] = {"worst_ms": round(worst * 1000, 1), "asked": count, "kernel_peak": kernel_peak(bombed)}
    assert kernel_peak(bombed) < 256 * MIB, "what is over a limit is kept"
    if ename is not None:
        assert cell.content["status"] == (OK if ename == OK else "error"), cell
        assert ename == OK or cell.content["ename"] == ename, cell
    if name in ERRNO:
        assert f"[Errno {ERRNO[name]}]" in cell.content["evalue"], cell
    assert limit is None or cell.about["limit"] == limit, cell.about
    assert kept is None or (cell.about["state"] == "kept") == kept, cell.about
    after = client.run("globals().get('kept')")
    assert after.ok and (kept is None or after.result == (None if cell.about["state"] == "lost" else "1")), after
    clean(client)
    # others use the machine too, with bombs of their own: what stays is what counts
    deadline = time.monotonic() + 60
    while host_used(bombed.workspace) - before > 512 * MIB and time.monotonic() < deadline:
        time.sleep(0.1)
    assert host_used(bombed.workspace) - before < 512 * MIB, "memory or disk of the host is still used"
    assert worst < DEADLINE, "heartbeat and control were not answered"


def clean(client):
    """Processes that a bomb left are killed, and the folders emptied; where that needs a new jail it is made."""
    client.run(
        TIDY + "for p in glob.glob('/proc/[0-9]*'):\n"
        "    n = int(p[6:])\n    if n > 2 and n != os.getpid():\n"
        "        try: os.kill(n, 9)\n        except OSError: pass\n"
    )


def test_command(nothing_left):
    """`cellblock run` has the same limits, and says by its exit status which was hit."""
    build = os.environ.get("CELLBLOCK_BUILD")
    if not build:
        pytest.skip("CELLBLOCK_BUILD is not set")
    bomb = BOMBS["shared mapping"][0]
    run = [f"{build}/bin/cellblock", "run", "--set", "limits.memory=200M", "--set", "workspace.mode=tmpfs"]
    done = subprocess.run([*run, "--", "/usr/bin/python3", "-c", bomb], capture_output=True, text=True, timeout=60)
    assert done.returncode == 137 and "limits.memory" in done.stderr, done
    done = subprocess.run(
        [*run, "--timeout", "1", "--", "/usr/bin/python3", "-c", "while True: pass"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 124, done


# Memory that the kernel holds for a program, and that no process shows as its own. Each takes some times limits.memory,
# and says so if it still has it after a while.
HELD = """
import ctypes, os, socket, struct, sys, threading, time
LIMIT, kind, all, me, DATA = 100 << 20, sys.argv[1], [], os.getpid(), bytes(60000)
libc = ctypes.CDLL(None)

def fill(s, times=1000):
    s.setblocking(False)
    try:
        for i in range(times): s.send(DATA)
    except OSError: pass

def large(s):
    for option in socket.SO_RCVBUF, socket.SO_SNDBUF: s.setsockopt(socket.SOL_SOCKET, option, 1 << 24)
    all.append(s)
    return s

def held(s):
    m = struct.unpack("9I", s.getsockopt(socket.SOL_SOCKET, 55, 36))
    return m[0] + m[4] + m[5]

def children(count):
    for i in range(count):
        if os.fork() == 0: return

def tcp():
    server = large(socket.create_server(("127.0.0.1", 0)))
    for i in range(100):
        a = large(socket.socket())
        a.connect(server.getsockname())
        fill(a)
        fill(large(server.accept()[0]))
    return sum(map(held, all))

def udp():
    for i in range(200):
        a = large(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        a.bind(("127.0.0.1", 0))
        a.connect(a.getsockname())
        before = -1
        while held(a) > before:  # what does not fit is dropped, and nobody is told
            before = held(a)
            fill(a, 20)
        if sum(map(held, all)) > 4 * LIMIT: break
    return sum(map(held, all))

def resets():
    children(3)
    server = large(socket.create_server(("127.0.0.1", 0)))
    for i in range(300):
        a = large(socket.socket())
        a.connect(server.getsockname())
        large(server.accept()[0]).send(b"x")  # which nobody reads: then the other end's close is a reset
        fill(a)
        all.remove(a)
        a.close()
    return 4 * LIMIT

def netlink():
    request = struct.pack("IHHII", 16 + len(DATA), 0x7ff0, 5, 1, 0) + DATA  # comes back with the error
    for i in range(800):
        a = large(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))
        a.setblocking(False)
        before = -1
        while held(a) > before:
            before = held(a)
            try: a.send(request)
            except OSError: pass
        if sum(map(held, all)) > 4 * LIMIT: break
    return sum(map(held, all))

def closed_senders():
    for i in range(1200):
        a, b = socket.socketpair()
        a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
        fill(a)
        all.append(b)
        if i == 400: children(1)
        if i == 800: break
    return 4 * LIMIT

def fill_pipes():
    for i in range(450):
        r, w = os.pipe()
        os.set_inheritable(r, True)
        os.set_inheritable(w, True)
        os.set_blocking(w, False)
        try: os.write(w, bytes(1 << 16))
        except OSError: pass

def pipes():
    children(20)
    fill_pipes()
    return 4 * LIMIT

def named_pipes():
    children(20)
    for i in range(450):
        name = "p%d_%d" % (os.getpid(), i)
        os.mkfifo(name)
        all.append(os.open(name, os.O_PATH))  # which tells nothing of the pipe
        all.append(os.open(name, os.O_RDWR | os.O_NONBLOCK))
        try: os.write(all[-1], bytes(1 << 16))
        except OSError: pass
        os.unlink(name)
    return 4 * LIMIT

def texts_of_proc():
    import select
    watches = select.epoll()
    all.extend(os.pipe())
    for i in range(400):
        all.append(os.dup(all[0]))
        watches.register(all[-1])
    children(20)
    for i in range(400):
        all.append(os.open("/proc/self/fdinfo/%d" % watches.fileno(), os.O_RDONLY))
        os.read(all[-1], 1)
    watches.close()
    return 4 * LIMIT

def pipes_of_an_unreadable_program(orphan=False):
    with open("/bin/sleep", "rb") as program, open("sleep", "wb") as copy: copy.write(program.read())
    os.chmod("sleep", 0o111)  # whose descriptors are shown to nobody
    if os.fork() == 0:
        if orphan and os.fork() > 0: os._exit(0)
        fill_pipes()
        os.execv("./sleep", ["sleep", "20"])
    return 4 * LIMIT

def pipes_of_an_unreadable_orphan():
    return pipes_of_an_unreadable_program(True)

def mappings():
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    children(40)
    for i in range(60000): libc.mmap(None, 4096, 1 + 2 * (i % 2), 0x22, -1, 0)
    return 4 * LIMIT

def mappings_of_forks():
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    libc.mmap.restype = ctypes.c_void_p
    for i in range(10000): ctypes.memset(libc.mmap(None, 4096, 1 + 2, 0x22 if i % 2 else 0x21, -1, 0), 1, 1)
    for i in range(80):  # each has what the kernel keeps for all those before it
        if os.fork() > 0: break
    return 4 * LIMIT

def locks():
    import fcntl
    children(3)
    for i in range(150):
        fd = os.open("l%d_%d" % (os.getpid(), i), os.O_RDWR | os.O_CREAT, 0o600)
        for k in range(900):  # of the open file: it shows no process in /proc/locks
            fcntl.fcntl(fd, 37, struct.pack("hhlli4x", 1, 0, 2 * (900 - k), 1, 0))
        all.append(fd)
    return 4 * LIMIT

def first_thread_ended():
    def work():
        time.sleep(3)  # the first thread has ended by then
        memory = bytearray(b"1") * (40 << 20)
        time.sleep(20)
        os.write(1, b"escaped\\n")
    for i in range(6):
        if os.fork() == 0:
            threading.Thread(target=work).start()
            libc.syscall(60, 0)
    return 4 * LIMIT

def folders_of_a_thread():
    def work():
        time.sleep(3)
        for k in range(4):
            with open("/tmp/%d" % k, "wb") as f:
                for i in range(LIMIT >> 20):
                    f.write(bytes(1 << 20))
        time.sleep(20)
        os.write(1, b"escaped\\n")
    threading.Thread(target=work).start()
    libc.syscall(60, 0)

if globals()[kind]() > 2 * LIMIT:
    time.sleep(20)
    print("escaped")
else:
    print("refused")
"""


def held_kinds():
    return "tcp udp resets netlink closed_senders pipes named_pipes texts_of_proc \
        pipes_of_an_unreadable_program pipes_of_an_unreadable_orphan \
        mappings mappings_of_forks locks first_thread_ended folders_of_a_thread".split()


def run_held(build, kind, who=()):
    run = [*who, f"{build}/bin/cellblock", "run", "--set", "limits.memory=100M", "--set", "workspace.mode=tmpfs"]
    return subprocess.run([*run, "--", PYTHON, "-c", HELD, kind], capture_output=True, text=True, timeout=100, cwd="/")


@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_what_the_kernel_holds_counts(nothing_left, kind):
    """Refused by a control group's limit (what else there is its group counts), or ended by the watchdog."""
    build = os.environ.get("CELLBLOCK_BUILD")
    if not build:
        pytest.skip("CELLBLOCK_BUILD is not set")
    done = run_held(build, kind)
    assert "escaped" not in done.stdout, done
    assert "refused" in done.stdout or "limits.memory" in done.stderr, done


@pytest.mark.parametrize("kind", held_kinds())
def test_what_the_kernel_holds_counts_without_control_groups(nothing_left, ordinary_user, kind):
    build = os.environ.get("CELLBLOCK_BUILD")
    if not build:
        pytest.skip("CELLBLOCK_BUILD is not set")
    ids = (f"--reuid={ordinary_user.pw_uid}", f"--regid={ordinary_user.pw_gid}", "--clear-groups")
    done = run_held(build, kind, ("setpriv", *ids, "env", "HOME=/nonexistent"))
    assert "escaped" not in done.stdout, done
    assert done.returncode == 137 and "limits.memory" in done.stderr, done


# Descriptors in flight count for the user, and the kernel refuses one more to whom they are more than his own limit.
FLIGHT = """
import array, ctypes, os, socket, struct, sys, threading, time
fds, keep = array.array("i", [os.dup(0) for i in range(253)]), []
for i in range(16):
    a, b = socket.socketpair(type=socket.SOCK_SEQPACKET if sys.argv[1] == "empty" else socket.SOCK_STREAM)
    keep += a, b
    if sys.argv[1] in ("polled", "empty"):  # a call that waits for it holds a socket that has no descriptor any more
        one = struct.pack("ihh", b.fileno(), 0, 0)
        waits = threading.Thread(target=ctypes.CDLL(None).poll, args=(one, 1, -1), daemon=True)
        waits.start()
        while ") S " not in open("/proc/self/task/%d/stat" % waits.native_id).read(): pass
        b.close()
    a.sendmsg([b"" if sys.argv[1] == "empty" else b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
if sys.argv[1] == "hidden":  # the descriptors of a program that can't be read are shown to nobody
    with open("/bin/sleep", "rb") as program, open("sleep", "wb") as copy: copy.write(program.read())
    os.chmod("sleep", 0o111)
    for s in keep: s.set_inheritable(True)
print("in flight", flush=True)
if sys.argv[1] == "hidden": os.execv("./sleep", ["sleep", "100"])
sys.stdin.read()
"""
PASS = (
    "import array, resource, socket\n"
    "resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))\n"
    "a, b = socket.socketpair()\n"
    "a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0]))])"
)


@pytest.mark.parametrize("kind", ["outside", "jailed", "hidden", "polled", "empty"])
def test_descriptors_in_flight(nothing_left, ordinary_user, kind):
    """Outside a jail they keep the user's other programs from passing any, as long as they like; inside it is ended."""
    build = os.environ.get("CELLBLOCK_BUILD")
    if not build:
        pytest.skip("CELLBLOCK_BUILD is not set")
    uid = 1_000_000_000 + os.getpid()  # of its own: others of that user could not pass any meanwhile
    ids = (f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
    who, jailed = ["setpriv", *ids, "env", "HOME=/nonexistent"], kind != "outside"
    jail = [f"{build}/bin/cellblock", "run", "--set", "workspace.mode=tmpfs", "--"] if jailed else []
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*who, *jail, PYTHON, "-c", FLIGHT, kind], text=True, cwd="/", **pipes) as filler:
        soon = "" if kind in ("polled", "empty") else None  # it may be ended before
        assert filler.stdout.readline() in ("in flight\n", soon)
        if jailed:
            assert filler.wait(60) == 137
            assert "descriptors on their way" in filler.stderr.read()
        other = subprocess.run([*who, PYTHON, "-c", PASS], capture_output=True, text=True, cwd="/")
        filler.kill()
    assert (other.returncode == 0) == jailed, other


WAITS = """
import mmap, os, sys, time
kids = []
def child(f):
    kids.append(os.fork())
    if kids[-1] == 0:
        try: f()
        finally: os._exit(0)
def spin():
    while True: pass
def idle():  # holds the lock of its mappings while it forks, and has no processor to let it go
    m = mmap.mmap(-1, 60 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    m.madvise(mmap.MADV_NOHUGEPAGE)
    for i in range(0, 60 << 20, 4096): m[i] = 1
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    while True:
        p = os.fork()
        if p == 0: os._exit(0)
        os.waitpid(p, 0)
def eat():
    time.sleep(2)
    b = bytearray(80 << 20)
    for i in range(0, len(b), 4096): b[i] = 1
    time.sleep(35)
    print("escaped", flush=True)
child(idle)
time.sleep(1.5)
for _ in range(10): child(eat)
for _ in range(350): child(spin)
time.sleep(60)
for k in kids: os.kill(k, 9)
"""


@pytest.mark.skipif(os.environ.get("CELLBLOCK_TEST_MANY") != "1", reason="350 busy processes; CELLBLOCK_TEST_MANY=1")
def test_a_look_that_is_kept_waiting(nothing_left, ordinary_user):
    """A look of the watchdog's that waits for a lock: that happened once in four times."""
    build = os.environ.get("CELLBLOCK_BUILD")
    if not build:
        pytest.skip("CELLBLOCK_BUILD is not set")
    ids = (f"--reuid={ordinary_user.pw_uid}", f"--regid={ordinary_user.pw_gid}", "--clear-groups")
    sets = ("limits.memory=150M", "limits.pids=400", "workspace.mode=tmpfs", "timeout.cell=120")
    jail = [f"{build}/bin/cellblock", "run", *(w for s in sets for w in ("--set", s)), "--"]
    for _ in range(10):
        done = subprocess.run(
            ["setpriv", *ids, "env", "HOME=/nonexistent", *jail, PYTHON, "-c", WAITS],
            capture_output=True,
            text=True,
            cwd="/",
        )
        assert (done.returncode, done.stdout) == (137, ""), done


def test_watchdog(nothing_left, ordinary_user):
    """The same bomb where no control group is had: the watchdog kills, and says at what size."""
    build = os.environ.get("CELLBLOCK_BUILD")
    if not build:
        pytest.skip("CELLBLOCK_BUILD is not set")
    who = ("setpriv", f"--reuid={ordinary_user.pw_uid}", f"--regid={ordinary_user.pw_gid}", "--clear-groups")
    spec = ("argv=/usr/bin/python3", "argv=-c", f"argv={BOMBS['shared mapping'][0]}", "limit_memory=104857600")
    with Broker(build, *spec, prefix=who) as broker:
        jail = broker.spawn()
        end = broker.ended(jail)
        assert end["watchdog"] > 100 * MIB or end["oom_kills"] > 0, end
        assert jail.gone()
