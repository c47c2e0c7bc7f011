"""Spans of OpenTelemetry: runs, host tools, states that come back (docs/client.md, "Traces")."""

import asyncio
import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("msgspec")
import spans as lab  # noqa: E402
from opentelemetry.sdk.trace import TracerProvider, sampling  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags, use_span  # noqa: E402
from spans import is_child, traceparent  # noqa: E402

import cellblock  # noqa: E402
import kernels  # noqa: E402
from cellblock._session import Serving, serving  # noqa: E402
from cellblock._tools import Dispatcher, tool  # noqa: E402

pytestmark = pytest.mark.once

SECRET = "sk-never-in-a-span-55217"


@pytest.fixture
def spans():
    with lab.provided() as found:
        yield found


@pytest.fixture
def log(nothing_left, request):
    folder = nothing_left / f"log-{request.node.name}".replace("[", "-").strip("]")
    folder.mkdir()
    return folder / "audit.jsonl"


def marks(log, event="cell"):
    return [e.get("traceparent") for e in map(json.loads, log.read_text().splitlines()) if e["event"] == event]


def test_a_run(make, spans, log):
    sb = make(policy={"audit.file": os.fspath(log)})
    with spans.tracer.start_as_current_span("mine"):
        assert sb.run("x = 40\nx + 2").repr == "42"
    sb.run("1")
    sb.close()
    run, other = spans.named("cellblock.run")
    assert is_child(run, spans.one("mine")) and other.parent is None
    assert run.kind == SpanKind.INTERNAL and run.status.status_code == StatusCode.UNSET
    said = dict(run.attributes)
    assert said.pop("cellblock.usage.wall_s") > 0 and said.pop("cellblock.usage.memory_peak_bytes") > 0
    assert said.pop("cellblock.usage.cpu_user_s") >= 0 and said.pop("cellblock.usage.cpu_sys_s") >= 0
    session = said.pop("cellblock.session")
    assert said.pop("cellblock.usage.output_bytes") > 0
    assert said == {"cellblock.execution_count": 1, "cellblock.status": "ok", "cellblock.state": "kept"}
    assert run.instrumentation_scope.name == "cellblock" and not run.events
    assert marks(log) == marks(log, "cell_end") == [traceparent(run), traceparent(other)]
    cells = [e for e in map(json.loads, log.read_text().splitlines()) if e["event"] == "cell"]
    assert {c["session"] for c in cells} == {session}


def test_an_error(make, spans):
    sb = make()
    sb.run("1 / 0")
    sb.run("class Odd(Exception): pass\nOdd.__name__ = 'a text, ' * 50\nraise Odd")
    sb.run("while True: pass", timeout=0.5)
    division, odd, late = spans.named("cellblock.run")
    assert [s.status.status_code for s in (division, odd, late)] == [StatusCode.ERROR] * 3
    assert [s.attributes["error.type"] for s in (division, odd, late)] == [
        "ZeroDivisionError", "_OTHER", "CellTimeoutError"]
    assert division.attributes["cellblock.status"] == "error" and division.attributes["cellblock.fault"] == "code"
    assert late.attributes["cellblock.limit"] == "time" and late.attributes["cellblock.fault"] == "limit"
    assert not division.events and division.status.description is None


def test_host_tools(make, spans):
    @tool
    def search(query: str) -> list:
        """Looks it up."""
        with spans.tracer.start_as_current_span("inner"):
            return [query]

    @tool(timeout=60)
    async def later(n: int) -> int:
        await asyncio.sleep(0)
        return n

    @tool
    def fails() -> None:
        raise LookupError(SECRET)

    @tool(approve=lambda call: False)
    def forbidden() -> None:
        pass

    sb = make(tools=[search, later, fails, forbidden])
    done = sb.run("search('a'), await later(1), await later(2)")
    assert done.ok, done
    sb.run("try:\n    fails()\nexcept Exception: pass\nforbidden()")
    first, second = spans.named("cellblock.run")
    looked = spans.one("execute_tool search")
    assert is_child(looked, first) and is_child(spans.one("inner"), looked)
    assert looked.kind == SpanKind.INTERNAL and looked.status.status_code == StatusCode.UNSET
    assert dict(looked.attributes) == {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": done.calls[0]["id"],
    }
    awaited = spans.named("execute_tool later")
    assert len(awaited) == 2 and all(is_child(s, first) for s in awaited)
    for name, error in (("fails", "LookupError"), ("forbidden", "ToolRefusedError")):
        failed = spans.one(f"execute_tool {name}")
        assert is_child(failed, second) and failed.attributes["error.type"] == error
        assert failed.status.status_code == StatusCode.ERROR and not failed.events
    assert second.attributes["error.type"] == "HostToolError"


