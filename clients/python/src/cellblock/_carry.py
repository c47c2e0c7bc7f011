"""The values that agents hand over, as JSON and back. On the host; _carry_inside.py is its other end.

Trust domain: host. `unpack` reads what hostile code has sent: nothing is evaluated, imported by name or unpickled, and
a value that is not what it says it is is a ValueError. Pictures are decoded by Pillow, as PNG alone. Time and memory
grow with the size of what was sent, and no faster.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import io
import pathlib
from typing import Any, Callable, Mapping

from . import _carry_inside
from ._carry_inside import MARK
from ._result import decode_value

PIXELS = 50_000_000  # of all pictures of a call, or of a step
MEMBERS = 20_000  # of a set or dict, other than texts and bytes
SAME_HASH = 64  # of them; all floats that are powers of two have no more
SAME_SETS = 4  # of members with sets in them: to compare those takes a time that grows in the same way


class TooMuchError(ValueError):
    """What the jail has sent is well formed, and more than is taken."""


class Room:
    """What is left for the pictures of one call or step: a small file can hold very many pixels."""

    def __init__(self) -> None:
        self.pixels = PIXELS

    def take(self, image: Any) -> None:
        """TooMuchError: this picture, not loaded yet, does not fit."""
        size = image.width * image.height
        if size > self.pixels:
            raise TooMuchError(f"pictures may have {PIXELS} pixels in all; make them smaller, or show fewer")
        self.pixels -= size


def pack(value: Any) -> Any:
    """JSON of a value, for `unpack` inside. TypeError: it can't go into the jail."""
    try:
        return _carry_inside.pack(value)
    except TypeError as e:
        raise TypeError(str(e).replace("can't leave", "can't go into")) from None


def unpack(said: Any, room: Room) -> Any:
    """A value that the jail has packed. ValueError where it is malformed, TooMuchError where it is too large."""
    if isinstance(said, list):
        return [unpack(v, room) for v in said]
    if not isinstance(said, dict):
        return said
    if MARK not in said:
        return {k: unpack(v, room) for k, v in said.items()}
    kind = said[MARK]
    try:
        return _UNPACK[kind](said, room)
    except TooMuchError:
        raise
    except Exception as e:  # of any library that reads it
        raise ValueError(f"a value that says it is {str(kind)[:20]!r} is not: {type(e).__name__}") from None


def _bytes(said: Mapping[str, Any]) -> bytes:
    found = decode_value({"bytes": said["v"]})
    assert isinstance(found, bytes)
    return found


def _hashed(found: list[Any]) -> list[Any]:
    """Members of a set, or keys of a dict, as they are. TooMuchError where a time that grows with the square of their
    number would count: who chooses numbers, or tuples of them, chooses their hashes. Those of texts are salted."""
    chosen = [v for v in found if not isinstance(v, (str, bytes))]
    if len(chosen) > MEMBERS:
        raise TooMuchError(f"a set or dict may have {MEMBERS} members or keys that are no text; give a list")
    _check_hashes(chosen, SAME_HASH)
    _check_hashes([v for v in chosen if _has_sets(v)], SAME_SETS)
    return found


def _check_hashes(members: list[Any], most: int) -> None:
    hashes = sorted(map(hash, members))
    if any(a == b for a, b in zip(hashes, hashes[most:])):
        raise TooMuchError(f"more than {most} members or keys of a set or dict have one hash; give a list")


def _has_sets(value: Any) -> bool:
    return isinstance(value, frozenset) or (isinstance(value, tuple) and any(map(_has_sets, value)))


def _members(said: Mapping[str, Any], room: Room) -> list[Any]:
    return _hashed([unpack(v, room) for v in said["v"]])


def _dict(said: Mapping[str, Any], room: Room) -> dict[Any, Any]:
    pairs = [(unpack(k, room), unpack(v, room)) for k, v in said["v"]]
    _hashed([k for k, _ in pairs])
    return dict(pairs)


def _image(said: Mapping[str, Any], room: Room) -> Any:
    from PIL import Image

    image = Image.open(io.BytesIO(_bytes(said)), formats=["PNG"])
    room.take(image)
    image.load()
    return image


def _array(said: Mapping[str, Any]) -> Any:
    return decode_value({"array": {"dtype": said["dtype"], "shape": said["shape"], "data": said["v"]}})


def _float(text: Any) -> float:
    if text not in ("nan", "inf", "-inf"):
        raise ValueError(text)
    return float(text)


def _seconds(number: Any) -> datetime.timedelta:
    return datetime.timedelta(seconds=number)


def _complex(said: Mapping[str, Any], room: Room) -> complex:
    real, imag = (unpack(v, room) for v in said["v"])
    return complex(real, imag)


_UNPACK: dict[str, Callable[[Mapping[str, Any], Room], Any]] = {
    "float": lambda s, _: _float(s["v"]),
    "dict": _dict,
    "tuple": lambda s, room: tuple(unpack(v, room) for v in s["v"]),
    "set": lambda s, room: set(_members(s, room)),
    "frozenset": lambda s, room: frozenset(_members(s, room)),
    "bytes": lambda s, _: _bytes(s),
    "complex": _complex,
    "datetime": lambda s, _: datetime.datetime.fromisoformat(s["v"]),
    "date": lambda s, _: datetime.date.fromisoformat(s["v"]),
    "time": lambda s, _: datetime.time.fromisoformat(s["v"]),
    "timedelta": lambda s, _: _seconds(s["v"]),
    "decimal": lambda s, _: decimal.Decimal(s["v"]),
    "path": lambda s, _: pathlib.PurePosixPath(s["v"]),
    "image": _image,
    "array": lambda s, _: _array(s),
}
