"""Memory and twins: a bomb costs the cell, a cell that needs the twin's memory costs the twin, and says so.

On this host as it is, and for root as if it had no control groups. Sizes are those of limits.memory=512M.
"""

import os
import time
from pathlib import Path

import kernels
import pytest
from session_state import FAILURES

pytestmark = pytest.mark.cellblock_only("transactions")

DEADLINE = 20
OTHERS = """
import os, time
def others(): return [p for p in os.listdir('/proc') if p.isdigit() and p not in ('1', str(os.getpid()))]
"""
# Half of it, then the twin's end, then the rest: it does not fit beside what the twin keeps of it.
REWRITE = OTHERS + """
for i in range(0, len(big), 4096):
    big[i] = 2
    if i > 50 << 20 and not i % (1 << 20) and others(): time.sleep(0.01)  # who is faster than the look is ended
    while i >> 20 == 170 and others(): time.sleep(0.01)
"""
# If twins have {least} MiB to themselves: writes to new memory alone, to more than 7/8 of limits.memory, until one of
# them is given up, and then to where it had not fitted beside that. What they have is read when they are at rest;
# outside of the jail none but root may.
GROW = OTHERS + """
import re
def state(pid): return open(f'/proc/{{pid}}/stat').read().rsplit(')', 1)[1].split()[0]
def have(name, pids):
    texts = [open(f'/proc/{{pid}}/smaps_rollup').read() for pid in pids]
    return sum(int(re.search(name + ': *([0-9]+)', text)[1]) for text in texts) >> 10
was, now, calm, more = None, None, 0, []
while calm < 3:  # older ones may still end, and the youngest copies
    time.sleep(0.02)
    try: was, now = now, (others(), [state(pid) for pid in others()], have('Private_Dirty', others()))
    except (OSError, TypeError): now = None
    calm = calm + 1 if now == was and now and set(now[1]) == {{'S'}} else 0
twins, _, copied = now
used = have('Pss_Anon', [*twins, 'self'])
while copied >= {least} and len(more) < {size}:
    more.append(bytearray(b'1') * (1 << 20))
    while len(more) == 480 - used and others() == twins: time.sleep(0.01)  # who is faster than the look is ended
"""
FILL = """
filled, size = [], 10 << 20
while size >= 16:
    try:
        while True: filled.append(bytearray(size))
    except MemoryError: size //= 2
"""
FORKS = """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
while True:
    try:
        if os.fork() == 0: taken = b'1' * (30 << 20)
    except (OSError, MemoryError): pass
"""


@pytest.fixture
def client(start, host):
    sets = ["timeout.grace=0.3", "limits.memory=512M", "limits.pids=100", "transactions.mode=always"]

    def begin(*more):
        args = [word for each in (*sets, *more) for word in ("--set", each)]
        c = start(argv=kernels.on_host(host, kernels.spec_argv()[0]), args=args).client
        assert c.run("kept = [1]; same = kept").ok
        return c

    return begin


def test_a_bomb_costs_no_twin(client):
    c = client()
    code, ename, _ = FAILURES["memory"]
    for _ in range(3):
        cell = c.run("kept.append(2)\n" + code)
        assert cell.content["ename"] == ename, cell.content
        assert (cell.about["state"], cell.about["limit"]) == ("restored", "memory"), (cell.content, cell.about)
        assert "limits.memory" in cell.content["evalue"] and "given_up" not in cell.about
        assert c.run("kept, kept is same").result == "([1], True)"


def test_a_cell_that_has_filled_its_memory_is_not_undone(client):
    """Python is told that there is no more, and keeps what it has: the kernel's own part finds room to go on."""
    c = client("limits.memory=200M")
    cell = c.run(FILL)
    assert cell.ok, cell.content
    assert c.run("kept, kept is same, len(filled) > 10").result == "([1], True, True)"
    cell = c.run("del filled")
    assert (cell.ok, cell.about["state"]) == (True, "kept"), (cell.content, cell.about)
    cell = c.run("1 / 0")
    assert (cell.content["ename"], cell.about["state"]) == ("ZeroDivisionError", "kept"), (cell.content, cell.about)


