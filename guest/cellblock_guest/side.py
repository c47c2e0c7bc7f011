"""The side wire: what is served beside the main thread. Lane 0 answers COMPLETE, INSPECT and IS_COMPLETE while a cell
runs; every subshell has a lane of its own, see subshell.py, and so has the debugger, see dap.py.

A small thread reads; each lane has a thread, made with its first request. Where there can be none that request fails,
and the next one tries it again. Nothing of this survives a fork: start() makes it anew.
"""

import os
import stat
import sys
import threading
from _queue import SimpleQueue
from _thread import allocate_lock

from . import context, wire_constants as W
from .interrupts import Interrupts
from .jsontext import encode, loads
from .threads import start_deaf
from .tracebacks import error_content, safe_str
from .wire import Wire

_PATIENCE = 5  # seconds for a reader to see the end of its wire, which it does at once
# To a question that has no answer: the frame's type, what it says.
NOTHING = {
    W.COMPLETE: (
        W.COMPLETE_REPLY,
        {"status": "ok", "matches": [], "cursor_start": 0, "cursor_end": 0, "metadata": {}},
    ),
    W.INSPECT: (W.INSPECT_REPLY, {"status": "ok", "found": False, "data": {}, "metadata": {}}),
    W.IS_COMPLETE: (W.IS_COMPLETE_REPLY, {"status": "unknown"}),
}
_SWITCH = 0.0005  # seconds that code may keep the interpreter while a user waits for an answer; Python's own is 0.005


class Side:
    def __init__(self, guest):
        self.guest = guest
        self.wire = None
        self.lanes = {}
        self.debugger = None
        self._reads = allocate_lock()  # held while somebody reads the wire

    def start(self):
        """Serves the side wire; in a twin that was woken, anew and with nothing of what was."""
        self.lanes, self.wire = {}, None
        self.guest.wire.beside.clear()
        self.forget_debugger()
        forget = getattr(sys.modules.get("cellblock_guest.subshell"), "forget", None)
        if forget:
            forget()
        try:
            if stat.S_ISSOCK(os.fstat(W.FD_SIDE).st_mode):
                self.wire = Wire(W.FD_SIDE)
                self._reads = allocate_lock()
                self._reads.acquire()
                start_deaf(self._read, self.wire, self._reads)
        except RuntimeError:  # no more threads: then the main thread does it all
            self.wire = None
        except OSError:  # there is none: the number is taken, so that no file of the user's is taken for it later
            self._put(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))

    @staticmethod
    def _put(fd):
        if fd != W.FD_SIDE:
            os.dup2(fd, W.FD_SIDE, False)
            os.close(fd)

    def retire(self):
        """In a copy with all its threads: those of ours end, for what they served is not there. The reader sees the end
        of its wire."""
        wire, self.wire = self.wire, None
        if wire:
            wire.retire()
        for lane in self.lanes.values():
            lane.retire()
        if self.debugger:  # it has no session, else there would be no such copy
            self.debugger.retire()
        self.lanes = {}

    def take(self, fd):
        """The new wire, when nobody reads the old one any more. -1: there is none."""
        if self._reads.acquire(True, _PATIENCE):
            self._reads.release()
        self._put(fd if fd >= 0 else os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))

    def after_fork_in_child(self):
        if self.wire:
            self.wire.after_fork_in_child()
        self.forget_debugger()

    def forget_debugger(self):
        if self.debugger:
            self.debugger.forget()
            self.debugger = None

    def _read(self, wire, reads):
        try:
            while wire is self.wire:
                kind, request, content, metadata, buffers = wire.recv()
                try:
                    self._dispatch(wire, kind, request, content, loads(metadata), buffers)
                except BaseException as e:
                    self.guest.log("side wire: %r" % e)
        finally:
            reads.release()

    def _dispatch(self, wire, kind, request, content, metadata, buffers):
        number = metadata["lane"]
        lane = self.debugger if kind == W.DEBUG else self.lanes.get(number)
        if lane and lane.wire is not wire:  # made by a thread that was here when the process was copied
            lane = None
        if kind == W.LANE_CLOSE:
            if lane:
                lane.queue.put(None)
        elif kind == W.LANE_INTERRUPT:
            if lane:
                lane.interrupt(request)
        elif kind == W.INPUT_REPLY:
            if lane:
                lane.answers.put(metadata.get("question"), content)
        else:
            try:
                lane = self._started(lane, kind, number, wire)
            except Exception as e:
                self.guest.log_exception("lane")
                self.fail(wire, kind, request, content, e)
                return
            take = lane.beside.take if metadata.get("beside") else lane.queue.put
            take((kind, request, content, metadata, buffers))

    def _started(self, lane, kind, number, wire):
        """The lane, or a new one, with its thread."""
        if lane and lane.thread.ident is not None:
            return lane
        lane = lane or self._new(kind, number, wire)
        lane.start()
        if kind == W.DEBUG:
            self.debugger = lane
        else:
            self.lanes[number] = lane
        return lane

    def _new(self, kind, number, wire):
        if kind == W.DEBUG:
            threading.current_thread().is_pydev_daemon_thread = True  # debuggers leave this thread alone
            threading.current_thread().pydev_do_not_trace = True
            return self.guest.new_debugger(self, number, wire)
        if not number:
            return Questions(self, number, wire)
        from .subshell import Subshell

        return Subshell(self, number, wire)

    def fail(self, wire, kind, request, content, e):
        """Answers what can't be served, mostly for want of a thread or of memory."""
        try:
            if kind == W.EXECUTE:
                text = ": ".join(filter(None, (safe_str(e), self.guest.refusals.explain(e))))
                self.end_cell(request, e, text, ["%s: %s" % (type(e).__name__, text)])
            elif kind == W.DEBUG:
                wire.send(W.DEBUG_REPLY, request, encode(self.guest.debug_failure(loads(content), safe_str(e))))
            elif kind in NOTHING:
                answer, reply = NOTHING[kind]
                wire.send(answer, request, encode(reply))
            else:
                self.guest.reply(W.COMM_DONE, request, b"{}")
        except Exception:
            self.guest.log_exception("lane")

    def end_cell(self, request, e, text, traceback):
        """A cell whose thread does not tell how it ended."""
        context.run_as(request, self.guest.send_error, type(e).__name__, text, traceback)
        more = {"evalue": text, "payload": [], "user_expressions": {}, "traceback": traceback}
        self.guest.reply(W.EXECUTE_REPLY, request, encode(error_content(e, more)))


