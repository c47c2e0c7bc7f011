"""Files of the workspace and commands in the jail, in every mode of the workspace; sync and async."""

import asyncio
import concurrent.futures
import errno
import io
import os
import subprocess
from unittest import mock

import pytest

import cellblock
import kernels
from cellblock._files import Files
from cellblock._session import Reply


@pytest.fixture(params=["rw", "overlay", "tmpfs"])
def space(make, request):
    sb = make("agent", policy={"workspace.mode": request.param, "transactions.mode": "off", "limits.cpu": 0})
    sb.mode = request.param
    return sb


def test_read_and_write(space):
    sb = space
    with sb.open("a.txt", "w") as f:
        assert f.write("grün\n") == 5
        f.write("two\n")
    assert sb.run("open('a.txt', encoding='utf-8').read()").repr == r"'grün\ntwo\n'"
    with sb.open("a.txt") as f:
        assert f.read() == "grün\ntwo\n"
    with sb.open("a.txt", "a") as f:
        f.write("three\n")
    with sb.open("a.txt", "rb") as f:
        assert f.read(3) == "gr".encode() + b"\xc3"
        assert f.read() == b"\xbcn\ntwo\nthree\n"
    sb.run("open('b.bin', 'wb').write(bytes(range(256)) * 9000)")
    assert sb.read_file("b.bin") == bytes(range(256)) * 9000
    sb.write_file("new/deep/c.bin", bytes(range(256)) * 9000)
    assert sb.run("open('new/deep/c.bin', 'rb').read() == bytes(range(256)) * 9000").repr == "True"


def test_modes(space):
    sb = space
    with sb.open("x.txt", "x") as f:
        f.write("1")
    with pytest.raises(FileExistsError):
        with sb.open("x.txt", "x"):
            pass
    with pytest.raises(io.UnsupportedOperation):
        with sb.open("x.txt") as f:
            f.write("2")
    with pytest.raises(io.UnsupportedOperation):
        with sb.open("x.txt", "a") as f:
            f.read()
    for wrong in ("rw", "q", "rbt", "", "rr"):
        with pytest.raises(ValueError, match="invalid mode"):
            sb.open("x.txt", wrong)
    with sb.open("x.txt", "w") as f:
        f.write("")
    assert sb.read_file("x.txt") == b""
    assert sb.run("import os; os.symlink('nothing', 'link'); os.mkdir('folder')").ok
    for there in ("link", "folder", "."):
        with pytest.raises(FileExistsError):
            with sb.open(there, "x"):
                pass
    assert sorted(e.name for e in sb.list_files()) == ["folder", "link", "x.txt"]


def test_one_alone_makes_a_file_that_is_not_there(space):
    """As a lock: those that come at the same time fail."""

    def made(_):
        try:
            with space.open("lock", "x"):
                return True
        except FileExistsError:
            return False

    async def made_together():
        opening = [space.inner.open("lock", "x").__aenter__() for _ in range(8)]
        return [not isinstance(m, FileExistsError) for m in await asyncio.gather(*opening, return_exceptions=True)]

    if isinstance(space, cellblock.Sandbox):
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            assert sum(threads.map(made, range(8))) == 1
    else:
        assert sum(space.loop.run_until_complete(made_together())) == 1


def test_what_can_not_be_written(sb):
    for mode, wrong in (("wb", 5), ("wb", "text"), ("w", b"bytes"), ("w", 5)):
        with sb.open("wrong", mode) as f, pytest.raises(TypeError, match=type(wrong).__name__):
            f.write(wrong)
        assert sb.read_file("wrong") == b""
    with sb.open("words", "wb") as f:
        assert f.write(memoryview(b"abcd").cast("H")) == 4
    assert sb.read_file("words") == b"abcd"


def test_errors_say_which_file_and_what(sb):
    sb.write_file("there", "x")
    for use, name, number in (
        (lambda: sb.read_file("nothing"), "nothing", errno.ENOENT), (lambda: sb.read_file("."), ".", errno.EISDIR),
        (lambda: sb.read_file("there/x"), "there/x", errno.ENOTDIR),
        (lambda: sb.read_file("/etc"), "/etc", errno.EACCES),
        (lambda: sb.open("there", "x").__enter__(), "there", errno.EEXIST),
    ):
        with pytest.raises(OSError) as caught:
            use()
        assert (caught.value.errno, caught.value.filename) == (number, name), caught.value
    with pytest.raises(FileNotFoundError) as caught:
        sb.read_file("nothing")
    assert str(caught.value) == "[Errno 2] No such file or directory: 'nothing'"
    with pytest.raises(FileNotFoundError) as caught:
        sb.run_command(["no-such-program"])
    assert caught.value.errno == errno.ENOENT and caught.value.strerror.startswith("no-such-program")


