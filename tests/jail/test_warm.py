"""Kernels that come from a zygote: they stand behind the walls of any other, are told apart from their siblings, and a
start is cold where anything fails. Each test has a zygote of its own: a variable of the environment is part of what
zygotes are told apart by."""

import contextlib
import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import kernels
from warmth import LOG, Warm, await_true, place, zygotes

pytestmark = [pytest.mark.cellblock_only, pytest.mark.usefixtures("no_zygotes_left")]

# What a process is born with and what it may do, by its own look. Numbers of processes and times are not compared.
LOOK = r"""
import json, os, resource, signal, sys, stat
def read(path):
    with open(path) as f:
        return f.read()
status = dict(line.split(":\t", 1) for line in read("/proc/self/status").splitlines() if ":\t" in line)
keep = ("Name Umask Uid Gid Groups NoNewPrivs Seccomp CapInh CapPrm CapEff CapBnd CapAmb SigBlk SigIgn SigCgt "
        "Speculation_Store_Bypass THP_enabled Kthread TracerPid Cpus_allowed Mems_allowed").split()
def fd(n):
    s = os.fstat(n)
    return [n, stat.S_IFMT(s.st_mode), os.get_inheritable(n), os.get_blocking(n)]
fds = sorted(int(n) for n in os.listdir("/proc/self/fd"))
print(json.dumps({
    "status": {name: status.get(name) for name in keep},
    "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name[:6] == "RLIMIT"},
    "fds": [fd(n) for n in fds if n < 8], "more fds": [n for n in fds if n >= 8][:-1],
    "environ": dict(os.environ), "argv": sys.argv, "path": sys.path, "cwd": os.getcwd(), "flags": str(sys.flags),
    "nice": os.getpriority(os.PRIO_PROCESS, 0), "policy": os.sched_getscheduler(0),
    "pgid": os.getpgid(0) == os.getpid(), "timer slack": read("/proc/self/timerslack_ns"),
    "sid": os.getsid(0) == os.getpid(), "parent": os.getppid(), "maps": [read("/proc/self/uid_map").split()[::2],
    read("/proc/self/gid_map").split()[::2], read("/proc/self/setgroups")], "mounts": sorted(
        " ".join(line.split(" - ")[0].split()[3:6]) for line in read("/proc/self/mountinfo").splitlines()),
    "shared": [line.split()[1:] for line in read("/proc/self/maps").splitlines() if line.split()[1][1::2] == "ws"],
    "comm": read("/proc/self/comm"), "cmdline": read("/proc/self/cmdline"), "processes": sum(
        n.isdigit() for n in os.listdir("/proc")), "oom": read("/proc/self/oom_score_adj"),
    "personality": read("/proc/self/personality"), "cgroup": read("/proc/self/cgroup"),
    "handlers": {str(n): str(signal.getsignal(n)).split(" at ")[0] for n in range(1, 65) if n not in (32, 33)},
    "names": sorted(n for n in globals() if not n.startswith("_")), "in": len(In), "main": __name__,
}))
"""


def look(kernel):
    return json.loads(kernel.client.run(LOOK).text())


# ---- the same walls ----


def test_a_warm_guest_is_born_with_what_a_cold_one_is(start, warmth):
    w = warmth("transactions.mode=off")
    args = [word for each in w.sets for word in ("--set", each)]
    cold, warm = (look(kernel) for kernel in (start(args=[*args, "--set", "warm.mode=off"], env=LOG), w.warm()))
    # two threads more of ours serve the workspace's calls, and count
    warm["limits"]["RLIMIT_NPROC"] = [n - 2 for n in warm["limits"]["RLIMIT_NPROC"]]
    differing = {name: (cold[name], warm[name]) for name in cold if cold[name] != warm[name]}
    works = [name for name in ("cwd", "mounts", "path") if name in differing]
    for name in works:  # each kernel has a workspace of its own
        texts = [json.dumps(each[name]).replace(each["cwd"], "WORK") for each in (cold, warm)]
        assert texts[0] == texts[1], name
        del differing[name]
    assert not differing, json.dumps(differing, indent=1)


def test_walls_from_outside(warmth):
    w = warmth()
    kernel = w.warm()
    guest = w.guest(kernel)
    status = Path(f"/proc/{guest}/status").read_text()
    assert "NoNewPrivs:\t1\n" in status and "Seccomp:\t2\n" in status
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert f"{name}:\t0000000000000000\n" in status
    pid1 = int(status.split("PPid:\t")[1].split("\n")[0])
    seen = (guest, pid1) if os.geteuid() == 0 else (guest,)  # pid 1 hides from its own user
    for name in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
        spaces = {os.readlink(f"/proc/{pid}/ns/{name}") for pid in seen}
        assert len(spaces) == 1 and os.readlink(f"/proc/self/ns/{name}") not in spaces


