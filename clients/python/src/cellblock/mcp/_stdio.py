"""The MCP server over stdin and stdout.

Trust domain: host; the lines come from the client that started us. Invariant: each line that is no message is answered,
so that no client waits for an answer that never comes: the SDK only logs such a line.
"""

from __future__ import annotations

import json
from typing import Any, Union

from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError

from ._server import Server


def refusal(error: Exception) -> JSONRPCError:
    """The answer to a line that is no message. Its id is the line's own, where one can be read."""
    said: Any = None
    code, why = PARSE_ERROR, "the line is not JSON"
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        try:
            said = json.loads(first["input"]) if isinstance(first["input"], str) else first["input"]
            code, why = INVALID_REQUEST, "the line is not one JSON-RPC message"
            if first["type"] == "json_invalid":  # Python reads it, and a string in it has half a character
                code, why = PARSE_ERROR, first["msg"]
        except (ValueError, RecursionError):
            why = first["msg"]
    name = said.get("id") if isinstance(said, dict) else None
    whose: Union[int, str, None] = name if type(name) in (int, str) else None
    return JSONRPCError(jsonrpc="2.0", id=whose, error=ErrorData(code=code, message=why[:500]))


class Lines:
    """The stream of messages. What is no message is answered here."""

    def __init__(self, inner: Any, out: Any) -> None:
        self._inner, self._out = inner, out

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def __aenter__(self) -> Lines:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._inner.__aexit__(*error)

    def __aiter__(self) -> Lines:
        return self

    async def __anext__(self) -> Any:
        while True:
            item = await self._inner.__anext__()
            if not isinstance(item, Exception):
                return item
            await self._out.send(SessionMessage(refusal(item)))


async def serve(server: Server) -> None:
    """Serves until the client closes its end."""
    await server.start()
    async with stdio_server() as (lines, out):
        below = server.mcp._lowlevel_server
        await below.run(Lines(lines, out), out, below.create_initialization_options())
