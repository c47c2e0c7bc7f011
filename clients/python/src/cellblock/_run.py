"""One running cell: what the kernel publishes about it becomes a Result."""

from __future__ import annotations

import asyncio
import contextvars
import json
from typing import Any, Callable, Mapping, Optional

from ._checks import environment, seconds
from ._result import VALUE_MIME, ErrorInfo, Event, Fault, NoValue, Result, Usage, decode_value, plain
from ._wire import Message

SHOWN = {
    "status", "execute_input", "stream", "display_data", "update_display_data", "clear_output", "execute_result",
    "error",
}
OURS = {"IsolationError", "KernelBusyError", "JobLostError", "MalformedRequestError"}
INTERRUPTS = {"KeyboardInterrupt", "HostToolCancelledError"}
LOST = "\n[cellblock: output of this cell was lost: this program was stopped, or did not read]\n"


def fault_of(name: str, limit: Optional[str], interrupted: bool, by: object) -> Fault:
    """Who is to blame for an error of this name. A cell may give its own any name: those of the kernel's count only
    where the kernel says that it has said so. Memory is the limit of each MemoryError: the kernel has no other sign."""
    if by == "outside" or (by == "kernel" and name in OURS):
        return "infrastructure"
    if limit is not None and limit != "output":
        return "limit"
    return "limit" if interrupted and name in INTERRUPTS else "code"


def asked(timeout: object, env: object) -> dict[str, Any]:
    """What a client asks for with a cell: metadata.cellblock. TypeError or ValueError where it can't be had."""
    metadata: dict[str, Any] = {"value": True}
    if timeout is not None:
        metadata["timeout"] = seconds("timeout", timeout, none="the policy's limit")
    variables = environment(env)
    return {**metadata, "env": variables} if variables else metadata


def is_given_up(channel: str, m: Message) -> bool:
    """Whether the kernel says that it gave up output: somebody did not read, perhaps this program. Its text says
    nothing: a cell could write that. Metadata of a stream are the kernel's own."""
    said = m.metadata.get("cellblock")
    return channel == "iopub" and m.type == "stream" and isinstance(said, dict) and bool(said.get("given_up"))


def _undone(said: Mapping[str, Any]) -> tuple[list[int], list[dict[str, Any]]]:
    """The numbers of the cells whose effects are gone, and the host tools that these had called."""
    calls = [{"completed": True, **c} for c in said.get("undone_calls") or [] if isinstance(c, dict)]
    return [n for n in said.get("undone") or [] if type(n) is int], calls


def went_back(content: Mapping[str, Any]) -> Result:
    """What a rollback or an adoption gave, as a cell gives it that does the same by `%rollback`."""
    r = Result(ok=True, state="restored")
    r.undone, r.calls = _undone(content)
    if isinstance(content.get("outcome"), str):
        r.stderr = f"[cellblock: {content['outcome']}]\n"
    return r


