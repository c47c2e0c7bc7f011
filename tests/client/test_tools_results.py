"""Host tools, the host's side alone: how results become JSON, and where."""

import asyncio
import dataclasses
import datetime
import enum
import inspect
import json
import threading
from typing import Any

import pytest

msgspec = pytest.importorskip("msgspec")
from cellblock import _tools  # noqa: E402
from cellblock._tools import Dispatcher, tool  # noqa: E402
from toolcalls import add, answers, call, error, later, one  # noqa: E402

pytestmark = pytest.mark.once


class Slow:
    """A result that takes long to become JSON."""

    __module__ = "numpy.slow"

    def __init__(self):
        self.begun, self.gate, self.thread = threading.Event(), threading.Event(), None

    def tolist(self):
        self.thread = threading.current_thread().name
        self.begun.set()
        if not self.gate.wait(60):
            raise ValueError("the loop stood still")
        return [0] * 2000


@pytest.mark.parametrize("is_async, thread", [(True, "cellblock-check"), (False, "cellblock-tool")])
def test_large_results_become_json_beside_the_loop(is_async, thread):
    slow = Slow()

    async def awaited() -> Any:
        return slow

    def called() -> Any:
        return slow

    dispatcher = Dispatcher([tool(name="slow")(awaited if is_async else called), add, later])

    async def main():
        large = asyncio.ensure_future(dispatcher.answer([call("slow")]))
        while not slow.begun.is_set():
            await asyncio.sleep(0.01)
        small = await dispatcher.answer([call("add", 1), call("later", [1])])
        slow.gate.set()
        return small + await large

    try:
        found = asyncio.run(main())
    finally:
        dispatcher.close()
    assert [a.get("ok") for a in found] == [3, [1], [0] * 2000] and slow.thread == thread


@pytest.mark.parametrize("is_async", [True, False])
def test_a_tool_that_has_returned_is_not_called_over_time(is_async):
    """Its result is still on its way: who heard that it did not complete would call it again."""
    ran = []

    def tried(limit):
        slow = Slow()

        def called() -> Any:
            ran.append(limit)
            return slow

        async def awaited() -> Any:
            return called()

        slow_tool = tool(name="slow", timeout=limit, concurrency=1)(awaited if is_async else called)
        dispatcher = Dispatcher([slow_tool])

        async def main():
            first = asyncio.ensure_future(dispatcher.answer([call("slow")]))
            while not slow.begun.is_set() and not first.done():
                await asyncio.sleep(0.01)
            found = await dispatcher.answer([call("slow")])  # waits for the place until both have had their time
            slow.gate.set()
            return await first + found

        try:
            return asyncio.run(main())
        finally:
            dispatcher.close()

    for limit in (0.2, 2, 10):  # on a busy machine a function may not have begun by then
        first, second = tried(limit)
        if first.get("error", {}).get("type") != "TimeoutError" or "completed" not in first:
            break
    assert first.get("ok") == [0] * 2000, first
    assert second["completed"] is False and "all 1 places are taken" in second["error"]["message"]
    assert ran.count(limit) == 1


def test_a_serializer_that_never_returns_holds_its_own_call_alone():
    slow = Slow()

    @tool
    async def hangs() -> Any:
        return slow

    dispatcher = Dispatcher([hangs, later])

    async def main():
        hanging = asyncio.ensure_future(dispatcher.answer([call("hangs")]))
        while not slow.begun.is_set():
            await asyncio.sleep(0.01)
        found = await asyncio.wait_for(dispatcher.answer([call("later", ["x"] * 2000)]), 50)  # checked, and sent
        hanging.cancel()
        await asyncio.wait({hanging})
        slow.gate.set()
        return found

    try:
        (found,) = asyncio.run(main())
    finally:
        dispatcher.close()
    assert found["ok"] == ["x"] * 2000


@dataclasses.dataclass
class Point:
    x: Any
    y: Any = 0


class Colour(enum.Enum):
    red = "red"


class Pair(msgspec.Struct):
    a: Any
    b: Any = None


SMALL = [Point(1), Colour.red, Pair([1]), {"at": datetime.date(2026, 1, 2)}, b"bytes", {1, 2}, [Point(Pair(1))]]
LARGE = [Point("x" * 2000), Pair(["x"] * 2000), b"x" * 2000, set(range(2000)), [Point(1)] * 2000]


def converted_in(value, monkeypatch):
    """The thread in which what an async tool returns becomes JSON."""
    threads, real = [], _tools.as_json

    @tool
    async def gives() -> Any:
        return value

    def as_json(value, most):
        threads.append(threading.current_thread().name)
        return real(value, most)

    monkeypatch.setattr(_tools, "as_json", as_json)
    assert "ok" in one([gives], call("gives"))
    (thread,) = threads
    return thread


@pytest.mark.parametrize("value", SMALL, ids=range(len(SMALL)))
def test_small_results_of_any_kind_become_json_in_the_loop(value, monkeypatch):
    assert converted_in(value, monkeypatch) == threading.current_thread().name


