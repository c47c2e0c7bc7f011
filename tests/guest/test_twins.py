"""Twins: made by the guest, woken in its place, bred, run beside it; what comes back and what says that it does not.

Each test twice: copied with all threads by the copier (more of that is in test_copier.py), and by os.fork.
"""

import os
import re
import shutil
import signal

import pytest
from fake_supervisor import NOTHING
from session_state import ARRAYS, CHECK, CHECK_ARRAYS, PROGRAM, RUIN, RUIN_ARRAYS


@pytest.fixture(params=[True, False], ids=["with threads", "by fork"])
def threads(request):
    """Whether they come back."""
    return request.param


@pytest.fixture(scope="module")
def guest_dir_without(whole_guest_dir, tmp_path_factory):
    folder = tmp_path_factory.mktemp("without") / "guest"
    shutil.copytree(whole_guest_dir, folder, ignore=shutil.ignore_patterns("libcopier.so"))
    return folder


@pytest.fixture
def guest_dir(threads, whole_guest_dir, guest_dir_without):
    return whole_guest_dir if threads else guest_dir_without


def test_take_over(new_guest, threads):
    guest = new_guest()
    guest.run("x = [1]; y = x; import os; os.chdir('/'); first = os.getpid()")
    twin = guest.checkpoint()
    assert twin.reply["left_out"] == NOTHING and twin.forked is not threads
    guest.run("x.append(2); del y; z = 1; os.chdir('/tmp')")
    guest.start("import os; os._exit(3)")
    with pytest.raises(EOFError):
        guest.finish()
    guest.take_over(twin, [(2, "x.append(2)"), (3, "import os; os._exit(3)")])
    assert guest.run("x, x is y, os.getcwd(), 'z' in globals(), os.getpid() != first").result == (
        "([1], True, '/', False, True)"
    )
    assert (
        guest.run("print('said'); import sys; print('err', file=sys.stderr); os.write(1, b'raw') and None").fd1
        == b"raw"
    )


@pytest.mark.parametrize("when", ["it has begun", "it is gone"])
def test_the_guests_own_threads_are_known_before_and_after(new_guest, when):
    """On a busy machine a thread that was started begins late, and one that has ended goes late."""
    guest = new_guest()
    locks = "begun, gate = _thread.allocate_lock(), _thread.allocate_lock()"
    guest.run("from cellblock_guest import threads\nimport _thread\n" + locks)
    if when == "it has begun":
        code = "real = threads.get_native_id\ndef late():\n    begun.release(); gate.acquire(); return real()\n"
        code += "threads.get_native_id, held = late, print"
    else:
        code = "local = _thread._local()\nclass Last:\n    def __del__(self): begun.release(); gate.acquire()\n"
        code += "def held(): local.last = Last()"
    guest.run(code)
    assert guest.run("begun.acquire(); gate.acquire(); threads.start_deaf(held); begun.acquire()").result == "True"
    left = guest.checkpoint().reply["left_out"]
    assert (left["native"], left["native_of"]) == (0, "")
    assert guest.run("gate.release()").ok


def failing(guest, code="import os, signal; os.kill(os.getpid(), signal.SIGKILL)"):
    """Runs a cell that kills the guest."""
    guest.start(code)
    with pytest.raises(EOFError):
        guest.finish()


def lose(guest, twin, *undone):
    failing(guest)
    return guest.take_over(twin, undone)


def test_without_twin_control(interpreter, guest_dir, tmp_path):
    from fake_supervisor import FakeSupervisor

    guest = FakeSupervisor(interpreter.path, guest_dir, tmp_path, twins=False).wait_hello()
    guest.pending = guest.send("CHECKPOINT", {"number": 1})
    assert guest.finish("CHECKPOINT_REPLY").reply["ename"] == "RuntimeError"
    assert guest.run("1").ok
    guest.close()


def test_count_and_history(new_guest, interpreter):
    guest = new_guest()
    guest.run("'one'")
    twin = guest.checkpoint()
    guest.run("'two'")
    lose(guest, twin, (2, "'two'"), (3, "fail()"))
    if interpreter.ipython:
        assert guest.run("In[1:4], Out[1], 2 in Out, _, _i").result == repr(
            (["'one'", "'two'", "fail()"], "one", False, "one", "fail()")
        )
        assert guest.run("get_ipython().execution_count, len(In)").result == "(5, 6)"
        assert guest.run("get_ipython().history_manager.input_hist_raw[2]").result == repr("'two'")
    else:
        assert guest.run("4").ok


def test_again_and_again(new_guest):
    guest = new_guest()
    guest.run("import os\nn = 0\ndef files(): return len(os.listdir('/proc/self/fd'))")
    guest.run("once = files()")
    for n in range(10):
        twin = guest.checkpoint()
        guest.run("n = -1")
        lose(guest, twin)
        assert guest.run("n").result == str(n)
        guest.run("n += 1")
    assert guest.run("files() - once").result == "0"


