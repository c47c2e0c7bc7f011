"""Drives `cellblock-jail broker` as the supervisor does, for tests of the jail. See include/cellblock/sandbox.h.

    with Broker(build, "argv=/bin/sh", "argv=-c", "argv=echo hello") as broker:
        jail = broker.spawn()
        jail.exited()             # wait status
        jail.read("stdout")       # b"hello\n"

`build` is the build folder; the other words are those of spec-make (tests/tools/spec_make.c).
"""

import array
import os
import select
import socket
import struct
import subprocess

DEADLINE = 60.0 * float(os.environ.get("CELLBLOCK_TEST_SLOW", "1"))  # as rawclient's, which needs pyzmq

SPAWN, KILL = 1, 2
SPAWNED, ENDED, MEMORY = 1, 2, 3
SIGNAL, TERMINATE, TWIN, DROP, RESTORE, BRANCH, GO_ON = 1, 2, 5, 6, 7, 8, 9
EXITED, REGISTERED, GONE, RESTORED, SIGNALLED = 16, 17, 18, 19, 20
REPLY = struct.Struct("IiIIiIIQQQQqQ64s768s512s512s256s")
REQUEST = struct.Struct("IIi")
INIT = struct.Struct("IiIi")


def _text(raw):
    return raw.split(b"\0", 1)[0].decode()


def jail_command(build, spec, *words):
    """What starts cellblock-jail with these words and a spec."""
    jail = f"{build}/libexec/cellblock/cellblock-jail"
    return [f"{build}/tests/spec-make", *spec, "--", jail, *words, "--spec-fd", "{}"]


class Refused(Exception):
    """The broker's answer when there is no jail: code, step, text, cure."""

    def __init__(self, code, step, text, cure):
        super().__init__(f"{step}: {text}")
        self.code, self.step, self.text, self.cure = code, step, text, cure


class Jail:
    def __init__(self, number, guest_pid, level, note, pidfd, ends):
        self.number, self.guest_pid, self.level, self.note, self.pidfd = number, guest_pid, level, note, pidfd
        wire, self.stdout, self.stderr, self.log, link, twin_control = ends
        self.wire, self.link, self.twin_control = (socket.socket(fileno=fd) for fd in (wire, link, twin_control))

    def tell(self, op, number):
        self.link.send(INIT.pack(op, number, 0, 0))

    def hear(self, timeout=DEADLINE):
        """What pid 1 says next: (op, number)."""
        self.link.settimeout(timeout)
        return INIT.unpack(self.link.recv(INIT.size))[:2]

    def signal(self, number):
        self.tell(SIGNAL, number)

    def terminate(self):
        self.tell(TERMINATE, 0)

    def exited(self, timeout=DEADLINE):
        """The wait status of the guest's end, by pid 1's report; None if there was none."""
        self.link.settimeout(timeout)
        op = SIGNALLED
        while op == SIGNALLED:  # that a signal is out is none of it
            message = self.link.recv(INIT.size)
            if not message:
                return None
            op, status, *_ = INIT.unpack(message)
        assert op == EXITED, op
        return status

    def gone(self, timeout=DEADLINE):
        """Whether pid 1, and so everything in the jail, has ended within the time."""
        return bool(select.select([self.pidfd], [], [], timeout)[0])

    def read(self, name):
        """All of stdout, stderr or log up to its end."""
        data = b""
        while True:
            part = os.read(getattr(self, name), 65536)
            if not part:
                return data
            data += part

    def close(self):
        for fd in (self.pidfd, self.stdout, self.stderr, self.log):
            os.close(fd)
        self.wire.close()
        self.link.close()
        self.twin_control.close()


class Broker:
    def __init__(self, build, *spec, prefix=(), env=None):
        """`prefix` goes before the command, e.g. to become another user."""
        self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [*prefix, *jail_command(build, spec, "broker", "--fd", str(theirs.fileno()))]
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=env)
        theirs.close()
        self.jails, self.ends, self.limits, self.asked = [], {}, "", 0

    def ask(self, op, jail=0, fds=(), pid=0):
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.sock.sendmsg([REQUEST.pack(op, jail, pid)], rights)

    def answer(self, timeout=DEADLINE):
        """The answer to a spawn request; notices of ends that come before it are kept."""
        while True:
            event, fields, fds = self.receive(timeout)
            if event == SPAWNED:
                return fields, fds

    def receive(self, timeout):
        self.sock.settimeout(timeout)
        data, fds, _, _ = socket.recv_fds(self.sock, REPLY.size, 7)
        if not data:
            raise EOFError("the broker has ended")
        event, code, asked, number, pid, level, _, oom, met, watchdog, _, _, peak, *texts, limits = REPLY.unpack(data)
        if event == ENDED:
            self.ends[number] = {"oom_kills": oom, "limit_met": met, "watchdog": watchdog, "peak": peak}
        elif event == SPAWNED:
            self.limits = _text(limits)
        return event, (code, asked, number, pid, level, *texts), fds

    def ended(self, jail, timeout=DEADLINE):
        """The broker's notice of the jail's end: its last figures."""
        while jail.number not in self.ends:
            self.receive(timeout)
        return self.ends[jail.number]

    def ask_spawn(self):
        """Asks for a jail; gives our ends: wire, stdout, stderr, log, link, control socket."""
        wire, side = socket.socketpair(), socket.socketpair()
        link, twin_control = (socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2))
        pipes = [os.pipe() for _ in range(3)]
        sockets = [each[1].fileno() for each in (link, twin_control, side)]
        theirs = [wire[1].fileno(), *(p[1] for p in pipes), *sockets]
        self.asked += 1
        self.ask(SPAWN, self.asked, fds=theirs)
        for end in (wire[1], link[1], twin_control[1], *side):
            end.close()
        for p in pipes:
            os.close(p[1])
        return wire[0].detach(), *(p[0] for p in pipes), link[0].detach(), twin_control[0].detach()

    def spawn(self):
        ends = self.ask_spawn()
        (code, asked, number, pid, level, step, text, cure, note), fds = self.answer()
        assert asked == self.asked, "an answer to another question"
        if code != 0:
            for fd in ends:
                os.close(fd)
            raise Refused(code, _text(step), _text(text), _text(cure))
        for fd in fds[1:]:
            os.close(fd)
        jail = Jail(number, pid, level, _text(note), fds[0], ends)
        self.jails.append(jail)
        return jail

    def kill(self, jail):
        self.ask(KILL, jail.number)

    def close(self):
        """End of file: the broker kills its jails and ends. Returns its exit status."""
        self.sock.close()
        try:
            return self.process.wait(DEADLINE)
        finally:
            self.process.kill()  # nothing where it has ended
            self.process.wait()
            for jail in self.jails:
                jail.close()
            self.jails = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
