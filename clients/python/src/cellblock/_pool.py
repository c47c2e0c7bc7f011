"""Pool: sandboxes that are started ahead, so that a lease begins at once; each is used by one lease and then ended.

Invariants: never more than `size` at once; no state goes from one lease to the next, since the next gets a new
kernel and a new object; whoever uses a sandbox after its lease gets an error that says so; a sandbox that is broken
is replaced.
"""

from __future__ import annotations

import asyncio
import collections
import functools
import os
from typing import TYPE_CHECKING, Any, Callable, Iterator, Optional

from . import _loop
from ._checks import seconds
from ._errors import ForkError, SandboxClosedError, SandboxError

if TYPE_CHECKING:
    from ._async import AsyncSandbox
    from ._sync import Sandbox

STARTS = max(2, os.cpu_count() or 1)  # that run beside each other
LIVES = 10.0  # seconds within which a sandbox that stands ready must answer, or it is broken
LOOK = 1.0  # of these, seconds that also a lease waits that may wait for less


def _expired(ttl: float) -> str:
    return f"the lease of this sandbox ended after its {ttl:g} seconds; renew() it in time, or ask for a longer ttl"


class AsyncLease:
    """The right to use a sandbox for a while: `async with pool.lease(ttl=600) as sb`; `renew()` begins it anew."""

    def __init__(self, pool: AsyncPool, ttl: Optional[float], wait: Optional[float]) -> None:
        self._pool = pool
        self._ttl = None if ttl is None else seconds("ttl", ttl, none="no end")
        self._wait = None if wait is None else seconds("wait", wait, none="no end", zero=True)
        self._sandbox: Optional[AsyncSandbox] = None
        self._timer: Optional[asyncio.TimerHandle] = None

    async def __aenter__(self) -> AsyncSandbox:
        if self._sandbox is not None:
            raise SandboxError("this lease was used already: pool.lease() makes another")
        self._sandbox = await self._pool._take(self._wait)
        self._schedule()
        return self._sandbox

    async def __aexit__(self, *error: object) -> None:
        await self._end("the lease of this sandbox has ended")

    def renew(self, ttl: Optional[float] = None) -> None:
        """The lease lasts `ttl` seconds from now on; left out: as long as it was first asked for."""
        if self._sandbox is None or self._sandbox not in self._pool._leased:
            raise SandboxClosedError("the lease has ended: pool.lease() makes another")
        if ttl is not None:
            self._ttl = seconds("ttl", ttl, none="as long as it was first asked for")
        self._schedule()

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._ttl is not None:
            self._timer = asyncio.get_running_loop().call_later(self._ttl, self._expire, self._ttl)

    def _expire(self, ttl: float) -> None:
        self._over(_expired(ttl))

    async def _end(self, why: str) -> None:
        self._pool._check_process()
        if self._timer is not None:
            self._timer.cancel()
        ending = self._over(why)
        if ending is not None:
            await asyncio.shield(ending)

    def _over(self, why: str) -> Optional[asyncio.Task[Any]]:
        """From now on it can't be renewed. What ends the sandbox, if nothing has ended it."""
        if self._sandbox is None or self._sandbox not in self._pool._leased:
            return None
        self._pool._leased.discard(self._sandbox)
        return self._pool._spawn(self._pool._end(self._sandbox, why))


