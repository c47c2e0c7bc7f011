"""The user's asyncio loop: lives in the main thread, goes on between cells, is marked as running while a cell runs.

asyncio is never imported by us: set up when user code (or IPython) imports it. The loop polls (no epoll: nothing shared
after a fork). While it has nothing to do, the main thread waits on the wire and on the loop's own wake-up fd only.
"""

import contextvars
import select
import sys
from _thread import get_ident
from weakref import WeakSet

from . import context

_BESIDE = __name__.rpartition(".")[0] + ".beside"


def _from_task(tb):
    """Without the loop's frames, which are long to show and tell nobody anything: from the cell's own coroutine on."""
    at = tb
    while at is not None and at.tb_frame.f_code.co_name != "in_cell_context":
        at = at.tb_next
    return at or tb


def _is_users(callback):
    """No function of asyncio's, no method of an object of its, and not what reads the wire beside a cell."""
    owner = getattr(callback, "__self__", None)
    made_by = callback if owner is None or type(owner) is type(sys) else type(owner)
    module = getattr(made_by, "__module__", None) or ""
    return module != _BESIDE and module.partition(".")[0] not in ("asyncio", "_asyncio")


def _numbers(pairs):
    """Of sockets, those that are open."""
    pairs = [(ours.fileno(), theirs.fileno()) for ours, theirs in pairs if ours is not None and theirs is not None]
    return [pair for pair in pairs if -1 not in pair]


