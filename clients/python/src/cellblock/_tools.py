"""Host tools: functions of this program that code in the jail may call. Their keys and their state stay here.

Trust domain: host, between hostile callers and the user's functions. Invariants: a call is checked whole before
anything of it runs; what `approve` was shown is what runs; of a tool's exception only type and message go back; each
call gets one answer, and no call, however it is forged, raises here.
"""

from __future__ import annotations

import asyncio
import collections
import contextvars
import dataclasses
import enum
import functools
import inspect
import itertools
import json
import keyword
import logging
import math
import re
import sys
import threading
import types
import unicodedata
from typing import (
    Any, Awaitable, Callable, Generic, Iterable, Mapping, Optional, Sequence, TypeVar, Union, cast, overload,
)

import msgspec

from ._errors import ToolError
from ._schema import Parameters, described, is_model
from ._session import serving
from ._threads import Outcome, Threads, outcome_of_call
from ._trace import tool_span

if sys.version_info >= (3, 10):
    from typing import ParamSpec

    P = ParamSpec("P")
else:
    P = TypeVar("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

_log = logging.getLogger("cellblock.tools")  # the tracebacks, for who wrote the tool
THREADS = 16  # sync tools of one sandbox that run at once
MAX_BYTES = 4 << 20  # of a call's arguments, and of its result, unless the tool says otherwise
MAX_DEPTH = 64
MAX_KEYS = 50_000  # of an object and those around it: the kernel refuses a whole answer at 60,000 open at one time
MAX_BITS = 14_280  # of a number: at 4300 characters, likewise
MAX_TEXT = 4000  # of an error's message
ROUND = 1000  # calls in one round trip
CALLS = 100_000  # calls of one run
QUICK = 1000  # bytes of what is checked, shown or made JSON in the loop: a thousand calls may come at once

Approve = Callable[["Call"], Union[bool, str, Awaitable[Union[bool, str]]]]
Answer = dict[str, Any]


class Refused(Exception):
    """A call that is answered with an error, `kind: text`. `ran`: its tool was called, and has ended."""

    def __init__(self, kind: str, text: str, ran: bool = False) -> None:
        super().__init__(text)
        self.kind, self.ran = kind, ran


_SHOWN = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\"}
SPACES = 16  # in a row: more would push what follows out of sight, or to the start of a line
# Letters, marks and symbols that show nothing: fillers, joiners, variation selectors, the empty Braille pattern.
_UNSEEN = re.compile(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def escaped(text: str) -> str:
    """The text with control characters, terminal escapes, bidi controls and other invisible ones as \\x1b, \\u202e.

    So are spaces after the sixteenth in a row. A backslash is doubled, so that different texts stay different.
    """
    many = " " * (SPACES + 1)
    if text.isascii() and text.isprintable() and "\\" not in text and many not in text:
        return text
    shown: list[str] = []
    spaces = 0
    for n, c in enumerate(text):
        spaces = spaces + 1 if c == " " else 0
        kind = unicodedata.category(c)[0]
        alone = kind == "M" and shown[-1:] != [text[n - 1]]  # it would change a sign of ours
        if c in _SHOWN:
            shown.append(_SHOWN[c])
        elif 0 < spaces <= SPACES or not (kind in "CZ" or alone or _UNSEEN.match(c)):
            shown.append(c)
        else:
            o = ord(c)
            shown.append(f"\\x{o:02x}" if o < 256 else f"\\u{o:04x}" if o < 65536 else f"\\U{o:08x}")
    return "".join(shown)


def frozen(value: Any, text: Callable[[str], str] = str) -> Any:
    """JSON that cannot be changed: read-only mappings, and tuples for lists. `text` is applied to each text."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, (list, tuple)):
        return tuple(frozen(v, text) for v in value)
    if isinstance(value, Mapping):
        return types.MappingProxyType({text(str(k)): frozen(v, text) for k, v in value.items()})
    return value


@dataclasses.dataclass(frozen=True)
class Call:
    """What `approve` is asked about. `arguments`: by name, checked, read-only, escaped for showing (see `escaped`).

    `raw` are the same arguments as they will be given to the tool, for programs that decide: never print those.
    """

    id: str
    tool: str
    arguments: Mapping[str, Any]
    raw: Mapping[str, Any] = dataclasses.field(repr=False)

    def __str__(self) -> str:
        names = {name: name if name.isascii() and name.isidentifier() else _show(name) for name in self.arguments}
        shown = ", ".join(f"{names[name]}={_show(value)}" for name, value in self.arguments.items())
        return f"{self.tool}({shown})"


def _show(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace('"', '\\"') + '"'
    if isinstance(value, tuple):
        return "[" + ", ".join(_show(v) for v in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_show(k)}: {_show(v)}" for k, v in value.items()) + "}"
    return json.dumps(value)


@dataclasses.dataclass(frozen=True)
class Limits:
    """The options of a tool: see `tool`."""

    timeout: Optional[float] = None
    approve: Optional[Approve] = None
    max_calls: Optional[int] = None
    concurrency: Optional[int] = None
    max_bytes: int = MAX_BYTES

    def check(self, name: str) -> None:
        def positive(what: str, value: object, whole: bool) -> None:
            kinds = (int,) if whole else (int, float)
            if value is not None and (isinstance(value, bool) or not isinstance(value, kinds) or not value > 0):
                raise ToolError(f"tool {name!r}: {what} is {value!r}; give a number above 0, or leave it out")

        positive("timeout", self.timeout, False)
        positive("max_calls", self.max_calls, True)
        positive("concurrency", self.concurrency, True)
        positive("max_bytes", self.max_bytes, True)
        if self.approve is not None and not callable(self.approve):
            raise ToolError(f"tool {name!r}: approve is {self.approve!r}; give a function of one Call")


class Bare:
    """What a dispatcher needs of a tool: its name, what it tells about itself, and how arguments become a call."""

    name: str
    description: str
    input_schema: dict[str, Any]
    is_async: bool  # here; in cells it is to be awaited where `awaitable`
    awaitable: bool
    limits: Limits

    def bind(self, args: list[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name, as JSON. TypeError or ValueError where they do not fit."""
        raise NotImplementedError

    def prepare(self, given: Mapping[str, Any]) -> Callable[[], Any]:
        """What calls the function, with arguments that are checked and that nobody else holds. Where it raises Refused
        the function was not called."""
        raise NotImplementedError

    def spec(self) -> dict[str, Any]:
        said = {"name": self.name, "description": self.description, "inputSchema": self.input_schema}
        return {**said, "awaitable": True} if self.awaitable else said


def check_name(name: object) -> str:
    good = isinstance(name, str) and re.fullmatch(r"(?!__|_$)[A-Za-z_][A-Za-z0-9_]{0,63}", name)
    if not isinstance(name, str) or not good or keyword.iskeyword(name):
        raise ToolError(
            f"a tool's name must be a Python name of at most 64 ASCII characters, without two underscores in front, "
            f"not {name!r}; give it another: tool(name=…)"
        )
    return name


def by_name(
    args: Sequence[Any], kwargs: Mapping[str, Any], names: Sequence[str], needed: Sequence[str], others: bool
) -> dict[str, Any]:
    """Arguments by name, for tools that have a list of names and no signature. `others`: further names are taken, too.

    TypeError as Python words it where they do not fit.
    """
    if len(args) > len(names):
        raise TypeError(f"takes {len(names)} arguments, not {len(args)}")
    given = dict(zip(names, args))
    for name, value in kwargs.items():
        if name in given:
            raise TypeError(f"got multiple values for argument {name!r}")
        if name not in names and not others:
            raise TypeError(f"got an unexpected keyword argument {name!r}")
        given[name] = value
    for name in needed:
        if name not in given:
            raise TypeError(f"missing a required argument: {name!r}")
    return given


def by_schema(args: Sequence[Any], kwargs: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by name, for tools that have a JSON schema of their arguments; as `by_name`."""
    others = schema.get("additionalProperties") not in (None, False)
    return by_name(args, kwargs, list(schema.get("properties") or {}), schema.get("required") or [], others)


class Tool(Bare, Generic[P, R]):
    """A function that code in the jail may call; made by `tool`. On the host it is called as the function itself."""

    def __init__(
        self, function: Callable[P, R], name: Optional[str], description: Optional[str], limits: Limits
    ) -> None:
        if not callable(function):
            raise ToolError(f"a tool is a function, not {function!r}")
        own = getattr(function, "__name__", type(function).__name__)
        self.name = check_name(own if name is None else name)
        call = function if inspect.isroutine(function) else getattr(function, "__call__", function)
        if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call) or inspect.isclass(function):
            raise ToolError(f"tool {self.name!r}: it yields or is a class; give a function that returns its result")
        limits.check(self.name)
        self.limits, self.function = limits, function
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
        self.awaitable = self.is_async
        self._parameters = Parameters(function, self.name)
        self.input_schema = self._parameters.schema
        self.description = described(function.__doc__ or "", set())[0] if description is None else description
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    def bind(self, args: list[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return self._parameters.bind(args, kwargs)

    def prepare(self, given: Mapping[str, Any]) -> Callable[[], Any]:
        typed = self._parameters.convert(given)
        return lambda: cast(Callable[..., Any], self.function)(**typed)


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: Optional[str] = None,
    description: Optional[str] = None,
    timeout: Optional[float] = None,
    approve: Optional[Approve] = None,
    max_calls: Optional[int] = None,
    concurrency: Optional[int] = None,
    max_bytes: int = MAX_BYTES,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    function: Optional[Callable[..., Any]] = None,
    /,
    *,
    name: Optional[str] = None,
    description: Optional[str] = None,
    timeout: Optional[float] = None,
    approve: Optional[Approve] = None,
    max_calls: Optional[int] = None,
    concurrency: Optional[int] = None,
    max_bytes: int = MAX_BYTES,
) -> Any:
    """Makes a host tool of a function: `@tool`, or `@tool(timeout=10, approve=ask)`.

    Its type hints and docstring become its schema; defaults stay here. A coroutine function is awaitable in cells.
    `timeout`: seconds for one call, waiting for a place included, the approval not; a function without `async` runs
    on beyond that, its result is dropped and its place stays taken. `approve(call)`: True lets the call happen, a text
    refuses it with that reason, everything else refuses it. `max_calls`: in one run. `concurrency`: calls at once, of
    one sandbox. `max_bytes`: of the arguments and of the result, as JSON.
    """
    limits = Limits(timeout, approve, max_calls, concurrency, max_bytes)

    def make(function: Callable[..., Any]) -> Tool[..., Any]:
        function = function.function if isinstance(function, Tool) else function
        return Tool(function, name, description, limits)

    return make if function is None else make(function)


def measure(value: Any, most: int, inside: Optional[Callable[[Any], Any]] = None) -> int:
    """The size of JSON in bytes, roughly; tuples count as lists. ValueError: more than `most`, too deep, too many keys
    or digits for the kernel, no JSON, a text that is no Unicode. `inside`: what is no JSON counts as what this gives.
    """
    size, todo = 0, [(value, 0, 0)]
    while todo:
        part, depth, keys = todo.pop()
        size += 2
        if part is None:
            size += 4
        elif isinstance(part, int):
            size += part.bit_length() // 3
            if part.bit_length() > MAX_BITS:
                raise ValueError("a number of about 4300 digits or more")
        elif isinstance(part, float):
            size += 8
            if not math.isfinite(part):
                raise ValueError(f"{part} is no JSON")
        elif isinstance(part, str):
            try:
                size += len(part.encode())
            except UnicodeEncodeError:
                raise ValueError("a text with half a character (a lone surrogate)") from None
        elif isinstance(part, (list, tuple, dict)):
            if depth == MAX_DEPTH:
                raise ValueError(f"nested more than {MAX_DEPTH} deep")
            if size + len(part) > most:
                raise ValueError(f"more than {most} bytes (max_bytes of the tool)")
            keys += len(part) if isinstance(part, dict) else 0
            if keys > MAX_KEYS:
                raise ValueError(f"more than {MAX_KEYS} keys in one object, those of the objects around it included")
            items = part.items() if isinstance(part, dict) else ((None, v) for v in part)
            for key, item in items:
                if key is not None:
                    todo.append((key, depth + 1, keys))
                todo.append((item, depth + 1, keys))
        elif inside is not None:
            todo.append((inside(part), depth + 1, keys))
        else:
            raise ValueError(f"{type(part).__name__} is no JSON")
        if size > most:
            raise ValueError(f"more than {most} bytes (max_bytes of the tool)")
    return size


def _is_quick(value: Any, most: int, inside: Optional[Callable[[Any], Any]] = None) -> bool:
    """Whether `measure` has nothing to object, and it was soon done."""
    try:
        measure(value, min(most, QUICK), inside)
    except Exception:  # ValueError, and any other: a thread of the user's may change a result meanwhile
        return False
    return True


def _inside(value: Any) -> Any:
    """What lies in a result that is no JSON yet, as JSON of about its size: nothing is converted for that.

    ValueError: only who converts it knows how much it is.
    """
    kind = type(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "-" * min(memoryview(value).nbytes, QUICK)
    if isinstance(value, (set, frozenset)):
        return list(itertools.islice(value, QUICK))
    if isinstance(value, enum.Enum):
        return value.value
    if is_model(kind):
        return [value.__dict__, value.__pydantic_extra__]
    for fields in ("__dataclass_fields__", "__struct_fields__", "__attrs_attrs__"):
        if hasattr(kind, fields):
            return [getattr(value, getattr(field, "name", field), None) for field in getattr(kind, fields)]
    if _is_numpy(value):
        if getattr(value, "nbytes", QUICK + 1) > QUICK:
            raise ValueError("an array that may be large")
        return value.tolist()
    return None  # a time, say, or what is no result at all


def _is_numpy(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "tolist")


def _plain(value: Any) -> Any:
    """What msgspec does not know: pydantic models, numpy's numbers and arrays."""
    if is_model(type(value)):
        return value.model_dump(mode="json")
    if _is_numpy(value):
        return value.tolist()
    raise TypeError(f"objects of type {type(value).__name__} are no JSON; return text, numbers, lists or dicts")


def as_json(value: Any, most: int) -> Any:
    """A tool's result as JSON that shares nothing with it."""
    try:
        plain = msgspec.to_builtins(value, str_keys=True, enc_hook=_plain)
        measure(plain, most)  # before what lets nothing else run until its end
        return json.loads(json.dumps(plain, allow_nan=False))
    except RecursionError:
        raise Refused("ToolResultError", "the result contains itself, or is nested too deeply", True) from None
    except (TypeError, ValueError, OverflowError) as e:
        raise Refused("ToolResultError", f"the result can't be sent: {e}", True) from None
    except Exception as e:  # of a serializer of the user's, say
        raise Refused("ToolResultError", f"the result can't be sent: {type(e).__name__}: {_text(e)}", True) from None


def _text(value: object, most: int = MAX_TEXT) -> str:
    try:
        text = str(value)
    except Exception:
        text = "(its message can't be read)"
    text = text if len(text) <= most else text[:most] + " …"
    return text.encode("utf-8", "replace").decode()


def _failure(kind: str, text: object) -> Answer:
    return {"error": {"type": _text(kind, 100), "message": _text(text)}}


class _Run:
    """What is counted of one run."""

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self.calls: collections.Counter[str] = collections.Counter()


def _fit(chosen: Bare, args: list[Any], kwargs: dict[str, Any]) -> tuple[dict[str, Any], Callable[[], Any]]:
    """The arguments by name, and what calls the tool with them. Refused where they do not fit."""
    name = chosen.name
    try:
        measure([args, kwargs], chosen.limits.max_bytes)
        given = chosen.bind(args, kwargs)
        return given, chosen.prepare(given)
    except TypeError as e:
        raise Refused("TypeError", f"{name}() {e}") from None
    except (ValueError, RecursionError) as e:
        raise Refused("ValueError", f"arguments of {name}: {e}") from None
    except Exception as e:  # of a validator of the user's, say
        raise Refused("ValueError", f"arguments of {name}: {type(e).__name__}: {_text(e)}") from None


@dataclasses.dataclass(frozen=True)
class _Checked:
    call: Optional[Callable[[], Call]]  # None where nobody is asked
    quick: bool  # to make
    tool: Bare
    start: Callable[[], Any]


class Dispatcher:
    """Answers the calls of one sandbox. `answer` never raises, whatever the calls are; it can be cancelled."""

    def __init__(self, tools: Iterable[Union[Bare, Callable[..., Any]]]) -> None:
        if not isinstance(tools, Iterable):
            raise ToolError(f"tools is a {type(tools).__name__}: give a list, tools=[…]")
        self.tools: dict[str, Bare] = {}
        for item in tools:
            made = item if isinstance(item, Bare) else tool(item)
            if made.name in self.tools:
                raise ToolError(f"two tools are named {made.name!r}; give one another name: tool(name=…)")
            self.tools[made.name] = made
        self._threads = Threads(THREADS, "cellblock-tool")
        self._askers = Threads(THREADS, "cellblock-approve")
        self._checkers = Threads(1, "cellblock-check")  # of arguments: more would leave the loop little time
        self._converters = Threads(THREADS, "cellblock-check")  # of results: a serializer may never return
        self._places: dict[str, asyncio.Semaphore] = {}
        self._runs: dict[str, _Run] = {}  # by name, while they run: `over` takes them out
        self._going: set[asyncio.Future[Any]] = set()

    @property
    def specs(self) -> list[dict[str, Any]]:
        """The content of cellblock_tools_request."""
        return [item.spec() for item in self.tools.values()]

    def close(self) -> None:
        """Ends the threads that are idle; what runs ends by itself."""
        for threads in (self._threads, self._askers, self._checkers, self._converters):
            threads.close()

    async def answer(self, calls: object) -> list[Answer]:
        """One answer for each call, in their order: {"id", "ok": value} or {"id", "error": {"type", "message"}}.
        `"completed": False` is beside an error of a call whose tool never ran, or not to its end: it was refused, say.

        The tools run in copies of the context that this is called in. Cancelling it cancels async tools; what sync
        tools return is dropped.
        """
        if not isinstance(calls, list):
            return []
        run = self._run()
        tasks = [asyncio.ensure_future(self._answer(call, run)) for call in calls[:ROUND]]
        try:
            answers = list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
        for call in calls[ROUND:]:
            answers.append({"id": _id(call), **_failure("ToolCallError", f"more than {ROUND} calls at once")})
        return answers

    def _run(self) -> _Run:
        now = serving.get()
        return self._runs.setdefault(now[-1].run if now else "", _Run())

    def over(self, run: str) -> None:
        """The run of this name has ended: what was counted of it is forgotten."""
        self._runs.pop(run, None)

    async def _answer(self, said: object, run: _Run) -> Answer:
        call = said if isinstance(said, dict) else {}
        name = call.get("tool")
        with tool_span(name if isinstance(name, str) and name in self.tools else None, call.get("id")) as held:
            answer = await self._served(said, run)
            if "error" in answer:
                held.fail(answer["error"]["type"])
        return answer

    async def _served(self, said: object, run: _Run) -> Answer:
        try:
            checked = await self._check(said, run)
            await self._approved(checked)
            answer = await self._call(checked)
        except Refused as e:
            answer = _failure(e.kind, e) if e.ran else {**_failure(e.kind, e), "completed": False}
        except Exception as e:  # a fault of ours must not cost the run its answer
            answer = _failure("ToolCallError", f"the call can't be served: {type(e).__name__}")
        return {"id": _id(said), **answer}

    def _chosen(self, said: object, run: _Run) -> tuple[str, Bare, list[Any], dict[str, Any]]:
        """The id of the call, its tool, and arguments, at which nobody has looked yet."""
        if not isinstance(said, dict):
            raise Refused("ToolCallError", "a call must be an object with id, tool, args and kwargs")
        name, identity = said.get("tool"), said.get("id")
        args, kwargs = said.get("args", []), said.get("kwargs", {})
        if not isinstance(identity, str) or not 0 < len(identity) <= 128:
            raise Refused("ToolCallError", "a call's id must be a text of at most 128 characters")
        if identity in run.ids:
            raise Refused("ToolCallError", "a call with this id was answered already")
        if len(run.ids) >= CALLS:
            raise Refused("ToolCallError", f"more than {CALLS} calls in one run")
        run.ids.add(identity)
        if not isinstance(name, str) or name not in self.tools:
            shown = escaped(name[:100]) if isinstance(name, str) else type(name).__name__
            raise Refused("ToolCallError", f"there is no tool '{shown}'")
        if not isinstance(args, list) or not isinstance(kwargs, dict):
            raise Refused("ToolCallError", "args must be a list and kwargs an object")
        return identity, self.tools[name], args, kwargs

    async def _check(self, said: object, run: _Run) -> _Checked:
        """The call, if it may run: everything that came from the jail is looked at here. At arguments that are large
        in a thread: it goes by values, of which there may be millions."""
        identity, chosen, args, kwargs = self._chosen(said, run)
        quick = _is_quick([args, kwargs], chosen.limits.max_bytes)
        if quick:
            given, start = _fit(chosen, args, kwargs)
        else:
            fitted, error = await outcome_of_call(self._checkers, _fit, chosen, args, kwargs)
            if error is not None:
                raise error
            given, start = fitted
        name, most = chosen.name, chosen.limits.max_calls
        if most is not None and run.calls[name] >= most:
            raise Refused("ToolLimitError", f"{name} may be called {most} times in one run (max_calls)")
        run.calls[name] += 1

        def call() -> Call:
            return Call(identity, name, frozen(given, escaped), frozen(given))

        return _Checked(call if chosen.limits.approve is not None else None, quick, chosen, start)

    async def _approved(self, checked: _Checked) -> None:
        ask = checked.tool.limits.approve
        if ask is None:
            return
        call, name = await self._shown(checked), checked.tool.name
        try:
            said = await self._ask(ask, call)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or getattr(task, "cancelling", lambda: 1)():
                raise  # the run was cancelled, not the question
            said = None
        except Exception:
            said = None
        if said is not True:
            reason = said if isinstance(said, str) and said else "it was not approved"
            raise Refused("ToolRefusedError", f"{name} was refused: {reason}")

    async def _shown(self, checked: _Checked) -> Call:
        """What is long is made ready in a thread: it goes by characters."""
        assert checked.call is not None
        if checked.quick:
            return checked.call()
        call, error = await outcome_of_call(self._askers, checked.call)
        if error is not None:
            raise error
        assert isinstance(call, Call)
        return call

    async def _ask(self, ask: Approve, call: Call) -> object:
        said, error = await outcome_of_call(self._askers, ask, call)
        if error is None:
            return said
        _log.info("approve of the tool %s raised", call.tool, exc_info=error)
        return None

    async def _place(self, chosen: Bare, deadline: Optional[float]) -> Optional[asyncio.Semaphore]:
        most = chosen.limits.concurrency or (None if chosen.is_async else THREADS)
        if most is None:
            return None
        places = self._places.setdefault(chosen.name, asyncio.Semaphore(most))
        try:
            left = None if deadline is None else deadline - asyncio.get_running_loop().time()
            await asyncio.wait_for(places.acquire(), left)
        except (asyncio.TimeoutError, TimeoutError):
            text = f"{chosen.name}: all {most} places are taken, by calls that run or that ran over their time"
            raise Refused("TimeoutError", text) from None
        return places

    async def _call(self, checked: _Checked) -> Answer:
        """Runs the tool. It keeps its place until it has really ended, whatever became of the call. Its time is that of
        its function: one that has returned is not to be called again because its result took long to become JSON."""
        chosen, loop = checked.tool, asyncio.get_running_loop()
        limit = chosen.limits.timeout
        deadline = None if limit is None else loop.time() + limit
        places = await self._place(chosen, deadline)
        returned = threading.Event()
        try:
            works = [self._start(checked, returned)]
        except BaseException as e:
            if places is not None:
                places.release()
            if not isinstance(e, RuntimeError):
                raise
            raise Refused("ToolCallError", f"{chosen.name} was not called: {e}") from None
        finished, over = loop.create_future(), False

        def watch(work: asyncio.Future[Outcome]) -> None:
            self._going.add(work)
            work.add_done_callback(ended)

        def ended(done: asyncio.Future[Outcome]) -> None:
            self._going.discard(done)
            value = None if done.cancelled() else done.result().value
            if inspect.isawaitable(value) and not over:  # of a function without `async`: it ends when this does
                works.append(self._awaited(lambda: value, chosen.limits.max_bytes, returned))
                watch(works[-1])
                return
            if inspect.iscoroutine(value):
                value.close()
            if places is not None:
                places.release()
            finished.set_result(None)

        watch(works[0])
        try:
            await asyncio.wait({finished}, timeout=None if deadline is None else max(0.0, deadline - loop.time()))
            if returned.is_set():
                await asyncio.wait({finished})
        finally:
            over = not finished.done()
            if over and (chosen.is_async or len(works) > 1 or self._threads.drop(works[0])):
                works[-1].cancel()
        if over:
            raise Refused("TimeoutError", f"{chosen.name} ran longer than {limit:g} s (timeout of the tool)")
        if works[-1].cancelled():
            raise Refused("CancelledError", f"{chosen.name} was cancelled", returned.is_set())
        value, error = works[-1].result()
        if isinstance(error, Refused):
            raise error
        if error is not None:
            _log.info("the tool %s raised", chosen.name, exc_info=error)
            return _failure(type(error).__name__, error)
        return {"ok": value}

    def _start(self, checked: _Checked, returned: threading.Event) -> asyncio.Future[Outcome]:
        """Calls the tool. The outcome's value is its result as JSON or, of a function without `async`, an awaitable.
        `returned` is set when there is a result."""
        most = checked.tool.limits.max_bytes
        if checked.tool.is_async:
            return self._awaited(checked.start, most, returned)

        def called() -> Any:
            value = checked.start()
            if inspect.isawaitable(value):
                return value
            returned.set()
            return as_json(value, most)

        return self._threads.submit(called)

    def _awaited(
        self, start: Callable[[], Awaitable[Any]], most: int, returned: threading.Event
    ) -> asyncio.Future[Outcome]:
        async def awaited() -> Outcome:
            try:
                value = await start()
                returned.set()
                if _is_quick(value, most, _inside):
                    return Outcome(as_json(value, most))
                return await outcome_of_call(self._converters, as_json, value, most)
            except asyncio.CancelledError:
                raise
            except BaseException as e:  # the loop would end with some of them
                return Outcome(error=e)

        return contextvars.copy_context().run(asyncio.ensure_future, awaited())


def _id(said: object) -> Optional[str]:
    identity = said.get("id") if isinstance(said, dict) else None
    return identity if isinstance(identity, str) and len(identity) <= 128 else None
