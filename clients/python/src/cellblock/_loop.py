"""The one background thread whose event loop drives all sandboxes of programs without asyncio.

Invariants: made at first use, and again in a child after a fork; a daemon, so that it never holds up the program's
end; nothing of the user's runs in it but async functions. Nothing is awaited of it while the interpreter ends: it
stands still then, with whatever it was in the middle of.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import queue
import sys
import threading
import traceback
from typing import Any, Callable, Coroutine, Generator, Optional, TypeVar

from ._errors import ForkError, SandboxError

T = TypeVar("T")
_lock = threading.Lock()
_loop: Optional[asyncio.AbstractEventLoop] = None
_thread: Optional[threading.Thread] = None
_pid = 0


def background() -> asyncio.AbstractEventLoop:
    """The loop of this process's background thread."""
    global _loop, _thread, _pid
    with _lock:
        if _loop is None or _pid != os.getpid():
            # the usual loop of Windows has no add_reader, by which sockets of ZeroMQ are heard
            loop = asyncio.SelectorEventLoop() if sys.platform == "win32" else asyncio.new_event_loop()
            thread = threading.Thread(target=_drive, args=(loop,), name="cellblock", daemon=True)
            try:
                thread.start()
            except RuntimeError as e:  # no threads are left, or the program ends
                loop.close()
                raise SandboxError(f"the thread that drives sandboxes can't be started: {e}") from e
            _loop, _thread, _pid = loop, thread, os.getpid()
        return _loop


def _ending() -> bool:
    """Whether the interpreter ends: its atexit functions were called, and have ended this program's kernels."""
    return sys.is_finalizing()


def _drive(loop: asyncio.AbstractEventLoop) -> None:
    """asyncio lets out KeyboardInterrupt and SystemExit of what it runs; others' sandboxes must not end with that."""
    while True:
        try:
            return loop.run_forever()
        except BaseException:
            traceback.print_exc()


def _after_fork() -> None:
    global _lock, _loop, _thread
    _lock, _loop, _thread = threading.Lock(), None, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class _Job:
    """A coroutine in the background loop, which another thread waits for. Ctrl-C may leave `begin` before or after it
    has begun; `stop` and `cancel` end it either way. `awaited`: no thread is held up: it may be that loop's own.
    """

    def __init__(self, work: Coroutine[Any, Any, Any], *, awaited: bool = False) -> None:
        self._work, self._task = work, None  # type: Coroutine[Any, Any, Any], Optional[asyncio.Task[Any]]
        self.future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        try:
            if _ending():
                raise SandboxError("the program ends, and its sandboxes have ended: close() or `with` ends them before")
            self._loop = background()
        except BaseException:
            work.close()
            raise
        self._thread, self._pid = _thread, os.getpid()
        if self._thread is threading.current_thread() and not awaited:
            work.close()
            raise SandboxError("a Sandbox can't be used in the thread that drives it: async functions use AsyncSandbox")

    def begin(self) -> None:
        self._loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        if not self.future.done():
            self._task = self._loop.create_task(self._work)
            self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self.future.set_exception(SandboxError("what was under way was cancelled"))
        elif task.exception() is not None:
            self.future.set_exception(task.exception())
        else:
            self.future.set_result(task.result())

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        elif not self.future.done():  # it has not begun, and never does
            self._work.close()
            self.future.set_exception(SandboxError("what was under way was cancelled"))

    def stop(self) -> None:
        """Has it cancelled: a cell is interrupted, say. `future` is done at its end."""
        self._loop.call_soon_threadsafe(self._stop)

    def cancel(self) -> None:
        """Cancels it, and waits for its end: but not in the loop's own thread, where the end could not come. There the
        garbage collector may close an iterator that nobody uses any more. In a fork's child it is the parent's."""
        if not _ending() and not self.future.done() and self._pid == os.getpid():
            self.stop()
            if self._thread is not threading.current_thread():
                concurrent.futures.wait([self.future])


def call(work: Coroutine[Any, Any, T]) -> T:
    """Runs the coroutine in the background loop and waits for it. A KeyboardInterrupt here cancels it there."""
    job = _Job(work)
    try:
        job.begin()
        result: T = job.future.result()
        return result
    except BaseException:
        job.cancel()
        raise


def begin(make: Callable[[], Coroutine[Any, Any, T]], undo: Callable[[], Optional[Coroutine[Any, Any, Any]]]) -> T:
    """As `call`, for the start of a `with`, which ends nothing where this raises: Ctrl-C may come when all was done.
    What `undo` gives then ends what was begun, if anything was."""
    try:
        return call(make())
    except BaseException:
        work = undo()
        if work is not None:
            end(work)
        raise


def end(work: Coroutine[Any, Any, Any]) -> None:
    """As `call`, for what ends something: where the interpreter ends, too, it has ended by itself."""
    if _ending():
        work.close()
    else:
        call(work)


def hearing(make: Callable[[Callable[[Any], None]], Coroutine[Any, Any, T]]) -> Generator[Any, None, T]:
    """As `call`, and gives what the coroutine tells by the function that `make` gets, in this thread."""
    news: queue.SimpleQueue[Any] = queue.SimpleQueue()
    end = object()
    job = _Job(make(news.put))
    job.future.add_done_callback(lambda f: news.put(end))
    try:
        job.begin()
        while True:
            if job._pid != os.getpid():
                raise ForkError(
                    f"what is told here belongs to process {job._pid}, and this is its child {os.getpid()}: nothing of "
                    "it comes here. Make a new Sandbox after the fork."
                )
            told = news.get()
            if told is end:
                result: T = job.future.result()
                return result
            yield told
    finally:
        job.cancel()
