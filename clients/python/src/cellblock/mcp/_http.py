"""The MCP server over streamable HTTP, on this machine alone.

Trust domain: host; any program of this machine, and any page in a browser here, may send requests. Invariants: nothing
is served without the token; a request that names another host, or comes from another origin, is refused, so that no
page reaches us by a name of its own.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import signal
import socket
import stat
import sys
from typing import Any, Awaitable, Callable, MutableMapping, Optional

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings

from ._server import MAX_FILE, Server

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
LEAST = 16  # characters of a token
MAX_BODY = 8 * MAX_FILE  # of one request: a file's content, whatever of it JSON writes as an escape


def read_token(path: Optional[str]) -> tuple[str, bool]:
    """The token of a file, or a new one, and whether it is new. ValueError where others can read the file."""
    if path is None:
        return secrets.token_urlsafe(32), True
    with open(path, encoding="ascii") as file:
        if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
            raise ValueError(f"{path} can be read by others: chmod 600 {path}")
        token = file.read(4096).strip()
    if len(token) < LEAST or not token.isprintable() or " " in token:
        raise ValueError(f"{path} must hold a token of at least {LEAST} characters without spaces")
    return token, False


def guarded(app: App, token: str) -> App:
    """The app, for those who send the token."""
    wanted = f"Bearer {token}".encode()

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await app(scope, receive, send)
            return
        given = [value for name, value in scope.get("headers", ()) if name == b"authorization"]
        origins = [name for name, _ in scope.get("headers", ()) if name == b"origin"]  # only the first is looked at
        good = len(given) == 1 and len(origins) <= 1 and hmac.compare_digest(given[0], wanted)
        if scope["type"] == "http" and good:
            await app(scope, receive, send)
            return
        headers = [(b"www-authenticate", b"Bearer"), (b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b"send the token: Authorization: Bearer ...\n"})

    return guard


async def serve(server: Server, port: int, token_file: Optional[str]) -> None:
    """Serves until the program is ended. The address, and a token that was made here, are told on stderr."""
    token, new = read_token(token_file)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen(64)
        port = listening.getsockname()[1]
        names = [f"127.0.0.1:{port}", f"localhost:{port}"]
        app: Any = server.mcp.streamable_http_app(
            host="127.0.0.1",
            max_request_body_size=MAX_BODY,
            transport_security=TransportSecuritySettings(
                allowed_hosts=names, allowed_origins=[f"http://{name}" for name in names]
            ),
        )
        # Clients let go of a connection after some seconds (httpx: 5, undici: 4). Who is to do so first is not us: a
        # request that is just on its way would be lost.
        config = uvicorn.Config(
            guarded(app, token), log_level="warning", lifespan="on", timeout_graceful_shutdown=5, ws="none",
            timeout_keep_alive=75,
        )
        print(f"cellblock mcp: http://127.0.0.1:{port}/mcp", file=sys.stderr)
        if new:
            print(f"cellblock mcp: Authorization: Bearer {token}", file=sys.stderr)
        sys.stderr.flush()
        # uvicorn has handlers of its own. It raises the signal again at its end; without these that would be ours, too
        told: list[int] = []
        closing: list[asyncio.Future[None]] = []

        def tell(number: int) -> None:
            told.append(number)
            closing.append(asyncio.ensure_future(server.close()))  # cells that run end, their requests are answered

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, tell, number)
        try:
            await server.start()
            if not told:
                await uvicorn.Server(config).serve(sockets=[listening])
        finally:
            await server.close()
    if told:
        sys.exit(128 + told[0])
