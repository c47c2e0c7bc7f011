"""Named checkpoints and rollback, by messages and by magics."""

import signal
from pathlib import Path

import psutil
import pytest
import rawclient
from widgets import counting_comm

pytestmark = [pytest.mark.cellblock_only("no other kernel does this"), pytest.mark.once]
ALWAYS = ["--set", "transactions.mode=always", "--set", "transactions.names=2"]


def ask(c, what, channel="control", **content):
    return c.request(f"cellblock_{what}_request", content, channel=channel).content


@pytest.mark.parametrize("channel", ["control", "shell"])
def test_back_to_a_name_again_and_again(start, channel):
    c = start(args=ALWAYS).client
    assert c.run("x = [1]; y = x").ok
    made = ask(c, "checkpoint", channel, name="clean")
    assert (made["status"], made["name"], made["execution_count"]) == ("ok", "clean", 1), made
    assert made["memory_bytes"] > 0 and 0 <= made["duration_s"] < 60
    for i in range(3):
        assert c.run("x.append(2)").ok and c.run("x").result == "[1, 2]"
        back = ask(c, "rollback", channel, name="clean")
        assert (back["status"], back["restored_to"]) == ("ok", 1), back
        assert len(back["undone"]) == (2 if i == 0 else 3), back
        assert c.run("x, y is x").result == "([1], True)"
    listed = ask(c, "list_checkpoints", channel)["checkpoints"]
    assert [(each["name"], each["execution_count"]) for each in listed] == [("clean", 1)]
    assert ask(c, "delete_checkpoint", channel, name="clean")["status"] == "ok"
    assert ask(c, "list_checkpoints", channel)["checkpoints"] == []
    gone = ask(c, "rollback", channel, name="clean")
    assert (gone["status"], gone["ename"]) == ("error", "CheckpointError") and "clean" in gone["evalue"]


def test_a_cell_that_makes_one_does_not_go_back_as_well(start):
    """The one that it made would be of the state it went back to."""
    c = start(args=ALWAYS).client
    assert c.run("x = 1\n%checkpoint b").ok
    failed = c.run("x = 2\n%checkpoint a\n%rollback b")
    assert failed.content["ename"] == "CheckpointError" and "two cells" in failed.content["evalue"], failed.content
    assert c.run("x").result == "2"
    assert c.run("%rollback b").about["state"] == "restored" and c.run("x").result == "1"
    assert c.run("%rollback a").about["state"] == "restored" and c.run("x").result == "2"


@pytest.mark.parametrize("magic", ["%undo 7", "%rollback nowhere"])
def test_what_waits_behind_a_refused_one_is_aborted(start, magic):
    c = start(args=ALWAYS).client
    both_sent = c.start("import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)")
    first, second = c.start(magic), c.start("1")
    (c.kernel.workspace / "go").touch()
    assert c.finish(both_sent).ok and c.finish(first).content["status"] == "error"
    assert c.finish(second).content["status"] == "aborted"
    first, second = c.start(magic, stop_on_error=False), c.start("1")
    assert c.finish(first).content["status"] == "error" and c.finish(second).ok


def test_more_source_is_undone_than_a_message_may_have(start):
    c = start(args=[*ALWAYS, "--set", "limits.message=1M"]).client
    assert c.run("x = 1").ok
    assert ask(c, "checkpoint", name="a")["status"] == "ok"
    for i in range(12):
        assert c.run(f"x = {i} # {'-' * 500000}").ok
    back = ask(c, "rollback", name="a")
    assert back["status"] == "ok" and len(back["undone"]) == 12, back
    assert c.run("x").result == "1"


def signal_twins(c, number):
    """To the processes of all copies."""
    python, sent = c.run("import os; os.getpid()").result, []
    ask(c, "list_checkpoints")  # answered when none is on its way
    for p in c.kernel.family():
        try:
            status = Path(f"/proc/{p.pid}/status").read_text().splitlines()
            inside = next(line.split()[-1] for line in status if line.startswith("NSpid:"))
            if "boot.py" in " ".join(p.cmdline()) and inside != python:
                p.send_signal(number)
                sent.append(p)
        except (OSError, psutil.NoSuchProcess):  # one that is not needed any more
            pass
    assert sent
    return sent


