"""Twins: frozen copies of this process from which its state comes back (include/cellblock/twin.h has the contract).

A twin goes on in the middle of checkpoint(), where it waits on its control socket; woken, it returns from there into
the main loop, and the next frame is its RESUME. The copier makes it with all threads, in C, and it waits there
(copier.py). Where there is none os.fork does, without threads: twice, so that it is pid 1's child and user code that
waits for any child never meets it; between fork and wake nothing runs in it but this module, state.py, and at-fork
hooks.
"""

import _signal  # signal's own functions make sets of enumerations: a third of a millisecond each
import _socket
import errno
import os
import select
import signal
import sys
from os import fork  # user code may exchange that of os
from struct import Struct
from time import sleep

from . import copier, wire_constants as W
from .forks import Forks
from .interrupts import LetGo
from .jsontext import encode, loads
from .state import ALL_SIGNALS, Descriptors, Kept, Process, Semaphores, above, left_out, native_threads
from .state import heal, is_at_work, users_threads

_message = Struct("<II")
_registration = Struct("<I")
_NFDS = (4, 5)  # without or with a side wire
_SPACE = _socket.CMSG_SPACE(5 * 4)
_OMP_PAUSE_SOFT = 1
_PATIENCE = 1  # s
_TURNS = 20  # that a woken state's other threads have, at least, before it is called restored
_LET_GO = (W.LET_GO,)
_IN_VAIN = "a function that runs before each fork (os.register_at_fork) did not come to its end: it waits for a lock?"
_QUIET_FORK = [("ignore", None, DeprecationWarning, None, 0)]  # a fork with threads warns from Python 3.12 on
_ANSWER = b'{"status":"ok","left_out":{"children":%d,"shared_maps":%d,"sockets":' + W.COPIER_BLANK
NAME = b"cellblock-twin"


