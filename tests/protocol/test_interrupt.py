"""interrupt_request and SIGINT: the cell ends with KeyboardInterrupt, and the state is kept."""

import importlib.util
import os
import random
import signal
from pathlib import Path

import pytest

import branches
from kernels import BY_FORK

TWINS = False


def interrupt(client):
    assert client.request("interrupt_request", {}, channel="control").content["status"] == "ok"


CODES = {
    "sleep": "import time\nprint('running', flush=True)\ntime.sleep(600)",
    "loop": "print('running', flush=True)\nwhile True: pass",
    "await": "import asyncio\nprint('running', flush=True)\nawait asyncio.sleep(600)",
    "lock": "import threading\nl = threading.Lock(); l.acquire()\nprint('running', flush=True)\nl.acquire()",
    "pipe": "print('running', flush=True)\nopen('gate').read()",
    "subprocess": "import subprocess\nsubprocess.run('echo running; exec sleep 600', shell=True)",
    "shell": "!echo running; sleep 600",
    "bash": "%%bash\necho running\nsleep 600",
    "thread": "import threading, time\n"
    "t = threading.Thread(target=time.sleep, args=(600,), daemon=True); t.start()\n"
    "print('running', flush=True)\nt.join()",
}


# sum() over a range looks at no signal before it ends; one code object, so that nothing is between the two calls
DEAF = "exec('print(\\'running\\', flush=True); sum(range(10**13))')"


@pytest.mark.parametrize("name", CODES)
def test_interrupt(client, gate, name):
    if name == "await" and not client.kernel.is_cellblock:
        pytest.skip("ipykernel waits for the sleep to end")
    client.run("kept = 'kept'")
    cell = client.start(CODES[name])
    client.says(cell, "running")
    interrupt(client)
    done = client.finish(cell)
    if name not in ("shell", "bash", "subprocess"):
        assert done.content["ename"] == "KeyboardInterrupt" == done.error["ename"]
    assert client.run("kept").result == "'kept'"


def test_by_signal(client):
    client.run("kept = 1")
    cell = client.start(CODES["sleep"])
    client.says(cell, "running")
    client.kernel.signal(signal.SIGINT)
    assert client.finish(cell).content["ename"] == "KeyboardInterrupt"
    assert client.run("kept").result == "1"


def test_while_idle_it_does_nothing(client):
    client.run("kept = 1")
    for _ in range(5):
        interrupt(client)
    client.kernel.signal(signal.SIGINT)
    interrupt(client)
    assert client.run("kept").result == "1"


def test_queued_cells_do_not_run(client):
    cell = client.start(CODES["sleep"])
    queued = client.start("ran_after_interrupt = 1")
    client.says(cell, "running")
    interrupt(client)
    client.finish(cell)
    assert client.finish(queued).content["status"] in ("aborted", "error")


def test_code_that_swallows_it_is_obeyed(client):
    """Python delivered the interrupt: what the handler does is the user's business."""
    cell = client.start(
        "import time\nseen = 0\n"
        "while seen < 3:\n    try:\n        print('seen', seen, flush=True)\n        time.sleep(600)\n"
        "    except KeyboardInterrupt: seen += 1\nseen"
    )
    for i in range(3):
        client.says(cell, f"seen {i}")
        interrupt(client)
    done = client.finish(cell)
    assert done.ok and done.result == "3"


def test_a_long_clean_up_is_waited_for(client, gate):
    cell = client.start(
        "import time\nprint('running', flush=True)\ntry: time.sleep(600)\n"
        "except KeyboardInterrupt:\n    print('cleaning', flush=True)\n    open('gate').read()\n"
        "    print('clean', flush=True)"
    )
    client.says(cell, "running")
    interrupt(client)
    client.says(cell, "cleaning")
    gate()
    done = client.finish(cell)
    assert done.ok and "clean\n" in done.text()


