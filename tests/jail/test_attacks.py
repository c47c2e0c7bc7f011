"""Each attack is refused in a cell, harms neither the next cell nor the host, and wins outside: else it proves
nothing."""

import ast
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

import kernels
from attacks import ATTACKS, FOREIGN, PRELUDE
from rawclient import Client
from warmth import LOG, Warm

pytestmark = pytest.mark.cellblock_only
ROOT = os.geteuid() == 0
PLAIN_PYTHON = "/usr/bin/python3"
PATIENCE = 150  # s


class Outside:
    """What an attacker would like to reach: files, sockets, processes, and things in the workspace that the host runs
    later."""

    def __init__(self, folder, user):
        self.folder, self.user = folder, user
        self.workspace = folder / "work"
        (self.workspace / "sub").mkdir(parents=True)
        subprocess.run([PLAIN_PYTHON, "-m", "venv", "--without-pip", self.workspace / "sub/venv"], check=True)
        subprocess.run(["git", "init", "-q", self.workspace], check=True)
        (self.workspace / ".git/hooks").mkdir(exist_ok=True)
        (self.workspace / ".envrc").write_text("export A=1\n")
        if ROOT:
            shutil.copy("/usr/bin/id", self.workspace / "other-id")
        secret = folder / "secret-of-the-host.txt"
        secret.write_text("the secret")
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(str(folder / "sock"))
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind(f"\0cellblock-test-{os.getpid()}-{id(self)}")
        for s in (self.unix, self.abstract):
            s.listen(50)
        threading.Thread(target=self.greet, daemon=True).start()
        os.chmod(folder / "sock", 0o777)
        if user:
            for d, names, files in os.walk(folder):
                for n in [d, *(os.path.join(d, x) for x in names + files)]:
                    os.chown(n, user.pw_uid, user.pw_gid, follow_symlinks=False)
        if ROOT:
            os.chown(self.workspace / "other-id", 12345, 12345)
            (self.workspace / "other-id").chmod(0o4755)
        kernels.let_in(folder)
        homes = [d for d in os.listdir("/home")]
        self.facts = {
            "secret": str(secret),
            "secret_name": secret.name,
            "secret_text": "the secret",
            "pid": os.getpid(),
            "uid": os.getuid(),
            "hostname": socket.gethostname(),
            "homes": homes,
            "port": self.tcp.getsockname()[1],
            "abstract": self.abstract.getsockname().decode()
            if isinstance(self.abstract.getsockname(), bytes)
            else self.abstract.getsockname(),
            "socket_path": str(folder / "sock"),
            "workspace": str(self.workspace),
            "venv_site": str(next((self.workspace / "sub/venv/lib").glob("python*")) / "site-packages"),
            "connection_file": "",
        }

    def greet(self):
        while True:
            try:
                s, _ = self.tcp.accept()
                s.sendall(b"hi")
                s.close()
            except OSError:
                return

    def close(self):
        for s in (self.tcp, self.unix, self.abstract):
            s.close()


def source(name, outside, prefix="/nowhere"):
    where, code = ATTACKS[name]
    return PRELUDE + f"HOST = {outside.facts!r}\nPREFIX = {prefix!r}\n" + code + "\n"


class Jailed:
    def __init__(self, folder, user, twins=True, warm=False):
        self.outside = Outside(folder, user)
        self.argv = kernels.system_argv(*([] if twins else ["transactions.mode=off"]))
        self.folder, self.user, self.count = folder, user, 0
        self.zygote, self.clients = None, []
        if warm:
            self.zygote = Warm(self.start).begin()
            self.kernel = self.zygote.warm()
        else:
            self.kernel = self.start()
        self.client = self.kernel.client

    def start(self, args=(), env=None, ready=True):
        self.count += 1
        place = self.folder / f"k{self.count}"
        place.mkdir()
        if self.user:
            os.chown(place, self.user.pw_uid, self.user.pw_gid)
        env = {"CELLBLOCK_CANARY": "sing", **(env or {})}
        kernel = kernels.Kernel(
            place, argv=[*self.argv, *args], workspace=self.outside.workspace, user=self.user, env=env
        )
        self.outside.facts["connection_file"] = str(kernel.file)
        kernel.client = Client(kernel)
        self.clients.append(kernel.client)
        kernel.client.ready()
        return kernel

    def end(self):
        for client in self.clients:
            client.close()
        self.kernel.stop()
        if self.zygote:
            self.zygote.end()
        self.outside.close()

    def run(self, code):
        return self.client.run(code, timeout=PATIENCE)


