"""Connection files: both transports, CurveZMQ, chosen ports; and one clear error for what is wrong in one."""

import contextlib
import json
import os
import socket
import tempfile
from pathlib import Path

import pytest
import zmq

import kernels
from rawclient import DEADLINE, Client

pytestmark = pytest.mark.once


@pytest.fixture
def sockets():
    """A folder whose path is short enough for the names of sockets, wherever pytest puts its own."""
    with tempfile.TemporaryDirectory(prefix="cb-") as folder:
        yield Path(folder)


def test_ipc(sockets, start):
    k = start(connection={"transport": "ipc", "ip": str(sockets / "k-ipc")})
    k.client.beat()
    assert k.client.run("6*7").result == "42"


def test_ipc_sockets_are_private(sockets, start):
    k = start(connection={"transport": "ipc", "ip": str(sockets / "k-ipc")})
    if not k.is_cellblock:
        pytest.skip("stand-in")
    found = sorted(sockets.glob("k-ipc-*"))
    assert len(found) == 5 and all(f.stat().st_mode & 0o022 == 0 for f in found)


def curve():
    public, secret = zmq.curve_keypair()
    return {"curve_publickey": public.decode(), "curve_secretkey": secret.decode()}


def test_curve(start):
    k = start(connection=curve())
    k.client.beat()
    assert k.client.run("6*7").result == "42"


def test_curve_refuses_those_without_and_with_the_wrong_key(start):
    k = start(connection=curve())
    plain = {n: v for n, v in k.connection.items() if not n.startswith("curve")}
    wrong = {**k.connection, "curve_publickey": curve()["curve_publickey"]}
    failed = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    with Client(connection=plain, events=failed) as a, Client(connection=wrong, events=failed) as b:
        for stranger in (a, b):
            for monitor in stranger.monitors.values():
                assert monitor.poll(DEADLINE * 1000), "refused at once"
            for channel in ("shell", "control"):
                stranger.sockets[channel].sndtimeo = 0  # once the kernel has hung up there is nobody to send to
                with contextlib.suppress(zmq.Again):
                    stranger.send("kernel_info_request", channel=channel)
        assert k.client.run("6*7").result == "42"
        for stranger in (a, b):
            assert not any(stranger.sockets[c].poll(0) for c in ("shell", "control", "iopub"))


def test_ports_chosen_by_the_kernel_are_written_back(start):
    names = ["shell_port", "iopub_port", "stdin_port", "control_port", "hb_port"]
    k = start(connection={**dict.fromkeys(names, 0), "x_extra": {"kept": True}}, ready=False)
    while not all(k.connection[n] for n in names):
        assert k.alive(), k.said()
        try:
            k.connection = json.loads(k.file.read_text())
        except ValueError:
            assert not k.is_cellblock, "written in place, not atomically"
    assert len({k.connection[n] for n in names}) == 5
    if k.is_cellblock:
        assert k.connection["x_extra"] == {"kept": True} and k.file.stat().st_mode & 0o777 == 0o600
    with Client(k) as c:
        c.ready()
        assert c.run("6*7").result == "42"


def test_unknown_keys_are_ignored(start):
    k = start(connection={"some_new_key": [1, {"a": None}], "kernel_name": "", "jupyter_session": "/x/y.ipynb"})
    assert k.client.run("6*7").result == "42"


BAD = [
    ("not json", "{", "JSON"),
    ("empty", "", None),
    ("an array", "[]", None),
    ("port is text", {"hb_port": "five"}, "hb_port"),
    ("port too high", {"iopub_port": 70000}, "iopub_port"),
    ("port below zero", {"iopub_port": -1}, "iopub_port"),
    ("unknown transport", {"transport": "udp"}, "transport"),
    ("unknown scheme", {"signature_scheme": "hmac-rot13"}, "signature_scheme"),
    ("scheme without hmac", {"signature_scheme": "sha256"}, "signature_scheme"),
    ("key is a number", {"key": 5}, "key"),
    ("no such address", {"ip": "203.0.113.77"}, "203.0.113.77"),
    ("curve key too short", {"curve_publickey": "x", "curve_secretkey": "y"}, "curve_"),
    ("curve without secret", {"curve_publickey": "x" * 40}, "curve_secretkey"),
]


@pytest.mark.cellblock_only
@pytest.mark.parametrize("name, change, word", BAD, ids=[b[0] for b in BAD])
def test_one_clear_error(start, name, change, word):
    how = {"file_text": change} if isinstance(change, str) else {"connection": change}
    k = start(ready=False, **how)
    assert k.wait() in (1, 2)
    said = k.said()
    lines = said.strip().splitlines()
    assert 1 <= len(lines) <= 3, said
    assert word is None or word in said
    assert "kernel-test.json" in said or word == "203.0.113.77"


@pytest.mark.cellblock_only
def test_a_taken_port_is_named(start):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        k = start(ready=False, connection={"control_port": port})
        assert k.wait() == 1
        assert str(port) in k.said() and "control" in k.said()


@pytest.mark.cellblock_only
def test_a_missing_file_is_named(start, tmp_path):
    k = start(ready=False)
    k.stop()
    gone = str(tmp_path / "gone.json")
    k = start(ready=False, argv=[a.replace(str(k.file), gone) for a in k.argv])
    assert k.wait() in (1, 2)
    assert gone in k.said()


@pytest.mark.cellblock_only
def test_a_file_that_others_can_read_is_said_or_refused(start):
    """The key is in it."""
    k = kernels.Kernel(start.folder / "probe")
    k.kill()
    os.chmod(k.file, 0o644)
    k = start(ready=False, argv=k.argv)
    k.connection = json.loads(open([a for a in k.argv if a.endswith("kernel-test.json")][0]).read())
    try:
        with Client(k) as c:
            c.ready()
    except AssertionError:
        pass
    assert "open to others (mode 644)" in k.said()


@pytest.mark.cellblock_only
@pytest.mark.parametrize(
    "args, word",
    [
        (["--set", "limits.memroy=1G"], "limits.memory"),
        (["--set", "timeout.cell=soon"], "timeout.cell"),
        (["--set", "network.mode=ful"], "full"),
        (["--policy", "notebok"], "notebook"),
        (["--set", "limits.memory"], "="),
    ],
)
def test_a_wrong_policy_is_named_with_the_nearest_word(start, args, word):
    """The kernel either ends with the message or starts and says it in every cell."""
    k = start(ready=False, args=args)
    try:
        c = start.client(k)
        c.ready()
        cell = c.run("1")
        said = cell.content.get("evalue", "") + str(cell.content.get("traceback"))
        assert cell.content["status"] == "error"
    except AssertionError:
        if k.alive():
            raise
        said = k.said()
    assert word in said
