"""SIGINT: where it lands, what is said about it, that nothing breaks."""

import fcntl
import os
import re
import signal
import termios

import pytest
from fake_supervisor import IN_A_FRAME

NUDGE = 60  # CB_WIRE_NUDGE

BUSY = {
    "sleep": "print('go')\nimport time; time.sleep(100)",
    "loop": "print('go')\nwhile True: pass",
    "lock": "import threading\nlock = threading.Lock(); lock.acquire()\nprint('go')\nlock.acquire()",
    "subprocess": "import subprocess\nprint('go')\nsubprocess.run(['sleep', '100'])",
    "event": "import threading\nprint('go')\nthreading.Event().wait()",
    "regex": "import re\nprint('go')\nre.match('(a+)+$', 'a' * 40 + 'b')",
    "print": "print('go')\nwhile True: print('x' * 100)",
    "display": "print('go')\nwhile True: display(1)",
    "await": "import asyncio\nprint('go')\nawait asyncio.sleep(100)",
    "await busy": "import asyncio\nawait asyncio.sleep(0)\nprint('go')\nwhile True: pass",
    "await callback": "import asyncio, time\nloop = asyncio.get_running_loop()\n"
    "loop.call_soon(lambda: (print('go', flush=True), time.sleep(100)))\nawait asyncio.sleep(100)",
    "await future": "import asyncio\nprint('go')\nawait asyncio.get_running_loop().create_future()",
    "join": "import threading\nt = threading.Thread(target=threading.Event().wait, daemon=True); t.start()\n"
    "print('go')\nt.join()",
    "queue": "import queue\nprint('go')\nqueue.Queue().get()",
}
SHELL = {
    "!sleep": "print('go')\n!sleep 100",
    "%%bash": "%%bash\necho go\nsleep 100",
    "getoutput": "print('go')\nx = !sleep 100",
}


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_an_awaiting_cell_is_shown_where_it_waits(guest):
    guest.run("import asyncio")
    code = "async def waits():\n    print('go')\n    await asyncio.sleep(100)\nawait waits()"
    result = run_and_interrupt(guest, code)
    shown = plain("".join(result.error["traceback"]))
    assert "await waits()" in shown and "cellblock_guest" not in shown


def test_hooks_outlive_an_import_that_failed(new_guest):
    result = new_guest().run(
        "import sys\nthere = 'concurrent.futures.thread' in sys.modules\nold = sys.modules.get('queue')\n"
        "sys.modules['queue'] = None\ntry: import concurrent.futures.thread\nexcept ImportError: print('failed')\n"
        "del sys.modules['queue']\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "there, ThreadPoolExecutor.submit.__module__"
    )
    assert result.result in ("(False, 'cellblock_guest.context')", "(True, 'cellblock_guest.context')")


def run_and_interrupt(guest, code):
    guest.start(code)
    guest.until("STREAM", lambda f: "go" in f.content)
    guest.interrupt()
    return guest.finish()


@pytest.mark.parametrize("where", BUSY)
def test_interrupt(guest, where):
    result = run_and_interrupt(guest, BUSY[where])
    assert result.error["ename"] == "KeyboardInterrupt"
    if not where.startswith("await"):  # there it may come while the loop runs and no code of the user's
        assert "interrupts.py" not in "".join(result.error["traceback"]), "our handler is no concern of users"
    said = result.of("INTERRUPTED")
    assert len(said) == 1 and said[0].request == result.request
    assert guest.run("1").result == "1"


@pytest.mark.parametrize("where", SHELL)
def test_interrupt_of_a_command(guest, ipython, where):
    if where == "%%bash" and guest.interpreter.ipython < (8,):
        pytest.skip("IPython 7 shows the output when the script has ended")
    result = run_and_interrupt(guest, SHELL[where])
    assert result.of("INTERRUPTED")
    if where == "!sleep":  # what comes after it in the cell does not run
        assert result.error["ename"] == "KeyboardInterrupt", "\n".join(result.error["traceback"])
    assert guest.run("1").result == "1"


def test_an_interrupt_that_meets_a_command_at_its_fork(new_guest, ipython):
    """A function that runs at each fork swallows it; the child ends of it, before the thread begins that repeats it."""
    code = (
        "import os, signal\nfrom cellblock_guest import commands, interrupts\nme = os.getpid()\n"
        "def ends(command): raise KeyboardInterrupt\n"
        "commands.Command._in_child, interrupts.start_deaf = ends, id\n"
        "os.register_at_fork(after_in_parent=lambda: os.getpid() == me and signal.raise_signal(signal.SIGINT))\n"
        "!sleep 100"
    )
    result = new_guest().run(code)
    assert result.error["ename"] == "KeyboardInterrupt", "\n".join(result.error["traceback"])
    assert len(result.of("INTERRUPTED")) == 1


