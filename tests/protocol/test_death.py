"""A guest that dies of anything: error, reply, idle, restarting; and the next cell runs in a new one."""

import os
import signal
import time

import psutil
import pytest

import branches
import kernels
import rawclient

pytestmark = pytest.mark.cellblock_only("ipykernel dies as a whole")
TWINS = False

DEATHS = {
    "segfault": ("import ctypes; ctypes.string_at(0)", "signal 11 "),
    "exit 0": ("import os; os._exit(0)", "0"),
    "exit 7": ("import os; os._exit(7)", "7"),
    "SIGKILL": ("import os; os.kill(os.getpid(), 9)", "signal 9 "),
    "SIGTERM": ("import os, signal; signal.signal(15, signal.SIG_DFL); os.kill(os.getpid(), 15)", "signal 15 "),
    "abort": ("import os; os.abort()", "signal 6 "),
    "stack": ("import sys\nsys.setrecursionlimit(10**9)\nl = []\nfor i in range(10**6): l = [l]\nrepr(l)", ""),
    "child shell": ("!kill -9 $PPID", "signal 9 "),
    "thread": (
        "import threading, os, time\nthreading.Thread(target=os._exit, args=(9,)).start()\ntime.sleep(600)",
        "9",
    ),
    "closed fds": ("import os; os.closerange(0, 100)", ""),
    "daemon child holds all fds": ("import os\nif os.fork():\n    os._exit(5)\nimport time\ntime.sleep(600)", "5"),
}


@pytest.mark.parametrize("name", DEATHS)
def test_death(client, name):
    code, word = DEATHS[name]
    n = client.run("kept = 1").content["execution_count"]
    msg_id = client.start("print('last words', flush=True)\n" + code if not code.startswith("!") else code)
    cell = client.finish(msg_id)
    if name == "stack" and cell.content["ename"] == "RecursionError":
        pytest.skip("this Python survives endless recursion in C")
    assert cell.content["status"] == "error"
    assert cell.content["ename"] == cell.error["ename"]
    assert cell.content["ename"] in (("KernelDiedError", "WireError") if name == "closed fds" else ("KernelDiedError",))
    assert word in cell.content["evalue"] and cell.content["evalue"] == cell.error["evalue"]
    assert isinstance(cell.content["traceback"], list)
    assert cell.about["state"] == "lost" and "started" in cell.reply.metadata
    if not code.startswith("!"):
        assert cell.text().startswith("last words\n")
    client.wait("iopub", lambda m: m.type == "status" and m.content["execution_state"] == "restarting")
    after = client.run("'kept' in globals()")
    assert after.result == "False"
    assert (cell.content["execution_count"], after.content["execution_count"]) == (n + 1, n + 2)


# A thread that ends Python once the test opens the gate
LATER = "import threading, os\nthreading.Thread(target=lambda: (open('gate').read(), os._exit(4))).start()"


def test_while_idle(client, gate):
    """It dies between two cells: the next one runs, and is told that the state is lost."""
    client.run("kept = 1")
    assert client.run(LATER).ok
    gate()
    client.wait("iopub", lambda m: m.type == "status" and m.content["execution_state"] == "restarting")
    assert client.run("'kept' in globals()").result == "False"


def test_no_idle_is_nobodys(client, gate):
    """Open Interpreter takes the next idle for the end of its cell, and would be a cell behind from then on."""
    assert client.run(LATER).ok
    gate()
    client.wait("iopub", lambda m: m.type == "status" and m.content["execution_state"] == "restarting")
    again = client.wait("iopub", lambda m: m.type == "status")  # a listener's welcome may come late
    assert (again.content, again.parent_id) == ({"execution_state": "starting"}, None)
    cell, seen = client.start("6 * 7"), []
    while not seen or seen[-1].content.get("execution_state") != "idle":
        seen.append(client.next("iopub"))
    assert {m.parent_id for m in seen} == {cell} and "execute_result" in [m.type for m in seen]


def test_queued_cells_are_aborted_and_questions_answered(client, gate):
    first = client.start("print('running', flush=True)\nopen('gate').read()\nimport os; os._exit(1)")
    second = client.start("2")
    third = client.send("complete_request", {"code": "imp", "cursor_pos": 3})
    client.says(first, "running")
    assert client.request("comm_info_request").content["status"] == "ok"  # all of it has arrived
    gate()
    assert client.finish(first).content["ename"] == "KernelDiedError"
    assert client.finish(second).content["status"] in ("aborted", "error")
    assert client.reply(third, timeout=60).content["status"] in ("ok", "error")
    client.until_idle(third)
    assert client.run("3").result == "3"


