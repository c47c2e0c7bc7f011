"""Threads of the guest's own take no signals: one that a cell sends to its own process, holds back and waits for would
be lost in them, and an interrupt would wake them instead of the main thread."""

import _signal  # as in twins.py: the functions of signal cost a third of a millisecond each, here at start-up
from _thread import start_new_thread

_ALL = _signal.valid_signals()


def start_deaf(function, *args):
    """Like start_new_thread; what the thread starts is deaf, too. RuntimeError: there can be no more threads."""
    mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, _ALL)
    try:
        start_new_thread(function, args)
    finally:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)


def hear():
    """For a thread that runs the user's code, whose children inherit what it blocks."""
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _ALL)
