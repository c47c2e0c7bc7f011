"""What a fork would change and a twin must have as it was: generators, event loops, files' offsets, names, pools.

Used by twins.py only. Libraries are looked for in sys.modules and never imported.
"""

import _signal  # see twins.py
import fcntl
import gc
import os
import signal
import stat
import sys
import threading
from _weakrefset import WeakSet  # as threading does: weakref costs a start a third of a millisecond
from struct import Struct

from . import context, wire_constants as W
from .threads import strangers

ALL_SIGNALS = _signal.valid_signals()
_COMM = "/proc/self/comm"
_CWD = "/proc/self/cwd"
_PR_SET_NAME = 15
_FDS_WITHOUT_PROC = 1024
_FIRST = W.FD_SIDE + 1  # fds below are ours
_TERMINALS = (5, *range(136, 144))  # major numbers: /dev/ptmx, /dev/tty, and those of /dev/pts
_MADE = os.O_CREAT | os.O_EXCL | os.O_TRUNC | os.O_NOFOLLOW | os.O_TMPFILE  # how a file was opened, not what it is
_OFD_SETLK = 37  # not every build of Python has a name for it
_UNLOCKED = Struct("hhqqi4x").pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0)


def _read(path):
    try:
        with open(path, "rb", 0) as f:
            return f.read(4096).strip()
    except OSError:
        return b""


def _write(path, data):
    try:
        with open(path, "wb", 0) as f:
            f.write(data)
    except OSError:
        pass


def is_at_work(pid):
    """It waits for a processor, and has had one for less than a second: so it hangs neither in a lock nor in a loop."""
    words = _read("/proc/%d/stat" % pid).rpartition(b")")[2].split()
    return bool(words) and words[0] in b"RD" and int(words[11]) + int(words[12]) < os.sysconf("SC_CLK_TCK")


class Process:
    """Name, signal mask and collector."""

    def __init__(self):
        self.mask = self.collects = self._libc = None
        self._name = b""

    def _call(self, name):
        """Not where neither ctypes is loaded nor /proc may be written: the name is for people only."""
        if name and not (self._libc and self._libc.prctl(_PR_SET_NAME, name + b"\0", 0, 0, 0) == 0):
            _write(_COMM, name)

    def block(self):
        """No signal's handler, no finaliser."""
        self.mask, self.collects = _signal.pthread_sigmask(_signal.SIG_BLOCK, ()), gc.isenabled()
        try:
            _signal.pthread_sigmask(_signal.SIG_BLOCK, ALL_SIGNALS)
        except BaseException:  # of a handler of the user's
            _signal.pthread_sigmask(_signal.SIG_SETMASK, self.mask)
            raise
        gc.disable()

    def unblock(self):
        if self.collects:
            gc.enable()
        _signal.pthread_sigmask(_signal.SIG_SETMASK, self.mask)

    def freeze(self, name, libc):
        self._libc = libc
        if _read(_COMM) != name:
            self._name = _read(_COMM)
            self._call(name)

    def thaw(self):
        self._call(self._name)
        left = 1000
        while left and _signal.sigtimedwait(ALL_SIGNALS, 0) is not None:  # what was sent to the twin is nobody's
            left -= 1
        self.unblock()