@pytest.mark.cellblock_only("ipykernel has no hard stop")
def test_a_second_one_while_the_first_is_undelivered_is_hard(start):
    c = start().client
    for _ in range(5):  # the first interrupt may come between the two calls of DEAF, and is obeyed then
        cell = c.start(DEAF)
        c.says(cell, "running")
        c.stop_hard(cell)
        done = c.finish(cell)
        if done.about["state"] == "lost":
            break
    assert done.content["status"] == "error" and done.about["state"] == "lost"
    assert c.run("6*7").result == "42"


@pytest.mark.cellblock_only("ipykernel says nothing")
def test_c_code_that_can_not_stop_is_said(start):
    c = start().client
    for _ in range(5):
        cell = c.start(DEAF)
        c.says(cell, "running")
        interrupt(c)
        said = c.wait(
            "iopub", lambda m: m.parent_id == cell and (m.type == "error" or m.content.get("name") == "stderr")
        )
        if said.type == "stream":
            break
        c.finish(cell)
    assert "interrupt again" in said.content["text"]
    c.stop_hard(cell)
    assert c.finish(cell).content["status"] == "error"


@pytest.mark.cellblock_only
def test_the_hard_stop_can_come_by_itself(start):
    c = start(args=["--set", "timeout.interrupt=0.2"]).client
    for _ in range(5):
        cell = c.start(DEAF)
        c.says(cell, "running")
        interrupt(c)
        done = c.finish(cell)
        if done.about["state"] == "lost":
            break
    assert done.about["state"] == "lost"
    assert c.run("6*7").result == "42"


def test_a_handler_of_the_users(client):
    cell = client.start(
        "import signal, time\ngot = []\nold = signal.signal(signal.SIGINT, lambda *a: got.append(1))\n"
        "print('running', flush=True)\n"
        "t = time.monotonic()\nwhile not got and time.monotonic() - t < 60: time.sleep(0.05)\n"
        "signal.signal(signal.SIGINT, old)\ngot"
    )
    client.says(cell, "running")
    interrupt(client)
    assert client.finish(cell).result == "[1]"
    cell = client.start(CODES["sleep"])
    client.says(cell, "running")
    interrupt(client)
    assert client.finish(cell).content["ename"] == "KeyboardInterrupt"


@pytest.mark.cellblock_only("ipykernel loses the reply")
@pytest.mark.parametrize("times", range(5))
def test_a_storm(client, times):
    """Whatever is undelivered when the next comes: the cell ends, and the next one runs."""
    cell = client.start(CODES["loop"])
    client.says(cell, "running")
    ids = [client.send("interrupt_request", {}, channel="control") for _ in range(20)]
    for i in ids:
        client.reply(i, "control")
    assert client.finish(cell).content["status"] == "error"
    assert client.run("6*7").result == "42"


@pytest.mark.cellblock_only
def test_before_python_is_done_with_the_copy_that_is_made_before_a_cell(start):
    """The process between Python and its copy, which Python waits for, takes its time to end."""
    c = start(args=["--set", "transactions.mode=always"]).client
    c.run(BY_FORK + "import os, time\nme = os.getpid()")
    assert c.run("os.register_at_fork(after_in_parent=lambda: os.getpid() == me or time.sleep(0.3))").ok
    cell = c.start("time.sleep(600)")
    c.wait("iopub", lambda m: m.type == "execute_input" and m.parent_id == cell)
    interrupt(c)
    assert c.finish(cell).content["ename"] == "KeyboardInterrupt"


TASKS = {
    "task": "async def task(): work()\nt = asyncio.get_running_loop().create_task(task())",
    "callback": "_ = asyncio.get_running_loop().call_soon(work)",
}


