"""Host tools where the state goes back: functions outlive it, and what had been called is told."""

import os

import pytest

from toolhost import Host

pytestmark = [pytest.mark.cellblock_only("no other kernel does this"), pytest.mark.once]
ALWAYS = ["--set", "transactions.mode=always", "--set", "timeout.grace=0.2"]


def add(a):
    return a


def host_of(kernel, **more):
    return Host(kernel.client, add=add, pay=lambda a: -a).register(**more)


@pytest.mark.parametrize("mode", ["always", "off"])
def test_after_a_crash(start, mode):
    kernel = start(args=["--set", f"transactions.mode={mode}"])
    host = host_of(kernel)
    assert host.run("kept = add(1)").ok
    done = host.run("add(2)\npay(3)\nimport os\nos._exit(1)", 2)
    state = "restored" if mode == "always" else "lost"
    assert done.content["ename"] == "KernelDiedError" and done.about["state"] == state, done
    assert [(call["tool"], call["completed"]) for call in done.about["calls"]] == [("add", True), ("pay", True)]
    first, second = (call["id"] for call in done.about["calls"])
    assert f"host tools had completed, and that is not undone: pay (call {second}), add (call {first})" in (
        done.content["evalue"]
    )
    assert done.error["evalue"] == done.content["evalue"]
    again = host.run("add(4)")
    assert again.result == "4" and int(again.about["calls"][0]["id"]) > int(second)
    if mode == "always":
        assert host.client.run("kept, 'add' in globals()").result == "(1, False)"


def test_a_crash_while_a_call_waits(start):
    kernel = start(args=ALWAYS)
    host = host_of(kernel)
    cell = kernel.client.start(
        "import os, threading\nadd(1)\n"
        "threading.Thread(target=lambda: (open('gate').read(), os._exit(1))).start()\npay(2)",
        allow_stdin=True,
    )
    path = kernel.workspace / "gate"
    os.mkfifo(path)
    os.chown(path, kernel.workspace.stat().st_uid, -1)
    host.answer(host.question())
    late = host.question()
    path.write_text("go")
    done = kernel.client.finish(cell)
    assert [call["completed"] for call in done.about["calls"]] == [True, False], done
    assert "add (call" in done.content["evalue"] and "pay" not in done.content["evalue"]
    host.rounds.clear()
    cell = kernel.client.start("add(3)", allow_stdin=True)
    asked = host.question()
    host.answer(late)  # of the cell before: nobody's
    host.answer(asked)
    assert kernel.client.finish(cell).result == "3"


def test_after_rollback(start):
    kernel = start(args=ALWAYS)
    host = host_of(kernel)
    c = kernel.client
    assert host.run("x = add(1)").ok
    assert c.request("cellblock_checkpoint_request", {"name": "a"}).content["status"] == "ok"
    assert host.run("x = add(2)").ok
    back = c.request("cellblock_rollback_request", {"name": "a"}).content
    assert back["status"] == "ok", back
    assert host.run("x, add(3)").result == "(1, 3)"
    done = host.run("add(9)\n%rollback a")
    assert done.ok and done.about["state"] == "restored" and done.about["calls"][0]["completed"]
    assert c.run("x, 'add' in globals()").result == "(1, False)"


def ids(cells):
    return [call["id"] for cell in cells for call in cell.about["calls"]]


def test_calls_of_other_cells_that_are_undone(start):
    """The state goes back over cells that ended well: what tools did for them is named, once."""
    kernel = start(args=["--set", "transactions.mode=off"])
    host = host_of(kernel)
    c = kernel.client
    assert host.run("x = add(1)").ok and c.run("x = 2").ok
    (first,) = ids([host.run("pay(5)", store_history=False)])
    done = host.run("add(3)\nimport os\nos._exit(1)")
    assert done.about["state"] == "lost" and [call["tool"] for call in done.about["calls"]] == ["add"]
    assert [(call["tool"], call["cell"]) for call in done.about["undone_calls"]] == [("add", 1), ("pay", None)], done
    said = f"what host tools did for undone cells stays done: pay (call {first}), add (call 1 of cell [1]); host tools"
    assert said in done.content["evalue"]
    again = host.run("add(4)\nimport os\nos._exit(1)")
    assert "undone_calls" not in again.about and "undone cells" not in again.content["evalue"]