def test_a_command_that_does_not_obey_is_killed_while_the_clock_stands(new_guest, ipython):
    """As freezegun has it."""
    code = "import time\ntime.monotonic = lambda: 1.0\n!trap '' INT; echo go; sleep 100"
    assert run_and_interrupt(new_guest(), code).error["ename"] == "KeyboardInterrupt"


def test_interrupt_is_reported_before_the_handler_ends(guest):
    """The cell catches it and goes on as long as it likes."""
    guest.start(
        "import time\ntry:\n    print('go'); time.sleep(100)\nexcept KeyboardInterrupt: print('caught')\nprint('on'); 5"
    )
    guest.until("STREAM", lambda f: "go" in f.content)
    guest.interrupt()
    result = guest.finish()
    assert result.ok and result.result == "5" and result.stdout == "caught\non\n"
    assert [f.kind for f in result.frames].index("INTERRUPTED") == 0


def test_an_interrupt_that_a_finaliser_swallowed_comes_again(guest):
    result = run_and_interrupt(
        guest,
        "import time\nclass Slow:\n    def __del__(self):\n        print('go', flush=True)\n        time.sleep(100)\n"
        "Slow()\ntime.sleep(100)",
    )
    assert result.error["ename"] == "KeyboardInterrupt" and not result.stderr
    assert len(result.of("INTERRUPTED")) == 1
    assert guest.run("1").result == "1"


def test_a_swallowed_one_comes_again_when_what_brings_it_is_ready(guest):
    """Not while the thread that repeats it is being started, in the hook that would swallow it once more."""
    result = run_and_interrupt(
        guest,
        "import cellblock_guest.interrupts as ours, time\nstart = ours.start_deaf\ndef slow(function):\n"
        "    start(function)\n    end = time.monotonic() + 0.2\n    while time.monotonic() < end: pass\n"
        "    ours.start_deaf = start\nours.start_deaf = slow\n"
        "class Slow:\n    def __del__(self):\n        print('go', flush=True)\n        time.sleep(100)\n"
        "Slow()\ntime.sleep(100)",
    )
    assert result.error["ename"] == "KeyboardInterrupt" and not result.stderr
    assert len(result.of("INTERRUPTED")) == 1
    assert guest.run("ours.start_deaf is start").result == "True"


def test_caught_interrupt_then_another(guest):
    guest.start(
        "import time\ntry:\n    print('go'); time.sleep(100)\nexcept KeyboardInterrupt: print('again')\ntime.sleep(100)"
    )
    guest.until("STREAM", lambda f: "go" in f.content)
    guest.interrupt()
    guest.until("STREAM", lambda f: "again" in f.content)
    guest.interrupt()
    assert guest.finish().error["ename"] == "KeyboardInterrupt"


def test_await_cell_can_catch_it(guest):
    result = run_and_interrupt(
        guest,
        "import asyncio\ntry:\n    print('go')\n    await asyncio.sleep(100)\n"
        "except (KeyboardInterrupt, asyncio.CancelledError) as e: print(type(e).__name__)\n6",
    )
    assert result.ok and result.result == "6"


def test_an_interrupt_before_the_cells_task_has_begun(guest):
    """Nothing is left that was never awaited."""
    guest.run(
        "import asyncio, gc, os, signal\nloop = asyncio.get_event_loop()\nmade = loop.create_task\n"
        "def interrupted(coroutine, **more):\n    os.kill(os.getpid(), signal.SIGINT)\n"
        "    return made(coroutine, **more)\nloop.create_task = interrupted"
    )
    result = guest.run("await asyncio.sleep(100)")
    assert result.error["ename"] == "KeyboardInterrupt" and len(result.of("INTERRUPTED")) == 1
    after = guest.run("del loop.create_task; gc.collect() and None")
    assert result.stderr + after.stderr == "" and guest.run("await asyncio.sleep(0); 1").result == "1"


def test_a_callback_of_the_loop_that_asks(guest):
    guest.run("import asyncio")
    guest.start("asyncio.get_running_loop().call_soon(input)\nawait asyncio.sleep(100)", allow_stdin=True)
    guest.until("INPUT_REQUEST")
    guest.interrupt()
    assert guest.finish().error["ename"] == "KeyboardInterrupt"
    assert guest.run("await asyncio.sleep(0, 1)").result == "1"


