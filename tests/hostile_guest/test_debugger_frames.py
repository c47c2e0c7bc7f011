"""What a hostile guest may send in the debugger's name: events and answers that it was not asked for, broken ones, and
words about a stop that never was.

The frames are written by cells, which run in the guest's process: fd 7 is the side wire.
"""

import pytest

pytestmark = [pytest.mark.cellblock_only("the guest's wire is cellblock's own"), pytest.mark.timeout(120)]
TWINS = False

REPLY, EVENT = 73, 75
FRAME = """import os, struct
def put(fd, kind, content, request=0, length=None):
    length = len(content) if length is None else length
    data = struct.pack("<IIIIQII", kind, length, 0, 0, request, 0, 0) + content
    while data:
        data = data[os.write(fd, data):]
put({})
"""
STOPPED = b'{"type":"event","event":"stopped","body":{"threadId":1}}'
RESPONSE = b'{"type":"response","request_seq":1,"success":true,"command":"threads"}'
BREACHES = {
    "an answer to nothing": (7, REPLY, RESPONSE),
    "an answer to a number": (7, REPLY, RESPONSE, 1),
    "an event with an id": (7, EVENT, STOPPED, 1),
    "an event that is a response": (7, EVENT, b'{"type":"response","event":"stopped"}'),
    "an event without a name": (7, EVENT, b'{"type":"event"}'),
    "an event with NaN": (7, EVENT, b'{"type":"event","event":"x","body":NaN}'),
    "a key twice": (7, EVENT, b'{"type":"event","event":"x","event":"y"}'),
    "a lone surrogate": (7, EVENT, b'{"type":"event","event":"\\ud800"}'),
    "too deep": (7, EVENT, b'{"type":"event","event":"x","body":' + b"[" * 300 + b"]" * 300 + b"}"),
    "too long": (7, EVENT, b"{}", 0, 1 << 30),
    "on the wire": (3, EVENT, STOPPED),
    "a request": (7, 68, b"{}"),
}


def ask(client, command="debugInfo"):
    content = {"type": "request", "seq": 1, "command": command, "arguments": {}}
    return client.request("debug_request", content, channel="control").content


def put(*what):
    return FRAME.format(", ".join(map(repr, what)))


@pytest.mark.parametrize("breach", BREACHES)
def test_a_breach(client, breach):
    assert ask(client)["success"]
    cell = client.run(put(*BREACHES[breach]) + "import time; time.sleep(60)")
    assert cell.error["ename"] == "WireError"
    assert client.run("6*7").result == "42" and ask(client)["success"]


def test_an_event_before_the_first_request(start):
    c = start().client
    assert c.run(put(7, EVENT, STOPPED) + "import time; time.sleep(60)").error["ename"] == "WireError"


def test_a_stop_that_never_was_gives_no_time(start):
    """Without a session it is nothing; with one the clock stands only while the jail uses no CPU."""
    c = start(args=["--set", "timeout.cell=2", "--set", "timeout.grace=1"]).client
    assert ask(c)["success"]
    lie = put(7, EVENT, STOPPED)
    assert c.run(lie + "import time; time.sleep(60)").error["ename"] == "CellTimeoutError"
    if not ask(c, "initialize")["success"]:
        pytest.skip("NOT RUN: debugpy is missing")
    assert c.run(lie + "while True: pass").error["ename"] == "CellTimeoutError"


def test_a_flood_of_events(start):
    """It is output: over the limit it is dropped, with a notice."""
    kernel = start(args=["--set", "limits.output=1M"])
    c = kernel.client
    assert ask(c)["success"]
    before = kernel.memory()
    cell = c.run(put(7, EVENT, b'{"type":"event","event":"x","body":"%s"}' % (b"x" * 50000)) + FLOOD)
    assert cell.ok
    c.beat()
    c.wait("iopub", lambda m: m.type == "stream" and "limits.output" in m.content["text"])
    events = sum(1 for m in c.inbox["iopub"] if m.type == "debug_event")
    assert 10 < events <= 21
    assert kernel.memory() - before < 64 << 20


FLOOD = """for _ in range(2000):
    put(7, 75, b'{"type":"event","event":"x","body":"%s"}' % (b"x" * 50000))
"""
