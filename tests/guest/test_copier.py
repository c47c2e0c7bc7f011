"""Copies of a process with all its threads: whatever they do when they are stopped, they go on with it, in the copy as
in the original (guest/copier).

CELLBLOCK_TEST_MANY=1 makes it 1,000 copies, take-overs and branches of 64 threads; run it with -s to see the figures.
"""

import ctypes
import os
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from fake_supervisor import Subshell

# of the 64 threads: take-overs, copies before each, and after how many of them there is a branch, too
TURNS, COPIES, BRANCH = (1000, 1, 1) if os.environ.get("CELLBLOCK_TEST_MANY") == "1" else (8, 10, 4)
TGKILL = 234 if os.uname().machine == "x86_64" else 131


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """CELLBLOCK_TEST_THREADS: where it is, on a machine without a compiler."""
    if os.environ.get("CELLBLOCK_TEST_THREADS"):
        return os.environ["CELLBLOCK_TEST_THREADS"]
    path = tmp_path_factory.mktemp("threads") / "threads.so"
    source = Path(__file__).with_name("copier_threads.c")
    subprocess.run(["cc", "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", "-pthread", source, "-o", path], check=True)
    return path


def with_library(guest, path, code="pass"):
    return guest.run("import ctypes, time, os; c = ctypes.CDLL(%r)\n%s" % (str(path), code))


THREADS = {
    "sleeps": "while True: time.sleep(0.001); n[0] += 1",
    "computes": "while True: n[0] += 1",
    "computes in C": "import hashlib; data = bytes(1 << 20)\n    while True: hashlib.sha256(data); n[0] += 1",
    "waits for a lock": "while True: lock.acquire(); n[0] += 1; threading.Timer(0.001, lock.release).start()",
    "waits with a time-out": "e = threading.Event()\n    while True: e.wait(0.001); n[0] += 1",
    "polls": "p = select.poll()\n    while True: p.poll(1); n[0] += 1",
    "reads from a queue": "while True: q.put(1); q.get(); n[0] += 1",
    "prints": "while True: print('said'); time.sleep(0.001); n[0] += 1",
    "starts threads": "while True: t = threading.Thread(target=int); t.start(); t.join(); n[0] += 1",
}


@pytest.mark.parametrize("how", THREADS)
def test_a_thread_goes_on(new_guest, how):
    guest = new_guest()
    code = "import threading, time, select, queue\nn, lock, q = [0], threading.Lock(), queue.SimpleQueue()\n"
    code += "def work():\n    %s\nthread = threading.Thread(target=work, daemon=True, name='worker'); thread.start()\n"
    assert guest.run(code % THREADS[how]).ok
    goes_on = "seen, end = n[0], time.monotonic() + 60\n"
    goes_on += "while n[0] < seen + 5 and time.monotonic() < end: time.sleep(0.001)\n"
    goes_on += "thread.is_alive(), n[0] >= seen + 5, len(threading.enumerate()) >= 2"
    for _ in range(3):
        twin = guest.copied()
        assert guest.run(goes_on).result == "(True, True, True)", "the original"
        guest.take_over(twin)
        assert guest.run(goes_on).result == "(True, True, True)", "the copy"


def test_what_a_thread_has_of_its_own(new_guest):
    """Its name, number, niceness, processors, signal mask and thread-local values; the main thread's, too."""
    guest = new_guest()
    guest.run(
        "import threading, os, signal, time, ctypes\nlocal, said, go = threading.local(), [], threading.Semaphore(0)\n"
        "def about():\n    n = threading.get_native_id(); me = threading.current_thread()\n"
        "    return (open('/proc/self/task/%d/comm' % n).read(), n == me.native_id, "
        "os.getpriority(os.PRIO_PROCESS, 0), sorted(os.sched_getaffinity(0)), "
        "sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())), local.value)\n"
        "def work():\n    local.value = 'mine'; os.setpriority(os.PRIO_PROCESS, 0, 7)\n"
        "    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); ctypes.CDLL(None).prctl(15, b'special')\n"
        "    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n"
        "    while True: said.append(about()); go.acquire()\n"
        "local.value = 'main'; threading.Thread(target=work, daemon=True).start()\nwhile not said: time.sleep(0.001)"
    )
    before = guest.run("about(), said[-1]").result
    assert "'special\\n', True, 7" in before and "SIGUSR1" in before and "'mine'" in before
    guest.take_over(guest.copied())
    again = "go.release()\nwhile len(said) < 2: time.sleep(0.001)\nabout(), said[-1]"
    assert guest.run(again).result == before


