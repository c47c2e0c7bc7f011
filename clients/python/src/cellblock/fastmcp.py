"""FastMCP's CodeMode, jailed: `CodeMode(sandbox_provider=CellblockSandboxProvider())`.

Each run of a client's code has a Sandbox of its own. The server's tools stay here; the code awaits `call_tool`.
Source: FastMCP 4.1 (fastmcp.experimental.transforms.code_mode: SandboxProvider, MontySandboxProvider).
"""

from __future__ import annotations

import inspect
import json
from typing import Any, Callable, Mapping, Optional, Union

import anyio
from fastmcp.exceptions import ToolError as FastMCPToolError

from . import _fastmcp_inside
from ._adapters import _nothing, policy_for
from ._async import AsyncSandbox
from ._errors import SandboxError, ValueTooLargeError
from ._pool import AsyncLease, AsyncPool
from ._result import Result, shorten
from ._schema import refuse_bound
from ._tools import Approve, Bare, Limits, check_name
from ._values import imported

MODULE = "cellblock_fastmcp"  # in the jail
MAX_BYTES = 12 << 20  # of a call's arguments, and of its result: the policy `agent` has 16M for a message
ERROR = 4000  # characters of an error, which a model reads

_RUN = """_cb = {types}.ModuleType({module!r})
exec(compile({source!r}, {module!r}, 'exec'), _cb.__dict__)
_cb = _cb.run(*{json}.loads({arguments!r}), {{{functions}}})
await _cb
"""


class _Function(Bare):
    """An external function: in cells it is awaited, and given whatever JSON it is called with."""

    description, awaitable = "", True
    input_schema = {"type": "object"}

    def __init__(self, name: str, function: Callable[..., Any], limits: Limits) -> None:
        self.name, self.limits, self._function = check_name(name), limits, function
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)
        )

    def bind(self, args: list[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if not all(map(str.isidentifier, kwargs)):  # one like "args[0]" would stand for another
            raise TypeError("has keyword arguments that are no names")
        refuse_bound(self._function, kwargs)
        try:
            inspect.signature(self._function).bind(*args, **kwargs)
        except ValueError:  # it has no signature
            pass
        return {**{f"args[{n}]": value for n, value in enumerate(args)}, **kwargs}

    def prepare(self, given: Mapping[str, Any]) -> Callable[[], Any]:
        args = [value for name, value in given.items() if name.startswith("args[")]
        kwargs = {name: value for name, value in given.items() if not name.startswith("args[")}
        return lambda: self._function(*args, **kwargs)


class CellblockSandboxProvider:
    """Runs the code of `CodeMode` in jails, one for each run: `CodeMode(sandbox_provider=CellblockSandboxProvider())`.

    `timeout`: seconds for a run; the clock stands while it waits for a tool. `size`: so many jails stand ready, for
    runs that begin at once; they start with the first run, and `close()` or `async with` ends them. `approve`: asked
    before each call of an external function, as in `cellblock.tool`. Other keywords are those of `AsyncSandbox`;
    without `workspace` the code has an empty folder in memory.
    """

    def __init__(
        self, base: Any = None, *, timeout: float = 30, size: int = 0, approve: Optional[Approve] = None, **sandbox: Any
    ) -> None:
        if "tools" in sandbox:
            raise ValueError("tools can't be given here: the server's tools are what call_tool calls")
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise ValueError(f"size is {size!r}: allowed is 0, or the number of jails that stand ready")
        sandbox["policy"] = policy_for(sandbox)
        self._base, self._keywords, self._size = base, dict(sandbox, timeout=timeout), size
        self._limits = Limits(approve=approve, max_bytes=MAX_BYTES)
        self._limits.check("external functions")
        self._pool: Optional[AsyncPool] = None
        self._make()  # wrong keywords show here

    def _make(self) -> AsyncSandbox:
        return AsyncSandbox(self._base, tools=[_nothing], **self._keywords)

    async def run(
        self, code: str, *, inputs: Optional[dict[str, Any]] = None,
        external_functions: Optional[dict[str, Callable[..., Any]]] = None,
    ) -> Any:
        """What the code returns, or its last expression, as JSON. ToolError: the code failed, with its error's text.

        `inputs`: JSON by the names that the code has for it. `external_functions`: what it may call, and await.
        """
        names = {**(inputs or {}), **(external_functions or {})}
        if len(names) < len(inputs or {}) + len(external_functions or {}):
            raise ValueError("inputs and external_functions have a name in common")
        functions = [_Function(name, f, self._limits) for name, f in (external_functions or {}).items()]
        said = json.dumps([code, inputs or {}], allow_nan=False)
        text = _RUN.format(
            types=imported("types"), json=imported("json"), module=MODULE,
            source=inspect.getsource(_fastmcp_inside), arguments=said,
            functions=", ".join(f"{f.name!r}: {f.name}" for f in functions),
        )
        leased: Union[None, AsyncSandbox, AsyncLease] = None
        try:
            leased = self._make() if self._size == 0 else (await self._ready()).lease(ttl=None)
            sandbox = leased if isinstance(leased, AsyncSandbox) else await leased.__aenter__()
            await sandbox._replace_tools(functions or [_nothing])
            result = await sandbox.run(text)
        except (SandboxError, ValueTooLargeError) as e:
            raise FastMCPToolError(f"the sandbox failed, not the code: {e}") from e
        finally:
            if leased is not None:
                with anyio.CancelScope(shield=True):
                    await leased.__aexit__(None, None, None)
        return _returned(result)

    async def _ready(self) -> AsyncPool:
        if self._pool is not None:
            return self._pool
        pool = self._pool = AsyncPool(size=self._size, make=self._make)
        try:
            return await pool.start()
        except BaseException:  # it is closed: the next run tries another
            if self._pool is pool:
                self._pool = None
            raise

    async def close(self) -> None:
        """Ends the jails that stand ready. A later run starts others."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def __aenter__(self) -> CellblockSandboxProvider:
        if self._size:
            await self._ready()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()


def _why_none(result: Result) -> str:
    """Of code that ended well. Its result is in a list: what was sent and is none is not from here."""
    if result.partial:
        return "the result was lost on its way"
    if result.limit == "output":
        return "the result is too large"
    if result.has_value or result.repr is None:
        return "the code has replaced what sends its result"
    return "the result is too large, or nested too deep"


def _returned(result: Result) -> Any:
    if result.ok and result.has_value and isinstance(result.value, list) and len(result.value) == 1:
        return result.value[0]
    what = str(result.error or _why_none(result))
    if result.fault == "infrastructure":
        what = f"the sandbox failed, not the code: {what}"
    raise FastMCPToolError(shorten(what, ERROR))


__all__ = ["CellblockSandboxProvider"]