def test_a_copy_may_take_its_time(start):
    """On a machine that is so busy that a copy gets no processor for seconds."""
    c = start(args=ALWAYS).client
    assert c.run("x = [1]").ok and ask(c, "checkpoint", name="clean")["status"] == "ok"
    assert c.run("x.append(2)").ok
    stopped = signal_twins(c, signal.SIGSTOP)
    sent = c.send("cellblock_rollback_request", {"name": "clean"}, channel="control")
    try:
        c.wait_in_place("control", lambda m: m.parent_id == sent, timeout=4)
    except rawclient.NoMessage:
        pass
    for each in stopped:
        if each.is_running():
            each.send_signal(signal.SIGCONT)
    assert c.reply(sent, "control").content["status"] == "ok"
    assert c.run("x").result == "[1]"


def test_limits_and_mistakes(start):
    c = start(args=ALWAYS).client
    assert [ask(c, "checkpoint", name=n)["status"] for n in ("a", "b", "a", "b")] == ["ok"] * 4
    more = ask(c, "checkpoint", name="c")
    assert more["status"] == "error" and "transactions.names is 2" in more["evalue"]
    for wrong in ({}, {"name": ""}, {"name": 5}, {"name": "x" * 200}, {"name": "a\nb"}):
        assert ask(c, "checkpoint", **wrong)["status"] == "error"
    assert ask(c, "rollback")["ename"] == "CheckpointError"  # no cell was run
    assert c.run("1").ok


def test_before_the_last_cell(start):
    c = start(args=ALWAYS).client
    assert c.run("x = 1").ok and c.run("x = 2").ok
    back = ask(c, "rollback")
    assert (back["restored_to"], back["undone"]) == (1, [2]), back
    assert c.run("x").result == "1"


def test_a_name_that_a_cell_asked_for_before_its_time_was_over(start):
    c = start(args=[*ALWAYS, "--set", "timeout.grace=60"]).client
    assert c.run("x = 1").ok
    late = c.run("x = 2\n%checkpoint a\nwhile True: pass", metadata={"cellblock": {"timeout": 1}})
    assert late.content["ename"] == "CellTimeoutError" and late.about["state"] == "kept", late.content
    assert [each["name"] for each in ask(c, "list_checkpoints", "shell")["checkpoints"]] == ["a"]
    assert ask(c, "rollback", name="a")["status"] == "ok" and c.run("x").result == "2"


def test_undo(start):
    """Exactly so many cells, as far as states are kept; a state that is gone back to is used up."""
    c = start(args=[*ALWAYS, "--set", "transactions.keep=3"]).client
    for i in range(1, 7):
        assert c.run(f"x = {i}").ok
    back = c.run("y = 1\n%undo\nprint('never')")
    assert back.ok and (back.about["state"], back.about["restored_to"], back.about["undone"]) == ("restored", 5, [6, 7])
    assert "all variables are as they were before cell [6]; cells [6] to [7] are undone" in back.text("stderr")
    assert c.run("x, 'y' in globals()").result == "(5, False)"
    back = ask(c, "rollback", cells=2)
    assert (back["status"], back["undone"]) == ("ok", [5, 8]), back
    assert c.run("x").result == "4"
    far = c.run("%undo 9")
    assert far.content["ename"] == "CheckpointError" and "%undo: no more than" in far.content["evalue"], far
    assert far.about["state"] == "kept" and c.run("x").result == "4"
    far = ask(c, "rollback", cells=5)
    assert far["ename"] == "CheckpointError" and "is not kept (transactions.keep is 3)" in far["evalue"], far


@pytest.mark.parametrize("what", ["unnumbered", "messages"])
def test_undo_behind_what_has_no_number(start, what):
    """Silent cells, or messages of widgets: with the one older state that is kept where nothing else is set."""
    c = start(args=ALWAYS).client
    comm = counting_comm(c)
    assert c.run("x = 1").ok and c.run("x = 2").ok
    for _ in range(2):
        if what == "messages":
            c.until_idle(c.send("comm_msg", {"comm_id": comm, "data": {}}))
        else:
            assert c.run("y = 0", silent=True).ok
    back = c.run("%undo")
    assert back.ok and (back.about["undone"], back.about["undone_" + what]) == ([4, 5], 2), back
    assert c.run("x").result == "1"


