"""usage_request: what the resource monitors of frontends show."""

import time

import psutil


def usage(client, channel="control"):
    return client.request("usage_request", {}, channel=channel).content


def test_content(client):
    client.run("1")
    got = usage(client)
    assert got["hostname"] and got["cpu_count"] >= 1 and got["pid"] > 0
    assert got["kernel_memory"] > 5e6
    host = got["host_virtual_memory"]
    assert host["total"] == psutil.virtual_memory().total and 0 <= host["percent"] <= 100
    assert host["used"] + host["available"] == host["total"]


def test_it_is_the_jails(start):
    """Of all its processes, while a cell runs; copies of the state are not counted twice."""
    c = start().client
    c.run("import subprocess")
    c.request("cellblock_list_checkpoints_request")  # in the queue's order: the copy beside it is whole by then
    before = usage(c)
    cell = c.start(
        "import sys\nkept = b'x' * (100 << 20)\n"
        "code = 'x = b\"x\" * (100 << 20); print(1, flush=True); input()'\n"
        "pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE}\n"
        "child = subprocess.Popen([sys.executable, '-c', code], **pipes)\n"
        "child.stdout.readline()\nprint('running', flush=True)\nwhile True: pass"
    )
    c.says(cell, "running")
    got = usage(c)
    assert got["kernel_memory"] > 200 << 20 > before["kernel_memory"]  # of files, what nobody reads any more goes
    assert got["kernel_cpu"] > 0
    c.request("interrupt_request", {}, channel="control")
    c.finish(cell)
    c.run("child.kill(); child.wait()")
    end = time.monotonic() + 60
    while True:
        c.request("cellblock_checkpoint_request", {"name": "one"}, channel="control")
        c.request("cellblock_list_checkpoints_request")
        if usage(c)["kernel_memory"] - before["kernel_memory"] < 150 << 20:
            break
        assert time.monotonic() < end, (usage(c), before)
        c.run("pass")  # a copy takes for itself what the last cells wrote, and this one wrote nothing


def test_before_the_jail_is_up(start):
    k = start(ready=False)
    c = start.client(k)
    assert usage(c)["status"] == "ok"