def test_state_of_the_process(new_guest):
    guest = new_guest()
    guest.run(
        "import os, signal, gc; me = open('/proc/self/comm').read(), gc.isenabled(), signal.pthread_sigmask(0, [])"
    )
    twin = guest.checkpoint()
    pid = twin.process.pid
    assert open("/proc/%d/comm" % pid).read() == "cellblock-twin\n"
    assert os.getsid(pid) == pid
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        os.kill(pid, number)
    lose(guest, twin)
    assert guest.run(
        "me == (open('/proc/self/comm').read(), gc.isenabled(), signal.pthread_sigmask(0, [])), os.getsid(0)"
    ).result == ("(True, %d)" % pid)


def test_interrupts_after_take_over(new_guest):
    guest = new_guest()
    guest.run("import signal; was = signal.getsignal(signal.SIGINT)")
    lose(guest, guest.checkpoint())
    guest.start("print('on')\nwhile True: pass")
    guest.until("STREAM")
    guest.interrupt()
    assert guest.finish().error["ename"] == "KeyboardInterrupt"
    assert guest.run("was is signal.getsignal(signal.SIGINT)").result == "True"


def test_code_that_waits_for_any_child(new_guest):
    guest = new_guest()
    guest.run("import os, signal; seen = []")
    twin = guest.checkpoint()
    assert guest.run("try: os.waitpid(-1, 0)\nexcept ChildProcessError: print('none')").stdout == "none\n"
    guest.run("signal.signal(signal.SIGCHLD, signal.SIG_IGN)")
    assert guest.checkpoint().reply["status"] == "ok"
    assert guest.run("pid = os.fork()\nif pid == 0: os._exit(0)\ntwins = 'unseen'\ntwins").result == "'unseen'"
    lose(guest, twin)


def test_a_birth_that_was_never_asked_for(new_guest):
    from fake_supervisor import BIRTH, Twin

    guest = new_guest()
    stale = Twin(1)
    stale.send_birth(guest.twin_control, BIRTH)
    guest.next_twin = 2
    lose(guest, guest.checkpoint())
    assert stale.twin_control.recv(1) == b""  # every copy is closed
    stale.drop()


def test_nothing_on_twin_control(new_guest):
    guest = new_guest()
    guest.pending = guest.send("CHECKPOINT", {"number": 1})
    assert guest.finish("CHECKPOINT_REPLY").reply["ename"] == "OSError"
    lose(guest, guest.checkpoint())


def test_ends_with_its_twin_control(new_guest):
    guest = new_guest()
    twin = guest.checkpoint()
    guest.twins.remove(twin)
    twin.twin_control.close()
    twin.process.wait(60)
    for each in (twin.wire,):
        each.close()
    os.close(twin.fd1)
    os.close(twin.fd2)
    assert guest.run("1").ok


def test_output_is_said_once(new_guest, threads):
    guest = new_guest()
    result = guest.run(
        "import ctypes; ctypes.CDLL(None).printf(b'from C'); print('no newline', end='')\n"
        "import threading; go = threading.Event()\n"
        "threading.Thread(target=lambda: go.wait() and print('later')).start()"
    )
    twin = guest.checkpoint()
    assert result.stdout == "no newline" and result.fd1 == b"from C"
    lose(guest, twin)
    if threads and "later\n" not in guest.run("go.set()").stdout:
        guest.until("STREAM", lambda frame: frame.content == "later\n")
    second = guest.run("print('new')")
    assert (second.stdout, second.stderr, second.fd1) == ("new\n", "", b"")


def test_descriptors_stay_ours(new_guest):
    guest = new_guest()
    guest.checkpoint()
    code = "import subprocess; subprocess.run('readlink /proc/self/fd/3 /proc/self/fd/5 /proc/self/fd/6', shell=True, "
    code += "capture_output=True, close_fds=False).stdout"
    assert "socket" not in guest.run(code).result
    lose(guest, guest.checkpoint())
    assert "socket" not in guest.run(code).result
    code = "pid = os.fork()\nif not pid: print([os.readlink('/proc/self/fd/%d' % n) for n in (3, 5, 6)]); os._exit(0)\n"
    result = guest.run("import os\n" + code + "os.waitpid(pid, 0) and None")
    assert result.fd1 == b"['/dev/null', '/dev/null', '/dev/null']\n"


def test_what_comes_back(new_guest):
    guest = new_guest()
    assert guest.run(PROGRAM).ok
    twin = guest.checkpoint()
    result = guest.run(RUIN)
    assert result.ok, result.error
    lose(guest, twin)
    result = guest.run(CHECK)
    assert result.result == "'whole'", result.error


