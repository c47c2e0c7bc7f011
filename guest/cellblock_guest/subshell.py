"""Subshells (JEP 91): threads that run cells in the namespace that all shells share.

A subshell's shell is the main one's with a few things of its own: what belongs to the running cell, the hook that
shows its value, its asyncio loop. Where Python or IPython have one of a thing for the whole process, a switch by thread
is put in its place when the first subshell is made.
"""

import os
import signal
import sys
import threading
import time
from _queue import SimpleQueue
from _thread import allocate_lock, get_ident
from collections import deque
from time import CLOCK_MONOTONIC, clock_gettime

from . import context, wire_constants as W
from .aio import Aio
from .beside import serve
from .jsontext import loads
from .side import Lane
from .threads import hear, start_deaf
from .tracebacks import is_own_file

_LOOK = 0.05  # seconds between two looks, where an interrupt can't end a wait
_PATIENCE = 0.15  # seconds for an interrupt to arrive; a user's second one after 0.25 ends all of Python
_LEFT = "the cell waits in C code, which no interrupt reaches: its thread was left there, and ends when the wait does"
_lanes = {}  # thread -> its Subshell


def running():
    """The Subshell whose thread this is, or None."""
    return _lanes.get(get_ident())


def forget():
    """In a twin that was woken: its threads are not those."""
    _lanes.clear()


class _Waker:
    """What Aio knows of the main thread's wire."""

    fd = W.FD_SIDE

    def __init__(self):
        self.main = get_ident()


class _Guest:
    """The guest as a subshell's shell sees it."""

    def __init__(self, guest, lane):
        self._guest = guest
        self._lane = lane
        self.interrupts = lane.interrupts
        self.aio = lane.aio

    def __getattr__(self, name):
        return getattr(self._guest, name)

    def send_result(self, data, metadata, transient=None):
        guest, request = self._guest, context.current()
        if not self.aio.executing or request != self._lane.request:
            guest.send_display("display_data", {"data": data, "metadata": metadata, "transient": transient or {}})
            return
        guest.output.flush_replaced()
        guest.send_result_of(W.EXECUTE_RESULT, request, data, metadata, transient)

    def send_error(self, *error):
        if not self.interrupts.left:
            self._guest.send_error(*error)


class _Beside:
    """What Aio tells when an await-cell of the subshell begins and ends: comm messages that come meanwhile are handled
    by its loop, in its thread; what comes too late, after the cell."""

    def __init__(self, lane):
        self._lane = lane
        self._loop = None  # that runs
        self._frames = deque()
        self._lock = allocate_lock()

    def __call__(self, begins):
        lane = self._lane
        if not begins:
            self.end()
        elif not lane.interrupts.left:
            with self._lock:
                self._loop = lane.aio.loop
            lane.guest.wire.send(W.AWAITING, lane.request, b"{}")

    def end(self):
        with self._lock:
            self._loop = None
            while self._frames:
                self._lane.queue.put(self._frames.popleft())

    def take(self, frame):
        """In the thread that reads the side wire."""
        with self._lock:
            if self._loop is None or self._loop.is_closed():
                self._lane.queue.put(frame)
            else:
                self._frames.append(frame)
                self._loop.call_soon_threadsafe(self._serve)

    def _serve(self):
        while self._frames:
            serve(self._lane.guest, self._lane.aio, *self._frames.popleft())


class _Frames:
    """What the subshell's thread waits for, while its loop runs: a callback of the user's may have begun a task."""

    def __init__(self):
        self._all = SimpleQueue()
        self._loop = None  # that runs meanwhile
        self.empty = self._all.empty

    def put(self, frame):
        """Takes no lock: in a copy of the process its owner might have to wait for who puts."""
        self._all.put(frame)
        loop = self._loop
        try:
            if loop is not None:
                loop.call_soon_threadsafe(self._arrived, loop)
        except RuntimeError:  # it is closed
            pass

    def _arrived(self, loop):
        if loop is self._loop:  # else this is late, and a cell runs by now
            loop.stop()

    def get(self, aio):
        while self.empty() and aio and aio.loop is not None and not aio.loop.is_closed():
            self._loop = aio.loop
            try:
                if self.empty():
                    aio.run_tasks(lambda: aio.interrupts.run_tasks(aio.runs_users, aio.loop.run_forever))
            finally:
                self._loop = None
        return self._all.get()


