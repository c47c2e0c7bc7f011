"""Limits of a whole jail: who holds them, what a cell is told that runs into one, and that nothing stays behind.

Where no control group can be had (an ordinary user without systemd) the watchdog holds limits.memory; tests of one back
end are skipped on the other. See docs/limits.md.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import kernels
import pytest
from broker import Broker, Refused

pytestmark = pytest.mark.cellblock_only("limits of a jail")

BUILD = os.environ.get("CELLBLOCK_BUILD")
FULL, NO_CGROUP = 3, 2
MIB = 1 << 20
SMALL = ("limit_memory=104857600", "limit_cpu=50000", "limit_pids=30")


def groups():
    """Folders of our control groups anywhere."""
    return {
        os.path.join(at, name)
        for at, names, _ in os.walk("/sys/fs/cgroup")
        for name in names
        if name.startswith("cellblock-")
    }


def groups_of(broker):
    return {p for p in groups() if Path(p).name.startswith(f"cellblock-{broker.process.pid}-")}


def members(folder):
    try:
        return Path(folder, "cgroup.procs").read_text()
    except OSError:  # it is being removed
        return ""


def wait_until_empty(folders, seconds=300):
    """An ended process leaves its group a moment after its end was told, and the kernel announces that to nobody."""
    deadline = time.monotonic() + seconds
    while any(map(members, folders)):
        assert time.monotonic() < deadline, f"processes stay in {folders}"


def assert_none_stays(broker):
    """A group that was busy for longer than its broker tried to remove it is removed by the next start."""
    if left := groups_of(broker):
        wait_until_empty(left)
        with Broker(BUILD, "argv=/bin/true", *SMALL) as next_one:
            next_one.spawn()
            next_one.spawn()  # it sweeps when it has answered the first
    assert not groups_of(broker)


def python(code):
    return ("argv=/usr/bin/python3", "argv=-c", f"argv={code}")


@pytest.fixture
def full():
    """Skips where no control group can be had."""
    if not BUILD:
        pytest.skip("CELLBLOCK_BUILD is not set")
    with Broker(BUILD, "argv=/bin/true", *SMALL) as broker:
        jail = broker.spawn()
        if jail.level != FULL:
            pytest.skip(broker.limits)
        jail.gone()
        broker.ended(jail)


@pytest.fixture
def as_user(ordinary_user):
    return ("setpriv", f"--reuid={ordinary_user.pw_uid}", f"--regid={ordinary_user.pw_gid}", "--clear-groups")


# ---- control groups ----


def test_group_of_a_jail(full):
    with Broker(BUILD, *python("import time; print('up', flush=True); time.sleep(1000)"), *SMALL) as broker:
        jail = broker.spawn()
        assert jail.level == FULL and broker.limits.startswith("cgroup v")
        mine = groups_of(broker)
        assert mine
        values = {f.name: f.read_text().strip() for d in mine for f in Path(d).iterdir() if f.name in FILES}
        assert (values.get("memory.limit_in_bytes") or values["memory.max"]) == "104857600"
        assert values["pids.max"] == "36"
        assert (values.get("cpu.cfs_quota_us") or values["cpu.max"].split()[0]) == "50000"
        inside = {pid for d in mine for pid in Path(d, "cgroup.procs").read_text().split()}
        assert str(jail.guest_pid) in inside and str(broker.process.pid) not in inside
        assert str(os.getpid()) not in inside
        jail.terminate()
        assert jail.gone()
        broker.ended(jail)
        assert_none_stays(broker)


FILES = ("memory.limit_in_bytes", "memory.max", "pids.max", "cpu.cfs_quota_us", "cpu.max")


def test_jail_sees_its_own_group_as_the_root(full):
    with Broker(BUILD, *python("print(open('/proc/self/cgroup').read())"), *SMALL) as broker:
        text = broker.spawn().read("stdout").decode()
        assert "cellblock" not in text
        if "cgroup v1" in broker.limits:
            assert ":memory:/\n" in text and ":pids:/\n" in text


def test_killed_for_memory(full):
    bomb = "import mmap\nm = mmap.mmap(-1, 1 << 30)\nfor i in range(0, 1 << 30, 4096): m[i] = 1"
    with Broker(BUILD, *python(bomb), *SMALL) as broker:
        jail = broker.spawn()
        assert os.waitstatus_to_exitcode(jail.exited()) == -9
        end = broker.ended(jail)
        assert end["oom_kills"] >= 1 and 90 * MIB < end["peak"] <= 100 * MIB
        assert end["limit_met"] >= 1, "it was its own limit"
        assert_none_stays(broker)


def test_forks_are_counted(full):
    bomb = (
        "import os, signal\ntry:\n while 1:\n  if not os.fork(): signal.pause()\nexcept OSError as e: print(e.errno)"
    )
    with Broker(BUILD, *python(bomb), *SMALL) as broker:
        jail = broker.spawn()
        assert jail.read("stdout") == b"11\n" and jail.gone()
        broker.ended(jail)
        assert_none_stays(broker)


def test_cpu(full):
    spin = "import time\nt = time.monotonic()\nwhile time.monotonic() < t + 1: pass\nprint(time.process_time())"
    with Broker(BUILD, *python(spin), *SMALL, "limit_cpu=20000") as broker:
        assert float(broker.spawn().read("stdout")) < 0.6


def test_killed_brokers_groups_are_swept(full):
    with Broker(BUILD, *python("import time; time.sleep(1000)"), *SMALL) as broker:
        jail = broker.spawn()
        broker.process.send_signal(signal.SIGKILL)
        assert jail.gone() and broker.process.wait(300) == -signal.SIGKILL
        left = groups_of(broker)
        wait_until_empty(left)
        with Broker(BUILD, *python("import time; time.sleep(1000)"), *SMALL) as living:
            living.spawn()
            living.spawn()  # it sweeps when it has answered the first
            held = groups_of(living)
            assert held and not groups() & left
            with Broker(BUILD, "argv=/bin/true", *SMALL) as third:
                third.spawn()
                third.spawn()
                assert groups_of(living) == held, "a living broker's group was swept"


# ---- a limit on a group that we are in ----


def own_group(controller):
    """Our own group's folder in the hierarchy with this controller, and its version."""
    own = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, tail = line.partition(" - ")
        root, point = fields.split()[3:5]
        kind, _, options = tail.split(" ", 2)
        if kind == "cgroup" and controller in options.split(","):
            path = next(path for names, path in own.items() if controller in names.split(","))
            return Path(point, os.path.relpath(path, root)), 1
        if kind == "cgroup2" and controller in Path(point, "cgroup.controllers").read_text().split():
            return Path(point, os.path.relpath(own[""], root)), 2
    return None, None


