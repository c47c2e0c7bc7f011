"""LangChain agents with Python in a jail: `create_agent(model, tools=[CellblockPython()])`.

Variables stay from call to call. LangChain tools given as `tools` are functions of the code; they run here, their keys
never go inside. Source: langchain-core 1.7 (BaseTool, ToolMessage).
"""

from __future__ import annotations

import asyncio
import base64
import contextvars
import copy
import dataclasses
import json
from typing import Any, Callable, Mapping, Optional, Sequence, Union

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, Field, PrivateAttr

from ._acall import acall
from ._adapters import ANEW, policy_for
from ._errors import SandboxClosedError, SandboxError
from ._result import Result
from ._schema import without_defaults
from ._sync import Sandbox
from ._tools import Approve, Bare, Limits, by_schema, check_name, measure, tool as cellblock_tool

MAX_IMAGE, MAX_IMAGES = 1 << 20, 8
MAX_VALUE = 1 << 20  # bytes of `value` in the artifact
SHOWN = ("image/png", "image/jpeg", "image/gif", "image/webp")
DESCRIPTION = (
    "Runs Python code and gives what it prints, the value of a last expression, and the error if it fails. Variables, "
    "imports and files stay from call to call. The code runs in a sandbox without a network."
)

_call_id: contextvars.ContextVar[Optional[str]] = contextvars.ContextVar("cellblock_tool_call_id", default=None)


class Code(BaseModel):
    """The arguments of CellblockPython."""

    code: str = Field(description="Python source, one or more lines")