class _Answers:
    """To one question at a time, with its number; those to others have crossed an interrupt. SimpleQueue.get(timeout)
    waits without end if a signal comes just at its time."""

    def __init__(self):
        self._all, self._bell = deque(), allocate_lock()

    def put(self, number, answer):
        self._all.append((number, answer))
        try:
            self._bell.release()
        except RuntimeError:
            pass

    def get(self, number, seconds):
        """None: there was none in that time."""
        if not self._all:
            self._bell.acquire(True, seconds)
        while self._all:
            of, answer = self._all.popleft()
            if of == number:
                return answer
        return None


class Subshell(Lane):
    def __init__(self, side, number, wire):
        super().__init__(side, number, wire, "subshell-%d" % number)
        self.kind = self.request = self.task = 0
        self.shell = self.aio = None
        self.payloads = []
        self.asks = False  # the running cell may
        self.asked = False  # and does: the question is open
        self.answered = False  # the last request
        self.questions = 0  # the number of the last one
        self.clicks = self.used = 0  # interrupts; each allows another question in the place of an open one
        self.queue, self.answers = _Frames(), _Answers()
        self._question = threading.RLock()
        self._followed = 0  # the request that was interrupted, and has not taken it
        self._ends = threading.RLock()  # held while `request` ceases to be, asks, or is told of
        self.beside = _Beside(self)
        self.guest.output.wake()  # its thread is not to be born of a cell's, see context.patch_threads

    def ask(self, question, calls=b""):
        """For input() and host tools (calls): what the client answers. Also for threads of the cell's."""
        while not self._question.acquire(True, _LOOK):
            pass
        try:
            return self._ask(question, calls)
        finally:
            self._question.release()

    def _ask(self, question, calls):
        clicks, mine = self.clicks, get_ident() == self.thread.ident
        self.guest.output.flush()
        with self._ends:  # the question comes before its cell's reply, or not at all
            request = self.request
            if not request or not self.asks:
                raise EOFError("its cell has ended")
            if not self.asked or self.used < self.clicks:
                self.used += self.asked
                self.asked = True
                self.questions += 1
                self.guest.wire.ask(request, self.questions, question, calls)
        while (answer := self.answers.get(self.questions, _LOOK)) is None:
            if not mine and (self.clicks != clicks or self.request != request or not self.asks):
                raise EOFError("interrupted, or its cell has ended")
        self.asked = False
        return answer

    def retire(self):
        """Its cell has failed, as far as anybody knows."""
        super().retire()
        if self.request:
            self.interrupts.end()
        self.request, self.asks = 0, False

    def interrupt(self, request):
        self.clicks += 1
        self._interrupt(request)

    def repeat(self, hook):
        """After sys.unraisablehook swallowed an interrupt; not before its code has ended, which would do so, too."""
        frame, request = hook, self.request
        while frame:
            time.sleep(0.01)
            frame = sys._current_frames().get(self.thread.ident)
            while frame and frame.f_code is not hook:
                frame = frame.f_back
        self._interrupt(request)

    def _interrupt(self, request):
        before = self._waits()
        if self._followed != request:
            self.interrupts.took.acquire(False)
        super().interrupt(request)
        if self.interrupts.armed and request == self.request:
            _interrupt_children(self.task)
            if before:
                start_deaf(self._leave, request, before)
            if self._followed != request:
                self._followed = request
                start_deaf(self._follow, request)

    def _follow(self, request):
        """Tells the supervisor when its thread has taken an interrupt: one that comes later is another, and not a
        second one, which ends all of Python."""
        while request == self.request and not self.interrupts.took.acquire(True, _PATIENCE):
            pass
        self._followed = 0
        with self._ends:
            if request == self.request:
                self.guest.wire.send(W.INTERRUPTED, request, b"{}")

    def _waits(self):
        """What is the same again only if its thread has not run meanwhile, for it waits in the kernel; else None."""
        try:
            with open("/proc/self/task/%d/status" % self.task, "rb") as f:
                status = f.read().splitlines()
        except OSError:
            return None
        return [s for s in status if b"ctxt_switches" in s] if b"State:\tS (sleeping)" in status else None

    def _leave(self, request, before):
        """After an interrupt that does not reach its thread: the cell ends without it, and another one goes on with the
        subshell. What the thread runs when its wait has ended, a KeyboardInterrupt, is nobody's."""
        time.sleep(_PATIENCE)
        if request != self.request or self.aio.serving:
            return
        if not self.interrupts.leave(lambda: self._waits() == before):
            return
        with self._ends:
            self.request, self.asks = 0, False
        lane = Subshell(self.side, self.number, self.wire)
        lane.queue = self.queue  # what arrives meanwhile is put there
        try:
            lane.start()
        except (RuntimeError, MemoryError):  # there can be no more threads now: the next request starts it
            pass
        self.side.lanes[self.number] = lane
        self.beside.end()
        if self.kind != W.EXECUTE:
            self.guest.reply(W.COMM_DONE, request, b"{}")
            return
        traceback = _traceback_of(self.thread.ident)
        self.side.end_cell(request, KeyboardInterrupt(), _LEFT, traceback)

    def run(self):
        self.task = threading.get_native_id()
        _lanes[get_ident()] = self
        self.guest.wire.beside[get_ident()] = self.interrupts
        hear()
        try:
            super().run()
        finally:
            for each in (_lanes, self.guest.wire.beside):  # a copy of the process has forgotten it
                each.pop(get_ident(), None)
            if self.aio:
                self.aio.close()

    def next_frame(self):
        return self.queue.get(self.aio)

    def serve(self, kind, request, content, metadata, buffers):
        self.kind, self.request, self.answered = kind, request, False
        if self.interrupts.left:  # in a copy
            return
        self.interrupts.request = request
        answer, reply = self._answer(kind, request, content, metadata, buffers)
        self.guest.aio.wake()
        if self.interrupts.left:
            return
        with self._ends:
            self.request = 0
        self.guest.reply(answer, request, reply)
        self.answered = True

    def fail(self, e, kind, request, *more):
        with self._ends:
            self.request = 0
        if not self.answered and not self.interrupts.left:
            super().fail(e, kind, request, *more)

    def _answer(self, kind, request, content, metadata, buffers):
        if self.shell is None:
            self.aio = Aio(_Waker(), self.interrupts, self.guest.aio)
            self.aio.beside = self.beside
            _install(self.guest.shell)
            self.shell = _shell_of(self.guest.shell, _Guest(self.guest, self))
        context.set_current(request)
        self.aio.context.run(context.set_current, request)
        if self.aio.loop is None and "asyncio" in sys.modules:
            self.aio.ensure()  # the main thread may be in the middle of importing it
        if kind == W.EXECUTE:
            self.asks, self.used, self.aio.executing = metadata.get("allow_stdin"), self.clicks, True
            try:
                return W.EXECUTE_REPLY, self.guest.run_in_subshell(self, request, loads(content), metadata)
            finally:
                self.asks = self.asked = self.aio.executing = False
        self.guest.handle_comm(self.interrupts, self.aio, kind, request, content, metadata, buffers)
        return W.COMM_DONE, b"{}"