def test_append_begins_at_the_end(space):
    sb = space
    sb.write_file("x", "one")
    with sb.open("x", "a+") as f:
        assert f.read() == ""
        f.write("two")
        if isinstance(sb, cellblock.Sandbox):
            assert f.tell() == 6 and f.seek(0) == 0 and f.read(3) == "one"
            f.write("three")
            assert f.tell() == 11
    if isinstance(sb, cellblock.Sandbox):
        with sb.open("x", "ab") as f:
            assert f.tell() == 11 and f.write(b"four") == 4 and f.tell() == 15
        assert sb.read_file("x") == b"onetwothreefour"


def test_lines_end_with_a_newline_alone(space):
    text = "a\r\nb\x0bc\u2028d\re\n\nf"
    space.write_file("x", text)
    for mode, whole in (("r", text), ("rb", text.encode())):
        with space.open("x", mode) as f:
            lines = list(f if isinstance(space, cellblock.Sandbox) else f.all_of(f.inner.__aiter__()))
        end = whole[-2:-1]
        assert lines == [*(part + end for part in whole.split(end)[:-1]), whole[-1:]]


def test_lists_and_deletes(space):
    sb = space
    sb.write_file("d/one", "1")
    sb.write_file("d/two", "22")
    assert sorted((e.name, e.type, e.size) for e in sb.list_files("d")) == [("one", "file", 1), ("two", "file", 2)]
    assert sb.delete_file("d/one") == 1
    with pytest.raises(OSError):
        sb.delete_file("d")
    assert sb.delete_file("d", recursive=True) == 2
    assert "d" not in [e.name for e in sb.list_files()]


def test_no_path_leads_out(space):
    sb = space
    sb.run("import os\nos.symlink('/etc', '/tmp/x')\nfor n, t in (('l', '/etc/passwd'), ('m', '/tmp/x')):\n"
           "    try:\n        os.symlink(t, n)\n    except OSError:\n        pass")
    paths = ["/etc/passwd", "../secret", "/proc/self/environ", "x/../../secret"]
    if sb.mode != "rw":  # there no cell can make such links
        paths += ["l", "m/passwd"]
    for path in paths:
        with pytest.raises((PermissionError, FileNotFoundError)):
            sb.read_file(path)
        with pytest.raises((PermissionError, FileNotFoundError, IsADirectoryError)):
            with sb.open(path, "w") as f:
                f.write("x")
    with pytest.raises(FileNotFoundError):
        sb.read_file("nothing")
    with pytest.raises(IsADirectoryError):
        sb.read_file(".")


def test_clear_workspace(space):
    sb = space
    if sb.mode != "tmpfs":
        (sb.policy.workspace / "old").write_text("old")
    sb.write_file("new", "new")
    if sb.mode == "rw":
        with pytest.raises((cellblock.RequestError, OSError)):
            sb.clear_workspace()
        assert {e.name for e in sb.list_files()} == {"old", "new"}
        sb.clear_workspace(everything=True)
        assert sb.list_files() == [] and list(sb.policy.workspace.iterdir()) == []
    else:
        sb.clear_workspace()
        assert [e.name for e in sb.list_files()] == (["old"] if sb.mode == "overlay" else [])


@pytest.mark.parametrize("mode, everything", [("tmpfs", False), ("rw", True), ("overlay", True)])
def test_what_could_not_be_cleared_is_told(make, mode, everything):
    sb = make("agent", policy={"workspace.mode": mode})
    sb.run("import os; os.mkdir('d'); open('d/f', 'w').close(); os.chmod('d', 0o500)")
    try:
        sb.clear_workspace(everything=everything)
    except OSError as e:
        assert e.errno == errno.ENOTEMPTY and "the first: f" in str(e) and [f.name for f in sb.list_files()] == ["d"]
    else:  # who starts it may do so
        assert sb.list_files() == []
    sb.run("os.path.exists('d') and os.chmod('d', 0o700)")  # the test's folder is removed


