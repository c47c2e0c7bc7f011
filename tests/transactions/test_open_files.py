"""What a session has open, in copies of it: what it gives up is not kept, and nothing comes back as another thing."""

import pytest
from branches import ALWAYS, branch, run_in

pytestmark = [pytest.mark.cellblock_only("no other kernel does this"), pytest.mark.once]
DIE = "import os; os._exit(1)"


@pytest.fixture
def c(start):
    return start(args=ALWAYS).client


def dies(c):
    failed = c.run(DIE)
    assert failed.about["state"] == "restored", failed.content


@pytest.mark.parametrize("lock", ["flock(f, fcntl.LOCK_EX)", "fcntl(f, 37, struct.pack('hhllixxxx', 1, 0, 0, 0, 0))"])
def test_a_lock_that_ends_with_its_file(c, lock):
    """By flock, as HDF5 does; and by F_OFD_SETLK."""
    again = lock.replace("LOCK_EX", "LOCK_EX | fcntl.LOCK_NB")
    assert c.run(f"import fcntl, struct\nf = open('lock', 'w')\nfcntl.{lock}\nf.write('a'); f.flush()").ok
    assert c.run("kept = 1").ok  # a copy is made of that, too
    again = c.run(f"f.close(); f = open('lock', 'a'); fcntl.{again}")
    assert again.ok, again.content
    dies(c)
    assert c.run("f.write('b'); f.close(); open('lock').read()").result == "'ab'"


def test_a_file_of_tempfile_is_a_branchs_own(c):
    assert c.run("import tempfile\nf = tempfile.TemporaryFile(buffering=0); f.write(b'a' * 100)").ok
    one = branch(c)
    assert run_in(c, one, "f.write(b'c' * 10); f.tell()").result == "110"
    assert c.run("f.tell()").result == "100"
    assert c.run("f.write(b'b'); f.seek(0); f.read()[98:102]").result == "b'aabc'"


@pytest.mark.parametrize("locked", [False, True])
def test_two_numbers_of_one_file(c, locked):
    """They have one position, in a branch and where it is locked, too; what was opened twice has two."""
    made = "import fcntl, os\nf = open('out', 'wb', 0); d = os.dup(f.fileno()); g = open('out', 'rb', 0)\n"
    assert c.run(made + "fcntl.flock(d, fcntl.LOCK_EX)\n" * locked + "h = open('out', 'rb', 0)").ok
    write = "f.write(b'aaaa'); os.write(d, b'bb'); g.read(), h.read(3), fcntl.fcntl(d, fcntl.F_GETSIG)"
    assert run_in(c, branch(c), write).result == "(b'aaaabb', b'aaa', 0)"
    assert c.run("f.tell(), g.tell()").result == "(0, 0)"
    dies(c)
    assert c.run(write).result == "(b'aaaabb', b'aaa', 0)"


TAKES = "import fcntl, signal\nf = open('lock', 'w'); fcntl.lockf(f, fcntl.LOCK_EX); signal.alarm(10000)"
ANOTHER = """
import subprocess, sys
take = "import fcntl; fcntl.lockf(open('lock', 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
subprocess.run([sys.executable, "-c", take], stderr=subprocess.DEVNULL).returncode
"""


def test_what_ends_with_the_process(c):
    """Its locks by fcntl, and its timers; neither ends for that a copy is made."""
    assert c.run(TAKES).ok and c.run("kept = 1").ok
    assert c.run(ANOTHER).result == "1"
    assert c.run("signal.getitimer(signal.ITIMER_REAL)[0] > 0").result == "True"
    dies(c)
    assert c.run(ANOTHER).result == "0"
    assert c.run("signal.alarm(0)").result == "0"


EPOLL = """
import os, select, threading
e = select.epoll(); d = select.epoll.fromfd(os.dup(e.fileno())); got = threading.Event()
def wait():
    while True:
        for fd, _ in e.poll():
            os.read(fd, 1); got.set()
threading.Thread(target=wait, daemon=True).start()
other = select.epoll(); other.register(e.fileno(), select.EPOLLIN)  # which watches the first
"""


def test_two_numbers_of_one_epoll(c):
    """As Rust's tokio has them: it waits for the one, and registers with the other."""
    assert c.run(EPOLL).ok
    for _ in range(2):
        dies(c)
        assert c.run("r, w = os.pipe(); d.register(r, select.EPOLLIN); os.write(w, b'x')").ok
        assert c.run("got.wait(300)").result == "True"
        assert c.run("got.clear(); d.unregister(r); os.close(r); os.close(w)").ok
    code = "r, w = os.pipe(); other.register(r, select.EPOLLIN); os.write(w, b'x'); other.poll(300)[0][0] == r"
    assert c.run(code).result == "True"


