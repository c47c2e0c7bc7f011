"""What the jail refuses says which key refused, on the exception or on stderr; type and text stay as they are."""

import json
import re

import pytest

SAYS = {
    "network.mode": "none",
    "packages.mode": "ro",
    "workspace.mode": "ro",
    "workspace": "/nowhere/work",
    "workspace.protect": [".git", ".svn/hooks", "lefthook.*", ".envrc", "pyvenv.cfg"],
    "root.path": "/srv/an-image",
    "limits.memory": 512 << 20,
    "limits.pids": 100,
    "limits.tmp": 64 << 20,
    "limits.open_files": 1024,
    "limits.file_size": 1 << 20,
}

RAISED = {
    "dns": ("import socket; raise socket.gaierror(-3, 'no')", "gaierror", 'network.mode is "none"'),
    "unreachable": ("raise OSError(101, 'no')", "OSError", 'network.mode is "none"'),
    "no server": (
        "raise ConnectionRefusedError(111, 'no')",
        "ConnectionRefusedError",
        "that they have started themselves",
    ),
    "refused socket": (
        "exec(compile('raise PermissionError(1, \"no\")', '/x/socket.py', 'exec'))",
        "PermissionError",
        'network.mode is "none"',
    ),
    "wrapped": (
        "import socket, urllib.error\nraise urllib.error.URLError(socket.gaierror(-2, 'x'))",
        "URLError",
        'network.mode is "none"',
    ),
    "caused": (
        "try:\n    raise OSError(101, 'no')\nexcept OSError as e:\n    raise ValueError('v') from e",
        "ValueError",
        'network.mode is "none"',
    ),
    "ro": ("raise OSError(30, 'ro', '/nowhere/work/a')", "OSError", 'workspace.mode is "ro"'),
    "root": ("open('/proc/version/x', 'w')\n", "NotADirectoryError", None),
    "system": ("raise OSError(30, 'ro', '/etc/x')", "OSError", 'root.path is "/srv/an-image"'),
    "prefix": (
        "import sys; raise OSError(30, 'ro', sys.prefix + '/lib/x')",
        "OSError",
        'packages.mode is "ro"',
    ),
    "emfile": ("raise OSError(24, 'x')", "OSError", "limits.open_files is 1024"),
    "efbig": ("raise OSError(27, 'x')", "OSError", "limits.file_size is 1M"),
    "memory": ("raise MemoryError", "MemoryError", "limits.memory is 512M"),
    "thread": ('raise RuntimeError("can\'t start new thread")', "RuntimeError", "limits.pids is 100"),
    "fork": ("def fork(): raise BlockingIOError(11, 'x')\nfork()", "BlockingIOError", "limits.pids is 100"),
    "spawn": (
        "import os\nr, w = os.pipe(); os.set_blocking(r, False)\n"
        "os.posix_spawn.__wrapped__ = os.read  # which raises the same\n"
        "def _posix_spawn(): os.posix_spawn(r, 1)\n_posix_spawn()",
        "BlockingIOError",
        "limits.pids is 100",
    ),
    "socket": ("raise BlockingIOError(11, 'x')", "BlockingIOError", None),
    "own": ("raise ValueError('x')", "ValueError", None),
}


def text_of(result):
    error = result.error
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error["traceback"])) + result.stderr


@pytest.fixture
def told(new_guest):
    return new_guest(env={"CELLBLOCK_POLICY_SAYS": json.dumps(SAYS)})


@pytest.mark.parametrize("there, says", [(98, "together"), (12, "12 processes and threads are there: a limit outside")])
def test_whose_limit_of_processes_it_is(told, there, says):
    assert told.run(f"from cellblock_guest import refusals\nrefusals._tasks = lambda: {there}").ok
    for name in ("thread", "fork"):
        assert "limits.pids is 100" in (said := text_of(told.run(RAISED[name][0]))) and says in said, said


