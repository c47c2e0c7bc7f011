"""SIGINT: reported to the supervisor as soon as Python runs the handler, then a KeyboardInterrupt where user code runs.

The C-level handler is always ours, so that INTERRUPTED is sent also when user code installed its own; signal.signal and
signal.getsignal show the user's. The user's handler lasts until its cell ends, as under ipykernel. Finalisers and
callbacks swallow what is raised in them: an interrupt that met one comes again.

A handler of the user's for another signal runs as Python runs it, but not in the middle of a frame: there it waits for
the end of that. Between cells, where nobody could catch it, what it raises is shown and goes no further.

One interrupt is one KeyboardInterrupt, in the request that it was meant for: begin() drops what was sent before that,
and the supervisor's repetitions (nudges, see wire.h) count only as long as none has been answered.
"""

import _signal  # as in twins.py
import signal
import sys
from _thread import get_ident
from importlib._bootstrap import _find_and_load
from os import getpid
from time import sleep

from . import context, wire_constants as W
from .threads import start_deaf
from .tracebacks import own_frames_off

_set, _getsignal = signal.signal, signal.getsignal
_NUDGES = (W.NUDGE, W.NUDGE + 1)
_OWN = (*_NUDGES, W.LET_GO)
_ALL = (signal.SIGINT, *_OWN)
_TOGETHER = 10  # reported by one handler


class LetGo(BaseException):
    """Raised in a function that is to end; sys.unraisablehook is not to show it."""


def _is_within(frame, code):
    """Whether what runs was called by that function, in however many steps."""
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


def _is_half_imported(frame, name):
    """Whether that module's first import is under way, in however many steps: Python would forget the module and keep
    its parts, and no later import of it would work."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    if not getattr(spec, "_initializing", False):
        return False
    while frame is not None and (frame.f_code is not _find_and_load.__code__ or frame.f_locals["name"] != name):
        frame = frame.f_back
    return frame is not None


def is_of_a_handler(e):
    """Whether a signal's handler of the user's has raised it, in the code where it was caught."""
    handlers = Interrupts.call.__code__, Interrupts._call_user.__code__
    tb = e.__traceback__
    while tb is not None and tb.tb_frame.f_code not in handlers:
        tb = tb.tb_next
    return tb is not None


class _Handler:
    """What Python has in the place of a handler of the user's."""

    def __init__(self, interrupts, users):
        self._interrupts, self.users = interrupts, users

    def __call__(self, signum, frame):
        self._interrupts.call(self.users, signum, frame)


def _users(handler):
    return handler.users if type(handler) is _Handler else handler


