"""Top-level await, tasks between cells, the loop as user code sees it."""

import pytest


def test_await(guest):
    assert guest.run("import asyncio\nawait asyncio.sleep(0, 'value')").result == "'value'"
    assert guest.run("async def f(): return 3\nawait f()").result == "3"
    assert guest.run("x = await f()\nx").result == "3"
    assert guest.run("async with asyncio.Lock(): print('in')").stdout == "in\n"
    assert guest.run("async def gen():\n    yield 1\nasync for i in gen(): print(i)").stdout == "1\n"
    assert guest.run("[i async for i in gen()]").result == "[1]"


def test_await_without_asyncio_imported(new_guest):
    guest = new_guest()
    assert guest.run("async def f(): return 4\nawait f()").result == "4"


def test_asyncio_is_not_imported_for_nothing(new_guest, interpreter):
    if interpreter.ipython and interpreter.ipython < (9,):
        pytest.skip("this IPython imports asyncio itself")
    guest = new_guest()
    assert guest.run("import sys; 'asyncio' in sys.modules").result == "False"


def test_error_in_await(guest):
    result = guest.run("import asyncio\nasync def bad(): 1/0\nawait bad()")
    assert result.error["ename"] == "ZeroDivisionError"
    assert "cellblock_guest" not in "".join(result.error["traceback"])
    assert guest.run("await asyncio.sleep(0)\nraise SystemExit(2)").error["ename"] == "SystemExit"
    assert guest.run("await asyncio.sleep(0)\nraise KeyboardInterrupt").error["ename"] == "KeyboardInterrupt"
    assert guest.run("raise asyncio.CancelledError").error["ename"] == "CancelledError"
    assert guest.run("await asyncio.sleep(0)\nraise asyncio.CancelledError").error["ename"] == "CancelledError"
    assert guest.run("1").ok


def test_plain_cell_has_a_running_loop(guest):
    assert guest.run("import asyncio\nasyncio.get_running_loop().is_running()").result == "True"
    assert guest.run("asyncio.get_event_loop() is asyncio.get_running_loop()").result == "True"
    assert guest.run("asyncio.get_running_loop()._selector.__class__.__name__").result == "'PollSelector'"


def test_asyncio_run_raises(guest):
    result = guest.run("import asyncio\nc = asyncio.sleep(0)\ntry: asyncio.run(c)\nfinally: c.close()")
    assert result.error["ename"] == "RuntimeError" and "running event loop" in result.error["evalue"]


def test_task_goes_on_between_cells(guest):
    first = guest.run(
        "import asyncio\nticks = []\nasync def tick():\n    for i in range(5):\n        await asyncio.sleep(0.001)\n"
        "        print('tick', i)\n    return 'all'\nt = asyncio.create_task(tick())"
    )
    frames = guest.until("STREAM", lambda f: "tick 4" in f.content)
    assert {f.request for f in frames} == {first.request}
    assert guest.run("t.result()").result == "'all'"
    assert guest.run("await t").result == "'all'"


def test_task_prints_under_its_cell_while_another_runs(guest):
    first = guest.run(
        "import asyncio\nasync def later():\n    await go.wait()\n    print('later')\ngo = asyncio.Event()\n"
        "t = asyncio.create_task(later())"
    )
    second = guest.run("go.set()\nawait t\nprint('second')")
    assert [(f.request, f.content) for f in second.of("STREAM")] == [
        (first.request, "later\n"),
        (second.request, "second\n"),
    ]


def test_calls_from_threads_wake_the_idle_loop(guest):
    guest.run(
        "import asyncio, threading\nloop = asyncio.get_running_loop()\nstart = threading.Event()\n"
        "async def hello(): print('from the loop')\n"
        "t = threading.Thread(target=lambda: (start.wait(), asyncio.run_coroutine_threadsafe(hello(), loop)))\n"
        "t.start()"
    )
    guest.run("start.set()")
    text = "".join(f.content for f in guest.seen if f.kind == "STREAM")
    if "from the loop" not in text:
        guest.until("STREAM", lambda f: "from the loop" in f.content)
    assert guest.run("1").ok


