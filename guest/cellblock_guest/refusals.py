"""Says why the jail refused something, on the exception that it caused: which key of the policy, and its value.

Words only: what is refused is decided outside. The values come from the supervisor in an environment variable. A note
(PEP 678) keeps type and text of the exception; where nothing shows notes, it is a line on stderr.
"""

import errno
import json
import os
import re
import stat
import sys
from itertools import islice

from . import context

VARIABLE = "CELLBLOCK_POLICY_SAYS"
_NETWORK = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL}
_SOCKETS = {errno.EPERM, errno.EACCES, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT}
_FORKS = {"fork", "_fork_exec", "_execute_child", "_launch", "spawnv_passfds", "_spawn_process", "_posix_spawn"}
_DEPTH = 20
_LOOKED_AT = 1000  # files after each cell
_GIT_MAKERS = {"HEAD", "objects", "refs", "commondir"}  # what git knows a repository by, whatever its name
# What a jail has of its own or of the system; and which of these, and above them, are nobody's project.
_SYSTEM = ("/tmp", "/var", "/dev", "/proc", "/sys", "/usr", "/bin", "/sbin", "/etc", "/run", "/nix", "/gnu")
_SYSTEM += ("/lib", "/lib32", "/lib64", "/libx32")
_SHARED = {"/", "/tmp", "/var", "/var/tmp", "/run", "/home", "/root", "/opt", "/srv", "/mnt", "/media"}
_NEUTRAL = "/workspace"  # of workspace.target: the workspace's name outside is not told
# These three are compiled when they are first used.
_PATH = r"(?<![\w.:/])(?:\.{0,2}/)[^\s'\",;:)]+"
_NO_NETWORK = (
    "(?i)(could not|couldn't|unable to|failed to) resolve|name resolution|name or service not known"
    "|network is unreachable|getaddrinfo"
)
_WORD = "[^\\s'\"`\u2018\u2019:,;()\\[\\]]+"


def _all_fit(names, patterns):
    from fnmatch import fnmatchcase

    return len(names) == len(patterns) and all(fnmatchcase(n.lower(), p.lower()) for n, p in zip(names, patterns))