def test_dies_while_asked_for_completion(client):
    client.run(
        "import os\nclass Deadly:\n    def __dir__(self): os._exit(6)\n"
        "    def __getattr__(self, n): os._exit(6)\nd = Deadly()"
    )
    msg_id = client.send("inspect_request", {"code": "d.x", "cursor_pos": 3, "detail_level": 0})
    reply = client.reply(msg_id)
    assert reply.content["status"] in ("ok", "error")
    client.until_idle(msg_id)
    msg_id = client.send("complete_request", {"code": "d.", "cursor_pos": 2})
    assert client.reply(msg_id).content["status"] in ("ok", "error")
    client.until_idle(msg_id)
    assert client.run("3").result == "3"


def test_dies_in_a_comm_handler(client):
    client.run(
        "def deadly(comm, msg):\n    import os; os._exit(8)\n"
        "get_ipython().kernel.comm_manager.register_target('deadly', deadly)"
    )
    client.until_idle(client.send("comm_open", {"comm_id": "d", "target_name": "deadly", "data": {}}))
    assert client.run("3").result == "3"


def test_dies_while_it_waits_for_input(client, gate):
    cell = client.start(LATER + "\ninput('?')", allow_stdin=True)
    asked = client.wait("stdin")
    gate()
    assert client.finish(cell).content["ename"] == "KernelDiedError"
    client.send("input_reply", {"value": "too late"}, channel="stdin", parent=asked.header)
    assert client.run("3").result == "3"


def test_thirty_in_a_row(start):
    k = start()
    c = k.client
    first = None
    for i in range(30):
        assert c.run("import os; os._exit(1)").content["ename"] == "KernelDiedError"
        if i == 4:
            assert c.run("1").ok
            first = k.memory(), k.open_files()
    assert c.run("6*7").result == "42"
    assert k.memory() - first[0] < 20 << 20 and k.open_files() <= first[1] + 2
    assert len(k.family()) <= 4, "broker, one pid 1, one guest"


def test_children_die_with_the_guest(client):
    """A daemon of a dead guest must not live on beside the new one."""
    client.run("import subprocess\np = subprocess.Popen(['sleep', '4242'], start_new_session=True)")
    end = rawclient.deadline_in(None)
    while not (daemons := client.kernel.running(lambda words: "4242" in words)):
        assert time.monotonic() < end
    client.run("import os; os._exit(1)")
    assert client.run("1").ok
    assert not kernels.wait_gone(daemons)
    assert not client.kernel.running(lambda words: "4242" in words)


def test_a_guest_that_stops_itself_has_ended(start):
    c = start().client
    cell = c.run("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)")
    assert cell.content["ename"] == "KernelDiedError" and "stopped by signal 19" in cell.content["evalue"]
    assert c.run("3").result == "3"


def test_a_memory_bomb_is_a_memory_error(start):
    c = start(args=["--set", "limits.memory=400M"]).client
    c.run("kept = 1")
    cell = c.run("a = bytearray(2 << 30)")
    assert cell.content["ename"] in ("MemoryError", "CellMemoryError")
    if cell.content["ename"] == "MemoryError":
        assert c.run("kept").result == "1"


def unanswered(client, sent):
    """Of msg_id -> channel (None: it has no reply) those without a reply or idle when the kernel has said all."""
    replies = {channel: [m.parent_id for m in client.inbox[channel]] for channel in ("shell", "control")}
    replies[None] = list(sent)
    idle = [m.parent_id for m in client.inbox["iopub"] if m.content.get("execution_state") == "idle"]
    return [i for i, channel in sent.items() if replies[channel].count(i) != 1 or idle.count(i) != 1]


