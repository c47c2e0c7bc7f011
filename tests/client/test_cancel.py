"""What goes on when its caller has given up: in the kernel, and here."""

import asyncio
import gc
import os
import signal
import threading

import pytest

import cellblock
import kernels

pytestmark = pytest.mark.once
FOREVER = """
print('up', flush=True)
while True:
    try:
        open('never').read()
    except BaseException:
        pass
"""


@pytest.fixture
def work(nothing_left, request):
    folder = nothing_left / request.node.name[-40:].replace("/", "_")
    kernels.let_in(folder)
    os.mkfifo(folder / "never")
    os.mkfifo(folder / "gate")
    return folder


def noted(monkeypatch, session):
    """An event: an interrupt has been sent."""
    sent, send = asyncio.Event(), session._interrupt_one

    def noting(msg_id):
        send(msg_id)
        sent.set()

    monkeypatch.setattr(session, "_interrupt_one", noting)
    return sent


@pytest.mark.parametrize("ask", ["hang()", "input()"])
def test_what_a_cell_asks_that_goes_on_is_answered(work, monkeypatch, ask):
    """It catches all interrupts. Without answers it would wait, and all that come after it."""
    count, gate = [], threading.Event()

    async def main():
        loop, first, second = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

        def hang() -> str:
            count.append(1)
            loop.call_soon_threadsafe((first if len(count) == 1 else second).set)
            gate.wait(60)
            return ""

        code = f"n = 0\nwhile n < 5:\n    n += 1\n    try:\n        {ask}\n    except BaseException:\n        pass"
        async with cellblock.AsyncSandbox(
            "notebook", workspace=work, tools=[hang], on_input=lambda prompt, password: hang()
        ) as sb:
            session = sb.kernel.session

            async def stop(run):
                """As its own, with a grace that ends at the second question."""
                run.interrupted = True
                session._interrupt_one(run.id)
                await second.wait()
                session._interrupt_one(run.id)

            monkeypatch.setattr(session, "_stop", stop)
            task = asyncio.ensure_future(sb.run(code))
            await first.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await asyncio.wait_for(sb.run("n"), 60)).repr == "5"
            assert len(count) == 2 and not session._left and not session._runs

    try:
        asyncio.run(main())
    finally:
        gate.set()


def test_a_second_cancellation_does_not_cut_off_the_stop(work, monkeypatch):
    """The cell is in C code by then: without the interrupt after the grace nothing would end it."""

    async def main():
        async with cellblock.AsyncSandbox("notebook", workspace=work, grace=1) as sb:
            task = asyncio.ensure_future(sb.run("open('gate', 'w').close()\nsum(range(10**15))"))
            await asyncio.get_running_loop().run_in_executor(None, (work / "gate").read_text)
            sent = noted(monkeypatch, sb.kernel.session)
            task.cancel()
            await sent.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert sb.last.partial
            assert (await asyncio.wait_for(sb.run("1"), 60)).repr == "1"
            assert not sb.kernel.session._runs and not sb.kernel.session._left

    asyncio.run(main())


def test_a_kernel_that_ends_as_its_cell_is_given_up(work, monkeypatch):
    async def main():
        up = asyncio.Event()
        async with cellblock.AsyncSandbox("notebook", workspace=work, grace=60) as sb:
            task = asyncio.ensure_future(sb.run(FOREVER, on_output=lambda text: up.set()))
            await up.wait()
            sent = noted(monkeypatch, sb.kernel.session)
            task.cancel()
            await sent.wait()
            os.kill(sb.kernel.pid, signal.SIGKILL)
            with pytest.raises(asyncio.CancelledError):
                await task
            assert sb.last.partial and sb.last.stdout == "up\n"
            assert sb.last.state == "lost" and sb.last.fault == "infrastructure", sb.last
            assert "killed by SIGKILL" in sb.last.error.value

    asyncio.run(main())


