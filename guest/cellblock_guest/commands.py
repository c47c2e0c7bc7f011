"""`!command`: runs in a terminal of its own, shows what it writes as it comes, and asks the user when it waits for
input.

stdout and stderr are one, in their true order, and lines end in "\\n". Whether the command waits is seen in /proc, and
for what in its memory; a command of a cell that may not ask reads end-of-file, as does every command where /proc does
not tell.
"""

import codecs
import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
from time import CLOCK_MONOTONIC, clock_gettime

_QUIET_MS = 100  # without output for so long: it may be waiting for input
_SHOWN_MAX = 4000  # of what it wrote last
_LAST_READS = 64  # more than a terminal or pipe holds; what runs in the background may write for ever
_GRACE = 2.0  # seconds from Ctrl-C to the kill
_READ = {"x86_64": ("0",), "aarch64": ("63",)}.get(os.uname().machine, ())
_POLL = {"x86_64": ("7", "271"), "aarch64": ("73",)}.get(os.uname().machine, ())
_SELECT = {"x86_64": ("23", "270"), "aarch64": ("72",)}.get(os.uname().machine, ())
_pollfd = struct.Struct("ihh")
_FDS_MAX = 1024  # of those that somebody waits for
_EOF, _INTERRUPT = b"\x04", b"\x03"


class Command:
    def __init__(self, guest, command):
        self._guest = guest
        self._terminal, inside, self._name = _terminal()
        self._asks = bool(self._name and _READ) and _syscall("self") is not None
        try:
            self._process = subprocess.Popen(
                [os.environ.get("SHELL") or "/bin/sh", "-c", command],
                stdin=inside if self._asks else subprocess.DEVNULL,
                stdout=inside,
                stderr=inside,
                start_new_session=True,
                preexec_fn=self._in_child if self._name else None,
            )
        except BaseException:
            os.close(self._terminal)
            guest.wire.interrupts.come()  # a function that runs at each fork swallowed it, and the child met it as well
            raise
        finally:
            os.close(inside)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._echo = ""  # what the terminal will echo of the user's answer, who has seen it already
        self._at_line_start = True
        self.shown = ""  # the end of its output

    def _in_child(self):
        os.close(os.open(self._name, os.O_RDWR))  # from here on it is the session's terminal

    def run(self):
        """The exit status, negative for a signal. A KeyboardInterrupt ends the command and is raised again."""
        try:
            try:
                return self._serve()
            except KeyboardInterrupt:
                self._stop()
                raise
        finally:
            if self._process.poll() is None:
                self._kill()
            os.close(self._terminal)

    def _serve(self, grace=None):
        deadline = None if grace is None else _now() + grace
        poll = select.poll()
        poll.register(self._terminal, select.POLLIN)
        while deadline is None or _now() < deadline:
            if poll.poll(_QUIET_MS):
                if not self._show():
                    return self._process.wait()
            elif self._process.poll() is not None:
                for _ in range(_LAST_READS):  # what it wrote between the two looks
                    if not (poll.poll(0) and self._show()):
                        break
                return self._process.returncode  # what it left in the background keeps the terminal
            elif self._asks and deadline is None and self._waits():
                self._answer()
        return None

    def _show(self):
        """False at the end: nobody has the terminal open any more."""
        try:
            data = os.read(self._terminal, 1 << 16)
        except OSError:
            data = b""
        text = self._decode(data, not data)
        if self._echo:
            text = self._without_echo(text)
        if text:
            self._at_line_start = text.endswith("\n")
            self.shown = (self.shown + text)[-_SHOWN_MAX:]
            sys.stdout.write(text)
        return bool(data)

    def _without_echo(self, text):
        same = len(os.path.commonprefix([text, self._echo]))
        whole = same == min(len(text), len(self._echo))
        self._echo = self._echo[same:] if whole else ""
        return text[same:] if whole else text

    def _waits(self):
        """True if a process in the terminal's foreground reads it, or waits for it, among others, behind a prompt."""
        try:
            group = os.tcgetpgrp(self._terminal)
        except OSError:
            return False
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.getpgid(int(pid)) != group:
                    continue
                call = _syscall(pid)
                if call and call[0] in _READ:
                    waited_for = [int(call[1], 16)]
                elif call and not self._at_line_start:
                    waited_for = _waited_for(pid, call)
                else:
                    continue
                if any(self._is_its(pid, fd) for fd in waited_for):
                    return True
            except (OSError, ValueError, OverflowError):  # the last: what it gave as an address is none
                continue
        return False

    def _is_its(self, pid, fd):
        """Whether the terminal is what a process has there."""
        try:
            return os.readlink("/proc/%s/fd/%d" % (pid, fd)) in (self._name, "/dev/tty")
        except OSError:
            return False

    def _answer(self):
        prompt = self._guest.prompt
        sys.stdout.flush()
        try:
            mode = termios.tcgetattr(self._terminal)[3]
            lines, echo = mode & termios.ICANON, mode & termios.ECHO  # without lines the program echoes itself
            text = prompt.getpass("") if lines and not echo else prompt.input("")
        except (EOFError, NotImplementedError):
            if self._takes():
                os.write(self._terminal, _EOF)
            return
        self._echo = text + "\n" if lines and echo else ""
        data = text.encode("utf-8", "replace") + b"\n"
        while data:
            data = data[os.write(self._terminal, data) :]

    def _takes(self):
        """Whether a write would not wait: nobody may read what is written."""
        poll = select.poll()
        poll.register(self._terminal, select.POLLOUT)
        return bool(poll.poll(0))

    def _stop(self):
        """As Ctrl-C in a terminal; what does not obey is killed."""
        try:
            if self._name:
                os.write(self._terminal, _INTERRUPT)
            else:
                os.killpg(self._process.pid, signal.SIGINT)
            self._serve(_GRACE)
        except (KeyboardInterrupt, OSError):
            pass

    def _kill(self):
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except OSError:
            pass
        self._process.wait()


def _now():
    return clock_gettime(CLOCK_MONOTONIC)  # freezegun exchanges time.monotonic


def _terminal():
    """(our end, the command's end, its name) of a new terminal; of a pipe, without a name, where there is none."""
    try:
        ours, inside = os.openpty()
    except OSError:
        return *os.pipe(), None
    mode = termios.tcgetattr(inside)
    mode[1] &= ~termios.ONLCR
    termios.tcsetattr(inside, termios.TCSANOW, mode)
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    return ours, inside, os.ttyname(inside)


def _syscall(pid):
    """Number and arguments of the system call that a process is in; None where it can't be told."""
    try:
        with open("/proc/%s/syscall" % pid, encoding="ascii") as f:
            words = f.read().split()
        return words if words and words[0] != "running" else ("running",)
    except OSError:
        return None


def _waited_for(pid, call):
    """The fds that a process waits to read in a call of poll or select; none for any other call."""
    if call[0] in _POLL:
        address, count = int(call[1], 16), min(int(call[2], 16), _FDS_MAX)
        fds = _pollfd.iter_unpack(_memory(pid, address, count * _pollfd.size))
        return [fd for fd, events, _ in fds if events & select.POLLIN]
    if call[0] in _SELECT:
        count, address = min(int(call[1], 16), _FDS_MAX), int(call[2], 16)
        bits = int.from_bytes(_memory(pid, address, (count + 7) // 8), "little") if address else 0
        return [fd for fd in range(count) if bits >> fd & 1]
    return []


def _memory(pid, address, size):
    with open("/proc/%s/mem" % pid, "rb", 0) as f:
        data = os.pread(f.fileno(), size, address)
    if len(data) != size:
        raise OSError
    return data
