"""Host tools, called by real cells: sync and async, from threads and branches, over deaths, interrupts and limits."""

import asyncio
import concurrent.futures
import contextvars
import dataclasses
import threading
from typing import Any

import pytest

pytest.importorskip("msgspec")
from cellblock import AsyncSandbox, Sandbox, ToolError, tool  # noqa: E402
from cellblock._session import Session  # noqa: E402

import eager  # noqa: E402
from toolcalls import add, later  # noqa: E402

HARMLESS = ("HostToolError", "TypeError", "ValueError", "RecursionError", "UnicodeEncodeError")
TMPFS = {"policy": {"workspace.mode": "tmpfs"}}
PATIENT = {**TMPFS["policy"], "timeout.interrupt": 0}  # an interrupt is waited for, however slow the machine is


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@dataclasses.dataclass
class Hit:
    url: str
    rank: int = 1


def test_nothing_is_kept_of_calls_that_were_answered():
    kept = []

    @tool
    def look() -> None:
        (run,) = sb._a._session._runs.values()
        kept.append(len(run.asked))

    with Sandbox("agent", tools=[look], **TMPFS) as sb:
        sb.run("for n in range(20): look()", check=True)
    assert kept == [1] * 20


def test_questions_that_are_answered_at_once():
    """Where tasks are eager an answer that waits for nothing is there before anybody knows of its task."""

    async def main():
        asyncio.get_running_loop().set_task_factory(eager.factory("Session._answer"))
        async with AsyncSandbox("agent", tools=[add], **TMPFS) as sb:
            for _ in range(2):
                r = await sb.run("try:\n    input()\nexcept EOFError:\n    print(add(1))", check=True)
                assert r.stdout == "3\n"

    asyncio.run(main())


def test_results_that_are_too_large_for_a_message():
    @tool(max_bytes=1 << 30)
    def large() -> str:
        return "x" * (70 << 20)

    with Sandbox("agent", tools=[large], timeout=60, **TMPFS) as sb:
        r = sb.run("try:\n    large()\nexcept Exception as e:\n    print(type(e).__name__, e)")
        assert r.ok and "limits.message allows 16777216" in r.stdout
        assert sb.run("6 * 7").repr == "42"


def test_of_results_together_the_largest_make_way():
    @tool(max_bytes=1 << 20)
    async def text(n: int) -> str:
        return "\u00fc" * n

    with Sandbox("agent", tools=[text], policy={**TMPFS["policy"], "limits.message": "64K"}) as sb:
        assert sb.run("len(await text(25_000))", check=True).value == 25_000  # no room for six bytes a character
        code = ("import asyncio\nfound = await asyncio.gather(*map(text, (5000, 31_000, 0, 10_000)), "
                "return_exceptions=True)\n[len(f) if isinstance(f, str) else str(f) for f in found]")
        first, largest, *others = sb.run(code, check=True).value
        assert (first, *others) == (5000, 0, 10_000) and "limits.message allows 65536" in largest


def test_a_result_that_the_kernel_would_refuse_costs_its_call_alone():
    @tool
    async def table(outer: int, inner: int) -> Any:
        return {**dict.fromkeys(map(str, range(outer - 1)), 0), "in": dict.fromkeys(map(str, range(inner)), 0)}

    @tool
    async def number(bits: int) -> int:
        return -(1 << bits)

    with Sandbox("agent", tools=[table, number, later], **TMPFS) as sb:
        code = ("import asyncio\nfound = await asyncio.gather(table(1, 60_001), table(30_000, 30_001), number(14_284), "
                "table(10_000, 40_000), number(14_279), later(1), return_exceptions=True)\n"
                "[len(f['in']) if isinstance(f, dict) else str(f) for f in found]")
        r = sb.run(code, check=True)
        assert all("ToolResultError" in f and "more than 50000 keys" in f for f in r.value[:2]), r.value
        assert "4300 digits" in r.value[2] and r.value[3:] == [40_000, str(-(1 << 14_279)), "1"]
        assert [c["completed"] for c in r.calls] == [True] * 6


def test_calls_from_a_cell():
    @tool
    def search(query: str, limit: int = 5) -> list[Hit]:
        """Searches."""
        return [Hit(query, n) for n in range(limit)]

    with Sandbox("agent", tools=[add, later, search], **TMPFS) as sb:
        assert sb.run("add(1), add(1, 5), add(a=2, b=3), add.__doc__.splitlines()[0]", check=True).repr == (
            "(3, 6, 5, 'The sum.')")
        r = sb.run("hits = search('jupyter', limit=2); [h['url'] for h in hits]", check=True)
        assert r.repr == "['jupyter', 'jupyter']" and [c["tool"] for c in r.calls] == ["search"]
        assert r.calls[0]["completed"]
        assert sb.run("await later({'x': [1, None]})", check=True).repr == "{'x': [1, None]}"
        code = "import asyncio; await asyncio.gather(*[later(n) for n in range(20)])"
        assert sb.run(code, check=True).repr == str(list(range(20)))
        code = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool: found = sorted(pool.map(add, range(20)))
