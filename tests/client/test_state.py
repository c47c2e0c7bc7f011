"""Checkpoints, branches, variables, reset: sync and async."""

import pytest

import cellblock

pytestmark = pytest.mark.once


def test_checkpoints(make):
    sb = make("agent")
    sb.run("x = 1")
    kept = sb.checkpoint("clean")
    assert kept["name"] == "clean" and kept["memory_bytes"] > 0 and kept["duration_s"] >= 0
    sb.run("x = 2")
    assert [c["name"] for c in sb.checkpoints()] == ["clean"]
    assert sb.rollback("clean") == [2] and sb.run("x").repr == "1"
    sb.run("x = 3")
    assert sb.rollback() == [4] and sb.run("x").repr == "1"
    sb.run("x = 4")
    assert sb.rollback(cells=1) == [6] and sb.run("x").repr == "1"
    with pytest.raises(cellblock.CheckpointError, match="no more than"):
        sb.rollback(cells=100)
    sb.delete_checkpoint("clean")
    with pytest.raises(cellblock.CheckpointError):
        sb.rollback("clean")
    with pytest.raises(cellblock.RequestError):
        sb.checkpoint("x" * 500)


def test_what_did_not_come_back_is_told(make):
    """As a cell tells it that does the same. Of pairs only those of streams are made anew."""
    sb = make("agent")
    sb.run("import socket\nends = socket.socketpair(type=socket.SOCK_SEQPACKET)")
    sb.checkpoint("open")
    sb.run("x = 1")
    cell = sb.run("%rollback open")
    sb.run("x = 1")
    assert sb.rollback("open") == [4]
    told = sb.last
    assert told.ok and told.state == cell.state == "restored" and told.undone == [4]
    assert all(r.stderr.endswith("; what did not come back: 2 sockets]\n") for r in (told, cell)), (told, cell)
    with sb.branch() as branch:
        sb.adopt(branch)
    assert sb.last.state == "restored" and "[cellblock: all variables are as they were" in sb.last.text(), sb.last


def test_branches(make):
    sb = make("agent")
    sb.run("x = [1]")
    with sb.branch() as a, sb.branch() as b:
        a.run("x.append(2)")
        b.run("x.append(3)")
        assert (a.run("x").repr, b.run("x").repr, sb.run("x").repr) == ("[1, 2]", "[1, 3]", "[1]")
        assert b.last.repr == "[1, 3]"
    with pytest.raises(cellblock.SandboxError, match="closed"):
        a.run("1")
    with pytest.raises(cellblock.CheckpointError):
        with sb.branch("no such name"):
            pass


def test_a_branch_that_ended_by_itself_can_be_closed(make):
    sb = make("agent")
    with sb.branch() as a, sb.branch() as b:
        r = a.run("import os; os._exit(1)")
        assert not r.ok and r.state == "lost" and r.fault == "code"
        assert not a.run("1").ok
        sb.reset()
        assert not b.run("1").ok
    assert sb.run("1").repr == "1"


def test_adopt(make):
    sb = make("agent")
    sb.run("x = [1]")
    sb.checkpoint("before")
    with sb.branch("before") as b:
        b.run("x.append(2)")
        assert sb.adopt(b) is sb
        with pytest.raises(cellblock.SandboxError, match="closed"):
            b.run("x")
    with pytest.raises(cellblock.CheckpointError, match="open branch"):
        sb.adopt(b)
    assert sb.run("x").repr == "[1, 2]"
    sb.checkpoint("later")
    with sb.branch() as b:
        assert b.run("x").repr == "[1, 2]"
    assert not sb.run("import os; os._exit(1)").ok and sb.run("x").repr == "[1, 2]"
    sb.rollback("before")
    assert sb.run("x").repr == "[1]"
    sb.rollback("later")
    assert sb.run("x").repr == "[1, 2]"


