"""Branches: copies of the state that run beside the main line."""

import os
import textwrap
import time

import psutil
import pytest

import kernels
from branches import ALWAYS, ask, branch, delete, interrupt, listed, run_in, start_in, waiting

pytestmark = [pytest.mark.cellblock_only("no other kernel does this"), pytest.mark.once]
BLOCKED = (
    "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n"
    "print('on')\nsum(range(10**13))\n"
)
KILL_OTHERS = (
    "for pid in os.listdir('/proc'):\n    try:\n        if pid.isdigit() and int(pid) not in (1, os.getpid()):\n"
    "            os.kill(int(pid), 9)\n    except OSError: pass\n"
)


def sleeping(kernel, count):
    """So many processes that sleep; a child that was forked just now may still be Python."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found = kernel.running(lambda words: words == ["sleep", "4321"])
        if len(found) == count:
            return found
    raise AssertionError(f"{len(found)} of {count} sleep")


@pytest.fixture
def kernel(start):
    return start(args=ALWAYS)


@pytest.fixture
def c(kernel):
    return kernel.client


def test_a_state_and_a_count_of_its_own(transactional):
    c = transactional()
    assert c.run("import os, threading\nx = [1]; y = x; f = open('/etc/passwd'); at = f.read(10)").ok
    assert "cellblock_branch_request" in c.request("kernel_info_request").content["supported_features"]
    one, two = branch(c), branch(c)
    done = run_in(c, one, "y.append(2); print('said'); x, x is y")
    assert (done.result, done.text(), done.content["execution_count"]) == ("([1, 2], True)", "said\n", 2)
    assert c.run("x.append(3)").content["execution_count"] == 2
    assert c.run("x").result == "[1, 3]" and run_in(c, two, "x").result == "[1]"
    assert run_in(c, one, "len(f.read(5)), f.tell()").result == "(5, 15)"
    assert run_in(c, two, "f.tell()").result == "10" and c.run("f.tell()").result == "10"
    assert run_in(c, one, "x").content["execution_count"] == 4
    assert run_in(c, one, "x", store_history=False).content["execution_count"] == 4  # the last kept, as in ipykernel
    assert c.run("x", store_history=False).content["execution_count"] == c.run("x").content["execution_count"] - 1
    assert run_in(c, one, "async def a(): return 7\nawait a()").ok
    assert run_in(c, one, "%checkpoint a").content["status"] == "error"


def test_generators(c):
    """OpenSSL's, which seeds itself anew where the process has another number, differs; Python's goes on in each."""
    assert c.run("import random, ssl\nused = ssl.RAND_bytes(8); random.seed(7)").ok
    one, two = branch(c), branch(c)
    ask_both = "ssl.RAND_bytes(8).hex(), random.random()"
    said = [eval(cell.result) for cell in (c.run(ask_both), run_in(c, one, ask_both), run_in(c, two, ask_both))]
    assert len({key for key, _ in said}) == 3 and len({n for _, n in said}) == 1, said


def test_beside_each_other(c):
    assert c.run("import os\nfor name in 'ab': os.mkfifo('/tmp/' + name)").ok
    one, two = branch(c), branch(c)
    first = start_in(c, one, waiting("a") + "\nos.system('echo from one')\ndisplay('shown')\nget_ipython().nothing")
    second = start_in(c, two, waiting("b"))
    c.says(first, "on")
    c.says(second, "on")
    for name, text in ("b", "to two"), ("a", "to one"):
        assert c.run(f"with open('/tmp/{name}', 'w') as f: f.write({text!r})").ok
        assert not c.run("1/0").ok
    second, first = c.finish(second), c.finish(first)
    assert second.result == "'to two'"
    types = [t for t in first.types if t != "status"]  # it is busy again after each idle of others
    assert types == ["execute_input", "stream", "stream", "display_data", "error"]
    assert first.content["ename"] == "AttributeError" and first.text() == "on\nfrom one\n"
    assert run_in(c, one, "got").result == "'to one'"


def test_questions_and_input(c):
    assert c.run("inherited = 1").ok
    one, two = branch(c), branch(c)
    assert run_in(c, one, "only_here = 2").ok
    for where, names in (one, ["only_here"]), (two, []):
        header = c.header("complete_request", subshell_id=where)
        reply = c.request("complete_request", {"code": "only_he", "cursor_pos": 7}, header=header).content
        assert [m for m in reply["matches"] if "only_here" in m] == names
    cells = [start_in(c, where, "input('?')", allow_stdin=True) for where in (one, two)]
    asked = [c.wait("stdin", lambda m, of=of: m.parent_id == of) for of in cells]
    for where, text, of in (two, "second", asked[1]), (one, "first", asked[0]):
        header = c.header("input_reply", subshell_id=where)
        c.send("input_reply", {"value": text}, channel="stdin", parent=of.header, header=header)
    assert [c.finish(cell).result for cell in cells] == ["'first'", "'second'"]
    cell = start_in(c, one, "input('?')", allow_stdin=True)
    asked = c.wait("stdin")
    c.send("input_reply", {"value": "no name"}, channel="stdin", parent=asked.header)
    assert c.finish(cell).result == "'no name'"


def test_interrupts(c):
    one, two = branch(c), branch(c)
    sleeps = "import time\ntry:\n    print('on')\n    time.sleep(3600)\nfinally: print('off')"
    cells = [start_in(c, where, sleeps) for where in (one, two)] + [c.start(sleeps)]
    for cell in cells:
        c.says(cell, "on")
    after = start_in(c, one, "'not run'")
    interrupt(c, subshell_id=one)
    assert c.finish(cells[0]).content["ename"] == "KeyboardInterrupt"
    assert c.finish(after).content["status"] == "aborted"
    assert run_in(c, one, "'goes on'").result == "'goes on'"
    interrupt(c)
    assert c.finish(cells[2]).content["ename"] == "KeyboardInterrupt"
    interrupt(c, subshell_id=two)
    gone = c.finish(cells[1])
    assert gone.content["ename"] == "KeyboardInterrupt" and gone.text() == "on\noff\n"
    assert sorted(listed(c)) == sorted([one, two])


@pytest.mark.parametrize(
    "code, ename, how",
    [
        ("import os; os._exit(3)", "KernelDiedError", "status 3"),
        ("import os; os.kill(os.getpid(), 11)", "KernelDiedError", "signal 11"),
        ("import os; os.kill(os.getpid(), 19)", "KernelDiedError", "stopped by signal 19"),
        ("import os; os.write(3, b'x' * 64)", "WireError", "protocol"),
        (BLOCKED, "CellTimeoutError", "0.5 s"),
    ],
)
def test_a_failure_ends_one(c, code, ename, how):
    assert c.run("x = 1").ok
    one, two = branch(c), branch(c)
    assert run_in(c, one, "x = 2").ok and run_in(c, two, "x = 3").ok
    failed = start_in(c, one, code, metadata={"cellblock": {"cpu": 0.5}} if code == BLOCKED else None)
    header = c.header("inspect_request", subshell_id=one)
    behind = c.send("inspect_request", {"code": "x", "cursor_pos": 1}, header=header)
    failed = c.finish(failed)
    assert failed.content["ename"] == ename and how in failed.content["evalue"], failed.content
    assert failed.error["ename"] == ename and failed.about["state"] == "lost"
    assert "this branch is gone" in failed.content["evalue"]
    assert c.reply(behind).content["ename"] == "KernelDiedError"
    later = run_in(c, one, "x")
    assert later.content["ename"] == "KernelDiedError" and "this branch has ended" in later.content["evalue"]
    assert delete(c, one)["ename"] == "KernelDiedError" and listed(c) == [two]
    assert c.run("x").result == "1" and run_in(c, two, "x").result == "3"


def test_its_processes_end_with_it(kernel, c):
    code = (
        "import os, subprocess\nsubprocess.Popen(['sleep', '4321'])\n"
        "if os.fork() == 0:\n    if os.fork() == 0: os.execlp('sleep', 'sleep', '4321')\n    os._exit(0)\nos.wait()[1]"
    )
    daemon = "if os.fork() == 0:\n    os.setsid()\n    os.execlp('sleep', 'sleep', '4321')"
    one, two, three = branch(c), branch(c), branch(c)
    assert c.run("import subprocess; p = subprocess.Popen(['sleep', '1234'])").ok
    for where in one, two:
        assert run_in(c, where, code).result == "0"
    assert run_in(c, one, daemon).ok
    sleepers = sleeping(kernel, 5)
    running = start_in(c, one, "import time; print('on'); time.sleep(3600)")
    c.says(running, "on")
    waits = start_in(c, one, "1")
    assert delete(c, one) == {"status": "ok"}
    ended = c.finish(running)
    assert ended.content["ename"] == "KernelDiedError" and "delete_subshell_request" in ended.content["evalue"]
    assert c.finish(waits).content["status"] in ("aborted", "error")  # it may come after the end
    assert run_in(c, one, "1").content["ename"] == "UnknownSubshellError"
    assert not run_in(c, two, "import os; os._exit(0)").ok
    assert kernels.wait_gone(sleepers) == []
    assert c.run("p.poll()").result is None and run_in(c, three, "6*7").result == "42"
    assert listed(c) == [three]


def test_comms(c):
    opened = c.run("from comm import create_comm\nold = create_comm(target_name='old')\nold.comm_id")
    old = opened.result.strip("'")
    one = branch(c)
    done = run_in(c, one, "old.send({'a': 1}); old.send({'a': 2}); old.close()\nprint('end')")
    assert "comm_msg" not in done.types and "comm_close" not in done.types
    assert done.text("stderr").count("comm messages") == 1 and done.text() == "end\n"
    header = c.header("comm_msg", subshell_id=one)
    dropped = c.until_idle(c.send("comm_msg", {"comm_id": old, "data": {}}, header=header))
    assert "stream" in [m.type for m in dropped]
    assert [m.content["data"] for m in c.run("old.send({'a': 3})").of("comm_msg")] == [{"a": 3}]
    code = (
        "new = create_comm(target_name='new')\nnew.on_msg(lambda m: print('got', m['content']['data']['x']))\n"
        "new.send({'b': 1})\nnew.comm_id"
    )
    done = run_in(c, one, code)
    new = done.result.strip("'")
    assert [m.content["comm_id"] for m in done.of("comm_open", "comm_msg")] == [new, new]
    said = c.until_idle(c.send("comm_msg", {"comm_id": new, "data": {"x": 5}}))  # the frontend knows the comm alone
    assert [m.content["text"] for m in said if m.type == "stream"] == ["got 5\n"]
    assert list(c.request("comm_info_request").content["comms"]) == [old]
    info = c.request("comm_info_request", header=c.header("comm_info_request", subshell_id=one)).content
    assert list(info["comms"]) == [new]
    delete(c, one)
    closed = c.wait("iopub", lambda m: m.type == "comm_close")
    assert closed.content["comm_id"] == new


def test_a_comm_that_a_client_closes_is_open_until_the_branch_hears_of_it(c, gate):
    one = branch(c)
    new = run_in(c, one, "from comm import create_comm\nnew = create_comm(target_name='new')\nnew.comm_id").result
    code = "print('runs', flush=True); open('gate').read(); new.send({'last': 1}); print('end')"
    cell = start_in(c, one, code)
    c.says(cell, "runs")
    close = c.send("comm_close", {"comm_id": new.strip("'"), "data": {}})
    info = c.request("comm_info_request", header=c.header("comm_info_request", subshell_id=one)).content
    assert info["comms"] == {}, "as the client has closed it"
    gate()
    done = c.finish(cell)
    assert [m.content["data"] for m in done.of("comm_msg")] == [{"last": 1}]
    assert done.text("stderr") == "" and done.text() == "runs\nend\n"
    c.until_idle(close)
    info = c.request("comm_info_request", header=c.header("comm_info_request", subshell_id=one)).content
    assert info["comms"] == {}
    assert run_in(c, one, "new.send({'late': 1})").text("stderr").count("comm messages") == 1


@pytest.mark.parametrize("channel", ["control", "shell"])
def test_from_a_name(c, channel):
    assert c.run("x = 1").ok and ask(c, "checkpoint", name="a")["status"] == "ok"
    assert c.run("x = 2").ok
    made = ask(c, "branch", channel, **{"from": "a"})
    old, now = made["subshell_id"], branch(c, **{"from": None})
    assert (run_in(c, old, "x").result, run_in(c, now, "x").result) == ("1", "2")
    assert run_in(c, old, "In[-1]").content["execution_count"] == 3
    about = {each["subshell_id"]: each for each in ask(c, "list_branches", channel)["branches"]}
    assert (about[old]["from"], about[now]["from"]) == ("a", None)
    assert about[old]["execution_count"] == 3 and about[old]["memory_bytes"] > 0 and not about[old]["busy"]
    assert ask(c, "rollback", name="a")["status"] == "ok"
    assert c.run("x").result == "1" and run_in(c, now, "x").result == "2"
    assert c.request("list_subshell_request", {}, channel="control").content["subshell_id"] == []


def test_mistakes(start, c):
    assert "nowhere" in ask(c, "branch", **{"from": "nowhere"})["evalue"]
    assert ask(c, "branch", **{"from": 5})["ename"] == "MalformedRequestError"
    one = branch(c)
    for what in "checkpoint", "rollback", "branch":
        for channel in "shell", "control":
            header = c.header(f"cellblock_{what}_request", subshell_id=one)
            reply = c.request(f"cellblock_{what}_request", {"name": "a"}, channel=channel, header=header).content
            assert reply["ename"] == "CheckpointError", reply
    off = start(args=["--set", "transactions.mode=off"]).client
    assert 'transactions.mode is "off"' in ask(off, "branch")["evalue"]


def test_the_main_line_fails_beside_them(c):
    assert c.run("import os; x = 1; os.mkfifo('/tmp/a')").ok
    one = branch(c)
    cell = start_in(c, one, waiting("a"))
    c.says(cell, "on")
    for code in "os._exit(1)", "os.kill(os.getpid(), 9)":
        assert c.run(code).about["state"] == "restored"
    assert c.run("with open('/tmp/a', 'w') as f: f.write('still there')").ok
    assert c.finish(cell).result == "'still there'"
    assert c.run("x").result == "1"
    last = start_in(c, one, "print('on'); input()", allow_stdin=True)
    c.says(last, "on")
    behind = start_in(c, one, "1")
    lost = c.run(KILL_OTHERS + "os._exit(1)")
    assert lost.about["state"] == "lost"
    assert c.finish(last).content["ename"] == "KernelDiedError"
    assert c.finish(behind).content["status"] in ("aborted", "error")
    assert c.run("1").ok and listed(c) == []


def test_hostile_ones(start):
    c = start(args=[*ALWAYS, "--set", "limits.output=100000"]).client
    assert c.run("import os; x = 1").ok
    flood, killer = branch(c), branch(c)
    flooding = start_in(c, flood, "while True: print('x' * 1000)")
    c.says(flooding, "limits.output", "stderr")
    assert c.run("x").result == "1" and run_in(c, killer, "x").result == "1"
    interrupt(c, subshell_id=flood)
    assert c.finish(flooding).content["ename"] == "KeyboardInterrupt"
    # again and again, for a state that takes over may be copied meanwhile
    run_in(c, killer, "while True:\n" + textwrap.indent(KILL_OTHERS, "    "))
    again = c.run("1 + 1")  # in a new jail; the cell that comes too soon dies with the old one
    assert again.ok or again.about["state"] == "lost"
    assert c.run("1 + 1").result == "2" and listed(c) == []
    assert run_in(c, killer, "1").content["ename"] == "KernelDiedError"


HALF = """import os, struct
os.set_blocking(3, True)
os.write(3, struct.pack('<IIIIQII', 5, 60 << 20, 0, 0, 0, 0, 0))
for _ in range(59):
    left = memoryview(bytes(1 << 20))
    while left:
        left = left[os.write(3, left):]
