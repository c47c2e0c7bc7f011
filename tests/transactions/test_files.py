"""With workspace.mode "overlay" files go back with the variables; with the others they stay, and the error says so."""

import os

import kernels
import pytest
import rawclient

pytestmark = pytest.mark.cellblock_only("no other kernel does this")

BEFORE = """
import os, shutil
open('kept', 'w').write('before'); open('gone', 'w').write('here'); os.makedirs('folder/in')
open('folder/in/f', 'w').write('deep'); log = open('log', 'a+'); log.write('one\\n'); log.flush()
"""
SPOIL = """
open('kept', 'w').write('after'); os.unlink('gone'); shutil.rmtree('folder'); open('new', 'w').write('x')
open('given', 'w').write('changed'); log.write('two\\n'); log.flush()
"""
LOOK = """
import os
print(sorted(os.listdir()), open('kept').read(), open('given').read())
"""


def mode(name):
    return ["--set", f"workspace.mode={name}", "--set", "transactions.mode=always"]


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "given-workspace"
    folder.mkdir()
    (folder / "given").write_text("given")
    return folder


def test_files_of_an_overlay_go_back(start, work):
    c = start(args=mode("overlay"), workspace=work).client
    assert c.run(BEFORE).ok
    failed = c.run(SPOIL + "os._exit(1)")
    assert "all variables and files are as they were before cell [2]" in failed.content["evalue"]
    assert failed.about["state"] == "restored"
    cell = c.run(LOOK + "print(open('folder/in/f').read(), open('gone').read()); log.seek(0); log.read()")
    assert cell.text() == "['folder', 'given', 'gone', 'kept', 'log'] before given\ndeep here\n"
    assert cell.result == r"'one\n'"
    assert sorted(p.name for p in work.iterdir()) == ["given"], "nothing of it was written through"
    assert (work / "given").read_text() == "given"


OPENED = """
import os, shutil
os.makedirs('d/in'); root = os.getcwd(); os.chdir('d')
log, data, given = open('log', 'a+'), open('data', 'w+'), open('../given')
log.write('one\\n'); log.flush(); data.write('first'); data.flush(); given.read(2)
folder = os.open('in', os.O_RDONLY)
"""
REPLACED = """
os.rename('log', 'log.1'); open('log', 'w').write('else'); open('new', 'w').write('new'); os.replace('new', 'data')
os.unlink('../given'); shutil.rmtree('../d'); os._exit(1)
"""


def test_what_is_open_is_that_file_again(start, work):
    """Deleted or replaced, it comes back as another file under its name; so does the working folder."""
    c = start(args=mode("overlay"), workspace=work).client
    assert c.run(OPENED).ok
    for said in ("two", "three"):
        failed = c.run(REPLACED)
        assert failed.about["state"] == "restored" and "did not come back" not in failed.content["evalue"], failed
        assert c.run("os.getcwd() == os.path.join(root, 'd'), os.listdir(folder)").result == "(True, [])"
        done = c.run(f"log.write('{said}\\n'); log.flush(); data.write('!'); data.flush()")
        assert done.ok, done.content
    assert c.run("open('log').read(), open('data').read()").result == r"('one\ntwo\nthree\n', 'first!!')"
    assert c.run("given.read(), log.tell() == 14, sorted(os.listdir())").result == (
        "('ven', True, ['data', 'in', 'log'])"
    )


def test_again_and_again(start, work):
    c = start(args=mode("overlay"), workspace=work).client
    for i in range(5):
        assert c.run(f"import os; open('n', 'a').write('{i}')").ok
        assert c.run("os.unlink('n'); os.abort()").about["state"] == "restored"
    assert c.run("open('n').read()").result == "'01234'"


def test_a_twin_that_dies_with_the_guest_brings_no_files_back(start, work):
    """The cell kills it with its last breath: all variables are lost, so its files must be those of the failed cell."""
    c = start(args=mode("overlay"), workspace=work).client
    for i in range(5):
        assert c.run(f"import os; open('f', 'w').write('{i}')").ok
        failed = c.run(
            "open('f', 'w').write('after')\n"
            "for p in os.listdir('/proc'):\n"
            "    try: p.isdigit() and int(p) not in (1, os.getpid()) and os.kill(int(p), 9)\n"
            "    except ProcessLookupError: pass  # an older one that was just dropped\n"
            "os._exit(1)"
        )
        assert failed.about["state"] == "lost", failed.content
        assert c.run("open('f').read()").result == "'after'"


@pytest.mark.parametrize("name", ["rw", "tmpfs"])
def test_other_modes_say_that_files_stay(start, work, name):
    c = start(args=mode(name), workspace=work).client
    assert c.run("import os; open('f', 'w').write('before')").ok
    failed = c.run("open('f', 'w').write('after'); os._exit(1)")
    assert "files in the workspace stay as they are" in failed.content["evalue"]
    assert c.run("open('f').read()").result == "'after'"


