"""Makes calls with odd arguments in the current folder, each in a fresh one, and prints for each what came of it: the
error's name, and the folder afterwards. Run on a plain folder and in a jail, of which the answers are compared.
"""

import ctypes
import errno
import fcntl
import itertools
import json
import os
import shutil
import stat
import sys

AT_FDCWD, AT_EMPTY_PATH, AT_FOLLOW, AT_NOFOLLOW, AT_REMOVEDIR = -100, 0x1000, 0x400, 0x100, 0x200
NUMBERS = {
    "x86_64": {
        "open": 2, "access": 21, "truncate": 76, "rename": 82, "mkdir": 83, "rmdir": 84, "creat": 85, "link": 86,
        "unlink": 87, "symlink": 88, "chmod": 90, "fchmod": 91, "chown": 92, "fchown": 93, "lchown": 94, "mknod": 133,
        "openat": 257, "mkdirat": 258, "mknodat": 259, "fchownat": 260, "unlinkat": 263, "renameat": 264,
        "linkat": 265, "symlinkat": 266, "fchmodat": 268, "faccessat": 269, "utimensat": 280,
    },
    "aarch64": {
        "mknodat": 33, "mkdirat": 34, "unlinkat": 35, "symlinkat": 36, "linkat": 37, "renameat": 38, "truncate": 45,
        "faccessat": 48, "fchmod": 52, "fchmodat": 53, "fchownat": 54, "fchown": 55, "openat": 56, "utimensat": 88,
    },
}[os.uname().machine]  # fmt: skip
libc = ctypes.CDLL(None, use_errno=True)
LONG = "n" * 256
PATHS = [
    None, "", ".", "..", "f", "./f", "f/", "f/.", "d", "d/", "d/.", "d/..", "d//x", "d/../f", "full", "full/",
    "e", "e/", "l", "l/", "dl", "dl/", "dl/.", "dl/x", "g", "g/", "loop", "loop/x", "none", "none/", "none/.",
    "none/..", "none/x", "f/x", "f/../f", "n" * 255, LONG, LONG + "/x", "d/" * 2100, "p", "WHOLE/f", "WHOLE/none",
    "closed/x", "ro",
]  # fmt: skip
PAIRS = [
    None, "", ".", "f", "f2", "f/", "d", "d/", "d/in", "full", "e", "l", "dl", "dl/", "g", "none", "none/", "f/x",
    LONG, "d/..", "loop",
]  # fmt: skip


def arg(a):
    if isinstance(a, str):
        return ctypes.c_char_p(os.fsencode(a.replace("WHOLE", os.getcwd())))
    return ctypes.c_void_p(a) if a is None else a if isinstance(a, ctypes.Array) else ctypes.c_long(a)


def call(name, *args):
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(NUMBERS[name]), *[arg(a) for a in args])
    return r, errno.errorcode[ctypes.get_errno()] if r < 0 else "ok"


def furnish():
    for name in ("f", "f2", "ro"):
        with open(name, "w") as f:
            f.write(name * 10)
    for name in ("d", "e", "full", "closed"):
        os.mkdir(name)
    with open("full/x", "w") as f:
        f.write("x")
    for name, target in {"l": "f", "dl": "d", "g": "nowhere", "loop": "loop"}.items():
        os.symlink(target, name)
    os.mkfifo("p")
    os.chmod("ro", 0o400)
    os.chmod("closed", 0)


def seen():
    """What is there, without times."""
    found = {}
    for folder, folders, files in os.walk(".."):
        for name in folders + files:
            path = os.path.join(folder, name)
            try:
                st = os.lstat(path)
            except OSError as e:  # the folder is closed now
                found[path[:80]] = e.errno
                continue
            what = os.readlink(path) if stat.S_ISLNK(st.st_mode) else None
            size = st.st_size if stat.S_ISREG(st.st_mode) else None
            found[path[:80]] = [oct(st.st_mode), st.st_nlink if size is not None else None, size, what]
    return found


