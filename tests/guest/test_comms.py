"""Comms and widgets."""

import pytest

pytestmark = pytest.mark.usefixtures("ipython")


def test_comm_to_the_frontend(guest, need):
    need("comm")
    result = guest.run(
        "import comm\n"
        "c = comm.create_comm(target_name='t', data={'a': 1}, metadata={'m': 2}, buffers=[b'xyz'])\n"
        "c.send({'b': 2})\nc.close()"
    )
    opened, sent, closed = result.of("UP_COMM_OPEN", "UP_COMM_MSG", "UP_COMM_CLOSE")
    assert opened.content["target_name"] == "t" and opened.content["data"] == {"a": 1}
    assert opened.metadata == {"m": 2} and opened.buffers == [b"xyz"]
    assert sent.content["data"] == {"b": 2} and sent.content["comm_id"] == opened.content["comm_id"]
    assert closed.kind == "UP_COMM_CLOSE"


def test_comm_from_the_frontend(guest):
    guest.run("""got = []
def target(comm, msg):
    got.append(msg['content']['data'])
    comm.on_msg(lambda m: (got.append((m['content']['data'], bytes(m['buffers'][0]))), comm.send({'echo': 1}),
                             print('handled')))
    comm.on_close(lambda m: got.append('closed'))
get_ipython().kernel.comm_manager.register_target('mine', target)""")
    guest.comm("DOWN_COMM_OPEN", {"comm_id": "c1", "target_name": "mine", "data": {"x": 1}})
    result = guest.comm("DOWN_COMM_MSG", {"comm_id": "c1", "data": {"y": 2}}, {}, [b"buf"])
    assert result.of("UP_COMM_MSG")[0].content["data"] == {"echo": 1} and result.stdout == "handled\n"
    assert {f.request for f in result.frames} == {result.request}
    guest.comm("DOWN_COMM_CLOSE", {"comm_id": "c1", "data": {}})
    assert guest.run("got").result == "[{'x': 1}, ({'y': 2}, b'buf'), 'closed']"


def test_parent_of_a_cell_and_of_a_comm_message(guest):
    result = guest.run("get_ipython().kernel.get_parent()['header']['msg_id']")
    assert result.result == "'message-%d'" % result.request
    guest.run(
        "def t(comm, msg): comm.on_msg(lambda m: print(m['metadata'], m['header']['msg_id'], "
        "get_ipython().get_parent()['header']['msg_id']))\nget_ipython().kernel.comm_manager.register_target('p', t)"
    )
    guest.comm("DOWN_COMM_OPEN", {"comm_id": "c9", "target_name": "p", "data": {}})
    result = guest.comm("DOWN_COMM_MSG", {"comm_id": "c9", "data": {}}, {"mine": 1})
    assert result.stdout == "{'mine': 1} message-%d message-%d\n" % (result.request, result.request)


MANY = 1005  # more than are remembered
TARGET = """import asyncio
go, ids = asyncio.Event(), []
def name(): ids.append(get_ipython().kernel.get_parent()['header']['msg_id'])
def t(comm, msg): comm.on_msg(lambda m: m['content']['data'].get('go') and go.set())
get_ipython().kernel.comm_manager.register_target('many', t)"""


def test_parent_of_a_cell_that_waits_while_many_messages_come(guest):
    guest.run(TARGET)
    guest.comm("DOWN_COMM_OPEN", {"comm_id": "many", "target_name": "many", "data": {}})
    cell = guest.start("await go.wait()\nname()\nids")
    guest.until("AWAITING")
    for at in range(MANY):
        header = {"msg_id": "message-%d" % (guest.request + 1), "msg_type": "comm_msg", "session": "s"}
        content = {"comm_id": "many", "data": {"go": at == MANY - 1}}
        request = guest.send("DOWN_COMM_MSG", content, {"header": header, "metadata": {}})
        guest.in_lanes[request] = {"COMM_DONE"}
        while request in guest.in_lanes:
            guest.frame()
    assert guest.finish().result == "['message-%d']" % cell


def test_parent_of_a_task_whose_cell_has_ended_before_many_messages_came(guest):
    guest.run(TARGET)
    guest.comm("DOWN_COMM_OPEN", {"comm_id": "many", "target_name": "many", "data": {}})
    cell = guest.run("async def later():\n    await go.wait(); name()\ntask = asyncio.ensure_future(later())").request
    for _ in range(MANY):
        guest.comm("DOWN_COMM_MSG", {"comm_id": "many", "data": {}})
    assert guest.run("go.set(); await task; ids").result == "['message-%d']" % cell


