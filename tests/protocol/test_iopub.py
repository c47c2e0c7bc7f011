"""iopub_welcome, late subscribers, and that nothing which ends a request is lost beside slow, stuck and absent ones."""

import os
import signal
import subprocess
import sys

import pytest
import zmq

import kernels
from rawclient import Client, endpoint

pytestmark = pytest.mark.once


@pytest.mark.cellblock_only("ipykernel welcomes the first subscriber of a topic only")
def test_welcome_is_the_first_message(client, shared):
    with Client(client.kernel, channels=("iopub",)) as new:
        first = new.next("iopub")
        assert first.type == "iopub_welcome" and first.content == {"subscription": ""} and first.parent == {}
    with Client(client.kernel, channels=("iopub",)) as second:
        assert second.next("iopub").type == "iopub_welcome", "the second subscriber gets one too"


def test_welcome_names_the_topic(client):
    with Client(client.kernel, channels=("iopub",), topics=(b"some.topic",)) as new:
        assert new.next("iopub").content == {"subscription": "some.topic"}


@pytest.mark.cellblock_only
def test_a_topic_that_is_no_text_does_no_harm(client):
    with Client(client.kernel, channels=("iopub",), topics=(b"\xff\xfe", b"x" * 100_000)):
        assert client.run("1").ok


@pytest.mark.cellblock_only("ipykernel welcomes the first subscriber of a topic only")
def test_a_late_subscriber_gets_what_comes_later(client, gate):
    cell = client.start("print('early', flush=True)\nopen('gate').read()\nprint('late', flush=True)")
    client.says(cell, "early")
    with Client(client.kernel, channels=("iopub",)) as new:
        assert new.next("iopub").type == "iopub_welcome"
        gate()
        new.says(cell, "late")
        assert new.until_idle(cell)
    client.finish(cell)


@pytest.mark.cellblock_only("ipykernel drops what nobody hears")
def test_what_was_said_before_the_first_subscription_is_held(start):
    """A client may ask before its subscription has arrived: its idle must not be lost."""
    k = kernels.Kernel(start.folder / "held")
    start.started.append(k)
    with Client(k, channels=("shell", "control")) as early:
        cell = early.start("print('kept for you')\n1/0")
        assert early.reply(cell).content["status"] == "error"
        early.open("iopub")
        about = early.until_idle(cell)
        said = [m.type for m in about]
        assert said[0] == "status"  # said a second time when Python was not there yet
        assert said[said.index("execute_input") :] == ["execute_input", "stream", "error", "status"]


@pytest.mark.cellblock_only
def test_without_any_subscriber_memory_is_bounded_and_cells_end(start):
    k = kernels.Kernel(start.folder / "none", args=["--set", "limits.output=1G"])
    start.started.append(k)
    with Client(k, channels=("shell", "control")) as c:
        assert c.request("execute_request", {"code": "1"}).content["status"] == "ok"
        before = k.memory()
        for _ in range(3):
            reply = c.request("execute_request", {"code": "for i in range(100): print('x' * 999_999)"}, timeout=120)
            assert reply.content["status"] == "ok"
        assert k.memory() - before < 250 << 20


STUCK = """
import sys, zmq, os
s = zmq.Context().socket(zmq.SUB)
s.rcvhwm, s.rcvbuf = 1, 4096
s.subscribe(b'')
s.connect(sys.argv[1])
s.poll()
print('in', flush=True)
sys.stdin.read()
"""


@pytest.fixture
def stuck(client):
    """Subscribers in processes of their own that have subscribed and then do not read."""
    procs = []

    def make(stop=False):
        p = subprocess.Popen(
            [sys.executable, "-c", STUCK, endpoint(client.kernel.connection, "iopub")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        procs.append(p)
        assert p.stdout.readline() == "in\n"
        if stop:
            p.send_signal(signal.SIGSTOP)
        return p

    yield make
    for p in procs:
        p.kill()
        p.wait()
        p.stdin.close()
        p.stdout.close()


@pytest.mark.cellblock_only("ipykernel's PUB drops at its high-water mark")
@pytest.mark.parametrize("kind", ["not reading", "stopped", "both", "gone without a word"])
def test_a_good_subscriber_loses_nothing_beside_bad_ones(client, stuck, kind):
    if kind in ("not reading", "both"):
        stuck()
    if kind in ("stopped", "both"):
        stuck(stop=True)
    if kind == "gone without a word":
        stuck().kill()
    before = client.kernel.memory()
    for i in range(4):
        cell = client.run(
            f"for i in range(40): print('x' * 999_999)\nprint('end {i}')\nraise ValueError('seen {i}')", timeout=120
        )
        assert cell.error["evalue"] == f"seen {i}" and cell.types[0] == cell.types[-1] == "status"
        assert cell.text().endswith(f"end {i}\n") and len(cell.text()) == 40_000_000 + len(f"end {i}\n"), (
            "the good one has all text"
        )
    cell = client.run("from IPython.display import display\nfor i in range(3000): display(i)\n'result'", timeout=120)
    assert [m.content["data"]["text/plain"] for m in cell.of("display_data")] == [str(i) for i in range(3000)]
    assert cell.result == "'result'"
    assert client.kernel.memory() - before < 400 << 20


@pytest.mark.cellblock_only
def test_a_slow_subscriber_does_not_stop_the_others_for_long(client, stuck):
    """Thirty cells of 5 MB end one after the other though one peer reads nothing."""
    stuck()
    for i in range(30):
        cell = client.run("print('y' * 5_000_000)", timeout=30)
        assert cell.ok and len(cell.text()) == 5_000_001


@pytest.mark.cellblock_only("ipykernel's PUB drops at its high-water mark")
def test_who_listens_alone_gets_all_however_late(start):
    """The cell ends though nobody reads; who does not keep another waiting is not set aside."""
    k = kernels.Kernel(start.folder / "alone")
    start.started.append(k)
    code = "from IPython.display import display\nfor i in range(3000): display({'text/plain': 'x' * 20_000}, raw=True)"
    with Client(k, channels=("shell", "control")) as c, c.context.socket(zmq.SUB) as late:
        late.linger, late.rcvhwm, late.rcvbuf = 0, 1, 4096
        late.subscribe(b"")
        late.connect(endpoint(k.connection, "iopub"))
        assert late.poll(60_000), "no welcome"
        cell = c.start(code)
        assert c.reply(cell, timeout=120).content["status"] == "ok"
        seen, idle = 0, False
        while not idle:
            assert late.poll(60_000), f"nothing comes behind {seen} displays"
            said = late.recv_multipart()
            seen += said[0] == b"display_data"
            idle = said[0] == b"status" and b'"idle"' in said[-1] and cell.encode() in said[4]
        assert seen == 3000


def test_subscribing_and_leaving_again_and_again(client):
    for _ in range(50):
        s = client.context.socket(zmq.SUB)
        s.linger = 0
        s.setsockopt(zmq.SUBSCRIBE, os.urandom(4) if client.kernel.is_cellblock else b"")
        s.connect(endpoint(client.connection, "iopub"))
        s.close()
    assert client.run("1").ok