def test_asyncio(new_guest):
    guest = new_guest()
    result = guest.run(
        "import asyncio\nseen = []\ngo = asyncio.Event()\nasync def main():\n    while True:\n"
        "        await go.wait(); go.clear(); print('went', len(seen)); seen.append(1)\n"
        "task = asyncio.create_task(main())\nloop = asyncio.get_running_loop()\n"
        "other = asyncio.new_event_loop()\nawait asyncio.sleep(0)"
    )
    assert result.ok, result.error
    twin = guest.checkpoint()
    guest.run("task.cancel()\nawait asyncio.sleep(0)")
    assert guest.run("task.cancelled()").result == "True"
    guest.start("import os; os._exit(1)")
    with pytest.raises(EOFError):
        guest.finish()
    guest.take_over(twin)
    assert guest.run("loop is asyncio.get_event_loop(), loop is asyncio.get_running_loop()").result == "(True, True)"
    started = guest.run("import threading; threading.Thread(target=loop.call_soon_threadsafe, args=[go.set]).start()")
    if "went" not in started.stdout:
        guest.until("STREAM", lambda frame: "went 0" in frame.content)
    assert guest.run("await asyncio.sleep(0.001, 'slept')").result == "'slept'"
    assert guest.run("await loop.run_in_executor(None, lambda: 'pooled')").result == "'pooled'"
    wake = "loop.call_soon_threadsafe(other.stop)"
    code = "t = threading.Thread(target=lambda: (asyncio.set_event_loop(other), other.run_forever(), print('ran')))\n"
    code += "t.start()\nother.call_soon_threadsafe(other.stop)\nt.join()"
    assert guest.run(code).stdout == "ran\n", wake
    lose(guest, guest.checkpoint())
    assert guest.run("await asyncio.sleep(0.001, 'again')").result == "'again'"


def test_pipes_and_sockets_are_not_held_open(new_guest, threads):
    """What listens does so again in a copy with threads, which first gives it up like all the rest."""
    guest = new_guest()
    guest.run(
        "import os, socket, subprocess\nchild = subprocess.Popen(['cat'], stdin=subprocess.PIPE)\n"
        "server = socket.create_server(('127.0.0.1', 0)); port = server.getsockname()[1]\n"
        "one = socket.create_connection(('127.0.0.1', port)); other = server.accept()[0]\n"
        "twice = server.dup()\n"
        "r, w = os.pipe(); os.set_blocking(r, False); aside = os.dup(1)"
    )
    twin = guest.checkpoint()
    assert twin.reply["left_out"]["sockets"] == (2 if threads else 4) and twin.reply["left_out"]["children"] == 1
    assert guest.run("child.stdin.close(); child.wait(60)").result == "0"
    assert guest.run("one.close(); other.recv(1)").result == "b''"
    assert guest.run("other.close(); server.close(); twice.close()").ok
    assert guest.run("again = socket.create_server(('127.0.0.1', port))").ok
    lose(guest, twin)
    assert guest.run("child.poll() is not None").result == "True"
    assert guest.run("one.recv(1), other.recv(1)").result == "(b'', b'')"
    if threads:
        anew = "new = socket.create_connection(('127.0.0.1', port), 60); server.accept()[0].sendall(b'x'); new.recv(1)"
        assert guest.run(anew).result == "b'x'"
        assert guest.run(anew.replace("server", "twice")).result == "b'x'"
    else:
        assert guest.run("server.setblocking(False); server.accept()").error["ename"] == "BlockingIOError"
    assert guest.run("os.write(w, b'own'); os.read(r, 9)").result == "b'own'"
    assert guest.run("os.get_blocking(r), os.write(aside, b'heard')").fd1 == b"heard"


SERVE = """
import os, select, socket
stream, packets = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
tcp, udp = socket.create_server(("127.0.0.1", 0)), socket.socket(type=socket.SOCK_DGRAM)
stream.bind("stream"), packets.bind("packets"), udp.bind(("127.0.0.1", 0))
a, b = socket.socketpair(type=socket.SOCK_DGRAM)
stream.listen(), packets.listen()
twice = stream.dup()
listen, take, poll = (stream, twice, packets, tcp), (udp, a, b), select.poll()
for each in listen + take: each.setblocking(False), poll.register(each, select.POLLIN)
socket.setdefaulttimeout(5)
"""
WAIT = """
def waits(function, *args):
    try: function(*args)
    except BlockingIOError: return True
poll.poll(0), all(waits(each.accept) for each in listen), all(waits(each.recv, 1) for each in take)
"""


