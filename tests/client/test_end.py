"""How runs and sandboxes end: interrupts, cancellation, Ctrl-C, a killed kernel, a killed client, a fork."""

import asyncio
import errno
import fcntl
import gc
import importlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import weakref

import psutil
import pytest

import cellblock
import kernels
from cellblock import _loop
from cellblock._wire import new_message

MANY = os.environ.get("CELLBLOCK_TEST_MANY") == "1"
FOREVER = "print('up', flush=True)\nimport time\ntime.sleep(10000)"
DEAF = """
print('up', flush=True)
import time
while True:
    try:
        time.sleep(10000)
    except KeyboardInterrupt:
        pass
"""


@pytest.fixture
def work(nothing_left, request):
    folder = nothing_left / request.node.name[:40].replace("/", "_")
    kernels.let_in(folder)
    return folder


async def begun(sb, code, **how):
    """A task that runs the code, once it has said something."""
    up = asyncio.Event()
    task = asyncio.ensure_future(sb.run(code, on_output=lambda text: up.set(), **how))
    await asyncio.wait({task, asyncio.ensure_future(up.wait())}, return_when=asyncio.FIRST_COMPLETED)
    assert not task.done(), task.result()
    return task


def test_interrupt(work):
    async def main():
        async with cellblock.AsyncSandbox("notebook", workspace=work) as sb:
            await sb.run("x = 1")
            task = await begun(sb, FOREVER)
            await sb.interrupt()
            r = await task
            assert r.error.name == "KeyboardInterrupt" and r.fault == "limit" and r.state == "kept"
            assert (await sb.run("x")).repr == "1"

    asyncio.run(main())


def test_interrupt_from_another_thread(work):
    with cellblock.Sandbox("notebook", workspace=work) as sb:
        r = sb.run(FOREVER, on_output=lambda text: threading.Thread(target=sb.interrupt).start())
        assert r.error.name == "KeyboardInterrupt" and r.stdout == "up\n"


def test_cancellation_keeps_the_state(work):
    async def main():
        async with cellblock.AsyncSandbox("notebook", workspace=work) as sb:
            await sb.run("x = [1]")
            task = await begun(sb, "x.append(2)\n" + FOREVER)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert sb.last.stdout == "up\n" and sb.last.fault == "limit" and sb.last.state == "kept"
            assert (await sb.run("x")).repr == "[1, 2]"
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(sb.run(FOREVER), 1)
            assert (await sb.run("x")).repr == "[1, 2]"

    asyncio.run(main())


