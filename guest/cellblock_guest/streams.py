"""sys.stdout and sys.stderr: text goes to the wire as STREAM frames, in order with displays and with each other.

Whole lines after a quiet time are sent at once (the GIL may be held by C code for long afterwards); a burst is merged
and sent by size, at most every few ms, or by a small thread within ~10 ms. A flush of the user's sends at once, and so
does what starts a child, whose text goes to fds 1 and 2. Anything else that is sent flushes first. In a forked child
text goes to fds 1 and 2.
"""

import io
import os
import sys
from _thread import allocate_lock
from threading import RLock, local
from time import monotonic

from . import context
from . import wire_constants as W
from .interrupts import is_of_a_handler
from .jsontext import utf8
from .threads import await_begun, try_deaf

_FRAME = 1 << 18  # bytes of text in one frame
_HELD = 1 << 16  # characters held back before they are sent
_DIRECT = 50  # writes that may go out one by one; one more every _REFILL seconds
_REFILL = 0.001
_TICK = 0.01  # the flusher's period while there is output
_QUIET_TICKS = 100  # after so many idle ticks it parks


class _OfThread(local):
    in_replaced = False  # it flushes what was replaced


class Output:
    """What the two streams share: the text not yet sent, all of one stream and one request."""

    def __init__(self, wire):
        self.wire = wire
        self.lock = RLock()
        self.forked = False
        self.parts = []
        self.size = 0
        self.frame = _FRAME  # and no more than a message may have
        self.flags = 0
        self.request = 0
        self.clock = monotonic  # not looked up when it is called: freezegun exchanges what modules have under this name
        self.next_direct = 0.0  # when the next line may go out by itself: a bucket of _DIRECT, refilled every _REFILL
        self.held_in_child = {}
        self.parked = self._was_parked = True
        self._bell = None
        self._of_thread = _OfThread()

    def writer(self, flags):
        """The write function of a stream; as short as can be, for print calls it twice."""
        lock, request_of_context, clock, wire = self.lock, context.request_of_context, self.clock, self.wire

        def write(text):
            if type(text) is not str:
                text = _as_text(text)
            if self.forked:
                return self._write_forked(flags, text)
            size = len(text)
            if wire.owner and self._in_a_frame():
                self._send_in_pieces(utf8(text), context.current(), flags)
                return size
            with lock:
                if flags != self.flags or request_of_context(0) != self.request:
                    self._switch(flags)
                self.parts.append(text)
                self.size += size
                if self.size >= _HELD or (text[-1:] == "\n" and clock() >= self.next_direct):
                    self._send_direct()
                elif self.parked and size:
                    self.wake()
            return size

        return write

    def _switch(self, flags):
        request = context.current()
        if self.parts and (flags != self.flags or request != self.request):
            self._send()
        self.flags, self.request = flags, request

    def _send_direct(self):
        now = self.clock()
        self.next_direct = max(self.next_direct, now - _DIRECT * _REFILL) + _REFILL
        self._send()

    def _in_a_frame(self):
        """A finaliser prints in the middle of what this thread sends: who holds the lock may wait for the wire."""
        return self.wire.is_sending() and not self.lock._is_owned()

    def _send(self):
        parts, flags, request = self.parts, self.flags, self.request
        try:
            self.parts, self.size = [], 0
            data = utf8("".join(parts))
            if len(data) <= self.frame:
                self.wire.send(W.STREAM, request, data, flags=flags, source=parts)
            else:
                self._send_in_pieces(data, request, flags, parts)
        except MemoryError:  # all that is sent later would meet it again
            raise
        except BaseException:  # an interrupt; what was sent of these parts is no longer there
            if parts is not self.parts and (flags, request) == (self.flags, self.request):
                self.parts = parts + self.parts
                self.size = sum(map(len, self.parts))
            raise

    def _send_in_pieces(self, data, request, flags, source=None):
        at = 0
        while at < len(data):
            end = min(at + self.frame, len(data))
            while end < len(data) and data[end] & 0xC0 == 0x80:  # not inside a character
                end -= 1
            untaken = [True]
            try:
                self.wire.send(W.STREAM, request, data[at:end], flags=flags, source=untaken)
            except BaseException:
                if source is not None:
                    source[:] = [data[at if untaken else end :].decode("utf-8", "replace")]
                raise
            at = end

    def flush(self):
        """Sends what is held."""
        if self.forked:
            self.flush_in_child()
        elif self.parts and not self._in_a_frame():
            with self.lock:
                if self.parts:
                    self._send()

    def flush_replaced(self):
        """What cells have put in the place of sys.stdout and sys.stderr may hold text, too. That is user code: for
        where an interrupt may come. It may show something in its turn, which does not begin it again; nor is it begun
        again in this cell once it was interrupted, for it may hang in the same place."""
        mine = self._of_thread
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name, None)
            if type(stream) is not OutStream and stream is not None and not mine.in_replaced:
                mine.in_replaced = True
                try:
                    stream.flush()
                except Exception as e:  # it has no flush, or is closed
                    if is_of_a_handler(e):
                        raise
                mine.in_replaced = False

    def flushing(self, function, *args):
        """Calls function, and flushes what was replaced at its end."""
        self._of_thread.in_replaced = False  # an earlier one may have been interrupted
        try:
            return function(*args)
        finally:
            self.flush_replaced()

    def _write_forked(self, flags, text):
        """In a child: line by line, so that the lines of several children stay whole."""
        held = self.held_in_child.setdefault(flags, [])
        held.append(text)
        if "\n" in text:
            self.flush_in_child(flags)
        return len(text)

    def flush_in_child(self, *which):
        for flags in which or (W.STDOUT, W.STDERR):
            data = utf8("".join(self.held_in_child.pop(flags, ())))
            while data:
                data = data[os.write(flags, data) :]  # STDOUT and STDERR are 1 and 2

    def wake(self):
        """Makes the flusher tick; starts it when there is none."""
        bell = self._bell
        if bell is None:
            bell = allocate_lock()
            bell.acquire()
            self._bell, self.parked, started = bell, False, False
            try:
                started = try_deaf(self._flusher, bell)
            finally:
                if not started:  # no more threads; an interrupt: one that began all the same ends at once
                    self._bell, self.parked = None, True  # what is held goes out with the next flush
        else:
            self.parked = False
            try:
                bell.release()
            except RuntimeError:
                pass

    def _flusher(self, bell):
        quiet = 0
        while bell is self._bell:
            bell.acquire(True, _TICK) if quiet < _QUIET_TICKS else self._park(bell)
            if quiet >= _QUIET_TICKS:
                quiet = 0
            if self.parts:
                quiet = 0
                try:
                    self.flush()
                except BaseException as e:
                    os.write(W.FD_LOG, ("flusher: %r\n" % e).encode())
            else:
                quiet += 1

    def _park(self, bell):
        with self.lock:
            if self.parts:
                return
            self.parked = True
        bell.acquire()

    def hold(self):
        """For a fork, until release(): what a hook of the user's prints starts no thread."""
        self.lock.acquire()
        self.flush()
        self._was_parked, self.parked = self.parked, False

    def release(self, silent):
        """silent: what was printed meanwhile is dropped."""
        self.parked = self._was_parked
        if silent:
            self.parts, self.size = [], 0
        self.flush()
        self.lock.release()

    def end(self):
        """Python ends: none of our threads begins any more. What is held goes with the last flush."""
        with self.lock:
            self.parked = False
        await_begun()

    def after_thaw(self, with_threads):
        """In a twin that takes over. Without threads: the flusher was not copied."""
        if not with_threads:
            self._bell, self.parked = None, True
        self.next_direct = 0.0

    def after_fork_in_child(self):
        self.forked = True
        self.held_in_child = {}


