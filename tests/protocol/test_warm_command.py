"""`cellblock warm`: what zygotes say of themselves, and their end. The zygotes are this test's: they keep to
include/cellblock/warm.h, or do not."""

import fcntl
import json
import os
import socket
import struct
import subprocess
import threading
import time

import pytest

import kernels
from rawclient import deadline_in

pytestmark = [pytest.mark.cellblock_only, pytest.mark.once]
CELLBLOCK = kernels.spec_argv()[0][0]
A, B, C, D = ("0123abcd" * 5, "1f" * 20, "2" * 40, "e" * 40)
END, TELL = 2, 3
RUN = []  # the runtime folder of each command
STAMP = b"1 2 3 4 5 /usr/bin/python3\n"
HELLO = struct.pack("=II", 1, len(STAMP)) + STAMP
TELLS = b"pid 7\nage 200\nmade 12\nliving 3\npreloaded numpy,pandas\npython /usr/bin/python3\nnew words here\n"


class Zygote:
    """Holds the lock and serves the socket as a zygote does, until it is told to end."""

    def __init__(self, folder, key, tells=TELLS, hello=HELLO, obeys=True):
        self.folder, self.key, self.tells, self.hello, self.obeys = folder, key, tells, hello, obeys
        self.lock = os.open(folder / f"{key}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.sock, self.held, self.heard, self.thread = None, [], [], None

    def bind(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        place = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        self.sock.bind(f"/proc/self/fd/{place}/{self.key}")
        os.close(place)
        return self

    def serve(self):
        self.sock.listen(8)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        return self

    def run(self):
        while True:
            try:
                connection, _ = self.sock.accept()
            except OSError:
                return
            with connection:
                try:
                    if self.hello:
                        connection.send(self.hello)
                    request = connection.recv(1000)
                    op, version, *rest = struct.unpack("=9I", request) if request else (0, 0)
                    self.heard.append((op, version, any(rest)))
                    if op == TELL and self.tells is not None:
                        connection.send(self.tells)
                    if op == END and self.obeys:
                        self.end()
                        return
                except OSError:
                    pass

    def end(self):
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1

    def close(self):
        self.end()
        for s in self.held + [self.sock]:
            if s:
                try:
                    s.shutdown(socket.SHUT_RDWR)  # ends accept()
                except OSError:
                    pass
                s.close()
        if self.thread:
            self.thread.join()


@pytest.fixture
def runtime(tmp_path):
    """A runtime folder whose path is longer than a socket's address may be."""
    folder = tmp_path / ("long" * 30)
    (folder / "cellblock/warm").mkdir(parents=True)
    for below in ("cellblock", "cellblock/warm"):
        (folder / below).chmod(0o700)
    return folder


@pytest.fixture
def zygote(runtime):
    made = []

    def make(*args, **kwargs):
        made.append(Zygote(runtime / "cellblock/warm", *args, **kwargs))
        return made[-1]

    yield make
    for z in made:
        z.close()


def command(runtime, *args):
    # the host's root looks in /run alone
    before = ["unshare", "--user", "--map-user=1000"] if os.geteuid() == 0 else []
    return [*before, CELLBLOCK, "warm", *args], {"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(runtime)}


def warm(runtime, *args):
    argv, env = command(runtime, *args)
    RUN.append(runtime)
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120)


def listed(runtime, *states):
    """What it tells; again until these are their states: on a busy machine the zygotes of this test answer too late."""
    end = deadline_in(None)
    while True:
        done = warm(runtime, "--json")
        assert (done.returncode, done.stderr) == (0, "")
        told = json.loads(done.stdout)["zygotes"]
        if not states or [z["state"] for z in told] == list(states) or time.monotonic() > end:
            return told


def shown(runtime, silent=0):
    """The lines of its table; again until no more than so many zygotes are said to be silent."""
    end = deadline_in(None)
    while True:
        rows = warm(runtime).stdout.rstrip("\n").split("\n")
        if sum("does not answer" in row for row in rows) <= silent or time.monotonic() > end:
            return rows


def stopped(runtime, make, silent=0):
    """Makes zygotes and stops them; again until no more than so many are said not to have ended."""
    for _ in range(5):
        here = make()
        done = warm(runtime, "--stop")
        if done.stderr.count("did not end") <= silent:
            break
        for z in here:
            z.close()
            for name in (z.key, f"{z.key}.lock"):
                (z.folder / name).unlink(missing_ok=True)
    return here, done


def left(runtime):
    return sorted(os.listdir(runtime / "cellblock/warm"))


def test_none(tmp_path, runtime):
    (runtime / f"cellblock/warm/{A}.lock").touch()  # of one that is gone
    for folder in (tmp_path, runtime):
        for words in ([], ["--list"], ["--stop"]):
            done = warm(folder, *words)
            assert (done.returncode, done.stdout) == (0, "")
            assert done.stderr == 'no zygote runs: the next kernel whose warm.mode is "auto" starts one\n'
        assert listed(folder) == []
        assert json.loads(warm(folder, "--stop", "--json").stdout) == {"ended": [], "not_ended": []}
    assert left(runtime) == []


def test_list(runtime, zygote):
    first = zygote(A).bind().serve()
    zygote(B, tells=b"age 5\nmade 0\nliving 0\npreloaded \nleft_out torch\npython /opt/py/bin/python").bind().serve()
    zygote(C).bind()
    zygote(D)
    (runtime / f"cellblock/warm/{'3' * 40}.lock").touch()
    (runtime / "cellblock/warm/notes.txt").touch()
    (runtime / "cellblock/warm" / ("g" * 40 + ".lock")).touch()
    told = listed(runtime, "ready", "ready", "starting", "starting")
    assert [z["key"] for z in told] == [A, B, C, D]
    assert [z["state"] for z in told] == ["ready", "ready", "starting", "starting"]
    assert told[0].pop("memory_bytes") > 1e6
    assert told[0] == {
        "key": A, "state": "ready", "pid": os.getpid(), "age_s": 200, "kernels": 3, "made": 12,
        "python": "/usr/bin/python3", "preloaded": ["numpy", "pandas"], "left_out": [], "why": None,
    }
    assert told[1]["left_out"] == ["torch"]
    assert (told[1]["preloaded"], told[1]["kernels"], told[1]["python"]) == ([], 0, "/opt/py/bin/python")
    assert told[2]["python"] is told[2]["age_s"] is told[2]["memory_bytes"] is None
    head, *rows = shown(runtime)
    assert head.split() == ["KEY", "PYTHON", "PRELOADED", "AGE", "MEMORY", "KERNELS", "MADE"]
    assert rows.pop(2).strip() == "can't import and has left out: torch"
    cells = [row.split() for row in rows]
    assert cells[0][:4] == [A[:8], "/usr/bin/python3", "numpy,pandas", "3m"] and cells[0][5:] == ["3", "12"]
    assert cells[1][:4] == [B[:8], "/opt/py/bin/python", "-", "5s"] and cells[1][5:] == ["0", "0"]
    assert cells[2:] == [[C[:8], "starting"], [D[:8], "starting"]]
    assert first.heard == [(TELL, 1, False)] * RUN.count(runtime)
    assert len(left(runtime)) == 10


def test_one_that_could_not_serve(runtime, zygote):
    """It says why for ten minutes, and is tried again after --stop."""
    folder = runtime / "cellblock/warm"
    (folder / f"{A}.lock").write_text("-loading: No module named 'x\x1b[2J'\nmore\n")
    (folder / f"{B}.lock").write_text("+")  # of one that has served
    (folder / f"{C}.lock").write_text("-loading: long ago\n")
    os.utime(folder / f"{C}.lock", (1, 1))
    zygote(D).bind().serve()
    told = listed(runtime, "could not serve", "ready")
    assert [(z["key"], z["state"], z["why"]) for z in told] == [
        (A, "could not serve", "loading: No module named 'x\\x1b[2J'"), (D, "ready", None)]
    rows = shown(runtime)[1:]
    assert rows[0] == f"{A[:8]}  could not serve: loading: No module named 'x\\x1b[2J'"
    assert rows[1].strip() == "`cellblock warm --stop` has the next kernel try again at once"
    done = warm(runtime, "--stop")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"{A[:8]} is tried again: the next kernel starts it", f"{D[:8]} has ended",
        "kernels that were copied from it live on"]
    assert left(runtime) == []


@pytest.mark.parametrize("tells", [
    b"\xff\x00\x1b[31m\n" * 500,
    b"age -1\nmade 1x\nliving 99999999999999999999\nmade \nage",
    b"x" * 100000,
    b"\n" * 5000,
    b"pid 1",
    None,
], ids=["bytes", "no numbers", "large", "empty lines", "nothing known", "silence"])
def test_garbage(runtime, zygote, tells):
    bad = zygote(A, tells=tells).bind()
    bad.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    bad.serve()
    zygote(B).bind().serve()
    told = listed(runtime, "does not answer", "ready")
    assert [z["state"] for z in told] == ["does not answer", "ready"]
    assert told[0]["pid"] == os.getpid() and told[0]["age_s"] is None
    rows = shown(runtime, silent=1)
    assert rows[1] == f"{A[:8]}  does not answer (process {os.getpid()})"
    assert "\x1b" not in "".join(rows)


@pytest.mark.parametrize("hello", [b"", b"abc", HELLO[:-1], struct.pack("=II", 1, 0xFFFFFFFF), HELLO + b"x" * 66000],
                         ids=["none", "short", "cut", "large", "longer"])
def test_garbage_at_first(runtime, zygote, hello):
    zygote(A, hello=hello).bind().serve()
    assert [z["state"] for z in listed(runtime)] == ["does not answer"]


def test_what_it_says_does_a_terminal_no_harm(runtime, zygote):
    zygote(A, tells=b"age 1\nmade\npreloaded a,\x1b[2J\xff\npython /p\x00\x07\xe2\x80\xae\n").bind().serve()
    said = "".join(shown(runtime))
    assert said.isascii() and said.isprintable()
    assert "a,\\x1b[2J\\xff" in said
    (told,) = listed(runtime, "ready")
    assert (told["age_s"], told["made"], told["kernels"]) == (1, None, None)
    assert told["python"].isprintable() and told["preloaded"][0] == "a"


def test_long_texts_are_cut(runtime, zygote):
    zygote(A, tells=b"age 1\npreloaded " + b"n" * 9000 + b"\npython /" + b"p" * 4000 + b"\n").bind().serve()
    (told,) = listed(runtime, "ready")
    assert told["state"] == "ready" and len(told["python"]) == 1023 and len(told["preloaded"][0]) == 8191


def test_one_that_does_not_accept(runtime, zygote):
    z = zygote(A).bind()
    z.sock.listen(0)
    while True:  # as many as it has room for
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.setblocking(False)
        z.held.append(s)
        place = os.open(z.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            s.connect(f"/proc/self/fd/{place}/{A}")
        except BlockingIOError:
            break
        finally:
            os.close(place)
    assert [z["state"] for z in listed(runtime)] == ["does not answer"]
    done = warm(runtime, "--stop")
    assert done.returncode == 1
    assert done.stderr == f"cellblock warm: {A[:8]} did not end in two seconds\n"


def test_stop(runtime, zygote):
    (runtime / f"cellblock/warm/{C}.lock").touch()
    (runtime / f"cellblock/warm/{C}").touch()
    (runtime / "cellblock/warm/notes.txt").touch()
    here, done = stopped(
        runtime, lambda: [zygote(A).bind().serve(), zygote(B, tells=b"", hello=b"").bind().serve()])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"{A[:8]} has ended", f"{B[:8]} has ended", "kernels that were copied from them live on"
    ]
    assert all(z.heard[-1] == (END, 1, False) for z in here)
    assert left(runtime) == ["notes.txt"]


def test_stop_says_which_did_not_end(runtime, zygote):
    _, done = stopped(runtime, lambda: [zygote(A, obeys=False).bind().serve(), zygote(B).bind().serve()], silent=1)
    assert done.returncode == 1
    assert done.stderr == f"cellblock warm: {A[:8]} did not end in two seconds; `kill {os.getpid()}` ends it\n"
    assert done.stdout.splitlines() == [f"{B[:8]} has ended", "kernels that were copied from it live on"]
    assert left(runtime) == [A, f"{A}.lock"]
    done = warm(runtime, "--stop", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (1, {"ended": [], "not_ended": [A]})


def test_stop_waits_for_one_that_starts(runtime, zygote):
    argv, env = command(runtime, "--stop", "--json")
    for _ in range(5):  # on a busy machine it may serve too late
        z = zygote(A).bind()
        with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as stop:
            z.serve()
            said = json.loads(stop.stdout.read())
        if not said["not_ended"]:
            break
        z.close()
        for name in (A, f"{A}.lock"):
            (z.folder / name).unlink(missing_ok=True)
    assert (stop.returncode, said) == (0, {"ended": [A], "not_ended": []})
    assert left(runtime) == []


def refused(runtime, folder, words):
    for args in ([], ["--stop"], ["--json"]):
        done = warm(runtime, *args)
        assert (done.returncode, done.stdout) == (1, "")
        cause, cure = done.stderr.splitlines()
        assert cause == f"cellblock warm: warm start: {folder}, where zygotes are found, {words}" and cure


def test_a_folder_that_is_not_ours_alone(runtime, zygote):
    folder = runtime / "cellblock/warm"
    zygote(A).bind().serve()
    folder.chmod(0o755)
    refused(runtime, folder, "can be entered by others")
    folder.chmod(0o700)
    folder.parent.chmod(0o722)
    refused(runtime, folder.parent, "can be written by others")
    folder.parent.chmod(0o700)
    assert [z["state"] for z in listed(runtime, "ready")] == ["ready"]
    folder.rename(runtime / "elsewhere")
    folder.symlink_to(runtime / "elsewhere")
    refused(runtime, folder, "is a symbolic link")
    folder.unlink()
    folder.touch()
    refused(runtime, folder, "is no folder")
    if os.geteuid() == 0:
        folder.unlink()
        (runtime / "elsewhere").rename(folder)
        os.chown(folder, 1, 1)
        refused(runtime, folder, "belongs to another user")


def test_words(runtime):
    done = warm(runtime, "--list", "--stop")
    assert done.returncode == 2 and "exclude each other" in done.stderr
    assert "--stop" in warm(runtime, "--help").stdout