CALLBACK = """
from ipykernel.comm import Comm
said = []
def on(message):
    for magic, line in ("checkpoint", "a"), ("rollback", ""), ("undo", ""):
        try:
            get_ipython().run_line_magic(magic, line)
        except BaseException as e:
            said.append(f"{type(e).__name__}: {e}")
comm = Comm(target_name='t')
comm.on_msg(on)
"""


def test_a_callback_between_cells_is_no_cell(start):
    """What is asked for goes with a cell's reply, and there is none."""
    c = start(args=ALWAYS).client
    assert c.run(CALLBACK).ok
    comm = c.run("comm.comm_id").result.strip("'")
    c.until_idle(c.send("comm_msg", {"comm_id": comm, "data": {}}))
    said = c.run("print(*said, sep='\\n')").text().splitlines()
    words = "works in the main thread of a cell only, while that runs"
    assert said == [f"UsageError: %{magic} {words}" for magic in ("checkpoint", "rollback", "undo")]
    assert ask(c, "list_checkpoints", "shell")["checkpoints"] == []


def test_undo_after_going_to_a_later_state(start):
    """What was undone once is not undone any more in a state that has it."""
    c = start(args=["--set", "transactions.mode=always", "--set", "transactions.keep=20"]).client
    assert c.run("log = [1]").ok and c.run("log.append(2)\n%checkpoint a").ok
    for i in (3, 4):
        assert c.run(f"log.append({i})").ok
    assert c.run("log.append(5)\n%checkpoint b").ok
    for name in "a", "b":
        assert ask(c, "rollback", name=name)["status"] == "ok"
    assert c.run("log.append(9)").ok and c.run("log").result == "[1, 2, 3, 4, 5, 9]"
    assert ask(c, "rollback", cells=2)["status"] == "ok"
    assert c.run("log").result == "[1, 2, 3, 4, 5]"
    refused = ask(c, "rollback", cells=2)
    assert refused["ename"] == "CheckpointError" and "is not kept" in refused["evalue"], refused
    assert c.run("log").result == "[1, 2, 3, 4, 5]", "nothing is undone that was not asked for"


def test_between_two_lines(start):
    """Each has a cell that the other has not; what is undone is told both ways."""
    c = start(args=ALWAYS).client
    assert c.run("log = [1]").ok and ask(c, "checkpoint", name="a")["status"] == "ok"
    assert c.run("log.append(2)").ok and ask(c, "checkpoint", name="b")["status"] == "ok"
    assert ask(c, "rollback", name="a")["undone"] == [2]
    assert c.run("log.append(3)").ok and ask(c, "delete_checkpoint", name="a")["status"] == "ok"
    assert ask(c, "checkpoint", name="c")["status"] == "ok"
    assert ask(c, "rollback", name="b")["undone"] == [3] and c.run("log").result == "[1, 2]"
    back = c.run("%rollback c")
    told = "cells [4] to [5] are undone; 1 earlier cell, which that state does not have, is undone"
    assert back.about["undone"] == [2, 4, 5] and told in back.text("stderr"), back
    assert c.run("log").result == "[1, 3]"


def test_undo_beside_a_subshell(start):
    """The cell that asks is not taken for the subshell's, which has begun after it; while that runs it is refused."""
    c = start(args=[*ALWAYS, "--set", "transactions.keep=5"]).client
    assert c.run("import threading; x, go, over = 1, threading.Event(), threading.Event()").ok and c.run("x = 2").ok
    shell = c.request("create_subshell_request", channel="control").content["subshell_id"]
    cell = c.start("go.wait(60)\n%undo")
    beside = c.start("go.set()", header=c.header("execute_request", subshell_id=shell))
    assert c.finish(beside).ok
    back = c.finish(cell)
    if back.ok:
        assert back.about["undone"][0] == 2 and c.run("x").result == "1", back.about
    else:  # it was not over yet
        assert "a cell of a subshell runs" in back.content["evalue"] and c.run("x").result == "2"
    waits = c.start("over.wait(300)", header=c.header("execute_request", subshell_id=shell))
    c.wait("iopub", lambda m: m.type == "execute_input" and m.parent_id == waits)
    refused = c.run("%undo")
    assert refused.content["ename"] == "CheckpointError" and "a cell of a subshell runs" in refused.content["evalue"]
    assert c.run("over.set()").ok and c.finish(waits).ok


