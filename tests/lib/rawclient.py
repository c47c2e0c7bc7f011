"""A Jupyter client of our own on bare pyzmq: every frame, signature and identity is in the test's hand.

Role: test code, outside the jail. Invariants: nothing here sleeps; whatever is awaited is awaited on sockets and on the
kernel's pidfd with a deadline, and a kernel that dies while something is awaited is reported at once. Used by all of
tests/.
"""

import hashlib
import hmac
import json
import os
import time
import uuid
from collections import deque
from datetime import datetime, timezone

import zmq

DELIMITER = b"<IDS|MSG>"
SLOW = float(os.environ.get("CELLBLOCK_TEST_SLOW", "1"))  # how many times longer all of them are, in an emulator say
DEADLINE = 60.0 * SLOW
CHANNELS = ("shell", "control", "stdin", "iopub", "hb")
LAST_WORDS_MS = 200  # on each channel: our own I/O thread may have them still when the kernel has ended


def deadline_in(timeout):
    return time.monotonic() + (timeout * SLOW if timeout else DEADLINE)


class NoMessage(AssertionError):
    """What was awaited did not come in time."""


class KernelGone(AssertionError):
    """The kernel's process ended while something was awaited."""


class Message:
    def __init__(self, channel, frames, key, digest):
        self.channel, self.frames, self.arrived = channel, frames, time.monotonic()
        at = frames.index(DELIMITER)
        self.idents, self.signature = frames[:at], frames[at + 1]
        parts = frames[at + 2 : at + 6]
        assert len(parts) == 4, f"a message with {len(frames)} frames on {channel}"
        self.buffers = frames[at + 6 :]
        if key:
            expected = sign(key, parts, digest)
            assert self.signature == expected, f"wrong signature on {channel}"
        else:
            assert self.signature == b"", "a signature although the key is empty"
        self.raw_header, self.raw_parent, self.raw_metadata, self.raw_content = parts
        self.header, self.parent, self.metadata, self.content = (strict_json(p) for p in parts)

    @property
    def type(self):
        return self.header["msg_type"]

    @property
    def parent_id(self):
        return (self.parent or {}).get("msg_id")  # xeus says null where there is none

    def __repr__(self):
        return f"<{self.channel} {self.type} {str(self.content)[:200]}>"


def strict_json(raw):
    """What browsers and nbformat take: UTF-8, no NaN, no lone surrogates, no key twice."""

    def refuse(word):
        raise AssertionError(f"{word} in JSON")

    def pairs(items):
        keys = [k for k, _ in items]
        assert len(keys) == len(set(keys)), f"a key twice in {keys}"
        return dict(items)

    value = json.loads(raw.decode("utf-8"), parse_constant=refuse, object_pairs_hook=pairs)
    if b"\\u" in raw:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def sign(key, parts, digest="sha256"):
    mac = hmac.new(key, digestmod=getattr(hashlib, digest))
    for part in parts:
        mac.update(part)
    return mac.hexdigest().encode()


def now():
    return datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")


class Cell:
    """What one execute_request brought: the reply, and in order what iopub said with it as parent."""

    def __init__(self, reply, iopub):
        self.reply, self.iopub = reply, iopub

    @property
    def content(self):
        return self.reply.content

    @property
    def ok(self):
        return self.content["status"] == "ok"

    @property
    def types(self):
        return [m.type for m in self.iopub]

    def of(self, *types):
        return [m for m in self.iopub if m.type in types]

    def text(self, name="stdout"):
        return "".join(m.content["text"] for m in self.of("stream") if m.content["name"] == name)

    @property
    def result(self):
        found = self.of("execute_result")
        return found[0].content["data"]["text/plain"] if found else None

    @property
    def error(self):
        found = self.of("error")
        return found[0].content if found else None

    @property
    def about(self):
        """reply.metadata.cellblock"""
        return self.reply.metadata.get("cellblock", {})

    def __repr__(self):
        return f"<Cell {self.content} {self.iopub}>"


