"""A guest that dies in the moment in which its twin registers with pid 1: later twins are registered as ever."""

import os
import signal

import psutil
import pytest

from kernels import BY_FORK

pytestmark = pytest.mark.cellblock_only("no other kernel does this")
# Each fork waits for the other end of a pipe, where the file "hold" is.
HOLD = BY_FORK + (
    "import os\nme = os.getpid()\nkept = [1]\n"
    "def hold():\n    if os.path.exists('hold') and os.getpid() == me: open('gate').close()\n"
    "os.register_at_fork(before=hold)"
)


def wait_for_one_more(init, before):
    """A twin, which has nothing more to say."""
    for _ in range(100000):
        new = [p for p in init.children() if p.pid not in before]
        if new and os.getsid(new[0].pid) == new[0].pid and new[0].status() == psutil.STATUS_SLEEPING:
            return
    raise AssertionError("no twin came")


def test_the_guest_dies_while_its_twin_registers(start, new_gate):
    """Pid 1 is stopped meanwhile, so that it hears of both at once."""
    c = start(args=["--set", "transactions.mode=always"]).client
    assert c.run(HOLD).ok
    gate, hold = new_gate(c.kernel), c.kernel.workspace / "hold"
    assert c.run("kept").ok
    assert c.request("cellblock_list_checkpoints_request").content["status"] == "ok"  # the twin is there by then
    init = psutil.Process(c.kernel.named("cellblock-init")[0])
    before = [p.pid for p in init.children()]
    guest = psutil.Process(min(before, key=lambda pid: psutil.Process(pid).create_time()))
    hold.write_text("")
    assert c.run("kept.append(2)", timeout=60).ok  # the twin behind it is held
    pipe = os.open(gate.path, os.O_WRONLY)
    init.send_signal(signal.SIGSTOP)
    hold.unlink()
    os.close(pipe)
    wait_for_one_more(init, before)
    guest.kill()
    init.send_signal(signal.SIGCONT)
    after = c.run("kept[:1]", timeout=60)
    assert after.about["state"] == "restored", after
    for _ in range(2):
        assert c.request("cellblock_checkpoint_request", {"name": "a"}).content["status"] == "ok"
        died = c.run("os._exit(1)")
        assert died.about["undone"] == [died.content["execution_count"]], died.content
