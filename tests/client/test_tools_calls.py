"""Host tools, the host's side alone: calls, limits, approval, and what a hostile guest could send."""

import asyncio
import contextvars
import dataclasses
import enum
import functools
import json
import threading
from typing import Any, Optional, TypedDict

import pytest

pytest.importorskip("msgspec")
from cellblock import _schema, _tools  # noqa: E402
from cellblock._schema import bound_names  # noqa: E402
from cellblock._session import Serving, _fitted, serving  # noqa: E402
from cellblock._tools import Bare, Dispatcher, Limits, tool  # noqa: E402
from toolcalls import add, answers, call, error, later, one  # noqa: E402

pytestmark = pytest.mark.once


class Color(enum.Enum):
    RED = "red"


class Place(TypedDict, total=False):
    city: str


@dataclasses.dataclass
class Hit:
    url: str
    rank: int = 1


def test_arguments_are_made_ready_for_showing_only_where_somebody_is_asked(monkeypatch):
    @tool(approve=lambda call: True)
    def asking(a: int) -> int:
        return a

    monkeypatch.setattr(_tools, "frozen", None)
    assert one([add], call("add", 1))["ok"] == 3
    assert error([asking], call("asking", 1)).startswith("ToolCallError: the call can't be served")


def test_sync_and_async_positional_and_keyword():
    found = answers([add, later], call("add", 1), call("add", 1, b=5), call("add", b=1, a=2), call("later", {"x": [1]}))
    assert [a["ok"] for a in found] == [3, 6, 3, {"x": [1]}]


def test_arguments_get_the_types_of_the_hints():
    @tool
    def f(hit: Hit, color: Color, places: list[Place], pair: tuple[int, str]) -> list:
        return [type(hit).__name__, color.name, places, type(pair).__name__]

    assert one([f], call("f", {"url": "u"}, "red", [{"city": "x"}], [1, "a"]))["ok"] == [
        "Hit", "RED", [{"city": "x"}], "tuple"]
    assert error([f], call("f", {"url": 3}, "red", [], [1, "a"])) == (
        "ValueError: arguments of f: Expected `str`, got `int` - at `hit.url`")
    assert "unknown field - at `hit.evil`" in error([f], call("f", {"url": "", "evil": 1}, "red", [], [1, "a"]))
    assert "unknown field - at `places[0].evil`" in error([f], call("f", {"url": ""}, "red", [{"evil": 1}], [1, "a"]))
    assert "at `color`" in error([f], call("f", {"url": ""}, "blue", [], [1, "a"]))
    assert error([f], call("f")) == "TypeError: f() missing a required argument: 'hit'"
    assert error([add], call("add", 1, 2, 3)) == "TypeError: add() too many positional arguments"
    assert "unexpected keyword" in error([add], call("add", 1, evil=2))


class Library:
    def _read(self, file: str, root: str) -> str:
        return f"{root}/{file}"

    read = functools.partialmethod(_read, root="/data")


def test_what_a_partial_has_bound_is_not_for_the_caller():
    def fetch(base_url: str, path: str, token: str = "", tries: int = 1, *, fresh: bool = False) -> list:
        return [base_url, path, token, tries, fresh]

    bound = functools.partial(fetch, base_url="mine", token="t")
    bound.kept = "an attribute, so that the next one does not take this one apart"
    nested = functools.partial(bound, tries=3)
    assert nested.func is bound
    made, inner = tool(name="f")(nested), tool(name="f")(bound)
    for evil in ({"base_url": "evil"}, {"token": "evil"}, {"tries": 9}):
        said = f"TypeError: f() got an unexpected keyword argument {next(iter(evil))!r}"
        assert error([made], call("f", path="p", **evil)) == said
    assert list(made.input_schema["properties"]) == ["path", "fresh"] and made.input_schema["required"] == ["path"]
    for said in (call("f", "p", fresh=True), call("f", path="p", fresh=True)):  # by place, too: `path` is the first now
        assert one([made], said)["ok"] == ["mine", "p", "t", 3, True]
    assert one([inner], call("f", "p", 2))["ok"] == ["mine", "p", "t", 2, False]
    assert error([inner], call("f", "p", 2, True)) == "TypeError: f() too many positional arguments"