found == list(range(2, 22))
"""
        assert sb.run(code, check=True).repr == "True"


def test_errors_in_a_cell():
    @tool
    def fails() -> None:
        raise LookupError("nothing there")

    with Sandbox("agent", tools=[add, fails], **TMPFS) as sb:
        r = sb.run("fails()")
        assert (r.error.name, r.error.value, r.fault) == ("HostToolError", "LookupError: nothing there", "code")
        r = sb.run("try: add('x')\nexcept HostToolError as e: print(e)")
        assert r.stdout == "ValueError: arguments of add: Expected `int`, got `str` - at `a`\n"
        assert sb.run("no_tool()").error.name == "NameError"
        assert sb.run("add(1)", check=True).repr == "3"


def test_tools_outlive_rollback_and_death():
    with Sandbox("agent", tools=[add], **TMPFS) as sb:
        sb.run("x = 1", check=True)
        r = sb.run("add(1); import os; os._exit(3)")
        assert r.error.name == "KernelDiedError" and r.calls[0]["tool"] == "add" and r.calls[0]["completed"]
        assert "add" in r.error.value
        assert sb.run("x, add(1)", check=True).repr == "(1, 3)"
        sb.checkpoint("clean")
        sb.run("x = 2; add(1)", check=True)
        sb.rollback("clean")
        assert sb.run("x, add(4)", check=True).repr == "(1, 6)"
        with sb.branch("clean") as branch:
            assert branch.run("add(5)", check=True).repr == "7"
        sb.reset()
        assert sb.run("add(6)", check=True).repr == "8"


def test_async_sandbox_runs_tools_on_the_callers_loop():
    async def main():
        loop, var = asyncio.get_running_loop(), contextvars.ContextVar("var", default="unset")

        @tool
        async def where() -> list:
            return [asyncio.get_running_loop() is loop, var.get()]

        @tool
        def thread() -> list:
            return [threading.current_thread() is threading.main_thread(), var.get()]

        async with AsyncSandbox("agent", tools=[where, thread], **TMPFS) as sb:
            var.set("mine")
            assert (await sb.run("await where()", check=True)).repr == "[True, 'mine']"
            assert (await sb.run("thread()", check=True)).repr == "[False, 'mine']"

    asyncio.run(main())


def test_context_variables_of_a_sync_caller():
    var = contextvars.ContextVar("var", default="unset")

    @tool
    def thread() -> str:
        return var.get()

    @tool
    async def loop() -> str:
        return var.get()

    with Sandbox("agent", tools=[thread, loop], **TMPFS) as sb:
        for value in ("one", "two"):
            var.set(value)
            assert sb.run("thread(), await loop()", check=True).repr == f"('{value}', '{value}')"


def test_a_tool_that_runs_code_on_its_own_sandbox_raises_at_once():
    said = []

    @tool
    def again() -> None:
        try:
            sb.run("1")
        except ToolError as e:
            said.append(str(e))
            raise

    with Sandbox("agent", tools=[again], **TMPFS) as sb:
        r = sb.run("again()")
        assert r.error.name == "HostToolError" and r.error.value.startswith("ToolError: ")
        assert len(said) == 1 and sb.run("1", check=True).repr == "1"


def test_a_tool_uses_files_and_commands_from_threads_of_its_own():
    """In copies of its context: of others nobody knows that the cell waits for them."""
    threads = concurrent.futures.ThreadPoolExecutor()

    @tool
    def read(names: list[str]) -> list[str]:
        found = [threads.submit(contextvars.copy_context().run, sb.read_file, name) for name in names]
        said = threads.submit(contextvars.copy_context().run, sb.run_command, ["echo", "hi"])
        return [f.result(60).decode() for f in found] + [said.result(60).stdout]

    with threads, Sandbox("agent", tools=[read], **TMPFS) as sb:
        sb.write_file("a", "1")
        sb.write_file("b", "2")
        assert sb.run("read(['a', 'b'])", check=True).value == ["1", "2", "hi\n"]


def test_two_sandboxes_whose_tools_use_each_other():
    """What waits for the other's cell can't wait for its own: it is refused, also two sandboxes further on."""

    @tool
    async def ask_b() -> str:
        return (await b.run("await ask_a()", check=True)).value

    @tool
    async def ask_a() -> str:
        with pytest.raises(ToolError, match="waits for the tool"):
            await a.run("1")
        with pytest.raises(ToolError, match="waits for the tool"):
            await a.checkpoint("c")
        return (await a.read_file("f")).decode()

    async def main():
        async with a, b:
            await a.write_file("f", "content")
            assert (await a.run("await ask_b()", check=True)).value == "content"
            assert (await a.run("1", check=True)).value == 1

    a, b = AsyncSandbox("agent", tools=[ask_b], **TMPFS), AsyncSandbox("agent", tools=[ask_a], **TMPFS)
    asyncio.run(asyncio.wait_for(main(), 60))


def test_cancelling_a_run_cancels_its_tools():
    async def main():
        began, ended = asyncio.Event(), asyncio.Event()

        @tool
        async def hangs() -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        async with AsyncSandbox("agent", tools=[hangs, add], grace=60, policy=PATIENT) as sb:
            await sb.run("x = 1", check=True)
            task = asyncio.ensure_future(sb.run("x = 2\nawait hangs()"))
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await ended.wait()
            assert (await sb.run("x, add(1)", check=True)).repr == "(2, 3)"

    asyncio.run(asyncio.wait_for(main(), 120))


def test_approval_and_limits():
    asked = []

    def approve(call):
        asked.append(str(call))
        return call.arguments["path"] == "fine" or "only fine things"

    @tool(approve=approve, max_calls=2)
    def delete(path: str) -> str:
        return "deleted"

    with Sandbox("agent", tools=[delete], **TMPFS) as sb:
        assert sb.run("delete('fine')", check=True).repr == "'deleted'"
        r = sb.run("delete('\\x1b[2Kfine')")
        assert r.error.value == "ToolRefusedError: delete was refused: only fine things"
        assert asked == ['delete(path="fine")', 'delete(path="\\x1b[2Kfine")']
        r = sb.run("[delete('fine') for _ in range(3)]")
        assert r.error.value.startswith("ToolLimitError") and [c["completed"] for c in r.calls] == [True, True, False]
        assert sb.run("delete('fine')", check=True).repr == "'deleted'"  # counted by run


def test_another_sandbox_has_tools_of_its_own():
    with Sandbox("agent", tools=[add], **TMPFS) as a, Sandbox("agent", **TMPFS) as b:
        assert a.run("add(1)", check=True).repr == "3"
        assert b.run("add(1)").error.name == "NameError"


def test_what_a_hostile_cell_can_ask():
    """Through the wrapper's own reach: huge, deep and odd arguments get an error in the cell, and the host goes on."""
    with Sandbox("agent", tools=[add, later], **TMPFS) as sb:
        for code in (
            "await later('x' * (5 << 20))", "await later(float('nan'))", "await later(object())", "add(1, 2, 3)",
            "add(**{'\\u202e': 1})", "x = []; x.append(x); await later(x)", "await later('\\ud800')",
            "x = 1\nfor _ in range(100): x = [x]\nawait later(x)", "add(1.5)",
        ):
            r = sb.run(code)
            assert not r.ok and r.error.name in HARMLESS, code
            assert r.state == "kept" and sb.run("add(1)", check=True).repr == "3"