class Twins:
    def __init__(self, guest):
        self.guest = guest
        self.forking = False  # the at-fork hooks of main.py then only call hold() and held()
        self.forks = Forks(Twins._fork_twice.__code__)
        self._held = False
        self._frozen = False  # a twin that is not woken
        self.offered, self.process, self.copier = False, None, None
        self.look()
        self._copy = None  # what this process became of, in one that was woken with its threads
        self.woken = False  # a twin that waits for RESUME
        self._untidy = False  # the copier has something to do when all is quiet
        self._answered = False  # the present CHECKPOINT, by the copier
        self._looked_at = True  # False: woken, and not copied since
        self._descriptors = self._semaphores = None
        self._openmp = []
        self._modules_seen = 0

    def look(self):
        """Whether the jail offers twins."""
        self.offered = _is_socket(W.FD_TWIN_CONTROL) and _is_socket(W.FD_REGISTRY)
        if self.offered:  # a start without twins has no use for these
            self.process, self.copier = Process(), copier.UNTRIED

    def forget_in_child(self):
        """In a child that user code forked: its control socket is nobody's."""
        if self.offered:
            self.offered = False
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            for fd in (W.FD_TWIN_CONTROL, W.FD_REGISTRY):
                os.dup2(null, fd, False)
            os.close(null)

    # requests

    def checkpoint(self, kind, request, content, metadata, buffers):
        """In the guest it answers; in the twin it returns when the twin was woken."""
        interrupts = self.guest.interrupts
        interrupts.shield += 1
        self._answered = False
        try:
            left = self._make(request, **loads(content))
            reply = left and {"status": "ok", "left_out": left}
        except Exception as e:
            self.guest.log_exception("checkpoint")
            reply = {"status": "error", "ename": type(e).__name__, "evalue": str(e)[:1000]}
        finally:
            interrupts.shield -= 1
        if reply is None or self._answered:
            interrupts.struck = False
            interrupts.deliver()
            if self._untidy:
                self._untidy = False
                self.copier.tidy()
            return
        self.guest.wire.send(W.CHECKPOINT_REPLY, request, encode(reply))

    def resume(self, kind, request, content, metadata, buffers):
        if not self.woken:
            self.guest.log("RESUME to a guest that was not woken")
            return
        self.woken = self._looked_at = False
        self.guest.wire.first = request
        content = loads(content)
        branch = bool(content.get("branch"))
        shell = self.guest.shell
        if self._copy:
            self.guest.side.take(self._copy.side)
        else:
            self._descriptors.back(self.guest.log, branch)
            if not branch:  # else the main line uses them as well
                self._semaphores.back(False)
        if branch and getattr(shell, "warm", None):
            shell.warm.done = True  # for there may be many: memory that each would have for itself
        for cell in content.get("undone", ()):
            shell.remember_undone(cell["number"], cell["code"])
        shell.execution_count = content.get("execution_count") or shell.execution_count
        self.guest.side.start()
        self.guest.wire.send(W.RESUMED, request, encode({"side": self.guest.side.wire is not None}))
        if self._copy:  # nobody was to speak before that
            self.guest.wire.release(False)
            self.guest.output.release(True)

    # in the guest

    def _make(self, request, number, room=0):
        """What would not come back, or None in the twin after it was woken."""
        if not self.offered:
            raise RuntimeError("this jail was started without twins")
        guest = self.guest
        fds = self._take(number)  # first: who leaves them there has not tried
        try:
            guest.output.flush()
            guest.flush_c_stdio()
            self._semaphores = Semaphores()
            left = self._copy_with_threads(request, number, fds, room) or self._copy_by_fork(number, fds)
        except BaseException:
            _close_all(fds)
            raise
        if self.woken:
            return None
        _close_all(fds)
        if not self._looked_at:
            self._look_at(left)
        return left

    def _look_at(self, left):
        """A state that was woken, and copied: what runs beside the cells has a few turns, for it may end the process.
        Threads that Python does not know are counted, too: they may do so even later. Of those that came back only a
        library's with a mind of its own (OpenBLAS, which most sessions have, is none)."""
        self._looked_at = True
        strangers, library = native_threads()
        if self._copy:
            strangers = left["native_back"] = strangers if library else 0
        if strangers or users_threads() > 0:
            for _ in range(_TURNS):  # not one long sleep: on a busy machine they may need longer to have as many
                sleep(0.001)

    def _copy_with_threads(self, request, number, fds, room):
        """What would not come back, also in the twin after it was woken. None: this process can't be copied so. Nor is
        it while a debugger has a session, whose threads would not know what became of them."""
        guest, process, copy = self.guest, self.process, None
        if self.copier is copier.UNTRIED:
            self.copier = copier.load()
        debugger = guest.side.debugger
        if self.copier is None or guest.debugger or (debugger and debugger.in_session()):
            return None
        left, answer = left_out(), b""
        if self._looked_at:
            content = _ANSWER % (left["children"], left["shared_maps"])
            answer = guest.wire.frame(W.CHECKPOINT_REPLY, request, content)
        process.block()
        guest.output.hold()
        guest.wire.hold()
        try:
            pipes = guest.aio.self_pipes()
            copy = self.copier.copy(number, fds, pipes, guest.aio.other_pairs(pipes), answer, room)
            self._answered = bool(answer)  # before a signal's handler can raise
        except OSError as e:
            guest.log(str(e))
            if e.errno == errno.ETIMEDOUT:
                raise
            if e.errno in copier.NEVER:
                self.copier = None
            return None
        finally:
            if copy and copy.woken:
                self._copy = copy
                try:
                    self._thaw()
                except BaseException:
                    guest.log_exception("twin %d" % number)
                    os._exit(1)
            else:
                guest.wire.release(False)
                guest.output.release(False)
                process.unblock()
        left["sockets"], self._untidy = copy.sockets, copy.untidy
        return left

    def _copy_by_fork(self, number, fds):
        """As _copy_with_threads."""
        debugger = self.guest.debugger
        self._pause_openmp()
        pipes = self.guest.aio.self_pipes()
        pairs = pipes + self.guest.aio.other_pairs(pipes) + (debugger.sockets() if debugger else [])
        self._descriptors = Descriptors(pairs, fds)
        left = {**left_out(self._descriptors), "forked": 1}
        self._copy = None
        between = self._fork_twice()
        if between == 0:
            self._be_twin(number, fds)
            return left
        try:
            left["native"], left["native_of"] = native_threads()
        finally:
            _reap(between)  # if it made no twin, the supervisor sees the socket's end; else it waits the longer for it
        return left

    def _take(self, number):
        """The fds of a birth, which lie on the control socket already; those of an earlier one that was not made are
        dropped."""
        while True:
            op, got, fds = _receive(_socket.MSG_DONTWAIT)
            if op == W.TWIN_CONTROL_BIRTH and got == number and len(fds) in _NFDS:
                return [above(fd) for fd in fds]
            _close_all(fds)
            if op is None:
                raise OSError("nothing on the control socket for twin %d" % number)

    def _fork_twice(self):
        """0 in the twin; else the process between, to be reaped. No other thread speaks meanwhile, no signal is taken
        but the one that lets a function go which runs at each fork, no finaliser runs; the twin keeps signals blocked
        and the collector off until it is woken."""
        guest, process, warnings = self.guest, self.process, sys.modules.get("warnings")
        output, wire = guest.output, guest.wire
        kept = Kept(guest.aio)
        interrupts, forks = guest.interrupts, self.forks
        process.block()
        forks.begin()
        filters = getattr(warnings, "filters", None)
        twin = False
        try:
            self.forking = True
            if filters is not None:
                warnings.filters = _QUIET_FORK  # as it is, so that no once-shown warning is shown again
            interrupts.forking = forks.stop_before
            _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _LET_GO)
            between = fork()
            interrupts.forking = None
            if between == 0:
                try:
                    if forks.let_go:
                        os._exit(0)
                    forks.begin()
                    if fork() != 0:
                        os._exit(0)
                except BaseException:
                    os._exit(1)
                twin = True
        except LetGo:  # it came before the first of the functions
            raise OSError(_IN_VAIN) from None
        finally:
            interrupts.forking = None
            self.forking = False
            forks.end()
            if filters is not None:
                warnings.filters = filters
            if self._held:
                self._held = False
                wire.release(twin, self._frozen)
                output.release(twin or self._frozen)
            if twin:
                kept.restore()
            else:
                process.unblock()
        if between and forks.let_go:
            os.kill(between, signal.SIGKILL)
            _reap(between)
            raise OSError(_IN_VAIN)
        return between

    def held(self):
        """First of the hooks after a fork, in the guest."""
        if os.getpid() == self.guest.interrupts.pid:
            while _signal.sigtimedwait(_LET_GO, 0) is not None:
                pass  # it was for the fork itself, or those before
            self.guest.interrupts.forking = self.forks.stop_after
            _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _LET_GO)

    def hold(self):
        """Last of the hooks before a fork: another one may wait for a thread that wants to print."""
        self.guest.interrupts.forking = None
        _signal.pthread_sigmask(_signal.SIG_BLOCK, ALL_SIGNALS)
        if not self._held:
            self._held = True
            self.guest.output.hold()
            self.guest.wire.hold()

    def _pause_openmp(self):
        """Ends libgomp's idle threads: a copy would wait for them in its next parallel region."""
        if self.guest.libc and len(sys.modules) != self._modules_seen:
            self._modules_seen = len(sys.modules)
            self._openmp = _openmp_pauses()
        for pause in self._openmp:
            pause(_OMP_PAUSE_SOFT)

    # in the twin

    def _be_twin(self, number, fds):
        try:
            number = self._freeze(number, fds)
        except BaseException:
            self.guest.log_exception("twin %d" % number)
            os._exit(1)
        self._thaw()

    def _freeze(self, number, fds):
        """Returns when this process, or a twin bred from it, was woken; each of its twins returns from here as well."""
        self._frozen = True
        self._settle(number, fds)
        while True:
            op, number, fds = _receive(0)
            if op is None:
                os._exit(0)
            if op in (W.TWIN_CONTROL_WAKE, W.TWIN_CONTROL_BRANCH):
                return number
            between = self._breed() if op == W.TWIN_CONTROL_BREED and len(fds) in _NFDS else None
            if between == 0:
                self._settle(number, fds)
                continue
            _close_all(fds)
            if between:
                _reap(between)

    def _breed(self):
        mask, collects = self.process.mask, self.process.collects
        try:
            return self._fork_twice()
        except OSError as e:
            self.guest.log("a twin can't be copied: %s" % e)
            return None
        finally:  # what was noted in the guest
            self.process.mask, self.process.collects = mask, collects

    def _settle(self, number, fds):
        """Own session, own channels, and nothing that the guest would miss the end of."""
        os.setsid()
        self._descriptors.become(fds)
        self.process.freeze(NAME, self.guest.libc)
        _send(W.FD_REGISTRY, _registration.pack(number))
        _send(W.FD_TWIN_CONTROL, _message.pack(W.TWIN_CONTROL_BORN, number))

    def _thaw(self):
        guest = self.guest
        self._frozen = False
        self.woken = True
        if self._copy:  # with its threads, which wait for this one
            self.copier.renumber()
            guest.wire.renew()
            guest.side.retire()
            if not self._copy.branch:
                self._semaphores.back(True)
        heal(guest, self._copy)
        guest.output.after_thaw(self._copy is not None)
        guest.prompt.after_thaw()
        if guest.tools:
            guest.tools.after_thaw()
        guest.interrupts.forget()
        guest.interrupts.pid, guest.interrupts.reported = os.getpid(), 0
        if self._copy:
            self.copier.go_on()
        self.process.thaw()


