"""What a cell gave: Result, and the parts that it is made of.

Invariant: nothing from the jail is evaluated or unpickled. A value comes as JSON, bytes, or the raw bytes of an array.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import math
import re
from typing import Any, Literal, Mapping, Optional

VALUE_MIME = "application/vnd.cellblock.value+json"
Fault = Literal["code", "limit", "infrastructure"]

# Sequences that terminals obey: CSI, then strings (OSC and their like) to their end, then what is left of any other.
_ANSI = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
)
_CONTROL = re.compile(r"\x1b.?|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]")
# numpy divides by the number of a time's steps, which it reads as it does sizes: without a look at what is too large.
_DTYPE = re.compile(r"[<>|=]?[biufcmMSUV?][0-9]{0,8}(\[(?:[1-9][0-9]{0,8})?[a-zA-Z]+\])?")
_PLACE = re.compile(r" \((?:[^()\n]*, )?line [0-9]+\)$")  # with which the text of a SyntaxError ends
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml")


@dataclasses.dataclass(frozen=True)
class ErrorInfo:
    """The error of a cell: `name` is its class's name, `value` its text, `traceback` lines without colours."""

    name: str
    value: str
    traceback: str = ""

    @property
    def hint(self) -> str:
        """The kernel's word on what was refused and its cure, with which the traceback ends; "" where there is none."""
        lines = self.traceback.rstrip("\n").split("\n")
        first = len(lines)
        while first > 0 and lines[first - 1].startswith("[cellblock] "):
            first -= 1
        return "\n".join(lines[first:])

    @property
    def line(self) -> str:
        """Name and text, as Python says them."""
        return f"{self.name}: {self.value}" if self.value else self.name

    def __str__(self) -> str:
        """For people: a terminal obeys nothing in it."""
        return plain(f"{self.line}\n{self.hint}" if self.hint else self.line)


@dataclasses.dataclass(frozen=True)
class Image:
    """A picture that a cell showed: `data` are the bytes of a file of type `mime` ("image/png" …)."""

    mime: str
    data: bytes

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        text = self.mime == "image/svg+xml"
        return {self.mime: self.data.decode("utf-8", "replace") if text else base64.b64encode(self.data).decode()}


@dataclasses.dataclass(frozen=True)
class Usage:
    """What a cell used: seconds and bytes. Zero where the kernel did not say."""

    wall_s: float = 0.0
    cpu_user_s: float = 0.0
    cpu_sys_s: float = 0.0
    memory_peak_bytes: int = 0
    output_bytes: int = 0
    read_bytes: int = 0
    write_bytes: int = 0

    @classmethod
    def of(cls, said: object) -> Usage:
        """From the kernel's own words; keys that are not known are left out."""
        if not isinstance(said, Mapping):
            return cls()
        numbers = {
            f.name: said[f.name]
            for f in dataclasses.fields(cls)
            if isinstance(said.get(f.name), (int, float)) and not isinstance(said[f.name], bool)
        }
        return cls(**numbers)


@dataclasses.dataclass(frozen=True)
class Array:
    """A numpy array of a cell where numpy is not installed on this side: `data` in C order, items of type `dtype`.

    `numpy.frombuffer(a.data, a.dtype).reshape(a.shape)` makes an array of it.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes


class NoValue(Exception):
    """The data of a cell's value is not what it says it is."""


def _bytes(text: object) -> bytes:
    if not isinstance(text, str):
        raise NoValue("base64 is no text")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as e:
        raise NoValue(f"base64: {e}") from None


def _array(said: object) -> object:
    if not isinstance(said, Mapping) or not isinstance(said.get("dtype"), str):
        raise NoValue("an array without dtype")
    dtype, shape = said["dtype"], said.get("shape")
    if not _DTYPE.fullmatch(dtype):
        raise NoValue(f"dtype {dtype[:40]!r}")
    if not isinstance(shape, list) or len(shape) > 64 or not all(type(n) is int and n >= 0 for n in shape):
        raise NoValue("an array without shape")
    data = _bytes(said.get("data"))
    try:
        import numpy
    except ImportError:
        return Array(dtype, tuple(shape), data)
    try:
        kind = numpy.dtype(dtype)
        if kind.hasobject or kind.itemsize * math.prod(shape) != len(data):
            raise NoValue("an array's data have another size than dtype and shape say")
        return numpy.frombuffer(bytearray(data), kind).reshape(shape)
    except (TypeError, ValueError) as e:
        raise NoValue(f"array: {e}") from None


def decode_value(said: object) -> object:
    """The value that the guest put beside a result (see VALUE_MIME); NoValue where that is malformed.

    Arrays become numpy arrays where numpy is installed here, else `Array`.
    """
    if isinstance(said, Mapping) and len(said) == 1:
        if "json" in said:
            return said["json"]
        if "bytes" in said:
            return _bytes(said["bytes"])
        if "array" in said:
            return _array(said["array"])
    raise NoValue("neither json nor bytes nor array")


