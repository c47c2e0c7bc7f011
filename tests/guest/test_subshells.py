"""Cells of subshells: what an interrupt of theirs reaches, and what becomes of a thread that it does not reach."""

import pytest
from fake_supervisor import Subshell

# What stands in C code, and what ends that from outside.
WAITS = {
    "lock": ("lock = threading.Lock(); lock.acquire()", "lock.acquire()", "lock.release()"),
    "queue": ("import queue; q = queue.SimpleQueue()", "q.get()", "q.put(1)"),
    "queue with a timeout": ("import queue; q = queue.SimpleQueue()", "q.get(timeout=100)", "q.put(1)"),
    "pipe": ("r, w = os.pipe()", "os.read(r, 1)", "os.write(w, b'1')"),
    "socket": ("import socket; a, b = socket.socketpair()", "a.recv(1)", "b.send(b'1')"),
    "select": ("import select; r, w = os.pipe()", "select.select([r], [], [])", "os.write(w, b'1')"),
    "child that ignores it": (
        "import subprocess; child = subprocess.Popen(['sh', '-c', 'trap \"\" INT; exec sleep 100'])\n"
        "while 'sleep' not in open('/proc/%d/comm' % child.pid).read(): pass",
        "child.wait()",
        "child.kill()",
    ),
}
CHILDREN = {
    "run": "subprocess.run(['sleep', '100'])",
    "run with pipes": "subprocess.run(['sleep', '100'], capture_output=True)",
    "shell": "subprocess.run('sleep 100; sleep 100', shell=True, capture_output=True)",
    "system": "os.system('sleep 100')",
}
CALLBACKS = {
    "sleep": "lambda: (print('go', flush=True), time.sleep(100))",
    "loop": "lambda: (print('go', flush=True), [0 for _ in iter(int, 1)])",
    "input": "input",
}
# Without running for a while in which nothing keeps it from running.
STANDS = """def stands(thread):
    with open('/proc/self/task/%d/status' % thread.native_id) as f:
        before = f.read()
    time.sleep(0.05)
    with open('/proc/self/task/%d/status' % thread.native_id) as f:
        return 'S (sleeping)' in before and f.read() == before
"""

NO_THREADS = """start = threading.Thread.start
def refuse(thread): raise RuntimeError("can't start new thread")
threading.Thread.start = refuse
"""
THREADS = "threading.Thread.start = start"


@pytest.fixture
def guest(new_guest):
    guest = new_guest(side=True)
    guest.run("import os, threading, time\nran, done = [], threading.Event()")
    guest.run(STANDS)
    return guest


@pytest.fixture
def subshell(guest):
    return Subshell(guest)


def begin(guest, subshell, code, **how):
    subshell.start(code, **how)
    guest.until("STREAM", lambda f: "go" in f.content)


def in_try(setup, wait):
    return (
        "left = threading.current_thread()\n%s\nprint('go')\ntry:\n    %s\nfinally:\n    ran.append('finally')\n"
        "    done.set()\nran.append('after')\nprint('after')"
    ) % (setup, wait)


@pytest.mark.parametrize("where", WAITS)
def test_a_thread_that_waits_in_c_code_is_left(guest, subshell, where):
    setup, wait, end = WAITS[where]
    begin(guest, subshell, in_try(setup, wait))
    guest.run("while not stands(left): pass")
    subshell.interrupt()
    cell = subshell.finish()
    assert cell.error["ename"] == cell.reply["ename"] == "KeyboardInterrupt"
    assert "was left there" in cell.error["evalue"] and wait in "".join(cell.error["traceback"])
    assert "cellblock_guest" not in "".join(cell.error["traceback"])
    assert subshell.run("6*7, threading.current_thread() is left").result == "(42, False)"
    assert guest.run("ran").result == "[]"
    ended = guest.run(end + "\nleft.join(60)\nran, left.is_alive()")
    assert ended.result == "(['finally'], False)"
    assert not [frame for frame in ended.frames if frame.request == cell.request]
    assert subshell.run("6*7").result == "42"


def test_what_goes_on_for_a_thread_that_was_left(guest, subshell):
    setup, wait, end = WAITS["lock"]
    begin(guest, subshell, in_try(setup, wait))
    guest.run("while not stands(left): pass")
    subshell.interrupt()
    assert "was left there" in subshell.finish().error["evalue"]
    begin(guest, subshell, "print('go')\nwhile True: pass")
    assert guest.ask_beside("COMPLETE", {"code": "impor", "cursor_pos": 5})["cursor_end"] == 5
    subshell.interrupt()
    assert subshell.finish().error["ename"] == "KeyboardInterrupt"
    guest.run(end)