def test_what_can_not_be_adopted(make):
    sb, other = make("agent"), make("agent")
    with other.branch() as foreign, pytest.raises(cellblock.CheckpointError, match="open branch"):
        sb.adopt(foreign)
    with sb.branch() as b:
        assert not b.run("import os; os._exit(1)").ok
        with pytest.raises(cellblock.SandboxError, match="has ended"):
            sb.adopt(b)
    assert sb.run("1").repr == "1"


def test_set(sb):
    sb.set("x", {"a": [1, None]})
    assert sb.run("x").repr == "{'a': [1, None]}"
    sb.set("x", b"\x00\xff")
    assert sb.run("x").repr == repr(b"\x00\xff")
    numpy = pytest.importorskip("numpy")
    sb.set("x", numpy.arange(4).reshape(2, 2))
    assert sb.run("x.shape, int(x.sum())").repr == "((2, 2), 6)"
    with pytest.raises(TypeError):
        sb.set("x", object())
    with pytest.raises(ValueError):
        sb.set("not a name", 1)


def test_get(sb, values):
    sb.run("x = [1, 2]\nn = None\no = object()")
    assert sb["x"] == [1, 2] and sb.get("x") == [1, 2] and sb.get("n") is None
    with pytest.raises(KeyError, match="missing"):
        sb.get("missing")
    with pytest.raises(TypeError, match="<object"):
        sb.get("o")
    sb.run("class Wrong:\n    def __repr__(self):\n        return 'fine'\nw = Wrong()")
    with pytest.raises(TypeError, match="fine"):
        sb.get("w")


LARGE = {
    "a text": "x = 'x' * 700_000",
    "bytes": "x = b'x' * 500_000",
    "a list": "x = ['x' * 1000] * 1100",
    "an array": "import numpy\nx = numpy.ones(1_000_000)",
}


@pytest.mark.parametrize("code", LARGE.values(), ids=LARGE)
def test_get_of_what_is_too_large(make, code):
    if "numpy" in code:
        pytest.importorskip("numpy")
    sb = make("agent")
    assert sb.run(code + "\nnone = None\nodd = [float('nan')]").ok
    with pytest.raises(cellblock.ValueTooLargeError, match=r"x has .* limits\.output \(1048576 bytes\).*read_file\(\)"):
        sb.get("x")
    with pytest.raises(TypeError, match="odd is neither"):
        sb.get("odd")
    assert sb.get("none") is None and sb.run("len(x) > 1000").value is True


def test_get_runs_no_magic_and_what_shows_itself_is_not_none(make):
    sb = make("agent")
    assert sb.run("class Figure:\n    def _ipython_display_(self): pass\nfigure = Figure()\nnone = None").ok
    for name in ("env", "pwd", "time", "config"):
        with pytest.raises(KeyError, match=name):
            sb.get(name)
    with pytest.raises(TypeError, match="figure is neither"):
        sb.get("figure")
    assert sb.get("none") is None


def test_get_of_what_is_too_large_for_a_message(make):
    sb = make("notebook", policy={"limits.message": "64K"})
    sb.run("x = 'x' * 40_000\nsmall = 'x' * 20_000")
    with pytest.raises(cellblock.ValueTooLargeError, match=r"40002 bytes.* limits\.message \(65536 bytes\)"):
        sb.get("x")
    assert sb.get("small") == "x" * 20_000


def test_a_request_that_is_too_large_for_a_message(make):
    """From 64 MB on the kernel would drop it unread, and never answer."""
    sb = make("notebook", policy={"limits.message": "64K"})
    for use in (
        lambda: sb.set("x", "x" * 70_000), lambda: sb.run("#" * 70_000),
        lambda: sb.run_command(["true"], stdin=b"x" * (70 << 20)),
    ):
        with pytest.raises(cellblock.ValueTooLargeError, match=r"has 7\d+ bytes, and limits\.message allows 65536: .*"):
            use()
    sb.write_file("large", b"x" * 100_000)
    assert sb.run("x = len(open('large').read())").ok and sb.get("x") == 100_000


def test_set_and_get_leave_no_trace(sb):
    sb.run("1")
    count = sb.run("2").execution_count
    sb.set("y", 1)
    assert sb.last.repr == "2" and sb.run("3").execution_count == count + 1
