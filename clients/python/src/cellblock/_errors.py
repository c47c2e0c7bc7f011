"""What can go wrong, as exceptions. All are CellblockError.

A cell that fails raises nothing unless `check=True` was given: the Result says what happened.
"""

from __future__ import annotations

import errno
from typing import Any, Mapping, Optional

from ._result import Result


class CellblockError(Exception):
    """Base of all errors of this package."""


class SandboxError(CellblockError):
    """The sandbox itself failed: no program, no jail, a dead kernel, a lost connection. Not the fault of a cell."""


class SandboxClosedError(SandboxError):
    """The sandbox was closed, or never started."""


class ForkError(SandboxError):
    """A sandbox was used in a process that was forked after its start. Make a new one there."""


class PolicyError(CellblockError, ValueError):
    """The policy, or a limit given as a keyword, is wrong. The text is the kernel's own where it found it."""


class CellError(CellblockError):
    """A cell failed and `check=True` was given. `result` is what `run` would have returned."""

    def __init__(self, result: Result) -> None:
        self.result = result
        super().__init__(str(result.error or "the cell did not run"))

    def __reduce__(self) -> Any:  # a pool of processes hands it on
        return type(self), (self.result,)


class RequestError(CellblockError):
    """The kernel refused a request. `name` is the kernel's word for the reason, `content` the whole reply."""

    def __init__(self, name: str, text: str, content: Optional[Mapping[str, Any]] = None) -> None:
        self.name, self.text, self.content = name, text, dict(content or {})
        twice = name == type(self).__name__  # a traceback names the class itself
        super().__init__(f"{name}: {text}" if text and not twice else text or name)

    def __reduce__(self) -> Any:
        return type(self), (self.name, self.text, self.content)


class CheckpointError(RequestError):
    """A checkpoint, rollback or branch could not be made."""


class BusyError(RequestError):
    """The kernel is busy with something that excludes the request (KernelBusyError)."""


class CommandError(RequestError):
    """A command of `run_command` was ended: at its timeout, or by an interrupt.

    `stdout`, `stderr` are what it had written, `usage` what it had used.
    """

    @property
    def stdout(self) -> str:
        return str(self.content.get("stdout", ""))

    @property
    def stderr(self) -> str:
        return str(self.content.get("stderr", ""))


class CommandTimeoutError(CommandError, TimeoutError):
    """A command of `run_command` ran longer than its timeout."""


class ValueTooLargeError(CellblockError, ValueError):
    """A variable's value does not fit into what one cell may say (limits.output, or limits.message), or what is asked
    of the kernel into one message (limits.message)."""


class ToolError(CellblockError):
    """A host tool is defined or used wrongly, on the host's side."""


# The names that the kernel gives to errors of files are Python's own. OSError itself has one of many numbers.
FILE_ERRORS: dict[str, Optional[int]] = {
    "FileNotFoundError": errno.ENOENT,
    "IsADirectoryError": errno.EISDIR,
    "NotADirectoryError": errno.ENOTDIR,
    "PermissionError": errno.EACCES,
    "FileExistsError": errno.EEXIST,
    "FileTooLargeError": errno.EFBIG,
    "OSError": None,
}

_BY_NAME: dict[str, type[RequestError]] = {
    "CheckpointError": CheckpointError,
    "KernelBusyError": BusyError,
    "CommandTimeoutError": CommandTimeoutError,
}

_INFRASTRUCTURE = {"IsolationError", "KernelDiedError", "JobLostError", "WireError", "DeadKernelError"}


def _of_a_file(number: Optional[int], text: str, path: Optional[str]) -> OSError:
    """As Python's own: of the number's class, and with the file's name once."""
    if number is None:
        return OSError(text)
    if path is None:
        return OSError(number, text)
    return OSError(number, text[len(path) + 2 :] if text.startswith(f"{path}: ") else text, path)


def from_reply(content: Mapping[str, Any], path: Optional[str] = None) -> Exception:
    """The exception for a reply whose status is not ok. `path`: the file that was asked for."""
    name = str(content.get("ename") or content.get("status") or "Error")
    text = str(content.get("evalue") or "")
    if name in FILE_ERRORS:
        return _of_a_file(FILE_ERRORS[name], text, path)
    if name in _INFRASTRUCTURE:
        return SandboxError(f"{name}: {text}")
    if name == "KeyboardInterrupt" and "stdout" in content:  # of a command
        return CommandError(name, text, content)
    return _BY_NAME.get(name, RequestError)(name, text, content)
