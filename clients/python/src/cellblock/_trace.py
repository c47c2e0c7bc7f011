"""Spans of OpenTelemetry, for programs that have it (docs/client.md, "Traces").

Invariants: it is used only where the program has imported it, and never imported for its own sake, so a program
without it pays a look into a dict; code, arguments, output and messages of errors go into no span; of what the jail
chose only names that are short and plain do.
"""

from __future__ import annotations

import contextlib
import re
import sys
from typing import Any, Generator, Mapping, Optional, Sequence

from ._result import Result, Usage

SCOPE = "cellblock"
UNDONE = 100  # numbers of cells in one event
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,79}")


def _api() -> Any:
    """The module opentelemetry.trace, or None. Who has not imported it has no provider and no current span."""
    if sys.modules.get("opentelemetry.trace") is None:
        return None
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace


def traceparent() -> Optional[str]:
    """The current span as W3C Trace Context writes it, or None."""
    api = _api()
    if api is None:
        return None
    now = api.get_current_span().get_span_context()
    return f"00-{now.trace_id:032x}-{now.span_id:016x}-{now.trace_flags & 0xff:02x}" if now.is_valid else None


def mark(metadata: Optional[Mapping[str, Any]]) -> dict[str, Any]:
    """A request's metadata.cellblock, with the current span's mark where there is one."""
    now = traceparent()
    return {**(metadata or {}), **({} if now is None else {"traceparent": now})}


def error_type(name: str) -> str:
    """What may stand as error.type: a class of the jail may be called anything."""
    return name if _NAME.fullmatch(name) else "_OTHER"


class Span:
    """A span, or nothing where there is none to record."""

    def __init__(self, api: Any = None, span: Any = None) -> None:
        self._api, self._span, self._failed = api, span, False

    def set(self, attributes: Mapping[str, Any]) -> None:
        """Adds attributes; those that are None are left out."""
        if self._span is not None:
            self._span.set_attributes({k: v for k, v in attributes.items() if v is not None})

    def event(self, name: str, attributes: Mapping[str, Any]) -> None:
        if self._span is not None:
            self._span.add_event(name, {k: v for k, v in attributes.items() if v is not None})

    def fail(self, name: str) -> None:
        """Its status is an error, of this type. The first one stays."""
        if self._span is not None and not self._failed:
            self._failed = True
            self._span.set_attribute("error.type", error_type(name))
            self._span.set_status(self._api.Status(self._api.StatusCode.ERROR))


_NONE = Span()


@contextlib.contextmanager
def span(name: str, attributes: Optional[Mapping[str, Any]] = None) -> Generator[Span, None, None]:
    """A span around what is done in it, and the current one there. An exception makes its status an error."""
    api = _api()
    if api is None:
        yield _NONE
        return
    from . import __version__

    given = {k: v for k, v in (attributes or {}).items() if v is not None}
    made = api.get_tracer(SCOPE, __version__).start_span(name, attributes=given)
    held = Span(api, made) if made.is_recording() else _NONE
    try:
        with api.use_span(made, record_exception=False, set_status_on_exception=False):
            yield held
    except BaseException as e:
        held.fail(type(e).__name__)
        raise
    finally:
        made.end()


def tool_span(tool: Optional[str], call: object) -> contextlib.AbstractContextManager[Span]:
    """Around a call of a host tool, by the conventions for tools of models. `tool` is None where there is no such."""
    return span("execute_tool" if tool is None else f"execute_tool {tool}", {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": call if isinstance(call, str) and _ID.fullmatch(call) else None,
    })


def tell_result(held: Span, result: Result, restored_to: Optional[int]) -> None:
    """What a run gave, without anything that the code says or has written."""
    if held is _NONE:
        return
    held.set({
        "cellblock.execution_count": result.execution_count,
        "cellblock.status": "ok" if result.ok else "cancelled" if result.partial and not result.error else "error",
        "cellblock.state": result.state,
        "cellblock.limit": result.limit,
        "cellblock.fault": result.fault,
    })
    tell_usage(held, result.usage)
    if result.error is not None:
        held.fail(result.error.name)
    if result.state == "restored":
        tell_restored(held, restored_to, result.undone)
    elif result.state == "lost":
        held.event("cellblock.lost", {})


def tell_usage(held: Span, usage: Usage) -> None:
    """What was used, where the kernel said so."""
    if usage != Usage():
        held.set({
            "cellblock.usage.wall_s": usage.wall_s,
            "cellblock.usage.cpu_user_s": usage.cpu_user_s,
            "cellblock.usage.cpu_sys_s": usage.cpu_sys_s,
            "cellblock.usage.memory_peak_bytes": usage.memory_peak_bytes,
            "cellblock.usage.output_bytes": usage.output_bytes,
        })


def tell_restored(held: Span, restored_to: Optional[int], undone: Sequence[int]) -> None:
    """An older state has taken over: that of after cell `restored_to`; `undone` are the cells since."""
    held.event("cellblock.restored", {"cellblock.restored_to": restored_to, "cellblock.undone": undone[-UNDONE:]})