def test_servers_that_do_not_come_back_are_not_ready_for_ever(new_guest, threads):
    """Who serves them would run in a circle."""
    guest = new_guest()
    assert guest.run(SERVE).ok
    for _ in range(2):
        twin = guest.checkpoint()
        assert twin.reply["left_out"]["sockets"] == (6 if threads else 7)
        assert guest.run(WAIT).result == "([], True, True)", "the original"
        lose(guest, twin)
        assert guest.run(WAIT).result == "([], True, True)"
        left = "[n for n in os.listdir('/tmp') if n.startswith('.cellblock-') and n[11:].isdigit()]"
        assert guest.run(left).result == "[]", "folders of jails have such names, too: .cellblock-jail-…"
    assert guest.run("socket.setdefaulttimeout(None); os.get_blocking(os.dup(stream.fileno()))").result == "False"
    branch = guest.branch(guest.checkpoint())
    assert branch.run(WAIT).result == guest.run(WAIT).result == "([], True, True)"


PROXIES = """
import sys, types, weakref
class Context:
    closed, _sockets = 0, ()
    def term(self): self.closed += 1
class Lazy:
    @property
    def __class__(self): asked.append(1); return Lazy
class Gone: pass
asked, first = [], Context()
kept, lazy = Gone(), Lazy()
proxy = weakref.proxy(kept)
del kept
last = Context()
sys.modules["zmq"] = types.SimpleNamespace(Context=Context)
"""


def test_a_proxy_of_nothing_keeps_nothing_from_being_healed(new_guest):
    guest = new_guest()
    assert guest.run(PROXIES).ok
    lose(guest, guest.checkpoint())
    assert guest.run("first.closed, last.closed, asked").result == "(1, 1, [])"


def test_a_shared_lock_that_a_thread_holds(new_guest, threads):
    """It lies in memory that the copy shares, where the original has released it."""
    if not threads:
        pytest.skip("the thread does not come back")
    guest = new_guest()
    guest.run(
        "import multiprocessing, threading\nlock = multiprocessing.get_context('fork').Lock()\n"
        "held, go = threading.Event(), threading.Event()\n"
        "def work():\n    with lock: held.set(), go.wait()\n"
        "t = threading.Thread(target=work, daemon=True); t.start(); held.wait()"
    )
    twin = guest.checkpoint()
    assert guest.run("go.set(); t.join(60); lock.acquire(False), lock.release()").result == "(True, None)"
    lose(guest, twin)
    assert guest.run("lock.acquire(False)").result == "False"
    assert guest.run("go.set(); t.join(60); t.is_alive(), lock.acquire(False)").result == "(False, True)"


def test_a_pools_thread_that_has_read_half_a_notice(new_guest, threads):
    """The rest is in a pipe, which the copy has anew."""
    if not threads:
        pytest.skip("the thread does not come back")
    guest = new_guest()
    guest.run(
        "import multiprocessing, threading\nfrom multiprocessing.connection import Connection\n"
        "between, go = threading.Event(), threading.Event()\nread, sizes = Connection._recv, []\n"
        "def half(self, size, **more):\n"
        "    if self is pool._change_notifier._reader:\n"
        "        sizes.append(size)\n        if len(sizes) == 2: between.set(), go.wait()\n"
        "    return read(self, size, **more)\n"
        "pool = multiprocessing.get_context('fork').Pool(1); pool.map(abs, [-1])\n"
        "Connection._recv = half; pool._change_notifier.put(None); between.wait()"
    )
    twin = guest.checkpoint()
    lose(guest, twin)
    assert guest.run("len(sizes), go.set(), pool.map_async(abs, [-2]).get(60)").result == "(2, None, [2])"
    assert guest.run("pool._worker_handler.is_alive()").result == "True"


def test_pools(new_guest, threads):
    guest = new_guest()
    guest.run(
        "from concurrent.futures import ThreadPoolExecutor, ProcessPoolExecutor\nimport multiprocessing, math\n"
        "threads = ThreadPoolExecutor(2); threads.submit(abs, -1).result()\n"
        "fork = multiprocessing.get_context('fork'); processes = ProcessPoolExecutor(1, fork)\n"
        "processes.submit(abs, -1).result()\npool = fork.Pool(1); pool.map(abs, [-1])\n"
        "lock, count = fork.RLock(), fork.Semaphore(3); queue = fork.Queue(); queue.put(1); queue.get()\n"
        "import time; child = fork.Process(target=time.sleep, args=(600,)); child.start()"
    )
    twin = guest.checkpoint()
    assert twin.reply["status"] == "ok", twin.reply
    left = twin.reply["left_out"]
    assert (left["threads"] == 0 if threads else left["threads"] >= 3) and left["children"] >= 2, left
    failing(guest, "lock.acquire(); count.acquire(); import os; os._exit(1)")
    guest.take_over(twin)
    assert guest.run("threads.submit(abs, -2).result(60)").result == "2"
    assert guest.run("processes.submit(abs, -2).result(60)").error["ename"] == "BrokenProcessPool"
    if threads:  # it makes new processes
        assert guest.run("pool.map_async(abs, [-2]).get(60)").result == "[2]"
    else:
        assert guest.run("pool.map(abs, [-2])").error["ename"] == "ValueError"
    if threads:  # while its thread makes new ones: those that are gone are off its list, no other is on it yet
        slow = "lambda: threading.current_thread() is pool._worker_handler and time.sleep(0.5)"
        assert guest.run("import os, threading; os.register_at_fork(before=%s)" % slow).ok
        lose(guest, guest.checkpoint())
        again = guest.run("time.sleep(0.3); pool.map_async(abs, [-2]).get(60)")
        assert again.result == "[2]", again.error
    assert guest.run("child.join(); child.is_alive(), child.exitcode").result == "(False, -9)"
    lose(guest, guest.checkpoint())
    assert guest.run("child.join(); child.is_alive(), child.exitcode").result == "(False, -9)", "after one more"
    assert guest.run("pool.terminate(); pool.join()").ok
    assert guest.run("queue.put(2); queue.get(timeout=60)").result == "2"
    assert guest.run("lock.acquire(timeout=60), count.get_value()").result == "(True, 3)"
    assert guest.run("with fork.Pool(1) as p: print(p.map(abs, [-3]))").stdout == "[3]\n"
    assert guest.shutdown() == 0


