"""Changes of an overlay workspace: listed, written through and dropped, by message and by command, whatever a hostile
cell puts in their way."""

import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

import kernels
from layers import LATER, PATIENCE, ask, await_tick, listed, skipped_of, tree

pytestmark = pytest.mark.cellblock_only
ROOT = os.geteuid() == 0
CELLBLOCK = kernels.spec_argv()[0][0]
PLAIN_PYTHON = "/usr/bin/python3"


CHANGE = """
import os, shutil
open("a", "a").write("more"); os.remove("b"); shutil.rmtree("d"); os.makedirs("d/n"); open("d/n/z", "w").write("z")
os.remove("link"); os.symlink("d/n/z", "link"); shutil.rmtree("f"); open("f", "w").write("file now")
open("same", "w").write("s"); os.chmod("same", 0o750); open("gone", "w").close(); os.remove("gone")
"""
EXPECTED = {
    ("modified", "a"),
    ("deleted", "b"),
    ("added", "d/n"),
    ("added", "d/n/z"),
    ("deleted", "d/e"),
    ("deleted", "d/x"),
    ("modified", "link"),
    ("modified", "f"),
    ("added", "same"),
}


def test_changes_and_commit(overlay):
    work = overlay.workspace
    before = tree(work)
    assert listed(ask(overlay, "changes")) == set()
    assert overlay.client.run(CHANGE).ok
    assert listed(ask(overlay, "changes")) == EXPECTED
    assert tree(work) == before
    assert listed(ask(overlay, "commit", "shell")) == EXPECTED
    after = {"a": "amore", "d/n/z": "z", "link": "-> d/n/z", "f": "file now", "same": "s"}
    assert tree(work) == {**after, ".git/hooks/old": "host"}
    assert {p.owner() for p in work.rglob("*") if not p.is_symlink()} == {work.owner()}
    assert (work / "same").stat().st_mode & 0o7777 == 0o750
    assert listed(ask(overlay, "changes")) == set(), "what is written through is no change any more"
    assert overlay.client.run("sorted(os.listdir()), open('a').read()").result == (
        "(['.git', 'a', 'd', 'f', 'link', 'same'], 'amore')"
    )


UNDONE = """
import os, shutil
open("a", "w").write("older"); open("c", "w").write("older"); os.remove("b"); shutil.rmtree("d"); shutil.rmtree("f")
os.mkdir("f"); open("own", "w").write("own")
"""


def test_what_was_changed_outside_later_stays(overlay):
    """What cells have not seen is none of theirs to overwrite or to delete."""
    work = overlay.workspace
    assert overlay.client.run(UNDONE).ok
    await_tick()
    later = {"a": "newer", "b": "newer", "c": "newer", "d/new": "new"}
    if int(subprocess.check_output(["stat", "-c", "%W", "/dev/shm"])) > 0:  # when a folder in memory was made is known
        later["f/new"] = "new"
    for name, text in later.items():
        (work / name).write_text(text)
    await_tick()
    content = ask(overlay, "commit")
    skipped = {e["path"]: e["reason"] for e in content["changes"] if e["change"] == "skipped"}
    wanted = {"d" if name == "d/new" else name for name in later}
    assert set(skipped) == wanted and all(LATER in reason for reason in skipped.values()), content
    kept = {"d/x": "x", "d/e/y": "y"}  # a folder goes whole, or not at all
    assert tree(work) == {**later, **kept, "own": "own", "link": "-> a", ".git/hooks/old": "host"}
    (work / "a").unlink()
    assert ("added", "a") in listed(ask(overlay, "commit"))
    assert (work / "a").read_text() == "older"
    assert overlay.client.run("open('a', 'w').write('newest')").ok
    assert ("modified", "a") in listed(ask(overlay, "commit"))
    assert (work / "a").read_text() == "newest"


ONCE_MORE = {
    "appended": "open('a', 'a').write('!')",
    "other modes": "os.chmod('a', 0o600)",
    "another name": "os.path.exists('a2') or os.link('a', 'a2')",
    "open all the time": "f.write('!'); f.flush()",
}


@pytest.mark.parametrize("way", ONCE_MORE)
def test_what_cells_change_once_more_was_theirs_before(overlay, way):
    """No cell has seen what was saved outside since they changed it first."""
    work, run = overlay.workspace, overlay.client.run
    assert run("import os; f = open('a', 'w'); f.write('older'); f.flush()").ok
    await_tick()
    (work / "a").write_text("newer")
    await_tick()
    for _ in range(2):  # the first list is not the end of it
        assert run(ONCE_MORE[way]).ok
        assert "a" in skipped_of(ask(overlay, "commit"))
        assert (work / "a").read_text() == "newer"
        await_tick()