NO_FLUSHER = """import os, sys
from cellblock_guest import threads
def refuse(*_):
    os.kill(os.getpid(), 2)
    raise RuntimeError("can't start new thread")
threads.start_new_thread = refuse
sys.stdout._output._bell, sys.stdout._output.parked = None, True
print('x', end='')"""


def test_a_thread_of_the_guests_own_that_is_refused_is_no_cause_of_an_interrupt(told):
    """As where a cell that prints meets its limit of time, and an earlier one has taken all processes."""
    result = told.run(NO_FLUSHER)
    said = text_of(result)
    assert result.error["ename"] == "KeyboardInterrupt", said
    assert "[cellblock]" not in said and "RuntimeError" not in said, said


LATE_FLUSHER = """import os, sys, time
from cellblock_guest import threads
real, number = threads.start_new_thread, threads.get_native_id
def start(*args):
    real(*args)
    os.kill(os.getpid(), 2)
def late():
    time.sleep(0.2)
    return number()
threads.start_new_thread, threads.get_native_id = start, late
sys.stdout._output._bell, sys.stdout._output.parked = None, True
print('x', end='')"""


def test_a_thread_of_the_guests_own_that_begins_after_an_interrupt_just_ends(guest):
    """What was printed as it was started is interrupted, and the next that prints starts another."""
    assert guest.run(LATE_FLUSHER).error["ename"] == "KeyboardInterrupt"
    assert guest.run("threads.start_new_thread, threads.get_native_id = real, number; time.sleep(1)").stderr == ""
    guest.start("print('y', end='')\nimport threading; threading.Event().wait()")
    guest.until("STREAM", lambda f: f.content.endswith("y"))
    guest.interrupt()
    assert guest.finish().error["ename"] == "KeyboardInterrupt"


def test_a_thread_of_the_guests_own_that_memory_does_not_allow(guest):
    """It is none that is still to begin, for which Python's end would wait."""
    code = "import sys\nfrom cellblock_guest import threads\ndef refuse(*_): raise MemoryError\n"
    code += "real, threads.start_new_thread = threads.start_new_thread, refuse\n"
    code += "sys.stdout._output._bell, sys.stdout._output.parked = None, True\nprint('x', end='')"
    result = guest.run(code)
    assert result.ok and result.stdout == "x", text_of(result)
    assert guest.run("threads.start_new_thread = real; threads._starting").result == "[]"


def test_notes(told):
    for name, (code, ename, says) in RAISED.items():
        result = told.run(code)
        assert result.error["ename"] == ename, name
        assert (says in text_of(result)) if says else ("[cellblock]" not in text_of(result)), (name, text_of(result))
        assert "[cellblock]" not in result.error["evalue"], name
        assert text_of(result).count("[cellblock]") == bool(says), name


OUTSIDE = {
    "a missing file beside": ("open('/srv/group/proj/data/x.csv')", "/srv/group/proj/data/x.csv lies outside"),
    "by a relative path": ("open('../../srv/group/x.csv')", "/srv/group/x.csv lies outside"),
    "of another user": ("open('/home/somebody/x.csv')", "/home/somebody/x.csv lies outside"),
    "one that could not be written": ("raise OSError(30, 'ro', '/srv/group/out')", "/srv/group/out lies outside"),
    "one that an error's text names": ("raise FileNotFoundError('/data/a b.csv not found.')", "/data/a lies outside"),
    "one that a library names": (
        "raise RuntimeError('/data/x.shp: No such file or directory')",
        "/data/x.shp lies outside",
    ),
    "one without a number": ("raise OSError('/data/x.tif: No such file or directory')", "/data/x.tif lies outside"),
    "a module": ("import sys; sys.path.append('/srv/group/proj')\nimport utils", "/srv/group/proj of sys.path lies"),
    "in the workspace": ("open('/srv/group/proj/nb/x')", None),
    "on a mount": ("open('/srv/group/mounted/x')", None),
    "of the system": ("open('/etc/no-such-file')", None),
    "of the jail's /tmp": ("open('/tmp/no-such-file')", None),
    "no path": ("raise FileNotFoundError('https://example.org/x')", None),
    "no file": ("raise RuntimeError('/users/3 not found')", None),
    "what a library lacks": (
        "raise OSError('/data/l.so: cannot open shared object file: No such file or directory')",
        None,
    ),
    "another module": ("import sys; sys.path.remove('/srv/group/proj')\nimport no_such_module", None),
    "of the prefix": ("import sys; open(sys.prefix + '/no-such-file')", None),
}