class Run:
    """A cell between its request and its end: `done` is set when reply and idle have come, `replied` at the reply."""

    def __init__(self, msg_id: str, line: Optional[str], on_event: Optional[Callable[[Event], None]]) -> None:
        loop = asyncio.get_running_loop()
        self.id, self.line, self._on_event = msg_id, line, on_event
        self.done: asyncio.Future[None] = loop.create_future()
        self.replied: asyncio.Future[None] = loop.create_future()
        self.interrupted = False
        self.context = contextvars.copy_context()  # of the caller: host tools run in copies of it
        self.asked: set[asyncio.Task[None]] = set()
        self.question: Optional[Message] = None  # the newest
        self.restored_to: Optional[int] = None
        self._result = Result()
        self._out: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._display_ids: dict[str, int] = {}
        self._reply: Optional[Message] = None
        self._idle = self._torn = self._given_up = False

    def end(self, error: Optional[Exception] = None, *, torn: bool = False) -> None:
        """Nothing more is waited for. `torn`: the idle was lost, and with it perhaps what was published before it."""
        if self.done.done():
            return
        self._torn = torn
        if error is not None:
            self.done.set_exception(error)
        else:
            self.done.set_result(None)
        if not self.replied.done():
            self.replied.set_result(None)

    def _tell(self, event: Event) -> None:
        if self._on_event is not None:
            self._on_event(event)

    def gave_up(self, m: Message) -> None:
        """The notice that output was given up while this cell ran: it stands where it came, in stderr."""
        self._given_up = True
        self._on_stream(m)

    def receive(self, channel: str, m: Message) -> None:
        """A message whose parent is this cell's request."""
        if channel == "shell" and m.type == "execute_reply":
            self._reply = m
            if not self.replied.done():
                self.replied.set_result(None)
        elif channel == "iopub":
            if m.type in SHOWN:
                getattr(self, f"_on_{m.type}")(m)
        if self._reply is not None and (self._idle or self._reply.content.get("status") == "aborted"):
            self.end()

    def _on_status(self, m: Message) -> None:
        self._idle = self._idle or m.content.get("execution_state") == "idle"

    def _on_execute_input(self, m: Message) -> None:
        count = m.content.get("execution_count")
        self._result.execution_count = count if type(count) is int else None

    def _on_stream(self, m: Message) -> None:
        name, text = m.content.get("name"), m.content.get("text")
        if name in self._out and isinstance(text, str):
            self._out[name].append(text)
            self._tell(Event(name, text))

    def _show(self, m: Message) -> dict[str, Any]:
        data = m.content.get("data")
        return {k: _parsed(k, v) for k, v in data.items()} if isinstance(data, dict) else {}

    def _on_display_data(self, m: Message) -> None:
        data, transient = self._show(m), m.content.get("transient")
        if isinstance(transient, dict) and isinstance(transient.get("display_id"), str):
            self._display_ids[transient["display_id"]] = len(self._result.displays)
        self._result.displays.append(data)
        self._tell(Event("display", _plain_of(data), data))

    def _on_update_display_data(self, m: Message) -> None:
        data, transient = self._show(m), m.content.get("transient")
        at = self._display_ids.get(str(transient.get("display_id"))) if isinstance(transient, dict) else None
        if at is not None and at < len(self._result.displays):
            self._result.displays[at] = data
        self._tell(Event("display", _plain_of(data), data))

    def _on_clear_output(self, m: Message) -> None:
        self._result.displays.clear()
        self._display_ids.clear()
        self._tell(Event("clear"))

    def _on_execute_result(self, m: Message) -> None:
        raw = m.content.get("data")
        said = raw.get(VALUE_MIME) if isinstance(raw, dict) else None
        data = self._show(m)
        data.pop(VALUE_MIME, None)
        r = self._result
        r.repr = _plain_of(data)
        if said is not None:
            try:
                r.value, r.has_value = decode_value(said), True
            except (NoValue, RecursionError):
                pass
        if set(data) - {"text/plain"}:
            r.displays.append(data)
        self._tell(Event("result", r.repr, data))

    def _on_error(self, m: Message) -> None:
        self._result.error = _error_of(m.content)
        self._tell(Event("error", str(self._result.error)))

    def so_far(self) -> Result:
        """What there is by now, for a caller that waits no more."""
        error = self.done.exception() if self.done.done() else None
        lost = None if error is None else str(error)
        return self.result(partial=lost is not None or not self.done.done(), lost=lost)

    def result(self, *, partial: bool = False, lost: Optional[str] = None) -> Result:
        """What there is by now; whole once `done` is set. `lost`: the kernel is gone, for this reason."""
        r = self._result
        r.stdout, r.stderr = "".join(self._out["stdout"]), "".join(self._out["stderr"])
        r.partial = partial or self._torn or self._given_up
        if self._torn:
            r.stderr += LOST
        if lost is not None:
            r.error, r.state, r.fault = ErrorInfo("SandboxError", lost), "lost", "infrastructure"
            return r
        if self._reply is None:
            return r
        content = self._reply.content
        said = self._reply.metadata.get("cellblock")
        said = said if isinstance(said, dict) else {}
        r.usage = Usage.of(said.get("usage"))
        r.limit = said["limit"] if isinstance(said.get("limit"), str) else None
        r.state = str(said.get("state") or "kept")
        self.restored_to = said["restored_to"] if type(said.get("restored_to")) is int else None
        r.undone, undone = _undone(said)
        r.calls = undone + [c for c in said.get("calls") or [] if isinstance(c, dict)]
        status = content.get("status")
        r.ok = status == "ok" and r.error is None
        if status == "aborted":
            r.error = ErrorInfo("AbortedError", "the kernel did not run the cell")
            r.fault = "limit" if self.interrupted else "infrastructure"
        elif not r.ok:
            r.error = r.error or _error_of(content)
            by = said.get("by") if "state" in said else "outside"  # of a cell that it refused it says no state
            r.fault = fault_of(str(content.get("ename")), r.limit, self.interrupted, by)
        return r


def not_begun() -> Result:
    """Of a cell whose caller stopped waiting while others ran."""
    error = ErrorInfo("AbortedError", "the cell was not begun")
    return Result(error=error, fault="limit", partial=True)


def _parsed(mime: str, data: object) -> object:
    """JSON may come as text; what is no JSON then stays text."""
    if isinstance(data, str) and (mime == "application/json" or mime.endswith("+json")):
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            return data
    return data


def _plain_of(data: dict[str, Any]) -> str:
    text = data.get("text/plain")
    return text if isinstance(text, str) else ""


def _error_of(content: dict[str, Any]) -> ErrorInfo:
    lines = content.get("traceback")
    traceback = "\n".join(t for t in lines if isinstance(t, str)) if isinstance(lines, list) else ""
    return ErrorInfo(str(content.get("ename") or "Error"), str(content.get("evalue") or ""), plain(traceback))
