"""Cells that put a process of theirs in the place of a twin: it stands still from a take-over on.

Pid 1 can't tell a false twin from an honest one. So none runs that is not needed: a twin that a take-over has passed
over is stopped until it is asked for its state, and one that goes on by itself ends.
"""

import time

import pytest

import kernels
from kernels import BY_FORK

pytestmark = [pytest.mark.cellblock_only("no other kernel does this"), pytest.mark.once]
ALWAYS = ["--set", "transactions.mode=always"]

# Each copy starts a program that nobody finds who looks below it, at once and whenever that one has ended.
SPAWNS = BY_FORK + (
    """
import ctypes, os, signal, threading
def begin():
    os.posix_spawn('/bin/sh', ['sh', '-c', 'setsid sleep 4711 &'], dict(os.environ))
def spin():
    while os.getsid(0) != os.getpid(): pass
    alarm()
    while True:
        alive, its = os.pipe()
        os.set_inheritable(its, True)
        begin()
        os.close(its)
        open(f'ready{os.getpid()}', 'w').close()
        os.read(alive, 1)
        os.close(alive)
def alarm(): pass
os.register_at_fork(after_in_child=lambda: threading.Thread(target=spin, daemon=True).start())
"""
)
# And goes on by itself when it has been stopped.
TIMED = SPAWNS + (
    """
class Event(ctypes.Structure):
    _fields_ = [('value', ctypes.c_void_p), ('signal', ctypes.c_int), ('how', ctypes.c_int), ('', ctypes.c_byte * 48)]
def alarm():
    c, rt, timer = ctypes.CDLL(None), ctypes.CDLL('librt.so.1'), ctypes.c_void_p()
    c.signal(signal.SIGCONT, ctypes.cast(c.getpid, ctypes.c_void_p))  # it must be taken to come again
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCONT])
    assert rt.timer_create(1, ctypes.byref(Event(None, signal.SIGCONT, 0)), ctypes.byref(timer)) == 0
    assert rt.timer_settime(timer, 0, (ctypes.c_long * 4)(0, 30_000_000, 0, 30_000_000), None) == 0
"""
)


def ask(c, what, **content):
    return c.request(f"cellblock_{what}_request", content, channel="control").content


def names(c):
    return [each["name"] for each in ask(c, "list_checkpoints")["checkpoints"]]


def spawned(c):
    return c.kernel.running(lambda words: "4711" in words)


def wait_for_copies(c, count):
    deadline = time.monotonic() + kernels.DEADLINE
    while len(list(c.kernel.workspace.glob("ready*"))) < count or not spawned(c):
        assert time.monotonic() < deadline, "the copies start nothing"


@pytest.mark.parametrize("name", [None, "kept"])
def test_it_starts_nothing_after_a_take_over(start, name):
    c = start(args=ALWAYS).client
    assert c.run("x = 1").ok and c.run(SPAWNS).ok
    if name is not None:
        assert ask(c, "checkpoint", name=name)["status"] == "ok"
    wait_for_copies(c, 1 if name is None else 2)
    back = ask(c, "rollback")
    assert (back["status"], back["restored_to"]) == ("ok", 1), back
    for _ in range(3):
        assert c.run("x").result == "1" and spawned(c) == []
    assert names(c) == ([name] if name is not None else [])
    if name is not None:  # and its state is there
        assert ask(c, "rollback", name=name)["status"] == "ok"
        assert c.run("x, begin.__name__").result == "(1, 'begin')"


def test_one_that_goes_on_by_itself_ends(start):
    c = start(args=ALWAYS).client
    assert c.run("x = 1").ok and c.run(TIMED).ok
    assert ask(c, "checkpoint", name="false")["status"] == "ok"
    wait_for_copies(c, 2)
    assert ask(c, "rollback")["status"] == "ok"
    deadline = time.monotonic() + kernels.DEADLINE
    while names(c):
        assert time.monotonic() < deadline, "it goes on"
    assert c.run("x").result == "1"