def test_a_thread_whose_stack_is_full(new_guest, library):
    """It handles signals on another one, and does so in the copy."""
    guest = new_guest()
    assert with_library(guest, library, "began = c.begin_with_full_stack()").ok
    goes_on = "seen = c.rounds_on_full_stack()\nwhile c.rounds_on_full_stack() < seen + 3: time.sleep(0.001)\n"
    for _ in range(3):
        twin = guest.copied()
        assert guest.run(goes_on + "began, c.without_stack_for_signals()").result == "(0, 0)", "the original"
        guest.take_over(twin)
        assert guest.run(goes_on + "began, c.without_stack_for_signals()").result == "(0, 0)", "the copy"


@pytest.mark.parametrize("policy", ["SCHED_OTHER", "SCHED_BATCH"])
def test_a_frozen_copy_stands_back(new_guest, policy):
    """It has the processor after whoever is at work. Woken, it and its threads have it as before (sched(7))."""
    guest = new_guest()
    before = getattr(os, policy)
    guest.run("import os, threading; tasks = lambda: map(int, os.listdir('/proc/self/task'))")
    guest.run("os.sched_setscheduler(0, %d, os.sched_param(0)); end = threading.Event()" % before)
    guest.run("threading.Thread(target=end.wait, daemon=True).start()")
    for _ in range(2):
        twin = guest.copied()
        bred = guest.breed(twin)
        assert [os.sched_getscheduler(each.process.pid) for each in (twin, bred)] == [os.SCHED_BATCH] * 2
        assert os.sched_getscheduler(guest.process.pid) == before, "the original"
        guest.take_over(bred)
        assert os.sched_getscheduler(guest.process.pid) == before
        if policy == "SCHED_OTHER":
            assert guest.run("{os.sched_getscheduler(each) for each in tasks()}").result == "{%d}" % before


def test_restartable_sequences(new_guest, library):
    """The C library has registered each thread, and each is that again in the copy (rseq(2))."""
    guest = new_guest()
    with_library(guest, library, "import threading; found, go = [], threading.Semaphore(0)")
    guest.run("def ask():\n    while True: found.append(c.lacks_rseq()); go.acquire()")
    guest.run("threading.Thread(target=ask, daemon=True).start()\nwhile not found: time.sleep(0.001)")
    if guest.run("found[0]").result == "-1":
        pytest.skip("this C library does not know them")
    guest.take_over(guest.copied())
    again = "go.release()\nwhile len(found) < 2: time.sleep(0.001)\nfound, c.lacks_rseq()"
    assert guest.run(again).result == "([0, 0], 0)"


def test_numbers_of_threads(new_guest):
    """What Python says of them is what the kernel says."""
    guest = new_guest()
    guest.run("import threading, os; e = threading.Event()")
    guest.run("ts = [threading.Thread(target=e.wait, daemon=True) for _ in range(5)]; [t.start() for t in ts];")
    guest.take_over(guest.copied())
    same = "{t.native_id for t in threading.enumerate()} <= set(map(int, os.listdir('/proc/self/task'))), "
    same += "threading.main_thread().native_id == os.getpid(), e.set()"
    assert guest.run(same).result == "(True, True, None)"
    assert guest.run("[t.join(60) for t in ts]; any(t.is_alive() for t in ts)").result == "False"


def test_a_loop_in_a_thread(new_guest):
    """asyncio knows by the process's number that a loop runs, and is woken through a pair of sockets."""
    guest = new_guest()
    assert guest.run(
        "import asyncio, threading\nloop = asyncio.new_event_loop(); ticks = [0]\n"
        "async def tick():\n    while True: await asyncio.sleep(0.001); ticks[0] += 1\n"
        "async def value(): await asyncio.sleep(0.01); return asyncio.get_running_loop() is loop\n"
        "loop.create_task(tick()); threading.Thread(target=loop.run_forever, daemon=True).start()\n"
        "ask = lambda: asyncio.run_coroutine_threadsafe(value(), loop).result(60)\nask()"
    ).ok
    for _ in range(3):
        twin = guest.copied()
        assert guest.run("ask()").result == "True", "the original"
        guest.take_over(twin)
        assert guest.run("ask()").result == "True"
        assert guest.run("import time; seen = ticks[0]\nwhile ticks[0] < seen + 3: time.sleep(0.001)").ok


