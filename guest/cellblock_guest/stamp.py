"""What a zygote has loaded, as it was then: by this a broker sees that files were changed since, and has it end."""

import os
import sys
import time

_SLACK = 20 * 10**6  # ns by which a file system's clock may be late
_OURS = "/run/cellblock"
_OWN = ("/home/user", "/tmp")  # memory of the zygote's own, but for what the interpreter has there


def make(begun):
    """(lines "device inode size mtime ctime path", a path that was changed since `begun`, or None)"""
    lines, changed, root = [], None, os.stat("/").st_dev
    for path in sorted(_paths()):
        try:
            s = os.stat(path)
        except OSError:
            continue
        if s.st_dev == root and not _is_of_python(path):  # memory of the jail's: a folder that leads to a mount, say
            continue
        lines.append("%d %d %d %d %d %s\n" % (s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns, path))
        if begun - _SLACK < s.st_ctime_ns <= time.time_ns() + _SLACK:  # the clock may have been set back since
            changed = path
    return lines, changed


def _paths():
    paths = {os.path.realpath(sys.executable), sys.executable, os.path.join(sys.prefix, "pyvenv.cfg"), *sys.path}
    for module in list(sys.modules.values()):
        name = getattr(module, "__file__", None)
        if isinstance(name, str):
            paths.add(os.path.dirname(name))
    return {path for path in paths if path.startswith("/") and "\n" not in path and not _is_left_out(path)}


def _is_left_out(path):
    if _is_of_python(path):
        return False
    return _below(path, _OURS) or any(_below(path, place) for place in (*_OWN, os.environ.get("HOME")) if place)


def _is_of_python(path):
    return any(_below(path, prefix) for prefix in (sys.prefix, sys.base_prefix))


def _below(path, folder):
    return path == folder or path.startswith(folder.rstrip("/") + "/")