def test_calls_at_once(make, spans):
    """Several in one round trip, that run beside each other: each is in its own span."""
    here = []

    @tool
    async def meet(n: int) -> int:
        here.append(n)
        while len(here) < 3:
            await asyncio.sleep(0)
        with spans.tracer.start_as_current_span(f"inner {n}"):
            return n

    done = make(tools=[meet]).run("import asyncio\nawait asyncio.gather(meet(0), meet(1), meet(2))")
    assert done.repr == "[0, 1, 2]", done
    met = spans.named("execute_tool meet")
    assert len(met) == 3 and all(is_child(s, spans.one("cellblock.run")) for s in met)
    inner = [spans.one(f"inner {n}") for n in range(3)]
    assert [sum(is_child(i, s) for i in inner) for s in met] == [1, 1, 1]


def test_nothing_of_what_was_said(make, spans):
    @tool
    def say(text: str) -> str:
        return SECRET + text

    @tool
    def fails(text: str) -> str:
        raise ValueError(SECRET + text)

    sb = make(tools=[say, fails], on_input=None)
    key = f"key = {SECRET!r}\n"
    sb.run(key + "print(key, say(key))\nkey", env={"KEY": SECRET})
    sb.run(key + "import sys; sys.stderr.write(key)\nraise RuntimeError(key)")
    sb.run(key + "fails(key)")
    sb.run(key + "import os; os._exit(3)")
    sb.set("x", SECRET)
    assert sb.get("x") == SECRET
    sb.run_command(["sh", "-c", f"echo {SECRET}"], env={"KEY": SECRET})
    assert len(spans.named("cellblock.run")) == 4 and len(spans.named("cellblock.variable")) == 2
    assert SECRET not in spans.text() and "print(" not in spans.text()
    with spans.tracer.start_as_current_span(SECRET):
        pass
    assert SECRET in spans.text()


def test_a_state_that_comes_back(make, spans):
    sb = make(policy={"transactions.mode": "always", "transactions.keep": 5})
    sb.run("x = 1")
    sb.checkpoint("clean")
    dead = sb.run("x = 2\nimport os; os._exit(3)")
    assert dead.state == "restored"
    sb.run("x = 3")
    assert sb.rollback("clean") == [3]
    sb.run("x = 4")
    sb.run("%rollback")
    _, fell, _, _, back = spans.named("cellblock.run")
    event, = fell.events
    assert event.name == "cellblock.restored" and fell.attributes["error.type"] == "KernelDiedError"
    assert dict(event.attributes) == {"cellblock.restored_to": 1, "cellblock.undone": (2,)}
    assert fell.attributes["cellblock.state"] == "restored"
    rolled = spans.one("cellblock.rollback")
    assert rolled.attributes["cellblock.checkpoint"] == "clean" and rolled.status.status_code == StatusCode.UNSET
    assert dict(rolled.events[0].attributes) == {"cellblock.restored_to": 1, "cellblock.undone": (3,)}
    assert back.attributes["cellblock.status"] == "ok" and back.events[0].name == "cellblock.restored"
    with pytest.raises(cellblock.CheckpointError):
        sb.rollback("no such")
    assert spans.named("cellblock.rollback")[1].attributes["error.type"] == "CheckpointError"


def test_commands_and_files(make, spans, log):
    sb = make(policy={"audit.file": os.fspath(log)})
    with spans.tracer.start_as_current_span("mine") as mine:
        assert sb.run_command(["sh", "-c", "exit 3"]).returncode == 3
        sb.write_file("a", "b")
        with pytest.raises(FileNotFoundError):
            sb.run_command(["no-such-program"])
    sb.close()
    ran, failed = spans.named("cellblock.run_command")
    assert is_child(ran, spans.one("mine")) and ran.attributes["process.exit.code"] == 3
    assert failed.attributes["error.type"] == "FileNotFoundError"
    assert marks(log, "command") == [traceparent(ran), traceparent(failed)]
    assert marks(log, "file") == [traceparent(mine)]


def test_branches_and_streams(make, spans):
    sb = make()
    with spans.tracer.start_as_current_span("mine"):
        events = list(sb.stream("print(1)"))
        with sb.branch() as b:
            b.run("2")
    assert events[-1].kind == "end"
    streamed, branched = spans.named("cellblock.run")
    assert is_child(streamed, spans.one("mine")) and is_child(branched, spans.one("mine"))
    assert "cellblock.branch" not in streamed.attributes and branched.attributes["cellblock.branch"]


