"""How a kernel ends: asked on control or shell, by a signal, with its parent; and that all of it ends."""

import json
import os
import signal
import subprocess
import sys

import pytest
import zmq

import kernels
from rawclient import DEADLINE, endpoint


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("channel", ["control", "shell"])
def test_asked(start, channel, restart):
    k = start()
    k.client.run("1")
    family = k.family()
    reply = k.client.request("shutdown_request", {"restart": restart}, channel=channel)
    assert reply.type == "shutdown_reply" and reply.content["restart"] is restart and reply.content["status"] == "ok"
    assert k.wait() == 0
    assert not kernels.wait_gone(family)


@pytest.mark.cellblock_only("ipykernel waits for the cell; its clients kill it")
def test_while_a_cell_runs(start):
    k = start()
    cell = k.client.start("print('running', flush=True)\nwhile True: pass")
    k.client.says(cell, "running")
    family = k.family()
    k.client.request("shutdown_request", {"restart": False}, channel="control")
    ended = k.client.reply(cell).content
    assert ended["ename"] == "KernelDiedError" and "the kernel was shut down" in ended["evalue"]
    assert "next cell" not in ended["evalue"]  # there is none
    k.wait()
    assert not kernels.wait_gone(family)


def test_atexit_handlers_run(start):
    k = start()
    k.client.run(
        "import atexit, os\npath = os.path.abspath('was_here')\natexit.register(lambda: open(path, 'w').close())"
    )
    k.client.request("shutdown_request", {"restart": False}, channel="control")
    k.wait()
    assert (k.workspace / "was_here").exists()


@pytest.mark.cellblock_only("ipykernel waits for the handler")
def test_an_atexit_handler_that_hangs_does_not_hang_the_end(start):
    k = start()
    c = k.client
    c.run("import atexit, time\natexit.register(time.sleep, 600)")
    beside = c.request("create_subshell_request", {}, channel="control").content["subshell_id"]
    cell = c.start(
        "print('on', flush=True); time.sleep(600)", header=c.header("execute_request", subshell_id=beside)
    )
    c.says(cell, "on")
    c.request("shutdown_request", {"restart": False}, channel="control")
    ended = c.finish(cell).content
    assert ended["ename"] == "KernelDiedError" and "was shut down" in ended["evalue"]
    k.wait()


@pytest.mark.parametrize("busy", [False, True])
def test_sigterm(start, busy):
    k = start()
    if busy:
        cell = k.client.start("print('running', flush=True)\nwhile True: pass")
        k.client.says(cell, "running")
    family = k.family()
    k.signal(signal.SIGTERM)
    status = k.wait()
    if k.is_cellblock:
        assert status == 0
    assert not kernels.wait_gone(family)


@pytest.mark.parametrize("busy", [False, True])
def test_sigkill_takes_all_along(start, busy):
    k = start()
    k.client.run(
        "from subprocess import PIPE, Popen\n"
        "command = ['sh', '-c', 'echo; read x', '4243']\n"
        "children = [Popen(command, start_new_session=True, stdin=PIPE, stdout=PIPE) for i in range(3)]\n"
        "[child.stdout.readline() for child in children]"
    )
    if busy:
        cell = k.client.start("print('running', flush=True)\nwhile True: pass")
        k.client.says(cell, "running")
    family = k.family()
    assert sum("4243" in kernels.words_of(p) for p in family) == 3
    k.signal(signal.SIGKILL)
    k.wait()
    left = kernels.wait_gone(family)
    if k.is_cellblock:
        assert not left, f"outlived the supervisor: {left}"
    for p in left:
        p.kill()


@pytest.mark.cellblock_only
def test_sigkill_of_the_broker_ends_all(start):
    """The broker is not the guest's to kill, but an administrator may: no orphan, and the server starts anew."""
    k = start()
    k.client.run("1")
    broker = [p for p in k.family() if p.ppid() == k.pid]
    family = k.family()
    for p in broker:
        p.kill()
    assert not kernels.wait_gone(family)
    k.wait()
    assert not k.alive()


