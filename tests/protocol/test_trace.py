"""metadata.cellblock.traceparent: in reply and audit log of that request, and nowhere else (docs/messages.md)."""

import json
import re
from pathlib import Path

import jupyter_client
import pytest

pytestmark = [pytest.mark.cellblock_only("no other kernel does this"), pytest.mark.once]
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
MINE = f"00-{TRACE}-{SPAN}-01"
NONE = [
    "", "nonsense", MINE.upper(), MINE + "-", MINE[:-1], f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01",
    "ff" + MINE[2:], MINE + "\n", "x" * 100_000, 5, None, [MINE], {"traceparent": MINE}, True,
]


def marked(value):
    return {"cellblock": {"traceparent": value}}


def told(reply):
    return getattr(reply, "reply", reply).metadata.get("cellblock", {}).get("traceparent")


def lines(log):
    return [json.loads(line) for line in log.read_text().splitlines()]


def traced(log):
    """The events that carry a mark; all of them the same one."""
    found = [e for e in lines(log) if "traceparent" in e]
    assert {e["traceparent"] for e in found} <= {MINE} and log.read_text().count(TRACE) == len(found)
    return [e["event"] for e in found]


@pytest.fixture
def log(nothing_left, request):
    folder = nothing_left / re.sub(r"\W", "_", request.node.name)[:40]
    return folder / "audit.jsonl"


def test_a_cell(start, log):
    k = start(args=["--set", f"audit.file={log}"])
    cell = k.client.run("1", metadata=marked(MINE))
    assert told(cell) == MINE and cell.reply.metadata["cellblock"]["usage"]["wall_s"] > 0
    assert told(k.client.run("1/0", metadata=marked(MINE))) == MINE
    assert told(k.client.run("1")) is None
    k.stop()
    assert traced(log) == ["cell", "cell_end", "cell", "cell_end"]
    assert [e["n"] for e in lines(log) if "traceparent" in e] == [1, 1, 2, 2]


@pytest.mark.parametrize("value", NONE, ids=lambda v: repr(v)[:30])
def test_what_is_none_is_ignored(client, value):
    cell = client.run("6 * 7", metadata=marked(value))
    assert cell.ok and cell.result == "42" and told(cell) is None


def test_a_later_version(client):
    assert told(client.run("1", metadata=marked(f"7a-{TRACE}-{SPAN}-f3-more"))) == MINE


def test_a_cell_that_is_undone(start, log):
    k = start(args=["--set", f"audit.file={log}", "--set", "transactions.mode=always"])
    assert k.client.run("x = 1").ok
    dead = k.client.run("import os; os._exit(3)", metadata=marked(MINE))
    assert dead.reply.metadata["cellblock"]["state"] == "restored" and told(dead) == MINE
    back = k.client.request("cellblock_rollback_request", {}, metadata=marked(MINE))
    assert back.content["status"] == "ok" and told(back) == MINE
    k.stop()
    assert traced(log) == ["cell", "restored", "cell_end", "rolled_back"]


def test_commands_and_files(start, log):
    k = start(args=["--set", f"audit.file={log}"])
    for channel in ("shell", "control"):
        done = k.client.request("cellblock_run_request", {"argv": ["true"]}, metadata=marked(MINE), channel=channel)
        assert done.content["returncode"] == 0 and told(done) == MINE
    wrote = k.client.request("cellblock_file_request", {"op": "write", "path": "a"}, metadata=marked(MINE))
    assert wrote.content["status"] == "ok" and told(wrote) == MINE
    assert told(k.client.request("cellblock_run_request", {"argv": ["true"]}, metadata=marked("no"))) is None
    refused = k.client.request("cellblock_file_request", {"op": "no such"}, metadata=marked(MINE))
    assert refused.content["ename"] == "MalformedRequestError" and told(refused) == MINE
    k.stop()
    assert traced(log) == ["request", "command", "request", "command", "request", "file"]


def test_an_overlays_changes(start, log):
    k = start(args=["--set", f"audit.file={log}", "--set", "workspace.mode=overlay"])
    cell = k.client.run("open('a', 'w').write('b')")
    if cell.content.get("ename") == "IsolationError":
        pytest.skip(f"no overlay on this host: {cell.content['evalue']}")
    done = k.client.request("cellblock_file_request", {"op": "commit"}, metadata=marked(MINE))
    assert done.content["status"] == "ok" and told(done) == MINE
    k.stop()
    assert traced(log) == ["request", "layer"]


def test_in_a_subshell_and_a_branch(start, log):
    k = start(args=["--set", f"audit.file={log}", "--set", "transactions.mode=always"])
    for made in ("create_subshell_request", "cellblock_branch_request"):
        where = k.client.request(made, {}, channel="control").content["subshell_id"]
        header = k.client.header("execute_request", subshell_id=where)
        assert told(k.client.run("1", header=header, metadata=marked(MINE))) == MINE
        k.client.request("delete_subshell_request", {"subshell_id": where}, channel="control")
    k.stop()
    assert traced(log) == ["cell", "cell_end"] * 2


LOOK = """
import re
found = []
with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb', buffering=0) as memory:
    for line in maps:
        m = re.match('([0-9a-f]+)-([0-9a-f]+) rw', line)
        if m and '[v' not in line:
            start, end = (int(x, 16) for x in m.groups())
            try:
                memory.seek(start)
                held = memory.read(end - start)
            except OSError:
                continue
            found += [line] if re.search(MARK, held) else []
found
"""


def test_cells_do_not_see_it(client):
    """Not in their memory, where every message is that Python got; planted there, the same search finds it."""
    look = LOOK.replace("MARK", f"b'[{TRACE[0]}]{TRACE[1:]}'")  # which is not itself what it finds
    hidden = client.run(look, metadata=marked(MINE))
    assert told(hidden) == MINE and hidden.result == "[]", hidden
    seen = client.run(f"planted = bytes.fromhex('{TRACE.encode().hex()}') * 9\n" + look)
    assert seen.ok and seen.result != "[]"


def test_the_example_of_the_docs(start, log):
    """docs/messages.md, "Traces": a program with jupyter_client alone."""
    page = (Path(__file__).parents[2] / "docs/messages.md").read_text(encoding="utf-8")
    code, = (b for b in re.findall(r"```python\n(.*?)```", page, re.S) if "traceparent" in b)
    k = start(args=["--set", f"audit.file={log}"])
    kc = jupyter_client.BlockingKernelClient()
    kc.load_connection_info(json.loads(k.file.read_text()))
    kc.start_channels()
    try:
        names = {"kc": kc}
        exec(compile(code, "docs/messages.md", "exec"), names)
    finally:
        kc.stop_channels()
    k.stop()
    mine, = {e["traceparent"] for e in lines(log) if e["event"] == "cell"}
    assert mine == names["traceparent"]