def test_a_file_that_comes_again_leaves_the_time_of_another_that_went(overlay):
    """What stands for both of them changes then."""
    work, run = overlay.workspace, overlay.client.run
    assert run("import os; os.remove('a'); os.remove('b')").ok
    await_tick()
    (work / "a").write_text("newer")
    await_tick()
    assert run("open('b', 'w').write('b'); os.chmod('b', 0o755)").ok
    assert set(skipped_of(ask(overlay, "commit"))) == {"a"}
    assert (work / "a").read_text() == "newer"


def test_a_folder_whose_mode_was_changed_outside_keeps_it(overlay):
    work, run = overlay.workspace, overlay.client.run
    assert run("import os; [open(n + '/new', 'w').close() for n in 'df']; os.chmod('f', 0o750)").ok
    await_tick()
    (work / "d").chmod(0o700)
    await_tick()
    content = ask(overlay, "commit")
    assert LATER in skipped_of(content)["d"] and {("added", "d/new"), ("modified", "f")} <= listed(content)
    assert [(work / n).stat().st_mode & 0o777 for n in "df"] == [0o700, 0o750]
    assert run("os.chmod('f', 0o711); open('f/more', 'w').close()").ok
    content = ask(overlay, "commit")  # the commit before is nobody else's change
    assert ("modified", "f") in listed(content) and set(skipped_of(content)) == {"d"}
    assert [(work / n).stat().st_mode & 0o777 for n in "df"] == [0o700, 0o711]
    (work / "f").chmod(0o700)
    await_tick()
    assert run("open('f/most', 'w').close()").ok
    assert set(skipped_of(ask(overlay, "commit"))) == {"d", "f"}
    assert [(work / n).stat().st_mode & 0o777 for n in "df"] == [0o700, 0o700]


AGAIN = """
import mmap, os, shutil
shutil.rmtree("d"); os.mkdir("d"); open("d/e1", "w").write("e1")
open("m", "wb").write(bytes(4096)); f = open("m", "r+b"); m = mmap.mmap(f.fileno(), 0); m[0] = 1
"""


def test_what_a_commit_has_written_is_not_changed_outside(overlay):
    work, run = overlay.workspace, overlay.client.run
    assert run(AGAIN).ok
    assert ask(overlay, "commit")["skipped"] == 0
    assert (work / "d/e1").read_text() == "e1"
    assert run("os.remove('d/e1'); m[0] = 2").ok  # there is no sign of the former, and no time of the latter
    content = ask(overlay, "commit")
    assert content["skipped"] == content["failed"] == 0, content
    assert not (work / "d/e1").exists() and (work / "m").read_bytes()[0] == 2


COMMITS_KEPT = 64  # CB_COMMITS_MAX


def test_what_was_changed_outside_stays_however_many_commits_follow(overlay):
    work, run = overlay.workspace, overlay.client.run
    assert run("open('first', 'w').write('f')").ok
    assert listed(ask(overlay, "commit")) == {("added", "first")}
    assert run("open('a', 'w').write('older')").ok
    await_tick()
    (work / "a").write_text("newer")
    await_tick()
    for _ in range(COMMITS_KEPT):
        assert listed(ask(overlay, "commit")) == {("skipped", "a")}
    assert (work / "a").read_text() == "newer"


def children_of(process):
    """At once: who walks through all processes comes too late."""
    return set(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())


def writes_much(folder):
    """Whether a commit is writing a large file."""
    sizes = []
    for p in folder.rglob(".cellblock-commit-*"):
        with contextlib.suppress(FileNotFoundError):
            sizes.append(p.stat().st_size)
    return max(sizes, default=0) > 1 << 20


def commit_while(k, outside, begun=None):
    """`outside` is done while the commit writes a large file that the cell has made, and has that one to end; or once
    `begun` says so."""
    begun = begun or (lambda: writes_much(k.workspace))
    broker = broker_of(k)
    broker.nice(19)  # on a busy machine, too, what it starts does not get away from us
    others = children_of(broker)
    commit = k.client.send("cellblock_file_request", {"op": "commit"})
    deadline = time.monotonic() + kernels.DEADLINE
    while not begun():
        assert time.monotonic() < deadline, k.client.reply(commit).content
    (writer,) = (int(pid) for pid in children_of(broker) - others)
    os.kill(writer, signal.SIGSTOP)
    try:
        assert begun(), "it was ready before it was stopped"
        outside()
    finally:
        os.kill(writer, signal.SIGCONT)
    return k.client.reply(commit, timeout=PATIENCE).content


LARGE = "open('{}', 'wb').write(bytes(200 << 20)); "