def _told(take):
    """What is a KeyboardInterrupt when Python makes an exception of it, in the thread that it is raised in, and calls
    take() before that."""

    class Told(KeyboardInterrupt):
        def __new__(cls, *made):
            if made and isinstance(made[0], KeyboardInterrupt):  # what was made already, until Python 3.11
                return made[0]
            take()
            return KeyboardInterrupt()

    Told.__module__, Told.__name__, Told.__qualname__ = "builtins", "KeyboardInterrupt", "KeyboardInterrupt"
    return Told


class LaneInterrupts:
    """KeyboardInterrupt for a thread that is not the main one: raised as soon as it runs Python code."""

    def __init__(self):
        self.thread = 0
        self.armed = False
        self.request = 0  # that the thread serves
        self.late = 0  # that was interrupted before its code ran
        self.hits = 0  # KeyboardInterrupts raised
        self.on_async = None  # called first while an await-cell runs; True = it took care
        self.in_tasks = None  # while the loop runs between cells: whether it is in the user's code
        self.task_ended = False  # see Interrupts
        self.shield = 0  # > 0: a frame is half sent, or a thread half born
        self.pending = False  # an interrupt came while shielded
        self.waiting = None  # the lock that it waits for, if an interrupt may let it go
        self.left = False  # to its wait in C code: what it served has ended without it
        self.took = allocate_lock()  # let go when the thread takes one
        self.took.acquire()
        self._hit = False
        self._lock = allocate_lock()
        self._told = _told(self.take)

    def take(self):
        try:
            self.took.release()
        except RuntimeError:  # nobody has heard of the last one yet
            pass

    def run(self, function, *args):
        try:
            try:
                self._arm()
                return function(*args)
            finally:
                self._disarm()
        finally:  # an interrupt may have come at the first
            self._disarm()

    def _arm(self):
        with self._lock:
            self.armed = True
            late, self.late = self.late, 0
        if late and late == self.request:
            self.hits += 1
            raise KeyboardInterrupt

    def _disarm(self):
        with self._lock:
            self.armed = False
            if self._hit:
                self._raise(None)
            self._hit = self.pending = False

    def run_tasks(self, runs_users, function):
        """Between cells. What waits there for a task's end, and is interrupted, ends that task, too."""
        try:
            try:
                self.in_tasks = runs_users
                function()
            finally:
                self.in_tasks = None
                self._disarm()
        finally:
            self.in_tasks = None
            self._disarm()

    def interrupt(self, request):
        """request: what it is for; its thread may not have come to it, or be done with it."""
        with self._lock:
            if not self.armed:
                self.late = request
                if request != self.request and self.in_tasks and self.in_tasks():
                    self._hit = True
                    self.end()
                return
            if self.request != request:
                return
            if self.on_async and self.on_async():
                self.take()
                return
            self._hit = True
            self.end()

    def end(self):
        """What runs, and what that waits for."""
        self._raise(KeyboardInterrupt)
        waiting = self.waiting
        if waiting and not self.shield:
            waiting.release()

    shielded, unshield = Interrupts._shielded, Interrupts.unshield

    def interrupted(self):
        """True if an interrupt came to what runs, whether it has arrived or not."""
        return self.armed and self._hit

    def leave(self, waits):
        """True if it has to be left: it was interrupted, and waits() since before that."""
        with self._lock:
            self.left = self.interrupted() and not self.shield and waits()
            return self.left

    def deliver(self):
        self.pending = False
        if self.armed or self.in_tasks:
            self.take()
            raise KeyboardInterrupt

    def _raise(self, what):
        from ctypes import c_ulong, py_object, pythonapi

        self.hits += what is not None
        what = py_object(self._told) if what else None
        call, thread = pythonapi.PyThreadState_SetAsyncExc, c_ulong(self.thread)
        if self.shield and what:  # nothing between this and the call that lets another thread run
            self.pending = True
        else:
            call(thread, what)