def test_what_lies_outside_of_the_workspace(new_guest):
    """Said by the path alone, whether there is such a file or not."""
    says = {**SAYS, "workspace.mode": "rw", "workspace": "/srv/group/proj/nb", "mounts": ["/srv/group/mounted"]}
    guest = new_guest(env={"CELLBLOCK_POLICY_SAYS": json.dumps(says)}, cwd="/usr/bin")
    for name, (code, says) in OUTSIDE.items():
        said = text_of(guest.run(code))
        if says is None:
            assert "[cellblock]" not in said, (name, said)
        else:
            assert "[cellblock] workspace.path: " + says in said and "mounts adds other folders" in said, (name, said)
            assert ("cellblock install --project" in said) == (says.startswith("/srv/group")), (name, said)


# What IPython's magics say of a file that is not there has neither a number nor a name; of %run from IPython 8 on.
MAGICS = ("%run", "%load")


def magics_of(interpreter):
    return [each for each in MAGICS if interpreter.ipython and (interpreter.ipython >= (8,) or each != "%run")]


@pytest.mark.usefixtures("ipython")
def test_magics_that_miss_a_file_outside_of_the_workspace(new_guest, interpreter):
    says = {**SAYS, "workspace.mode": "rw", "workspace": "/srv/group/proj/nb"}
    guest = new_guest(env={"CELLBLOCK_POLICY_SAYS": json.dumps(says)})
    for magic in magics_of(interpreter):
        for name in ("utils.py", "setup.ipynb"):
            said = text_of(guest.run(f"{magic} /srv/group/proj/{name}"))
            assert said.count(f"[cellblock] workspace.path: /srv/group/proj/{name}") == 1, (magic, said)
            assert "cellblock install --project" in said, (magic, said)


def test_a_cure_that_was_taken_is_not_named(new_guest):
    """The workspace is a project's, or was to be one's."""
    says = {**SAYS, "workspace.mode": "rw", "workspace": "/srv/group/proj", "workspace.project": True}
    said = text_of(new_guest(env={"CELLBLOCK_POLICY_SAYS": json.dumps(says)}).run("open('/srv/group/x')"))
    assert "/srv/group/x lies outside" in said and "mounts adds" in said and "--project" not in said


NO_PROJECTS = {
    "/root/nb": ["/root/x", "/root/other/x"],
    "/root/proj/nb": ["/root/x"],
    "/home/somebody/nb": ["/home/somebody/x"],
    "/home/somebody/proj/nb": ["/home/somebody/x", "/home/other/x"],
    "/srv/proj": ["/srv/x", "/data/x"],
    "/data": ["/x", "/root/x"],
    "/workspace": ["/root/x", "/home/somebody/x", "/srv/x"],
}
PROJECTS = {
    "/root/proj/nb": ["/root/proj/x"],
    "/home/somebody/proj/nb": ["/home/somebody/proj/data/x"],
    "/srv/group/proj/nb": ["/srv/group/x"],
    "/workspace": ["/data/x"],  # it may be ../data, and have another name outside
}


def said_of(new_guest, workspace, paths, mode="rw"):
    guest = new_guest(env={"CELLBLOCK_POLICY_SAYS": json.dumps({"workspace.mode": mode, "workspace": workspace})})
    for path in paths:
        said = text_of(guest.run(f"raise FileNotFoundError(2, 'no', '{path}')"))
        assert f"workspace.path: {path} lies outside" in said and "mounts adds other folders" in said, (workspace, said)
        yield said