@contextlib.contextmanager
def enclosing(above, limit, value):
    """A group with a limit, as systemd, Slurm or a container has one, with one in it to be started in."""
    if above is None:
        pytest.skip(f"no control group with a limit can be made here: nothing has {limit}")
    folder = above / f"enclosing-{os.getpid()}"
    try:
        try:
            folder.mkdir()
            (folder / limit).write_text(str(value))
            (folder / "inner").mkdir()
        except OSError as e:
            pytest.skip(f"no control group with a limit can be made here: {e}")
        yield ["sh", "-c", f'echo $$ > {folder}/inner/cgroup.procs; exec "$@"', "sh"], folder
    finally:
        wait_until_empty([folder / "inner"])
        for made in (folder / "inner", folder):
            if made.exists():
                made.rmdir()


@pytest.fixture
def small_group():
    """A group of 256 MiB."""
    above, version = own_group("memory")
    with enclosing(above, "memory.max" if version == 2 else "memory.limit_in_bytes", 256 * MIB) as made:
        yield made


def test_a_run_stays_below_the_group_it_is_in(small_group):
    """Else the kernel takes any process of the group for its victim, and nothing says which figure held."""
    inside, folder = small_group
    run = [f"{BUILD}/bin/cellblock", "run", "--set", "limits.memory=1G", "--set", "workspace.mode=tmpfs", "--"]
    done = subprocess.run(
        [*inside, *run, "/usr/bin/python3", "-c", SHARED], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 137, done
    assert "234881024 bytes: what fits into the 256.0 MiB" in done.stderr and str(folder) in done.stderr, done


def test_a_kernel_stays_below_the_group_it_is_in(small_group, start):
    inside, folder = small_group
    argv = [*inside, *kernels.spec_argv()[0]]
    sets = ["limits.memory=1G", "transactions.mode=off", "warm.mode=off"]  # a zygote would stay in the group
    client = start(argv=argv, args=[word for each in sets for word in ("--set", each)]).client
    cell = client.run(SHARED)
    assert cell.content["ename"] == "CellMemoryError", cell
    assert "limit 224.0 MiB: what fits into the 256.0 MiB" in cell.content["evalue"], cell
    assert str(folder) in cell.content["evalue"] and cell.about["limit"] == "memory"
    assert client.run("1").result == "1"


class Around:
    """A group around jails whose limit is far off until it is met, while theirs are not."""

    def __init__(self, inside, folder, version):
        self.inside, self.folder = inside, folder
        names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        self.limit, self.used = (folder / name for name in names)
        with_swap = folder / "memory.memsw.limit_in_bytes"  # else what is too much is swapped
        self.limits = [self.limit, *([with_swap] if with_swap.exists() else [])]

    def leaves(self, room):
        bytes_ = int(self.used.read_text()) + room
        for limit in self.limits:
            limit.write_text(str(bytes_))

    def leaves_enough(self):
        for limit in reversed(self.limits):
            limit.write_text(str(1 << 30))


@pytest.fixture
def around():
    above, version = own_group("memory")
    with enclosing(above, "memory.max" if version == 2 else "memory.limit_in_bytes", 1 << 30) as (inside, folder):
        if version == 2 and (folder / "memory.swap.max").exists():
            (folder / "memory.swap.max").write_text("0")
        if version == 1 and (folder / "memory.memsw.limit_in_bytes").exists():
            (folder / "memory.memsw.limit_in_bytes").write_text(str(1 << 30))
        yield Around(inside, folder, version)


def assert_lies_below(folder):
    if not any(Path(group).is_relative_to(folder) for group in groups()):
        pytest.skip("jails' groups do not lie in the group that the kernel was started in: systemd has made a scope")


@pytest.mark.parametrize("transactions", ["off", "always"])
def test_a_kill_for_the_memory_of_others_is_no_cells_fault(around, start, transactions):
    """The kernel takes guests first, and counts that in their group, whosever memory was short."""
    sets = ["limits.memory=600M", f"transactions.mode={transactions}", "warm.mode=off"]
    argv = [*around.inside, *kernels.spec_argv()[0]]
    client = start(argv=argv, args=[word for each in sets for word in ("--set", each)]).client
    assert client.run("kept = 1").ok
    assert_lies_below(around.folder)
    around.leaves(128 * MIB)
    cell = client.run(SHARED)
    assert cell.content["ename"] == "KernelDiedError", cell
    assert "killed by the host, which was short of memory" in cell.content["evalue"], cell
    assert "limits.memory" not in cell.content["evalue"], cell
    assert (cell.about["by"], cell.about["limit"]) == ("outside", None), cell
    kept = transactions == "always" and not cell.about.get("given_up")  # for want of memory, before the kernel killed
    assert cell.about["state"] == ("restored" if kept else "lost"), cell
    around.leaves_enough()
    assert client.run("kept = 1").ok
    around.leaves(128 * MIB)
    child = f"import subprocess, sys\nwas = subprocess.run([sys.executable, '-c', {SHARED!r}]).returncode\n"
    cell = client.run(child + "raise ValueError(was)")
    assert (cell.content["ename"], cell.content["evalue"], cell.about["limit"]) == ("ValueError", "-9", None), cell
    run = client.request("cellblock_run_request", {"argv": [sys.executable, "-c", SHARED]}, channel="control").content
    assert (run["returncode"], run["limit"]) == (-9, None), run
    around.leaves_enough()
    cell = client.run(SHARED)
    assert (cell.content["ename"], cell.about["limit"], cell.about["by"]) == ("CellMemoryError", "memory", "kernel")
    assert "limit 600.0 MiB" in cell.content["evalue"], cell


def test_a_run_that_is_killed_for_the_memory_of_others(around):
    run = [f"{BUILD}/bin/cellblock", "run", "--set", "limits.memory=600M", "--set", "workspace.mode=tmpfs", "--"]
    code = f"print('up', flush=True)\ninput()\n{SHARED}"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*around.inside, *run, "/usr/bin/python3", "-c", code], text=True, **pipes) as jailed:
        assert jailed.stdout.readline() == "up\n", jailed.stderr.read()
        assert_lies_below(around.folder)
        around.leaves(128 * MIB)
        _, said = jailed.communicate("\n", timeout=60)
    assert jailed.returncode == 137, said
    assert "killed by the host, which was short of memory" in said and "limits.memory" not in said, said


