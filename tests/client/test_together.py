"""A sandbox that several use at once, and users that give up: every answer to who asked, and nothing is left."""

import asyncio
import contextlib
import functools
import os
import threading
import time
import types

import psutil
import pytest

import cellblock
from cellblock import _loop

pytestmark = pytest.mark.once
# A kernel that starts a zygote leaves that to a child, which would count as a kernel here once its parent has ended.
EMPTY = {"workspace.mode": "tmpfs", "warm.mode": "off"}


def kernels():
    """Those that this program has started and not ended."""
    found = []
    for p in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [p.pid] if p.name() == "cellblock" else []
    return found


def open_files():
    return len(os.listdir("/proc/self/fd"))


async def used(work, **how):
    async with cellblock.AsyncSandbox("agent", policy=EMPTY, **how) as sb:
        return await work(sb)


@functools.cache
def settled():
    """What is kept for the next one is there."""
    asyncio.run(used(lambda sb: sb.run("1")))


def alone(work, **how):
    """Runs work(sandbox), and sees that nothing is left of it."""
    settled()
    before, files = kernels(), open_files()
    result = asyncio.run(asyncio.wait_for(used(work, **how), 240))
    end = time.monotonic() + 60
    while open_files() > files and time.monotonic() < end:  # ZeroMQ closes sockets in a thread of its own
        time.sleep(0.01)
    assert kernels() == before and open_files() <= files
    return result


@pytest.mark.parametrize("code", ["input('%s')", "await twice('%s')"])
def test_each_line_has_its_own_answers(code):
    async def on_input(prompt, password):
        await asyncio.sleep(0)
        return prompt * 2

    async def twice(text: str) -> str:
        await asyncio.sleep(0)
        return text * 2

    async def work(sb):
        async with sb.branch() as a, sb.branch() as b:
            for i in range(5):
                lines = {"m%d" % i: sb, "a%d" % i: a, "b%d" % i: b}
                said = await asyncio.gather(*(line.run(code % name) for name, line in lines.items()))
                assert [s.value for s in said] == [name * 2 for name in lines]

    alone(work, tools=[twice], on_input=on_input)


def test_who_comes_as_it_starts_finds_all_of_it():
    def add(a: int, b: int) -> int:
        return a + b

    async def work(first):
        for _ in range(3):
            sb = cellblock.AsyncSandbox("agent", policy=EMPTY, tools=[add])
            said = await asyncio.gather(*(sb.run("add(1, 2)") for _ in range(8)))
            assert {s.value for s in said} == {3}
            await sb.close()

    alone(work)


def test_resets_beside_other_uses():
    async def work(sb):
        for pause in (0, 0.001, 0.01, 0.05, 0.1):
            reset = asyncio.ensure_future(sb.reset())
            await asyncio.sleep(pause)
            uses = await asyncio.gather(sb.run("1"), sb.usage(), return_exceptions=True)
            assert all(not isinstance(u, BaseException) or isinstance(u, cellblock.SandboxError) for u in uses), uses
            await reset
            assert len(kernels()) == 1 and (await sb.run("6 * 7")).value == 42
        await asyncio.gather(sb.reset(), sb.reset())
        assert len(kernels()) == 1

    alone(work)


@pytest.mark.parametrize("pause", [0, 0.001, 0.01, 0.03, 0.1, "until the kernel has answered"])
def test_closed_as_it_starts(pause):
    async def work(first):
        sb = cellblock.AsyncSandbox("agent", policy=EMPTY)
        start = asyncio.ensure_future(sb.start())
        if isinstance(pause, str):
            while not sb._session.info:
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(pause)
        await sb.close()
        await asyncio.wait({start})
        assert start.exception() is None or isinstance(start.exception(), cellblock.SandboxClosedError)
        with pytest.raises(cellblock.SandboxClosedError):
            await sb.run("1")
        assert len(kernels()) == 1

    alone(work)


def test_on_input_without_async_runs_in_a_thread():
    def on_input(prompt, password):
        if prompt == "exit":
            raise SystemExit(3)
        return f"{prompt}-{password}-{threading.current_thread() is threading.main_thread()}"

    async def work(sb):
        assert (await sb.run("input('who')")).value == "who-False-False"
        assert (await sb.run("input('exit')")).error.name == "EOFError"
        assert (await sb.run("import getpass; getpass.getpass('key')")).value == "key-True-False"

    alone(work, on_input=on_input)