def test_what_a_wrapped_partial_has_bound_is_not_for_the_caller():
    def fetch(path: str, base_url: str, token: str = "") -> list:
        return [path, base_url, token]

    def wrapped(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)

        wrapper.__annotations__ = fetch.__annotations__
        return wrapper

    made = wrapped(functools.partial(wrapped(functools.partial(fetch, base_url="mine")), token="t"))
    assert bound_names(made) == {"base_url", "token"} and bound_names(wrapped(fetch)) == set()
    assert list(tool(name="f")(made).input_schema["properties"]) == ["path"]
    assert one([tool(name="f")(made)], call("f", "p"))["ok"] == ["p", "mine", "t"]
    assert "unexpected keyword argument 'token'" in error([tool(name="f")(made)], call("f", "p", token="evil"))


def test_a_partial_of_a_method_and_one_that_binds_by_place():
    method = tool(name="read")(Library().read)
    assert one([method], call("read", "x"))["ok"] == "/data/x"
    assert "unexpected keyword argument 'root'" in error([method], call("read", "shadow", root="/etc"))
    placed = tool(name="read")(functools.partial(Library()._read, "x"))
    assert one([placed], call("read", "/y"))["ok"] == "/y/x"
    assert "unexpected keyword argument 'file'" in error([placed], call("read", "/y", file="z"))


def test_what_is_bound_need_not_be_json():
    class Client:
        pass

    def look_up(word: str, client: Client) -> str:
        return type(client).__name__ + word

    assert one([tool(name="f")(functools.partial(look_up, client=Client()))], call("f", "x"))["ok"] == "Clientx"


def test_the_largest_results_make_way_for_the_others():
    sizes, why = [200, 9000, 20, 8000, 7000], ValueError("too large")
    results = [{"id": str(n), "ok": "x" * size} for n, size in enumerate(sizes)]
    results.append({"id": "5", "error": {"type": "KeyError", "message": "x" * 500}})
    for room, gone in ((25_000, []), (16_500, [1]), (9000, [1, 3]), (2000, [1, 3, 4]), (0, [0, 1, 2, 3, 4])):
        said = json.loads(_fitted(json.dumps({"results": results}), room, why))["results"]
        assert [n for n in range(5) if "error" in said[n]] == gone and said[5] == results[5]
        assert all(said[n] == {"id": str(n), "error": {"type": "ValueError", "message": "too large"}} for n in gone)


def test_pydantic_arguments_and_results():
    pydantic = pytest.importorskip("pydantic")

    class Model(pydantic.BaseModel):
        a: int

    def f(m):
        assert isinstance(m, Model)
        return [m]

    f.__annotations__ = {"m": Model}
    assert one([f], call("f", {"a": 1}))["ok"] == [{"a": 1}]
    assert "at `m`" in error([f], call("f", {"a": "x"}))


def test_whatever_a_validator_raises_the_tool_did_not_run():
    pydantic = pytest.importorskip("pydantic")

    class Model(pydantic.BaseModel):
        a: int

        @pydantic.field_validator("a")
        def check(cls, a):
            return {1: "one"}[a]

    def f(m):
        return 1

    f.__annotations__ = {"m": Model}
    found = one([f], call("f", {"a": 2}))
    assert found["error"] == {"type": "ValueError", "message": "arguments of f: KeyError: 2"}
    assert found["completed"] is False


def test_only_type_and_message_of_an_exception_cross():
    class Own(Exception):
        pass

    @tool
    def f(kind: str) -> None:
        secret = "the-secret"
        if kind == "own":
            raise Own("what happened") from ValueError(secret)
        if kind == "long":
            raise ValueError("x" * 100_000)
        if kind == "unreadable":
            class Unreadable(Exception):
                def __str__(self):
                    raise ValueError(secret)
            raise Unreadable()
        if kind == "half":
            raise ValueError("\ud800")
        raise {"exit": SystemExit, "stop": StopIteration, "key": KeyboardInterrupt, "gen": GeneratorExit}[kind](7)

    @tool
    async def g() -> None:
        raise SystemExit(3)

    @tool
    async def h() -> None:
        raise asyncio.CancelledError

    assert one([f], call("f", "own"))["error"] == {"type": "Own", "message": "what happened"}
    assert len(error([f], call("f", "long"))) < 5000
    assert "the-secret" not in error([f], call("f", "unreadable"))
    assert error([f], call("f", "half")) == "ValueError: ?"
    for kind, name in (("exit", "SystemExit"), ("stop", "StopIteration"), ("key", "KeyboardInterrupt")):
        assert error([f], call("f", kind)) == f"{name}: 7"
    assert error([g], call("g")) == "SystemExit: 3"
    assert error([h], call("h")).startswith("CancelledError")


