"""An interpreter that has loaded all that a guest needs, waits, and is copied into jails (include/cellblock/warm.h has
the contract).

It makes the first half of a guest's start, imports what it is told, runs a cell or two of its own, and listens. What a
copy does is in newborn.py. It never runs anybody's code but that of the modules' own imports: so all that it has open,
and all threads of Python's, would be shared or lost, and is a reason not to serve.
"""

import _signal
import _socket
import contextlib
import errno
import gc
import os
import select
import sys
import threading
import time
from importlib import import_module
from struct import Struct

from . import copier, newborn, rehearsal, stamp, wire_constants as W
from .main import Guest
from .refusals import Refusals

_REFUSED = 3  # exit status: it can't serve with what it has loaded
_OWN = (*range(W.FD_SIDE + 1), W.ZYGOTE_FD_LISTEN, W.ZYGOTE_FD_LOCK, W.ZYGOTE_FD_UID)
_CONNECTIONS = 256
_LOOK_S = 60
_LIVING = 4096
_BACKLOG = 256  # a burst of starts: who finds no place here is started cold
_TRIES = 5  # on a busy machine a thread may be late, or wait for a disk
_PAUSE = 0.5  # s between them
_PACKET = 1 << 18
_FLAGS = _socket.MSG_DONTWAIT | _socket.MSG_CMSG_CLOEXEC
_SPACE = _socket.CMSG_SPACE(4 * 32)
_hello, _request, _answer = Struct(W.WARM_HELLO), Struct(W.WARM_REQUEST), Struct(W.WARM_ANSWER)


class Malformed(Exception):
    pass


class Unfit(Exception):
    """Why it does not serve."""


def run(names, bundle):
    """Returns in a copy, when its guest has come to its end."""
    try:
        zygote = _load([name for name in names if name], bundle)
    except Unfit as e:
        _say(str(e))
        os._exit(_REFUSED)
    except BaseException as e:
        _say("%s: %s" % (type(e).__name__, e))
        os._exit(1)
    try:
        request = zygote.serve()
    except BaseException:  # memory, say: what came from it lives on
        os._exit(W.ZYGOTE_LEAVES)
    guest = zygote.guest
    try:
        newborn.become(guest, zygote.copier, request.late(), zygote.mask)
    except BaseException:
        guest.log_exception("a copy of the zygote could not become a guest")
        os._exit(1)
    del zygote, request
    guest.begin()
    guest.serve()
    guest.finish()


def _say(text):
    """Says why it can't serve: one line, for who would start the next one."""
    why = " ".join(text.split()).encode("utf-8", "backslashreplace")[-W.WARM_WHY_MAX + 3 :]
    with contextlib.suppress(OSError):  # started by hand, without a lock
        os.ftruncate(W.ZYGOTE_FD_LOCK, 0)
        os.pwrite(W.ZYGOTE_FD_LOCK, bytes((W.WARM_FAILED,)) + why + b"\n", 0)


def _load(names, bundle):
    idle = float(os.environ.pop("CELLBLOCK_ZYGOTE_IDLE", "") or 3600)
    for name in W.WARM_LATE_ENV:
        os.environ.pop(name, None)
    begun = time.time_ns()
    mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
    _put_null(W.STDOUT, *range(W.FD_WIRE, W.FD_SIDE + 1))
    for fd in (W.ZYGOTE_FD_LISTEN, W.ZYGOTE_FD_LOCK, W.ZYGOTE_FD_UID):
        with contextlib.suppress(OSError):  # started by hand, or by no root
            os.set_inheritable(fd, False)
    library = copier.load()
    if library is None:
        raise Unfit("the copier can't be loaded")
    guest = Guest()
    guest.refusals = Refusals({})
    guest.aio.postponed = True
    guest.output.hold()  # what is printed goes nowhere, and begins no thread
    guest.prepare(bundle)
    _check("the start of a guest", library)
    loaded, left_out = _import(names, library)
    rehearsal.rehearse(guest, loaded)
    _check("the rehearsal", library)
    newborn.foresee()
    library.ready_to_enter()
    gc.collect()
    gc.freeze()
    zygote = Zygote(guest, library, mask, idle, loaded, left_out)
    zygote.stamp = _stamp(begun)
    return zygote


def _put_null(*numbers):
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for fd in numbers:
        if fd != null:
            os.dup2(null, fd, fd in (W.STDOUT, W.STDERR))
    if null not in numbers:
        os.close(null)


def _import(names, library):
    """As a cell would: filters of warnings that a module sets stay, and what is shown goes nowhere."""
    loaded, left_out = [], []
    for name in names:
        try:
            import_module(name)
            loaded.append(name)
        except BaseException:
            left_out.append(name)
        _check(name, library, ". Preload without it")
    return loaded, left_out