def test_a_sleep_from_before_the_first_subshell_is_left(guest, subshell):
    guest.run("from time import sleep")
    begin(guest, subshell, "left = threading.current_thread()\nprint('go')\nsleep(100)")
    guest.run("while not stands(left): pass")
    subshell.interrupt()
    assert "was left there" in subshell.finish().error["evalue"]
    assert subshell.run("6*7").result == "42"


def test_what_is_left_may_not_ask_nor_await(guest, subshell):
    """It goes on in spite of the interrupt, once its wait has ended."""
    setup, wait, end = WAITS["lock"]
    code = (
        "import asyncio\nleft = threading.current_thread()\n%s\nprint('go')\ntry: %s\nexcept KeyboardInterrupt: pass\n"
        "try: input()\nexcept NotImplementedError: ran.append('refused')\n"
        "await asyncio.sleep(0)\nran.append('awaited')\n'its result'"
    ) % (setup, wait)
    begin(guest, subshell, code, allow_stdin=True)
    guest.run("while not stands(left): pass")
    subshell.interrupt()
    assert subshell.finish().error["ename"] == "KeyboardInterrupt"
    ended = guest.run(end + "\nleft.join(60)\nran")
    assert ended.result == "['refused', 'awaited']"
    of_its_own = ended.of("INPUT_REQUEST", "AWAITING", "EXECUTE_RESULT", "EXECUTE_REPLY")
    assert not [f for f in of_its_own if f.request == subshell.request]


def test_what_is_left_may_not_call_host_tools(guest, subshell):
    setup, wait, end = WAITS["lock"]
    code = (
        "left = threading.current_thread()\n%s\nprint('go')\ntry: %s\nexcept KeyboardInterrupt: pass\n"
        "try: look()\nexcept HostToolCancelledError as e: ran.append(str(e))"
    ) % (setup, wait)
    begin(guest, subshell, code, metadata={"tools": [{"name": "look"}]}, allow_stdin=True)
    guest.run("while not stands(left): pass")
    subshell.interrupt()
    assert subshell.finish().error["ename"] == "KeyboardInterrupt"
    assert "its cell has ended" in guest.run(end + "\nleft.join(60)\nran").result


def test_a_call_of_a_thread_as_its_cell_ends(guest, subshell):
    code = (
        "from cellblock_guest.subshell import running\n"
        "output, tool, asks, over = running().guest.output, look, threading.Event(), threading.Event()\n"
        "flush = output.flush\n"
        "def held():\n    if threading.current_thread() is asker:\n        asks.set()\n        over.wait(60)\n"
        "    flush()\n"
        "def call():\n    try: tool()\n    except KeyboardInterrupt as e: ran.append(str(e))\n"
        "asker = threading.Thread(target=call)\noutput.flush = held\nasker.start()\nasks.wait(60)"
    )
    assert subshell.run(code, metadata={"tools": [{"name": "look"}]}, allow_stdin=True).result == "True"
    assert "its cell has ended" in guest.run("over.set(); asker.join(60); output.flush = flush; ran").result


def test_an_interrupt_that_came_is_obeyed_however_long_that_takes(guest, subshell):
    code = (
        "left, lock = threading.current_thread(), threading.Lock(); lock.acquire()\ntry:\n    print('go')\n"
        "    while True: pass\nexcept KeyboardInterrupt:\n    print('caught', flush=True); lock.acquire()\n'obeyed'"
    )
    begin(guest, subshell, code)
    subshell.interrupt()
    guest.until("STREAM", lambda f: "caught" in f.content)
    guest.run("while not stands(left): pass\ntime.sleep(0.5)\nlock.release()")
    assert subshell.finish().result == "'obeyed'"


@pytest.mark.parametrize("how", CHILDREN)
def test_children_are_interrupted(guest, subshell, how):
    begin(guest, subshell, in_try("import subprocess", CHILDREN[how]))
    find = "open('/proc/self/task/%d/children' % left.native_id).read().split()"
    guest.run("while not stands(left): pass\nstarted = %s" % find)
    assert guest.run("len(started)").result == "1"
    subshell.interrupt()
    assert subshell.finish().error["ename"] == "KeyboardInterrupt"
    ended = guest.run("done.wait(60), ran, os.path.exists('/proc/' + started[0])")
    assert ended.result == "(True, ['finally'], False)"


