"""A cell that fails for good costs nothing: every way to fail, in IPython and in plain mode, with and without control
groups.

The state before it comes back whole (lib/session_state.py), the numbering goes on, and the next cell answers.
"""

import pytest
from session_state import ARRAYS, CHECK, CHECK_ARRAYS, FAILURES, KILL, PROGRAM, RUIN, RUIN_ARRAYS

pytestmark = pytest.mark.cellblock_only("transactions")


def check_failure(c, code, ename, metadata=None):
    """Runs a cell that must fail so, and that is undone."""
    cell = c.run(code, metadata=metadata)
    number = cell.content["execution_count"]
    assert cell.content["ename"] == ename == cell.error["ename"], cell.error
    told = cell.error["evalue"], cell.about, c.kernel.said()[-4000:]
    assert cell.about["state"] == "restored" and cell.about["undone"] == [number], told
    # busy also while Python starts
    assert [m.content["execution_state"] for m in cell.of("status")][-2:] == ["busy", "idle"]
    return number


@pytest.mark.timeout(300)
def test_every_way_to_fail(transactional, mode, host):
    c = transactional(host=host)
    assert c.run("1").ok  # the level is known by now
    assert host == "as it is" or "no-cgroup" in c.request("kernel_info_request").content["banner"]
    for name, (code, ename, metadata) in FAILURES.items():
        first = c.run(PROGRAM)
        assert first.ok, first
        number = check_failure(c, RUIN + "print('ruined')\n" + code, ename, metadata)
        whole = c.run(CHECK)
        assert whole.result == "'whole'", (name, whole)
        assert whole.content["execution_count"] == number + 1 == first.content["execution_count"] + 2
        if mode == "ipython":
            source = c.run("print(In[%d])" % number).text()
            assert source.splitlines()[-1] == code.splitlines()[-1]


def test_ten_failures_in_a_row(transactional, host):
    c = transactional(host=host)
    assert check_failure(c, KILL, "KernelDiedError") == 1, "in the first cell"
    c.run("kept = []; other = kept")
    last = None
    for _ in range(10):
        number = check_failure(c, "kept.append(1)\n" + KILL, "KernelDiedError")
        assert last in (None, number - 1)
        last = number
    assert c.run("kept, kept is other").result == "([], True)"


def test_nothing_of_the_dead_reaches_later_cells(transactional):
    """Children, threads, late and half-written output."""
    c = transactional()
    c.run("import os, subprocess, sys, threading, time")
    code = (
        "p = subprocess.Popen(['sh', '-c', 'trap \"\" TERM HUP INT; while :; do echo late; sleep 0.05; done'])\n"
        "child = os.fork()\n"
        "if child == 0:\n    os.setsid()\n    while True: os.write(1, b'late\\n'); time.sleep(0.05)\n"
        "open('pids', 'w').write('%d %d' % (p.pid, child))\n"
        "threading.Thread(target=lambda: [print('late') for _ in iter(int, 1)], daemon=True).start()\n"
        "time.sleep(0.2)\nos._exit(1)"
    )
    check_failure(c, code, "KernelDiedError")
    after = c.run("time.sleep(0.3); [n for n in open('pids').read().split() if os.path.exists('/proc/' + n)]")
    assert after.text() == "" and after.result == "[]", after
    assert not [m for m in c.inbox["iopub"] if m.type == "stream"]


def test_arrays_and_figures(transactional, mode):
    if mode == "plain":
        pytest.skip("no numpy beside the plain interpreter")
    c = transactional("limits.memory=2G")
    assert c.run(ARRAYS).ok
    check_failure(c, RUIN_ARRAYS + "\nimport os; os.abort()", "KernelDiedError")
    whole = c.run(CHECK_ARRAYS)
    assert whole.result == "'whole'", whole


def test_pools_of_joblib(start):
    """scikit-learn's n_jobs: the pool that is kept from call to call is made anew, not waited for."""
    pytest.importorskip("joblib")
    c = start(args=["--set", "transactions.mode=always"]).client
    use = "Parallel(2)(delayed(pow)(2, i) for i in range(3))"
    assert c.run("from joblib import Parallel, delayed\n" + use, timeout=60).result == "[1, 2, 4]"
    assert c.run(KILL).about["state"] == "restored"
    assert c.run(use, timeout=60).result == "[1, 2, 4]"


def test_tasks_and_comms_go_on(transactional):
    c = transactional()
    c.run("import asyncio; seen = []")
    c.run("async def tick():\n    while True: await asyncio.sleep(0.01); seen.append(1)")
    c.run("task = asyncio.create_task(tick())")
    check_failure(c, "task.cancel()\n" + KILL, "KernelDiedError")
    assert c.run("n = len(seen)\nwhile len(seen) == n: await asyncio.sleep(0.01)\ntask.done()").result == "False"