def test_what_is_saved_outside_while_a_commit_writes_stays(overlay):
    work, run = overlay.workspace, overlay.client.run
    assert run(LARGE.format("large") + "open('a', 'w').write('older'); open('z', 'w').write('older')").ok

    def save():
        await_tick()
        (work / "a").write_text("newer")
        (work / "z").write_text("newer")

    first = commit_while(overlay, save)
    second = listed(ask(overlay, "commit"))
    assert {("skipped", "a"), ("skipped", "z")} == second, (first, second)
    assert (work / "a").read_text() == (work / "z").read_text() == "newer"
    assert (work / "large").stat().st_size == 200 << 20


def test_what_keeps_an_old_time_outside_while_a_commit_writes_stays(overlay):
    """As it is unpacked, copied, or renamed from a temporary file that was written before."""
    work, run = overlay.workspace, overlay.client.run
    names = ("a", "b", "d/x", "z")
    (work / ".saved").write_text("newer")
    await_tick()
    assert run(LARGE.format("large") + "; ".join(f"open({name!r}, 'w').write('older')" for name in names)).ok

    def save():
        await_tick()
        (work / ".saved").rename(work / "a")
        for name in names[1:]:
            (work / name).write_text("newer")
            os.utime(work / name, (1, 1))
        (work / "d").chmod(0o700)

    first = commit_while(overlay, save)
    assert run("; ".join(f"open({name!r}, 'a').write('!')" for name in names)).ok
    second = ask(overlay, "commit")
    assert {*names, "d"} <= set(skipped_of(second)), (first, second)
    assert {(work / name).read_text() for name in names} == {"newer"}
    assert (work / "d").stat().st_mode & 0o777 == 0o700


def test_what_is_saved_outside_while_a_commit_removes_stays(overlay):
    work, run = overlay.workspace, overlay.client.run
    many = 5000
    assert run(f"import os, shutil; os.mkdir('many'); [open(f'many/{{i}}', 'w').close() for i in range({many})]").ok
    assert ask(overlay, "commit")["status"] == "ok"
    assert run("shutil.rmtree('many')").ok
    saved = []

    def save():
        await_tick()
        saved.extend(sorted(p.name for p in (work / "many").iterdir())[:10])
        for name in saved:
            (work / "many" / name).write_text("newer")

    content = commit_while(overlay, save, begun=lambda: 0 < len(os.listdir(work / "many")) < many)
    assert saved and sorted(p.name for p in (work / "many").iterdir()) == saved, content
    assert {(work / "many" / name).read_text() for name in saved} == {"newer"}
    skipped = {c["path"] for c in content["changes"] if c["change"] == "skipped"}
    assert skipped == {f"many/{name}" for name in saved}, content


def test_a_folder_that_is_moved_while_a_commit_writes_gets_no_more(overlay):
    work, run = overlay.workspace, overlay.client.run
    names = [f"d/{n}" for n in ("0", "activate", "z")]
    assert run(LARGE.format("d/large") + f"[open(n, 'w').close() for n in {names}]").ok
    there = []

    def move():
        (work / "d").rename(work / "bin")
        there.extend(p.name for p in (work / "bin").iterdir() if not p.name.startswith("."))

    content = commit_while(overlay, move)
    failed = [c for c in content["changes"] if c["change"] == "failed"]
    assert failed and all("changed outside" in c["reason"] for c in failed), content
    assert sorted(there) == sorted(p.name for p in (work / "bin").iterdir()), content


def test_a_git_folder_keeps_its_mode(overlay):
    work, run = overlay.workspace, overlay.client.run
    was = (work / ".git").stat()
    for name in ("objects", "refs", "HEAD"):  # git knows it whatever it is called
        (work / "f/bare" / name).mkdir(parents=True)
    for folder in (work / "f/bare", *(work / "f/bare").iterdir()):
        os.chown(folder, was.st_uid, was.st_gid)
    for mode in (0o777, 0):
        made = "import os; os.makedirs('n/.git', exist_ok=True)\n"
        assert run(f"{made}for d in '.git', 'n/.git', 'f/bare': os.chmod(d, {mode})").ok
        content = ask(overlay, "commit")
        assert mode == 0 or content["failed"] == 0, content  # what its owner can't read can't be looked through
        assert (work / ".git").stat().st_mode == was.st_mode and (work / "n/.git").stat().st_mode & 0o722 == 0o700
        assert (work / "f/bare").stat().st_mode & 0o777 == 0o755


def test_of_several_that_were_deleted_the_time_is_not_known(overlay):
    work, run = overlay.workspace, overlay.client.run
    assert run("import os; os.remove('a')").ok
    await_tick()
    (work / "a").write_text("newer")
    await_tick()
    assert run("os.remove('b')").ok
    content = ask(overlay, "commit")
    assert {("skipped", "a"), ("deleted", "b")} <= listed(content)
    assert (work / "a").read_text() == "newer" and not (work / "b").exists()