def test_a_loop_that_is_in_a_callback(new_guest):
    """It computes for some 10 ms each time: not by a clock of processor time, for that begins anew in a copy."""
    guest = new_guest()
    assert guest.run(
        "import asyncio, threading, time\nloop = asyncio.new_event_loop(); ticks = [0]\n"
        "async def tick():\n    while True:\n        for _ in range(500000): pass\n"
        "        await asyncio.sleep(0.001); ticks[0] += 1\n"
        "loop.create_task(tick()); threading.Thread(target=loop.run_forever, daemon=True).start()\n"
        "while not ticks[0]: time.sleep(0.001)"
    ).ok
    for _ in range(12):
        guest.take_over(guest.copied())
        assert guest.run("seen = ticks[0]\nwhile ticks[0] < seen + 3: time.sleep(0.001)").ok


IN_A_CALLBACK = """
import asyncio, threading
loop, begun, go, found = asyncio.new_event_loop(), threading.Semaphore(0), threading.Semaphore(0), []
async def ask():
    while True:
        begun.release(); go.acquire()
        try: found.append(asyncio.get_running_loop() is loop)
        except RuntimeError as e: found.append(e)
        await asyncio.sleep(0)
loop.create_task(ask()); threading.Thread(target=loop.run_forever, daemon=True).start()
"""


def test_a_callback_that_waits_finds_its_loop(new_guest):
    """The loop can't be told in the copy that it runs: it does nothing else before the callback ends."""
    guest = new_guest()
    assert guest.run(IN_A_CALLBACK).ok
    hear = "go.release()\nwhile not found: pass\nfound.pop()"
    for _ in range(3):
        assert guest.run("begun.acquire(timeout=60)").result == "True"
        twin = guest.copied()
        assert guest.branch(guest.breed(twin)).run(hear).result == guest.run(hear).result == "True"
        guest.take_over(twin)
        assert guest.run(hear).result == "True"


WAKERS = {
    "eventfd": "wake, wait = os.eventfd(0, os.EFD_NONBLOCK), None; wait = wake\n"
    "ring = lambda: os.eventfd_write(wake, 1)\ndrain = lambda: os.eventfd_read(wait)\n",
    "pipe": "wait, wake = os.pipe(); os.set_blocking(wait, False)\n"
    "ring = lambda: os.write(wake, b'x')\ndrain = lambda: os.read(wait, 64)\n",
    "socket pair": "import socket\na, b = socket.socketpair(); a.setblocking(False); wait = a.fileno()\n"
    "ring = lambda: b.send(b'x')\ndef drain():\n    try:\n        while True: a.recv(64)\n"
    "    except BlockingIOError: pass\n",  # as trio has it: at its end that would never end
}
LOOP = (
    "import os, select, threading\nrang = threading.Semaphore(0)\n%sdef loop():\n"
    "    poll = select.epoll(); poll.register(wait, select.EPOLLIN | %s)\n"
    "    while True:\n        for fd, _ in poll.poll():\n            drain(); rang.release()\n"
    "threading.Thread(target=loop, daemon=True).start()"
)


@pytest.mark.parametrize("edge", ["0", "select.EPOLLET"])
@pytest.mark.parametrize("waker", WAKERS)
def test_a_loop_that_is_woken_through_epoll(new_guest, waker, edge):
    """As tokio, libuv and gRPC have it. The frozen copy does not take the original's events, nor the reverse."""
    guest = new_guest()
    if waker == "eventfd" and guest.interpreter.version < (3, 10):
        pytest.skip("this Python has no os.eventfd")
    assert guest.run(LOOP % (WAKERS[waker], edge)).ok
    hear = "ring(); rang.acquire(timeout=60)"
    for _ in range(3):
        twin = guest.copied()
        for _ in range(5):
            assert guest.run(hear).result == "True", "the original"
        guest.take_over(twin)
        for _ in range(5):
            assert guest.run(hear).result == "True", "the copy"
    branch = guest.branch(guest.copied())
    for _ in range(5):
        assert branch.run(hear).result == guest.run(hear).result == "True"


@pytest.mark.parametrize("blocks", [False, True])
def test_what_waits_in_a_socket_pair(new_guest, blocks):
    """The frozen copy does not take it, nor the reverse."""
    guest = new_guest()
    guest.run("import socket; a, b = socket.socketpair(); a.setblocking(%r); b.send(b'a word')" % blocks)
    again = "a.recv(99), b.send(b'on'), a.recv(99)"
    twin = guest.copied()
    assert guest.run(again).result == "(b'a word', 2, b'on')", "the original"
    guest.take_over(twin)
    assert guest.run(again).result == "(b'a word', 2, b'on')", "the copy"