def status_of(path):
    return dict(line.split(":\t", 1) for line in Path(path, "status").read_text().splitlines())


def test_walls_of_each_thread(warmth):
    """Also of those that a library had in the zygote, which are made anew in the copy."""
    w = warmth('warm.preload=["numpy"]')
    kernel = w.warm()
    assert kernel.client.run("import numpy as np; a = np.ones((300, 300)); int((a @ a).sum())").result == "27000000"
    threads = [status_of(each) for each in Path(f"/proc/{w.guest(kernel)}/task").iterdir()]
    alike = len(list(Path(f"/proc/{w.pid}/task").iterdir()))  # numpy has a thread for each processor
    assert len(threads) > alike and (alike > 1 or len(os.sched_getaffinity(0)) == 1)
    filters = int(status_of(f"/proc/{w.pid}")["Seccomp_filters"])
    for each in threads:
        assert (each["Seccomp"], each["NoNewPrivs"]) == ("2", "1"), each
        assert int(each["Seccomp_filters"]) == int(threads[0]["Seccomp_filters"]) >= filters + 2, each
        assert {each[name] for name in each if name.startswith("Cap")} == {"0" * 16}, each


def test_calls_that_a_zygote_may_make_are_refused(warmth):
    code = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
def call(n, *args):
    ctypes.set_errno(0)
    r = libc.syscall(n, *[ctypes.c_long(a) for a in args])
    return errno.errorcode.get(ctypes.get_errno(), r)
import platform
x86 = platform.machine() == "x86_64"
numbers = dict(setns=308, setresuid=117, setresgid=119, capset=126, keyctl=250, seccomp=317, unshare=272)
if not x86:
    numbers = dict(setns=268, setresuid=147, setresgid=149, capset=91, keyctl=219, seccomp=277, unshare=97)
print({name: call(n, 0, 0, 0, 0) for name, n in numbers.items()}, call(446, 3, 0), call(157 if x86 else 167, 24, 1))
"""
    said = warmth().warm().client.run(code).text()
    assert "0" not in said.replace("{", " ").split()  # none of them has succeeded
    for word in ("'setns': 'EPERM'", "'setresuid': 'EPERM'", "'capset': 'EPERM'", "'seccomp': 'ENOSYS'"):
        assert word in said, said


def test_limits_hold(warmth):
    w = warmth("limits.memory=300M", "limits.pids=20", "limits.file_size=1M")
    c = w.warm().client
    assert c.run("b = bytearray(600 << 20)").error["ename"] == "MemoryError"
    assert "OSError" in str(c.run("open('/tmp/big', 'wb').write(b'x' * (2 << 20))").error)
    code = "import subprocess\nps = []\nfor i in range(40):\n    ps.append(subprocess.Popen(['sleep', '60']))"
    assert c.run(code).error["ename"] in ("BlockingIOError", "OSError")
    assert c.run("for p in ps: p.kill(); p.wait()\nprint(len(ps) < 20)").text() == "True\n"


# ---- all that a kernel does ----


def test_a_session(warmth):
    kernel = warmth("transactions.mode=always").warm()
    c = kernel.client
    assert c.run("x = [1]; x").result == "[1]"
    assert c.run("open('made', 'w').write('here')").ok
    assert (kernel.workspace / "made").read_text() == "here"
    moves = "import os; os.makedirs('in/deep'); os.link('made', 'in/link'); os.rename('in/link', 'in/deep/moved')"
    assert c.run(moves).ok and (kernel.workspace / "in/deep/moved").read_text() == "here"
    assert c.run("y = 2").ok
    lost = c.run("x.append(2); os.kill(os.getpid(), 9)")
    assert not lost.ok
    assert c.run("x, y").result == "([1], 2)"
    assert c.run("import subprocess; print(subprocess.run(['id', '-u'], capture_output=True, text=True).stdout)").ok
    assert c.run("!echo by a shell").text() == "by a shell\r\n" or c.run("!echo by a shell").text() == "by a shell\n"
    assert c.run("%who_ls").ok
    assert c.run("In[1]").result == "'x = [1]; x'"
    ran = c.run("import time\ntry:\n    time.sleep(0)\nfinally:\n    1/0")
    assert ran.error["ename"] == "ZeroDivisionError"


def test_who_asks_to_be_undumpable_writes_all_the_same(warmth):
    kernel = warmth("transactions.mode=always").warm()
    c = kernel.client
    asked = c.run("import ctypes, os; libc = ctypes.CDLL(None); libc.prctl(4, 0, 0, 0, 0), libc.prctl(3)")
    assert asked.result == "(0, 1)"
    assert c.run("open('made', 'w').write('1')").ok
    assert not c.run("os._exit(1)").ok
    assert c.run("open('made', 'a').write('2'); os.access('.', os.W_OK)").result == "True"
    assert (kernel.workspace / "made").read_text() == "12"


def command(client, *argv):
    msg_id = client.send("cellblock_run_request", {"argv": argv}, channel="control")
    reply = client.reply(msg_id, "control").content
    client.until_idle(msg_id)
    return reply


def test_what_is_beside_the_cells(warmth):
    """Commands, files and figures: helpers of pid 1 put themselves behind the guest's walls, each for itself."""
    kernel = warmth().warm()
    c = kernel.client
    c.run("held = bytearray(64 << 20)")
    usage = c.request("cellblock_usage_request", {}, channel="control").content
    assert usage["usage"]["processes"] >= 1 and usage["usage"]["memory_bytes"] > 64 << 20, usage
    assert command(c, "sh", "-c", "echo by a command > made; cat made")["stdout"] == "by a command\n"
    assert (kernel.workspace / "made").read_text() == "by a command\n"
    status = command(c, "grep", "-E", "^(NoNewPrivs|Seccomp|CapEff|CapBnd):", "/proc/self/status")["stdout"]
    assert status == "CapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n"
    tried = "import ctypes; libc = ctypes.CDLL(None, use_errno=True); print(libc.syscall({}, 0, 0), ctypes.get_errno())"
    for number in (308, 317, 446) if os.uname().machine == "x86_64" else (268, 277, 446):  # setns, seccomp, landlock
        said = command(c, "/usr/bin/python3", "-c", tried.format(number))["stdout"]
        assert said in ("-1 1\n", "-1 38\n"), (number, said)


