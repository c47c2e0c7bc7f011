"""Functions that run at each fork (os.register_at_fork): none runs when the copier makes the twin. Where os.fork does,
one may hold it up: no twin then, and the session goes on. A second is what that may take; here it is looked that it is
none of the deadlines of 15 s and more."""

import time

import pytest

import rawclient
from kernels import BY_FORK

pytestmark = pytest.mark.cellblock_only("no other kernel does this")
ALWAYS = ["--set", "transactions.mode=always"]
LOCK = BY_FORK + "import os, threading\nlock = threading.Lock()\n_ = lock.acquire()\nkept = 1\n"
BEFORE = LOCK + "os.register_at_fork(before=lock.acquire, after_in_parent=lock.release)"
IN_C = LOCK + "import posix\nposix.register_at_fork(before=lock.acquire)"  # as if before the guest was there
AFTER = LOCK + "me = os.getpid()\nos.register_at_fork(after_in_parent=lambda: os.getpid() != me or lock.acquire())"
LOOP = BY_FORK + "kept = 1\nimport os\ndef forever():\n    while True: pass\nos.register_at_fork(before=forever)"
C_CODE = BY_FORK + (
    "import os\nkept = 1\nme = os.getpid()\n"
    "os.register_at_fork(before=lambda: os.getpid() == me and not os.path.exists('free') and sum(range(10**13)))"
)

# A copy is the child of a child. The hook ends in whichever of the two it is not to hold up.
IN_CHILD = LOCK + (
    "me = os.getpid()\nos.register_at_fork(after_in_child=lambda: (os.getppid() == me) is %s and lock.acquire())"
)


# A busy machine makes it as slow, and does not end it.
SLOW = BY_FORK + (
    "import os, time\nfrom cellblock_guest import twins\ntwins._PATIENCE, me = 60, os.getpid()\n"
    "os.register_at_fork(after_in_child=lambda: os.getppid() == me and time.sleep(1.5))"
)


SOON = 10 * rawclient.SLOW  # s


def soon(c, code):
    """A cell that is answered so."""
    begun = time.monotonic()
    cell = c.run(code)
    assert time.monotonic() < begun + SOON, cell
    return cell


def said_by(c, cells):
    """On stderr, by so many cells that are answered all the same, and soon; x is the number of the last one."""
    said = ""
    for i in range(cells):
        cell = soon(c, f"x = {i}; x")
        assert cell.ok and cell.result == str(i)
        said += cell.text("stderr")
    return said


def test_none_runs_for_a_twin(start):
    """To libraries nothing was forked; children of the user's have theirs run as ever."""
    c = start(args=ALWAYS).client
    ran = "import os, time\nran = []\ndef note(which): return lambda: ran.append(which)\n"
    ran += "os.register_at_fork(before=note('before'), after_in_parent=note('parent'), after_in_child=note('child'))"
    assert c.run(ran).ok
    assert c.run("x = 1").ok and c.run("ran").result == "[]"
    assert c.run("os._exit(1)").about["state"] == "restored"
    assert c.run("x, ran").result == "(1, [])"
    assert c.run("if os.fork() == 0: os._exit(len(ran))\nos.wait()[1] >> 8, ran").result == "(2, ['before', 'parent'])"
    assert c.run("import _thread; lock = _thread.allocate_lock(); _ = lock.acquire()").ok
    assert c.run("os.register_at_fork(before=lock.acquire)").ok
    cell = c.run("y = 2; y")
    assert cell.result == "2" and not cell.text("stderr")
    assert c.run("os._exit(1)").about["state"] == "restored" and c.run("x, y").result == "(1, 2)"


@pytest.mark.parametrize("code", [BEFORE, LOOP, IN_C], ids=["lock", "loop", "in C"])
def test_a_function_before_each_fork_that_does_not_end(start, code):
    c = start(args=ALWAYS).client
    assert c.run(code).ok
    said = said_by(c, 3)
    assert c.run("x, kept").result == "(2, 1)"
    assert "the state is not kept any more" in said and "os.register_at_fork" in said
    if code is not LOOP:
        assert c.run("lock.locked()").result == "True", "what did not run before a fork has no other half after it"
    assert c.run("import subprocess; subprocess.run(['true'], check=True).returncode").result == "0"


def test_a_function_after_each_fork_that_does_not_end(start):
    """The copy is there by then."""
    c = start(args=ALWAYS).client
    assert c.run(AFTER).ok
    assert soon(c, "x = 5; x").result == "5"
    died = soon(c, "os._exit(1)")
    assert died.about["state"] == "restored" and died.about["undone"] == [died.content["execution_count"]]
    assert soon(c, "x, kept").result == "(5, 1)"


@pytest.mark.parametrize("first", [True, False], ids=["in the child between", "in the copy"])
def test_a_function_in_each_child_that_does_not_end(start, first):
    """Such a copy is waited for, a second each time, and given up."""
    c = start(args=ALWAYS).client
    assert c.run(IN_CHILD % first).ok
    said = said_by(c, 4)
    assert c.run("x, kept").result == "(3, 1)"
    assert "the state is not kept any more" in said
    died = c.run("os._exit(1)")
    assert died.about["state"] == "restored" and died.about["undone"][-1] == died.content["execution_count"], died
    assert c.run("'x' in globals()").result == "False"


