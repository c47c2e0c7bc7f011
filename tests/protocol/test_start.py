"""A kernel that is started with less than usual runs cells, or says why not."""

import re

import pytest

import kernels

pytestmark = pytest.mark.cellblock_only


def under(shell):
    """The kernel's command, started by a shell that was told something before."""
    argv = kernels.spec_argv()[0]
    return ["sh", "-c", shell, "sh", *argv]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_stdio(start, closed):
    k = start(argv=under(f'exec "$@" {closed}'))
    assert k.client.run("import os; os.fstat(0), os.fstat(1), os.fstat(2); 6 * 7").result == "42"
    assert k.client.run("!cat; echo shown").text() == "shown\n"


def test_no_file_may_be_written(start):
    k = start(argv=under('ulimit -f 0; exec "$@"'))
    error = k.client.run("1").error
    assert error["ename"] == "IsolationError" and re.search("EFBIG|File too large", error["evalue"])


@pytest.mark.parametrize("files", [*range(8, 15), 16, 20, 24, 28, 32, 40, 48, 64, 127])
def test_too_few_open_files(start, files):
    """One clear line at start, with both numbers and the cure; no abort of a library, nor a kernel without twins."""
    k = start(ready=False, argv=under(f'ulimit -n {files}; exec "$@"'))
    assert k.wait() == 1
    said = k.said().splitlines()
    assert len(said) == 1 and f"{files} open files are allowed" in said[0] and "128 are needed" in said[0], said
    assert "ulimit -n" in said[0]


def test_a_low_soft_limit_of_open_files_is_raised(start):
    k = start(argv=under('ulimit -Sn 24; exec "$@"'))
    assert k.client.run("6 * 7").result == "42"
    assert k.client.run("import os; os.kill(os.getpid(), 9)").about["state"] == "restored"


@pytest.mark.parametrize("umask", ["0777", "0177", "0300"])
def test_umask_that_shuts_out_its_owner(start, umask):
    """What Cellblock itself makes is its own to use; what cells make follows the user's umask."""
    k = start(argv=under(f'umask {umask}; exec "$@"'))
    assert k.client.run("import os; old = os.umask(0o22); oct(old)").result == repr(oct(int(umask, 8)))
    assert "history is kept in memory" not in k.said()


def test_an_interpreter_that_does_not_start_says_why(start):
    """How it ended, and what it said; the same for each cell."""
    c = start.client(start(ready=False, args=["--set", "env.set.PYTHONHOME=/nowhere", "--set", "warm.mode=off"]))
    for _ in range(2):
        cell = c.run("1")
        error = cell.error
        assert error["ename"] == "IsolationError" and cell.text("stderr") == "", "nothing was installed"
        assert re.search(r"exited with status 1; it said last: .*No module named 'encodings'", error["evalue"]), error
