"""Comm messages beside a cell that awaits: what it waits for may be one of them.

While the cell's coroutine runs, the loop also reads the wire: comm messages are handled there, in the main thread, as
between cells. Anything else, and what comes too late, is left to the main loop.
"""

from . import context, wire_constants as W
from .jsontext import loads

_COMMS = (W.DOWN_COMM_OPEN, W.DOWN_COMM_MSG, W.DOWN_COMM_CLOSE)


def serve(guest, aio, kind, request, content, about, buffers):
    aio.serving = True
    try:
        message = guest.comm_message(request, content, about, buffers)
        context.run_as(request, guest.output.flushing, guest.comms.handle, kind, message)
    except Exception:
        guest.log_exception("comm")
    finally:
        aio.serving = False
        guest.reply(W.COMM_DONE, request, b"{}")


class Beside:
    def __init__(self, guest):
        self.guest = guest

    def __call__(self, begins):
        guest, loop = self.guest, self.guest.aio.loop
        wire = guest.wire
        if not begins:
            wire.on_aside = None
            if not loop.is_closed():
                loop.remove_reader(wire.fd)
        elif not wire.forked:
            wire.send(W.AWAITING, guest.interrupts.request, b"{}")
            loop.add_reader(wire.fd, self._readable)
            wire.on_aside = lambda: loop.call_soon_threadsafe(self._look)

    def _readable(self):
        self.guest.prompt.unless_asking(self._read)
        self._look()

    def _read(self):
        """Signals are put off until what was read is kept. What made the wire readable may be gone: a thread that asked
        may have read it along with its answer."""
        if self.guest.wire.ready():
            self.guest.interrupts.shielded(self._keep)

    def _keep(self):
        wire = self.guest.wire
        frame = wire.recv()
        if frame[0] != W.INPUT_REPLY:  # nobody asks: it has crossed an interrupt
            wire.aside.append(frame)

    def _look(self):
        wire = self.guest.wire
        while wire.pending() and self.guest.prompt.unless_asking(self._read):
            pass
        aside = wire.aside
        while aside and aside[0][0] in _COMMS:
            self._comm(*aside.pop(0))

    def _comm(self, kind, request, content, metadata, buffers):
        serve(self.guest, self.guest.aio, kind, request, content, loads(metadata), buffers)
