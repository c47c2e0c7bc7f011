"""Files of a workspace, through the kernel: what cells see, and nothing else of this machine.

Invariant: paths are judged inside the jail, never here.
"""

from __future__ import annotations

import dataclasses
import errno
import io
from typing import Any, AsyncIterator, Awaitable, Callable, List, Mapping, NamedTuple, Optional, Sequence

from ._errors import RequestError
from ._session import Reply, Session

_MODES = {"r", "w", "a", "x"}
MAX_WHOLE = 1 << 30  # bytes of a file that is read as a whole: a cell may make one of any size, and let it grow


@dataclasses.dataclass(frozen=True)
class Entry:
    """What is in a folder: `type` is "file", "folder", "link", "pipe", "socket" or "device"; `size` in bytes."""

    name: str
    type: str
    size: int = 0
    mtime: float = 0.0


@dataclasses.dataclass(frozen=True)
class Change:
    """What an overlay changed: `change` is "added", "modified", "deleted", "skipped" or "failed" (with a `reason`)."""

    path: str
    change: str
    type: str = ""
    size: int = 0
    reason: Optional[str] = None


class ChangeList(List[Change]):
    """The changes; `counts` has how many of each kind there are in all, and `truncated` says that some are not in the
    list, which holds at most 4 MiB."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        super().__init__(c for c in (_pick(Change, said) for said in content.get("changes") or []) if c is not None)
        kinds = ("added", "modified", "deleted", "skipped", "failed")
        self.counts = {kind: int(content[kind]) for kind in kinds if isinstance(content.get(kind), int)}
        self.truncated = content.get("truncated") is True


def _pick(kind: Any, said: object) -> Any:
    """A dataclass from an object of the reply; keys that are not known are left out."""
    known = {f.name for f in dataclasses.fields(kind)}
    return kind(**{k: v for k, v in said.items() if k in known}) if isinstance(said, dict) else None


def _too_large(path: str) -> OSError:
    text = f"it has more than {MAX_WHOLE} bytes; open it with mode 'rb' and read parts of it, read(size)"
    return OSError(errno.EFBIG, text, path)


class Mode(NamedTuple):
    """What the letters of an open mode ask for."""

    letter: str
    text: bool
    plus: bool

    @classmethod
    def of(cls, mode: str) -> Mode:
        """ValueError for what Python's open would refuse."""
        letters = [c for c in mode if c in _MODES]
        wrong = set(mode) - _MODES - set("bt+") or len(set(mode)) != len(mode) or {"b", "t"} <= set(mode)
        if len(letters) != 1 or wrong:
            raise ValueError(f"invalid mode: {mode!r}")
        return cls(letters[0], "b" not in mode, "+" in mode)


class Files:
    """Requests about files, one part after the other where they are large.

    `part` tells how many bytes a part may have, which is known once `ready` is through: the first use starts a kernel.
    """

    def __init__(
        self, ready: Callable[[], Awaitable[Session]], part: Callable[[], int], channel: str = "shell"
    ) -> None:
        self._ready, self._part, self._channel = ready, part, channel

    async def part(self) -> int:
        await self._ready()
        return self._part()

    async def ask(self, op: str, path: Optional[str] = None, buffers: Sequence[bytes] = (), **more: Any) -> Reply:
        content = {"op": op, **({} if path is None else {"path": path}), **more}
        session = await self._ready()
        return await session.request("cellblock_file_request", content, buffers=buffers, channel=self._channel)

    async def read_at(self, path: str, offset: int, length: int) -> bytes:
        reply = await self.ask("read", path, offset=offset, length=min(length, await self.part()))
        return reply.buffers[0] if reply.buffers else b""

    async def size(self, path: str) -> int:
        return int((await self.ask("read", path, offset=0, length=0)).content["size"])

    async def read(self, path: str, offset: int = 0, length: int = -1) -> bytes:
        """Length below 0: to the end. OSError where that is further away than MAX_WHOLE."""
        if length < 0 and await self.size(path) - offset > MAX_WHOLE:
            raise _too_large(path)
        parts: List[bytes] = []
        room, size = MAX_WHOLE, await self.part()
        while length != 0:
            asked = min(size, MAX_WHOLE if length < 0 else length)
            data = await self.read_at(path, offset, asked)
            parts.append(data)
            if len(data) < asked:
                break  # its end: what is written behind it meanwhile may never end
            offset += len(data)
            room -= len(data)
            if length < 0 and room < 0:
                raise _too_large(path)
            length -= len(data) if length > 0 else 0
        return b"".join(parts)

    async def write(self, path: str, data: bytes) -> None:
        size = await self.part()
        await self.ask("write", path, [data[:size]], parents=True)
        for start in range(size, len(data), size):
            await self.ask("write", path, [data[start : start + size]], append=True)

    async def write_at(self, path: str, data: bytes, at: int, append: bool) -> int:
        """Writes there, or behind the end. Gives the position behind what was written."""
        size = await self.part()
        for start in range(0, len(data), size):
            part = data[start : start + size]
            reply = await self.ask("write", path, [part], **({"append": True} if append else {"offset": at}))
            at = int(reply.content["size"]) if append else at + len(part)
        return at

    async def begin(self, path: str, mode: Mode) -> int:
        """What open does before the first byte: the file is there, or made, or emptied. Gives the position."""
        if mode.letter == "r":
            await self.size(path)
        elif mode.letter == "a":
            return int((await self.ask("write", path, [b""], append=True)).content["size"])
        else:
            await self.ask("write", path, [b""], **({"exclusive": True} if mode.letter == "x" else {}))
        return 0

    async def list(self, path: str) -> List[Entry]:
        reply = await self.ask("list", path)
        if reply.content.get("truncated"):  # all, or an error: who asks takes it for the whole folder
            raise OSError(errno.EFBIG, "it has more entries than one message holds: list it by code, in parts", path)
        return [e for e in (_pick(Entry, said) for said in reply.content.get("entries") or []) if e is not None]

    async def delete(self, path: str, recursive: bool) -> int:
        return int((await self.ask("delete", path, recursive=recursive)).content["deleted"])

    async def changes(self, op: str) -> ChangeList:
        return ChangeList((await self.ask(op)).content)

    async def clear(self, everything: bool) -> None:
        if everything:
            await self._clean(".")
            return
        try:
            await self._clean(None)
        except (RequestError, OSError):
            if not await self._is_overlay():
                raise
            await self.ask("discard")

    async def _clean(self, path: Optional[str]) -> None:
        said = (await self.ask("clean", path)).content
        left = said.get("left", 0) - said.get("protected", 0)
        if left > 0:  # a folder that a cell has made read-only, say
            raise OSError(errno.ENOTEMPTY, f"{left} entries could not be deleted, the first: {said.get('first_left')}")

    async def _is_overlay(self) -> bool:
        try:
            await self.ask("changes")
        except (RequestError, OSError):
            return False
        return True


