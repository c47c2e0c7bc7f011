"""input() and getpass(): INPUT_REQUEST up, INPUT_REPLY down. Interruptible; works in the main thread, in threads that
the running cell waits for, and in subshells, which have a way of their own (subshell.py).

Each question has a number, which its answer brings back: one that crossed an interrupt is none to the next question."""

import builtins
from threading import RLock

from . import context, wire_constants as W
from .jsontext import encode, loads

REFUSED = "%s was called, but this frontend does not support input requests."  # ipykernel's words: clients look


class StdinNotImplementedError(NotImplementedError):
    """IPython's exception of this name replaces it in IPython mode."""


class Prompt:
    def __init__(self, wire, interrupts, output):
        self.wire, self.interrupts, self.output = wire, interrupts, output
        self.request = 0  # the cell that may ask; 0 = none
        self.message_max = 0  # the guest's
        self.error = StdinNotImplementedError
        self.lock = RLock()  # of the one question that may be open
        self.number = 0  # of the last question
        self._original = builtins.input

    def install(self):
        builtins.input = self.input

    def on_getpass(self, module):
        module.getpass = self.getpass

    def begin(self, request):
        self.request = request

    def end(self):
        """The cell is over: a thread that still asks gets EOFError before the wire is read again."""
        self.request = 0
        self.lock.acquire()
        self.lock.release()

    def after_thaw(self):
        """In a twin that takes over: a thread that asked was not copied."""
        self.request, self.lock = 0, RLock()

    def unless_asking(self, function):
        """Calls it while nobody else can read the wire; not at all (False) while somebody waits for an answer."""
        if not self.lock.acquire(False):
            return False
        try:
            function()
        finally:
            self.lock.release()
        return True

    def input(self, prompt=""):
        return self._ask(str(prompt), False)

    def getpass(self, prompt="Password: ", stream=None):
        return self._ask(str(prompt), True)

    def _ask(self, prompt, password):
        if self.wire.forked:
            raise EOFError("a child process has no input")
        lane, content = context.subshell(), encode({"prompt": prompt, "password": password})
        if not (lane.asks if lane else self.request):
            raise self.error(REFUSED % ("getpass" if password else "raw_input"))
        if len(content) > self.message_max:
            raise ValueError("a prompt of %d bytes is more than limits.message allows" % len(content))
        self.output.flush_replaced()
        reply = lane.ask(content) if lane else self.ask_on_wire(content)
        value = loads(reply)["value"]
        if value == "\x04":
            raise EOFError
        return value

    def ask_on_wire(self, question, calls=b""):
        """The client's answer; calls: of host tools."""
        with self.lock:
            request = self.request
            if not request:
                raise EOFError("the cell that asked has ended")
            self.output.flush()
            self._reported = None
            number = self.number = self.number + 1
            try:
                self.interrupts.shielded(self._send, request, number, question, calls)
                content = self._answer(request, number)
            except BaseException:  # an interrupt, what a handler of the user's raised, or the cell's end
                if self._reported == self.interrupts.reported:  # the interrupt's own report would count twice
                    self.interrupts.report(request)  # the answer will not be waited for: before the reply, see end()
                raise
        if self.wire.on_aside:  # more may have been read along
            self.wire.on_aside()
        return content

    def _send(self, request, number, question, calls):
        self.wire.ask(request, number, question, calls)
        self._reported = self.interrupts.reported

    def _answer(self, request, number):
        answer = []
        while not answer:
            while not self.wire.ready(50):
                if self.request != request:
                    raise EOFError("the cell that asked has ended")
                if self.interrupts.reported != self._reported:  # in another thread, or a handler of the user's took it
                    raise EOFError("interrupted")
            self.interrupts.shielded(self._read, number, answer)
        return answer[0]

    def _read(self, number, answer):
        """Signals are put off until what was read is kept."""
        frame = self.wire.recv()
        if frame[0] != W.INPUT_REPLY:
            self.wire.set_aside(frame)
        elif loads(frame[3]).get("question") == number:
            answer.append(frame[2])
