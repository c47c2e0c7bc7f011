"""Plays supervisor and pid 1: starts an interpreter with boot.py as the jail would, speaks the wire, checks what the
real one checks; registers twins, wakes and breeds them.

Every frame from the guest is checked against the contract (phase, request id, strict JSON); a violation fails the test
that met it. No time is measured for synchronisation: everything waits for frames or bytes.
"""

import array
import json
import os
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

from memory import await_rest

ROOT = Path(__file__).resolve().parents[2]
HEADER = struct.Struct("<IIIIQII")
DOWN = {
    "EXECUTE": 2,
    "COMPLETE": 4,
    "INSPECT": 6,
    "IS_COMPLETE": 8,
    "DOWN_COMM_OPEN": 10,
    "DOWN_COMM_MSG": 12,
    "DOWN_COMM_CLOSE": 14,
    "INPUT_REPLY": 16,
    "SHUTDOWN": 18,
    "CHECKPOINT": 20,
    "RESUME": 22,
    "LANE_INTERRUPT": 64,
    "DEBUG": 68,
}
UP = {
    1: "HELLO",
    3: "STREAM",
    5: "DISPLAY_DATA",
    7: "UPDATE_DISPLAY_DATA",
    9: "EXECUTE_RESULT",
    11: "ERROR",
    13: "CLEAR_OUTPUT",
    15: "UP_COMM_OPEN",
    17: "UP_COMM_MSG",
    19: "UP_COMM_CLOSE",
    21: "EXECUTE_REPLY",
    23: "COMPLETE_REPLY",
    25: "INSPECT_REPLY",
    27: "IS_COMPLETE_REPLY",
    29: "COMM_DONE",
    31: "INPUT_REQUEST",
    33: "INTERRUPTED",
    35: "CHECKPOINT_REPLY",
    37: "RESUMED",
    71: "AWAITING",
}
CURRENT = {
    "EXECUTE_RESULT",
    "EXECUTE_REPLY",
    "COMPLETE_REPLY",
    "INSPECT_REPLY",
    "IS_COMPLETE_REPLY",
    "COMM_DONE",
    "INPUT_REQUEST",
    "CHECKPOINT_REPLY",
    "RESUMED",
    "AWAITING",
}
OF_LANE = {"EXECUTE_RESULT", "EXECUTE_REPLY", "INPUT_REQUEST", "AWAITING"}
SMALL = {
    "CLEAR_OUTPUT",
    "IS_COMPLETE_REPLY",
    "COMM_DONE",
    "INTERRUPTED",
    "CHECKPOINT_REPLY",
    "RESUMED",
    "AWAITING",
}
BIRTH, BREED, WAKE, BRANCH, BORN = 1, 2, 3, 4, 16  # of the control socket, see twin.h
NOTHING = {"threads": 0, "sockets": 0, "children": 0, "shared_maps": 0, "native": 0, "native_of": ""}
ROOM = 1 << 30  # bytes
NUDGE = 0.2
NUDGE_SIGNAL = 60  # CB_WIRE_NUDGE
DEADLINE = float(os.environ.get("CELLBLOCK_TEST_DEADLINE", "60"))


def build_guest(folder):
    """Puts the guest together from the sources, in `folder`; gives the path that holds boot.py."""
    target = folder / "guest"
    shutil.copytree(ROOT / "guest", target, ignore=shutil.ignore_patterns("__pycache__"))
    tool = folder / "wire-constants"
    subprocess.run(["cc", "-I", ROOT / "include", "-o", tool, ROOT / "cmake" / "wire_constants.c"], check=True)
    subprocess.run([tool, target / "cellblock_guest" / "wire_constants.py"], check=True)
    copier = ["cc", "@" + str(ROOT / "guest/copier/flags"), "-I", ROOT / "include"]
    copier += sorted((ROOT / "guest/copier").glob("*.c"))
    subprocess.run([*copier, "-o", target / "cellblock_guest" / "libcopier.so"], check=True)
    return target


# For a cell: next_frame(function) calls it in the middle of the next frame that is sent; await_wire(thread) returns
# when that thread is about to wait for the end of one.
IN_A_FRAME = """
import os, signal, sys, threading, time
from cellblock_guest import wire

class InAFrame:
    def __getattr__(self, name):
        return getattr(os, name)

    def write(self, fd, data):
        wire.os = os
        hit()
        return os.write(fd, data)

def next_frame(function):
    global hit
    hit, wire.os = function, InAFrame()

def await_wire(thread):
    for _ in range(5000):
        if sys._current_frames()[thread.ident].f_code is wire.Wire.send.__code__: return
        time.sleep(0.001)
    raise AssertionError("it does not wait")
"""


