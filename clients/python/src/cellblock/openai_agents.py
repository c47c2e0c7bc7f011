"""The OpenAI Agents SDK's sandboxes, jailed: `SandboxRunConfig(client=CellblockSandboxClient())`.

A session's commands and files are a Sandbox's; the model and its keys stay here. Source: openai-agents 0.24
(BaseSandboxClient, BaseSandboxSession, and the clients that it brings for services elsewhere).
"""

from __future__ import annotations

import contextlib
import io
import shlex
import uuid
from pathlib import Path
from typing import Any, Literal, Mapping, NoReturn, Optional, Union

from agents.sandbox.errors import (
    ExecTimeoutError, ExecTransportError, WorkspaceArchiveReadError, WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError, WorkspaceStartError, WorkspaceWriteTypeError,
)
from agents.sandbox.manifest import Manifest
from agents.sandbox.session import SandboxSession, SandboxSessionState
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.dependencies import Dependencies
from agents.sandbox.session.manager import Instrumentation
from agents.sandbox.session.runtime_helpers import RESOLVE_WORKSPACE_PATH_HELPER, RuntimeHelperScript
from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
from agents.sandbox.session.tar_workspace import shell_tar_exclude_args
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from agents.sandbox.types import ExecResult, User
from agents.sandbox.util.tar_utils import UnsafeTarMemberError, validate_tar_bytes
from pydantic import ConfigDict, Field

from ._acall import acall
from ._adapters import KILLED, ended_from_inside, policy_for, shell_status
from ._anyfile import read_anyfile, write_anyfile
from ._errors import CellblockError, CommandTimeoutError, SandboxError
from ._sync import Sandbox

# An empty folder that ends with the sandbox; commands have the time that the agent gives them; room for the output of
# commands that the SDK itself runs.
SETTINGS: Mapping[str, Any] = {"timeout.cell": 3600, "timeout.cpu": 0, "limits.output": "4M"}
QUICK = 60.0  # seconds for what is made and removed here


class CellblockSandboxClientOptions(BaseSandboxClientOptions):  # type: ignore[misc, unused-ignore]
    """What `Sandbox` takes, as JSON: the policy's name in `base`, all other keys in `policy`.

    Without `workspace` the session has an empty folder in memory; with one, an overlay over that folder of this host.
    """

    model_config = ConfigDict(extra="forbid")

    type: Literal["cellblock"] = "cellblock"
    base: Optional[str] = None
    memory: Union[None, int, str] = None
    cpu: Optional[float] = None
    network: Union[None, bool, str, list[str]] = None
    workspace: Optional[str] = None
    python: Optional[str] = None
    policy: dict[str, Any] = Field(default_factory=dict)


class CellblockSandboxSessionState(SandboxSessionState):  # type: ignore[misc, unused-ignore]
    """What is kept of a session: its options, its snapshot, and which sandbox of its client it was."""

    type: Literal["cellblock"] = "cellblock"
    sandbox_id: str
    options: CellblockSandboxClientOptions = Field(default_factory=CellblockSandboxClientOptions)