def test_tracebacks_are_logged_here(caplog):
    def f() -> None:
        raise ValueError("of the tool")

    def ask(call):
        raise ValueError("of approve")

    with caplog.at_level("INFO", "cellblock.tools"):
        assert error([f], call("f")) == "ValueError: of the tool"
        assert error([tool(approve=ask)(f)], call("f")).startswith("ToolRefusedError")
    assert [r.getMessage() for r in caplog.records] == ["the tool f raised", "approve of the tool f raised"]
    assert "in f\n" in caplog.text and "of approve" in caplog.text


def test_results_are_json_or_an_error():
    looped: list = []
    looped.append(looped)
    deep: list = []
    for _ in range(5000):
        deep = [deep]

    results = {"nan": float("nan"), "looped": looped, "deep": deep, "object": object(), "keys": {1: {2: 3}},
               "big": "x" * 2000, "half": "\ud800", "dataclass": Hit("u"), "enum": Color.RED, "huge": 10**5000,
               "tuple": (1, None, True)}

    @tool(max_bytes=1000)
    def f(which: str) -> Any:
        return results[which]

    assert one([f], call("f", "keys"))["ok"] == {"1": {"2": 3}}
    assert one([f], call("f", "dataclass"))["ok"] == {"url": "u", "rank": 1}
    assert one([f], call("f", "enum"))["ok"] == "red"
    assert one([f], call("f", "tuple"))["ok"] == [1, None, True]
    for which in ("nan", "looped", "deep", "object", "half", "huge", "big"):
        assert error([f], call("f", which)).startswith("ToolResultError: the result "), which
    assert "more than 1000 bytes" in error([f], call("f", "big"))


def test_numpy_results():
    numpy = pytest.importorskip("numpy")

    @tool
    def f() -> Any:
        return [numpy.float64(1.5), numpy.arange(3)]

    assert one([f], call("f"))["ok"] == [1.5, [0, 1, 2]]


def nested(depth):
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("forged, said", [
    (None, "ToolCallError: a call must be an object"), ("x", "ToolCallError: a call must"), ([], "ToolCallError: a"),
    ({}, "ToolCallError: a call's id"), ({"id": 3, "tool": "add"}, "ToolCallError: a call's id"),
    ({"id": "", "tool": "add"}, "ToolCallError: a call's id"),
    ({"id": "x" * 129, "tool": "add"}, "ToolCallError: a call's id"),
    ({"id": "1"}, "ToolCallError: there is no tool 'NoneType'"),
    ({"id": "1", "tool": ["add"]}, "ToolCallError: there is no tool 'list'"),
    ({"id": "1", "tool": "../../etc/passwd"}, "ToolCallError: there is no tool '../../etc/passwd'"),
    ({"id": "1", "tool": "__class__"}, "ToolCallError: there is no tool '__class__'"),
    ({"id": "1", "tool": "add.__globals__"}, "ToolCallError: there is no tool"),
    ({"id": "1", "tool": "\x1b[2Jadd\u202e"}, "ToolCallError: there is no tool '\\x1b[2Jadd\\u202e'"),
    ({"id": "1", "tool": "add", "args": {"a": 1}}, "ToolCallError: args must be a list"),
    ({"id": "1", "tool": "add", "kwargs": [1]}, "ToolCallError: args must be a list and kwargs"),
    ({"id": "1", "tool": "add", "args": None}, "ToolCallError: args must"),
    ({"id": "1", "tool": "add", "args": [True]}, "ValueError: arguments of add: Expected `int`, got `bool`"),
    ({"id": "1", "tool": "add", "args": ["1"]}, "ValueError: arguments of add: Expected `int`, got `str`"),
    ({"id": "1", "tool": "add", "args": [1.5]}, "ValueError: arguments of add"),
    ({"id": "1", "tool": "add", "kwargs": {"self": 1}}, "TypeError: add() missing a required"),
    ({"id": "1", "tool": "later", "args": [nested(100)]}, "ValueError: arguments of later: nested more than 64"),
    ({"id": "1", "tool": "later", "args": [nested(100_000)]}, "ValueError: arguments of later: nested more than 64"),
    ({"id": "1", "tool": "later", "args": ["x" * (5 << 20)]}, "ValueError: arguments of later: more than 4194304"),
    ({"id": "1", "tool": "later", "args": [[0] * (5 << 20)]}, "ValueError: arguments of later: more than 4194304"),
    ({"id": "1", "tool": "later", "args": ["\ud800"]}, "ValueError: arguments of later: a text with half"),
    ({"id": "1", "tool": "later", "args": [float("inf")]}, "ValueError: arguments of later: inf is no JSON"),
    ({"id": "1", "tool": "later", "args": [b"x"]}, "ValueError: arguments of later: bytes is no JSON"),
])
def test_forged_calls_get_a_clear_error(forged, said):
    dispatcher = Dispatcher([add, later])
    answer = asyncio.run(dispatcher.answer([forged]))[0]
    assert f"{answer['error']['type']}: {answer['error']['message']}".startswith(said)
    dispatcher.close()


