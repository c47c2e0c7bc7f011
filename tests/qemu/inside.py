"""The tests that run in the machine that tests/qemu/run boots, and its init: mounts, tests, end.

Results go to the second serial port, one JSON object a line. A test is a function whose name starts with `test_`; what
it raises is its failure.
"""

import ctypes
import json
import os
import subprocess
import sys
import time
import traceback
import types

LIBC = ctypes.CDLL(None, use_errno=True)
ROOT = BUILD = VENV = ""
USER = types.SimpleNamespace(pw_uid=1000, pw_gid=1000)


def run(*command, user=False, timeout=120):
    """A program's exit status and what it said; as the ordinary user if asked to."""
    who = {"user": 1000, "group": 1000, "extra_groups": []} if user else {}
    folder = "/workspaces/user" if user else "/workspaces/root"
    env = {**os.environ, "HOME": "/home/somebody" if user else "/root", "CELLBLOCK_BUILD": BUILD}
    done = subprocess.run(
        [str(c) for c in command],
        capture_output=True,
        text=True,
        timeout=timeout * float(os.environ.get("CELLBLOCK_TEST_SLOW", "1")),
        stdin=subprocess.DEVNULL,
        cwd=folder,
        env=env,
        **who,
    )
    return done.returncode, done.stdout, done.stderr


def cellblock(*args, before=(), **more):
    return run(*before, f"{VENV}/bin/cellblock", *args, **more)


def expect(got, wanted):
    assert got[: len(wanted)] == wanted, got


def level():
    return json.loads(cellblock("doctor", "--json")[1])["level"]


# ---- tests ----


def test_doctor():
    status, out, err = cellblock("doctor", "--json")
    told = json.loads(out)
    assert (status, told["jail"]) == (0, True), (out, err)
    results = {t["name"]: t["result"] for t in told["trials"]}
    assert results.pop("processes in /proc") == "not tried", "control groups count here"
    assert set(results.values()) == {"ok"}, results
    assert told["kernel"] == os.uname().release


def test_doctor_as_user():
    told = json.loads(cellblock("doctor", "--json", user=True)[1])
    assert told["level"] == "no-cgroup", told
    assert [t["name"] for t in told["trials"] if t["result"] == "refused"] == ["cgroups"], told


def test_run():
    for user in (False, True):
        got = cellblock("run", "--", "sh", "-c", "id -u; echo $$; echo hello > file; cat file", user=user)
        expect(got, (0, "1000\n2\nhello\n"))
        owner = os.stat("/workspaces/user/file" if user else "/workspaces/root/file").st_uid
        assert owner == (1000 if user else 0)


def test_landlock_is_the_wall_of_level_container():
    """Without namespaces; a file that everybody may read is out of reach by Landlock alone."""
    with open("/workspaces/secret", "w") as f:
        f.write("secret")
    os.chmod("/workspaces/secret", 0o644)
    like = (f"{BUILD}/tests/host-like", "docker")
    status, out, err = cellblock("run", "--", "true", before=like, user=True)
    assert status == 125 and 'isolation.minimum "container"' in err, err
    sets = ("run", "--set", "isolation.minimum=container", "--", "sh", "-c")
    for user in (False, True):
        script = "cat /usr/bin/env > /dev/null && echo read; echo x > /tmp/x; cat /workspaces/secret || echo refused"
        got = cellblock(*sets, script, before=like, user=user)
        expect(got, (0, "read\nrefused\n"))


def test_what_is_only_read_is_not_emptied():
    """Level container: Landlock of version 2 does not ask who empties a file that he has opened to read."""
    shown, other = "/workspaces/shown/f", "/workspaces/other"
    os.makedirs("/workspaces/shown")
    for path in (shown, other):
        with open(path, "w") as f:
            f.write("kept")
        os.chmod(path, 0o666)
    like = (f"{BUILD}/tests/host-like", "docker")
    sets = ("isolation.minimum=container", 'mounts=[{"source": "/workspaces/shown"}]')
    attack = f"import os\nprint(open({shown!r}).read())\n"
    attack += f"for path, mode in ({shown!r}, os.O_RDONLY), ({other!r}, 3):\n"
    attack += " try: os.open(path, mode | os.O_TRUNC); print('won')\n except OSError: print('refused')"
    words = ["run", *(word for each in sets for word in ("--set", each)), "--", "/usr/bin/python3", "-c", attack]
    for user in (False, True):
        expect(cellblock(*words, before=like, user=user), (0, "kept\nrefused\nrefused\n"))