@pytest.fixture(scope="module", params=["root", "user", "warm"] if ROOT else ["user", "warm"])
def jailed(request, nothing_left):
    warm = request.param == "warm"
    if warm:
        request.getfixturevalue("no_zygotes_left")
    user = request.getfixturevalue("ordinary_user") if ROOT and request.param == "user" else None
    folder = nothing_left / request.param
    folder.mkdir()
    j = Jailed(folder, user, getattr(request.module, "TWINS", True), warm)
    yield j
    j.end()


def test_only_the_listed_fds(jailed):
    """The first of all: attacks leave theirs open."""
    fds = ast.literal_eval(jailed.run("import os\nsorted(int(f) for f in os.listdir('/proc/self/fd'))").result)
    links = jailed.run("{f: os.readlink(f'/proc/self/fd/{f}') for f in range(5)}").result
    assert set(range(5)) <= set(fds) and "/dev/null" in links
    for f in [f for f in fds if f > 4]:
        target = jailed.run(f"os.path.exists('/proc/self/fd/{f}') and os.readlink('/proc/self/fd/{f}')").result
        assert target == "False" or any(w in target for w in ("pipe:", "socket:", "anon_inode:", "/proc/")), (
            f"{f}: {target}"
        )


@pytest.mark.parametrize("name", ATTACKS)
def test_refused_inside(jailed, name):
    if ATTACKS[name][0] == "plain_prefix":
        prefix = "/usr/lib/python3"
    else:
        prefix = "/nowhere"
    jailed.run("kept = 'kept'")
    cell = jailed.run(source(name, jailed.outside, prefix) + "print('WON' if won else 'refused', why)")
    said = cell.text()
    after = jailed.run("globals().get('kept'), 6*7").result
    if cell.ok:
        assert said.startswith("refused"), f"the attack won: {said}"
        assert after == "('kept', 42)"
    else:
        assert cell.content["ename"] in ("KernelDiedError", "PermissionError", "OSError", "FileNotFoundError"), cell
        assert after in ("('kept', 42)", "(None, 42)"), "the next cell"
    assert not (Path(jailed.outside.facts["secret"]).parent / "planted").exists()
    assert not os.path.exists("/usr/cellblock-planted")


WRAP = {
    "plain": [],
    "root": [],
    "root_dry": [],
    "userns": ["unshare", "-Ur"],
    "userns_mount": ["unshare", "-Urm"],
    "userns_mount_own": ["unshare", "-Urm", "sh", "-c", 'mount -t tmpfs none /mnt && exec "$@"', "sh"],
    "userns_uts": ["unshare", "-Uru"],
    "pidns": ["unshare", "-Urpf", "--mount-proc"],
    "root_mountns": ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /usr/local && exec "$@"', "sh"],
    "plain_prefix": [],
    "victim": ["sh", "-c", '"$@"; :', "sh"],
}


@pytest.fixture(scope="module")
def free(nothing_left):
    folder = nothing_left / "free"
    folder.mkdir()
    user = None
    outside = Outside(folder, user)
    outside.facts["connection_file"] = str(folder / "connection.json")
    (folder / "connection.json").write_text('{"key": "x"}')
    yield outside
    outside.close()


