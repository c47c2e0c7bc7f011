"""A cell that kills its Python costs nothing: the next one sees the state from before it."""

import os
from pathlib import Path

import kernels
import pytest

pytestmark = pytest.mark.cellblock_only("no other kernel does this")

# Identity and content of what is hard to copy.
SETUP = """
import io, os, random, re, signal, sqlite3, threading, time
a = [1, 2, 3]; b = a
def counter():
    n = 0
    def count():
        nonlocal n; n += 1; return n
    return count
count = counter(); count()
half = (i * i for i in range(10)); next(half); next(half)
lock = threading.Lock(); lock.acquire()
with open('lines.txt', 'w') as f: f.write('one\\ntwo\\nthree\\n')
mid = open('lines.txt'); mid.readline()
db = sqlite3.connect(':memory:'); db.execute('create table t (x)'); db.execute('insert into t values (7)')
match = re.match('(x)y', 'xy')
os.makedirs('sub', exist_ok=True); os.chdir('sub')
random.seed(5); drawn = random.random(); ident = id(a)
"""
CHECK = """
assert a is b and a == [1, 2, 3] and id(a) == ident, a
assert count() == 2 and next(half) == 4 and lock.locked()
assert mid.readline() == 'two\\n', 'offset'
assert db.execute('select x from t').fetchall() == [(7,)]
assert match.group(1) == 'x' and os.path.basename(os.getcwd()) == 'sub'
again = random.random(); random.seed(5); assert random.random() == drawn and random.random() == again
assert 'late' not in globals()
"whole"
"""
SPOIL = (
    "late = 1; a.append(4); count(); next(half); mid.read(); db.execute('delete from t')\n"
    "os.chdir('/'); lock.release()\n"
)

DEATHS = {
    "segfault": ("import ctypes; ctypes.string_at(0)", "KernelDiedError", "signal 11"),
    "abort": ("os.abort()", "KernelDiedError", "signal 6"),
    "exit": ("os._exit(3)", "KernelDiedError", "status 3"),
    "SIGKILL": ("os.kill(os.getpid(), 9)", "KernelDiedError", "signal 9"),
    "stops itself": ("os.kill(os.getpid(), signal.SIGSTOP)", "KernelDiedError", "stopped by signal 19"),
    "thread": ("threading.Thread(target=os._exit, args=(4,)).start(); time.sleep(600)", "KernelDiedError", "status 4"),
    "ignores the soft stop": (
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
        "CellTimeoutError",
        "timeout.cpu",
    ),
    "is deaf and asleep": (
        "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); time.sleep(3600)",
        "CellTimeoutError",
        "timeout.cell",
    ),
    "holds the GIL": ("sum(range(10**13))", "CellTimeoutError", "timeout.cpu"),
    "writes to the wire": ("os.write(3, bytes(64)); time.sleep(600)", "WireError", "broke the protocol"),
    "closes its descriptors": ("os.closerange(0, 100); os._exit(0)", None, ""),
    "forks for ever": (
        "while True:\n  try: os.fork()\n  except OSError: pass",
        "CellTimeoutError",
        "timeout.cpu",
    ),
    "children in sessions of their own": (
        "import subprocess\n"
        "for _ in range(5): subprocess.Popen(['sleep', '4242'], start_new_session=True)\n"
        "os._exit(5)",
        "KernelDiedError",
        "status 5",
    ),
}
LIMITS = ["--set", "timeout.grace=0.5", "--set", "limits.pids=60"]
# For cells that end by it alone; SPOIL is done by then on a busy machine, too.
SOON, LATER = {"cellblock": {"cpu": 1}}, {"cellblock": {"timeout": 10}}


def running(kernel, word):
    """The processes below the kernel's whose command line has the word."""
    return kernel.running(lambda words: word in " ".join(words))


def sleepers(kernel):
    """Children of cells that do not end: they were told to before the answer came, and need not be gone by then."""
    return kernels.wait_gone(running(kernel, "4242"))