def test_second_wall():
    """A write below a read-only place that the mounts would refuse too; and the jail's processes are under rules."""
    script = "echo x > /usr/x; echo x > /proc/sys/kernel/core_pattern; echo $?"
    status, out, err = cellblock("run", "--", "sh", "-c", script, user=True)
    assert (status, out) == (0, "2\n") or out.strip() in ("1", "2"), (status, out, err)
    out = cellblock("explain", "--json")[1]
    steps = {s["step"]: s["reason"] for s in json.loads(out)["jail"]["steps"]}
    assert "second wall" in steps["landlock"], steps["landlock"]


MEMORY = "a = []\ntry:\n while True: a.append(bytearray(1 << 22))\nexcept MemoryError:\n print('MemoryError')"
FORKS = """
import os, time
n = 0
try:
    while n < 500:
        if os.fork() == 0:
            time.sleep(1000)
        n += 1
except OSError as e:
    print(type(e).__name__)
"""


def test_bombs_in_a_run():
    for user in (False, True):
        sets = ("run", "--set", "limits.memory=200M", "--set", "limits.pids=40", "--", "/usr/bin/python3", "-c")
        status, out, err = cellblock(*sets, MEMORY, user=user)
        assert (status, out) == (0, "MemoryError\n") or status == 137, (status, out, err)
        got = cellblock(*sets, FORKS, user=user)
        expect(got, (0, "BlockingIOError\n"))


def kernel(folder, user, body, *args, venv=None):
    import kernels
    from rawclient import Client

    venv = venv or VENV
    argv = [f"{venv}/bin/cellblock", "kernel", "--python", f"{venv}/bin/python", *args, "-f", "{connection_file}"]
    k = kernels.Kernel(f"/workspaces/{folder}", argv=argv, user=USER if user else None)
    try:
        with Client(k) as client:
            client.ready(timeout=60)
            body(client)
    finally:
        k.stop()


def bombs(client):
    """State is kept or said to be lost; the next cell runs in any case."""
    cell = client.run("6*7", timeout=60)
    assert cell.result == "42", cell
    cell = client.run(MEMORY, timeout=60)
    assert cell.text() == "MemoryError\n" or cell.error, cell
    assert client.run("a = None; 'next'", timeout=60).result == "'next'"
    cell = client.run(FORKS, timeout=60)
    assert cell.text() == "BlockingIOError\n", cell
    assert client.run("1+1", timeout=60).result == "2"


def test_kernel_by_root():
    kernel("kr", False, bombs, "--set", "limits.memory=300M", "--set", "limits.pids=60")


def test_kernel_by_a_user():
    kernel("ku", True, bombs, "--set", "limits.memory=300M", "--set", "limits.pids=30")


def second(client):
    """A cell of a kernel whose Python may have come from a zygote; in its group, and with its limits."""
    assert client.run("x = [1]; x").result == "[1]"
    text = client.run("print(open('/proc/self/cgroup').read())").text()
    assert text.strip() in ("0::/", ""), text
    assert client.run("b = bytearray(600 << 20)").error["ename"] == "MemoryError"
    assert client.run("open('made', 'w').write('w'); x.append(2); x").result == "[1, 2]"


def warm(folder, user):
    """The first kernel is cold, and at its end a zygote is started; the next one is warm."""
    sets = ("warm.mode=auto", "limits.memory=300M")
    args = [word for each in sets for word in ("--set", each)]
    os.environ["CELLBLOCK_LOG"] = "info"
    try:
        kernel(f"{folder}1", user, second, *args)
        for _ in range(600):
            listed = json.loads(cellblock("warm", "--json", user=user)[1])["zygotes"]
            if any(each["state"] == "ready" for each in listed):
                break
            time.sleep(0.1)  # nobody tells of it
        kernel(f"{folder}2", user, second, *args)
    finally:
        del os.environ["CELLBLOCK_LOG"]
    with open(f"/workspaces/{folder}2/said") as f:
        said = f.read()
    assert ", warm, level" in said, said
    assert cellblock("warm", "--stop", user=user)[0] == 0


def test_a_warm_kernel_by_root():
    warm("wr", False)


def test_a_warm_kernel_by_a_user():
    warm("wu", True)