def test_headers_that_are_remembered_have_a_bound(new_guest):
    guest = new_guest()
    guest.run(TARGET + "\nours = get_ipython().kernel._guest")
    guest.comm("DOWN_COMM_OPEN", {"comm_id": "many", "target_name": "many", "data": {}})
    for _ in range(MANY):
        guest.comm("DOWN_COMM_MSG", {"comm_id": "many", "data": {}})
        guest.run("1")
    assert guest.run("len(ours.headers), len(ours.comm_headers)").result == "(1000, 1000)"


def test_a_handler_that_prints_to_a_stream_of_the_users(new_guest):
    guest = new_guest()
    guest.run(
        "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer)\n"
        "def t(comm, msg): comm.on_msg(lambda m: print('handled'))\n"
        "get_ipython().kernel.comm_manager.register_target('prints', t)"
    )
    guest.comm("DOWN_COMM_OPEN", {"comm_id": "c1", "target_name": "prints", "data": {}})
    assert guest.comm("DOWN_COMM_MSG", {"comm_id": "c1", "data": {}}).stdout == "handled\n"


def test_unknown_target_and_comm(guest):
    result = guest.comm("DOWN_COMM_OPEN", {"comm_id": "c2", "target_name": "nobody", "data": {}})
    assert result.of("UP_COMM_CLOSE")[0].content["comm_id"] == "c2" and "nobody" in result.stderr
    assert guest.comm("DOWN_COMM_MSG", {"comm_id": "gone", "data": {}}).reply == {}
    assert guest.run("1").ok


def test_handler_that_fails(guest):
    guest.run(
        "def t(comm, msg): comm.on_msg(lambda m: 1/0)\nget_ipython().kernel.comm_manager.register_target('bad', t)"
    )
    guest.comm("DOWN_COMM_OPEN", {"comm_id": "c3", "target_name": "bad", "data": {}})
    assert "ZeroDivisionError" in guest.comm("DOWN_COMM_MSG", {"comm_id": "c3", "data": {}}).stderr
    assert guest.run("1").ok


def test_interrupt_of_a_handler(guest):
    guest.run(
        "import time\ndef t(comm, msg): comm.on_msg(lambda m: (print('go'), time.sleep(100)))\n"
        "get_ipython().kernel.comm_manager.register_target('slow', t)"
    )
    guest.comm("DOWN_COMM_OPEN", {"comm_id": "c4", "target_name": "slow", "data": {}})
    guest.pending = guest.send("DOWN_COMM_MSG", {"comm_id": "c4", "data": {}})
    guest.until("STREAM", lambda f: "go" in f.content)
    guest.interrupt()
    guest.finish("COMM_DONE")
    assert guest.run("1").ok


def test_data_that_is_not_json(guest, need):
    need("comm")
    result = guest.run("import comm\nc = comm.create_comm(target_name='t')\nc.send({'x': object()})")
    assert result.error["ename"] == "TypeError"
    result = guest.run("c.send({'x': float('nan'), 3: 4})")
    assert result.of("UP_COMM_MSG")[0].content["data"] == {"x": None, "3": 4}
    result = guest.run("c.send({'x': range(2), 'y': {'a': 1}.keys()})")
    assert result.of("UP_COMM_MSG")[0].content["data"] == {"x": [0, 1], "y": ["a"]}
    assert guest.run("c.send({'x': range})").error["ename"] == "TypeError"


def test_arrays_in_data(guest, need):
    need("comm", "numpy")
    result = guest.run(
        "import comm, numpy as np\nc = comm.create_comm(target_name='t')\nc.send({'x': np.arange(4).reshape(2, 2)})"
    )
    assert result.of("UP_COMM_MSG")[0].content["data"] == {"x": [[0, 1], [2, 3]]}


def test_large_buffers(guest, need):
    need("comm")
    result = guest.run(
        "import comm\nc = comm.create_comm(target_name='t')\nc.send({}, buffers=[b'x' * 5_000_000, memoryview(b'ab')])"
    )
    assert [len(b) for b in result.of("UP_COMM_MSG")[0].buffers] == [5_000_000, 2]


def test_buffers_of_any_order(guest, need):
    need("comm", "numpy")
    result = guest.run(
        "import comm, numpy as np\nc = comm.create_comm(target_name='t')\n"
        "a = np.arange(6, dtype='uint8').reshape(2, 3)\n"
        "c.send({}, buffers=[a, np.asfortranarray(a), np.empty((0, 3)), np.array(7, 'uint8'), np.array([1], '>u2')])"
    )
    sent = [bytes(b) for b in result.of("UP_COMM_MSG")[0].buffers]
    assert sent == [bytes(range(6)), bytes([0, 3, 1, 4, 2, 5]), b"", b"\7", b"\0\1"]
    assert not guest.run("c.send({}, buffers=[a[:, ::2]])").ok


