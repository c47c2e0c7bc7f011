"""What a program leaves behind when it is killed is taken away all the same: by a small process that outlives it.

Role: one keeper for each process that has something to keep: the folder of its kernels' connection files, and kernels
that it had started on servers (kernels of this machine end by themselves). It is told what there is on its standard
input, as lines of JSON, and acts when its parent has died. Invariants: it ends when there is nothing to keep; it has
no Jupyter, no event loop, and nothing of the user's; tokens go through the pipe, never into arguments. Where none can
be started, a folder is removed by the next start (_launch.py), and servers stop unused kernels if they are set up to.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # the module `typing` takes its time
if TYPE_CHECKING:
    import subprocess
    from typing import Optional

PATIENCE = 60  # seconds that a server may be out of reach


class Keeper:
    """This process's keeper. `keep` and `done` may be called from any thread, and never fail."""

    def __init__(self) -> None:
        import threading

        # the collector may end a process, which takes it, in a thread that holds it
        self._lock, self._pid = threading.RLock(), os.getpid()
        self._kept: dict[str, dict[str, str]] = {}
        self._process: Optional[subprocess.Popen[bytes]] = None

    def keep(self, key: str, **what: str) -> None:
        """`folder`: to be removed; or `url`, `authorization` (a header): a kernel to be stopped."""
        with self._lock:
            self._kept[key] = what
            if self._process is None:
                self._start()
            self._tell({"key": key, **what})

    def done(self, key: str) -> None:
        """The program has done it itself."""
        with self._lock:
            if self._kept.pop(key, None) is None:
                return
            self._tell({"key": key})
            if not self._kept and self._process is not None:
                process, self._process = self._process, None
                self._close(process)

    def _start(self) -> None:
        import subprocess

        name = os.path.basename(sys.executable or "")
        if getattr(sys, "frozen", False) or not name.startswith(("python", "pypy")):
            return
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-ISs", os.path.abspath(__file__), str(os.getpid())], stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd="/",
            )
        except (OSError, RuntimeError):  # RuntimeError: the program ends
            return

    def _tell(self, what: dict[str, str]) -> None:
        import json

        if self._process is not None and self._process.stdin is not None:
            try:
                self._process.stdin.write(json.dumps(what).encode() + b"\n")
                self._process.stdin.flush()
            except OSError:  # somebody has killed it
                pass

    @staticmethod
    def _close(process: subprocess.Popen[bytes]) -> None:
        import threading

        try:
            if process.stdin is not None:
                process.stdin.close()
        except OSError:
            pass
        try:
            threading.Thread(target=process.wait, daemon=True).start()
        except RuntimeError:  # the program ends
            process.wait()


_keeper: Optional[Keeper] = None


def keeper() -> Keeper:
    """That of this process: a fork's child has none of its parent's."""
    global _keeper
    if _keeper is None or _keeper._pid != os.getpid():
        _keeper = Keeper()
    return _keeper


# What follows runs in the keeper's own process.


def _stop(url: str, authorization: str) -> None:
    import time
    import urllib.error
    import urllib.request

    end = time.monotonic() + PATIENCE
    headers = {"Authorization": authorization} if authorization else {}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the program's own requests know none
    while True:
        try:
            opener.open(urllib.request.Request(url, headers=headers, method="DELETE"), timeout=20)
            return
        except urllib.error.HTTPError as e:
            if e.code < 500:
                return  # it is gone, or not ours
        except (OSError, ValueError):
            pass
        if time.monotonic() > end:
            return
        time.sleep(1)


def _watch(parent: int) -> dict[str, dict[str, str]]:
    """Until the parent is dead, or wants nothing any more: what is to be done then."""
    import json
    import select

    kept: dict[str, dict[str, str]] = {}
    rest = b""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    try:
        fd = os.pidfd_open(parent)
        poll.register(fd, select.POLLIN)
    except (AttributeError, OSError):  # an older system; or it is dead, and the pipe says so
        fd = -1
    while True:
        ready = {each for each, _ in poll.poll()}
        data = os.read(0, 65536) if 0 in ready else b""
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            what = json.loads(line)
            key = what.pop("key")
            kept.pop(key, None)
            if what:
                kept[key] = what
        if not data:  # its death, or its end of the pipe; all that it had said is read
            return kept


def _main() -> None:
    for what in _watch(int(sys.argv[1])).values():
        if "folder" in what:
            import shutil

            shutil.rmtree(what["folder"], ignore_errors=True)
        elif "url" in what:
            _stop(what["url"], what.get("authorization", ""))


if __name__ == "__main__":
    _main()
