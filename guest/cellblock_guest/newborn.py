"""What a zygote's copy does before it is a guest as any other: what was the zygote's own is made anew, and what its
jail and its policy say is taken in.

By cb_copier_enter it has its namespaces, its limits and its fds; no at-fork hook ran, and nobody else runs Python.
"""

import _signal
import os
import sys
import threading
import time
from _thread import get_native_id

from . import environment, tracebacks


def become(guest, copier, late, mask):
    for name, value in late.items():
        os.environ[name] = value
    threading.main_thread()._native_id = get_native_id()
    guest.interrupts.pid = os.getpid()
    tracebacks.forget_folder()
    _forget_others()
    _reseed()
    _look_anew()
    guest.output.release(True)
    guest.wire.renew()
    guest.twins.look()
    if guest.twins.offered:
        guest.twins.copier = copier
    guest.take_policy()
    guest.renew_shell()
    guest.aio.no_more_postponed()
    copier.go_on()
    _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)


def _reseed():
    """No two copies have the same random numbers. Their processes may have the same number as the zygote's, in another
    namespace: what asks for it sees no difference."""
    modules = sys.modules
    if "random" in modules:
        modules["random"].seed()
    if "numpy.random" in modules:
        modules["numpy.random"].seed(None)
    if "torch" in modules:
        modules["torch"].seed()
    if "_ssl" in modules:
        modules["_ssl"].RAND_add(os.urandom(48), 48.0)
    if "multiprocessing.process" in modules:
        process = modules["multiprocessing.process"]
        process.current_process()._config["authkey"] = process.AuthenticationString(os.urandom(32))


def _forget_others():
    """What modules remember of the machine, and of names that nobody else has."""
    modules = sys.modules
    for module, names in _REMEMBERED.items():
        if module in modules:
            remembered = vars(modules[module])
            for name in names:
                if name in remembered:
                    remembered[name] = None


_REMEMBERED = {
    "tempfile": ("_name_sequence", "tempdir"),
    "uuid": ("_node", "_last_timestamp", "_last_timestamp_v6", "_last_timestamp_v7"),
    "platform": ("_uname_cache",),
}


def _look_anew():
    """At the clock's zone, and at folders."""
    time.tzset()
    cache = sys.path_importer_cache
    for path, finder in list(cache.items()):
        if finder is None or not path.startswith("/"):
            del cache[path]
        elif hasattr(finder, "invalidate_caches"):
            finder.invalidate_caches()
    if "importlib.metadata" in sys.modules:
        sys.modules["importlib.metadata"].MetadataPathFinder.invalidate_caches()
    environment.find_late_paths()
    environment.give_again()
