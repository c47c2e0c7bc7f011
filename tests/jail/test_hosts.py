"""Kinds of hosts: which level of isolation results, what is said, and that cells run or are refused.

Hosts are emulated around the kernel by tests/tools/host_like.c; docs/hosts.md is the table of what is shown here.
"""

import ctypes
import errno
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import types
import uuid
from pathlib import Path

import psutil
import pytest

import kernels
from broker import ENDED, SPAWNED, Broker, Refused
from rawclient import Client

pytestmark = pytest.mark.cellblock_only
ROOT = os.geteuid() == 0
BUILD = Path(os.environ.get("CELLBLOCK_BUILD") or Path(__file__).resolve().parents[2] / "build/check")
PYTHON = "/usr/bin/python3"
PATIENCE = 150  # s
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
LANDLOCK = libc.syscall(ctypes.c_long(444), None, ctypes.c_size_t(0), ctypes.c_uint32(1)) >= 2
BARE = "container" if LANDLOCK else "none"
LEVELS = ["none", "container", "no-cgroup", "full"]
WITHOUT = {"docker": "namespaces", "apparmor": "session", "no-userns": "namespaces"}  # and the step that fails


def like(kind):
    if not (BUILD / "tests/host-like").exists():
        pytest.skip("host-like is not built: set CELLBLOCK_BUILD")
    return [BUILD / "tests/host-like", kind]


# What concerns ordinary users, root tries as one: Ubuntu's rule spares root, and Podman's own containers have none.
SOMEBODY = types.SimpleNamespace(pw_uid=65533, pw_gid=65533)
AS_USER = ("apparmor", "old-proc", "hidepid")


def somebody(kind):
    if not ROOT or kind not in AS_USER:
        return None
    program = kernels.spec_argv()[0][0]
    who = {"user": SOMEBODY.pw_uid, "group": SOMEBODY.pw_gid, "extra_groups": []}
    for p in (program, BUILD / "tests/host-like"):
        if subprocess.run(["test", "-x", p], **who).returncode != 0:
            pytest.skip("an ordinary user cannot reach the program: the half of the tests that he runs tries this")
    return SOMEBODY


def cellblock(*args, cwd, on=None, user=None):
    user = user or somebody(on)
    before = like(on) if on else []
    command = [*map(str, before), kernels.spec_argv()[0][0], *map(str, args)]
    how = {"capture_output": True, "text": True, "timeout": PATIENCE, "stdin": subprocess.DEVNULL}
    if user:
        how |= {
            "user": user.pw_uid,
            "group": user.pw_gid,
            "extra_groups": [],
            "env": os.environ | {"HOME": "/nonexistent"},
        }
    return subprocess.run(command, cwd=cwd, **how)


@pytest.fixture
def work(tmp_path):
    kernels.let_in(tmp_path)
    (tmp_path / "work").mkdir()
    (tmp_path / "work").chmod(0o777)
    return tmp_path / "work"


def abandoned(folder):
    """Of a jail that has ended: a living one holds its folder's lock. Another user's can't be opened."""
    try:
        os.stat(f"{folder}/home")
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(fd)


@pytest.fixture(autouse=True)
def nothing_in_tmp():
    def ours():
        return {e.path for e in os.scandir("/tmp") if e.name.startswith(".cellblock-jail-")}

    before = ours()
    yield
    end = time.monotonic() + PATIENCE
    while (left := list(filter(abandoned, ours() - before))) and time.monotonic() < end:
        time.sleep(0.01)  # one that is being removed, of a test beside this one perhaps
    assert not left