def transactions(client):
    """A crash and a bomb cost the cell; a cell that fits without the twin costs the twin, and the next has a new."""
    first = client.run("kept = [1]; same = kept", timeout=60)
    assert first.ok, first.content
    for failure, ename in ("import os; os._exit(3)", "KernelDiedError"), (BOMB, "CellMemoryError"):
        cell = client.run("kept.append(2)\n" + failure, timeout=120)
        assert cell.about["state"] == "restored" and cell.content["ename"] == ename, cell
        assert client.run("kept, kept is same", timeout=60).result == "([1], True)"
    assert client.run("big = bytearray(b'1') * (170 << 20)", timeout=60).ok
    cell = client.run(REWRITE, timeout=120)
    assert cell.ok and cell.about["given_up"] >= 1 and "memory is short" in cell.text("stderr"), cell
    cell = client.run("kept.clear(); import os; os._exit(1)", timeout=60)
    assert cell.about["state"] == "restored" and "given_up" not in cell.about, cell
    assert client.run("kept, len(big) >> 20", timeout=60).result == "([1], 170)"


# Shared memory, which no limit of a process's own holds.
BOMB = """
import mmap
memory, block = mmap.mmap(-1, 512 << 20), b"1" * (1 << 20)
for i in range(512): memory.write(block)
"""
# What the twin keeps of it has to go before the rest is written.
REWRITE = """
import os, time
def others(): return [p for p in os.listdir('/proc') if p.isdigit() and p not in ('1', str(os.getpid()))]
for i in range(0, len(big), 4096):
    big[i] = 2
    if i >> 20 > 80 and i % (1 << 20) == 0 and others(): time.sleep(0.3)  # who looks at memory is slow here
    while i >> 20 == 110 and others(): time.sleep(0.01)
"""


def test_transactions_in_control_groups_v2():
    sets = ("transactions.mode=always", "transactions.keep=0", "isolation.minimum=full", "limits.memory=300M")
    kernel("kt", False, transactions, *(word for each in sets for word in ("--set", each)))


def born_in_its_group(command, before=()):
    """A move into the group, which makes the kernel wait for all processors, is only what is left where that fails."""
    status, out, err = cellblock(*command, before=(*before, "env", "CELLBLOCK_LOG=debug"))
    assert (status, out) == (0, "in\n"), (status, out, err)
    assert "launch took" in err and "no birth" not in err, err


def test_level_full():
    """cgroup v2 as root: all limits of the whole jail."""
    assert level() == "full"
    sets = ("run", "--set", "isolation.minimum=full", "--set", "limits.memory=200M", "--set", "limits.pids=40", "--")
    born_in_its_group((*sets, "sh", "-c", "echo in"))
    # processes that each keep below their own limit: only the group's holds them
    many = (
        "import os\nfor i in range(8):\n if os.fork() == 0:\n  b = bytearray(100 << 20)\n  os.read(0, 1); os.pause()\n"
    )
    status, out, err = cellblock(*sets, "/usr/bin/python3", "-c", many + "while True:\n os.wait()", timeout=200)
    assert status != 0, (status, out, err)
    left = [d for d, _, _ in os.walk("/sys/fs/cgroup") if "cellblock-" in d]
    assert not left, left