def test_what_is_protected_is_not_cleared_and_no_error(make):
    """It is told apart: behind it, and before it, is what can't be deleted for another reason."""
    folder = make.work()
    (folder / ".git/hooks").mkdir(parents=True)
    (folder / ".git/hooks/pre-commit").write_text("#!/bin/sh")
    (folder / "old").write_text("old")
    sb = make("agent", workspace=folder, policy={"workspace.mode": "rw"})
    sb.clear_workspace(everything=True)
    assert os.listdir(folder) == [".git"] and os.listdir(folder / ".git/hooks") == ["pre-commit"]
    sb.run("import os; os.mkdir('d'); open('d/f', 'w').close(); os.chmod('d', 0o500)")
    try:
        sb.clear_workspace(everything=True)
    except OSError as e:
        assert str(e).endswith("1 entries could not be deleted, the first: f: Permission denied"), e
    else:
        assert os.listdir(folder) == [".git"]
    sb.run("os.path.exists('d') and os.chmod('d', 0o700)")


def test_a_workspace_that_is_only_read_can_not_be_cleared(make):
    folder = make.work()
    (folder / "old").write_text("old")
    sb = make("agent", workspace=folder, policy={"workspace.mode": "ro"})
    with pytest.raises(OSError, match="1 entries could not be deleted, the first: old"):
        sb.clear_workspace(everything=True)
    assert os.listdir(folder) == ["old"]


def test_what_one_message_does_not_hold_is_told():
    """By a session that says what the kernel says of many: to make them takes long."""

    async def main():
        said = {"changes": [{"path": "a", "change": "added"}], "added": 90_000, "failed": 1, "truncated": True}
        session = mock.Mock(request=mock.AsyncMock(return_value=Reply(said, {}, [])))
        files = Files(mock.AsyncMock(return_value=session), lambda: 1000)
        changes = await files.changes("commit")
        assert changes == [cellblock.Change("a", "added")] and changes.truncated
        assert changes.counts == {"added": 90_000, "failed": 1}
        session.request.return_value = Reply({"entries": [], "truncated": True}, {}, [])
        with pytest.raises(OSError, match="more entries"):
            await files.list("train")

    asyncio.run(main())


def test_a_first_use_knows_how_much_one_message_holds(make):
    policy, data = {"workspace.mode": "tmpfs", "limits.message": "256K"}, bytes(range(256)) * 4000
    sb = make("agent", policy=policy)
    sb.write_file("in.bin", data)
    assert sb.read_file("in.bin") == data
    sb = make("agent", policy=policy)
    with sb.open("in.bin", "wb") as f:
        f.write(data)
    assert sb.read_file("in.bin") == data


def test_changes_and_commit(make):
    sb = make("agent")
    (sb.policy.workspace / "old").write_text("old")
    assert sb.changes() == []
    sb.run("open('old', 'w').write('changed'); open('new', 'w').write('new')")
    assert {(c.path, c.change) for c in sb.changes()} == {("old", "modified"), ("new", "added")}
    assert not (sb.policy.workspace / "new").exists()
    assert {(c.path, c.change) for c in sb.commit()} == {("old", "modified"), ("new", "added")}
    assert (sb.policy.workspace / "new").read_text() == "new"
    assert (sb.policy.workspace / "old").read_text() == "changed"
    sb = make("notebook")
    with pytest.raises((cellblock.RequestError, OSError)):
        sb.changes()


def test_read_only(make):
    sb = make("agent", policy={"workspace.mode": "ro"})
    (sb.policy.workspace / "a").write_text("a")
    assert sb.read_file("a") == b"a"
    with pytest.raises(OSError):
        sb.write_file("a", "b")


LOOK = """
import os, threading, time
led, stop = [], False
def look():
    while not stop:
        for pid in filter(str.isdigit, os.listdir('/proc')):
            try:
                if open(f'/proc/{pid}/comm').read() == 'cellblock-job\\n':
                    led.append(os.readlink(f'/proc/{pid}/exe'))
            except OSError:
                pass
looking = threading.Thread(target=look, daemon=True)
looking.start()
"""


def test_cells_do_not_reach_the_host_by_the_helpers_of_such_requests(space):
    """A helper's program is a file of the host's, which belongs to the user: a cell could change its mode."""
    assert space.run(LOOK).ok
    for i in range(40):
        space.write_file(f"{i}.bin", bytes(1 << 20))
    assert space.run("stop = True; looking.join(); len(led)").repr == "0"


