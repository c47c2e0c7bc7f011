"""A zygote's rehearsal: cells of its own run as a client's would, so that the first real one finds warm what it needs.
Nothing of it is left that a cell could see."""

import _socket
import builtins
import contextvars
import linecache
import os
import sys

from . import context, tracebacks, wire_constants as W
from .jsontext import encode
from .wire import header

_CELLS = ("1", "x = [0]\nprint(x)\nx", "1/0", "import os\nos.getcwd()")
_OF_MODULES = {
    "numpy": "import numpy\nnumpy.arange(3.0)",
    "pandas": "import pandas\npandas.DataFrame({'a': [1.0]}).describe()",
}
_LAST = ("last_type", "last_value", "last_traceback", "last_exc")


def rehearse(guest, modules):
    shell = guest.shell
    if hasattr(shell, "warm"):
        from .warm import Warm

        shell.warm = Warm(shell, guest.wire.fd)
        shell.warm.all_at_once()
    namespaces = [(each, each.copy()) for each in _namespaces(shell)]
    sources, hook = set(linecache.cache), sys.displayhook
    _run(guest, [*_CELLS, *(_OF_MODULES[name] for name in modules if name in _OF_MODULES)])
    for each, before in namespaces:
        each.clear()
        each.update(before)
    for name in set(linecache.cache) - sources:
        del linecache.cache[name]
    for name in _LAST:
        if hasattr(sys, name):
            delattr(sys, name)
    sys.displayhook = hook
    if hasattr(shell, "history_manager"):
        _forget_in_ipython(shell)
    shell.execution_count = 1
    guest.exit_code, guest.metadata = None, {}
    guest.headers.clear()
    guest.aio.context = contextvars.copy_context()
    tracebacks.forget_folder()


def _namespaces(shell):
    spaces = [shell.user_ns, builtins.__dict__]
    if hasattr(shell, "history_manager"):
        spaces += [shell.user_ns_hidden, shell.history_manager.output_hist, shell.history_manager.output_hist_reprs]
    return spaces


def _run(guest, cells):
    """Over a wire, whose other end is read by nobody: what they print is little."""
    ours, theirs = _socket.socketpair()
    os.dup2(theirs.fileno(), W.FD_WIRE, False)
    theirs.close()
    for code in cells:
        content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
        about = {"execution_count": 1, "silent": False, "store_history": False, "header": {"msg_id": ""}}
        _send(ours, W.EXECUTE, encode(content), encode(about))
    _send(ours, W.SHUTDOWN, b"{}", b"")
    guest.serve()
    guest.output.flush()
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, W.FD_WIRE, False)
    os.close(null)
    ours.close()
    context.begin(0)
    guest.wire.renew()


def _send(wire, kind, content, metadata):
    wire.sendall(header(kind, len(content), len(metadata)) + content + metadata)


def _forget_in_ipython(shell):
    history, hook = shell.history_manager, shell.displayhook
    for kept in "outputs", "exceptions":
        if getattr(history, kept, None):
            getattr(history, kept).clear()
    hook._ = hook.__ = hook.___ = ""
    hook.exec_result = None
    shell.last_execution_succeeded, shell.last_execution_result = True, None
    shell._last_traceback = shell._last_error = shell._refusal = shell._display_error = None
    shell._errors_sent = shell._outputs_kept = 0
    shell.cell_number, shell.cell_text = 1, ""
    for name in ("_filename_map",):
        if hasattr(shell.compile, name):
            getattr(shell.compile, name).clear()
    getattr(linecache, "_ipython_cache", {}).clear()
    for name in ("tb", "etype", "evalue"):
        for each in shell.InteractiveTB, shell.SyntaxTB:
            if name in vars(each):
                setattr(each, name, None)