class AsyncPool:
    """Sandboxes that stand ready, for programs with asyncio: `async with AsyncPool("agent", size=8) as pool`.

    `size`: sandboxes at most, leased ones included; they start ahead. `setup`: a cell that runs in each before it is
    leased. All else is as for AsyncSandbox. With a workspace in mode `rw` all of them write one folder: a pool wants
    `overlay` or `tmpfs`.
    """

    def __init__(
        self, base: Any = None, *, size: int = 4, setup: Optional[str] = None,
        make: Optional[Callable[[], AsyncSandbox]] = None, **options: Any,
    ) -> None:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"size is {size!r}: allowed is a whole number above 0")
        self._size, self._setup = size, setup
        kept = {k: list(v) if isinstance(v, Iterator) else v for k, v in options.items()}  # the first would use it up
        self._make = make or (lambda: _sandbox(base, kept))
        self._ready: collections.deque[AsyncSandbox] = collections.deque()
        self._leased: set[AsyncSandbox] = set()
        self._waiting: collections.deque[asyncio.Future[AsyncSandbox]] = collections.deque()
        self._starting: set[asyncio.Task[None]] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._count = 0  # that live, start, or end
        self._slots: Optional[asyncio.Semaphore] = None
        self._open = False
        self._pid = os.getpid()

    def _check_process(self) -> None:
        """ForkError in a child of the process that started this: what is ready here are its parent's sandboxes."""
        if self._slots is None:
            self._pid = os.getpid()
        if os.getpid() != self._pid:
            raise ForkError(
                f"this pool belongs to process {self._pid}, and this is its child {os.getpid()}. "
                "Make a new Pool after the fork."
            )

    async def __aenter__(self) -> AsyncPool:
        return await self.start()

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def start(self) -> AsyncPool:
        """Starts the sandboxes and returns when the first is ready; raises what it failed with."""
        self._check_process()
        if not self._open:
            self._open, self._slots = True, asyncio.Semaphore(STARTS)
            try:
                self._back(await self._take(None))
            except BaseException:
                await self.close()
                raise
        return self

    async def close(self) -> None:
        """Ends all sandboxes, leased ones too. No process is left."""
        self._check_process()
        self._open = False
        for task in list(self._starting):
            task.cancel()
        for future in self._waiting:
            if not future.done():
                future.set_exception(SandboxClosedError("the pool was closed"))
        while self._ready:
            self._spawn(self._end(self._ready.popleft(), "the pool was closed"))
        while self._leased:
            self._spawn(self._end(self._leased.pop(), "the pool was closed"))
        while self._starting or self._tasks:
            await asyncio.wait([*self._starting, *self._tasks])
            await asyncio.sleep(0)  # their callbacks

    def lease(self, ttl: Optional[float] = 600, *, wait: Optional[float] = None) -> AsyncLease:
        """A sandbox in clean state for `ttl` seconds (None: no end), renewable.

        Where all are leased it waits, `wait` seconds at most: TimeoutError then.
        """
        return AsyncLease(self, ttl, wait)

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _fill(self) -> None:
        while self._open and self._count < self._size:
            self._count += 1
            task = asyncio.ensure_future(self._start_one())
            self._starting.add(task)
            task.add_done_callback(self._started)

    def _started(self, task: asyncio.Task[None]) -> None:
        self._starting.discard(task)
        if task.cancelled():  # perhaps before its first step, so that it can't count itself out
            self._count -= 1
            if self._waiting:
                self._fill()

    async def _take(self, wait: Optional[float]) -> AsyncSandbox:
        self._check_process()
        if not self._open:
            raise SandboxClosedError("the pool is closed, or was not started: use it by `with`")
        loop = asyncio.get_running_loop()
        deadline = None if wait is None else loop.time() + wait
        while self._ready:
            sandbox = self._ready.popleft()
            self._leased.add(sandbox)
            look = self._spawn(self._look(sandbox))
            back = functools.partial(self._back, sandbox)
            try:
                await asyncio.wait({look}, timeout=None if deadline is None else max(LOOK, deadline - loop.time()))
            except asyncio.CancelledError:
                look.add_done_callback(back)
                raise
            if not look.done():
                look.add_done_callback(back)
                why = "one that stands ready does not answer"
                raise TimeoutError(f"no sandbox of the pool came free within {wait:g} seconds: {why}")
            if sandbox in self._leased:
                return sandbox
        if not self._open:  # meanwhile: nobody would answer what waits now
            raise SandboxClosedError("the pool was closed")
        future: asyncio.Future[AsyncSandbox] = loop.create_future()
        self._waiting.append(future)
        self._fill()
        try:
            left = None if deadline is None else max(0.0, deadline - loop.time())
            done, _ = await asyncio.wait({future}, timeout=left)
        except asyncio.CancelledError:
            self._give_back(future)
            raise
        if not done:
            self._give_back(future)
            used, size = len(self._leased), self._size
            why = f"all {size} are in use" if used >= size else f"{used} of {size} are in use, the others are not ready"
            raise TimeoutError(f"no sandbox of the pool came free within {wait:g} seconds: {why}")
        return future.result()

    async def _look(self, sandbox: AsyncSandbox) -> None:
        """Ends a sandbox that stood ready and does not answer."""
        answer = asyncio.ensure_future(_alive(sandbox))
        for _ in range(2):  # one look may be the first after this loop stood still
            await asyncio.wait({answer}, timeout=LIVES / 2)
        if not (answer.done() and answer.result()) and sandbox in self._leased:
            self._leased.discard(sandbox)
            self._spawn(self._end(sandbox, "the sandbox is broken"))
        answer.cancel()

    def _back(self, sandbox: AsyncSandbox, _: object = None) -> None:
        """A sandbox that was taken and not used is the next one's."""
        if sandbox in self._leased:
            self._leased.discard(sandbox)
            self._hand_out(sandbox)

    def _give_back(self, future: asyncio.Future[AsyncSandbox]) -> None:
        """Nobody waits for this any more; if a sandbox has come meanwhile it is the next one's."""
        if future in self._waiting:
            self._waiting.remove(future)
        if future.done() and not future.cancelled() and future.exception() is None:
            self._back(future.result())
        future.cancel()

    def _hand_out(self, sandbox: AsyncSandbox) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                self._leased.add(sandbox)
                future.set_result(sandbox)
                return
        if self._open:
            self._ready.append(sandbox)
        else:
            self._spawn(self._end(sandbox, "the pool was closed"))

    async def _start_one(self) -> None:
        """Makes a sandbox ready. What goes wrong goes to who waits; without one it is tried again at the next lease."""
        assert self._slots is not None
        sandbox: Optional[AsyncSandbox] = None
        try:
            await asyncio.sleep(0)  # an eager task would fail before `_fill` counts the next, without end
            async with self._slots:
                sandbox = self._make()
                await sandbox.start()
                if self._setup:
                    await sandbox.run(self._setup, check=True)
        except BaseException as e:
            if sandbox is not None:
                await _close(sandbox)
            if not isinstance(e, asyncio.CancelledError):  # which `_started` counts
                self._count -= 1
            if not isinstance(e, Exception):
                raise
            while self._waiting:
                future = self._waiting.popleft()
                if not future.done():
                    future.set_exception(e)
                    break
            if self._waiting:
                self._fill()
            return
        current = asyncio.current_task()
        if current is not None:
            self._starting.discard(current)
        self._hand_out(sandbox)

    async def _end(self, sandbox: AsyncSandbox, why: str) -> None:
        """Ends a sandbox for good, and starts another in its place."""
        try:
            sandbox._session._gone(why)
            await _close(sandbox)
        finally:
            self._count -= 1
            self._fill()