class Descriptors:
    """The user's open files, pipes and sockets at the moment of a checkpoint."""

    def __init__(self, pairs, birth=()):
        """birth: fds that are to become this process's own in the copy."""
        self.offsets = {}  # fd of a regular file, or of a folder -> offset
        self._places = {}  # the same -> its name, and what it was
        self.sockets = []
        self._terminals = []
        self._pairs = pairs
        self._pipes = {}  # (device, inode) -> fds
        self._streams = [_identity(fd) for fd in (W.STDOUT, W.STDERR)]
        self._seen = set(birth)
        self._cwd = _Place(_CWD)
        self._look()

    def _look(self):
        for fd in _open_fds():
            if fd >= _FIRST and fd not in self._seen:
                self._seen.add(fd)
                self._note(fd)

    def _note(self, fd):
        try:
            status = os.fstat(fd)
            if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
                self.offsets[fd] = os.lseek(fd, 0, os.SEEK_CUR)
                self._places[fd] = _Place("/proc/self/fd/%d" % fd)
            elif stat.S_ISFIFO(status.st_mode):
                self._pipes.setdefault((status.st_dev, status.st_ino), []).append(fd)
            elif stat.S_ISSOCK(status.st_mode) and not any(fd in pair for pair in self._pairs):
                self.sockets.append(fd)
            elif stat.S_ISCHR(status.st_mode) and os.major(status.st_rdev) in _TERMINALS:
                self._terminals.append(fd)
        except OSError:  # the folder's own fd, closed by now
            pass

    def become(self, fds):
        """In a twin: the channels of its birth over the guest's; pipes and sockets that only end here are cut off, for
        their other sides must see it when the guest closes them."""
        if len(fds) == 4:  # a birth without a side wire
            fds.append(above(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)))
        for fd, target in zip(fds, (W.FD_WIRE, W.STDOUT, W.STDERR, W.FD_TWIN_CONTROL, W.FD_SIDE)):
            os.dup2(fd, target, target in (W.STDOUT, W.STDERR))
        for fd in fds:
            os.close(fd)
        self._look()  # other threads may have opened some until the fork
        for identity, ends in self._pipes.items():
            if identity in self._streams:
                for fd in ends:
                    _replace(1 + self._streams.index(identity), fd)
            else:
                _replace_pipe(ends)
        for pair in self._pairs:
            for new, fd in zip(_pair(), pair):
                _replace(new, fd)
                os.close(new)
        for fd in self.sockets:
            _replace_closing(_quiet(fd) or _end(), fd)
        for fd in self._terminals:
            _replace_closing(_end(), fd)

    def back(self, log, branch):
        """Offsets as they were. A branch opens its files anew: another line of the session runs beside it. So is one
        opened that was brought back under its name."""
        try:
            if (name := self._cwd.is_back()) is not None:
                os.chdir(name)
        except OSError as e:
            log("the working folder: %s" % e)
        for fd, offset in self.offsets.items():
            try:
                name = self._places[fd].is_back()
                if name is not None or branch:
                    flags = fcntl.fcntl(fd, fcntl.F_GETFL) & ~_MADE
                    new = os.open(name or "/proc/self/fd/%d" % fd, flags | os.O_CLOEXEC)
                    os.dup2(new, fd, os.get_inheritable(fd))
                    os.close(new)
                else:
                    _unlock(fd)
                os.lseek(fd, offset, os.SEEK_SET)
            except OSError as e:
                log("fd %d: %s" % (fd, e))


class _Place:
    """Where an open file or a folder was, and what it was, so that it can be found there again: see is_back() in
    guest/copier/descriptors.c."""

    def __init__(self, link):
        self._link, self._name = link, None
        try:
            name = os.readlink(link)
            self._was = os.stat(link)
            if os.path.samestat(self._was, os.lstat(name)):
                self._name = name
        except OSError:  # it has none
            pass

    def is_back(self):
        """The name, if another one is there which is it."""
        try:
            there = os.lstat(self._name) if self._name else None
            if not there or os.path.samestat(os.stat(self._link), there):
                return None
            if stat.S_ISDIR(self._was.st_mode):
                back = stat.S_ISDIR(there.st_mode) and os.readlink(self._link).endswith(" (deleted)")
            else:
                back = stat.S_ISREG(there.st_mode) and self._same(there)
            return self._name if back else None
        except OSError:
            return None

    def _same(self, there):
        return (self._was.st_size, self._was.st_mtime_ns) == (there.st_size, there.st_mtime_ns)


def _open_fds():
    try:
        return map(int, os.listdir("/proc/self/fd"))
    except OSError:  # a /proc without processes
        return range(_FIRST, _FDS_WITHOUT_PROC)


def _unlock(fd):
    """What the failed process has locked, for an open file that both share goes on to hold it. Not every file system
    has locks."""
    for call, *how in ((fcntl.flock, fcntl.LOCK_UN), (fcntl.fcntl, _OFD_SETLK, _UNLOCKED)):
        try:
            call(fd, *how)
        except OSError:
            pass


def _identity(fd):
    try:
        status = os.fstat(fd)
        return status.st_dev, status.st_ino
    except OSError:
        return None


def above(fd):
    """fd under a number that is none of ours: user code may have closed one of those."""
    if fd >= _FIRST:
        return fd
    above = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST)
    os.close(fd)
    return above


def _close(fd):
    try:
        os.close(fd)
    except OSError:
        pass


def _replace_pipe(ends):
    """By a new one if both ends are here, else by one whose other end is closed."""
    ways = {}
    for fd in ends:
        try:
            ways[fd] = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
        except OSError:
            pass
    readers, writers = os.pipe()
    if len(set(ways.values())) == 1:
        _close(writers if os.O_RDONLY in ways.values() else readers)
    for fd, way in ways.items():
        _replace(readers if way == os.O_RDONLY else writers, fd)
    _close(readers)
    _close(writers)


def _pair():
    import _socket

    pair = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    return [each.detach() for each in pair]