def test_threads_of_libraries(warmth):
    """numpy's threads are made anew in the copy."""
    w = warmth('warm.preload=["numpy"]')
    c = w.warm().client
    code = "import numpy as np; a = np.ones((700, 700)); print((a @ a).sum(), 'numpy' in __import__('sys').modules)"
    assert c.run(code).text() == "343000000.0 True\n"
    assert c.run("import threading; t = threading.Thread(target=print, args=('there',)); t.start(); t.join()").ok


# ---- what fails is a cold start ----


def test_a_killed_zygote(warmth):
    """Its pid 1 stays as long as there are kernels that came from it."""
    w = warmth()
    living = w.warm()
    pid1 = psutil.Process(psutil.Process(w.pid).ppid())
    w.process.kill()
    await_true("its end", lambda: w.key not in zygotes())
    assert living.client.run("1 + 1").result == "2"
    after = w.kernel()
    assert w.was(after) == "cold" and after.client.run("1 + 1").result == "2"
    assert pid1.name() == "cellblock-keep" and pid1.is_running()
    living.stop()
    assert not kernels.wait_gone([pid1])


def test_the_end_of_its_pid_1(warmth):
    """As the end of a jail's own: the session is told, and goes on in a new jail."""
    w = warmth()
    c = w.warm().client
    assert c.run("x = 1").ok
    pid1 = psutil.Process(w.pid).parent()
    assert pid1.name() == "cellblock-keep"
    pid1.kill()
    await_true("the new jail", lambda: c.run("1 + 1").result == "2")
    assert w.kernel().client.run("1 + 1").result == "2"


def test_a_stopped_zygote(warmth):
    w = warmth()
    w.process.suspend()
    try:
        kernel = w.kernel()
        assert w.was(kernel) == "cold" and "a cold start" in kernel.said()
        assert kernel.client.run("1 + 1").result == "2"
    finally:
        w.process.resume()
    # what it finds in its socket belongs to a jail that is gone
    again = w.kernel()
    assert again.client.run("1 + 1").result == "2"


def limit(pid, what, soft=None):
    """Sets the soft limit of that process, to the hard one if it is not said, as its own user, who may."""
    status = status_of(f"/proc/{pid}")
    own = {"user": int(status["Uid"].split()[0]), "group": int(status["Gid"].split()[0]), "check": True}
    command = ["prlimit", f"--pid={pid}", "--noheadings", "--raw", "--output=HARD", f"--{what}"]
    hard = subprocess.run(command, **own, capture_output=True, text=True).stdout.strip()
    subprocess.run([*command[:2], f"--{what}={hard if soft is None else soft}:{hard}"], **own)