def test_callback_and_server_between_cells(guest):
    guest.run("import asyncio\nloop = asyncio.get_running_loop()\nh = loop.call_later(0.001, print, 'called')")
    guest.until("STREAM", lambda f: "called" in f.content)
    guest.run(
        "import socket\na, b = socket.socketpair()\n"
        "loop.add_reader(a.fileno(), lambda: print('read', a.recv(9)))\nb.send(b'x')"
    )
    if not any("read" in f.content for f in guest.seen if f.kind == "STREAM"):
        guest.until("STREAM", lambda f: "read" in f.content)
    guest.run("loop.remove_reader(a.fileno())")


def test_error_in_a_task(guest):
    guest.run(
        "import asyncio, gc\nasync def bad(): raise ValueError('in a task')\nt = asyncio.create_task(bad())\n"
        "while not t.done(): await asyncio.sleep(0)"
    )
    result = guest.run("del t; gc.collect(); None")
    text = result.stderr + "".join(f.content for f in guest.seen if f.kind == "STREAM")
    assert "ValueError: in a task" in text


@pytest.mark.parametrize("what", ["SystemExit", "KeyboardInterrupt"])
def test_task_that_raises_exit_between_cells(guest, what):
    guest.run(
        "import asyncio\nasync def out():\n    await asyncio.sleep(0.001)\n    raise %s('from a task')\n"
        "t = asyncio.create_task(out())" % what
    )
    guest.until("STREAM", lambda f: what in f.content)
    assert guest.run("1").result == "1"
    guest.run("t.exception()")


def test_context_variables_reach_the_next_cell(guest):
    guest.run("import contextvars, asyncio\nv = contextvars.ContextVar('v')\n_ = v.set(1)")
    assert guest.run("v.get()").result == "1"
    guest.run("await asyncio.sleep(0)\n_ = v.set(2)")
    assert guest.run("v.get()").result == "2"
    assert guest.run("await asyncio.sleep(0)\nv.get()").result == "2"


def test_to_thread_and_executor(guest):
    if guest.interpreter.version < (3, 9):
        pytest.skip("no to_thread")
    first = guest.run("import asyncio\nawait asyncio.to_thread(print, 'threaded')")
    assert first.stdout == "threaded\n"
    second = guest.run("await asyncio.get_running_loop().run_in_executor(None, print, 'executed')")
    assert [(f.request, f.content) for f in second.of("STREAM")] == [(second.request, "executed\n")]


def test_subprocess(guest):
    code = (
        "import asyncio\np = await asyncio.create_subprocess_exec('echo', 'hi', stdout=asyncio.subprocess.PIPE)\n"
        "(await p.communicate())[0]"
    )
    assert guest.run(code).result == "b'hi\\n'"


def test_nest_asyncio(new_guest, need):
    need("nest_asyncio")
    guest = new_guest()
    assert (
        guest.run(
            "import nest_asyncio, asyncio\nnest_asyncio.apply()\nasync def f(): return 5\nasyncio.run(f())"
        ).result
        == "5"
    )
    assert guest.run("asyncio.get_event_loop().run_until_complete(f())").result == "5"
    assert guest.run("await f()").result == "5"
    assert guest.run("t = asyncio.create_task(f())\nawait t").result == "5"
    guest.start("print('go')\nawait asyncio.sleep(100)")
    guest.until("STREAM")
    guest.interrupt()
    assert guest.finish().error["ename"] == "KeyboardInterrupt"
    assert guest.run("asyncio.run(f())").result == "5"


def test_a_loop_of_ones_own_in_a_thread(guest):
    code = (
        "import asyncio, threading\nout = []\nasync def f(): out.append(1)\n"
        "t = threading.Thread(target=lambda: asyncio.run(f())); t.start(); t.join()\nout"
    )
    assert guest.run(code).result == "[1]"


def test_closed_loop_does_not_kill(new_guest):
    guest = new_guest()
    assert not guest.run("import asyncio\nasyncio.get_running_loop().close()").ok
    assert guest.run("1").result == "1"


def test_fork_in_a_cell_with_a_loop(guest):
    code = (
        "import asyncio, multiprocessing as mp\nawait asyncio.sleep(0)\ndef work(n):\n    import asyncio\n"
        "    async def f(): return n\n    return asyncio.run(f())\n"
        "with mp.get_context('fork').Pool(1) as p: r = p.map(work, [1, 2])\nr"
    )
    assert guest.run(code).result == "[1, 2]"


