"""Functions that run at each fork (os.register_at_fork), while a twin is made: one that does not come to an end, for it
waits for a lock that nobody gives back, is let go by an exception (Interrupts, LET_GO). Then there is no twin: what was
still to run before the fork does not, nor does the other half of what did not run to its end.

For other forks all is as Python does it. Used by twins.py; installed before anything registers but our own.
"""

import os

from .interrupts import LetGo


class Forks:
    def __init__(self, forks):
        self.forks = forks  # the code that calls fork()
        self.making = 0  # the number of a twin's fork; 0 = another's
        self.let_go = False  # one of those before it was: the fork is in vain
        self._count = 0

    def install(self):
        register = os.register_at_fork

        def register_at_fork(*, before=None, after_in_child=None, after_in_parent=None):
            given = {"before": before, "after_in_child": after_in_child, "after_in_parent": after_in_parent}
            given = {name: each for name, each in given.items() if each is not None}
            if given and all(map(callable, given.values())):
                given = _Triple(self, given).wrapped()
            return register(**given)

        register_at_fork.__doc__ = register.__doc__
        os.register_at_fork = register_at_fork

    def begin(self):
        self._count += 1
        self.let_go = False
        self.making = self._count

    def end(self):
        self.making = 0

    def stop_before(self, frame):
        """In a signal's handler. Where fork() is called it is raised once: none of them runs, or one in C does."""
        first, self.let_go = not self.let_go, True
        if first or frame.f_code is not self.forks:
            raise LetGo

    def stop_after(self, frame):
        """The same, but never there: fork() has been called, and its result would be lost."""
        if frame.f_code is not self.forks:
            raise LetGo


class _Triple:
    """What was registered together."""

    def __init__(self, forks, given):
        self._forks, self._given = forks, given
        self._ran = 0  # before which fork the first of them did, to its end

    def wrapped(self):
        return {name: getattr(self, "_" + name) for name in self._given}

    def _before(self):
        forks = self._forks
        if not forks.making:
            self._given["before"]()
        elif not forks.let_go:
            try:
                self._given["before"]()
            finally:
                if not forks.let_go:
                    self._ran = forks.making

    def _after_in_parent(self):
        if not self._forks.making or not self._forks.let_go or self._ran == self._forks.making:
            self._given["after_in_parent"]()

    def _after_in_child(self):
        if not (self._forks.making and self._forks.let_go):
            self._given["after_in_child"]()
