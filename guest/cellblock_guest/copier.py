"""Copies of this process with all its threads: what guest/copier does in C, which needs no C library and no Python.

Loaded by _ctypes alone, for ctypes costs a start 5 ms. Where it can't be loaded, or a process can't be copied so (a
kernel that does not say what it must know, shadow stacks, too many open files), copies are made by os.fork, without
threads: twins.py. Used by twins.py only.
"""

import errno
import os
import sys
import threading

from . import threads, wire_constants as W

# No process of this Python, or on this kernel, can be copied so.
NEVER = (errno.EINVAL, errno.ENOENT, errno.ENOSYS, errno.ENOTSUP, errno.EPERM, errno.EACCES)
UNTRIED = object()
_LONG = 0.25  # seconds; a thread that begins to wait meanwhile asks for its turn so late, in the original as well
_LOOP_RUNS = "__asyncio_running_event_loop__"  # in a thread's dict, until Python 3.11: what says that a loop runs there
_PROCESS = object.__basicsize__ + 8  # where that has the process's number: behind the loop
_SLOW = "not all of them stopped in time; one is perhaps in a system call that no signal ends"


class Copy:
    """What became of a call: of a twin that was made, or of this process in one that was woken."""

    def __init__(self, woken, numbers, waited):
        self.woken = woken
        self.waited = waited  # in a woken one: how many bytes waited in this pipe, which is empty now
        self.sockets, self.untidy = numbers[W.COPIER_SOCKETS], bool(numbers[W.COPIER_UNTIDY])
        self.side, self.branch = numbers[W.COPIER_SIDE], bool(numbers[W.COPIER_BRANCH])


class Copier:
    def __init__(self, path=os.path.join(os.path.dirname(__file__), "libcopier.so")):
        """ImportError, OSError: it can't be loaded here."""
        import _ctypes

        class Long(_ctypes._SimpleCData):
            _type_ = "l"

        class Numbers(_ctypes.Array):
            _type_, _length_ = Long, W.COPIER_FIELDS

        class Function(_ctypes.CFuncPtr):
            _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_PYTHONAPI  # with the interpreter's lock held
            _restype_ = Long

        class Unlocked(_ctypes.CFuncPtr):
            _flags_ = _ctypes.FUNCFLAG_CDECL
            _restype_ = Long

        class Entry(_ctypes.Array):
            _type_, _length_ = Long, W.ENTER_FIELDS

        class Text(_ctypes._SimpleCData):
            _type_ = "z"

        library = _ctypes.dlopen(path, os.RTLD_NOW)
        self._function = lambda name: Function(_ctypes.dlsym(library, "cb_copier_" + name))
        self._entry, self._address = Entry, lambda data: Long.from_buffer(Text(data)).value
        names = ("copy", "thread", "go_on", "waited")
        self._copy, self._thread, self._go_on, self._waited = map(self._function, names)
        self._enter = None
        self.tidy = Unlocked(_ctypes.dlsym(library, "cb_copier_tidy"))
        self._loops = ()
        if sys.version_info < (3, 12):
            python = _ctypes.dlopen(None, os.RTLD_NOW)
            names = "PyInterpreterState_ThreadHead PyThreadState_Next _PyThreadState_GetDict PyDict_GetItem"
            interpreter = Function(_ctypes.dlsym(python, "PyInterpreterState_Get"))()
            self._loops = [_ctypes.dlsym(python, name) for name in names.split()]
            self._loops += interpreter, id(_LOOP_RUNS), _PROCESS
        self._numbers = Numbers
        self._usual_pages = os.sysconf("SC_PAGESIZE") == 4096

    def copy(self, number, fds, pairs, others=(), answer=b"", room=0):
        """Returns in the process, and once more in the copy when that was woken; then nobody else runs Python before
        go_on(), and nothing must be waited for.

        pairs: (fd, fd) of both ends of socket pairs; others: more of them, as many as there is room for. answer: a
        frame that ends with COPIER_BLANK, sent when there is a copy; empty: the caller answers. room: bytes of large
        memory that the copy may take. OSError: there is none; TimeoutError: threads did not stop in time."""
        if 2 * len(pairs) > W.COPIER_PAIRS_MAX:
            raise OSError(errno.E2BIG, "Python was not copied with its threads: it has too many event loops")
        pairs = [fd for pair in (*pairs, *others) for fd in pair][: W.COPIER_PAIRS_MAX]
        a = self._numbers()
        a[W.COPIER_NUMBER], a[W.COPIER_NFDS], a[W.COPIER_NPAIRS] = number, len(fds), len(pairs)
        a[W.COPIER_ANSWER], a[W.COPIER_ROOM] = len(answer), room if self._usual_pages else -1
        for at, fd in enumerate(fds):
            a[W.COPIER_FDS + at] = fd
        for at, fd in enumerate(pairs):
            a[W.COPIER_PAIRS + at] = fd
        for at, each in enumerate(self._loops if "_asyncio" in sys.modules else ()):
            a[W.COPIER_LOOPS + at] = each
        self._process = os.getpid()
        usual = sys.getswitchinterval()
        sys.setswitchinterval(_LONG)  # no thread of a woken copy asks for its turn
        result = self._copy(a, answer)
        if result == 0:
            self._usual = usual
        else:
            sys.setswitchinterval(usual)
        if result < 0:
            text = _SLOW if -result == errno.ETIMEDOUT else os.strerror(-result)
            raise OSError(-result, "Python was not copied with its threads: " + text)
        return Copy(result == 0, a, self._waited)

    def try_to_stop(self):
        """In a zygote, before it serves: 0, or the error that each copy would meet at its begin. All go on at once."""
        return -self._function("try_to_stop")()

    def ready_to_enter(self):
        """In a zygote, before it serves. OSError, AttributeError: this library can't do it."""
        self._enter = self._function("enter")
        self._usual = sys.getswitchinterval()

    def enter(self, fds, connection, umask, data, cwd, filters):
        """(False, …) in the zygote, with the step and the error (0: there is a copy); (True, …) in the copy, in its
        jail, where nothing is open but the guest's own fds.

        fds: by enum cb_warm_fd, -1 for none. data: a request. cwd: where in it the working folder is. filters: number
        of instructions, and where in it they are, of each program."""
        a, at = self._entry(), self._address(data)
        for place, fd in enumerate(fds):
            a[W.ENTER_FDS + place] = fd
        a[W.ENTER_CONNECTION], a[W.ENTER_UMASK], a[W.ENTER_CWD] = connection, umask, at + cwd
        a[W.ENTER_TEXTS] = len(data) - cwd
        for place, (count, begin) in enumerate(filters):
            a[W.ENTER_FILTERS + 2 * place], a[W.ENTER_FILTERS + 2 * place + 1] = count, at + begin if count else 0
        result = self._enter(a)
        return result == 0, a[W.ENTER_STEP], min(result, 0)

    def go_on(self):
        sys.setswitchinterval(self._usual)
        self._go_on()

    def renumber(self):
        """In a woken copy: each thread has the place in memory that it had, and another number."""
        pair, now, at = self._numbers(), {}, 0
        while (number := self._thread(at, pair)) >= 0:
            at += 1
            if number:
                now[pair[0]] = number
        threads.renumber(self._process, now)
        for thread in list(threading._active.values()):
            native = os.getpid() if thread is threading.main_thread() else now.get(thread.native_id)
            if native:
                thread._native_id = native


def load():
    try:
        return Copier() if sys.platform == "linux" else None
    except (ImportError, OSError, AttributeError):
        return None