def test_children_of_others_are_not(guest, subshell):
    guest.run("import subprocess\nchild = subprocess.Popen(['sleep', '100'])")
    other = Subshell(guest, 2)
    other.run("another = subprocess.Popen(['sleep', '100'])")
    subshell.run("away = subprocess.Popen(['sleep', '100'], start_new_session=True)")
    begin(guest, subshell, "print('go')\nwhile True: time.sleep(100)")
    subshell.interrupt()
    assert subshell.finish().error["ename"] == "KeyboardInterrupt"
    code = "for each in (child, another, away): each.terminate()\nchild.wait(), another.wait(), away.wait()"
    assert guest.run(code).result == "(-15, -15, -15)"


def test_it_may_run_cells_that_await(guest, subshell, ipython):
    subshell.run("import asyncio\nran = []")
    subshell.run("loop = asyncio.get_running_loop()")
    run = "get_ipython().run_cell('await asyncio.sleep(0); ran.append(asyncio.get_running_loop() is loop)')"
    assert subshell.run("%s.success, ran" % run).result == "(True, [True])"
    begin(guest, subshell, "print('go')\nget_ipython().run_cell('await asyncio.sleep(100)').error_in_exec")
    guest.run("me = next(t for t in threading.enumerate() if t.name == 'subshell-1')\nwhile not stands(me): pass")
    subshell.interrupt()
    assert subshell.finish().result == "KeyboardInterrupt()"


def test_an_interrupt_that_a_finaliser_swallowed_comes_again(guest, subshell):
    begin(
        guest,
        subshell,
        "class Slow:\n    def __del__(self):\n        print('go', flush=True)\n        time.sleep(100)\n"
        "Slow()\nwhile True: time.sleep(100)",
    )
    subshell.interrupt()
    cell = subshell.finish()
    assert cell.error["ename"] == "KeyboardInterrupt" and not cell.error["evalue"] and not cell.stderr
    begin(guest, subshell, "Slow()\nlock = threading.Lock(); lock.acquire(); lock.acquire()")
    subshell.interrupt()
    cell = subshell.finish()
    assert cell.error["ename"] == "KeyboardInterrupt" and not cell.stderr
    assert subshell.run("6*7").result == "42"


def test_each_interrupt_that_a_comms_handler_took_is_told(ipython, guest, subshell):
    """Else the second one would be one that is not obeyed, and end all of Python."""
    guest.run("""def handle(message):
    for _ in range(3):
        try:
            print('go', flush=True)
            time.sleep(100)
        except KeyboardInterrupt:
            pass
def target(comm, message):
    comm.on_msg(handle)
get_ipython().kernel.comm_manager.register_target('mine', target)""")
    guest.comm("DOWN_COMM_OPEN", {"comm_id": "c1", "target_name": "mine", "data": {}})
    subshell.comm("DOWN_COMM_MSG", {"comm_id": "c1", "data": {}})
    for waits in (1, 2, 3):
        while [f.content for f in guest.seen if f.kind == "STREAM"].count("go\n") < waits:
            guest.frame()
        subshell.interrupt()
        if waits < 3:  # the last one ends it
            assert guest.until("INTERRUPTED")[-1].request == subshell.request
    guest.until("COMM_DONE")


def test_an_interrupt_is_not_a_newborn_threads(guest, subshell):
    for _ in range(500):
        begin(guest, subshell, "print('go')\nwhile True: threading.Thread(target=int).start()")
        subshell.interrupt()
        cell = subshell.finish()
        assert cell.error["ename"] == "KeyboardInterrupt" and not cell.stderr
    assert guest.run("[t for t in threading.enumerate() if t.name.endswith('(int)')]").result == "[]"


@pytest.mark.parametrize("what", CALLBACKS)
def test_an_interrupt_of_a_loops_callback(guest, subshell, what):
    code = "import asyncio\nprint('go' * %d)\nasyncio.get_running_loop().call_soon(%s)\nawait asyncio.sleep(100)"
    subshell.run("import asyncio")
    begin(guest, subshell, code % (what == "input", CALLBACKS[what]), allow_stdin=True)
    if what == "input":
        guest.until("INPUT_REQUEST")
    subshell.interrupt()
    cell = subshell.finish()
    assert cell.error["ename"] == "KeyboardInterrupt"
    assert subshell.run("await asyncio.sleep(0)\n6*7").result == "42"


def test_threads_while_the_first_one_is_made(new_guest):
    """Its module is half there then, for whoever starts threads or asks."""
    code = (
        "import sys, threading, types\nsys.modules['cellblock_guest.subshell'] = types.ModuleType('half')\n"
        "t = threading.Thread(target=print, args=('in a thread',)); t.start(); t.join()\n"
        "del sys.modules['cellblock_guest.subshell']"
    )
    result = new_guest().run(code)
    assert result.ok and "in a thread" in result.stdout


