"""Stand-ins for modules that IPython imports at its start but that a first cell does not need.

While IPython is imported, they are in sys.modules; afterwards they are taken out again, so that user code gets the real
ones. A name that IPython took from a stand-in imports the real module when it is called.
"""

import sys
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

# module -> functions that its importers take by name at import time
_NAMES = {"logging.config": ("dictConfig",), "ipaddress": (), "pprint": ("pformat",), "shlex": ()}


class _StandIn(ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:  # another name is taken at import time
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


def _later(module, name):
    def call(*args, **kwargs):
        return getattr(import_module(module), name)(*args, **kwargs)

    call.__name__ = name
    return call


@contextmanager
def stand_ins():
    made = {}
    for name, functions in _NAMES.items():
        if name not in sys.modules:
            module = _StandIn(name)
            for function in functions:
                setattr(module, function, _later(name, function))
            sys.modules[name] = made[name] = module
    try:
        yield
    finally:
        for name, module in made.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
            parent, _, child = name.rpartition(".")
            if getattr(sys.modules.get(parent), child, None) is module:
                delattr(sys.modules[parent], child)
