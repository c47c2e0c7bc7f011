"""Comms in both directions, with buffers, and what comm_info knows."""

import os

import pytest
from kernels import CROSSED

pytestmark = pytest.mark.once

TARGET = """
from ipykernel.comm import Comm
ip = get_ipython()
def opened(comm, msg):
    global the_comm, open_msg
    the_comm, open_msg = comm, msg
    @comm.on_msg
    def answer(msg):
        comm.send({'got': msg['content']['data']}, metadata={'m': 1}, buffers=[bytes(b)[::-1] for b in msg['buffers']])
    @comm.on_close
    def closed(msg):
        print('closed', flush=True)
ip.kernel.comm_manager.register_target('test.target', opened)
"""


@pytest.fixture
def target(client):
    cell = client.run(TARGET)
    assert cell.ok, cell
    return client


def open_comm(client, comm_id, target="test.target", **how):
    msg_id = client.send("comm_open", {"comm_id": comm_id, "target_name": target, "data": {"a": 1}}, **how)
    return client.until_idle(msg_id)


def known(client):
    return client.request("comm_info_request", {"target_name": "test.target"}).content["comms"]


def test_open_message_close(target):
    about = open_comm(target, "c1")
    assert about[0].content == {"execution_state": "busy"}
    assert target.run("open_msg['content']['data'], the_comm.comm_id").result == "({'a': 1}, 'c1')"
    assert known(target) == {"c1": {"target_name": "test.target"}}
    msg_id = target.send("comm_msg", {"comm_id": "c1", "data": {"x": [1, "é"]}}, buffers=[b"abc", b""])
    answer = [m for m in target.until_idle(msg_id) if m.type == "comm_msg"]
    assert len(answer) == 1
    assert answer[0].content == {"comm_id": "c1", "data": {"got": {"x": [1, "é"]}}}
    assert answer[0].buffers == [b"cba", b""]
    msg_id = target.send("comm_close", {"comm_id": "c1", "data": {}})
    assert any(m.type == "stream" and "closed" in m.content["text"] for m in target.until_idle(msg_id))
    assert "c1" not in known(target)


def test_fifty_megabytes(target):
    open_comm(target, "big")
    data = os.urandom(1 << 20) * 50
    msg_id = target.send("comm_msg", {"comm_id": "big", "data": {}}, buffers=[data])
    answer = [m for m in target.until_idle(msg_id, timeout=90) if m.type == "comm_msg"]
    assert answer[0].buffers[0] == data[::-1]


def test_many_buffers(target):
    open_comm(target, "many")
    buffers = [bytes([i % 256]) * i for i in range(500)]
    msg_id = target.send("comm_msg", {"comm_id": "many", "data": {}}, buffers=buffers)
    answer = [m for m in target.until_idle(msg_id) if m.type == "comm_msg"]
    assert answer[0].buffers == [b[::-1] for b in buffers]


def test_opened_by_the_kernel(target):
    cell = target.run("c = Comm(target_name='front', data={'d': 1}, metadata={'v': 2}, buffers=[b'bb'])")
    opened = cell.of("comm_open")
    assert len(opened) == 1 and opened[0].content["target_name"] == "front" and opened[0].content["data"] == {"d": 1}
    assert opened[0].metadata.get("v") == 2 and opened[0].buffers == [b"bb"]
    comm_id = opened[0].content["comm_id"]
    assert target.request("comm_info_request", {}).content["comms"][comm_id] == {"target_name": "front"}
    cell = target.run("c.send({'n': 1}); c.close()")
    assert [m.type for m in cell.of("comm_msg", "comm_close")] == ["comm_msg", "comm_close"]


def test_unknown_target_is_closed_again(target):
    about = open_comm(target, "nobody", target="no.such.target")
    assert any(m.type == "comm_close" and m.content["comm_id"] == "nobody" for m in about)


def test_unknown_comm_does_no_harm(target):
    target.until_idle(target.send("comm_msg", {"comm_id": "never opened", "data": {}}))
    target.until_idle(target.send("comm_close", {"comm_id": "never opened", "data": {}}))
    assert target.run("1").ok


