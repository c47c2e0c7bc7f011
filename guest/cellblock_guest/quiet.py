"""Warnings of what looks at code beside a running cell.

The filters are the whole process's, and of two threads in warnings.catch_warnings() each would put back the other's. So
the modules that use it for a question get something else by that name, which leaves the filters alone in such a thread.
"""

import sys
import warnings as _warnings
from _thread import _local
from contextlib import contextmanager, nullcontext

_MODULES = ("codeop", "IPython.core.completer", "IPython.core.inputtransformer2")


class _Here(_local):
    """Of each thread; a copy of the process has forgotten those that it has not."""

    quiet = False
    mute = False  # none of its warnings is shown


_here = _Here()


class _Quiet:
    """In the place of the module."""

    def __getattr__(self, name):
        return getattr(_warnings, name)

    @staticmethod
    def catch_warnings(*args, **kwargs):
        return nullcontext() if _here.quiet else _warnings.catch_warnings(*args, **kwargs)

    @staticmethod
    def simplefilter(*args, **kwargs):
        if not _here.quiet:
            _warnings.simplefilter(*args, **kwargs)

    @staticmethod
    def warn(message, category=None, stacklevel=1, **more):
        """IPython's says that what completes may change, and would have that raised."""
        if not _here.quiet or getattr(category, "__name__", "") != "ProvisionalCompleterWarning":
            _warnings.warn(message, category, stacklevel + 1, **more)


warnings = _Quiet()


def _take_their_place():
    for name in _MODULES:
        module = sys.modules.get(name)
        if getattr(module, "warnings", None) is _warnings:
            module.warnings = warnings


@contextmanager
def quiet():
    _take_their_place()
    _here.quiet = True
    try:
        yield
    finally:
        _here.quiet = False


def _take_what_shows():
    """The compiler's warnings go by the filters, too; Python calls this for those that are to be shown."""
    show = _warnings._showwarnmsg
    if getattr(show, "__module__", None) == __name__:
        return

    def _showwarnmsg(msg):
        if not _here.mute:
            show(msg)

    _warnings._showwarnmsg = _showwarnmsg


def muted(function):
    """A function that does the same, without a warning."""

    def call(*args):
        import codeop  # noqa: F401  (for _take_their_place)

        _take_what_shows()
        _here.mute = True
        try:
            with quiet():
                return function(*args)
        finally:
            _here.mute = False

    return call
