"""Threads of the guest's own take no signals: one that a cell sends to its own process, holds back and waits for would
be lost in them, and an interrupt would wake them instead of the main thread."""

import _signal  # as in twins.py: the functions of signal cost a third of a millisecond each, here at start-up
from _thread import get_native_id, start_new_thread

_ALL = _signal.valid_signals()
own = set()  # by the kernel's numbers; what of an earlier process is in it does no harm


def start_deaf(function, *args):
    """Like start_new_thread; what the thread starts is deaf, too. RuntimeError: there can be no more threads."""
    mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, _ALL)
    try:
        start_new_thread(_run, (function, args))
    finally:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)


def _run(function, args):
    number = get_native_id()
    own.add(number)
    try:
        function(*args)
    finally:
        own.discard(number)


def hear():
    """For a thread that runs the user's code, whose children inherit what it blocks."""
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _ALL)