def test_files_that_could_not_be_kept_are_named(start, work):
    c = start(args=[*mode("overlay"), "--set", "workspace.size=4M"], workspace=work).client
    assert c.run("import os; open('big', 'wb').write(b'x' * 3_000_000)").ok
    failed = c.run("open('small', 'w').write('x'); os._exit(1)")
    assert "did not come back: big: No space left on device" in failed.content["evalue"], failed.content
    assert failed.about["state"] == "restored"
    assert c.run("1").result == "1"


def test_changes_are_listed_after_a_take_over(start, work):
    kernel = start(args=mode("overlay"), workspace=work)
    c = kernel.client
    assert c.run(BEFORE).ok
    assert c.run(SPOIL + "os._exit(1)").about["state"] == "restored"
    reply = c.request("cellblock_file_request", {"op": "changes"}, channel="control").content
    changed = {entry["path"] for entry in reply["changes"]}
    assert "kept" in changed and "new" not in changed, reply


def test_a_name_can_be_gone_back_to_again_and_again(start, work):
    c = start(args=mode("overlay"), workspace=work).client
    assert c.run("open('f', 'w').write('named')").ok
    assert c.request("cellblock_checkpoint_request", {"name": "clean"}).content["status"] == "ok"
    for text in ("one", "two"):
        assert c.run(f"open('f', 'w').write('{text}'); open('new', 'w').write('')").ok
        reply = c.request("cellblock_rollback_request", {"name": "clean"}).content
        assert reply["status"] == "ok", reply
        assert c.run("import os; open('f').read(), os.path.exists('new')").result == "('named', False)"
    assert c.request("cellblock_delete_checkpoint_request", {"name": "clean"}).content["status"] == "ok"
    assert c.run("open('f').read()").result == "'named'"


def test_files_that_take_their_time_cost_no_answered_cell(start, work):
    """They are kept by a process that may get no processor for seconds, or has much to copy."""
    k = start(args=mode("overlay"), workspace=work)
    c = k.client
    assert c.run("import os; x = [1]").ok
    c.request("cellblock_list_checkpoints_request")  # answered when no copy is on its way
    (broker,) = (p for p in k.running(lambda words: "broker" in words) if p.ppid() == k.pid)
    broker.suspend()
    try:
        assert c.run("x.append(2); open('f', 'w').write('2')").ok
        failing = c.start("os._exit(1)")
        with pytest.raises(rawclient.NoMessage):
            c.wait_in_place("shell", lambda m: m.parent_id == failing, timeout=4)
    finally:
        broker.resume()
    assert c.finish(failing).about["undone"] == [3]
    assert c.run("x, open('f').read()").result == "([1, 2], '2')"

def written(client):
    return client.request("cellblock_file_request", {"op": "write", "path": "up"}, buffers=[b"x"])


def ran(client):
    return client.request("cellblock_run_request", {"argv": ["sh", "-c", "echo x > up"]}, channel="control")


@pytest.mark.parametrize("wrote", [written, ran])
def test_what_a_client_wrote_between_cells_stays(start, work, wrote):
    c = start(args=mode("overlay"), workspace=work).client
    assert c.run("import os").ok
    assert c.run("y = 1").ok
    c.request("cellblock_list_checkpoints_request")  # answered when no copy is on its way
    assert wrote(c).content["status"] == "ok"
    failed = c.run("os._exit(1)")
    assert failed.about["state"] == "restored" and "requests for files" not in failed.content["evalue"]
    assert c.run("os.path.exists('up'), y").result == "(True, 1)"


@pytest.mark.parametrize("wrote", [written, ran])
def test_what_a_client_wrote_beside_a_cell_that_fails_is_said_to_be_undone(start, work, wrote):
    c = start(args=mode("overlay"), workspace=work).client
    assert c.run("import os, time").ok
    failing = c.start("print('runs', flush=True)\nwhile not os.path.exists('up'): time.sleep(0.01)\nos._exit(1)")
    c.wait("iopub", lambda m: m.type == "stream" and "runs" in m.content["text"])
    if wrote is written:
        c.request("cellblock_file_request", {"op": "write", "path": "up"}, channel="control", buffers=[b"x"])
    else:
        c.request("cellblock_run_request", {"argv": ["sh", "-c", "echo x > up"]}, channel="control")
    failed = c.finish(failing)
    assert failed.about["state"] == "restored"
    assert "what requests for files and commands have changed since then is undone" in failed.content["evalue"]
    assert c.run("os.path.exists('up')").result == "False"
    again = c.run("os._exit(1)")
    assert "requests for files" not in again.content["evalue"], "it was undone before"


def test_a_command_that_runs_keeps_no_cell_without_a_twin(start, work):
    """One that serves something runs as long as the session."""
    c = start(args=mode("overlay"), workspace=work).client
    server = c.send("cellblock_run_request", {"argv": ["sh", "-c", "echo > runs; exec sleep 1000"]}, channel="control")
    assert c.run("import os, time\nwhile not os.path.exists('runs'): time.sleep(0.01)").ok
    assert c.run("x = 1").ok
    failed = c.run("os._exit(1)")
    assert failed.about["state"] == "restored" and failed.about["undone"] == [3], failed
    assert c.run("x").result == "1"
    assert c.reply(server, channel="control").content["ename"] == "KernelDiedError"