def test_level_full_by_delegation():
    """An ordinary user in a control group that was given to him, as systemd does."""
    top = "/sys/fs/cgroup/delegated"
    os.makedirs(f"{top}/session")
    for group in ("/sys/fs/cgroup", top):
        with open(f"{group}/cgroup.subtree_control", "w") as f:
            f.write("+memory +pids +cpu")
    for name in ("", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"):
        os.chown(f"{top}/{name}", 1000, 1000)
        os.chown(f"{top}/session/{name}", 1000, 1000)
    enter = (
        "sh",
        "-c",
        f'echo $$ > {top}/session/cgroup.procs; exec setpriv --reuid=1000 --regid=1000 --clear-groups "$@"',
    )
    told = json.loads(cellblock("doctor", "--json", before=(*enter, "sh"))[1])
    assert told["level"] == "full", told
    sets = ("run", "--workspace", "/workspaces/user", "--set", "isolation.minimum=full", "--")
    born_in_its_group((*sets, "sh", "-c", "echo in"), before=(*enter, "sh"))


FILL = "import mmap\nprint('up', flush=True)\ninput()\nm = mmap.mmap(-1, 1 << 29)\n"
FILL += "for i in range(0, 1 << 29, 4096): m[i] = 1"


def test_whose_memory_was_short():
    """A kill at the limit of a group further up is counted in the jail's group as well."""
    top, short = "/sys/fs/cgroup/around", "killed by the host, which was short of memory"
    os.makedirs(f"{top}/inner")
    with open("/sys/fs/cgroup/cgroup.subtree_control", "w") as f:
        f.write("+memory +pids +cpu")
    enter = ("sh", "-c", f'echo $$ > {top}/inner/cgroup.procs; exec "$@"', "sh", f"{VENV}/bin/cellblock", "run")
    command = (*enter, "--set", "isolation.minimum=full", "--set", "limits.memory=200M", "--", "/usr/bin/python3", "-c")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    for room in (None, 64 << 20):
        with subprocess.Popen([*command, FILL], cwd="/workspaces/root", **pipes) as jailed:
            assert jailed.stdout.readline() == "up\n", jailed.stderr.read()
            if room is not None:
                with open(f"{top}/memory.current") as used, open(f"{top}/memory.max", "w") as limit:
                    limit.write(str(int(used.read()) + room))
            _, err = jailed.communicate("\n")
        assert jailed.returncode == 137, err
        assert (short in err, "limits.memory" in err) == (room is not None, room is None), err


def test_broker():
    names = "test_process_outside test_namespaces_are_its_own test_every_way_to_end test_broker_killed".split()
    names = [f"{kind}.{n}" for kind in ("AsMyself", "AsAnOrdinaryUser") for n in names]
    status, out, err = run(sys.executable, "-B", f"{ROOT}/tests/jail/test_broker.py", *names, timeout=200)
    assert status == 0, (out + err)[-4000:]


# ---- init ----


class Skipped(Exception):
    pass


def mount(source, target, kind, options=""):
    os.makedirs(target, exist_ok=True)
    if LIBC.mount(source.encode(), target.encode(), kind.encode(), 0, options.encode()) < 0:
        raise OSError(ctypes.get_errno(), f"mount {kind} on {target}: {os.strerror(ctypes.get_errno())}")


def prepare():
    mount("dev", "/dev", "devtmpfs")
    console = os.open("/dev/console", os.O_RDWR | os.O_NOCTTY)
    for fd in (0, 1, 2):
        os.dup2(console, fd)
    mount("proc", "/proc", "proc")
    mount("sys", "/sys", "sysfs")
    mount("devpts", "/dev/pts", "devpts")
    mount("shm", "/dev/shm", "tmpfs", "mode=1777")
    mount("run", "/run", "tmpfs", "mode=755")
    mount("cgroup2", "/sys/fs/cgroup", "cgroup2")
    if not ROOT.startswith("/tmp/"):
        mount("tmp", "/tmp", "tmpfs", "mode=1777")
    for name, uid in (("/workspaces/user", 1000), ("/workspaces/root", 0), ("/home/somebody", 1000)):
        os.makedirs(name, exist_ok=True)
        os.chown(name, uid, uid)
    os.environ.update(PATH=f"{VENV}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin", HOME="/root", LANG="C.UTF-8")
    sys.path.insert(0, f"{ROOT}/tests/lib")
    # loopback: Jupyter's sockets are there
    import fcntl
    import socket
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, 0x8914, struct.pack("16sH14x", b"lo", 0x1 | 0x40))


def run_test(name, test, out):
    start, result, text = time.monotonic(), "passed", ""
    try:
        text = test() or ""
    except Skipped as e:
        result, text = "skipped", str(e)
    except Exception:
        result, text = "failed", traceback.format_exc()[-4000:]
    told = {"name": name, "seconds": time.monotonic() - start, "result": result, "text": text}
    print(json.dumps(told), file=out, flush=True)


def main(root, build, venv, tests):
    global ROOT, BUILD, VENV
    ROOT, BUILD, VENV = root, build, venv
    try:
        prepare()
        getattr(tests, "before", lambda: None)()
        with open(os.environ["RESULTS"], "w") as out:
            for name, test in list(vars(tests).items()):
                if name.startswith("test_") and (not sys.argv[1:] or name in sys.argv[1:]):
                    run_test(name, test, out)
            print(json.dumps({"name": "end", "seconds": 0, "result": "passed"}), file=out, flush=True)
    except Exception:
        traceback.print_exc()
    os.sync()
    time.sleep(0.2)  # for the serial port to be written
    LIBC.reboot(0x4321FEDC)