SWAPS = """
import os, threading
def swap():
    while not os.path.exists("stop"):
        for target in ("a", "../../victim"):
            for n in range(200):
                os.symlink(target, "t"); os.rename("t", f"l{n}")
threading.Thread(target=swap, daemon=True).start()
"""


def test_no_link_that_leads_out_is_written_while_links_change(overlay):
    work = overlay.workspace
    assert overlay.client.run(SWAPS).ok
    for _ in range(20):
        ask(overlay, "commit")
        leads = {p.name: os.readlink(p) for p in work.glob("l[0-9]*") if p.is_symlink()}
        assert set(leads.values()) <= {"a"}, leads
    assert leads, "links were written"
    assert overlay.client.run("open('stop', 'w').close()").ok


def test_discard(overlay):
    before = tree(overlay.workspace)
    overlay.client.run(CHANGE)
    overlay.client.run("kept = 1")
    content = ask(overlay, "discard")
    assert listed(content) == EXPECTED
    assert content["state"] == "lost"
    assert tree(overlay.workspace) == before
    cell = overlay.client.run("import os; print(sorted(os.listdir()), 'kept' in globals())")
    assert "['.git', 'a', 'b', 'd', 'f', 'link'] False" in cell.text()
    assert "discarded" in cell.text("stderr"), cell
    assert listed(ask(overlay, "changes")) == set()


ALL_DIE = """
import os
others = {int(name) for name in os.listdir('/proc') if name.isdigit()} - {1, os.getpid()}
for pid in others: os.kill(pid, 9)
while any(os.path.exists(f'/proc/{pid}') for pid in others): pass  # pid 1 knows of each
os._exit(1)
"""


def test_changes_of_a_dead_python_are_still_there(overlay):
    """Without a copy of it that could take over."""
    assert overlay.client.run("open('new', 'w').write('n')" + ALL_DIE).about["state"] == "lost"
    assert listed(ask(overlay, "changes")) == {("added", "new")}
    assert listed(ask(overlay, "commit")) == {("added", "new")}
    assert (overlay.workspace / "new").read_text() == "n"


HOSTILE = """
import os, socket
os.mkfifo("fifo"); socket.socket(socket.AF_UNIX).bind("sock")
with open("holes", "wb") as f: f.truncate(1 << 40)
os.makedirs("deep/" + "x/" * 200)
open("bad\\udcff\\n", "w").close(); open("secret", "w").write("s"); os.chmod("secret", 0)
os.makedirs("repo/.git/hooks"); open("repo/.git/hooks/post-merge", "w").close(); open("repo/.git/config", "w").close()
open(".git/commondir", "w").write("../repo/.git"); open(".envrc", "w").close(); os.mkdir("env")
open("env/pyvenv.cfg", "w").close(); open("env/activate", "w").close()
os.makedirs("bare/objects"); os.makedirs("bare/refs"); open("bare/HEAD", "w").close(); os.mkdir("bare/hooks")
os.symlink("..", "up"); os.symlink("/etc/passwd", "away"); os.symlink(".envrc", "back"); os.symlink("d", "near")
os.mkdir("target"); open("target/planted", "w").write("p")
"""


def test_what_a_hostile_cell_leaves(overlay, nothing_left):
    """Special files and protected names stay behind, said; no link of the jail's or of others leads outside."""
    work = overlay.workspace
    outside = nothing_left / "outside"
    outside.mkdir(exist_ok=True)
    outside.chmod(0o777)
    cell = overlay.client.run(HOSTILE)
    assert cell.ok, cell
    (work / "target").symlink_to(outside)  # while the jail runs, somebody puts a link where the layer has a folder
    (work / "holes").symlink_to(outside / "holes")
    await_tick()
    content = ask(overlay, "commit")
    said = {e["path"]: e for e in content["changes"]}
    skipped = {p for p, e in said.items() if e["change"] == "skipped"}
    assert {"fifo", "sock", ".envrc", "env", ".git/commondir", "repo/.git/hooks", "repo/.git/config"} <= skipped
    assert {"bare/hooks"} <= skipped
    why = "programs outside the jail would run or obey it; if you want it, do it yourself, outside the jail"
    for path, name in ((".envrc", ".envrc"), ("repo/.git/hooks", ".git"), ("bare/hooks", ".git")):
        assert said[path]["reason"] == f'workspace.protect, "{name}": {why}', said[path]
    assert said["back"]["reason"] == f"workspace.protect, of what it leads to: {why}", said["back"]
    assert {"up", "away", "back"} <= skipped and "leads out of the workspace" in said["up"]["reason"]
    assert any(p.startswith("deep/x/x") for p in skipped), "bounded depth"
    assert not list(outside.iterdir())
    assert os.readlink(work / "target") == str(outside), "what came later outside stays"
    assert overlay.client.run(
        "import shutil; os.remove('holes'); shutil.rmtree('target'); os.mkdir('target')\n"
        "with open('holes', 'wb') as f: f.truncate(1 << 40)\n"
        "with open('target/planted', 'w') as f: f.write('p')"
    ).ok
    said.update({e["path"]: e for e in ask(overlay, "commit")["changes"]})
    assert not list(outside.iterdir())
    assert (work / "target").is_dir()
    assert not (work / "target").is_symlink()
    assert (work / "target/planted").read_text() == "p"
    assert os.readlink(work / "near") == "d"
    for name in ("up", "away", "back"):
        assert not os.path.lexists(work / name), name
    for name in (".envrc", "env", ".git/commondir", "repo/.git/hooks", "fifo", "sock", "bare/hooks"):
        assert not (work / name).exists(), name
    if said["holes"]["change"] != "failed":
        assert (work / "holes").stat().st_size == 1 << 40
        assert (work / "holes").stat().st_blocks < 100
    assert not [p for p in work.rglob(".cellblock-commit*")]
    assert (b"bad\xff\n" in os.listdir(os.fsencode(work))) == (said["bad\ufffd\n"]["change"] == "added")