def _end():
    """Of a stream, whose other side is closed."""
    end, other = _pair()
    os.close(other)
    return end


def _quiet(fd):
    """For a socket that listens, or takes datagrams: one like it that nobody reaches. An end would be ready for ever,
    and who serves it would run in a circle. None: it is no such socket, or there is none to be had."""
    import _socket

    new, timeout = None, _socket.getdefaulttimeout()
    _socket.setdefaulttimeout(None)  # else the original's, which is one with this, would not block any more
    try:
        old = _socket.socket(fileno=fd)
        try:
            new = _like(old, _socket)
        finally:
            old.detach()
    except OSError:
        pass
    finally:
        _socket.setdefaulttimeout(timeout)
    return new and new.detach()


def _like(old, s):
    if not old.getsockopt(s.SOL_SOCKET, s.SO_ACCEPTCONN):
        return None if old.type in (s.SOCK_STREAM, s.SOCK_SEQPACKET) else s.socket(old.family, old.type, old.proto)
    new, path = s.socket(s.AF_UNIX, s.SOCK_STREAM), "/tmp/.cellblock-%d" % os.getpid()
    try:
        new.bind(path)
        os.unlink(path)  # before it listens: nobody can connect
        new.listen()
    except OSError:
        new.close()
        raise
    return new


def _replace_closing(new, fd):
    _replace(new, fd)
    os.close(new)


def _replace(new, fd):
    try:
        blocking = os.get_blocking(fd)
        os.dup2(new, fd, os.get_inheritable(fd))
        os.set_blocking(fd, blocking)
    except OSError:  # a thread of the guest's closed it just before the fork
        pass


class Semaphores:
    """multiprocessing's locks lie in shared memory: one that a killed cell held would stay held (tqdm has one)."""

    _ours = []  # never freed: that would unmap the semaphore

    def __init__(self):
        self._values = [(lock, lock._get_value()) for lock in self._all()]

    @staticmethod
    def _all():
        module = sys.modules.get("multiprocessing.synchronize")
        registry = sys.modules["multiprocessing.util"]._afterfork_registry if module else {}
        return [each._semlock for each in list(registry.values()) if isinstance(each, module.SemLock)]

    def back(self, threads):
        """threads: those that came back hold what they held, though the original may have released it since."""
        for lock, value in self._values:
            if not threads or lock.maxvalue != 1 or lock._count() <= 0:
                self.give(lock, value - lock._get_value())
            elif lock._get_value() > 0:
                self._counting(lock).acquire(False)

    @classmethod
    def give(cls, lock, missing):
        counting = cls._counting(lock) if missing > 0 else None
        for _ in range(missing):
            counting.release()

    @classmethod
    def _counting(cls, lock):
        """It again, without an owner."""
        counting = type(lock)._rebuild(lock.handle, 1, lock.maxvalue, None)
        cls._ours.append(counting)
        return counting


# ---- memory that at-fork hooks change ----


class Kept:
    """Python's generator and asyncio's idea of the current loop, as they are before the fork."""

    def __init__(self, aio):
        self._random = getattr(sys.modules.get("random"), "_inst", None)
        self._state = self._random and self._random.getstate()
        self._policy = getattr(sys.modules.get("asyncio.events"), "_event_loop_policy", None)
        self._local = getattr(self._policy, "_local", None)
        self._wakeup = -1
        if aio.asyncio is not None:
            self._wakeup = signal.set_wakeup_fd(-1)
            self._rewake()

    def _rewake(self):
        if self._wakeup != -1:
            signal.set_wakeup_fd(self._wakeup)

    def restore(self):
        if self._state is not None:
            self._random.setstate(self._state)
        if self._local is not None:
            self._policy._local = self._local
        self._rewake()


_LOST = "its processes did not come back with the session's state"
_NOTICES_MAX = 4096  # bytes that a pipe of any size takes
_LOKY = ("loky.", "joblib.externals.loky.")  # the pools of joblib and scikit-learn: the next call makes a new one


def heal(guest, copy):
    """On take-over: pools whose threads and processes are gone say so, or start anew, instead of waiting for ever.
    copy: a copier.Copy, if threads came back, which run no Python yet; else None."""

    def revive_pools():
        _revive_pools(copy.waited)

    def heal_scripts():
        _heal_scripts(guest.shell)

    steps = [_heal_process_pools, _heal_multiprocessing, _heal_subprocesses, _close_zmq]
    if copy:
        steps += [_own_finalizers, _end_pools if copy.branch else revive_pools]
    else:
        steps += [_heal_thread_pools, _heal_queues, _end_pools, heal_scripts]
        for loop in list(guest.aio.loops):
            loop._default_executor = None
    for step in steps:
        try:
            step()
        except Exception as e:
            guest.log("%s: %r" % (step.__name__, e))