def test_idle_interrupt_is_ignored(guest):
    guest.run("1")
    guest.interrupt()
    guest.until("INTERRUPTED")
    assert guest.run("2").result == "2"


def test_idle_interrupt_with_a_loop_and_tasks(guest):
    guest.run(
        "import asyncio\nasync def tick():\n    while True: await asyncio.sleep(0.001)\n"
        "ticker = asyncio.ensure_future(tick())"
    )
    guest.interrupt()
    guest.until("INTERRUPTED")
    assert guest.run("ticker.done()").result == "False"
    guest.run("ticker.cancel()")


def test_many_interrupts(guest):
    """Each is reported, and a frame is never torn (the fake supervisor's parser would say so). A KeyboardInterrupt may
    also land where code of IPython swallows it or in the handler itself, so the next one is sent until the cell
    ends."""
    guest.start(
        "n = 0\nprint('go')\nwhile n < 20:\n    try:\n        while True: print('y' * 200); display(n)\n"
        "    except KeyboardInterrupt: n += 1\nn"
    )
    guest.until("STREAM", lambda f: "go" in f.content)
    guest.interrupt()
    result = guest.finish(on_frame=lambda frame: frame.kind == "INTERRUPTED" and guest.interrupt())
    ended = result.error and result.error["ename"]
    assert result.result == "20" or ended == "KeyboardInterrupt", (result.reply, result.frames[-3:])
    assert [bool(f.content["traceback"]) for f in result.of("ERROR")] == ([True] if ended else [])
    assert all(f.request == result.request for f in result.of("INTERRUPTED"))
    assert guest.run("1").result == "1"


def test_own_handler(guest):
    guest.start(
        "import signal, time\ngot = []\nsignal.signal(signal.SIGINT, lambda s, f: got.append(s))\n"
        "print('go')\nwhile not got: time.sleep(0.01)\ngot, signal.getsignal(signal.SIGINT).__name__"
    )
    guest.until("STREAM", lambda f: "go" in f.content)
    guest.interrupt()
    result = guest.finish()
    assert result.result.startswith("([") and "<lambda>" in result.result and len(result.of("INTERRUPTED")) == 1
    assert guest.run("signal.getsignal(signal.SIGINT) is signal.default_int_handler").result == "True"
    assert run_and_interrupt(guest, BUSY["sleep"]).error["ename"] == "KeyboardInterrupt"


def test_ignored_by_the_user(guest, tmp_path):
    os.mkfifo(tmp_path / "gate")
    guest.start(
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('go')\nopen(%r).read()\n'done'"
        % str(tmp_path / "gate")
    )
    guest.until("STREAM", lambda f: "go" in f.content)
    guest.interrupt()
    guest.until("INTERRUPTED")
    (tmp_path / "gate").write_text("go")
    assert guest.finish().result == "'done'"


def test_signal_rules_are_pythons(guest):
    assert guest.run("import signal; signal.signal(signal.SIGINT, 'x')").error["ename"] == "TypeError"
    code = (
        "import threading, signal\ndef f():\n    try: signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
        "    except ValueError as e: print(e)\nt = threading.Thread(target=f); t.start(); t.join()"
    )
    assert "main thread" in guest.run(code).stdout
    assert (
        guest.run(
            "old = signal.signal(signal.SIGUSR1, lambda *a: print('usr1'))\nsignal.raise_signal(signal.SIGUSR1)"
        ).stdout
        == "usr1\n"
    )


LATE = IN_A_FRAME + """
def late(*_):
    raise TimeoutError("late")

"""


def test_a_handler_of_the_users_waits_for_the_end_of_a_frame(new_guest):
    """What it raises comes where the frame was sent; a TimeoutError is no end of the wire."""
    guest = new_guest()
    guest.run(LATE + "before = signal.signal(signal.SIGALRM, late)")
    result = guest.run(
        "next_frame(lambda: signal.raise_signal(signal.SIGALRM))\ntry: display('sent')\n"
        "except TimeoutError as e: print('caught', e)\nshown = signal.getsignal(signal.SIGALRM)\n"
        "before is signal.SIG_DFL, shown is late, signal.signal(signal.SIGALRM, late) is late"
    )
    assert result.result == "(True, True, True)" and result.stdout == "caught late\n"
    assert result.of("DISPLAY_DATA")[0].content["data"]["text/plain"] == "'sent'"

    result = guest.run(
        "got, inside = [], []; _ = signal.signal(signal.SIGALRM, lambda *a: got.append(a))\ndef both():\n"
        "    signal.raise_signal(signal.SIGALRM); signal.raise_signal(signal.SIGINT); inside.append(got[:])\n"
        "next_frame(both)\ntry: display('sent')\nexcept KeyboardInterrupt: print('interrupted')\n"
        "inside, len(got), got[0][0], type(got[0][1]).__name__"
    )
    assert result.result == "([[]], 1, %d, 'frame')" % signal.SIGALRM and result.stdout == "interrupted\n"
    assert len(result.of("INTERRUPTED")) == 1