def test_a_smaller_share_of_the_processor_around_us_is_no_lack(full):
    """Version 1 refuses a larger one below it. Memory and processes were then held by nobody."""
    above, version = own_group("cpu")
    if version != 1:
        pytest.skip("no hierarchy of version 1 has the cpu controller")
    with enclosing(above, "cpu.cfs_quota_us", 20000) as (inside, folder):
        with Broker(BUILD, *python("import time; time.sleep(1000)"), *SMALL, "minimum=full", prefix=inside) as broker:
            jail = broker.spawn()
            assert jail.level == FULL and "cpu" in broker.limits, broker.limits
            [mine] = [p for p in groups_of(broker) if Path(p).is_relative_to(folder)]
            assert str(jail.guest_pid) in members(mine).split()
            jail.terminate()
            assert jail.gone()
            broker.ended(jail)
            assert_none_stays(broker)


# ---- without ----


def test_minimum_is_refused_with_step_and_cure(as_user):
    with Broker(BUILD, "argv=/bin/true", *SMALL, "minimum=full", prefix=as_user) as broker:
        try:
            jail = broker.spawn()
        except Refused as refused:
            assert refused.step == "cgroup" and "isolation.minimum" in str(refused) and refused.cure
        else:
            assert jail.level == FULL


def test_minimum_full_is_reached(full):
    with Broker(BUILD, "argv=/bin/true", *SMALL, "minimum=full") as broker:
        assert broker.spawn().level == FULL