# Why an attack can't be proven on some hosts: what it wants is refused there to everybody.
ABSENT_HERE = {
    "io_uring": "kernel.io_uring_disabled",
    "AF_ALG": "no such module",
    "AF_VSOCK": "no such module",
    "family with high bits": "no AF_ALG module",
    "keyctl": "container",
    "add_key": "container",
    "userfaultfd": "config",
    "perf_event_open": "no counters",
    "load a module": "no modules",
    "a more precious place for the OOM killer": "root without CAP_SYS_RESOURCE",
    "write sysrq-trigger": "no sysrq in this kernel",
    "read kcore": "no kcore in this kernel",
    "kexec": "lockdown or no kexec",
    "see the host's network interfaces": "no interfaces",
    "fchmodat2 set-uid": "Linux < 6.6",
    "list /home": "empty",
    "read the machine id": "none",
    "see the host's cgroup": "the root one",
    "list cgroups in /sys": "none",
    "read the kernel's symbols": "not in this kernel",
    "read who has keys": "no keys in this kernel",
    "read the kernel's timers": "not in this kernel",
    "list all mounts by listmount": "Linux < 6.8",
    "see what is cached by cachestat": "Linux < 6.5",
    "see what is cached by a read that does not wait": "this file system",
    "watch whole mounts": "not in this kernel",
    "be told of changes by a signal": "not in this kernel",
    "trace pid 1": "Yama",
    "run pid 1 only when all is idle": "rights over other processes",
    "write modprobe's path": "no modules",
    "write uevent_helper": "not in this kernel",
    "be told of pressure": "Linux < 6.4, or not in this kernel",
    "write a cgroup's release_agent": "no cgroups of version 1",
    "swapon": "not in this kernel",
    "acct": "not in this kernel",
    "switch the time stamp counter": "x86 alone",
    "iopl": "not in this kernel",
    "ioperm": "not in this kernel",
    "modify_ldt": "not in this kernel",
    "kcmp": "not in this kernel",
    "move_pages": "not in this kernel",
    "request_key": "container",
    "userfaultfd by its device": "not in this kernel",
    "memfd_secret": "not switched on",
    "SysV shared memory": "not in this kernel",
    "SysV semaphores": "not in this kernel",
    "a SysV queue": "not in this kernel",
    "a POSIX queue": "not in this kernel",
    "a ping socket": "net.ipv4.ping_group_range",
    "an MPTCP socket": "not in this kernel",
    "ESP in UDP": "not in this kernel",
    "a program on a socket": "rights in this kernel",
    "an upper layer on TCP": "no such module",
    "old options for packets": "no IPv6, or net.core.optmem_max",
    "many sources of a group": "no IPv6",
    "a source of a group that is not heard": "no IPv6",
    "a source of a group that is heard": "no IPv6",
    "keys of a TCP socket": "not in this kernel",
    "keys of a TCP socket for networks": "not in this kernel",
    "a route to the metadata service": "no route",
    "a route to a name server": "no route",
    "an extended attribute": "this file system",
    "capabilities of a file": "this file system",
    "flags of a file": "this file system",
    "a delegation of a folder": "Linux < 6.19",
    "deadline scheduling": "not in this kernel",
}


