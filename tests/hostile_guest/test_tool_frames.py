"""What a hostile guest may send as calls of host tools: forged ones, those of tools that nobody registered, huge and
deep arguments, questions outside a cell that may ask.

The frames are written by cells, which run in the guest's process: fd 3 is the wire.
"""

import pytest

from toolhost import Host

pytestmark = [pytest.mark.cellblock_only("the guest's wire is cellblock's own"), pytest.mark.timeout(120)]
TWINS = False

INPUT_REQUEST, LANE_INPUT = 31, 77
FRAME = """import os, struct, time
from cellblock_guest import context
def put(metadata, kind=31, request=0, content=b'{"prompt":"","password":false}'):
    data = struct.pack("<IIIIQII", kind, len(content), len(metadata), 0, request or context.current(), 0, 0)
    data += content + metadata
    while data:
        data = data[os.write(3, data):]
"""
GOOD = b'{"tool":"add","args":[1],"kwargs":{}}'
CALL = "put(b'{\"calls\":[%s]}')\ntime.sleep(600)" % GOOD.decode()
BREACHES = {
    "not registered": b'{"calls":[{"tool":"sub","args":[],"kwargs":{}}]}',
    "no name": b'{"calls":[{"tool":"","args":[],"kwargs":{}}]}',
    "a long name": b'{"calls":[{"tool":"' + b"x" * 100000 + b'","args":[],"kwargs":{}}]}',
    "a name with NUL": b'{"calls":[{"tool":"add\\u0000","args":[],"kwargs":{}}]}',
    "a name that is a number": b'{"calls":[{"tool":5,"args":[],"kwargs":{}}]}',
    "without a name": b'{"calls":[{"args":[],"kwargs":{}}]}',
    "without args": b'{"calls":[{"tool":"add","kwargs":{}}]}',
    "args are an object": b'{"calls":[{"tool":"add","args":{},"kwargs":{}}]}',
    "kwargs are a list": b'{"calls":[{"tool":"add","args":[],"kwargs":[]}]}',
    "an id of its own": b'{"calls":[{"id":"1","tool":"add","args":[],"kwargs":{}}]}',
    "an id of its own, escaped": b'{"calls":[{"\\u0069d":"1","tool":"add","args":[],"kwargs":{}}]}',
    "a double id": b'{"calls":[{"id":"1","id":"1","tool":"add","args":[],"kwargs":{}}]}',
    "an id in the second": b'{"calls":[' + GOOD + b',{"id":"1","tool":"add","args":[],"kwargs":{}}]}',
    "none": b'{"calls":[]}',
    "no list": b'{"calls":{}}',
    "a list of lists": b'{"calls":[[]]}',
    "too many": b'{"calls":[' + b",".join([GOOD] * 257) + b"]}",
    "calls twice": b'{"calls":[' + GOOD + b'],"calls":[' + GOOD + b"]}",
    "too deep": b'{"calls":[{"tool":"add","args":' + b"[" * 300 + b"]" * 300 + b',"kwargs":{}}]}',
    "very deep": b"[" * 1000000,
    "NaN": b'{"calls":[{"tool":"add","args":[NaN],"kwargs":{}}]}',
    "a lone surrogate": b'{"calls":[{"tool":"add","args":["\\ud800"],"kwargs":{}}]}',
    "no UTF-8": b'{"calls":[{"tool":"add","args":["\xff"],"kwargs":{}}]}',
    "a key twice": b'{"calls":[{"tool":"add","args":[],"kwargs":{"a":1,"a":2}}]}',
    "two values": b'{"calls":[' + GOOD + b"]} {}",
    "half": b'{"calls":[' + GOOD,
    "the client's words": b'{"cellblock":{"calls":[' + GOOD + b"]},\"calls\":[{}]}",
}


def add(a):
    return a


def broken(cell):
    assert cell.content["ename"] == "WireError" and cell.error["ename"] == "WireError", cell
    assert "calls" not in cell.about or not any(call["completed"] for call in cell.about["calls"])


@pytest.fixture
def host(client):
    return Host(client, add=add).register()


@pytest.mark.parametrize("name", BREACHES)
def test_breach(host, name):
    broken(host.client.run(FRAME + f"put({BREACHES[name]!r})\ntime.sleep(600)", allow_stdin=True))
    assert not host.client.inbox["stdin"]
    assert host.run("add(5)").result == "5"


def test_huge_arguments(start):
    kernel = start(args=["--set", "limits.message=1M"])
    host = Host(kernel.client, add=add).register()
    code = "put(b'{\"calls\":[{\"tool\":\"add\",\"args\":[\"' + b'x' * (2 << 20) + b'\"],\"kwargs\":{}}]}')\n"
    code += "time.sleep(600)"
    broken(host.client.run(FRAME + code, allow_stdin=True))
    assert host.run("len(add('x' * 900_000))").result == "900000"


def test_where_nothing_is_registered(client):
    broken(client.run(FRAME + CALL, allow_stdin=True))
    assert not client.inbox["stdin"]


def test_without_allow_stdin(host):
    broken(host.client.run(FRAME + CALL))
    assert not host.client.inbox["stdin"]


def test_two_questions_at_a_time(host):
    code = "put(b'{\"calls\":[%s]}')\nput(b'')\ntime.sleep(600)" % GOOD.decode()
    broken(host.client.run(FRAME + code, allow_stdin=True))


@pytest.mark.parametrize("kind, given", [(LANE_INPUT, 0), (INPUT_REQUEST, 1), (INPUT_REQUEST, 10**6)])
def test_in_anothers_name(host, kind, given):
    host.client.run("1")
    code = "put(b'{\"calls\":[%s]}', %d, %d)\ntime.sleep(600)" % (GOOD.decode(), kind, given)
    broken(host.client.run(FRAME + code, allow_stdin=True))
    assert not host.client.inbox["stdin"]


def test_after_the_cell(host):
    client = host.client
    code = "import threading\ndef late():\n    go.wait()\n    put(b'{\"calls\":[%s]}', request=mine)\n" % GOOD.decode()
    code += "go = threading.Event()\nmine = context.current()\nthreading.Thread(target=late).start()"
    assert client.run(FRAME + code, allow_stdin=True).ok
    client.run("go.set()")
    client.wait("iopub", lambda m: m.type == "status" and m.content["execution_state"] == "restarting")
    assert not client.inbox["stdin"]


def test_what_only_says_that_it_calls(host):
    """Metadata of a plain question that is of no meaning is not passed on."""
    cell = host.client.start(
        FRAME + "put(b'{\"cellblock\":{\"calls\":[{\"tool\":\"add\"}]}}')\ntime.sleep(600)", allow_stdin=True
    )
    assert host.client.wait("stdin").metadata == {}
    host.client.stop_hard(cell)
    host.client.finish(cell)