def test_commands_of_an_openai_agent_run_beside_each_other():
    pytest.importorskip("agents", reason="the OpenAI Agents SDK is tried with Python 3.11")
    from cellblock.openai_agents import CellblockSandboxClient

    async def main():
        client = CellblockSandboxClient()
        session = await client.create()
        async with session:
            first = session._inner._command(["sh", "-c", "mkfifo gate; cat gate"], None, None, {})
            then = "until [ -p gate ]; do sleep 0.05; done; echo went on > gate"
            second = session._inner._command(["sh", "-c", then], None, None, {})
            assert (await asyncio.gather(first, second))[0].stdout == b"went on\n"
        await client.delete(session)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_who_gives_up_before_its_cell_began_interrupts_nobody():
    """And the cell is not begun at all."""
    async def work(sb):
        async def beside(*argv):
            return (await sb._session.request("cellblock_run_request", {"argv": argv}, channel="control")).content

        script = "touch began; while [ -e began ]; do sleep 0.1; done; echo done"
        command = asyncio.ensure_future(sb.run_command(["sh", "-c", script]))
        while "began" not in (await beside("ls"))["stdout"]:
            pass
        waits = asyncio.ensure_future(sb.run("open('ran', 'w')"))
        await asyncio.sleep(0)
        waits.cancel()
        await asyncio.wait({waits})
        assert waits.cancelled() and sb.last.error.name == "AbortedError" and sb.last.fault == "limit"
        assert (await beside("rm", "began"))["returncode"] == 0
        assert (await command).stdout == "done\n"
        assert (await sb.run("import os; os.path.exists('ran')")).value is False

    alone(work)


def test_who_gives_up_a_command_ends_it_and_no_other():
    async def work(sb):
        async def began(*names):
            while not set(names) <= {each.name for each in await sb.list_files(".")}:
                pass

        sb._channel = "control"  # commands and cells at once
        wait = "touch $0; while [ -e $0 ]; do sleep 0.05; done; echo $0"
        one, other = (asyncio.ensure_future(sb.run_command(["sh", "-c", wait, name])) for name in "ab")
        code = "import os, time\nopen('c', 'w').close()\nwhile os.path.exists('c'): time.sleep(0.05)"
        cell = asyncio.ensure_future(sb.run(code))
        await began("a", "b", "c")
        one.cancel()
        await asyncio.wait({one})
        for name in "bc":
            await sb.delete_file(name)
        assert (await other).stdout == "b\n" and (await cell).ok
        assert (await sb.run_command(["ls"])).stdout == "a\n", "the one that was given up did not come to its end"

    alone(work)


def test_branches_that_nobody_waits_for_are_closed():
    async def work(sb):
        async def use():
            async with sb.branch() as b:
                await b.run("1")

        async def left():
            return (await sb._session.request("cellblock_list_branches_request", {})).content["branches"]

        await sb.run("x = 1")
        for pause in (0, 0, 0.001, 0.003, 0.005, 0.01):
            task = asyncio.ensure_future(use())
            await asyncio.sleep(pause)
            task.cancel()
            await asyncio.wait({task})
        b = sb.branch()
        assert [r.ok for r in await asyncio.gather(b.run("1"), b.run("2"))] == [True, True]
        assert len(await left()) <= 2
        await b.close()
        while await left():
            pass

    alone(work)


def test_tools_use_the_sandbox_that_calls_them():
    """Files and commands do; what waits for the cell's end is refused; and after that end all can be done."""
    box = {}

    def read() -> str:
        return box["sb"].read_file("f").decode() + box["sb"].run_command(["echo", "hi"]).stdout

    def keep() -> str:
        return str(box["sb"].checkpoint("c"))

    async def later() -> None:
        async def then():
            while box["run"]._runs:
                await asyncio.sleep(0.01)
            box["said"] = await box["later"].run("1")

        box["task"] = asyncio.ensure_future(then())

    with cellblock.Sandbox("agent", policy=EMPTY, tools=[read, keep]) as sb:
        box["sb"] = sb
        sb.write_file("f", "content ")
        assert sb.run("read()").value == "content hi\n"
        refused = sb.run("keep()").error
        assert refused.value.startswith("ToolError: ") and "waits for the tool" in refused.value, refused

    async def work(sb):
        box["later"], box["run"] = sb, sb._session
        assert (await sb.run("await later()")).ok
        await box["task"]
        assert box["said"].value == 1

    alone(work, tools=[later])


def test_the_loop_of_windows_can_hear_sockets(monkeypatch):
    """Its usual one has no add_reader. Here the loops are one kind: what is seen is which of them is made."""
    monkeypatch.setattr(_loop, "_loop", None)
    monkeypatch.setattr(_loop, "_thread", None)
    monkeypatch.setattr(_loop, "sys", types.SimpleNamespace(platform="win32"))
    monkeypatch.setattr(_loop.asyncio, "new_event_loop", lambda: pytest.fail("the usual loop"))
    loop = _loop.background()
    loop.call_soon_threadsafe(loop.stop)
    _loop._thread.join()
    loop.close()


def test_stdin_of_commands(make):
    sb = make("agent")
    for given in ("ab", b"ab", bytearray(b"ab"), memoryview(b"ab")):
        assert sb.run_command(["cat"], stdin=given).stdout == "ab"
    for wrong in (5, ["ab"]):
        with pytest.raises(TypeError, match="stdin is"):
            sb.run_command(["cat"], stdin=wrong)
