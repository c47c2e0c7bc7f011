"""execute_reply says which errors are the kernel's own word: a cell may give its exceptions any name."""

import os
import signal

import pytest

import kernels

pytestmark = [pytest.mark.cellblock_only("metadata.cellblock is cellblock's own"), pytest.mark.once]
FAKE = "raise type('IsolationError', (Exception,), {})('not the kernel')"


def test_a_cells_own(client):
    for code in (FAKE, "1 / 0", "raise SystemExit", "%no_such_magic", "raise KeyboardInterrupt"):
        assert "by" not in client.run(code).about, code
    assert "by" not in client.run("1").about


def test_the_kernels(client):
    for code, name in (("os._exit(3)", "KernelDiedError"), ("os.write(3, b'x' * 100)", "WireError")):
        cell = client.run(f"import os; {code}")
        assert cell.content["ename"] == name and cell.about["by"] == "kernel", cell
    cell = client.run("while True: pass", metadata={"cellblock": {"timeout": 0.5}})
    assert cell.content["ename"] == "CellTimeoutError" and cell.about["by"] == "kernel", cell


def test_who_ends_the_jails_from_outside(start):
    k = start()
    sent = k.client.start("print('on', flush=True)\nimport time; time.sleep(600)")
    k.client.says(sent, "on")
    for pid in k.named("cellblock-jail"):
        os.kill(pid, signal.SIGKILL)
    cell = k.client.finish(sent)
    assert cell.content["ename"] == "KernelDiedError" and cell.about["by"] == "outside", cell


def test_in_a_subshell(client):
    made = client.request("create_subshell_request", {}, channel="control").content["subshell_id"]

    def run(code, **how):
        return client.run(code, header=client.header("execute_request", subshell_id=made), **how)
    assert "by" not in run(FAKE).about
    cell = run("while True: pass", metadata={"cellblock": {"timeout": 0.5}})
    assert cell.content["ename"] == "CellTimeoutError" and cell.about["by"] == "kernel", cell


def test_no_jail(start):
    k = start(argv=["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", *kernels.spec_argv()[0]])
    cell = k.client.run("1")
    assert cell.content["ename"] == "IsolationError" and cell.about["by"] == "kernel", cell