@pytest.mark.parametrize("forged", [None, {}, "calls", 3])
def test_calls_that_are_no_list(forged):
    assert asyncio.run(Dispatcher([add]).answer(forged)) == []


def test_an_id_is_answered_once():
    ran = []

    @tool
    def note(x: int) -> int:
        ran.append(x)
        return x

    dispatcher = Dispatcher([note])

    async def main():
        first = await dispatcher.answer([{"id": "a", "tool": "note", "args": [1]},
                                         {"id": "a", "tool": "note", "args": [2]}])
        again = await dispatcher.answer([{"id": "a", "tool": "note", "args": [3]}])
        serving.set((Serving(None, "the next run"),))
        return first + again + await dispatcher.answer([{"id": "a", "tool": "note", "args": [4]}])

    found = asyncio.run(main())
    dispatcher.close()
    assert ran == [1, 4] and [("ok" in a) for a in found] == [True, False, False, True]
    assert "answered already" in found[1]["error"]["message"]


def test_too_many_at_once_and_in_a_run(monkeypatch):
    monkeypatch.setattr(_tools, "ROUND", 3)
    monkeypatch.setattr(_tools, "CALLS", 2)
    found = answers([later], *(call("later", n) for n in range(5)))
    assert [a.get("ok") for a in found] == [0, 1, None, None, None]
    assert "more than 2 calls in one run" in found[2]["error"]["message"]
    assert "more than 3 calls at once" in found[4]["error"]["message"]


def test_max_calls_counts_by_run():
    @tool(max_calls=2)
    def f() -> int:
        return 1

    dispatcher = Dispatcher([f])

    async def main():
        first = await dispatcher.answer([call("f"), call("f"), call("f")])
        serving.set((Serving(None, "another"),))
        return first + await dispatcher.answer([call("f")])

    found = asyncio.run(main())
    dispatcher.close()
    assert [("ok" in a) for a in found] == [True, True, False, True]
    assert found[2]["error"] == {"type": "ToolLimitError", "message": "f may be called 2 times in one run (max_calls)"}


def test_concurrency():
    now, most = 0, 0

    @tool(concurrency=2)
    async def f() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        for _ in range(5):
            await asyncio.sleep(0)
        now -= 1

    assert all("ok" in a for a in answers([f], *(call("f") for _ in range(9))))
    assert most == 2


def test_sync_tools_run_beside_each_other_and_the_loop_goes_on():
    barrier = threading.Barrier(4, timeout=60)

    @tool
    def f() -> str:
        barrier.wait()
        return threading.current_thread().name

    @tool
    async def g() -> int:
        await asyncio.get_running_loop().run_in_executor(None, barrier.wait)
        return 1

    found = answers([f, g], call("f"), call("f"), call("f"), call("g"))
    assert [a["ok"] for a in found] == ["cellblock-tool"] * 3 + [1]


def test_threads_are_bounded():
    seen, lock, gate = set(), threading.Lock(), threading.Event()

    @tool
    def f() -> None:
        with lock:
            seen.add(threading.get_ident())
            if len(seen) == _tools.THREADS:
                gate.set()
        gate.wait(60)

    @tool
    def g() -> None:
        f.function()

    assert all("ok" in a for a in answers([f, g], *(call("fg"[n % 2]) for n in range(60))))
    assert len(seen) == _tools.THREADS


