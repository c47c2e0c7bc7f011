"""A branch becomes the main line: cellblock_adopt_request."""

import pytest

import kernels
from branches import ALWAYS, ask, branch, delete, listed, run_in, start_in, waiting

pytestmark = [pytest.mark.cellblock_only("no other kernel does this"), pytest.mark.once]


@pytest.fixture
def c(start):
    return start(args=ALWAYS).client


def adopt(c, where, channel="shell"):
    return ask(c, "adopt", channel, subshell_id=where)


def adopted(c, where, channel="shell"):
    content = adopt(c, where, channel)
    assert content["status"] == "ok", content
    return content


def test_the_main_line_goes_on_from_it(transactional):
    c = transactional()
    assert "cellblock_adopt_request" in c.request("kernel_info_request").content["supported_features"]
    assert c.run("import os, threading\nx = [1]; f = open('/etc/passwd'); at = f.read(10)").ok
    one, two = branch(c), branch(c)
    assert run_in(c, one, "x.append(2); end = threading.Event(); t = threading.Thread(target=end.wait); t.start()").ok
    assert run_in(c, one, "f.read(5); only = 1").content["execution_count"] == 3
    assert run_in(c, two, "x.append(3)").ok
    gone = c.run("x.append(4); gone = 1").content["execution_count"]
    content = adopted(c, one)
    assert content["undone"] == [gone] and content["restored_to"] == 3
    done = c.run("x, f.tell(), only, 'gone' in globals()")
    assert (done.result, done.content["execution_count"]) == ("([1, 2], 15, 1, False)", 4)
    assert listed(c) == [two] and run_in(c, two, "x").result == "[1, 3]"
    refused = run_in(c, one, "x")
    assert refused.content["ename"] == "KernelDiedError" and "adopted" in refused.content["evalue"]


def test_it_has_all_that_the_main_line_has(c):
    """Checkpoints, subshells, branches, completion beside a cell, a state to go back to."""
    assert c.run("import os; x = 1").ok
    adopted(c, branch(c), "control")
    assert c.run("x = 2\n%checkpoint a").ok
    assert c.run("x = 3").ok
    failed = c.run("os._exit(1)")
    assert failed.about["state"] == "restored" and c.run("x").result == "3"
    where = branch(c)
    assert run_in(c, where, "x").result == "3"
    made = c.request("create_subshell_request", {}, channel="control").content["subshell_id"]
    assert run_in(c, made, "x").result == "3"
    assert c.run("import os; os.mkfifo('/tmp/n'); found_it = 1").ok
    running = c.start(waiting("n"))
    c.says(running, "on")
    header = c.header("complete_request")
    matches = c.request("complete_request", {"code": "found_", "cursor_pos": 6}, header=header).content["matches"]
    assert matches == ["found_it"]
    assert run_in(c, where, "with open('/tmp/n', 'w') as f: f.write('x')").ok
    assert c.finish(running).result == "'x'"
    assert ask(c, "rollback", "shell", name="a")["status"] == "ok" and c.run("x").result == "2"


def test_again_and_again(c):
    """A branch of a branch's copy, of a copy …; each has what those before it did."""
    assert c.run("x = []").ok
    for i in range(8):
        where = branch(c)
        assert run_in(c, where, f"x.append({i})").ok
        adopted(c, where)
        assert c.run("x").result == str(list(range(i + 1)))
    assert listed(c) == []


def test_of_a_checkpoint(c):
    assert c.run("x = 1\n%checkpoint first").ok
    before = c.run("x = 2").content["execution_count"]
    where = branch(c, **{"from": "first"})
    assert run_in(c, where, "x += 10").ok
    last = c.run("x = 3").content["execution_count"]
    assert adopted(c, where)["undone"] == [before, last]
    assert c.run("x").result == "11"
    assert [each["name"] for each in ask(c, "list_checkpoints")["checkpoints"]] == ["first"]
    assert ask(c, "rollback", "shell", name="first")["status"] == "ok" and c.run("x").result == "1"


def test_one_of_a_state_that_was_left(c):
    """It began where a cell had run that is undone by now: that cell is not undone for it."""
    first = c.run("x = [1]").content["execution_count"]
    assert c.run("x.append(2)").ok
    where = branch(c)
    assert ask(c, "rollback", "shell")["undone"] == [first + 1]
    assert c.run("x").result == "[1]"
    looked = adopted(c, where)["undone"]
    assert looked == [first + 1] or looked == [first + 2] and c.run("x").result == "[1, 2]"


