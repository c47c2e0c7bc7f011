"""Starts kernels as clients do: from a kernelspec, with a connection file; and ends them.

Role: test code, outside the jail. Invariants: each kernel gets folders of its own (connection file, TMPDIR, workspace,
what it says on stdout and stderr), so that what it leaves behind can be told; an end is awaited on the pidfd. Used by
all of tests/.
"""

import atexit
import functools
import glob
import itertools
import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import psutil
from jupyter_client.kernelspec import KernelSpecManager

from rawclient import DEADLINE, Client

NAME = os.environ.get("CELLBLOCK_TEST_KERNEL", "cellblock")
LINUX = tuple(int(n) for n in os.uname().release.split(".")[:2])
BLOCK = 500  # ports that a run of tests has for itself
PORTS = None  # own_ports(), once one was wanted

# In a cell: from here on copies are made by os.fork, as where the copier can't be loaded.
BY_FORK = "import cellblock_guest.twins as _t; _t.Twins._copy_with_threads = lambda *_: None\n"

# In a cell: the next answer has arrived, and is not read yet, when that signal comes; SIGALRM raises a TimeoutError.
CROSSED = """
import signal
from cellblock_guest.wire import Wire
number, ready = signal.%s, Wire.ready
def crossed(*args):
    found = ready(*args)
    if found:
        Wire.ready = ready
        signal.raise_signal(number)
    return found
def late(*_): raise TimeoutError
_ = signal.signal(signal.SIGALRM, late)
Wire.ready = crossed
"""


def spec_argv(name=NAME):
    spec = KernelSpecManager(ensure_native_kernel=False).get_kernel_spec(name)
    argv = [a.replace("{resource_dir}", spec.resource_dir) for a in spec.argv]
    if argv[0] in ("python", "python3"):
        argv[0] = sys.executable
    elif "/" not in argv[0]:  # of the environment that the kernelspec lies in
        argv[0] = str(Path(spec.resource_dir).parents[3] / "bin" / argv[0])
    return argv, dict(spec.env)