class Refusals:
    def __init__(self, says=None):
        if says is None:
            try:
                says = json.loads(os.environ.pop(VARIABLE, "") or "{}")
            except ValueError:
                says = {}
        self.says = says
        self.lowered = self._before = None
        self.home = os.environ.get("HOME", "")
        self._written = self._in_memory() if "workspace.note" in says else None
        if self.offline:  # fails at once instead of trying for a quarter of a minute
            os.environ.setdefault("PIP_RETRIES", "0")
            os.environ.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")

    @property
    def offline(self):
        return self.says.get("network.mode", "full") != "full"

    def said(self, key):
        value = self.says.get(key)
        if isinstance(value, int) and key.startswith(("limits.", "workspace.size")) and key not in _COUNTS:
            return "%s is %s" % (key, size(value))
        return "%s is %s" % (key, json.dumps(value))

    # a request's own limit of memory

    def lower_memory(self, size):
        """RLIMIT_DATA for this cell, so that it gets a MemoryError; the supervisor watches as well. None: no limit."""
        import resource

        self.lowered = size
        if size:
            self._before, hard = resource.getrlimit(resource.RLIMIT_DATA)
            try:
                resource.setrlimit(resource.RLIMIT_DATA, (size, hard))
            except (OSError, ValueError):  # more than the jail's own limit
                self._before = None

    def restore_memory(self):
        """Before an error is shown, which takes memory, or at the end."""
        if self._before is not None:
            import resource

            before, self._before = self._before, None
            try:
                resource.setrlimit(resource.RLIMIT_DATA, (before, resource.getrlimit(resource.RLIMIT_DATA)[1]))
            except (OSError, ValueError):  # the cell has lowered the hard one
                pass

    # on exceptions

    def annotate(self, error):
        """Adds the note, if there is something to say and it has not been said."""
        if not context.subshell():
            self.restore_memory()
        try:
            note = self.explain(error)
        except Exception:  # an exception of a user's own making may do anything
            return None
        if note is None:
            return None
        note = "[cellblock] " + note
        if hasattr(error, "add_note") and note not in (getattr(error, "__notes__", None) or ()):
            try:
                error.add_note(note)
            except Exception:
                pass
        return note

    def say_unless_shown(self, note, lines):
        if note and not any(note in line for line in lines):
            print(note, file=sys.stderr)

    def explain(self, error):
        if not self.says:
            return None
        for each in _chain(error):
            text = self._explain_one(each)
            if text is not None:
                return text
        return None

    def _explain_one(self, e):
        if isinstance(e, MemoryError) and self.lowered:
            whose = "the main shell's running cell" if context.subshell() else "this request"
            return "metadata.cellblock.memory of %s is %s" % (whose, size(self.lowered))
        if isinstance(e, MemoryError):
            return "%s for the whole jail" % self.said("limits.memory") if "limits.memory" in self.says else None
        if isinstance(e, RuntimeError) and "can't start new thread" in str(e):
            return self._no_process()
        if isinstance(e, ModuleNotFoundError):
            return self._unseen_entry()
        if not isinstance(e, OSError):
            return self._missed(str(e), _MISSED)
        if type(e).__name__ in ("gaierror", "herror"):
            return self._network(_NO_NAMES) if self.offline else None
        number = e.errno
        if number == errno.ENOENT or isinstance(e, FileNotFoundError):
            return self._unseen(_path_of(e) or self._path_said(str(e)))
        if number is None:
            return self._missed(str(e), (*_MISSED, " not found"))
        if number in _NETWORK:
            return self._network(_NO_MACHINES) if self.offline else None
        if number == errno.ECONNREFUSED and self.offline:
            return self._network("cells reach no server but those that they have started themselves")
        if number in _SOCKETS and self.offline and _file_of(e.__traceback__).endswith("/socket.py"):
            return self._network("sockets of this kind can't be had")
        if number == errno.EMFILE:
            return "%s for a process" % self.said("limits.open_files")
        if number == errno.EFBIG and self.says.get("limits.file_size"):
            return "%s bytes for one file" % self.said("limits.file_size")
        if number == errno.ENOMEM:
            return "%s for the whole jail" % self.said("limits.memory")
        if number == errno.EAGAIN and _by_fork(e.__traceback__):
            return self._no_process()
        if number in (errno.ENOSPC, errno.EDQUOT):
            return self._full(_path_of(e))
        if number in (errno.EROFS, errno.EACCES, errno.EPERM, errno.EBUSY):
            if number == errno.EPERM and e.filename2 is not None and self._links_out(e):
                return (
                    '%s: a symbolic link that leads out of the workspace, or up again behind a name, can be '
                    'neither made nor moved there; with "overlay" or "tmpfs" it can' % self.said("workspace.mode")
                )
            path = _path_of(e)
            if e.filename is not None and e.filename2 is not None and not self._protects(path):
                other = os.path.abspath(os.fsdecode(e.filename2))
                path = other if self._protects(other) else path
            return self._read_only(number, path)
        return None

    def _no_process(self):
        """The kernel says the same of every limit: the jail's, and those around it."""
        there, limit = _tasks(), self.says.get("limits.pids")
        if limit is None or there >= limit - limit // 4:
            return "%s: processes and threads together" % self.said("limits.pids")
        return (
            "%s, and %d processes and threads are there: a limit outside the jail is reached (of its user on this "
            "host, see ulimit -u, or of a container), or memory" % (self.said("limits.pids"), there)
        )

    def _network(self, what):
        text = "%s: %s" % (self.said("network.mode"), what)
        if self.says["network.mode"] == "allow":
            return text + "; network.allow lists those that can"
        return text + '. "full" would give cells all of this machine\'s network'

    def _full(self, path):
        """Which of the jail's own file systems is full: writing to an open file names none."""
        places = [("/dev/shm", "limits.shm"), ("/tmp", "limits.tmp"), (self.home, "limits.tmp")]
        if self.says.get("workspace.mode") == "overlay":
            places.append((self.says.get("workspace", ""), "workspace.size"))
        for place, key in places:
            if path and place and not _below(path, place):
                continue
            try:
                free = os.statvfs(place)
            except OSError:
                continue
            if free.f_files and free.f_favail == 0:
                return "%s: %s holds no more files; %s" % (self.said("limits.inodes"), place, _ROOM)
            if free.f_bavail * free.f_frsize < 65536:
                return "%s: %s is full; %s" % (self.said(key), place, _ROOM)
        return None

    def _protects(self, path):
        workspace = self.says.get("workspace", "")
        below = workspace and path and _below(path, workspace)
        return self._protected(os.path.relpath(path, workspace)) if below else None

    def _read_only(self, number, path):
        workspace = self.says.get("workspace", "")
        if not path:
            return None
        if workspace and _below(path, workspace):
            if self.says.get("workspace.mode") == "ro":
                return self.said("workspace.mode") if number != errno.EBUSY else None
            if self.says.get("workspace.mode") == "rw" and not os.access(workspace, os.W_OK):
                return "the workspace is read-only: the user who started the kernel may not write it"
            name = self._protected(os.path.relpath(path, workspace))
            if name:
                return 'workspace.protect has "%s": programs outside would act on it, so it is read-only here' % name
            if number == errno.EROFS and self.says.get("workspace.mode") == "rw":
                return "workspace.protect: programs outside would act on %s, so it is read-only here" % path
            if number == errno.EPERM and self.says.get("workspace.mode") == "rw":
                return self._elsewhere(path)
            if number == errno.EBUSY and self.says.get("workspace.mode") == "rw":
                return "%s: a program outside keeps making %s anew, or too many calls wait for such files" % (
                    self.said("workspace.mode"),
                    path,
                )
            return None
        if number == errno.EBUSY:
            return None
        if self._outside(path):
            return self._unseen(path)
        if any(_below(path, prefix) for prefix in (sys.prefix, sys.base_prefix)):  # which may lie in /tmp or a home
            if self.says.get("packages.mode") == "ro":
                return "%s: the interpreter's folders are read-only" % self.said("packages.mode")
        elif any(_below(path, place) for place in ("/tmp", "/dev/shm", self.home) if place):
            return None
        if number == errno.EROFS or not os.access(os.path.dirname(path) or "/", os.W_OK):
            return "%s: the system is read-only here. Writable are %s/tmp and the home; mounts adds more" % (
                self.said("root.path"),
                "the workspace, " if self.says.get("workspace.mode") != "ro" else "",
            )
        return None

    def _links_out(self, e):
        """Of symlink(target, path), and of what is moved: a link, or a folder in which there is one."""
        workspace = self.says.get("workspace", "")
        source, path = (os.path.abspath(os.fsdecode(name)) for name in (e.filename, e.filename2))
        if self.says.get("workspace.mode") != "rw" or not workspace or not _below(path, workspace):
            return False
        return not (_below(source, workspace) and os.path.isfile(source) and not os.path.islink(source))

    def _elsewhere(self, path):
        """Files that are not written whatever their name."""
        try:
            st = os.stat(path)
        except OSError:
            return None
        if st.st_nlink > 1 and not stat.S_ISDIR(st.st_mode):
            return "%s: %s has other names (hard links) that this jail has not made; %s" % (
                self.said("workspace.mode"),
                path,
                _COPY,
            )
        if st.st_mode & (stat.S_ISUID | stat.S_ISGID):
            return "%s: %s has its set-uid or set-gid bit set; %s" % (self.said("workspace.mode"), path, _COPY)
        return None

    # what is not there

    def _outside(self, path):
        """Judged by the path alone: whether there is such a file on the host is nothing that a cell may learn."""
        workspace = self.says.get("workspace", "")
        shown = [workspace, self.home, sys.prefix, sys.base_prefix, *self.says.get("mounts", ())]
        if not workspace or any(_below(path, folder) for folder in shown if folder):
            return False
        return self._beside(path) or not any(_below(path, folder) for folder in _SYSTEM)

    def _beside(self, path):
        """In a folder that may be that of the project, or in one above it. A home is no project's."""
        above = os.path.dirname(self.says.get("workspace", ""))
        while above not in _SHARED and os.path.dirname(above) != "/home":
            if _below(path, above):
                return True
            above = os.path.dirname(above)
        return False

    def _in_reach(self, path):
        """Whether the project's folder, as the workspace, may have the path."""
        workspace = self.says.get("workspace", "")
        if self.says.get("workspace.project") or self.says.get("workspace.mode") == "tmpfs":
            return False
        if workspace == _NEUTRAL:  # "../data" is /data there; but who names /root means another folder
            return not any(_below(path, folder) for folder in _SHARED if folder != "/")
        return self._beside(path)

    def _lies_outside(self, path, what=""):
        """With the cure: a wider workspace, where that may have the path."""
        workspace, cure = self.says.get("workspace", ""), "mounts adds other folders"
        if self._in_reach(path):
            cure = 'workspace.path "project" (cellblock install --project) shows the whole project; ' + cure
        return "workspace.path: %s%s lies outside of the workspace %s, and cells see nothing there; %s" % (
            path,
            what,
            workspace,
            cure,
        )

    def _unseen(self, path):
        workspace = self.says.get("workspace", "")
        if not path or not workspace:
            return None
        if _below(path, workspace):
            return self._note()
        if self._outside(path):
            return self._lies_outside(path)
        if self.home and _below(path, self.home):
            return (
                "home.expose: %s is a home of the jail's own. Of your files cells see those in the workspace %s; "
                "mounts adds other folders" % (self.home, workspace)
            )
        return None

    def _missed(self, text, words):
        """Libraries have errors of their own for a file that is not there, and IPython's %run has one without a
        number. What a library itself lacks is no file of the user's."""
        if "shared object" in text or not any(each in text for each in words):
            return None
        return self._unseen(self._path_said(text))

    def _path_said(self, text):
        """Beside a notebook whose folder can't be shown a file's name is a word like others."""
        return _path_in(text) or (self._note() and "://" not in text and os.getcwd())

    def _note(self):
        """What is said of a workspace that can't be shown: in its place there is an empty folder in memory."""
        note = self.says.get("workspace.note")
        return note and "workspace.path: " + note

    def _unseen_entry(self):
        """A module that is not found, while it may lie beside the notebook in a workspace that can't be shown, or the
        search path has folders that can't be seen."""
        note = self._note()
        if note:
            return note
        for entry in sys.path:
            if entry and isinstance(entry, str) and self._outside(os.path.abspath(entry)):
                return self._lies_outside(os.path.abspath(entry), " of sys.path")
        return None

    def _in_memory(self):
        """How much there is in a workspace that is a file system of its own, and the state of its first files."""
        workspace = self.says["workspace"]
        try:
            if os.path.ismount(workspace):
                s = os.statvfs(workspace)
                return s.f_blocks - s.f_bfree, s.f_files - s.f_ffree, set(islice(_states(workspace), _LOOKED_AT))
        except OSError:
            pass
        return None

    def after_cell(self, stderr):
        """In the place of a workspace that can't be one there is an empty folder in memory: whatever was written there,
        by whom ever, is said to be lost, on the guest's own stderr: what a cell has put in the place of those of sys
        may raise."""
        before = self._written  # a subshell's thread may look at the same time
        if before is None:
            return
        (blocks, files, states), self._written = before, self._in_memory()
        now = self._written
        anew = len(states) < _LOOKED_AT and now and now[2] - states  # else others may have come in sight
        if now and (now[0] > blocks or now[1] > files or anew):
            print(
                "[cellblock] workspace.path: what was written is lost. %s" % self.says["workspace.note"],
                file=stderr,
            )

    def _protected(self, path):
        """The pattern that covers a path, itself or a folder above it or, for a rename, below it."""
        parts = path.split("/")
        patterns = self.says.get("workspace.protect") or ()
        for pattern in patterns:
            wanted = pattern.split("/")
            n = len(wanted)
            if any(_all_fit(parts[i : i + n], wanted) for i in range(len(parts))):
                return pattern
            if _all_fit(parts[-1:], wanted[:1]):
                return pattern
        top = self.says.get("workspace", "")
        for i in range(len(parts)):
            folder = os.path.join(top, *parts[:i])
            for marker in {"pyvenv.cfg", "conda-meta"}.intersection(patterns):
                if os.path.exists(os.path.join(folder, marker)):
                    return marker
            if ".git" in patterns and (os.path.exists(os.path.join(folder, "HEAD")) or parts[-1] in _GIT_MAKERS):
                return ".git"
        return None

    # on commands

    def after_command(self, command, exit_code, shown=""):
        """pip's own words about a missing network are long and do not name the cause. Behind a pipe its exit status is
        lost: there its words tell that it failed."""
        if not self.says or not exit_code and "ERROR: " not in shown:
            return
        words = command.split()
        if exit_code == 127:  # there is no such command
            return
        if "pip" not in command or not any(w in words for w in ("install", "download", "wheel", "uninstall")):
            note = self._of_output(shown) if exit_code else None
            if note:
                print("[cellblock] " + note, file=sys.stderr)
            return
        if self.says.get("packages.mode") == "ro":
            print("[cellblock] %s: packages can't be changed" % self.said("packages.mode"), file=sys.stderr)
        if self.offline and "--no-index" not in words:
            print(
                "[cellblock] %s: pip can't download. From files in the workspace: pip install --no-index FILE.whl"
                % self.said("network.mode"),
                file=sys.stderr,
            )

    def _of_output(self, shown):
        """What a command that failed has said, line by line: the same words as for an exception."""
        for line in reversed(shown.splitlines()):
            if self.offline and re.search(_NO_NETWORK, line):
                return self._network(_NO_MACHINES if "unreachable" in line else _NO_NAMES)
            number = next((n for n in (errno.ENOENT, errno.EROFS, errno.EACCES) if os.strerror(n) in line), None)
            paths = [word for word in re.findall(_WORD, line) if "/" in word and not word.startswith("//")]
            if number == errno.ENOENT and self._note():  # a file beside the notebook is a word like others
                paths = paths or [os.curdir]
            if number is None or not paths:
                continue
            try:
                path = os.path.abspath(paths[-1])
            except OSError:  # the folder that it was said in is gone
                continue
            note = self._unseen(path) if number == errno.ENOENT else self._read_only(number, path)
            if note:
                return note
        return None


