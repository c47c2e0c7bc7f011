"""Frames of the wire (include/cellblock/wire.h): one blocking stream socket, header, content, metadata, buffers.

Invariants: a frame is never torn. Writers hold one lock; a signal that arrives in the main thread while it sends or
receives is remembered and delivered afterwards, an interrupt as well as one that the user has a handler for
(interrupts.py), and so is an interrupt of a subshell that sends (side.py); a send from a finaliser inside a send is
queued. A dead wire ends the process. In a forked child nothing is ever sent, in a twin that was woken no answer to what
was asked before.
"""

import os
import select
import sys
from _thread import allocate_lock, get_ident
from struct import Struct

from . import wire_constants as W

_header = Struct(W.HEADER)
_CHUNK = 1 << 16
_IOV = 512
_OF_THE_PENDING = (W.EXECUTE_RESULT, W.EXECUTE_REPLY, W.COMM_DONE, W.INPUT_REQUEST, W.AWAITING)


def take_message_max():
    """How large a frame may be: limits.message, where the supervisor tells it; its default otherwise. To be asked once:
    cells do not see the variable."""
    return int(os.environ.pop("CELLBLOCK_MESSAGE_MAX", "") or 64 << 20) - 4096


def header(kind, content_len, metadata_len, request=0):
    return _header.pack(kind, content_len, metadata_len, 0, request, 0, 0)


