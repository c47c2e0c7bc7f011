"""Inspect's evaluations, jailed: `Task(..., sandbox="cellblock")`.

Registered by the entry point `inspect_ai` of this package. Each sample has a sandbox of its own. What fails in the
sandbox itself is raised as SandboxError, which ends the sample with an error: nothing is scored. Source: inspect_ai
0.3.285 (SandboxEnvironment, its self_check, its docker and local environments).
"""

from __future__ import annotations

import os
import shlex
from typing import Any, Literal, Mapping, Optional, Union, overload

import anyio
from inspect_ai.util import (
    ExecResult, OutputLimitExceededError, SandboxConnection, SandboxEnvironment, SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits, SandboxUserUnsupportedError, sandboxenv,
)
from pydantic import BaseModel

from ._acall import acall
from ._adapters import CANNOT_RUN, KILLED, NOT_FOUND, ended_from_inside, policy_for, shell_status
from ._anyfile import FileTooLargeError, read_anyfile, write_anyfile
from ._errors import CommandTimeoutError, PolicyError, SandboxError
from ._result import CommandResult
from ._sync import Sandbox

# Time is Inspect's to limit. Its limits of output are for each stream, its files may have 100 MiB; its own tools
# (text_editor, bash_session) unpack themselves into /var/tmp, which is /tmp.
SETTINGS: Mapping[str, Any] = {
    "workspace.size": "512M", "limits.memory": "1G", "limits.tmp": "512M",
    "limits.output": "24M", "limits.message": "128M", "limits.pids": 256, "timeout.cell": 0, "timeout.cpu": 0,
}
LONG = 900_000  # bytes of a command line; a request takes 1 MiB, Linux about 2
# Takes the words of a long one from its stdin; what follows them there is the command's.
_LAUNCH = """import os
def get(n):
    data = b""
    while len(data) < n:
        data += os.read(0, n - len(data))
    return data
words = get(int(get(16))).split(b"\\0")
os.execvp(words[0], words)"""


class CellblockSandboxConfig(BaseModel, frozen=True, extra="forbid"):
    """What the sandboxes of a sample or a task may do: the keywords of `Sandbox`.

    With `base` (the name of a policy, or a file) that policy alone decides, but for the keys given here, and for the
    workspace: an empty folder in memory, where neither `workspace` nor `policy` says another.
    """

    base: Optional[str] = None
    memory: Union[None, int, str] = None
    cpu: Optional[float] = None
    workspace: Optional[str] = None
    network: Union[None, bool, str, list[str]] = None
    python: Optional[str] = None
    policy: dict[str, Any] = {}

    def __hash__(self) -> int:
        """Inspect keeps specifications in sets."""
        return hash(self.model_dump_json())


def _named(config: str) -> str:
    """Inspect makes a path of each text; where no file is there, it was the name of a policy."""
    name = os.path.basename(config)
    return name if config == os.path.abspath(name) and not os.path.exists(config) else config


def _sandbox(config: Optional[SandboxEnvironmentConfigType]) -> Sandbox:
    if isinstance(config, str):
        config = CellblockSandboxConfig(base=_named(config))
    elif config is None:
        config = CellblockSandboxConfig()
    if not isinstance(config, CellblockSandboxConfig):
        raise PolicyError(f"the sandbox's config is a {type(config).__name__}: give a CellblockSandboxConfig, the name "
                          "of a policy, or a policy's file")
    settings = {**SETTINGS}
    keywords = {name: getattr(config, name) for name in ("memory", "cpu", "workspace", "network", "python")}
    if config.memory is not None:
        settings.pop("limits.memory", None)
    policy = policy_for({"base": config.base, "policy": config.policy, "workspace": config.workspace}, settings)
    made = Sandbox(config.base, policy=policy, **keywords)
    made._a._channel = "control"
    return made


