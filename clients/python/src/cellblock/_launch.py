"""Starts a kernel of this machine, and ends it.

Invariants: each kernel has a folder of its own for connection file, sockets and what it says; nobody else may enter
it; it is removed with the kernel, or when this process was killed (_keeper.py), or at the latest by the next start.
The kernel watches this process (JPY_PARENT_PID) and ends when it does, by whatever.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from pathlib import Path
from typing import Any, Optional, Sequence

from ._errors import SandboxError
from ._keeper import keeper

PREFIX = "cellblock-client-"
FRESH = 3600.0  # seconds: an empty folder may be one that its program is about to lock


def find_binary(named: Optional[str] = None, keyword: Optional[str] = "binary=") -> str:
    """The program `cellblock`: the one named (by `keyword`), $CELLBLOCK, that of this Python's prefix, that on PATH."""
    if not sys.platform.startswith("linux"):
        raise SandboxError(
            f"Cellblock's kernels run on Linux only, and this is {sys.platform}. "
            "Use Sandbox.connect() with the URL of a Jupyter server or gateway on a Linux machine."
        )
    for what, path in ((keyword, named), ("$CELLBLOCK", os.environ.get("CELLBLOCK"))):
        if path:
            found = shutil.which(path)
            if found:
                return os.path.abspath(found)
            raise SandboxError(f"{what} {path!r} is no program. Name the file `cellblock`, or leave it out.")
    # PREFIX/lib/python3.x/site-packages/cellblock: --user and system-wide packages are not those of sys.prefix
    prefixes = [sys.prefix, str(Path(__file__).parents[4])]
    beside = list(dict.fromkeys(os.path.join(prefix, "bin", "cellblock") for prefix in prefixes))
    for path in beside:
        if os.access(path, os.X_OK):
            return path
    found = shutil.which("cellblock")
    if found:
        return os.path.abspath(found)
    given, ways = (f"{keyword} (not given), ", f"{keyword} or $CELLBLOCK") if keyword else ("", "$CELLBLOCK")
    raise SandboxError(
        f"the program `cellblock` was not found. Searched: {given}$CELLBLOCK (not set), {', '.join(beside)}, "
        f"PATH ({os.environ.get('PATH', '')}). Install it (`pip install cellblock`, or ./demo in the sources), or "
        f"name it by {ways}."
    )


def interpreter_arguments(binary: str, python: Optional[str]) -> list[str]:
    """The Python to jail; what was found out about it when it was installed spares the start a search."""
    spec = Path(binary).parents[1] / "share/jupyter/kernels/cellblock"
    try:
        words = [str(w) for w in json.loads((spec / "kernel.json").read_text(encoding="utf-8"))["argv"]]
        words = [w.replace("{resource_dir}", str(spec)) for w in words]
        known, facts = words[words.index("--python") + 1], words[words.index("--facts") + 1]
    except (OSError, ValueError, LookupError, TypeError):
        return ["--python", python or sys.executable]
    if python is None or os.path.abspath(python) == known:
        return ["--python", known, "--facts", facts]
    return ["--python", python, *(["--facts", facts] if facts == "cache" else [])]


class _Home:
    """This process's folder for those of its kernels; locked as long as the process lives."""

    def __init__(self) -> None:
        import fcntl  # only where kernels can be started

        self.pid, self.count, self.lock, self.closed = os.getpid(), 0, -1, False
        base = os.environ.get("XDG_RUNTIME_DIR") or ""
        if len(base) > 50 or not os.access(base, os.W_OK | os.X_OK):
            base = tempfile.gettempdir()
        if len(base) > 50:
            base = "/tmp"  # a socket's address has 107 characters
        self._sweep(base)
        self.path = tempfile.mkdtemp(prefix=PREFIX, dir=base)
        try:
            self.lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if self.lock >= 0:
                os.close(self.lock)
            os.rmdir(self.path)
            raise
        keeper().keep(self.path, folder=self.path)

    @staticmethod
    def _sweep(base: str) -> None:
        """Folders of programs that were killed: nobody holds their lock."""
        import fcntl

        with contextlib.suppress(OSError):
            for entry in os.scandir(base):
                if not entry.name.startswith(PREFIX) or not entry.is_dir(follow_symlinks=False):
                    continue
                with contextlib.suppress(OSError):
                    fd = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                    try:
                        about = os.fstat(fd)
                        fresh = not any(os.scandir(entry.path)) and time.time() - about.st_mtime < FRESH
                        if about.st_uid == os.getuid() and not fresh:
                            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                            shutil.rmtree(entry.path, ignore_errors=True)
                    finally:
                        os.close(fd)

    def new_folder(self) -> Path:
        self.count += 1
        folder = Path(self.path) / str(self.count)
        folder.mkdir(mode=0o700)
        return folder

    def left(self, folder: Path) -> None:
        """Removes a kernel's folder, and the process's own after the last."""
        global _home
        shutil.rmtree(folder, ignore_errors=True)
        with _lock:
            try:
                os.rmdir(self.path)
            except FileNotFoundError:
                if self.closed:
                    return
            except OSError:
                return
            self.closed = True
            if _home is self:
                _home = None
            os.close(self.lock)
        keeper().done(self.path)


