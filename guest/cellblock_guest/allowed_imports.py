"""imports.allow: what the code of cells may import, in the words that agents know.

It keeps well-meant code to the list; who wants to get around it can, since nothing in a guest is a wall: the jail is.
Judged is what `__main__` imports, by a statement or `__import__`. What modules import in their turn is theirs.
Semantics and words: smolagents 1.26, local_python_executor.py (check_import_authorized): "numpy" is that module alone,
"numpy.*" also what is below it, "numpy.linalg" allows "numpy" too, "*" is everything.
"""

import builtins
import sys

_WORDS = "Import of %s is not allowed. Authorized imports are: %s (the policy's imports.allow)"


def _tree(names):
    tree = {}
    for name in names:
        node = tree
        for part in name.split("."):
            node = node.setdefault(part, {})
    return tree


class AllowedImports:
    def __init__(self, names):
        self._names, self._tree = names, _tree(names)

    def allows(self, name):
        node = self._tree
        for part in name.split("."):
            if "*" in node:
                return True
            if part not in node:
                return False
            node = node[part]
        return True

    def install(self):
        real = builtins.__import__

        def __import__(name, globals=None, locals=None, fromlist=(), level=0):
            # C code imports in the name of the cell that called it, and hands over a list: time.strptime does
            if type(name) is str and type(fromlist) is not list:
                if globals is None:
                    globals = sys._getframe(1).f_globals
                if globals.get("__name__") == "__main__" and not self.allows(name):
                    raise ImportError(_WORDS % (name, self._names), name=name)
            return real(name, globals, locals, fromlist, level)

        builtins.__import__ = __import__
