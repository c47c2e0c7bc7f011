"""One kernel, spoken to from one event loop: the engine below AsyncSandbox and Sandbox.

Invariants: used from the loop that started it, and from the process; each request ends, by its reply, by an error
when the kernel or the connection is gone, or by the caller's cancellation.
"""

from __future__ import annotations

import contextvars
from typing import Any, Awaitable, Callable, Mapping, NamedTuple, Optional, Sequence

from ._result import Event, Result

Calls = Callable[[list[dict[str, Any]]], Awaitable[list[dict[str, Any]]]]
Input = Callable[[str, bool], Awaitable[str]]

serving: contextvars.ContextVar[Optional["Serving"]] = contextvars.ContextVar("cellblock_serving", default=None)


class Serving(NamedTuple):
    """Set while a host tool is called: of which session, and for which run (the id of its execute_request)."""

    session: "Session"
    run: str


class Reply(NamedTuple):
    """A reply of the kernel: its content, its metadata, and the bytes that came with it."""

    content: dict[str, Any]
    metadata: dict[str, Any]
    buffers: list[bytes]


class Session:
    """One kernel. `on_calls` answers host tool calls, `on_input` questions of `input()`; both run in the loop.

    `on_calls(calls)` gets the list of `input_request.metadata.cellblock.calls` and returns the list of results,
    `{"id", "ok"}` or `{"id", "error": {"type", "message"}}`; while it runs, `serving` says which run calls.
    """

    on_calls: Optional[Calls] = None
    on_input: Optional[Input] = None

    async def request(
        self,
        msg_type: str,
        content: Mapping[str, Any],
        *,
        metadata: Optional[Mapping[str, Any]] = None,
        buffers: Sequence[bytes] = (),
        channel: str = "shell",
        subshell: Optional[str] = None,
    ) -> Reply:
        """Sends a request and waits for its reply. Raises what the reply says where its status is not ok."""
        raise NotImplementedError

    async def run(
        self,
        code: str,
        *,
        metadata: Optional[Mapping[str, Any]] = None,
        on_event: Optional[Callable[[Event], None]] = None,
        subshell: Optional[str] = None,
    ) -> Result:
        """Runs a cell to its end. Cancelling it interrupts the cell and waits at most `grace` seconds for the end."""
        raise NotImplementedError