async def cancelled_as_it_is_answered(sb, msg_type, request):
    """The kernel has done it, and the reply comes when nobody waits for it any more."""
    session, task = sb.kernel.session, asyncio.ensure_future(request)
    transport = session.connected.transport

    def received(channel, message):
        if message.type == msg_type:
            task.add_done_callback(lambda _: session._receive(channel, message))
            task.cancel()
        else:
            session._receive(channel, message)

    transport._receive = received
    with pytest.raises(asyncio.CancelledError):
        await task
    transport._receive = session._receive
    while sb.last.state != "restored":
        await asyncio.sleep(0)


def test_a_rollback_that_happens_all_the_same(work):
    async def main():
        async with cellblock.AsyncSandbox("notebook", workspace=work) as sb:
            await sb.run("x = 1")
            await sb.checkpoint("c")
            await sb.run("x = 2")
            await cancelled_as_it_is_answered(sb, "cellblock_rollback_reply", sb.rollback("c"))
            assert sb.last.undone == [2] and not sb.kernel.session._pending
            assert (await sb.run("x")).repr == "1"

    asyncio.run(asyncio.wait_for(main(), 120))


def test_an_adoption_that_happens_all_the_same(work):
    async def main():
        async with cellblock.AsyncSandbox("notebook", workspace=work) as sb:
            await sb.run("x = 1")
            async with sb.branch() as branch:
                await branch.run("x = 2")
                await cancelled_as_it_is_answered(sb, "cellblock_adopt_reply", sb.adopt(branch))
                assert branch.closed
                with pytest.raises(cellblock.SandboxError, match="the branch is closed"):
                    await branch.run("1")
            assert (await sb.run("x")).repr == "2"

    asyncio.run(asyncio.wait_for(main(), 120))


def test_nothing_is_kept_of_branches_that_were_closed(work):
    async def main():
        async with cellblock.AsyncSandbox("notebook", workspace=work) as sb:
            async with sb.branch() as one, sb.branch() as two:
                await asyncio.gather(sb.run("1"), one.run("1"), two.run("1"))
                await sb.adopt(two)
            await one.close()
            await two.close()
            assert list(sb.kernel.session._lines) == [None]

    asyncio.run(main())


def test_a_stream_left_early_after_its_run_failed(work):
    """What it failed with has nobody who could hear of it: asyncio must not tell of that."""
    said = []

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: said.append(context))
        async with cellblock.AsyncSandbox("notebook", workspace=work) as sb:
            events = sb.stream(FOREVER)
            assert (await events.__anext__()).text == "up\n"
            (run,) = (t for t in asyncio.all_tasks() if t.get_coro().__name__ == "_run")
            os.kill(sb.kernel.pid, signal.SIGKILL)
            await asyncio.wait({run})
            del run
            await events.aclose()
            del events
            gc.collect()

    asyncio.run(main())
    assert said == []


def test_an_interrupt_makes_nothing(work):
    async def main():
        sb = cellblock.AsyncSandbox("notebook", workspace=work)
        await sb.interrupt()
        assert sb.kernel.pid is None
        async with sb:
            branch = sb.branch()
            await branch.interrupt()
            assert branch._subshell is None
            await sb.interrupt()
        with pytest.raises(cellblock.SandboxClosedError):
            await sb.interrupt()

    asyncio.run(main())


def test_an_interrupt_as_it_starts_reaches_the_first_cell(work, monkeypatch):
    async def main():
        sb = cellblock.AsyncSandbox("notebook", workspace=work)
        task = asyncio.ensure_future(sb.run("open('gate', 'w').close()\nopen('never').read()"))
        await asyncio.sleep(0)
        interrupt, asked = sb._session.interrupt, []

        async def once_it_runs(subshell):
            await asyncio.get_running_loop().run_in_executor(None, (work / "gate").read_text)
            asked.append(subshell)
            await interrupt(subshell)

        monkeypatch.setattr(sb._session, "interrupt", once_it_runs)
        await sb.interrupt()
        assert (await task).error.name == "KeyboardInterrupt" and asked == [None]
        await sb.close()

    asyncio.run(main())
