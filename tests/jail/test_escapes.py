"""Attacks that take more than one cell: what outlives a cell, a guest or a kernel, and what reaches out of the jail."""

import ast
import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest

import kernels
from test_attacks import jailed  # noqa: F401 (a fixture)

pytestmark = pytest.mark.cellblock_only
TWINS = False  # what a guest's end leaves behind

DAEMON = """
import os, signal, time
r, w = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for s in set(range(1, 65)) - {9, 19, 32, 33}:
            signal.signal(s, signal.SIG_IGN)
        os.write(w, b"up")
        while True:
            time.sleep(1000)
    os._exit(0)
os.read(r, 2); os.wait(); "up"
"""


def test_a_daemon_lives_no_longer_than_the_jail(jailed):  # noqa: F811
    """Its own session, deaf to signals, and with every descriptor of the guest open."""
    before = {p.pid for p in jailed.kernel.family()}
    assert jailed.run(DAEMON).result == "'up'"
    daemons = [p for p in jailed.kernel.family() if p.pid not in before]
    assert daemons
    jailed.run("import os\nos._exit(1)")
    assert not kernels.wait_gone(daemons)
    assert jailed.run("6*7").result == "42"


def test_what_runs_on_after_its_cell(jailed):  # noqa: F811
    """It writes noise while the next cells run; they are answered as ever, and it can be ended."""
    jailed.run("import subprocess\np = subprocess.Popen('while echo idle; do sleep 0.01; done', shell=True)")
    for n in range(5):
        cell = jailed.run(f"{n} + 1")
        assert cell.result == str(n + 1) and cell.types[-1] == "status"
    jailed.run("p.kill(); p.wait()")


CHANNELS = """
import fcntl, os, socket, stat, struct
def tried(f, *a):
    try: return f(*a)
    except OSError as e: return e.errno
def look(n):
    s = socket.socket(fileno=os.dup(n))
    named = tried(fcntl.ioctl, n, 0x8910, struct.pack('16si20x', b'', 2))
    there, nowhere = (tried(s.connect, chr(0) + name) for name in ({name!r}, {name!r} + 'x'))
    tried(s.bind, chr(0) + {name!r} + 'y')
    return [named if type(named) is int else named[:16], there == nowhere]
[look(n) for n in range(3, 64) if tried(os.fstat, n) != 9 and stat.S_ISSOCK(os.fstat(n).st_mode)]
"""


def test_the_guests_channels_are_no_way_to_the_hosts_network(jailed):  # noqa: F811
    """They are sockets of the supervisor's: no name is taken there, none found, and no interface told."""
    name = f"cellblock-test-{uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX) as there, socket.socket(socket.AF_UNIX) as free:
        there.bind("\0" + name)
        there.listen()
        cell = jailed.run(CHANNELS.format(name=name))
        assert cell.ok, cell.error
        free.bind("\0" + name + "y")
    seen = ast.literal_eval(cell.result)
    assert len(seen) >= 2 and all(each == [errno.ENODEV, True] for each in seen), seen


def test_a_server_inside_is_not_reached(jailed):  # noqa: F811
    """Outside somebody else may listen at that port."""
    word = uuid.uuid4().hex
    port = jailed.run(
        "import socket, threading\ns = socket.create_server(('0.0.0.0', 0))\n"
        f"def serve():\n    while True: s.accept()[0].sendall({word.encode()!r})\n"
        "threading.Thread(target=serve, daemon=True).start()\ns.getsockname()[1]"
    ).result
    inside = jailed.run("socket.create_connection(s.getsockname()).recv(99)")
    assert inside.result == repr(word.encode()), "inside it works"
    try:
        with socket.create_connection(("127.0.0.1", int(port)), 5) as there:
            said = there.recv(99)
    except OSError:
        said = b""
    assert said != word.encode()


def test_the_kernels_own_ports(jailed):  # noqa: F811
    ports = [v for k, v in jailed.kernel.connection.items() if k.endswith("_port")]
    for p in ports:
        socket.create_connection(("127.0.0.1", p), 5).close()
    code = f"import socket\n[socket.socket().connect_ex(('127.0.0.1', p)) for p in {ports}]"
    assert set(ast.literal_eval(jailed.run(code).result)) == {111}, "ECONNREFUSED"