def test_two_numbers_of_one_eventfd(c):
    made = c.run("import os\na = os.eventfd(0); b = os.dup(a); apart = os.eventfd(0)")
    if not made.ok:
        pytest.skip("Python has no eventfd before 3.10")
    dies(c)
    assert c.run("os.eventfd_write(a, 3); os.eventfd_write(apart, 5); os.eventfd_read(b)").result == "3"


def test_a_terminal_ends_for_its_other_side(c):
    assert c.run(
        "import os, pty, subprocess\nm, s = pty.openpty()\n"
        "p = subprocess.Popen(['sh', '-c', 'read x; echo $x'], stdin=s, stdout=s, stderr=s)"
    ).ok
    done = c.run(
        "os.close(s); os.write(m, b'hi\\n'); text = b''\ntry:\n    while part := os.read(m, 99): text += part\n"
        "except OSError: pass\ntext.count(b'hi'), p.wait()"
    )
    assert done.result == "(2, 0)", done.content


def test_a_child_that_was_killed_has_not_done_well(c):
    assert c.run("import subprocess, sys\np = subprocess.Popen(['sleep', '100']); q = subprocess.Popen(['true'])").ok
    assert c.run("q.wait()").result == "0"
    dies(c)
    assert c.run("p.poll(), p.wait(), q.wait()").result == "(-9, -9, 0)"
    failed = c.run("subprocess.run(['no-such-program'])")
    assert failed.content["ename"] == "FileNotFoundError"
    assert not any("cellblock_guest" in line for line in failed.content["traceback"]), failed.content["traceback"]


ASIDE = "import os\nsaved = os.dup(1); f = open('out.txt', 'w'); os.dup2(f.fileno(), 1)"
SAYS = "os.dup2(saved, 1); os.system('echo hi')"


def test_stdout_that_was_put_aside(c):
    assert c.run(ASIDE).ok
    dies(c)
    done = c.run(SAYS)
    assert done.result == "0" and "hi" in done.text(), done.content


def test_stdout_that_was_put_aside_before_a_checkpoint(c):
    """What comes back then, and what a branch begins with, is a copy of a copy."""
    assert c.run(ASIDE).ok and c.run("%checkpoint a").ok
    done = run_in(c, branch(c, **{"from": "a"}), SAYS)
    assert done.result == "0" and "hi" in done.text(), done.content
    for _ in range(2):
        assert c.run("%rollback a").about["state"] == "restored"
        done = c.run(SAYS)
        assert done.result == "0" and "hi" in done.text(), done.content


TICKS = """
import asyncio, os
kept, f = 1, open('ticks.txt', 'w', buffering=1)
loop = asyncio.get_running_loop()
def tick():
    print('tick'); f.write('tick\\n')
    loop.call_soon(tick) if kept == 2 else loop.call_later(0.01, tick)
tick()
"""


@pytest.mark.parametrize("at_once", [False, True])
def test_callbacks_that_print(c, at_once):
    """Nothing of the user's runs before its state has taken over: it would speak too early, and write to files where
    the failed one has left them."""
    assert c.run(TICKS).ok
    if at_once:
        assert c.run("kept = 2").ok
    for _ in range(3):
        failed = c.run("import time; time.sleep(0.1); f.write('lost\\n'); os._exit(1)")  # as long as a tick
        assert failed.about["state"] == "restored" and len(failed.about["undone"]) == 1, failed.content
    assert c.run("loop.call_soon, kept").ok
    assert c.run("kept").result == ("2" if at_once else "1")
    assert c.run("set(open('ticks.txt').read().split()) <= {'tick', 'lost'}").result == "True"


WAITING = """
import asyncio, time
async def answer(reader, writer): writer.close()
server = await asyncio.start_unix_server(answer, "served")
udp, _ = await asyncio.get_running_loop().create_datagram_endpoint(asyncio.DatagramProtocol, ("127.0.0.1", 0))
"""
RESTS = "t = time.process_time(); await asyncio.sleep(0.5); time.process_time() - t < 0.25"


def test_servers_that_nobody_reaches_any_more(c):
    """Of the Unix family, and of datagrams: they wait in vain, and use no processor."""
    assert c.run(WAITING).ok
    for _ in range(2):
        dies(c)
        rests = c.run(RESTS)
        assert rests.result == "True" and not rests.text("stderr"), rests
    rests = run_in(c, branch(c), RESTS)
    assert rests.result == "True" and not rests.text("stderr"), rests