def test_calls_of_cells_since_the_state_that_took_over(start):
    """With mode `keep` cells run between one copy and the next, and all of them are undone."""
    kernel = start(args=ALWAYS)
    host = host_of(kernel)
    c = kernel.client
    assert host.run("x = add(1)").ok
    assert c.request("cellblock_checkpoint_request", {"name": "a"}).content["status"] == "ok"
    cells = [host.run("x = add(2)"), host.run("add(3), pay(4)", 2)]
    back = c.request("cellblock_rollback_request", {"name": "a"}).content
    named = [{"id": call["id"], "tool": call["tool"], "cell": n}
             for cell, n in zip(cells, back["undone"]) for call in cell.about["calls"]]
    assert back["undone_calls"] == named and len(named) == 3, back
    assert host.run("x = add(5)").ok
    done = host.run("add(9)\n%rollback a")
    assert done.about["state"] == "restored" and [call["tool"] for call in done.about["calls"]] == ["add"]
    assert [call["cell"] for call in done.about["undone_calls"]] == done.about["undone"][:1], done
    assert "undone_calls" not in c.request("cellblock_rollback_request", {"name": "a"}).content


def test_calls_of_a_subshells_cell_that_is_undone(start):
    kernel = start(args=ALWAYS)
    host = host_of(kernel)
    c = kernel.client
    assert c.run("1").ok
    assert c.request("cellblock_checkpoint_request", {"name": "a"}).content["status"] == "ok"
    where = c.request("create_subshell_request", {}, channel="control").content["subshell_id"]
    cell = host.run("x = add(1)", header=c.header("execute_request", subshell_id=where))
    assert cell.ok, cell
    back = c.request("cellblock_rollback_request", {"name": "a"}).content
    assert [call["id"] for call in back["undone_calls"]] == ids([cell]), back


def test_a_checkpoint_beside_a_subshells_cell(start):
    """It has what that had done until then. Going back undoes the rest, and says so, with the tools it had called."""
    kernel = start(args=ALWAYS)
    host = host_of(kernel)
    c = kernel.client
    where = c.request("create_subshell_request", {}, channel="control").content["subshell_id"]
    assert c.run("import threading; half, go, log = threading.Event(), threading.Event(), []").ok  # [1]
    code = "log.append(1); add(1); half.set(); go.wait(60); log.append(2); add(2)"
    beside = c.start(code, allow_stdin=True, header=c.header("execute_request", subshell_id=where))  # [2]
    host.answer(host.question())
    assert c.run("half.wait(60)").result == "True"  # [3]
    assert c.request("cellblock_checkpoint_request", {"name": "a"}).content["status"] == "ok"
    assert c.run("go.set()").ok  # [4]
    host.answer(host.question())
    done = c.finish(beside)
    assert done.ok and c.run("log").result == "[1, 2]", done  # [5]
    back = c.run("%rollback a")  # [6]
    assert back.about["restored_to"] == 3 and back.about["undone"] == [2, 4, 5, 6], back.about
    assert [(call["tool"], call["cell"]) for call in back.about["undone_calls"]] == [("add", 2), ("add", 2)], back.about
    told = "as they were before cell [4]; cells [4] to [6] are undone; what cell [2] of a subshell has done"
    assert told in back.text("stderr"), back.text("stderr")
    assert c.run("log").result == "[1]"
    assert c.request("cellblock_rollback_request", {"name": "a"}).content["undone"] == [7]


