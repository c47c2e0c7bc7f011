"""Warm start without a jail: boot.py as a zygote, and its copies as guests. In the place of the copier's enter.c stands
enter_by_fork.c, which makes a copy and enters nothing."""

import array
import os
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
from pathlib import Path

import pytest
from fake_supervisor import DEADLINE, ROOT, Adopted, FakeSupervisor, _packet, _packets

SPAWN, END, TELL, OTHER = 1, 2, 3, 4
READY, NAMESPACES, REQUEST = 14, 3, 0
PLACES = ("STDOUT", "STDERR", "WIRE", "LOG", "TWIN_CONTROL", "REGISTRY", "SIDE", "PID1")
FIRST = 12  # of these, in enum cb_warm_fd
HELLO = struct.Struct("=II")
ANSWER = struct.Struct("=Ii")


@pytest.fixture(scope="session")
def warm_guest_dir(whole_guest_dir, tmp_path_factory):
    """The guest with another library."""
    if shutil.which("cc") is None:
        pytest.skip("no compiler")
    target = tmp_path_factory.mktemp("warm") / "guest"
    shutil.copytree(whole_guest_dir, target)
    sources = [path for path in sorted((ROOT / "guest/copier").glob("*.c")) if path.name != "enter.c"]
    command = ["cc", "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-shared", "-fvisibility=hidden"]
    command += ["-fno-stack-protector", "-I", ROOT / "include", "-I", ROOT / "guest/copier", *sources]
    command += [Path(__file__).with_name("enter_by_fork.c"), "-o", target / "cellblock_guest/libcopier.so"]
    subprocess.run(command, check=True)
    return target


class WarmGuest(FakeSupervisor):
    """The channels of a guest that a zygote is asked for."""

    def __init__(self, zygote, cwd, env=None, side=False):
        self.twins, self.branches, self.next_twin, self.in_lanes = [], [], 1, {}
        ours, wire = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        pipes = [os.pipe() for _ in range(3)]
        self.twin_control, twin_control = _packets()
        self.registry, registry = _packets()
        self.side, side_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM) if side else (None, None)
        self.pid1 = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        pidfd = os.pidfd_open(self.pid1.pid)
        theirs = [pipes[0][1], pipes[1][1], wire.fileno(), pipes[2][1], twin_control.fileno(), registry.fileno()]
        theirs += [side_end.fileno()] if side else []
        present = sum(1 << FIRST + at for at in range(len(PLACES)) if side or PLACES[at] != "SIDE")
        self.request = self.count = 0
        self.seen, self.hello = [], None
        self._attach(ours, *(pipe[0] for pipe in pipes), "STARTING")
        try:
            self.connection = zygote.connect()
        except OSError:  # it has ended
            self.pid1.kill()
            self.pid1.wait()
            raise
        zygote.spawn(self.connection, [*theirs, pidfd], present, str(cwd), env or {})
        for each in (wire, twin_control, registry, *([side_end] if side else [])):
            each.close()
        for fd in (pidfd, *(pipe[1] for pipe in pipes)):
            os.close(fd)

    def wait_ready(self):
        assert zygote_answer(self.connection) == (READY, 0)
        (number,), pid = _packet(self.registry, "<I")
        assert number == 0
        self.process = Adopted(pid)
        self.connection.send(b"\0")
        return self.wait_hello()

    def close(self):
        self.pid1.kill()
        self.pid1.wait()
        self.connection.close()
        if hasattr(self, "process"):
            super().close()


def zygote_answer(connection):
    assert select.select([connection], [], [], DEADLINE)[0]
    return ANSWER.unpack(connection.recv(64))