class Lane:
    """Has a thread and is none: names of ours could be Thread's own, which differ between Pythons."""

    traced = True  # debuggers see the thread

    def __init__(self, side, number, wire, name):
        self.thread = threading.Thread(target=self.run, name=name, daemon=True)
        if not self.traced:
            self.thread.is_pydev_daemon_thread = self.thread.pydev_do_not_trace = True
        self.side, self.guest, self.number, self.wire = side, side.guest, number, wire
        self.queue = SimpleQueue()
        self.interrupts = LaneInterrupts()

    def start(self):
        self.thread.start()

    def interrupt(self, request):
        self.interrupts.interrupt(request)

    def retire(self):
        """Its thread ends after what it serves, if anything, to which nobody waits for an answer."""
        self.interrupts.left = True
        self.queue.put(None)

    def next_frame(self):
        return self.queue.get()

    def run(self):
        self.interrupts.thread = threading.get_ident()
        while not self.interrupts.left:
            frame = None
            try:
                frame = self.next_frame()
                if self.wire.process != os.getpid():  # in a copy, with what was asked before
                    return
                if frame is None:
                    if self.queue.empty():
                        if self.side.lanes.get(self.number) is self:
                            del self.side.lanes[self.number]  # until now it could be interrupted, and answered
                        return
                    self.queue.put(None)  # behind what came beside the last cell
                    continue
                self.serve(*frame)
            except KeyboardInterrupt:  # one that came as its code ended
                pass
            except Exception as e:
                self.guest.log_exception("lane")
                if frame:
                    self.fail(e, *frame)

    def fail(self, e, kind, request, content, metadata, buffers):
        self.side.fail(self.wire, kind, request, content, e)


class Questions(Lane):
    """Lane 0. The supervisor asks one at a time, and none while the main thread is asked."""

    traced = False

    def __init__(self, side, number, wire):
        super().__init__(side, number, wire, "cellblock-questions")

    def serve(self, kind, request, content, metadata, buffers):
        context.set_current(request)
        self.interrupts.request = request
        usual = sys.getswitchinterval()
        sys.setswitchinterval(min(usual, _SWITCH))
        ours = sys.getswitchinterval()
        answer, reply = self.guest.answer(kind, content, True, self.interrupts.run)
        if sys.getswitchinterval() == ours:
            sys.setswitchinterval(usual)
        self.wire.send(answer, request, encode(reply))