def test_children_that_were_closed(new_guest):
    guest = new_guest()
    guest.run(
        "import multiprocessing, time; fork = multiprocessing.get_context('fork')\n"
        "child = fork.Process(target=time.sleep, args=(600,)); child.start()"
    )
    lose(guest, guest.checkpoint())
    assert guest.run("child.join(); child.close()").ok
    lose(guest, guest.checkpoint())
    assert guest.run("1").ok and "AttributeError" not in guest.log_text()


STARTS = """
import subprocess, threading
children, end = [], threading.Event()
def start():
    children.extend(subprocess.Popen(["sleep", "1000"]) for _ in range(2)); end.wait()
thread = threading.Thread(target=start); thread.start(); own = subprocess.Popen(["sleep", "1000"])
while len(children) < 2: end.wait(0.001)
"""


def test_children_of_all_threads_are_counted(new_guest):
    guest = new_guest()
    assert guest.run(STARTS).ok
    assert guest.checkpoint().reply["left_out"]["children"] == 3
    assert guest.run("end.set(); thread.join(); [c.kill() for c in (own, *children)];").ok


OPEN = """
import os
os.mkdir("d"); here = os.getcwd(); os.chdir("d")
for name in ("gone", "swapped", "changed", "given up"): open(name, "w").write("kept")
gone, swapped, changed, lost = (open(name, "a+") for name in ("gone", "swapped", "changed", "given up"))
gone.seek(2); folder = os.open(".", os.O_RDONLY)
"""
# What the cell does, and what is done outside then: files that go back do so as new ones, with their times.
SPOIL = """
import os, shutil
os.unlink("gone"); open("new", "w").write("else"); os.replace("new", "swapped"); os.unlink("given up")
changed.write(" and more"); changed.flush(); os.rename("changed", "else"); open("changed", "w").write("new")
"""


@pytest.mark.parametrize("beside", [False, True], ids=["take-over", "branch"])
def test_files_that_come_back_under_their_names(new_guest, tmp_path, beside):
    guest = new_guest()
    assert guest.run(OPEN).ok
    files = [tmp_path / "d" / name for name in ("gone", "swapped", "changed")]
    times = [file.stat().st_mtime_ns for file in files]
    twin = guest.checkpoint()
    assert guest.run(SPOIL + "shutil.copytree('.', '../e'); shutil.rmtree('../d')").ok
    shutil.move(tmp_path / "e", tmp_path / "d")
    for file, time in list(zip(files, times))[:2]:
        file.write_text("kept")
        os.utime(file, ns=(time, time))
    guest = guest.branch(twin) if beside else lose(guest, twin)
    assert guest.run("os.getcwd() == os.path.join(here, 'd'), os.listdir(folder) == os.listdir('.')").result == (
        "(True, True)"
    )
    assert guest.run("gone.read(), [f.write('!') and f.flush() for f in (gone, swapped, changed, lost)]").ok
    assert guest.run("[open(n).read() for n in ('gone', 'swapped', 'changed')], gone.tell()").result == (
        "(['kept!', 'kept!', 'new'], 5)"
    )
    assert guest.run("lost.seek(0); lost.read()").result == "'kept!'"


@pytest.mark.parametrize("earlier", [False, True], ids=["by the failed cell", "before"])
@pytest.mark.parametrize("lock", ["flock(%s, fcntl.LOCK_EX | fcntl.LOCK_NB)", "fcntl(%s, 37, WHOLE)"])
def test_locks_that_end_with_the_open_file(new_guest, lock, earlier):
    """A twin shares that with the guest. A branch leaves the main line its lock."""
    guest = new_guest()
    assert guest.run("import fcntl, struct; WHOLE = struct.pack('hhqqi4x', 1, 0, 0, 0, 0); f = open('lock', 'w')").ok
    take, again = f"fcntl.{lock % 'f'}", f"g = open('lock', 'a'); fcntl.{lock % 'g'}"
    assert guest.run(take if earlier else "pass").ok
    twin, beside = guest.checkpoint(), guest.checkpoint()
    assert guest.run("pass" if earlier else take).ok
    assert guest.branch(beside).run(again).error["ename"] == "BlockingIOError"
    taken = lose(guest, twin).run(again)
    assert taken.ok, taken.error