@pytest.mark.parametrize("workspace", NO_PROJECTS)
def test_no_wider_workspace_is_named_where_none_has_the_path(new_guest, workspace):
    for said in said_of(new_guest, workspace, NO_PROJECTS[workspace]):
        assert '"project"' not in said, said


@pytest.mark.parametrize("workspace", PROJECTS)
def test_a_wider_workspace_is_named_where_it_may_have_the_path(new_guest, workspace):
    for said in said_of(new_guest, workspace, PROJECTS[workspace]):
        assert 'workspace.path "project" (cellblock install --project)' in said, said
    for said in said_of(new_guest, workspace, PROJECTS[workspace], "tmpfs"):
        assert '"project"' not in said, "it would be an empty folder as well"


def in_an_empty_folder(new_guest, folder):
    """In a home, which can't be a workspace."""
    says = {"workspace": str(folder), "workspace.mode": "tmpfs", "workspace.note": "this is an empty folder"}
    return new_guest(env={"CELLBLOCK_POLICY_SAYS": json.dumps(says)}, cwd=str(folder))


def test_what_is_missed_in_an_empty_folder(new_guest, tmp_path):
    guest = in_an_empty_folder(new_guest, tmp_path)
    of_a_library = "raise FileNotFoundError('No such file or directory (os error 2): data.csv')"
    magics = [f"{each} helper.py" for each in magics_of(guest.interpreter)]
    for code in ("open('data.csv')", "import helper", of_a_library, *magics):
        said = text_of(guest.run(code))
        assert said.count("[cellblock] workspace.path: this is an empty folder") == 1, (code, said)
    lacks = "raise ImportError('l.so: cannot open shared object file: No such file or directory')"
    for code in ("1 / 0", "open('/tmp/no-such-file')", "raise FileNotFoundError('https://example.org/x')", lacks):
        assert "[cellblock]" not in text_of(guest.run(code)), code


WRITTEN = """import io, sys
from itertools import cycle
from cellblock_guest.refusals import Refusals
grows = cycle([(0, 0, set()), (1, 0, set())])
Refusals._written = property(lambda self: next(grows), lambda self, value: None)
shown, sys.stderr = sys.stderr, io.StringIO()
sys.stderr.close()"""


def test_what_is_lost_in_an_empty_folder_is_said_whatever_stderr_is(new_guest, tmp_path):
    """Of a cell's own making it may take nothing; Python ended of that."""
    guest = in_an_empty_folder(new_guest, tmp_path)
    assert "what was written is lost. this is an empty folder" in guest.run(WRITTEN).stderr
    assert guest.run("sys.stderr = shown; 1").result == "1"


def test_it_is_said_whatever_both_are(new_guest, tmp_path):
    guest = in_an_empty_folder(new_guest, tmp_path)
    said = guest.run(WRITTEN + "\nsys.__stderr__ = sys.stderr").stderr
    assert "what was written is lost. this is an empty folder" in said
    assert guest.run("sys.stderr = sys.__stderr__ = shown; 1").result == "1"


@pytest.mark.usefixtures("ipython")
def test_what_commands_miss_in_an_empty_folder(new_guest, tmp_path):
    guest = in_an_empty_folder(new_guest, tmp_path)
    for command in ("cat data.csv", "ls 'a b'", "cp %s/x ." % tmp_path):
        said = guest.run("!" + command).stderr
        assert said.count("[cellblock] workspace.path: this is an empty folder") == 1, (command, said)
    for command in ("false", "cat /tmp/no-such-file", "echo 'No such file or directory'"):
        assert "[cellblock]" not in guest.run("!" + command).stderr, command
    assert guest.run("%cd -q /tmp").ok
    assert "[cellblock]" not in guest.run("!cat no-such-file").stderr, "it is in another folder"