def _sandbox(base: Any, options: dict[str, Any]) -> AsyncSandbox:
    from ._async import AsyncSandbox

    return AsyncSandbox(base, **options)


async def _close(sandbox: AsyncSandbox) -> None:
    try:
        await sandbox.close()
    except Exception:
        pass  # it was broken before


async def _alive(sandbox: AsyncSandbox) -> bool:
    try:
        await sandbox.usage()
    except Exception:
        return False
    return True


class Lease:
    """The right to use a sandbox for a while: `with pool.lease(ttl=600) as sb`. `renew()` begins the time anew."""

    def __init__(self, lease: AsyncLease) -> None:
        self._lease = lease

    def __enter__(self) -> Sandbox:
        from ._sync import Sandbox

        sandbox, used = Sandbox.__new__(Sandbox), self._lease._sandbox is not None
        sandbox._a = _loop.begin(self._lease.__aenter__, lambda: None if used else self._lease.__aexit__())
        return sandbox

    def __exit__(self, *error: object) -> None:
        _loop.end(self._lease.__aexit__())

    def renew(self, ttl: Optional[float] = None) -> None:
        """The lease lasts `ttl` seconds from now on; left out: as long as it was first asked for."""

        async def renewed() -> None:
            self._lease.renew(ttl)

        _loop.call(renewed())


class Pool:
    """Sandboxes that stand ready: `with Pool("agent", size=8, setup="import numpy") as pool, pool.lease() as sb`.

    `size`: sandboxes at most, leased ones included; they start ahead. `setup`: a cell that runs in each before it is
    leased. All else is as for Sandbox. With a workspace in mode `rw` all of them write one folder: a pool wants
    `overlay` or `tmpfs`.
    """

    def __init__(self, base: Any = None, *, size: int = 4, setup: Optional[str] = None, **options: Any) -> None:
        self._pool = AsyncPool(base, size=size, setup=setup, **options)

    def __enter__(self) -> Pool:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.close()

    def start(self) -> Pool:
        """Starts the sandboxes and returns when the first is ready; raises what it failed with."""
        ran = self._pool._open
        _loop.begin(self._pool.start, lambda: None if ran else self._pool.close())
        return self

    def close(self) -> None:
        """Ends all sandboxes, leased ones too. No process is left."""
        _loop.end(self._pool.close())

    def lease(self, ttl: Optional[float] = 600, *, wait: Optional[float] = None) -> Lease:
        """A sandbox in clean state for `ttl` seconds (None: no end), renewable.

        Where all are leased it waits, `wait` seconds at most: TimeoutError then.
        """
        return Lease(self._pool.lease(ttl, wait=wait))
