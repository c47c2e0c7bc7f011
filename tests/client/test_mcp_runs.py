"""Questions to the MCP client's user: an answer is for the question that was shown, and for no other."""

import asyncio

import pytest

pytest.importorskip("mcp", reason="the MCP SDK needs Python 3.10")
pytest.importorskip("msgspec")
from cellblock._tools import Call  # noqa: E402
from cellblock.mcp import _runs  # noqa: E402
from cellblock.mcp._runs import Run, _said, approve  # noqa: E402

pytestmark = pytest.mark.once


def test_an_answer_that_comes_late_is_for_no_other_question():
    async def main():
        said, shown = [], asyncio.Event()

        async def cell(run):
            first = asyncio.ensure_future(approve(Call("1", "harmless", {}, {})))
            await shown.wait()
            first.cancel()  # the cell was interrupted, caught that, and asks for something else
            await asyncio.wait({first})
            said.append(await approve(Call("2", "harmful", {}, {})))

        run = Run(cell)
        first = await run.step()
        assert "harmless()" in first.text
        shown.set()
        second = await run.step()
        assert "harmful()" in second.text
        first.answer(True)
        await asyncio.sleep(0.01)
        assert not said
        second.answer("no")
        assert await run.step() is None and said == ["no"]

    asyncio.run(asyncio.wait_for(main(), 300))


def test_a_question_that_has_ended_is_not_asked():
    async def main():
        async def cell(run):
            asking = asyncio.ensure_future(approve(Call("1", "harmless", {}, {})))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait({asking})

        run = Run(cell)
        await asyncio.wait({run.task})
        assert await run.step() is None

    asyncio.run(asyncio.wait_for(main(), 300))


def test_who_does_not_answer_says_no(monkeypatch):
    monkeypatch.setattr(_runs, "WAIT", 0.05)

    async def main():
        said = []

        async def cell(run):
            said.append(await approve(Call("1", "f", {}, {})))

        run = Run(cell)
        await run.step()
        assert await run.step() is None and said[0] is not True and "did not answer" in said[0]
        assert await approve(Call("1", "f", {}, {})) == "there is nobody to ask"

    asyncio.run(asyncio.wait_for(main(), 300))


def test_calls_that_can_not_be_shown_whole_are_refused():
    async def main():
        async def cell(run):
            return await approve(Call("1", "f", {"x": "y" * 5000}, {}))

        run = Run(cell)
        assert await run.step() is None and "too long to be shown" in run.task.result()

    asyncio.run(asyncio.wait_for(main(), 300))


@pytest.mark.parametrize("answer", [
    None, {}, {"action": "accept"}, {"action": "accept", "content": {}},
    {"action": "accept", "content": {"approve": 1}},
    {"action": "accept", "content": {"approve": "true"}}, {"action": "yes", "content": {"approve": True}}, [], "accept",
    {"action": "decline", "content": {"approve": True}}, {"action": "cancel"},
])
def test_only_a_clear_yes_is_one(answer):
    assert _said(answer) is not True


def test_a_clear_yes():
    assert _said({"action": "accept", "content": {"approve": True}}) is True