def test_folders_that_are_being_read(new_guest, tmp_path):
    guest = new_guest()
    names = {"%04d" % n for n in range(3000)}
    (tmp_path / "many").mkdir()
    for name in names:
        (tmp_path / "many" / name).touch()
    assert guest.run("import os; each = os.scandir('many'); seen = {next(each).name for _ in range(10)}").ok
    twin, aside = guest.checkpoint(), guest.checkpoint()
    rest = "seen |= {e.name for e in each}; len(seen)"
    branch = guest.branch(aside)
    assert guest.run(rest).result == "3000"
    assert branch.run(rest).result == "3000"
    lose(guest, twin)
    assert guest.run(rest).result == "3000"


def test_a_forkserver(new_guest):
    """That of the state was no child of the process that has the state now: there is a new one."""
    guest = new_guest()
    guest.run("import math, multiprocessing; server = multiprocessing.get_context('forkserver')")
    ask = "with server.Pool(1) as pool: print(pool.map(math.sqrt, [4]))"
    assert guest.run(ask).stdout == "[2.0]\n"
    lose(guest, guest.checkpoint())
    result = guest.run(ask)
    assert result.stdout == "[2.0]\n", result.error


def test_threads_and_warnings(new_guest, threads):
    guest = new_guest()
    guest.run(
        "import threading, warnings, logging\nwarnings.simplefilter('error'); filters = warnings.filters\n"
        "end = threading.Event(); t = threading.Thread(target=end.wait); t.start()\nlog = logging.getLogger('x')"
    )
    twin = guest.checkpoint()
    assert twin.reply["status"] == "ok" and twin.reply["left_out"]["threads"] == (0 if threads else 1), twin.reply
    assert guest.run("end.set(); t.join(); warnings.filters is filters").result == "True"
    lose(guest, twin)
    assert not threads or guest.run("t.is_alive(), end.set()").result == "(True, None)"
    assert guest.run("t.join(60); t.is_alive(), warnings.filters is filters").result == "(False, True)"
    assert guest.checkpoint().reply["left_out"]["threads"] == 0
    assert "careful" in guest.run("log.warning('careful')").stderr


def test_shared_memory_is_counted(new_guest):
    guest = new_guest()
    guest.run("import mmap; m = mmap.mmap(-1, 4096); m[0] = 1")
    assert guest.checkpoint().reply["left_out"]["shared_maps"] == 1
    guest.run("m.close()")


def test_breed(new_guest):
    """A name can be rolled back to again and again: a copy of its twin takes over, the twin stays."""
    guest = new_guest()
    guest.run(
        "import random; random.seed(1); f = open('/dev/null'); n = 1"
        "\nopen('o', 'w').write('abc'); o = open('o', 'rb', 0)"
    )
    name = guest.checkpoint()
    values = set()
    for _ in range(3):
        guest.run("n += 1; o.read()")
        copy = guest.breed(name)
        guest.take_over(copy)
        values.add(guest.run("n, random.random(), o.read(2)").result)
    assert len(values) == 1 and values.pop().startswith("(1, ")
    lose(guest, guest.checkpoint())
    assert guest.run("n").result == "1"


def test_branches_run_beside(new_guest):
    guest = new_guest()
    guest.run(
        "import asyncio, os; x = [0]; open('b', 'w').write('abcdef')\n"
        "f = open('b', 'rb', 0); f.read(1)\nr, w = os.pipe()"
    )
    base = guest.checkpoint()
    guest.run("f.read(2)")
    branches = [guest.branch(guest.breed(base)) for _ in range(3)]
    for n, branch in enumerate(branches):
        branch.run("x.append(%d); os.write(w, b'%d')" % (n, n))
        assert branch.run("await asyncio.sleep(0.001)\nos.read(r, 9)").result == "b'%d'" % n
    for n, branch in enumerate(branches):
        assert branch.run("x").result == "[0, %d]" % n
        assert branch.run("f.read(2)").result == "b'bc'"
    assert guest.run("x, f.read(2)").result == "([0], b'de')"
    second = branches[0].checkpoint()
    branches[0].run("x.append('gone')")
    lose(branches[0], second)
    assert branches[0].run("x").result == "[0, 0]"


