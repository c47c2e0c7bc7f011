"""Code that this program writes for cells: it sets variables, from JSON, bytes or a numpy array, and calls what was put
into the jail. Nothing is pickled."""

from __future__ import annotations

import base64
import json
import keyword
from typing import Any, Sequence


def imported(module: str) -> str:
    """A module, in a cell's own words, so that it works in any session; names of its own would be a marker. The last
    argument is the one that C code gives, which imports.allow does not judge."""
    return f"__import__({module!r}, None, None, [])"


_SET = f"{{name}} = {imported('json')}.loads({{data!r}})"
_SET_BYTES = f"{{name}} = {imported('base64')}.b64decode({{data!r}})"
_SET_ARRAY = (
    f"{{name}} = {imported('numpy')}.frombuffer(bytearray("
    f"{imported('base64')}.b64decode({{data!r}})), {{dtype!r}}).reshape({{shape!r}})"
)


def code_to_call(module: str, function: str, arguments: Sequence[Any]) -> str:
    """Code that calls a function of a module that is in `sys.modules` there, with JSON."""
    said = f"{imported('json')}.loads({json.dumps(arguments)!r})"
    return f"{imported('sys')}.modules[{module!r}].{function}(*{said})"


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