LONG = f"""
import os, shutil
top, name = os.getcwd(), "n" * 250
def enter(depth):
    os.chdir(top)
    for _ in range(depth):
        os.makedirs(name, exist_ok=True)
        os.chdir(name)
enter({os.pathconf("/", "PC_PATH_MAX") // 251})
"""


def test_names_that_no_path_leads_to_are_counted(overlay):
    work = overlay.workspace
    owner = work.stat()
    who = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if ROOT else {}
    make = [PLAIN_PYTHON, "-c", LONG + "open('o' * 250, 'w').close()"]
    subprocess.run(make, cwd=work, check=True, **who)
    anew = "os.chdir('..'); shutil.rmtree(name); os.mkdir(name); os.chdir(name)\n"
    try:
        assert overlay.client.run(LONG + anew + "open('m' * 250, 'w').close(); os.chdir(top)").ok
        for op in ("changes", "commit"):
            content = ask(overlay, op)
            assert not content["truncated"] and content["failed"] == len(content["changes"]) == 2, content
            for change in content["changes"]:
                assert change["path"].endswith("/" + "n" * 250) and "too long" in change["reason"], content
    finally:
        shutil.rmtree(work / ("n" * 250))  # what looks through the workspace at the end does so by path


def test_a_folder_of_many_names_is_written(overlay):
    many = 20_000
    assert overlay.client.run(f"import os; os.mkdir('m')\nfor i in range({many}): open(f'm/{{i}}', 'w').close()").ok
    assert ask(overlay, "changes")["added"] == many + 1
    content = ask(overlay, "commit")
    assert (content["status"], content["added"], content["failed"]) == ("ok", many + 1, 0), content["changes"][:5]
    assert len(os.listdir(overlay.workspace / "m")) == many
    assert overlay.client.run("import shutil; shutil.rmtree('m')").ok
    assert ask(overlay, "commit")["deleted"] == 1 and not (overlay.workspace / "m").exists()


def test_two_commits_make_no_repository_of_a_folder_with_hooks(overlay):
    """What each commit alone may write must not be together what git runs programs from."""
    work = overlay.workspace
    code = "import os; os.makedirs('bare/hooks'); open('bare/config', 'w').write('[core]\\n\\tfsmonitor = /bin/sh')"
    assert overlay.client.run(code).ok
    assert ask(overlay, "commit")["skipped"] == 0
    assert (work / "bare/config").exists()
    code = "for n in ('objects', 'refs'): os.mkdir('bare/' + n)\nopen('bare/HEAD', 'w').write('ref: refs/heads/main')"
    assert overlay.client.run(code).ok
    content = ask(overlay, "commit")
    skipped = {e["path"] for e in content["changes"] if e["change"] == "skipped"}
    assert {"bare/HEAD", "bare/objects", "bare/refs"} <= skipped, content
    assert sorted(os.listdir(work / "bare")) == ["config", "hooks"]
    assert overlay.client.run("open('HEAD', 'w').close(); open('env', 'w').close()").ok
    assert listed(ask(overlay, "commit")) >= {("added", "HEAD")}, "only where it makes something of what is there"


def test_a_commit_completes_no_repository_that_others_go_on_making(overlay):
    """Another jail in the same folder sees the temporary file, and makes what this commit was not judged with."""
    work, run = overlay.workspace, overlay.client.run
    assert run("import os; os.makedirs('bare/objects'); open('bare/config', 'w').write('[core]')").ok
    assert ask(overlay, "commit")["skipped"] == 0
    assert run(LARGE.format("bare/HEAD")).ok
    content = commit_while(overlay, lambda: (work / "bare/refs").mkdir())
    assert sorted(os.listdir(work / "bare")) == ["config", "objects", "refs"], content
    assert ("skipped", "bare/HEAD") in listed(content), content
    assert content["skipped"] == len(content["changes"]), content