def test_comms(new_guest, need, ipython):
    need("comm")
    guest = new_guest()
    guest.run(
        "import comm; got = []\n"
        "c = comm.create_comm(target_name='t'); c.on_msg(lambda m: got.append(m['content']['data']))"
    )
    identity = next(f for f in guest.seen if f.kind == "UP_COMM_OPEN").content["comm_id"]
    lose(guest, guest.checkpoint())
    guest.comm("DOWN_COMM_MSG", {"comm_id": identity, "data": {"a": 1}})
    assert guest.run("got").result == "[{'a': 1}]"
    assert guest.run("c.send('back')").of("UP_COMM_MSG")[0].content == {"comm_id": identity, "data": "back"}


def test_numpy_and_pandas(new_guest, need):
    need("numpy", "pandas", "matplotlib")
    guest = new_guest()
    result = guest.run(ARRAYS)
    assert result.ok, result.error
    twin = guest.checkpoint()
    assert guest.run(RUIN_ARRAYS).ok
    lose(guest, twin)
    assert guest.run(CHECK_ARRAYS).result == "'whole'", guest.seen[-3:]


def test_openmp(new_guest, need):
    """scikit-learn brings a libgomp: its parallel regions go on after take-over instead of waiting for lost threads."""
    need("sklearn")
    guest = new_guest(env={"OMP_NUM_THREADS": "4"})
    result = guest.run(
        "import numpy as np, threadpoolctl; from sklearn.ensemble import HistGradientBoostingClassifier\n"
        "from sklearn.cluster import KMeans\nx = np.random.rand(3000, 4); y = x[:, 0] > 0.5\n"
        "def fit(): return HistGradientBoostingClassifier(max_iter=5).fit(x, y).score(x, y) > 0.8, "
        "len(KMeans(3, n_init=1).fit(x).cluster_centers_)\nfit()"
    )
    assert result.result == "(True, 3)", result.error
    twin = guest.checkpoint()
    assert guest.run("fit()").result == "(True, 3)"
    lose(guest, twin)
    assert guest.run("fit()").result == "(True, 3)"
    lose(guest, guest.checkpoint())
    assert guest.run("fit()").result == "(True, 3)"


# the magics

SAVED = {"checkpoints": [{"name": "clean", "execution_count": 3, "memory_bytes": 1 << 21, "created": "2026-01-01"}]}


def test_checkpoint_line(guest):
    result = guest.run("x = 1\n%checkpoint one\n%checkpoint two words\nx", metadata=SAVED)
    assert result.result == "1" and result.ok
    assert result.reply_frame.metadata == {"checkpoint": ["one", "two words"]}
    assert guest.run("x", metadata=SAVED).reply_frame.metadata == {}
    assert "which name" in guest.run("%checkpoint", metadata=SAVED).error["evalue"]
    none = dict(SAVED, no_copies="copying kills it")
    failed = guest.run("%checkpoint none\nprint('after')", metadata=none)
    assert "%checkpoint none: copying kills it" in failed.error["evalue"] and not failed.stdout
    assert guest.run("%rollback clean", metadata=none).reply_frame.metadata == {"rollback": "clean"}
    failed = guest.run("%checkpoint late\n1/0", metadata=SAVED)
    assert not failed.ok and failed.reply_frame.metadata == {"checkpoint": ["late"]}


def test_rollback_line(guest):
    code = "print('before')\ntry:\n    print('in')\nfinally: pass\n%rollback clean\nprint('after')"
    result = guest.run(code, metadata=SAVED, user_expressions={"a": "1"})
    assert result.ok and result.stdout == "before\nin\n" and not result.of("ERROR")
    assert result.reply_frame.metadata == {"rollback": "clean"} and not result.reply["user_expressions"]
    assert guest.run("%rollback\n'after'", metadata=SAVED).reply_frame.metadata == {"rollback": None}
    waiting = guest.run("import asyncio\nawait asyncio.sleep(0)\n%rollback\nprint('after')", metadata=SAVED)
    assert waiting.ok and not waiting.stdout and waiting.reply_frame.metadata == {"rollback": None}
    assert guest.run("%undo\n'after'", metadata=SAVED).reply_frame.metadata == {"undo": 1}
    assert guest.run("%undo 3", metadata=SAVED).reply_frame.metadata == {"undo": 3}
    assert "how many cells?" in guest.run("%undo three", metadata=SAVED).error["evalue"]
    error = guest.run("%rollback cleen", metadata=SAVED)
    assert "clean" in error.error["evalue"] and error.reply_frame.metadata == {}
    assert guest.run("1").reply_frame.metadata == {}


