"""The values that agents hand over, as JSON and back. On the host; _carry_inside.py is its other end.

Trust domain: host. `unpack` reads what hostile code has sent: nothing is evaluated, imported by name or unpickled, and
a value that is not what it says it is is a ValueError. Pictures are decoded by Pillow, as PNG alone.
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

PIXELS = 50_000_000  # of a picture from the jail


def pack(value: Any) -> Any:
    """JSON of a value, for `unpack` inside. TypeError: it can't go into the jail."""
    try:
        return _carry_inside.pack(value)
    except TypeError as e:
        raise TypeError(str(e).replace("can't leave", "can't go into")) from None


def unpack(said: Any) -> Any:
    """A value that the jail has packed. ValueError where it is malformed."""
    if isinstance(said, list):
        return [unpack(v) for v in said]
    if not isinstance(said, dict):
        return said
    if MARK not in said:
        return {k: unpack(v) for k, v in said.items()}
    kind = said[MARK]
    try:
        return _UNPACK[kind](said)
    except Exception as e:  # of any library that reads it
        raise ValueError(f"a value that says it is {str(kind)[:20]!r} is not: {type(e).__name__}") from None


def _bytes(said: Mapping[str, Any]) -> bytes:
    found = decode_value({"bytes": said["v"]})
    assert isinstance(found, bytes)
    return found


def _image(said: Mapping[str, Any]) -> Any:
    from PIL import Image

    image = Image.open(io.BytesIO(_bytes(said)), formats=["PNG"])
    if image.width * image.height > PIXELS:
        raise ValueError("too many pixels")
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


def _complex(said: Mapping[str, Any]) -> complex:
    real, imag = (unpack(v) for v in said["v"])
    return complex(real, imag)


_UNPACK: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "float": lambda s: _float(s["v"]),
    "dict": lambda s: {unpack(k): unpack(v) for k, v in s["v"]},
    "tuple": lambda s: tuple(unpack(v) for v in s["v"]),
    "set": lambda s: {unpack(v) for v in s["v"]},
    "frozenset": lambda s: frozenset(unpack(v) for v in s["v"]),
    "bytes": _bytes,
    "complex": _complex,
    "datetime": lambda s: datetime.datetime.fromisoformat(s["v"]),
    "date": lambda s: datetime.date.fromisoformat(s["v"]),
    "time": lambda s: datetime.time.fromisoformat(s["v"]),
    "timedelta": lambda s: _seconds(s["v"]),
    "decimal": lambda s: decimal.Decimal(s["v"]),
    "path": lambda s: pathlib.PurePosixPath(s["v"]),
    "image": _image,
    "array": _array,
}
