"""Files and policies of a workspace whose cells are hostile: no path leads out, no file fills this side's memory."""

import errno
import json
import os
import time

import pytest

import cellblock
import kernels
import rawclient
from cellblock import _anyfile, _files

pytestmark = [pytest.mark.cellblock_only("files through the kernel")]


@pytest.fixture(scope="module", params=["tmpfs", "overlay", "rw"])
def sb(request, nothing_left):
    folder = nothing_left / request.param
    kernels.let_in(folder)
    (nothing_left / "outside").write_text("secret")
    with cellblock.Sandbox("notebook", workspace=folder, policy={"workspace.mode": request.param}) as made:
        yield made


def test_a_file_of_any_size_is_refused_at_once(sb):
    assert sb.run("with open('big', 'wb') as f: f.truncate(1 << 40)").ok
    for read in (lambda: sb.read_file("big"), lambda: sb.open("big", "rb").read(), lambda: sb.open("big").read()):
        with pytest.raises(OSError) as caught:
            read()
        assert caught.value.errno == errno.EFBIG and "read(size)" in str(caught.value)
    with sb.open("big", "rb") as f:
        assert f.read(10) == bytes(10)
        f.seek((1 << 40) - 3)
        assert f.read() == bytes(3)
    sb.delete_file("big")


def test_a_file_that_grows_is_not_read_for_ever(sb, monkeypatch):
    """It was small when it was asked for; the cell writes on as long as it is read."""
    monkeypatch.setattr(_files, "MAX_WHOLE", 3 << 20)
    monkeypatch.setattr(_files.Files, "size", lambda self, path: _nothing())
    assert sb.run("with open('grows', 'wb') as f: f.truncate(1 << 30)").ok
    with pytest.raises(OSError) as caught:
        sb.read_file("grows")
    assert caught.value.errno == errno.EFBIG
    sb.delete_file("grows")


async def _nothing():
    return 0


APPENDS = """import threading
stop = threading.Event()
def append(log):
    with log:
        while not stop.wait(0.0001):
            log.write(b"x")
logs = [open(path, "ab", 0) for path in ("log", "/tmp/log")]
threads = [threading.Thread(target=append, args=[log]) for log in logs if log.write(b"xxxxx")]
for thread in threads:
    thread.start()"""


def counted(monkeypatch, owner, name):
    """What `name` is called with; an error instead of a reading that does not end."""
    real, asked = getattr(owner, name), []

    async def count(*words):
        asked.append(words)
        assert len(asked) < 50, "it is read for ever"
        return await real(*words)

    monkeypatch.setattr(owner, name, count)
    return asked


def test_a_file_that_is_appended_to_is_read_to_where_it_ended(sb, monkeypatch):
    """Little comes behind it, but always some."""
    asked, elsewhere = counted(monkeypatch, _files.Files, "read_at"), counted(monkeypatch, _anyfile, "_python")
    assert sb.run(APPENDS).ok
    try:
        sb.read_file("log")
        with sb.open("log", "rb") as f:
            f.read()
        cellblock._loop.call(_anyfile.read_anyfile(sb._a, "/tmp/log"))
    finally:
        assert sb.run("import os\nstop.set()\nfor t in threads: t.join()\nos.truncate('log', 5)").ok
    asked.clear()
    assert sb.read_file("log") == b"xxxxx" and len(asked) == 1, "where a part is short nothing follows"
    sb.run("os.remove('log'), os.remove('/tmp/log')")


def test_what_comes_in_pages_is_read_whole(sb):
    """As files of /proc do, whatever is asked for."""
    found = cellblock._loop.call(_anyfile.read_anyfile(sb._a, "/proc/self/smaps"))
    assert len(found) > 8192 and b"[stack]" in found


WAYS = ["../outside", "/etc/passwd", "link", "links/passwd", "a/../../outside", "loop", "/proc/self/environ", "fd",
        "pipe", "socket", "./../outside", "folder/..//../outside"]