STATES = """import os
from itertools import islice
from cellblock_guest.refusals import _states
def write(path, text='x', mode='w'):
    with open(path, mode) as f:
        f.write(text)
def news():
    global states
    before, states = states, set(_states('.'))
    return len(states - before)
os.makedirs('folder/below')
write('file'), write('folder/below/file')
states = set(_states('.'))
len(states)"""


def test_states_of_files(guest, tmp_path):
    """What tells that something was written where it takes no more room."""
    assert guest.run(f"import os; os.chdir({str(tmp_path)!r})").ok
    assert guest.run(STATES).result == "4"
    for code, news in {
        "open('file').read(), os.listdir('folder')": 0,
        "write('file', 'y', 'a')": 1,
        "write('folder/below/file', 'y', 'a')": 1,
        "os.remove('file'); write('file', 'xy')": 1,
        "os.remove('file')": 0,
        "os.symlink('/', 'link')": 1,
        "os.mkdir('other')": 1,
    }.items():
        assert guest.run(code + "; print(news())").stdout == f"{news}\n", code
    assert guest.run("len(list(islice(_states('.'), 2)))").result == "2"


COMMANDS = {
    "no name": ("echo 'curl: (6) Could not resolve host: x'; exit 6", 'network.mode is "none": names of other'),
    "no network": ("echo 'ssh: connect: Network is unreachable'; exit 1", 'network.mode is "none": other machines'),
    "a missing file": ("cat ../../srv/group/proj/data/x.csv", "/srv/group/proj/data/x.csv lies outside"),
    "one among others": ("cat /srv/group/proj/x; false", "/srv/group/proj/x lies outside"),
    "a folder, in quotes": ("mkdir /srv/group/no/x", "workspace.path: /srv/group/no/x lies outside"),
    "of the system": ("cat /etc/no-such-file", None),
    "in the workspace": ("cat /srv/group/proj/nb/x", None),
    "no path": ("cat no-such-file", None),
    "one that went well": ("echo /srv/group/proj/x: No such file or directory", None),
}


@pytest.mark.usefixtures("ipython")
def test_commands(new_guest, tmp_path):
    """What a command that failed has said gets the words that an exception would have got."""
    says = {**SAYS, "workspace.mode": "rw", "workspace": "/srv/group/proj/nb"}
    guest = new_guest(env={"CELLBLOCK_POLICY_SAYS": json.dumps(says)}, cwd="/usr/bin")
    for name, (command, says) in COMMANDS.items():
        said = guest.run("!" + command).stderr
        assert said.count("[cellblock]") == bool(says) and (says or "") in said, (name, said)
    says = {**SAYS, "workspace.mode": "rw", "workspace": str(tmp_path)}
    guest = new_guest(env={"CELLBLOCK_POLICY_SAYS": json.dumps(says)}, cwd=str(tmp_path))
    said = "fatal: cannot copy '/usr/x/y' to '%s/.git/y': Read-only file system" % tmp_path
    assert 'workspace.protect has ".git"' in guest.run('!echo "%s"; exit 128' % said).stderr


def test_what_lies_outside_below_tmp(new_guest):
    says = {"workspace.mode": "rw", "workspace": "/tmp/proj/nb"}
    guest = new_guest(env={"CELLBLOCK_POLICY_SAYS": json.dumps(says)})
    assert "/tmp/proj/data/x lies outside" in text_of(guest.run("open('/tmp/proj/data/x')"))
    assert "[cellblock]" not in text_of(guest.run("open('/tmp/data/x')"))


