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
    "imports.allow=os,time,threading,socket,urllib.request",
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
    "tmp": (
        "f = open('/tmp/x', 'wb', 0)\nwhile True: f.write(b'x' * 1_000_000)",
        "OSError",
        "limits.tmp is 2M: /tmp is full; remove files there, or raise that limit",
    ),
    "shm": ("f = open('/dev/shm/x', 'wb', 0)\nwhile True: f.write(b'x' * 1_000_000)", "OSError", "limits.shm is 1M"),
    "files": ("fs = []\nwhile True: fs.append(open('/dev/null'))", "OSError", "limits.open_files is 64"),
    "size": ("f = open('big', 'wb', 0)\nwhile True: f.write(b'x' * 1_000_000)", "OSError", "limits.file_size is 8M"),
    "fork": (FORK, "BlockingIOError", "limits.pids is 40"),
    "threads": (THREADS, "RuntimeError", "limits.pids is 40"),
    "memory": ("bytearray(1 << 40)", "MemoryError", "limits.memory is 1G"),
    "import": ("import glob", "ImportError", "Import of glob is not allowed"),
}


def SHARED():
    return {"args": [word for s in SETS for word in ("--set", s)]}


def said(cell):
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(cell.error["traceback"])) + cell.text("stderr")


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_its_key(client, name):
    code, ename, says = REFUSED[name]
    cell = client.run(code)
    assert cell.error["ename"] == ename and "[cellblock]" not in cell.error["evalue"]
    assert says in said(cell), said(cell)
    client.run("fs = f = None\nimport os\n!rm -f /tmp/x /dev/shm/x big")


def test_pip_says_at_once_that_there_is_no_network(client):
    cell = client.run("%pip install cellblock-no-such-package-anywhere")
    assert 'network.mode is "none"' in cell.text("stderr")


def test_read_only_workspace(start):
    c = start(args=["--set", "workspace.mode=ro"]).client
    assert 'workspace.mode is "ro"' in said(c.run("open('x', 'w')"))


@pytest.fixture
def project(nothing_left, request):
    """A project with a folder of notebooks."""
    folder = nothing_left / request.node.name / "proj"
    for name, text in {"data/x.csv": "a,b\n", "utils.py": "answer = 42\n", "nb/own": "", "pyproject.toml": ""}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


IMPORT = "import sys\nsys.path.append('..')\nimport utils\nutils.answer"


def test_a_notebook_in_a_project(start, project):
    c = start(workspace=project / "nb").client
    missed = ["open('../data/x.csv')", "open('../../nothing-there')", "%run ../utils.py", "%load ../utils.py"]
    for code in (*missed, "open('../out', 'w')", IMPORT):
        assert "workspace.path: " in said(c.run(code)), code
        assert "cellblock install --project" in said(c.run(code))
    assert sorted(p.name for p in project.iterdir()) == ["data", "nb", "pyproject.toml", "utils.py"]


def test_words_do_not_tell_whether_there_is_such_a_file(start, project):
    """Nothing of the host is told: of a path outside the same is said, whatever lies there."""
    c = start(workspace=project / "nb").client

    def told(code, name):
        cell = c.run(code.format(name))
        words = said(cell) if cell.error else cell.text("stderr") + cell.text()
        error = [cell.error[each] for each in ("ename", "evalue")] if cell.error else []
        return [word.replace(name, "NAME") for word in (*error, *re.findall(r"^\[cellblock\].*$", words, re.M))]

    for code in ("open('../{}')", "import os; os.listdir('../{}')", "open('../{}', 'w')", "%run ../{}", "!cat ../{}"):
        for there, missing in (("data/x.csv", "data/y.csv"), ("utils.py", "other.py"), ("data", "dato")):
            words = told(code, there)
            assert f"{project}/NAME lies outside" in words[-1] and words == told(code, missing), (code, words)


def test_a_project_is_the_workspace(start, project):
    c = start(workspace=project / "nb", args=["--set", "workspace.path=project"]).client
    assert c.run("import os\nos.getcwd()").result == repr(str(project / "nb"))
    assert c.run("open('../data/x.csv').read()").result == repr("a,b\n")
    assert c.run(IMPORT).result == "42"
    assert c.run("open('../out', 'w').write('x')").ok
    assert (project / "out").read_text() == "x"
    ran = c.request("cellblock_run_request", {"argv": ["pwd"]}).content
    assert ran["stdout"] == f"{project}/nb\n", "where the kernel started"


def test_a_home_that_is_an_empty_folder_says_so_each_time(start, nothing_left):
    home = nothing_left / "some-home"
    home.mkdir()
    (home / "data.csv").write_text("a,b\n")
    c = start(workspace=home, env={"HOME": str(home)}).client
    c.run("1")  # the first cell says so in any case
    for _ in range(2):
        for code in ("open('data.csv')", "import helper"):
            assert "is an empty folder in memory" in said(c.run(code)), code
        assert "is an empty folder in memory" in c.run("!cat data.csv").text("stderr")
    for code in (
        "open('out', 'w').close()",
        "open('out', 'a').write('x' * 10000)",
        "!echo x > other",
        "!echo y > other",  # what was there before takes no more room
        "open('out', 'a').write('x')",
        "import os; os.remove('out'); open('out', 'w').write('x' * 10001)",
    ):
        cell = c.run(code)
        assert cell.ok and "what was written is lost" in cell.text("stderr"), code
    where = c.request("create_subshell_request", {}, channel="control").content["subshell_id"]
    beside = c.finish(c.start("open('out', 'a').write('y')", header=c.header("execute_request", subshell_id=where)))
    assert beside.ok and "what was written is lost" in beside.text("stderr"), beside
    for code in ("open('/tmp/x', 'w').write('x')", "open('other').read()", "os.remove('out')"):
        assert c.run(code).text("stderr") == "", code
    # of a wheel: what its first start keeps
    assert {p.name for p in home.iterdir()} - {".cache"} == {"data.csv"}


def test_protected_entries(start, nothing_left):
    work = nothing_left / "protected"
    (work / ".git/hooks").mkdir(parents=True)
    (work / ".envrc").touch()
    c = start(workspace=work).client
    for code in ("open('.git/hooks/x', 'w')", "open('.envrc', 'w')", "import os; os.rename('.git', 'x')"):
        assert "workspace.protect has" in said(c.run(code)), code
