"""Sandbox: a jailed kernel for programs without asyncio. Each method is AsyncSandbox's, in the background thread."""

from __future__ import annotations

import inspect
import os
from typing import (
    Any, Awaitable, Callable, Dict, Generator, List, Mapping, Optional, Sequence, TypeVar, Union,
)

from ._async import AsyncBranch, AsyncRunner, AsyncSandbox, OnOutput
from ._checks import path_of
from ._errors import CellError, CheckpointError
from ._files import ChangeList, Entry, Mode, opened
from ._kernel import Kernel
from ._loop import begin, call, end, hearing
from ._policy import Policy, Size
from ._result import CommandResult, Event, Result
from ._session import Input

T = TypeVar("T")
PathLike = Union[str, "os.PathLike[str]"]


class Runner:
    """What a sandbox and a branch of it have in common: cells, variables, interrupts."""

    _a: AsyncRunner

    @property
    def last(self) -> Optional[Result]:
        """The result of the latest cell, also of one that was interrupted: what there was by then.

        After `rollback` and `adopt` it is what those gave: `state` is "restored", `undone` and `calls` are there, and
        `stderr` has the kernel's sentence on what did not come back (files, threads).
        """
        return self._a.last

    def run(
        self, code: str, *, timeout: Optional[float] = None, env: Optional[Mapping[str, str]] = None,
        on_output: Optional[OnOutput] = None, check: bool = False,
    ) -> Result:
        """Runs a cell and gives what it gave.

        `timeout`: seconds of wall time for this cell; it can lower the policy's limit, not raise it. `env`: variables
        in os.environ while it runs. `on_output`: called with each piece of stdout and stderr, in this thread.
        `check`: raise CellError where it fails. A KeyboardInterrupt here interrupts the cell, waits at most the grace,
        and is raised again; what there was by then is in `last`. SandboxError: the kernel is gone.
        """
        if on_output is None:
            return call(self._a.run(code, timeout=timeout, env=env, check=check))
        events = self.stream(code, timeout=timeout, env=env)
        result = Result()
        try:
            for event in events:
                if event.kind in ("stdout", "stderr"):
                    told = on_output(event.text)
                    if inspect.iscoroutine(told):
                        told.close()
                        raise TypeError("on_output is async: use AsyncSandbox, or a plain function")
                elif event.result is not None:
                    result = event.result
        finally:
            events.close()
        if check and not result.ok:
            raise CellError(result)
        return result

    def stream(
        self, code: str, *, timeout: Optional[float] = None, env: Optional[Mapping[str, str]] = None
    ) -> Generator[Event, None, None]:
        """Runs a cell and gives its output as it comes; the last event has kind "end" and the result.

        Closing the iterator early interrupts the cell. `timeout` in seconds and `env` as in `run`.
        """

        def events() -> Generator[Event, None, None]:
            result = yield from hearing(lambda tell: self._a._run(code, timeout, env, tell))
            yield Event("end", result=result)

        return events()

    def set(self, name: str, value: Any) -> None:
        """Gives a variable a value: JSON, bytes, or a numpy array or scalar. TypeError for what is none of these.

        Tuples and keys as JSON has them.
        """
        call(self._a.set(name, value))

    def get(self, name: str) -> Any:
        """A variable's value: JSON, bytes, or a numpy array. KeyError: no such variable. TypeError: none of these.

        ValueTooLargeError: with its text it is more than limits.output or limits.message.
        """
        return call(self._a.get(name))

    def __setitem__(self, name: str, value: Any) -> None:
        self.set(name, value)

    def __getitem__(self, name: str) -> Any:
        return self.get(name)

    def interrupt(self) -> None:
        """Interrupts what runs (in another thread), as Ctrl-C does; its variables are kept."""
        call(self._a.interrupt())


