"""What does not carry the right signature is dropped unread; replays are refused; garbage does no harm."""

import json

import pytest
import zmq
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rawclient import DELIMITER, endpoint, sign

pytestmark = pytest.mark.once

MARK = "forged = True"


def parts(client, code=MARK):
    return client.parts(client.header("execute_request"), {"code": code, "silent": False})


def not_executed(client, name="forged"):
    cell = client.run(f"{name!r} in globals()")
    assert cell.result == "False"


@pytest.mark.parametrize(
    "signature",
    [b"", b"0", b"0" * 64, b"f" * 63, b"f" * 65, b"f" * 100_000, b"\x00" * 64, b"z" * 64],
    ids=lambda s: ascii(s[:4]) + str(len(s)),
)
def test_wrong_signatures(client, signature):
    client.send_frames("shell", [DELIMITER, signature, *parts(client)])
    not_executed(client)


@pytest.mark.parametrize("length", [1, 32, 63])
def test_beginnings_of_the_right_signature(client, length):
    p = parts(client)
    client.send_frames("shell", [DELIMITER, sign(client.key, p, client.digest)[:length], *p])
    not_executed(client)


def test_upper_case_is_not_the_signature(client):
    p = parts(client)
    signature = sign(client.key, p, client.digest)
    client.send_frames("shell", [DELIMITER, signature.upper(), *p])
    not_executed(client)


@pytest.mark.parametrize("which", range(4))
def test_every_part_is_signed(client, which):
    p = parts(client)
    signature = sign(client.key, p, client.digest)
    p[which] = p[which] + b" "
    client.send_frames("shell", [DELIMITER, signature, *p])
    not_executed(client)


def test_moved_frame_borders_keep_the_signature_but_not_the_message(client):
    """The HMAC runs over the joined bytes: a border that moved is signed right and must do no harm."""
    p = parts(client, "6*7")
    signature = sign(client.key, p, client.digest)
    client.send_frames("shell", [DELIMITER, signature, p[0] + p[1], b"", p[2], p[3]])
    assert client.run("1").ok


@pytest.mark.parametrize("channel", ["shell", "control"])
def test_a_replay_is_refused(client, channel):
    p = client.parts(client.header("kernel_info_request"), {})
    frames = [DELIMITER, sign(client.key, p, client.digest), *p]
    msg_id = json.loads(p[0])["msg_id"]
    client.send_frames(channel, frames)
    client.reply(msg_id, channel)
    client.until_idle(msg_id)
    client.send_frames(channel, frames)
    assert client.run("1").ok
    client.request("kernel_info_request", channel=channel)
    assert not [m for c in ("shell", "control", "iopub") for m in client.inbox[c] if m.parent_id == msg_id]


def test_a_replayed_cell_does_not_run_again(client):
    client.run("times = 0")
    p = parts(client, "times += 1")
    frames = [DELIMITER, sign(client.key, p, client.digest), *p]
    client.send_frames("shell", frames)
    client.finish(json.loads(p[0])["msg_id"])
    for _ in range(3):
        client.send_frames("shell", frames)
    assert client.run("times").result == "1"


@pytest.mark.cellblock_only("ipykernel's channels share nothing either, but its control takes shell's messages")
def test_a_replay_on_another_channel_is_refused(client):
    client.run("crossed = 0")
    p = parts(client, "crossed += 1")
    frames = [DELIMITER, sign(client.key, p, client.digest), *p]
    client.send_frames("shell", frames)
    client.finish(json.loads(p[0])["msg_id"])
    client.send_frames("control", frames)
    client.request("kernel_info_request", channel="control")
    assert client.run("crossed").result == "1"


GARBAGE = [
    [b""],
    [b"", b""],
    [DELIMITER],
    [b"x"] * 3,
    [DELIMITER] * 7,
    [b"\xff" * 1000],
    [DELIMITER, b"", b"", b"", b""],
    [b"x"] * 2000,
    [DELIMITER, b"s", b"{}", b"{}", b"{}"],
    [b"ident"] * 30 + [DELIMITER, b"s", b"{}", b"{}", b"{}", b"{}"],
]


@pytest.mark.parametrize("channel", ["shell", "control", "stdin"])
@pytest.mark.parametrize("frames", GARBAGE, ids=lambda f: f"{len(f)}x{ascii(f[0][:6])}")
def test_garbage(client, channel, frames):
    client.send_frames(channel, frames)
    assert client.request("kernel_info_request", channel="control").content["status"] == "ok"
    assert client.run("1").ok


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    frames=st.lists(st.binary(max_size=200) | st.just(DELIMITER), min_size=1, max_size=12),
    channel=st.sampled_from(["shell", "control", "stdin"]),
)
def test_any_frames(client, frames, channel):
    client.send_frames(channel, frames)
    assert client.request("kernel_info_request").content["status"] == "ok"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda s: (
            st.lists(s, max_size=4)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "code",
                        "silent",
                        "cursor_pos",
                        "comm_id",
                        "target_name",
                        "data",
                        "n",
                        "session",
                        "user_expressions",
                        "restart",
                    ]
                ),
                s,
                max_size=5,
            )
        ),
        max_leaves=12,
    ),
    msg_type=st.sampled_from(
        [
            "complete_request",
            "inspect_request",
            "is_complete_request",
            "history_request",
            "comm_info_request",
            "comm_open",
            "comm_msg",
            "comm_close",
            "input_reply",
            "interrupt_request",
        ]
    ),
)
@example(content={"code": ""}, msg_type="is_complete_request")
@pytest.mark.cellblock_only("ipykernel answers wrong content with silence")
def test_any_signed_content(client, content, msg_type):
    good = ("complete", "incomplete", "invalid", "unknown") if msg_type == "is_complete_request" else ("ok",)
    msg_id = client.send(msg_type, content)
    if msg_type.endswith("_request"):
        assert client.reply(msg_id).content["status"] in (*good, "error")
    if msg_type != "input_reply":
        client.until_idle(msg_id)
    assert client.request("kernel_info_request").content["status"] == "ok"