class Violation(AssertionError):
    pass


def _unique(pairs):
    keys = [key for key, _ in pairs]
    if len(set(keys)) != len(keys):
        raise Violation("duplicate key: %r" % keys)
    return dict(pairs)


def _refuse(constant):
    raise Violation("not JSON: %s" % constant)


def strict_json(data):
    text = data.decode("utf-8")
    value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    depth, stack = 0, [(value, 1)]
    while stack:
        item, level = stack.pop()
        depth = max(depth, level)
        if isinstance(item, str):
            item.encode("utf-8")
        elif isinstance(item, dict):
            stack.extend((each, level + 1) for pair in item.items() for each in pair)
        elif isinstance(item, list):
            stack.extend((each, level + 1) for each in item)
    if depth > 256:
        raise Violation("depth %d" % depth)
    return value


class Frame:
    def __init__(self, kind, request, content, metadata, buffers, flags):
        self.kind, self.request, self.metadata, self.buffers, self.flags = kind, request, metadata, buffers, flags
        self.content = content

    def __repr__(self):
        return "%s(%d, %r)" % (self.kind, self.request, self.content)


class Result:
    """What a request gave: all frames, and those of its own."""

    def __init__(self, request, frames, reply, pipes=(b"", b"")):
        self.request, self.frames, self.reply_frame = request, frames, reply
        self.reply = reply.content
        self.fd1, self.fd2 = pipes

    def of(self, *kinds):
        return [f for f in self.frames if f.kind in kinds]

    def text(self, flags=1):
        return "".join(f.content for f in self.frames if f.kind == "STREAM" and f.flags == flags)

    @property
    def stdout(self):
        return self.text(1)

    @property
    def stderr(self):
        return self.text(2)

    @property
    def result(self):
        found = [f for f in self.of("EXECUTE_RESULT") if f.request == self.request]
        return found[0].content["data"]["text/plain"] if found else None

    @property
    def error(self):
        found = self.of("ERROR")
        return found[0].content if found else None

    @property
    def ok(self):
        return self.reply["status"] == "ok"


def _packets():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    return ours, theirs


def _packet(sock, form):
    """A packet's numbers and the process that sent it, by the kernel's word; None at the end."""
    assert select.select([sock], [], [], DEADLINE)[0], "nothing came"
    data, control, _, _ = sock.recvmsg(64, socket.CMSG_SPACE(12))
    if not data:
        return None, 0
    pid = struct.unpack("iii", next(each for _, kind, each in control if kind == socket.SCM_CREDENTIALS))[0]
    return struct.unpack(form, data), pid


class Adopted:
    """A twin's process, as much of Popen as is needed: its parent is whoever adopts orphans."""

    def __init__(self, pid):
        self.pid = pid
        self._fd = os.pidfd_open(pid)

    def __del__(self):
        os.close(self._fd)

    def poll(self):
        try:
            os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            pass
        return 0 if select.select([self._fd], [], [], 0)[0] else None

    def wait(self, timeout=None):
        assert select.select([self._fd], [], [], timeout)[0], "it does not end"
        return self.poll()


