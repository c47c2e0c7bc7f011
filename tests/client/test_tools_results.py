"""Host tools, the host's side alone: how results become JSON, and where."""

import asyncio
import json
import threading
from typing import Any

import pytest

pytest.importorskip("msgspec")
from cellblock import _tools  # noqa: E402
from cellblock._tools import Dispatcher, tool  # noqa: E402
from toolcalls import answers, call, error, one  # noqa: E402

pytestmark = pytest.mark.once


@tool
def add(a: int, b: int = 2) -> int:
    return a + b


@tool
async def later(x: Any) -> Any:
    await asyncio.sleep(0)
    return x


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