@pytest.mark.cellblock_only("under ipykernel the next cell waits for ever")
@pytest.mark.parametrize("mode", ["auto", "always", "off"])
@pytest.mark.parametrize("what", TASKS)
def test_a_task_that_keeps_the_next_cell_waiting(start, what, mode):
    """It runs between cells: where a copy is to be made before the next, that waits, too."""
    c = start(args=["--set", f"transactions.mode={mode}"]).client
    work = "import asyncio, time\ndef work():\n    print('go', flush=True)\n    time.sleep(600)\n"
    c.says(c.start(work + TASKS[what]), "go")
    cell = c.start("time.sleep(600)")
    assert c.request("kernel_info_request", {}).content["status"] == "ok"  # so the cell has arrived
    interrupt(c)
    assert c.finish(cell).content["ename"] == "KeyboardInterrupt"
    assert c.run("6*7").result == "42"
    assert c.run("await asyncio.sleep(0, 1)").result == "1"


@pytest.mark.cellblock_only("under ipykernel the next cell waits for ever")
def test_such_a_task_cleans_up(start):
    """One interrupt is one KeyboardInterrupt, though it is repeated until the cell has it."""
    c = start(args=["--set", "transactions.mode=off"]).client
    work = (
        "import asyncio, time\nlines = []\ndef work():\n    try:\n        print('go', flush=True)\n"
        "        time.sleep(600)\n    finally:\n"
        "        for i in range(100): time.sleep(0.005)\n        lines.append('saved')\n"
    )
    c.says(c.start(work + TASKS["task"]), "go")
    cell = c.start("time.sleep(600)")
    assert c.request("kernel_info_request", {}).content["status"] == "ok"
    interrupt(c)
    assert c.finish(cell).content["ename"] == "KeyboardInterrupt"
    assert c.run("lines").result == "['saved']"


def interrupt_one(client, msg_id):
    reply = client.request("interrupt_request", {"msg_id": msg_id}, channel="control").content
    assert reply["status"] == "ok"
    return reply["found"]


@pytest.mark.cellblock_only("others interrupt what runs")
@pytest.mark.parametrize("where", ["main", "subshell", "branch"])
def test_one_request(start, where):
    """What is named is interrupted or taken back, and nothing else; what has ended, or has not come, is nowhere."""
    c = start(args=branches.ALWAYS).client
    line = {}
    if where == "subshell":
        line["subshell_id"] = c.request("create_subshell_request", channel="control").content["subshell_id"]
    elif where == "branch":
        line["subshell_id"] = branches.branch(c)

    def begin(code):
        return c.start(code, header=c.header("execute_request", **line))

    runs, gone, kept = begin(CODES["sleep"]), begin("print('gone ran')"), begin("print('kept ran')")
    c.says(runs, "running")
    assert interrupt_one(c, gone) == "waiting"
    assert c.finish(gone).content["status"] == "aborted"
    assert interrupt_one(c, gone) is None
    assert interrupt_one(c, runs) == "running"
    assert c.finish(runs).content["ename"] == "KeyboardInterrupt"
    assert c.finish(kept).content["status"] == "aborted", "as behind each cell that fails"
    coming = c.header("execute_request", **line)
    assert interrupt_one(c, coming["msg_id"]) is None
    assert c.finish(c.start("print('came')", header=coming)).content["status"] == "aborted"
    runs = begin(CODES["sleep"])
    c.says(runs, "running")
    other = c.start("1", header=c.header("execute_request", **line), stop_on_error=False)
    assert interrupt_one(c, coming["msg_id"]) is None, "and that is nobody's interrupt"
    assert interrupt_one(c, runs) == "running"
    assert c.finish(runs).content["ename"] == "KeyboardInterrupt"
    assert c.finish(other).content["status"] == "aborted"
    assert c.finish(begin("6*7")).result == "42"