@pytest.mark.parametrize(
    "code",
    [
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(x): return sorted([0], key=f)\nf(0)",
        "import json, sys\nsys.setrecursionlimit(10**9)\njson.loads('[' * 10**6)",
        "import sys\nsys.setrecursionlimit(10**9)\na = None\nfor i in range(10**6): a = [a]\nrepr(a)",
    ],
    ids=["frames", "json", "repr"],
)
def test_a_stack_that_overflows(jailed, code):  # noqa: F811
    cell = jailed.run(code)
    assert not cell.ok and cell.content["ename"] in ("RecursionError", "KernelDiedError", "MemoryError"), cell.content
    assert jailed.run("6*7").result == "42"


def test_a_stopped_pid_1_would_not_notice(jailed):  # noqa: F811
    """Signals to pid 1 from inside do nothing: it still reports the guest's end at once."""
    cell = jailed.run("import os\nfor s in range(1, 65):\n    os.kill(os.getppid(), s)\nos._exit(3)")
    assert cell.content["ename"] == "KernelDiedError" and "3" in cell.content["evalue"]
    assert jailed.run("6*7").result == "42"


def test_descriptors_up_the_wire(jailed):  # noqa: F811
    """Open files that come with a frame do not stay open in the supervisor."""
    jailed.run("1")
    before = jailed.kernel.open_files()
    jailed.run(
        "import os, socket\ns = socket.socket(fileno=os.dup(3))\n"
        "for i in range(40):\n    socket.send_fds(s, [b'x' * 100], [0] * 200)"
    )
    for _ in range(2):
        cell = jailed.run("6*7")
    assert cell.result == "42"
    assert jailed.kernel.open_files() <= before + 20


def test_the_environment_of_the_next_guest(jailed):  # noqa: F811
    jailed.run(
        "import os\nos.environ.update(LD_PRELOAD='/tmp/x.so', PYTHONSTARTUP='/tmp/x.py', PYTHONPATH='/tmp')\n"
        "open('/tmp/x.py', 'w').write('raise SystemExit')\nos._exit(1)"
    )
    names = ("LD_PRELOAD", "PYTHONSTARTUP", "PYTHONPATH")
    code = f"import os\n[n for n in {names} if n in os.environ], os.path.exists('/tmp/x.py')"
    assert jailed.run(code).result == "([], False)"


# Names that Python, IPython and common tools look for in the current folder or run from it.
PLANTED = (
    "sitecustomize.py",
    "usercustomize.py",
    "ipython_config.py",
    "ipython_kernel_config.py",
    "json.py",
    "encodings.py",
    "IPython.py",
    "traitlets.py",
    "readline.py",
    "conftest.py",
    "startup/00-x.py",
    "profile_default/startup/00-x.py",
    ".pythonrc.py",
    "python",
    "sh",
    "_virtualenv.pth",
)


def test_nothing_of_the_workspace_runs_by_itself(nothing_left):
    """Planted in one session, started in the next: neither outside nor inside is any of it run unasked."""
    argv = [kernels.spec_argv()[0][0], "kernel", "--python", sys.executable, "-f", "{connection_file}"]
    first = kernels.Kernel(nothing_left / "first", argv=argv)
    with kernels.Client(first) as c:
        c.ready()
        assert c.run("1").ok
    for name in PLANTED:  # by the host: some of them no cell may make
        path = first.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\necho ran >> ran\n" if "." not in name else "open('ran', 'a').write(__file__)")
        path.chmod(0o755)
    first.stop()
    again = kernels.Kernel(nothing_left / "again", argv=argv, workspace=first.workspace)
    with kernels.Client(again) as c:
        c.ready()
        assert c.run("6*7").result == "42"
        c.run("!true")
    again.stop()
    assert not (first.workspace / "ran").exists(), (first.workspace / "ran").read_text()


