"""The modules that a start imports, compiled, in one file: finding and reading them singly costs a fifth of a start.

Made when a kernelspec is installed (make, in a throw-away jail), used from the first import until the shell stands
(open, close). An entry counts only while its source is as it was, the whole file only for the same Python and search
path; everything else is found as ever. Modules look as if the path finder had found them.
"""

import marshal
import os
import sys
from _frozen_importlib_external import (
    MAGIC_NUMBER,
    ExtensionFileLoader,
    SourceFileLoader,
    spec_from_file_location,
)

_EXTENSION = -1  # as length: a shared library, which is no part of the file


def _key():
    return sys.version, MAGIC_NUMBER, sys.flags.optimize, sys.path


class _Loader(SourceFileLoader):
    """Takes the code out of the bundle, and leaves no trace of it in the module."""

    def __init__(self, name, path, fd, offset, size):
        super().__init__(name, path)
        self._place = fd, size, offset

    def exec_module(self, module):
        code = marshal.loads(os.pread(*self._place))
        module.__loader__ = module.__spec__.loader = SourceFileLoader(self.name, self.path)
        exec(code, module.__dict__)


class Bundle:
    def __init__(self, fd, start, modules):
        self._fd, self._start, self._modules = fd, start, modules

    def find_spec(self, name, path=None, target=None):
        entry = self._modules.get(name)
        if entry is None:
            return None
        path, is_package, mtime, size, offset, length = entry
        try:
            now = os.stat(path)
        except OSError:
            return None
        if now.st_mtime_ns != mtime or now.st_size != size:
            return None
        if length == _EXTENSION:
            return spec_from_file_location(name, path, loader=ExtensionFileLoader(name, path))
        loader = _Loader(name, path, self._fd, self._start + offset, length)
        folders = [os.path.dirname(path)] if is_package else None
        return spec_from_file_location(name, path, loader=loader, submodule_search_locations=folders)

    def close(self):
        sys.meta_path.remove(self)
        os.close(self._fd)


def open_bundle(path):
    """Puts it before all other finders; None where there is none, or it is another Python's."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        length = int(os.pread(fd, 16, 0))
        key, modules = marshal.loads(os.pread(fd, length, 16))
        if key == _key():
            found = Bundle(fd, 16 + length, modules)
            sys.meta_path.insert(0, found)
            return found
    except (ValueError, EOFError, TypeError):
        pass
    os.close(fd)
    return None


def make():
    """The bundle of all modules that importing the guest brings along, as bytes."""
    key = marshal.dumps(_key())  # before anything below may change the search path
    from . import main, profile  # noqa: F401

    try:
        from . import shell  # noqa: F401
        import IPython.core.magics  # noqa: F401
    except ImportError:
        from . import plain  # noqa: F401
    modules, codes, offset = {}, [], 0
    for name, module in sorted(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        loader = getattr(spec, "loader", None)
        if spec is None or spec.name != name or not spec.has_location or name == "__main__":
            continue
        about = os.stat(spec.origin)
        stamp = spec.origin, spec.submodule_search_locations is not None, about.st_mtime_ns, about.st_size
        if type(loader) is ExtensionFileLoader:
            modules[name] = (*stamp, 0, _EXTENSION)
        elif type(loader) is SourceFileLoader:
            code = marshal.dumps(loader.get_code(name))
            modules[name] = (*stamp, offset, len(code))
            codes.append(code)
            offset += len(code)
    index = marshal.dumps((marshal.loads(key), modules))
    return b"%16d" % len(index) + index + b"".join(codes)