class CellblockSandboxSession(BaseSandboxSession):  # type: ignore[misc, unused-ignore]
    """A session whose commands and files are those of a jail; `sandbox` is the Sandbox below."""

    state: CellblockSandboxSessionState

    def __init__(self, *, state: CellblockSandboxSessionState, sandbox: Sandbox) -> None:
        self.state, self.sandbox = state, sandbox

    # The start and the end

    async def _ensure_backend_started(self) -> None:
        await acall(self.sandbox._a.start())

    async def _prepare_backend_workspace(self) -> None:
        root = self._workspace_root_path()
        made = await self._command(["mkdir", "-p", "--", root.as_posix()], QUICK, None, {})
        if made.exit_code != 0:
            raise WorkspaceStartError(path=root, context={"stderr": made.stderr.decode()[:1000]})

    async def running(self) -> bool:
        session = self.sandbox._a._session
        return session.connected is not None and session._lost is None

    async def _shutdown_backend(self) -> None:
        await acall(self.sandbox._a.close())

    def _runtime_helpers(self) -> tuple[RuntimeHelperScript, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)

    def _current_runtime_helper_cache_key(self) -> object:
        return self.state.sandbox_id

    # Commands

    async def _exec_internal(self, *command: Union[str, Path], timeout: Optional[float] = None) -> ExecResult:
        environment = await self.state.manifest.environment.resolve()
        cwd = self._workspace_root_path().as_posix()
        return await self._command([str(word) for word in command], timeout, cwd, environment)

    async def _command(
        self, argv: list[str], timeout: Optional[float], cwd: Optional[str], environment: Mapping[str, str]
    ) -> ExecResult:
        seconds = timeout if timeout is None else max(timeout, 0.001)
        try:
            done = await acall(self.sandbox._a.run_command(argv, timeout=seconds, cwd=cwd, env=environment))
        except CommandTimeoutError as e:
            raise ExecTimeoutError(command=argv, timeout_s=timeout, context=_said(e), cause=e) from e
        except (OSError, ValueError, CellblockError) as e:
            if isinstance(e, SandboxError) and ended_from_inside(self.sandbox._a, e):
                return ExecResult(stdout=b"", stderr=str(e).encode(), exit_code=KILLED)
            raise ExecTransportError(command=argv, cause=e) from e
        stderr = done.stderr
        if done.limit == "memory":
            stderr += "\nThe command went over the sandbox's limit of memory and was killed.\n"
        status = shell_status(done.returncode)
        return ExecResult(stdout=done.stdout.encode(), stderr=stderr.encode(), exit_code=status)

    # Files

    async def _validate_path_access(self, path: Union[Path, str], *, for_write: bool = False) -> Path:
        checked: Path = await self._validate_remote_path_access(path, for_write=for_write)
        return checked

    async def read(self, path: Path, *, user: Union[None, str, User] = None) -> io.IOBase:
        if user is not None:
            await self._check_read_with_exec(path, user=user)
        found = await self._validate_path_access(path)
        try:
            return io.BytesIO(await acall(read_anyfile(self.sandbox._a, found.as_posix())))
        except (OSError, CellblockError) as e:
            _not_read(path, e)

    async def _read_bounded(self, path: Path, *, max_bytes: int) -> bytes:
        found = await self._validate_path_access(path)
        try:
            return await acall(self.sandbox._a._files.read(found.as_posix(), 0, max_bytes))
        except PermissionError:  # not of the workspace
            rest: bytes = await super()._read_bounded(path, max_bytes=max_bytes)
            return rest
        except (OSError, CellblockError) as e:
            _not_read(path, e)

    async def write(self, path: Path, data: io.IOBase, *, user: Union[None, str, User] = None) -> None:
        if user is not None:
            await self._check_write_with_exec(path, user=user)
        payload = _bytes(path, data)
        found = await self._validate_path_access(path, for_write=True)
        await self._write(found, payload)

    async def _write(self, path: Path, data: bytes) -> None:
        try:
            await acall(write_anyfile(self.sandbox._a, path.as_posix(), data))
        except (OSError, CellblockError) as e:
            raise WorkspaceArchiveWriteError(path=path, context={"detail": str(e)}, cause=e) from e

    # The workspace as a whole: an archive beside its files for as long as it takes

    async def persist_workspace(self) -> io.IOBase:
        root, archive = self._workspace_root_path(), self._archive()
        excluded = shell_tar_exclude_args([*self._persist_workspace_skip_relpaths(), Path(archive.name)])
        command = f"tar -C {shlex.quote(root.as_posix())} {' '.join(excluded)} -cf {archive.name} ."
        try:
            made = await self._command(["sh", "-c", command], None, root.as_posix(), {})
            if made.exit_code != 0:
                raise WorkspaceArchiveReadError(path=root, context={"stderr": made.stderr.decode()[:1000]})
            return io.BytesIO(await acall(read_anyfile(self.sandbox._a, archive.as_posix())))
        except (OSError, CellblockError) as e:
            raise WorkspaceArchiveReadError(path=root, context={"detail": str(e)}, cause=e) from e
        finally:
            await self._remove(archive)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        root, archive = self._workspace_root_path(), self._archive()
        payload = _bytes(root, data)
        try:
            validate_tar_bytes(payload, allow_external_symlink_targets=False)
        except UnsafeTarMemberError as e:
            context = {"reason": "unsafe_or_invalid_tar", "member": e.member, "detail": str(e)}
            raise WorkspaceArchiveWriteError(path=root, context=context, cause=e) from e
        await self._prepare_backend_workspace()
        try:
            await self._write(archive, payload)
            command = ["tar", "-C", root.as_posix(), "-xf", archive.as_posix()]
            done = await self._command(command, None, root.as_posix(), {})
            if done.exit_code != 0:
                raise WorkspaceArchiveWriteError(path=root, context={"stderr": done.stderr.decode()[:1000]})
        finally:
            await self._remove(archive)

    def _archive(self) -> Path:
        return Path(self._workspace_root_path() / f".cellblock-{uuid.uuid4().hex}.tar")

    async def _remove(self, archive: Path) -> None:
        """Where it can't be done the sandbox is gone or busy: what came before says more."""
        with contextlib.suppress(ExecTransportError, ExecTimeoutError):
            await self._command(["rm", "-f", "--", archive.as_posix()], QUICK, None, {})