_NO_NAMES = "names of other machines can't be looked up"
_NO_MACHINES = "other machines, and servers on this one, can't be reached"
_ROOM = "remove files there, or raise that limit in the policy"
_COPY = "it is read-only here. Copy it and rename the copy over it"
_MISSED = (os.strerror(errno.ENOENT), "was not found in history, as a file")  # the latter: %load
_COUNTS = {"limits.pids", "limits.open_files", "limits.inodes"}


def size(n):
    units = ["", "K", "M", "G", "T"]
    while n and n % 1024 == 0 and len(units) > 1:
        n, units = n // 1024, units[1:]
    if n < 1 << 20:
        return "%d%s" % (n, units[0])
    return "%.1fG" % (n * 1024 ** (5 - len(units)) / (1 << 30))


def _states(top):
    """Of each file in a file system: what differs after it was written or made anew. Folders count as there or not."""
    folders, device = [top], os.lstat(top).st_dev
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                for each in entries:
                    st = each.stat(follow_symlinks=False)
                    if st.st_dev != device:
                        continue
                    if stat.S_ISDIR(st.st_mode):
                        folders.append(each.path)
                        yield (st.st_ino,)
                    else:
                        yield st.st_ino, st.st_size, st.st_ctime_ns
        except OSError:  # removed meanwhile, or closed to us
            pass