def _check(name, library, cure=""):
    """Unfit: something is left that a copy would share with its original, or not have."""
    null = []
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd not in _OWN:
            try:
                what = os.readlink("/proc/self/fd/%d" % fd)
            except OSError:  # the folder's own
                continue
            if what == os.devnull:
                null.append(fd)
                continue
            raise Unfit("%s leaves a file open, which copies would share: %s%s" % (name, what, cure))
    newborn.nothing[:] = null
    with open("/proc/self/maps") as f:
        for line in f:
            if line.split(None, 2)[1][1::2] == "ws":
                what = line.split(None, 5)[5:] or ["no file"]
                raise Unfit("%s maps shared memory, which copies would share: %s" % (name, what[0].strip()))
    if threading.active_count() > 1:
        others = [each.name for each in threading.enumerate() if each is not threading.main_thread()]
        raise Unfit("%s leaves a thread running, which copies would not have: %s" % (name, ", ".join(others)))
    if len(os.listdir("/proc/self/task")) > 1 and not os.path.exists("/proc/self/task/%d" % os.getpid()):
        raise Unfit("%s has threads, and where a container covers parts of /proc they can't be copied" % name)
    _try_to_stop(name, library, cure)
    if os.getppid() != 1:  # started by hand, among others
        return
    try:
        os.kill(-1, 0)
    except ProcessLookupError:  # nobody but this one, and pid 1
        return
    except PermissionError:
        pass
    raise Unfit("%s leaves a process running, which would live beside the jails of all copies" % name)


def _try_to_stop(name, library, cure):
    """Unfit: no copy could be made, for each begins with a stop of all threads of libraries."""
    for tried in range(_TRIES):
        if tried:
            time.sleep(_PAUSE)
        error = library.try_to_stop()
        if error != errno.ETIMEDOUT:
            break
    if error == errno.ETIMEDOUT:
        raise Unfit("%s leaves a thread running that can't be stopped, nor copied%s" % (name, cure))
    if error:
        raise Unfit("after %s this process can't be copied: %s" % (name, os.strerror(error)))


def _stamp(begun):
    lines, changed = stamp.make(begun)
    if changed:
        raise Unfit("%s was changed while it was loaded" % changed)
    text = "".join(lines).encode("utf-8", "surrogateescape")
    if len(text) > W.WARM_STAMP_MAX:
        raise Unfit("what is loaded lies in too many folders: %d" % len(lines))
    return text


class Request:
    """A SPAWN, taken apart. Its fds are the zygote's to close."""

    def __init__(self, data, fds):
        self.data = data
        op, version, self.present, self.umask, *lengths = _request.unpack_from(data)
        counts, (cwd, env) = lengths[: W.WARM_FILTERS], lengths[W.WARM_FILTERS :]
        self.filters, at = [], _request.size
        for count in counts:
            self.filters.append((count, at))
            at += 8 * count
        self.cwd, self._variables = at, at + cwd
        self.fds = self._places(fds)
        if version != W.WARM_VERSION or at + cwd + env != len(data) or data.find(b"\0", at) != at + cwd - 1 or cwd < 2:
            raise Malformed
        if env and data[-1]:
            raise Malformed

    def late(self):
        """To be asked in the copy: what is taken apart in the zygote would stay in the memory of all later copies."""
        return dict(map(self._variable, self.data[self._variables :].split(b"\0")[:-1]))

    def _places(self, fds):
        places, waiting = [-1] * W.WARM_NFDS, list(fds)
        for place in range(W.WARM_NFDS):
            if self.present >> place & 1 and waiting:
                places[place] = waiting.pop(0)
        if waiting or self.present >> W.WARM_NFDS or bin(self.present).count("1") != len(fds):
            raise Malformed
        if places[W.WARM_WIRE] < 0 or places[W.WARM_PID1] < 0:
            raise Malformed
        return places

    @staticmethod
    def _variable(text):
        name, equals, value = map(os.fsdecode, text.partition(b"="))
        if not equals or name not in W.WARM_LATE_ENV:
            raise Malformed
        return name, value