def test_a_child_between_that_takes_its_time(start):
    """The copy comes later than what does not hang is waited for, and is there all the same."""
    c = start(args=ALWAYS).client
    assert c.run(SLOW).ok
    assert c.run("x = 5; x").result == "5"
    died = c.run("os._exit(1)")
    assert died.about["state"] == "restored" and died.about["undone"] == [died.content["execution_count"]], died
    assert c.run("x").result == "5"


def test_an_interrupt_is_the_waiting_cells(start):
    c = start(args=ALWAYS).client
    assert c.run(BEFORE).ok
    cell, begun = c.start("import time; time.sleep(600)"), time.monotonic()
    while True:
        assert c.request("interrupt_request", {}, channel="control").content["status"] == "ok"
        try:
            c.wait_in_place("shell", lambda m: m.parent_id == cell, timeout=1)
            break
        except AssertionError:  # it came before the cell
            continue
    ended = c.finish(cell)
    assert ended.content["ename"] == "KeyboardInterrupt" and ended.about["state"] == "kept", ended
    assert time.monotonic() < begun + SOON
    assert soon(c, "kept").result == "1"


@pytest.mark.parametrize("whose", ["main", "subshell", "all"])
def test_one_interrupt_is_enough_for_a_cell_that_waits(start, whose):
    c = start(args=ALWAYS).client
    at = {}
    if whose != "main":
        at["subshell_id"] = c.request("create_subshell_request", {}, channel="control").content["subshell_id"]
    first, waits = (
        c.start(code, header=c.header("execute_request", **at)) for code in (BEFORE, "import time; time.sleep(20)")
    )
    assert c.reply(first).content["status"] == "ok"
    assert c.request("kernel_info_request").content["status"] == "ok"  # the cell has come by then
    begun = time.monotonic()
    header = c.header("interrupt_request", **(at if whose == "subshell" else {}))
    assert c.request("interrupt_request", {}, channel="control", header=header).content["status"] == "ok"
    ended = c.finish(waits)
    assert ended.content["ename"] == "KeyboardInterrupt" and ended.about["state"] == "kept", ended
    assert time.monotonic() < begun + SOON
    assert soon(c, "kept").result == "1", ended


@pytest.mark.parametrize("tasks", [8, 30000], ids=["while it waits", "while it submits"])
def test_a_pool_whose_map_was_interrupted(start, tasks):
    """Its library takes a lock before each fork. What is answered after that is not undone by the next death."""
    c = start(args=ALWAYS).client
    pool = "import os, time\nfrom concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(4)"
    assert c.run(BY_FORK + pool).ok
    mapped = c.start(f"print('on')\nlist(pool.map(time.sleep, [600] * {tasks}))")
    c.says(mapped, "on")
    assert c.request("interrupt_request", {}, channel="control").content["status"] == "ok"
    assert c.finish(mapped).content["ename"] == "KeyboardInterrupt"
    said_by(c, 2)
    died = c.run("os._exit(1)")
    assert died.about["state"] == "restored" and died.about["undone"] == [died.content["execution_count"]], died
    assert c.run("x").result == "1"


def test_an_interrupt_that_comes_before_the_first_function(start):
    """62 is the signal that ends one that holds up a fork (CB_WIRE_LET_GO); filters are read just before."""
    c = start(args=ALWAYS).client
    early = BY_FORK + "import os, signal, sys, threading\nran, kept = [], 1\n"
    early += "os.register_at_fork(before=lambda: ran.append(1))\nme = threading.main_thread().ident\n"
    early += "class Warnings(type(sys)):\n"
    early += "    filters = property(lambda self: signal.pthread_kill(me, 62) or [], lambda self, value: None)\n"
    early += "warnings, sys.modules['warnings'] = sys.modules['warnings'], Warnings('warnings')"
    assert c.run(early).ok
    cell = c.run("sys.modules['warnings'] = warnings\nkept, ran")
    assert cell.result == "(1, [])", cell
    assert c.run("kept, ran").result == "(1, [1])"


def test_c_code_before_a_fork_is_told_and_nothing_is_undone_by_itself(start):
    c = start(args=ALWAYS).client
    assert c.run("before = 1").ok and c.run(C_CODE).ok
    cell = c.start("kept")
    said = c.says(cell, "held up", name="stderr", timeout=60)
    assert "Interrupt twice" in said
    (c.kernel.workspace / "free").write_text("")
    while True:
        assert c.request("interrupt_request", {}, channel="control").content["status"] == "ok"
        try:
            c.wait_in_place("shell", lambda m: m.parent_id == cell, timeout=1)
            break
        except AssertionError:
            continue
    ended = c.finish(cell)
    assert ended.content["status"] == "error"
    assert "interrupted while its state was to be kept" in ended.text("stderr")
    assert c.run("before").result == "1"
