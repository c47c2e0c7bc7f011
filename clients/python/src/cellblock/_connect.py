"""Kernels that run elsewhere: by a connection file, or behind a Jupyter server or kernel gateway.

The server's websocket speaks `v1.kernel.websocket.jupyter.org` (binary), or JSON where it does not know that.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
import urllib.parse
import uuid
from typing import Any, Awaitable, Callable, Dict, List, Mapping, Optional

from ._errors import SandboxError
from ._keeper import keeper
from ._session import Connected
from ._threads import made_in_a_thread
from ._wire import CHANNELS, Lost, Message, Receive, ZmqTransport, check_size, from_json, to_json

V1 = "v1.kernel.websocket.jupyter.org"
TORNADO = 10 << 20  # bytes of one message that a server takes, unless it was told otherwise


def connector(where: str, token: Optional[str], kernel_name: str) -> Callable[[], Awaitable[Connected]]:
    """What makes the way to the kernel that `where` names."""
    if urllib.parse.urlsplit(where).scheme in ("http", "https"):
        server = Server(where, token)

        async def by_server() -> Connected:
            owned = server.kernel is None
            kernel = await server.start(kernel_name) if server.kernel is None else server.kernel
            transport = WebSocket(server, kernel)

            async def end(asked: bool) -> None:
                if owned:
                    await server.stop(kernel)

            return Connected(transport, end, lambda: "the server has ended the connection", owned=owned)

        return by_server

    async def by_file() -> Connected:
        async def end(asked: bool) -> None:
            return None

        transport = ZmqTransport(read_connection_file(where))
        return Connected(transport, end, lambda: "the kernel is gone", owned=False)

    return by_file


def read_connection_file(where: str) -> Dict[str, Any]:
    """The connection file of this path, or of this name in Jupyter's runtime folder."""
    path = where
    if not os.path.exists(path):
        from jupyter_client.connect import find_connection_file

        try:
            path = find_connection_file(where)
        except OSError:
            raise SandboxError(
                f"there is no connection file {where!r}, neither here nor in Jupyter's runtime folder. "
                "`cellblock list --json` names those of the kernels that run."
            ) from None
    try:
        with open(path, encoding="utf-8") as f:
            said = json.load(f)
        if not isinstance(said, dict):
            raise ValueError("it names no ports")
        missing = [f"{c}_port" for c in CHANNELS if not said.get(f"{c}_port")]
        if missing:
            raise ValueError(f"it names no {', '.join(missing)}")
    except (OSError, ValueError) as e:
        raise SandboxError(f"{path} is no connection file of a kernel: {e}") from None
    if said.get("transport", "tcp") == "ipc" and not said.get("ip"):
        said["ip"] = os.path.splitext(path)[0] + "-ipc"
    return said


