"""kernel_info and heartbeat: at once, on both channels, before the guest is up and while it is busy."""

import pytest

import kernels

pytestmark = pytest.mark.once


def test_content(client):
    c = client.request("kernel_info_request").content
    assert c["status"] == "ok"
    assert tuple(map(int, c["protocol_version"].split("."))) >= (5, 3)
    assert c["implementation"] and c["implementation_version"] and c["banner"]
    info = c["language_info"]
    assert info["name"] == "python" and info["file_extension"] == ".py" and info["mimetype"].startswith("text/x-")
    assert all(set(h) == {"text", "url"} for h in c.get("help_links", []))
    assert all(isinstance(f, str) for f in c.get("supported_features", []))


@pytest.mark.cellblock_only
def test_the_banner_says_walls_and_limits(client):
    client.run("1")
    banner = client.request("kernel_info_request").content["banner"]
    assert "Isolation level " in banner and "all walls" in banner and "network none" in banner
    said = 'A cell that crashes is undone, and the session goes on (transactions.mode "auto": where memory is large, '
    assert said + "cells before it may go with it; the error names them).\n" in banner


@pytest.mark.cellblock_only
@pytest.mark.parametrize("mode, said", [
    ("off", 'costs all variables: transactions.mode is "off"'),
    ("always", 'A cell that crashes is undone, and the session goes on (transactions.mode "always").\n'),
])
def test_the_banner_says_what_a_crash_costs(start, mode, said):
    client = start(args=["--set", f"transactions.mode={mode}"]).client
    client.run("1")
    assert said in client.request("kernel_info_request").content["banner"]


@pytest.mark.parametrize("channel", ["shell", "control"])
def test_on_both_channels_with_busy_and_idle(client, channel):
    msg_id = client.send("kernel_info_request", channel=channel)
    assert client.reply(msg_id, channel).type == "kernel_info_reply"
    states = [m.content["execution_state"] for m in client.until_idle(msg_id)]
    assert states == ["busy", "idle"]


def test_version_is_true_from_the_first_answer(start):
    k = start(ready=False)
    c = start.client(k)
    first = c.request("kernel_info_request").content["language_info"]["version"]
    c.ready()
    assert c.run("import platform; platform.python_version()").result == repr(first)


@pytest.mark.cellblock_only
@pytest.mark.parametrize("channel", ["shell", "control"])
def test_before_the_guest_is_up(start, new_gate, nothing_left, channel):
    """The cell sent first needs the guest, which waits for the gate; the question sent after it does not wait."""
    program, guest = kernels.copy_programs(nothing_left / f"late-{channel}")
    boot = guest / "boot.py"
    wait = 'import os, time\nwhile not os.path.exists("gate"): time.sleep(0.01)\nopen("gate").read()\n'
    boot.write_text(wait + boot.read_text())
    argv = [str(program), *kernels.spec_argv()[0][1:]]
    k = start(argv=argv, args=["--set", "warm.mode=off"], ready=False)
    gate = new_gate(k)
    c = start.client(k)
    cell = c.start("1 + 1")
    assert c.request("kernel_info_request", channel=channel).content["status"] == "ok"
    gate()
    assert c.finish(cell).result == "2"


@pytest.mark.parametrize("channel", [pytest.param("shell", marks=pytest.mark.cellblock_only), "control"])
def test_while_a_cell_runs(client, gate, channel):
    cell = client.start("print('running', flush=True)\nopen('gate').read()")
    client.says(cell, "running")
    assert client.request("kernel_info_request", channel=channel).content["status"] == "ok"
    client.beat()
    gate()
    assert client.finish(cell).ok


@pytest.mark.cellblock_only
def test_while_c_code_holds_the_gil(client, gate):
    """Nothing of Python can run here: PyDLL calls keep the GIL."""
    cell = client.start("import ctypes\nprint('running', flush=True)\nctypes.PyDLL(None).open(b'gate', 0)\n1")
    client.says(cell, "running")
    for channel in ("shell", "control"):
        assert client.request("kernel_info_request", channel=channel).content["status"] == "ok"
    client.beat()
    gate()
    assert client.finish(cell).result == "1"


def test_heartbeat_echoes_what_it_gets(client):
    for payload in (b"x", b"", bytes(range(256)) * 4):
        client.sockets["hb"].send(payload)
        assert client.next("hb") == [payload]


@pytest.mark.stand_in_fails("deprecated message gone from ipykernel 7")
def test_connect_request(client, kernel):
    c = client.request("connect_request").content
    for name in ("shell", "iopub", "stdin", "control", "hb"):
        assert c[f"{name}_port"] == kernel.connection[f"{name}_port"]


@pytest.mark.cellblock_only
def test_nothing_on_stdout_and_stderr(start):
    k = start()
    assert k.client.run("print(1)\n1/0").content["status"] == "error"
    k.stop()
    assert k.said() == ""


@pytest.mark.cellblock_only
def test_arguments_meant_for_ipykernel_are_ignored(start):
    k = start(args=["--Kernel.stop_on_error_timeout=0", "--IPKernelApp.foo=1", "--debug", "--profile-dir", "/nowhere"])
    assert k.client.run("6*7").result == "42"
