"""What an interpreter of DSPy has in the jail: functions that stand for host tools, and SUBMIT.

Trust domain: guest; code beside it can replace all of this. So it checks nothing that the host relies on.
"""

import json
import sys

CALL, OWN = "cellblock_dspy_call", "cellblock_dspy_own"  # the host's tools


class Submission(BaseException):
    """Ends a cell once its answer has been given."""


def _main():
    return sys.modules["__main__"].__dict__


def _host(host, *args):
    found = _main().get(host)
    if found is None:
        raise NameError("name %r is not defined" % host)
    try:
        return found(*args)
    except Exception as e:
        if type(e).__name__ != "HostToolError":
            raise
        raise RuntimeError(str(e)) from None


def _tool(name):
    def call(*args, **kwargs):
        return _host(CALL, name, list(args), kwargs)

    call.__name__ = call.__qualname__ = name
    call.__module__ = "__main__"
    return call


def _plain(value):
    for method in ("tolist", "model_dump", "isoformat", "_asdict"):
        if hasattr(value, method):
            return getattr(value, method)()
    if isinstance(value, (set, frozenset)):
        try:
            return sorted(value)
        except TypeError:
            return list(value)
    return repr(value)


def _text(value):
    try:
        return json.dumps(value, default=_plain)
    except (TypeError, ValueError, RecursionError):
        return json.dumps(repr(value))


def _give(given):
    _host(OWN, "{%s}" % ", ".join("%s: %s" % (json.dumps(k), _text(v)) for k, v in given.items()))
    raise Submission("the answer was given")


def _submit(fields):
    """With arguments of these names, which the host has checked; Python words what is wrong with a call."""
    made = {"__name__": "__main__", "_cellblock_give": _give}
    exec("def SUBMIT(%s): _cellblock_give(locals())" % ", ".join(["output"] if fields is None else fields), made)
    return made["SUBMIT"]


_ours = {}  # by name: what is to stand in `__main__` when a cell begins


def install(tools, before, fields):
    """Defines the tools and SUBMIT in `__main__`, and takes out what `before` names."""
    names = _main()
    for name in before:
        names.pop(name, None)
    _ours.clear()
    _ours.update((name, _tool(name)) for name in tools)
    _ours["SUBMIT"] = _submit(fields)
    keep()


def keep(*_event):
    """Puts back what earlier code has assigned to."""
    _main().update(_ours)


def watch():
    """Has `keep` called before each cell. False: this Python has nothing that does that, for it has no IPython."""
    shell = _main().get("get_ipython")
    if shell is None:
        return False
    events = shell().events
    for other in list(events.callbacks["pre_run_cell"]):
        if getattr(other, "__module__", None) == __name__:  # of a state from before
            events.unregister("pre_run_cell", other)
    events.register("pre_run_cell", keep)
    return True


def take():
    """Sets the variables that the host has for this cell."""
    parts = []
    while not parts or parts[-1]:
        parts.append(_host(OWN, sum(map(len, parts))))
    _main().update(json.loads("".join(parts)))
