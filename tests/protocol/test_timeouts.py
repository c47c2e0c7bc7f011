"""timeout.cell and timeout.cpu: first soft, then hard; a request may lower them and never raise them."""

import os

import kernels
import pytest
import rawclient
import zmtp

pytestmark = pytest.mark.cellblock_only
TWINS = False

LOOP = "print('running', flush=True)\nwhile True: pass"
SWALLOW = (
    "import time\nwhile True:\n    try:\n        while True: time.sleep(600)\n"
    "    except BaseException: print('swallowed', flush=True)"
)


def within(seconds):
    """A limit for one cell: those that must succeed have none, however slow the machine is."""
    return {"cellblock": {"timeout": seconds}}


def sets(*pairs):
    return [word for pair in pairs for word in ("--set", pair)]


@pytest.mark.parametrize(
    "code",
    [LOOP, "import time; time.sleep(600)", "import asyncio; await asyncio.sleep(600)", "!sleep 600"],
    ids=["loop", "sleep", "await", "shell"],
)
def test_soft(start, code):
    c = start(args=sets("timeout.grace=60")).client
    c.run("kept = 1")
    cell = c.run(code, metadata=within(1))
    assert cell.content["ename"] == "CellTimeoutError" == cell.error["ename"]
    assert "1" in cell.content["evalue"] and "timeout.cell" in cell.content["evalue"]
    assert cell.about["limit"] == "time" and cell.about["state"] == "kept"
    assert c.run("kept").result == "1"


@pytest.mark.parametrize("code", [SWALLOW, "sum(range(10**13))"], ids=["swallow", "c code"])
def test_hard(start, code):
    c = start(args=sets("timeout.grace=0.5")).client
    for _ in range(5):  # the soft stop may come before the code that does not obey it
        n = c.run("kept = 1").content["execution_count"]
        cell = c.run(code, metadata=within(0.5))
        if cell.about["state"] == "lost":
            break
    assert cell.content["ename"] == "CellTimeoutError" == cell.error["ename"]
    assert cell.about["limit"] == "time" and cell.about["state"] == "lost"
    assert cell.content["execution_count"] == n + 1
    after = c.run("'kept' in globals()")
    assert after.result == "False" and after.content["execution_count"] == n + 2


def test_a_request_lowers_it(client):
    client.run("import time")
    cell = client.run("time.sleep(600)", metadata=within(0.5))
    assert cell.content["ename"] == "CellTimeoutError" and cell.about["limit"] == "time"
    assert client.run("time.sleep(0.7); 1").result == "1", "the next cell has its own limit"


@pytest.mark.parametrize("wish", [600, 0, 1e300])
def test_a_request_never_raises_it(start, wish):
    c = start(args=sets("timeout.cell=0.5")).client
    cell = c.run("import time; time.sleep(600)", metadata=within(wish))
    assert cell.content["ename"] in ("CellTimeoutError", "MalformedRequestError"), (
        "0 means no limit, and is no lower one"
    )


def test_waiting_for_input_does_not_count(start):
    c, d = start().client, start().client
    for limit in (1, 10, 30):  # on a busy machine what is no wait may take as long as the limit
        cell = c.start("x = input()\nx", allow_stdin=True, metadata=within(limit))
        # Another cell's time-out on a second kernel is the clock: it is longer than this one's.
        assert d.run("import time; time.sleep(600)", metadata=within(limit + 1)).content["ename"] == "CellTimeoutError"
        if c.inbox["stdin"] or c.sockets["stdin"].poll(0):
            c.send("input_reply", {"value": "late"}, channel="stdin", parent=c.next("stdin").header)
        done = c.finish(cell)
        if done.ok:
            break
    assert done.result == "'late'"


def test_no_limit_is_the_default(client):
    assert client.run("import time; time.sleep(1.2); 1").result == "1"


def test_queued_cells_are_aborted(start):
    c = start(args=sets("timeout.grace=0.5")).client
    first, second = c.start(SWALLOW, metadata=within(0.5)), c.start("2")
    assert c.finish(first).content["ename"] == "CellTimeoutError"
    assert c.finish(second).content["status"] in ("aborted", "error")
    assert c.run("3").result == "3"


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import subprocess; subprocess.run('while :; do :; done', shell=True)",
        "import multiprocessing as mp\nwith mp.get_context('fork').Pool(2) as p: p.map(sum, [range(10**13)] * 2)",
    ],
    ids=["python", "child", "pool"],
)
def test_cpu_soft(start, code):
    c = start(args=sets("timeout.cpu=0.5", "timeout.grace=60")).client
    c.run("kept = 1")
    cell = c.run(code)
    assert cell.content["ename"] == "CellTimeoutError" == cell.error["ename"]
    assert "the cell exceeded its limit of 0.5 s of CPU time (timeout.cpu)" in cell.content["evalue"]
    assert cell.about["limit"] == "cpu" and cell.about["state"] == "kept"
    assert c.run("kept").result == "1"


