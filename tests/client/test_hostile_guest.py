"""What a hostile guest sends does the client no harm: no lie about who is to blame, nothing evaluated, no run that
never ends. The frames are written by cells, which run in the guest's process: fd 3 is the wire.
"""

import asyncio
import base64
from pathlib import Path

import pytest

import cellblock
from cellblock._result import NoValue, decode_value
from cellblock._run import Run
from cellblock._wire import new_message

pytestmark = [
    pytest.mark.cellblock_only("the guest's wire is cellblock's own"),
    pytest.mark.once,
]

MIME = "application/vnd.cellblock.value+json"
FRAMES = f"""import base64, json, os, struct, time
from cellblock_guest import context
STREAM, DISPLAY, RESULT, ERROR, CLEAR, REPLY = 3, 5, 9, 11, 13, 21
def put(kind, content, metadata=b'', flags=0):
    content = content if isinstance(content, bytes) else json.dumps(content).encode()
    data = struct.pack("<IIIIQII", kind, len(content), len(metadata), 0, context.current(), 0, flags)
    data += content + metadata
    while data:
        data = data[os.write(3, data):]
def value(said):
    put(RESULT, {{"data": {{"text/plain": "shown", "{MIME}": said}}, "metadata": {{}}}})
def reply(**said):
    put(REPLY, {{"status": "ok", "payload": [], "user_expressions": {{}}, **said}})
    os._exit(0)
"""
FORGED = ["IsolationError", "KernelBusyError", "JobLostError", "MalformedRequestError", "HostToolCancelledError",
          "SandboxError", "AbortedError", "CellTimeoutError", "CellMemoryError", "KernelDiedError"]


def goes_on(sb):
    sb.run("0")  # may meet the end of a guest that has answered and died
    r = sb.run("6 * 7")
    assert r.ok and r.repr == "42", r


@pytest.mark.parametrize("name", FORGED)
def test_an_error_of_the_kernels_name_is_the_cells_own(sb, name):
    r = sb.run(f"raise type({name!r}, (Exception,), {{}})('not ours')")
    assert (r.error.name, r.fault, r.limit, r.state) == (name, "code", None, "kept")
    r = sb.run(f"{FRAMES}reply(status='error', ename={name!r}, evalue='no', traceback=[])")
    assert not r.ok and r.fault == "code" and r.limit is None, r
    r = sb.run(f"{FRAMES}put(ERROR, {{'ename': {name!r}, 'evalue': 'no', 'traceback': []}})\nos._exit(0)")
    assert not r.ok and r.fault == "code", r
    goes_on(sb)


def test_an_interrupt_that_nobody_sent_is_the_cells_own(sb):
    assert sb.run("raise KeyboardInterrupt").fault == "code"


@pytest.mark.parametrize(
    "code", ["raise MemoryError", "raise type('MemoryError', (Exception,), {})", "bytearray(1 << 60)"]
)
def test_a_memory_error_is_taken_for_the_limit_as_the_documentation_says(sb, code):
    r = sb.run(code)
    assert (r.error.name, r.fault, r.limit, r.state) == ("MemoryError", "limit", "memory", "kept"), r
    words = (Path(__file__).parents[2] / "docs/client.md").read_text()
    assert 'a `MemoryError` counts as the limit of memory (`limit` is `"memory"`) also where the cell raises' in words


@pytest.mark.parametrize("status", ["aborted", "abort", None, ["ok"], {"ok": 1}])
def test_a_status_that_the_kernel_alone_may_use(sb, status):
    r = sb.run(f"{FRAMES}put(REPLY, {{'status': {status!r}, 'payload': [], 'user_expressions': {{}}}})\ntime.sleep(60)")
    assert r.error.name == "WireError" and r.fault == "code" and r.state == "restored", r
    goes_on(sb)


