"""Sandbox in programs that have an event loop of their own: asyncio's or trio's, by way of anyio.

For adapters whose frameworks bring anyio. Invariant: whoever is cancelled waits here until the work has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Callable, Coroutine, TypeVar

import anyio

from ._loop import _Job

T = TypeVar("T")


def _soon() -> Callable[[Callable[[], object]], object]:
    """What has a function called in the loop of this task, from any thread."""
    try:
        return asyncio.get_running_loop().call_soon_threadsafe
    except RuntimeError:
        import trio

        return trio.lowlevel.current_trio_token().run_sync_soon


async def acall(work: Coroutine[Any, Any, T]) -> T:
    """As `_loop.call`, awaited. Cancelling it cancels the work in the background loop: a cell is interrupted.

    It may be awaited in that loop, too: by an async host tool of one sandbox, which uses another.
    """
    soon, ended = _soon(), anyio.Event()
    job = _Job(work, awaited=True)

    def tell(_: object) -> None:
        with contextlib.suppress(RuntimeError):  # that loop has ended
            soon(ended.set)

    job.future.add_done_callback(tell)
    try:
        job.begin()
        await ended.wait()
    except BaseException:
        job.stop()
        with anyio.CancelScope(shield=True):
            await ended.wait()
        raise
    result: T = job.future.result()
    return result
