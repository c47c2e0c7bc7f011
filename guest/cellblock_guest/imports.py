"""A meta-path finder that calls us after certain modules were imported by the user, and finds our ipykernel shim.

It costs nothing until a name in its table is imported.
"""

import sys
from importlib.machinery import PathFinder


class _After:
    """The real loader, with a call after it."""

    def __init__(self, loader, done):
        self._loader, self._done = loader, done

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._done(module)


class Finder:
    def __init__(self):
        self._after = {}
        self._shim = None

    def after(self, name, callback):
        """callback(module) after `name` was imported; now, if it is already."""
        if name in sys.modules:
            callback(sys.modules[name])
        else:
            self._after[name] = callback

    def shim(self, find_spec):
        """find_spec(name, last) is our own spec of `ipykernel` and its parts, or None; `last`: nobody else has one."""
        self._shim = find_spec

    def find_spec(self, name, path=None, target=None):
        if name[:9] == "ipykernel" and self._shim is not None:
            return self._shim(name, False)
        if name in self._after:
            spec = PathFinder.find_spec(name, path)
            if spec is not None and spec.loader is not None:
                spec.loader = _After(spec.loader, self._imported)
            return spec
        return None

    def _imported(self, module):
        """An import that was interrupted does not come here, or not to the end: the next one does."""
        callback = self._after.get(module.__name__)
        if callback is not None:
            callback(module)
            self._after.pop(module.__name__, None)

    def install(self):
        sys.meta_path.insert(0, self)
        sys.meta_path.append(_Last(self))


class _Last:
    """At the end of the meta path: only what nobody else found."""

    def __init__(self, finder):
        self._finder = finder

    def find_spec(self, name, path=None, target=None):
        if name[:9] == "ipykernel" and self._finder._shim is not None:
            return self._finder._shim(name, True)
        return None
