"""What callers give: texts, paths, seconds, variables of the environment.

TypeError or ValueError says what is wrong and what is allowed, before anything is sent.
"""

from __future__ import annotations

import math
import os
from numbers import Complex, Number, Real
from typing import Mapping
from uuid import UUID


def whole_text(what: str, text: object, allowed: str = "a text") -> str:
    """The text, if it is one that can be sent. TypeError or ValueError otherwise."""
    if not isinstance(text, str):
        kind = "None" if text is None else f"of type {type(text).__name__}"
        raise TypeError(f"{what} is {kind}, and must be {allowed}")
    try:
        text.encode()
    except UnicodeEncodeError as e:
        line = text.count("\n", 0, e.start) + 1
        raise ValueError(f"{what} has half a character (a lone surrogate, {text[e.start]!r}) at position {e.start}, in "
                         f"line {line}: it can't be sent") from None
    return text


def words(what: str, given: object) -> list[str]:
    """A command's words: texts and paths. TypeError or ValueError where they can be none."""
    if isinstance(given, (str, bytes)) or not hasattr(given, "__iter__"):
        raise TypeError(f"{what} is a list of words, as in ['git', 'status']")
    return [whole_text(f"{what}[{i}]", os.fspath(word)) for i, word in enumerate(given)]


def path_of(path: object) -> str:
    """TypeError or ValueError where this is no name of a file."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path is of type {type(path).__name__}, and must be a text or a path")
    return whole_text("path", os.fspath(path))


def _variable(value: object) -> object:
    """Numbers and paths have a text of their own. That of anything else (None) is hardly what was meant."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    kind = type(value)
    number = isinstance(value, Real) or (isinstance(value, Number) and not isinstance(value, Complex))  # Decimal, too
    truth = kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_")  # which is no Number
    return str(value) if number or truth or isinstance(value, UUID) else value


def environment(env: object) -> dict[str, str]:
    """Variables of the environment for a cell or a command. TypeError or ValueError where they can be none."""
    if not isinstance(env, (Mapping, type(None))):
        raise TypeError(f"env is {env!r:.100}, and must be a mapping of names and texts: {{'NAME': 'value'}}")
    found = {
        whole_text("a name of env", k): whole_text(f"env[{k!r:.100}]", _variable(v), "a text, number or path")
        for k, v in (env or {}).items()
    }
    for name in found:
        if not name or "=" in name:
            raise ValueError(f"env has the name {name!r}: a variable's name is not empty, and has no '='")
    return found


def seconds(what: str, value: object, *, none: str = "", zero: bool = False) -> float:
    """A time in seconds: a number above 0, or with `zero` from 0 on. `none`: what None would mean, for the error."""
    allowed = f"allowed are seconds {'from 0 on' if zero else 'above 0'}" + (f"; None is {none}" if none else "")
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{what} is {value!r:.100}: {allowed}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not 0 <= number < math.inf or (number == 0 and not zero):
        raise ValueError(f"{what} is {number:g}: {allowed}")
    return number