class Host:
    """A kernel on an emulated host."""

    def __init__(self, folder, kind, *args):
        program = kernels.spec_argv()[0][0]
        argv = [str(w) for w in like(kind)] + [program, "kernel", "--python", PYTHON, *args, "-f", "{connection_file}"]
        folder.mkdir()
        kernels.let_in(folder)
        self.kernel = kernels.Kernel(folder, argv=argv, user=somebody(kind))
        self.kernel.workspace.chmod(0o777)
        self.client = Client(self.kernel)
        self.client.ready()

    def banner(self):
        return self.client.request("kernel_info_request").content["banner"]

    def run(self, code):
        return self.client.run(code, timeout=PATIENCE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()
        self.kernel.stop()


@pytest.mark.parametrize("kind", WITHOUT)
def test_less_than_asked_is_refused(kind, work):
    done = cellblock("run", "--", "true", cwd=work, on=kind)
    assert done.returncode == 125, done
    assert f"cellblock run: {WITHOUT[kind]}: " in done.stderr
    assert f'isolation.minimum "{BARE}"' in done.stderr, "the cure names the level that is left"
    if BARE == "none":
        done = cellblock("run", "--set", "isolation.minimum=container", "--", "true", cwd=work, on=kind)
        assert done.returncode == 125 and 'isolation.minimum "none"' in done.stderr


def test_the_broker_tells_the_level():
    for minimum in LEVELS[: LEVELS.index(BARE) + 1]:
        with Broker(BUILD, f"minimum={minimum}", "argv=/bin/true", prefix=like("docker")) as broker:
            jail = broker.spawn()
            assert LEVELS[jail.level] == BARE and f'level "{BARE}"' in jail.note
            assert jail.gone()


def test_every_cell_says_why(tmp_path):
    with Host(tmp_path / "k", "docker") as host:
        cell = host.run("1")
        assert cell.content["status"] == "error"
        assert "namespaces" in cell.content["evalue"] and "isolation.minimum" in cell.content["evalue"]
        assert "namespaces" in host.banner()


ATTACKS = {
    "a secret": "open({secret!r}).read()",
    "a new file outside": "open({folder!r} + '/planted', 'w')",
    "a file of root": "open('/etc/shadow').read()",
    "a file, neither to read nor to write": "__import__('os').open({owned!r}, 3)",
    "a file, to empty it": "__import__('os').open({owned!r}, 3 | __import__('os').O_TRUNC)",
    "names of homes": "__import__('os').listdir('/home')",
    "other processes": "__import__('os').listdir('/proc')",
    "pid 1's memory": "open('/proc/%d/mem' % {parent}, 'rb')",
    "TCP": "__import__('socket').create_connection(('127.0.0.1', {port}))",
    "a local socket": "__import__('socket').socket(__import__('socket').AF_UNIX)",
    "a service by datagrams": "__import__('socket').socketpair(1, 2)[0].sendto(b'x', {datagrams!r})",
    "a new user namespace": "__import__('os').stat('/nonexistent') if {libc}.unshare(0x10000000) else None",
    "root": "__import__('os').setuid(0)",
    "a debugger": "__import__('os').stat('/nonexistent') if {libc}.ptrace(16, {parent}, 0, 0) else None",
}


# A child of a child, in a session of its own, that ignores what can be ignored.
ORPHAN = """
import os, signal, time
r, w = os.pipe()
if os.fork() == 0:
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if os.fork() == 0:
        os.write(w, b"%d" % os.getpid())
        time.sleep(1000)
    os._exit(0)
print(int(os.read(r, 20)))
"""


# What an ordinary user's cells need for locks between processes, which is the user's own there.
SHARED = 'mounts=[{"source": "/dev/shm", "target": "/dev/shm", "mode": "rw"}]'


@pytest.mark.parametrize("kind", WITHOUT)
def test_walls_without_namespaces(kind, tmp_path):
    """Level container: files by Landlock, no sockets, no rights, and nothing is left when it ends."""
    if not LANDLOCK:
        pytest.skip("this kernel has no Landlock: there is no level container")
    secret = tmp_path / "secret"
    secret.write_text("s")
    secret.chmod(0o644)
    owned = tmp_path / "owned"
    owned.write_text("kept")
    owned.chmod(0o666)  # its mode lets cells write it, as the user's own files do
    service = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    service.bind(str(tmp_path / "s"))
    (tmp_path / "s").chmod(0o777)
    facts = {"secret": str(secret), "folder": str(tmp_path), "port": 9, "datagrams": str(tmp_path / "s")}
    facts["owned"] = str(owned)
    facts |= {"libc": "__import__('ctypes').CDLL(None)", "parent": "__import__('os').getppid()"}
    share = [] if ROOT and kind not in AS_USER else ["--set", SHARED]
    with Host(tmp_path / "k", kind, "--set", "isolation.minimum=container", *share) as host:
        assert host.run("import os; kept = os.getpid(); open('mine', 'w').write('x')").ok
        assert "container" in host.banner() and "no copies are kept at this isolation level" in host.banner()
        for name, code in ATTACKS.items():
            cell = host.run(
                f"try:\n {code.format(**facts)}\n print('WON')\nexcept OSError as e:\n print(type(e).__name__)"
            )
            assert cell.ok and "WON" not in cell.text(), (name, cell, cell.text())
            assert name != "TCP" or cell.text() == "OSError\n", cell.text()
        assert host.run("import subprocess; subprocess.run(['sh', '-c', 'echo hi; exit 3'], capture_output=True)").ok
        assert host.run(
            "import os, tempfile; tempfile.NamedTemporaryFile().name.startswith(os.environ['TMPDIR'])"
        ).result == "True"
        assert host.run("import multiprocessing.pool as p; p.ThreadPool(2).map(abs, [-1])").ok
        assert host.run("kept == os.getpid()").result == "True"
        assert not (tmp_path / "planted").exists() and owned.read_text() == "kept"
        assert (host.kernel.workspace / "mine").exists()
        orphan = int(host.run(ORPHAN).text())
        (orphaned,) = [p for p in host.kernel.family() if p.pid == orphan]
        assert host.run("os._exit(3)").error is not None
        assert host.run("6*7").result == "42", "a new one"
        assert not orphaned.is_running()


def test_dies_with_the_supervisor(tmp_path):
    host = Host(tmp_path / "k", "docker", "--set", f"isolation.minimum={BARE}")
    orphan = int(host.run(ORPHAN).text())
    family = host.kernel.family()
    assert orphan in [p.pid for p in family]
    host.kernel.process.kill()
    assert not kernels.wait_gone(family)
    host.client.close()
    host.kernel.process.wait()
    os.close(host.kernel.pidfd)
    host.kernel.closed = True


MANY_FILES = """
import os, time
folder = os.environ["TMPDIR"]
open(folder + "/x", "w").close()
for i in range(12000):  # links: files of their own are slow to make
    os.link(folder + "/x", f"{folder}/{i}")
print("made", flush=True)
time.sleep(1000)
"""


def test_a_long_end_holds_nobody_up():
    """While the broker removes what a jail without namespaces left it answers; a jail asked for then comes after."""
    words = [f"minimum={BARE}", f"argv={PYTHON}", "argv=-c", f"argv={MANY_FILES}", "env=TMPDIR=/tmp"]
    with Broker(BUILD, *words, prefix=like("docker")) as broker:
        jail = broker.spawn()
        assert os.read(jail.stdout, 100) == b"made\n"
        broker.process.send_signal(signal.SIGSTOP)
        signal.pidfd_send_signal(jail.pidfd, signal.SIGKILL)
        assert jail.gone()
        ends = [broker.ask_spawn() for _ in range(2)]
        broker.process.send_signal(signal.SIGCONT)
        event, fields, _ = broker.receive(20)
        assert event == SPAWNED and fields[1] == broker.asked and fields[0] != 0, "the second is refused at once"
        assert broker.receive(20)[0] == ENDED
        event, fields, fds = broker.receive(20)
        assert event == SPAWNED and (fields[0], fields[1]) == (0, broker.asked - 1), fields
        for fd in [*fds, *(e for pair in ends for e in pair)]:
            os.close(fd)


SHARE = """
import multiprocessing as m, os, sys
try:
    print(open(sys.argv[1]).read())
except OSError as e:
    print(type(e).__name__)
try:
    lock = m.Lock()
    print("lock")
    open("/dev/shm/cb-left-" + sys.argv[2], "w").close()
except (OSError, ImportError) as e:
    print(type(e).__name__)
"""


def test_shared_memory_without_namespaces(work):
    """/dev/shm is the host's: started by root a uid of its own makes the difference, else it stays closed."""
    if not LANDLOCK:
        pytest.skip("this kernel has no Landlock: there is no level container")
    name = f"cb-secret-{os.getpid()}"
    fd = os.open(f"/dev/shm/{name}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        os.write(fd, b"the user's own")
        how = ["run", "--set", "isolation.minimum=container"]
        command = ["--", PYTHON, "-c", SHARE, f"/dev/shm/{name}", name]
        done = cellblock(*how, *command, cwd=work, on="docker")
        told = ["PermissionError", "lock" if ROOT else "PermissionError"]
        assert done.stdout.split() == told, done
        assert ROOT or "/dev/shm" in done.stderr
        assert not Path(f"/dev/shm/cb-left-{name}").exists()
        if not ROOT:  # who wants it all the same says so
            done = cellblock(*how, "--set", SHARED, *command, cwd=work, on="docker")
            assert done.stdout.splitlines() == ["the user's own", "lock"], done
            os.unlink(f"/dev/shm/cb-left-{name}")
    finally:
        os.close(fd)
        os.unlink(f"/dev/shm/{name}")


CONNECT = """
import socket, sys
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
    print("connected")
except OSError as e:
    print(e.errno)
"""


def test_servers_in_the_hosts_shared_memory(work):
    """Whoever has the host's /dev/shm mounted finds its servers there, and reaches none."""
    path = f"/dev/shm/cb-server-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        try:
            os.chmod(path, 0o777)
            server.listen()
            done = cellblock("run", "--set", SHARED, "--", PYTHON, "-c", CONNECT, path, cwd=work)
        finally:
            os.unlink(path)
    assert done.stdout == f"{errno.ENETUNREACH}\n", done


def test_what_a_killed_broker_left_is_swept(work):
    """The folder in /tmp: gone at the next start if nobody holds it."""
    uid = 0x7CE00001 if ROOT else os.geteuid()
    left, held, others = (Path(f"/tmp/{prefix}{uuid.uuid4().hex[:6]}")
                          for prefix in (".cellblock-jail-", ".cellblock-jail-", "cellblock-"))
    for folder in (left, held, others):
        (folder / "home/deep").mkdir(parents=True)
        os.chown(folder, uid, uid if ROOT else -1)
        os.utime(folder, (1, 1))
    lock = os.open(held, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    try:
        how = ("run", "--set", f"isolation.minimum={BARE}", "--", "true")
        assert cellblock(*how, cwd=work, on="docker").returncode == 0
        assert not left.exists() and (held / "home/deep").exists()
        os.close(lock)
        assert cellblock(*how, cwd=work, on="docker").returncode == 0
        assert not held.exists() and others.exists(), "what the user may have named so himself"
    finally:
        for folder in (left, held, others):
            shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("kind", ["docker", "capless"])
def test_the_callers_other_processes_live_on(kind, work):
    """Who became `cellblock run` by exec may have children, and those children of theirs."""
    if kind == "capless" and not ROOT:
        pytest.skip("it is about root")
    script = "(sleep 1000 & echo $!; exec sleep 1000) >pids 2>&1 & echo $! >first; while [ ! -s pids ]; do :; done; "
    script += f'exec "$0" run --set isolation.minimum={BARE} -- sh -c "$1"'
    leaves = f"setsid {PYTHON} -c 'import time; time.sleep(1000)' & echo $! > orphan"
    command = [*map(str, like(kind)), "sh", "-c", script, kernels.spec_argv()[0][0], leaves]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=PATIENCE)
    server = [psutil.Process(int((work / name).read_text())) for name in ("first", "pids")]
    try:
        assert done.returncode == 0 and "could not be ended" not in done.stderr, done
        assert [p.status() for p in server] == ["sleeping"] * 2
        assert not psutil.pid_exists(int((work / "orphan").read_text()))
    finally:
        for process in server:
            process.kill()


def mount(source, **more):
    return "mounts=" + json.dumps([{"source": str(source), **more}])


def test_a_mount_in_a_writable_workspace_is_refused(work):
    """Nobody judges what cells put in its place."""
    if not LANDLOCK:
        pytest.skip("this kernel has no Landlock: there is no level container")
    (work / "data").mkdir()
    how = ["run", "--set", "isolation.minimum=container", "--set", mount(work / "data")]
    done = cellblock(*how, "--", "true", cwd=work, on="docker")
    assert done.returncode == 125 and "mounts: " in done.stderr and f"{work}/data" in done.stderr, done
    done = cellblock(*how, "--set", "workspace.mode=ro", "--", "ls", "-d", "data", cwd=work, on="docker")
    assert (done.returncode, done.stdout) == (0, "data\n"), done
    (work / "data").rmdir()
    (work / "data").symlink_to("/var/lib")
    done = cellblock(*how, "--", "true", cwd=work, on="docker")
    assert done.returncode != 0 and "the way to it leads through" in done.stderr, done


def test_a_mount_that_became_a_link_is_none(tmp_path):
    """Each helper looks for the sources anew."""
    if not LANDLOCK:
        pytest.skip("this kernel has no Landlock: there is no level container")
    data, secret = tmp_path / "data", tmp_path / "secret"
    for folder in (data, secret):
        kernels.let_in(folder)
        (folder / "file").write_text("s")
        (folder / "file").chmod(0o644)
    ask = {"argv": ["cat", f"{data}/file"]}
    with Host(tmp_path / "k", "no-userns", "--set", "isolation.minimum=container", "--set", mount(data)) as host:
        assert host.run("1").ok
        assert host.client.request("cellblock_run_request", ask, channel="control").content["stdout"] == "s"
        data.rename(tmp_path / "old")
        data.symlink_to(secret)
        reply = host.client.request("cellblock_run_request", ask, channel="control").content
        assert reply["returncode"] == 1 and "Permission denied" in reply["stderr"], reply


def test_what_is_executed_outside_is_not_writable(work):
    """Landlock can't take away below what it gave, so a prefix in a writable workspace is refused."""
    if not LANDLOCK:
        pytest.skip("this kernel has no Landlock: there is no level container")
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", work / "v"], check=True)
    how = ["--python", work / "v/bin/python", "--set", "isolation.minimum=container"]
    done = cellblock("run", *how, "--", "true", cwd=work, on="docker")
    assert done.returncode == 125 and "protect" in done.stderr and "workspace.mode" in done.stderr, done
    done = cellblock(
        "run",
        *how,
        "--set",
        "workspace.mode=ro",
        "--",
        "sh",
        "-c",
        "cat v/pyvenv.cfg; echo x > x",
        cwd=work,
        on="docker",
    )
    assert "home = " in done.stdout and not (work / "x").exists(), done


def test_an_interpreter_below_tmp_keeps_its_path(work, tmp_path):
    """Though the jail's own /tmp is another folder there."""
    python = tmp_path / "v/bin/python"
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", tmp_path / "v"], check=True)
    how = ("--python", python, "--set", f"isolation.minimum={BARE}")
    done = cellblock("run", *how, "--", python, "-c", "import sys; print(sys.prefix)", cwd=work, on="docker")
    assert done.stdout == f"{tmp_path}/v\n", done


def test_docker_without_landlock(work):
    """Nothing is left that could keep files apart: only the level none, and only if asked for."""
    for minimum in LEVELS[1:3]:
        done = cellblock("run", "--set", f"isolation.minimum={minimum}", "--", "true", cwd=work, on="docker-old")
        assert done.returncode == 125 and 'isolation.minimum "none"' in done.stderr, done
    assert json.loads(cellblock("doctor", "--json", cwd=work, on="docker-old").stdout)["level"] == "none"
    how = ("run", "--set", "isolation.minimum=none", "--", "/usr/bin/python3", "-c")
    done = cellblock(*how, "import os, socket; print(os.getcwd()); socket.socket()", cwd=work, on="docker-old")
    assert done.stdout == f"{work}\n" and "Address family not supported" in done.stderr, done
    assert 'level "none"' in done.stderr


@pytest.mark.skipif(not ROOT, reason="it is about root")
def test_a_containers_root_can_lend_no_folder(work):
    done = cellblock("run", "--", "true", cwd=work, on="capless")
    assert done.returncode == 125 and "workspace: " in done.stderr and "CAP_SYS_ADMIN" in done.stderr, done
    told = json.loads(cellblock("doctor", "--json", cwd=work, on="capless").stdout)
    assert told["level"] == BARE
    done = cellblock("run", "--set", f"isolation.minimum={BARE}", "--", "sh", "-c", "id -u", cwd=work, on="capless")
    assert done.returncode == 0 and done.stdout != "0\n", done


def test_no_calls_served_by_name(work):
    """A writable workspace whose writes nobody can judge is laid under a layer, and that is said."""
    (work / ".envrc").write_text("host")
    done = cellblock("explain", cwd=work, on="no-notifier")
    assert 'workspace.mode is "overlay" here, not "rw"' in " ".join(done.stdout.split()), done
    done = cellblock("run", "--", "sh", "-c", "echo x > .envrc; echo x > new; cat .envrc", cwd=work, on="no-notifier")
    assert (done.returncode, done.stdout) == (0, "x\n"), done
    assert "2 changes to the workspace were dropped" in done.stderr, done
    assert (work / ".envrc").read_text() == "host" and not (work / "new").exists()
    told = json.loads(cellblock("doctor", "--json", cwd=work, on="no-notifier").stdout)
    trial = {t["name"]: t for t in told["trials"]}["calls served by name"]
    assert trial["result"] == "refused" and not trial["required"] and "5.14" in trial["cure"], trial
    assert told["jail"] is True
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(work / "s"))
        server.listen()
        ask = "import socket; print(socket.socket(socket.AF_UNIX).connect_ex('s'))"
        for how, code in (("workspace.mode=overlay", errno.ECONNREFUSED), ("workspace.mode=ro", 0)):
            done = cellblock("run", "--set", how, "--", "/usr/bin/python3", "-c", ask, cwd=work, on="no-notifier")
            assert (done.returncode, done.stdout) == (0, f"{code}\n"), done
    with Host(work / "kernel", "no-notifier") as host:
        assert 'workspace.mode is "overlay" here, not "rw"' in host.banner()
        assert host.run("open('made', 'w').write('1')").ok
    assert not (host.kernel.workspace / "made").exists()


def test_a_writable_workspace_of_an_old_library(work):
    """The call by which one asks whether a folder may be written is newer than the oldest library and kernel."""
    done = cellblock("run", "--", "sh", "-c", "echo x > made", cwd=work, on="old-access")
    assert done.returncode == 0 and (work / "made").read_text() == "x\n", done


def test_level_none_is_only_the_users_wish(work):
    """Neither namespaces nor a filter can be had: nothing but limits and protocol is left."""
    for minimum in LEVELS[1:3]:
        done = cellblock("run", "--set", f"isolation.minimum={minimum}", "--", "true", cwd=work, on="no-filter")
        assert done.returncode == 125, done
    done = cellblock(
        "run",
        "--set",
        "isolation.minimum=none",
        "--",
        "sh",
        "-c",
        "ulimit -c; echo x > f; pwd",
        cwd=work,
        on="no-filter",
    )
    assert (done.returncode, done.stdout) == (0, f"0\n{work}\n"), done
    assert 'level "none"' in done.stderr


def test_no_filter_is_level_none(work):
    """Namespaces can be had, a filter can't: that is told with each jail, and is no level that says "all walls"."""
    how = ("--set", "workspace.mode=ro", "--set", "network.mode=full")  # the notifier's own filter is refused, too
    done = cellblock("run", *how, "--", "true", cwd=work, on="no-load")
    assert done.returncode == 125 and "seccomp: self-test" in done.stderr, done
    how += ("--set", "isolation.minimum=none")
    done = cellblock("run", *how, "--", "sh", "-c", "echo $$; grep Seccomp: /proc/self/status", cwd=work, on="no-load")
    assert done.returncode == 0 and int(done.stdout.split()[0]) < 10, done
    assert 'isolation level "none"' in done.stderr and "no memory for a filter" in done.stderr, done
    with Host(work / "kernel", "no-load", *how) as host:
        cell = host.run("1")
        assert cell.ok and 'isolation level "none"' in host.banner(), (cell, host.banner())
        usage = host.client.request("cellblock_usage_request", channel="control").content
        assert usage["level"] == "none", usage


def test_covered_proc(work):
    """Podman's default: all walls, but no view of processes."""
    done = cellblock("run", "--", "sh", "-c", "ls /proc; cat /proc/version; echo x > /proc/x", cwd=work, on="old-proc")
    assert done.returncode == 2, done
    assert "version" in done.stdout.split() and "1" not in done.stdout.splitlines()
    assert "/proc" in done.stderr and "unmask=ALL" in done.stderr
    told = json.loads(cellblock("doctor", "--json", cwd=work, on="old-proc").stdout)
    assert told["jail"] is True


def test_covered_proc_kernel(tmp_path):
    with Host(tmp_path / "k", "old-proc") as host:
        assert host.run("1").ok
        assert "/proc" in host.banner()
        assert (
            host.run("import subprocess; subprocess.run('echo hi', shell=True, capture_output=True).stdout").result
            == r"b'hi\n'"
        )


def test_hidden_processes(work):
    """A host that hides processes: the watchdog, which stands for control groups, sees nobody, and that is said."""
    done = cellblock("run", "--", "true", cwd=work, on="hidepid")
    assert done.returncode == 0 and "limits.memory" in done.stderr and "hidepid" in done.stderr, done
    told = json.loads(cellblock("doctor", "--json", cwd=work, on="hidepid").stdout)
    [trial] = [t for t in told["trials"] if t["name"] == "processes in /proc"]
    assert told["jail"] is True and trial["result"] == "refused" and "hidepid" in trial["cure"], told
    done = cellblock("run", "--", "true", cwd=work, on="old-proc")
    assert done.returncode == 0 and "hidepid" not in done.stderr, done
    told = json.loads(cellblock("doctor", "--json", cwd=work, on="old-proc").stdout)
    assert [t["result"] for t in told["trials"] if t["name"] == "processes in /proc"] == ["ok"], told


def test_doctor_names_what_is_refused(work):
    for kind, step in WITHOUT.items():
        done = cellblock("doctor", "--json", cwd=work, on=kind)
        told = json.loads(done.stdout)
        assert (done.returncode, told["jail"], told["level"]) == (3, False, BARE), kind
        lacks = [t for t in told["trials"] if t["result"] == "refused" and t["required"]]
        assert lacks and all(t["cure"] for t in lacks), (kind, lacks)


# ---- where the workspace lies ----


def mount_or_skip(*args):
    done = subprocess.run(["mount", *map(str, args)], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"this host refuses the mount: {done.stderr.strip()}")


@pytest.fixture
def disk(tmp_path):
    """Makes a workspace on a file system of its own."""
    if not ROOT:
        pytest.skip("only root can mount file systems")
    made = []
    kernels.let_in(tmp_path)

    def make(kind, fill=lambda lower: None):
        place = tmp_path / f"on-{kind}"
        place.mkdir()
        if kind == "ext4":
            image = tmp_path / "image"
            with open(image, "wb") as f:
                f.truncate(32 << 20)
            subprocess.run(["mke2fs", "-q", "-t", "ext4", image], check=True)
            mount_or_skip("-o", "loop", image, place)
        elif kind == "tmpfs":
            mount_or_skip("-t", "tmpfs", "none", place)
        else:
            layers = tmp_path / "layers"  # on one file system, as a container's are
            layers.mkdir()
            mount_or_skip("-t", "tmpfs", "none", layers)
            made.append(layers)
            for name in ("lower", "upper", "work"):
                (layers / name).mkdir()
            fill(layers / "lower")
            where = f"lowerdir={layers}/lower,upperdir={layers}/upper,workdir={layers}/work"
            mount_or_skip("-t", "overlay", "none", "-o", where, place)
        made.append(place)
        (place / "file").write_text("from outside\n")
        return place

    yield make
    for place in reversed(made):
        subprocess.run(["umount", place], check=True)


@pytest.mark.parametrize("kind", ["ext4", "tmpfs"])
def test_workspace_is_mapped(disk, kind):
    place = disk(kind)
    done = cellblock("run", "--", "sh", "-c", "cat file; stat -c %u file; echo new > made", cwd=place)
    if done.returncode == 125 and "id-mapped" in done.stderr and kind == "tmpfs":
        pytest.skip("tmpfs can be id-mapped from Linux 6.3 on")
    assert (done.returncode, done.stdout) == (0, "from outside\n1000\n"), done
    assert (place / "made").stat().st_uid == 0


def test_workspace_on_overlayfs(disk):
    """What a container's own files lie on: root can't map it; an ordinary user needs no map."""
    place = disk("overlayfs")
    done = cellblock("run", "--", "true", cwd=place)
    assert done.returncode == 125 and "overlayfs" in done.stderr and "workspace.mode" in done.stderr, done
    done = cellblock("run", "--set", "workspace.mode=ro", "--", "sh", "-c", "cat file; echo x > file", cwd=place)
    assert done.stdout == "from outside\n" and done.returncode != 0
    place.chmod(0o777)
    somebody("old-proc")
    done = cellblock("run", "--", "sh", "-c", "cat file; echo new > made", cwd=place, user=SOMEBODY)
    assert (done.returncode, done.stdout) == (0, "from outside\n"), done
    assert (place / "made").read_text() == "new\n"


# A mount namespace of its own, where the workspace's mount is shared as a host's are; below it one without an id-map.
OVER_ANOTHER = """
set -e
mkdir work data rest
mount -t tmpfs none work
mount --make-shared work
mount -t tmpfs none rest
mkdir work/place work/sub rest/l rest/u rest/w
mount -t overlay none -o lowerdir=rest/l,upperdir=rest/u,workdir=rest/w work/sub
echo theirs > data/file
cd work
"$0" run --set "$1" -- cat place/file
grep -c " $PWD/place " /proc/self/mountinfo || true
"""


@pytest.mark.skipif(not ROOT, reason="only root can mount file systems")
def test_mounts_stay_in_the_jail(tmp_path):
    """Also where the workspace was cloned without what is mounted below it."""
    kernels.let_in(tmp_path)
    data = mount(tmp_path / "data", target=str(tmp_path / "work/place"))
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", OVER_ANOTHER]
    done = subprocess.run([*command, kernels.spec_argv()[0][0], data], cwd=tmp_path, capture_output=True, text=True,
                          timeout=PATIENCE, stdin=subprocess.DEVNULL)
    if "mount: " in done.stderr:
        pytest.skip(f"this host refuses the mount: {done.stderr.strip()}")
    assert (done.returncode, done.stdout) == (0, "theirs\n0\n"), done
    assert "mounted below it are not shown" in done.stderr, done


def test_what_hides_the_key_is_never_left_out(work):
    """An interpreter's prefix may be a link in the workspace, what is laid over the connection file may not."""
    (work / "real").mkdir()
    (work / "real/key").write_text("k")
    (work / "link").symlink_to("real")
    spec = (f"workspace_source={work}", "workspace_target=/workspace", "workspace_mode=ro", "argv=/bin/true")
    with Broker(BUILD, *spec, "bind=ro:/usr/share:/workspace/link/key") as broker:
        assert broker.spawn().gone()
    with Broker(BUILD, *spec, "bind=ro:/dev/null:/workspace/link/key") as broker:
        with pytest.raises(Refused) as refused:
            broker.spawn()
    assert refused.value.step == "binds" and "symbolic link" in str(refused.value), refused


@pytest.mark.parametrize("mode", ["ro", "rw", "tmpfs"])
def test_what_can_not_hide_the_key_is_refused(tmp_path, mode):
    """Level container: no mount can be laid over the connection file where cells see its folder."""
    if not LANDLOCK:
        pytest.skip("this kernel has no Landlock: there is no level container")
    folder = tmp_path / "k/run"  # the connection file's
    sets = ["isolation.minimum=container", f"workspace.mode={mode}"]
    sets += [mount(folder)] if mode == "tmpfs" else [f"workspace.path={folder}"]
    with Host(tmp_path / "k", "docker", *(word for each in sets for word in ("--set", each))) as host:
        cell = host.run(f"open({str(host.kernel.file)!r}).read()")
        assert cell.content["status"] == "error", cell.content
        assert "holds the connection file" in cell.content["evalue"], cell.content
        assert "in another folder" in cell.content["evalue"], cell.content


def test_commands_by_message_are_behind_the_same_walls(tmp_path):
    """cellblock_run_request and cellblock_file_request without namespaces: a helper is enclosed as the guest is."""
    what = ["grep", "-E", "^(Uid|Gid|Groups|Cap|NoNewPrivs|Seccomp)", "/proc/self/status"]
    secret = tmp_path / "secret"
    secret.write_text("s")
    with Host(tmp_path / "k", "no-userns", "--set", f"isolation.minimum={BARE}") as host:
        cell = host.run(f"import os, subprocess; print(subprocess.run({what}, capture_output=True, text=True).stdout)")
        reply = host.client.request("cellblock_run_request", {"argv": what}, channel="control").content
        assert reply["status"] == "ok" and reply["stdout"].strip() == cell.text().strip(), reply
        cwd = host.run("print(os.getcwd(), os.environ['HOME'], os.environ['TMPDIR'])").text()
        ask = {"argv": ["sh", "-c", "echo $PWD $HOME $TMPDIR"]}
        assert host.client.request("cellblock_run_request", ask, channel="control").content["stdout"] == cwd
        host.run("open('mine', 'w').write('x')")
        ask = {"op": "read", "path": "mine"}
        reply = host.client.request("cellblock_file_request", ask, channel="control")
        assert reply.buffers == [b"x"], reply.content
        ask = {"op": "read", "path": str(secret)}
        assert "workspace" in host.client.request("cellblock_file_request", ask, channel="control").content["evalue"]
        if LANDLOCK:
            ask = {"argv": ["cat", str(secret)]}
            assert host.client.request("cellblock_run_request", ask, channel="control").content["returncode"] == 1


def test_hybrid_cgroups(work):
    """Controllers of version 1 beside an empty hierarchy of version 2: what is mounted decides nothing."""
    mounted = {line.split()[2] for line in Path("/proc/mounts").read_text().splitlines()}
    if not {"cgroup", "cgroup2"} <= mounted:
        pytest.skip("this host's cgroups are not hybrid")
    told = json.loads(cellblock("doctor", "--json", cwd=work).stdout)
    assert told["level"] == ("full" if ROOT else "no-cgroup") and told["jail"] is True
    done = cellblock(
        "run", "--set", f"isolation.minimum={told['level']}", "--", "sh", "-c", "cat /proc/self/cgroup", cwd=work
    )
    assert done.returncode == 0 and all(line.endswith(":/") for line in done.stdout.splitlines()), done


def test_without_the_cpu_controller(work):
    """doctor promises no limit that a policy then does not get."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    points = [at for _, at, kind, options, *_ in mounts if kind == "cgroup" and "cpu" in options.split(",")]
    if not ROOT or not points:
        pytest.skip("not root, or no hierarchy of version 1 has the cpu controller: it can't be taken away alone")
    take_away = ["unshare", "-m", "sh", "-c", 'umount "$0" && exec "$@"', points[0], kernels.spec_argv()[0][0]]

    def told(*args):
        return subprocess.run([*take_away, *args], cwd=work, capture_output=True, text=True, timeout=PATIENCE)

    report = json.loads(told("doctor", "--json").stdout)
    assert report["level"] == "full" and "all limits but limits.cpu" in report["meaning"], report
    assert told("run", "--set", "isolation.minimum=full", "--set", "limits.cpu=0", "--", "true").returncode == 0
    refused = told("run", "--set", "isolation.minimum=full", "--set", "limits.cpu=1", "--", "true")
    assert refused.returncode == 125 and "cpu" in refused.stderr, refused