def test_cpu_hard(start):
    c = start(args=sets("timeout.cpu=0.3", "timeout.grace=0.3")).client
    cell = c.run("sum(range(10**13))")
    assert cell.content["ename"] == "CellTimeoutError" and "was killed" in cell.content["evalue"]
    assert cell.about["limit"] == "cpu" and cell.about["state"] == "lost"
    assert c.run("1").result == "1"


def test_each_cell_has_its_own_cpu_time(start):
    """Sleeping costs none, and what cells before have used does not count."""
    c = start(args=sets("timeout.cpu=1")).client
    spin = "import time\nend = time.process_time() + 0.6\nwhile time.process_time() < end: pass"
    for _ in range(3):
        assert c.run(spin).ok
    assert c.run("time.sleep(1.5)").ok


def test_what_a_kept_state_copies_is_no_cells_time(start):
    """Its twin copies large memory that a cell has written to while the next one runs."""
    c = start(args=sets("transactions.mode=always", "limits.memory=4G")).client
    code = "import mmap, time\nm = mmap.mmap(-1, 700 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
    code += "def write():\n    for at in range(0, len(m), 4096): m[at] = 1"
    assert c.run(code).ok and c.run("write()").ok and c.run("write()").ok
    cell = c.run("time.sleep(2)", metadata={"cellblock": {"cpu": 0.2}})
    assert cell.ok, cell.error
    assert c.run("while True: pass", metadata={"cellblock": {"cpu": 0.2}}).about["limit"] == "cpu"


def test_work_during_a_wait_for_input_counts(start):
    c = start().client
    spin = "import threading\nworking = True\ndef spin():\n    while working: pass"
    spin += "\nthreading.Thread(target=spin).start()"
    spin += "\ntry: input()\nfinally: working = False"
    for limit in (2, 10, 30):  # a busy machine may need it all before input() is reached
        done = c.run(spin, allow_stdin=True, metadata=within(limit))
        if c.inbox["stdin"]:
            break
    assert c.inbox["stdin"]
    assert done.content["ename"] == "CellTimeoutError" and done.about["limit"] == "time"


def test_idle(start):
    k = start(args=sets("timeout.idle=1"))
    c = k.client
    c.run("kept = 1")
    guests = [p for p in k.family() if p.name().startswith("python")]
    c.close()  # the last subscriber
    assert guests and not kernels.wait_gone(guests)
    again = k.client = rawclient.Client(k)
    try:
        again.ready()
        cell = again.run("'kept' in globals()")
        assert cell.result == "False" and cell.about["state"] == "lost"
        assert "timeout.idle" in cell.text("stderr") and cell.content["execution_count"] == 2
        assert "timeout.idle" not in again.run("1").text("stderr")
    finally:
        again.close()


def test_a_subscriber_keeps_the_jail(start):
    """A second kernel's time-out is the clock: it is longer than the first one's timeout.idle."""
    c = start(args=sets("timeout.idle=0.5")).client
    c.run("kept = 1")
    d = start(args=sets("timeout.cell=1.5")).client
    assert d.run("import time; time.sleep(600)").content["ename"] == "CellTimeoutError"
    assert c.run("kept").result == "1"


def test_a_subscriber_can_not_be_signed_off_by_others(start):
    c = start(args=sets("timeout.idle=0.5")).client
    c.run("kept = 1")
    with zmtp.connect(c.connection, "iopub", kind=b"SUB") as stranger:
        for topic in (b"\0", b"\0", b"\1told"):
            stranger.sendall(zmtp.part(topic, more=False))
        assert stranger.recv(100), "no welcome, which says that all before it was read"
    d = start(args=sets("timeout.cell=1.5")).client
    assert d.run("import time; time.sleep(600)").content["ename"] == "CellTimeoutError"
    assert c.run("kept").result == "1"


def test_a_request_lowers_memory_for_itself(start):
    c = start(args=sets("limits.memory=2G")).client
    c.run("kept = 1")
    big = "x = bytearray(1 << 29); len(x)"
    lowered = {"cellblock": {"memory": "256M"}}
    cell = c.run(big, metadata=lowered)
    assert cell.content["ename"] == "MemoryError" and cell.about["state"] == "kept"
    assert "metadata.cellblock.memory" in "".join(cell.error["traceback"]) + cell.text("stderr")
    assert c.run("kept").result == "1"
    assert c.run(big).result == str(1 << 29), "the next cell has its own limit"
    assert c.run("del x").ok  # in a cell of its own: what is there when a cell begins counts for it
    assert c.run("bytearray(1 << 26) and 1", metadata=lowered).result == "1"