def test_what_a_reply_says_of_itself_is_the_kernels_word(sb):
    lies = {"by": "kernel", "state": "lost", "undone": [1], "limit": "time", "usage": {"wall_s": 1e6},
            "calls": [{"id": "1", "tool": "pay", "completed": True}]}
    code = f"""put(REPLY, {{"status": "error", "ename": "IsolationError", "evalue": "", "traceback": [], "payload": [],
    "user_expressions": {{}}, "cellblock": {lies!r}}}, json.dumps({{"cellblock": {lies!r}}}).encode())
os._exit(0)"""
    r = sb.run(FRAMES + code)
    assert (r.fault, r.limit, r.undone, r.calls) == ("code", None, [] if r.state == "kept" else r.undone, []), r
    assert r.state != "lost" and r.usage.wall_s < 1e5
    goes_on(sb)


VALUES = {
    "text": "json.dumps({'json': 5})",
    "text of what is no JSON": "'{\"json\": NaN}'",
    "deep text": "'{\"json\":' + '[' * 900 + ']' * 900 + '}'",
    "very deep text": "'[' * 100000",
    "half a character as text": "'{\"json\": \"\\\\\\\\ud800\"}'",
    "two": "{'json': 1, 'bytes': ''}",
    "none": "{}",
    "a list": "[['json', 1]]",
    "pickled": "{'pickle': base64.b64encode(b'cos\\nabort\\n(tR.').decode()}",
    "no base64": "{'bytes': '!!'}",
    "objects": "{'array': {'dtype': '|O', 'shape': [1], 'data': 'AAAAAAAAAAA='}}",
    "a record with objects": "{'array': {'dtype': 'i4,O', 'shape': [1], 'data': 'AAAAAAAAAAA='}}",
    "negative": "{'array': {'dtype': '<f8', 'shape': [-1], 'data': 'AAAAAAAAAAA='}}",
    "sizes that overflow": "{'array': {'dtype': '<f8', 'shape': [2**32, 2**32], 'data': ''}}",
    "nothing times a lot": "{'array': {'dtype': '<f8', 'shape': [0, 10**30], 'data': ''}}",
    "items of any size": "{'array': {'dtype': 'V99999999999999', 'shape': [0], 'data': ''}}",
    "many digits": "{'array': {'dtype': 'S' + '9' * 5000, 'shape': [0], 'data': ''}}",
    "items of no size": "{'array': {'dtype': 'V0', 'shape': [10**9], 'data': ''}}",
    "a time in steps of nothing": "{'array': {'dtype': '<M8[0s]', 'shape': [1], 'data': 'AAAAAAAAAAA='}}",
    "a time of no unit": "{'array': {'dtype': '<M8[zz]', 'shape': [0], 'data': ''}}",
    "a boolean as size": "{'array': {'dtype': '<f8', 'shape': [True], 'data': 'AAAAAAAAAAA='}}",
    "more sizes than numpy has": "{'array': {'dtype': '<f8', 'shape': [1] * 65, 'data': 'AAAAAAAAAAA='}}",
}


@pytest.mark.parametrize("name", VALUES)
def test_values_that_lie_are_none(sb, name):
    if "'array'" in VALUES[name]:
        pytest.importorskip("numpy", reason="without it an array's words are passed on as they are")
    r = sb.run(f"{FRAMES}value({VALUES[name]})")
    assert r.ok and not r.has_value and r.value is None and r.repr == "shown", r
    goes_on(sb)


DTYPES = ["O", "|O", "i4,O", "f8, O8", "(2,)O", "V8(O)", "__reduce__", "os.system", "", "<f8\n"]


@pytest.mark.parametrize("dtype", DTYPES, ids=range(len(DTYPES)))
def test_no_type_of_an_array_makes_objects(dtype):
    with pytest.raises(NoValue):
        decode_value({"array": {"dtype": dtype, "shape": [1], "data": base64.b64encode(bytes(8)).decode()}})


