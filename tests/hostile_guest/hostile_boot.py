"""Takes the place of the guest's boot.py and breaks the wire's rules as the file `hostile` in the workspace says.

Role: runs inside the jail as the guest; standard library only. Without that file it becomes the good guest
(boot_good.py). Each behaviour is a function of its name; those that act on a cell are called with the request id of the
first EXECUTE.
"""

import json
import os
import runpy
import struct
import sys
import time

WIRE, LOG, SIDE = 3, 4, 7
EXECUTE, COMPLETE, INPUT_REPLY, SHUTDOWN = 2, 4, 16, 18
HELLO, STREAM, DISPLAY, UPDATE, RESULT, ERROR, CLEAR = 1, 3, 5, 7, 9, 11, 13
COMM_OPEN, COMM_MSG, COMM_CLOSE, EXECUTE_REPLY, COMPLETE_REPLY, INSPECT_REPLY = 15, 17, 19, 21, 23, 25
IS_COMPLETE_REPLY, COMM_DONE, INPUT_REQUEST, INTERRUPTED = 27, 29, 31, 33
CHECKPOINT_REPLY, AWAITING = 35, 71
LANE_RESULT, LANE_REPLY, LANE_DONE, LANE_INPUT, LANE_AWAITING = 65, 67, 69, 77, 79  # no messages any more
HEAD = struct.Struct("<IIIIQII")


def put(data, fd=WIRE):
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view[: 1 << 20]) :]


def side(data):
    put(data, SIDE)


def frame(
    kind,
    content=b"",
    request=0,
    *,
    metadata=b"",
    buffers=(),
    flags=0,
    content_len=None,
    metadata_len=None,
    count=None,
    buffers_len=None,
):
    """A frame, true unless told to lie."""
    if not isinstance(content, (bytes, bytearray)):
        content = json.dumps(content).encode()
    lens = b"".join(struct.pack("<I", len(b)) for b in buffers)
    head = HEAD.pack(
        kind,
        len(content) if content_len is None else content_len,
        len(metadata) if metadata_len is None else metadata_len,
        len(buffers) if count is None else count,
        request,
        sum(map(len, buffers)) if buffers_len is None else buffers_len,
        flags,
    )
    return head + content + metadata + lens + b"".join(buffers)


def take(n, fd=WIRE):
    data = b""
    while len(data) < n:
        more = os.read(fd, n - len(data))
        if not more:
            os._exit(0)
        data += more
    return data


def receive(fd=WIRE):
    kind, content, metadata, count, request, buffers, _ = HEAD.unpack(take(HEAD.size, fd))
    body = take(content, fd), take(metadata, fd), take(4 * count, fd), take(buffers, fd)
    return kind, request, body


def hello():
    put(
        frame(
            HELLO,
            {
                "wire_version": 1,
                "implementation": "plain",
                "implementation_version": "1",
                "python_version": "3.11.0",
                "missing_paths": [],
                "side": True,
            },
        )
    )


def reply(rid, **more):
    put(frame(EXECUTE_REPLY, {"status": "ok", "payload": [], "user_expressions": {}, **more}, rid))


def display(rid, data=None, kind=DISPLAY):
    put(frame(kind, data if data is not None else {"data": {"text/plain": "x"}, "metadata": {}, "transient": {}}, rid))


def stall():
    while True:
        time.sleep(600)


MATCHES = {"status": "ok", "matches": [], "cursor_start": 0, "cursor_end": 0, "metadata": {}}
OK = {"status": "ok", "payload": [], "user_expressions": {}}
RAW = '{"data": {"text/plain": %s}, "metadata": {}, "transient": {}}'