@pytest.mark.parametrize("loops", [128, 129])
def test_as_many_event_loops(new_guest, loops):
    """Each is woken, and beside them so many pairs of others; of more there is a copy without threads."""
    guest = new_guest()
    guest.run("import asyncio, socket, threading; end = threading.Event()\nthreading.Thread(target=end.wait).start()")
    guest.run("before = [socket.socketpair() for _ in range(100)]; all = [asyncio.get_event_loop()]")
    guest.run("while len(all) < %d: all.append(asyncio.new_event_loop())" % loops)
    twin = guest.copied()
    assert twin.reply["left_out"]["threads"] == (0 if loops == 128 else 1)
    guest.take_over(twin)
    assert guest.run("{each._csock.send(b'x') and each._ssock.recv(9)[-1:] for each in all}").result == "{b'x'}"
    assert guest.run("end.set()").ok


def test_what_an_eventfd_counts(new_guest):
    guest = new_guest()
    if guest.interpreter.version < (3, 10):
        pytest.skip("this Python has no os.eventfd")
    guest.run("import os; e = os.eventfd(41, os.EFD_NONBLOCK | os.EFD_CLOEXEC)")
    twin = guest.copied()
    assert guest.run("os.eventfd_read(e)").result == "41"
    guest.take_over(twin)
    assert guest.run("os.eventfd_read(e), os.get_blocking(e), os.get_inheritable(e)").result == "(41, False, False)"


TWO_NUMBERS = {
    "eventfd": """
a = os.eventfd(0, os.EFD_NONBLOCK); b, other = os.dup(a), os.eventfd(0, os.EFD_NONBLOCK)
def same():
    os.eventfd_write(a, 3); os.eventfd_write(other, 1)
    return os.eventfd_read(b) == 3 and os.eventfd_read(other) == 1
""",
    "epoll": """
over, a = select.epoll(), select.epoll(); b = select.epoll.fromfd(os.dup(a.fileno()))
r, w = os.pipe(); os.set_blocking(r, False); os.write(w, b"x")
a.register(r, select.EPOLLIN); over.register(a, select.EPOLLIN)
def same():
    before = b.poll(0) == [(r, 1)] and over.poll(0) == [(a.fileno(), 1)]
    b.unregister(r); between = a.poll(0) == over.poll(0) == []
    a.register(r, select.EPOLLIN); return before and between
""",
}


@pytest.mark.parametrize("what", TWO_NUMBERS)
def test_two_numbers_of_one(new_guest, what):
    """They are that in the copy as well, and no third one is; the original's stay as they are."""
    guest = new_guest()
    if what == "eventfd" and guest.interpreter.version < (3, 10):
        pytest.skip("this Python has no os.eventfd")
    assert guest.run("import os, select\n" + TWO_NUMBERS[what]).ok
    for _ in range(2):
        twin = guest.copied()
        assert guest.run("same()").result == "True", "the original"
        branch = guest.branch(guest.copied())
        assert branch.run("same()").result == guest.run("same()").result == "True", "beside each other"
        guest.take_over(twin)
        assert guest.run("same()").result == "True", "the copy"


READY = {
    "pipe": "closed, other = os.pipe(); os.set_blocking(closed, False); os.write(other, b'x')",
    "socket pair": "a, other = socket.socketpair(); closed = a.detach(); other.send(b'x')",
    "socket that listens": "a = socket.create_server(('127.0.0.1', 0))\n"
    "other = socket.create_connection(a.getsockname()); closed = a.detach()",
    "connection": "a = socket.create_server(('127.0.0.1', 0)); other = socket.create_connection(a.getsockname())\n"
    "closed = a.accept()[0].detach(); other.send(b'x')",
    "eventfd": "closed = os.eventfd(1)",
    "child": "closed = os.pidfd_open(os.posix_spawnp('true', ['true'], os.environ))",
}