@functools.cache
def argv_of(python):
    """The command of a kernelspec of this interpreter, made once in a run of tests: where there is none, each kernel
    would ask the interpreter anew, and each of its jails compile the guest."""
    folder = tempfile.mkdtemp(prefix="cb-spec-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.chmod(folder, 0o755)
    install = [spec_argv()[0][0], "install", "--python", str(python), "--prefix", folder]
    subprocess.run(install, check=True, capture_output=True)
    return json.loads(Path(folder, "share/jupyter/kernels/cellblock/kernel.json").read_text())["argv"]


def system_argv(*sets):
    """What starts a kernel of the system's Python, with these settings."""
    return [*argv_of("/usr/bin/python3"), *(word for each in sets for word in ("--set", each))]


def is_cellblock(argv):
    return any(os.path.basename(a) == "cellblock" for a in argv[:1]) or (len(argv) > 1 and argv[1] == "kernel")


def copy_programs(folder):
    """The installed programs, copied, so that a test may change what a jail starts; (cellblock, the guest's folder)."""
    program = Path(spec_argv()[0][0]).resolve()
    libexec = next(
        d for d in (program.parent / "../libexec/cellblock", program.parent / "libexec/cellblock") if d.is_dir()
    ).resolve()
    in_bin = libexec.parent.parent != program.parent
    copy = folder / ("bin" if in_bin else "") / "cellblock"
    copy.parent.mkdir(parents=True)
    shutil.copy(program, copy)
    shutil.copytree(libexec, folder / "libexec/cellblock", symlinks=True)
    return copy, folder / "libexec/cellblock/guest"


def on_host(host, argv):
    """The command as on a host of that kind (tests/tools/host_like.c); "as it is" changes nothing."""
    if host == "as it is":
        return list(argv)
    return [os.path.join(os.environ["CELLBLOCK_BUILD"], "tests/host-like"), host, *argv]


def let_in(*folders):
    """Makes the folders, and has other users enter them and what they lie in: pytest closes its own to others."""
    for folder in folders:
        folder.mkdir(exist_ok=True, parents=True)
        for d in [folder, *folder.parents]:
            if Path(tempfile.gettempdir()) in d.parents and os.geteuid() in (0, d.stat().st_uid):
                d.chmod(0o755)


def own_ports():
    """Port after port of a block that no other run of tests uses: who has a block listens at its first port. They lie
    below those that the system gives to programs that name none: tests beside this one open and close many."""
    end = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    blocks = list(range(10000, end - BLOCK, BLOCK))
    random.shuffle(blocks)
    for first in blocks:
        guard = socket.socket()
        try:
            guard.bind(("127.0.0.1", first))
        except OSError:
            guard.close()
            continue
        guard.listen()
        while True:
            yield from range(first + 1, first + BLOCK)
    while True:  # the system gives one
        yield 0


def room(most):
    """From here on ports for so many kernels at once: those of one block are too few. Each gets ports that none of the
    others has, also while it has not bound them yet."""
    global PORTS
    blocks = 1 + most * 5 // (BLOCK - 1)
    PORTS = itertools.chain.from_iterable(zip(*[own_ports() for _ in range(blocks)]))


def free_ports(count):
    global PORTS
    PORTS = PORTS or own_ports()
    ports = []
    while len(ports) < count:
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", next(PORTS)))
            except OSError:
                continue
            if s.getsockname()[1] not in ports:
                ports.append(s.getsockname()[1])
    return ports


def new_connection(folder, **changes):
    names = ["shell_port", "iopub_port", "stdin_port", "control_port", "hb_port"]
    conn = {
        "transport": "tcp",
        "ip": "127.0.0.1",
        "key": uuid.uuid4().hex,
        "signature_scheme": "hmac-sha256",
        "kernel_name": NAME,
    }
    if changes.get("transport") == "ipc":
        conn.update(zip(names, range(1, 6)))
    else:
        conn.update(zip(names, free_ports(5)))
    conn.update(changes)
    return {k: v for k, v in conn.items() if v is not None}


def words_of(process):
    """Its command line; none of one that has just ended, as those do between a guest and its twin."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def walk_below(pid):
    """The numbers of the processes below this one."""
    found = [pid]
    for at in found:  # which grows
        for children in glob.glob(f"/proc/{at}/task/*/children"):
            try:
                found += map(int, Path(children).read_text().split())
            except OSError:  # it has ended
                pass
    return found[1:]


def process(pid):
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def below(pid):
    """All processes below this one. To find them psutil reads what there is of every process of the machine. The lists
    of children are short, but may lack one while another, or its parent, ends (proc(5)): two in a row have to agree."""
    before = None
    for _ in range(10):
        now = walk_below(pid)
        if now and now == before:
            return list(filter(None, map(process, now)))
        before = now
    top = process(pid)  # there are none, or always others, or the system has no such lists
    return top.children(recursive=True) if top else []


def wait_pidfd(pidfd, timeout=DEADLINE):
    return bool(select.select([pidfd], [], [], timeout)[0])


def wait_gone(procs, timeout=DEADLINE):
    """Waits until all these psutil processes have ended; gives those that have not."""
    deadline, left = time.monotonic() + timeout, []
    for p in procs:
        try:
            fd = os.pidfd_open(p.pid)
        except (ProcessLookupError, FileNotFoundError):  # ENOENT: it is being waited for (Linux 6.16)
            continue
        try:
            if p.is_running() and not wait_pidfd(fd, max(0, deadline - time.monotonic())):
                left.append(p)
        finally:
            os.close(fd)
    return left


def named(procs):
    """What these psutil processes are, for who reads that they were left behind."""
    said = []
    for p in procs:
        try:
            said.append(f"{p.pid} ({p.status()}): {' '.join(p.cmdline()) or p.name()}")
        except psutil.Error:  # it has ended meanwhile
            said.append(repr(p))
    return said


def kill_all(procs):
    for p in procs:
        try:
            p.kill()
        except psutil.NoSuchProcess:
            pass


def is_zygote(pid, of=b""):
    """Whether it is an interpreter that waits, with `of` in its environment, or its pid 1, or what becomes them; its
    copies have the same environment, and are one process namespace further down."""
    try:
        if Path(f"/proc/{pid}/comm").read_text() in ("cellblock-keep\n", "cellblock-warm\n"):
            return not of
        environ = Path(f"/proc/{pid}/environ").read_bytes()
        if b"\0CELLBLOCK_ZYGOTE=" not in environ or of not in environ:
            return False
        depths = [
            Path(f"/proc/{each}/status").read_text().split("\nNSpid:")[1].split("\n")[0].split()
            for each in ("self", pid)
        ]
        return len(depths[1]) == len(depths[0]) + 1
    except OSError:
        return False


class Kernel:
    """A kernel's process. `args` are put behind the kernelspec's own, `env` over the environment; None takes a name
    out."""

    def __init__(
        self, folder, *, argv=None, args=(), env=None, connection=None, workspace=None, user=None, file_text=None
    ):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.workspace = Path(workspace) if workspace else self.folder / "work"
        self.tmp, runtime = self.folder / "tmp", self.folder / "run"
        for d in (self.workspace, self.tmp, runtime, self.folder / "home"):
            d.mkdir(exist_ok=True)
            if user:
                os.chown(d, user.pw_uid, user.pw_gid)
        self.connection = new_connection(runtime, **(connection or {}))
        self.file = runtime / "kernel-test.json"
        self.file.write_text(json.dumps(self.connection) if file_text is None else file_text)
        self.file.chmod(0o600)
        if user:
            os.chown(self.file, user.pw_uid, user.pw_gid)
        own, spec_env = spec_argv() if argv is None else (list(argv), {})
        self.argv = [a.replace("{connection_file}", str(self.file)) for a in own] + list(args)
        self.is_cellblock = is_cellblock(self.argv)
        if not any("hist_file" in a for a in self.argv):
            self.argv.append("--HistoryManager.hist_file=:memory:")
        self.env = {
            **os.environ,
            **spec_env,
            "TMPDIR": str(self.tmp),
            "IPYTHONDIR": str(self.folder / "home/ipython"),
            "JPY_PARENT_PID": str(os.getpid()),
            "HOME": str(self.folder / "home"),
            "XDG_DATA_HOME": str(self.folder / "home/share"),
            **(env or {}),
        }
        self.env = {k: v for k, v in self.env.items() if v is not None and not k.startswith(("PYTEST", "COV_"))}
        self.out = self.folder / "said"
        who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
        with open(self.out, "ab") as out:
            self.process = subprocess.Popen(
                self.argv,
                cwd=self.workspace,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                **who,
            )
        self.pidfd = os.pidfd_open(self.process.pid)
        self.closed = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def pid(self):
        return self.process.pid

    def said(self):
        return self.out.read_text(errors="replace")

    def family(self):
        """All processes below the kernel's, the guest's among them."""
        return below(self.pid)

    def named(self, name):
        """Numbers of the processes below the kernel's that have this name. Some may end while they are looked at."""
        found = []
        for p in self.family():
            try:
                if p.name() == name:
                    found.append(p.pid)
            except psutil.Error:
                pass
        return found

    def running(self, matches):
        """The processes below the kernel's whose command line, a list of words, matches. Some may end while they are
        looked at, and their children get another parent."""
        return [p for p in self.family() if matches(words_of(p))]

    def memory(self):
        """Resident bytes of the kernel's own process: the supervisor alone where it is cellblock."""
        return psutil.Process(self.pid).memory_info().rss

    def open_files(self):
        """Its open files; where only root may count them, the size of its table, which grows by doubling."""
        try:
            return len(os.listdir(f"/proc/{self.pid}/fd"))
        except PermissionError:
            status = Path(f"/proc/{self.pid}/status").read_text()
            return int(status.split("FDSize:")[1].split()[0])

    def alive(self):
        return not wait_pidfd(self.pidfd, 0)

    def wait(self, timeout=DEADLINE):
        """Waits for the process's end; its exit status."""
        assert wait_pidfd(self.pidfd, timeout), "the kernel did not end in time"
        return self.process.wait()

    def signal(self, number):
        signal.pidfd_send_signal(self.pidfd, number)

    def stop(self):
        """Asks for the end; kills where asking does not help, and says so by raising."""
        if self.closed:
            return
        stubborn = False
        family = [] if not self.alive() else self.family()
        if self.alive():
            with Client(connection=self.connection, channels=("control",)) as c:
                c.send("shutdown_request", {"restart": False}, channel="control")
                stubborn = not wait_pidfd(self.pidfd, DEADLINE)
            if stubborn:
                self.signal(signal.SIGKILL)
        self.process.wait()
        os.close(self.pidfd)
        self.closed = True
        left = wait_gone(family)
        what = named(left)
        kill_all(left)
        assert not stubborn, f"shutdown_request on control did not end the kernel; it had said: {self.said()[-2000:]}"
        assert not left, f"left behind by the kernel: {what}"

    def kill(self):
        if not self.closed:
            family = self.family() if self.alive() else []
            if self.alive():
                self.signal(signal.SIGKILL)
            kill_all(family)
            self.process.wait()
            os.close(self.pidfd)
            self.closed = True


def idle_after(client, request):
    """Takes iopub messages of a client of jupyter_client, up to the end of a request of this type."""
    ended = (request, "idle")
    while True:
        message = client.get_iopub_msg(timeout=60)
        if (message["parent_header"].get("msg_type"), message["content"].get("execution_state")) == ended:
            return


def groups_of(processes):
    """The folders of the control groups that were made for these."""
    made = set()
    for p in processes:
        try:
            lines = Path(f"/proc/{p.pid}/cgroup").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            _, controllers, path = line.split(":", 2)
            head, found, name = path.partition("/cellblock-")
            for top in ("", controllers, "unified") if found else ():
                made.add(Path("/sys/fs/cgroup", top, f"{head}{found}{name.split('/')[0]}".lstrip("/")))
    return {folder for folder in made if folder.exists()}
