"""pdb and IPython's debugger in a cell: an interrupt ends their prompt, and our own frames are skipped."""

import sys


def with_debugger(pdb):
    if "IPython.core.debugger" not in sys.modules:  # else it is what imports pdb right now
        from IPython.core import debugger  # noqa: F401  (the import hook calls interruptible)


def interruptible(debugger):
    import pdb

    class CellPdb(debugger.InterruptiblePdb):
        def __init__(self, *args, **kwargs):
            kwargs.setdefault("skip", ["cellblock_guest.*"])  # what runs between cells is nobody's concern
            super().__init__(*args, **kwargs)

    debugger.Pdb = pdb.Pdb = CellPdb
    pdb.set_trace = debugger.set_trace
