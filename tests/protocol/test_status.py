"""busy, idle, parents, headers: what every client builds upon."""

import json
import os
import venv
from datetime import datetime

import pytest

import kernels

pytestmark = pytest.mark.once

REQUESTS = [
    ("kernel_info_request", {}),
    (
        "execute_request",
        {"code": "1", "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False},
    ),
    ("complete_request", {"code": "imp", "cursor_pos": 3}),
    ("inspect_request", {"code": "int", "cursor_pos": 3, "detail_level": 0}),
    ("is_complete_request", {"code": "1"}),
    ("history_request", {"output": False, "raw": True, "hist_access_type": "tail", "n": 3}),
    ("comm_info_request", {}),
]


@pytest.mark.parametrize("msg_type, content", REQUESTS, ids=[r[0] for r in REQUESTS])
def test_every_request_has_busy_reply_idle(client, msg_type, content):
    msg_id = client.send(msg_type, content)
    reply = client.reply(msg_id)
    assert reply.type == msg_type.replace("_request", "_reply")
    assert reply.content["status"] in ("ok", "complete")
    about = client.until_idle(msg_id)
    assert about[0].content == {"execution_state": "busy"} and about[-1].content == {"execution_state": "idle"}
    assert sum(m.type == "status" for m in about) == 2


@pytest.mark.cellblock_only("ipykernel answers nothing before Python is there")
def test_a_cell_is_busy_while_python_starts(start, new_gate, nothing_left):
    """A client that waits for its end would take the idle of what it has asked before for it."""
    folder = nothing_left / "slow"
    venv.create(folder, symlinks=True, with_pip=False)
    site = next(folder.glob("lib/python3*/site-packages"))
    (site / "gate.pth").write_text("import os; os.path.exists('gate') and (open('gate').read(), os.unlink('gate'))\n")
    argv = [kernels.spec_argv()[0][0], "kernel", "--python", str(folder / "bin/python"), "-f", "{connection_file}"]
    work = nothing_left / "slow-work"
    work.mkdir()
    os.mkfifo(work / "gate")
    k = start(argv=argv, workspace=work, ready=False)
    c = start.client(k)
    c.ready()
    msg_id = c.start("6 * 7")
    assert c.wait("iopub", lambda m: m.parent_id == msg_id).content == {"execution_state": "busy"}
    c.until_idle(c.send("kernel_info_request"))
    again = c.wait("iopub", lambda m: m.parent_id == msg_id)
    assert again.content == {"execution_state": "busy"}, "what is answered meanwhile is not its end"
    (work / "gate").write_text("go")
    cell = c.finish(msg_id)
    assert cell.result == "42" and cell.types == ["execute_input", "execute_result", "status"], "busy was said"


def test_order_within_a_cell(client):
    cell = client.run("print('a')\n1")
    assert cell.types == ["status", "execute_input", "stream", "execute_result", "status"]
    cell = client.run("print('a')\n1/0")
    assert cell.types == ["status", "execute_input", "stream", "error", "status"]


@pytest.mark.cellblock_only("ipykernel keeps a buffer for each of the two streams")
def test_order_of_streams_and_displays_is_exact(client):
    cell = client.run(
        "import sys\n"
        "from IPython.display import display\n"
        "for i in range(20):\n"
        "    print('o', i); print('e', i, file=sys.stderr); display(i)\n"
    )
    got = []
    for m in cell.of("stream", "display_data"):
        got.append(m.content["data"]["text/plain"] if m.type == "display_data" else m.content["text"])
    assert "".join(got) == "".join(f"o {i}\ne {i}\n{i}" for i in range(20))


def test_headers(client):
    seen = set()
    msg_id = client.start("print(1)\n2")
    messages = [client.reply(msg_id), *client.until_idle(msg_id)]
    for m in messages:
        h = m.header
        assert {"msg_id", "session", "username", "date", "msg_type", "version"} <= set(h)
        assert h["msg_id"] not in seen and not seen.add(h["msg_id"])
        assert datetime.fromisoformat(h["date"].replace("Z", "+00:00")).tzinfo is not None
        assert m.metadata is not None
    assert len({m.header["session"] for m in messages}) == 1


@pytest.mark.cellblock_only("ipykernel encodes the header anew")
def test_parent_is_echoed_verbatim(client):
    """Odd spacing, unknown keys, escapes, numbers as they were written: byte for byte."""
    raw = json.dumps(client.header("execute_request"))[:-1].encode() + (
        b' ,  "x_unknown" : [1.50, 1e3, -0, {"\\u00e9":"\\ud83d\\ude00 \xc3\xa9"}], "subshell_id":null }'
    )
    cell = client.run("1", header=raw)
    assert cell.reply.raw_parent == raw
    assert {m.raw_parent for m in cell.iopub} == {raw}


@pytest.mark.parametrize(
    "change",
    [{"date": None}, {"date": ""}, {"session": ""}, {"version": "5.0"}, {"version": "5.6", "x": 1}, {"username": None}],
    ids=str,
)
def test_headers_of_real_clients_are_taken(client, change):
    header = client.header("execute_request", **change)
    header = {k: v for k, v in header.items() if v is not None}
    cell = client.run("6*7", header=header)
    assert cell.result == "42" and header.items() <= cell.reply.parent.items()
    assert cell.reply.parent == header or not client.kernel.is_cellblock


def test_a_new_session_for_each_message(client):
    for i in range(3):
        header = client.header("execute_request", session=f"s{i}")
        assert client.run(str(i), header=header).result == str(i)


def test_starting_is_said_once_and_without_parent(start):
    k = start(ready=False)
    c = start.client(k)
    c.ready(keep=True)
    c2 = start.client(k)
    c2.ready(keep=True)
    early = [
        m
        for m in [*c.inbox["iopub"], *c2.inbox["iopub"]]
        if m.type == "status" and m.content["execution_state"] == "starting"
    ]
    assert len(early) <= 1 and all(m.parent == {} for m in early)


@pytest.mark.cellblock_only
def test_starting_reaches_the_first_subscriber(start):
    k = start(ready=False)
    m = start.client(k).wait("iopub", lambda m: m.type == "status")
    assert (m.content["execution_state"], m.parent) == ("starting", {})


@pytest.mark.cellblock_only
def test_no_idle_before_anything_is_asked(start):
    """Open Interpreter takes any idle for the end of its cell: one too many, and it is a cell behind ever after."""
    k = start(ready=False)
    c = start.client(k)
    c.wait("iopub", lambda m: m.type == "status" and m.content["execution_state"] == "starting")
    cell = c.start("x = 1")
    idle = c.wait("iopub", lambda m: m.type == "status" and m.content["execution_state"] == "idle")
    assert idle.parent_id == cell


@pytest.mark.cellblock_only
def test_busy_is_said_again_after_an_idle_while_a_cell_runs(client, gate):
    """Servers take any idle for the kernel's: it must not look idle while a cell runs."""
    cell = client.start("print('running', flush=True)\nopen('gate').read()")
    client.says(cell, "running")
    asked = client.send("kernel_info_request", channel="control")
    client.reply(asked, "control")

    def states():
        return [(m.parent_id, m.content["execution_state"]) for m in client.inbox["iopub"] if m.type == "status"]

    client.wait_in_place(
        "iopub", lambda m: states()[-2:] == [(asked, "idle"), (cell, "busy")], what="busy after another's idle"
    )
    gate()
    done = client.finish(cell)
    assert done.iopub[-1].content == {"execution_state": "idle"}


def test_a_display_always_has_text(client):
    cell = client.run(
        "from IPython.display import display, HTML, SVG, Javascript\n"
        "display(HTML('<b>x</b>')); display(SVG('<svg/>')); display(Javascript('1')); display({'a': 1})\nHTML('y')"
    )
    shown = cell.of("display_data", "execute_result")
    assert len(shown) == 5 and all("text/plain" in m.content["data"] for m in shown)


def test_unknown_request_type_gets_idle(client):
    msg_id = client.send("no_such_request", {})
    states = [m.content["execution_state"] for m in client.until_idle(msg_id)]
    assert states == ["busy", "idle"]
    assert client.run("1").ok