@pytest.mark.parametrize("name", DEATHS)
def test_the_state_is_that_of_before(start, name):
    c = start(args=[*LIMITS, "--set", "transactions.mode=always"]).client
    code, ename, words = DEATHS[name]
    assert c.run(SETUP).ok
    metadata = {"timeout.cpu": SOON, "timeout.cell": LATER}.get(words)
    failed = c.run(SPOIL + "print('last words', flush=True)\n" + code, metadata=metadata)
    content = failed.content
    assert content["status"] == "error" and content["ename"] == (ename or content["ename"]), content
    assert words in content["evalue"] and "all variables are as they were before cell [2]" in content["evalue"]
    about = failed.about
    assert (about["state"], about["restored_to"], about["undone"]) == ("restored", 1, [2])
    assert failed.text() == "last words\n" or name == "closes its descriptors"
    again = c.run(CHECK)
    assert again.result == "'whole'", again.content
    assert again.content["execution_count"] == 3
    assert c.run("In[2]").result == repr(SPOIL + "print('last words', flush=True)\n" + code)
    assert not sleepers(c.kernel)


def test_ten_in_a_row_and_one_in_the_first_cell(start):
    c = start().client
    for i in range(10):
        failed = c.run("import os; os._exit(1)")
        assert (failed.about["state"], failed.about["undone"]) == ("restored", [i + 1]), failed.content
    assert c.run("x = 5").ok and c.run("x").result == "5"


def test_nothing_of_the_dead_is_left(start):
    """No process, and no comm that the failed cell opened; those from before are as they were."""
    c = start(args=["--set", "transactions.mode=always"]).client
    assert c.run("from ipykernel.comm import Comm; old = Comm(target_name='old')").ok
    msg_id = c.start(
        "new = Comm(target_name='new')\nimport os, subprocess\nsubprocess.Popen(['sleep', '4242'])\nos._exit(1)"
    )
    failed = c.finish(msg_id)
    opened = failed.of("comm_open")[0].content["comm_id"]
    closed = c.wait("iopub", lambda m: m.type == "comm_close")
    assert closed.content["comm_id"] == opened
    comms = c.request("comm_info_request").content["comms"]
    assert [each["target_name"] for each in comms.values()] == ["old"]
    assert c.run("old.comm_id").result == repr(next(iter(comms)))
    assert not sleepers(c.kernel)


def test_queued_cells_and_dead_between_cells(start):
    c = start(args=["--set", "transactions.mode=always"]).client
    assert c.run("import os, threading; x = 1").ok
    first = c.start("os._exit(1)", stop_on_error=False)
    second = c.start("x + 1")
    assert c.finish(first).about["state"] == "restored" and c.finish(second).result == "2"
    assert c.run("threading.Timer(0.2, os._exit, (4,)).start()").ok
    seen = c.run("import time; time.sleep(3)")
    assert seen.about["state"] == "restored", seen.content
    assert c.run("x").result == "1"