@pytest.mark.parametrize("what", READY)
def test_what_is_closed_after_a_copy_is_told_of_no_more(new_guest, what):
    """The copies have it open, and an epoll would go on to tell of that: the original's, or one of theirs."""
    guest = new_guest()
    if what in ("eventfd", "child") and guest.interpreter.version < (3, 10):
        pytest.skip("this Python can't make one")
    assert guest.run("import os, select, socket; e = select.epoll()\n" + READY[what]).ok
    assert guest.run("e.register(closed, select.EPOLLIN); e.poll(60) == [(closed, 1)]").result == "True"
    twin = guest.copied()
    close = "os.close(closed), e.poll(0)"
    assert guest.run(close).result == "(None, [])", "the original"
    assert guest.branch(guest.breed(twin)).run(close).result == "(None, [])", "a branch, beside its twin"
    assert guest.take_over(twin).run(close).result == "(None, [])", "the copy"


def test_mutexes_that_know_their_owner(new_guest, library):
    guest = new_guest()
    with_library(guest, library, "c.begin_to_hold()\nwhile not c.holding(): time.sleep(0.001)")
    guest.take_over(guest.copied())
    assert guest.run("c.let_go()").result == "0"


def test_a_thread_that_does_not_stop(new_guest, library):
    """No copy then: it might hold a lock that nobody would free. All go on, and the next time it is tried again."""
    guest = new_guest()
    with_library(guest, library, "import threading; n = [0]")
    guest.run("def count():\n    while True: n[0] += 1; time.sleep(0.001)")
    guest.run("threading.Thread(target=count, daemon=True).start()")
    earlier = guest.copied()
    guest.run("x = 1; end = c.begin_to_stand_still()")
    with pytest.raises(AssertionError, match="TimeoutError"):
        guest.checkpoint()
    assert guest.run("seen = n[0]\nwhile n[0] < seen + 3: time.sleep(0.001)\nx").result == "1"
    guest.run("os.write(end, b'x')")
    guest.take_over(guest.copied())
    assert guest.run("seen = n[0]\nwhile n[0] < seen + 3: time.sleep(0.001)\nx").result == "1"
    guest.run("c.begin_to_stand_still()")
    with pytest.raises(AssertionError, match="TimeoutError"):
        guest.checkpoint()
    guest.take_over(earlier)
    assert guest.run("seen = n[0]\nwhile n[0] < seen + 3: time.sleep(0.001)\n'x' in globals()").result == "False"


def test_a_stray_signal_of_the_same_number(new_guest, library):
    """From another process of the user's: it means nothing, though a thread is yet to take the one of a copy that was
    given up."""
    guest = new_guest()
    with_library(guest, library, "import threading; n = [0]")
    guest.run("def count():\n    while True: n[0] += 1; time.sleep(0.001)")
    guest.run("thread = threading.Thread(target=count, daemon=True); thread.start()")
    goes_on = "seen = n[0]\nwhile n[0] < seen + 3: time.sleep(0.001)\nthread.native_id"

    def stray():
        os.kill(guest.process.pid, 33)
        syscall = ctypes.CDLL(None, use_errno=True).syscall
        for each in guest.process.pid, int(guest.run(goes_on).result):
            assert syscall(TGKILL, guest.process.pid, each, 33) == 0, os.strerror(ctypes.get_errno())

    for _ in range(3):
        twin = guest.copied()
        stray()
        guest.run("end = c.begin_to_stand_still()")
        with pytest.raises(AssertionError, match="TimeoutError"):
            guest.checkpoint()
        stray()
        guest.run("os.write(end, b'x')")
        stray()
        assert guest.run(goes_on).ok
        guest.take_over(twin)
        stray()
        assert guest.run(goes_on).ok


FILL = """
import os, socket, threading
def fill(there, done):
    while not os.path.exists(there): time.sleep(0.001)
    wire, n = socket.socket(fileno=os.dup(3)), 0
    try:
        while True: n += wire.send(bytes(4096), socket.MSG_DONTWAIT)
    except BlockingIOError: pass
    with open(done + '~', 'w') as f: f.write(str(n))
    os.rename(done + '~', done)
    threading.Event().wait()
threading.Thread(target=fill, args=(%r, %r), daemon=True).start()
"""