@pytest.mark.parametrize("name", ATTACKS)
def test_wins_outside(free, name, tmp_path):
    where, code = ATTACKS[name]
    if where.startswith("root") and not ROOT:
        pytest.skip("is proven by root only")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    text = source(name, free, str(scratch)) + "print('WON' if won else 'refused', why, flush=True)"
    if where == "root_mountns":
        text = text.replace("/usr/cellblock-planted", "/usr/local/cellblock-planted")
    (scratch / "attack.py").write_text(text)
    env = {"PATH": os.environ["PATH"], "CELLBLOCK_CANARY": "sing"}
    done = subprocess.run(
        [*WRAP[where], PLAIN_PYTHON, str(scratch / "attack.py")],
        cwd=free.workspace,
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    for planted in (*free.workspace.glob("s[ug]*"), *free.workspace.glob("dev"), *free.workspace.glob("pr")):
        if planted.name != "sub":
            shutil.rmtree(planted) if planted.is_dir() else planted.unlink()
    (free.folder / "planted").unlink(missing_ok=True)
    if not done.stdout.startswith("WON") and name in ABSENT_HERE:
        pytest.skip(f"does not count on this host ({ABSENT_HERE[name]}): {done.stdout} {done.stderr[-200:]}")
    assert done.stdout.startswith("WON"), (
        f"does not win outside either, so it proves nothing: {done.stdout} {done.stderr[-500:]}"
    )


def test_enough_attacks():
    assert len(ATTACKS) >= 25


@pytest.mark.parametrize("which", ["i386", "x32", "arm"])
def test_foreign_call_tables_kill(jailed, which, tmp_path):
    """Compiled outside, run in both places."""
    if (which == "arm") != (os.uname().machine == "aarch64"):
        pytest.skip(f"{which} is no call table of this machine")
    if which == "arm":
        the_table_of_32_bits_kills(jailed)
        return
    (tmp_path / "f.c").write_text(FOREIGN)
    program = jailed.outside.workspace / "foreign"
    subprocess.run(["cc", "-o", program, tmp_path / "f.c"], check=True)
    program.chmod(0o755)
    argv = ["./foreign"] + (["x"] if which == "x32" else [])
    plain = subprocess.run([str(program), *argv[1:]], capture_output=True, text=True)
    cell = jailed.run(f"import subprocess\nr = subprocess.run({argv!r}, capture_output=True)\nr.returncode, r.stdout")
    code, out = ast.literal_eval(cell.result)
    assert code == -31 and out == b"", f"not killed by SIGSYS: {cell.result}"
    if which == "i386" and plain.returncode == 0:
        assert int(plain.stdout) > 0
    assert jailed.run("6*7").result == "42"


def the_table_of_32_bits_kills(jailed):
    """On aarch64: a program that asks for its number and exits with 7; there is no compiler for it."""
    code = struct.pack("<5I", 0xE3A07014, 0xEF000000, 0xE3A00007, 0xE3A07001, 0xEF000000)
    head = b"\x7fELF\1\1\1" + bytes(9)
    head += struct.pack("<HHIIIIIHHHHHH", 2, 40, 1, 0x10054, 52, 0, 5 << 24, 52, 32, 1, 0, 0, 0)
    size = 84 + len(code)
    program = jailed.outside.workspace / "foreign"
    program.write_bytes(head + struct.pack("<8I", 1, 0, 0x10000, 0x10000, size, size, 5, 4096) + code)
    program.chmod(0o755)
    try:
        assert subprocess.run([program]).returncode == 7
    except OSError as e:
        pytest.skip(f"this processor or kernel runs no programs of 32 bits: {e}")
    cell = jailed.run("import subprocess\nsubprocess.run(['./foreign']).returncode")
    assert cell.result == "-31", f"not killed by SIGSYS: {cell}"
    assert jailed.run("6*7").result == "42"


def test_forged_frames_on_fd_3(jailed):
    """The wire is in the user's reach: what is forged on it ends that guest, and is believed by nobody."""
    reply = json.dumps({"status": "ok", "payload": [], "user_expressions": {}}).encode()
    frames = {
        "a reply of its own": struct.pack("<IIIIQII", 21, len(reply), 0, 0, 10**9, 0, 0) + reply,
        "text of a cell to come": struct.pack("<IIIIQII", 3, 4, 0, 0, 10**9, 0, 1) + b"fake",
        "half a frame": struct.pack("<IIIIQII", 3, 40, 0, 0, 1, 0, 1),  # what comes next is torn
        "noise": os.urandom(500),
        "JSON lines": b'{"msg_type": "status", "content": {"execution_state": "idle"}}\n',
    }
    for what, data in frames.items():
        cell = jailed.run(f"import os\nos.write(3, {data!r})\n'after'")
        assert cell.types[0] == cell.types[-1] == "status" and cell.reply.type == "execute_reply", what
        assert "fake" not in cell.text()
        for _ in range(2):
            cell = jailed.run("6*7")
            if cell.result == "42":
                break
        assert cell.result == "42", what


STATUS = """
import os
d = dict(l.split(':', 1) for l in open('/proc/self/status').read().splitlines())
{k: d[k].strip() for k in ('Seccomp', 'NoNewPrivs', 'CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'Groups')}
"""
NONE = "0" * 16


def test_status_inside(jailed):
    d = ast.literal_eval(jailed.run(STATUS).result)
    assert d["Seccomp"] == "2" and d["NoNewPrivs"] == "1"
    assert [d[c] for c in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")] == [NONE] * 5


def is_guest(p):
    try:
        return p.status() != "zombie" and "boot.py" in " ".join(p.cmdline())
    except psutil.NoSuchProcess:  # a copy that has gone
        return False


def test_namespaces_and_uid(jailed):
    cell = jailed.run("import os\n{n: os.readlink('/proc/self/ns/' + n) for n in os.listdir('/proc/self/ns')}")
    inside = ast.literal_eval(cell.result)
    for n in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
        assert inside[n] != os.readlink(f"/proc/self/ns/{n}"), n
    guests = []
    for p in jailed.kernel.family():
        try:
            if is_guest(p):
                guests.append(set(p.uids()))
        except psutil.NoSuchProcess:  # a copy that has gone
            pass
    assert guests
    for uids in guests:
        assert 0 not in uids
        assert 65534 not in uids or jailed.user.pw_uid == 65534, "an account that others share"
        if ROOT and jailed.user is None:
            import pwd

            for uid in uids:
                with pytest.raises(KeyError):
                    pwd.getpwuid(uid)


def test_every_thread_of_the_supervisor(jailed):
    tasks = list(Path(f"/proc/{jailed.kernel.pid}/task").iterdir())
    assert len(tasks) > 1
    for t in tasks:
        d = dict(line.split(":\t", 1) for line in (t / "status").read_text().splitlines())
        assert d["Seccomp"] == "2" and d["NoNewPrivs"] == "1", t
        # An ordinary user has no right to empty its bounding set; no_new_privs makes that harmless.
        sets = ["CapInh", "CapPrm", "CapEff", "CapAmb"] + (["CapBnd"] if ROOT and jailed.user is None else [])
        assert [d[c].strip() for c in sets] == [NONE] * len(sets)
        if ROOT:
            assert "0" not in d["Uid"].split()


# What of the host's root is shown where the host has it.
SHOWN = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "nix/store", "gnu/store")


def test_the_root_is_minimal(jailed):
    top = set(ast.literal_eval(jailed.run("import os\nos.listdir('/')").result))
    own = jailed.outside.workspace.parts  # is shown at its own path
    shown = {n.split("/")[0] for n in SHOWN if os.path.exists("/" + n)}
    assert top == {"dev", "etc", "home", "mnt", "opt", "proc", "run", "sys", "tmp", "var"} | shown | {own[1]}
    there = set(ast.literal_eval(jailed.run("os.listdir('/tmp')").result))
    assert there == ({own[2]} if own[1] == "tmp" else set())
    assert jailed.run(f"[d for d in ('mnt', 'opt') if d != {own[1]!r} and os.listdir('/' + d)]").result == "[]"
    users = jailed.run("[l.split(':')[0] for l in open('/etc/passwd')]").result
    assert not {u for u in os.listdir("/home")} & set(ast.literal_eval(users))


def test_a_fork_bomb_ends_at_the_limit(jailed, nothing_left):
    place = nothing_left / f"bomb-{jailed.folder.name}"
    place.mkdir()
    if jailed.user:
        os.chown(place, jailed.user.pw_uid, jailed.user.pw_gid)
        kernels.let_in(place.parent)
    sets = [*(jailed.zygote.sets if jailed.zygote else ()), "limits.pids=50"]
    k = kernels.Kernel(
        place / "k" if not jailed.user else place, argv=jailed.argv, user=jailed.user, env=LOG,
        args=[word for each in sets for word in ("--set", each)]
    )
    try:
        with Client(k) as c:
            c.ready()
            cell = c.run(
                "import os, time\nkids = []\ntry:\n    while True:\n        p = os.fork()\n        if p == 0:\n"
                "            time.sleep(600)\n        kids.append(p)\n"
                "except OSError as e: print(type(e).__name__, len(kids))\nfor p in kids: os.kill(p, 9)\n"
                "for p in kids: os.waitpid(p, 0)"
            )
            name, count = cell.text().split()
            assert name == "BlockingIOError" and int(count) < 50
            assert c.run("6*7").result == "42"
            if jailed.zygote and "ETIMEDOUT" not in k.said():  # else it had no turn within three seconds
                assert Warm.was(k) == "warm"
    finally:
        k.stop()
