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


_elsewhere = []  # entries of the search path outside of the interpreter's folders, which are the same everywhere


_numpys = []
nothing = []  # fds of ours and of libraries that lead to /dev/null: IPython 7 has one


def foresee():
    """In the zygote, when all is loaded: so that copies need not look at everything, for each object that is looked at
    is a page that is copied."""
    prefixes = tuple({sys.prefix + "/", sys.base_prefix + "/"})
    cache = sys.path_importer_cache
    _elsewhere[:] = [path for path in cache if cache[path] is None or not path.startswith(prefixes)]
    environment.read_sites()
    if "numpy.random" in sys.modules:
        _numpys[:] = _find_numpys(sys.modules["numpy.random"])


def _find_numpys(random):
    """Where numpy's generator has its numbers, and how many bytes, if they lie there as we know it. Its seed() looks at
    so much that it costs a copy more than a millisecond."""
    import ctypes

    try:
        random.seed(None)
        generator = random.mtrand._rand._bit_generator
        state, address = generator.state["state"], generator.ctypes.state_address
        key, at = state["key"].tobytes(), state["pos"]
        if ctypes.string_at(address, len(key) + 4) == key + at.to_bytes(4, sys.byteorder):
            return address, len(key)
    except (AttributeError, KeyError, TypeError):
        pass
    return ()


def become(guest, copier, late, mask):
    for fd in nothing:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        if null != fd:
            os.dup2(null, fd, False)
            os.close(null)
    for name, value in late.items():
        os.environ[name] = value
    threading.main_thread()._native_id = get_native_id()
    guest.interrupts.pid = os.getpid()
    tracebacks.forget_folder()
    _forget_others()
    if "multiprocessing.process" in sys.modules:  # its children look for modules there
        sys.modules["multiprocessing.process"].ORIGINAL_DIR = os.path.abspath(os.getcwd())
    _reseed()
    look_anew()
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
    environment.run_late_sites()


def _reseed():
    """No two copies have the same random numbers. Their processes may have the same number as the zygote's, in another
    namespace: what asks for it sees no difference."""
    modules = sys.modules
    if "random" in modules:
        modules["random"].seed()
    if _numpys:
        address, size = _numpys
        modules["ctypes"].memmove(address, os.urandom(size), size)
    elif "numpy.random" in modules:
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


def look_anew():
    """At the clock's zone, and at folders, of which all that was read before a change is read again in any case."""
    time.tzset()
    cache = sys.path_importer_cache
    for path in _elsewhere:
        finder = cache.get(path)
        if hasattr(finder, "invalidate_caches"):
            finder.invalidate_caches()
        else:
            cache.pop(path, None)
    environment.find_late_paths()
    environment.give_again()
