"""Jupyter's messages and the ways to a kernel's sockets.

Role: packs and signs, unpacks and verifies; ZeroMQ sockets read by an asyncio loop, without a thread and without
waiting. Invariants: a message whose signature is wrong or that is malformed is dropped; nothing is unpickled.
"""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import hmac
import json
import os
import uuid
from typing import Any, Callable, Mapping, NamedTuple, Optional, Protocol, Sequence

import zmq

from ._errors import SandboxError, ValueTooLargeError

DELIMITER = b"<IDS|MSG>"
CHANNELS = ("shell", "control", "stdin", "iopub")
AT_ONCE = 100  # messages that are read from one socket before others have their turn


class Message(NamedTuple):
    """A message: its four parts, and the bytes behind them."""

    header: dict[str, Any]
    parent: dict[str, Any]
    metadata: dict[str, Any]
    content: dict[str, Any]
    buffers: list[bytes]

    @property
    def type(self) -> str:
        return str(self.header.get("msg_type", ""))

    @property
    def parent_id(self) -> str:
        return str(self.parent.get("msg_id", ""))


def new_message(
    msg_type: str,
    content: Mapping[str, Any],
    session: str,
    *,
    parent: Optional[Mapping[str, Any]] = None,
    metadata: Optional[Mapping[str, Any]] = None,
    buffers: Sequence[bytes] = (),
    subshell: Optional[str] = None,
) -> Message:
    """A message of this client, with an id of its own."""
    header: dict[str, Any] = {
        "msg_id": uuid.uuid4().hex,
        "msg_type": msg_type,
        "session": session,
        "username": "cellblock",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(),
        "version": "5.5",
    }
    if subshell is not None:
        header["subshell_id"] = subshell
    return Message(header, dict(parent or {}), dict(metadata or {}), dict(content), list(buffers))


def to_json(value: object) -> bytes:
    """ValueError for what is no JSON, and for texts with half a character (a lone surrogate): those of a path would
    name another file."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def from_json(data: bytes) -> dict[str, Any]:
    value = json.loads(data.decode("utf-8", "replace"))
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


class Codec:
    """Frames of messages, signed with the key of a connection file."""

    def __init__(self, key: str, scheme: str = "hmac-sha256") -> None:
        self._key = key.encode()
        self._hash = getattr(hashlib, scheme.partition("-")[2], hashlib.sha256)

    def _sign(self, parts: Sequence[bytes]) -> bytes:
        if not self._key:
            return b""
        mac = hmac.new(self._key, digestmod=self._hash)
        for part in parts:
            mac.update(part)
        return mac.hexdigest().encode()

    def pack(self, m: Message) -> list[bytes]:
        parts = [to_json(m.header), to_json(m.parent), to_json(m.metadata), to_json(m.content)]
        return [DELIMITER, self._sign(parts), *parts, *m.buffers]

    def unpack(self, frames: Sequence[bytes]) -> Message:
        """ValueError where these frames are no message, or the signature is wrong."""
        try:
            start = list(frames).index(DELIMITER)
        except ValueError:
            raise ValueError("no delimiter") from None
        signature = b"".join(frames[start + 1 : start + 2])
        parts, buffers = frames[start + 2 : start + 6], frames[start + 6 :]
        if len(parts) != 4 or not hmac.compare_digest(signature, self._sign(parts)):
            raise ValueError("the signature is wrong")
        header, parent, metadata, content = (from_json(p) for p in parts)
        return Message(header, parent, metadata, content, list(buffers))


Receive = Callable[[str, Message], None]
Lost = Callable[[str], None]


def check_size(size: int, most: int) -> None:
    """A kernel drops what is much too large, since nobody has signed for it yet: whoever sent that would wait for
    ever. `most`: limits.message, 0 as long as it is not known."""
    if 0 < most < size:
        raise ValueTooLargeError(
            f"what is to be sent has {size} bytes, and limits.message allows {most}: write large data to a file of the "
            "workspace (write_file sends it in parts), or raise limits.message in the policy"
        )


class Transport(Protocol):
    """A way to a kernel. `open` returns when messages can be sent and what the kernel publishes is heard.

    `most`: bytes of one message, limits.message; `send` raises ValueTooLargeError for more.
    """

    most: int

    async def open(self, receive: Receive, lost: Lost) -> None: ...

    def send(self, channel: str, message: Message) -> None: ...

    async def close(self) -> None: ...


_contexts: dict[int, zmq.Context[zmq.Socket[bytes]]] = {}  # one for each process; a fork's parent's is never touched


def context() -> zmq.Context[zmq.Socket[bytes]]:
    """ZeroMQ's context of this process."""
    pid = os.getpid()
    if pid not in _contexts:
        made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        made.set(zmq.MAX_SOCKETS, made.get(zmq.SOCKET_LIMIT))
        _contexts[pid] = made
    return _contexts[pid]