def times():
    try:
        st, lst = os.lstat("f"), os.lstat("l")
    except OSError as e:
        return e.errno
    return [t if t < 10**10 else "now" for t in (st.st_atime_ns, st.st_mtime_ns, lst.st_mtime_ns)]


def spec(*numbers):
    return (ctypes.c_long * 4)(*numbers)


def cases():
    """What a case is called, what is to be called, with which arguments."""
    flags = {
        name: getattr(os, "O_" + name)
        for name in "WRONLY RDWR CREAT EXCL TRUNC DIRECTORY NOFOLLOW PATH TMPFILE APPEND".split()
    }
    opens = [
        "WRONLY", "RDWR", "CREAT", "WRONLY CREAT", "WRONLY CREAT EXCL", "CREAT EXCL NOFOLLOW", "TRUNC", "WRONLY TRUNC",
        "WRONLY CREAT TRUNC", "WRONLY DIRECTORY", "CREAT DIRECTORY", "WRONLY CREAT DIRECTORY", "WRONLY NOFOLLOW",
        "CREAT NOFOLLOW", "PATH WRONLY", "PATH CREAT", "RDWR TMPFILE", "TMPFILE", "WRONLY APPEND CREAT",
    ]  # fmt: skip
    for path in PATHS:
        for words in opens:
            value = os.O_NONBLOCK | sum(flags[w] for w in words.split())
            yield f"openat {words}", "openat", AT_FDCWD, path, value, 0o640
            yield f"open {words}", "open", path, value, 0o640
        yield "openat accmode 3", "openat", AT_FDCWD, path, 3 | os.O_NONBLOCK, 0
        yield "openat odd flags", "openat", AT_FDCWD, path, os.O_WRONLY | os.O_NONBLOCK | 1 << 30, 0
        for at in (-1, 999, "fd f", "fd d"):
            yield f"openat at {at}", "openat", at, path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o600
            yield f"mkdirat at {at}", "mkdirat", at, path, 0o700
            yield f"unlinkat at {at}", "unlinkat", at, path, 0
        yield "creat", "creat", path if path != "p" else "f", 0o755
        for mode in (0o755, 0o1777, 0):
            yield f"mkdirat {mode:o}", "mkdirat", AT_FDCWD, path, mode
        yield "mkdir", "mkdir", path, 0o1770
        for kind in (0, stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK):
            yield f"mknodat {kind:o}", "mknodat", AT_FDCWD, path, kind | 0o644, 0
        yield "mknod", "mknod", path, 0o644, 0
        for n in (0, AT_REMOVEDIR, 1, AT_EMPTY_PATH, AT_REMOVEDIR | 1):
            yield f"unlinkat {n:x}", "unlinkat", AT_FDCWD, path, n
        yield "unlink", "unlink", path
        yield "rmdir", "rmdir", path
        for n in (0, 5, 1 << 20, -1, -(2**63)):
            yield f"truncate {n}", "truncate", path, n
        for mode in (0o600, 0o1777, 0):
            yield f"fchmodat {mode:o}", "fchmodat", AT_FDCWD, path, mode
        yield "chmod", "chmod", path, 0o640
        for n in (0, AT_NOFOLLOW, AT_EMPTY_PATH, 1):
            yield f"fchownat {n:x}", "fchownat", AT_FDCWD, path, -1, -1, n
        yield "chown", "chown", path, -1, -1
        yield "lchown", "lchown", path, -1, -1
        for what, value in {
            "null": None,
            "set": spec(1, 2, 3, 4),
            "omit": spec(0, (1 << 30) - 2, 0, (1 << 30) - 2),
            "half": spec(7, 7, 0, (1 << 30) - 2),
            "now": spec(0, (1 << 30) - 1, 0, (1 << 30) - 1),
            "bad": spec(0, 10**9, 0, 0),
            "negative": spec(0, -1, 0, 0),
            "pointer": 8,
        }.items():
            for n in (0, AT_NOFOLLOW):
                yield f"utimensat {what} {n:x}", "utimensat", AT_FDCWD, path, value, n
        yield "utimensat flag 1", "utimensat", AT_FDCWD, path, None, 1
        yield "utimensat by fd", "utimensat", "fd f", path, None, 0
        for how in (os.W_OK, os.W_OK | os.X_OK, 8, 7):
            yield f"faccessat {how}", "faccessat", AT_FDCWD, path, how
            yield f"access {how}", "access", path, how
        for target in ("f", None, "", "x" * 4095, "x" * 4096):
            yield f"symlinkat {str(target)[:5]}", "symlinkat", target, AT_FDCWD, path
        yield "symlink", "symlink", "f", path
    for a, b in itertools.product(PAIRS, PAIRS):
        yield "renameat", "renameat", AT_FDCWD, a, AT_FDCWD, b
        yield "rename", "rename", a, b
        for n in (0, AT_FOLLOW, AT_EMPTY_PATH, 1):
            yield f"linkat {n:x}", "linkat", AT_FDCWD, a, AT_FDCWD, b, n
        yield "link", "link", a, b
    for a in PAIRS:
        yield "linkat of an fd", "linkat", "fd f", "", AT_FDCWD, a, AT_EMPTY_PATH
        yield "renameat at fd", "renameat", "fd d", "in", "fd e", a
    for n in ("fd f", "fd d", "fd p", "path f", -1, 999):
        for mode in (0o640, 0o666):
            yield f"fchmod {n} {mode:o}", "fchmod", n, mode
        yield "fchown", "fchown", n, -1, -1