def _interrupt_children(task):
    """As Ctrl-C in a terminal: what a thread has started in Python's own process group, and what that has."""
    group, found, looked = os.getpgrp(), [], ["self/task/%d" % task]
    for each in looked:
        try:
            with open("/proc/%s/children" % each, encoding="ascii") as f:
                pids = f.read().split()
        except OSError:
            continue
        found += pids
        for pid in pids:
            try:
                looked += ["%s/task/%s" % (pid, name) for name in os.listdir("/proc/%s/task" % pid)]
            except OSError:
                pass
    for pid in map(int, found):
        try:
            if os.getpgid(pid) == group:
                os.kill(pid, signal.SIGINT)
        except OSError:
            pass


def _traceback_of(thread):
    """Where it stands in user code, as lines."""
    import traceback

    stack = traceback.extract_stack(sys._current_frames().get(thread))
    ours = [at for at, frame in enumerate(stack) if is_own_file(frame.filename)]
    users = [frame for frame in stack[ours[0] :] if not is_own_file(frame.filename)] if ours else []
    lines = "".join(traceback.format_list(users)).splitlines()
    return ["Traceback (most recent call last):", *lines, "KeyboardInterrupt: " + _LEFT]


def _shell_of(main, guest):
    """A shell that shares everything with `main` but what belongs to a running cell."""
    shell = _share(main)
    shell.guest = guest
    shell.in_main_thread = False
    if hasattr(main, "displayhook"):
        _ipython_shell(shell, main)
    return shell


def _share(thing):
    """A second object with the same attributes, found where the first one's are."""
    other = object.__new__(type(thing))
    other.__dict__.update(thing.__dict__)
    return other