def test_what_a_handler_raises_as_a_question_is_sent_ends_it(new_guest):
    """The next question is one more; the supervisor must know that nobody waits for the first one's answer."""
    guest = new_guest()
    guest.run(LATE + "_ = signal.signal(signal.SIGALRM, late)")
    result = guest.run(
        "next_frame(lambda: signal.raise_signal(signal.SIGALRM))\ntry: input('a')\n"
        "except TimeoutError: pass\ninput('b')", on_input=lambda c: "x" if c["prompt"] == "b" else None
    )
    kinds = [f.kind for f in result.frames if f.kind.startswith("IN")]
    assert result.result == "'x'" and kinds == ["INPUT_REQUEST", "INTERRUPTED", "INPUT_REQUEST"]


def test_a_handler_of_the_users_runs_at_once_elsewhere(new_guest, tmp_path):
    guest = new_guest()
    guest.run(LATE + "_ = signal.signal(signal.SIGALRM, late)")
    os.mkfifo(tmp_path / "told")
    guest.start("os.close(os.open('told', os.O_WRONLY)); time.sleep(100)")
    assert (tmp_path / "told").read_text() == ""  # once that is open there, and closed
    os.kill(guest.process.pid, signal.SIGALRM)
    result = guest.finish()
    assert result.error["ename"] == "TimeoutError"
    shown = plain("".join(result.error["traceback"]))
    assert "time.sleep(100)" in shown and 'raise TimeoutError("late")' in shown and "cellblock_guest" not in shown
    os.kill(guest.process.pid, signal.SIGALRM)  # nothing runs
    guest.until("STREAM", lambda f: "TimeoutError: late" in f.content)
    assert guest.run("1").result == "1"
    result = guest.run(
        "pid = os.fork()\nif not pid:\n    try: signal.raise_signal(signal.SIGALRM)\n"
        "    except TimeoutError: os._exit(7)\nos.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])"
    )
    assert result.result == "7"


def test_a_handler_that_raises_costs_no_interrupt(new_guest):
    """Both came in the middle of a frame."""
    guest = new_guest()
    guest.run(LATE + "_ = signal.signal(signal.SIGALRM, late)")
    result = guest.run(
        "def both(): signal.raise_signal(signal.SIGALRM); signal.raise_signal(signal.SIGINT)\n"
        "next_frame(both)\ntry: display('sent')\nexcept TimeoutError: print('goes on')"
    )
    assert result.error["ename"] == "KeyboardInterrupt"


def test_a_handler_reaches_the_task_that_waits_for_it(guest):
    assert guest.run(
        "import asyncio, signal, time\ndef late(*a): raise TimeoutError('late')\nsignal.signal(signal.SIGALRM, late)\n"
        "async def task():\n    await asyncio.sleep(0)\n    signal.setitimer(signal.ITIMER_REAL, 0.05)\n"
        "    try: time.sleep(60)\n    except TimeoutError as e: return str(e)\n"
        "t = asyncio.get_running_loop().create_task(task())"
    ).reply["status"] == "ok"
    assert guest.run("await t").result == "'late'"


def test_a_child_puts_a_handler_back(guest):
    result = guest.run(
        "import os, signal\npid = os.fork()\nif not pid:\n    try:\n"
        "        old = signal.signal(signal.SIGINT, signal.SIG_IGN)\n        signal.signal(signal.SIGINT, old)\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "    except KeyboardInterrupt: os._exit(7)\n    finally: os._exit(8)\n"
        "os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])"
    )
    assert result.result == "7"