def test_context_variables_are_copied():
    var = contextvars.ContextVar("var", default="unset")

    @tool
    def f() -> str:
        was = var.get()
        var.set("changed")
        return was

    @tool
    async def g() -> str:
        was = var.get()
        var.set("changed")
        return was

    dispatcher = Dispatcher([f, g])

    async def main():
        var.set("mine")
        found = await dispatcher.answer([call("f"), call("g"), call("f")])
        return [a["ok"] for a in found], var.get()

    assert asyncio.run(main()) == (["mine"] * 3, "mine")
    dispatcher.close()


def test_a_sync_tool_over_its_time_keeps_its_place():
    def found_with(limit, gate, ran):
        @tool(timeout=limit, concurrency=1)
        def f(x: int) -> int:
            ran.append(x)
            gate.wait(60)
            return x

        dispatcher = Dispatcher([f])

        async def main():
            first = await dispatcher.answer([call("f", 1)])
            second = await dispatcher.answer([call("f", 2)])
            gate.set()
            while dispatcher._going:
                await asyncio.sleep(0.01)
            return first + second + await dispatcher.answer([call("f", 3)])

        found = asyncio.run(main())
        dispatcher.close()
        return found

    for limit in (0.2, 5, 20):  # on a busy machine the good call may take as long
        ran = []
        found = found_with(limit, threading.Event(), ran)
        if "ok" in found[2]:
            break
    assert found[0]["error"]["message"] == f"f ran longer than {limit} s (timeout of the tool)"
    assert "all 1 places are taken" in found[1]["error"]["message"]
    assert found[2]["ok"] == 3 and ran == [1, 3]


def test_an_async_tool_over_its_time_is_cancelled_or_keeps_its_place():
    ended = []

    @tool(timeout=0.1)
    async def obeys() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("obeys")

    @tool(timeout=0.1, concurrency=1)
    async def stubborn(gate: int) -> int:
        while not ended or "open" not in ended:
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                pass
        return 1

    dispatcher = Dispatcher([obeys, stubborn])

    async def main():
        found = await dispatcher.answer([call("obeys"), call("stubborn", 1)])
        found += await dispatcher.answer([call("stubborn", 1)])
        ended.append("open")
        while dispatcher._going:
            await asyncio.sleep(0.01)
        return found

    found = asyncio.run(main())
    assert [a["error"]["type"] for a in found] == ["TimeoutError"] * 3 and "obeys" in ended
    assert "places are taken" in found[2]["error"]["message"]


def test_cancelling_the_answer():
    began, gate, ended, ran = threading.Event(), threading.Event(), [], []

    @tool
    async def f() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("f")

    @tool(concurrency=1)
    def g(x: int) -> None:
        ran.append(x)
        began.set()
        gate.wait(60)

    dispatcher = Dispatcher([f, g])

    async def main():
        task = asyncio.ensure_future(dispatcher.answer([call("f"), call("g", 1), call("g", 2)]))
        while not began.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.set()
        while dispatcher._going:
            await asyncio.sleep(0.01)
        return await dispatcher.answer([call("g", 3)])

    assert "ok" in asyncio.run(main())[0]
    dispatcher.close()
    assert ended == ["f"] and ran == [1, 3]  # what had not begun never does


def test_a_job_that_waits_is_taken_back():
    gate, ran = threading.Event(), []

    @tool
    def holds() -> None:
        gate.wait(60)

    @tool(timeout=0.1)
    def waits(x: int) -> None:
        ran.append(x)

    dispatcher = Dispatcher([holds, waits])

    async def main():
        held = asyncio.ensure_future(dispatcher.answer([call("holds") for _ in range(_tools.THREADS)]))
        while len(dispatcher._going) < _tools.THREADS:
            await asyncio.sleep(0.01)
        found = await dispatcher.answer([call("waits", 1)])
        gate.set()
        await held
        return found + await dispatcher.answer([call("holds") for _ in range(_tools.THREADS)])

    found = asyncio.run(main())
    dispatcher.close()
    assert found[0]["error"]["type"] == "TimeoutError" and "ok" in found[1] and not ran


