"""Code that this program writes for cells: it sets variables, from JSON, bytes or a numpy array, and calls what was put
into the jail. Nothing is pickled."""

from __future__ import annotations

import base64
import json
import keyword
from typing import Any, Mapping, Sequence

from ._errors import ValueTooLargeError
from ._result import Result


def imported(module: str) -> str:
    """A module, in a cell's own words, so that it works in any session; names of its own would be a marker. The last
    argument is the one that C code gives, which imports.allow does not judge."""
    return f"__import__({module!r}, None, None, [])"


_SET = f"{{name}} = {imported('json')}.loads({{data!r}})"
_SET_BYTES = f"{{name}} = {imported('base64')}.b64decode({{data!r}})"
_SET_ARRAY = (
    f"{{name}} = {imported('numpy')}.frombuffer(bytearray("
    f"{imported('base64')}.b64decode({{data!r}})), {{dtype!r}}).reshape({{shape!r}}){{item}}"
)


_MEASURE = (
    "(lambda v: 0 if v is None else len(v) if isinstance(v, (bytes, bytearray)) else v.nbytes if "
    "isinstance(v, memoryview) or type(v).__module__ == 'numpy' and not v.dtype.hasobject and not v.dtype.names else "
    f"len({imported('json')}.dumps(v, allow_nan=False, ensure_ascii=False)))({{name}})"
)
_ROOM = 6  # a value goes with its text, and each of its bytes may need as many of that


def code_to_measure(name: str) -> str:
    """Code that says how large a variable's value is, 0 for None; it fails where that is no JSON, bytes or array."""
    return _MEASURE.format(name=check_name(name))


def no_value(name: str, result: Result, size: object, limits: Mapping[str, Any]) -> Exception:
    """Why a cell that is only this variable gave no data. `size`: what `code_to_measure` gave, None if it failed.

    The guest leaves out what takes half of limits.message; a result that is more than limits.output is dropped.
    """
    output, message = int(limits.get("output") or 0), int(limits.get("message") or 0)
    dropped = result.limit == "output" and result.repr is None
    key, most = "limits.output", output
    if not dropped and message and (not output or message // 2 <= output):
        key, most = "limits.message", message
    if not isinstance(size, int) or not (dropped or size * _ROOM >= most):
        return TypeError(f"{name} is neither JSON nor bytes nor a numpy array; its text: {result.repr!r:.200}")
    return ValueTooLargeError(
        f"the value of {name} has {size} bytes, and does not fit into {key} ({most} bytes), together with its text: "
        f"write it to a file of the workspace in a cell and take it with read_file(), or raise {key} in the policy"
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
    if hasattr(value, "mask"):
        raise TypeError("a masked array can't go into a sandbox: give its filled(…), and its mask beside it")
    if value.dtype.hasobject or value.dtype.names or not hasattr(value, "ndim"):
        kind = "with named fields" if value.dtype.names else "of objects"
        raise TypeError(f"an array {kind} can't go into a sandbox: only those of numbers, texts and times")
    return value.dtype.str, tuple(int(n) for n in value.shape), value.tobytes()


def code_to_set(name: str, value: Any) -> str:
    """Code that gives the variable this value. TypeError where it is no JSON, bytes or numpy array."""
    check_name(name)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _SET_BYTES.format(name=name, data=base64.b64encode(bytes(value)).decode())
    array = _array_parts(value)
    if array is not None:
        dtype, shape, data = array
        scalar = not shape and not hasattr(value, "__setitem__")  # numpy's numbers and times; a 0-d array stays one
        text = base64.b64encode(data).decode()
        return _SET_ARRAY.format(name=name, data=text, dtype=dtype, shape=shape, item="[()]" if scalar else "")
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as e:
        raise TypeError(f"{name}: only JSON, bytes and numpy arrays can go into a sandbox: {e}") from None
    return _SET.format(name=name, data=text)
