"""What a policy refuses names key and value where it hurts."""

import re

import pytest

pytestmark = pytest.mark.cellblock_only

SETS = (
    "limits.tmp=2M",
    "limits.shm=1M",
    "limits.open_files=64",
    "limits.file_size=8M",
    "limits.pids=40",
    "limits.memory=1G",
)
FORK = """import os, time
kids = []
try:
    while True:
        p = os.fork()
        if p == 0: time.sleep(600)
        kids.append(p)
finally:
    for p in kids: os.kill(p, 9)
    for p in kids: os.waitpid(p, 0)"""
THREADS = """import threading
go = threading.Event()
try:
    while True: threading.Thread(target=go.wait).start()
finally: go.set()"""
REFUSED = {
    "dns": ("import socket; socket.getaddrinfo('example.org', 443)", "gaierror", 'network.mode is "none"'),
    "connect": ("import socket; socket.create_connection(('192.0.2.1', 80))", "OSError", 'network.mode is "none"'),
    "urllib": ("import urllib.request as u; u.urlopen('http://example.org')", "URLError", 'network.mode is "none"'),
    "/etc": ("open('/etc/x', 'w')", "OSError", 'root.path is "host"'),
    "tmp": ("f = open('/tmp/x', 'wb', 0)\nwhile True: f.write(b'x' * 1_000_000)", "OSError", "limits.tmp is 2M"),
    "shm": ("f = open('/dev/shm/x', 'wb', 0)\nwhile True: f.write(b'x' * 1_000_000)", "OSError", "limits.shm is 1M"),
    "files": ("fs = []\nwhile True: fs.append(open('/dev/null'))", "OSError", "limits.open_files is 64"),
    "size": ("f = open('big', 'wb', 0)\nwhile True: f.write(b'x' * 1_000_000)", "OSError", "limits.file_size is 8M"),
    "fork": (FORK, "BlockingIOError", "limits.pids is 40"),
    "threads": (THREADS, "RuntimeError", "limits.pids is 40"),
    "memory": ("bytearray(1 << 40)", "MemoryError", "limits.memory is 1G"),
}


@pytest.fixture(scope="module")
def limited(nothing_left, request):
    from conftest import Starter

    starter = Starter(nothing_left / "limited", request.module)
    yield starter(args=[word for s in SETS for word in ("--set", s)]).client
    starter.end()


def said(cell):
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(cell.error["traceback"])) + cell.text("stderr")


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_its_key(limited, name):
    code, ename, says = REFUSED[name]
    cell = limited.run(code, timeout=60)
    assert cell.error["ename"] == ename and "[cellblock]" not in cell.error["evalue"]
    assert says in said(cell), said(cell)
    limited.run("fs = f = None\nimport os\n!rm -f /tmp/x /dev/shm/x big")


def test_pip_says_at_once_that_there_is_no_network(limited):
    cell = limited.run("%pip install cellblock-no-such-package-anywhere", timeout=60)
    assert 'network.mode is "none"' in cell.text("stderr")


def test_read_only_workspace(start):
    c = start(args=["--set", "workspace.mode=ro"]).client
    assert 'workspace.mode is "ro"' in said(c.run("open('x', 'w')"))


def test_protected_entries(start, nothing_left):
    work = nothing_left / "protected"
    (work / ".git/hooks").mkdir(parents=True)
    (work / ".envrc").touch()
    c = start(workspace=work).client
    for code in ("open('.git/hooks/x', 'w')", "open('.envrc', 'w')", "import os; os.rename('.git', 'x')"):
        assert "workspace.protect has" in said(c.run(code)), code
