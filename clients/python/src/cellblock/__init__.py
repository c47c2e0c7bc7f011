"""Runs code in jailed Jupyter kernels: `with Sandbox("agent") as sb: sb.run("1 + 1").value`."""

from ._errors import (
    BusyError,
    CellblockError,
    CellError,
    CheckpointError,
    CommandError,
    CommandTimeoutError,
    ForkError,
    PolicyError,
    RequestError,
    SandboxClosedError,
    SandboxError,
    ToolError,
)
from ._result import Array, CommandResult, ErrorInfo, Event, Image, Result, Usage

__version__ = "0.1.0"

__all__ = [
    "Array",
    "BusyError",
    "CellError",
    "CellblockError",
    "CheckpointError",
    "CommandError",
    "CommandResult",
    "CommandTimeoutError",
    "ErrorInfo",
    "Event",
    "ForkError",
    "Image",
    "PolicyError",
    "RequestError",
    "Result",
    "SandboxClosedError",
    "SandboxError",
    "ToolError",
    "Usage",
]