def test_its_cells_can_be_undone(c):
    """Together, and they are told; a cell without a number is counted."""
    first = c.run("x = [1]").content["execution_count"]
    where = branch(c)
    for i in (2, 3):
        assert run_in(c, where, f"x.append({i})").ok
    c.finish(start_in(c, where, "x.append(4)", store_history=False))
    adopted(c, where)
    refused = ask(c, "rollback", "shell", cells=1)
    assert refused["status"] == "error" and "%undo 2" in refused["evalue"], refused
    content = ask(c, "rollback", "shell", cells=2)
    assert content["undone"] == [first + 1, first + 2] and content["undone_unnumbered"] == 1, content
    assert "; 1 cell without a number is undone" in content["outcome"]
    assert c.run("x, In[-3:-1]").result == "([1], ['x.append(2)', 'x.append(3)'])"
    failed = c.run("import os; os._exit(1)")
    assert failed.about["undone"] == [failed.content["execution_count"]], failed


def test_each_number_has_its_own_lines_source(c):
    """What both lines have run under one number is the branch's; beyond that In has what was undone."""
    assert c.run("x = 1").ok
    where = branch(c)
    assert run_in(c, where, "x += 10; x").result == "11"
    assert c.run("x = 2").ok and ask(c, "checkpoint", name="a")["status"] == "ok"
    assert c.run("x = 3").ok
    adopted(c, where)
    assert c.run("In[1:4], Out[2]").result == "(['x = 1', 'x += 10; x', 'x = 3'], 11)"
    assert ask(c, "rollback", "shell", name="a")["status"] == "ok"
    assert c.run("In[1:4]").result == "['x = 1', 'x = 2', 'x = 3']"


def test_what_it_leaves_out_is_told(c):
    assert c.run("import subprocess").ok
    where = branch(c)
    assert run_in(c, where, "p = subprocess.Popen(['sleep', '1000'])").ok
    assert "what did not come back: 1 child process" in adopted(c, where)["outcome"]
    assert c.run("p.wait()").result == "-9"


@pytest.mark.parametrize("channel", ["shell", "control"])
def test_refused(c, channel):
    assert c.run("import os; os.mkfifo('/tmp/a'); x = 1").ok
    where = branch(c)
    running = start_in(c, where, waiting("a"))
    c.says(running, "on")
    content = adopt(c, where, channel)
    assert content["ename"] == "KernelBusyError" and "the branch" in content["evalue"], content
    assert c.run("with open('/tmp/a', 'w') as f: f.write('x')").ok and c.finish(running).ok
    assert adopt(c, "no such", channel)["ename"] == "UnknownSubshellError"
    assert ask(c, "adopt", channel)["ename"] == "MalformedRequestError"
    assert ask(c, "adopt", channel, subshell_id=1)["ename"] == "MalformedRequestError"
    assert ask(c, "adopt", channel, subshell_id=None)["ename"] == "MalformedRequestError"
    made = c.request("create_subshell_request", {}, channel="control").content["subshell_id"]
    assert adopt(c, made, channel)["ename"] == "UnknownSubshellError"
    running = start_in(c, made, waiting("a"))
    c.says(running, "on")
    content = adopt(c, where, channel)
    assert content["ename"] == "KernelBusyError" and "subshell" in content["evalue"], content
    assert c.run("with open('/tmp/a', 'w') as f: f.write('x')").ok and c.finish(running).ok
    assert run_in(c, where, "import os; os._exit(3)").about["state"] == "lost"
    content = adopt(c, where, channel)
    assert content["ename"] == "KernelDiedError" and "this branch has ended" in content["evalue"], content
    deleted = branch(c)
    delete(c, deleted)
    assert adopt(c, deleted, channel)["ename"] == "UnknownSubshellError"
    assert c.run("x").result == "1"


def test_while_a_cell_runs(c):
    assert c.run("import os; os.mkfifo('/tmp/a'); x = 1").ok
    where = branch(c)
    running = c.start(waiting("a"))
    c.says(running, "on")
    assert adopt(c, where, "control")["ename"] == "KernelBusyError"
    assert run_in(c, where, "with open('/tmp/a', 'w') as f: f.write('x')").ok
    assert c.finish(running).ok
    adopted(c, where, "control")


def test_what_comes_meanwhile_is_not_lost(c):
    """Cells for the branch that come while it is copied run in the main line. One that is at work is left alone."""
    assert c.run("x = []").ok
    length = 0
    for _ in range(12):
        where = branch(c)
        asked = c.send("cellblock_adopt_request", {"subshell_id": where})
        sent = [start_in(c, where, "x.append(0)") if i % 2 else c.start("x.append(0)") for i in range(6)]
        done = [c.finish(each) for each in sent]
        answer = c.reply(asked).content
        assert answer["status"] == "ok" or answer["ename"] == "KernelBusyError", answer
        assert all(each.ok or "adopted" in each.content["evalue"] for each in done), done
        assert all(each.ok for each in done[::2])
        length += sum(each.ok for each in (done if answer["status"] == "ok" else done[::2]))
        assert c.run("len(x)").result == str(length), answer
        delete(c, where)