def test_a_twin_is_given_up_for_a_cell_that_fits_without(client):
    c = client("transactions.keep=0")
    assert c.run("big = bytearray(b'1') * (300 << 20)").ok
    cell = c.run(REWRITE, timeout=60)
    assert cell.ok and cell.about["state"] == "kept" and cell.about["limit"] is None, cell
    assert "memory is short" in cell.text("stderr") and "all variables are lost" in cell.text("stderr")
    assert cell.about["given_up"] >= 1
    assert c.run("sum(big[::4096]) == 2 * len(big) >> 12").result == "True"
    after = c.run("kept.clear(); os._exit(1)")
    assert after.about["state"] == "restored" and "given_up" not in after.about, "there is a new one"
    assert c.run("kept, kept is same").result == "([1], True)"


def test_also_when_the_whole_host_is_short(start):
    """Far below the jail's own limit."""
    if os.geteuid() != 0 or not os.environ.get("CELLBLOCK_BUILD"):
        pytest.skip("the emulated host needs root, and CELLBLOCK_BUILD")
    args = ["--set", "limits.memory=512M", "--set", "transactions.mode=always", "--set", "transactions.keep=0"]
    c = start(argv=kernels.on_host("short", kernels.spec_argv()[0]), args=args).client
    assert c.run("big = bytearray(b'1') * (100 << 20)").ok
    cell = c.run(REWRITE.replace("170", "90"), timeout=60)  # a twin with less than an eighth of the limit is kept
    assert cell.ok and cell.about["given_up"] >= 1 and "the whole host's" in cell.text("stderr"), cell


def test_a_cell_that_fails_after_that_says_why_all_is_lost(client):
    c = client("transactions.keep=0")
    assert c.run("big = bytearray(b'1') * (300 << 20)").ok
    failed = c.run(REWRITE + "os._exit(1)", timeout=60)
    assert failed.about["state"] == "lost" and failed.about["given_up"] >= 1, failed.about
    assert "given up when memory was short" in failed.content["evalue"]
    assert c.run("'kept' in globals()").result == "False"


def test_a_name_comes_back_where_no_other_state_is_left(client):
    c = client("transactions.keep=0")
    assert c.run("%checkpoint name").ok and c.run("big = bytearray(b'1') * (300 << 20)").ok
    # the checkpoint's twin stays, so the cell waits for the number of processes to fall
    code = REWRITE.replace("and others()", "and len(others()) == 2")
    code = code.replace("\nfor i", "\nwhile len(others()) > 2: time.sleep(0.01)\nfor i")  # an older twin may still end
    cell = c.run("kept.append(2)\n" + code + "os._exit(1)", timeout=60)
    assert cell.about["given_up"] == 1 and "checkpoint with a name" in cell.text("stderr"), cell
    assert (cell.about["state"], cell.about["undone"]) == ("restored", [3, 4]), cell.content
    assert c.run("kept, kept is same").result == "([1], True)"
    assert c.run("kept.append(3)").ok and c.run("%rollback name").about["state"] == "restored", "it stays"
    assert c.run("kept, kept is same").result == "([1], True)"


def test_older_states_go_first(client):
    c = client("transactions.keep=3")
    for _ in range(4):
        assert c.run("big = bytearray(b'1') * (90 << 20)").ok
    cell = c.run(GROW.format(least=0, size="480 - used") + "os._exit(1)", timeout=60)
    assert cell.about["state"] == "restored", (cell.content["evalue"], cell.about)
    assert cell.about.get("given_up", 0) >= 1 and cell.about["undone"] == [6], cell.about
    assert c.run("kept, len(big) >> 20").result == "([1], 90)"


@pytest.mark.skipif(kernels.LINUX < (5, 14), reason="before Linux 5.14 no twin copies anything itself")
def test_what_a_twin_has_copied_itself_is_given_up_too(client):
    """For a cell that writes to nothing of it, and fits without."""
    c = client("transactions.keep=0")
    for _ in range(8):  # now and then a copy does not look at what is new
        assert c.run("big = more = None").ok and c.run("1").ok  # no twin has an older one
        assert c.run("big = bytearray(b'1') * (160 << 20)").ok
        cell = c.run(GROW.format(least=80, size="520 - used"), timeout=60)
        assert cell.ok and cell.about["state"] == "kept" and cell.about["limit"] is None, (cell.content, cell.about)
        if int(c.run("len(more)").result):
            break
    assert cell.about.get("given_up", 0) == 1 and "memory is short" in cell.text("stderr"), cell
    whole = c.run("kept, len(twins), copied >= 80, len(more) == 520 - used, big.count(b'1') == 160 << 20")
    assert whole.result == "([1], 1, True, True, True)"