class ZmqTransport:
    """The sockets that a connection file names."""

    def __init__(self, connection: Mapping[str, Any]) -> None:
        self.connection, self.most = dict(connection), 0
        self._codec = Codec(
            str(connection.get("key") or ""), str(connection.get("signature_scheme") or "hmac-sha256")
        )
        self._sockets: dict[str, zmq.Socket[bytes]] = {}
        self._welcome: Optional[asyncio.Future[None]] = None
        self._receive: Receive = lambda channel, message: None

    def _address(self, channel: str) -> str:
        c = self.connection
        port, ip = c.get(f"{channel}_port"), str(c.get("ip", ""))
        if c.get("transport") == "ipc":
            return f"ipc://{ip}-{port}"
        return f"tcp://[{ip}]:{port}" if ":" in ip else f"tcp://{ip}:{port}"

    def _connect(self, channel: str, identity: bytes) -> zmq.Socket[bytes]:
        s = self._sockets[channel] = context().socket(zmq.SUB if channel == "iopub" else zmq.DEALER)
        s.setsockopt(zmq.LINGER, 0)
        s.setsockopt(zmq.RCVHWM, 0)
        s.setsockopt(zmq.SNDHWM, 0)
        s.setsockopt(zmq.RECONNECT_IVL, 20)
        s.setsockopt(zmq.IPV6, 1)
        server_key = self.connection.get("curve_publickey")
        if server_key:
            public, secret = zmq.curve_keypair()
            s.setsockopt(zmq.CURVE_SERVERKEY, str(server_key).encode())
            s.setsockopt(zmq.CURVE_PUBLICKEY, public)
            s.setsockopt(zmq.CURVE_SECRETKEY, secret)
        if channel == "iopub":
            s.setsockopt(zmq.SUBSCRIBE, b"")
        else:
            s.setsockopt(zmq.IDENTITY, identity)
        s.connect(self._address(channel))
        return s

    async def open(self, receive: Receive, lost: Lost) -> None:
        self._loop, self._receive = asyncio.get_running_loop(), receive
        self._welcome = self._loop.create_future()
        identity = uuid.uuid4().hex.encode()  # stdin is answered where shell has asked
        for channel in CHANNELS:
            try:
                s = self._connect(channel, identity)
            except zmq.ZMQError as e:
                raise SandboxError(
                    f"the kernel's socket {self._address(channel)} can't be connected to: {e}. See to what the "
                    "connection file says, and to how many files this program may have open (`ulimit -n`)"
                ) from None
            self._loop.add_reader(s.FD, self._readable, channel)
            self._loop.call_soon(self._readable, channel)
        await self._welcome

    def _readable(self, channel: str) -> None:
        """ZeroMQ's descriptor tells of changes, not of states: all there is must be read, now or very soon."""
        s = self._sockets.get(channel)
        for _ in range(AT_ONCE):
            if s is None or s.closed:
                return
            try:
                frames = s.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            except zmq.ZMQError:
                return
            try:
                message = self._codec.unpack(frames)
            except (ValueError, RecursionError):
                continue
            if message.type == "iopub_welcome":
                if self._welcome is not None and not self._welcome.done():
                    self._welcome.set_result(None)
                continue
            self._receive(channel, message)
        self._loop.call_soon(self._readable, channel)

    def send(self, channel: str, message: Message) -> None:
        frames = self._codec.pack(message)
        check_size(sum(map(len, frames)), self.most)
        self._sockets[channel].send_multipart(frames, zmq.NOBLOCK)
        self._loop.call_soon(self._readable, channel)  # sending may have swallowed the news that there is something

    async def close(self) -> None:
        sockets, self._sockets = self._sockets, {}
        for s in sockets.values():
            self._loop.remove_reader(s.FD)
            s.close(0)