class ZygoteProcess:
    def __init__(self, python, guest_dir, folder, preload="", idle=600, path=(), files=1024, env=()):
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        self.address = str(folder / "socket")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(self.address)
        read_end, write_end = os.pipe()
        lock = folder / "lock"
        lock_fd = os.open(lock, os.O_RDWR | os.O_CREAT)
        env = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(self.home),
            "USER": "user",
            "TMPDIR": "/tmp",
            "LANG": "C.UTF-8",
            "CELLBLOCK_ZYGOTE": preload,
            "CELLBLOCK_ZYGOTE_IDLE": str(idle),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": ":".join(map(str, path)),
            **dict(env),
        }

        def give_fds():
            os.dup2(write_end, 502)
            os.dup2(listener.fileno(), 510)
            os.dup2(lock_fd, 511)
            null = os.open(os.devnull, os.O_RDWR)
            for fd in range(8):
                os.dup2(502 if fd == 2 else null, fd)
            os.dup2(510, 10)
            os.dup2(511, 11)
            os.closerange(8, 10)
            os.closerange(12, 600)
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

        self.process = subprocess.Popen(
            [str(python), str(guest_dir / "boot.py")],
            close_fds=False,
            env=env,
            cwd=str(self.home),
            preexec_fn=give_fds,
            start_new_session=True,
        )
        listener.close()
        os.close(write_end)
        os.close(lock_fd)
        with open(read_end, errors="replace") as f:  # it ends when the zygote listens, or has ended
            self.stderr = f.read()
        self.lock = lock
        self.said = lock.read_text()
        self.guests = []

    def connect(self):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(DEADLINE)
        connection.connect(self.address)
        packet = connection.recv(1 << 17)
        version, length = HELLO.unpack_from(packet)
        assert (version, length) == (1, len(packet) - HELLO.size)
        self.stamp = packet[HELLO.size :].decode()
        return connection

    @staticmethod
    def spawn(connection, fds, present, cwd, env, version=1):
        folder = cwd.encode() + b"\0"
        variables = b"".join(b"%s=%s\0" % (name.encode(), value.encode()) for name, value in env.items())
        data = struct.pack("=9I", SPAWN, version, present, 0o022, 0, 0, 0, len(folder), len(variables))
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        connection.sendmsg([data + folder + variables], rights)

    def guest(self, cwd, env=None, **how):
        self.guests.append(WarmGuest(self, cwd, env, **how))
        return self.guests[-1].wait_ready()

    def tell(self, connection=None):
        connection = connection or self.connect()
        connection.send(struct.pack("=9I", TELL, 1, *[0] * 7))
        return dict(line.split(" ", 1) for line in connection.recv(1 << 16).decode().splitlines())

    def close(self):
        for guest in self.guests:
            guest.close()
        self.process.kill()
        self.process.wait()


@pytest.fixture
def new_zygote(interpreter, warm_guest_dir, tmp_path_factory):
    started = []

    def start(*args, **how):
        folder = tmp_path_factory.mktemp("z")
        started.append(ZygoteProcess(interpreter.path, warm_guest_dir, folder, *args, **how))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture
def zygote(new_zygote):
    started = new_zygote()
    assert started.process.poll() is None and (started.said, started.stderr) == ("+", "")
    return started


def test_a_copy_runs_cells(zygote, tmp_path):
    guest = zygote.guest(tmp_path, side=True)
    assert guest.hello["side"] is True
    result = guest.run("x = 1\nprint(x)")
    assert result.ok and result.text() == "1\n"
    assert guest.run("x").result == "1"
    assert guest.run("import os; os.system('echo from C')").fd1 == b"from C\n"
    assert guest.run("1/0").error["ename"] == "ZeroDivisionError"
    guest.start("while True: pass")
    guest.interrupting = True
    assert guest.finish().error["ename"] == "KeyboardInterrupt"
    guest.send("SHUTDOWN", {"restart": False})
    guest.process.wait(DEADLINE)


SAME = """
import builtins, os, signal, sys, threading
def look():
    kept = [name for name in sorted(globals()) if name != 'look']
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    names = 'stdout', 'stderr', 'argv', 'displayhook', 'excepthook'
    return {
        'names': kept, 'builtins': sorted(vars(builtins)), 'mask': mask, 'threads': threading.active_count(),
        'native': threading.main_thread().native_id == os.getpid(), 'fds': sorted(os.listdir('/proc/self/fd')),
        'flags': [os.get_inheritable(fd) for fd in range(8)], 'path': sys.path, 'last': hasattr(sys, 'last_value'),
        'sys': [str(getattr(sys, name)).partition(' at 0x')[0] for name in names], 'main': __name__,
        'cells': os.path.basename(os.path.dirname(look.__code__.co_filename)).endswith('_%d' % os.getpid()),
        'environment': {name: value for name, value in os.environ.items() if not name.startswith('PYTHON')},
        'handlers': [str(signal.getsignal(n)).partition(' at 0x')[0] for n in range(1, 65) if n not in (32, 33)],
    }
print(repr(look()))
"""