def test_what_never_ran_or_not_to_its_end_is_not_called_completed(make):
    async def endless():
        await asyncio.sleep(1000)

    def fails():
        raise ValueError

    def odd():
        return object()

    def pay(amount: int):
        return amount

    refused = tool(name="refused", approve=lambda call: False)(pay)
    slow = tool(timeout=0.1)(endless)
    sb = make("agent", tools=[refused, slow, fails, odd, pay])
    code = "for call in (lambda: refused(1), lambda: pay(), fails, odd, lambda: pay(1)):\n    try: call()\n"
    code += "    except Exception: pass\ntry: await endless()\nexcept Exception: pass\n"
    r = sb.run(code)
    assert r.ok and [(c["tool"], c["completed"]) for c in r.calls] == [
        ("refused", False), ("pay", False), ("fails", True), ("odd", True), ("pay", True), ("endless", False)
    ]
    r = sb.run(code + "import os\nos._exit(1)")
    said = r.error.value.partition("host tools had completed, and that is not undone:")[2]
    assert said.count("(call") == 3 and "refused" not in said and "endless" not in said


def test_whether_a_call_completed_is_not_known_where_its_answer_was_refused(make, monkeypatch):
    async def no_json(self, calls):
        return "no JSON"

    sb = make("agent", tools=[add], **TMPFS)
    sb.run("x = 0")
    monkeypatch.setattr(Session, "_called", no_json)
    r = sb.run("try: add(1)\nexcept HostToolError as e: print(e)")
    assert "; not known whether it completed" in r.stdout
    assert [(c["tool"], c["completed"]) for c in r.calls] == [("add", None)]
    sb.rollback()
    assert [(c["tool"], c["completed"]) for c in sb.last.calls] == [("add", None)]
    assert "(call 1 of cell [2]; not known whether it completed)" in sb.last.stderr
