"""Values as JSON and back, and the agent's tools as functions. Runs in the jail: smolagents.py sends this text there.

On the host _carry.py takes `pack` alone from here, and has a reader of its own for what comes from the jail. The guest
may be any Python from 3.9.
"""

import base64
import datetime
import decimal
import io
import math
import pathlib
import sys

MARK = "__cellblock__"


class FinalAnswerException(BaseException):
    """Ends the step: the host has the answer."""


def pack(value):
    """JSON of it. TypeError: it can't leave the jail."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {MARK: "float", "v": str(value)}
    if kind is list:
        return [pack(v) for v in value]
    if kind is dict and all(type(k) is str for k in value) and MARK not in value:
        return {k: pack(v) for k, v in value.items()}
    if isinstance(value, dict):
        return {MARK: "dict", "v": [[pack(k), pack(v)] for k, v in value.items()]}
    if isinstance(value, (tuple, set, frozenset)):
        name = "tuple" if isinstance(value, tuple) else "set" if isinstance(value, set) else "frozenset"
        return {MARK: name, "v": [pack(v) for v in value]}
    return _pack_more(value)


def _pack_more(value):
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {MARK: "bytes", "v": _text(bytes(value))}
    if isinstance(value, (str, int, float, list)):  # subclasses; of int an enum
        for base in (str, int, float, list):
            if isinstance(value, base):
                return pack(base(value))
    if isinstance(value, complex):
        return {MARK: "complex", "v": [pack(value.real), pack(value.imag)]}
    for kind in (datetime.datetime, datetime.date, datetime.time):
        if isinstance(value, kind):
            return {MARK: kind.__name__, "v": value.isoformat()}
    if isinstance(value, datetime.timedelta):
        return {MARK: "timedelta", "v": value.total_seconds()}
    if isinstance(value, decimal.Decimal):
        return {MARK: "decimal", "v": str(value)}
    if isinstance(value, pathlib.PurePath):
        return {MARK: "path", "v": str(value)}
    if any(_package(base) == "PIL" for base in type(value).__mro__) and hasattr(value, "save"):
        data = io.BytesIO()
        value.save(data, "PNG")
        return {MARK: "image", "v": _text(data.getvalue())}
    if _package(type(value)) == "numpy" and hasattr(value, "tobytes"):
        if value.dtype.hasobject or value.dtype.names:
            raise TypeError("an array of objects can't leave the sandbox: give its list")
        if not value.shape and hasattr(value, "item") and type(value).__name__ != "ndarray":
            return pack(value.item())
        return {MARK: "array", "dtype": value.dtype.str, "shape": list(value.shape), "v": _text(value.tobytes("C"))}
    raise TypeError(
        "a %s can't leave the sandbox: give text, numbers, lists, dicts, bytes, a numpy array or a PIL image, "
        "for a DataFrame df.to_dict()" % type(value).__name__
    )


def _package(kind):
    return kind.__module__.partition(".")[0]


def _text(data):
    return base64.b64encode(data).decode("ascii")


def unpack(said):
    if isinstance(said, list):
        return [unpack(v) for v in said]
    if not isinstance(said, dict):
        return said
    if MARK not in said:
        return {k: unpack(v) for k, v in said.items()}
    return _UNPACK[said[MARK]](said)


def _image(said):
    from PIL import Image

    image = Image.open(io.BytesIO(base64.b64decode(said["v"])))
    image.load()
    return image


def _array(said):
    import numpy

    return numpy.frombuffer(bytearray(base64.b64decode(said["v"])), said["dtype"]).reshape(said["shape"])


_UNPACK = {
    "float": lambda s: float(s["v"]),
    "dict": lambda s: {unpack(k): unpack(v) for k, v in s["v"]},
    "tuple": lambda s: tuple(unpack(s["v"])),
    "set": lambda s: set(unpack(s["v"])),
    "frozenset": lambda s: frozenset(unpack(s["v"])),
    "bytes": lambda s: base64.b64decode(s["v"]),
    "complex": lambda s: complex(*unpack(s["v"])),
    "datetime": lambda s: datetime.datetime.fromisoformat(s["v"]),
    "date": lambda s: datetime.date.fromisoformat(s["v"]),
    "time": lambda s: datetime.time.fromisoformat(s["v"]),
    "timedelta": lambda s: datetime.timedelta(seconds=s["v"]),
    "decimal": lambda s: decimal.Decimal(s["v"]),
    "path": lambda s: pathlib.PurePosixPath(s["v"]),
    "image": _image,
    "array": _array,
}


def _function(name, host, description, ends):
    def call(*args, **kwargs):
        found = sys.modules["__main__"].__dict__.get(host)
        if found is None:
            raise NameError("name %r is not defined" % name)
        try:
            answer = found([pack(a) for a in args], {k: pack(v) for k, v in kwargs.items()})
        except Exception as e:
            if type(e).__name__ != "HostToolError":
                raise
            raise type(e)(str(e).replace(host, name)) from None
        answer = unpack(answer)
        if ends:
            raise FinalAnswerException("the answer was given")
        return answer

    call.__name__ = call.__qualname__ = name
    call.__module__ = "__main__"
    call.__doc__ = description
    return call


_tools = {}  # by name, as they are to stand in `__main__`


def install(tools, before):
    """Defines the tools in `__main__`, and takes out what `before` names."""
    names = sys.modules["__main__"].__dict__
    for name in before:
        names.pop(name, None)
    _tools.clear()
    for name, host, description, ends in tools:
        names[name] = _tools[name] = _function(name, host, description, ends)


def put(variables):
    """A variable of the agent's user hides a tool, as with smolagents' own executor."""
    given = unpack(variables)
    for name in given:
        _tools.pop(name, None)
    sys.modules["__main__"].__dict__.update(given)


def keep(*_event):
    """Puts back the tools whose names the code has assigned to, and says so: else they would be gone for good."""
    names = sys.modules["__main__"].__dict__
    for name, function in list(_tools.items()):
        if names.get(name) is not function:
            names[name] = function
            sys.stderr.write("Cannot assign to name '%s': doing this would erase the existing tool! It is the tool "
                             "again: use another name.\n" % name)


def watch():
    """Has `keep` called around each cell. False: this Python has nothing that does that, for it has no IPython."""
    shell = sys.modules["__main__"].__dict__.get("get_ipython")
    if shell is None:
        return False
    for event in ("pre_run_cell", "post_run_cell"):
        shell().events.register(event, keep)
    return True