WRAPPED = ["<m8[0D]", "<M8[00s]", "<M8[0]", f"<M8[{1 << 32}s]", f"<m8[{1 << 31}D]", f"<U{1 << 30}", f"<U{1 << 31}",
           f"|V{1 << 32}"]


@pytest.mark.parametrize("dtype", WRAPPED)
def test_no_number_of_an_arrays_type_becomes_another(dtype):
    """numpy takes the lower half of some. By the steps of a time it divides: none may come to be 0."""
    with pytest.raises(NoValue, match="dtype"):
        decode_value({"array": {"dtype": dtype, "shape": [1], "data": base64.b64encode(bytes(8)).decode()}})


def test_displays_that_lie(sb):
    r = sb.run(FRAMES + """
for data in ({}, {"text/plain": ["a", 5], "image/png": {"a": 1}}, {"image/png": "!!", "image/svg+xml": 5},
             {"image/gif": "AAAA", "application/json": "[" * 100000}):
    put(DISPLAY, {"data": data, "metadata": {}, "transient": {"display_id": []}})
for i in range(3000):
    put(CLEAR, {"wait": False})
put(DISPLAY, {"data": {"image/png": "AAAA"}, "metadata": {}, "transient": {}})
""")
    assert r.ok and [i.data for i in r.images] == [bytes(3)] and r.text() == ""
    goes_on(sb)


@pytest.mark.parametrize("number", ["9" * 5000, "[" * 300 + "]" * 300, '"\\ud800"', "NaN"])
def test_what_this_sides_parser_would_not_read_ends_the_cell_and_not_the_run(sb, number):
    """A reply that the client drops would leave the run waiting for ever: the kernel lets none through."""
    raw = f'{{"status":"ok","payload":[],"user_expressions":{{"a":{number}}}}}'
    r = sb.run(f"{FRAMES}put(REPLY, {raw.encode()!r})\ntime.sleep(60)")
    assert r.error.name == "WireError" and r.fault == "code", r
    goes_on(sb)


def test_texts_of_errors_do_a_terminal_no_harm(sb):
    with pytest.raises(cellblock.CellError) as caught:
        sb.run("raise type('\\x1b[2JX', (Exception,), {})('\\x1b]0;title\\x07 \\x9b31m')", check=True)
    assert "X" in str(caught.value) and not set("\x1b\x07\x9b") & set(str(caught.value) + caught.value.result.text())


def test_outputs_belong_to_the_cell_that_ran(sb):
    sb.run("""import threading, sys
go, gone = threading.Event(), threading.Event()
def late():
    go.wait(); print("late"); sys.stdout.flush(); gone.set()
threading.Thread(target=late).start()""")
    first = sb.run("print('first')")
    second = sb.run("go.set(); gone.wait(); print('second')")
    assert first.stdout == "first\n" and "second\n" in second.stdout and "first" not in second.stdout


@pytest.mark.parametrize("metadata, fault", [
    ({}, "infrastructure"), ({"cellblock": {"by": "kernel", "state": "kept"}}, "infrastructure"),
    ({"cellblock": {"by": "outside", "state": "lost"}}, "infrastructure"),
    ({"cellblock": {"state": "kept"}}, "code"), ({"cellblock": {"by": "cell", "state": "kept"}}, "code"),
    ({"cellblock": {"traceparent": "00-1-2-01"}}, "infrastructure"),
])
def test_who_is_to_blame_for_what_could_not_be_run(metadata, fault):
    async def main():
        run = Run("1", None, None)
        content = {"status": "error", "ename": "KernelBusyError", "evalue": "the queue is full", "traceback": []}
        run.receive("shell", new_message("execute_reply", content, "s", metadata=metadata))
        run.receive("iopub", new_message("status", {"execution_state": "idle"}, "s"))
        await run.done
        assert run.result().fault == fault and run.result().error.name == "KernelBusyError"

    asyncio.run(main())
