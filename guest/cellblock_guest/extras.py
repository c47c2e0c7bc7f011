"""What a client asks for with one cell (execute_request.metadata.cellblock): its value as data, variables of the
environment. Imported when it is first asked for."""

import json
import os
from base64 import b64encode

from .jsontext import encode_strict, utf8

MIME = "application/vnd.cellblock.value+json"
_DEPTH = 60  # of 200; what is around it is nested, too


def with_value(data, value, most):
    """data, with the value beside it if it is JSON, bytes or an array, of at most so many bytes."""
    try:
        found = _as_data(value, most)
    except Exception:  # of any kind: it may be the user's code that runs
        found = None
    return data if found is None else dict(data, **{MIME: found})


def _as_data(value, most):
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        return {"bytes": _base64(data)} if len(data) * 4 // 3 < most else None
    kind = type(value)
    if kind.__module__.partition(".")[0] == "numpy" and hasattr(value, "dtype"):
        return _as_array(value, most) if getattr(value, "ndim", 0) or kind.__name__ == "ndarray" else _json(value, most)
    return _json(value, most)


def _json(value, most):
    text = encode_strict(value, _DEPTH)
    return {"json": json.loads(text)} if len(text) < most and len(utf8(text)) < most else None


def _as_array(value, most):
    dtype = value.dtype
    if dtype.hasobject or dtype.names or value.nbytes * 4 // 3 >= most:
        return None
    return {"array": {"dtype": dtype.str, "shape": list(value.shape), "data": _base64(value.tobytes("C"))}}


def _base64(data):
    return b64encode(data).decode("ascii")


class Environment:
    """os.environ as the cell wants it, and then as it was."""

    def __init__(self, wanted):
        self._before = {name: os.environ.get(name) for name in wanted}
        self._wanted = wanted

    def __enter__(self):
        try:
            os.environ.update(self._wanted)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_error):
        for name, value in self._before.items():
            try:
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
            except (ValueError, OSError):  # a name that none may have
                pass