open(f'half-{os.getpid()}', 'w').close()
while True:
    os.write(3, b' ')
    for _ in range(10000): pass
"""


def test_half_sent_frames_are_bounded_for_all_together(start):
    """Each at nearly the largest size, and going on byte by byte so that none is given up: some wait."""
    kernel = start(args=[*ALWAYS, "--set", "limits.memory=2G"])
    c = kernel.client
    assert c.run("x = 1").ok
    made = [branch(c) for _ in range(9)]
    before = kernel.memory()
    for where in made:
        start_in(c, where, HALF)
    halves = lambda: len(list(kernel.workspace.glob("half-*")))
    deadline = time.monotonic() + 60
    while halves() < 4 and time.monotonic() < deadline:
        assert c.run("x").result == "1"
    for _ in range(20):
        assert c.run("x").result == "1", "the main line's frames have room of their own"
    assert halves() == 4 and kernel.memory() - before < 300 << 20
    for where in made:
        assert delete(c, where) == {"status": "ok"}
    one = branch(c)
    assert run_in(c, one, "print('y' * (1 << 20)); x").result == "1"


@pytest.mark.parametrize("limit", [None, "64M"])
def test_memory(start, limit):
    """The jail's, and what a cell allows itself: with control groups shared memory counts as well."""
    c = start(args=[*ALWAYS, "--set", "limits.memory=256M"]).client
    assert c.run("x = 1").ok
    one = branch(c)
    metadata = {"cellblock": {"memory": limit}} if limit else None
    failed = run_in(c, one, "a = []\nwhile True: a.append(bytearray(1 << 20))", metadata=metadata)
    if failed.content["ename"] == "MemoryError":  # Python was told in time
        assert run_in(c, one, "del a; x").result == "1"
    else:
        assert (failed.content["ename"], failed.about["limit"]) == ("CellMemoryError", "memory"), failed.content
    assert c.run("x").result == "1"


