"""Policy: what a sandbox may do, and how the kernel is told."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, Sequence, Union

from ._errors import CellblockError, PolicyError, SandboxError

Size = Union[int, str]

_OPTION = re.compile(r"\bwith --(workspace|python)\b")
_WRONG_POLICY = "IsolationError: no jail: policy: "


def refused(text: str, word: Optional[Callable[[str], Optional[str]]]) -> CellblockError:
    """The error for what the kernel says of a jail that can't be had. `word` gives what the kernel's options are called
    by who had it started, so that a cure names that; how we say them to the kernel is our own matter. None: others
    started it."""
    if word is not None:
        text = _OPTION.sub(lambda found: f"with {word(found[1]) or found[1]}", text)
    if not text.startswith(_WRONG_POLICY):
        return SandboxError(text)
    text = text[len(_WRONG_POLICY):]
    return PolicyError(f"policy: {text[len('--set: '):] if text.startswith('--set: ') else text}")


def keys_of(policy: Optional[Mapping[str, Any]]) -> dict[str, Any]:
    """A copy of the caller's `policy`."""
    if isinstance(policy, (str, os.PathLike)):
        raise PolicyError(f"policy is {policy!r}, and must be a mapping of keys; a policy's name or file is given as "
                          f"base={str(policy)!r}")
    if policy is not None and not isinstance(policy, Mapping):
        raise PolicyError(f"policy is {policy!r:.100}, and must be a mapping of keys: {{'limits.pids': 50}}")
    return dict(policy or {})


def _flat(policy: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in policy.items():
        if not isinstance(key, str):
            raise PolicyError(f"policy: a key is text, not {key!r}")
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield before + key, value


def _text(key: str, value: Any) -> str:
    """The value as `--set` takes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if isinstance(value, (list, tuple, set, frozenset)):
        with contextlib.suppress(TypeError, ValueError):
            return json.dumps(list(value), default=os.fspath)
    raise PolicyError(f"policy: {key} is {value!r}; allowed are texts, numbers, lists, and objects of them")


@dataclasses.dataclass(frozen=True)
class Policy:
    """What a sandbox may do.

    `base`: "agent" (tight; the default, where CELLBLOCK_POLICY names no other), "notebook", the name of an installed
    policy, or a file's path with a "/". `memory`: bytes, or "512M", or a share as "50%". `cpu`: cores (0.5).
    `timeout`: seconds of wall time for each cell, 0 = none. `workspace`: the one folder that cells see; the current
    folder if left out. `network`: "none", "full", or a list of hosts. `imports`: names that cells may import.
    `settings`: all other keys of docs/policy.md, dotted or nested: {"limits.pids": 50}.

    What this version of the kernel does not know or cannot honour is a PolicyError when the sandbox starts.
    """

    base: Optional[str] = None
    memory: Optional[Size] = None
    cpu: Optional[float] = None
    timeout: Optional[float] = None
    workspace: Optional[Union[str, "os.PathLike[str]"]] = None
    network: Union[None, bool, str, Sequence[str]] = None
    imports: Optional[Sequence[str]] = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.base is not None and not isinstance(self.base, (str, os.PathLike)):
            raise PolicyError(f"base is {self.base!r:.100}, and must be a policy's name or file, or a Policy")
        if isinstance(self.imports, (str, bytes)) or not isinstance(self.imports, (Iterable, type(None))):
            raise PolicyError(f"imports is {self.imports!r:.100}; give a list of modules' names: ['math']")
        if not isinstance(self.network, (bool, str, Iterable, type(None))) or isinstance(self.network, bytes):
            raise PolicyError(f"network is {self.network!r:.100}; give 'none', 'full', or a list: ['pypi.org:443']")
        for name, names in (("imports", self.imports), ("network", self.network)):
            if isinstance(names, Iterable) and not isinstance(names, str):  # an iterator is used up by its first use
                object.__setattr__(self, name, tuple(names))
        if self.imports is not None and not self.imports:
            raise PolicyError("imports is empty, which the kernel takes for any module; name some, or leave it out")
        if isinstance(self.workspace, str) and not self.workspace:
            raise PolicyError("workspace is an empty text; give a folder, '.' for the current one, or leave it out")

    def keys(self) -> dict[str, Any]:
        """The dotted keys that this policy sets beside those of its base."""
        keys: dict[str, Any] = {"history.file": ":memory:"}
        for key, value in (
            ("limits.memory", self.memory),
            ("limits.cpu", self.cpu),
            ("timeout.cell", self.timeout),
            ("workspace.path", None if self.workspace is None else os.path.abspath(self.workspace)),
            ("imports.allow", None if self.imports is None else list(self.imports)),
        ):
            if value is not None:
                keys[key] = value
        if isinstance(self.network, bool):
            keys["network.mode"] = "full" if self.network else "none"
        elif isinstance(self.network, str):
            keys["network.mode"] = self.network
        elif self.network is not None:
            keys.update({"network.mode": "allow", "network.allow": list(self.network)})
        keys.update(_flat(self.settings))
        return keys

    def arguments(self) -> list[str]:
        """The words of the command line that say the same."""
        base = self.base or os.environ.get("CELLBLOCK_POLICY") or "agent"
        words = ["--policy", base]
        for key, value in self.keys().items():
            words += ["--set", f"{key}={_text(key, value)}"]
        return words
