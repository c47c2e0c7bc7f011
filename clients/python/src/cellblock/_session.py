"""One kernel, spoken to from one event loop: the engine below AsyncSandbox and Sandbox.

Invariants: used from the loop that started it, and from the process; each request ends, by its reply, by an error
when the kernel or the connection is gone, or by the caller's cancellation. Cells of one line (the main one, or a
branch) run one after the other, so that an interrupt is never another cell's.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import logging
import os
import time
import uuid
from typing import Any, Awaitable, Callable, Mapping, NamedTuple, Optional, Sequence, TypeVar, Union

from ._errors import ForkError, SandboxClosedError, SandboxError, ToolError, ValueTooLargeError, from_reply
from ._result import Event, Result
from ._run import Run, is_given_up, not_begun
from ._threads import Threads, outcome_of_call
from ._trace import mark, span, tell_result, traceparent
from ._wire import Message, Transport, new_message, to_json

Calls = Callable[[list[dict[str, Any]]], Awaitable[list[dict[str, Any]]]]
Input = Callable[[str, bool], Union[str, Awaitable[str]]]
T = TypeVar("T")

_log = logging.getLogger("cellblock.input")  # the tracebacks, for who wrote on_input
SILENCE = 30.0  # seconds without an answer after which the kernel is asked whether it is there
STILL = 5.0  # seconds beyond the grace after which a loop that has not ended its kernel is taken to stand still
LATE = 2.0  # seconds after a cell's reply within which its idle is there, if it was not lost
RESTARTED = (
    "the kernel was restarted by others: its variables and tools are gone. reset() gives a new one where connect() had "
    "it started; else make a new sandbox by connect()"
)
END_OF_FILE = "\x04"  # what input() takes for an end of file
AROUND = 4096  # bytes of a message beside its content
TYPISTS = 16  # threads for questions of `input()`: branches ask at once

serving: contextvars.ContextVar[tuple["Serving", ...]] = contextvars.ContextVar("cellblock_serving", default=())

AFTER_CELLS = (
    "cellblock_checkpoint_request", "cellblock_rollback_request", "cellblock_branch_request", "cellblock_adopt_request",
)


class Serving(NamedTuple):
    """Set while a cell is answered: of which session, and for which run (the id of its execute_request).

    The last one asks; those before it wait for that: its run was begun by one of their tools.
    """

    session: "Session"
    run: str


class Reply(NamedTuple):
    """A reply of the kernel: its content, its metadata, and the bytes that came with it."""

    content: dict[str, Any]
    metadata: dict[str, Any]
    buffers: list[bytes]


class Connected(NamedTuple):
    """What `connect` made: the way to the kernel, how to end it, and how it ended if it did."""

    transport: Transport
    end: Callable[[bool], Awaitable[None]]  # True: it has been asked to shut down
    why: Callable[[], str]
    pidfd: int = -1
    owned: bool = True


def _size(result: object) -> int:
    """Bytes that a host tool's result has in a message, where the answer is a text."""
    return len(to_json(json.dumps(result, ensure_ascii=False)))


def _fitted(answer: str, room: int, e: Exception) -> str:
    """The answer to calls with an error in place of its largest values, of as many as are to go for the room."""
    error = {"type": type(e).__name__, "message": str(e)}
    results = json.loads(answer)["results"]
    sizes = list(map(_size, results))
    whole = sum(sizes)
    for n in sorted(range(len(results)), key=sizes.__getitem__, reverse=True):
        if whole <= room:
            break
        if "error" not in results[n]:  # what was an error stays one
            results[n] = {"id": results[n]["id"], "error": error}
            whole += _size(results[n]) - sizes[n]
    return json.dumps({"results": results}, ensure_ascii=False)


def calls_in(question: Message) -> Optional[list[Any]]:
    """The calls of host tools that a cell asks for; None where it asks for a line of `input()`."""
    said = question.metadata.get("cellblock")
    calls = said.get("calls") if isinstance(said, dict) else None
    return calls if isinstance(calls, list) else None