def test_ipykernel_comm(new_guest):
    """Libraries of old import it; ours serves, whether ipykernel itself is there or not."""
    guest = new_guest()
    result = guest.run(
        "import warnings; warnings.simplefilter('ignore')\nfrom ipykernel.comm import Comm\n"
        "c = Comm(target_name='old', data={'a': 1})\nc.send({'b': 1})"
    )
    assert result.ok, result.reply
    assert result.of("UP_COMM_OPEN")[0].content["target_name"] == "old" and result.of("UP_COMM_MSG")


def test_ipykernel_shim(new_guest, ipython):
    """What libraries ask to tell whether this is a notebook, and what they reach into."""
    guest = new_guest()
    code = """import sys
before = sorted(m for m in sys.modules if m.startswith('ipykernel'))
import ipykernel
from ipykernel.zmqshell import ZMQInteractiveShell
from ipykernel.iostream import OutStream
from ipykernel.kernelapp import IPKernelApp
(before, isinstance(get_ipython(), ZMQInteractiveShell), isinstance(sys.stdout, OutStream), IPKernelApp.initialized(),
 IPKernelApp.instance().kernel is get_ipython().kernel)"""
    assert guest.run(code).result == "(['ipykernel', 'ipykernel.zmqshell'], True, True, True, True)"
    assert guest.run("import ipykernel.no_such_part").error["ename"] == "ModuleNotFoundError"
    code = """from ipykernel.comm import Comm, CommManager
c = Comm(target_name='t', data='text')
class Mine(Comm): pass
(isinstance(c, Comm), isinstance(Mine('t'), Comm), isinstance(get_ipython().kernel.comm_manager, CommManager),
 ipykernel.zmqshell.ZMQInteractiveShell is type(get_ipython()),
 ipykernel.version_info > (6,), ipykernel.__version__[0])"""
    assert guest.run(code).result in ("(True, True, True, True, True, '%d')" % n for n in (6, 7))
    assert "jail" in guest.run("ipykernel.get_connection_file()").error["evalue"]
    assert "jail" in guest.run("ipykernel.embed_kernel()").error["evalue"]


def test_parts_of_ipykernel_that_are_not_ours(new_guest, interpreter, ipython):
    """They are the real one's where it is installed, and stand-ins where not."""
    guest, real = new_guest(), "ipykernel" in interpreter.has
    code = "import sys, ipykernel.jsonutil as j\nj.json_clean({'a': (1, 2)}), hasattr(j, '__file__')"
    assert guest.run(code).result in ("({'a': [1, 2]}, %s)" % real, "({'a': (1, 2)}, %s)" % real)
    assert guest.run("from ipykernel.kernelbase import Kernel\nissubclass(Kernel, object)").result == "True"
    if not real:
        assert guest.run("isinstance(get_ipython().kernel, Kernel)").result == "True"


def test_widgets(guest, need):
    need("ipywidgets")
    result = guest.run("import ipywidgets as w\ns = w.IntSlider(value=3)\ns")
    opened = result.of("UP_COMM_OPEN")
    assert len(opened) == 3 and all(f.content["target_name"] == "jupyter.widget" for f in opened)
    assert "application/vnd.jupyter.widget-view+json" in result.of("EXECUTE_RESULT")[0].content["data"]
    slider = next(f for f in opened if f.content["data"]["state"].get("_model_name") == "IntSliderModel")
    guest.comm(
        "DOWN_COMM_MSG",
        {
            "comm_id": slider.content["comm_id"],
            "data": {"method": "update", "state": {"value": 42}, "buffer_paths": []},
        },
    )
    assert guest.run("s.value").result == "42"
    guest.run("s.observe(lambda c: print('now', c['new']), 'value')")
    result = guest.comm(
        "DOWN_COMM_MSG",
        {
            "comm_id": slider.content["comm_id"],
            "data": {"method": "update", "state": {"value": 43}, "buffer_paths": []},
        },
    )
    assert "now 43\n" in result.stdout


def test_output_widget(guest, need):
    need("ipywidgets")
    result = guest.run("import ipywidgets as w\nout = w.Output()\nwith out: print('inside')")
    ids = [
        f.content["data"]["state"]["msg_id"]
        for f in result.of("UP_COMM_MSG")
        if "msg_id" in f.content["data"].get("state", {})
    ]
    assert ids == ["message-%d" % result.request, ""]
    kinds = [f.kind for f in result.frames if f.kind in ("UP_COMM_MSG", "STREAM")]
    assert kinds == ["UP_COMM_MSG", "STREAM", "UP_COMM_MSG"]


def test_a_file_of_the_users_called_comm(new_guest, tmp_path):
    (tmp_path / "comm.py").write_text("mine = 1")
    guest = new_guest(cwd=str(tmp_path))
    assert guest.run("import comm; comm.mine").result == "1"