def test_what_it_opened_stays_open(c):
    """Comms of the branch are the main line's then; those that the main line has opened since are closed."""
    opened = "from comm import create_comm\nc = create_comm(target_name='{0}')\nc.on_msg(lambda m: c.send('got {0}'))"
    assert c.run("x = 1").ok
    where = branch(c)
    mine = run_in(c, where, opened.format("branch"))
    other = c.run(opened.format("main"))
    ids = [each.of("comm_open")[0].content["comm_id"] for each in (mine, other)]
    adopted(c, where)
    assert list(c.request("comm_info_request").content["comms"]) == [ids[0]]
    said = c.until_idle(c.send("comm_msg", {"comm_id": ids[0], "data": {}}))
    assert [m.content["data"] for m in said if m.type == "comm_msg"] == ["got branch"]


def test_what_was_open_before_it_was_made_stays_open(c):
    """But for what it has closed itself: clients hear of that when it is adopted."""
    opened = "from comm import create_comm\n{0} = create_comm(target_name='t')\n"
    opened += "{0}.on_msg(lambda m: {0}.send('got {0}'))"
    cells = [c.run(opened.format(name)) for name in ("kept", "closed")]
    kept, closed = (each.of("comm_open")[0].content["comm_id"] for each in cells)
    where = branch(c)
    assert run_in(c, where, "x = 1; closed.close()").ok
    since = c.run(opened.format("since")).of("comm_open")[0].content["comm_id"]
    assert set(c.request("comm_info_request").content["comms"]) == {kept, closed, since}
    adopted(c, where)
    gone = [c.wait("iopub", lambda m: m.type == "comm_close").content["comm_id"] for _ in range(2)]
    assert set(gone) == {closed, since}
    assert list(c.request("comm_info_request").content["comms"]) == [kept]
    said = c.until_idle(c.send("comm_msg", {"comm_id": kept, "data": {}}))
    assert [m.content["data"] for m in said if m.type == "comm_msg"] == ["got kept"]


def test_overlay_files_stay_as_they_are(start, tmp_path):
    (tmp_path / "a").write_text("0")
    c = start(args=[*ALWAYS, "--set", f"workspace.path={tmp_path}", "--set", "workspace.mode=overlay"]).client
    assert c.run("x = 1").ok
    where = branch(c)
    assert run_in(c, where, "open('a', 'w').write('of the branch')").ok
    adopted(c, where)
    assert c.run("open('a').read()").result == "'of the branch'"
    assert c.run("open('a', 'w').write('later'); import os; os._exit(1)").about["state"] == "restored"
    assert c.run("open('a').read()").result == "'of the branch'"


def test_transactions_off(start):
    c = start(args=["--set", "transactions.mode=off"]).client
    assert adopt(c, "no such")["ename"] == "UnknownSubshellError"


def test_a_branch_that_can_not_be_copied(start):
    """Nothing has changed, on either side. Here a cell has taken all processes that there may be."""
    c = start(args=[*ALWAYS, "--set", "limits.pids=60"]).client
    assert c.run("import os, time; x = 1").ok
    where = branch(c)
    assert run_in(c, where, "x = 2").ok
    fill = (
        "made = []\ntry:\n    while True:\n        pid = os.fork()\n        if pid == 0:\n            time.sleep(600)\n"
        "        made.append(pid)\nexcept OSError: pass\nlen(made) > 5"
    )
    assert c.run(fill).result == "True"
    content = adopt(c, where)
    assert content["ename"] == "CheckpointError", content
    assert run_in(c, where, "x").result == "2" and c.run("x").result == "1"
    assert c.run("import signal\nfor pid in made: os.kill(pid, 9), os.waitpid(pid, 0)").ok
    adopted(c, where)
    assert c.run("x").result == "2"


@pytest.mark.parametrize("who", ["branch", "main"])
def test_one_that_dies_while_it_is_adopted(c, who):
    """Its own thread ends it, which does nothing in its copies: each request is answered, and the session goes on."""
    killer = "def end(me):\n    time.sleep(random.random() / 20)\n    if os.getpid() == me: os._exit(9)"
    assert c.run("import os, random, threading, time; x = 1\n" + killer).ok
    killer = "threading.Thread(target=end, args=(os.getpid(),)).start(); x = 2"
    failed = 0
    for _ in range(40):
        reply = ask(c, "branch")
        if reply["status"] == "error":  # the main line's killer was earlier
            continue
        where = reply["subshell_id"]
        run_in(c, where, killer) if who == "branch" else c.run(killer)
        content = adopt(c, where)
        if content["status"] == "error":
            assert content["ename"] in ("KernelDiedError", "CheckpointError", "UnknownSubshellError"), content
            failed += 1
            delete(c, where)
        seen = c.run("x")
        assert (seen if seen.ok else c.run("x")).result in ("1", "2")  # it may have been sent to the dead one
        if failed == 3:
            break
    assert failed or who == "main", "none died while it was adopted"  # the branch takes the place of a dead one, too