class Session:
    """One kernel. `on_calls` answers host tool calls, `on_input` questions of `input()`; both run in the loop.

    `on_calls(calls)` gets the list of `input_request.metadata.cellblock.calls` and returns the list of results,
    `{"id", "ok"}` or `{"id", "error": {"type", "message"}}`; while it runs, `serving` says which run calls.
    An `on_input` that is not async runs in a thread.
    Each of `on_started` is awaited when the kernel has started, and again after a restart.
    """

    def __init__(self, connect: Callable[[], Awaitable[Connected]], grace: float = 5.0) -> None:
        self._connect, self.grace = connect, grace
        self.on_calls: Optional[Calls] = None
        self.on_over: Callable[[str], None] = lambda run: None  # a run has ended: it calls nothing any more
        self.on_input: Optional[Input] = None
        self._typists = Threads(TYPISTS, "cellblock-input")
        self.on_started: list[Callable[[], Awaitable[None]]] = []
        self.info: dict[str, Any] = {}
        self.connected: Optional[Connected] = None
        self.id = uuid.uuid4().hex
        self._pid = os.getpid()
        self.started = False  # and all hooks are done
        self._closed = self._over = False
        self._lost: Optional[str] = None
        self._kernel: Optional[str] = None  # the kernel's own session: another one's is another kernel
        self._heard = self._published = 0  # messages, and those of iopub among them
        self._pending: dict[str, asyncio.Future[Message]] = {}
        self._runs: dict[str, Run] = {}
        self._left: set[str] = set()  # ids of runs that nobody waits for, and that have not ended
        self._lines: dict[Optional[str], asyncio.Lock] = {}
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._loop: Optional[asyncio.AbstractEventLoop] = None

    # Start and end

    async def start(self) -> None:
        """Starts or connects; raises SandboxError where no kernel answers. Nothing is left behind then."""
        self.check_process()
        self._loop = asyncio.get_running_loop()
        self._lost, self._kernel, self._closed = None, None, False
        connected = await self._connect()
        if self._over:  # meanwhile
            await asyncio.shield(asyncio.ensure_future(self._end(connected, False)))
            raise SandboxClosedError("the sandbox was closed")
        self.connected = connected
        try:
            if self.connected.pidfd >= 0:
                self._loop.add_reader(self.connected.pidfd, self._process_ended, self.connected)
            opening = asyncio.ensure_future(self.connected.transport.open(self._receive, self._gone))
            await self._or_lost(opening)
            self.info = (await self.request("kernel_info_request", {}, channel="control")).content
            for hook in self.on_started:
                await hook()
            self.check()
            self.started = True
        except BaseException:
            await self.close(asked=False)
            raise

    async def _or_lost(self, task: asyncio.Future[None], within: float = 60.0) -> None:
        """Waits for the task, as long as the kernel is there."""
        lost = self._pending["start"] = asyncio.get_running_loop().create_future()
        if self._lost is not None:
            lost.set_exception(SandboxError(self._lost))
        try:
            await asyncio.wait({task, lost}, timeout=within, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
            elif lost.done():
                lost.result()
            else:
                raise SandboxError(f"the kernel did not answer within {within:g} seconds")
        finally:
            self._pending.pop("start", None)
            if lost.done() and not lost.cancelled():
                lost.exception()
            task.cancel()

    async def close(self, *, asked: bool = True, over: bool = False) -> None:
        """Ends a kernel that was started by this session, and leaves one that was connected to alone.

        `over`: no other is started after it, not even one that is on its way.
        """
        self.check_process()  # a child holds the descriptor by which its parent's kernel could be killed
        self._over = self._over or over
        connected = self.connected
        if self._loop is not None and not self.in_its_loop() and self._loop.is_running():
            if await self._closed_there(self._loop, asked, over):
                return
            if self._loop.is_running():  # what is that loop's own is left to it
                if connected is not None:
                    await asyncio.shield(asyncio.ensure_future(connected.end(False)))
                return
            self.connected = self.connected or connected  # that loop may have ended half way
        connected, self.connected = self.connected, None
        self._closed, self.started = True, False
        self._typists.close()
        if connected is None:
            return
        ask = asked and self._lost is None and connected.owned
        try:
            if ask:
                with contextlib.suppress(Exception):
                    connected.transport.send("control", self._message("shutdown_request", {"restart": False}))
            self._forget(connected)
            self._fail("the sandbox was closed", SandboxClosedError)
        finally:
            # however often the caller gives up waiting, no process is left
            ending = asyncio.ensure_future(self._end(connected, ask))
            await asyncio.shield(ending)

    async def _closed_there(self, loop: asyncio.AbstractEventLoop, asked: bool, over: bool) -> bool:
        """Has it closed in its own loop, which another thread runs and which alone can wake what waits there. False:
        that loop has ended first, or stands still: perhaps what runs there waits for this thread."""
        closing = asyncio.run_coroutine_threadsafe(self.close(asked=asked, over=over), loop)
        here, ended = asyncio.get_running_loop(), asyncio.Event()

        def tell(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # nobody waits here any more
                here.call_soon_threadsafe(ended.set)

        closing.add_done_callback(tell)
        late = time.monotonic() + self.grace + STILL
        while not closing.done() and loop.is_running() and time.monotonic() < late:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(ended.wait(), 1)
        if not closing.done() or closing.cancelled():
            return False
        closing.result()
        return True

    async def _end(self, connected: Connected, asked: bool) -> None:
        try:
            await connected.end(asked)
        finally:
            await connected.transport.close()

    def _forget(self, connected: Connected) -> None:
        if connected.pidfd >= 0 and self._loop is not None:
            self._loop.remove_reader(connected.pidfd)

    async def restart(self) -> None:
        """A new kernel in place of the old one, with nothing of it."""
        self.check_process()
        if self.connected is not None and not self.connected.owned:
            raise SandboxError("this kernel was connected to, not started here: restart it where it was started")
        await self.close()
        self._lines.clear()
        self._left.clear()
        if self._over:
            raise SandboxClosedError("the sandbox was closed")
        await self.start()

    def check_process(self) -> None:
        """ForkError in a child of the process that started this."""
        if self._loop is None:
            self._pid = os.getpid()
        if os.getpid() != self._pid:
            raise ForkError(
                f"this sandbox belongs to process {self._pid}, and this is its child {os.getpid()}: a kernel's "
                "connection can't be shared. Make a new Sandbox after the fork."
            )

    def _serves(self) -> Optional[Run]:
        """The run of this session that waits for what this is a part of."""
        waiting = (self._runs.get(s.run) for s in serving.get() if s.session is self)
        return next((run for run in waiting if run is not None), None)

    def in_its_loop(self) -> bool:
        """Whether this is the event loop that it was started in."""
        return self._loop is asyncio.get_running_loop()

    def check(self) -> Transport:
        """The way to the kernel; an error that says why there is none."""
        self.check_process()
        if self._lost is not None:
            raise SandboxError(self._lost)
        if self.connected is None:
            raise SandboxClosedError("the sandbox is closed" if self._closed else "the sandbox was not started")
        if self._loop is not asyncio.get_running_loop():
            raise SandboxError(
                "the sandbox was started in another event loop: use it there, or close it and make a new AsyncSandbox "
                "here. A Sandbox, without asyncio, may be used from any thread"
            )
        return self.connected.transport

    def _process_ended(self, connected: Connected) -> None:
        self._forget(connected)
        self._gone(connected.why())

    def _gone(self, why: str) -> None:
        if self._lost is None and self.connected is not None:
            self._lost = why
            self._fail(why, SandboxError)

    def _fail(self, why: str, kind: type[SandboxError]) -> None:
        if self._loop is None or self._loop.is_closed():  # nobody waits: nor is held what would never go on
            self._pending.clear()
            self._runs.clear()
            self._lines.clear()
            self._asked.clear()
            return
        for future in list(self._pending.values()):
            if not future.done():
                future.set_exception(kind(why))
        for run in list(self._runs.values()):
            run.end(kind(why))

    # Messages

    def _message(
        self,
        msg_type: str,
        content: Mapping[str, Any],
        metadata: Optional[Mapping[str, Any]] = None,
        buffers: Sequence[bytes] = (),
        subshell: Optional[str] = None,
    ) -> Message:
        return new_message(msg_type, content, self.id, metadata=metadata, buffers=buffers, subshell=subshell)

    def _is_another_kernels(self, channel: str, m: Message) -> bool:
        """Whether the message tells of a restart. A server says so in a session of its own; the kernel that is known
        says in its own that its jail is restarted."""
        if self._kernel is None or m.header.get("session") == self._kernel:
            return False
        if channel == "iopub":
            return m.type == "status" and m.content.get("execution_state") in ("starting", "restarting", "dead")
        return m.parent_id in self._pending or m.parent_id in self._runs

    def _receive(self, channel: str, m: Message) -> None:
        self._heard += 1
        self._published += channel == "iopub"
        if self._is_another_kernels(channel, m):
            self._gone(RESTARTED)
            return
        run = self._runs.get(m.parent_id)
        if channel == "stdin":
            if m.type == "input_request" and run is not None:
                run.question = m  # an eager task may answer before it is there
                task = run.context.copy().run(asyncio.ensure_future, self._answer(run.id, m))
                run.asked.add(task)
                task.add_done_callback(run.asked.discard)
                self._asked[str(m.header.get("msg_id"))] = task
                task.add_done_callback(lambda t: self._asked.pop(str(m.header.get("msg_id")), None))
            elif m.type == "input_request" and m.parent_id in self._left:
                self._refuse(m)
        elif is_given_up(channel, m):  # its parent is whose the first of that was: what others said may be in it, too
            for each in self._runs.values():
                each.gave_up(m)
        elif run is not None:
            run.receive(channel, m)
        else:
            if m.type == "execute_reply":
                self._left.discard(m.parent_id)
            future = self._pending.get(f"iopub {m.parent_id}" if channel == "iopub" else m.parent_id)
            if future is not None and not future.done():
                future.set_result(m)
                if m.type == "kernel_info_reply":
                    self._kernel = m.header.get("session")

    async def request(
        self,
        msg_type: str,
        content: Mapping[str, Any],
        *,
        metadata: Optional[Mapping[str, Any]] = None,
        buffers: Sequence[bytes] = (),
        channel: str = "shell",
        subshell: Optional[str] = None,
        keep: Optional[Callable[[Mapping[str, Any]], None]] = None,
    ) -> Reply:
        """Sends a request and waits for its reply. Raises what the reply says where its status is not ok.

        Cancelling it takes back what waits in a line of cells, and ends a command (docs/messages.md). What goes on all
        the same is not lost: `keep` gets the content of a reply that is ok, whenever it comes.
        """
        transport = self.check()
        served = self._serves()
        if served is not None and channel == "shell":
            if served.line is None and msg_type in AFTER_CELLS:
                raise ToolError("a host tool can't do that to the sandbox that calls it: that cell waits for the tool")
            channel = "control"  # else it would wait behind the cell
        if msg_type.startswith("cellblock_") and traceparent() is not None:
            metadata = {**(metadata or {}), "cellblock": mark((metadata or {}).get("cellblock"))}
        message = self._message(msg_type, content, metadata, buffers, subshell)
        msg_id = str(message.header["msg_id"])
        transport.send(channel, message)
        try:
            reply = await self._answered(self._expected(msg_id, keep))
        except asyncio.CancelledError:
            self._interrupt_one(msg_id)
            raise
        if reply.content.get("status", "ok") != "ok":
            raise from_reply(reply.content, content.get("path"))
        return Reply(reply.content, reply.metadata, reply.buffers)

    def _expected(
        self, msg_id: str, keep: Optional[Callable[[Mapping[str, Any]], None]]
    ) -> asyncio.Future[Message]:
        """The reply to a request, which may come when nobody waits for it any more."""

        def came(future: asyncio.Future[Message]) -> None:
            self._pending.pop(msg_id, None)
            if future.exception() is None and keep is not None:
                content = future.result().content
                if content.get("status", "ok") == "ok":
                    keep(content)

        future = self._pending[msg_id] = asyncio.get_running_loop().create_future()
        future.add_done_callback(came)
        return future

    async def _answered(self, future: asyncio.Future[T]) -> T:
        """Waits for the future. A kernel whose end this process can't see is asked now and then whether it is there."""
        while not future.done():
            watched = self.connected is not None and self.connected.pidfd >= 0
            await asyncio.wait({future}, timeout=None if watched else SILENCE)
            if not future.done() and not await self._gives_a_sign("control"):
                self._gone(f"the kernel has not answered for {3 * SILENCE:g} seconds")
        return future.result()

    async def _gives_a_sign(self, channel: str, *ends: asyncio.Future[Any]) -> bool:
        """Asks the kernel, twice: this loop may have stood still meanwhile, and a server's answers stand in a queue.

        "control": whether it lives, which any message says. "iopub": whether what it publishes about the question has
        come, and so all that it had published before, or that is lost; while more of that comes it is asked again.
        Or one of `ends` has come.
        """
        signs: dict[str, asyncio.Future[Message]] = {}
        asked = 0
        try:
            while asked < 2:
                message, heard, published = self._message("kernel_info_request", {}), self._heard, self._published
                key = f"{'iopub ' if channel == 'iopub' else ''}{message.header['msg_id']}"
                signs[key] = self._pending[key] = asyncio.get_running_loop().create_future()
                self.check().send("control", message)
                waited = {*signs.values(), *ends}
                done, _ = await asyncio.wait(waited, timeout=SILENCE, return_when=asyncio.FIRST_COMPLETED)
                if done or (channel == "control" and self._heard != heard):
                    return True
                asked = 0 if self._published != published else asked + 1
            return False
        finally:
            for key, sign in signs.items():
                self._pending.pop(key, None)
                if sign.done():
                    sign.exception()  # it is gone, perhaps: who waits hears of it

    async def _answer(self, run: str, m: Message) -> None:
        """Answers a question of a cell: calls of host tools, or of `input()`."""
        outer = (s for s in serving.get() if s.run in s.session._runs)
        serving.set((*outer, Serving(self, run)))
        calls = calls_in(m)
        if calls is not None:
            value = await self._called(calls)
        elif self.on_input is not None:
            prompt, password = str(m.content.get("prompt", "")), m.content.get("password") is True
            typed, error = await outcome_of_call(self._typists, self.on_input, prompt, password)
            if error is not None:
                _log.info("on_input raised", exc_info=error)
            elif not isinstance(typed, str):
                _log.info("on_input gave %.100r, which is no text", typed)
            value = typed if error is None and isinstance(typed, str) else END_OF_FILE
        else:
            value = END_OF_FILE
        value = value.encode("utf-8", "replace").decode()
        with contextlib.suppress(SandboxError, ValueTooLargeError):
            try:
                self._say(run, m, value)
            except ValueTooLargeError as e:
                for room in () if calls is None else (self.check().most - AROUND, 0):
                    with contextlib.suppress(ValueTooLargeError):
                        self._say(run, m, _fitted(value, room, e))
                        return
                self._say(run, m, END_OF_FILE)

    def _say(self, run: str, m: Message, value: str) -> None:
        newest = self._runs[run].question if run in self._runs else m
        if newest is not m and (calls_in(m) is None or newest is None or calls_in(newest) is None):
            return  # the cell was interrupted in this question: the answer would be one to the next. Calls have ids
        self._reply_to(m, value)

    def _reply_to(self, question: Message, value: str) -> None:
        """It names where the cell was sent, though the run may be over: else the main line would get it."""
        line = question.parent.get("subshell_id")
        reply = self._message("input_reply", {"status": "ok", "value": value}, subshell=line)
        self.check().send("stdin", reply._replace(parent=question.header))

    def _refuse(self, question: Message) -> None:
        """Of a cell that goes on though its caller has given up: without an answer it would wait, and others for it."""
        calls = calls_in(question)
        why = ToolError("nobody waits for this cell any more")
        value = END_OF_FILE if calls is None else self._failed(calls, why)
        with contextlib.suppress(SandboxError, ValueTooLargeError):
            self._reply_to(question, value)

    async def _called(self, calls: list[Any]) -> str:
        try:
            if self.on_calls is None:
                raise ToolError("this client has no tools")
            results = await self.on_calls(calls)
            return json.dumps({"results": results}, allow_nan=False, ensure_ascii=False)
        except Exception as e:  # whatever a tool does: the cell gets an answer
            return self._failed(calls, e)

    @staticmethod
    def _failed(calls: list[Any], e: Exception) -> str:
        error = {"type": type(e).__name__, "message": str(e)}
        said = {"error": error, "completed": False}
        return json.dumps({"results": [{"id": c.get("id"), **said} for c in calls if isinstance(c, dict)]})

    # Cells

    async def run(
        self,
        code: str,
        *,
        metadata: Optional[Mapping[str, Any]] = None,
        on_event: Optional[Callable[[Event], None]] = None,
        subshell: Optional[str] = None,
        store_history: bool = True,
        keep: Optional[Callable[[Result], None]] = None,
    ) -> Result:
        """Runs a cell to its end. Cancelling it interrupts the cell and waits at most `grace` seconds for the end.

        `keep` gets the result also where the run is cancelled or the kernel is lost: what there is by then.
        """
        if self._serves() is not None:
            raise ToolError("a host tool can't run code in the sandbox that calls it: that cell waits for the tool")
        self.check()
        about = {"cellblock.session": self.id, "cellblock.branch": subshell}
        async with contextlib.AsyncExitStack() as stack:
            held = stack.enter_context(span("cellblock.run" if store_history else "cellblock.variable", about))
            try:
                await stack.enter_async_context(self._lines.setdefault(subshell, asyncio.Lock()))
            except asyncio.CancelledError:
                if keep is not None:
                    keep(not_begun())
                raise
            transport = self.check()  # it may have ended while others ran
            message = self._message(
                "execute_request",
                {
                    "code": code,
                    "silent": False,
                    "store_history": store_history,
                    "user_expressions": {},
                    "allow_stdin": self.on_calls is not None or self.on_input is not None,
                    "stop_on_error": False,
                },
                {"cellblock": mark(metadata)},
                subshell=subshell,
            )
            run = Run(str(message.header["msg_id"]), subshell, on_event)
            self._runs[run.id] = run
            result: Optional[Result] = None
            stopping: Optional[asyncio.Future[None]] = None
            try:
                transport.send("shell", message)
                await self._to_the_end(run)
                result = run.result()
            except asyncio.CancelledError:
                stopping = asyncio.ensure_future(self._stop(run))
                stopping.add_done_callback(lambda _: self._ended(run))
                try:
                    await asyncio.shield(stopping)  # who gives up twice does not leave it half stopped
                finally:
                    result = run.so_far()
                raise
            except SandboxError as e:
                result = run.result(partial=True, lost=str(e))
                raise
            finally:
                if stopping is None:
                    self._ended(run)
                if result is not None:
                    tell_result(held, result, run.restored_to)
                if keep is not None and result is not None:
                    keep(result)
            return result

    def _ended(self, run: Run) -> None:
        """Nothing is done for it any more. It may go on: a cell that catches interrupts."""
        self._runs.pop(run.id, None)
        if run.interrupted and not run.replied.done():
            self._left.add(run.id)
        for asked in run.asked:
            asked.cancel()  # nobody waits for the answer
        self.on_over(run.id)

    async def _to_the_end(self, run: Run) -> None:
        """Waits for reply and idle. The idle may be lost: the kernel sets aside who does not read what it publishes,
        as a program that is stopped for a while."""
        await self._answered(run.replied)
        await asyncio.wait({run.done}, timeout=LATE)
        if not run.done.done():
            await self._gives_a_sign("iopub", run.done)
            run.end(torn=True)
        run.done.result()

    async def _stop(self, run: Run) -> None:
        """Interrupts a run whose caller waits no more; after the grace once more, which ends C code that holds Python.

        One that has not begun is aborted. A cell that catches interrupts goes on: `timeout.cell` ends it.
        """
        if run.done.done() or self._lost is not None or self.connected is None:
            return
        run.interrupted = True
        self._interrupt_one(run.id)
        await asyncio.wait({run.done}, timeout=self.grace)
        if not run.done.done():
            self._interrupt_one(run.id)
        elif not run.done.cancelled():
            run.done.exception()

    def _interrupt_one(self, msg_id: str) -> None:
        """Of a request that nobody waits for: what waits is not begun, a cell or command that runs is interrupted."""
        with contextlib.suppress(SandboxError):
            self.check().send("control", self._message("interrupt_request", {"msg_id": msg_id}))

    async def interrupt(self, subshell: Optional[str] = None) -> None:
        """Interrupts the running cell of the main line, or of a branch; and the commands of `run_command`."""
        for run in self._runs.values():
            run.interrupted = run.interrupted or run.line == subshell
        await self.request("interrupt_request", {}, channel="control", subshell=subshell)