def test_a_copy_is_like_a_cold_guest(zygote, new_guest, tmp_path):
    """What a first cell sees of itself, the environment and the process."""
    late = {"CELLBLOCK_POLICY_SAYS": '{"network.mode": "none"}', "CELLBLOCK_PACKAGES": "ro", "JPY_SESSION_NAME": "a"}
    cold = new_guest(dict(late, HOME=str(zygote.home)), side=True).run(SAME).text()
    warm = zygote.guest(tmp_path, late, side=True).run(SAME).text()
    cold, warm = eval(cold), eval(warm)
    assert {name: warm[name] for name in warm if warm[name] != cold[name]} == {}
    assert warm["native"] and warm["cells"]


def test_the_collector_of_a_copy(zygote, tmp_path):
    """What was loaded is none of its garbage: it would have each page of that for itself. The rest is."""
    guest = zygote.guest(tmp_path)
    frozen, alive = eval(guest.run("import gc; gc.get_freeze_count(), len(gc.get_objects())").result)
    assert frozen > 10 * alive > 0 and guest.run("gc.isenabled()").result == "True"
    made = "class Ring: pass\nring = Ring(); ring.itself = ring\nimport weakref; left = weakref.ref(ring); del ring"
    assert guest.run(made).ok and guest.run("gc.collect(); left() is None").result == "True"


def test_history_begins_with_the_first_cell(ipython, zygote, tmp_path):
    guest = zygote.guest(tmp_path)
    seen = guest.run("print((len(In), In[-1][:5], dict(Out), get_ipython().execution_count, _, __, _ih is In))")
    assert seen.text() == "(2, 'print', {}, 1, '', '', True)\n"
    # as values: IPython breaks lines where a path is long
    assert eval(guest.run("[str(each) for each in _dh]").result) == [str(tmp_path)]
    seen = guest.run("In[1][:5], Out[2][:2], get_ipython().last_execution_result.execution_count")
    assert eval(seen.result) == ("print", [str(tmp_path)], 2)


def test_copies_have_random_numbers_of_their_own(zygote, tmp_path):
    code = "import random, ssl, uuid, tempfile, multiprocessing as m\n"
    code += "r = [random.random(), ssl.RAND_bytes(8), uuid.uuid4(), next(tempfile._get_candidate_names())]\n"
    code += "r += [bytes(m.current_process().authkey)]\n"
    code += "try:\n    import numpy; r += [numpy.random.rand(), numpy.random.default_rng().random()]\n"
    code += "except ImportError: pass\n"
    code += "for each in r: print(each)"
    first, second = (zygote.guest(tmp_path).run(code).text().splitlines() for _ in range(2))
    assert len(first) == len(second) >= 5 and not set(first) & set(second)


def test_loaded_modules_are_seeded_anew(new_zygote, tmp_path, interpreter):
    names = "random,ssl,uuid,tempfile,multiprocessing" + (",numpy" if "numpy" in interpreter.has else "")
    zygote = new_zygote(names)
    assert zygote.said == "+" and zygote.tell()["preloaded"] == names
    test_copies_have_random_numbers_of_their_own(zygote, tmp_path)


def test_openssl_that_does_not_see_a_copy(new_zygote, tmp_path):
    """As in jails, where copies have the same number. It has been used before, which makes its generators."""
    library = tmp_path / "same_pid.so"
    source = Path(__file__).with_name("same_pid.c")
    flags = ["-D_GNU_SOURCE", "-shared", "-fPIC", "-fvisibility=hidden"]
    subprocess.run(["cc", *flags, source, "-o", library, "-ldl"], check=True)
    (tmp_path / "uses_ssl.py").write_text("import ssl\nfirst = ssl.RAND_bytes(16)\n")
    zygote = new_zygote("uses_ssl", path=[tmp_path], env={"LD_PRELOAD": str(library)})
    assert zygote.said == "+" and zygote.tell()["preloaded"] == "uses_ssl"
    code = "import ssl, uses_ssl; uses_ssl.first, ssl.RAND_bytes(16)"
    (first, one), (again, two) = (eval(zygote.guest(tmp_path).run(code).result) for _ in range(2))
    assert first == again and len({first, one, two}) == 3