def ask_of_each_kind(c, *argv):
    """As for unanswered(): what waits for its turn, is served beside cells, or at once. argv: of commands."""
    shell = {
        "complete_request": {"code": "im", "cursor_pos": 2},
        "inspect_request": {"code": "print", "cursor_pos": 3},
        "is_complete_request": {"code": "1"},
        "history_request": {"hist_access_type": "tail", "n": 3},
        "cellblock_run_request": {"argv": argv},
        "cellblock_usage_request": {},
        "cellblock_checkpoint_request": {"name": "a"},
        "cellblock_rollback_request": {},
        "cellblock_branch_request": {},
        "comm_info_request": {},
    }
    control = {
        "cellblock_file_request": {"op": "write", "path": "written"},
        "cellblock_run_request": {"argv": argv},
        "cellblock_checkpoint_request": {"name": "b"},
        "cellblock_list_branches_request": {},
        "debug_request": {"type": "request", "seq": 1, "command": "debugInfo"},
        "create_subshell_request": {},
        "kernel_info_request": {},
    }
    sent = {c.send("comm_open", {"comm_id": "c", "target_name": "t", "data": {}}): None}
    sent |= {c.send(kind, content, channel="control"): "control" for kind, content in control.items()}
    sent |= {c.send(kind, content): "shell" for kind, content in shell.items()}
    c.wait_in_place("shell", lambda m: m.type == "comm_info_reply")  # all of it has arrived
    c.wait_in_place("control", lambda m: m.type == "kernel_info_reply")
    return sent


FATAL = [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS]
QUEUE_MOVES = "while what waits begins"
BROKER_DIES = {  # what runs meanwhile; None = a copy is being made, which takes its time
    "while a cell runs": "print('running', flush=True)\nimport time; time.sleep(600)",
    QUEUE_MOVES: "print('running', flush=True)\nimport time; time.sleep(600)",
    "while a cell awaits": "print('running', flush=True)\nimport asyncio; await asyncio.sleep(600)",
    "between cells": None,
}
MOMENTS = dict(zip(FATAL, (0, 0.002, 0.006, 0.02)))  # s after the interrupt that makes the queue move


@pytest.mark.parametrize("number", FATAL)
@pytest.mark.parametrize("when", BROKER_DIES)
def test_everything_is_answered_when_the_broker_dies(start, when, number):
    """The kernel ends, for it can build no jail any more; what waits is answered before that."""
    k = start(args=["--set", "transactions.mode=always"])
    c, sent = k.client, {}
    sub = c.request("create_subshell_request", {}, channel="control").content["subshell_id"]
    assert c.run("import os, time\nme = os.getpid()").ok
    beside = branches.branch(c)
    if BROKER_DIES[when] is None:
        hook = "os.register_at_fork(before=lambda: os.getpid() != me or time.sleep(0.7))"
        assert c.run(kernels.BY_FORK + hook).ok
    else:
        running = c.start(BROKER_DIES[when], stop_on_error=False)
        c.says(running, "running")
        asks = c.request("create_subshell_request", {}, channel="control").content["subshell_id"]
        asks = branches.start_in(c, asks, "input('?')", allow_stdin=True)
        c.wait("stdin", lambda m: m.parent_id == asks)
        sent = {running: "shell", asks: "shell"}
    for _ in range(4):
        sent[c.start("1", stop_on_error=False)] = "shell"
        for where in (sub, beside):
            sent[branches.start_in(c, where, "import time; time.sleep(600)", stop_on_error=False)] = "shell"
    sent |= ask_of_each_kind(c, "sleep", "600")
    broker, = (p for p in psutil.Process(k.pid).children() if p.name() == "cellblock-jail")  # a wheel's cache writer
    if when == QUEUE_MOVES:
        sent[c.send("interrupt_request", {}, channel="control")] = "control"
        end = time.monotonic() + MOMENTS[number]
        while time.monotonic() < end:  # no event is awaited: what happens meanwhile is what is tried
            pass
    broker.send_signal(number)
    assert k.wait() == 1, "servers restart a kernel that ended so"
    c.poller.unregister(k.pidfd)  # what it has said may still be on its way to the client's own threads
    end = time.monotonic() + rawclient.DEADLINE
    while unanswered(c, sent):
        c.pump(end, f"answers to {unanswered(c, sent)}")


def first_named(k, name):
    """The process below the kernel's that has this name, as soon as there is one."""
    end = rawclient.deadline_in(None)
    while not (found := k.named(name)):
        assert time.monotonic() < end, f"no {name}"
    return psutil.Process(found[0])


def ask_all(c):
    """msg_id -> channel of what is asked for while no Python can answer."""
    sent = {c.start(code, stop_on_error=False): "shell" for code in ["6*7"] * 4}
    return sent | ask_of_each_kind(c, "true")


def dies_and_all_is_answered(k, victim, sent):
    """Without its broker the kernel ends; without its pid 1 there is another jail."""
    c, broker = k.client, victim.name() == "cellblock-jail"
    victim.kill()
    if broker:
        assert k.wait() == 1
        c.poller.unregister(k.pidfd)
    end = time.monotonic() + rawclient.DEADLINE
    while unanswered(c, sent):
        c.pump(end, f"answers to {unanswered(c, sent)}")
    assert broker or c.run("6*7").result == "42"


