"""An overlay's changes, when what looks through them or writes them through does not get to its end."""

import contextlib
import json
import os
import signal
import subprocess
import time

import psutil
import pytest

import kernels
from layers import PATIENCE, ask, listed
from test_layer import CELLBLOCK, ROOT, broker_of, children_of, limit_processes

pytestmark = pytest.mark.cellblock_only
BIG = 12  # files of a gigabyte without data: as many seconds, about, to compare with those of the workspace


def take_long(k):
    """What looks through the layer takes long from here on, and is at the file `a` before that."""
    code = f"for i in range({BIG}): open(f'big{{i:02}}', 'wb').truncate(1 << 30)"
    assert k.client.run(code).ok
    assert ask(k, "commit")["added"] == BIG
    assert k.client.run("open('a', 'w').write('new'); open('z', 'w').close()").ok


def begun(k, op, **how):
    """Sends such a request; also who works on it, once that is there."""
    k.client.request("cellblock_list_checkpoints_request")  # answered when no copy is on its way, nor its files
    broker = broker_of(k)
    others = children_of(broker)
    request = k.client.send("cellblock_file_request", {"op": op}, **how)
    deadline = time.monotonic() + kernels.DEADLINE
    while not (new := children_of(broker) - others):
        assert time.monotonic() < deadline
    return request, int(new.pop())


def test_a_discard_is_done_though_its_list_is_interrupted(overlay):
    c = overlay.client
    take_long(overlay)
    for _ in range(5):
        discard, _ = begun(overlay, "discard")
        c.request("interrupt_request", {}, channel="control")
        content = c.reply(discard, timeout=PATIENCE).content
        if content.get("evalue") != "interrupted: it had not begun":  # it waited behind a copy of the files
            break
    assert (content["status"], content.get("state"), content["truncated"]) == ("ok", "lost", True), content
    assert "z" not in {e["path"] for e in content["changes"]}
    assert c.run("import os; open('a').read(), os.path.exists('z')").result == "('a', False)"
    assert listed(ask(overlay, "changes")) == set()


@pytest.mark.parametrize("overlay", ["user" if ROOT else "caller"], indirect=True)  # no limit binds root
def test_a_discard_that_no_process_could_begin(overlay):
    """It lists nothing, and drops all the same, as it says."""
    c = overlay.client
    assert c.run("open('a', 'w').write('new'); kept = 1").ok
    broker = broker_of(overlay)
    was = limit_processes(broker, 0)
    content = ask(overlay, "discard")
    limit_processes(broker, was)
    assert content["status"] == "error" and "the changes are gone" in content["evalue"], content
    for _ in range(10):  # the jail after it may have met the limit as well
        if (cell := c.run("open('a').read(), 'kept' in globals()")).ok:
            break
    assert cell.result == "('a', False)", cell
    assert listed(ask(overlay, "changes")) == set()


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_command_lists_what_was_done_before_an_interrupt(overlay, flags):
    owner = overlay.file.stat()
    who = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if ROOT else {}
    take_long(overlay)
    command = [CELLBLOCK, "commit", *flags, "--kernel", str(overlay.file)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, cwd="/", **who) as commit:
        deadline = time.monotonic() + kernels.DEADLINE
        while (overlay.workspace / "a").read_text() != "new":
            assert time.monotonic() < deadline and commit.poll() is None
        overlay.client.request("interrupt_request", {}, channel="control")
        out, err = commit.communicate(timeout=PATIENCE)
    assert commit.returncode == 1 and "interrupted: what is listed was done" in err, (out, err)
    assert f"kernel {overlay.file}: written to the workspace: 0 added, " in err, (out, err)
    if flags:
        told = json.loads(out)
        assert (told["ename"], told["changes"][0]["path"]) == ("KeyboardInterrupt", "a")
    else:
        assert out.startswith("modified  a\n"), out
    assert not (overlay.workspace / "z").exists()


def test_nothing_looks_through_a_layer_after_the_kernels_end(overlay):
    take_long(overlay)
    broker = broker_of(overlay)
    _, child = begun(overlay, "changes", channel="control")
    os.kill(child, signal.SIGSTOP)  # it would take hours
    looks = psutil.Process(child)
    try:
        overlay.stop()
        broker.wait(kernels.DEADLINE)
        deadline = time.monotonic() + kernels.DEADLINE
        with contextlib.suppress(psutil.NoSuchProcess):
            while looks.status() != psutil.STATUS_ZOMBIE:
                assert time.monotonic() < deadline, looks
                time.sleep(0.01)
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            looks.kill()