IN_MOUNT = """
import os
said = set()
for act in (
    lambda: open("data/new", "w"), lambda: open("data/a", "w"), lambda: os.remove("data/a"), lambda: os.mkdir("data/d"),
    lambda: os.rename("data/a", "data/b"), lambda: os.link("data/a", "data/c"), lambda: os.chmod("data/a", 0o600),
    lambda: os.rename("data", "b"), lambda: os.chmod("data", 0o700), lambda: os.mkfifo("data/f"),
    lambda: os.rmdir("empty"),
):
    try:
        act(); said.add("done")
    except OSError as e:
        said.add(os.strerror(e.errno))
print(*said, open("data/a").read())
"""


def test_a_mount_in_the_workspace_hides_what_is_below_it(make):
    """For writing as well: what lies there outside is not meant by its name."""
    folder = make.work()
    work, data = folder / "work", folder / "theirs"
    for place, text in (work / "data", "hidden"), (data, "theirs"):
        place.mkdir(parents=True)
        (place / "a").write_text(text)
        kernels.let_in(place)
    (work / "empty").mkdir()
    mounts = [{"source": str(data), "target": f"/workspace/{each}", "mode": "ro"} for each in ("data", "empty")]
    sb = make("agent", workspace=work, policy={"workspace.mode": "rw", "mounts": mounts})
    said = sb.run(IN_MOUNT)
    assert said.stdout == "Read-only file system theirs\n", said
    assert sorted(os.listdir(work)) == ["data", "empty"] and os.listdir(work / "data") == ["a"]
    assert (work / "data/a").read_text() == "hidden"


def test_a_folder_of_the_workspace_is_mounted_read_only(make):
    """Itself, and at its own place: the workspace is written for cells where no mount lies on it."""
    folder = make.work()
    data = folder / "work/data"
    (data / "below").mkdir(parents=True)
    (data / "a").write_text("theirs")
    for place in (data, data / "below"):
        kernels.let_in(place)
    mounts = [{"source": str(data), "target": "/workspace/data", "mode": "ro"}]
    sb = make("agent", workspace=folder / "work", policy={"workspace.mode": "rw", "mounts": mounts})
    tries = ("open('data/a', 'w')", "open('data/new', 'w')", "os.mkdir('data/f')", "os.unlink('data/a')",
             "os.rename('data', 'x')", "os.rename('data/a', 'a')", "os.symlink('a', 'data/below/l')",
             "os.chmod('data/a', 0o777)")
    for each in tries:
        said = sb.run(f"import os; {each}")
        assert not said.ok and said.error.name in ("OSError", "PermissionError"), (each, said)
    assert sb.run("open('data/a').read()").value == "theirs" and sb.run("open('own', 'w').write('1')").ok
    assert sorted(os.listdir(data)) == ["a", "below"] and (data / "a").read_text() == "theirs"


def test_run_command(sb):
    script = "echo $A; cat; pwd; echo oops >&2; exit 3"
    p = sb.run_command(["sh", "-c", script], env={"A": "1"}, stdin="in\n", cwd="/tmp")
    assert (p.returncode, p.stdout, p.stderr, p.limit) == (3, "1\nin\n/tmp\n", "oops\n", None)
    assert p.usage.wall_s > 0
    assert sb.run_command(["cat"], stdin=b"bytes").stdout == "bytes"
    with pytest.raises(subprocess.CalledProcessError) as failed:
        sb.run_command(iter(["false"]), check=True)
    assert failed.value.cmd == ["false"]
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        sb.run_command(["no-such-program"])
    with pytest.raises(TypeError, match="list of words"):
        sb.run_command("ls")
    for limit in (1, 10, 30):  # on a busy machine a shell may not have said it by then
        with pytest.raises(cellblock.CommandTimeoutError) as caught:
            sb.run_command(["sh", "-c", "echo began; sleep 1000"], timeout=limit)
        if caught.value.stdout:
            break
    assert caught.value.stdout == "began\n" and isinstance(caught.value, TimeoutError)
    assert str(caught.value) == f"the command ran longer than {limit} s and was killed", "a traceback names the class"


def test_usage(sb):
    assert sb.usage()["limits"]["pids"] == 4096
