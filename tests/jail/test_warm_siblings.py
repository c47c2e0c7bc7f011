"""What a kernel that came from a zygote can learn of its siblings, of the zygote and of the host: nothing but what
docs/warm.md names."""

import contextlib
import ctypes
import itertools
import json
import os
import secrets
import select
import socket
from pathlib import Path

import pytest

import kernels
import markers
from warmth import place, places

pytestmark = [pytest.mark.cellblock_only, pytest.mark.usefixtures("no_zygotes_left")]

SYS_KCMP = {"x86_64": 312, "aarch64": 272}[os.uname().machine]


# ---- random numbers ----


def test_siblings_differ(warmth):
    w = warmth()
    code = """
import random, uuid, tempfile, os, secrets
def ssl_bytes():
    import ssl
    return ssl.RAND_bytes(8).hex()
print([random.random(), str(uuid.uuid4()), tempfile.mktemp(), secrets.token_hex(8), ssl_bytes(), os.urandom(8).hex()])
"""
    said = [eval(w.warm().client.run(code).text()) for _ in range(3)]
    for each in zip(*said):
        assert len(set(each)) == 3, each


# A module that has used both of OpenSSL's generators at its import, and what they give: of a ClientHello the random
# bytes, the session's number and the public key for x25519.
TLS = r"""
import os, ssl
def randoms():
    out = ssl.MemoryBIO()
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(ssl.MemoryBIO(), out, server_hostname="here").do_handshake()
    except ssl.SSLWantReadError:
        pass
    hello = out.read()
    key = hello.partition(b"\0\x1d\0\x20")[2][:32]
    assert hello[0] == 22 and hello[5] == 1 and hello[43] == 32 == len(key)
    return [ssl.RAND_bytes(16), hello[11:43], hello[44:76], key]
first = [os.getpid(), *randoms()]
"""


def test_siblings_that_had_used_openssl_differ(warmth, module):
    """OpenSSL tells a copy by its process's number, and theirs is the same."""
    name = module(TLS)
    w = warmth(f'warm.preload=["{name}"]')
    code = f"import os, {name} as m; print([m.first, [os.getpid(), *m.randoms()]])"
    said = [eval(w.warm().client.run(code).text()) for _ in range(3)]
    assert said[0][0] == said[1][0] == said[2][0]  # the module was the zygote's
    pids, *randoms = zip(said[0][0], *(later for _, later in said))
    assert len(set(pids[1:])) == 1, pids
    for each in randoms:
        assert len(set(each)) == 4, each


# ---- memory, names, the environment ----

# Which marks are in memory and files of a process's own folder in /proc; the pattern is none itself.
FIND_MARKS = r"""
import mmap, os, re
mark = re.compile(rb"cbmark-[0-9a-f]{32}")
held = mmap.mmap(-1, 1 << 20)  # nothing is read over what is looked for
there = {"memory": set(), "environment": set(mark.findall(repr(dict(os.environ)).encode()))}
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", buffering=0) as memory:
    for line in maps:
        span, rights = line.split()[:2]
        begin, end = (int(n, 16) for n in span.split("-"))
        for at in range(begin, end if rights[0] == "r" and "[v" not in line else begin, len(held) - 64):
            memory.seek(at)
            try:
                n = memory.readinto(memoryview(held)[: end - at])
            except OSError:  # a file's map beyond its end
                continue
            there["memory"].update(m[0] for m in mark.finditer(held, 0, n))
for pid in ("self", "1"):
    for name in os.listdir("/proc/self"):
        try:
            with open(f"/proc/{pid}/{name}", "rb") as f:
                there[f"{pid}/{name}"] = set(mark.findall(f.read(1 << 20) if name not in ("mem", "pagemap") else b""))
        except OSError:
            pass
print({where: sorted(m.decode() for m in found) for where, found in there.items() if found or where == "self/environ"})
"""