def test_protected_entries(new_guest, tmp_path):
    says = {**SAYS, "workspace.mode": "rw", "workspace": str(tmp_path)}
    guest = new_guest(env={"CELLBLOCK_POLICY_SAYS": json.dumps(says)})
    for path in (".git/hooks/pre-commit", "sub/.envrc", ".git", ".svn", "a/Lefthook.yml", ".ENVRC/x", "new/refs"):
        said = text_of(guest.run("raise OSError(30, 'ro', '%s/%s')" % (tmp_path, path)))
        assert "workspace.protect has" in said, path
    said = text_of(guest.run("raise OSError(30, 'ro', '%s/mine')" % tmp_path))
    assert "workspace.protect: programs outside" in said


REFUSED_THERE = {
    "a link out": ("raise OSError(1, 'no', '/etc', None, 'l')", "a symbolic link that leads out"),
    "a link by dots": ("raise OSError(1, 'no', '../x', None, 'l')", "a symbolic link that leads out"),
    "a folder that is moved": ("raise OSError(1, 'no', 'a/b', None, 'b')", "a symbolic link that leads out"),
    "a link elsewhere": ("raise OSError(1, 'no', '/tmp', None, '/tmp/l')", None),
    "a file's second name": ("open('f', 'w').close(); raise OSError(1, 'no', 'f', None, 'g')", None),
    "a file with another name": (
        "import os; os.link('f', 'h'); raise OSError(1, 'no', 'h')",
        "h has other names (hard links) that this jail has not made; it is read-only here. Copy it",
    ),
    "a program with set-uid": (
        "open('s', 'w').close(); os.chmod('s', 0o4755); raise OSError(1, 'no', 's')",
        "s has its set-uid or set-gid bit set; it is read-only here. Copy it and rename the copy over it",
    ),
    "a file that is made anew": ("raise OSError(16, 'busy', 'new')", "keeps making"),
}


def test_links_and_new_files(new_guest, tmp_path):
    says = {**SAYS, "workspace.mode": "rw", "workspace": str(tmp_path)}
    guest = new_guest(env={"CELLBLOCK_POLICY_SAYS": json.dumps(says)}, cwd=str(tmp_path))
    for name, (code, says) in REFUSED_THERE.items():
        said = text_of(guest.run(code))
        if says is None:
            assert "[cellblock]" not in said, (name, said)
        else:
            assert '[cellblock] workspace.mode is "rw": ' in said and says in said, (name, said)


def test_the_cell_does_not_see_the_variable(told):
    assert told.run("import os; [n for n in os.environ if n.startswith('CELLBLOCK')]").result == "[]"


def test_nothing_is_said_when_nothing_is_known(guest):
    assert "[cellblock]" not in text_of(guest.run("raise OSError(101, 'no')"))


def test_exceptions_of_ones_own_making(told):
    code = """class E(OSError):
    errno = property(lambda self: 1 / 0)
    def add_note(self, note): raise ValueError
raise E(101, 'x')"""
    assert told.run(code).error["ename"] == "E"


@pytest.mark.usefixtures("ipython")
def test_pip(told):
    result = told.run("!exit 1 # pip install nothing")
    assert 'network.mode is "none"' in result.stderr and 'packages.mode is "ro"' in result.stderr
    assert "network.mode" not in told.run("!exit 1 # pip install --no-index x.whl").stderr
    assert "[cellblock]" not in told.run("!exit 0 # pip install nothing").stderr
    assert "[cellblock]" not in told.run("!exit 1 # pip list").stderr
    assert "[cellblock]" not in told.run("!no-such-program pip install x").stderr
    result = told.run("!(echo 'ERROR: No matching distribution found for x'; exit 1) | tail -1 # pip install x")
    assert 'network.mode is "none"' in result.stderr
    assert "[cellblock]" not in told.run("!echo fine | tail -1 # pip install x").stderr


@pytest.mark.usefixtures("ipython")
def test_no_restart_after_a_pip_that_failed(new_guest):
    guest = new_guest()
    assert "restart the kernel" not in guest.run("%pip install --no-index no-such-package-anywhere").stdout
    assert "restart the kernel" in guest.run("%pip --version").stdout
