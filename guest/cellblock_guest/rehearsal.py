"""A zygote's rehearsal: cells of its own run as a client's would, so that the first real one finds warm what it needs.
Nothing of it is left that a cell could see."""

import _socket
import builtins
import contextvars
import linecache
import os
import sys

from . import context, newborn, tracebacks, wire_constants as W
from .jsontext import encode
from .wire import header

_CELLS = ("1", "x = [0]\nprint(x)\nx", "1/0", "import os\nos.getcwd()")
_OF_MODULES = {
    "numpy": "import numpy\nnumpy.random, numpy.linalg\nnumpy.arange(3.0)",  # which numpy loads when they are used
    "pandas": "import pandas\npandas.DataFrame({'a': [1.0]}).describe()",
}
_OFTEN = 3  # so that Python makes of it what it makes of code that often runs
_LAST = ("last_type", "last_value", "last_traceback", "last_exc")


def rehearse(guest, modules):
    import ctypes

    shell, guest.libc = guest.shell, ctypes.CDLL(None)  # no copy has to look whether it needs it
    if hasattr(shell, "warm"):
        from .warm import Warm

        shell.warm = Warm(shell, guest.wire.fd)
        shell.warm.all_at_once()
    namespaces = [(each, each.copy()) for each in _namespaces(shell)]
    sources, hook = set(linecache.cache), sys.displayhook
    _run(guest, [*_CELLS * _OFTEN, *(_OF_MODULES[name] for name in modules if name in _OF_MODULES)])
    for each, before in namespaces:
        for name in each.keys() - before.keys():
            del each[name]
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
    guest.metadata = {}
    guest.headers.clear()
    guest.aio.context = contextvars.copy_context()
    tracebacks.forget_folder()


def _namespaces(shell):
    spaces = [shell.user_ns, builtins.__dict__]
    if hasattr(shell, "history_manager"):
        spaces += [shell.user_ns_hidden, shell.history_manager.output_hist, shell.history_manager.output_hist_reprs]
    return spaces


def _run(guest, cells):
    """Over a wire, whose other end is read after each of them: what one prints is little."""
    ours, theirs = _socket.socketpair()
    ours.setblocking(False)
    os.dup2(theirs.fileno(), W.FD_WIRE, False)
    theirs.close()
    for code in cells:
        content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
        about = {"execution_count": 1, "silent": False, "store_history": False, "header": {"msg_id": ""}}
        _send(ours, W.EXECUTE, encode(content), encode(about))
        _send(ours, W.SHUTDOWN, b"{}", b"")
        guest.serve()
        guest.exit_code = None
        _begin(guest)
        guest.output.flush()
        _drain(ours)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, W.FD_WIRE, False)
    os.close(null)
    ours.close()
    context.begin(0)
    guest.wire.renew()


def _drain(wire):
    try:
        while wire.recv(1 << 16):
            pass
    except BlockingIOError:
        pass


def _begin(guest):
    """Parts of what each copy begins with."""
    newborn.look_anew()
    guest.shell.renew()
    guest.hello()
    tracebacks.cell_folder()


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
    for names in getattr(shell.compile, "_filename_map", {}), getattr(linecache, "_ipython_cache", {}):
        names.clear()
    for name in ("tb", "etype", "evalue"):
        for each in shell.InteractiveTB, shell.SyntaxTB:
            if name in vars(each):
                setattr(each, name, None)
