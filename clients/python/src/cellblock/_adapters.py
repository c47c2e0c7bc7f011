"""What the adapters of agent frameworks share: their sandboxes' defaults, and how they tell the end of a command.

Trust domain: host.
"""

from __future__ import annotations

import os
from typing import Any, Mapping, Optional

from ._async import AsyncSandbox
from ._errors import SandboxError
from ._policy import _flat, keys_of

KILLED, NOT_FOUND, CANNOT_RUN = 137, 127, 126  # exit statuses as a shell gives them
ANEW = "[The sandbox had failed and was started anew: variables and files of earlier calls are gone.]\n"
NONE: Mapping[str, Any] = {}


def policy_for(keywords: Mapping[str, Any], settings: Mapping[str, Any] = NONE) -> Optional[Mapping[str, Any]]:
    """The `policy` for these keywords of Sandbox. The caller's own keys win over `settings`, and over the workspace,
    which is an empty folder in memory where the caller names no folder, by the keyword or by `workspace.path`. A policy
    that is named says all that `settings` are about."""
    own = keys_of(keywords.get("policy"))
    if keywords.get("base") is not None or os.environ.get("CELLBLOCK_POLICY"):
        settings = NONE
    named = keywords.get("workspace") is not None or "workspace.path" in dict(_flat(own))
    memory = {} if named else {"workspace.mode": "tmpfs"}
    return {**settings, **memory, **own} or None


def _nothing() -> None:
    """Stands in where a sandbox begins without tools: they come later."""


def shell_status(returncode: int) -> int:
    """A command's exit status as a shell has it: 128 and the signal's number where one ended it."""
    return returncode if returncode >= 0 else 128 - returncode


def ended_from_inside(sandbox: AsyncSandbox, error: SandboxError) -> bool:
    """Whether what ran inside has ended all processes there, say by its use of memory; the kernel is there."""
    return str(error).startswith(("KernelDiedError:", "JobLostError:")) and sandbox._session._lost is None
