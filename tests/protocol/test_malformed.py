"""Requests that are signed but wrong get an error reply, busy and idle: never silence."""

import pytest

pytestmark = [pytest.mark.cellblock_only("ipykernel answers most of these with silence"), pytest.mark.once]

WRONG = [
    ("execute_request", {}),
    ("execute_request", {"code": 5}),
    ("execute_request", {"code": None}),
    ("execute_request", {"code": "1", "silent": "yes"}),
    ("execute_request", {"code": "1", "user_expressions": []}),
    ("execute_request", {"code": "1", "user_expressions": {"a": 1}}),
    ("complete_request", {}),
    ("complete_request", {"code": "x", "cursor_pos": "1"}),
    ("complete_request", {"code": 1, "cursor_pos": 0}),
    ("inspect_request", {"cursor_pos": 0}),
    ("inspect_request", {"code": "x", "cursor_pos": 0, "detail_level": "high"}),
    ("inspect_request", {"code": "x", "cursor_pos": 1, "omit_sections": 1}),
    ("inspect_request", {"code": "x", "cursor_pos": 1, "omit_sections": ["type", 1]}),
    ("is_complete_request", {}),
    ("is_complete_request", {"code": []}),
    ("history_request", {"hist_access_type": "sideways"}),
    ("history_request", {"hist_access_type": "tail", "n": "three"}),
    ("history_request", {"hist_access_type": "range", "session": {}}),
    ("comm_info_request", {"target_name": 7}),
]


@pytest.mark.parametrize("msg_type, content", WRONG, ids=lambda v: str(v)[:60])
def test_wrong_content(client, msg_type, content):
    msg_id = client.send(msg_type, content)
    reply = client.reply(msg_id)
    assert reply.type == msg_type.replace("_request", "_reply")
    c = reply.content
    assert (c["status"], c["ename"]) == ("error", "MalformedRequestError")
    assert c["evalue"] and isinstance(c["traceback"], list)
    about = client.until_idle(msg_id)
    assert about[0].content == {"execution_state": "busy"}
    assert client.run("6*7").result == "42"


RAW = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'{"code": "1"} x',
    b'{"code": "\xff"}',
    b'{"code": "\\ud800"}',
    b'{"code": "1", "x": NaN}',
    b'{"code":' + b"[" * 100_000,
    b'{"code": "1", "code": "2"}',
    b'{"code": "a\x00b"}',
    b"\x00" * 64,
    b'{"code": "1", "x": 1e99999}',
]


@pytest.mark.parametrize("raw", RAW, ids=lambda r: ascii(r[:24]))
def test_content_that_is_not_json(client, raw):
    msg_id = client.send("execute_request", raw)
    reply = client.reply(msg_id)
    if reply.content["status"] == "ok":
        assert raw in (b'{"code": "1", "x": 1e99999}', b'{"code": "\\ud800"}'), "taken although it is no JSON"
    else:
        assert reply.content["ename"] and reply.content["evalue"]
    client.until_idle(msg_id)
    assert client.run("1").ok


@pytest.mark.parametrize(
    "raw",
    [b"[]", b"{", b'{"cellblock": {"timeout": "long"}}', b'{"cellblock": {"timeout": -1}}', b'{"cellblock": []}'],
    ids=ascii,
)
def test_wrong_metadata(client, raw):
    msg_id = client.send("execute_request", {"code": "1"}, metadata=raw)
    reply = client.reply(msg_id).content
    assert reply["status"] == "error"
    shown = [m.content for m in client.until_idle(msg_id) if m.type == "error"]  # or a person would see nothing
    assert [(e["ename"], e["evalue"]) for e in shown] == [(reply["ename"], reply["evalue"])]
    assert client.run("1").ok


def test_unknown_metadata_is_ignored(client):
    cell = client.run("1", metadata={"cellblock": {"colour": "red"}, "x": [1], "cellId": "abc"})
    assert cell.ok


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"msg_id": 5, "msg_type": "execute_request"}',
        b'{"msg_id": "a"}',
        b'{"msg_id": "a", "msg_type": []}',
        b"\xff",
        b"[" * 200_000,
    ],
    ids=lambda r: ascii(r[:30]),
)
def test_wrong_header_is_dropped_and_the_next_message_served(client, raw):
    """Without a header there is nobody to answer."""
    client.send_frames("shell", signed(client, [raw, b"{}", b"{}", b'{"code": "1"}']))
    assert client.run("2").result == "2"


def signed(client, parts):
    from rawclient import DELIMITER, sign

    return [DELIMITER, sign(client.key, parts, client.digest), *parts]


@pytest.mark.parametrize("channel", ["shell", "control", "stdin"])
def test_types_that_make_no_sense_on_their_channel(client, channel):
    for msg_type in ("execute_reply", "stream", "status", "input_reply", "", "x" * 10_000, "é"):
        client.send(msg_type, {"value": "x"}, channel=channel, header=client.header(msg_type))
    assert client.run("2").result == "2"


def test_a_request_that_is_too_large_is_refused_with_words(start):
    k = start(args=["--set", "limits.message=1M"])
    msg_id = k.client.start("x = '" + "a" * 3_000_000 + "'")
    try:
        reply = k.client.reply(msg_id)
        assert reply.content["status"] == "error" and "limits.message" in reply.content["evalue"]
    finally:
        with start.client(k) as again:
            again.ready()
            assert again.run("1").ok
