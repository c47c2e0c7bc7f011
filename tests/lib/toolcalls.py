"""Calls of host tools as a cell's come, and what the host's side answers. Role: test code, outside the jail."""

import asyncio
import json
from typing import Any

from cellblock._tools import Dispatcher, tool

COUNT = iter(range(10**9))


@tool
def add(a: int, b: int = 2) -> int:
    """The sum."""
    return a + b


@tool
async def later(x: Any) -> Any:
    await asyncio.sleep(0)
    return x


def call(name, *args, **kwargs):
    return {"id": f"c{next(COUNT)}", "tool": name, "args": list(args), "kwargs": kwargs}


def answers(tools, *calls):
    dispatcher = Dispatcher(tools)

    async def main():
        return await dispatcher.answer(list(calls))

    try:
        found = asyncio.run(main())
    finally:
        dispatcher.close()
    json.dumps(found, allow_nan=False)
    assert [a["id"] for a in found] == [c.get("id") if isinstance(c, dict) else None for c in calls]
    return found


def one(tools, said):
    return answers(tools, said)[0]


def error(tools, said):
    answer = one(tools, said)
    assert "ok" not in answer, answer
    return f"{answer['error']['type']}: {answer['error']['message']}"