class Aio:
    def __init__(self, wire, interrupts, of=None):
        """of: the main thread's, in a subshell's; that one knows all loops."""
        self.wire = wire
        self.interrupts = interrupts
        self.loop = None
        self.aside = None  # what runs in other threads' cells
        self.asyncio = None
        self.loops = of.loops if of else WeakSet()  # the user's as well
        self._of_subshell = of is not None
        self._watches = False
        self.in_cell = False
        self.executing = False  # a client's cell, not what a comm's handler runs
        self.loop_runs = False  # an await-cell runs
        self.context = contextvars.copy_context()  # cells see each other's context variables
        self.interrupted = False
        self.given_up = None  # why the cell's coroutine is cancelled, when nobody interrupted it
        self.beside = None  # told (True, then False) when an await-cell begins and ends; serves what comes meanwhile
        self.serving = False  # it does
        self.postponed = False  # the loop, whose self-pipe is no process's but one's: a zygote has none
        self._poll = None

    def on_import(self, asyncio):
        import selectors

        self.asyncio = asyncio
        if not self._watches and not self._of_subshell:
            self._watches = True
            self._watch(sys.modules["asyncio.selector_events"].BaseSelectorEventLoop, selectors.PollSelector)
        if not self.postponed:
            self._make_loop()
        here = self._here()
        if here.asyncio is None:  # a subshell's cell is what imports it
            here.on_import(asyncio)

    def no_more_postponed(self):
        self.postponed = False
        if self.asyncio is not None:
            self._make_loop()

    def _make_loop(self):
        import selectors

        asyncio = self.asyncio
        loop = asyncio.SelectorEventLoop(selectors.PollSelector())
        poll = select.poll()
        poll.register(self.wire.fd, select.POLLIN)
        poll.register(loop._ssock.fileno(), select.POLLIN)
        if get_ident() == self.wire.main:
            if self._of_subshell:  # beside others' cells
                from .quiet import muted

                muted(asyncio.set_event_loop)(loop)
            else:
                import warnings

                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)
                    asyncio.set_event_loop(loop)
        self._poll, self.loop = poll, loop  # an interrupt comes before both or after both
        if get_ident() == self.wire.main and self.in_cell:
            self._mark(True)

    def _watch(self, base, default):
        """Every loop polls and is known: a copy of the process needs own self-pipes, and would share an epoll."""
        made = base.__init__

        def __init__(loop, selector=None):
            made(loop, default() if selector is None else selector)
            self.loops.add(loop)

        __init__.__doc__ = made.__doc__
        base.__init__ = __init__

    def self_pipes(self):
        """(fd, fd) of the two ends of each loop's self-pipe."""
        return _numbers((loop._ssock, loop._csock) for loop in list(self.loops))  # which another thread may close

    def other_pairs(self, pipes):
        """The same of pairs that are none of these, with which trio and others wake their loops."""
        pairs = _numbers((ours(), theirs()) for ours, theirs in list(context.socket_pairs.items()))
        return [pair for pair in pairs if pair not in pipes and pair[::-1] not in pipes]

    def _mark(self, running):
        loop = self.loop
        loop._thread_id = self.wire.main if running else None
        self.asyncio._set_running_loop(loop if running else None)

    def run_plain(self, function, *args):
        """Calls function in the cells' context, with the loop marked as running."""
        try:
            self.in_cell = True
            if self.loop is not None:
                self._mark(True)
            return self.context.run(function, *args)
        finally:
            self.interrupts.shield += 1  # a loop that stays marked never runs again
            self.in_cell = False
            if self.loop is not None:
                self._mark(False)
            self.interrupts.unshield()

    def ensure(self):
        if self.loop is None:
            import asyncio  # noqa: F401  (the import hook calls on_import)

            if self.loop is None:
                self.on_import(sys.modules["asyncio"])
        return self.loop

    def run_coroutine(self, function, *args):
        """Runs a cell's coroutine function as a task. SIGINT cancels it; the cell then sees KeyboardInterrupt (see
        awaiting)."""
        here, interrupts = self._here(), self.interrupts
        if here is not self:
            return here.run_coroutine(function, *args)
        loop = self.ensure()
        if get_ident() != self.wire.main:
            return self._elsewhere().run_until_complete(function(*args))
        if self.loop_runs:
            raise RuntimeError("This event loop is already running")

        async def in_cell_context():
            try:
                return await function(*args)
            finally:
                self.context = contextvars.copy_context()

        beside = self.beside if self.executing and get_ident() == self.wire.main else None
        interrupts.shield += 1  # none comes between the coroutine and its task, who alone can be told of it
        try:
            try:
                self._mark(False)  # before there is the task, which an eager factory begins in a loop that runs
                task = loop.create_task(in_cell_context())
                self.interrupted, self.given_up = False, None
                self.loop_runs = True
                interrupts.on_async = lambda: self._on_interrupt(task)
                if beside:
                    beside(True)
            finally:
                interrupts.shield -= 1
            while True:
                try:
                    if interrupts.pending and not interrupts.shield:
                        interrupts.deliver()
                    value = loop.run_until_complete(task)
                    if self.given_up is not None:  # and the cell has taken the cancellation for itself
                        raise self.given_up
                    return value
                except KeyboardInterrupt as e:
                    if task.done():
                        raise e.with_traceback(_from_task(e.__traceback__))
                    self.interrupted = True
                    task.cancel()
                except self.asyncio.CancelledError:
                    if not self.interrupted:
                        raise
                    raise KeyboardInterrupt from None
                except BaseException as e:  # a task's sys.exit(), or the loop was stopped: the cell does not go on
                    if task.done() or (self.given_up is not None and not isinstance(e, SystemExit)):
                        raise
                    if self.given_up is None:  # else another task has exited, too, while the cell cleans up
                        self.given_up = e
                        task.cancel()
        finally:
            interrupts.shield += 1  # what is told of a task that is over does nothing, for good
            if beside:
                beside(False)
            interrupts.on_async = None
            self.loop_runs = False
            self._mark(True)
            interrupts.unshield()

    def wake(self):
        """From another thread, which may have done what the loop waits for, and which had no way to say so: it set a
        future's result."""
        try:
            if self.loop is not None:
                self.loop.call_soon_threadsafe(bool)
        except RuntimeError:  # it is closed
            pass

    def _here(self):
        """Of the shell whose thread this is: a subshell's code may run cells in the main one."""
        lane = context.subshell()
        return lane.aio if lane and lane.aio else self

    def _elsewhere(self):
        """A loop for what a thread of the user's runs as a cell: not the cells' own, as under ipykernel, and kept for
        the next time."""
        if self.aside is None or self.aside.is_closed() or self.aside.is_running():
            self.aside = self.asyncio.new_event_loop()
        return self.aside

    def _on_interrupt(self, task):
        """True if nothing but the loop itself runs: then the cell's task is cancelled at its await."""
        if self.serving or self.runs_users():
            return False
        self.interrupted = True
        self.loop.call_soon_threadsafe(task.cancel)
        return True

    def runs_users(self):
        """Whether the loop is in the user's code."""
        return self.asyncio.current_task(self.loop) is not None or self._calls_users()

    def _calls_users(self):
        """Whether the loop's thread is in a callback of the user's."""
        call = self._call_of(self.wire.main)
        return call is not None and _is_users(call.f_locals["self"]._callback)

    def _call_of(self, thread):
        """The frame of the callback that the thread is in, if it is in one."""
        calls = self.asyncio.Handle._run.__code__
        if thread == get_ident():  # of all threads it can end in a deadlock with one that ends (CPython's gh-106883)
            frame = sys._getframe()
        else:
            frame = sys._current_frames().get(thread)
        while frame is not None and frame.f_code is not calls:
            frame = frame.f_back
        return frame

    async def awaiting(self, awaitable):
        """Awaits a cell's code; a cancellation that an interrupt caused surfaces as KeyboardInterrupt."""
        try:
            return await awaitable
        except self.asyncio.CancelledError as e:
            here = self._here()
            if not here.interrupted and here.given_up is not None:
                cause, here.given_up = here.given_up, None
                raise cause from None
            if not here.interrupted:
                raise
            here.interrupted = False
            where = e.__traceback__.tb_next
        except BaseException:  # the cell ends with an error of its own, and that is the one that is told
            self._here().given_up = None
            raise
        raise KeyboardInterrupt().with_traceback(where)

    def _idle(self):
        loop = self.loop
        return not loop._ready and not loop._scheduled and len(loop._selector.get_map()) <= 1

    def wait_readable(self):
        """Returns when the wire is readable; the loop runs meanwhile if it has anything to do."""
        loop, fd = self.loop, self.wire.fd
        arrived = []
        self.interrupts.task_ended = False

        def on_frame():
            arrived.append(True)
            loop.stop()

        while not arrived and not loop.is_closed():
            if self._idle() and any(ready == fd for ready, _ in self._poll.poll()):
                return
            loop.add_reader(fd, on_frame)
            self.interrupts.in_tasks = self.runs_users
            try:
                self.run_tasks(loop.run_forever)
            finally:
                self.interrupts.in_tasks = None
                if not loop.is_closed():
                    loop.remove_reader(fd)

    def run_tasks(self, run_forever):
        """Between cells, until the loop is stopped."""
        self._mark(False)  # a cell may have left its mark
        try:
            run_forever()
        except BaseException:  # SystemExit or KeyboardInterrupt of a task: it is that task's end only
            import traceback

            traceback.print_exc()

    def close(self):
        """In a subshell's thread that ends. What its tasks would have done is nobody's concern."""
        for loop in (self.loop, self.aside):
            if loop is not None and not loop.is_running() and not loop.is_closed():
                for task in self.asyncio.all_tasks(loop):
                    task._log_destroy_pending = False
                loop.close()