@pytest.mark.parametrize("name", ["cellblock-jail", "cellblock-init"])
def test_everything_is_answered_when_it_dies_while_the_first_python_starts(start, name):
    k = start(ready=False, args=["--set", "warm.mode=off"])
    victim = first_named(k, name)
    for p in (victim, *(victim.children() if name == "cellblock-init" else ())):
        p.send_signal(signal.SIGSTOP)  # Python starts no further
    k.client = c = start.client(k)
    c.ready()
    dies_and_all_is_answered(k, victim, ask_all(c))


@pytest.mark.parametrize("name", ["cellblock-jail", "cellblock-init"])
def test_everything_is_answered_when_it_dies_while_a_twin_wakes(start, name):
    k = start(args=["--set", "transactions.mode=always"], env={"CELLBLOCK_LOG": "info"})
    c = k.client
    assert c.run("kept = 1").ok
    dies = c.start("print('running', flush=True)\nwhile True: pass", stop_on_error=False)
    c.says(dies, "running")
    sent = {dies: "shell", **ask_all(c)}
    first_named(k, "cellblock-init").send_signal(signal.SIGSTOP)  # who wakes it
    end = rawclient.deadline_in(None)
    while " takes over" not in k.said():  # the kernel ends that Python
        c.request("interrupt_request", {}, channel="control")
        assert time.monotonic() < end
    dies_and_all_is_answered(k, first_named(k, name), sent)


@pytest.mark.parametrize("number", [*FATAL, signal.SIGSTOP])
def test_everything_is_answered_when_pid_1_dies(start, number):
    """Pid 1 takes no signal but the two that nobody can refuse. Where it is stopped no interrupt gets through."""
    k = start(args=["--set", "transactions.mode=always"])
    c, sent = k.client, {}
    sub = c.request("create_subshell_request", {}, channel="control").content["subshell_id"]
    beside = branches.branch(c)
    running = c.start("print('running', flush=True)\nimport time; time.sleep(600)", stop_on_error=False)
    c.says(running, "running")
    sent[running] = "shell"
    ends = number in (signal.SIGKILL, signal.SIGSTOP)  # the jail, and with it a branch that nobody interrupts
    sent[branches.start_in(c, beside, "import time; time.sleep(600)" if ends else "1")] = "shell"
    for _ in range(4):
        sent[c.start("6*7", stop_on_error=False)] = "shell"
        for where in (sub, beside):
            sent[branches.start_in(c, where, "1", stop_on_error=False)] = "shell"
    sent |= ask_of_each_kind(c, "true")
    psutil.Process(k.named("cellblock-init")[0]).send_signal(number)
    if number != signal.SIGKILL:
        c.request("interrupt_request", {}, channel="control")
    for i, channel in sent.items():
        if channel:
            c.wait_in_place(channel, lambda m, i=i: m.parent_id == i)
        c.wait_in_place("iopub", lambda m, i=i: m.parent_id == i and m.content.get("execution_state") == "idle")
    assert not unanswered(c, sent)
    assert c.run("6*7").result == "42"


def test_a_cell_ends_while_the_broker_is_stopped(start):
    """Pid 1 is told as well; the next jail comes when the broker goes on."""
    k = start()
    c, broker = k.client, psutil.Process(k.pid).children()[0]
    cell = c.start("print('running', flush=True)\nexec('sum(range(10**13))')")
    c.says(cell, "running")
    broker.send_signal(signal.SIGSTOP)
    c.stop_hard(cell)
    assert c.finish(cell).content["status"] == "error"
    broker.send_signal(signal.SIGCONT)
    assert c.run("6*7").result == "42"


def test_what_was_asked_while_the_kernel_is_stopped_is_answered(start):
    k = start()
    c = k.client
    k.signal(signal.SIGSTOP)
    cells = [c.start("6*7") for _ in range(3)]
    k.signal(signal.SIGCONT)
    assert [c.finish(cell).result for cell in cells] == ["42"] * 3


@pytest.mark.parametrize("number", FATAL)
def test_nothing_outlives_the_kernel(start, number):
    k = start()
    cell = k.client.start("print('running', flush=True)\nimport time; time.sleep(600)")
    k.client.says(cell, "running")
    family = k.family()
    k.signal(number)
    k.wait()
    assert len(family) >= 3 and not kernels.wait_gone(family)