def test_a_hundred_of_one_state(start):
    kernel = start(args=["--set", "transactions.mode=auto", "--set", "limits.pids=300"])
    c = kernel.client
    assert c.run("import os; data = list(range(100000)); os.mkfifo('/tmp/go')").ok
    made = [branch(c) for _ in range(100)]
    assert len(set(made)) == 100 and sorted(listed(c)) == sorted(made)
    cells = [start_in(c, where, f"n = {i}; print('on')\nwith open('/tmp/go') as f: f.read()\nn, len(data)")
             for i, where in enumerate(made)]
    for cell in cells:
        c.says(cell, "on")
    assert c.run("with open('/tmp/go', 'w') as f: pass").ok
    assert [c.finish(cell).result for cell in cells] == [f"({i}, 100000)" for i in range(100)]
    before = kernel.family()
    for where in made[::2]:
        assert delete(c, where) == {"status": "ok"}
    assert run_in(c, made[1], "n").result == "1" and len(listed(c)) == 50
    assert c.run("os._exit(1)").about["state"] == "restored"
    assert run_in(c, made[99], "n").result == "99"
    kernel.stop()
    assert not [p for p in before if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def test_no_room(start):
    c = start(args=[*ALWAYS, "--set", "limits.pids=12"]).client
    assert c.run("x = 1").ok
    made, refused = [], 0
    while refused < 3 and len(made) < 12:  # a thread of a branch may end after it was made, and leave room
        reply = ask(c, "branch")
        refused = 0 if reply["status"] == "ok" else refused + 1
        if reply["status"] == "ok":
            made.append(reply["subshell_id"])
    assert refused == 3 and reply["ename"] == "CheckpointError" and len(made) >= 1, reply
    assert c.run("x").result == "1" and run_in(c, made[0], "x").result == "1"
    for where in made:
        delete(c, where)
    deadline = time.monotonic() + 20
    while reply["status"] != "ok":  # until the dead are gone
        reply = ask(c, "branch")
        assert reply["status"] == "ok" or time.monotonic() < deadline, reply
    assert run_in(c, reply["subshell_id"], "x").result == "1"


def test_audit(start, tmp_path):
    log = tmp_path / "audit.jsonl"
    os.chmod(tmp_path, 0o777)
    kernel = start(args=[*ALWAYS, "--set", f"audit.file={log}"])
    c = kernel.client
    assert c.run("1").ok
    one = branch(c)
    assert run_in(c, one, "2").ok
    delete(c, one)
    kernel.stop()
    lines = [line for line in log.read_text().splitlines() if one in line]
    assert [next(w for w in ("branch_end", "cell_end", "branch", "cell") if f'"{w}"' in line) for line in lines] == [
        "branch", "cell", "cell_end", "branch_end",
    ]