def _heal_thread_pools():
    module = sys.modules.get("concurrent.futures.thread")
    for pool in list(context.pools):
        pool._threads.clear()
        pool._idle_semaphore = type(pool._idle_semaphore)(0)
    if module:
        module._threads_queues.clear()


def _heal_scripts(shell):
    """%%bash and its like run in a loop whose thread is not there; the next one makes another. What would stop the old
    one at the end waits for that thread."""
    manager = getattr(shell, "magics_manager", None)
    scripts = manager and manager.registry.get("ScriptMagics")
    if getattr(scripts, "event_loop", None) is not None:
        scripts.event_loop = None
        finalizer = getattr(scripts, "_event_loop_finalizer", None)
        if finalizer is not None:
            finalizer.detach()
            scripts._event_loop_finalizer = None


def _heal_process_pools():
    for name in ("concurrent.futures.process", *(each + "process_executor" for each in _LOKY)):
        module = sys.modules.get(name)
        for thread in list(getattr(module, "_threads_wakeups", ())):
            pool = getattr(thread, "executor_reference", lambda: None)()
            if hasattr(pool, "_flags"):
                pool._flags.broken = module.BrokenProcessPool(_LOST)
            elif pool is not None:
                pool._broken = _LOST


_dead_children = WeakSet()  # who still has one may join it, after one more take-over as well


def _heal_multiprocessing():
    for name in ("multiprocessing.", *(each + "backend." for each in _LOKY)):
        tracker = getattr(sys.modules.get(name + "resource_tracker"), "_resource_tracker", None)
        if tracker is not None:
            tracker._fd = tracker._pid = None
            if name == "multiprocessing.":
                _forget_registered(tracker)
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        _dead_children.update(process._children)
        process._children.clear()
    for child in list(_dead_children):
        child._parent_pid = os.getpid()
        if child._popen is not None:  # else it was closed
            child._popen.returncode = -signal.SIGKILL
    _forget_forkserver(getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None))


def _forget_registered(tracker):
    """The next tracker shows an error for each name that it is to forget and was never told."""
    told = set()

    def send(command, name, kind):
        if command == "UNREGISTER" and (name, kind) not in told:
            return
        (told.add if command == "REGISTER" else told.discard)((name, kind))
        type(tracker)._send(tracker, command, name, kind)

    tracker._send = send


def _forget_forkserver(server):
    """The next process starts a new one. Python would wait for the old one, which is no child of this process."""
    if getattr(server, "_forkserver_pid", None) is not None:
        _close(server._forkserver_alive_fd)
        server._forkserver_address = server._forkserver_alive_fd = server._forkserver_pid = None


def _heal_subprocesses():
    """Python takes a child that is not there for one that has exited with 0; also a thread that waits for one just now,
    and finds that out when it goes on. One without a number is still to be started."""
    for child in list(context.children):
        if getattr(child, "returncode", 0) is None and getattr(child, "pid", None) is not None:
            child.returncode = -signal.SIGKILL
            child._handle_exitstatus = _no_status


def _no_status(*_args, **_kwargs):
    pass


def _close_zmq():
    """libzmq asks in each call whether it is still in the process that made the socket, and waits for ever if not.
    term(), in another process, only says that the context is closed."""
    zmq = sys.modules.get("zmq")
    for each in gc.get_objects() if zmq else ():
        if issubclass(type(each), zmq.Context):  # isinstance asks the object, which may be a proxy of nothing
            for socket in list(each._sockets):
                socket._closed = True
            each.term()


def _heal_queues():
    queues, util = sys.modules.get("multiprocessing.queues"), sys.modules.get("multiprocessing.util")
    for each in list(util._afterfork_registry.values()) if queues else ():
        if isinstance(each, queues.Queue) and each._thread is not None and not each._closed:
            each._after_fork()


def _finalizers():
    util = sys.modules.get("multiprocessing.util")
    return list(util._finalizer_registry.values()) if util else []


def _pools():
    pools = sys.modules.get("multiprocessing.pool")
    owners = [f._weakref() for f in _finalizers() if getattr(f, "_weakref", None)] if pools else ()
    return [each for each in owners if isinstance(each, pools.Pool)]


def _end_pools():
    """A call says that they don't run. Without their threads they can't, and in a branch their locks are shared with
    the main line's processes."""
    for pool in _pools():
        pool._state = pool._worker_handler._state = sys.modules["multiprocessing.pool"].TERMINATE