def test_a_thread_that_cannot_be_started_costs_its_call_alone(monkeypatch):
    ran = []

    @tool(concurrency=1)
    def f(x: int) -> int:
        ran.append(x)
        return x

    def full(self):
        raise RuntimeError("can't start new thread")

    dispatcher = Dispatcher([f])

    async def main():
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", full)
            refused = await dispatcher.answer([call("f", 1)])
        return refused + await dispatcher.answer([call("f", 2)])

    found = asyncio.run(main())
    dispatcher.close()
    assert found[0]["error"] == {"type": "ToolCallError", "message": "f was not called: can't start new thread"}
    assert found[0]["completed"] is False and found[1]["ok"] == 2 and ran == [2]
    assert not dispatcher._threads._jobs


def test_threads_end():
    dispatcher = Dispatcher([add])
    assert "ok" in asyncio.run(dispatcher.answer([call("add", 1)]))[0]
    mine = [t for t in threading.enumerate() if t.name == "cellblock-tool"]
    dispatcher.close()
    for t in mine:
        t.join(60)
        assert t.daemon and not t.is_alive()


def test_optional_arguments():
    @tool
    def f(x: Optional[int] = None) -> Any:
        return x

    assert [a["ok"] for a in answers([f], call("f"), call("f", None), call("f", 3))] == [None, None, 3]


def test_arguments_are_looked_through_once():
    """A cell may give as many keys, and as long ones, as max_bytes has room for."""
    looked = []

    class Typed(dict):
        def items(self):
            looked.append(1)
            return super().items()

    many = dict.fromkeys(map(str, range(100)), 0)
    assert _schema._unlike(many, Typed(many)) is None and len(looked) == 1
    for value in dict.fromkeys(map(str, range(49_000)), 0), {"k" * 2_000_000: [1] * 900_000}:
        assert one([later], call("later", value))["ok"] == value
    long = {"k" * 2_000_000: [0] * 500_000 + [{"no": 1}]}
    assert _schema._unlike(long, {k: [*v[:-1], {}] for k, v in long.items()}) == (
        f".{'k' * 2_000_000}[500000].no", "Object contains unknown field")


class Looks(Bare):
    """A tool that looks at a list of numbers for long."""

    name, description, is_async, awaitable = "looks", "", False, False
    input_schema, limits = {"type": "object"}, Limits(max_calls=2)

    def __init__(self):
        self.begun, self.gate, self.threads = threading.Event(), threading.Event(), []

    def bind(self, args, kwargs):
        self.threads.append(threading.current_thread().name)
        if len(args[0]) > 1:
            self.begun.set()
            if not self.gate.wait(60):
                raise ValueError("the loop stood still")
        return {"x": args[0]}

    def prepare(self, given):
        return lambda: len(given["x"])


def test_large_arguments_are_looked_through_beside_the_loop():
    """Other calls, and other sandboxes, are served meanwhile."""
    looks = Looks()
    dispatcher = Dispatcher([looks, add])

    async def main():
        large = asyncio.ensure_future(dispatcher.answer([call("looks", [0] * 2000), call("looks", "x" * 5_000_000)]))
        while not looks.begun.is_set():
            await asyncio.sleep(0.01)
        small = await dispatcher.answer([call("looks", [0]), call("add", 1)])
        looks.gate.set()
        return small + await large + await dispatcher.answer([call("looks", [0])])

    try:
        small, added, large, refused, over = asyncio.run(main())
    finally:
        dispatcher.close()
    assert (small["ok"], added["ok"], large["ok"]) == (1, 3, 2000)
    assert refused["completed"] is False and refused["error"] == {
        "type": "ValueError", "message": "arguments of looks: more than 4194304 bytes (max_bytes of the tool)"}
    assert over["error"]["type"] == "ToolLimitError"
    assert looks.threads == ["cellblock-check", threading.current_thread().name, threading.current_thread().name]


def test_nothing_is_kept_of_a_run_that_has_ended():
    """While it runs its counts stay, however many others run and end meanwhile."""

    @tool(max_calls=1)
    def once() -> int:
        return 1

    dispatcher = Dispatcher([once])

    async def calls(run):
        serving.set((Serving(None, run),))
        return "ok" in (await dispatcher.answer([call("once")]))[0]

    async def main():
        async def of(run):
            return await asyncio.ensure_future(calls(run))

        assert await of("long")
        for n in range(200):
            assert await of(f"run {n}")
            dispatcher.over(f"run {n}")
        assert not await of("long") and list(dispatcher._runs) == ["long"]
        dispatcher.over("long")
        assert not dispatcher._runs

    try:
        asyncio.run(main())
    finally:
        dispatcher.close()