def test_a_failing_handler_is_seen_and_the_kernel_goes_on(target):
    target.run(
        "def bad(comm, msg): raise RuntimeError('in the handler')\nip.kernel.comm_manager.register_target('bad', bad)"
    )
    about = open_comm(target, "b1", target="bad")
    assert any("in the handler" in str(m.content) for m in about), about
    assert target.run("1").ok


@pytest.mark.cellblock_only
def test_comms_are_forgotten_with_the_guest(start):
    c = start(args=["--set", "transactions.mode=off"]).client
    c.run(TARGET)
    open_comm(c, "c1")
    c.run("import os; os._exit(1)")
    assert c.run("1").ok
    assert c.request("comm_info_request", {}).content["comms"] == {}


WAITS = """
import asyncio, threading
got, thread, future = [], [], asyncio.get_event_loop().create_future()
def opened(comm, msg):
    @comm.on_msg
    def take(msg):
        thread.append(threading.current_thread() is threading.main_thread())
        print('handled', flush=True)
        got.append(msg['content']['data'])
        if got[-1] == {'last': True} and not future.done():
            future.set_result(len(got))
get_ipython().kernel.comm_manager.register_target('waited', opened)
"""


# It says so when its loop runs: until then a subshell's messages are the subshell's.
AWAITS = """
async def wait():
    print('running', flush=True)
    return await asyncio.wait_for(future, 60)
await wait()
"""


def new_subshell(client):
    return client.request("create_subshell_request", {}, channel="control").content["subshell_id"]


@pytest.mark.parametrize("where", ["main", "subshell"])
def test_a_cell_may_await_a_comm_message(client, where):
    """In order, in the main thread, before the cells that wait; what is printed is under the message."""
    header = {"subshell_id": new_subshell(client)} if where == "subshell" else {}
    cell = client.run(WAITS)
    assert cell.ok, cell
    open_comm(client, "w-" + where, target="waited")
    cell = client.start(AWAITS)
    client.says(cell, "running")
    later = client.start("len(got), all(thread)")
    sent = []
    for n in (1, 2, 3, "last"):
        data = {"last": True} if n == "last" else {"n": n}
        content = {"comm_id": "w-" + where, "data": data}
        sent.append(client.send("comm_msg", content, header=client.header("comm_msg", **header)))
    said = [client.until_idle(m) for m in sent]
    assert all("".join(m.content["text"] for m in s if m.type == "stream") == "handled\n" for s in said)
    assert client.finish(cell).result == "4"
    assert client.finish(later).result == "(4, True)"
    assert client.run("got").result == "[{'n': 1}, {'n': 2}, {'n': 3}, {'last': True}]"


STOPS = """
import asyncio, sys, threading
future, ready = asyncio.get_event_loop().create_future(), threading.Event()
def polls():
    frame = sys._current_frames()[threading.main_thread().ident]
    return frame.f_code.co_name == 'select' and not ready.wait(0.05)
def opened(comm, msg):
    @comm.on_msg
    def take(msg):
        print('taken', flush=True)
        while not future._callbacks or not polls(): pass
        future.set_result(threading.current_thread() is threading.main_thread())
get_ipython().kernel.comm_manager.register_target('stops', opened)
"""


def test_what_a_subshells_message_ends_goes_on(client, gate):
    """One that came before the cell awaited is handled in the subshell's thread, and the cell's loop hears of it."""
    header = {"subshell_id": new_subshell(client)}
    assert client.run(STOPS).ok
    open_comm(client, "s", target="stops")
    cell = client.start("print('running', flush=True)\n_ = open('gate').read()\nawait asyncio.wait_for(future, 600)")
    client.says(cell, "running")
    message = client.send("comm_msg", {"comm_id": "s", "data": {}}, header=client.header("comm_msg", **header))
    client.says(message, "taken")
    gate()
    assert client.finish(cell).result == "False"
    client.until_idle(message)


def test_while_a_cell_does_not_await_they_keep_their_turn(client, gate):
    assert client.run(WAITS).ok
    open_comm(client, "turn", target="waited")
    cell = client.start("import os\nprint('running', flush=True)\nopen('gate').read()")
    client.says(cell, "running")
    second = client.start("len(got)")
    msg = client.send("comm_msg", {"comm_id": "turn", "data": {}})
    gate()
    assert client.finish(cell).ok and client.finish(second).result == "0"
    client.until_idle(msg)
    assert client.run("len(got)").result == "1"