def _is_socket(fd):
    import stat

    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            return False
        os.set_inheritable(fd, False)
        return True
    except OSError:
        return False


class _Packets:
    """A socket object for an fd that it does not own; a default timeout of the user's does not count."""

    def __init__(self, fd):
        self.socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, fd)
        self.socket.settimeout(None)

    def __enter__(self):
        return self.socket

    def __exit__(self, *_exc):
        self.socket.detach()


def _receive(flags):
    """(op, number, fds) from the control socket; op is None when there is none."""
    with _Packets(W.FD_TWIN_CONTROL) as packets:
        try:
            data, control, _, _ = packets.recvmsg(_message.size, _SPACE, flags | _socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            data, control = b"", ()
    fds = []
    for level, kind, each in control:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            fds += Struct("%di" % (len(each) // 4)).unpack(each[: len(each) // 4 * 4])
    op, number = _message.unpack(data) if len(data) == _message.size else (0 if data else None, 0)
    return op, number, fds


def _send(fd, data):
    with _Packets(fd) as packets:
        packets.sendmsg([data])


def _close_all(fds):
    for fd in fds:
        os.close(fd)


def _reap(pid):
    """It ends at once, unless a hook of the user's hangs in it; or when it has had a processor, on a busy machine."""
    try:
        ending = select.poll()
        fd = os.pidfd_open(pid)
        ending.register(fd, select.POLLIN)
        while not ending.poll(_PATIENCE * 1000):
            if not is_at_work(pid):
                os.kill(pid, signal.SIGKILL)
        os.close(fd)
    except (AttributeError, OSError):  # a kernel or an interpreter that has no such descriptors
        pass
    try:
        return os.waitpid(pid, 0)[1]
    except ChildProcessError:  # SIGCHLD is ignored: it is waited for, but leaves no status
        return 0


def _openmp_pauses():
    found = []
    try:
        import ctypes

        with open("/proc/self/maps") as f:
            paths = {line[line.index("/") :].rstrip("\n") for line in f if "/libgomp" in line}
        for path in paths:
            library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
            if hasattr(library, "omp_pause_resource_all"):
                found.append(library.omp_pause_resource_all)
    except OSError:
        pass
    return found