@pytest.mark.parametrize("awaitable", [False, True])
def test_in_a_branch(start, awaitable):
    kernel = start(args=ALWAYS)
    host = host_of(kernel, awaitable=awaitable)
    c = kernel.client
    assert c.run("x = 5").ok
    where = c.request("cellblock_branch_request", {}, channel="control").content["subshell_id"]
    header = c.header("execute_request", subshell_id=where)
    await_ = "await " if awaitable else ""
    mine = c.start(f"{await_}add(1)", allow_stdin=True)
    first = host.question()
    beside = c.start(f"{await_}add(x)", allow_stdin=True, header=header)
    second = host.question()
    (call,) = second.metadata["cellblock"]["calls"]
    assert second.parent["subshell_id"] == where and call["args"] == [5]
    header = c.header("input_reply", subshell_id=where)
    value = '{"results":[{"id":"%s","ok":"b"}]}' % call["id"]
    c.send("input_reply", {"value": value}, channel="stdin", header=header)
    done = c.finish(beside)
    assert done.result == "'b'" and done.about["calls"] == [{"id": call["id"], "tool": "add", "completed": True}]
    host.answer(first)
    assert c.finish(mine).result == "1"
    # a branch that dies tells what was completed
    header = c.header("execute_request", subshell_id=where)
    beside = c.start(f"import os\n{await_}pay(7)\nos._exit(1)", allow_stdin=True, header=header)
    asked = host.question()
    value = '{"results":[{"id":"%s","ok":1}]}' % asked.metadata["cellblock"]["calls"][0]["id"]
    c.send("input_reply", {"value": value}, channel="stdin", header=c.header("input_reply", subshell_id=where))
    done = c.finish(beside)
    assert done.about["calls"][0]["completed"] and "pay (call" in done.content["evalue"], done


def test_calls_of_an_adopted_branch(start):
    """They are the main line's then, and are told with the branch's cells."""
    kernel = start(args=ALWAYS)
    host = host_of(kernel)
    c = kernel.client
    assert c.run("x = 1").ok
    where = c.request("cellblock_branch_request", {}, channel="control").content["subshell_id"]
    cell = host.run("x = add(2)", header=c.header("execute_request", subshell_id=where))
    assert cell.ok, cell
    undone = ids([host.run("x = add(3)")])
    reply = c.request("cellblock_adopt_request", {"subshell_id": where}).content
    assert [call["id"] for call in reply["undone_calls"]] == undone, reply
    back = c.request("cellblock_rollback_request", {"cells": 1}).content
    assert [(call["id"], call["cell"]) for call in back["undone_calls"]] == [(ids([cell])[0], 2)], back
    assert c.run("x").result == "1"


@pytest.mark.parametrize("way", ["crash", "rollback"])
@pytest.mark.parametrize("waits", ["add(1)", "input()"])
def test_a_twin_made_as_the_first_cell_of_a_subshell_begins(start, waits, way):
    kernel = start(args=ALWAYS)
    host = host_of(kernel)
    c = kernel.client
    where = c.request("create_subshell_request", {}, channel="control").content["subshell_id"]
    assert c.run("x = 5").ok  # a twin is made after it
    beside = c.start(waits, allow_stdin=True, header=c.header("execute_request", subshell_id=where))
    if way == "rollback":
        assert c.request("cellblock_checkpoint_request", {"name": "a"}).content["status"] == "ok"
    c.wait("stdin", lambda m: m.type == "input_request")
    assert c.run("y = 1").ok
    if way == "rollback":
        c.request("interrupt_request", {}, channel="control", header=c.header("interrupt_request", subshell_id=where))
        assert not c.finish(beside).ok
        done = c.request("cellblock_rollback_request", {"name": "a"})
        assert done.content["status"] == "ok", done
    else:
        done = c.run("import os\nos._exit(1)")
        assert done.about["state"] == "restored" and "did not work" not in done.content["evalue"], done
        assert not c.finish(beside).ok
    assert host.run("x, 'y' in globals(), add(3)").result == "(5, False, 3)"
    c.start(waits, allow_stdin=True, header=c.header("execute_request", subshell_id=where))
    asked = c.wait("stdin", lambda m: m.type == "input_request")
    assert asked.parent["subshell_id"] == where