LAUNCHER = """
import json, os, subprocess, sys
how = json.load(sys.stdin)
p = subprocess.Popen(how['argv'], cwd=how['cwd'], env={**how['env'], 'JPY_PARENT_PID': str(os.getpid())},
stdin=subprocess.DEVNULL,
                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
print(p.pid, flush=True)
os.read(int(sys.argv[1]), 1)
os._exit(0)
"""


@pytest.mark.cellblock_only("ipykernel looks for init as its new parent, which a subreaper is not")
def test_it_ends_when_its_parent_is_gone(start):
    k = start()
    k.stop()
    gate_read, gate_write = os.pipe()
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(gate_read)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[gate_read],
        text=True,
    )
    pidfd = -1
    try:
        launcher.stdin.write(json.dumps({"argv": k.argv, "cwd": str(k.workspace), "env": k.env}))
        launcher.stdin.close()
        pidfd = os.pidfd_open(int(launcher.stdout.readline()))
        with kernels.Client(connection=k.connection) as c:
            c.ready()
            assert c.run("1").ok
            os.write(gate_write, b"x")
            launcher.wait()
            assert kernels.wait_pidfd(pidfd, DEADLINE), "the kernel outlives its parent"
    finally:
        launcher.kill()  # nothing where it has ended
        launcher.wait()
        if pidfd >= 0 and not kernels.wait_pidfd(pidfd, 0):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        for fd in (gate_read, gate_write, *([pidfd] if pidfd >= 0 else [])):
            os.close(fd)
        launcher.stdout.close()


@pytest.mark.cellblock_only("ipykernel waits for the cell; its clients kill it")
def test_requests_in_the_queue_do_not_hold_it_up(start):
    k = start()
    first = k.client.start("print('running', flush=True)\nimport time; time.sleep(600)")
    for i in range(100):
        k.client.start(f"{i}")
    k.client.says(first, "running")
    k.client.request("shutdown_request", {"restart": True}, channel="control")
    k.wait()


def test_restart_by_a_manager(tmp_path):
    """jupyter_client's own way: same ports, new process, state gone."""
    from jupyter_client.manager import KernelManager

    km = KernelManager(kernel_name=kernels.NAME)
    km.start_kernel(cwd=str(tmp_path))
    kc = km.client()
    try:
        kc.start_channels()
        kc.wait_for_ready(timeout=60)
        kc.execute_interactive("x = 1", timeout=60, allow_stdin=False)
        km.restart_kernel(now=False)
        kc.wait_for_ready(timeout=60)
        reply = kc.execute_interactive("x", timeout=60, allow_stdin=False, output_hook=lambda m: None)
        assert reply["content"]["ename"] == "NameError"
        km.interrupt_kernel()
        kernels.idle_after(kc, "interrupt_request")  # by another socket: it could overtake, or be overtaken
        reply = kc.execute_interactive("y = 2", timeout=60, allow_stdin=False)
        assert reply["content"]["status"] == "ok"
    finally:
        kc.stop_channels()
        km.shutdown_kernel(now=False)
        km.cleanup_resources()
    assert not km.is_alive()


@pytest.mark.once
def test_clients_that_take_over_an_identity_and_leave_do_no_harm(start):
    """As tabs do that reconnect, and programs that make two clients of one manager. libzmq ended the process when a
    heartbeat was due for one that had lost its identity and was gone: the second, which is twenty seconds later."""
    kernel = start()
    context = zmq.Context()
    try:
        peers = []
        for channel in ("shell", "control", "stdin"):
            for _ in range(5):
                s = context.socket(zmq.DEALER)
                s.linger, s.routing_id = 0, b"the same"
                s.connect(endpoint(kernel.connection, channel))
                s.send(b"hello")
                peers.append(s)
                assert kernel.client.run("1").ok
        for s in peers:
            s.send(b"hello")
        assert kernel.client.run("1").ok
        for s in peers:
            s.close()
    finally:
        context.destroy(linger=0)
    assert not kernels.wait_pidfd(kernel.pidfd, 22), kernel.said()
    assert kernel.client.run("6 * 7").result == "42"
