"""deepagents, jailed: `create_deep_agent(model, backend=CellblockSandbox())`.

The agent's commands and files are a Sandbox's; its tools, its model and their keys stay here. Source: deepagents 0.7
(BaseSandbox, SandboxBackendProtocol, FilesystemMiddleware).
"""

from __future__ import annotations

import dataclasses
import posixpath
from typing import Any, Awaitable, Callable, Mapping, Optional, Sequence, TypeVar, Union

from deepagents.backends.protocol import (
    FILE_NOT_FOUND, INVALID_PATH, IS_DIRECTORY, PERMISSION_DENIED, ExecuteOffloadResult, ExecuteResponse,
    FileDownloadResponse, FileUploadResponse,
)
from deepagents.backends.sandbox import BaseSandbox

from ._acall import acall
from ._adapters import CANNOT_RUN, KILLED, ended_from_inside, policy_for, shell_status
from ._anyfile import read_anyfile, write_anyfile
from ._errors import CommandTimeoutError, SandboxError
from ._result import shorten
from ._sync import Sandbox

T = TypeVar("T")

# An empty folder that ends with the sandbox; commands have the time that the agent gives them, at the most what its
# middleware allows; room for a page of 500 KiB as the base class's scripts print it.
SETTINGS: Mapping[str, Any] = {"timeout.cell": 3600, "timeout.cpu": 0, "limits.output": "4M"}
LONG = 100_000  # bytes of a command line's word; Linux takes 128 KiB
TIMED_OUT = 124  # as the command timeout of coreutils exits

_SHELL = "s=sh; command -v bash >/dev/null && s=bash; exec $s -c "
_RUN = _SHELL + '"$0" 2>&1'
_RUN_LONG = _SHELL + "'eval \"$(cat)\" </dev/null' 2>&1"