def await_true(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_threads_go_on_before_the_answer(new_guest, library, tmp_path):
    """Who has the answer may look whether they are at work: here it can't be written yet, and they must be."""
    guest = new_guest(side=False)
    begin, done = tmp_path / "begin", tmp_path / "done"
    with_library(guest, library, "c.begin_work(4)" + FILL % (str(begin), str(done)))
    begin.touch()
    await_true(done.exists)
    twin = guest.ask_for_checkpoint()
    twin.wait_born(guest.registry)
    process = psutil.Process(guest.process.pid)
    before = sum(process.cpu_times()[:2])
    await_true(lambda: sum(process.cpu_times()[:2]) > before + 0.05)  # s; its first thread waits to be read from
    left = int(done.read_text())
    while left:
        left -= len(guest.sock.recv(min(left, 1 << 20)))
    assert guest.finish("CHECKPOINT_REPLY").reply["status"] == "ok"
    twin.drop()


def test_signals_that_the_c_library_sends_by_the_same_number(new_guest):
    """setuid(2) with threads: each must do it, or who calls it waits for ever."""
    guest = new_guest()
    guest.run("import os, threading; e = threading.Event(); threading.Thread(target=e.wait, daemon=True).start()")
    twin = guest.copied()
    assert guest.run("os.setresuid(-1, os.getuid(), -1); 'done'").result == "'done'"
    guest.take_over(twin)
    assert guest.run("os.setresuid(-1, os.getuid(), -1); 'done'").result == "'done'"


HOLD = """
import socket, subprocess
server = socket.create_server(("127.0.0.1", 0)); port = server.getsockname()[1]
holds = ["sh", "-c", "read until_it_ends; exec sleep 4"]
child = subprocess.Popen(holds, stdin=subprocess.PIPE, pass_fds=[server.fileno()], start_new_session=True)
"""


def test_a_server_whose_port_is_given_back_late(new_guest):
    """As by an original that takes seconds to end: a child that outlives it here has the port for four more."""
    guest = new_guest()
    assert guest.run(HOLD).ok
    guest.take_over(guest.copied())
    assert guest.run("server.getsockname()[1] == port").result == "True"
    anew = "new = socket.create_connection(('127.0.0.1', port), 60); server.accept()[0].sendall(b'x'); new.recv(1)"
    assert guest.run(anew).result == "b'x'"


def test_branches_have_the_threads_too(new_guest):
    guest = new_guest()
    guest.run("import threading, time; n = [0]\ndef work():\n    while True: n[0] += 1; time.sleep(0.001)")
    guest.run("threading.Thread(target=work, daemon=True).start()\nfrom concurrent.futures import ThreadPoolExecutor")
    guest.run("pool = ThreadPoolExecutor(3); sum(pool.map(abs, range(9)))")
    goes_on = "seen = n[0]\nwhile n[0] < seen + 3: time.sleep(0.001)\nsum(pool.map(abs, range(9)))"
    branches = [guest.branch(guest.copied()) for _ in range(3)]
    bred = guest.breed(guest.copied())
    branches.append(guest.branch(bred))
    for each in (*branches, guest):
        assert each.run(goes_on).result == "36"


@pytest.mark.parametrize("beside", [False, True], ids=["take-over", "branch"])
def test_a_busy_thread_finds_files_where_they_stood(new_guest, library, beside):
    """It goes on before the first thread does."""
    guest = new_guest()
    assert with_library(guest, library, "f = open('f', 'wb', 0); f.write(b'x' * 100)").ok
    for _ in range(3):
        assert guest.run("f.seek(10); c.begin_to_look(f.fileno())").result == "0"
        twin = guest.copied()
        assert guest.run("f.seek(70)").result == "70"
        copy = guest.branch(twin) if beside else guest.take_over(twin)
        assert copy.run("c.position_seen()").result == "10"
        assert guest.run("f.tell()").result == ("70" if beside else "10")


def test_children_of_the_process_are_its_own(new_guest):
    """Nobody who waits for any child meets a copy."""
    guest = new_guest()
    guest.copied()
    error = guest.run("import os; os.waitpid(-1, 0)").error
    assert error["ename"] == "ChildProcessError"


RUNS = """
import subprocess, threading, time
ended = []
def work():
    try: ended.append(subprocess.run(["sleep", "1000"], check=True))
    except subprocess.CalledProcessError as e: ended.append(e.returncode)
thread = threading.Thread(target=work, daemon=True); thread.start()
def call(): return open("/proc/self/task/%d/syscall" % thread.native_id).read().split()[0]
while call() not in ("61", "260"): time.sleep(0.001)  # wait4
"""


def test_a_thread_that_waits_for_a_child(new_guest):
    """The child is not the copy's, and was killed: it has not done well. One that is started then is its own."""
    guest = new_guest()
    assert guest.run(RUNS).ok
    again = "thread.join(60); ended, subprocess.run(['false']).returncode"
    assert guest.branch(guest.copied()).run(again).result == "([-9], 1)"
    guest.take_over(guest.copied())
    assert guest.run(again).result == "([-9], 1)"


def test_fifty_take_overs(new_guest):
    guest = new_guest(side=False)
    guest.run("import threading, time; n = [0]\ndef work():\n    while True: n[0] += 1; time.sleep(0.001)")
    guest.run("[threading.Thread(target=work, daemon=True).start() for _ in range(8)];")
    for _ in range(50):
        guest.take_over(guest.copied())
    number = guest.run("import os; len(os.listdir('/proc/self/task')), threading.active_count()").result
    assert number in ("(9, 9)", "(10, 9)"), "with or without the one that sends output"
    assert guest.run("seen = n[0]\nwhile n[0] < seen + 20: time.sleep(0.001)").ok


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="elsewhere the call's first argument is lost")
def test_waits_with_an_end_do_not_notice(new_guest):
    """SimpleQueue.get(timeout) waits without end if it is interrupted just at its time; that of a new queue also if its
    thread has no processor for so long, so each is asked once before."""
    guest = new_guest(side=False)
    guest.run("import threading, queue, time; n = [0] * 16")
    guest.run(
        "def got(q, **how):\n    try: return q.get(**how)\n    except queue.Empty: return 0\n"
        "def work(i):\n    q = queue.SimpleQueue(); got(q, block=False)\n"
        "    while True: n[i] += 1 + got(q, timeout=0.002)"
    )
    guest.run("[threading.Thread(target=work, args=(i,), daemon=True).start() for i in range(16)];")
    for _ in range(100):
        twin = guest.copied()
        guest.twins.remove(twin)
        twin.drop()
    guest.take_over(guest.copied())
    assert guest.run("seen = n[:]\nwhile any(a == b for a, b in zip(n, seen)): time.sleep(0.001)").ok