def test_checkpoints_and_limits_lines(new_guest, guest_dir):
    says = '{"limits.memory": 1073741824, "transactions.mode": "off", "transactions.names": 2, "workspace.size": %d}'
    guest = new_guest(env={"CELLBLOCK_POLICY_SAYS": says % 0})
    assert "clean" in guest.run("%checkpoints", metadata=SAVED).stdout
    assert "No checkpoints" in guest.run("%checkpoints", metadata={"checkpoints": []}).stdout
    off = {"no_copies": 'transactions.mode is "off"'}
    assert 'transactions.mode is "off"' in guest.run("%checkpoint a", metadata=off).error["evalue"]
    more = guest.run("%checkpoint a\n%checkpoint clean\n%checkpoint b", metadata=SAVED)  # one may be deleted meanwhile
    assert more.reply_frame.metadata == {"checkpoint": ["a", "clean", "b"]}
    said = guest.run("%limits").stdout
    assert "limits.memory" in said and "1G" in said and "transactions.mode" in said
    assert "workspace" not in said  # as limits.tmp, or none: by the mode
    guest = new_guest(env={"CELLBLOCK_POLICY_SAYS": says % (256 << 20)})
    assert re.search(r"workspace.size +256M$", guest.run("%limits").stdout, re.M)


def test_lines_that_are_no_magic(guest, plain):
    assert guest.run("s = '''\n%rollback\n'''\nlen(s)", metadata=SAVED).result == "11"
    assert guest.run("checkpoint = 3\n(7\n%checkpoint)", metadata=SAVED).result == "1"
    assert guest.run("%other").error["ename"] == "SyntaxError"


def test_libraries(new_guest, need):
    """tqdm's lock, a logger, a session with kept-alive connections, each used before and after."""
    need("tqdm", "requests")
    import http.server
    import threading

    class Answer(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever).start()
    guest = new_guest()
    use = (
        "for _ in tqdm(range(3)): pass\nlogging.getLogger('x').error('said')\n"
        "assert session.get('http://127.0.0.1:%d/').text == 'ok'" % server.server_address[1]
    )
    try:
        guest.run("import logging, requests; from tqdm import tqdm; session = requests.Session()")
        assert guest.run(use).ok
        twin = guest.checkpoint()
        failing(guest, "tqdm.get_lock().acquire(); import os; os._exit(1)")
        guest.take_over(twin)
        result = guest.run(use)
        assert result.ok and "said" in result.stderr and "3/3" in result.stderr, result.error
    finally:
        server.shutdown()
        server.server_close()


def test_hooks_of_libraries_run_in_pairs(new_guest):
    """os.register_at_fork of user code: what is taken before the fork is given back on both sides."""
    guest = new_guest()
    guest.run("import os, threading; lock = threading.Lock()")
    guest.run("os.register_at_fork(before=lock.acquire, after_in_child=lock.release, after_in_parent=lock.release)")
    lose(guest, guest.checkpoint())
    assert guest.run("lock.locked()").result == "False"
    lose(guest, guest.checkpoint())


def test_many_checkpoints_leave_nothing(new_guest):
    guest = new_guest()
    count = "import os; len(os.listdir('/proc/self/fd')), len(os.listdir('/proc/self/task'))"
    guest.checkpoint()
    before = guest.run(count).result
    for _ in range(50):
        twin = guest.checkpoint()
        guest.twins.remove(twin)
        twin.drop()
    assert guest.run(count).result == before
    assert guest.run("os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)").error["ename"] == "ChildProcessError"


def test_threads_that_log_all_the_time(new_guest):
    """Copy after copy among threads that print: no deadlock, and no lock that stays held in the copy."""
    guest = new_guest()
    guest.run(
        "import logging, threading; logging.getLogger().addHandler(logging.StreamHandler()); go = True\n"
        "def talk():\n    while go: logging.error('x' * 100)\n"
        "threads = [threading.Thread(target=talk) for _ in range(3)]; [t.start() for t in threads];"
    )
    for _ in range(20):
        twin = guest.copied()
        guest.twins.remove(twin)
        twin.drop()
    twin = guest.copied()
    assert guest.run("go = False; [t.join() for t in threads]; 1").ok
    lose(guest, twin)
    assert "later" in guest.run("logging.error('later')").stderr
    assert guest.run("go = False; [t.join() for t in threads]; 1").ok


@pytest.mark.parametrize("threads", [False], indirect=True, ids=["by fork"])
def test_a_pipe_that_is_opened_as_the_twin_is_forked_ends_with_the_guest(guest):
    """As subprocess does in another thread, which waits for that end. A hook at the fork comes as late as it can. The
    copier looks at what is open while no thread runs."""
    guest.run(
        "import os\nme, ends = os.getpid(), []\n"
        "def open_one():\n    if os.getpid() == me and not ends: ends.extend(os.pipe())\n"
        "os.register_at_fork(before=open_one)"
    )
    assert guest.checkpoint().reply["status"] == "ok"
    code = "os.close(ends[1]); os.set_blocking(ends[0], False)\ntry: got = os.read(ends[0], 1)\n"
    assert guest.run(code + "except BlockingIOError: got = None\ngot").result == "b''"