def _tasks():
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                count += len(os.listdir("/proc/%s/task" % name))
            except OSError:  # it has ended
                pass
    return count


def _chain(error):
    """The exception, what it was raised from, and what libraries wrap it in."""
    waiting, seen = [error], set()
    while waiting and len(seen) < _DEPTH:
        e = waiting.pop(0)
        if not isinstance(e, BaseException) or id(e) in seen:
            continue
        seen.add(id(e))
        yield e
        waiting += [e.__cause__, e.__context__, getattr(e, "reason", None)]
        waiting += [a for a in e.args[:3] if isinstance(a, BaseException)]


def _by_fork(tb):
    name = ""
    while tb is not None:
        if tb.tb_frame.f_globals is not vars(context):  # what flushes before a child starts
            name, last = tb.tb_frame.f_code.co_name, tb
        tb = tb.tb_next
    if name in _FORKS:
        return True
    if not name:
        return False
    import linecache

    return "fork" in linecache.getline(last.tb_frame.f_code.co_filename, last.tb_lineno)


def _file_of(tb):
    """Where an exception was raised."""
    name = ""
    while tb is not None:
        name, tb = tb.tb_frame.f_code.co_filename, tb.tb_next
    return name


def _path_of(e):
    for path in (e.filename, e.filename2):
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if isinstance(path, str):
            return os.path.abspath(path)
    return None


def _path_in(text):
    """The first path in the text of an error that names none."""
    found = re.search(_PATH, text[:4000])
    return os.path.abspath(found.group()) if found else None


def _below(path, folder):
    folder = folder.rstrip("/")
    return path == folder or path.startswith(folder + "/")