@pytest.mark.parametrize("what", ["as", "nproc"])
def test_a_zygote_that_gets_nothing_more(warmth, what):
    """No memory, no process: a start is cold, those that live go on, and the next ones are warm when there is some."""
    w = warmth(MALLOC_MMAP_THRESHOLD_="65536")  # what has been freed is of no use for a request
    living = w.warm()
    guest = w.guest(living)
    assert living.client.run("x = 1").ok
    size = int(status_of(f"/proc/{w.pid}")["VmSize"].split()[0]) << 10
    limit(w.pid, what, size if what == "as" else 0)
    kernel = w.kernel()
    assert w.was(kernel) == "cold" and "a cold start" in kernel.said()
    code = "import os, subprocess; len(bytearray(64 << 20)), subprocess.run(['true']).returncode"
    assert kernel.client.run(code).result == f"({64 << 20}, 0)"
    if w.key in zygotes():  # it may have ended, which is as good
        limit(w.pid, what)
    kernel.stop()
    for each in (w.await_zygote().warm(), living):
        assert each.client.run(code).result == f"({64 << 20}, 0)"
    assert living.client.run("x").result == "1" and w.guest(living) == guest


def test_what_was_loaded_has_changed(warmth, module):
    w = warmth()
    old = psutil.Process(w.pid)
    module("")
    kernel = w.kernel()
    assert w.was(kernel) == "cold" and kernel.client.run("1 + 1").result == "2"
    assert not kernels.wait_gone([old])  # the next one has the same key, and may be there already


def test_a_path_that_leads_to_the_interpreter_alone(warmth):
    """As of a project with its .venv in it: a jail without the project has an empty folder there."""
    prefix = Path(kernels.spec_argv()[0][0]).resolve().parent.parent
    assert warmth(PYTHONPATH=str(prefix.parent)).warm().client.run("1 + 1").result == "2"


@pytest.fixture
def packages(tmp_path):
    """A folder with a module, which cells see as another folder: (it, what has them see it so)."""
    folder = tmp_path / "packages"
    kernels.let_in(folder)
    (folder / "here.py").write_text("value = 1\n")
    return folder, "mounts=" + json.dumps([{"source": str(folder), "target": "/opt/cellblock-test"}])


def test_a_path_that_is_shown_elsewhere(warmth, packages):
    folder, mounts = packages
    w = warmth(mounts, PYTHONPATH="/opt/cellblock-test")
    assert w.warm().client.run("import here; here.value").result == "1"
    (folder / "another.py").write_text("value = 2\n")
    after = w.kernel()
    assert w.was(after) == "cold" and after.client.run("import another; another.value").result == "2"


def test_a_path_that_is_replaced_before_a_kernel_comes(warmth, packages):
    """As by `rm -rf .venv; uv sync`: that is a change like any other, and no reason to stay cold for a while."""
    folder, mounts = packages
    w = warmth(mounts, PYTHONPATH="/opt/cellblock-test")
    folder.rename(folder.with_name("old"))
    folder.mkdir()
    (folder / "here.py").write_text("value = 2\n")
    old = w.process
    after = w.kernel()
    assert w.was(after) == "cold" and after.client.run("import here; here.value").result == "2"
    assert not kernels.wait_gone([old]) and zygotes().get(w.key, {}).get("state") != "could not serve"
    after.stop()
    assert w.await_zygote().warm().client.run("import here; here.value").result == "2"


def test_a_module_that_leaves_a_process(start, module):
    """It would be beside the jails of all kernels: there is no zygote then."""
    name = module("import os, time\nif os.fork() == 0:\n    time.sleep(1000)\n    os._exit(0)\n")
    w = Warm(start, f'warm.preload=["{name}"]')
    w.kernel()
    why = f"{name} leaves a process running"
    await_true("its failure", lambda: w.has_failed(why))  # it does not live for long
    await_true("the end of all of it", lambda: w.keeper() is None)
    w.is_told(why)


