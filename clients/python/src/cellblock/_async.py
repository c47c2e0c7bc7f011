"""AsyncSandbox: a jailed kernel for asyncio programs."""

from __future__ import annotations

import asyncio
import inspect
import os
from typing import (
    Any, AsyncGenerator, Awaitable, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Union,
)

from ._checks import environment, path_of, seconds, whole_text, words
from ._errors import CellError, CheckpointError, PolicyError, RequestError, SandboxClosedError, SandboxError, ToolError
from ._files import AsyncFile, ChangeList, Entry, Files
from ._kernel import AsyncKernel
from ._launch import Process, find_binary, interpreter_arguments
from ._policy import Policy, Size, keys_of, refused
from ._result import CommandResult, Event, Result, Usage
from ._run import asked, went_back
from ._session import Connected, Input, Reply, Session
from ._threads import made_in_a_thread
from ._tools import Dispatcher
from ._trace import span, tell_restored, tell_usage
from ._values import check_name, code_to_measure, code_to_set, no_value
from ._wire import ZmqTransport

OnOutput = Callable[[str], Any]


class AsyncRunner:
    """What a sandbox and a branch of it have in common: cells, variables, interrupts.

    `last` is the result of the latest cell, also that of a run that was cancelled: what there was by then. After
    `rollback` and `adopt` it is what those gave: `state` is "restored", `undone` and `calls` are there, and `stderr`
    has the kernel's sentence on what did not come back (files, threads).
    """

    _session: Session
    _subshell: Optional[str] = None
    last: Optional[Result] = None

    async def _ready(self) -> Session:
        return self._session

    def _begun(self) -> bool:
        """Whether it is there, or on its way, or was: nothing is made in order to interrupt it."""
        raise NotImplementedError

    def _keep(self, result: Result) -> None:
        self.last = result

    async def _run(
        self, code: str, timeout: Optional[float], env: Optional[Mapping[str, str]],
        on_event: Optional[Callable[[Event], None]] = None, store_history: bool = True,
    ) -> Result:
        code, metadata = whole_text("code", code), asked(timeout, env)
        session = await self._ready()
        keep = self._keep if store_history else None
        return await session.run(
            code, metadata=metadata, on_event=on_event, subshell=self._subshell, store_history=store_history, keep=keep
        )

    async def run(
        self, code: str, *, timeout: Optional[float] = None, env: Optional[Mapping[str, str]] = None,
        on_output: Optional[OnOutput] = None, check: bool = False,
    ) -> Result:
        """Runs a cell and gives what it gave.

        `timeout`: seconds of wall time for this cell; it can lower the policy's limit, not raise it. `env`: variables
        in os.environ while it runs. `on_output`: called (awaited if it is async) with each piece of stdout and stderr.
        `check`: raise CellError where it fails. Cancelling interrupts the cell, waits at most the grace, and keeps the
        variables; what there was by then is in `last`. SandboxError: the kernel is gone.
        """
        if on_output is None:
            result = await self._run(code, timeout, env)
        else:
            events = self.stream(code, timeout=timeout, env=env)
            try:
                async for event in events:
                    if event.kind in ("stdout", "stderr"):
                        told = on_output(event.text)
                        if inspect.isawaitable(told):
                            await told
                    elif event.result is not None:
                        result = event.result
            except GeneratorExit:  # the loop is closed: nothing can be awaited any more
                raise
            except BaseException:
                await events.aclose()
                raise
        if check and not result.ok:
            raise CellError(result)
        return result

    async def stream(
        self, code: str, *, timeout: Optional[float] = None, env: Optional[Mapping[str, str]] = None
    ) -> AsyncGenerator[Event, None]:
        """Runs a cell and gives its output as it comes; the last event has kind "end" and the result.

        Leaving the loop early interrupts the cell. `timeout` in seconds and `env` as in `run`.
        """
        queue: asyncio.Queue[Optional[Event]] = asyncio.Queue()
        task = asyncio.ensure_future(self._run(code, timeout, env, queue.put_nowait))
        task.add_done_callback(lambda t: queue.put_nowait(None))
        try:
            while True:
                event = await queue.get()
                if event is None:
                    break
                yield event
            yield Event("end", result=await task)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
            elif not task.cancelled():
                task.exception()  # nobody asks for the end any more, perhaps

    async def set(self, name: str, value: Any) -> None:
        """Gives a variable a value: JSON, bytes, or a numpy array or scalar. TypeError for what is none of these.

        Tuples and keys as JSON has them.
        """
        result = await self._run(code_to_set(name, value), None, None, store_history=False)
        if not result.ok:
            raise CellError(result)

    async def get(self, name: str) -> Any:
        """A variable's value: JSON, bytes, or a numpy array. KeyError: no such variable. TypeError: none of these.

        ValueTooLargeError: with its text it is more than limits.output or limits.message.
        """
        code = f"({check_name(name)})"  # bare, it could be a magic's, as `env` and `time` are
        result = await self._run(code, None, None, store_history=False)
        if result.partial:
            raise SandboxError(f"the value of {name} was lost on its way: get it again")
        if result.error is not None and result.error.name == "NameError":
            raise KeyError(name)
        if not result.ok:
            raise CellError(result)
        if result.has_value:
            return result.value
        measured = await self._run(code_to_measure(name), None, None, store_history=False)
        if measured.partial:
            raise SandboxError(f"the value of {name} was lost on its way: get it again")
        size = measured.value
        if size == 0 and result.repr is None:  # None, and not an object that shows itself; it has no text either
            return None
        usage = await self._session.request("cellblock_usage_request", {}, channel="control")
        raise no_value(name, result, size, usage.content.get("limits") or {})

    async def interrupt(self) -> None:
        """Interrupts what runs, as Ctrl-C does: the cell ends with KeyboardInterrupt and keeps its variables."""
        if self._begun():
            await (await self._ready()).interrupt(self._subshell)