def test_a_kernel_that_dies(make, spans):
    sb = make()
    sb.run("1")

    def end(text):
        os.kill(sb.kernel.pid, 9)

    with pytest.raises(cellblock.SandboxError):
        sb.run("print('ready', flush=True)\nwhile True: pass", on_output=end)
    lost = spans.named("cellblock.run")[1]
    assert lost.attributes["error.type"] == "SandboxError" and lost.attributes["cellblock.status"] == "error"
    assert lost.attributes["cellblock.state"] == "lost" and lost.events[0].name == "cellblock.lost"


def test_a_run_that_is_cancelled(nothing_left, spans):
    async def main():
        async with cellblock.AsyncSandbox("agent", workspace=kernels.let_in(nothing_left / "cancelled")) as sb:
            heard = asyncio.Event()

            async def listen():
                async for event in sb.stream("print('ready', flush=True)\nwhile True: pass"):
                    heard.set()

            with spans.tracer.start_as_current_span("mine"):
                task = asyncio.ensure_future(listen())
                await asyncio.wait_for(heard.wait(), 60)
                task.cancel()
                await asyncio.wait({task})
            return sb.last

    last = asyncio.run(main())
    run = spans.one("cellblock.run")
    assert is_child(run, spans.one("mine")) and run.status.status_code == StatusCode.ERROR
    assert run.attributes["error.type"] == last.error.name == "KeyboardInterrupt"


def test_what_is_not_sampled_is_marked_so(make, log):
    exporter = InMemorySpanExporter()
    with lab.provided(TracerProvider(sampler=sampling.ALWAYS_OFF), exporter) as spans:
        sb = make(policy={"audit.file": os.fspath(log)})
        assert sb.run("1").ok
        sb.close()
        assert not spans.all
    mark, = marks(log)
    assert mark.startswith("00-") and int(mark[-2:], 16) & TraceFlags.SAMPLED == 0


def test_the_span_of_somebody_else_goes_on(make, log):
    """Without a provider a current span that came from elsewhere is told all the same."""
    far = SpanContext(0x1234, 0x5678, is_remote=True, trace_flags=TraceFlags(1))
    sb = make(policy={"audit.file": os.fspath(log)})
    with use_span(NonRecordingSpan(far)):
        assert sb.run("1").ok
    sb.run("2")
    sb.close()
    assert marks(log) == [f"00-{0x1234:032x}-{0x5678:016x}-01", None]


@pytest.mark.parametrize("call", [
    {"id": "1", "tool": "no_such\x1b[31m", "args": []}, {"id": SECRET * 9, "tool": SECRET}, SECRET, None,
    {"id": [SECRET], "tool": {"a": SECRET}}, {"id": "1\n2", "tool": "search", "args": [SECRET] * 99},
], ids=repr)
def test_calls_of_a_hostile_guest(spans, call):
    @tool
    def search(query: str) -> str:
        return query

    async def main():
        serving.set((Serving(None, "run"),))
        return await Dispatcher([search]).answer([call])

    answer, = asyncio.run(main())
    made, = spans.all
    assert "error" in answer and made.status.status_code == StatusCode.ERROR
    known = isinstance(call, dict) and call["tool"] == "search"
    assert made.name == ("execute_tool search" if known else "execute_tool")
    assert SECRET not in spans.text() and "\x1b" not in spans.text() and "\\n" not in made.attributes.values()


PROGRAM = """
import json, sys
{before}
from cellblock import Sandbox, tool
@tool
def double(n: int) -> int: return 2 * n
with Sandbox("agent", workspace={work!r}, tools=[double], policy={{"audit.file": {log!r}}}) as sb:
    assert sb.run("double(21)").repr == "42"
    assert not sb.run("1 / 0").ok and sb.run_command(["true"]).returncode == 0
    sb.rollback()
{after}
assert "traceparent" not in open({log!r}).read()
print("the end")
"""
WITHOUT = {
    "blocked": ("sys.modules['opentelemetry'] = sys.modules['opentelemetry.trace'] = None", ""),
    "not imported": ("", "assert not [m for m in sys.modules if m.startswith('opentelemetry')]"),
    "no provider": ("import opentelemetry.trace", "assert 'opentelemetry.sdk' not in sys.modules"),
}


@pytest.mark.parametrize("how", WITHOUT)
def test_without_it(nothing_left, how):
    """Without the package, and without a provider, all is as before, and nothing is imported for its sake."""
    folder = nothing_left / how.replace(" ", "-")
    kernels.let_in(folder / "work")
    before, after = WITHOUT[how]
    code = PROGRAM.format(before=before, after=after, work=str(folder / "work"), log=str(folder / "audit.jsonl"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and done.stdout == "the end\n", done.stderr