def test_an_exception_from_another_thread_leaves_no_lock(new_guest):
    """It comes as the thread has waited for the wire."""
    result = new_guest().run(
        IN_A_FRAME + "import ctypes\nlock = sys.stdout._output.wire._lock\nclass Stop(Exception): pass\n"
        "def work():\n    try: sys.stdout.write('text\\n')\n    except Stop: pass\n"
        "t = threading.Thread(target=work); lock.acquire(); t.start()\n"
        "await_wire(t); time.sleep(0.05)\n"  # it is about to wait
        "ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(t.ident), ctypes.py_object(Stop))\n"
        "lock.release(); t.join(); free = lock.acquire(True, 5); lock.release()\nprint('on'); free"
    )
    assert result.result == "True" and result.stdout.endswith("on\n")


def test_interrupt_of_a_completion(guest, ipython):
    guest.run(
        "class Slow:\n    def __dir__(self):\n        print('go')\n        import time; time.sleep(100)\nslow = Slow()"
    )
    guest.pending = guest.send("COMPLETE", {"code": "slow.", "cursor_pos": 5})
    guest.until("STREAM", lambda f: "go" in f.content)
    guest.interrupt()
    reply = guest.finish("COMPLETE_REPLY").reply
    assert (reply["status"], reply["matches"], reply["cursor_start"], reply["cursor_end"]) == ("ok", [], 5, 5)
    assert guest.run("1").ok


# An interrupt is raised where signals are just being blocked.
BLOCKS = """
import _signal, threading
from cellblock_guest import threads

class Signals:
    def __getattr__(self, name):
        return getattr(_signal, name)

    def pthread_sigmask(self, how, mask):
        old = _signal.pthread_sigmask(how, mask)
        if how == _signal.SIG_BLOCK and mask:
            threads._signal = _signal
            raise KeyboardInterrupt
        return old

threads._signal = Signals()
try:
    WHAT
except KeyboardInterrupt:
    caught = True
"""


AS_BLOCKED = ["threads.start_deaf(print)", "__import__('sys').stdout._output._bell = None; print(1)"]


@pytest.mark.parametrize("what", AS_BLOCKED)
def test_as_signals_are_blocked(new_guest, what):
    """They do not stay so, and what is printed later comes."""
    guest = new_guest()
    assert guest.run(BLOCKS.replace("WHAT", what)).ok
    assert guest.run("caught, _signal.pthread_sigmask(_signal.SIG_BLOCK, ())").result == "(True, set())"
    guest.start("print('come')\n[].append(1)\nimport sys; sys.stdout.write('late'); threading.Event().wait()")
    guest.until("STREAM", lambda f: "late" in f.content)
    guest.interrupt()
    assert guest.finish().error["ename"] == "KeyboardInterrupt"


def test_interrupt_in_a_childs_pool(guest):
    code = (
        "import multiprocessing as mp, time\ndef work(n):\n    time.sleep(100)\nprint('go')\n"
        "with mp.get_context('fork').Pool(2) as pool: pool.map(work, range(2))"
    )
    result = run_and_interrupt(guest, code)
    assert result.error["ename"] == "KeyboardInterrupt"
    assert guest.run("1").ok


def test_finally_and_context_managers_run(guest):
    result = run_and_interrupt(guest, "import time\ntry:\n    print('go'); time.sleep(100)\nfinally: print('cleaned')")
    assert result.error["ename"] == "KeyboardInterrupt" and "cleaned" in result.stdout


def test_one_from_before_a_cell_is_not_for_it(new_guest):
    """It was sent before, and held back by user code until now; a thread that an earlier test left would take it."""
    guest = new_guest()
    guest.run("import signal, time\n_ = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])")
    guest.start("print('go', flush=True); time.sleep(0.2)")
    guest.until("STREAM", lambda f: "go" in f.content)
    os.kill(guest.process.pid, signal.SIGINT)
    assert guest.finish().ok
    result = guest.run("_ = signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])\n5")
    assert result.result == "5" and result.ok, result.reply
    assert run_and_interrupt(guest, BUSY["sleep"]).error["ename"] == "KeyboardInterrupt"


@pytest.mark.parametrize("waits", ["time.sleep(100)", "input('a')"])
def test_a_repetition_that_crosses_the_answer_is_nothing(new_guest, waits):
    """Nudges count the answers: what the user's clean-up does is not interrupted by them."""
    guest, taken = new_guest(), 0
    code = f"import time\ntry:\n    print('go', flush=True); {waits}\n"
    code += "except KeyboardInterrupt: print('clean', flush=True); time.sleep(0.5); print('done')"
    guest.start(code, allow_stdin=True)
    guest.until("STREAM", lambda f: "go" in f.content)
    guest.interrupt()
    guest.until("STREAM", lambda f: "clean" in f.content)
    for _ in range(5):
        os.kill(guest.process.pid, NUDGE + taken % 2)
    result = guest.finish()
    assert result.ok and result.stdout.endswith("done\n")
    guest.start(BUSY["sleep"])
    guest.until("STREAM", lambda f: "go" in f.content)
    os.kill(guest.process.pid, NUDGE + (taken + 1) % 2)
    assert guest.finish().error["ename"] == "KeyboardInterrupt"