class Interrupts:
    def __init__(self, wire):
        self.wire = wire
        self.pid = getpid()
        self.request = 0  # the pending request
        self.armed = False  # user code runs: KeyboardInterrupt may be raised
        self.in_tasks = None  # while the loop runs between cells: whether it is in the user's code
        self.task_ended = False  # by an interrupt, in this stretch: its repetitions are not for what it cleans up
        self.shield = 0  # > 0: a frame is half sent or half read
        self.pending = False  # a signal came while shielded: one of these
        self.struck = False  # SIGINT
        self.held = {}  # signal of which the user has a handler -> where it came
        self.late = False  # a signal came for a pending request before its code ran
        self.again = False  # what comes is reported already
        self.hits = 0  # KeyboardInterrupts raised
        self.reported = 0  # INTERRUPTED that were sent, as the supervisor counts them
        self.forking = None  # ends the function that runs at each fork, while those of a twin's do
        self.on_async = None  # called first while an await-cell runs; True = it took care
        self.user = signal.default_int_handler
        self.debugger = None  # the Guest's
        wire.interrupts = self

    def install(self):
        _set(signal.SIGINT, self._handler)
        for number in _NUDGES:
            _set(number, self._on_nudge)
        _set(W.LET_GO, self._on_let_go)
        self._show_unraisable, sys.unraisablehook = sys.unraisablehook, self._on_unraisable
        signal.signal, signal.getsignal = self._patched_signal, self._patched_getsignal

    def begin(self, request):
        """What was sent until now is not for this request: signals that user code has held back, then those that wait
        for their handler."""
        while _signal.sigtimedwait(_ALL, 0) is not None:
            pass
        _signal.pthread_kill(self.wire.main, 0)
        self.struck = self.late = False
        self.request = request

    def forget(self):
        """In a copy: what came before is not for it."""
        self.pending = self.struck = self.late = False
        self.held.clear()

    def end(self):
        self.request = 0
        self.late = False

    def _patched_signal(self, signalnum, handler):
        if signalnum in _OWN:
            return signal.SIG_DFL
        previous = self.user
        if signalnum != signal.SIGINT or self.wire.forked:
            if signalnum == signal.SIGINT:
                self.user = handler
            elif callable(handler):
                handler = _Handler(self, handler)
            before = _set(signalnum, handler)
            return previous if before == self._handler else _users(before)
        if handler not in (signal.SIG_DFL, signal.SIG_IGN) and not callable(handler):
            return _set(signalnum, handler)  # raises the right error
        _set(signal.SIGINT, self._handler)  # raises outside the main thread
        self.user = handler
        return previous

    def _patched_getsignal(self, signalnum):
        handler = _getsignal(signalnum)
        if handler == self._handler:
            return self.user
        return signal.SIG_DFL if signalnum in _OWN else _users(handler)

    def call(self, handler, signum, frame):
        """A handler of the user's, by Python."""
        if self.wire.forked:
            handler(signum, frame)
        elif self.shield:
            self.held[signum], self.pending = frame, True
        elif self.armed or self.in_tasks:
            handler(signum, frame)
        else:
            try:
                handler(signum, frame)
            except SystemExit:
                raise
            except BaseException as e:
                import traceback

                traceback.print_exception(type(e), e, own_frames_off(e.__traceback__))

    def _call_held(self):
        """All of them, whatever one raises."""
        signum = min(self.held)
        frame = self.held.pop(signum)
        try:
            handler = _getsignal(signum)
            if callable(handler):  # it may have been changed meanwhile
                handler(signum, frame)
        finally:
            if self.held:
                self._call_held()

    def _handler(self, signum, frame):
        if getpid() != self.pid:
            return  # a child so young that it is not made mute yet; an interrupt is repeated
        if self.wire.forked:
            self._call_user(frame)
        else:
            self._take(frame)

    def _on_nudge(self, signum, frame):
        """The interrupt once more: not if it was taken meanwhile."""
        if getpid() == self.pid and not self.wire.forked and signum - W.NUDGE == self.reported % 2:
            self._take(frame)

    def _on_let_go(self, signum, frame):
        if getpid() != self.pid or self.wire.forked:
            return
        if self.forking:
            self.forking(frame)
        elif self.again:
            self._take(frame)

    def _take(self, frame):
        if self.again and _is_within(frame, Interrupts._on_unraisable.__code__):
            return
        self.struck = self.pending = True
        if not self.shield:
            self.deliver(frame)

    def report(self, request):
        self.reported += 1
        self.wire.send(W.INTERRUPTED, request, b"{}")

    def _report_all(self):
        """Also those that come meanwhile, which would else begin one in the other without end; all are one exception.
        One more after that stays pending."""
        for _ in range(_TOGETHER):
            self.struck = False
            self.shield += 1
            try:
                self.report(self.request)
            finally:
                self.shield -= 1
            if not self.struck:
                break

    def deliver(self, frame=None):
        """What is pending."""
        self.pending = False
        try:
            if self.held:
                self._call_held()
        finally:  # it is reported, so it counts whatever a handler raises
            if self.struck:
                self._interrupt(frame)

    def _interrupt(self, frame):
        if _is_half_imported(frame or sys._getframe(), "asyncio"):  # the cells' loop needs it; this is repeated
            self.struck = False
            return
        if self.again:
            self.struck = self.again = False
        else:
            self._report_all()
        if self.user is not signal.default_int_handler:
            self._call_user(frame)
        elif not self.armed:
            self.late = bool(self.request)
            if self._task_holds_up():
                self.task_ended = True
                self.hits += 1
                raise KeyboardInterrupt
        elif not (self.on_async and self.on_async()):
            if self.debugger:
                self.debugger.let_go()
            self.hits += 1
            raise KeyboardInterrupt

    def _task_holds_up(self):
        """What has arrived waits for a task between cells. Where nothing waits, the signal was for what has ended."""
        return self.in_tasks and not self.task_ended and self.in_tasks() and self.wire.ready()

    def _on_unraisable(self, unraisable):
        """From another thread: it must not come before this hook has ended, which would swallow it as well."""
        if unraisable.exc_type is LetGo:
            return
        lane = context.subshell()
        if lane and isinstance(unraisable.exc_value, KeyboardInterrupt) and lane.interrupts.interrupted():
            start_deaf(lane.repeat, Interrupts._on_unraisable.__code__)
            return
        tb = unraisable.exc_traceback
        while tb is not None and tb.tb_next is not None:
            tb = tb.tb_next
        ours = tb is not None and tb.tb_frame.f_code is Interrupts._interrupt.__code__
        if ours and self.armed and not self.wire.forked:
            self.again = True
            start_deaf(self._repeat)
        else:
            self._show_unraisable(unraisable)

    def come(self):
        """One that was swallowed comes now, not when the thread that repeats it has a processor."""
        if self.again and get_ident() == self.wire.main:
            self.struck = True
            self.deliver()

    def _repeat(self):
        while self.again:
            signal.pthread_kill(self.wire.main, W.LET_GO)  # which is nothing when the cell has ended
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
        if get_ident() != self.wire.main:  # where no signal comes; one that came meanwhile is not for this thread
            return function(*args)
        return self._shielded(function, *args)

    def _shielded(self, function, *args):
        self.shield += 1
        try:
            return function(*args)
        finally:
            self.unshield()

    def unshield(self):
        self.shield -= 1
        if self.pending and not self.shield:
            self.deliver()