class Zygote:
    def __init__(self, guest, library, mask, idle, loaded, left_out):
        self.guest, self.copier, self.mask, self.stamp = guest, library, mask, b""
        self._idle, self._loaded, self._left_out = idle, loaded, left_out
        self._begun = self._busy = time.monotonic()
        self._made = 0
        self._connections, self._living = set(), set()
        self._poll = select.poll()
        self._listener = None
        self._connections_max, self._living_max = _maxima()

    def serve(self):
        """Returns in a copy alone: the request that it was made for."""
        gc.disable()
        _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals() - {_signal.SIGTERM})
        self._listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, W.ZYGOTE_FD_LISTEN)
        self._listener.settimeout(0)
        self._listener.listen(_BACKLOG)
        with contextlib.suppress(OSError):  # started by hand, without a lock
            os.pwrite(W.ZYGOTE_FD_LOCK, bytes((W.WARM_SERVES,)), 0)
        self._poll.register(W.ZYGOTE_FD_LISTEN, select.POLLIN)
        _put_null(W.STDERR)
        while True:
            left = _LOOK_S if self._living else min(_LOOK_S, max(0, self._busy + self._idle - time.monotonic()))
            ready = self._poll.poll(left * 1000)
            if not ready and (_has_no_name() or not self._living and time.monotonic() >= self._busy + self._idle):
                self._end()
            for fd, _ in ready:
                request = self._look_at(fd)
                if request is not None:
                    self._forget_all()
                    return request

    def _end(self):
        os._exit(W.ZYGOTE_LEAVES if self._living else 0)

    def _forget_all(self):
        """In a copy: these numbers are nobody's there, or somebody else's."""
        self._listener.detach()
        self._connections, self._living = set(), set()

    def _look_at(self, fd):
        """The request, in a copy that was made for it."""
        if fd == W.ZYGOTE_FD_LISTEN:
            self._accept()
        elif fd in self._living:
            self._drop(fd, self._living)
            self._busy = time.monotonic()
        else:
            try:
                return self._serve_connection(fd)
            except (Malformed, OSError):
                self._drop(fd, self._connections)
        return None

    def _accept(self):
        """All that wait, not one between two copies: many kernels may start at once, and wait no longer than a while
        (ask.c)."""
        while len(self._connections) < self._connections_max:
            try:
                fd, _ = self._listener._accept()
            except OSError:
                return
            self._connections.add(fd)
            self._poll.register(fd, select.POLLIN)
            if len(self._connections) >= self._connections_max:
                self._poll.unregister(W.ZYGOTE_FD_LISTEN)
            try:
                self._send(fd, _hello.pack(W.WARM_VERSION, len(self.stamp)) + self.stamp)
            except OSError:
                self._drop(fd, self._connections)

    def _drop(self, fd, whose):
        whose.discard(fd)
        self._poll.unregister(fd)
        os.close(fd)
        if whose is self._connections and len(whose) == self._connections_max - 1:
            self._poll.register(W.ZYGOTE_FD_LISTEN, select.POLLIN)

    @staticmethod
    def _send(fd, data):
        packets = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, fd)
        try:
            packets.send(data, _socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL)
        finally:
            packets.detach()

    @staticmethod
    def _receive(fd):
        packets = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, fd)
        try:
            data, control, flags, _ = packets.recvmsg(_PACKET, _SPACE, _FLAGS)
        finally:
            packets.detach()
        fds = []
        for level, kind, each in control:
            if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                fds += Struct("%di" % (len(each) // 4)).unpack(each[: len(each) // 4 * 4])
        return data, fds, flags & (_socket.MSG_TRUNC | _socket.MSG_CTRUNC)

    def _serve_connection(self, connection):
        """The request, in a copy that was made for it. Malformed, OSError: the connection is to be closed."""
        try:
            data, fds, cut = self._receive(connection)
        except BlockingIOError:
            return None
        woken = False
        try:
            if cut or len(data) < 4:
                raise Malformed
            op = int.from_bytes(data[:4], sys.byteorder)
            if op == W.WARM_SPAWN and len(data) > _request.size:
                request = Request(data, fds)
                woken = self._spawn(connection, request, fds)
                return request if woken else None
            if fds or op not in (W.WARM_END, W.WARM_OTHER, W.WARM_TELL):
                raise Malformed
            if op == W.WARM_OTHER and not self._made:
                _say("what it has loaded are other files than those that are there now")
            if op != W.WARM_TELL:
                self._end()
            self._send(connection, self._tell())
        finally:
            if not woken:
                for fd in fds:
                    os.close(fd)
        return None

    def _spawn(self, connection, request, fds):
        """True in the copy, whose the connection is from then on: what comes there next is for it. A pidfd that is to
        be kept is taken out of `fds`."""
        self._busy = time.monotonic()
        if len(self._living) >= self._living_max:
            self._send(connection, _answer.pack(W.WARM_STEP_REQUEST, -errno.EMFILE))
            return False
        woken, step, error = self.copier.enter(
            request.fds, connection, request.umask, request.data, request.cwd, request.filters
        )
        if woken:
            return True
        if error:
            self._send(connection, _answer.pack(step, error))
            return False
        self._made += 1
        with contextlib.suppress(OSError):  # started by hand, without a lock
            os.utime(W.ZYGOTE_FD_LOCK)
        self._drop(connection, self._connections)
        pid1 = request.fds[W.WARM_PID1]
        fds.remove(pid1)
        self._living.add(pid1)
        self._poll.register(pid1, select.POLLIN)
        return False

    def _tell(self):
        told = {
            "pid": os.getpid(),
            "age": "%d" % (time.monotonic() - self._begun),
            "made": self._made,
            "living": len(self._living),
            "preloaded": ",".join(self._loaded),
            "left_out": ",".join(self._left_out),
            "python": "%d.%d.%d" % sys.version_info[:3],
        }
        return "".join("%s %s\n" % each for each in told.items()).encode()


def _has_no_name():
    """Its lock was removed beneath it: nobody finds it, and another one may be started."""
    try:
        return os.fstat(W.ZYGOTE_FD_LOCK).st_nlink == 0
    except OSError:  # started by hand, without a lock
        return False


def _maxima():
    """(connections, kernels that live), so that a request's fds can always be taken."""
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    soft = soft if soft != resource.RLIM_INFINITY else _LIVING * 2
    connections = min(_CONNECTIONS, soft // 4)
    return connections, max(16, min(_LIVING, soft - connections - 64))
