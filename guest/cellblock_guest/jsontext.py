"""JSON that passes the supervisor's strict scan: no NaN, no lone surrogates, string keys, no key twice, bounded depth.

encode() tries the C encoder first and repairs only what needs it; `lenient` (displays) turns unknown objects into text,
otherwise they raise TypeError (comms: the caller must know).
"""

import json
from binascii import b2a_base64
from collections.abc import Iterable

_MAX_DEPTH = 200  # the scan allows 256, contents are nested a little
_MAX_KEYS = 50000  # the scan allows 60000 keys in objects open at one time
_MAX_DIGITS = 4000  # characters of a number
_TOO_DEEP = "nested too deep, circular or too many keys for a Jupyter message"
_plain = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
quote = json.encoder.encode_basestring


def loads(data):
    return json.loads(str(data, "utf-8"))


def clean_text(text):
    """text without lone surrogates; pairs of surrogates become the character they mean."""
    try:
        text.encode("utf-8")
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def utf8(text):
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return clean_text(text).encode("utf-8")


def encode(value, lenient=True):
    if _is_simple(value, 0, _MAX_KEYS):
        try:
            return _plain(value).encode("utf-8")
        except (ValueError, TypeError, RecursionError):
            pass
    return utf8(_plain(_repair(value, lenient, 0, _MAX_KEYS, set())))


def encode_strict(value, around=0):
    """As json.dumps has it, keys too, as text; TypeError or ValueError for what the scan would refuse. around: how deep
    it will be nested."""
    try:
        text = _strict(value)
        if not _is_simple(value, around, _MAX_KEYS):
            _check(json.loads(text, object_pairs_hook=_no_key_twice), around, _MAX_KEYS)
        text.encode("utf-8")
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    return text


def _number(value):
    """Of numpy's scalars."""
    if type(value).__module__.partition(".")[0] == "numpy" and getattr(value, "ndim", None) == 0:
        return value.item()
    raise TypeError("Object of type %s is not JSON serializable" % type(value).__name__)


_strict = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_number).encode


def _no_key_twice(pairs):
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("two keys that are the same text")
    return result


def _check(value, depth, keys):
    if isinstance(value, dict):
        keys -= len(value)
        value = value.values()
    elif isinstance(value, int) and value.bit_length() > 3 * _MAX_DIGITS:
        raise ValueError("a number that is too long for a Jupyter message")
    elif not isinstance(value, list):
        return
    if depth >= _MAX_DEPTH or keys < 0:
        raise ValueError(_TOO_DEEP)
    for item in value:
        _check(item, depth + 1, keys)


def _is_simple(value, depth, keys):
    """False if value might hold what the C encoder passes but the scan refuses. keys: how many keys may still be
    open."""
    if depth > _MAX_DEPTH:
        return False
    if isinstance(value, dict):
        keys -= len(value)
        if keys < 0:
            return False
        for key, item in value.items():
            if key.__class__ is not str:
                return False
            if item.__class__ is not str and not _is_simple(item, depth + 1, keys):
                return False
    elif isinstance(value, (list, tuple)):
        for item in value:
            cls = item.__class__
            if cls is not float and cls is not str and not _is_simple(item, depth + 1, keys):
                return False
    elif value.__class__ is int:
        return -(1 << 256) < value < 1 << 256
    return True


def _base64(data):
    return b2a_base64(data, newline=False).decode("ascii")


def _repair(value, lenient, depth, keys, above):
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        value = int(value)
        return value if value.bit_length() < 3 * _MAX_DIGITS else hex(value)
    if isinstance(value, float):
        value = float(value)
        return value if value - value == 0 else None
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _base64(value)
    if isinstance(value, (dict, list, tuple, set, frozenset)):
        return _repair_container(value, lenient, depth, keys, above)
    return _repair_other(value, lenient, depth, keys, above)


def _repair_container(value, lenient, depth, keys, above, of=None):
    """of: the id of what the list was made of, anew each time that something leads there."""
    if isinstance(value, dict):
        keys -= len(value)
    of = of or id(value)
    if depth >= _MAX_DEPTH or keys < 0 or of in above:
        if not lenient:
            raise ValueError(_TOO_DEEP)
        return "<%s: too large or deep for a Jupyter message>" % type(value).__name__
    above.add(of)
    try:
        if not isinstance(value, dict):
            return [_repair(item, lenient, depth + 1, keys, above) for item in value]
        result = {}
        for key, item in value.items():
            result[clean_text(_key(key))] = _repair(item, lenient, depth + 1, keys, above)
        return result
    finally:
        above.discard(of)


def _key(key):
    if isinstance(key, str):
        return str(key)
    if key is None or key is True or key is False:
        return {None: "null", True: "true", False: "false"}[key]
    return str(key)


def _repair_other(value, lenient, depth, keys, above):
    try:
        plain = _plainer(value)
    except Exception:
        if not lenient:
            raise
        try:
            return str(value)
        except Exception:
            return "<%s>" % type(value).__name__
    if not isinstance(plain, list):
        return _repair(plain, lenient, depth, keys, above)
    return _repair_container(plain, lenient, depth, keys, above, id(value))


def _plainer(value):
    """As jupyter_client has it: what can be iterated is a list, an array as well, though it claims to be an index."""
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    item = getattr(value, "item", None)  # numpy's scalars
    if item is not None and getattr(value, "ndim", None) == 0:
        plain = item()
        if type(plain) is not type(value):
            return plain
    if isinstance(value, Iterable):
        return list(value)
    if hasattr(value, "__index__"):
        return value.__index__()
    if hasattr(value, "__float__"):
        return float(value)
    raise TypeError("Object of type %s is not JSON serializable" % type(value).__name__)


def bundle(data):
    """A mime bundle in which every value is JSON. Nothing is added: frontends are sent what was published."""
    result = {}
    for mime, value in data.items():
        if isinstance(value, (bytes, bytearray, memoryview)):
            value = _base64(value)
        elif isinstance(mime, str) and mime.startswith("text/") and not isinstance(value, (str, list, tuple)):
            value = str(value)
        result[mime] = value
    return result