def test_a_read_only_folder_is_written_whole(overlay):
    work = overlay.workspace
    code = """
import os
os.makedirs("closed/in"); open("closed/in/f", "w").write("f"); open("d/new", "w").close()
os.chmod("closed/in", 0o555); os.chmod("closed", 0o500); os.chmod("d", 0o555)
"""
    cell = overlay.client.run(code)
    assert cell.ok, cell
    content = ask(overlay, "commit")
    assert content["failed"] == 0, content
    assert (work / "closed/in/f").read_text() == "f"
    modes = {n: (work / n).stat().st_mode & 0o7777 for n in ("closed", "closed/in", "d")}
    assert modes == {"closed": 0o500, "closed/in": 0o555, "d": 0o555}
    assert overlay.client.run("os.chmod('d', 0o755); open('d/more', 'w').close(); os.chmod('d', 0o555)").ok
    assert listed(ask(overlay, "commit")) == {("added", "d/more")}
    for n in modes:
        (work / n).chmod(0o755)  # pytest removes it


def test_names_of_one_file_stay_that(overlay):
    work = overlay.workspace
    code = """
import os
open("big", "wb").write(os.urandom(1 << 20)); os.makedirs("in/deep"); os.link("a", "another"); os.link("d/x", "x")
for i in range(40): os.link("big", f"in/deep/{i}")
"""
    assert overlay.client.run(code).ok
    before = ask(overlay, "changes")
    content = ask(overlay, "commit")
    assert content["failed"] == 0
    assert listed(content) == listed(before)
    names = [work / "big", *(work / "in/deep").iterdir()]
    assert len(names) == 41
    assert {(p.stat().st_ino, p.stat().st_nlink) for p in names} == {((work / "big").stat().st_ino, 41)}
    assert (work / "a").samefile(work / "another")
    assert (work / "d/x").samefile(work / "x")
    assert not listed(ask(overlay, "changes"))
    assert overlay.client.run("os.link('in/deep/7', 'late'); open('another', 'a').write('!')").ok
    assert listed(ask(overlay, "commit")) == {("added", "late"), ("modified", "a"), ("modified", "another")}
    assert (work / "late").samefile(work / "big")
    assert (work / "a").read_text() == "a!"
    assert (work / "a").samefile(work / "another")
    assert not [p for p in work.rglob(".cellblock-commit*")]


@pytest.mark.parametrize("overlay", ["user" if ROOT else "caller"], indirect=True)  # root reads every file
def test_a_folder_stays_if_what_replaces_it_can_not_be_written(overlay):
    work, run = overlay.workspace, overlay.client.run
    before = tree(work)
    assert run("import os, shutil; shutil.rmtree('d'); open('d', 'w').write('now'); os.chmod('d', 0)").ok
    assert listed(ask(overlay, "commit")) == {("failed", "d")}
    assert tree(work) == before
    assert run("os.chmod('d', 0o644)").ok
    assert listed(ask(overlay, "commit")) == {("modified", "d")}
    assert (work / "d").read_text() == "now" and not list(work.glob(".cellblock-commit*"))


def test_no_more_is_written_than_a_layer_holds(start, nothing_left):
    """Where links can't be made, as in a closed folder, each name takes its own room of workspace.size."""
    work = nothing_left / "sized"
    work.mkdir()
    if ROOT:
        os.chown(work, 65533, 65533)
    k = start(args=["--set", "workspace.mode=overlay", "--set", "workspace.size=4M"], workspace=work)
    code = """
import os
for i in range(20):
    os.mkdir(f"closed{i:02}")
    if i == 0: open("closed00/f", "wb").write(os.urandom(1 << 20))
    else: os.link("closed00/f", f"closed{i:02}/f")
for i in range(20): os.chmod(f"closed{i:02}", 0o600)
"""
    assert k.client.run(code).ok
    content = ask(k, "commit")
    for folder in work.iterdir():
        folder.chmod(0o700)
    assert sum({p.stat().st_ino: p.stat().st_size for p in work.rglob("f")}.values()) <= 4 << 20
    assert content["failed"] > 0, content
    if ROOT:
        failed = {e["reason"] for e in content["changes"] if e["change"] == "failed"}
        assert failed == {"workspace.size: more than the layer can hold was to be written"}


def test_nothing_is_written_while_a_cell_runs(overlay):
    c = overlay.client
    running = c.start("print('started', flush=True)\nimport time\ntime.sleep(1000)")
    c.says(running, "started")
    for op in ("commit", "discard"):
        assert ask(overlay, op)["ename"] == "KernelBusyError"
    assert ask(overlay, "changes")["status"] == "ok"
    c.request("interrupt_request", {}, channel="control")
    assert c.finish(running).content["ename"] == "KeyboardInterrupt"
    assert ask(overlay, "commit")["status"] == "ok"


