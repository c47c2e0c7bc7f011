"""Kernels for tests of transactions: with IPython and in plain mode, with limits that a failing cell reaches soon; on
this host as it is, and for root also as if it had no control groups (an ordinary user mostly finds none)."""

import os
import subprocess
import sys

import kernels
import pytest

MODES = ["ipython", "plain"]
HOSTS = ["as it is", "no-cgroup"] if os.geteuid() == 0 else ["as it is"]
LIMITS = ["timeout.grace=0.3", "limits.memory=512M", "limits.pids=32", "transactions.mode=always"]


@pytest.fixture(scope="session")
def plain_python(tmp_path_factory):
    """An interpreter without IPython."""
    folder = tmp_path_factory.mktemp("plain") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin" / "python"


@pytest.fixture(params=MODES, scope="module")
def mode(request):
    return request.param


@pytest.fixture(params=HOSTS, scope="module")
def host(request):
    if request.param != "as it is" and not os.environ.get("CELLBLOCK_BUILD"):
        pytest.skip("CELLBLOCK_BUILD is not set")
    return request.param


@pytest.fixture
def transactional(start, mode, plain_python):
    """transactional("key=value", …) starts a kernel of the mode and gives its client."""

    def begin(*sets, host="as it is"):
        args = [word for each in (*LIMITS, *sets) for word in ("--set", each)]
        argv = kernels.argv_of(plain_python) if mode == "plain" else kernels.spec_argv()[0]
        return start(argv=kernels.on_host(host, argv), args=args).client

    return begin