def test_a_workspace_that_is_jupyters_folder(nothing_left):
    """A kernelspec that a cell wrote there Jupyter would start outside; of a folder that holds it the rest is the
    cell's."""
    code = "import os\nos.makedirs('kernels/mine')\nopen('kernels/mine/kernel.json', 'w').write('{}')"
    for folder, named in (("itself", "."), ("around", "share")):
        kernel = kernels.Kernel(
            nothing_left / f"jupyter-{folder}",
            env={"JUPYTER_DATA_DIR": str(nothing_left / f"jupyter-{folder}/work" / named)},
        )
        with kernels.Client(kernel) as c:
            c.ready()
            text = c.run(code).text("stderr")
            c.run("import os\nos.makedirs('share/kernels/mine')")
        kernel.stop()
        if named == ".":
            assert list(kernel.workspace.iterdir()) == [] and "which Jupyter or Cellblock takes" in text
        else:
            assert (kernel.workspace / "kernels/mine/kernel.json").exists() and text == ""
            assert not (kernel.workspace / "share/kernels").exists()


LOOK = "import os\nos.listdir('/run/cellblock/guest/cellblock_guest/__pycache__')"
IN_THE_CACHE = """
import os
def tried(call, *args):
    try:
        call(*args)
    except OSError as e:
        return e.strerror
    return "done"
[tried(open, own + "/bundle.pyc", "r+b"), tried(os.symlink, "bundle.pyc", own + "/x"), tried(os.rename, own, own + "-"),
 tried(os.symlink, outside, own)]
"""


class Cached(kernels.Kernel):
    """A kernel that keeps what it finds out of its interpreter, and compiled modules, below `cache`."""

    def __init__(self, folder, cache, *args, workspace=None):
        argv = [kernels.spec_argv()[0][0], "kernel", "--python", sys.executable, "--facts", "cache", *args]
        env = {"XDG_CACHE_HOME": str(cache)}
        super().__init__(folder, argv=[*argv, "-f", "{connection_file}"], env=env, workspace=workspace)


def fill(folder, cache):
    """The folder of compiled modules, once all are there: they are written beside the first cells."""
    kernel, end = Cached(folder, cache), time.monotonic() + kernels.DEADLINE
    with kernels.Client(kernel) as c:
        c.ready()
        while not (found := list(cache.glob("cellblock/*/pycache/bundle.pyc"))):
            assert time.monotonic() < end, "nothing was compiled"
            time.sleep(0.05)
    kernel.stop()
    return found[0].parent


def outside_of(folder):
    outside = folder / "outside"
    (outside / "pycache").mkdir(parents=True)
    (outside / "key").write_text("a key")
    (outside / "pycache/key").write_text("a key")
    return outside


def seen_by_the_next(folder, cache):
    kernel = Cached(folder, cache)
    with kernels.Client(kernel) as c:
        c.ready()
        seen = ast.literal_eval(c.run(LOOK).result)
    kernel.stop()
    return seen, kernel.said()


@pytest.mark.parametrize("by", ["workspace", "mount"])
def test_the_cache_of_an_interpreter_is_not_written(nothing_left, by):
    """The next kernel would run what a cell put there, and show what a link leads to."""
    folder = nothing_left / f"seen-by-{by}"
    outside, cache = outside_of(folder), folder / "held/cache"
    own = fill(folder, cache)
    mount = ("--set", "mounts=" + json.dumps([{"source": str(folder / "held"), "mode": "rw"}]))
    how = {"workspace": folder / "held"} if by == "workspace" else {}
    kernel = Cached(folder / "first", cache, *(mount if by == "mount" else ()), **how)
    with kernels.Client(kernel) as c:
        c.ready()
        cell = c.run(f"own, outside = {str(own)!r}, {str(outside)!r}\n{IN_THE_CACHE}")
    kernel.stop()
    seen, _ = seen_by_the_next(folder / "next", cache)
    assert "key" not in seen and "bundle.pyc" in seen, (seen, cell.content)
    if by == "mount":
        assert "can't be writable: it holds" in cell.content["evalue"], cell.content
    else:
        assert len(ast.literal_eval(cell.result)) == 4 and "done" not in cell.result, cell.result


