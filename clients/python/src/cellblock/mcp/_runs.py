"""A run of `run_python`, and the question that it may have to ask the client's user: may this tool be called?

Trust domain: host. Invariants: only an accepted form with a yes lets a call happen; without a client that can ask, or
without an answer, it does not. With the protocol from 2026-07-28 on, which has no requests to the client, the run is
parked while the question travels in the reply, and the retry goes on with it: no cell runs twice.
"""

from __future__ import annotations

import asyncio
import contextvars
import secrets
from typing import Any, Callable, Coroutine, Mapping, Optional, Union

import anyio
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from pydantic import BaseModel, Field

from .._result import Result
from .._tools import Call

MODERN = "2026-07-28"
KEY = "approve"
MAX_SHOWN = 4000
WAIT = 600.0  # seconds for an answer; the policy's timeout.wait may be less


class Approval(BaseModel):
    """The form that a user fills in."""

    approve: bool = Field(title="Let it run")


class Question:
    """A question to the user. An answer is for this one alone, whatever the cell asks later."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.future: asyncio.Future[Union[bool, str]] = asyncio.get_running_loop().create_future()

    def answer(self, said: Union[bool, str]) -> None:
        if not self.future.done():
            self.future.set_result(said)


class Run:
    """A cell that runs, whoever waits for it."""

    def __init__(self, work: Callable[[Run], Coroutine[Any, Any, Result]]) -> None:
        self.ctx: Optional[Context[Any, Any]] = None
        self.session: Any = None
        self._asked: asyncio.Queue[Question] = asyncio.Queue()
        self._line = asyncio.Lock()
        token = _now.set(self)
        try:
            self.task = asyncio.ensure_future(work(self))
        finally:
            _now.reset(token)

    async def ask(self, text: str) -> Union[bool, str]:
        """Waits for the user's answer; one question at a time."""
        async with self._line:
            question = Question(text)
            self._asked.put_nowait(question)
            try:
                return await asyncio.wait_for(question.future, WAIT)
            except (asyncio.TimeoutError, TimeoutError):
                return f"the user did not answer within {WAIT:g} seconds"

    async def step(self) -> Optional[Question]:
        """The next question, or None when the cell has ended."""
        while True:
            asked = asyncio.ensure_future(self._asked.get())
            try:
                await asyncio.wait({self.task, asked}, return_when=asyncio.FIRST_COMPLETED)
                if not asked.done():
                    return None
                if not asked.result().future.done():  # else the call has ended meanwhile
                    return asked.result()
            finally:
                asked.cancel()


_now: contextvars.ContextVar[Optional[Run]] = contextvars.ContextVar("cellblock_mcp_run", default=None)


async def approve(call: Call) -> Union[bool, str]:
    """`approve` of tools that need a user's word: asks the client that runs the cell."""
    run = _now.get()
    if run is None:
        return "there is nobody to ask"
    shown = str(call)
    if len(shown) > MAX_SHOWN:
        return f"the call is too long to be shown: more than {MAX_SHOWN} characters"
    return await run.ask(f"The code that runs in the sandbox wants to call a tool outside of it: {shown}")


def _said(answer: Any) -> Union[bool, str]:
    """What the user's form says; everything but a yes is a no."""
    if isinstance(answer, Mapping):
        try:
            answer = ElicitResult.model_validate(answer)
        except ValueError:
            return False
    if getattr(answer, "action", None) != "accept":
        return "the user declined" if getattr(answer, "action", None) == "decline" else "the user did not answer"
    content = answer.content if isinstance(answer, ElicitResult) else None
    return True if content is not None and content.get(KEY) is True else "the user declined"


class Runs:
    """The runs that are parked: their question is with the client."""

    def __init__(self) -> None:
        self._parked: dict[str, tuple[Run, Question]] = {}

    def resumed(self, ctx: Context[Any, Any]) -> Optional[Run]:
        """The run that this request goes on with, its question answered. None: it is a new one."""
        if ctx.request_state is None:
            return None
        parked = self._parked.pop(ctx.request_state, None)
        if parked is None:
            raise ToolError("this run has ended, or was resumed already: its result is gone")
        run, question = parked
        question.answer(_said((ctx.input_responses or {}).get(KEY)))
        return run

    async def to_the_end(self, run: Run, ctx: Context[Any, Any]) -> Union[Result, InputRequiredResult]:
        """Waits for the cell, and has its questions answered on the way. Cancelling interrupts the cell."""
        run.ctx = ctx
        try:
            while True:
                question = await run.step()
                if question is None:
                    break
                parked = await self._ask(run, ctx, question)
                if parked is not None:
                    return parked
        except asyncio.CancelledError:
            run.task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({run.task})
            raise
        return run.task.result()

    async def _ask(self, run: Run, ctx: Context[Any, Any], question: Question) -> Optional[InputRequiredResult]:
        can = ctx.client_capabilities
        if can is None or can.elicitation is None:
            question.answer("the MCP client can't ask its user")
        elif (ctx.protocol_version or "") >= MODERN:
            key = secrets.token_urlsafe(24)
            self._parked[key] = run, question
            run.task.add_done_callback(lambda _: self._parked.pop(key, None))
            schema = Approval.model_json_schema()
            form = ElicitRequest(params=ElicitRequestFormParams(message=question.text, requested_schema=schema))
            return InputRequiredResult(input_requests={KEY: form}, request_state=key)
        else:
            asked = asyncio.ensure_future(_elicited(ctx, question))
            try:  # whoever answers never must not hold up the reply: the call, or its cell, may have ended meanwhile
                either: set[asyncio.Future[Any]] = {asked, question.future}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            finally:
                asked.cancel()
        return None


async def _elicited(ctx: Context[Any, Any], question: Question) -> None:
    try:
        said: Any = await ctx.elicit(question.text, Approval)
        yes = said.action == "accept" and said.data.approve is True
        question.answer(True if yes else "the user declined")
    except Exception:
        question.answer("the MCP client did not answer")