def _own_finalizers():
    """Of what is to be done at the end, once, by the process that began it: that is this one."""
    for each in _finalizers():
        if each._pid is not None:
            each._pid = os.getpid()


def _revive_pools(waited):
    """Their threads make new processes in the place of those that ended, which may have waited with a lock taken.
    Pool.map() divides by the length of its list, which its thread empties before it has made the new ones: the thread
    works on a list of its own."""
    for pool in _pools():
        pool._pool = list(pool._pool)
        for lock in (getattr(pool._inqueue, "_rlock", None), getattr(pool._outqueue, "_wlock", None)):
            if lock is not None:
                Semaphores.give(lock._semlock, 1 - lock._semlock._get_value())
        _notify_again(pool._change_notifier, waited)


def _notify_again(notifier, waited):
    """What one of a pool's threads has told another, and its pipe does not keep. All notices are alike, and of the
    first one a part may have been read."""
    from multiprocessing.reduction import ForkingPickler

    if notifier._reader.closed or not 0 < (n := waited(notifier._reader.fileno())) <= _NOTICES_MAX:
        return
    text = bytes(ForkingPickler.dumps(None))
    notice = len(text).to_bytes(4, "big") + text  # multiprocessing.connection
    os.write(notifier._writer.fileno(), (notice * (n // len(notice) + 1))[-n:])


# ---- what does not come back ----


def left_out(descriptors=None):
    """How many of each; cheap, for it is counted while the guest stands still. Without descriptors: all threads come
    back, and the copier counts sockets."""
    alone = descriptors is not None
    return {
        "threads": users_threads() if alone else 0,
        "sockets": len(descriptors.sockets) if alone else 0,
        "children": _children(),
        "shared_maps": _shared_maps(),
        "native": 0,
        "native_of": "",
    }


# Libraries with threads that Python does not know, and the names that some give to them.
_POOLS = ("polars", "grpc", "pyarrow", "duckdb", "torch", "tensorflow", "jax", "cv2", "ray", "zmq", "lance")
_POOLS += ("datafusion", "tokenizers", "faiss", "xgboost", "lightgbm", "numba", "connectorx", "deltalake")
_NAMES = {"event_engine": "grpc", "lifeguard": "grpc", "resolver-execut": "grpc", "default-executo": "grpc"}
_NAMES_MOST = 32  # of threads that are asked for theirs


def native_threads():
    """(how many threads Python does not know, of which library). To be asked after a fork: some libraries end theirs
    before it and make new ones when they need them, in the copy as well."""
    try:
        tasks, starting = strangers()
    except OSError:
        return 0, ""
    known = {t.native_id for t in list(threading._active.values()) if not isinstance(t, threading._DummyThread)}
    unknown = sorted(tasks - known - {os.getpid()})
    if len(unknown) <= starting:
        return 0, ""
    return len(unknown) - starting, _whose(unknown[:_NAMES_MOST])


def _whose(tasks):
    """By the threads' own names; those that have the process's may be of any library that is loaded."""
    process, found = _read(_COMM), []
    for task in tasks:
        name = _read("/proc/self/task/%s/comm" % task)
        if name == process:
            of = [pool for pool in _POOLS if pool in sys.modules]
        else:
            name = name.decode("ascii", "replace")
            pool = _NAMES.get(name) or next((pool for pool in _POOLS if pool in name), None)
            of = [pool or name.rstrip("-_:0123456789")]
        found += [each for each in of if each and each not in found]
    return " or ".join(found[:3])


def users_threads():
    """But for the first. _thread._count() counts those of before the last fork as well; ours are no threading.Thread,
    or marked."""
    return sum(1 for t in list(threading._active.values()) if _is_users(t)) - 1


def _is_users(thread):
    return not (isinstance(thread, threading._DummyThread) or getattr(thread, "is_pydev_daemon_thread", False))


def _children():
    """Each thread has those that it started."""
    some = 0
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        some = 1
        lists = ["/proc/self/task/%s/children" % task for task in os.listdir("/proc/self/task")]
        return max(some, sum(len(_read(each).split()) for each in lists))
    except OSError:
        return some


def _shared_maps():
    """Shared memory that was written to; multiprocessing's semaphores do not count. The list of maps is long: it is
    read only if there is any."""
    try:
        status = _read("/proc/self/status")
        at = status.find(b"RssShmem:")
        if at < 0 or int(status[at + 9 : at + 30].split()[0]) == 0:
            return 0
        with open("/proc/self/maps") as f:
            return sum(1 for line in f if line.split(" ", 2)[1][1::2] == "ws" and "/sem." not in line)
    except (OSError, ValueError, IndexError):
        return 0