def test_each_copy_has_its_policy_and_folder(zygote, tmp_path):
    for name, mode, network in ("one", "ro", "none"), ("two", "session", "full"):
        cwd = tmp_path / name
        cwd.mkdir()
        (cwd / "beside.py").write_text("where = %r\n" % name)
        says = '{"network.mode": "%s", "limits.pids": 7}' % network
        late = {"CELLBLOCK_POLICY_SAYS": says, "CELLBLOCK_MESSAGE_MAX": "100000", "JPY_SESSION_NAME": name}
        guest = zygote.guest(cwd, dict(late, CELLBLOCK_PACKAGES=mode))
        code = "import os, beside\nprint((os.getcwd(), beside.where, os.environ['JPY_SESSION_NAME'], "
        seen = guest.run(code + "os.environ.get('PIP_USER')))").text()
        assert seen == "%r\n" % ((str(cwd), name, name, "0" if mode == "ro" else None),)
        retries = guest.run("import os; os.environ.get('PIP_RETRIES'), [n for n in os.environ if 'CELLBLOCK' in n]")
        assert retries.result == repr(("0" if network == "none" else None, []))
        assert "limits.message" in guest.run("'a' * 200000").result


def test_paths_that_were_not_there(new_zygote, tmp_path):
    """What a .pth file names is on the search path where it exists, and said to be missing where it does not."""
    site, late = tmp_path / "site-packages", tmp_path / "late"
    site.mkdir()
    (site / "some.pth").write_text("%s\nimport os\n" % late)
    zygote = new_zygote(path=[site])
    assert str(late) in zygote.guest(tmp_path).hello["missing_paths"]
    late.mkdir()
    (late / "latecomer.py").write_text("value = 5\n")
    guest = zygote.guest(tmp_path)
    assert str(late) not in guest.hello["missing_paths"]
    assert guest.run("import latecomer; latecomer.value").result == "5"


EDITED = """
import sys, types
print("said by a line")
sys.modules["edited"] = types.ModuleType("edited")
sys.modules["edited"].paths = list(sys.path)
"""


def test_code_in_a_users_site_that_was_not_there(new_zygote, new_guest, interpreter, tmp_path):
    """As setuptools installs what is edited elsewhere, by a finder that a line of a .pth file begins."""
    zygote = new_zygote()
    about = "import site; print(site.getusersitepackages() if site.ENABLE_USER_SITE else '')"
    env = {"HOME": str(zygote.home)}
    folder = subprocess.run([interpreter.path, "-c", about], env=env, capture_output=True, text=True).stdout.strip()
    if not folder:
        pytest.skip("an environment takes none of its user's packages")
    Path(folder).mkdir(parents=True)
    (Path(folder) / "edits.py").write_text(EDITED)
    (Path(folder) / "a.pth").write_text("import nowhere_to_be_found\n")
    (Path(folder) / "b.pth").write_text("import edits\n")
    for guest in zygote.guest(tmp_path), new_guest(env):
        result = guest.run("import edited, sys\nprint(edited.__name__, %r in edited.paths)" % folder)
        assert result.ok and result.text() == "edited True\n"
        guest.wait_pipe(1, b"said by a line")
        guest.wait_pipe(2, b"nowhere_to_be_found")


def test_a_configuration_in_the_home(ipython, zygote, tmp_path):
    profile = zygote.home / ".ipython/profile_default"
    (profile / "startup").mkdir(parents=True)
    (profile / "ipython_config.py").write_text("c.InteractiveShell.ast_node_interactivity = 'all'\n")
    (profile / "startup/first.py").write_text("begun = 3\n")
    guest = zygote.guest(tmp_path)
    assert guest.run("begun").result == "3"
    result = guest.run("1\n2")
    assert [frame.content["data"]["text/plain"] for frame in result.of("EXECUTE_RESULT")] == ["1", "2"]


def test_asyncio_that_was_loaded(new_zygote, tmp_path):
    zygote = new_zygote("asyncio")
    assert zygote.said == "+"
    for _ in range(2):
        guest = zygote.guest(tmp_path)
        assert guest.run("import asyncio\nawait asyncio.sleep(0.001)\nprint('slept')").text() == "slept\n"


def test_twins_of_a_copy(zygote, tmp_path):
    guest = zygote.guest(tmp_path)
    guest.run("x = 1")
    twin = guest.checkpoint()
    guest.run("x = 2")
    guest.take_over(twin)
    assert guest.run("x").result == "1"


def test_the_stamp(zygote, interpreter):
    zygote.connect()
    lines = {line.split(" ", 5)[5]: line.split(" ", 5)[:5] for line in zygote.stamp.splitlines()}
    for path, told in lines.items():
        s = os.stat(path)
        assert told == [str(n) for n in (s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns)]
        assert not path.startswith(("/run/cellblock", str(zygote.home)))
    about = "import os, sys, json; print(os.path.realpath(sys.executable)); print(os.path.dirname(json.__file__))"
    wanted = subprocess.run([interpreter.path, "-c", about], capture_output=True, text=True, check=True).stdout.split()
    assert set(wanted) <= set(lines)