# ---- breaches: the request is to end as WireError ----
BREACHES = {
    "content_len_max": lambda r: put(frame(STREAM, b"x", r, flags=1, content_len=0xFFFFFFFF)),
    "metadata_len_max": lambda r: put(frame(DISPLAY, b"{}", r, metadata_len=0xFFFFFFFF)),
    "buffers_len_max": lambda r: put(frame(COMM_MSG, b"{}", r, buffers_len=0xFFFFFFFF)),
    "lengths_that_overflow": lambda r: put(
        frame(COMM_MSG, b"{}", r, content_len=0x80000000, metadata_len=0x80000000, buffers_len=2)
    ),
    "over_the_message_limit": lambda r: put(frame(DISPLAY, (RAW % json.dumps("x" * (20 << 20))).encode(), r)),
    "small_type_over_its_cap": lambda r: put(
        frame(CLEAR, ('{"wait": true, "x": "%s"}' % ("x" * (100 << 10))).encode(), r)
    ),
    "reply_without_content": lambda r: put(frame(EXECUTE_REPLY, b"", r)),
    "display_without_content": lambda r: put(frame(DISPLAY, b"", r)),
    "type_0": lambda r: put(frame(0, b"{}", r)),
    "type_down": lambda r: put(frame(EXECUTE, b"{}", r)),
    "type_even": lambda r: put(frame(6, b"{}", r)),
    "type_35": lambda r: put(frame(35, b"{}", r)),
    "type_max": lambda r: put(frame(0xFFFFFFFF, b"{}", r)),
    "id_never_given": lambda r: put(frame(STREAM, b"x", r + 1, flags=1)),
    "id_far": lambda r: put(frame(DISPLAY, {"data": {"text/plain": "x"}, "metadata": {}, "transient": {}}, r + 10**6)),
    "id_max": lambda r: put(frame(STREAM, b"x", 2**64 - 1, flags=1)),
    "id_negative": lambda r: put(frame(ERROR, {"ename": "E", "evalue": "", "traceback": []}, 2**63)),
    "result_for_nobody": lambda r: put(frame(RESULT, {"data": {"text/plain": "1"}, "metadata": {}}, 0)),
    "reply_for_nobody": lambda r: put(frame(EXECUTE_REPLY, {"status": "ok", "payload": [], "user_expressions": {}}, 0)),
    "hello_twice": lambda r: hello(),
    "hello_with_id": lambda r: put(frame(HELLO, {"wire_version": 1}, r)),
    "complete_reply_while_executing": lambda r: put(
        frame(COMPLETE_REPLY, {"status": "ok", "matches": [], "cursor_start": 0, "cursor_end": 0, "metadata": {}}, r)
    ),
    "comm_done_while_executing": lambda r: put(frame(COMM_DONE, {}, r)),
    "input_not_allowed": lambda r: put(frame(INPUT_REQUEST, {"prompt": "password?", "password": True}, r)),
    "count_in_result": lambda r: put(
        frame(RESULT, {"data": {"text/plain": "1"}, "metadata": {}, "execution_count": 999}, r)
    ),
    "deep": lambda r: put(frame(DISPLAY, (RAW % ("[" * 100_000 + "]" * 100_000)).encode(), r)),
    "deep_open": lambda r: put(frame(DISPLAY, b'{"data":' * 200_000, r)),
    "nan": lambda r: put(frame(DISPLAY, (RAW % '"x", "application/json": NaN').encode(), r)),
    "infinity": lambda r: put(frame(DISPLAY, (RAW % '"x", "application/json": [-Infinity]').encode(), r)),
    "lone_surrogate": lambda r: put(frame(DISPLAY, (RAW % '"\\ud800"').encode(), r)),
    "lone_low_surrogate": lambda r: put(frame(DISPLAY, (RAW % '"\\udc00\\ud800"').encode(), r)),
    "lone_surrogate_in_key": lambda r: put(frame(DISPLAY, (RAW % '"x", "\\udfff": 1').encode(), r)),
    "surrogate_as_utf8": lambda r: put(frame(DISPLAY, (RAW % '"\ud800"').encode("utf-8", "surrogatepass"), r)),
    "duplicate_keys": lambda r: put(
        frame(
            DISPLAY, b'{"data": {"text/plain": "a"}, "data": {"text/plain": "b"}, "metadata": {}, "transient": {}}', r
        )
    ),
    "duplicate_keys_escaped": lambda r: put(frame(DISPLAY, (RAW % '"a", "text\\/plain": "b"').encode(), r)),
    "invalid_utf8": lambda r: put(frame(DISPLAY, (RAW % '"\\"').encode().replace(b'\\"', b"\xff\xfe"), r)),
    "overlong_utf8": lambda r: put(frame(DISPLAY, RAW.encode() % b'"\xc0\xaf"', r)),
    "raw_control": lambda r: put(frame(DISPLAY, RAW.encode() % b'"a\nb"', r)),
    "truncated_json": lambda r: put(frame(DISPLAY, b'{"data": {"text/plain": "x"', r)),
    "two_values": lambda r: put(frame(DISPLAY, (RAW % '"x"').encode() + b" {}", r)),
    "array_for_object": lambda r: put(frame(DISPLAY, b"[]", r)),
    "null_for_object": lambda r: put(frame(DISPLAY, b"null", r)),
    "leading_zero": lambda r: put(frame(DISPLAY, (RAW % '"x", "n": 01').encode(), r)),
    "comment": lambda r: put(frame(DISPLAY, (RAW % '"x" /* c */').encode(), r)),
    "fifty_megabytes_of_zeros": lambda r: put(frame(DISPLAY, (RAW % ("[" + "0," * 25_000_000 + "0]")).encode(), r)),
    "data_is_a_list": lambda r: put(frame(DISPLAY, {"data": [], "metadata": {}, "transient": {}}, r)),
    "metadata_is_text": lambda r: put(
        frame(COMM_OPEN, {"comm_id": "a", "target_name": "t", "data": {}}, r, metadata=b'"x"')
    ),
    "metadata_is_broken": lambda r: put(
        frame(COMM_OPEN, {"comm_id": "a", "target_name": "t", "data": {}}, r, metadata=b"{")
    ),
    "comm_without_id": lambda r: put(frame(COMM_OPEN, {"target_name": "t", "data": {}}, r)),
    "comm_id_is_a_number": lambda r: put(frame(COMM_MSG, {"comm_id": 5, "data": {}}, r)),
    "error_without_name": lambda r: put(frame(ERROR, {"evalue": "", "traceback": []}, r)),
    "traceback_of_numbers": lambda r: put(frame(ERROR, {"ename": "E", "evalue": "", "traceback": [1, 2]}, r)),
    "reply_without_status": lambda r: put(frame(EXECUTE_REPLY, {"payload": [], "user_expressions": {}}, r)),
    "reply_with_odd_status": lambda r: reply(r, status="idle"),
    "reply_error_without_name": lambda r: reply(r, status="error"),
    "payload_is_an_object": lambda r: reply(r, payload={}),
    "expressions_are_a_list": lambda r: reply(r, user_expressions=[]),
    "stream_without_name": lambda r: put(frame(STREAM, b"x", r, flags=0)),
    "stream_with_both_names": lambda r: put(frame(STREAM, b"x", r, flags=3)),
    "stream_with_odd_flags": lambda r: put(frame(STREAM, b"x", r, flags=0x80000001)),
    "stream_with_buffers": lambda r: put(frame(STREAM, b"x", r, flags=1, buffers=[b"y"])),
    "flags_on_display": lambda r: put(
        frame(DISPLAY, {"data": {"text/plain": "x"}, "metadata": {}, "transient": {}}, r, flags=1)
    ),
    "too_many_buffers": lambda r: put(frame(COMM_MSG, {"comm_id": "a", "data": {}}, r, buffers=[b""] * 1025)),
    "buffer_count_max": lambda r: put(frame(COMM_MSG, {"comm_id": "a", "data": {}}, r, count=0xFFFFFFFF)),
    "buffer_lengths_beyond_the_sum": lambda r: put(
        frame(COMM_MSG, {"comm_id": "a", "data": {}}, r, count=1, buffers_len=4)
        + struct.pack("<I", 0xFFFFFFFF)
        + b"abcd"
    ),
    "buffer_lengths_below_the_sum": lambda r: put(
        frame(COMM_MSG, {"comm_id": "a", "data": {}}, r, count=1, buffers_len=4) + struct.pack("<I", 1) + b"abcd"
    ),
    "buffers_without_lengths": lambda r: put(
        frame(COMM_MSG, {"comm_id": "a", "data": {}}, r, count=0, buffers_len=4) + b"abcd"
    ),
    "side_stream": lambda r: side(frame(STREAM, b"x", r, flags=1)),
    "side_hello": lambda r: side(frame(HELLO, {"wire_version": 1})),
    "side_reply": lambda r: side(frame(EXECUTE_REPLY, OK, r)),
    "side_lane_reply": lambda r: side(frame(LANE_REPLY, OK, r)),
    "side_answer_to_nothing": lambda r: side(frame(COMPLETE_REPLY, MATCHES, r)),
    "side_lengths_max": lambda r: side(frame(COMPLETE_REPLY, b"{}", r, content_len=0xFFFFFFFF)),
    "side_all_zeros": lambda r: side(b"\0" * 4096),
    "side_flood": lambda r: side(os.urandom(64 << 20)),
    "lane_reply_of_the_main_cell": lambda r: put(frame(LANE_REPLY, OK, r)),
    "lane_result_of_the_main_cell": lambda r: put(frame(LANE_RESULT, {"data": {}, "metadata": {}}, r)),
    "lane_done_for_nobody": lambda r: put(frame(LANE_DONE, {}, 0)),
    "lane_done_never_asked": lambda r: put(frame(LANE_DONE, {}, r + 1)),
    "lane_done_id_max": lambda r: put(frame(LANE_DONE, {}, 2**64 - 1)),
    "lane_awaiting_of_the_main_cell": lambda r: put(frame(LANE_AWAITING, {}, r)),
    "lane_input_of_the_main_cell": lambda r: put(frame(LANE_INPUT, {"prompt": "", "password": False}, r)),
    "lane_input_for_nobody": lambda r: put(frame(LANE_INPUT, {"prompt": "", "password": False}, 0)),
    "awaiting_for_nobody": lambda r: put(frame(AWAITING, {}, 0)),
    "awaiting_for_another": lambda r: put(frame(AWAITING, {}, r - 1)),
    "awaiting_over_its_cap": lambda r: put(frame(AWAITING, {"x": "x" * (100 << 10)}, r)),
    "awaiting_with_buffers": lambda r: put(frame(AWAITING, {}, r, buffers=[b"x"])),
    "text_instead_of_frames": lambda r: put(b'{"msg_type": "status", "content": {"execution_state": "idle"}}\n' * 4),
    "zmq_greeting": lambda r: put(b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL" + b"\0" * 64),
    "all_ones": lambda r: put(b"\xff" * 4096),
    "all_zeros": lambda r: put(b"\0" * 4096),
}


# ---- deaths: WireError or KernelDiedError ----
def half_header_then_exit(r):
    put(frame(STREAM, b"xyz", r, flags=1)[:17])
    os._exit(3)


def half_frame_then_exit(r):
    put(frame(STREAM, b"x" * 1000, r, flags=1)[:500])
    os._exit(3)


def random_bytes(r):
    put(os.urandom(1 << 20))


def closes_the_wire(r):
    os.close(WIRE)
    stall()


def shuts_down_its_writing(r):
    import socket

    socket.socket(fileno=os.dup(WIRE)).shutdown(socket.SHUT_WR)
    stall()


def child_writes_on_after_death(r):
    if os.fork():
        os._exit(3)
    os.setsid()
    while True:
        try:
            put(frame(STREAM, b"from the dead\n", r, flags=1))
        except OSError:
            time.sleep(0.01)


def closes_the_side_wire_and_ends(r):
    os.close(SIDE)
    os._exit(3)


# ---- stalls: end by interrupt or time-out ----
def half_frame_then_stall(r):
    put(frame(STREAM, b"x" * 1000, r, flags=1)[:500])
    stall()


def half_header_then_stall(r):
    put(frame(STREAM, b"", r, flags=1)[:7])
    stall()


def half_side_header_then_stall(r):
    side(frame(COMPLETE_REPLY, b"", r)[:9])
    stall()


def large_frame_that_never_ends(r):
    put(frame(DISPLAY, b"x" * (8 << 20), r, content_len=15 << 20))
    stall()


def never_replies(r):
    stall()


def byte_by_byte(r):
    for b in frame(STREAM, b"x" * 100_000, r, flags=1):
        put(bytes([b]))
        time.sleep(0.05)


def endless_streams(r):
    data = frame(STREAM, b"flood " * 1000, r, flags=1)
    while True:
        put(data)


def endless_displays(r):
    while True:
        display(r)


def endless_interrupted(r):
    data = frame(INTERRUPTED, {}, r) * 100
    while True:
        put(data)


def endless_comms(r):
    i = 0
    while True:
        i += 1
        put(frame(COMM_OPEN, {"comm_id": f"c{i}", "target_name": "t" * 100, "data": {}}, r))


def endless_log(r):
    line = b"log " * 1000 + b"\n"
    while True:
        os.write(LOG, line)


def endless_stdout(r):
    while True:
        os.write(1, b"raw " * 10_000)


def replies_and_reads_nothing_more(r):
    """Answers one cell; from then on the wire fills up."""
    reply(r)
    stall()


# ---- lawful, only much: the cell ends by itself ----
def many_streams(r):
    data = frame(STREAM, b"0123456789" * 100, r, flags=1) * 100
    for _ in range(3000):
        put(data)
    reply(r)


def many_empty_streams(r):
    data = frame(STREAM, b"", r, flags=1) * 1000
    for _ in range(1000):
        put(data)
    reply(r)


def many_displays(r):
    data = frame(DISPLAY, {"data": {"text/plain": "x"}, "metadata": {}, "transient": {}}, r) * 100
    for _ in range(500):
        put(data)
    reply(r)


def large_displays(r):
    data = frame(DISPLAY, {"data": {"text/plain": "x" * (8 << 20)}, "metadata": {}, "transient": {}}, r)
    for _ in range(30):
        put(data)
    reply(r)


def awaits_all_the_time(r):
    data = frame(AWAITING, {}, r) * 1000
    for _ in range(200):
        put(data)
    reply(r)


def many_comms(r):
    for i in range(100_000):
        put(frame(COMM_OPEN, {"comm_id": f"c{i}", "target_name": "t", "data": {}}, r))
    reply(r)


def many_clears(r):
    data = frame(CLEAR, {"wait": False}, r) * 100
    for _ in range(1000):
        put(data)
    reply(r)


def many_errors(r):
    data = frame(ERROR, {"ename": "E", "evalue": "x" * 1000, "traceback": ["y" * 1000]}, r) * 100
    for _ in range(300):
        put(data)
    reply(r)


def much_log(r):
    line = b"log \x1b[31m\xff" * 500 + b"\n"
    for _ in range(20_000):
        os.write(LOG, line)
    reply(r)


def log_without_lines(r):
    for _ in range(2000):
        os.write(LOG, b"x" * 50_000)
    reply(r)


def much_stdout(r):
    for _ in range(5000):
        os.write(1, b"x" * 60_000)
    reply(r)


def false_count_in_reply(r):
    reply(r, execution_count=4711)


def foreign_keys_in_reply(r):
    reply(r, msg_type="status", parent_header={"msg_id": "x"}, header={"msg_id": "y"})


def broken_text(r):
    """The guest is to replace what is no UTF-8; where it does not, the supervisor does: clients never see it."""
    put(frame(STREAM, b"a\xff\xfe\xed\xa0\x80b", r, flags=1))
    reply(r)


def old_ids(r):
    """Text under an id of the past is lawful: a thread that outlived its cell."""
    for i in range(r):
        put(frame(STREAM, b"old ", i, flags=1))
    reply(r)


def heavy_json(r):
    """10 MB of small values: forwarded as bytes, not grown into objects."""
    put(frame(DISPLAY, (RAW % ('"x", "application/json": [' + "0," * 5_000_000 + "0]")).encode(), r))
    reply(r)


# ---- beside: something is asked while the cell runs; asked_ a completion, sub_ a subshell's cell, comm_ ... ----
def beside(fd=SIDE):
    return receive(fd)[1]


def asked_other_id(r):
    side(frame(COMPLETE_REPLY, MATCHES, beside() + 1))


def asked_other_kind(r):
    side(frame(INSPECT_REPLY, {"status": "ok", "found": False, "data": {}, "metadata": {}}, beside()))


def asked_twice(r):
    side(frame(COMPLETE_REPLY, MATCHES, beside()) * 2)


def asked_on_the_wire(r):
    put(frame(COMPLETE_REPLY, MATCHES, beside()))


def asked_not_json(r):
    side(frame(COMPLETE_REPLY, b'{"status": NaN}', beside()))


def asked_over_the_limit(r):
    side(frame(COMPLETE_REPLY, dict(MATCHES, matches=["x" * (20 << 20)]), beside()))


def asked_with_buffers(r):
    side(frame(COMPLETE_REPLY, MATCHES, beside(), buffers=[b"x"]))


def asked_half_then_exit(r):
    side(frame(COMPLETE_REPLY, MATCHES, beside())[:40])
    os._exit(3)


def sub_other_id(r):
    put(frame(EXECUTE_REPLY, OK, beside() + 1))


def sub_other_kind(r):
    put(frame(COMM_DONE, {}, beside()))


def sub_twice(r):
    put(frame(EXECUTE_REPLY, OK, beside()) * 2)


def sub_as_a_question(r):
    put(frame(COMPLETE_REPLY, MATCHES, beside()))


def sub_as_a_checkpoint(r):
    put(frame(CHECKPOINT_REPLY, {"status": "ok"}, beside()))


def sub_on_the_side_wire(r):
    side(frame(EXECUTE_REPLY, OK, beside()))


def sub_result_after_reply(r):
    q = beside()
    put(frame(EXECUTE_REPLY, OK, q) + frame(RESULT, {"data": {"text/plain": "1"}, "metadata": {}}, q))


def sub_count_in_result(r):
    put(frame(RESULT, {"data": {"text/plain": "1"}, "metadata": {}, "execution_count": 9}, beside()))


def sub_asks_for_input(r):
    put(frame(INPUT_REQUEST, {"prompt": "password?", "password": True}, beside()))


def comm_as_a_cell(r):
    put(frame(AWAITING, {}, r))
    put(frame(EXECUTE_REPLY, OK, beside(WIRE)))


def comm_with_a_result(r):
    put(frame(AWAITING, {}, r))
    put(frame(RESULT, {"data": {"text/plain": "1"}, "metadata": {}}, beside(WIRE)))


def comm_asks_for_input(r):
    put(frame(AWAITING, {}, r))
    put(frame(INPUT_REQUEST, {"prompt": "password?", "password": True}, beside(WIRE)))


def comm_awaits(r):
    put(frame(AWAITING, {}, r))
    put(frame(AWAITING, {}, beside(WIRE)))


def comm_ends_the_main_cell_as_its_own_kind(r):
    put(frame(AWAITING, {}, r))
    beside(WIRE)
    put(frame(COMM_DONE, {}, r))


def comm_twice(r):
    put(frame(AWAITING, {}, r))
    put(frame(COMM_DONE, {}, beside(WIRE)) * 2)


# ---- after the reply ----
def reply_twice(r):
    reply(r)
    reply(r)


def garbage_after_reply(r):
    put(frame(EXECUTE_REPLY, {"status": "ok", "payload": [], "user_expressions": {}}, r) + os.urandom(4096))


def result_after_reply(r):
    reply(r)
    put(frame(RESULT, {"data": {"text/plain": "1"}, "metadata": {}}, r))


def input_after_reply(r):
    reply(r)
    put(frame(INPUT_REQUEST, {"prompt": "late", "password": False}, r))


def death_after_reply(r):
    reply(r)
    os._exit(7)


# ---- at the start: no cell reaches them ----
def start_never_hello():
    stall()


def start_exit():
    os._exit(9)


def start_stream_before_hello():
    put(frame(STREAM, b"x", 0, flags=1))
    stall()


def start_reply_before_hello():
    reply(1)
    stall()


def start_wrong_version():
    put(
        frame(
            HELLO,
            {
                "wire_version": 2,
                "implementation": "plain",
                "implementation_version": "1",
                "python_version": "3.11.0",
                "missing_paths": [],
            },
        )
    )
    stall()


def start_huge_hello():
    put(
        frame(
            HELLO,
            {
                "wire_version": 1,
                "implementation": "plain",
                "implementation_version": "1" * (2 << 20),
                "python_version": "3.11.0",
                "missing_paths": [],
            },
        )
    )
    stall()


def start_odd_hello():
    put(frame(HELLO, b"[]"))
    stall()


def start_lying_hello():
    put(
        frame(
            HELLO,
            {
                "wire_version": 1,
                "implementation": "\u001b]0;x\u0007" * 10,
                "implementation_version": "<script>",
                "python_version": "99\n",
                "missing_paths": ["x" * 10_000] * 50,
            },
        )
    )
    serve(lambda r: reply(r))


def start_exec_loop():
    """Replaces itself for ever; same process, no HELLO."""
    os.execv(sys.executable, [sys.executable, "-c", "import time\nwhile True: time.sleep(600)"])


def ignores_shutdown():
    hello()
    while True:
        kind, request, _ = receive()
        if kind == EXECUTE:
            reply(request)


def serve(behave):
    """Behaves at the first cell, and if it lives on, is tame after it."""
    first = True
    while True:
        kind, request, body = receive()
        if kind == SHUTDOWN or b"os._exit" in body[0]:
            os._exit(0)
        if kind == EXECUTE and first:
            first = False
            behave(request)
        elif kind == EXECUTE:
            reply(request)


def main():
    try:
        with open("hostile") as f:
            name = f.read().strip()
    except FileNotFoundError:
        good = os.path.join(os.path.dirname(os.path.abspath(__file__)), "boot_good.py")
        runpy.run_path(good, run_name="__main__")
        return
    with open("starts", "a") as f:
        f.write("x")
    try:
        fd = os.open("started", os.O_WRONLY | os.O_NONBLOCK)
        os.write(fd, b"x")
        os.close(fd)
    except OSError:
        pass  # the test does not wait for this start
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if name.startswith("start_") or name == "ignores_shutdown":
        globals()[name]()
        return
    hello()
    behave = BREACHES.get(name) or globals()[name]
    if name in BREACHES:
        serve(lambda r: (behave(r), stall()))
    serve(behave)


main()