def _ipython_shell(shell, main):
    shell.displayhook = hook = _share(main.displayhook)
    hook._trait_values = dict(hook._trait_values, shell=shell)
    shell.compile = type(main.compile)()
    shell.compile.flags = main.compile.flags
    if hasattr(main.compile, "_filename_map"):
        shell.compile._filename_map = main.compile._filename_map


def _switch_payloads(manager):
    """What a cell asks of the frontend (pages, next inputs) goes with its own reply."""

    def write_payload(data, single=True):
        lane = running()
        if lane is None:
            return write(data, single)
        if single and "source" in data:
            lane.payloads = [p for p in lane.payloads if p.get("source") != data["source"]]
        lane.payloads.append(data)

    def read_payload():
        lane = running()
        return lane.payloads if lane else read()

    def clear_payload():
        lane = running()
        if lane is None:
            return clear()
        lane.payloads = []

    write, read, clear = manager.write_payload, manager.read_payload, manager.clear_payload
    manager.write_payload, manager.read_payload, manager.clear_payload = write_payload, read_payload, clear_payload


_installed = False


def _install(main):
    """The switches by thread, once in a process."""
    global _installed
    if _installed:
        return
    _installed = True
    _install_sleep()
    _install_waits()
    if not hasattr(main, "displayhook"):
        show = main.show
        main.show = sys.displayhook = lambda value: _show(value, show)
        return
    hook = main.displayhook

    def displayhook(value=None):
        lane = running()
        return (lane.shell.displayhook if lane else hook)(value)

    if sys.displayhook is hook:  # the main thread is in a cell
        sys.displayhook = displayhook
    main.display_trap.hook = displayhook
    _switch_payloads(main.payload_manager)


def _show(value, main_show):
    """Plain mode's sys.displayhook."""
    lane = running()
    show = type(lane.shell).show.__get__(lane.shell) if lane else main_show
    return show(value)


class _Waiter:
    """The lock that Condition.wait waits for: no signal wakes a thread from it, but an interrupt releases it, perhaps
    while somebody notifies."""

    def __init__(self, interrupts):
        self._interrupts = interrupts
        self._lock = lock = allocate_lock()
        self.locked = lock.locked

    def acquire(self, blocking=True, timeout=-1):
        got = self._lock.acquire(False)
        if got or not blocking:
            return got
        self._interrupts.waiting = self
        try:
            return self._lock.acquire(True, timeout)
        finally:
            self._interrupts.waiting = None

    def release(self):
        try:
            self._lock.release()
        except RuntimeError:
            pass

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *exception):
        self.release()


def _install_waits():
    """Event, Condition, Semaphore, Queue and futures wait in Condition.wait; for a thread's end it is looked again and
    again. Lock.acquire itself and SimpleQueue wait in C code and can't be woken: Subshell._leave."""
    allocate, join = threading._allocate_lock, threading.Thread.join

    def allocate_waiter():
        interrupts = _interruptible()
        return _Waiter(interrupts) if interrupts else allocate()

    def interruptible_join(self, timeout=None):
        if not _interruptible():
            return join(self, timeout)
        end = None if timeout is None else _now() + timeout
        while True:
            left = _LOOK if end is None else min(end - _now(), _LOOK)
            join(self, max(left, 0))
            if left < _LOOK or not self.is_alive():
                return

    interruptible_join.__name__, interruptible_join.__qualname__ = "join", "Thread.join"
    interruptible_join.__module__, interruptible_join.__doc__ = "threading", join.__doc__
    threading._allocate_lock, threading.Thread.join = allocate_waiter, interruptible_join


def _now():
    return clock_gettime(CLOCK_MONOTONIC)  # freezegun exchanges time.monotonic


def _interruptible():
    """Of this thread, if it is a subshell's and runs the user's code."""
    lane = running()
    return lane.interrupts if lane is not None and lane.interrupts.armed else None


def _install_sleep():
    """No signal wakes a thread from time.sleep: a subshell's waits for a lock that an interrupt releases."""
    sleep = time.sleep

    def interruptible_sleep(seconds, /):
        interrupts = _interruptible()
        if not interrupts or not seconds > 0:
            return sleep(seconds)
        waiter = _Waiter(interrupts)
        waiter.acquire()
        try:
            waiter.acquire(True, seconds)
        except OverflowError:
            sleep(seconds)

    interruptible_sleep.__name__ = interruptible_sleep.__qualname__ = "sleep"
    interruptible_sleep.__module__ = "time"
    interruptible_sleep.__doc__ = sleep.__doc__
    time.sleep = interruptible_sleep