def test_it_ends_when_it_is_told(zygote, tmp_path):
    """And tells pid 1 by its exit status that it leaves somebody."""
    guest = zygote.guest(tmp_path)
    zygote.connect().send(struct.pack("=9I", END, 1, *[0] * 7))
    assert zygote.process.wait(DEADLINE) == 10
    assert guest.run("1").result == "1"


def test_it_ends_when_it_sees_other_files(new_zygote, tmp_path):
    """One that was of use before is as good as one whose files have changed: the next one is started at once."""
    for useful in (False, True):
        zygote = new_zygote()
        if useful:
            zygote.guest(tmp_path)
        zygote.connect().send(struct.pack("=9I", OTHER, 1, *[0] * 7))
        assert zygote.process.wait(DEADLINE) == (10 if useful else 0)
        assert zygote.lock.read_text().startswith("+" if useful else "-what it has loaded are other files")


def test_sigterm_ends_it(zygote):
    zygote.process.terminate()
    assert zygote.process.wait(DEADLINE) == -signal.SIGTERM


def test_it_ends_when_nobody_needs_it(new_zygote, tmp_path):
    zygote = new_zygote(idle=0.01)
    assert zygote.process.wait(DEADLINE) == 0
    for idle in (1, 10):  # on a busy machine it may have ended before it is asked
        zygote = new_zygote(idle=idle)
        try:
            guest = zygote.guest(tmp_path)
            break
        except OSError:
            assert zygote.process.wait(DEADLINE) == 0
    assert guest.run("import time; time.sleep(%s); 1" % (1.5 * idle)).result == "1"
    assert zygote.process.poll() is None
    guest.pid1.kill()
    assert zygote.process.wait(DEADLINE) == 0


def test_what_it_tells(zygote, tmp_path):
    told = zygote.tell()
    assert told["made"] == told["living"] == "0" and int(told["pid"]) == zygote.process.pid and int(told["age"]) >= 0
    guest = zygote.guest(tmp_path)
    zygote.guest(tmp_path)
    told = zygote.tell()
    assert (told["made"], told["living"], told["preloaded"]) == ("2", "2", "")
    guest.pid1.kill()
    guest.pid1.wait()
    assert (zygote.tell()["living"], zygote.tell()["made"]) == ("1", "2")


def test_it_keeps_no_fd_but_that_of_pid_1(zygote, tmp_path):
    def count():
        return len(os.listdir("/proc/%d/fd" % zygote.process.pid))

    connection = zygote.connect()
    zygote.tell(connection)
    before = count()
    guest = zygote.guest(tmp_path)
    zygote.tell(connection)
    assert count() == before + 1
    with pytest.raises(AssertionError):
        zygote.guest(tmp_path / "nowhere")
    zygote.tell(connection)
    assert count() == before + 2  # the connection, on which it has told
    zygote.guests[-1].connection.close()
    guest.pid1.kill()
    guest.pid1.wait()
    zygote.tell(connection)
    zygote.tell(connection)
    assert count() == before


def test_an_error_on_the_way_is_told(zygote, tmp_path):
    guest = WarmGuest(zygote, tmp_path / "nowhere")
    zygote.guests.append(guest)
    assert zygote_answer(guest.connection) == (NAMESPACES, -2)
    assert zygote.guest(tmp_path).run("1").result == "1"


HEAD = struct.pack("=9I", SPAWN, 1, 0, 0, 0, 0, 0, 2, 0)
MALFORMED = {
    "too short": b"abc",
    "no such word": struct.pack("=9I", 9, 1, *[0] * 7),
    "another version": struct.pack("=9I", SPAWN, 2, 0, 0, 0, 0, 0, 2, 0) + b"/\0",
    "no fds": HEAD + b"/\0",
    "fds that did not come": struct.pack("=9I", SPAWN, 1, 0xFF000, 0, 0, 0, 0, 2, 0) + b"/\0",
    "no such fds": struct.pack("=9I", SPAWN, 1, 1 << 31, 0, 0, 0, 0, 2, 0) + b"/\0",
    "filters longer than the packet": struct.pack("=9I", SPAWN, 1, 0, 0, 1 << 31, 0, 0, 2, 0) + b"/\0",
    "no folder": struct.pack("=9I", SPAWN, 1, 0, 0, 0, 0, 0, 0, 0),
    "a folder without an end": struct.pack("=9I", SPAWN, 1, 0, 0, 0, 0, 0, 2, 0) + b"/x",
    "another variable": struct.pack("=9I", SPAWN, 1, 0, 0, 0, 0, 0, 2, 7) + b"/\0PATH=x\0",
}