@sandboxenv(name="cellblock")
class CellblockSandboxEnvironment(SandboxEnvironment):
    """A jail on this machine, without Docker: an empty working folder, no network, no root."""

    _live: set[CellblockSandboxEnvironment] = set()

    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__()
        self.sandbox = sandbox
        self._who: Optional[list[str]] = None

    # A task's and a sample's life

    @classmethod
    async def task_init(cls, task_name: str, config: Optional[SandboxEnvironmentConfigType]) -> None:
        """Starts a sandbox and ends it: what is wrong with host or policy is said before the first sample."""
        sandbox = _sandbox(config)
        try:
            await acall(sandbox._a.start())
        finally:
            await _end(sandbox)

    @classmethod
    async def sample_init(
        cls, task_name: str, config: Optional[SandboxEnvironmentConfigType], metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        made = cls(_sandbox(config))
        try:
            await acall(made.sandbox._a.start())
        except BaseException:
            await _end(made.sandbox)
            raise
        cls._live.add(made)
        return {"default": made}

    @classmethod
    async def sample_cleanup(
        cls, task_name: str, config: Optional[SandboxEnvironmentConfigType],
        environments: dict[str, SandboxEnvironment], interrupted: bool,
    ) -> None:
        for environment in environments.values():
            made = environment.as_type(cls)
            await _end(made.sandbox)
            cls._live.discard(made)

    @classmethod
    async def task_cleanup(
        cls, task_name: str, config: Optional[SandboxEnvironmentConfigType], cleanup: bool
    ) -> None:
        """Ends what is left. With `cleanup` False sandboxes go on until this program ends, and no longer."""
        while cleanup and cls._live:
            await _end(cls._live.pop().sandbox)

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return CellblockSandboxConfig(**config)

    @classmethod
    def default_concurrency(cls) -> Optional[int]:
        return None  # a sandbox that waits costs some 30 MB of memory and no CPU

    def default_polling_interval(self) -> float:
        return 0.2

    # Commands

    async def exec(
        self, cmd: list[str], input: Union[None, str, bytes] = None, cwd: Optional[str] = None,
        env: Optional[dict[str, str]] = None, user: Optional[str] = None, timeout: Optional[int] = None,
        timeout_retry: bool = True, concurrency: bool = True,
    ) -> ExecResult[str]:
        """Runs a command. One that timed out is not run again: it is the command that took too long, not a service.

        SandboxError: the sandbox failed, not the command.
        """
        await self._check_user(user)
        stdin = input.encode() if isinstance(input, str) else input
        words = "\0".join(cmd).encode("utf-8", "replace")
        if len(words) > LONG and words.count(b"\0") == len(cmd) - 1:
            cmd, stdin = ["python3", "-ISc", _LAUNCH], b"%16d%s%s" % (len(words), words, stdin or b"")
        try:
            done = await acall(self.sandbox._a.run_command(cmd, timeout=timeout, cwd=cwd, env=env, stdin=stdin))
        except CommandTimeoutError as e:
            error = TimeoutError(f"Command timed out after {timeout} seconds")
            most = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
            setattr(error, "truncated_output", _first(e.stdout, most) + _first(e.stderr, most))
            raise error from None
        except PermissionError:
            raise
        except (FileNotFoundError, NotADirectoryError) as e:  # the program, or cwd
            return ExecResult(False, NOT_FOUND, "", e.strerror or str(e))
        except OSError as e:
            return ExecResult(False, CANNOT_RUN, "", e.strerror or str(e))
        except SandboxError as e:
            if not ended_from_inside(self.sandbox._a, e):
                raise
            return ExecResult(False, KILLED, "", str(e))
        return self._result(done)

    def _result(self, done: CommandResult) -> ExecResult[str]:
        most = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        stdout, stderr = _first(done.stdout, most), _first(done.stderr, most)
        if done.limit == "output" or len(stdout) < len(done.stdout) or len(stderr) < len(done.stderr):
            raise OutputLimitExceededError(
                limit_str=SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, truncated_output=stdout + stderr
            )
        if done.limit == "memory":
            stderr += "\nKilled: it went over the sandbox's limit of memory"
        code = shell_status(done.returncode)
        return ExecResult(code == 0, code, stdout, stderr)

    async def _check_user(self, user: Optional[str]) -> None:
        if user is None:
            return
        if self._who is None:
            done = await acall(self.sandbox._a.run_command(["sh", "-c", "id -u; id -un"], timeout=60))
            self._who = done.stdout.split()
        if user not in self._who:
            raise SandboxUserUnsupportedError(
                f"the sandbox has one user, {' = '.join(self._who[::-1])}, and can't run commands as {user!r}"
            )

    # Files

    async def write_file(self, file: str, contents: Union[str, bytes]) -> None:
        """Makes or replaces a file, and the folders above it."""
        data = contents.encode() if isinstance(contents, str) else contents
        await acall(write_anyfile(self.sandbox._a, file, data))

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> Union[str, bytes]:
        """The whole file. OutputLimitExceededError: it is larger than Inspect's limit."""
        try:
            data = await acall(read_anyfile(self.sandbox._a, file, SandboxEnvironmentLimits.MAX_READ_FILE_SIZE))
        except FileTooLargeError:
            raise OutputLimitExceededError(
                limit_str=SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, truncated_output=None
            ) from None
        return data.decode() if text else data

    async def connection(self, *, user: Optional[str] = None) -> SandboxConnection:
        """A command that opens Python in the sandbox, where Jupyter's console is installed; `!` runs a shell there."""
        try:
            await self._check_user(user)
            path = await acall(self._connection_file())
        except SandboxError as e:
            raise ConnectionError(str(e)) from None
        return SandboxConnection(type="cellblock", command=shlex.join(["jupyter", "console", "--existing", path]))

    async def _connection_file(self) -> str:
        self.sandbox._a._session.check()
        return self.sandbox.kernel.connection_file


async def _end(sandbox: Sandbox) -> None:
    with anyio.CancelScope(shield=True):
        await acall(sandbox._a.close())


def _first(text: str, most: int) -> str:
    """What of the text is in its first `most` bytes."""
    return text if len(text) * 4 <= most else text.encode()[:most].decode(errors="ignore")


__all__ = ["CellblockSandboxConfig", "CellblockSandboxEnvironment"]