def test_no_sibling_is_named_to_another(start, warmth):
    """Neither in memory, where its request was in the zygote's, nor in the environment or the mounts."""
    marks = []

    def begin(env, **how):
        marks.append([f"cbmark-{secrets.token_hex(16)}" for _ in range(2)])
        work, session = marks[-1]
        # longer than what the last one's request is written over
        more = {"JPY_SESSION_NAME": session * (500 if len(marks) < 4 else 1)}
        folder = start.folder / f"w{len(marks)}" / work
        folder.mkdir(parents=True)
        return start(env={**env, **more}, workspace=folder, **how)

    # as where large things have been freed: requests are received where others were
    heap = {f"MALLOC_{name}_THRESHOLD_": str(8 << 20) for name in ("MMAP", "TRIM")}
    w = warmth(by=begin, **heap)
    one, two = w.warm(), w.warm()
    assert one.client.run("import os\nheld = os.environ['JPY_SESSION_NAME'] + os.getcwd()").ok
    two.stop()
    last = w.warm()
    found = eval(last.client.run(FIND_MARKS).text())
    own = sorted(marks[-1])
    assert found["memory"] == own and found["environment"] == marks[-1][1:], (found, marks)
    assert found["self/environ"] == [] and found["self/mountinfo"], found  # the former is the zygote's
    assert all(set(each) <= set(own) for each in found.values()), (found, marks)


# ---- descriptors ----


def open_files(pid):
    found = {}
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it is closed by now: a twin was just made
            found[int(each.name)] = os.readlink(each)
    return found


def is_same(one, two):
    """Whether these (process, descriptor) are one open file."""
    return ctypes.CDLL(None).syscall(SYS_KCMP, one[0], two[0], 0, one[1], two[1]) == 0


def test_siblings_share_no_open_file(warmth):
    """Seen from outside: no socket, no end of a pipe, nor another file that was opened once for both."""
    w = warmth()
    one, two = w.warm(), w.warm()
    seen = {pid: open_files(pid) for pid in (w.pid, w.guest(one), w.guest(two))}
    for files in seen.values():
        assert any(to.startswith("socket:") for to in files.values()), seen
    with open(os.devnull) as null:
        copy, me = os.dup(null.fileno()), os.getpid()
        compares = is_same((me, null.fileno()), (me, copy))  # a system may have no such call
        os.close(copy)
    for (a, files), (b, others) in itertools.combinations(seen.items(), 2):
        both = set(files.values()) & set(others.values())
        assert not [to for to in both if to.startswith(("socket:", "pipe:"))], seen
        if compares:
            same = [(m, n) for m in files for n in others if is_same((a, m), (b, n))]
            assert not same, (same, seen)


# ---- places where they could meet ----


def test_siblings_do_not_meet(warmth):
    """Neither sees, signals or reaches the other, the zygote or its socket; nothing of theirs is mapped or open."""
    w = warmth()
    one, two = w.warm(), w.warm()
    for kernel in (one, two):
        c = kernel.client
        seen = c.run("import os; print(max(int(n) for n in os.listdir('/proc') if n.isdigit()))").text()
        assert int(seen) < 100
        fds = c.run("print([os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd')][3:])").text()
        assert "warm" not in fds and "uids" not in fds
        for number in (w.pid, one.pid, two.pid):
            assert c.run(f"os.kill({number}, 0)").error["ename"] == "ProcessLookupError"
        assert c.run("os.path.exists('/run/cellblock/warm')").result == "False"
        assert c.run("[l for l in open('/proc/self/maps') if l.split()[1][1::2] == 'ws']").result == "[]"
    assert one.client.run("open('/tmp/mine', 'w').close(); 'mine' in os.listdir('/tmp')").result == "True"
    assert two.client.run("'mine' in os.listdir('/tmp')").result == "False"


def test_the_zygotes_folder_is_nowhere_inside(warmth):
    w = warmth()
    there = place()
    assert (there / w.key).is_socket() and there in places()
    c = w.warm().client
    inside = f"""
import os
print([each for each in {[str(each) for each in places()]} if os.path.lexists(each)])
print([os.path.join(at, n) for top in ("/run", "/tmp", "/var", "/dev", "/mnt", "/media", os.path.expanduser("~"), ".")
    for at, folders, files in os.walk(top) for n in folders + files if n.startswith({w.key!r})])
print([line for line in open("/proc/self/mountinfo") if "cellblock/warm" in line or {w.key!r} in line])
"""
    assert c.run(inside).text() == "[]\n" * 3


TAKEN = """
import errno, socket
def is_taken(family, address):
    with socket.socket(family) as s:
        try:
            s.bind(address)
        except OSError as e:
            return e.errno == errno.EADDRINUSE
        return False
is_taken(socket.AF_UNIX, "\\0cbmark_abstract"), is_taken(socket.AF_INET, ("127.0.0.1", 47123))
"""