ASKED_FOR = """
import asyncio, ctypes, gc, sys, threading
from cellblock_guest.copier import Copier
copier = next(each for each in gc.get_objects() if type(each) is Copier)
Function, plain = type(copier._copy), copier._copy
usleep = Function(ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p).value)
# one call after the other with the interpreter's lock held, and no Python between them
copier._copy = lambda a, answer: list(map(Function.__call__, (usleep, plain), (100000, a), (b"", answer)))[1]
n = [0]
def work():
    while True: n[0] += 1
async def ask():
    while True: n[0] += asyncio.get_running_loop() is not None
threading.Thread(target=WORK, daemon=True).start()
"""


@pytest.mark.parametrize("work", ["work", "lambda: asyncio.run(ask())"], ids=["computes", "asks for its loop"])
def test_a_thread_has_just_asked_for_its_turn(new_guest, work):
    """It waits for the interpreter's lock, which the first thread of a woken copy gives it, and waits that it takes."""
    guest = new_guest(side=False)
    guest.copied()
    assert guest.run(ASKED_FOR.replace("WORK", work)).ok
    twin = guest.copied()
    assert guest.run("seen = n[0]\nwhile n[0] == seen: pass").ok
    guest.take_over(twin)
    assert guest.run("seen = n[0]\nwhile n[0] == seen: pass").ok


@pytest.mark.timeout(max(300, 10 * TURNS))
def test_sixty_four_threads_at_random(new_guest, library):
    """They allocate, sleep, poll, print, take locks of each kind, start and end threads; meanwhile copies, take-overs,
    branches."""
    guest = new_guest()
    assert with_library(guest, library, "began = c.begin_work(64)").ok
    more = "seen, end = c.rounds_done(), time.monotonic() + 60\n"
    more += "while c.rounds_done() < seen + 200 and time.monotonic() < end: time.sleep(0.001)\n"
    more += "c.rounds_done() >= seen + 200"
    branches = 0
    for turn in range(TURNS):
        for _ in range(COPIES):
            twin = guest.copied()
            guest.twins.remove(twin)
            twin.drop()
        twin = guest.copied()
        assert guest.run(more).result == "True"
        branch = guest.branch(guest.copied()) if turn % BRANCH == 0 else None
        branches += bool(branch)
        guest.take_over(twin)
        assert guest.run(more).result == "True"
        if branch:
            assert branch.run(more).result == "True" and branch.run("c.end_work()").result == "0"
            guest.branches.remove(branch)
            branch.close()
    interrupted, stops = int(guest.run("c.calls_interrupted()").result), guest.next_twin - 1
    assert interrupted <= 64 * stops, "each stop ends one call of a thread at most"
    print(f"{stops} copies, {TURNS} take-overs, {branches} branches: {interrupted} calls were interrupted")
    assert guest.run("c.end_work()").result == "0"