def _as_text(text):
    if not isinstance(text, str):
        raise TypeError("write() argument must be str, not %s" % type(text).__name__)
    return str.__str__(text)


class _Buffer(io.BufferedIOBase):
    """sys.stdout.buffer: bytes join the text stream in order."""

    def __init__(self, stream):
        self._stream = stream
        self._decoder = None

    def writable(self):
        return True

    def write(self, data):
        if self._decoder is None:
            import codecs

            self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        data = bytes(data)
        text = self._decoder.decode(data)
        if text:
            self._stream.write(text)
        return len(data)

    def flush(self):
        self._stream.flush()

    def close(self):
        """As the stream's: what a cell has made of it closes it when it is dropped."""
        self.flush()

    def fileno(self):
        return self._stream.fileno()

    @property
    def raw(self):
        return self

    @property
    def name(self):
        return self._stream.name

    @property
    def mode(self):
        return "wb"


class OutStream(io.TextIOBase):
    __module__ = "ipykernel.iostream"  # libraries look at it
    encoding = "utf-8"
    errors = "replace"
    mode = "w"
    line_buffering = True
    write_through = False

    def __init__(self, output, flags, name):
        self._output = output
        self._flags = flags
        self.write = output.writer(flags)
        self.name = "<%s>" % name
        self._buffer = None
        self.echo = None
        self.topic = ("stream." + name).encode()

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def flush(self):
        self._output.flush()

    def close(self):
        """Closing the standard streams would silence the kernel; it only flushes."""
        self.flush()

    @property
    def closed(self):
        return False

    @property
    def buffer(self):
        if self._buffer is None:
            self._buffer = _Buffer(self)
        return self._buffer

    def fileno(self):
        return self._flags

    def isatty(self):
        return False

    def readable(self):
        return False

    def writable(self):
        return True

    def seekable(self):
        return False

    def reconfigure(self, **_options):
        self.flush()

    def __repr__(self):
        return "<%s.%s name=%r encoding=%r>" % (type(self).__module__, type(self).__name__, self.name, self.encoding)

    def __del__(self):
        pass

    # what libraries written for ipykernel call
    def set_parent(self, parent):
        pass

    @property
    def parent_header(self):
        return {"msg_id": str(context.current())}

    def _is_master_process(self):
        return not self._output.forked
