"""Runs code in jailed Jupyter kernels: `with Sandbox("agent") as sb: sb.run("1 + 1").value`."""

from ._async import AsyncBranch, AsyncSandbox
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
    ValueTooLargeError,
)
from ._files import AsyncFile, Change, ChangeList, Entry
from ._kernel import AsyncKernel, Kernel
from ._policy import Policy
from ._pool import AsyncLease, AsyncPool, Lease, Pool
from ._result import Array, CommandResult, ErrorInfo, Event, Image, Result, Usage
from ._sync import Branch, Sandbox
from ._tools import Call, Tool, tool

__version__ = "0.1.0"

__all__ = [
    "Array",
    "AsyncBranch",
    "AsyncFile",
    "AsyncKernel",
    "AsyncLease",
    "AsyncPool",
    "AsyncSandbox",
    "Branch",
    "BusyError",
    "Call",
    "CellError",
    "CellblockError",
    "Change",
    "ChangeList",
    "CheckpointError",
    "CommandError",
    "CommandResult",
    "CommandTimeoutError",
    "Entry",
    "ErrorInfo",
    "Event",
    "ForkError",
    "Image",
    "Kernel",
    "Lease",
    "Policy",
    "Pool",
    "PolicyError",
    "RequestError",
    "Result",
    "Sandbox",
    "SandboxClosedError",
    "SandboxError",
    "Tool",
    "ToolError",
    "Usage",
    "ValueTooLargeError",
    "tool",
]
