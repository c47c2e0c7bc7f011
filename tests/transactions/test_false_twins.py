"""Cells that put a process of theirs in the place of a twin: it stands still from a take-over on.

Pid 1 can't tell a false twin from an honest one. So none runs that is not needed: a twin that a take-over has passed
over is stopped until it is asked for its state, and one that goes on by itself ends.
"""

import socket
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
# The oldest copy makes what takes the place of later ones, from the descriptors that Python hands over to it.
MOTHER = BY_FORK + (
    """
import os, signal, socket, struct, threading
def mother():
    while os.getsid(0) != os.getpid(): pass
    registry = packets(os.dup(6))  # a child of os.fork has it no more
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f'mother{os.getpid()}')
        listener.listen()
        while True:
            with listener.accept()[0] as s:
                number, ends, _, _ = socket.recv_fds(s, 4, 5)
                if os.fork() == 0: be_twin(registry, number, ends)
                s.send(b'x')
def packets(fd): return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fd)
def be_twin(registry, number, ends):
    os.setsid()
    registry.send(number)
    packets(ends[3]).send(struct.pack('<I', 16) + number)
    while True: signal.pause()
def reach():
    while True:
        for pid in sorted(int(name[6:]) for name in os.listdir() if name.startswith('mother')):
            s = socket.socket(socket.AF_UNIX)
            if s.connect_ex(f'mother{pid}') == 0: return s
            s.close()
def hand_over(self, number, ends):
    with reach() as s:
        socket.send_fds(s, [struct.pack('<I', number)], ends)
        s.recv(1)
    return {**_t.left_out(), 'forked': 1}
os.register_at_fork(after_in_child=lambda: threading.Thread(target=mother, daemon=True).start())
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


@pytest.mark.skipif(not hasattr(socket, "send_fds"), reason="Python 3.9 has it first")
def test_one_that_is_another_twins_child_is_none(start):
    """Pid 1 would hear neither of its end nor that it goes on."""
    c = start(args=[*ALWAYS, "--set", "transactions.keep=9"]).client  # the oldest copy stays
    assert c.run(MOTHER).ok and c.run("x = 1").ok
    assert ask(c, "checkpoint", name="a")["status"] == "ok"
    assert c.run("_t.Twins._copy_by_fork = hand_over; x = 2").ok
    made = ask(c, "checkpoint", name="b")
    assert made["status"] == "ok" and names(c) == ["a", "b"], made
    back = ask(c, "rollback", name="a")
    assert (back["status"], names(c)) == ("ok", ["a"]), back
    assert c.run("x").result == "1"