class CellblockSandbox(BaseSandbox):  # type: ignore[misc, unused-ignore]
    """A backend of deep agents whose commands and files are those of a jail.

    `sandbox`: one that you made; it is yours to close. Without it one is made, with the keywords of `Sandbox`; its
    policy is `agent`, its workspace an empty folder in memory, or with `workspace=` an overlay over a folder of yours.
    `timeout`: seconds for a command whose caller says nothing. It starts at the first use; `close()` or `with` ends it.
    """

    enable_capture_offload = True

    def __init__(self, sandbox: Optional[Sandbox] = None, *, timeout: int = 120, **keywords: Any) -> None:
        if sandbox is not None and keywords:
            raise ValueError(f"give either a Sandbox or keywords for one, not both: {', '.join(keywords)}")
        if timeout <= 0:
            raise ValueError(f"timeout is {timeout!r}: allowed are seconds above 0")
        self._own = sandbox is None
        if sandbox is None:
            sandbox = Sandbox(**{**keywords, "policy": policy_for(keywords, SETTINGS)})
            sandbox._a._channel = "control"
        self.sandbox = sandbox
        self._timeout = timeout
        self._captures: dict[str, bool] = {}

    @property
    def id(self) -> str:
        """Unique among all sandboxes; the same as long as this one is."""
        return f"cellblock-{self.sandbox._a._session.id}"

    def __enter__(self) -> CellblockSandbox:
        self.sandbox.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the sandbox, if it was made here."""
        if self._own:
            self.sandbox.close()

    # Commands

    def execute(self, command: str, *, timeout: Optional[int] = None) -> ExecuteResponse:
        """Runs a command in bash, or sh where there is no bash. `timeout` in seconds; 0 is the policy's limit."""
        return self._wait(lambda: self._execute(command, timeout))

    async def aexecute(self, command: str, *, timeout: Optional[int] = None) -> ExecuteResponse:
        """As `execute`. A command whose caller gives up is ended."""
        return await acall(self._execute(command, timeout))

    def execute_with_offload(
        self, command: str, capture_path: str, *, max_inline_bytes: int, max_capture_bytes: Optional[int] = None,
        timeout: Optional[int] = None,
    ) -> ExecuteOffloadResult:
        """As the base class has it. Where the path's folder can't be written, long output is cut, head and tail."""
        if self._wait(lambda: self._can_capture(capture_path)):
            return super().execute_with_offload(
                command, capture_path, max_inline_bytes=max_inline_bytes, max_capture_bytes=max_capture_bytes,
                timeout=timeout,
            )
        return _cut(self.execute(command, timeout=timeout), max_inline_bytes)

    async def aexecute_with_offload(
        self, command: str, capture_path: str, *, max_inline_bytes: int, max_capture_bytes: Optional[int] = None,
        timeout: Optional[int] = None,
    ) -> ExecuteOffloadResult:
        """As `execute_with_offload`."""
        if await acall(self._can_capture(capture_path)):
            return await super().aexecute_with_offload(
                command, capture_path, max_inline_bytes=max_inline_bytes, max_capture_bytes=max_capture_bytes,
                timeout=timeout,
            )
        return _cut(await self.aexecute(command, timeout=timeout), max_inline_bytes)

    async def _execute(self, command: str, timeout: Optional[int]) -> ExecuteResponse:
        if not isinstance(command, str) or not command:
            return ExecuteResponse(output="Error: Command must be a non-empty string.", exit_code=1)
        if "\0" in command:
            return ExecuteResponse(output="Error: Command must not have a null character.", exit_code=1)
        if timeout is not None and timeout < 0:
            raise ValueError(f"timeout must be non-negative, got {timeout}")
        data = command.encode("utf-8", "replace")
        short = len(data) <= LONG
        argv = ["sh", "-c", *([_RUN, data.decode()] if short else [_RUN_LONG])]
        seconds = self._timeout if timeout is None else timeout or None
        try:
            done = await self.sandbox._a.run_command(argv, timeout=seconds, stdin=None if short else data)
        except CommandTimeoutError as e:
            text = "" if not e.stdout else e.stdout.rstrip("\n") + "\n"
            said = "Error: Command timed out" + (f" after {seconds} seconds." if seconds else ": the policy's limit.")
            return ExecuteResponse(output=text + said, exit_code=TIMED_OUT, truncated=False)
        except SandboxError as e:
            if not ended_from_inside(self.sandbox._a, e):
                raise
            return ExecuteResponse(output=f"Error: {e}", exit_code=KILLED, truncated=False)
        except OSError as e:  # what runs inside has taken all processes
            return ExecuteResponse(output=f"Error: {e}", exit_code=CANNOT_RUN, truncated=False)
        output = done.stdout + done.stderr  # the kernel's own note about output that was dropped is in stderr
        if done.limit == "memory":
            output += "\nError: The command went over the sandbox's limit of memory and was killed."
        return ExecuteResponse(output=output, exit_code=shell_status(done.returncode), truncated=done.limit == "output")

    async def _can_capture(self, path: str) -> bool:
        folder = posixpath.dirname(path)
        if folder not in self._captures:
            made = await self.sandbox._a.run_command(["sh", "-c", 'mkdir -p "$0" && [ -w "$0" ]', folder], timeout=60)
            self._captures[folder] = made.returncode == 0
        return self._captures[folder]

    # Files

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Makes or replaces files, and the folders above them; each has a response, in their order."""
        return self._wait(lambda: self._upload(files))

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """As `upload_files`."""
        return await acall(self._upload(files))

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Whole files; each has a response, in their order."""
        return self._wait(lambda: self._download(paths))

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """As `download_files`."""
        return await acall(self._download(paths))

    async def _upload(self, files: Sequence[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [FileUploadResponse(path, error=await self._try(path, self._write, data)) for path, data in files]

    async def _download(self, paths: Sequence[str]) -> list[FileDownloadResponse]:
        responses = []
        for path in paths:
            found: list[bytes] = []
            error = await self._try(path, self._read, found)
            responses.append(FileDownloadResponse(path, content=found[0] if found else None, error=error))
        return responses

    async def _write(self, path: str, data: bytes) -> None:
        await write_anyfile(self.sandbox._a, path, data)

    async def _read(self, path: str, found: list[bytes]) -> None:
        found.append(await read_anyfile(self.sandbox._a, path))

    async def _try(self, path: str, work: Callable[[str, T], Awaitable[None]], what: T) -> Optional[str]:
        """The word for what went wrong, None where nothing did. Errors of the sandbox itself are raised."""
        if not path.startswith("/"):
            return str(INVALID_PATH)
        try:
            await work(path, what)
        except OSError as e:
            for kind, word in _WORDS.items():
                if isinstance(e, kind):
                    return word
            return e.strerror or str(e)
        return None

    def _wait(self, make: Callable[[], Awaitable[T]]) -> T:
        return self.sandbox._call(make)


_WORDS: Mapping[Union[type, tuple[type, ...]], str] = {
    FileNotFoundError: FILE_NOT_FOUND,
    PermissionError: PERMISSION_DENIED,
    IsADirectoryError: IS_DIRECTORY,
    NotADirectoryError: INVALID_PATH,
}


def _cut(response: ExecuteResponse, most: int) -> ExecuteOffloadResult:
    if len(response.output) > most:
        response = dataclasses.replace(response, output=shorten(response.output, most), truncated=True)
    return ExecuteOffloadResult(offloaded=False, response=response)


__all__ = ["CellblockSandbox"]