def test_a_subshells_cell_that_runs_ends(new_guest):
    """Who had asked for it was told that it failed, so it must not go on; nor does it answer."""
    guest = new_guest(side=True)
    guest.run("import threading, time; n = [0]; names = lambda: [t.name for t in threading.enumerate()]")
    Subshell(guest).start("while n[0] < 10**6: time.sleep(0.001); n[0] += 1")
    guest.run("while n[0] < 3: time.sleep(0.001)")
    twin = guest.copied()
    seen = int(guest.run("n[0]").result)
    guest.take_over(twin)
    guest.in_lanes.clear()
    assert guest.run("while 'subshell-1' in names(): time.sleep(0.001)\nn[0]").ok
    assert int(guest.run("n[0]").result) < seen + 1000
    assert guest.run("before = n[0]; time.sleep(0.05); n[0] - before").result == "0"


def test_a_thread_of_ours_that_has_not_begun(new_guest):
    """It begins in the copy, and serves there."""
    guest = new_guest()
    guest.run(
        "import _thread, time\nfrom cellblock_guest import threads\ngate, begun = _thread.allocate_lock(), []\n"
        "real = threads.get_native_id\ngate.acquire()\ndef late():\n    gate.acquire(); gate.release(); return real()\n"
        "threads.get_native_id = late; threads.start_deaf(begun.append, 1)"
    )
    guest.take_over(guest.copied())
    code = "gate.release(); end = time.monotonic() + 60\n"
    code += "while not begun and time.monotonic() < end: time.sleep(0.001)\n"
    assert guest.run(code + "begun").result == "[1]"


TOO_MANY = """
import errno, gc, os
from cellblock_guest.copier import Copier
copier = next(each for each in gc.get_objects() if type(each) is Copier)
def fails(*how): raise OSError(errno.E2BIG, "as for too many files")
copier.copy, saved = fails, os.dup(1)
"""


def test_stdout_that_was_put_aside_in_a_copy_by_fork(new_guest):
    """Its own is another than that of the process which was copied before."""
    guest = new_guest()
    guest.copied()
    assert guest.run(TOO_MANY).ok
    by_fork = guest.checkpoint()
    guest.take_over(by_fork)
    guest.run("del copier.copy")
    twin = guest.copied()
    assert by_fork.forked and not twin.forked
    guest.take_over(twin)
    assert guest.run("os.write(saved, b'said')").fd1 == b"said"


FAILS = """
from cellblock_guest import twins
known = twins.native_threads
def native_threads(): raise MemoryError
twins.native_threads = native_threads
"""


def test_a_copy_by_fork_that_fails_leaves_no_child(new_guest):
    """The process between is nobody's whom user code may wait for."""
    guest = new_guest()
    guest.copied()
    assert guest.run(TOO_MANY).ok and guest.run(FAILS).ok
    twin = guest.ask_for_checkpoint()
    assert guest.finish("CHECKPOINT_REPLY").reply["status"] == "error"
    twin.drop()
    waits = "try: print(os.waitpid(-1, os.WNOHANG))\nexcept ChildProcessError: print('none')"
    assert guest.run("twins.native_threads = known\n" + waits).stdout == "none\n"


AT_WORK = """
import os, time
from cellblock_guest import twins
twins._PATIENCE, me, kept = 0.02, os.getpid(), 1
def compute():
    end = time.process_time() + SECONDS
    while os.getppid() == me and time.process_time() < end: pass
os.register_at_fork(after_in_child=compute)
"""


def test_a_fork_that_lacks_a_processor(new_guest):
    """The process between is none that hangs, which is waited for a second, here a 50th of one. One that computes on
    and on is."""
    guest = new_guest()
    guest.copied()
    assert guest.run(TOO_MANY).ok and guest.run(AT_WORK.replace("SECONDS", "0.2")).ok
    twin = guest.checkpoint()
    assert twin.forked
    guest.take_over(twin)
    assert guest.run(AT_WORK.replace("SECONDS", "10 ** 6")).ok
    twin = guest.ask_for_checkpoint()
    assert guest.finish("CHECKPOINT_REPLY").ok and guest.run("kept").result == "1"
    twin.twin_control.settimeout(60)
    assert twin.twin_control.recv(64) == b""
    twin.drop()