class AsyncFile:
    """An open file of the workspace. Text is read and written as a whole number of characters, lines end in LF.

    It has no `seek`, `tell` and `readline`: `async for` gives the lines.
    """

    def __init__(self, files: Files, path: str, mode: str, encoding: str) -> None:
        self._files, self._path, self._encoding = files, path, encoding
        self._mode, self._at, self._open = Mode.of(mode), 0, False

    async def __aenter__(self) -> AsyncFile:
        await self._begin()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def _begin(self) -> None:
        if not self._open:
            self._at = await self._files.begin(self._path, self._mode)
            self._open = True

    async def read(self, size: int = -1) -> Any:
        """The rest, or `size` bytes; of a text file the rest only."""
        await self._begin()
        if self._mode.letter != "r" and not self._mode.plus:
            raise io.UnsupportedOperation("not readable")
        if self._mode.text and size >= 0:
            raise io.UnsupportedOperation("a text file is read as a whole: open it with mode 'rb' to read parts")
        data = await self._files.read(self._path, self._at, size)
        self._at += len(data)
        return data.decode(self._encoding) if self._mode.text else data

    async def write(self, data: Any) -> int:
        """Writes text, or bytes with mode "b", at once; gives its length. TypeError for what is not that."""
        await self._begin()
        if self._mode.letter == "r" and not self._mode.plus:
            raise io.UnsupportedOperation("not writable")
        if not self._mode.text:
            raw = bytes(memoryview(data))
        elif isinstance(data, str):
            raw = data.encode(self._encoding)
        else:
            raise TypeError(f"write() argument must be str, not {type(data).__name__}")
        self._at = await self._files.write_at(self._path, raw, self._at, self._mode.letter == "a")
        return len(data if self._mode.text else raw)

    async def __aiter__(self) -> AsyncIterator[Any]:
        data = await self.read()
        end = "\n" if self._mode.text else b"\n"  # a file has no other; splitlines() knows more
        *lines, rest = data.split(end)
        for line in lines:
            yield line + end
        if rest:
            yield rest

    async def close(self) -> None:
        """Nothing is kept back, so there is nothing to do; the file can't be used afterwards."""
        self._files = Files(_closed, lambda: 1)


async def _closed() -> Session:
    raise ValueError("I/O operation on closed file")


Call = Callable[[Awaitable[Any]], Any]


class RawFile(io.RawIOBase):
    """A file for Python's own buffers and text layers; `call` runs a coroutine in the sandbox's loop and waits.

    It has no `truncate`: the kernel has no request for that.
    """

    def __init__(self, call: Call, files: Files, path: str, mode: Mode) -> None:
        self._call, self._files, self.name, self._mode = call, files, path, mode
        self._at: int = call(files.begin(path, mode))

    def readable(self) -> bool:
        return self._mode.letter == "r" or self._mode.plus

    def writable(self) -> bool:
        return self._mode.letter != "r" or self._mode.plus

    def seekable(self) -> bool:
        return True

    def readall(self) -> bytes:
        data: bytes = self._call(self._files.read(self.name, self._at))
        self._at += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        data = self._call(self._files.read_at(self.name, self._at, len(buffer)))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def write(self, data: Any) -> int:
        raw = bytes(data)
        self._at = self._call(self._files.write_at(self.name, raw, self._at, self._mode.letter == "a"))
        return len(raw)

    def seek(self, offset: int, whence: int = 0) -> int:
        base = 0 if whence == 0 else self._at if whence == 1 else self._call(self._files.size(self.name))
        if base + offset < 0:
            raise ValueError("negative seek position")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at


def opened(call: Call, files: Files, path: str, asked: Mode, encoding: str) -> Any:
    """What Python's open gives, over a file of the workspace."""
    raw = RawFile(call, files, path, asked)
    size: int = call(files.part())
    buffered: Any
    if asked.plus:
        buffered = io.BufferedRandom(raw, size)
    else:
        buffered = io.BufferedReader(raw, size) if asked.letter == "r" else io.BufferedWriter(raw, size)
    return io.TextIOWrapper(buffered, encoding=encoding, newline="\n") if asked.text else buffered