@pytest.mark.parametrize("how", MALFORMED)
def test_what_is_malformed_closes_its_connection_alone(zygote, tmp_path, how):
    other, bad = zygote.connect(), zygote.connect()
    bad.send(MALFORMED[how])
    try:
        assert bad.recv(64) == b""
    except ConnectionResetError:
        pass
    assert zygote.tell(other)["made"] == "0"


@pytest.mark.parametrize("files, most", [(1024, 256), (128, 32)])
def test_more_connections_than_it_takes(new_zygote, files, most):
    """The rest waits, and it does nothing meanwhile."""
    zygote = new_zygote(files=files)
    taken = [zygote.connect() for _ in range(most)]
    last = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    last.settimeout(DEADLINE)
    last.connect(zygote.address)
    assert zygote.tell(taken[-1])["made"] == "0"
    assert not select.select([last], [], [], 0)[0]
    taken.pop().close()
    assert last.recv(1 << 17)
    assert zygote.tell(last)["made"] == "0"


def test_fds_of_a_malformed_request_are_closed(zygote):
    connection, bad = zygote.connect(), zygote.connect()
    zygote.tell(connection)
    read_end, write_end = os.pipe()
    zygote.spawn(bad, [write_end, write_end], 0, "/", {})
    os.close(write_end)
    assert os.read(read_end, 1) == b""
    os.close(read_end)


UNFIT = {
    "a socket": "import socket\nkept = socket.socket()",
    "a file": "kept = open('/dev/zero')",
    "shared memory": "import mmap\nkept = mmap.mmap(-1, 4096)",
    "a thread": "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
}


@pytest.mark.parametrize("what", UNFIT)
def test_a_module_that_leaves_something_open_is_refused(new_zygote, tmp_path, what):
    (tmp_path / "leaves_open.py").write_text(UNFIT[what])
    zygote = new_zygote("json,leaves_open", path=[tmp_path])
    assert zygote.process.wait(DEADLINE) == 3
    assert zygote.said.startswith("-leaves_open leaves ") or "leaves_open maps" in zygote.said
    assert zygote.said.count("\n") == 1 and zygote.stderr == ""
    assert "a file open" not in zygote.said or zygote.said.endswith(". Preload without it\n")


def test_what_it_imports_may_say_and_fail(new_zygote, tmp_path):
    (tmp_path / "says.py").write_text("import os\nprint('x'); print('y', end=''); os.write(1, b'z')")
    (tmp_path / "fails.py").write_text("1/0")
    zygote = new_zygote("says,fails,nowhere_to_be_found", path=[tmp_path])
    assert (zygote.said, zygote.stderr) == ("+", "")
    assert zygote.tell()["preloaded"] == "says" and zygote.tell()["left_out"] == "fails,nowhere_to_be_found"
    guest = zygote.guest(tmp_path)
    result = guest.run("import sys; 'says' in sys.modules")
    assert result.result == "True" and result.text() == "" and result.fd1 == b""


# but for one that IPython's completer sets, which a zygote has imported
FILTERS = "print([(each[0], each[2].__name__) for each in warnings.filters if 'Completer' not in each[2].__name__])"


def test_filters_of_warnings_that_a_module_sets(new_zygote, new_guest, tmp_path):
    text = "import warnings\nwarnings.simplefilter('always', ResourceWarning)\nwarnings.warn('not seen')\n"
    (tmp_path / "filters.py").write_text(text)
    zygote = new_zygote("filters", path=[tmp_path])
    assert zygote.said == "+" and zygote.tell()["preloaded"] == "filters"
    warm = zygote.guest(tmp_path).run("import filters, warnings\n" + FILTERS)
    cold = new_guest({"PYTHONPATH": str(tmp_path)}).run("import filters, warnings\n" + FILTERS)
    assert warm.text() == cold.text() and warm.text().startswith("[('always', 'ResourceWarning')")


def test_workers_find_modules_of_the_notebooks_folder(new_zygote, tmp_path):
    guest = new_zygote("multiprocessing.process").guest(tmp_path)
    assert guest.run("import multiprocessing.process as p; p.ORIGINAL_DIR").result == repr(str(tmp_path))