class Wire:
    def __init__(self, fd=W.FD_WIRE):
        self.fd = fd
        self.forked = False
        self.process = os.getpid()
        self.said = 0  # bytes since the last cell began, roughly: other threads say something, too
        self.first = 0  # request of this process: what is older is not pending, whatever a thread was about to say
        self.main = get_ident()
        self.interrupts = None
        self.beside = {}  # thread -> what interrupts it, as `interrupts` does the main thread
        self._lock = allocate_lock()
        self.owner = 0  # the thread that holds the lock
        self._queue = []
        self._rest = b""
        self.aside = []  # frames that came while another was waited for
        self.on_aside = None
        os.set_inheritable(fd, False)

    def send(self, kind, request, content=b"", metadata=b"", buffers=(), flags=0, source=None):
        """source: a list that the content was made of, emptied as soon as no interrupt keeps it from being sent."""
        if self.forked:
            return
        self.said += len(content)
        lengths = [len(b) for b in buffers] if buffers else ()
        header = _header.pack(kind, len(content), len(metadata), len(lengths), request, sum(lengths), flags)
        if lengths:
            parts = [header, content, metadata, Struct("<%dI" % len(lengths)).pack(*lengths), *buffers]
        else:
            parts = [header, content, metadata]
        me = get_ident()
        if me == self.owner:
            self._queue.append(parts)
            if source:
                source.clear()
            return
        interrupts = self.interrupts if me == self.main else self.beside.get(me)
        if interrupts:
            interrupts.shield += 1
        try:
            with self._lock:  # let go in any case: another thread may raise an exception in this one, at any place
                try:
                    self.owner = me
                    if source:
                        source.clear()
                    if request >= self.first or kind not in _OF_THE_PENDING:
                        self._write(parts)
                    while self._queue:
                        self._write(self._queue.pop(0))
                finally:
                    self.owner = 0
        finally:
            if interrupts:
                interrupts.shield -= 1
        if interrupts and interrupts.pending and not interrupts.shield:
            interrupts.deliver()

    def ask(self, request, number, question, calls):
        """A question with a number, which its answer brings back. calls: of host tools, with commas between them."""
        about = b'{"question":%d,"calls":[%s]}' % (number, calls) if calls else b'{"question":%d}' % number
        self.send(W.INPUT_REQUEST, request, question, about)

    @staticmethod
    def frame(kind, request, content):
        """One as it is sent, for who sends it by other ways."""
        return header(kind, len(content), 0, request) + content

    def _write(self, parts):
        try:
            if len(parts) == 3 and len(parts[1]) < _CHUNK:
                data = b"".join(parts)
                written = os.write(self.fd, data)
                if written == len(data):
                    return
                parts = [memoryview(data)[written:]]
            parts = [memoryview(p).cast("B") for p in parts if len(p)]
            while parts:
                written = os.writev(self.fd, parts[:_IOV])
                while parts and written >= len(parts[0]):
                    written -= len(parts.pop(0))
                if written:
                    parts[0] = parts[0][written:]
        except OSError as e:
            if e.errno is None:  # none of the system's: a TimeoutError that another thread has raised here
                raise
            self.die()

    def is_sending(self):
        """True in the middle of this thread's own send: for what a finaliser does there."""
        return self.owner == get_ident()

    def pending(self):
        """True if bytes that were read already wait to be parsed."""
        return bool(self._rest)

    def ready(self, milliseconds=0):
        """True if recv() would find something now, or within that time. For one thread at a time, as recv() is."""
        poll = select.poll()  # one of its own: a signal's handler may look in the middle of another look
        poll.register(self.fd, select.POLLIN)
        return bool(self._rest or poll.poll(milliseconds))

    def set_aside(self, frame):
        self.aside.append(frame)
        if self.on_aside:
            self.on_aside()

    def recv(self):
        """The next frame: (type, request, content, metadata, buffers). Blocks; a signal is delivered after it. After a
        MemoryError it can be called again, unless that came when a frame was read in part (is_torn)."""
        data = self._read(self._rest, W.HEADER_SIZE)
        kind, content_len, metadata_len, count, request, buffers_len, _flags = _header.unpack_from(data)
        body = content_len + metadata_len + 4 * count + buffers_len
        data = self._read(data, W.HEADER_SIZE + body)
        end = W.HEADER_SIZE + body
        self._rest = bytes(data[end:])
        at = W.HEADER_SIZE + content_len
        content, metadata = bytes(data[W.HEADER_SIZE : at]), bytes(data[at : at + metadata_len])
        at += metadata_len
        buffers = []
        if count:
            lengths = Struct("<%dI" % count).unpack_from(data, at)
            at += 4 * count
            view = memoryview(bytes(data[at:end]))
            at = 0
            for length in lengths:
                buffers.append(view[at : at + length])
                at += length
        return kind, request, content, metadata, buffers

    def is_torn(self):
        """What was read is lost, and with it where the next frame begins."""
        return self._rest is None

    def _read(self, data, size):
        if len(data) >= size:
            return data
        if size <= _CHUNK:
            while len(data) < size:
                chunk = os.read(self.fd, _CHUNK)
                if not chunk:
                    self.die()
                try:
                    self._rest = data = data + chunk if data else chunk
                except MemoryError:
                    self._rest = None
                    raise
            return data
        whole = bytearray(size)
        self._rest = None
        whole[: len(data)] = data
        view, have = memoryview(whole), len(data)
        while have < size:
            got = os.readv(self.fd, [view[have:]])
            if not got:
                self.die()
            have += got
        return whole

    def die(self):
        if os.getpid() == self.process:
            os._exit(0)
        sys.exit()  # a thread of a copy, which read what its original has: perhaps before anybody could tell it

    def hold(self):
        """Nobody sends until release(): for a fork, whose copy must not find a frame half sent. What this thread sends
        meanwhile, from a hook of the user's, waits."""
        self._lock.acquire()
        self.owner = get_ident()

    def release(self, is_copy, silent=False):
        """silent: what waits is dropped, as it is in a copy."""
        if is_copy or silent:
            self._queue = []
        if is_copy:
            self._lock = allocate_lock()  # that of threads which the copy does not have
            self.owner = 0
            self.renew()
            return
        while self._queue:
            self._write(self._queue.pop(0))
        self.owner = 0
        self._lock.release()

    def renew(self):
        """In a copy, before release() where it has all its threads: nothing was read of the new wire."""
        self.process = os.getpid()
        self._queue, self._rest, self.aside, self.on_aside = [], b"", [], None

    def retire(self):
        """Its other end has gone, and that ends who reads it, not the process; what is sent is dropped."""
        self.forked, self.die = True, sys.exit

    def after_fork_in_child(self):
        self.forked = True
        self._lock = allocate_lock()
        self.owner = 0
        self._queue = []
        try:  # keep the number taken, so that no file of the child's gets it
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            os.dup2(null, self.fd, False)
            os.close(null)
        except OSError:
            pass
