"""On whose behalf does this code speak? The id of the request that caused it.

Cells and their asyncio tasks carry it in a context variable; threads get it from the thread that started them, work
items of a ThreadPoolExecutor or ThreadPool from the cell that submitted them. Anything else belongs to the latest
request.
"""

import contextvars
import os
import sys
import threading
from _weakref import ref
from _weakrefset import WeakSet  # which threading has loaded; weakref has not

pools = WeakSet()  # of threads, that something was submitted to: what Python keeps of them a fork empties (from 3.14)
children = WeakSet()  # of subprocess.Popen
socket_pairs = {}  # of streams, that Python made: a reference to one end -> one to the other
_request = contextvars.ContextVar("cellblock_request")
_latest = 0
request_of_context = _request.get


def begin(request):
    global _latest
    _latest = request
    _request.set(request)


def current():
    try:
        return _request.get()
    except LookupError:
        pass
    request = getattr(threading.current_thread(), "_cellblock_request", 0)
    if request:
        _request.set(request)
    return request or _latest


def set_current(request):
    """For ipykernel's set_parent: from here on this context speaks for `request`."""
    return _request.set(request)


def reset(token):
    """Undoes the set_current, in the same thread or task, that gave the token."""
    _request.reset(token)


def subshell():
    """The Subshell whose thread this is, or None."""
    module = sys.modules.get("cellblock_guest.subshell")
    running = getattr(module, "running", None)  # another thread may be importing it
    return running() if running else None


def run_as(request, function, /, *args, **kwargs):
    token = _request.set(request)
    try:
        return function(*args, **kwargs)
    finally:
        _request.reset(token)


def patch_threads():
    start = threading.Thread.start

    def start_with_request(self):
        self._cellblock_request = current()
        lane = subshell()  # until Python 3.12 a newborn thread would be taken for it, and get its interrupt
        return lane.interrupts.shielded(start, self) if lane else start(self)

    start_with_request.__name__, start_with_request.__qualname__ = "start", "Thread.start"
    start_with_request.__doc__ = start.__doc__
    threading.Thread.start = start_with_request


def patch_subprocess(module, flush):
    """module is subprocess, just imported. Its __init__ would stand in the traceback of each start that fails. flush:
    sends what was printed, so that it comes before what the child writes."""

    def __new__(cls, *args, **kwargs):
        flush()
        child = object.__new__(cls)
        children.add(child)
        return child

    __new__.__wrapped__ = module.Popen.__init__  # for inspect.signature
    module.Popen.__new__ = __new__


class _Flushing:
    """A builtin of os that starts a child. No function, which would be a method where a class has it as an attribute:
    a builtin is none."""

    def __init__(self, builtin, flush):
        self._flush, self.__wrapped__ = flush, builtin
        self.__name__ = self.__qualname__ = builtin.__name__
        self.__module__, self.__doc__ = "os", builtin.__doc__

    def __call__(self, /, *args, **kwargs):
        self._flush()
        return self.__wrapped__(*args, **kwargs)

    def __reduce__(self):
        return self.__name__  # found in os, also where there is no guest

    def __repr__(self):
        return repr(self.__wrapped__)


def patch_os(flush):
    """flush: as for patch_subprocess."""
    for name in ("system", "posix_spawn", "posix_spawnp"):
        if hasattr(os, name):  # a libc may lack it
            setattr(os, name, _Flushing(getattr(os, name), flush))


def patch_spawn(module, flush):
    """module is multiprocessing.util, just imported. flush: as for patch_subprocess."""
    start = module.spawnv_passfds

    def spawnv_passfds(path, args, passfds):
        flush()
        return start(path, args, passfds)

    spawnv_passfds.__module__, spawnv_passfds.__qualname__ = start.__module__, start.__qualname__
    module.spawnv_passfds = spawnv_passfds


def patch_socket(module):
    """module is socket, just imported."""
    make = module.socketpair

    def socketpair(*args, **kwargs):
        ours, theirs = make(*args, **kwargs)
        if ours.family == module.AF_UNIX and ours.type == module.SOCK_STREAM:
            socket_pairs[ref(ours, lambda gone: socket_pairs.pop(gone, None))] = ref(theirs)
        return ours, theirs

    socketpair.__wrapped__ = make  # for inspect.signature
    socketpair.__name__, socketpair.__qualname__, socketpair.__doc__ = "socketpair", "socketpair", make.__doc__
    socketpair.__module__ = make.__module__
    module.socketpair = socketpair


def patch_executor(module):
    """module is concurrent.futures.thread, just imported."""
    submit = module.ThreadPoolExecutor.submit

    def submit_with_request(self, fn, /, *args, **kwargs):
        pools.add(self)
        interpreters = sys.modules.get("concurrent.futures.interpreter")  # from Python 3.14 on
        kind = getattr(interpreters, "InterpreterPoolExecutor", None)  # also while that is being imported
        if kind and isinstance(self, kind):  # there is no guest in those
            return submit(self, fn, *args, **kwargs)
        return submit(self, run_as, current(), fn, *args, **kwargs)

    submit_with_request.__name__, submit_with_request.__qualname__ = "submit", "ThreadPoolExecutor.submit"
    submit_with_request.__doc__ = submit.__doc__
    module.ThreadPoolExecutor.submit = submit_with_request


def patch_pool(module):
    """module is multiprocessing.pool, just imported. Its Pool is left as it is: processes have no request, and could
    not be sent what is put around a function."""
    from functools import partial, wraps

    def with_request(method):
        @wraps(method)
        def call(self, func, *args, **kwargs):
            return method(self, partial(run_as, current(), func), *args, **kwargs)

        return call

    for name in ("apply_async", "_map_async", "imap", "imap_unordered"):  # the other ones call these
        setattr(module.ThreadPool, name, with_request(getattr(module.Pool, name)))