@pytest.mark.parametrize("what", ["task", "callback"])
def test_an_interrupt_ends_a_task_that_keeps_the_next_cell_waiting(guest, subshell, what):
    subshell.run(
        "import asyncio\ndef work():\n    print('go', flush=True)\n    while True: pass\n"
        "async def task(): work()\nloop = asyncio.get_running_loop()\n"
        + ("t = loop.create_task(task())" if what == "task" else "_ = loop.call_soon(work)")
    )
    guest.until_says("go")
    subshell.start("print('next')")
    subshell.interrupt()
    cell = subshell.finish()
    assert "KeyboardInterrupt" in guest_text(guest) and cell.reply["ename"] == "KeyboardInterrupt"
    assert subshell.run("6*7").result == "42"
    assert subshell.run("await asyncio.sleep(0.001, 1)").result == "1"


def test_an_interrupt_while_a_task_sends_reaches_it_afterwards(guest):
    """Between cells nothing is armed; what the task prints is sent undisturbed."""
    code = (
        "import threading\nfrom cellblock_guest.side import LaneInterrupts\n"
        "lane, sends, sent = LaneInterrupts(), threading.Event(), threading.Event()\n"
        "def send():\n    sends.set()\n    sent.wait()\n"
        "def work():\n    lane.thread = threading.get_ident()\n"
        "    try: lane.run_tasks(lambda: True, lambda: (lane.shielded(send), print('went on')))\n"
        "    except KeyboardInterrupt: print('ended')\n"
        "thread = threading.Thread(target=work); thread.start(); sends.wait()\n"
        "lane.interrupt(1); sent.set(); thread.join()"
    )
    assert guest.run(code).stdout == "ended\n"


def guest_text(guest):
    return "".join(f.content for f in guest.seen if f.kind == "STREAM")


def test_a_join_ends_though_the_clock_stands(guest, subshell):
    """As freezegun has it."""
    guest.run("thread = threading.Thread(target=done.wait); thread.start()")
    guest.run("clock, time.monotonic = time.monotonic, int")
    assert subshell.run("thread.join(0.1); thread.is_alive()").result == "True"
    assert guest.run("time.monotonic = clock; done.set(); thread.join(60); thread.is_alive()").result == "False"


def test_a_thread_that_cannot_be_started_is_tried_again(guest, subshell):
    guest.run(NO_THREADS)
    cell = subshell.run("1")
    assert cell.error["ename"] == cell.reply["ename"] == "RuntimeError" and "new thread" in cell.error["evalue"]
    subshell.comm("DOWN_COMM_MSG", {"comm_id": "c", "data": {}})
    guest.until("COMM_DONE")
    debug = {"type": "request", "seq": 1, "command": "debugInfo"}
    assert guest.ask_beside("IS_COMPLETE", {"code": "1"}) == {"status": "unknown"}
    assert "new thread" in guest.ask_beside("DEBUG", debug)["message"]
    guest.run(THREADS)
    assert subshell.run("6*7").result == "42"
    assert guest.ask_beside("IS_COMPLETE", {"code": "1"}) == {"status": "complete"}
    assert guest.ask_beside("DEBUG", debug)["success"]


def test_no_thread_goes_on_for_one_that_is_left(guest, subshell):
    setup, wait, end = WAITS["lock"]
    begin(guest, subshell, in_try(setup, wait))
    guest.run("while not stands(left): pass\n" + NO_THREADS)
    subshell.interrupt()
    assert "was left there" in subshell.finish().error["evalue"]
    assert subshell.run("1").reply["ename"] == "RuntimeError"
    guest.run(THREADS)
    assert subshell.run("6*7").result == "42"
    guest.run(end)


def test_a_reply_that_can_not_be_sent_is_tried_again(guest, subshell):
    code = "from cellblock_guest.subshell import running\nguest = running().guest\nreply = guest.reply\n"
    once = "def once(*_):\n    guest.reply = reply\n    raise MemoryError\nguest.reply = once"
    assert subshell.run(code + once).reply["ename"] == "MemoryError"
    assert subshell.run("6*7").result == "42"


def test_what_fails_to_be_served_is_answered_and_the_next_one_served(guest):
    code = "from cellblock_guest.side import Questions\nserve = Questions.serve\ndef fail(*_): raise MemoryError\n"
    guest.run(code + "Questions.serve = fail")
    assert guest.ask_beside("IS_COMPLETE", {"code": "1"}) == {"status": "unknown"}
    guest.run("Questions.serve = serve")
    assert guest.ask_beside("IS_COMPLETE", {"code": "1"}) == {"status": "complete"}