def test_nothing_is_written_while_a_command_runs(overlay):
    c = overlay.client
    running = c.send("cellblock_run_request", {"argv": ["sh", "-c", "echo > begun; sleep 1000"]}, channel="control")
    while ("added", "begun") not in listed(ask(overlay, "changes")):
        pass
    for op in ("commit", "discard"):
        for channel in ("control", "shell"):
            content = ask(overlay, op, channel)
            assert content["ename"] == "KernelBusyError" and "command" in content["evalue"], content
    c.send("interrupt_request", {}, channel="control")
    assert c.reply(running, "control").content["status"] == "error"
    assert listed(ask(overlay, "commit")) == {("added", "begun")}


@pytest.mark.skipif(not ROOT, reason="only root can spoil a layer from outside")
def test_a_spoiled_layer_can_be_saved(start, nothing_left, tmp_path):
    """What a jail leaves that is killed at the wrong moment of its being built: the layer can't be mounted again."""
    k = start(argv=kernels.system_argv("workspace.mode=overlay", "transactions.mode=off"))
    assert k.client.run("open('new', 'w').write('n')").ok
    libc = ctypes.CDLL(None, use_errno=True)
    broker = broker_of(k).pid
    pidfd = os.pidfd_open(broker)
    spoiled = 0
    for name in os.listdir(f"/proc/{broker}/fd"):
        fd = libc.syscall(438, pidfd, int(name), 0)  # pidfd_getfd
        try:
            if fd >= 0 and os.stat("changes", dir_fd=fd):
                assert libc.syscall(429, fd, b"", -100, bytes(tmp_path), 4) == 0, os.strerror(ctypes.get_errno())
                subprocess.run(["umount", "-l", tmp_path], check=True)
                spoiled += 1
        except (FileNotFoundError, NotADirectoryError):
            pass
        finally:
            os.close(fd)
    os.close(pidfd)
    assert spoiled, "the broker has no layer"
    k.client.run("import os; os._exit(1)")
    cell = k.client.run("1")
    assert cell.content["ename"] == "IsolationError" and "cellblock discard" in cell.content["evalue"], cell
    assert listed(ask(k, "commit")) == {("added", "new")}
    assert (k.workspace / "new").read_text() == "n"
    assert ask(k, "discard")["status"] == "ok"
    assert k.client.run("open('new').read()").result == "'n'"


def broker_of(kernel):
    return kernel.running(lambda words: "broker" in words)[0]


def test_a_commit_can_be_interrupted(overlay):
    c = overlay.client
    broker = broker_of(overlay)
    for n in range(10):
        many = f"many{n}"
        assert c.run(f"import os\nos.mkdir('{many}')\nfor i in range(4000): open(f'{many}/{{i}}', 'w').write('x')").ok
        broker.suspend()
        try:
            commit = c.send("cellblock_file_request", {"op": "commit"})
            c.wait_in_place("iopub", lambda m: m.parent_id == commit and m.content.get("execution_state") == "busy")
            c.request("interrupt_request", {}, channel="control")
        finally:
            broker.resume()
        content = c.reply(commit).content
        if content["status"] != "ok":  # else all was written before the interrupt had its turn
            break
    assert content["ename"] == "KeyboardInterrupt" and "not" in content["evalue"], content
    assert len(list(overlay.workspace.glob(f"{many}/*"))) < 4000
    assert not list(overlay.workspace.rglob(".cellblock-commit*"))
    assert c.run("6*7").result == "42"
    assert ask(overlay, "commit")["status"] == "ok"
    assert len(list(overlay.workspace.glob(f"{many}/*"))) == 4000


def limit_processes(broker, soft):
    """As its user, who may; returns what it was."""
    who = {"user": broker.uids().effective, "group": broker.gids().effective, "text": True}
    command = ["prlimit", f"--pid={broker.pid}"]
    was = subprocess.check_output([*command, "--nproc", "--output=SOFT", "--noheadings", "--raw"], **who)
    subprocess.run([*command, f"--nproc={soft}:"], check=True, **who)
    return was.strip()


@pytest.mark.parametrize("overlay", ["user" if ROOT else "caller"], indirect=True)  # no limit binds root
def test_a_commit_that_no_process_could_begin(overlay):
    """It has written nothing: what is changed outside after it is not its own."""
    assert overlay.client.run("open('a', 'w').write('older')").ok
    broker = broker_of(overlay)
    was = limit_processes(broker, 0)
    content = ask(overlay, "commit")
    limit_processes(broker, was)
    await_tick()
    (overlay.workspace / "a").write_text("newer")
    await_tick()
    assert listed(ask(overlay, "commit")) == {("skipped", "a")}
    assert (overlay.workspace / "a").read_text() == "newer"
    assert content["status"] == "error", content