_home: Optional[_Home] = None
_lock = threading.RLock()  # the collector may end a process, which takes it, in a thread that holds it
_alive: "weakref.WeakSet[Process]" = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """Kernels that the program did not close end with it; this removes their folders, too."""
    mine = [p for p in _alive if not p.closed and p.owner == os.getpid()]
    for p in mine:
        p.popen.terminate()
    for p in mine:
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):  # Ctrl-C: no waiting
            p.popen.wait(3)
        p.release()


def _new_folder() -> tuple[_Home, Path]:
    global _home
    with _lock:
        if _home is None or _home.pid != os.getpid() or not os.path.isdir(_home.path):  # something has cleaned up
            _home = _Home()
        return _home, _home.new_folder()


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Process:
    """A kernel that this program started: its process, its connection file, its folder."""

    def __init__(self, arguments: Sequence[str], binary: str, cwd: Optional[str] = None) -> None:
        if not hasattr(os, "pidfd_open"):
            raise SandboxError(
                f"{sys.executable} has no os.pidfd_open, by which a kernel's end is seen: it was built for a Linux "
                "before 5.3. Use another Python, of 3.9 or newer"
            )
        try:
            self._home, self.folder = _new_folder()
        except OSError as e:
            raise SandboxError(
                f"no folder for a kernel can be made: {e}. It would be in $XDG_RUNTIME_DIR, or in the temporary folder "
                "($TMPDIR)"
            ) from e
        try:
            self._start(arguments, binary, cwd)
        except BaseException as e:
            self._home.left(self.folder)
            if isinstance(e, OSError):
                raise SandboxError(f"{binary} could not be started: {e}") from e
            raise
        self.closed, self.owner = False, os.getpid()
        _alive.add(self)

    def _start(self, arguments: Sequence[str], binary: str, cwd: Optional[str]) -> None:
        self.file = self.folder / "kernel.json"
        self.connection: dict[str, Any] = {
            "transport": "ipc",
            "ip": str(self.folder / "s"),
            "key": secrets.token_hex(32),
            "signature_scheme": "hmac-sha256",
            "kernel_name": "cellblock",
        }
        names = ("shell", "iopub", "stdin", "control", "hb")
        self.connection.update({f"{name}_port": i + 1 for i, name in enumerate(names)})
        with open(os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as f:
            json.dump(self.connection, f)
        env = {k: v for k, v in os.environ.items() if k not in ("JPY_SESSION_NAME", "CELLBLOCK_POLICY")}
        env["JPY_PARENT_PID"] = str(os.getpid())
        self.said = self.folder / "log"
        self.argv = [binary, "kernel", *arguments, "-f", str(self.file)]
        with open(self.said, "wb") as log:
            self.popen = subprocess.Popen(
                self.argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )
        try:
            self.pidfd = os.pidfd_open(self.popen.pid)
        except BaseException:
            self.popen.kill()
            self.popen.wait()
            raise

    def log(self, most: int = 2000) -> str:
        """The end of what the kernel has written on stderr."""
        try:
            return self.said.read_text(encoding="utf-8", errors="replace")[-most:].strip()
        except OSError:
            return ""

    def how_it_ended(self) -> str:
        status, log = self.popen.poll(), self.log()
        how = "is gone" if status is None else f"exited with status {status}"
        if status is not None and status < 0:
            with contextlib.suppress(ValueError):
                how = f"was killed by {signal.Signals(-status).name}"
        return f"the kernel {how}" + (f"; it had said: {log}" if log else "")

    async def wait(self, timeout: float) -> bool:
        """Whether the process has ended within so many seconds."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        with _lock:
            if self.closed:
                return True
            fd = os.dup(self.pidfd)

        def readable() -> None:
            loop.remove_reader(fd)
            if not ended.done():
                ended.set_result(None)

        loop.add_reader(fd, readable)
        try:
            await asyncio.wait_for(ended, timeout)
            return True
        except asyncio.TimeoutError:
            return False
        finally:
            loop.remove_reader(fd)
            os.close(fd)

    async def end(self, asked: bool, grace: float = 5.0) -> None:
        """Waits for the end (`asked`: it has been asked to), then SIGTERM, then SIGKILL; and removes what is left.

        Others may do the same in other threads, and one whose event loop has stopped does not come to the end of it.
        """
        try:
            if not (asked and await self.wait(grace)):
                for number in (signal.SIGTERM, signal.SIGKILL):
                    self.popen.send_signal(number)
                    if await self.wait(2 if number == signal.SIGTERM else 10):
                        break
        finally:
            self.release()

    def release(self) -> None:
        """After the end, or where nobody can wait any more: no child, no descriptor, no file is left."""
        with _lock:
            if self.closed:
                return
            self.closed = True
        self.popen.kill()
        self.popen.wait()
        os.close(self.pidfd)
        self._home.left(self.folder)

