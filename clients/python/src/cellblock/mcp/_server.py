"""The MCP server's tools, over AsyncSandbox.

Trust domain: host, between a model's client and the jail. Invariants: nothing that a client sends runs outside the
jail; nothing is ever written through from an overlay workspace; a call that is cancelled interrupts its cell and the
session's state stays.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
import contextlib
import dataclasses
import os
import time
from typing import Annotated, Any, AsyncIterator, Callable, Coroutine, Optional, TypeVar, Union

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp_types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import AfterValidator, Field

from .. import AsyncSandbox, CellblockError, SandboxError, __version__
from .._errors import CommandError, RequestError
from .._result import Result, plain, shorten
from . import _reply
from ._proxy import Proxies
from ._runs import Run, Runs
from ._sessions import McpSession, SessionError, Sessions

T = TypeVar("T")
MAX_CODE = 1 << 20
MAX_FILE = 4 << 20  # of one read_file or write_file
INSTRUCTIONS = """\
Runs Python in a jail: no network unless the policy allows it, an empty home, one folder. Variables, imports and files
stay from call to call of one session. Each result names its session; pass that name on to go on there. The session
goes on after a cell that crashes, hangs or eats all memory. `state` says what became of the variables: "kept",
"restored" (as before the cells that `undone` names: this one, in rare cases also some before it), or "lost". Files may
stay as it left them. `fault` says who is to blame ("code", "limit", or "infrastructure": then it was not the code)."""


def _whole(text: str) -> str:
    """JSON can hold half of a character; on its way it would become a question mark."""
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise ValueError(f"half a character (a lone surrogate) at position {e.start}: send both halves") from None
    return text


Text = Annotated[str, AfterValidator(_whole)]
Timeout = Annotated[
    Optional[float], Field(gt=0, allow_inf_nan=False, description="Seconds; can only lower the policy's")
]
Session = Annotated[
    Optional[str],
    Field(description="Name of a session, as an earlier result gave it; left out: the usual one; \"new\": a new one"),
]
Path = Annotated[Text, Field(description="Relative to the workspace")]


@dataclasses.dataclass
class Options:
    """What the command line asked for."""

    files: bool = False
    checkpoints: bool = False
    sessions: int = 8
    lifetime: float = 3600.0
    shared: bool = False  # several clients: none has a session by default
    proxy: Optional[dict[str, dict[str, Any]]] = None  # other servers, whose tools the code inside may call


class Done(_reply.Reply):
    """What was done, in which session."""

    text: str = ""


class FileContent(_reply.Reply):
    """A file's content: `text` where it is UTF-8, else `base64`. `truncated`: it has more than these `size` bytes. A
    text ends with a whole character."""

    path: str
    size: int
    text: Optional[str] = None
    base64: Optional[str] = None
    truncated: bool = False


class Listing(_reply.Reply):
    """What is in a folder."""

    path: str
    entries: list[dict[str, Any]]


class Changes(_reply.Reply):
    """What an overlay workspace changed, beside the folder that it shows."""

    changes: list[dict[str, Any]]


class CommandSandbox(AsyncSandbox):
    """A sandbox that a command line describes: errors name its options, and no keywords."""

    def _word(self, option: str) -> Optional[str]:
        if option == "python" and self._process is not None:  # that of the kernelspec beside the program
            prefix = os.path.dirname(os.path.dirname(self._process.argv[0]))
            return f"`cellblock install --prefix {prefix} --python`"
        return "--workspace" if option == "workspace" else None


def _told(error: Exception, session: Optional[McpSession]) -> str:
    """An error, as the model reads it: what went wrong, and what to do."""
    name, said = (error.name, error.text) if isinstance(error, RequestError) else (type(error).__name__, str(error))
    text = f"{name}: {said}"
    if isinstance(error, CommandError):
        written = [shorten(plain(t).rstrip("\n"), _reply.MAX_TEXT) for t in (error.stdout, error.stderr) if t]
        return "\n".join([text[:4000], *(["it had written:", *written] if written else [])])
    if isinstance(error, SandboxError) and session is not None and session.sandbox._session._lost is not None:
        text = f"{text[:3500]}\nAll variables of the session are lost. `reset_session` gives it a new Python"
    return text[:4000]


async def _to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Awaits it. When the client cancels, it is cancelled once, and may take its time to end well: that interrupts the
    cell and keeps the state."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait({task})
        raise


class Server:
    """The tools, bound to the sessions that they use."""

    def __init__(self, make: Callable[[Server], AsyncSandbox], options: Options) -> None:
        self.options = options
        self.sessions = Sessions(lambda: make(self), options.sessions, options.lifetime, options.shared)
        self.runs = Runs()
        self.proxies: Optional[Proxies] = None
        self.mcp: MCPServer[Any] = MCPServer(
            "cellblock", instructions=INSTRUCTIONS, version=__version__, lifespan=self._life, log_level="WARNING"
        )
        self._lives = 0
        self._add(self.run_python, destructive=False)
        self._add(self.run_command, destructive=False)
        self._add(self.reset_session, destructive=True)
        if options.files:
            self._add(self.read_file, reads=True)
            self._add(self.write_file, destructive=True)
            self._add(self.list_files, reads=True)
        if options.checkpoints:
            self._add(self.checkpoint, destructive=False)
            self._add(self.rollback, destructive=True)
            self._add(self.workspace_changes, reads=True)
        self.mcp.resource("cellblock://{session}/{item}", name="output", mime_type="application/octet-stream")(
            self.output
        )

    def _add(self, function: Callable[..., Any], *, reads: bool = False, destructive: bool = False) -> None:
        notes = ToolAnnotations(read_only_hint=reads, destructive_hint=destructive, open_world_hint=False)
        self.mcp.add_tool(function, annotations=notes)

    @contextlib.asynccontextmanager
    async def _life(self, _: MCPServer[Any]) -> AsyncIterator[None]:
        self._lives += 1
        try:
            yield
        finally:
            self._lives -= 1
            if self._lives == 0 and not self.options.shared:
                with anyio.CancelScope(shield=True):
                    await self.close()

    async def start(self) -> None:
        """Connects to the servers whose tools are offered inside."""
        if self.options.proxy:
            self.proxies = Proxies(self.options.proxy)
            await self.proxies.start()

    async def close(self) -> None:
        """Ends all sessions, and the connections to other servers."""
        await self.sessions.close()
        if self.proxies is not None:
            await self.proxies.close()

    @property
    def tools(self) -> list[Any]:
        """What the code inside may call."""
        return [] if self.proxies is None else list(self.proxies.tools)

    @contextlib.asynccontextmanager
    async def _use(self, name: Optional[str]) -> AsyncIterator[McpSession]:
        """The session, for one call. What goes wrong with it is told to the model, with a cure, and nothing else."""
        session: Optional[McpSession] = None
        try:
            session = await self.sessions.get(name)
            session.users += 1
            try:
                yield session
            finally:
                session.users -= 1
                session.used = time.monotonic()
        except SessionError as e:
            raise ToolError(str(e)) from None
        except (CellblockError, OSError) as e:
            note = None if session is None else session.head()["note"]
            raise ToolError(f"{note}\n{_told(e, session)}" if note else _told(e, session)) from None

    async def run_python(
        self,
        code: Annotated[Text, Field(description="Python; the value of the last expression is returned")],
        ctx: Context[Any, Any],
        session: Session = None,
        timeout: Timeout = None,
    ) -> Union[Annotated[CallToolResult, _reply.RunResult], InputRequiredResult]:
        """Runs Python code in a jail and returns its output, value, pictures and error. Variables are kept."""
        if len(code) > MAX_CODE:
            raise ToolError(f"the code has more than {MAX_CODE} characters: write it to a file, and run that")
        run = self.runs.resumed(ctx)
        async with self._use(session if run is None else run.session.name) as used:
            if run is None:
                run = Run(lambda r: self._run(used, r, code, timeout))
                run.session = used
            result = await self.runs.to_the_end(run, ctx)
            if isinstance(result, InputRequiredResult):
                return result
            return _reply.of_result(run.session, result)

    async def _run(self, used: McpSession, run: Run, code: str, timeout: Optional[float]) -> Result:
        told = 0

        async def progress(text: str) -> None:
            nonlocal told
            told += len(text)
            if run.ctx is not None:
                with contextlib.suppress(Exception):  # the client may have gone; the cell goes on
                    await run.ctx.report_progress(told, message=plain(text[-500:]))

        used.users += 1
        try:
            return await used.sandbox.run(code, timeout=timeout, on_output=progress)
        finally:
            used.users -= 1
            used.used = time.monotonic()

    async def run_command(
        self,
        argv: Annotated[list[Text], Field(description="Program and arguments; no shell", min_length=1)],
        session: Session = None,
        timeout: Timeout = None,
    ) -> Annotated[CallToolResult, _reply.CommandReply]:
        """Runs a program in the session's jail, beside its Python, and returns its output and exit status."""
        async with self._use(session) as used:
            return _reply.of_command(used, await _to_the_end(used.sandbox.run_command(argv, timeout=timeout)))

    async def reset_session(self, session: Session = None) -> Done:
        """Starts a session's Python afresh: no variable, temporary file or process of it is left."""
        async with self._use(session) as used:
            await _to_the_end(used.sandbox.reset())
            used.items.clear()
            return Done(**used.head(), text="the session is as new")

    async def read_file(self, path: Path, session: Session = None) -> FileContent:
        """Reads a file of the workspace, as the session's cells see it."""
        async with self._use(session) as used:
            async with used.sandbox.open(path, "rb") as file:
                data: Any = await file.read(MAX_FILE + 1)
            shown, truncated = data[:MAX_FILE], len(data) > MAX_FILE
            said = FileContent(**used.head(), path=path, size=len(shown), truncated=truncated)
            try:
                said.text = codecs.getincrementaldecoder("utf-8")().decode(shown, final=not truncated)
                said.size = len(said.text.encode())
            except UnicodeDecodeError:
                said.base64 = base64.b64encode(shown).decode()
            return said

    async def write_file(
        self,
        path: Path,
        content: Annotated[str, Field(description="Text, or base64")],
        session: Session = None,
        encoding: Annotated[str, Field(description="utf-8 or base64", pattern="^(utf-8|base64)$")] = "utf-8",
    ) -> Done:
        """Makes or replaces a file of the workspace, and the folders above it."""
        try:
            data = base64.b64decode(content, validate=True) if encoding == "base64" else content.encode()
        except ValueError as e:
            raise ToolError(f"content is not {encoding}: {e}") from None
        if len(data) > MAX_FILE:
            raise ToolError(f"content has more than {MAX_FILE} bytes: let code write it")
        async with self._use(session) as used:
            await _to_the_end(used.sandbox.write_file(path, data))
            return Done(**used.head(), text=f"{len(data)} bytes written")

    async def list_files(self, path: Path = ".", session: Session = None) -> Listing:
        """Lists a folder of the workspace, as the session's cells see it."""
        async with self._use(session) as used:
            found = sorted(await used.sandbox.list_files(path), key=lambda e: e.name)
            entries = [{"name": e.name, "type": e.type, "size": e.size} for e in found[:1000]]
            return Listing(**used.head(), path=path, entries=entries)

    async def checkpoint(self, name: Text, session: Session = None) -> Done:
        """Keeps the session's variables under a name, so that `rollback` can go back to them. Files of a workspace with
        an overlay are kept as well, those of an empty one are not."""
        async with self._use(session) as used:
            await _to_the_end(used.sandbox.checkpoint(name))
            return Done(**used.head(), text=f"kept as {name!r}")

    async def rollback(
        self,
        name: Annotated[Optional[Text], Field(description="Left out: to before the last cell")] = None,
        session: Session = None,
    ) -> Done:
        """Gives the session the variables of a checkpoint, or those from before its last cell. Files of a workspace
        with an overlay go back too, those of an empty one stay."""
        async with self._use(session) as used:
            undone = await _to_the_end(used.sandbox.rollback(name))
            told = used.sandbox.last.stderr if used.sandbox.last is not None else ""
            return Done(**used.head(), text=f"undone: the effects of cells {undone}\n{plain(told)}".rstrip("\n"))

    async def workspace_changes(self, session: Session = None) -> Changes:
        """Lists what the session changed in its workspace. The folder itself is only changed by a person."""
        async with self._use(session) as used:
            changes = await used.sandbox.changes()
            said = [{k: v for k, v in vars(c).items() if v is not None} for c in changes[:1000]]
            return Changes(**used.head(), changes=said)

    def output(self, session: str, item: str) -> bytes:
        """What was too large for a reply. Only who knows the session's name can ask for it."""
        found = self.sessions.find(session, item)
        if found is None:
            raise ResourceNotFoundError("there is no such output: it was of a session that ended, or is too old")
        return found.data