class Twin:
    """A twin's number, and the supervisor's ends of its channels."""

    def __init__(self, number):
        self.number = number
        self.wire, wire = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.twin_control, twin_control = _packets()
        (self.fd1, out), (self.fd2, err) = os.pipe(), os.pipe()
        self._theirs = [wire.detach(), out, err, twin_control.detach()]
        self.process = None

    def send_birth(self, twin_control, op):
        fds = array.array("i", self._theirs)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        # the user's other tests may have more descriptors on their way than that
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        try:
            twin_control.sendmsg([struct.pack("<II", op, self.number)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in self._theirs:
            os.close(fd)

    def wait_born(self, registry):
        (number,), pid = _packet(registry, "<I")
        assert number == self.number
        assert _packet(self.twin_control, "<II") == ((BORN, number), pid)
        self.process = Adopted(pid)
        return self

    def drop(self):
        """As pid 1 does it; its channels close as well."""
        if self.process is not None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait(DEADLINE)
        for each in (self.wire, self.twin_control):
            each.close()
        os.close(self.fd1)
        os.close(self.fd2)


class Subshell:
    """A lane of a guest that has a side wire; runs a cell at a time, beside the guest's own."""

    def __init__(self, guest, number=1):
        self.guest, self.number = guest, number
        self.request = 0

    def start(self, code, metadata=None, **content):
        content, meta = self.guest.cell(code, metadata, content)
        self.request, self._at = self._send("EXECUTE", content, meta), len(self.guest.seen)
        self.guest.in_lanes[self.request] = OF_LANE

    def comm(self, kind, content):
        """Sends it and does not wait."""
        header = {"msg_id": "message-%d" % (self.guest.request + 1), "msg_type": kind[5:].lower(), "session": "s"}
        self.request = self._send(kind, content, {"header": header, "metadata": {}})
        self.guest.in_lanes[self.request] = {"COMM_DONE"}

    def _send(self, kind, content, metadata=None, request=None):
        metadata = dict(metadata or {}, lane=self.number)
        return self.guest.send(kind, content, metadata, request=request, wire=self.guest.side)

    def interrupt(self):
        self._send("LANE_INTERRUPT", {}, request=self.request)

    def answer(self, value):
        self._send("INPUT_REPLY", {"value": value}, request=self.request)

    def finish(self):
        """All frames since its start, the guest's others included."""
        while self.request in self.guest.in_lanes:
            self.guest.frame()
        frames = self.guest.seen[self._at :]
        reply = next(f for f in frames if f.kind == "EXECUTE_REPLY" and f.request == self.request)
        return Result(self.request, frames, reply)

    def run(self, code, **content):
        self.start(code, **content)
        return self.finish()


class FakeSupervisor:
    message_max = 64 << 20  # limits.message

    def __init__(self, python, guest_dir, cwd, env=None, twins=True, side=False):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        pipes = [os.pipe() for _ in range(3)]  # stdout, stderr, log
        null = os.open(os.devnull, os.O_RDONLY)
        self.twin_control, twin_control = _packets()
        self.registry, registry = _packets()
        self.twins, self.branches, self.next_twin = [], [], 1
        fds = [null, pipes[0][1], pipes[1][1], theirs.fileno(), pipes[2][1]]
        self.side, side_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM) if side else (None, None)
        self.in_lanes = {}  # pending request: what it may be answered with
        # what is not there has its number all the same: else it could be an event loop's
        fds += [twin_control.fileno(), registry.fileno()] if twins else [null, null]
        fds.append(side_end.fileno() if side else null)

        def give_fds():
            high = [os.dup2(fd, 500 + at) for at, fd in enumerate(fds)]
            for at, fd in enumerate(high):
                os.dup2(fd, at)
            os.closerange(len(fds), 600)

        base = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(cwd),
            "USER": "user",
            "TMPDIR": "/tmp",
            "LANG": "C.UTF-8",
        }
        base.update(env or {})
        self.message_max = int(base.get("CELLBLOCK_MESSAGE_MAX", self.message_max))
        self.process = subprocess.Popen(
            [str(python), os.path.join(str(guest_dir), "boot.py")],
            close_fds=False,
            cwd=str(cwd),
            env=base,
            preexec_fn=give_fds,
            start_new_session=True,
        )
        for each in (theirs, twin_control, registry, *([side_end] if side else [])):
            each.close()
        os.close(null)
        for pipe in pipes:
            os.close(pipe[1])
        self.request = 0
        self.count = 0
        self.seen = []
        self.hello = None
        self._attach(ours, *(pipe[0] for pipe in pipes), "STARTING")

    def _attach(self, wire, fd1, fd2, log, phase):
        self.sock, self.fd1, self.fd2, self.fd_log = wire, fd1, fd2, log
        self.captured = {fd1: bytearray(), fd2: bytearray(), log: bytearray()}
        self.buffer = bytearray()
        self.phase = phase
        self.pending = 0
        self.interrupting = False  # and Python has not said so yet
        self.interrupted = 0  # how often it has
        self.questions = {}  # request -> number of its last question
        self._poll = select.poll()
        for fd in (wire.fileno(), *self.captured):
            self._poll.register(fd, select.POLLIN)

    # frames

    def wait_hello(self):
        frame = self.frame()
        assert frame.kind == "HELLO", frame
        self.phase, self.hello = "UP", frame.content
        return self

    def send(self, kind, content, metadata=None, buffers=(), request=None, wire=None):
        if request is None:
            self.request += 1
            request = self.request
        if kind == "INPUT_REPLY":
            metadata = {"question": self.questions[request], **(metadata or {})}
        content = json.dumps(content).encode()
        meta = json.dumps(metadata).encode() if metadata is not None else b""
        lengths = b"".join(struct.pack("<I", len(b)) for b in buffers)
        data = HEADER.pack(DOWN[kind], len(content), len(meta), len(buffers), request, sum(map(len, buffers)), 0)
        (wire or self.sock).sendall(data + content + meta + lengths + b"".join(buffers))
        return request

    def frame(self, deadline=None):
        """The next frame. Collects what the pipes hold meanwhile."""
        end = time.monotonic() + (deadline or DEADLINE)
        while True:
            frame = self._parse()
            if frame is not None:
                self._check(frame)
                self.seen.append(frame)
                mains = frame.kind == "INTERRUPTED" and frame.request not in self.in_lanes
                self.interrupting = self.interrupting and not mains
                self.interrupted += mains
                return frame
            left = end - time.monotonic()
            if left <= 0:
                raise AssertionError("no frame in time; seen %r; log %s" % (self.seen[-5:], self.log_text()))
            ready = self._poll.poll(min(left, NUDGE) * 1000 if self.interrupting else left * 1000)
            if not ready and self.interrupting:
                os.kill(self.process.pid, NUDGE_SIGNAL + self.interrupted % 2)
            for fd, _ in ready:
                self._read(fd)

    def _read(self, fd):
        if fd != self.sock.fileno():
            data = os.read(fd, 1 << 16)
            self.captured[fd] += data
            if not data:
                self._poll.unregister(fd)
            return
        data = self.sock.recv(1 << 20)
        if not data:
            self.drain_pipes()
            raise EOFError(
                "the guest is gone: exit %r; stderr %r; log %s"
                % (self.process.wait(), bytes(self.captured[self.fd2][-2000:]), self.log_text())
            )
        self.buffer += data

    def drain_pipes(self):
        """Reads what is in the pipes now, without waiting."""
        for fd in list(self.captured):
            while select.select([fd], [], [], 0)[0]:
                data = os.read(fd, 1 << 16)
                if not data:
                    break
                self.captured[fd] += data

    def _parse(self):
        if len(self.buffer) < HEADER.size:
            return None
        kind, content_len, metadata_len, count, request, buffers_len, flags = HEADER.unpack_from(self.buffer)
        total = HEADER.size + content_len + metadata_len + 4 * count + buffers_len
        if kind not in UP or count > 1024 or total > 1 << 30:
            raise Violation("bad header %r" % ((kind, content_len, metadata_len, count, request, buffers_len, flags),))
        if len(self.buffer) < total:
            return None
        at = HEADER.size
        content, at = bytes(self.buffer[at : at + content_len]), at + content_len
        metadata, at = bytes(self.buffer[at : at + metadata_len]), at + metadata_len
        lengths = struct.unpack_from("<%dI" % count, self.buffer, at)
        at += 4 * count
        buffers = []
        for length in lengths:
            buffers.append(bytes(self.buffer[at : at + length]))
            at += length
        if at != total:
            raise Violation("lengths of buffers do not add up")
        del self.buffer[:total]
        name = UP[kind]
        if name in SMALL and content_len + metadata_len + buffers_len > 64 << 10:
            raise Violation("over the cap of " + name)
        if content_len + metadata_len + buffers_len > self.message_max:
            raise Violation("%s over limits.message" % name)
        if (name == "STREAM") != (flags in (1, 2)) or flags > 2:
            raise Violation("flags %d in %s" % (flags, name))
        value = content.decode("utf-8") if name == "STREAM" else strict_json(content)
        meta = strict_json(metadata) if metadata else {}
        return Frame(name, request, value, meta, buffers, flags)

    def _check(self, frame):
        if (self.phase == "STARTING") != (frame.kind == "HELLO") or (self.phase == "WAKING") != (
            frame.kind == "RESUMED"
        ):
            raise Violation("%r in phase %s" % (frame, self.phase))
        if frame.request > self.request:
            raise Violation("id never given: %r" % frame)
        of_lane = frame.kind in self.in_lanes.get(frame.request, ())
        if frame.kind in CURRENT and not of_lane and (frame.request != self.pending or not self.pending):
            raise Violation("not the pending request (%d), nor one of a lane: %r" % (self.pending, frame))
        if of_lane and frame.kind in ("EXECUTE_REPLY", "COMM_DONE"):
            del self.in_lanes[frame.request]
        if frame.kind == "INPUT_REQUEST":
            self.questions[frame.request] = frame.metadata["question"]
        if frame.kind == "EXECUTE_RESULT" and "execution_count" in frame.content:
            raise Violation("execution_count is the supervisor's")

    # requests

    def start(self, code, metadata=None, **content):
        """Sends EXECUTE and does not wait."""
        self.pending = self.send("EXECUTE", *self.cell(code, metadata, content))
        return self.pending

    def cell(self, code, metadata, content):
        """An EXECUTE's content and metadata."""
        silent = content.get("silent", False)
        store = content.get("store_history", True) and not silent
        if store:
            self.count += 1
        content = dict(
            {
                "code": code,
                "silent": False,
                "store_history": True,
                "user_expressions": {},
                "allow_stdin": False,
                "stop_on_error": True,
            },
            **content,
        )
        meta = {
            "execution_count": max(self.count, 1),
            "silent": silent,
            "store_history": store,
            "allow_stdin": content["allow_stdin"],
            "cell_id": None,
            "header": {"msg_id": "message-%d" % (self.request + 1), "msg_type": "execute_request", "session": "s"},
        }
        meta.update(metadata or {})
        return content, meta

    def finish(self, reply="EXECUTE_REPLY", on_input=None, on_frame=None):
        """Frames up to the reply of the pending request."""
        frames, request = [], self.pending
        while True:
            frame = self.frame()
            frames.append(frame)
            if on_frame is not None:
                on_frame(frame)
            if frame.kind == reply and frame.request == request:
                self.pending, self.interrupting = 0, False
                self.drain_pipes()
                pipes = bytes(self.captured[self.fd1]), bytes(self.captured[self.fd2])
                return Result(request, frames, frame, pipes)
            if frame.kind == "INPUT_REQUEST" and on_input is not None:
                answer = on_input(frame.content)
                if answer is not None:
                    self.send("INPUT_REPLY", {"value": answer}, request=request)

    def run(self, code, on_input=None, on_frame=None, metadata=None, **content):
        if on_input is not None:
            content.setdefault("allow_stdin", True)
        self.start(code, metadata, **content)
        return self.finish(on_input=on_input, on_frame=on_frame)

    def ask(self, kind, **content):
        self.pending = self.send(kind, content)
        return self.finish(kind + "_REPLY").reply

    def ask_beside(self, kind, content):
        """What lane 0, or the debugger, answers on the side wire."""
        request = self.send(kind, content, {"lane": 0}, wire=self.side)
        self.side.settimeout(DEADLINE)
        _, size, others, _, answered, _, _ = HEADER.unpack(self.side.recv(HEADER.size, socket.MSG_WAITALL))
        assert (answered, others) == (request, 0)
        return strict_json(self.side.recv(size, socket.MSG_WAITALL))

    def comm(self, kind, content, metadata=None, buffers=()):
        header = {"msg_id": "message-%d" % (self.request + 1), "msg_type": kind[5:].lower(), "session": "s"}
        self.pending = self.send(kind, content, {"header": header, "metadata": metadata or {}}, buffers)
        return self.finish("COMM_DONE")

    def until(self, kind, matches=lambda frame: True):
        """Frames up to the first of this kind that matches; they are returned, that one last."""
        frames = []
        while True:
            frames.append(self.frame())
            if frames[-1].kind == kind and matches(frames[-1]):
                return frames

    def has_said(self, text):
        return any(text in f.content for f in self.seen if f.kind == "STREAM")

    def until_says(self, text):
        """Until it has written it, or did before."""
        if not self.has_said(text):
            self.until("STREAM", lambda f: text in f.content)

    def wait_pipe(self, fd, text):
        """Waits until fd 1, fd 2 or the log holds text."""
        source = {1: self.fd1, 2: self.fd2, 4: self.fd_log}[fd]
        end = time.monotonic() + DEADLINE
        while text not in self.captured[source]:
            left = end - time.monotonic()
            assert left > 0, (fd, text, bytes(self.captured[source]))
            for ready, _ in self._poll.poll(left * 1000):
                self._read(ready)

    def interrupt(self):
        """As the supervisor does it: what comes just before Python enters a blocking call is repeated."""
        self.interrupting = True
        os.killpg(self.process.pid, signal.SIGINT)

    # twins

    def ask_for_checkpoint(self, room=0):
        twin = Twin(self.next_twin)
        self.next_twin += 1
        twin.send_birth(self.twin_control, BIRTH)
        self.pending = self.send("CHECKPOINT", {"number": twin.number, "room": room})
        return twin

    def checkpoint(self, room=0):
        """A twin of the guest as it is now; what the guest said about it is its .reply. room: bytes that it may copy of
        large memory."""
        twin = self.ask_for_checkpoint(room)
        twin.reply = self.finish("CHECKPOINT_REPLY").reply
        if twin.reply["status"] != "ok":
            twin.drop()
            raise AssertionError((twin.reply, self.log_text()))
        twin.forked = twin.reply["left_out"].pop("forked", 0) == 1
        twin.reply["left_out"] = {**NOTHING, **twin.reply["left_out"]}  # what is not named is nothing
        self.twins.append(twin)
        return twin.wait_born(self.registry)

    def copied(self):
        """A checkpoint as the supervisor makes it: threads may not stop in time, and it is tried again then."""
        for _ in range(100):
            try:
                return self.checkpoint()
            except AssertionError as e:
                if "TimeoutError" not in str(e):
                    raise
        raise AssertionError("they never stopped in time")

    def breed(self, parent):
        twin = Twin(self.next_twin)
        self.next_twin += 1
        twin.send_birth(parent.twin_control, BREED)
        self.twins.append(twin)
        return twin.wait_born(self.registry)

    def take_over(self, twin, undone=(), kill=True):
        """The guest is killed with its group, and the twin becomes the guest."""
        if kill:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        self._close_channels(keep=(self.fd_log,))
        self.twin_control.close()
        self._become(twin, self.fd_log, undone, False)
        return self

    def branch(self, twin):
        """The twin runs beside the guest; a FakeSupervisor of its own."""
        branch = FakeSupervisor.__new__(FakeSupervisor)
        branch.registry, branch.twins, branch.branches = self.registry.dup(), [], []
        branch.next_twin, branch.request, branch.count, branch.seen = 1000, self.request, self.count, []
        branch.hello, branch.interpreter = self.hello, self.interpreter
        branch.side, branch.in_lanes = None, {}
        self.twins.remove(twin)
        branch.twins.append(twin)
        branch._become(twin, os.dup(self.fd_log), (), True)
        self.branches.append(branch)
        return branch

    def _become(self, twin, log, undone, branch):
        self.twins.remove(twin)
        self._attach(twin.wire, twin.fd1, twin.fd2, log, "WAKING")
        self.process, self.twin_control = twin.process, twin.twin_control
        self.twin_control.send(struct.pack("<II", BRANCH if branch else WAKE, twin.number))
        undone = [{"number": number, "code": code} for number, code in undone]
        content = {"execution_count": self.count + 1, "undone": undone, "branch": branch}
        self.pending = self.send("RESUME", content)
        self.finish("RESUMED")
        self.phase = "UP"

    def log_text(self):
        self.drain_pipes()
        return bytes(self.captured[self.fd_log]).decode("utf-8", "replace")

    def shutdown(self):
        self.send("SHUTDOWN", {"restart": False})
        return self.process.wait(DEADLINE)

    def close(self):
        for each in self.branches:
            each.close()
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for twin in self.twins:
            twin.drop()
        self._close_channels()
        self.twin_control.close()
        self.registry.close()

    def _close_channels(self, keep=()):
        self.sock.close()
        if self.side:
            self.side.close()
        for fd in self.captured:
            if fd not in keep:
                os.close(fd)


class Kept:
    """A guest whose newest copy alone is kept, as a kernel does."""

    def __init__(self, guest):
        self.guest, self.twin = guest, None
        self.pid = guest.process.pid

    def copy(self, room=ROOM):
        """The number of the copy's process, when that and the guest have done what they do until the next request."""
        started, before = time.perf_counter(), self.twin
        self.twin = self.guest.checkpoint(room)
        self.stood = time.perf_counter() - started  # s until the copy was there
        self._drop(before)
        await_rest(self.twin.process.pid)
        await_rest(self.pid)
        return self.twin.process.pid

    def drop(self):
        self._drop(self.twin)
        self.twin = None

    def _drop(self, twin):
        if twin:
            self.guest.twins.remove(twin)
            twin.drop()

    def woken(self):
        """The guest has ended, and the copy takes over."""
        self.guest.take_over(self.twin)
        self.twin, self.pid = None, self.guest.process.pid