@pytest.mark.cellblock_only("a handler that does not end is not interrupted")
def test_an_interrupt_ends_a_handler_beside_a_cell(client):
    client.run(
        "def opened(comm, msg):\n    @comm.on_msg\n    def take(msg):\n        print('handling', flush=True)\n"
        "        while True: pass\nget_ipython().kernel.comm_manager.register_target('endless', opened)"
    )
    open_comm(client, "e", target="endless")
    cell = client.start("import asyncio\nprint('running', flush=True)\nawait asyncio.sleep(600)")
    client.says(cell, "running")
    msg = client.send("comm_msg", {"comm_id": "e", "data": {}})
    client.says(msg, "handling")
    client.request("interrupt_request", {}, channel="control")
    assert client.finish(cell).content["ename"] == "KeyboardInterrupt"
    client.until_idle(msg)
    assert client.run("6*7").result == "42"


@pytest.mark.cellblock_only
def test_a_thread_that_asks_beside_an_awaiting_cell(client):
    """The answer to a question and a comm message come on one wire, in one piece or two: each finds its taker."""
    assert client.run(WAITS).ok
    for n in range(10):
        client.run("got, future = [], asyncio.get_event_loop().create_future()")
        open_comm(client, f"t{n}", target="waited")
        cell = client.start("a = await asyncio.to_thread(input, '?')\na, await future", allow_stdin=True)
        client.wait("stdin")
        client.until_idle(client.send("comm_msg", {"comm_id": f"t{n}", "data": {"n": 1}}))
        client.send("input_reply", {"value": "v"}, channel="stdin")
        client.until_idle(client.send("comm_msg", {"comm_id": f"t{n}", "data": {"last": True}}))
        assert client.finish(cell).result == "('v', 2)"


@pytest.mark.cellblock_only
def test_an_answer_that_nobody_waits_for_holds_up_no_message(client):
    assert client.run(WAITS).ok
    open_comm(client, "late", target="waited")
    asks = "try: input('?')\nexcept TimeoutError: pass\nprint('on', flush=True)\nawait asyncio.wait_for(future, 60)"
    cell = client.start(CROSSED % "SIGALRM" + asks, allow_stdin=True)
    client.wait("stdin")
    client.send("input_reply", {"value": "v"}, channel="stdin")
    client.says(cell, "on")
    client.until_idle(client.send("comm_msg", {"comm_id": "late", "data": {"last": True}}))
    assert client.finish(cell).result == "1"


def test_widgets(client):
    if not client.run("import ipywidgets").ok:
        pytest.skip("the kernel's interpreter has no ipywidgets")
    cell = client.run("import ipywidgets\ns = ipywidgets.IntSlider(3)\ns")
    opened = [m for m in cell.of("comm_open") if m.content["data"]["state"].get("_model_name") == "IntSliderModel"]
    assert len(opened) == 1
    model = opened[0].content["comm_id"]
    view = cell.of("display_data", "execute_result")[0].content["data"]["application/vnd.jupyter.widget-view+json"]
    assert view["model_id"] == model
    client.until_idle(
        client.send(
            "comm_msg", {"comm_id": model, "data": {"method": "update", "state": {"value": 9}, "buffer_paths": []}}
        )
    )
    assert client.run("s.value").result == "9"


def test_output_widget_captures(client):
    if not client.run("import ipywidgets").ok:
        pytest.skip("the kernel's interpreter has no ipywidgets")
    msg_id = client.start(
        "import ipywidgets\nout = ipywidgets.Output()\nwith out:\n    print('inside')\nprint('outside')"
    )
    cell = client.finish(msg_id)
    states = [
        m.content["data"]["state"]["msg_id"]
        for m in cell.of("comm_msg")
        if "msg_id" in m.content["data"].get("state", {})
    ]
    assert states == [msg_id, ""] and cell.text() == "inside\noutside\n"
    kinds = [
        (m.type, m.content.get("text") or m.content["data"]["state"]["msg_id"])
        for m in cell.of("comm_msg", "stream")
        if m.type == "stream" or "msg_id" in m.content["data"].get("state", {})
    ]
    assert kinds == [("comm_msg", msg_id), ("stream", "inside\n"), ("comm_msg", ""), ("stream", "outside\n")]