def test_a_deaf_cell_is_waited_for_no_longer_than_the_grace(work):
    """It catches each interrupt: its limit of time ends it, and the next cell waits for that."""

    async def main():
        limits = {"timeout.grace": 1}
        async with cellblock.AsyncSandbox("notebook", workspace=work, grace=0.2, policy=limits) as sb:
            await sb.run("x = [1]")
            task = await begun(sb, "x.append(2)\n" + DEAF, timeout=3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert sb.last.partial and sb.last.stdout == "up\n"
            assert (await sb.run("x")).repr == "[1]"

    asyncio.run(main())


def test_a_run_that_waits_its_turn_is_cancelled_alone(work):
    async def main():
        async with cellblock.AsyncSandbox("notebook", workspace=work) as sb:
            first = await begun(sb, "print('up', flush=True)\nopen('gate').read()\n7")
            second = asyncio.ensure_future(sb.run("never = 1"))
            await asyncio.sleep(0)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            assert (sb.last.error.name, sb.last.fault, sb.last.partial) == ("AbortedError", "limit", True)
            await asyncio.get_running_loop().run_in_executor(None, (work / "gate").write_text, "go")
            assert (await first).repr == "7"
            assert (await sb.run("never")).error.name == "NameError"

    os.mkfifo(work / "gate")
    asyncio.run(main())


def test_cancelled_at_random_moments(work):
    """Whenever it comes: the state afterwards is that of cells that ran to their end or were interrupted, and known."""
    moments = random.Random(7)

    async def main():
        async with cellblock.AsyncSandbox("notebook", workspace=work) as sb:
            await sb.run("n = 0")
            for _ in range(1000 if MANY else 25):
                before = int((await sb.run("n")).repr)
                task = asyncio.ensure_future(sb.run("n += 1\nwhile True: pass"))
                await asyncio.sleep(moments.random() * 0.05)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert int((await sb.run("n")).repr) in (before, before + 1)

    asyncio.run(main())


def test_those_that_wait_their_turn_hear_of_the_end(work):
    async def main():
        sb = await cellblock.AsyncSandbox("notebook", workspace=work).start()
        first = await begun(sb, FOREVER)
        second = asyncio.ensure_future(sb.run("1"))
        await asyncio.sleep(0)
        await sb.close()
        for task in (first, second):
            with pytest.raises(cellblock.SandboxClosedError):
                await task

    asyncio.run(main())


def test_closed_from_another_thread_while_a_cell_runs(work, monkeypatch):
    """What waits in the sandbox's own loop is woken there: ZeroMQ's sockets are of that thread alone."""
    up, ended, closing = threading.Event(), [], []
    sb = cellblock.AsyncSandbox("notebook", workspace=work)

    async def used():
        await sb.start()
        transport = sb.kernel.session.connected.transport
        close = transport.close

        async def noted():
            closing.append(threading.current_thread())
            await close()

        monkeypatch.setattr(transport, "close", noted)
        with pytest.raises(cellblock.SandboxClosedError) as caught:
            await sb.run(FOREVER, on_output=lambda text: up.set())
        ended.append(caught.value)

    thread = threading.Thread(target=asyncio.run, args=(used(),), daemon=True)
    thread.start()
    assert up.wait(60)
    asyncio.run(sb.close())
    thread.join(60)
    assert ended and closing == [thread]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("closed", [False, True])
def test_closed_from_another_loop_while_a_cell_runs(work, closed):
    """The loop that it was started in stands still, or has ended."""
    sb, loop = cellblock.AsyncSandbox("notebook", workspace=work), asyncio.new_event_loop()
    loop.run_until_complete(sb.start())
    task = loop.run_until_complete(begun(sb, FOREVER))
    kernel = psutil.Process(sb.kernel.pid)
    if closed:
        loop.close()
    asyncio.run(sb.close())
    assert kernels.wait_gone([kernel]) == []
    if not closed:
        with pytest.raises(cellblock.SandboxClosedError):
            loop.run_until_complete(task)
        loop.close()
    ref = weakref.ref(task)
    del task
    gc.collect()  # a task whose loop was closed says so
    assert ref() is None, "what will never go on is kept as long as its sandbox"
    assert sb.kernel.pid is None


def test_closed_from_another_thread_that_its_loop_waits_for(work, monkeypatch):
    monkeypatch.setattr(importlib.import_module("cellblock._session"), "STILL", 0.1, raising=False)

    async def main():
        sb = await cellblock.AsyncSandbox("notebook", workspace=work, grace=0.1).start()
        kernel, file = psutil.Process(sb.kernel.pid), sb.kernel.connection_file
        thread = threading.Thread(target=asyncio.run, args=(sb.close(),), daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive() and kernels.wait_gone([kernel]) == [] and not os.path.exists(file)
        with pytest.raises(cellblock.SandboxClosedError):
            await sb.run("1")

    asyncio.run(main())


def test_closed_from_another_thread_as_its_loop_stops(work):
    """What it has begun to end is ended by who has asked for that."""
    up, ended, loop = threading.Event(), threading.Event(), asyncio.new_event_loop()
    sb = cellblock.AsyncSandbox("notebook", workspace=work)

    async def used():
        await sb.start()
        with pytest.raises(cellblock.SandboxClosedError):
            await sb.run(FOREVER, on_output=lambda text: up.set())

    thread = threading.Thread(target=loop.run_until_complete, args=(used(),), daemon=True)
    thread.start()
    assert up.wait(60)
    kernel, file = psutil.Process(sb.kernel.pid), sb.kernel.connection_file
    kernel.suspend()  # its end takes longer than the loop runs
    asyncio.run(sb.close())
    assert kernels.wait_gone([kernel]) == [] and not os.path.exists(file)
    thread.join(60)
    loop.run_until_complete(asyncio.wait_for(asyncio.gather(*asyncio.all_tasks(loop)), 60))
    loop.close()


def test_leaving_a_stream_interrupts(work):
    with cellblock.Sandbox("notebook", workspace=work) as sb:
        for event in sb.stream(FOREVER):
            assert event.text == "up\n"
            break
        assert sb.run("5").repr == "5"


def test_a_stream_that_the_drivers_thread_collects(work):
    """The garbage collector closes an abandoned iterator in whatever thread it runs."""
    done = run_script(
        "import asyncio, threading\nfrom cellblock import _loop\nended = threading.Event()\n"
        "async def never_ends(tell):\n    try:\n        tell(1)\n        await asyncio.Event().wait()\n"
        "    finally:\n        ended.set()\n"
        "held = [_loop.hearing(never_ends)]\nprint(next(held[0]))\n"
        "_loop.background().call_soon_threadsafe(held.clear)\n"
        "print(ended.wait(60), _loop.call(asyncio.sleep(0, 'on')) if ended.is_set() else '', flush=True)"
    )
    assert done.stdout.split() == ["1", "True", "on"]


def test_a_stream_that_a_forks_child_collects():
    done = run_script(
        "import asyncio, os\nfrom cellblock import _loop\n"
        "async def never_ends(tell):\n    tell(1)\n    await asyncio.Event().wait()\n"
        "held = [_loop.hearing(never_ends)]\nprint(next(held[0]), flush=True)\n"
        "if os.fork() == 0:\n    held.clear()\n    print('on', flush=True)\n    os._exit(0)\n"
        "os.wait()\n"
    )
    assert done.stdout.split() == ["1", "on"]


def test_a_stream_that_a_forks_child_goes_on_with():
    done = run_script(
        "import asyncio, os\nfrom cellblock import ForkError, _loop\n"
        "async def never_ends(tell):\n    tell(1)\n    await asyncio.Event().wait()\n"
        "held = _loop.hearing(never_ends)\nprint(next(held), flush=True)\n"
        "if os.fork() == 0:\n    try:\n        next(held)\n"
        "    except ForkError:\n        print('ForkError', flush=True)\n    os._exit(0)\n"
        "os.wait()\n"
    )
    assert done.stdout.split() == ["1", "ForkError"]


def test_a_cell_whose_end_was_lost(work, monkeypatch):
    """The kernel sets aside a program that is stopped for long: what it publishes then is lost, the reply is not."""
    monkeypatch.setattr(importlib.import_module("cellblock._session"), "LATE", 0.1, raising=False)

    async def main():
        async with cellblock.AsyncSandbox("notebook", workspace=work) as sb:
            os.mkfifo(work / "gate")
            task = await begun(sb, "print('up', flush=True)\nopen('gate').read()\nprint('lost')\nx = 7\nx")
            session = sb.kernel.session
            transport, (run,) = session.connected.transport, session._runs

            def received(channel, message):
                if channel != "iopub" or message.parent_id != run:
                    session._receive(channel, message)

            transport._receive = received
            (work / "gate").write_text("go")
            r = await asyncio.wait_for(task, 60)
            assert r.ok and r.partial and r.state == "kept" and r.repr is None
            assert r.stdout == "up\n" and "output of this cell was lost" in r.text()
            r = await sb.run("x")
            assert r.repr == "7" and not r.partial and r.stderr == ""

    asyncio.run(main())


@pytest.mark.parametrize("of_the_run", [True, False])
def test_output_that_the_kernel_gave_up(work, of_the_run):
    """It says whose the first of it was, which may be another client's; and a cell's own words are not the kernel's."""
    said = "\n[cellblock: 70000000 bytes of output were given up: a client was not reading]\n"

    async def main():
        async with cellblock.AsyncSandbox("notebook", workspace=work) as sb:
            os.mkfifo(work / "gate")
            task = await begun(sb, "print('up', flush=True)\nopen('gate').read()\n7")
            session = sb.kernel.session
            (run,) = session._runs
            notice = new_message(
                "stream", {"name": "stderr", "text": said}, session._kernel,
                parent={"msg_id": run if of_the_run else "another"}, metadata={"cellblock": {"given_up": 70000000}},
            )
            session._receive("iopub", notice)
            (work / "gate").write_text("go")
            r = await task
            assert r.ok and r.partial and r.repr == "7" and r.stderr == said
            r = await sb.run(f"import sys\nn = sys.stderr.write({said!r})")
            assert not r.partial and r.stderr == said

    asyncio.run(main())


def test_a_value_that_was_lost(work, monkeypatch):
    run = importlib.import_module("cellblock._run")
    with cellblock.Sandbox("notebook", workspace=work) as sb:
        sb.set("x", 7)
        monkeypatch.setattr(run.Run, "_on_execute_result", lambda self, m: self.end(torn=True))
        with pytest.raises(cellblock.SandboxError, match="the value of x was lost on its way"):
            sb.get("x")
        monkeypatch.undo()
        assert sb.get("x") == 7


def test_keyboard_interrupt(work):
    with cellblock.Sandbox("notebook", workspace=work) as sb:
        sb.run("x = [1]")
        with pytest.raises(KeyboardInterrupt):
            sb.run("x.append(2)\n" + FOREVER, on_output=lambda text: os.kill(os.getpid(), signal.SIGINT))
        assert sb.last.stdout == "up\n" and sb.last.error.name == "KeyboardInterrupt"
        os.mkfifo(work / "gate")

        def press():
            (work / "gate").write_text("go")
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=press, daemon=True)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            sb.run("open('gate').read()\n" + FOREVER)
        thread.join()
        assert sb.run("x").repr == "[1, 2]"


def test_keyboard_interrupt_while_it_starts(work):
    code = (
        "import sys\nfrom cellblock import Sandbox\nprint('made', flush=True)\n"
        "try:\n    with Sandbox('agent', workspace=sys.argv[1]):\n        sys.stdin.readline()\n"
        "except KeyboardInterrupt:\n    print('interrupted', flush=True)\n    sys.stdin.readline()\n"
    )
    client = subprocess.Popen(
        [sys.executable, "-c", code, os.fspath(work)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with client:
        assert client.stdout.readline() == "made\n"
        while not kernels.below(client.pid):
            pass
        client.send_signal(signal.SIGINT)
        assert client.stdout.readline() == "interrupted\n"
        assert kernels.wait_gone(kernels.below(client.pid)) == []
        client.stdin.close()
    assert client.returncode == 0


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, TimeoutError])
def test_keyboard_interrupt_as_the_start_ends(work, monkeypatch, kind):
    """Or whatever else a handler of a signal raises."""
    sb = cellblock.Sandbox("notebook", workspace=work)

    def raised(*_):
        raise kind

    monkeypatch.setattr(sb._a, "start", pressing(sb._a.start))
    before = signal.signal(signal.SIGINT, raised)
    try:
        with pytest.raises(kind):
            sb.start()
    finally:
        signal.signal(signal.SIGINT, before)
    assert sb._a._session.connected is None
    monkeypatch.undo()
    assert sb.run("1").repr == "1"
    sb.close()


def pressing(method):
    """The method, and Ctrl-C when it is done."""

    async def done_and_pressed(*args):
        result = await method(*args)
        os.kill(os.getpid(), signal.SIGINT)
        return result

    return done_and_pressed


def test_keyboard_interrupt_as_a_branch_is_there(work, monkeypatch):
    with cellblock.Sandbox("notebook", workspace=work) as sb:
        branch = sb.branch()
        monkeypatch.setattr(branch._a, "__aenter__", pressing(branch._a.__aenter__))
        with pytest.raises(KeyboardInterrupt):
            branch.__enter__()
        with pytest.raises(cellblock.SandboxError, match="the branch is closed"):
            branch.run("1")
        assert sb.run("1").repr == "1"


def test_keyboard_interrupt_as_a_pool_is_there(work, monkeypatch):
    pool = cellblock.Pool("agent", size=1, workspace=work)
    monkeypatch.setattr(pool._pool, "start", pressing(pool._pool.start))
    with pytest.raises(KeyboardInterrupt):
        pool.start()
    try:
        with pytest.raises(cellblock.SandboxClosedError):
            pool.lease().__enter__()
    finally:
        pool.close()


def test_keyboard_interrupt_as_a_lease_is_there(work, monkeypatch):
    with cellblock.Pool("agent", size=1, workspace=work) as pool:
        with monkeypatch.context() as patch:
            patch.setattr(pool._pool, "_take", pressing(pool._pool._take))
            with pytest.raises(KeyboardInterrupt):
                pool.lease().__enter__()
        assert not pool._pool._leased
        with pool.lease(wait=60) as sb:
            assert sb.run("1").repr == "1"


@pytest.mark.parametrize("before", [True, False])
def test_keyboard_interrupt_as_work_is_handed_to_the_loop(monkeypatch, before):
    """It is ended, whether it has begun or not: nobody waits for it."""
    loop = _loop.background()
    hand_over = loop.call_soon_threadsafe

    def pressed(*args):
        monkeypatch.undo()
        if not before:
            hand_over(*args)
        raise KeyboardInterrupt

    async def work():
        await asyncio.Event().wait()

    async def left():
        return [task for task in asyncio.all_tasks() if task.get_coro().__name__ == "work"]

    monkeypatch.setattr(loop, "call_soon_threadsafe", pressed)
    with pytest.raises(KeyboardInterrupt):
        _loop.call(work())
    assert _loop.call(left()) == []


def test_what_fails_as_a_sandbox_ends_is_told_and_not_the_cleaning_up(monkeypatch):
    """Of an archive, which cellblock.openai_agents puts beside the files for as long as it takes."""
    pytest.importorskip("agents", reason="the OpenAI Agents SDK is tried with Python 3.11")
    from agents.sandbox.errors import ExecTransportError, WorkspaceArchiveWriteError

    from cellblock.openai_agents import CellblockSandboxClient

    async def main():
        client = CellblockSandboxClient()
        session = await client.create()
        inner = session._inner
        async with session:
            packed = await inner.persist_workspace()
            write = inner._write

            async def ends_first(path, data):
                await client.delete(session)
                await write(path, data)

            monkeypatch.setattr(inner, "_write", ends_first)
            with pytest.raises(WorkspaceArchiveWriteError) as written:
                await inner.hydrate_workspace(packed)
            assert "the sandbox is closed" in written.value.context["detail"]
            with pytest.raises(ExecTransportError) as caught:
                await inner.persist_workspace()
            assert list(caught.value.command)[0] == "sh", caught.value.command

    asyncio.run(main())


def test_a_killed_kernel(work):
    with cellblock.Sandbox("notebook", workspace=work) as sb:
        with pytest.raises(cellblock.SandboxError, match="killed by SIGKILL"):
            sb.run(FOREVER, on_output=lambda text: os.kill(sb.kernel.pid, signal.SIGKILL))
        assert sb.last.fault == "infrastructure" and sb.last.stdout == "up\n" and sb.last.state == "lost"
        with pytest.raises(cellblock.SandboxError, match="killed by SIGKILL"):
            sb.run("1")
        sb.reset()
        assert sb.run("1").repr == "1"


CLIENT = """
import sys
from cellblock import Sandbox
sb = Sandbox("agent", workspace=sys.argv[1])
print("made", flush=True)
sb.start()
r = sb.run("import subprocess; p = subprocess.Popen(['sleep', '10000'])")
print("ready", r.ok, sb.kernel.connection_file, flush=True)
sb.run("while True: pass")
"""


def test_nothing_is_left_of_a_killed_client(work):
    client = subprocess.Popen([sys.executable, "-c", CLIENT, os.fspath(work)], stdout=subprocess.PIPE, text=True)
    with client:
        try:
            client.stdout.readline()
            ready, ok, file = client.stdout.readline().split()
            assert (ready, ok) == ("ready", "True")
            family = kernels.below(client.pid)
            assert len(family) >= 3
        finally:
            client.kill()
    assert kernels.wait_gone(family) == []
    with cellblock.Sandbox("agent", workspace=work):
        pass  # a start removes what killed programs could not
    assert not os.path.exists(os.path.dirname(os.path.dirname(file)))


def test_a_client_killed_while_its_kernel_starts(work):
    for _ in range(20 if MANY else 3):
        client = subprocess.Popen([sys.executable, "-c", CLIENT, os.fspath(work)], stdout=subprocess.PIPE, text=True)
        with client:
            try:
                assert client.stdout.readline() == "made\n"
                while not (family := kernels.below(client.pid)):
                    pass
            finally:
                client.kill()
        assert kernels.wait_gone(family) == []


def run_script(code, *args):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *map(os.fspath, args)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done


def test_a_program_that_closes_nothing(work):
    done = run_script(
        "import sys\nfrom cellblock import Sandbox\nsb = Sandbox('agent', workspace=sys.argv[1])\n"
        "print(sb.run('1').repr, sb.kernel.connection_file)", work
    )
    said, file = done.stdout.split()
    assert said == "1" and done.stderr == "" and not os.path.exists(os.path.dirname(os.path.dirname(file)))


AT_THE_END = {
    "a sandbox that starts then": (
        "class Agent:\n    def __init__(self):\n        self.sb = Sandbox('agent', workspace=sys.argv[1])\n"
        "    def __del__(self):\n        self.sb.close()\n        try:\n            self.sb.run('1')\n"
        "        except SandboxError as e:\n            print(e, flush=True)\nagent = Agent()\n"
    ),
    "a file": "f = sb.start().open('log', 'w')\nf.write('x')\n",
    "a stream": (
        "import atexit\nfrom cellblock import _launch\n"
        "atexit.unregister(_launch._end_all)  # as the kernel of others, which outlives the program\n"
        "events = sb.stream('print(1, flush=True)\\nimport time; time.sleep(10000)')\nnext(events)\n"
    ),
    "a generator": "def held():\n    with sb, sb.branch():\n        yield\nheld = held()\nnext(held)\n",
}


@pytest.mark.parametrize("code", AT_THE_END.values(), ids=AT_THE_END)
def test_what_is_used_while_the_interpreter_ends(work, code):
    """The thread that drives sandboxes stands still by then: who waited for it would wait for ever."""
    made = "import sys\nfrom cellblock import Sandbox, SandboxError\nsb = Sandbox('agent', workspace=sys.argv[1])\n"
    done = run_script(made + code + "print('at the end')\n", work)
    assert done.stdout.startswith("at the end\n")
    assert ("the program ends" in done.stdout) is ("__del__" in code) and done.stderr == ""


def test_what_was_given_up_and_never_ends_does_not_hold_up_the_programs_end():
    done = run_script(
        "import asyncio, threading\nfrom cellblock._threads import made_in_a_thread\n"
        "begun = threading.Event()\ndef never():\n    begun.set()\n    threading.Event().wait()\n"
        "async def main():\n    task = asyncio.ensure_future(made_in_a_thread(never, print))\n"
        "    await asyncio.get_running_loop().run_in_executor(None, begun.wait)\n"
        "    task.cancel()\n    await asyncio.wait({task})\n"
        "asyncio.run(main())\nprint('at the end', flush=True)\n"
    )
    assert done.stdout == "at the end\n"


def test_a_driving_thread_that_can_not_be_started():
    done = run_script(
        "import threading\nfrom cellblock import _loop, SandboxError\nstart = threading.Thread.start\n"
        "def refused(self):\n    raise RuntimeError(\"can't start new thread\")\n"
        "async def work():\n    return 'on'\n"
        "threading.Thread.start = refused\ntry:\n    _loop.call(work())\nexcept (SandboxError, RuntimeError) as e:\n"
        "    print(type(e).__name__, flush=True)\n"
        "threading.Thread.start = start\nprint(_loop.call(work()))\n"
    )
    assert done.stdout.split() == ["SandboxError", "on"]


def test_use_after_a_fork(work):
    done = run_script(
        "import os, sys\nfrom cellblock import ForkError, Sandbox\n"
        "with Sandbox('agent', workspace=sys.argv[1]) as sb:\n"
        "    sb.run('1')\n"
        "    if os.fork() == 0:\n"
        "        for use in (lambda: sb.run('1'), lambda: sb.open('x'), sb.close, sb.reset, lambda: sb.set('x', 1)):\n"
        "            try:\n                use()\n                os._exit(1)\n"
        "            except ForkError as e:\n                assert 'Make a new Sandbox' in str(e)\n"
        "        with Sandbox('agent', workspace=sys.argv[1]) as own:\n"
        "            print(own.run('6 * 7').repr, flush=True)\n"
        "        os._exit(0)\n"
        "    print(os.wait()[1], sb.run('43').repr)\n", work
    )
    assert done.stdout.split() == ["42", "0", "43"]


def test_many_at_once(work):
    async def one(i):
        async with cellblock.AsyncSandbox("notebook", workspace=work, policy={"workspace.mode": "ro"}) as sb:
            await sb.run(f"x = {i}")
            await together.wait()
            assert (await sb.run("x")).repr == str(i)

    class Together:
        """Nobody goes on before all have come."""

        def __init__(self, count):
            self.left, self.all = count, asyncio.Event()

        async def wait(self):
            self.left -= 1
            if self.left == 0:
                self.all.set()
            await self.all.wait()

    async def main():
        nonlocal together
        count = 100 if MANY else 8
        together = Together(count)
        await asyncio.gather(*(one(i) for i in range(count)))

    together = None
    asyncio.run(main())


def told_to_end(pid):
    """Whether a SIGTERM waits for a process that is stopped."""
    with open(f"/proc/{pid}/status") as status:
        pending = next(line.split()[1] for line in status if line.startswith("ShdPnd"))
    return int(pending, 16) & 1 << (signal.SIGTERM - 1)


def test_keyboard_interrupt_at_the_programs_end(work):
    """A kernel that does not end at once: Ctrl-C then waits no longer, and leaves neither process nor folder."""
    code = (
        "import os, signal, sys\nfrom cellblock import Sandbox\nsb = Sandbox('agent', workspace=sys.argv[1]).start()\n"
        "os.kill(sb.kernel.pid, signal.SIGSTOP)\nprint(sb.kernel.pid, sb.kernel.connection_file, flush=True)\n"
    )
    client = subprocess.Popen([sys.executable, "-c", code, os.fspath(work)], stdout=subprocess.PIPE, text=True)
    with client:
        pid, file = client.stdout.readline().split()
        children = kernels.below(client.pid)
        while not told_to_end(pid):
            pass
        client.send_signal(signal.SIGINT)
    assert kernels.wait_gone(children) == [] and not os.path.exists(os.path.dirname(file))


@pytest.mark.parametrize("missing", [False, True])
def test_a_kernel_that_can_not_be_watched(work, monkeypatch, missing):
    """It is not left running, and its folder is not left behind."""
    launch = importlib.import_module("cellblock._launch")
    folders, started = [], []
    new_folder = launch._new_folder

    def noted():
        home, folder = new_folder()
        folders.append(folder)
        return home, folder

    def no_more_descriptors(pid):
        started.append(pid)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(launch, "_new_folder", noted)
    with monkeypatch.context() as m:
        m.delattr(os, "pidfd_open") if missing else m.setattr(os, "pidfd_open", no_more_descriptors)
        with pytest.raises(cellblock.SandboxError, match="no os.pidfd_open" if missing else "Too many open files"):
            cellblock.Sandbox("agent", workspace=work).start()
    assert not any(folder.exists() for folder in folders) and not any(psutil.pid_exists(pid) for pid in started)
    assert len(folders) == len(started) == (0 if missing else 1)
    with pytest.raises(ValueError, match="null byte"):
        launch.Process(["a\0b"], launch.find_binary())
    assert not any(folder.exists() for folder in folders) and folders


def test_a_folder_that_can_not_be_made_or_locked(monkeypatch):
    launch = importlib.import_module("cellblock._launch")
    made, mkdtemp = [], launch.tempfile.mkdtemp

    def noted(**how):
        made.append(mkdtemp(**how))
        return made[-1]

    def refused(*_, **__):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(launch, "_home", None)
    for where, name, how in ((launch.tempfile, "mkdtemp", refused), (fcntl, "flock", refused)):
        with monkeypatch.context() as m:
            m.setattr(launch.tempfile, "mkdtemp", noted)
            m.setattr(where, name, how)
            with pytest.raises(cellblock.SandboxError, match="no folder for a kernel can be made: .*No locks"):
                launch.Process([], launch.find_binary())
    assert len(made) == 1 and not os.path.exists(made[0]) and launch._home is None


def test_a_thread_that_a_start_needs_and_does_not_get(work, monkeypatch):
    threads = importlib.import_module("cellblock._threads")

    def refused(self):
        raise RuntimeError("can't start new thread")

    async def main():
        sb = cellblock.AsyncSandbox("notebook", workspace=work)
        with monkeypatch.context() as m, pytest.raises(cellblock.SandboxError, match="no thread can be started"):
            m.setattr(threading.Thread, "start", refused)
            await sb.start()
        assert not threads._under_way
        async with sb:
            assert (await sb.run("1")).repr == "1"

    asyncio.run(main())


def test_folders_of_programs_that_were_killed_are_swept(tmp_path, monkeypatch):
    """Those that nobody holds: full ones, and empty ones that are not just being made."""
    launch = importlib.import_module("cellblock._launch")
    names = {"full": True, "old": True, "new": False, "held": False}
    for name in names:
        (tmp_path / (launch.PREFIX + name)).mkdir()
    (tmp_path / (launch.PREFIX + "full") / "1").mkdir()
    (tmp_path / (launch.PREFIX + "held") / "1").mkdir()
    os.utime(tmp_path / (launch.PREFIX + "old"), (1, 1))
    held = os.open(tmp_path / (launch.PREFIX + "held"), os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        launch._Home._sweep(str(tmp_path))
    finally:
        os.close(held)
    assert {name: not (tmp_path / (launch.PREFIX + name)).exists() for name in names} == names


def test_a_folder_that_something_has_removed_is_made_again():
    launch = importlib.import_module("cellblock._launch")
    home, first = launch._new_folder()
    shutil.rmtree(home.path)
    other, second = launch._new_folder()
    assert second.is_dir() and other.path != home.path
    home.left(first)
    home.left(first)  # those of other kernels in it
    other.left(second)
    assert not os.path.exists(other.path)