def test_modules_that_leave_little_of_a_limit(warmth, module):
    """A kernel would begin with what they have taken, and a cell would have the rest."""
    w = warmth(f'warm.preload=["{module("held = bytearray(300 << 20)")}"]')
    assert w.warm().client.run("1 + 1").result == "2"
    w.sets.append("limits.memory=400M")
    kernel = w.kernel()
    assert w.was(kernel) == "cold" and "more than half of limits.memory (400 MB)" in kernel.said()
    assert kernel.client.run("len(bytearray(200 << 20))").result == str(200 << 20)


def test_a_module_that_hangs(start, module):
    name = module("import time\ntime.sleep(10000)")
    w = Warm(start, f'warm.preload=["{name}"]')
    w.kernel()
    keeper = await_true("a zygote", w.keeper)
    all_of_it = [keeper, *keeper.children(recursive=True)]
    caught = lambda: int(Path(f"/proc/{keeper.pid}/status").read_text().split("SigCgt:")[1].split()[0], 16)
    await_true("its readiness", lambda: caught() >> (signal.SIGALRM - 1) & 1)
    keeper.send_signal(signal.SIGALRM)  # the two minutes are over
    assert not kernels.wait_gone(all_of_it)
    w.is_told("it was not done within two minutes")


def test_one_that_is_ended_while_it_loads(start, module):
    name = module("import time\ntime.sleep(10000)")
    w = Warm(start, f'warm.preload=["{name}"]')
    w.kernel()
    keeper = await_true("a zygote", w.keeper)
    (loads,) = await_true("the one that loads", keeper.children)
    loads.kill()
    assert not kernels.wait_gone([keeper])
    w.is_told("it was ended while it loaded")


def test_what_is_ended_where_memory_is_short(warmth):
    """A zygote can be had again: it is not to outlive the session that has started it."""
    w = warmth()
    assert Path(f"/proc/{w.pid}/oom_score_adj").read_text() == "1000\n"


def test_a_module_that_can_not_be_preloaded(start, tmp_path):
    w = Warm(start, 'warm.preload=["socketserver_that_is_not_there"]').begin()
    try:
        assert w.warm().client.run("1 + 1").result == "2"
    finally:
        w.end()


def test_the_one_of_no_use_for_longest_makes_room(warmth):
    """Sixteen that live are as many as there may be; what stands in their place here holds their locks."""
    warmth()  # makes it
    with contextlib.ExitStack() as held:
        for _ in range(16):
            lock = held.enter_context(open(place() / f"{secrets.token_hex(20)}.lock", "w"))
            held.callback(os.unlink, lock.name)
            fcntl.flock(lock, fcntl.LOCK_EX)
        os.utime(lock.name, (1, 1))
        oldest = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        oldest.bind(lock.name[: -len(".lock")])
        held.callback(os.unlink, lock.name[: -len(".lock")])
        oldest.listen()
        assert warmth().warm().client.run("1 + 1").result == "2"
        oldest.settimeout(60)
        said = b""
        while not said:  # who only asked what it is gives up after a second
            said = held.enter_context(oldest.accept()[0]).recv(64)
        assert int.from_bytes(said[:4], sys.byteorder) == 2  # CB_WARM_END


def test_many_at_once(warmth):
    w = warmth()
    for _ in range(5):
        many = [w.kernel(ready=False) for _ in range(12)]
        clients = [w.start.client(kernel) for kernel in many]
        for number, c in enumerate(clients):
            c.ready()
            assert c.run(f"x = {number}; x").result == str(number)
        assert [c.run("x").result for c in clients] == [str(n) for n in range(12)]
        cold = [kernel for kernel in many if w.was(kernel) == "cold"]
        assert all("a cold start" in kernel.said() for kernel in cold)
        if len(cold) < 6:  # on a busy machine one may wait too long for its turn, and says so
            break
        for kernel in many:
            kernel.stop()
    assert len(cold) < 6


def test_starts_leave_nothing(monkeypatch, tmp_path):
    """A few of what tests/soak/starts.py makes ten thousand of."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "soak"))
    import starts

    run = starts.Starts(tmp_path)
    amiss = run.run(20)
    assert [each for each in amiss if "were cold" not in each] == [] and run.number == 21, amiss


def test_a_fault_within_each_start(monkeypatch, tmp_path):
    """A few of what tests/soak/starts.py makes with --faults."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "soak"))
    import starts

    run = starts.Starts(tmp_path)
    assert run.faults(2 * len(starts.FAULTS)) == [] and run.number == 12


def test_many_starts_at_once(monkeypatch, tmp_path):
    """A few of what tests/soak/starts.py makes with --at-once."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "soak"))
    import starts

    run = starts.Starts(tmp_path)
    assert run.at_once(6) == [] and run.number == 12