def test_older_states_are_as_many_whatever_clients_write(start, work):
    c = start(args=mode("overlay"), workspace=work).client
    assert c.run("import os; x = 1").ok and c.run("x = 2").ok
    for _ in range(3):
        assert written(c).content["status"] == "ok"
        c.request("cellblock_list_checkpoints_request")  # answered when no copy is on its way
    assert c.request("cellblock_rollback_request").content["undone"] == [2]
    assert c.run("x, os.path.exists('up')").result == "(1, False)"


def test_what_was_committed_since_is_not_said_to_be_back(start, work):
    """It is in the folder below, which no state keeps. One from after the commit has all."""
    c = start(args=mode("overlay"), workspace=work).client
    commit = {"op": "commit"}
    assert c.run("import os; x = 1").ok
    assert c.run("open('given', 'w').write('new'); open('made', 'w').close(); x = 2").ok
    assert c.request("cellblock_file_request", commit).content["modified"] == 1
    failed = c.run("os._exit(1)")
    assert "all variables and files are as they were before cell [3]" in failed.content["evalue"]
    back = c.request("cellblock_rollback_request").content
    assert back["undone"] == [2], back
    assert "all variables are as they were before cell [2]" in back["outcome"], back
    assert "files that were committed since then may stay as they are" in back["outcome"], back
    nothing = c.request("cellblock_file_request", commit).content
    assert (nothing["added"], nothing["modified"], nothing["deleted"]) == (0, 0, 0), nothing
    failed = c.run("os._exit(1)")
    assert "all variables and files are as they were before cell" in failed.content["evalue"]


@pytest.mark.parametrize("who", ["child", "command"])
def test_what_is_written_between_cells_stays(start, work, who):
    """By what a cell has begun, or a command that still runs: a state is made before the next cell."""
    c = start(args=mode("overlay"), workspace=work).client
    # the state from behind the cell is there long before
    argv = ["sh", "-c", "sleep 2; echo late > g; mv g f; exec sleep 600"]
    if who == "command":
        c.send("cellblock_run_request", {"argv": argv}, channel="control")
    assert c.run(f"import os, subprocess; {who == 'child'} and subprocess.Popen({argv})").ok
    read = {"op": "read", "path": "f"}
    while c.request("cellblock_file_request", read, channel="control").content["status"] != "ok":
        pass
    failed = c.run("os.unlink('f'); os._exit(1)")
    assert failed.about["state"] == "restored", failed.content
    assert c.run("open('f').read()").result == r"'late\n'"


# Exchanges a file, which is compared for long as it comes back, for a link to the victim.
SWAP = """
import os, time
SIZE = 32 << 20
def make(last):
    with open('t', 'wb') as f: f.write(bytes(SIZE - 1) + last)
    os.chmod('t', 0o400)
    os.rename('t', 'f')
def swap(victim):
    while True:
        try:
            for name in {'t', 'l'} & set(os.listdir()): os.unlink(name)
            make(b'y')
            os.symlink(victim, 'l')
            while True:
                time.sleep(0.004)
                os.rename('f', 't')
                os.rename('l', 'f')
                time.sleep(0.004)
                os.rename('f', 'l')
                os.rename('t', 'f')
        except OSError: pass
"""


@pytest.mark.parametrize("who", ["caller", "user"])
def test_a_branch_that_runs_on_leads_nothing_outside(start, nothing_left, request, who):
    user = request.getfixturevalue("ordinary_user") if who == "user" else None
    work, victim = nothing_left / f"swap-{who}", nothing_left / f"victim-{who}"
    work.mkdir()
    victim.write_text("key")
    victim.chmod(0o444)
    args = [*mode("overlay"), "--set", "workspace.size=512M", "--set", "limits.memory=2G"]
    if user:
        for path in (work, victim):
            os.chown(path, user.pw_uid, user.pw_gid)
        kernels.let_in(start.folder, work.parent)
    c = start(argv=[*kernels.system_argv(), *args], workspace=work, user=user).client
    assert c.run(SWAP + "make(b'x')").ok
    reply = c.request("cellblock_branch_request", {}, channel="control").content
    swapping = c.start(f"swap({str(victim)!r})", header=c.header("execute_request", subshell_id=reply["subshell_id"]))
    for _ in range(8):
        failed = c.run("while not os.path.lexists('l'): time.sleep(0.001)\nos._exit(1)")
        assert failed.about["state"] == "restored", failed.content
        assert victim.stat().st_mode & 0o777 == 0o444
        assert "files are as they were" in failed.content["evalue"]
        assert "did not come back" not in failed.content["evalue"]
    assert c.request("delete_subshell_request", {"subshell_id": reply["subshell_id"]}, channel="control").content
    assert not c.finish(swapping).ok, "it ran to the end"