def number_inside(process):
    """None for one that has ended meanwhile, as the twin before the last one does."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return next(line.split()[-1] for line in status if line.startswith("NSpid:"))


@pytest.mark.parametrize("mode", ["auto", "always"])
def test_killed_between_cells(start, mode):
    """When the twin from after the last cell is there nothing that was answered is undone."""
    c = start(args=["--set", "transactions.mode=" + mode]).client
    assert c.run("import os; x = [1]").ok
    inside, jail = eval(c.run("str(os.getpid()), os.readlink('/proc/self/ns/pid')").result)
    last = c.run("x.append(2)")
    if mode == "auto":  # where copies are dear there is one when nobody has asked for anything for a while
        assert c.request("cellblock_checkpoint_request", {"name": "here"}).content["status"] == "ok"
    c.request("cellblock_list_checkpoints_request", {})  # answered when the twin is there
    family = [p for p in c.kernel.family() if number_inside(p) == inside]
    # a wheel's cache may be written in another jail just now
    (python,) = [p for p in family if os.readlink(f"/proc/{p.pid}/ns/pid") == jail]
    python.kill()
    assert not kernels.wait_gone([python], 20)
    seen = c.run("x")
    undone = [] if seen.ok else [seen.content["execution_count"]]  # it may have been sent to the dead one
    assert seen.about["state"] == "restored" and seen.about["undone"] == undone, seen
    assert seen.about["restored_to"] == last.content["execution_count"], seen
    assert c.run("x").result == "[1, 2]"


def test_off(start):
    c = start(args=["--set", "transactions.mode=off"]).client
    assert c.run("import os; x = 1").ok
    assert len(running(c.kernel, "boot.py")) == 1
    assert c.run("os._exit(1)").about["state"] == "lost"


@pytest.mark.parametrize("hook", ["before", "after_in_parent", "after_in_child"])
def test_hooks_may_print(start, hook):
    c = start(args=["--set", "transactions.mode=always"]).client
    assert c.run(kernels.BY_FORK + "import os; os.register_at_fork(%s=lambda: print('a fork'))" % hook).ok
    assert c.run("x = 1").ok
    for _ in range(2):  # the second one from a twin that was made with the hook
        assert c.run("os._exit(1)").about["state"] == "restored"
        assert c.run("x").result == "1"
    assert c.request("cellblock_checkpoint_request", {"name": "a"}).content["status"] == "ok"
    for _ in range(2):
        assert c.request("cellblock_rollback_request", {"name": "a"}).content["status"] == "ok"
        assert c.run("x").result == "1"


def test_a_debuggers_request_leaves_no_cell_without_a_net(start):
    """JupyterLab asks for the debugger's state when it likes: a copy is not made meanwhile, and a cell waits for it."""
    c = start(args=["--set", "transactions.mode=always"]).client
    assert c.run("x = 0").ok
    for i in range(1, 16):
        asked = [
            c.send("debug_request", {"type": "request", "seq": n, "command": "debugInfo"}, channel="control")
            for n in range(1, 4)
        ]
        good = c.start(f"x = {i}")
        asked.append(c.send("debug_request", {"type": "request", "seq": 4, "command": "debugInfo"}, channel="control"))
        bad = c.start("import os; os._exit(1)")
        assert c.finish(good).ok
        failed = c.finish(bad)
        assert failed.about["state"] == "restored" and len(failed.about["undone"]) == 1, failed.about
        for each in asked:
            c.reply(each, "control")
        assert c.run("x").result == str(i)


THREAD = "import os, threading\nt = threading.Thread(target=threading.Event().wait, daemon=True); t.start()"


@pytest.mark.parametrize("how", ["asked", "disconnected"])
def test_a_debugger_without_a_session_keeps_no_thread_from_coming_back(start, how):
    """JupyterLab asks for the debugger's state whenever a notebook is opened."""
    c = start(args=["--set", "transactions.mode=always"]).client

    def debug(command, **arguments):
        content = {"type": "request", "seq": 1, "command": command, "arguments": arguments}
        reply = c.request("debug_request", content, channel="control").content
        assert reply["success"], reply
        return reply.get("body")

    if how == "disconnected":
        debug("initialize", clientID="t", linesStartAt1=True, columnsStartAt1=True, pathFormat="path")
        debug("attach")
        assert debug("debugInfo")["isStarted"]
        debug("disconnect", restart=False, terminateDebuggee=True)
        assert c.run("after = 1").ok
    assert not debug("debugInfo")["isStarted"]
    assert c.run(THREAD).ok
    assert c.run("%%bash\necho 1").text() == "1\n"
    for _ in range(2):
        dead = c.run("os._exit(1)")
        assert dead.about["state"] == "restored" and "did not come back" not in dead.content["evalue"]
        assert c.run("t.is_alive()").result == "True"
        assert c.run("%%bash\necho 2").text() == "2\n"
        assert not debug("debugInfo")["isStarted"]


def test_scripts_run_where_their_thread_did_not_come_back(start):
    c = start(args=["--set", "transactions.mode=always"]).client
    assert c.run(kernels.BY_FORK + "import os").ok
    assert c.run("%%bash\necho 1").text() == "1\n"
    for _ in range(2):
        assert c.run("os._exit(1)").about["state"] == "restored"
        assert c.run("%%bash\necho 2").text() == "2\n"
