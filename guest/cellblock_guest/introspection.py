"""COMPLETE and INSPECT in IPython mode."""

import builtins
import re

from IPython.utils.tokenutil import token_at_cursor

_TYPES = "_jupyter_types_experimental"
_IMPORT = re.compile(r"(?:^|\n)[ \t]*(?:import|from)[ \t]+(\w*)$")


def complete(shell, code, cursor, busy):
    """busy: a cell runs. Then names are looked up in the namespace as it stands; jedi takes seconds at first."""
    module = _IMPORT.search(code[:cursor])
    if module:
        return _complete_module(module.group(1), cursor)
    from IPython.core.completer import rectify_completions
    from .quiet import quiet

    completer = shell.Completer
    jedi = completer.use_jedi
    try:
        completer.use_jedi = jedi and not busy
        with quiet():  # and not with IPython's provisionalcompleter
            found = list(rectify_completions(code, completer.completions(code, cursor)))
    finally:
        completer.use_jedi = jedi
    types = [
        {"start": c.start, "end": c.end, "text": c.text, "type": c.type or "", "signature": c.signature or ""}
        for c in found
    ]
    start, end = (found[0].start, found[0].end) if found else (cursor, cursor)
    matches = [c.text for c in found]
    of = len(_object(shell, code[start:cursor]))
    if of and all(text[:of] == code[start : start + of] for text in matches):
        start, matches = start + of, [text[of:] for text in matches]
        types = [dict(t, start=start, text=t["text"][of:]) for t in types]
    return {
        "status": "ok",
        "matches": matches,
        "cursor_start": start,
        "cursor_end": end,
        "metadata": {_TYPES: types},
    }


def _object(shell, text):
    """Of `a.b.c` the `a.b.`: jedi's answers leave it out, IPython's own have the dot, up to 8.18 all of it."""
    object, dot, _ = text.rpartition(".")
    first = object.partition(".")[0]
    return object + dot if not first or first in shell.user_ns or hasattr(builtins, first) else ""


def _complete_module(prefix, cursor):
    """What IPython and jedi would both look up, 20 times quicker."""
    from IPython.core.completerlib import get_root_modules

    names = sorted(n for n in set(get_root_modules()) if n.startswith(prefix) and (prefix[:1] == "_" or n[:1] != "_"))
    start = cursor - len(prefix)
    types = [{"start": start, "end": cursor, "text": n, "type": "module", "signature": ""} for n in names]
    return {"status": "ok", "matches": names, "cursor_start": start, "cursor_end": cursor, "metadata": {_TYPES: types}}


def inspect(shell, code, cursor, detail_level, omit_sections):
    name = token_at_cursor(code, cursor)
    try:
        try:
            data = shell.object_inspect_mime(name, detail_level=detail_level, omit_sections=omit_sections)
        except TypeError:  # IPython 7
            data = shell.object_inspect_mime(name, detail_level=detail_level)
    except KeyError:
        return {"status": "ok", "found": False, "data": {}, "metadata": {}}
    if not shell.enable_html_pager:
        data = {mime: value for mime, value in data.items() if mime != "text/html"}
    return {"status": "ok", "found": True, "data": data, "metadata": {}}