class Server:
    """The REST interface of a Jupyter server or gateway: starts and stops kernels."""

    def __init__(self, url: str, token: Optional[str]) -> None:
        parts = urllib.parse.urlsplit(url)
        query = urllib.parse.parse_qs(parts.query)
        self.token = token if token is not None else (query.get("token") or [""])[0]
        path, found, kernel = parts.path.partition("/api/kernels/")
        self.kernel: Optional[str] = kernel.strip("/").split("/")[0] if found else None
        user, _, place = parts.netloc.rpartition("@")
        self._user = urllib.parse.unquote(user)  # NAME:PASSWORD
        self.base = f"{parts.scheme}://{place}{path.rstrip('/')}"

    def headers(self) -> Dict[str, str]:
        if self._user:
            return {"Authorization": "Basic " + base64.b64encode(self._user.encode()).decode()}
        return {"Authorization": f"token {self.token}"} if self.token else {}

    def _rest(self, method: str, path: str, body: Optional[Mapping[str, Any]] = None, tries: int = 1) -> Any:
        """For a thread of its own, which may go on while the program ends: an event loop needs more threads then, and
        there are none."""
        import http.client
        import urllib.error
        import urllib.request

        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **self.headers()}

        class NoRedirect(urllib.request.HTTPRedirectHandler):
            """Python's own would make a GET of a POST, and hand the token on."""

            def redirect_request(self, *_: Any) -> None:
                return None

        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirect)  # nor has the websocket any
        try:
            with opener.open(urllib.request.Request(self.base + path, data, headers, method=method), timeout=60) as r:
                answer = r.read()
            return json.loads(answer) if answer else None
        except urllib.error.HTTPError as e:
            try:
                with e:
                    answer = e.read()
            except (OSError, http.client.HTTPException):
                answer = b""
            if method == "DELETE" and e.code == 404:
                return None  # the server has removed it already
            if tries > 1 and 500 <= e.code < 599:  # it can't stop a kernel that it is just restarting
                time.sleep(1)
                return self._rest(method, path, body, tries - 1)
            said = answer.decode("utf-8", "replace")[:300] if answer else e.reason
            hint = " Give its token: connect(url, token=…)." if e.code in (401, 403) else ""
            if 300 <= e.code < 400:
                hint = f" It is elsewhere: connect to the server's own URL ({str(e.headers.get('Location'))[:300]})."
            raise SandboxError(f"{self.base} answered {method} {path} with {e.code}: {said}.{hint}") from None
        except (OSError, ValueError, http.client.HTTPException) as e:
            raise SandboxError(f"{self.base} does not answer: {getattr(e, 'reason', e)}") from None

    async def start(self, kernel_name: str) -> str:
        """Starts a kernel; gives its id. One whose caller waits no more is stopped as soon as it is there."""

        def start() -> str:
            said = self._rest("POST", "/api/kernels", {"name": kernel_name})
            if not isinstance(said, dict) or not isinstance(said.get("id"), str):
                raise SandboxError(
                    f"{self.base} answered POST /api/kernels with {said!r:.200}, which names no kernel: connect to the "
                    "URL of a Jupyter server or kernel gateway"
                )
            kernel: str = said["id"]
            url = self._url(kernel)
            keeper().keep(url, url=url, authorization=self.headers().get("Authorization", ""))
            return kernel

        return await made_in_a_thread(start, self._stop)

    def _stop(self, kernel: str) -> None:
        self._rest("DELETE", f"/api/kernels/{kernel}", tries=3)
        keeper().done(self._url(kernel))

    async def stop(self, kernel: str) -> None:
        """Ends a kernel; that there is none is no error. Where it fails, the keeper tries at the program's end."""
        await made_in_a_thread(lambda: self._stop(kernel), lambda nothing: None)

    def _url(self, kernel: str) -> str:
        return f"{self.base}/api/kernels/{kernel}"


class WebSocket:
    """The channels of a kernel behind a server."""

    def __init__(self, server: Server, kernel: str) -> None:
        self._server, self._kernel, self._socket = server, kernel, None  # type: Server, str, Any
        self.most = 0
        self._binary, self._reader = False, None  # type: bool, Optional[asyncio.Task[None]]
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._writer: Optional[asyncio.Task[None]] = None
        self._largest = 0  # bytes of a message that was sent, and that may not have been taken
        self._proof: set[str] = set()  # requests: where one is answered, the server has taken all large ones

    async def open(self, receive: Receive, lost: Lost) -> None:
        from tornado.httpclient import HTTPClientError, HTTPRequest
        from tornado.websocket import WebSocketError, websocket_connect

        url = f"ws{self._server.base[4:]}/api/kernels/{self._kernel}/channels?session_id={uuid.uuid4().hex}"
        try:
            request = HTTPRequest(url, headers=self._server.headers(), connect_timeout=60)
            opening = asyncio.ensure_future(websocket_connect(request, subprotocols=[V1], max_message_size=1 << 30))
            self._socket = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_late)
            raise
        except (OSError, HTTPClientError, WebSocketError) as e:
            raise SandboxError(
                f"{self._server.base} gives no websocket for kernel {self._kernel}: {e}. Connect to the URL of a "
                "Jupyter server or kernel gateway, or of a kernel there (…/api/kernels/ID)"
            ) from None
        self._binary = self._socket.selected_subprotocol == V1
        self._reader = asyncio.ensure_future(self._read(receive, lost))
        self._writer = asyncio.ensure_future(self._write(lost))

    async def _read(self, receive: Receive, lost: Lost) -> None:
        while True:
            data = await self._socket.read_message()
            if data is None:
                lost(self._why())
                return
            try:
                channel, message = unpack_v1(data) if self._binary else unpack_json(data)
            except (ValueError, LookupError, TypeError, RecursionError):
                continue
            if message.parent_id in self._proof:
                self._largest = 0
                self._proof.clear()
            receive(channel, message)

    async def _write(self, lost: Lost) -> None:
        from tornado.websocket import WebSocketClosedError

        while True:
            data = await self._queue.get()
            try:
                await self._socket.write_message(data, binary=isinstance(data, bytes))
            except WebSocketClosedError:
                lost(self._why())
                return

    def _why(self) -> str:
        """It closes at a message that is too large. Its word for that, 1009, is lost where it has not read it all."""
        why = "the server has closed the connection to the kernel"
        if self._socket.close_code != 1009 and self._largest <= TORNADO:
            return why
        return (
            f"{why}: the largest message to it had {self._largest} bytes, and a Jupyter server takes {TORNADO} if it "
            "was not told otherwise. Write large data to a file of the workspace (write_file sends it in parts), or "
            f"start the server with --ServerApp.tornado_settings=\"{{'websocket_max_message_size': {64 << 20}}}\""
        )

    def send(self, channel: str, message: Message) -> None:
        data = pack_v1(channel, message) if self._binary else pack_json(channel, message)
        size = len(data if isinstance(data, bytes) else data.encode())
        check_size(size, self.most)
        if size > TORNADO:
            self._proof.clear()
        self._largest = max(self._largest, size)
        if self._largest > TORNADO and channel != "stdin":  # nobody answers an answer
            self._proof.add(str(message.header["msg_id"]))
        self._queue.put_nowait(data)

    async def close(self) -> None:
        if self._reader is not None and self._reader.get_loop().is_closed():
            return  # all of it has ended there
        for task in (self._reader, self._writer):
            if task is not None:
                task.cancel()
        if self._socket is not None:
            self._socket.close()