class CellblockSandboxClient(BaseSandboxClient[CellblockSandboxClientOptions]):  # type: ignore[misc, unused-ignore]
    """Gives the SDK's sandbox agents jails of this machine: `RunConfig(sandbox=SandboxRunConfig(client=…))`.

    The keywords are those of `Sandbox` that `CellblockSandboxClientOptions` has; the options of a session come first.
    A session that is resumed while its sandbox lives goes on in it, else in a new one with the snapshot's files.
    """

    backend_id = "cellblock"
    supports_default_options = True

    def __init__(
        self, *, instrumentation: Optional[Instrumentation] = None, dependencies: Optional[Dependencies] = None,
        **options: Any,
    ) -> None:
        self._instrumentation = instrumentation if instrumentation is not None else Instrumentation()
        self._dependencies = dependencies
        self._options = CellblockSandboxClientOptions(**options)
        self._live: dict[str, Sandbox] = {}

    async def create(
        self, *, snapshot: Union[None, SnapshotSpec, SnapshotBase] = None, manifest: Optional[Manifest] = None,
        options: Optional[CellblockSandboxClientOptions] = None,
    ) -> SandboxSession:
        manifest = manifest if manifest is not None else Manifest()
        self._validate_manifest_for_create(manifest)
        given = {} if options is None else options.model_dump(exclude_unset=True)
        session_id = uuid.uuid4()
        state = CellblockSandboxSessionState(
            session_id=session_id, manifest=manifest, snapshot=resolve_snapshot(snapshot, str(session_id)),
            sandbox_id="", options=self._options.model_copy(update=given),
        )
        return self._session(state, self._new(state))

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        if not isinstance(state, CellblockSandboxSessionState):
            raise TypeError("CellblockSandboxClient.resume expects a CellblockSandboxSessionState")
        state.assert_path_grants_rebound()
        sandbox = self._live.get(state.sandbox_id)
        lives = sandbox is not None and not sandbox._a._ended and sandbox._a._session._lost is None
        if sandbox is None or not lives:
            sandbox = self._new(state)
            state.workspace_root_ready = False
        session = self._session(state, sandbox)
        session._inner._set_start_state_preserved(lives, system=lives)
        return session

    async def delete(self, session: SandboxSession) -> SandboxSession:
        inner = session._inner
        if not isinstance(inner, CellblockSandboxSession):
            raise TypeError("CellblockSandboxClient.delete expects a CellblockSandboxSession")
        self._live.pop(inner.state.sandbox_id, None)
        await acall(inner.sandbox._a.close())
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, CellblockSandboxSessionState)

    def _session(self, state: CellblockSandboxSessionState, sandbox: Sandbox) -> SandboxSession:
        inner = CellblockSandboxSession(state=state, sandbox=sandbox)
        return self._wrap_session(inner, instrumentation=self._instrumentation)

    def _new(self, state: CellblockSandboxSessionState) -> Sandbox:
        """A sandbox, not started yet; those that have ended are forgotten."""
        for name in [name for name, sandbox in self._live.items() if sandbox._a._ended]:
            del self._live[name]
        words = state.options.model_dump()
        del words["type"]
        words["policy"] = policy_for(words, SETTINGS)
        sandbox = Sandbox(words.pop("base"), **words)
        sandbox._a._channel = "control"  # commands and files at once, not one after the other
        state.sandbox_id = uuid.uuid4().hex
        self._live[state.sandbox_id] = sandbox
        return sandbox


def _said(e: CommandTimeoutError) -> dict[str, object]:
    """What a command had written, without which a model can't tell how far it came."""
    return {"stdout": e.stdout[-4000:], "stderr": e.stderr[-4000:]}


def _not_read(path: Path, e: Exception) -> NoReturn:
    if isinstance(e, FileNotFoundError):
        raise WorkspaceReadNotFoundError(path=path, cause=e) from e
    raise WorkspaceArchiveReadError(path=path, context={"detail": str(e)}, cause=e) from e


def _bytes(path: Path, data: io.IOBase) -> bytes:
    payload: Any = data.read()
    if isinstance(payload, str):
        payload = payload.encode()
    if not isinstance(payload, (bytes, bytearray)):
        raise WorkspaceWriteTypeError(path=path, actual_type=type(payload).__name__)
    return bytes(payload)


__all__ = [
    "CellblockSandboxClient", "CellblockSandboxClientOptions", "CellblockSandboxSession",
    "CellblockSandboxSessionState",
]