def test_huge_frames_without_signature(client):
    """Whoever reaches the port can send; memory must not stay taken."""
    before = client.kernel.memory()
    for _ in range(4):
        client.send_frames("shell", [DELIMITER, b"0" * 64, b"x" * 30_000_000, b"{}", b"{}", b"{}"])
    try:
        assert client.run("1").ok
    except AssertionError:
        # A kernel may cut the peer that sent more than a message may be; it serves the next one.
        client.sockets["shell"].close()
        client.poller.unregister(client.sockets["shell"])
        client.identity += b"2"
        client.open("shell")
        assert client.run("1").ok
    if client.kernel.is_cellblock:
        assert client.kernel.memory() - before < 200 << 20


@pytest.mark.parametrize("key", ["", "k", "é" * 20, "x" * 2000, "a\nb"], ids=lambda k: str(len(k)))
def test_keys(start, key):
    k = start(connection={"key": key})
    assert k.client.run("6*7").result == "42"


def test_without_a_key_nothing_is_checked(start):
    k = start(connection={"key": ""})
    p = parts(k.client, "free = 1")
    k.client.send_frames("shell", [DELIMITER, b"whatever", *p])
    assert k.client.run("free").result == "1"


@pytest.mark.parametrize(
    "scheme", ["hmac-md5", "hmac-sha1", "hmac-sha384", "hmac-sha512", "hmac-sha3_256", "hmac-blake2b"]
)
def test_schemes(start, scheme):
    k = start(connection={"signature_scheme": scheme})
    assert k.client.run("6*7").result == "42"


TALK = (
    "import sys\nfrom comm import create_comm\nprint('out')\nprint('err', file=sys.stderr)\n"
    "c = create_comm(target_name='t', data={}, buffers=[b'1'])\nc.send({'a': 1})\nc.close()\n"
    "from IPython.display import display, clear_output\nh = display({'text/plain': 'd'}, raw=True, display_id='i')\n"
    "h.update({'text/plain': 'e'}, raw=True)\nclear_output()\n7"
)


@pytest.fixture
def heard(client):
    """What a listener without the key hears of cells: frames, each message signed by the kernel."""
    context = zmq.Context()
    ear = context.socket(zmq.SUB)
    ear.setsockopt(zmq.SUBSCRIBE, b"")
    ear.connect(endpoint(client.connection, "iopub"))
    while not ear.poll(50):
        client.request("kernel_info_request")  # until the subscription has arrived
    found = []

    def hear(code):
        msg_id = client.start(code)
        client.finish(msg_id)
        while not (found and b'"idle"' in found[-1][-1] and msg_id.encode() in found[-1][-3]):
            assert ear.poll(30000)
            found.append(ear.recv_multipart())
        return found

    yield hear
    context.destroy(linger=0)


def send_back(client, messages):
    """Each on each channel; the ids of those that anything was done for."""
    ids = set()
    for frames in messages:
        at = frames.index(DELIMITER)
        ids.add(json.loads(frames[at + 2])["msg_id"])
        for channel in ("shell", "control", "stdin"):
            client.send_frames(channel, frames[at:])
    for channel in ("shell", "control"):
        client.request("kernel_info_request", channel=channel)
    assert client.run("1").ok
    return {m.parent_id for c in ("shell", "control", "iopub") for m in client.inbox[c]} & ids


@pytest.mark.cellblock_only("ipykernel takes them")
def test_the_kernels_own_messages_are_not_taken_back(client, heard):
    client.run(
        "import comm\nopened = []\ncomm.get_comm_manager().register_target('t', lambda c, m: opened.append(m))"
    )
    messages = heard(TALK)
    types = {json.loads(m[m.index(DELIMITER) + 2])["msg_type"] for m in messages}
    assert {"comm_open", "comm_msg", "comm_close", "status", "stream", "execute_input", "display_data"} <= types
    assert not send_back(client, messages)
    assert client.run("opened").result == "[]"


@pytest.mark.cellblock_only("ipykernel takes them")
def test_nor_those_from_before_a_restart(start):
    first = start()
    context = zmq.Context()
    ear = context.socket(zmq.SUB)
    ear.setsockopt(zmq.SUBSCRIBE, b"")
    ear.connect(endpoint(first.connection, "iopub"))
    while not ear.poll(50):
        first.client.request("kernel_info_request")
    first.client.run("from comm import create_comm\nc = create_comm(target_name='t')")
    messages = []
    while not any(b'"comm_open"' in m[-4] for m in messages):
        assert ear.poll(30000)
        messages.append(ear.recv_multipart())
    context.destroy(linger=0)
    first.stop()
    second = start(connection=first.connection)  # a server restarts a kernel with its connection file as it is
    assert not send_back(second.client, messages)
