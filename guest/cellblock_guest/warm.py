"""What a first completion, inspection or traceback needs, imported before anybody asks: while a cell computes it would
take long.

Steps of some ms in the main thread, each begun only while the wire is quiet: so a cell waits for one of them at most,
and no fork meets a thread that imports. jedi stays out: it takes tens of MB, and is not asked while a cell runs.
"""

import select
import warnings
from contextlib import contextmanager
from importlib import import_module

_QUIET = 300, 20  # ms without a frame, before the first step and before each other
_ALL = "(?s)"  # each warning's text, in words that no other filter has

_MODULES = (
    "typing_extensions",
    "IPython.core.latex_symbols",
    "IPython.core.guarded_eval",
    "IPython.core.completer",
    "IPython.core.completerlib",
    "cellblock_guest.introspection",
    "IPython.core.oinspect",
    "pygments.util",
    "pygments.formatters.terminal256",
    "pygments.formatters.html",
    "pygments.styles.default",
    "pygments.lexer",
    "pygments.lexers.python",
    "stack_data",
)


class Warm:
    def __init__(self, shell, fd):
        self._steps = _steps(shell)
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        self._begun = False
        self.done = False

    def while_quiet(self):
        """Takes steps until a frame comes."""
        while not self.done and not self._poll.poll(_QUIET[self._begun]):
            self._begun = True
            with _without_warnings():
                self.done = next(self._steps, True)

    def all_at_once(self):
        """In a zygote, which has the time."""
        for _ in self._steps:
            pass
        self.done = True


@contextmanager
def _without_warnings():
    """Not by catch_warnings, which would undo what a module or another thread does to the filters meanwhile."""
    warnings.filterwarnings("ignore", _ALL)
    try:
        yield
    finally:
        for each in [each for each in warnings.filters if getattr(each[1], "pattern", "") == _ALL]:
            warnings.filters.remove(each)


def _steps(shell):
    """Yields False after each step."""
    for name in _MODULES:
        try:
            import_module(name)
        except Exception:  # another IPython, or a broken package: whoever needs it will say so
            pass
        yield False
    try:
        shell.Completer, shell.inspector
    except Exception:
        pass
