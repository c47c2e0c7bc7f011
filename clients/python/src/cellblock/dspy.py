"""DSPy's interpreter, jailed: `dspy.configure(interpreter_factory=CellblockInterpreter)`.

What RLM, CodeAct, ProgramOfThought and Flex have their model write runs in a Sandbox. Tools stay here as host tools;
code calls them by name. Source: DSPy 3.4 (CodeInterpreter, LocalInterpreter, PythonInterpreter, FacadeInvocation).
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
import json
import keyword
import threading
import types
from typing import Any, Callable, Mapping, NoReturn, Optional, Sequence

from dspy.primitives.code_interpreter import CodeExecutionError, CodeInterpreterError, FinalOutput
from dspy.utils.callback import with_callbacks
from pydantic_core import PydanticSerializationError, to_jsonable_python

from . import _dspy_inside
from ._adapters import policy_for
from ._errors import CellblockError, PolicyError, SandboxError, ToolError
from ._result import Array, Result, plain
from ._schema import refuse_bound
from ._sync import Sandbox
from ._tools import Approve, Bare, Call, Limits
from ._values import code_to_call, imported

MODULE = "cellblock_dspy"  # in the jail
MAX_BYTES = 12 << 20  # of a call's arguments, of its result, and of what SUBMIT gives: the policy `agent` has 16M
OWNED = {"SUBMIT", "__builtins__"}

_BEGIN = """{sys}.modules[{module!r}] = {types}.ModuleType({module!r})
exec(compile({source!r}, {module!r}, 'exec'), {sys}.modules[{module!r}].__dict__)
print({sys}.modules[{module!r}].watch())
"""


def _jsonable(value: Any) -> Any:
    """The value as JSON, in the way DSPy's own interpreters have it; NaN and infinity stay. CodeInterpreterError."""
    try:
        return to_jsonable_python(_listed(value), inf_nan_mode="constants")
    except (PydanticSerializationError, ValueError, RecursionError) as e:
        raise CodeInterpreterError(f"Unable to serialize {type(value).__name__} as JSON: {e}") from None