class HostTool(Bare):
    """A LangChain tool as a function of the jailed code. It runs in this program, and checks its arguments."""

    awaitable = False

    def __init__(self, tool: BaseTool, limits: Limits = Limits()) -> None:
        self.tool, self.name, self.limits = tool, check_name(tool.name), limits
        limits.check(self.name)
        said = convert_to_openai_tool(tool)["function"]
        self.description = str(said.get("description") or "")
        self.input_schema: dict[str, Any] = without_defaults(said.get("parameters") or {"type": "object"})
        self.is_async = getattr(tool, "coroutine", None) is not None and getattr(tool, "func", None) is None

    def bind(self, args: list[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return by_schema(args, kwargs, self.input_schema)

    def prepare(self, given: Mapping[str, Any]) -> Callable[[], Any]:
        """As a call without an id: what LangChain gives is the same, and no argument named "type" makes it one."""
        call = {"type": "tool_call", "name": self.name, "id": None, "args": copy.deepcopy(dict(given))}
        return lambda: self.tool.ainvoke(call) if self.is_async else self.tool.invoke(call)


def _shown(item: Bare) -> str:
    """A function for the model: its name, its arguments, what it does."""
    properties, needed = item.input_schema.get("properties") or {}, item.input_schema.get("required") or []
    words = []
    for name, about in properties.items():
        kind = about.get("type") if isinstance(about, Mapping) else None
        words.append(name + (f": {kind}" if isinstance(kind, str) else "") + ("" if name in needed else ", optional"))
    text = f"- {'await ' if item.awaitable else ''}{item.name}({'; '.join(words)})"
    return f"{text}: {item.description}" if item.description else text


class CellblockPython(BaseTool):
    """A tool for LangChain agents that runs Python in a jail. Variables stay from call to call.

    `sandbox`: one that you made; it is yours to close. Without it one is made, with the keywords of `Sandbox`; its
    workspace is an empty folder in memory if `workspace` is left out. `tools`: LangChain tools, or functions, that the
    code may call by name. `approve`, `tool_timeout` (seconds), `max_calls` (in one call of this tool): of each
    LangChain tool, as in `cellblock.tool`. `max_chars`: of the text that the model reads. The rest is BaseTool's.
    """

    name: str = "python"
    description: str = DESCRIPTION
    args_schema: Any = Code
    response_format: str = "content_and_artifact"  # type: ignore[assignment, unused-ignore]
    max_chars: int = Field(8000, ge=0)
    _sandbox: Sandbox = PrivateAttr()
    _own: bool = PrivateAttr()
    _broken: bool = PrivateAttr(default=False)
    _renewing: Optional[asyncio.Lock] = PrivateAttr(default=None)

    def __init__(
        self, sandbox: Optional[Sandbox] = None, *, tools: Sequence[Any] = (), approve: Optional[Approve] = None,
        tool_timeout: Optional[float] = None, max_calls: Optional[int] = None, **keywords: Any,
    ) -> None:
        if not isinstance(sandbox, (Sandbox, type(None))):
            raise TypeError(f"the first argument is a {type(sandbox).__name__}: give a Sandbox, or keywords (base=…)")
        fields = {name: keywords.pop(name) for name in list(keywords) if name in type(self).model_fields}
        own = sandbox is None
        if sandbox is None:
            limits = Limits(timeout=tool_timeout, approve=approve, max_calls=max_calls)
            hosts = [_host_tool(item, limits) for item in tools]
            if hosts and "description" not in fields:
                says = "\n".join(_shown(item) for item in hosts)
                fields["description"] = f"{DESCRIPTION} The code can call these functions without an import:\n{says}"
            sandbox = Sandbox(tools=hosts, **{**keywords, "policy": policy_for(keywords)})
        elif tools or approve or tool_timeout or max_calls or keywords:
            raise ValueError("give either a Sandbox or keywords for one: its tools are Sandbox(tools=[HostTool(t)])")
        super().__init__(**fields)
        self._sandbox, self._own = sandbox, own

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox: its files, checkpoints and usage."""
        return self._sandbox

    def __enter__(self) -> CellblockPython:
        self._sandbox.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the sandbox, if it was made here."""
        if self._own:
            self._sandbox.close()

    # BaseTool's interface

    def run(self, tool_input: Union[str, dict[str, Any]], *args: Any, **how: Any) -> Any:
        token = _call_id.set(how.get("tool_call_id"))
        try:
            return super().run(tool_input, *args, **how)
        finally:
            _call_id.reset(token)

    async def arun(self, tool_input: Union[str, dict[str, Any]], *args: Any, **how: Any) -> Any:
        token = _call_id.set(how.get("tool_call_id"))
        try:
            return await super().arun(tool_input, *args, **how)
        finally:
            _call_id.reset(token)

    def _run(self, code: str) -> tuple[Any, dict[str, Any]]:
        return self._told(self._sandbox._call(lambda: self._cell(code)))

    async def _arun(self, code: str) -> tuple[Any, dict[str, Any]]:
        return self._told(await acall(self._cell(code)))

    async def _cell(self, code: str) -> tuple[Result, bool]:
        """The cell's result, and whether the sandbox was started anew for it."""
        inner = self._sandbox._a
        if self._renewing is None:
            self._renewing = asyncio.Lock()  # of the background loop, in which all cells run
        try:
            async with self._renewing:  # of calls at once the first resets, and the others find it new
                anew = self._broken
                if anew:
                    await inner.reset()
                self._broken = False
            result = await inner.run(code)
        except SandboxClosedError:
            raise
        except SandboxError:
            self._broken = True  # the next call gets a new one
            raise
        if result.fault == "infrastructure":  # nothing that the model should read as its own
            raise SandboxError(f"the sandbox failed, not the code: {result.error}")
        return result, anew

    def _told(self, ran: tuple[Result, bool]) -> tuple[Any, dict[str, Any]]:
        result, anew = ran
        text = (ANEW if anew else "") + (result.text(self.max_chars) or "[no output]")
        pictures = [
            {"type": "image", "base64": base64.b64encode(image.data).decode(), "mime_type": image.mime}
            for image in result.images
            if image.mime in SHOWN and len(image.data) <= MAX_IMAGE
        ][:MAX_IMAGES]
        content: Any = [{"type": "text", "text": text}, *pictures] if pictures else text
        artifact, call = _artifact(result), _call_id.get()
        if call is not None:  # as a message of its own: BaseTool would call each answer a success
            content = ToolMessage(
                content, artifact=artifact, tool_call_id=call, name=self.name,
                status="success" if result.ok else "error",
            )
        return content, artifact


def _host_tool(item: Any, limits: Limits) -> Bare:
    if isinstance(item, BaseTool):
        return HostTool(item, limits)
    return item if isinstance(item, Bare) else cellblock_tool(item)


def _artifact(result: Result) -> dict[str, Any]:
    """What the cell gave, as plain data that checkpoints can keep. Not for the model."""
    said = {
        name: getattr(result, name)
        for name in ("ok", "repr", "stdout", "stderr", "limit", "state", "undone", "calls", "fault", "execution_count")
    }
    said["usage"] = dataclasses.asdict(result.usage)
    said["error"] = None if result.error is None else dataclasses.asdict(result.error)
    try:
        if result.has_value:
            measure(result.value, MAX_VALUE)
            said["value"] = json.loads(json.dumps(result.value))
    except (TypeError, ValueError):  # bytes, an array, deep or large: `repr` shows it
        pass
    return said


__all__ = ["CellblockPython", "Code", "HostTool"]
