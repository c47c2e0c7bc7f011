"""Threads of the guest's own take no signals: one that a cell sends to its own process, holds back and waits for would
be lost in them, and an interrupt would wake them instead of the main thread."""

import _signal  # as in twins.py: the functions of signal cost a third of a millisecond each, here at start-up
import os
from _thread import get_native_id, start_new_thread
from time import sleep

_ALL = _signal.valid_signals()
_MANY = 64
_TURNS = 1000  # of a ms, at least, that one has to begin
# What of an earlier process is in these does no harm.
_own = set()  # the kernel's numbers of those that have begun; a number stays until its thread is gone
# For each that has not begun, [its process]: on a busy machine one that was started begins late. Where it begins its
# number is added, in one step: it is either to begin or known by that, and never both or neither.
_starting = []


def start_deaf(function, *args):
    """Like start_new_thread; what the thread starts is deaf, too. RuntimeError: there can be no more threads."""
    if not try_deaf(function, *args):
        raise RuntimeError("can't start new thread")  # in Python's words


def try_deaf(function, *args):
    """The same; False: there can be no more threads. An interrupt that comes meanwhile does not have that error as its
    context: it is none of the cell's."""
    if len(_own) > _MANY:
        try:
            strangers()
        except OSError:  # then nobody asks for them
            _own.clear()
    mask, mine = _signal.pthread_sigmask(_signal.SIG_BLOCK, ()), [os.getpid()]
    try:
        _signal.pthread_sigmask(_signal.SIG_BLOCK, _ALL)  # an interrupt may be raised here, and signals are blocked
        return _start(mine, function, args)
    finally:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)


def _start(mine, function, args):
    _starting.append(mine)
    try:
        start_new_thread(_run, (mine, function, args))
    except (RuntimeError, MemoryError):
        mine.append(0)  # it is like no other's that is to begin
        _starting.remove(mine)
        return False
    return True


def _run(mine, function, args):
    mine.append(get_native_id())
    _own.add(mine[1])
    _starting.remove(mine)
    function(*args)


def await_begun():
    """Before Python ends, which frees what a thread has that has not begun: it would begin all the same, and use it."""
    for _ in range(_TURNS):
        if [os.getpid()] not in _starting:
            break
        sleep(0.001)


def strangers():
    """(numbers of this process's threads that are none of ours as far as is known, how many of them are ours all the
    same, since they have not begun). OSError where the kernel does not say."""
    begun = _own.copy()
    tasks = {int(name) for name in os.listdir("/proc/self/task")}
    _own.difference_update(begun - tasks)
    lately = list(_starting)  # in this order: whoever begins meanwhile is in one of the two, and counted once
    known = _own.copy()
    lately = [tuple(each) for each in lately]
    known.update(each[1] for each in lately if len(each) > 1)
    return tasks - known, lately.count((os.getpid(),))


def renumber(process, now):
    """In a copy of `process` with its threads: {the number that one had: that it has}."""
    ours = {now[each] for each in _own if each in now}
    _own.clear()
    _own.update(ours)
    for each in _starting:
        if each[0] == process:
            each[0] = os.getpid()
            each[1:] = [now.get(number, number) for number in each[1:]]


def hear():
    """For a thread that runs the user's code, whose children inherit what it blocks."""
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _ALL)