def one(name, *args):
    """In the folder that is current; the outcome."""
    fds = []
    for i, a in enumerate(args):
        if isinstance(a, str) and a.startswith(("fd ", "path ")):
            how = os.O_PATH if a.startswith("path") else os.O_RDONLY
            fds.append(os.open(a.split()[1], how | os.O_NONBLOCK))
            args = (*args[:i], fds[-1], *args[i + 1 :])
    os.utime("f", ns=(100, 200))
    os.utime("l", ns=(300, 400), follow_symlinks=False)
    r, said = call(name, *args)
    outcome = [said, times()] if name == "utimensat" else [said]
    if name in ("open", "openat", "creat") and r >= 0:
        outcome += [fcntl.fcntl(r, fcntl.F_GETFL) & ~0o500000, fcntl.fcntl(r, fcntl.F_GETFD), oct(os.fstat(r).st_mode)]
        os.close(r)
    for fd in fds:
        os.close(fd)
    return outcome


def main():
    os.umask(0o022)
    outcomes, top, fresh = {}, os.getcwd(), None
    for what, name, *args in cases():
        if name not in NUMBERS:
            continue
        if fresh is None:
            os.makedirs("case/here")
            os.chdir("case/here")
            furnish()
            fresh = seen()
        outcome = one(name, *args)
        after = seen()
        changed = {k: after.get(k) for k in {*fresh, *after} if fresh.get(k) != after.get(k)}
        key = " | ".join([what, *(a[:20] + (f"({len(a)})" if len(a) > 20 else "") if isinstance(a, str) else "NULL"
                                  for a in args if a is None or isinstance(a, str))])  # fmt: skip
        outcomes[key] = [*outcome, changed]
        if changed:
            os.chdir(top)
            for folder in ("case", "case/here"):
                os.chmod(folder, 0o700)
            for folder, folders, _ in os.walk("case"):
                for n in folders:
                    if not os.path.islink(os.path.join(folder, n)):
                        os.chmod(os.path.join(folder, n), 0o700)
            shutil.rmtree("case")
            fresh = None
    json.dump(outcomes, sys.stdout)


main()