def test_a_question_beside_a_rollback_is_told_of_it(start):
    c = start(args=ALWAYS).client
    slow = "class Slow:\n    def __dir__(self): go.set(); time.sleep(600)\n"
    assert c.run("import threading, time\ngo = threading.Event()\n" + slow + "slow = Slow()").ok
    assert ask(c, "checkpoint", name="a")["status"] == "ok"
    cell = c.start("go.wait(60)\n%rollback a")
    question = c.send("complete_request", {"code": "slow.", "cursor_pos": 5})
    told = c.reply(question).content
    assert (told["status"], told["ename"]) == ("error", "KernelDiedError"), told
    assert "the state goes back to an earlier one" in told["evalue"]
    assert c.finish(cell).about["state"] == "restored"
    assert c.run("go.is_set()").result == "False"


def test_undo_says_what_is_wrong(start):
    c = start(args=ALWAYS).client
    assert c.run("x = 1").ok
    for wrong in ("0", "-1", "two", "1.5", "1 2", "9" * 30):
        failed = c.run("%undo " + wrong)
        assert not failed.ok and "how many cells?" in failed.content["evalue"], failed
    for wrong in ({"cells": 0}, {"cells": "1"}, {"cells": 1.5}, {"cells": 1 << 40}, {"cells": 1, "name": "a"}):
        failed = ask(c, "rollback", **wrong)
        assert failed["ename"] == "MalformedRequestError" and "cells: it" in failed["evalue"], failed
    assert c.run("x").result == "1"


def test_undo_never_undoes_more(start):
    """Where a state is not kept for each cell it says which one is, and how to go there."""
    c = start(args=["--set", "transactions.mode=auto", "--set", "transactions.keep=1"]).client
    assert c.run("x = 1").ok
    cells = [c.start(f"import time; x = {i}; time.sleep(0.05)") for i in (2, 3, 4)]
    assert all([c.finish(each).ok for each in cells])
    undone = ask(c, "rollback", cells=1)
    if undone["status"] == "ok":
        assert undone["undone"] == [4]
    else:
        assert "is not kept; %undo " in undone["evalue"] and "from after cell [" in undone["evalue"], undone
        assert c.run("x").result == "4"


def test_not_while_a_cell_runs(start):
    c = start(args=ALWAYS).client
    assert c.run("x = 1").ok
    cell = c.start("input('?')", allow_stdin=True)
    asked = c.wait("stdin")
    assert ask(c, "rollback")["ename"] == "KernelBusyError"
    made = c.send("cellblock_checkpoint_request", {"name": "after"}, channel="control")
    c.send("input_reply", {"value": "x"}, channel="stdin", parent=asked.header)
    assert c.finish(cell).ok
    assert c.reply(made, "control").content["status"] == "ok"


def test_those_asked_for_in_a_cell_come_before_other_cells_and_in_order(start):
    c = start(args=ALWAYS).client
    cell = c.start("input('?')", allow_stdin=True)
    asked, other = c.wait("stdin"), c.start("x = 1")
    made = [c.send("cellblock_checkpoint_request", {"name": name}, channel="control") for name in ("one", "two")]
    ask(c, "list_checkpoints")  # those were taken
    c.send("input_reply", {"value": "x"}, channel="stdin", parent=asked.header)
    assert c.finish(cell).ok and c.finish(other).ok
    replies = [c.wait("control", lambda m: m.type == "cellblock_checkpoint_reply") for _ in made]
    assert [m.content["status"] for m in replies] == ["ok", "ok"]
    assert [m.parent_id for m in replies] == made
    assert ask(c, "rollback", name="two")["undone"] == [2]


