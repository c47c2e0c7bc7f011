"""Messages whose parts have no end, or are too many or too large together, sent by who has no key: bounded as a whole,
and nobody else notices."""

import resource
import select
import socket
import time

import pytest
import rawclient
import zmtp

pytestmark = [pytest.mark.cellblock_only, pytest.mark.once]
MIB = 1 << 20


@pytest.fixture
def small(start):
    """The bound is 64 MiB here."""
    return start(args=["--set", "limits.message=16M"])


def send_until_refused(connections, data, most):
    """What was taken of each, until all are closed by the kernel, or `most` bytes of each are."""
    taken = [0] * len(connections)
    left = set(range(len(connections)))
    while left:
        for i in sorted(left):
            try:
                connections[i].sendall(data)
            except (ConnectionError, TimeoutError):
                left.discard(i)
            else:
                taken[i] += len(data)
                if taken[i] >= most:
                    left.discard(i)
    return taken


def be_served_as_an_older_peer(connection):
    """A heartbeat of one that speaks ZMTP 2.0: libzmq can't say which connection its messages came by."""
    with socket.create_connection((connection["ip"], connection["hb_port"]), timeout=30) as s, s.makefile("rb") as f:
        s.sendall(b"\xff" + b"\0" * 8 + b"\x7f\x01\x05" + zmtp.part(b"", more=False))  # a DEALER, without identity
        assert f.read(14)[10:] == b"\x03\x06" + zmtp.part(b"", more=False)
        s.sendall(zmtp.part(b"x", more=False))
        assert f.read(3) == zmtp.part(b"x", more=False)


@pytest.mark.parametrize("size, older", [(8 * MIB, False), (1000, True)])
def test_parts_without_end(small, size, older):
    if older:
        be_served_as_an_older_peer(small.connection)
    before = small.memory()
    one = zmtp.connect(small.connection, "shell")
    data = zmtp.part(b"x" * size) * (MIB // size or 1)
    assert send_until_refused([one], data, 400 * MIB)[0] < 300 * MIB
    assert small.memory() - before < 200 * MIB
    assert small.client.run("6*7").result == "42"


def test_many_that_send_without_end(small):
    before = small.memory()
    peers = [zmtp.connect(small.connection, channel) for channel in ("shell", "control", "stdin") * 4]
    for peer in peers:
        peer.setblocking(False)
    part = zmtp.part(b"x" * MIB)
    offsets = [0] * len(peers)
    rounds, end = 0, rawclient.deadline_in(None)
    while rounds < 4000 or sum(offsets) <= 128 * MIB and time.monotonic() < end:
        rounds += 1
        if rounds > 4000:
            select.select([], peers, [], 1)
        for i, peer in enumerate(peers):
            try:
                offsets[i] += peer.send(part[offsets[i] % len(part) :])
            except OSError:
                pass
    assert sum(offsets) > 128 * MIB, "as much as all may hold together"
    assert small.client.run("6*7").result == "42", "who sends little is served meanwhile"
    assert small.memory() - before < 250 * MIB
    for peer in peers:
        peer.close()
    large = {"x": "y" * (10 * MIB)}  # waits for room: what they have sent is given up only after ten seconds, in turns
    assert small.client.request("kernel_info_request", metadata=large, timeout=150).content["status"] == "ok"


def test_more_connections_than_are_counted(small):
    """Of one that there is no count for nothing is read."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * 4096:
        pytest.skip("fewer open files are allowed than are counted")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    shell = (small.connection["ip"], small.connection["shell_port"])
    try:
        silent = [socket.create_connection(shell, timeout=30) for _ in range(4096)]
        try:
            one = zmtp.connect(small.connection, "shell")
        except ConnectionError:
            taken = 0
        else:
            taken = send_until_refused([one], zmtp.part(b"x" * MIB), 64 * MIB)[0]
        for peer in silent:
            peer.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert taken < 32 * MIB
    assert small.client.run("6*7").result == "42"


def test_large_parts_that_are_a_message(small):
    """Whole, not signed: dropped, and the connection is not the worse for it."""
    one = zmtp.connect(small.connection, "shell")
    for _ in range(3):
        one.sendall(zmtp.part(b"x" * 20 * MIB) * 2 + zmtp.part(b"x", more=False))
    assert small.client.run("6*7").result == "42"


def test_many_whole_messages_are_all_taken(small):
    """More than the bound together, faster than they are answered: none is lost."""
    c = small.client
    asked = [c.send("kernel_info_request", metadata={"x": "y" * (10 * MIB)}) for _ in range(20)]
    for msg_id in asked:
        assert c.reply(msg_id).content["status"] == "ok"