@pytest.mark.parametrize("where", ["python", "child"])
def test_code_that_lifts_its_memory_limit_is_watched(start, where):
    c = start(args=sets("limits.memory=2G")).client
    code = (
        "import resource as r, time\nr.setrlimit(r.RLIMIT_DATA, [r.getrlimit(r.RLIMIT_DATA)[1]] * 2)\n"
        "x = bytearray(1 << 29)\ntime.sleep(600)"
    )
    if where == "child":
        code = "import os\nif os.fork() == 0:\n    " + code.replace("\n", "\n    ") + "\nos.wait()"
    cell = c.run(code, metadata={"cellblock": {"memory": "256M"}})
    assert cell.content["ename"] == "CellMemoryError" and "256.0 MiB" in cell.content["evalue"]
    assert cell.about["limit"] == "memory" and cell.about["state"] == "lost"
    assert c.run("1").result == "1"


@pytest.mark.parametrize("over", [{"timeout": 2}, {"cpu": 1}], ids=["time", "cpu"])
def test_a_lifted_memory_limit_is_watched_within_the_grace(start, over):
    c = start(args=sets("limits.memory=2G", "timeout.grace=60")).client
    code = (
        "import resource as r, time\ndef busy():\n    while True: pass\ntry: busy()\nexcept KeyboardInterrupt: pass\n"
        "r.setrlimit(r.RLIMIT_DATA, [r.getrlimit(r.RLIMIT_DATA)[1]] * 2)\nx = bytearray(1 << 29)\ntime.sleep(600)"
    )
    cell = c.run(code, metadata={"cellblock": {"memory": "256M", **over}})
    assert cell.content["ename"] == "CellMemoryError" and "256.0 MiB" in cell.content["evalue"], cell.content
    assert cell.about["limit"] == "memory" and cell.about["state"] == "lost"


def test_a_request_lowers_cpu_for_itself(client):
    cell = client.run("while True: pass", metadata={"cellblock": {"cpu": 0.3}})
    assert cell.content["ename"] == "CellTimeoutError" and cell.about["limit"] == "cpu"


WRONG = [{"memory": w} for w in (5.5, "a lot", "1M", -1, None)] + [{"cpu": "1"}, {"cpu": 0}, {"timeout": -1}, 7]


@pytest.mark.parametrize("wish", WRONG)
def test_wrong_wishes_get_an_error_reply(client, wish):
    cell = client.reply(client.start("1", metadata={"cellblock": wish}))
    assert cell.content["status"] == "error" and "cellblock" in cell.content["evalue"]


def test_unknown_wishes_are_ignored(client):
    assert client.run("1", metadata={"cellblock": {"speed": "fast", "memory": "1024T"}}).result == "1"


def test_children_that_nobody_waits_for_count(start):
    """Where SIGCHLD is ignored the time of a child that ended is in no file; a control group counts it all the same."""
    client = start(args=["--set", "timeout.cpu=3"]).client
    cell = client.run(
        "import os, signal, time\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "end = time.monotonic() + 240\n"
        "while time.monotonic() < end:\n"
        "    if os.fork() == 0:\n"
        "        until = time.process_time() + 0.02\n"
        "        while time.process_time() < until: pass\n"
        "        os._exit(0)\n"
        "    try: os.wait()\n"
        "    except ChildProcessError: pass",
        timeout=270,
    )
    assert cell.about["limit"] == "cpu", cell


@pytest.mark.skipif(os.geteuid() == 0 and not os.environ.get("CELLBLOCK_BUILD"), reason="CELLBLOCK_BUILD is not set")
def test_what_is_done_outside_for_a_cell_counts(start):
    """A folder is looked through by the notifier when it is renamed, which costs the cell itself next to nothing."""
    argv = kernels.on_host("no-cgroup", kernels.spec_argv()[0]) if os.geteuid() == 0 else None
    c = start(argv=argv, args=sets("timeout.cpu=2", "limits.inodes=100000")).client
    assert c.run("import os, time\nos.mkdir('a')").ok
    for first in range(0, 3000, 500):  # making them takes time, too
        assert c.run(f"for i in range({first}, {first + 500}): open(f'a/{{i}}', 'w').close()", timeout=120).ok
    cell = c.run(
        "def spent(): return sum(os.times()[:4])\nbegin = spent()\n"
        "while spent() - begin < 0.4: os.rename('a', 'b'), os.rename('b', 'a')",
        timeout=300,
    )
    assert cell.about.get("limit") == "cpu", (cell.content, c.run("spent() - begin").result)