@pytest.mark.cellblock_only("commands")
@pytest.mark.parametrize("channel", ["shell", "control"])
def test_one_command(client, channel):
    """The other one, and a cell, go on."""
    argv = ["sh", "-c", "touch $0; while [ -e $0 ]; do sleep 0.05; done"]

    def names_there():
        listed = client.request("cellblock_file_request", {"op": "list", "path": "."}, channel="control").content
        return [entry["name"] for entry in listed["entries"]]

    ids = {name: client.send("cellblock_run_request", {"argv": [*argv, name]}, channel="control") for name in "ab"}
    named = client.send("cellblock_run_request", {"argv": [*argv, "c"]}, channel=channel)
    while not {"a", "b", "c"} <= set(names_there()):
        pass
    assert interrupt_one(client, named) == "running"
    assert client.reply(named, channel).content["ename"] == "KeyboardInterrupt"
    assert interrupt_one(client, ids["a"]) == "running"
    assert client.reply(ids["a"], "control").content["ename"] == "KeyboardInterrupt"
    client.request("cellblock_file_request", {"op": "delete", "path": "b"}, channel="control")
    assert client.reply(ids["b"], "control").content["returncode"] == 0


@pytest.mark.cellblock_only("commands")
def test_a_command_that_waits(client):
    """Eight run at a time: the ninth has not begun."""
    argv = ["sh", "-c", "touch $0; while [ -e $0 ]; do sleep 0.05; done"]
    ids = [client.send("cellblock_run_request", {"argv": [*argv, f"ninth{i}"]}, channel="control") for i in range(9)]
    names = "sorted(n for n in os.listdir() if 'ninth' in n)"
    client.run(f"import os, time\nwhile len({names}) < 8: time.sleep(0.05)")
    assert client.run(f"'ninth8' in {names}").result == "False"
    assert interrupt_one(client, ids[8]) == "waiting"
    assert client.reply(ids[8], "control").content["ename"] == "KeyboardInterrupt"
    assert interrupt_one(client, ids[0]) == "running"
    assert client.reply(ids[0], "control").content["ename"] == "KeyboardInterrupt"
    client.run(f"for n in {names}: os.unlink(n)")
    assert all(client.reply(i, "control").content["returncode"] == 0 for i in ids[1:8])


@pytest.mark.cellblock_only("questions")
def test_one_that_runs_and_is_no_cell_goes_on(client, gate):
    """A question beside a cell: an interrupt of Python would be the cell's."""
    slow = "class Slow:\n def __dir__(self): open('gate').read(); return ['found']\nslow = Slow()"
    assert client.run(slow).ok
    cell = client.start(CODES["sleep"])
    client.says(cell, "running")
    for _ in range(5):  # a busy machine may take the ten seconds after which there is no answer
        asked = client.send("complete_request", {"code": "slow.", "cursor_pos": 5})
        client.wait("iopub", lambda m: m.parent_id == asked and m.content.get("execution_state") == "busy")
        found = interrupt_one(client, asked)
        gate()
        answer = client.reply(asked).content
        if answer.get("ename") != "KernelBusyError":
            break
    assert found == "running" and answer["matches"] == ["found"]
    assert interrupt_one(client, cell) == "running"
    assert client.finish(cell).content["ename"] == "KeyboardInterrupt"


def soak():
    path = Path(__file__).parents[1] / "soak" / "interrupts.py"
    spec = importlib.util.spec_from_file_location("interrupts", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.cellblock_only
@pytest.mark.parametrize("mode", ["main", "plain", "subshell", "branch", "limit", "bash"])
def test_at_random_moments(start, mode, tmp_path):
    """None hits another cell, and no interrupted cell is without its error (tests/soak/interrupts.py)."""
    interrupts = soak()
    copies = ["--set", "transactions.mode=auto"] if mode == "branch" else []
    c = start(args=[*copies, *interrupts.arguments(mode, tmp_path)]).client
    count = int(os.environ.get("CELLBLOCK_INTERRUPTS", "30"))
    tally = interrupts.rounds(c, count, random.Random(count), **interrupts.prepare(c, mode))
    assert not tally.faults
