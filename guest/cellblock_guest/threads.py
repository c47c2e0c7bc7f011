"""Threads of the guest's own take no signals: one that a cell sends to its own process, holds back and waits for would
be lost in them, and an interrupt would wake them instead of the main thread."""

import _signal  # as in twins.py: the functions of signal cost a third of a millisecond each, here at start-up
import os
from _thread import get_native_id, start_new_thread
from contextlib import suppress
from time import sleep

_ALL = _signal.valid_signals()
_MANY = 64
_TURNS = 1000  # of a ms, at least, that one has to begin
# Of each [its process], for on a busy machine one that was started begins late; [its process, the kernel's number]
# since it has begun, in one step, until it is found gone. What of an earlier process is in here does no harm.
_ours = []


def start_deaf(function, *args):
    """Like start_new_thread; what the thread starts is deaf, too. RuntimeError: there can be no more threads."""
    if not try_deaf(function, *args):
        raise RuntimeError("can't start new thread")  # in Python's words


def try_deaf(function, *args):
    """The same; False: there can be no more threads. An interrupt that comes meanwhile does not have that error as its
    context: it is none of the cell's."""
    if len(_ours) > _MANY:
        try:
            strangers()
        except OSError:  # then nobody asks for them
            _ours.clear()
    mask, mine = _signal.pthread_sigmask(_signal.SIG_BLOCK, ()), [os.getpid()]
    try:
        _signal.pthread_sigmask(_signal.SIG_BLOCK, _ALL)  # an interrupt may be raised here, and signals are blocked
        return _start(mine, function, args)
    finally:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)


def _start(mine, function, args):
    _ours.append(mine)
    try:
        start_new_thread(_run, (mine, function, args))
    except (RuntimeError, MemoryError):
        mine.append(0)  # as one that is gone
        return False
    return True


def _run(mine, function, args):
    mine.append(get_native_id())
    function(*args)


def await_begun():
    """Before Python ends, which frees what a thread has that has not begun: it would begin all the same, and use it."""
    for _ in range(_TURNS):
        if [os.getpid()] not in _ours:
            break
        sleep(0.001)


def strangers():
    """(numbers of this process's threads that are none of ours as far as is known, how many of them are ours all the
    same, since they have not begun). OSError where the kernel does not say."""
    before = [(each, len(each) > 1) for each in list(_ours)]
    tasks = {int(name) for name in os.listdir("/proc/self/task")}
    now = [(each, tuple(each)) for each in list(_ours)]  # each is looked at once: it may begin at any moment
    for each, had_begun in before:
        if had_begun and each[1] not in tasks:
            with suppress(ValueError):  # another thread has looked as well
                _ours.remove(each)
    old, mine = {id(each) for each, _ in before}, (os.getpid(),)
    starting = sum(1 for each, was in now if was == mine and id(each) in old)
    return tasks - {was[1] for _, was in now if len(was) > 1}, starting


def renumber(process, now):
    """In a copy of `process` with its threads: {the number that one had: that it has}."""
    _ours[:] = [each for each in _ours if len(each) == 1 or each[1] in now]
    for each in _ours:
        if each[0] == process:
            each[0] = os.getpid()
        if len(each) > 1:
            each[1] = now[each[1]]


def hear():
    """For a thread that runs the user's code, whose children inherit what it blocks."""
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _ALL)