@pytest.mark.parametrize("what", ["pycache", "interpreter"])
def test_a_link_in_the_cache_is_not_followed(nothing_left, what):
    """Where something else made it: no jail shows what it leads to, and nothing is written there."""
    folder = nothing_left / f"link-{what}"
    outside, cache = outside_of(folder), folder / "cache"
    own = fill(folder, cache)
    link = own if what == "pycache" else own.parent
    shutil.rmtree(link)
    link.symlink_to(outside)
    before = sorted(outside.rglob("*"))
    seen, said = seen_by_the_next(folder / "next", cache)
    assert "key" not in seen and "is a link" in said, (seen, said)
    assert sorted(outside.rglob("*")) == before


def test_a_workspace_that_became_a_link(nothing_left):
    """Between two sessions the folder is replaced by a link to another: not followed, and said."""
    work, other = nothing_left / "linked/work", nothing_left / "other"
    other.mkdir()
    (nothing_left / "linked").mkdir()
    work.symlink_to(other)
    program = kernels.spec_argv()[0][0]
    done = subprocess.run(
        [program, "run", "--workspace", work, "sh", "-c", "echo x > planted; pwd"], capture_output=True, text=True
    )
    # the link is resolved once, outside, and the folder itself is what the jail shows: or it is refused
    assert done.returncode == 125 or done.stdout == f"{other}\n", done


def test_two_kernels_of_one_user(nothing_left):
    """They share a uid outside (unless root started them), and nothing else."""
    pair = [kernels.Kernel(nothing_left / f"pair{n}") for n in range(2)]
    with kernels.Client(pair[0]) as a, kernels.Client(pair[1]) as b:
        a.ready(), b.ready()
        a.run("import os, socket\ns = socket.socket(socket.AF_UNIX); s.bind(chr(0) + 'cb-pair'); s.listen()")
        a.run("open('/dev/shm/x', 'w'); open('/tmp/x', 'w'); open('x', 'w')")
        pids = {p.pid for p in pair[0].family()}
        code = f"""
import os, socket
found = [p for p in ('/dev/shm/x', '/tmp/x', {str(pair[0].workspace / "x")!r}) if os.path.exists(p)]
for p in {sorted(pids)}:
    try:
        os.kill(p, 0); os.path.exists(f'/proc/{{p}}/status') and p > 50 and found.append(p)
    except OSError:
        pass
found + [socket.socket(socket.AF_UNIX).connect_ex(chr(0) + 'cb-pair')]
"""
        assert b.run(code).result == "[111]", "ECONNREFUSED, and nothing found"
    for k in pair:
        k.stop()


def test_no_process_of_ours_can_be_looked_at(jailed):  # noqa: F811
    """Supervisor, broker and pid 1 are undumpable: an ordinary user's other programs cannot read them either."""
    inits = jailed.kernel.named("cellblock-init")
    assert inits
    for pid in [jailed.kernel.pid, *inits]:
        assert Path(f"/proc/{pid}/environ").stat().st_uid == 0, "the kernel gives undumpable processes to root"
    assert psutil.pid_exists(jailed.kernel.pid)


def test_a_command_beside_the_cells_stands_behind_the_same_walls(jailed):  # noqa: F811
    """cellblock_run_request: filter, no rights, Landlock where there is one, and the guest's namespaces."""
    names = ("Seccomp", "NoNewPrivs", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "Uid", "Gid", "Groups")
    code = (
        "import os\nd = dict(l.split(':', 1) for l in open('/proc/self/status'))\n"
        "ns = [os.readlink('/proc/self/ns/' + n) for n in sorted(os.listdir('/proc/self/ns'))]\n"
        "try:\n    open('/proc/self/comm', 'w').write('x'); wall = False\nexcept OSError:\n    wall = True\n"
        f"print([d[n].split() for n in {names}], ns, wall)"
    )
    asked = {"argv": ["/usr/bin/python3", "-Ic", code]}
    reply = jailed.client.request("cellblock_run_request", asked, channel="control").content
    assert reply["status"] == "ok" and reply["returncode"] == 0, reply
    assert reply["stdout"] == jailed.run(code).text()