class Branch(Runner):
    """A copy of a sandbox's state that runs beside it, with variables of its own. Files are shared.

    A cell that fails for good ends its branch. Use it by `with`, which closes it.
    """

    def __init__(self, branch: AsyncBranch) -> None:
        self._a: AsyncBranch = branch

    def __enter__(self) -> Branch:
        begin(self._a.__aenter__, lambda: None if self._a._subshell is None else self._a.close())
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the branch with all that it has started. One that was adopted is closed."""
        end(self._a.close())


class Sandbox(Runner):
    """A jailed Python: `with Sandbox("agent") as sb: sb.run("1 + 1").value`.

    The keywords are those of `Policy`; `policy` holds all other keys. A sandbox starts at `with`, `start()`, or its
    first use, and may be used from any thread. `tools`: functions of this program that cells may call.
    `on_input(prompt, password)`: answers `input()`; without `async` it runs in a thread, as tools do. `python`: the
    interpreter to jail. `grace`: seconds that an interrupted run may take to end.
    """

    def __init__(
        self, base: Union[None, str, Policy] = None, *, memory: Optional[Size] = None, cpu: Optional[float] = None,
        timeout: Optional[float] = None, workspace: Optional[PathLike] = None,
        network: Union[None, bool, str, Sequence[str]] = None, imports: Optional[Sequence[str]] = None,
        policy: Optional[Mapping[str, Any]] = None, tools: Sequence[Any] = (), on_input: Optional[Input] = None,
        python: Optional[str] = None, binary: Optional[str] = None, grace: float = 5.0,
    ) -> None:
        self._a: AsyncSandbox = AsyncSandbox(
            base, memory=memory, cpu=cpu, timeout=timeout, workspace=workspace, network=network, imports=imports,
            policy=policy, tools=tools, on_input=on_input, python=python, binary=binary, grace=grace,
        )

    @classmethod
    def connect(
        cls, where: PathLike, *, token: Optional[str] = None, kernel_name: str = "cellblock",
        tools: Sequence[Any] = (), on_input: Optional[Input] = None, grace: float = 5.0,
    ) -> Sandbox:
        """A sandbox in a kernel that runs elsewhere, or that a server starts.

        `where`: a connection file (a path, or a name in Jupyter's runtime folder), the URL of a Jupyter server or
        kernel gateway, which starts a kernel called `kernel_name` and stops it at the end, or the URL of a kernel
        there (…/api/kernels/ID), which is left running. `token`: the server's, where the URL has none.
        """
        self = cls.__new__(cls)
        self._a = AsyncSandbox.connect(
            where, token=token, kernel_name=kernel_name, tools=tools, on_input=on_input, grace=grace
        )
        return self

    @property
    def policy(self) -> Policy:
        """The policy that it was made with."""
        return self._a.policy

    def _call(self, make: Callable[[], Awaitable[T]]) -> T:
        self._a._session.check_process()

        async def work() -> T:
            return await make()

        return call(work())

    def start(self) -> Sandbox:
        """Starts the kernel, unless it runs. PolicyError or SandboxError says why it can't."""
        session = self._a._session
        ran = session.connected is not None
        begin(self._a.start, lambda: None if ran else session.close())
        return self

    def __enter__(self) -> Sandbox:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the sandbox. What was not committed of an overlay workspace is gone. It can be called again."""
        end(self._a.close())

    @property
    def kernel(self) -> Kernel:
        """The kernel below, for experts: `km` and `kc` of jupyter_client, `pid`, `connection_file`, `session`."""
        return Kernel(self._a._session, self._a._process)

    def checkpoint(self, name: str) -> Dict[str, Any]:
        """Keeps the state under a name: `memory_bytes`, `duration_s` that Python stood still, `execution_count`."""
        return self._call(lambda: self._a.checkpoint(name))

    def checkpoints(self) -> List[Dict[str, Any]]:
        """The named states: `name`, `execution_count`, `memory_bytes`, `created`."""
        return self._call(self._a.checkpoints)

    def delete_checkpoint(self, name: str) -> None:
        """Forgets a named state. CheckpointError: there is none."""
        self._call(lambda: self._a.delete_checkpoint(name))

    def rollback(self, name: Optional[str] = None, *, cells: Optional[int] = None) -> List[int]:
        """Goes back to a named state, or to before the last cell. Gives the numbers of the cells that are undone.

        cells: undoes exactly so many. What did not come back is in `last`. CheckpointError: the state from before them
        is not kept (`transactions.keep`).
        """
        return self._call(lambda: self._a.rollback(name, cells=cells))

    def branch(self, name: Optional[str] = None) -> Branch:
        """A copy of the named state, or of the present one, that runs beside this one. Use it by `with`."""
        return Branch(self._a.branch(name))

    def adopt(self, branch: Branch) -> Sandbox:
        """This sandbox goes on with a branch's state, and gives itself. The branch is closed then.

        What cells of the sandbox have done since the branch was made is undone; checkpoints and other branches stay.
        What did not come along is in `last`.
        CheckpointError: the branch is not this sandbox's, is closed, or can't be copied. SandboxError: it has ended.
        BusyError: a cell of it runs.
        Nothing has changed then.
        """
        if not isinstance(branch, Branch):
            raise CheckpointError("CheckpointError", "only an open branch of this sandbox can be adopted")
        self._call(lambda: self._a.adopt(branch._a))
        return self

    def reset(self) -> None:
        """A new Python in a new jail: no variable, file of /tmp, environment or history is left, checkpoints neither.

        The workspace is empty again with mode `tmpfs`, as the folder is with `overlay`; with `rw` it stays as it is.
        """
        self._call(self._a.reset)

    def open(self, path: PathLike, mode: str = "r", *, encoding: str = "utf-8") -> Any:
        """A file of the workspace, as cells see it; what it gives works as Python's own files, also `with`.

        `mode` as for Python's open. Errors are Python's own: FileNotFoundError, PermissionError …
        """
        name, asked = path_of(path), Mode.of(mode)
        self._call(self._a.start)
        return opened(lambda work: self._call(lambda: work), self._a._files, name, asked, encoding)

    def read_file(self, path: PathLike) -> bytes:
        """All bytes of a file of the workspace. OSError where it has more than 1 GiB: `open` it, and read parts."""
        return self._call(lambda: self._a.read_file(path))

    def write_file(self, path: PathLike, data: Union[str, bytes]) -> None:
        """Makes or replaces a file of the workspace, and the folders above it. Text is written as UTF-8."""
        self._call(lambda: self._a.write_file(path, data))

    def list_files(self, path: PathLike = ".") -> List[Entry]:
        """What is in a folder of the workspace, in no order; sizes in bytes."""
        return self._call(lambda: self._a.list_files(path))

    def delete_file(self, path: PathLike, *, recursive: bool = False) -> int:
        """Deletes a file, or with `recursive` a folder and all in it. Gives the number of entries."""
        return self._call(lambda: self._a.delete_file(path, recursive=recursive))

    def clear_workspace(self, *, everything: bool = False) -> None:
        """Empties a workspace that is temporary (`tmpfs`), drops the changes of an `overlay`.

        Dropping an overlay's changes restarts Python: variables are lost. A workspace that is a folder of yours
        (`rw`) is emptied only with `everything=True`: its files are deleted; what is protected stays. OSError at the
        end: something else could not be deleted.
        """
        self._call(lambda: self._a.clear_workspace(everything=everything))

    def changes(self) -> ChangeList:
        """What an overlay workspace changed, beside the folder that it shows."""
        return self._call(self._a.changes)

    def commit(self) -> ChangeList:
        """Writes an overlay's changes to the folder that it shows. Gives what was written, and what was skipped."""
        return self._call(self._a.commit)

    def run_command(
        self, argv: Sequence[str], *, timeout: Optional[float] = None, cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None, stdin: Union[None, str, bytes] = None, check: bool = False,
    ) -> CommandResult:
        """Runs a program in the jail, beside the cells; no shell is involved unless `argv` names one.

        `timeout`: seconds, at most the policy's `timeout.cell`; then CommandTimeoutError, which has what was written.
        `check`: subprocess.CalledProcessError where it does not exit with 0. FileNotFoundError: no such program.
        """
        return self._call(
            lambda: self._a.run_command(argv, timeout=timeout, cwd=cwd, env=env, stdin=stdin, check=check)
        )

    def usage(self) -> Dict[str, Any]:
        """What the whole jail uses and may use now (docs/messages.md, "cellblock_usage_request")."""
        return self._call(self._a.usage)