def test_the_showing_of_an_error_is_interrupted(guest, ipython):
    """There is an error all the same, with its traceback."""
    guest.start(
        "import time\nclass Slow(Exception):\n    def __str__(self):\n        if not seen:\n"
        "            seen.append(1); print('go', flush=True); time.sleep(100)\n        return 'slow'\nseen = []\n"
        "raise Slow"
    )
    guest.until("STREAM", lambda f: "go" in f.content)
    guest.interrupt()
    result = guest.finish()
    assert result.error["ename"] == result.reply["ename"] and result.error["traceback"]
    assert len(result.of("ERROR")) == 1


CALLBACK = (
    "import time\nhere = get_ipython().events\ndef slow(*_):\n    here.unregister('{0}', slow)\n"
    "    print('go', flush=True); time.sleep(100)\nhere.register('{0}', slow)"
)


FIRST_ERROR = [("pre_run_cell", "KeyboardInterrupt"), ("post_run_cell", "ZeroDivisionError")]


@pytest.mark.parametrize("event, ename", FIRST_ERROR)
def test_a_callback_of_ipython_is_interrupted(guest, ipython, event, ename):
    """It ends the cell, with one error."""
    if event == "pre_run_cell":
        guest.run(CALLBACK.format(event) + "\nran = 0")
        guest.start("ran = 1")
    else:
        guest.start(CALLBACK.format(event) + "\nran = 0\n1 / 0")
    guest.until("STREAM", lambda f: "go" in f.content)
    guest.interrupt()
    result = guest.finish()
    errors = [f.content["ename"] for f in guest.seen if f.kind == "ERROR" and f.request == result.request]
    assert errors == [result.reply["ename"]] == [ename]
    assert guest.run("ran").result == "0"


def test_the_first_import_of_asyncio_is_not_left_half_done(new_guest, interpreter, tmp_path):
    """Python would keep its parts and forget the whole: no later import of it works, nor does the cells' loop."""
    if interpreter.ipython and interpreter.ipython < (9,):
        pytest.skip("this IPython imports asyncio itself")
    guest = new_guest(cwd=str(tmp_path))
    guest.run(
        "import os, sys, time\nclass Slow:\n    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'asyncio.streams':\n            print('go', flush=True)\n"
        "            while not os.path.exists('gate'): time.sleep(0.01)\nsys.meta_path.insert(0, Slow())"
    )
    guest.start("import asyncio\nawait asyncio.sleep(600)")
    guest.until("STREAM", lambda f: "go" in f.content)
    guest.interrupt()
    (tmp_path / "gate").touch()
    result = guest.finish()
    assert result.error["ename"] == "KeyboardInterrupt" and len(result.of("INTERRUPTED")) == 1
    assert guest.run("import asyncio\nawait asyncio.sleep(0, 'works')").result == "'works'"


def test_an_interrupt_is_the_main_threads_whatever_another_thread_reads(guest):
    """A thread that reads an answer took it, and the cell, which waits for the thread, went on."""
    guest.start(
        "import threading, time\ndef ask():\n    try: print(len(input('?')))\n"
        "    except KeyboardInterrupt: print('astray')\n"
        "t = threading.Thread(target=ask); t.start(); t.join()\nprint('go')\ntime.sleep(600)",
        allow_stdin=True,
    )
    guest.until("INPUT_REQUEST")
    answer = Sent()
    guest.send("INPUT_REPLY", {"value": "x" * 1000}, request=guest.pending, wire=answer)
    guest.sock.sendall(answer.data[:500])
    while fcntl.ioctl(guest.sock, termios.TIOCOUTQ, bytes(4)) != bytes(4):  # the thread has read it
        pass
    guest.interrupt()
    guest.until("INTERRUPTED")
    guest.sock.sendall(answer.data[500:])
    result = guest.finish()
    assert result.error["ename"] == "KeyboardInterrupt" and "astray" not in result.stdout


class Sent:
    def sendall(self, data):
        self.data = data