def test_loop_stop_does_not_stall_tasks(guest):
    guest.run(
        "import asyncio\nloop = asyncio.get_running_loop()\nasync def go_on():\n"
        "    await asyncio.sleep(0.001)\n    loop.stop()\n"
        "    await asyncio.sleep(0.001)\n    print('went on')\nt = asyncio.create_task(go_on())"
    )
    guest.until("STREAM", lambda f: "went on" in f.content)
    assert guest.run("1").ok


HIT_AT_THE_END = """
import asyncio, os, signal
real = asyncio._set_running_loop
def hit(loop):
    if %s:
        asyncio._set_running_loop = real
        os.kill(os.getpid(), signal.SIGINT)
    real(loop)
asyncio._set_running_loop = hit
"""


@pytest.mark.parametrize("when, last", [("loop is None", ""), ("loop is not None", "await asyncio.sleep(0)")])
def test_an_interrupt_at_a_cells_end_leaves_the_loop_whole(new_guest, when, last):
    guest = new_guest()
    assert guest.run("import asyncio\nongoing = asyncio.create_task(asyncio.sleep(3600))").ok
    result = guest.run(HIT_AT_THE_END % when + last)
    assert result.error["ename"] == "KeyboardInterrupt"
    assert guest.run("t = asyncio.ensure_future(asyncio.sleep(0, 'later'))").ok
    assert guest.run("await t").result == "'later'"


WORK = """
import asyncio, os
def work():
    print('go', flush=True)
    while not os.path.exists('enough'): pass
    print('done', flush=True)
async def task(): work()
"""
TASKS = {"task": "t = asyncio.ensure_future(task())", "callback": "_ = asyncio.get_event_loop().call_soon(work)"}


@pytest.mark.parametrize("what", TASKS)
def test_an_interrupt_ends_a_task_that_keeps_the_next_cell_waiting(new_guest, what):
    guest = new_guest()
    guest.run(WORK + TASKS[what])
    guest.until_says("go")
    guest.start("6*7")
    guest.interrupt()
    assert guest.finish().result == "42" and guest.has_said("KeyboardInterrupt") and not guest.has_said("done")
    assert guest.run("await asyncio.sleep(0, 1)").result == "1"


def test_an_interrupt_that_comes_late_hits_no_task(new_guest, tmp_path):
    """Nothing waits: it was for a cell that has ended."""
    guest = new_guest(cwd=tmp_path)
    guest.run(WORK + TASKS["task"])
    guest.until_says("go")
    guest.interrupt()
    guest.until("INTERRUPTED")
    (tmp_path / "enough").touch()
    guest.until_says("done")
    assert guest.run("6*7").result == "42" and not guest.has_said("KeyboardInterrupt")


@pytest.mark.parametrize("eager", ["", "asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)"])
def test_code_before_the_first_wait_can_be_interrupted(guest, eager):
    if eager and not guest.run("import asyncio; asyncio.eager_task_factory").ok:
        pytest.skip("Python 3.12")
    assert guest.run("import asyncio\n" + eager).ok
    guest.start("print('go', flush=True)\nwhile True: pass\nawait asyncio.sleep(0)")
    guest.until("STREAM", lambda f: "go" in f.content)
    guest.interrupt()
    assert guest.finish().error["ename"] == "KeyboardInterrupt"
    assert guest.run("await asyncio.sleep(0, 'works')").result == "'works'"


EXITS = "import asyncio, sys\nasync def w(): sys.exit(1)\n"


@pytest.mark.parametrize(
    "wait", ["t = asyncio.create_task(w())\ne = asyncio.Event()\nawait e.wait()", "await asyncio.gather(w())",
             "await asyncio.gather(w(), asyncio.sleep(60))",
             "t = [asyncio.create_task(w())]\ntry: await asyncio.sleep(60)\n"
             "finally:\n    t.append(asyncio.create_task(w()))\n    await asyncio.sleep(0.01)"]
)
def test_a_task_that_exits_ends_the_cell_that_waits(new_guest, wait):
    guest = new_guest()
    result = guest.run(EXITS + wait + "\nx = 1")
    assert result.error["ename"] == "SystemExit" and len(result.of("ERROR")) == 1
    later = guest.run("'e' in globals() and e.set()\nfor _ in range(9): await asyncio.sleep(0)\n'x' in globals()")
    assert later.result == "False" and not later.of("ERROR")
