"""What a cell gave, as MCP says it: structured fields, text for the model, pictures, links to what is large.

Trust domain: host; what it shows comes from the jail. Invariant: a reply is bounded, whatever a cell wrote.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Optional

from mcp_types import CallToolResult, ImageContent, ResourceLink, TextContent
from pydantic import BaseModel

from .._result import CommandResult, Result, plain, shorten
from .._tools import measure
from ._sessions import McpSession

MAX_TEXT = 20_000  # characters of stdout, of stderr, and of the text for the model
MAX_VALUE = 50_000  # bytes of `value` as JSON
MAX_IMAGE, MAX_IMAGES = 1 << 20, 8
SHOWN = ("image/png", "image/jpeg", "image/gif", "image/webp")


class Reply(BaseModel):
    """What each reply begins with: the session's name, and what became of an earlier session."""

    session: str
    note: Optional[str] = None


class RunResult(Reply):
    """What a cell gave. `session` names the session: pass it on to keep the variables."""

    ok: bool
    value: Any = None
    has_value: bool = False
    repr: Optional[str] = None
    stdout: str = ""
    stderr: str = ""
    error: Optional[dict[str, str]] = None
    usage: dict[str, float] = {}
    limit: Optional[str] = None
    state: str = "kept"
    undone: list[int] = []
    calls: list[dict[str, Any]] = []
    fault: Optional[str] = None
    execution_count: Optional[int] = None


class CommandReply(Reply):
    """What a command gave."""

    returncode: int
    stdout: str
    stderr: str
    limit: Optional[str] = None


def _value(result: Result) -> tuple[Any, bool]:
    """The value, where every client can read it: parsers have limits of depth, and drop the whole reply over it."""
    if not result.has_value:
        return None, False
    try:
        measure(result.value, MAX_VALUE)
        small = len(json.dumps(result.value)) <= MAX_VALUE
    except (TypeError, ValueError):
        return None, False  # bytes, an array, deep: `repr` shows it
    return (result.value, True) if small else (None, False)


def _whole(session: McpSession, name: str, text: str) -> list[Any]:
    """A link to a text that was shortened."""
    if len(text) <= MAX_TEXT:
        return []
    data = text.encode("utf-8", "replace")
    uri = session.keep("text/plain", data)
    link = ResourceLink(type="resource_link", name=name, uri=uri or "", mime_type="text/plain", size=len(data))
    return [link] if uri else []


def _images(session: McpSession, result: Result) -> list[Any]:
    content: list[Any] = []
    for number, image in enumerate(result.images):
        name = f"image {number + 1}"
        if image.mime in SHOWN and len(image.data) <= MAX_IMAGE and len(content) < MAX_IMAGES:
            data = base64.b64encode(image.data).decode()
            content.append(ImageContent(type="image", data=data, mime_type=image.mime))
            continue
        uri = session.keep(image.mime, image.data) if len(content) < 4 * MAX_IMAGES else None
        if uri is not None:
            size = len(image.data)
            content.append(ResourceLink(type="resource_link", name=name, uri=uri, mime_type=image.mime, size=size))
    return content


def _noted(said: Reply, text: str) -> str:
    return f"{said.note}\n{text}" if said.note else text


def of_result(session: McpSession, result: Result) -> CallToolResult:
    value, has_value = _value(result)
    error = None
    if result.error is not None:
        error = {
            "name": shorten(plain(result.error.name), 200),
            "value": shorten(plain(result.error.value), MAX_TEXT),
            "traceback": shorten(plain(result.error.traceback), MAX_TEXT),
        }
    said = RunResult(
        **session.head(), ok=result.ok, value=value, has_value=has_value,
        repr=None if result.repr is None else shorten(plain(result.repr), MAX_TEXT),
        stdout=shorten(plain(result.stdout), MAX_TEXT), stderr=shorten(plain(result.stderr), MAX_TEXT), error=error,
        usage={k: float(v) for k, v in vars(result.usage).items()}, limit=result.limit, state=result.state,
        undone=result.undone[-1000:], calls=result.calls[-1000:], fault=result.fault,
        execution_count=result.execution_count,
    )
    text = TextContent(type="text", text=_noted(said, result.text(MAX_TEXT) or "(no output)"))
    links = _whole(session, "stdout", result.stdout) + _whole(session, "stderr", result.stderr)
    return CallToolResult(
        content=[text, *_images(session, result), *links], structured_content=said.model_dump(mode="json"),
        is_error=not result.ok,
    )


def of_command(session: McpSession, done: CommandResult) -> CallToolResult:
    said = CommandReply(
        **session.head(), returncode=done.returncode, stdout=shorten(plain(done.stdout), MAX_TEXT),
        stderr=shorten(plain(done.stderr), MAX_TEXT), limit=done.limit,
    )
    shown = "\n".join(t.rstrip("\n") for t in (said.stdout, said.stderr, f"exit status {done.returncode}") if t)
    links = _whole(session, "stdout", done.stdout) + _whole(session, "stderr", done.stderr)
    return CallToolResult(
        content=[TextContent(type="text", text=_noted(said, shorten(shown, 2 * MAX_TEXT))), *links],
        structured_content=said.model_dump(mode="json"), is_error=done.returncode != 0,
    )
