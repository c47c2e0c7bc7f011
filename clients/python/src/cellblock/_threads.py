"""A bounded pool of threads for what blocks, spoken to from an event loop.

Invariants: at most `most` threads; they are daemons, so that a function that never ends does not keep the program
alive, as concurrent.futures would; a function that was given up runs on, and its thread counts until it ends.
"""

from __future__ import annotations

import asyncio
import atexit
import collections
import concurrent.futures
import contextlib
import contextvars
import inspect
import threading
import time
from typing import Any, Awaitable, Callable, Dict, NamedTuple, Optional, TypeVar

from ._errors import SandboxError

T = TypeVar("T")


class Outcome(NamedTuple):
    """How a function ended: its value, or what it raised (also KeyboardInterrupt and the like)."""

    value: Any = None
    error: Optional[BaseException] = None


async def outcome_of(work: Awaitable[Any]) -> Outcome:
    """How an async function of the user's ended. Whatever it raises stays here: the loop would end with some of it."""

    async def contained() -> Outcome:
        try:
            return Outcome(await work)
        except BaseException as e:
            return Outcome(error=e)

    task = asyncio.ensure_future(contained())
    try:
        await asyncio.wait({task})
    finally:
        task.cancel()  # who waits for it may have been cancelled
    return task.result()


async def outcome_of_call(threads: Threads, function: Callable[..., Any], *arguments: Any) -> Outcome:
    """How a function of the user's ended. One without `async` runs in a thread; it may give an awaitable."""

    async def awaited() -> Any:
        return await function(*arguments)

    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):
        return await outcome_of(awaited())
    try:
        asked = threads.submit(lambda: function(*arguments))
    except RuntimeError as e:
        return Outcome(error=e)
    try:
        ended = await asked
    finally:
        threads.drop(asked)
    return await outcome_of(ended.value) if inspect.isawaitable(ended.value) else ended


async def made_in_a_thread(make: Callable[[], T], undo: Callable[[T], object]) -> T:
    """What `make` gives. Where nobody waits for it any more, `undo` takes it away as soon as it is there: in the same
    thread, since the caller's event loop may have ended by then. SandboxError: the system gives no thread."""
    made: concurrent.futures.Future[T] = concurrent.futures.Future()
    made.set_running_or_notify_cancel()
    given_up, left = threading.Event(), threading.Event()  # by the caller

    def give_up() -> None:
        given_up.set()
        left.set()

    def work() -> None:
        try:
            made.set_result(make())
        except BaseException as e:
            made.set_exception(e)
        left.wait()
        if given_up.is_set() and made.exception() is None:
            with contextlib.suppress(Exception):
                undo(made.result())
        _under_way.pop(thread, None)

    thread = threading.Thread(target=work, name="cellblock-start", daemon=True)
    try:
        _under_way[thread] = give_up
        try:
            thread.start()
        except RuntimeError as e:
            _under_way.pop(thread, None)
            raise SandboxError(f"no thread can be started, and a kernel's start and end need one: {e}") from e
        return await asyncio.wrap_future(made)
    except BaseException:
        given_up.set()
        raise
    finally:
        left.set()


_under_way: Dict[threading.Thread, Callable[[], None]] = {}


@atexit.register
def _end_all() -> None:
    """Nobody waits any more. What is to be taken away is, unless that takes longer than a few seconds."""
    late = time.monotonic() + 3
    begun = list(_under_way.items())
    for _, give_up in begun:
        give_up()
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C: no waiting
        for thread, _ in begun:
            if thread.is_alive():
                thread.join(max(0, late - time.monotonic()))


class _Job(NamedTuple):
    function: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Outcome]


def _settle(job: _Job, outcome: Outcome) -> None:
    def settle() -> None:
        if not job.future.done():
            job.future.set_result(outcome)

    try:
        job.loop.call_soon_threadsafe(settle)
    except RuntimeError:
        pass  # the loop is closed: nobody waits


class Threads:
    """Runs functions in threads of its own. Waiting jobs are taken in their order."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._wake = threading.Condition()
        self._jobs: collections.deque[_Job] = collections.deque()
        self._count = self._idle = 0
        self._closed = False

    def submit(self, function: Callable[[], Any]) -> asyncio.Future[Outcome]:
        """Runs it in a copy of this context. The future ends when the function does, whoever waits for it.

        RuntimeError: it needs a thread, and the system gives none. The function is not run then.
        """
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()
        job = _Job(lambda: context.run(function), loop, loop.create_future())
        with self._wake:
            self._jobs.append(job)
            if self._idle >= len(self._jobs):
                self._wake.notify()
            elif self._count < self._most:
                self._count += 1
                try:
                    threading.Thread(target=self._work, name=self._name, daemon=True).start()
                except RuntimeError:
                    self._count -= 1
                    self._jobs.remove(job)
                    raise
        return job.future

    def drop(self, future: asyncio.Future[Outcome]) -> bool:
        """Takes a job back that no thread has begun."""
        with self._wake:
            for job in self._jobs:
                if job.future is future:
                    self._jobs.remove(job)
                    return True
        return False

    def close(self) -> None:
        """Idle threads end; a running function ends its thread when it returns."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()

    def _next(self) -> Optional[_Job]:
        with self._wake:
            while not self._jobs:
                if self._closed:
                    self._count -= 1
                    return None
                self._idle += 1
                self._wake.wait()
                self._idle -= 1
            return self._jobs.popleft()

    def _work(self) -> None:
        while True:
            job = self._next()
            if job is None:
                return
            try:
                outcome = Outcome(job.function())
            except BaseException as e:
                outcome = Outcome(error=e)
            _settle(job, outcome)
            del job, outcome  # an idle thread holds nothing of the last call
