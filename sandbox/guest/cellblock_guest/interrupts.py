"""SIGINT: reported to the supervisor as soon as Python runs the handler, then a KeyboardInterrupt where user code runs.

The C-level handler is always ours, so that INTERRUPTED is sent also when user code installed its own; signal.signal and
signal.getsignal show the user's. The user's handler lasts until its cell ends, as under ipykernel. Finalisers and
callbacks swallow what is raised in them: an interrupt that met one comes again.
"""

import signal
import sys
from os import getpid
from time import sleep

from . import context, wire_constants as W
from .threads import start_deaf

_signal, _getsignal = signal.signal, signal.getsignal


class Interrupts:
    def __init__(self, wire):
        self.wire = wire
        self.pid = getpid()
        self.request = 0  # the pending request
        self.armed = False  # user code runs: KeyboardInterrupt may be raised
        self.shield = 0  # > 0: a frame is half sent or half read
        self.pending = False  # a signal came while shielded
        self.late = False  # a signal came for a pending request before its code ran
        self.again = False  # what comes is reported already
        self.on_async = None  # called first while an await-cell runs; True = it took care
        self.user = signal.default_int_handler
        self.debugger = None  # the Guest's
        wire.interrupts = self

    def install(self):
        _signal(signal.SIGINT, self._handler)
        self._show_unraisable, sys.unraisablehook = sys.unraisablehook, self._on_unraisable
        signal.signal, signal.getsignal = self._patched_signal, self._patched_getsignal

    def _patched_signal(self, signalnum, handler):
        if signalnum != signal.SIGINT or self.wire.forked:
            if signalnum == signal.SIGINT:
                self.user = handler
            return _signal(signalnum, handler)
        previous = self.user
        if handler not in (signal.SIG_DFL, signal.SIG_IGN) and not callable(handler):
            return _signal(signalnum, handler)  # raises the right error
        _signal(signal.SIGINT, self._handler)  # raises outside the main thread
        self.user = handler
        return previous

    def _patched_getsignal(self, signalnum):
        if signalnum == signal.SIGINT and not self.wire.forked:
            return self.user
        return _getsignal(signalnum)

    def _handler(self, signum, frame):
        if getpid() != self.pid:
            return  # a child so young that it is not made mute yet; an interrupt is repeated
        if self.wire.forked:
            self._call_user(frame)
        elif self.again and frame.f_code is Interrupts._on_unraisable.__code__:
            return
        elif self.shield:
            self.pending = True
        else:
            self.deliver(frame)

    def deliver(self, frame=None):
        self.pending = False
        if not self.again:
            self.wire.send(W.INTERRUPTED, self.request, b"{}")
        self.again = False
        if self.user is not signal.default_int_handler:
            self._call_user(frame)
        elif not self.armed:
            self.late = bool(self.request)
        elif not (self.on_async and self.on_async()):
            if self.debugger:
                self.debugger.let_go()
            raise KeyboardInterrupt

    def _on_unraisable(self, unraisable):
        """From another thread: it must not come before this hook has ended, which would swallow it as well."""
        lane = context.subshell()
        if lane and unraisable.exc_type is KeyboardInterrupt and lane.interrupts.interrupted():
            start_deaf(lane.repeat, Interrupts._on_unraisable.__code__)
            return
        tb = unraisable.exc_traceback
        while tb is not None and tb.tb_next is not None:
            tb = tb.tb_next
        if tb is not None and tb.tb_frame.f_code is Interrupts.deliver.__code__ and self.armed and not self.wire.forked:
            self.again = True
            start_deaf(self._repeat)
        else:
            self._show_unraisable(unraisable)

    def _repeat(self):
        while self.again:
            signal.pthread_kill(self.wire.main, signal.SIGINT)
            sleep(0.01)

    def _call_user(self, frame):
        if callable(self.user):
            self.user(signal.SIGINT, frame)
        elif self.user == signal.SIG_DFL:
            raise KeyboardInterrupt

    def run(self, function, *args):
        """Calls function with interrupts on. Returns its result; a KeyboardInterrupt that it lets out is raised."""
        try:
            try:
                self.armed = True
                if self.late:
                    self.late = False
                    raise KeyboardInterrupt
                return function(*args)
            finally:
                self.armed = False
        finally:
            self.armed = self.again = False
            self.user = signal.default_int_handler

    def shielded(self, function, *args):
        self.shield += 1
        try:
            return function(*args)
        finally:
            self.shield -= 1
            if self.pending and not self.shield:
                self.deliver()
