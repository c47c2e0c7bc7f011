"""Variables of cells: the code that sets them, from JSON, bytes or a numpy array. Nothing is pickled."""

from __future__ import annotations

import base64
import json
import keyword
from typing import Any

# In the cell's own words, so that it works in any session; names of its own would be a marker. The last argument is the
# one that C code gives, which imports.allow does not judge.
_SET = "{name} = __import__('json', None, None, []).loads({data!r})"
_SET_BYTES = "{name} = __import__('base64', None, None, []).b64decode({data!r})"
_SET_ARRAY = (
    "{name} = __import__('numpy', None, None, []).frombuffer(bytearray("
    "__import__('base64', None, None, []).b64decode({data!r})), {dtype!r}).reshape({shape!r})"
)


def check_name(name: str) -> str:
    """ValueError where this is no name of a variable."""
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(f"{name!r} is no name of a variable")
    return name


def _array_parts(value: Any) -> Any:
    interface = getattr(value, "__array_interface__", None)
    if interface is None or not hasattr(value, "tobytes") or not hasattr(value, "dtype"):
        return None
    if value.dtype.hasobject or not hasattr(value, "ndim"):
        raise TypeError("an array of objects can't go into a sandbox: only those of numbers, texts and times")
    return value.dtype.str, tuple(int(n) for n in value.shape), value.tobytes()


def code_to_set(name: str, value: Any) -> str:
    """Code that gives the variable this value. TypeError where it is no JSON, bytes or numpy array."""
    check_name(name)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _SET_BYTES.format(name=name, data=base64.b64encode(bytes(value)).decode())
    array = _array_parts(value)
    if array is not None:
        dtype, shape, data = array
        return _SET_ARRAY.format(name=name, data=base64.b64encode(data).decode(), dtype=dtype, shape=shape)
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as e:
        raise TypeError(f"{name}: only JSON, bytes and numpy arrays can go into a sandbox: {e}") from None
    return _SET.format(name=name, data=text)