# ---- what a cell is told ----

# It stays when it has filled that: the watchdog may be late to look.
SHARED = "import mmap, time\nm = mmap.mmap(-1, 1 << 31)\nfor i in range(0, 1 << 31, 4096): m[i] = 1\n"
SHARED += "while True: time.sleep(1)"


def test_cell_killed_for_memory(start):
    kernel = start(args=["--set", "limits.memory=300M", "--set", "transactions.mode=off"])
    client = kernel.client
    client.run("kept = 1")
    cell = client.run(SHARED)
    assert cell.content["ename"] == "CellMemoryError", cell
    assert "limits.memory" in cell.content["evalue"] and "limit 300.0 MiB" in cell.content["evalue"]
    assert cell.about["limit"] == "memory" and cell.about["state"] == "lost"
    assert cell.about["usage"]["memory_peak_bytes"] > 200 * MIB
    after = client.run("'kept' in globals()")
    assert after.result == "False" and after.about["limit"] is None


def test_memory_error_keeps_the_state(start):
    kernel = start(args=["--set", "limits.memory=300M"])
    client = kernel.client
    client.run("kept = 1")
    cell = client.run("x = bytearray(1 << 30)")
    assert cell.content["ename"] == "MemoryError" and cell.about["limit"] == "memory", cell
    assert cell.about["state"] == "kept"


def test_a_killed_child_leaves_the_session(full, start):
    kernel = start(args=["--set", "limits.memory=300M"])
    client = kernel.client
    client.run("kept = 1")
    cell = client.run(f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {SHARED!r}]).returncode")
    assert cell.ok and cell.result == "-9" and cell.about["limit"] == "memory", cell
    assert client.run("kept").result == "1"
    # the child's death is not held against a later end of another kind
    assert client.run("import os; os.kill(os.getpid(), 9)").content["ename"] == "KernelDiedError"


def test_peak_is_the_cells(full, start):
    client = start().client
    big = client.run("x = b'x' * (200 << 20); del x").about["usage"]["memory_peak_bytes"]
    small = client.run("1").about["usage"]["memory_peak_bytes"]
    linux = tuple(map(int, os.uname().release.split("-")[0].split(".")[:2]))
    if own_group("memory")[1] == 2 and linux < (6, 12):
        pytest.skip("memory.peak can be reset from Linux 6.12 on")
    assert big > 200 * MIB > small