def _close_late(opening: asyncio.Future[Any]) -> None:
    """A connection that came when nobody waited for it any more."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def pack_v1(channel: str, m: Message) -> bytes:
    """Number of offsets, offsets, then the channel, four parts of JSON, and the buffers."""
    said = (to_json(part) for part in (m.header, m.parent, m.metadata, m.content))
    parts = [channel.encode(), *said, *m.buffers]
    offsets = [8 * (len(parts) + 2)]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    return b"".join(n.to_bytes(8, "little") for n in (len(offsets), *offsets)) + b"".join(parts)


def unpack_v1(data: Any) -> "tuple[str, Message]":
    """ValueError where these bytes are no such message."""
    if not isinstance(data, bytes) or len(data) < 8:
        raise ValueError("not binary")
    count = int.from_bytes(data[:8], "little")
    if not 6 <= count <= len(data) // 8:
        raise ValueError("too few parts")
    at = [int.from_bytes(data[8 * i : 8 * i + 8], "little") for i in range(1, count + 1)]
    parts: List[bytes] = [data[a:b] for a, b in zip(at, at[1:])]
    header, parent, metadata, content = (from_json(p) for p in parts[1:5])
    return parts[0].decode(), Message(header, parent, metadata, content, parts[5:])


def pack_json(channel: str, m: Message) -> Any:
    """As text; with buffers as one binary message: offsets of 4 bytes, the JSON, the buffers."""
    whole = {"header": m.header, "parent_header": m.parent, "metadata": m.metadata, "content": m.content}
    said = to_json({"channel": channel, **whole})
    if not m.buffers:
        return said.decode()
    parts = [said, *m.buffers]
    offsets = [4 * (len(parts) + 1)]
    for part in parts[:-1]:
        offsets.append(offsets[-1] + len(part))
    return b"".join(n.to_bytes(4, "big") for n in (len(parts), *offsets)) + b"".join(parts)


def unpack_json(data: Any) -> "tuple[str, Message]":
    """The reverse of `pack_json`."""
    buffers: List[bytes] = []
    if isinstance(data, bytes):
        count = int.from_bytes(data[:4], "big")
        if not 1 <= count < len(data) // 4:
            raise ValueError("too few parts")
        at = [int.from_bytes(data[4 * i : 4 * i + 4], "big") for i in range(1, count + 1)] + [len(data)]
        parts = [data[a:b] for a, b in zip(at, at[1:])]
        data, buffers = parts[0], parts[1:]
    said = from_json(data if isinstance(data, bytes) else data.encode())
    header, parent, metadata, content = (
        said.get(k) or {} for k in ("header", "parent_header", "metadata", "content")
    )
    if not all(isinstance(part, dict) for part in (header, parent, metadata, content)):
        raise ValueError("a part is no object")
    return str(said.get("channel", "")), Message(header, parent, metadata, content, buffers)