@pytest.mark.parametrize("value", LARGE, ids=range(len(LARGE)))
def test_large_results_of_any_kind_do_not(value, monkeypatch):
    assert converted_in(value, monkeypatch) == "cellblock-check"


def test_models_and_arrays_become_json_where_their_size_says(monkeypatch):
    pydantic, numpy = pytest.importorskip("pydantic"), pytest.importorskip("numpy")

    class Model(pydantic.BaseModel):
        model_config = {"extra": "allow"}
        x: Any = 1

    here, beside = threading.current_thread().name, "cellblock-check"
    for small in (Model(), [Model(x=Model())], numpy.float64(1), numpy.zeros(3)):
        assert converted_in(small, monkeypatch) == here, small
    for large in (Model(x=["x"] * 2000), Model(y="x" * 2000), numpy.zeros(2000), numpy.array(["x" * 2000], object)):
        assert converted_in(large, monkeypatch) == beside, large


def test_plain_results_become_json_in_the_loop_where_that_is_soon_done(monkeypatch):
    threads, real = [], _tools.as_json

    def as_json(value, most):
        threads.append(threading.current_thread().name)
        return real(value, most)

    monkeypatch.setattr(_tools, "as_json", as_json)
    for said, thread in ((call("later", {"x": [1]}), threading.current_thread().name),
                         (call("later", ["x"] * 2000), "cellblock-check"), (call("add", 1), "cellblock-tool")):
        assert "ok" in one([add, later], said) and threads == [thread]
        threads.clear()


def test_a_result_is_measured_before_anything_that_holds_the_others_up(monkeypatch):
    """json.dumps of a very large one lets no other thread run until it has ended."""
    with monkeypatch.context() as patch:
        patch.setattr(json, "dumps", None)
        with pytest.raises(_tools.Refused, match="more than 1000 bytes"):
            _tools.as_json(["x"] * 2000, 1000)


def test_whatever_a_serializer_raises_is_told():
    class Breaks(Slow):
        __module__ = "numpy.breaks"

        def tolist(self):
            raise KeyError("k")

    @tool
    async def f() -> Any:
        return Breaks()

    @tool
    def g() -> Any:
        return Breaks()

    for found in answers([f, g], call("f"), call("g")):
        assert found["error"] == {"type": "ToolResultError", "message": "the result can't be sent: KeyError: 'k'"}
        assert "completed" not in found, "the tool has run"


def test_what_a_plain_function_gives_to_be_awaited_is():
    now, most, two = 0, 0, []

    async def twice(x):
        nonlocal now, most
        now += 1
        most = max(most, now)
        if not two:  # the first waits for a second
            two.append(asyncio.Event())
            await asyncio.wait_for(two[0].wait(), 60)
        two[0].set()
        for _ in range(5):
            await asyncio.sleep(0)
        now -= 1
        return 2 // x

    @tool(concurrency=2)
    def f(x: int) -> Any:
        return twice(x)

    @tool
    def g(x: int) -> Any:
        return later.function(["x"] * x)

    assert [a.get("ok") for a in answers([f], *(call("f", 1) for _ in range(9)))] == [2] * 9 and most == 2
    assert error([f], call("f", 0)).startswith("ZeroDivisionError: ")
    assert one([g], call("g", 2000))["ok"] == ["x"] * 2000
    assert error([g], call("g", 5_000_000)).startswith("ToolResultError: the result can't be sent: more than")


def test_what_is_awaited_of_a_plain_function_has_its_time_and_place():
    def tried(limit):
        gate, late, ended = threading.Event(), [], []

        async def endless():
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("endless")

        @tool(timeout=limit, concurrency=1)
        def awaits() -> Any:
            return endless()

        @tool(timeout=limit, concurrency=1)
        def comes_late() -> Any:
            gate.wait(60)
            late.append(endless())
            return late[0]

        dispatcher = Dispatcher([awaits, comes_late])

        async def main():
            found = await dispatcher.answer([call("awaits"), call("comes_late")])
            while len(dispatcher._going) > 1:
                await asyncio.sleep(0.01)
            found += await dispatcher.answer([call("awaits"), call("comes_late")])
            gate.set()
            while dispatcher._going:
                await asyncio.sleep(0.01)
            return [a["error"]["message"] for a in found], [places._value for places in dispatcher._places.values()]

        said, places = asyncio.run(main())
        dispatcher.close()
        return said, places, late, ended

    for limit in (0.2, 2, 10):  # on a busy machine a function may not have begun by then
        said, places, late, ended = tried(limit)
        if len(ended) == 2 and late:
            break
    over = [f"{name} ran longer than {limit} s (timeout of the tool)" for name in ("awaits", "comes_late")]
    assert said[:3] == [*over, over[0]] and "all 1 places are taken" in said[3], said
    assert ended == ["endless"] * 2 and inspect.getcoroutinestate(late[0]) == inspect.CORO_CLOSED and places == [1, 1]