def _listed(value: Any) -> Any:
    """Sets in order, where their members have one."""
    if isinstance(value, (set, frozenset)):
        try:
            return sorted(value)
        except TypeError:
            return list(value)
    if isinstance(value, Mapping):
        return {k: _listed(v) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _listed(value._asdict())
    return [_listed(v) for v in value] if isinstance(value, (list, tuple)) else value


class _Tools(Bare):
    """One host tool for all that the interpreter has: its tools may change from cell to cell, and have any name."""

    name, description, is_async, awaitable = _dspy_inside.CALL, "", False, False
    input_schema = {"type": "object"}

    def __init__(self, interpreter: CellblockInterpreter, limits: Limits) -> None:
        self._interpreter, self.limits = interpreter, limits

    def bind(self, args: list[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if kwargs or list(map(type, args)) != [str, list, dict]:
            raise TypeError("is called by the interpreter's own functions")
        if args[0] not in self._interpreter.tools:
            raise ValueError(f"Unknown tool: {args[0]:.100}")
        if not all(map(str.isidentifier, args[2])):  # one like "args[0]" would hide another from `approve`
            raise TypeError("has keyword arguments that are no names")
        name, function = args[0], self._interpreter.tools[args[0]]
        refuse_bound(function, args[2])
        given, named = _named(function, args[1], args[2])
        return {"name": name, "args": given, "kwargs": named}

    def prepare(self, given: Mapping[str, Any]) -> Callable[[], Any]:
        args, kwargs = list(given["args"]), dict(given["kwargs"])
        return functools.partial(self._interpreter._called, given["name"], args, kwargs)


class _Own(Bare):
    """What is no tool of the user's: a text is what SUBMIT gives, a number asks for variables from there on."""

    name, description, is_async, awaitable = _dspy_inside.OWN, "", False, False
    input_schema = {"type": "object"}
    limits = Limits(max_bytes=MAX_BYTES)

    def __init__(self, interpreter: CellblockInterpreter) -> None:
        self._interpreter = interpreter

    def bind(self, args: list[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if kwargs or len(args) != 1 or type(args[0]) not in (str, int):
            raise TypeError("is called by the interpreter's own functions")
        return {"said": args[0]}

    def prepare(self, given: Mapping[str, Any]) -> Callable[[], Any]:
        said, interpreter = given["said"], self._interpreter
        if isinstance(said, int):
            start, size = min(max(0, said), len(interpreter._text)), interpreter.sandbox._a._part
            return lambda: interpreter._text[start : start + size]
        answer = json.loads(said)
        return lambda: interpreter._submitted(answer)


def _named(function: Any, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by name where they have one: RLM wraps its tools so that they take no others."""
    try:
        parameters = list(inspect.signature(function).parameters.values())[: len(args)]
    except (TypeError, ValueError):
        return args, kwargs
    names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.name not in kwargs]
    return ([], {**dict(zip(names, args)), **kwargs}) if len(names) == len(args) else (args, kwargs)


def _shown(ask: Approve) -> Approve:
    """`approve` sees a tool by its own name; what has a place and no name is args[0] …"""

    def asked(call: Call) -> Any:
        def named(said: Mapping[str, Any]) -> Mapping[str, Any]:
            return types.MappingProxyType({**{f"args[{n}]": v for n, v in enumerate(said["args"])}, **said["kwargs"]})

        call = dataclasses.replace(call, tool=call.raw["name"], arguments=named(call.arguments), raw=named(call.raw))
        return ask(call)

    return asked


class CellblockInterpreter:
    """A DSPy interpreter whose code runs in a jail: `dspy.RLM(…, interpreter_factory=CellblockInterpreter)`.

    `tools`: functions of this program by name; they run here, in threads, with the context of who executes.
    `output_fields`: names of SUBMIT's arguments; one, `output`, if left out. `timeout`: seconds for one execution; the
    clock stands while it waits for a tool, and the variables stay. `approve`, `tool_timeout` (seconds), `max_calls` (in
    one execution, of all tools together): as in `cellblock.tool`. Other keywords are those of `Sandbox`; without
    `workspace` it is an empty folder in memory. It starts at the first use, and may be used from any thread, by one at
    a time.
    """

    execution_instructions = (
        "Code runs in CPython in a jail, with the installed packages, subprocesses and a writable current folder, and "
        "without network. Variables, imports, functions and files persist. Host tools and SUBMIT are global functions. "
        "After a time or memory limit an error says which variables were kept."
    )

    def __init__(
        self, tools: Optional[Mapping[str, Callable[..., Any]]] = None,
        output_fields: Optional[Sequence[Mapping[str, Any]]] = None, *, timeout: Optional[float] = None,
        approve: Optional[Approve] = None, tool_timeout: Optional[float] = None, max_calls: Optional[int] = None,
        callbacks: Sequence[Any] = (), base: Any = None, **sandbox: Any,
    ) -> None:
        self.tools: dict[str, Callable[..., Any]] = dict(tools or {})
        self.output_fields = None if output_fields is None else [dict(field) for field in output_fields]
        self.callbacks = list(callbacks)
        self.last: Optional[Result] = None
        sandbox["policy"] = policy_for(sandbox)
        ask = None if approve is None else _shown(approve)
        limits = Limits(timeout=tool_timeout, approve=ask, max_calls=max_calls, max_bytes=MAX_BYTES)
        limits.check("tools")
        self._check_names()
        self.sandbox = Sandbox(base, timeout=timeout, tools=[_Tools(self, limits), _Own(self)], **sandbox)
        self._text = ""  # the variables of a cell, as JSON
        self._final: list[Any] = []  # what SUBMIT gave last in this cell
        self._raised: list[BaseException] = []
        self._defined: Optional[tuple[list[str], Optional[list[str]]]] = None  # inside: tools, and SUBMIT's names
        self._watched = False  # they are put back inside, before each cell
        self._known: set[str] = set()
        self._lock = threading.Lock()
        self._started = False
        self._over: Optional[str] = None

    @classmethod
    def factory(cls, **keywords: Any) -> Callable[[], CellblockInterpreter]:
        """What `interpreter_factory` takes, with keywords: `CellblockInterpreter.factory(memory="1G")`."""
        made: Any = functools.partial(cls, **keywords)
        made.execution_instructions = cls.execution_instructions  # RLM tells its model
        return made  # type: ignore[no-any-return]

    # DSPy's interface

    @with_callbacks
    def start(self) -> None:
        """Starts the jail, unless it runs. CodeInterpreterError says why it can't."""
        self._check_session()
        if self._started:
            return
        try:
            self.sandbox.start()
            self._begin()
        except (SandboxError, PolicyError, ToolError) as e:
            self._end(f"the sandbox could not start: {e}", e)
        self._started = True

    @with_callbacks
    def execute(self, code: str, variables: Optional[dict[str, Any]] = None) -> Any:
        """Runs code: FinalOutput where it called SUBMIT, else its last expression, else what it printed, else None.

        SyntaxError, CodeExecutionError: the code's own failure or limit; the session goes on. CodeInterpreterError:
        wrong arguments, or the sandbox's end, after which all calls fail.
        """
        if not self._lock.acquire(blocking=False):
            raise CodeInterpreterError("CellblockInterpreter already has an active execution")
        try:
            self._check_session()
            if not isinstance(code, str):
                raise CodeInterpreterError("code must be a string")
            self._check_names()
            text = self._variables(variables or {})
            if not self._started:
                self.start()
            try:
                self._define()
                if text is not None:
                    self._text = text
                    said = self._tell("take")
                    self._text = ""
                    if not said.ok:
                        raise CodeInterpreterError(f"the variables could not be set: {said.error}")
                self._final.clear()
                self._raised.clear()
                self.last = self.sandbox.run(code)
                if self.last.state == "restored":  # a state of before may lack what was defined
                    self._begin()
            except CellblockError as e:
                self._end(f"the sandbox failed: {e}", e)
            return self._outcome(self.last)
        finally:
            self._lock.release()

    @with_callbacks
    def invoke_tool(self, tool_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Calls a tool, here."""
        if tool_name not in self.tools:
            raise CodeInterpreterError(f"Unknown tool: {tool_name}")
        answer = self.tools[tool_name](*args, **kwargs)
        return asyncio.run(_awaited(answer)) if inspect.isawaitable(answer) else answer

    @with_callbacks
    def shutdown(self) -> None:
        """Ends the jail and all that is in it. It can be called again; nothing else can."""
        self._over = self._over or "the session was shut down"
        self.sandbox.close()

    def __enter__(self) -> CellblockInterpreter:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.shutdown()

    def __call__(self, code: str, variables: Optional[dict[str, Any]] = None) -> Any:
        return self.execute(code, variables)

    # the rest

    def _check_session(self) -> None:
        if self._over is not None:
            raise CodeInterpreterError(f"the session has ended, make a new interpreter: {self._over}")

    def _end(self, why: str, cause: Optional[BaseException] = None) -> NoReturn:
        self._over = why
        self.sandbox.close()
        raise CodeInterpreterError(why) from cause

    def _check_names(self) -> None:
        fields = self._fields()
        for what, names in (("tool", list(self.tools)), ("output field", fields or [])):
            wrong = [n for n in names if not _is_name(n) or n in OWNED]
            if wrong or len(set(names)) < len(names):
                raise ValueError(f"{what} names must be Python names, each once, and not SUBMIT: {wrong or names}")

    def _fields(self) -> Optional[list[Any]]:
        return None if not self.output_fields else [field.get("name") for field in self.output_fields]

    def _variables(self, variables: Any) -> Optional[str]:
        if not isinstance(variables, dict):
            raise CodeInterpreterError("variables must be a dict of names and values")
        for name in variables:
            if not _is_name(name) or name in OWNED or name in self.tools:
                raise CodeInterpreterError(f"Invalid variable name: {name!r}: a tool's, or no Python name")
        return json.dumps({name: _jsonable(value) for name, value in variables.items()}) if variables else None

    def _hidden(self, code: str) -> Result:
        run = self.sandbox._a._run
        result = self.sandbox._call(lambda: run(code, None, None, store_history=False))
        if result.state != "kept":
            self._defined = None
        return result

    def _begin(self) -> None:
        code = _BEGIN.format(
            sys=imported("sys"), types=imported("types"), module=MODULE, source=inspect.getsource(_dspy_inside)
        )
        begun = self._hidden(code)
        self._done(begun)
        self._defined, self._watched = None, begun.stdout == "True\n"

    def _tell(self, function: str, *arguments: Any) -> Result:
        return self._hidden(code_to_call(MODULE, function, arguments))

    def _done(self, result: Result) -> None:
        if not result.ok:
            raise SandboxError(f"the sandbox could not be made ready: {result.error}")

    def _define(self) -> None:
        """What the code may call, where it is not the same as for the last cell."""
        wanted = (list(self.tools), self._fields())
        if self._defined != wanted:
            self._done(self._tell("install", wanted[0], sorted(self._known), wanted[1]))
            self._defined = wanted
            self._known.update(wanted[0])
        elif not self._watched:
            self._done(self._tell("keep"))

    def _submitted(self, answer: Any) -> None:
        self._final = [answer]

    def _called(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        try:
            return _jsonable(self.invoke_tool(name, args, kwargs))
        except Exception:
            raise
        except BaseException as e:  # for who executes, not for the code
            self._raised.append(e)
            raise

    def _outcome(self, result: Result) -> Any:
        if self._raised:
            raise self._raised[0]
        if result.state == "lost" or result.fault == "infrastructure":
            self._end(f"the sandbox failed: {result.error}")
        if self._final:
            return FinalOutput(self._final[0])
        if not result.ok:
            error = result.error
            if error is not None and error.name in ("SyntaxError", "IndentationError", "TabError"):
                raise SyntaxError(f"Invalid Python syntax. message: {plain(error.value)}")
            raise CodeExecutionError(str(error or "the code failed"))
        if result.has_value and not isinstance(result.value, (bytes, Array)) and not hasattr(result.value, "dtype"):
            return result.value
        return result.repr if result.repr is not None else result.stdout + result.stderr or None


async def _awaited(answer: Any) -> Any:
    return await answer


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)


__all__ = ["CellblockInterpreter"]