class AsyncBranch(AsyncRunner):
    """A copy of a sandbox's state that runs beside it, with variables of its own. Files are shared.

    A cell that fails for good ends its branch. Use it by `async with`, which closes it.
    """

    def __init__(self, sandbox: AsyncSandbox, name: Optional[str]) -> None:
        self._sandbox, self._name, self.closed = sandbox, name, False
        self._opening: Optional[asyncio.Future[None]] = None
        self._closing: Optional[asyncio.Future[None]] = None

    async def _ready(self) -> Session:
        if self._subshell is None:
            if self.closed:
                raise SandboxError("the branch is closed")
            if self._opening is None:
                self._opening = asyncio.ensure_future(self._open())
                self._opening.add_done_callback(self._opened)
            await asyncio.shield(self._opening)  # the kernel makes it, whoever gives up waiting
            if self.closed:
                raise SandboxError("the branch is closed")
        return self._session

    def _begun(self) -> bool:
        return self._subshell is not None or self._opening is not None or self.closed

    def _opened(self, opening: asyncio.Future[None]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # who waits hears of it, if anybody does
        if self.closed and self._subshell is not None:
            self._closing = asyncio.ensure_future(self.close())

    async def _open(self) -> None:
        self._session = await self._sandbox._ready()
        content = {} if self._name is None else {"from": self._name}
        reply = await self._session.request("cellblock_branch_request", content)
        self._subshell = str(reply.content["subshell_id"])

    async def __aenter__(self) -> AsyncBranch:
        try:
            await self._ready()
        except asyncio.CancelledError:
            await self.close()  # which waits for nothing: it is on its way
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the branch with all that it has started. One that was adopted is closed."""
        self.closed = True
        if self._opening is not None:  # then as soon as it is there
            return
        subshell = self._subshell
        if subshell is not None:
            self._end()
            try:
                await self._session.request("delete_subshell_request", {"subshell_id": subshell}, channel="control")
            except (SandboxError, RequestError):  # it has ended already
                pass

    def _end(self) -> None:
        """It can't be used any more."""
        if self._subshell is not None:
            self._session._lines.pop(self._subshell, None)
        self.closed, self._subshell = True, None


class AsyncSandbox(AsyncRunner):
    """A jailed Python for programs with asyncio: `async with AsyncSandbox("agent") as sb: await sb.run("1 + 1")`.

    The keywords are those of `Policy`; `policy` holds all other keys. A sandbox starts at `async with`, `start()`, or
    its first use, and belongs to the event loop of that moment. `tools`: functions of this program that cells may
    call. `on_input(prompt, password)`: answers `input()`; without `async` it runs in a thread, as tools do. `python`:
    the interpreter to jail. `grace`: seconds that a cancelled run may take to end (the policy's `timeout.grace` bounds
    what follows a limit).
    """

    _channel = "shell"  # of commands and files: in the cells' order. On "control" eight go at once, beside cells

    def __init__(
        self, base: Union[None, str, Policy] = None, *, memory: Optional[Size] = None, cpu: Optional[float] = None,
        timeout: Optional[float] = None, workspace: Optional[Union[str, "os.PathLike[str]"]] = None,
        network: Union[None, bool, str, Sequence[str]] = None, imports: Optional[Sequence[str]] = None,
        policy: Optional[Mapping[str, Any]] = None, tools: Sequence[Any] = (), on_input: Optional[Input] = None,
        python: Optional[str] = None, binary: Optional[str] = None, grace: float = 5.0,
    ) -> None:
        if isinstance(base, Policy):
            if any(v is not None for v in (memory, cpu, timeout, workspace, network, imports, policy)):
                raise PolicyError("give either a Policy or keywords, not both: dataclasses.replace() changes a Policy. "
                                  "Adapters of frameworks have keywords of their own: give them what it says as "
                                  "keywords, its settings as policy={…}")
            self.policy = base
        else:
            self.policy = Policy(base, memory, cpu, timeout, workspace, network, imports, keys_of(policy))
        self._python, self._binary = python, binary
        self._make(self._launch, tools, on_input, grace)

    def _make(
        self, connect: Callable[[], Awaitable[Connected]], tools: Sequence[Any], on_input: Optional[Input], grace: float
    ) -> None:
        self._process: Optional[Process] = None
        self._session = Session(connect, seconds("grace", grace, zero=True))
        self._session.on_input = on_input
        self._session.on_started.append(self._check_jail)
        if on_input is not None and not callable(on_input):
            raise TypeError(f"on_input is {on_input!r:.100}, and must be a function of a prompt and password")
        if isinstance(tools, (str, bytes)) or not isinstance(tools, Iterable):
            raise ToolError(f"tools is {tools!r:.100}, and must be a list of functions")
        self._tools = list(tools)
        self._starting: Optional[asyncio.Lock] = None
        self._ended = False
        self._part = 1 << 20
        self._dispatcher = Dispatcher(self._tools) if self._tools else None
        if self._dispatcher is not None:
            self._session.on_calls, self._session.on_over = self._dispatcher.answer, self._dispatcher.over
            self._session.on_started.append(self._register_tools)

    async def _replace_tools(self, tools: Sequence[Any]) -> None:
        """Other tools, for a sandbox that was made with some; from the next cell on."""
        if self._dispatcher is None:
            raise ToolError("a sandbox that was made without tools can't get some")
        self._tools, self._dispatcher.tools = list(tools), Dispatcher(tools).tools
        if self._session.connected is not None:
            await self._register_tools()

    async def _register_tools(self) -> None:
        if self._dispatcher is None:
            return
        if "cellblock_tools_request" not in (self._session.info.get("supported_features") or []):
            raise ToolError("this kernel has no host tools: it is no Cellblock, or an older one. Leave out tools=")
        tools = {"tools": self._dispatcher.specs}
        await self._session.request("cellblock_tools_request", tools, channel="control")

    @classmethod
    def connect(
        cls, where: Union[str, "os.PathLike[str]"], *, token: Optional[str] = None, kernel_name: str = "cellblock",
        tools: Sequence[Any] = (), on_input: Optional[Input] = None, grace: float = 5.0,
    ) -> AsyncSandbox:
        """A sandbox in a kernel that runs elsewhere, or that a server starts.

        `where`: a connection file (a path, or a name in Jupyter's runtime folder), the URL of a Jupyter server or
        kernel gateway, which starts a kernel called `kernel_name` and stops it at the end, or the URL of a kernel
        there (…/api/kernels/ID), which is left running. `token`: the server's, where the URL has none.
        """
        from ._connect import connector

        self = cls.__new__(cls)
        self.policy, self._python, self._binary = Policy(), None, None
        self._make(connector(os.fspath(where), token, kernel_name), tools, on_input, grace)
        return self

    def _word(self, option: str) -> Optional[str]:
        """What an option of the kernel's is called by who made this sandbox; None: there is no such thing."""
        return f"{option}="

    async def _launch(self) -> Connected:
        binary = find_binary(self._binary, self._word("binary"))
        arguments = [*interpreter_arguments(binary, self._python), *self.policy.arguments()]
        p = await made_in_a_thread(lambda: Process(arguments, binary), Process.release)
        self._process = p
        return Connected(ZmqTransport(p.connection), p.end, p.how_it_ended, p.pidfd)

    async def _check_jail(self) -> None:
        """A kernel whose jail can't be built starts all the same, and says why to whoever asks."""
        if "cellblock_usage_request" not in (self._session.info.get("supported_features") or []):
            name = str(self._session.info.get("implementation"))  # others answer none of our requests
            raise SandboxError(
                f"this kernel is not Cellblock's: it says that it is {name!r:.100}. Connect to one of the kernelspec "
                "'cellblock'; `cellblock list` names those that run here, and kernel_name= chooses one of a server"
            )
        try:
            reply = await self._session.request("cellblock_usage_request", {}, channel="control")
        except SandboxClosedError:
            raise
        except SandboxError as e:
            raise refused(str(e), None if self._process is None else self._word) from None
        limits = reply.content.get("limits")
        most = limits.get("message") if isinstance(limits, dict) else None
        if type(most) is int and most > 0:
            self._part = max(16384, min(1 << 20, most // 4))
            self._session.check().most = most

    async def start(self) -> AsyncSandbox:
        """Starts the kernel, unless it runs. PolicyError or SandboxError says why it can't."""
        (await self._ready()).check()
        return self

    async def _ready(self) -> Session:
        self._session.check_process()
        if not self._session.started and not self._ended:
            async with self._changing():
                if self._session.connected is None and not self._ended:
                    await self._session.start()
        return self._session

    def _begun(self) -> bool:
        starting = self._starting is not None and self._starting.locked()
        return self._session.started or starting or self._ended

    def _changing(self) -> asyncio.Lock:
        """Held by who starts a kernel or takes another in its place."""
        if self._starting is None:
            self._starting = asyncio.Lock()
        return self._starting

    async def __aenter__(self) -> AsyncSandbox:
        return await self.start()

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the sandbox. What was not committed of an overlay workspace is gone. It can be called again."""
        self._session.check_process()
        self._ended = True
        if self._dispatcher is not None:
            self._dispatcher.close()
        await self._session.close(over=True)
        if self._session.in_its_loop():
            async with self._changing():  # a start that was under way ends what it has begun
                pass

    @property
    def kernel(self) -> AsyncKernel:
        """The kernel below, for experts: `km` and `kc` of jupyter_client, `pid`, `connection_file`, `session`."""
        return AsyncKernel(self._session, self._process)

    async def _ask(self, msg_type: str, content: Mapping[str, Any], channel: str = "shell") -> Reply:
        return await (await self._ready()).request(msg_type, content, channel=channel)

    # Going back, and trying things

    async def checkpoint(self, name: str) -> Dict[str, Any]:
        """Keeps the state under a name: `memory_bytes`, `duration_s` that Python stood still, `execution_count`."""
        return (await self._ask("cellblock_checkpoint_request", {"name": name})).content

    async def checkpoints(self) -> List[Dict[str, Any]]:
        """The named states: `name`, `execution_count`, `memory_bytes`, `created`."""
        return list((await self._ask("cellblock_list_checkpoints_request", {})).content.get("checkpoints") or [])

    async def delete_checkpoint(self, name: str) -> None:
        """Forgets a named state. CheckpointError: there is none."""
        await self._ask("cellblock_delete_checkpoint_request", {"name": name})

    async def rollback(self, name: Optional[str] = None, *, cells: Optional[int] = None) -> List[int]:
        """Goes back to a named state, or to before the last cell. Gives the numbers of the cells that are undone.

        cells: undoes exactly so many. What did not come back is in `last`. CheckpointError: the state from before them
        is not kept (`transactions.keep`).
        """
        session = await self._ready()
        with span("cellblock.rollback", {"cellblock.session": session.id, "cellblock.checkpoint": name}) as held:
            said = await session.request(
                "cellblock_rollback_request", {"name": name, "cells": cells}, keep=self._went_back
            )
            undone = went_back(said.content).undone
            tell_restored(held, said.content.get("restored_to"), undone)
            return undone

    def _went_back(self, content: Mapping[str, Any]) -> None:
        self.last = went_back(content)

    def branch(self, name: Optional[str] = None) -> AsyncBranch:
        """A copy of the named state, or of the present one, that runs beside this one. Use it by `async with`."""
        return AsyncBranch(self, name)

    async def adopt(self, branch: AsyncBranch) -> AsyncSandbox:
        """This sandbox goes on with a branch's state, and gives itself. The branch is closed then.

        What cells of the sandbox have done since the branch was made is undone; checkpoints and other branches stay.
        What did not come along is in `last`.
        CheckpointError: the branch is not this sandbox's, is closed, or can't be copied. SandboxError: it has ended.
        BusyError: a cell of it runs.
        Nothing has changed then.
        """
        if not isinstance(branch, AsyncBranch) or branch._sandbox is not self or branch.closed:
            raise CheckpointError("CheckpointError", "only an open branch of this sandbox can be adopted")
        session = await branch._ready()

        def adopted(content: Mapping[str, Any]) -> None:
            self._went_back(content)
            branch._end()

        with span("cellblock.adopt", {"cellblock.session": session.id, "cellblock.branch": branch._subshell}):
            await session.request("cellblock_adopt_request", {"subshell_id": branch._subshell}, keep=adopted)
        return self

    async def reset(self) -> None:
        """A new Python in a new jail: no variable, file of /tmp, environment or history is left, checkpoints neither.

        The workspace is empty again with mode `tmpfs`, as the folder is with `overlay`; with `rw` it stays as it is.
        """
        if self._ended:
            raise SandboxClosedError("the sandbox is closed")
        await self._ready()
        async with self._changing():
            await self._session.restart()

    # Files and commands

    @property
    def _files(self) -> Files:
        return Files(self._ready, lambda: self._part, self._channel)

    def open(
        self, path: Union[str, "os.PathLike[str]"], mode: str = "r", *, encoding: str = "utf-8"
    ) -> AsyncFile:
        """A file of the workspace, as cells see it: `async with sb.open("a.txt") as f: await f.read()`.

        `mode` as for Python's open. Errors are Python's own: FileNotFoundError, PermissionError …
        """
        return AsyncFile(self._files, path_of(path), mode, encoding)

    async def read_file(self, path: Union[str, "os.PathLike[str]"]) -> bytes:
        """All bytes of a file of the workspace. OSError where it has more than 1 GiB: `open` it, and read parts."""
        return await self._files.read(path_of(path))

    async def write_file(self, path: Union[str, "os.PathLike[str]"], data: Union[str, bytes]) -> None:
        """Makes or replaces a file of the workspace, and the folders above it. Text is written as UTF-8."""
        if not isinstance(data, (str, bytes, bytearray, memoryview)):
            raise TypeError(f"data is of type {type(data).__name__}, and must be a str or bytes")
        await self._files.write(path_of(path), data.encode() if isinstance(data, str) else bytes(data))

    async def list_files(self, path: Union[str, "os.PathLike[str]"] = ".") -> List[Entry]:
        """What is in a folder of the workspace, in no order; sizes in bytes."""
        return await self._files.list(path_of(path))

    async def delete_file(self, path: Union[str, "os.PathLike[str]"], *, recursive: bool = False) -> int:
        """Deletes a file, or with `recursive` a folder and all in it. Gives the number of entries."""
        return await self._files.delete(path_of(path), recursive)

    async def clear_workspace(self, *, everything: bool = False) -> None:
        """Empties a workspace that is temporary (`tmpfs`), drops the changes of an `overlay`.

        Dropping an overlay's changes restarts Python: variables are lost. A workspace that is a folder of yours
        (`rw`) is emptied only with `everything=True`: its files are deleted; what is protected stays. OSError at the
        end: something else could not be deleted.
        """
        await self._files.clear(everything)

    async def changes(self) -> ChangeList:
        """What an overlay workspace changed, beside the folder that it shows."""
        return await self._files.changes("changes")

    async def commit(self) -> ChangeList:
        """Writes an overlay's changes to the folder that it shows. Gives what was written, and what was skipped."""
        return await self._files.changes("commit")

    async def run_command(
        self, argv: Sequence[str], *, timeout: Optional[float] = None, cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None, stdin: Union[None, str, bytes] = None, check: bool = False,
    ) -> CommandResult:
        """Runs a program in the jail, beside the cells; no shell is involved unless `argv` names one.

        `timeout`: seconds, at most the policy's `timeout.cell`; then CommandTimeoutError, which has what was written.
        `check`: subprocess.CalledProcessError where it does not exit with 0. FileNotFoundError: no such program.
        """
        given = words("argv", argv)
        content: Dict[str, Any] = {"argv": given}
        if timeout is not None:
            content["timeout"] = seconds("timeout", timeout, none="the policy's timeout.cell")
        if cwd is not None:
            content["cwd"] = path_of(cwd)
        if env is not None:
            content["env"] = environment(env)
        if isinstance(stdin, str):
            content["stdin"] = stdin
        elif not isinstance(stdin, (bytes, bytearray, memoryview, type(None))):
            raise TypeError(f"stdin is {stdin!r:.100}, and must be a str or bytes")
        buffers = [] if stdin is None or isinstance(stdin, str) else [bytes(stdin)]
        session = await self._ready()
        with span("cellblock.run_command", {"cellblock.session": session.id}) as held:
            said = await session.request("cellblock_run_request", content, buffers=buffers, channel=self._channel)
            c = said.content
            done = CommandResult(c["returncode"], c["stdout"], c["stderr"], c.get("limit"), Usage.of(c.get("usage")))
            held.set({"process.exit.code": done.returncode, "cellblock.limit": done.limit})
            tell_usage(held, done.usage)
        if check and done.returncode != 0:
            import subprocess

            raise subprocess.CalledProcessError(done.returncode, given, done.stdout, done.stderr)
        return done

    async def usage(self) -> Dict[str, Any]:
        """What the whole jail uses and may use now (docs/messages.md, "cellblock_usage_request")."""
        return (await self._ask("cellblock_usage_request", {}, "control")).content