@pytest.mark.once
def test_a_folder_of_too_many_names_fails_as_a_whole(start, nothing_left):
    """Cells make as many as they like, and they would all be held in the memory of the broker."""
    work = nothing_left / "many" / "work"
    (work / "full").mkdir(parents=True)
    (work / "full/kept").write_text("host")
    sets = ("workspace.mode=overlay", "limits.inodes=600000", "transactions.mode=off")
    k = start(argv=kernels.system_argv(*sets), workspace=work)
    assert k.client.run("import os\nfor i in range(1 << 18): os.mknod(f'full/{i}')", timeout=PATIENCE).ok
    assert k.client.run("for n in 'full/kept', 'other': print('cells', end='', file=open(n, 'w'), flush=True)").ok
    for op in ("changes", "commit"):
        content = ask(k, op)
        assert listed(content) == {("failed", "full"), ("added", "other")}, op
        [failed] = [e for e in content["changes"] if e["change"] == "failed"]
        assert failed["reason"] == "too many names in one folder" and content["failed"] == 1
    assert tree(work) == {"full/kept": "host", "other": "cells"}


def test_what_was_written_is_in_the_audit_log(start, nothing_left):
    log = nothing_left / "logs/audit.jsonl"
    k = start(argv=kernels.system_argv("workspace.mode=overlay", f"audit.file={log}"))
    code = "for n in ['.envrc', 'a\"\\n', *(f'f{i:03}' for i in range(150))]: open(n, 'w').close()"
    assert k.client.run(code).ok
    assert ask(k, "commit")["added"] == 151
    k.client.run("open('late', 'w').close()")
    assert ask(k, "discard")["status"] == "ok"
    k.stop()
    events = [json.loads(line) for line in log.read_text().splitlines()]
    sums = [(e["op"], e["added"], e["skipped"]) for e in events if e["event"] == "layer"]
    assert sums == [("commit", 151, 1), ("discard", 1, 1)]
    changes = [(e["op"], e["change"], e["path"]) for e in events if e["event"] == "change"]
    assert len(changes) == 102, "the first 100 by name"
    assert changes[:3] == [("commit", "skipped", ".envrc"), ("commit", "added", 'a"\n'), ("commit", "added", "f000")]
    assert changes[-1] == ("discard", "added", "late")


def test_commands(overlay):
    owner = overlay.file.stat()
    who = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if ROOT else {}

    def cellblock(*args, kernel=overlay.file, **env):
        command = [CELLBLOCK, *args, *(["--kernel", str(kernel)] if kernel else [])]
        env = {**os.environ, **env}
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd="/", env=env, **who)

    assert overlay.client.run("open('new\\x1b[2J', 'w').write('n'); open('.envrc', 'w').close()").ok
    done = cellblock("changes")
    assert done.returncode == 0, done.stderr
    assert "added     new\\x1b[2J\n" in done.stdout
    assert "skipped   .envrc  (workspace.protect" in done.stdout
    told = json.loads(cellblock("changes", "--json").stdout)
    assert told["added"] == 1
    done = cellblock("commit")
    assert (done.returncode, (overlay.workspace / "new\x1b[2J").read_text()) == (0, "n")
    overlay.client.run("open('b', 'w').write('x')")
    done = cellblock("discard")
    assert (done.returncode, (overlay.workspace / "b").read_text()) == (0, "b")
    runtime = {"JUPYTER_RUNTIME_DIR": str(overlay.file.parent)}
    for which in (None, "te", "test"):
        done = cellblock("changes", kernel=which, **runtime)
        assert done.returncode == 0 and re.match(r"kernel test.*: 0 added, ", done.stderr), done
    assert re.match("kernel test.*: dropped, ", cellblock("discard", kernel=None, **runtime).stderr), "which it was"
    done = cellblock("changes", kernel="nope", **runtime)
    assert done.returncode == 1
    assert "no running kernel" in done.stderr


def test_a_command_waits_as_long_as_it_takes(overlay):
    owner = overlay.file.stat()
    who = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if ROOT else {}
    assert overlay.client.run("open('new', 'w').close()").ok
    broker = broker_of(overlay)
    broker.suspend()
    try:
        command = [CELLBLOCK, "commit", "--kernel", str(overlay.file)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd="/", **who) as done:
            assert "still at work" in done.stderr.readline()
            broker.resume()
            assert "1 added" in done.stderr.read()
        assert done.returncode == 0 and (overlay.workspace / "new").exists()
    finally:
        broker.resume()


def test_other_modes_say_so(start):
    k = start()
    assert ask(k, "commit")["ename"] == "WorkspaceError"