class Client:
    """One client. `kernel` (anything with .connection and .pidfd) or `connection` says where to."""

    RETRY = 100  # ms at most between two tries to reach a kernel that starts, or has ended; the first take 2, 4, 8…

    def __init__(
        self, kernel=None, connection=None, *, session=None, identity=None, channels=CHANNELS, rcvhwm=0, topics=(b"",),
        events=0
    ):
        """`events` of ZeroMQ come to a socket of `monitors`, one for each channel."""
        self.kernel = kernel
        self.connection = conn = connection or kernel.connection
        self.key = conn["key"].encode()
        self.digest = conn["signature_scheme"].partition("-")[2]
        self.session = session or uuid.uuid4().hex
        self.identity = identity or uuid.uuid4().bytes.hex().encode()
        self.count = 0
        self.context = zmq.Context()
        self.sockets, self.inbox = {}, {c: deque() for c in CHANNELS}
        self.monitors, self.events = {}, events
        self.poller = zmq.Poller()
        for channel in channels:
            self.open(channel, rcvhwm, topics)
        if kernel is not None:
            self.poller.register(kernel.pidfd, zmq.POLLIN)

    def open(self, channel, rcvhwm=0, topics=(b"",)):
        kind = {"iopub": zmq.SUB, "hb": zmq.REQ}.get(channel, zmq.DEALER)
        s = self.context.socket(kind)
        s.linger, s.rcvhwm, s.sndhwm = 0, rcvhwm, 0
        s.reconnect_ivl, s.reconnect_ivl_max = 2, self.RETRY
        if kind == zmq.DEALER:
            s.setsockopt(zmq.IDENTITY, self.identity)
        if self.connection.get("curve_publickey"):
            s.curve_publickey, s.curve_secretkey = zmq.curve_keypair()
            s.curve_serverkey = self.connection["curve_publickey"].encode()
        for topic in topics if kind == zmq.SUB else ():
            s.setsockopt(zmq.SUBSCRIBE, topic)
        if self.events:
            self.monitors[channel] = s.get_monitor_socket(self.events)
        s.connect(endpoint(self.connection, channel))
        self.sockets[channel] = s
        self.poller.register(s, zmq.POLLIN)

    def close(self):
        self.context.destroy(linger=0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- sending ----

    def header(self, msg_type, **more):
        self.count += 1
        return {
            "msg_id": f"{self.session}_{self.count}",
            "session": self.session,
            "username": "test",
            "date": now(),
            "msg_type": msg_type,
            "version": "5.4",
            **more,
        }

    def parts(self, header, content=None, metadata=None, parent=None):
        def raw(x):
            return (
                x
                if isinstance(x, bytes)
                else json.dumps({} if x is None else x, ensure_ascii=False).encode("utf-8", "surrogatepass")
            )

        return [raw(header), raw(parent), raw(metadata), raw(content)]

    def send(
        self,
        msg_type,
        content=None,
        *,
        channel="shell",
        header=None,
        metadata=None,
        parent=None,
        buffers=(),
        signature=None,
    ):
        """Sends one message, whatever is given verbatim (bytes are taken as they are). Returns the msg_id."""
        header = self.header(msg_type) if header is None else header
        parts = self.parts(header, content, metadata, parent)
        if signature is None:
            signature = sign(self.key, parts, self.digest) if self.key else b""
        self.send_frames(channel, [DELIMITER, signature, *parts, *buffers])
        return header["msg_id"] if isinstance(header, dict) else json.loads(header)["msg_id"]

    def send_frames(self, channel, frames):
        self.sockets[channel].send_multipart(frames, copy=sum(map(len, frames)) < 1 << 16)

    # ---- waiting ----

    def pump(self, deadline, what="a message"):
        """Waits until anything has arrived, and takes all that has."""
        left = deadline - time.monotonic()
        events = dict(self.poller.poll(max(0, left) * 1000))
        took = 0
        for channel, sock in self.sockets.items():
            for _ in range(500 if events.get(sock) else 0):  # a flood must not keep the test from looking
                try:
                    frames = sock.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    break
                took += 1
                self.inbox[channel].append(
                    frames if channel == "hb" else Message(channel, frames, self.key, self.digest)
                )
                if channel == "hb":
                    break  # a REQ socket has one answer, then is not to be read
        if took and left > -1:
            return
        if self.kernel is not None and events.get(self.kernel.pidfd):
            if any(sock.poll(LAST_WORDS_MS) for sock in self.sockets.values()):
                return
            raise KernelGone(
                f"the kernel ended while the test awaited {what}; it had said: {self.kernel.said()[-2000:]}"
            )
        if left <= 0:
            said = self.kernel.said()[-2000:] if self.kernel else ""
            held = {c: (len(q), list(q)[-8:]) for c, q in self.inbox.items() if q}
            raise NoMessage(f"no {what} in time; {took} came just now; unread, and the last of them: {held}; "
                            f"the kernel had said: {said}")

    def wait(self, channel, wanted=lambda m: True, timeout=None, what=None):
        """The first message on a channel that `wanted` takes; what came before it stays."""
        deadline = deadline_in(timeout)
        box, seen = self.inbox[channel], 0
        while True:
            while seen < len(box):
                if wanted(box[seen]):
                    found = box[seen]
                    del box[seen]
                    return found
                seen += 1
            self.pump(deadline, what or f"message on {channel}")

    def next(self, channel, timeout=None):
        return self.wait(channel, timeout=timeout)

    def reply(self, msg_id, channel="shell", timeout=None):
        return self.wait(channel, lambda m: m.parent_id == msg_id, timeout, f"reply on {channel} to {msg_id}")

    def drop(self):
        """Forgets what has arrived so far."""
        while True:
            try:
                self.pump(time.monotonic(), "")
            except NoMessage:
                break
        for box in self.inbox.values():
            box.clear()

    def until_idle(self, msg_id, timeout=None):
        """All iopub messages of a request, in order, to its idle (taken out; others stay)."""
        self.wait_in_place(
            "iopub",
            lambda m: m.parent_id == msg_id and m.content.get("execution_state") == "idle",
            timeout,
            f"idle of {msg_id}",
        )
        mine, others = [], deque()
        for m in self.inbox["iopub"]:
            done = mine and mine[-1].type == "status" and mine[-1].content["execution_state"] == "idle"
            (mine if m.parent_id == msg_id and not done else others).append(m)
        self.inbox["iopub"] = others
        return mine

    def wait_in_place(self, channel, wanted, timeout=None, what=None):
        """Like wait, but leaves the message where it is."""
        deadline = deadline_in(timeout)
        box, seen = self.inbox[channel], 0
        while True:
            while seen < len(box):
                if wanted(box[seen]):
                    return box[seen]
                seen += 1
            self.pump(deadline, what or f"message on {channel}")

    # ---- requests ----

    def request(self, msg_type, content=None, *, channel="shell", timeout=None, **how):
        """Sends, and gives the reply."""
        return self.reply(self.send(msg_type, content, channel=channel, **how), channel, timeout)

    def question(self, msg_type, content):
        """The reply to what is asked beside a cell; asked again where a busy machine gave Python no time for it."""
        deadline = deadline_in(None)
        while True:
            reply = self.request(msg_type, content)
            if reply.content.get("ename") != "KernelBusyError" or time.monotonic() > deadline:
                return reply

    def start(self, code, *, header=None, metadata=None, **content):
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": True,
            **content,
        }
        return self.send("execute_request", content, header=header, metadata=metadata)

    def finish(self, msg_id, timeout=None):
        reply = self.reply(msg_id, timeout=timeout)
        return Cell(reply, self.until_idle(msg_id, timeout))

    def run(self, code, *, timeout=None, **how):
        return self.finish(self.start(code, **how), timeout)

    def says(self, msg_id, text, name="stdout", timeout=None):
        """Waits until a cell has written `text`; its messages stay to be collected."""
        deadline = deadline_in(timeout)
        while True:
            said = "".join(
                m.content["text"]
                for m in self.inbox["iopub"]
                if m.parent_id == msg_id and m.type == "stream" and m.content["name"] == name
            )
            if text in said:
                return said
            self.pump(deadline, f"{text!r} on {name}")

    def stop_hard(self, msg_id, timeout=None):
        """Interrupts until the request ends, as a user who clicks again and again."""
        deadline = deadline_in(timeout)
        while True:
            self.request("interrupt_request", {}, channel="control")
            try:
                return self.wait_in_place("shell", lambda m: m.parent_id == msg_id, timeout=0.3)
            except NoMessage:
                if time.monotonic() > deadline:
                    raise

    def beat(self, timeout=None):
        self.sockets["hb"].send(b"ping")
        assert self.next("hb", timeout) == [b"ping"]

    def ready(self, timeout=None, keep=False):
        """Waits for an answer and for the subscription to hold; forgets what has come by then, but for `keep`."""
        deadline = deadline_in(timeout)
        while True:
            msg_id = self.send("kernel_info_request")
            reply = self.reply(msg_id, timeout=timeout)
            if "iopub" not in self.sockets:
                return reply
            try:
                self.until_idle(msg_id, timeout=0.5)
            except NoMessage:
                if time.monotonic() > deadline:
                    raise
                continue
            if not keep:
                self.drop()
            return reply


def endpoint(conn, channel):
    port = conn[f"{channel}_port"]
    return f"ipc://{conn['ip']}-{port}" if conn["transport"] == "ipc" else f"tcp://{conn['ip']}:{port}"
