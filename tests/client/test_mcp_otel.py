"""Traces over MCP: one from the client's span to the tool of the host, by the SDK's own middleware (docs/mcp.md)."""

import asyncio
import json
import os
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("mcp", reason="the MCP SDK needs Python 3.10")
pytest.importorskip("msgspec")
import spans as lab  # noqa: E402
from mcp.client import Client  # noqa: E402
from mcp.client.stdio import StdioServerParameters  # noqa: E402
from opentelemetry import trace  # noqa: E402
from spans import is_child, traceparent  # noqa: E402

import kernels  # noqa: E402
from cellblock import AsyncSandbox, tool  # noqa: E402
from cellblock.mcp._server import Options, Server  # noqa: E402

pytestmark = pytest.mark.once

MODES = ["legacy", "2026-07-28"]


@tool
def look_up(word: str) -> str:
    with trace.get_tracer("test").start_as_current_span("inner"):
        return word


@pytest.mark.parametrize("mode", MODES)
def test_one_trace_in_one_process(nothing_left, mode):
    folder = nothing_left / f"one-{mode}"
    kernels.let_in(folder / "work")
    log = folder / "audit.jsonl"
    policy = {"audit.file": os.fspath(log)}

    async def main():
        server = Server(lambda s: AsyncSandbox("agent", workspace=folder / "work", policy=policy, tools=[look_up]),
                        Options())
        async with Client(server.mcp, mode=mode) as client:
            with spans.tracer.start_as_current_span("mine"):
                done = await client.call_tool("run_python", {"code": "look_up('a')"})
            assert done.structured_content["repr"] == "'a'", done
            await client.call_tool("run_python", {"code": "1 / 0"})
        await server.close()

    with lab.provided() as spans:
        asyncio.run(asyncio.wait_for(main(), 240))
        run, failed = spans.named("cellblock.run")
        way = spans.way("inner")
        assert way[:3] == ["inner", "execute_tool look_up", "cellblock.run"] and way[-1] == "mine", way
        assert [s.rpartition(" ")[2] for s in way[3:-1]] in (["run_python"], ["run_python"] * 2), way
        served = [s for s in spans.all if s.kind == trace.SpanKind.SERVER and s.name == "tools/call run_python"]
        assert len(served) == 2 and is_child(run, served[0]) and is_child(failed, served[1])
        assert failed.context.trace_id != run.context.trace_id
        assert failed.attributes["error.type"] == "ZeroDivisionError"
        events = [json.loads(line) for line in log.read_text().splitlines()]
        assert [e["traceparent"] for e in events if e["event"] == "cell"] == [traceparent(run), traceparent(failed)]


SITE = """
import json, os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

class ToFile(SpanExporter):
    def export(self, spans):
        with open(f"{FOLDER}/spans.{os.getpid()}", "a") as f:
            for s in spans:
                f.write(json.dumps(json.loads(s.to_json())) + "\\n")
        return SpanExportResult.SUCCESS

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ToFile()))
trace.set_tracer_provider(provider)
"""
OTHER = """
from mcp.server import MCPServer
server = MCPServer("other")

@server.tool()
def look_up(word: str) -> str:
    "Looks a word up."
    return word

server.run("stdio")
"""


def test_one_trace_through_three_processes(nothing_left):
    """From this client over the server's process to another server's, whose tool the code calls."""
    folder = nothing_left / "three"
    kernels.let_in(folder / "work")
    (folder / "sitecustomize.py").write_text(SITE.replace("{FOLDER}", str(folder)))
    (folder / "other.py").write_text(OTHER)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    (folder / "proxy.json").write_text(json.dumps({"mcpServers": {"other": {
        "command": sys.executable, "args": [str(folder / "other.py")], "cwd": str(folder),
        "env": {"PYTHONPATH": str(folder)}}}}))
    server = StdioServerParameters(command=sys.executable, cwd=str(folder / "work"), env=environment,
                                   args=["-m", "cellblock.mcp", "--proxy", str(folder / "proxy.json")])

    async def main():
        async with Client(server) as client:
            with spans.tracer.start_as_current_span("mine"):
                done = await client.call_tool("run_python", {"code": "look_up('a')"})
            assert done.structured_content["ok"], done

    with lab.provided() as spans:
        asyncio.run(asyncio.wait_for(main(), 240))
        mine = spans.one("mine")
        asked, = (s for s in spans.all if is_child(s, mine) and s.name.endswith("tools/call run_python"))
    files = list(folder.glob("spans.*"))
    assert len(files) == 2
    far = [json.loads(line) for f in files for line in f.read_text().splitlines()]
    trace_id = f"0x{mine.context.trace_id:032x}"
    below, found = f"0x{asked.context.span_id:016x}", []
    while True:
        children = [s for s in far if s["parent_id"] == below and s["context"]["trace_id"] == trace_id]
        if not children:
            break
        child, = children
        found.append((child["name"], child["kind"].rpartition(".")[2]))
        below = child["context"]["span_id"]
    assert [k for _, k in found] == ["SERVER", "INTERNAL", "INTERNAL", "CLIENT", "SERVER"], found
    assert [n for n, k in found if k == "INTERNAL"] == ["cellblock.run", "execute_tool look_up"]
    assert found[0][0] == "tools/call run_python" and found[-1][0] == "tools/call look_up"


def test_which_program_takes_a_provider_from_the_environment(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(f"open({str(tmp_path / 'taken')!r}, 'w')")
    taken = []
    for program in ([sys.executable, "-m", "cellblock.mcp"], [shutil.which("cellblock"), "mcp"]):
        done = subprocess.run([*program, "--sessions", "0"], capture_output=True, text=True, timeout=120, cwd="/",
                              env={**os.environ, "PYTHONPATH": str(tmp_path)})
        assert done.returncode == 2 and "less than 1" in done.stderr
        taken.append((tmp_path / "taken").exists())
        (tmp_path / "taken").unlink(missing_ok=True)
    assert taken == [True, False]