def test_no_path_leads_out(sb, nothing_left):
    made = sb.run("""import os, socket
refused = []
for name, to in (("link", "../outside"), ("links", "/etc"), ("loop", "loop"), ("fd", "/proc/self/fd/0")):
    try: os.symlink(to, name)
    except OSError: refused.append(name)
os.makedirs("folder", exist_ok=True)
os.mkfifo("pipe")
socket.socket(socket.AF_UNIX).bind("socket")
refused""")
    assert made.ok and (made.value or sb.policy.settings["workspace.mode"] != "rw"), made
    for path in WAYS:
        for use in (sb.read_file, sb.list_files, lambda p: sb.open(p).read(), lambda p: sb.write_file(p, "x")):
            if made.value and path.split("/")[0] in made.value:
                continue  # a link that leads out can't be made where the folder itself is written: it is no name at all
            with pytest.raises((OSError, cellblock.RequestError)):
                use(path)
                pytest.fail(f"{path}: {made}")
    assert (nothing_left / "outside").read_text() == "secret"
    assert sb.run("6 * 7").repr == "42"


STRANGE = ["", "\0", "a\0b", "a/" * 3000 + "a", "x" * 300, ".", "..", "/", "//", "a\ud800"]


@pytest.mark.parametrize("path", STRANGE, ids=range(len(STRANGE)))
def test_strange_paths_are_errors_of_the_caller(sb, path):
    for use in (sb.read_file, lambda p: sb.write_file(p, "x")):
        with pytest.raises((OSError, ValueError, cellblock.RequestError)):
            use(path)
    assert sb.run("1").ok


def test_names_are_data(sb):
    for name in ("a\nb", "-rf", "$(id)", "'; id; '", "\x1b[2Jx", "é", "*"):
        sb.write_file(name, name)
        assert sb.read_file(name) == name.encode() and name in {e.name for e in sb.list_files()}
        assert sb.run_command(["cat", "--", name]).stdout == name
        sb.delete_file(name)
    done = sb.run_command(["printf", "%s|", "a b", "$HOME", "`id`", "\n", "", "*"])
    assert done.stdout == "a b|$HOME|`id`|\n||*|"
    for argv in (["a\0b"], ["true", "a\0b"], [], [""]):
        with pytest.raises((OSError, ValueError, cellblock.RequestError)):
            sb.run_command(argv)


def test_a_link_that_is_swapped_under_way(sb, nothing_left):
    """Renames beside the reader: a name that is now a folder of the workspace, now a link out of it."""
    outside = sb.policy.settings["workspace.mode"] == "rw"  # cells make no link that leads out where that is written
    swap = f"""import os, threading, time
swap = {(f"{nothing_left}/rw/" if outside else "") + "swap/"!r}
os.makedirs(swap + "in", exist_ok=True); open(swap + "in/outside", "w").write("inside")
os.symlink("../..", swap + "out")
stop, rest = threading.Event(), []
def rename():
    while not stop.is_set():
        for name in ("in", "out"):
            try:
                os.rename(swap + name, swap + "now")
                for s in rest: time.sleep(s)
                os.rename(swap + "now", swap + name)
            except OSError:  # a write in between has made a folder of that name
                try: os.unlink(swap + "now/new"); os.rmdir(swap + "now")
                except OSError: pass
threading.Thread(target=rename, daemon=True).start()"""
    here = {}

    def run(code):
        if outside:
            exec(code, here)
        else:
            sb.run(code, check=True)

    run(swap)
    seen, errors, tries, end = set(), set(), 0, rawclient.deadline_in(None)
    while tries < 100 or not (seen and PermissionError in errors or time.monotonic() > end):
        tries += 1
        if tries == 100:
            run("rest.append(0.01)")  # a read asks more than once: from here on each of both stays for so long
        try:
            seen.add(sb.read_file("swap/now/outside"))
        except (OSError, cellblock.RequestError) as e:
            errors.add(type(e))
        try:
            sb.write_file("swap/now/new", b"x")
        except (OSError, cellblock.RequestError):
            pass
    run("stop.set()")
    assert seen == {b"inside"} and PermissionError in errors, (seen, errors)
    assert not (nothing_left / "new").exists() and not os.path.exists("/new")


def test_a_policy_that_cells_could_write_is_refused(tmp_path, monkeypatch):
    kernels.let_in(tmp_path)
    (tmp_path / "wide.json").write_text(json.dumps({"network.mode": "full"}))
    monkeypatch.chdir(tmp_path)
    for named in (str(tmp_path / "wide.json"), "./wide.json", None):
        monkeypatch.setenv("CELLBLOCK_POLICY", "./wide.json")
        with pytest.raises(cellblock.PolicyError, match="lies in the workspace"):
            cellblock.Sandbox(named, workspace=tmp_path).start()