def test_magics(start):
    c = start(args=ALWAYS).client
    assert c.run("x = 1\n%checkpoint one\nx = 2").ok
    assert c.run("x = 3").ok
    assert "one" in c.run("%checkpoints").text()
    back = c.run("x = 4\n%rollback one\nprint('never')")
    assert back.ok and back.text() == "" and back.content["execution_count"] == 4, back
    assert (back.about["state"], back.about["restored_to"], back.about["undone"]) == ("restored", 1, [2, 3, 4])
    assert c.run("x").result == "2"
    assert c.run("x = 5").ok
    back = c.run("%rollback")
    assert back.ok and back.about["undone"] == [6, 7], back.about
    assert c.run("x").result == "2"
    failed = c.run("%rollback nowhere")
    assert not failed.ok and "nowhere" in failed.content["evalue"]


def test_names_that_a_cell_may_give(transactional):
    """Bytes are counted, and how many there are in one cell; the line fails for what is not made."""
    c = transactional("transactions.names=20", "limits.pids=64")
    longest = "é" * 63 + "a"
    assert c.run(f"%checkpoint {longest}").ok
    for wrong, why in ((longest + "a", "127 bytes"), ("a\tb", "control"), ("a\x7fb", "control")):
        failed = c.run(f"%checkpoint {wrong}")
        assert not failed.ok and why in failed.content["evalue"], (wrong, failed)
    names = [f"n{i}" for i in range(16)]
    lines = "".join(f"%checkpoint {name}\n" for name in names)
    assert c.run(f"{lines}%checkpoint n0").ok, "one that was named before is no other"
    failed = c.run(f"{lines}%checkpoint n16")
    assert not failed.ok and "%checkpoint n16: a cell makes at most 16" in failed.content["evalue"], failed
    assert c.run("1").text("stderr") == ""
    made = [each["name"] for each in ask(c, "list_checkpoints", "shell")["checkpoints"]]
    assert sorted(made) == sorted([longest, *names])


@pytest.mark.parametrize("mode", ["auto", "always"])
def test_a_failure_behind_one(start, mode):
    """No failure goes back behind a checkpoint that was made just before, in cells that are sent in one go as well."""
    c = start(args=["--set", f"transactions.mode={mode}"]).client
    by_cell = c.start("x = 1\n%checkpoint one"), c.start("import os; os._exit(1)")
    assert c.finish(by_cell[0]).ok
    assert c.finish(by_cell[1]).about["undone"] == [2]
    c.start("x = 2")
    asked, failed = c.send("cellblock_checkpoint_request", {"name": "two"}), c.start("import os; os._exit(1)")
    assert c.reply(asked).content["status"] == "ok"
    assert c.finish(failed).about["undone"] == [4]
    assert c.run("x").result == "2"


def test_off(start):
    c = start(args=["--set", "transactions.mode=off"]).client
    for what in ("checkpoint", "rollback"):
        assert 'transactions.mode is "off"' in ask(c, what, name="a")["evalue"]


def test_a_subshell_after_an_undo_that_was_refused(start):
    """Its errors are told, and the way back is the main shell's alone."""
    c = start(args=["--set", "transactions.mode=always"]).client
    where = c.request("create_subshell_request", channel="control").content["subshell_id"]
    assert not c.run("%undo 90").ok
    failed = c.finish(c.start("1 / 0", header=c.header("execute_request", subshell_id=where)))
    assert failed.content["ename"] == "ZeroDivisionError", failed


def test_the_count_of_a_cell_that_goes_back(start):
    """Its own, though a subshell's cell has counted on."""
    c = start(args=["--set", "transactions.mode=always"]).client
    where = c.request("create_subshell_request", channel="control").content["subshell_id"]
    assert c.run("%checkpoint a").ok
    cell = c.start("input()\n%rollback a", allow_stdin=True)
    c.wait("stdin", lambda m: m.type == "input_request")
    assert c.finish(c.start("y = 1", header=c.header("execute_request", subshell_id=where))).ok
    c.send("input_reply", {"value": ""}, channel="stdin")
    back = c.finish(cell)
    assert back.ok and "are as they were" in back.text("stderr"), back
    told = [m.content["execution_count"] for m in back.iopub if m.type == "execute_input"]
    assert told == [back.content["execution_count"]] == [2], back