def plain(text: str) -> str:
    """The text without terminal escapes and control characters other than ends of lines and tabs."""
    return _CONTROL.sub("", _ANSI.sub("", text))


def shorten(text: str, most: int) -> str:
    """Head and tail of a text that is longer than `most` characters, and how much is missing between them."""
    if len(text) <= most:
        return text
    mark = f"\n[… {len(text)} characters in all …]\n"
    room = max(0, most - len(mark))
    head = room * 2 // 3
    return (text[:head] + mark + (text[len(text) - (room - head) :] if room > head else ""))[:most]


@dataclasses.dataclass
class Result:
    """What one cell gave.

    `ok`: it ended without an error. `value`: its last expression as data (JSON, bytes, or a numpy array) where
    `has_value`; `repr` is its text in any case. `stdout`, `stderr`: all that it wrote. `displays`: MIME bundles that it
    showed, `images` the pictures among them. `error`: None or name, value, traceback. `usage`: seconds and bytes.
    `limit`: None or the limit that it hit ("time", "cpu", "memory", "output" …). `state`: what became of the
    variables ("kept", "restored" to before the cell, "lost"); `undone`: numbers of the cells whose effects are gone.
    `calls`: host tools that it called; first those of other cells that were undone with it. `fault`: None, "code" (the
    cell's own), "limit" (it was ended by a limit or by an interrupt of the caller; each MemoryError counts as one, also
    that of a cell that raises it itself), "infrastructure" (ours: score nobody for it). `partial`: not all of
    it is here: the run was cancelled before its end, or output was lost on its way.
    """

    ok: bool = False
    value: Any = None
    has_value: bool = False
    repr: Optional[str] = None
    stdout: str = ""
    stderr: str = ""
    displays: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    error: Optional[ErrorInfo] = None
    usage: Usage = Usage()
    limit: Optional[str] = None
    state: str = "kept"
    undone: list[int] = dataclasses.field(default_factory=list)
    calls: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    fault: Optional[Fault] = None
    execution_count: Optional[int] = None
    partial: bool = False

    @property
    def images(self) -> list[Image]:
        """The pictures among the displays and the result, one of each: the first type of PNG, JPEG, GIF, WebP, SVG."""
        found = []
        for bundle in self.displays:
            for mime in _IMAGES:
                said = bundle.get(mime)
                if isinstance(said, str):
                    try:
                        data = said.encode() if mime == "image/svg+xml" else base64.b64decode(said)
                    except (binascii.Error, ValueError):
                        continue
                    found.append(Image(mime, data))
                    break
        return found

    def text(self, max_chars: int = 8000) -> str:
        """What a model or a person should read: output, result, and the error, without terminal escapes.

        At most `max_chars` characters: of what is longer head and tail, the error first of all.
        """
        shown = [t for t in (d.get("text/plain") for d in self.displays) if isinstance(t, str)]
        if self.repr and self.repr not in shown[-1:]:  # one that is more than text is a display, too
            shown.append(self.repr)
        parts = [plain(self.stdout), f"[stderr]\n{plain(self.stderr)}" if self.stderr else "", *map(plain, shown)]
        body = "\n".join(p.rstrip("\n") for p in parts if p)
        if self.error is None:
            return shorten(body, max_chars)
        tail, said = plain(self.error.traceback), plain(self.error.line)
        if said not in tail and _PLACE.sub("", said) not in tail:  # a traceback has the place in lines of its own
            tail = f"{tail}\n{said}" if tail else said
        if not body:
            return shorten(tail, max_chars)
        tail = shorten(tail, max(max_chars // 2, max_chars - len(body) - 1))
        body = shorten(body, max(0, max_chars - len(tail) - 1))
        return f"{body}\n{tail}" if body else tail


@dataclasses.dataclass(frozen=True)
class CommandResult:
    """What a command gave: `returncode` (negative: the signal that killed it), `stdout`, `stderr`, `limit`, `usage`."""

    returncode: int
    stdout: str
    stderr: str
    limit: Optional[str] = None
    usage: Usage = Usage()


@dataclasses.dataclass(frozen=True)
class Event:
    """A piece of a running cell's output, as `stream` gives it.

    `kind` "stdout" or "stderr": `text`. "display" or "result": `data`, a MIME bundle, and `text` its plain text.
    "clear": what was shown may be cleared. "error": `text`. "end": `result`, the last event.
    """

    kind: Literal["stdout", "stderr", "display", "result", "clear", "error", "end"]
    text: str = ""
    data: dict[str, Any] = dataclasses.field(default_factory=dict)
    result: Optional[Result] = None
