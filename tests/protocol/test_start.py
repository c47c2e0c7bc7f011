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
    assert error["ename"] == "IsolationError" and "EFBIG" in error["evalue"]


@pytest.mark.parametrize("files", range(8, 15))
def test_too_few_open_files(start, files):
    k = start(ready=False, argv=under(f'ulimit -n {files}; exec "$@"'))
    assert k.wait() != 0
    assert re.search(r"not started: \w+: \w|Too many open files", k.said().splitlines()[-1])