# What they share counts for each of them; when the fourteenth has its memory, something has to go.
CHILDREN = OTHERS + """
shared, pipes = bytearray(b'1') * (20 << 20), [os.pipe() + os.pipe() for _ in range(20)]
for go, _, _, done in pipes:
    if os.fork() == 0:
        os.read(go, 1)
        taken = bytearray(b'1') * (10 << 20)
        os.write(done, b'1')
        time.sleep(1000)
for i, (_, go, done, _) in enumerate(pipes):
    os.write(go, b'1')
    os.read(done, 1)
    while i == 13 and len(others()) > 21: time.sleep(0.01)
"""


def test_a_twin_is_given_up_for_a_cells_many_forks(client):
    c = client("transactions.keep=2")
    assert c.run("big = bytearray(b'1') * (300 << 20)").ok
    assert c.run("del big").ok  # an older state has it alone
    cell = c.run(CHILDREN, timeout=60)
    assert cell.ok and cell.about["given_up"] >= 1 and "memory is short" in cell.text("stderr"), cell
    assert c.run("kept, kept is same").result == "([1], True)"


def test_forks_that_take_memory(client):
    """Whatever ends it, it does not cost the session."""
    c = client("limits.pids=60")
    cell = c.run(FORKS, metadata={"cellblock": {"timeout": 3}}, timeout=60)
    assert cell.about["limit"] in ("memory", "time") and cell.about["state"] == "restored", (cell.content, cell.about)
    after = c.run("kept, kept is same")
    assert after.result == "([1], True)", (after.about, after.text("stderr"), cell.about, cell.content["evalue"])
    again = c.run("import os; os._exit(1)")
    assert again.about["state"] == "restored", ("there was room for a new twin", again.about, again.content["evalue"])


def test_a_branch_that_takes_all_memory_ends_alone(client):
    c = client()
    branch = c.request("cellblock_branch_request", {}, channel="control").content["subshell_id"]
    header = c.header("execute_request", subshell_id=branch)
    failed = c.finish(c.start(FAILURES["memory"][0], header=header), 60)
    assert failed.content["status"] == "error" and failed.about["state"] == "lost", failed.content
    whole = c.run("kept.append(2); kept, kept is same")
    assert whole.result == "([1, 2], True)" and whole.about["state"] == "kept", whole.about


def test_also_when_its_child_takes_it(client):
    """The kernel's OOM killer ends the child; without control groups the branch ends, and not the main line."""
    c = client()
    branch = c.request("cellblock_branch_request", {}, channel="control").content["subshell_id"]
    bomb = f"import os\nif os.fork(): os.wait()\nelse:\n    exec({FAILURES['memory'][0]!r})\n    os._exit(0)"
    done = c.finish(c.start(bomb, header=c.header("execute_request", subshell_id=branch)), 60)
    assert done.content["status"] == "ok" or done.about["state"] == "lost", done.content
    whole = c.run("kept.append(2); kept, kept is same")
    assert whole.result == "([1, 2], True)" and whole.about["state"] == "kept", whole.about


def scores(kernel):
    """oom_score_adj of the jail's processes, by their numbers inside."""
    found = {}
    for p in kernel.family():
        try:
            status = Path(f"/proc/{p.pid}/status").read_text()
            numbers = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[1:]
            if len(numbers) > 1:
                found[int(numbers[-1])] = int(Path(f"/proc/{p.pid}/oom_score_adj").read_text())
        except (OSError, StopIteration):
            pass
    return found


def test_whom_the_kernel_kills_first(client):
    """The guest, jobs and their children, not pid 1 and the twins; also after a take-over."""
    job = ["sh", "-c", "echo $PPID $$ >new; mv new job; exec sleep 100"]
    numbers = "while not os.path.exists('job'): pass\nn = open('job').read(); os.unlink('job'); n"
    c = client("transactions.keep=0")
    own = int(Path("/proc/self/oom_score_adj").read_text())
    for _ in range(2):
        guest = int(c.run("import os, subprocess; p = subprocess.Popen(['sleep', '100']); os.getpid()").result)
        child = int(c.run("p.pid").result)
        c.send("cellblock_run_request", {"argv": job}, channel="control")
        victims = {guest, child, *map(int, c.run(numbers).result.strip("'\\n").split())}
        end = time.monotonic() + DEADLINE
        while True:  # scores are set beside the cells
            seen = scores(c.kernel)
            rest = {seen[number] for number in seen if number not in victims}
            if ({seen.get(number) for number in victims}, rest) == ({1000}, {own}) and len(seen) > 5:
                break
            assert time.monotonic() < end, (victims, seen)
            time.sleep(0.02)
        assert c.run("os._exit(1)").about["state"] == "restored"