def test_marks_of_one_are_not_the_others(warmth):
    """Abstract sockets, ports, files, the environment and all else where a cell leaves a mark."""
    w = warmth()
    one, two = w.warm(), w.warm()
    look = markers.LOOK.replace("WORKSPACE", "os.getcwd()").replace("NICE", "0")
    assert one.client.run(markers.PLANT).ok
    found = [(eval(each.client.run(look).result), each.client.run(TAKEN).result) for each in (one, two)]
    assert {"shm", "sockets", "ports", "tmp", "home", "environment"} <= set(found[0][0]), found
    assert found[0][1] == "(True, True)" and found[1] == ({}, "(False, False)"), found


def test_no_keyring_is_shared(warmth):
    """A cell can't ask for one, nor read which there are."""
    numbers = {"x86_64": (248, 249, 250), "aarch64": (217, 218, 219)}[os.uname().machine]
    # into the session's, out of it; its number, and a new one
    code = f"""
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
def call(n, *args):
    return libc.syscall(n, *args), errno.errorcode.get(ctypes.get_errno())
add, ask, control = {numbers}
print([call(add, b"user", b"cbmark", b"x", 1, -3), call(ask, b"user", b"cbmark", None, -3), call(control, 0, -3, 1),
    call(control, 1, None)], [open(f"/proc/{{name}}").read() for name in ("keys", "key-users")])
"""
    said = warmth().warm().client.run(code).text()
    assert said == "[" + ", ".join(["(-1, 'EPERM')"] * 4) + "] ['', '']\n"


# ---- the zygote and the host ----

MODULE = """
import errno, os, socket
def reach(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    return pid
seen = [os.getpid(), os.getppid(), [p for p in range(3, 70000) if reach(p)], reach(TESTER),
        [n for n in os.listdir("/proc") if n.isdigit()], [n for _, n in socket.if_nameindex()]]

def write(path):
    try:
        open(path, "a").close()
    except OSError as e:
        return errno.errorcode[e.errno]
site, own = os.path.dirname(__file__), os.stat(__file__)
read_only = [bool(os.statvfs(each).f_flag & os.ST_RDONLY) for each in ("/", "/usr", "/etc", site)]
written = [write(each + "/cellblock_test") for each in ("/usr", "/etc", site)]
to_itself = [oct(own.st_mode & 0o777), write(__file__)]

def look(path):
    try:
        return os.listdir(path)
    except OSError as e:
        return errno.errorcode[e.errno]
listed = [look(each) for each in (WORKSPACE, HOME, os.path.expanduser("~"), ".")]

def connect(family, address):
    with socket.socket(family) as s:
        s.settimeout(10)
        return s.connect_ex(address) == 0
connected = [connect(socket.AF_INET, ("127.0.0.1", PORT)), connect(socket.AF_UNIX, "\\0" + NAME)]
"""


def test_what_a_module_sees_of_the_host(start, warmth, module):
    """A preloaded module's own code runs in a jail as well: nobody else is to be seen, or signalled; nothing is to be
    written or reached."""
    work, home = start.folder / "k1/work", start.folder / "k1/home"  # of the kernel that starts the zygote
    for folder in (work, home):
        kernels.let_in(folder)
        (folder / "secret").write_text("")
    mark = secrets.token_hex(16)
    with socket.create_server(("127.0.0.1", 0)) as port, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind("\0" + mark)
        abstract.listen()
        values = {"WORKSPACE": str(work), "HOME": str(home), "PORT": port.getsockname()[1], "NAME": mark}
        values["TESTER"] = os.getpid()  # a process of the host
        name = module("".join(f"{word} = {value!r}\n" for word, value in values.items()) + MODULE)
        module.folder.joinpath(f"{name}.py").chmod(0o666)
        w = warmth(f'warm.preload=["{name}"]')
        with socket.create_connection(port.getsockname()):
            port.accept()[0].close()
        assert not select.select([port, abstract], [], [], 0)[0]
    c = w.warm().client
    what = ("seen", "read_only", "written", "to_itself", "listed", "connected")
    said = c.run(f"import json, {name} as m; print(json.dumps([getattr(m, each) for each in {what}]))")
    assert said.ok, said.error
    said = dict(zip(what, json.loads(said.text())))
    assert said["seen"] == [2, 1, [], None, [], ["lo"]]
    assert said["read_only"] == [True] * 4 and set(said["written"]) <= {"EROFS", "EACCES"}, said
    assert said["to_itself"] == ["0o666", "EROFS"], said
    assert said["listed"][:2] == ["ENOENT"] * 2 and "secret" not in str(said["listed"]), said
    assert said["connected"] == [False] * 2, said
