#!/usr/bin/env python3
"""Which system calls the workloads need: runs each in a jail under strace, and writes docs/syscalls.md.

usage: syscalls.py CELLBLOCK PYTHON [MORE WORKLOADS AS FILE.py ...]

Run by hand, where strace is; tests/jail/test_commands.py checks that the page lists what the filter allows. A call
counts if a process behind the filter made it and was not answered ENOSYS. UNSEEN: what no workload here makes, with
who does.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/jail"))
from workloads import WORKLOADS  # noqa: E402

LINE = re.compile(r"^(\d+) +(?:<\.\.\. )?(\w+)(?:\(| resumed)(.*)")
OLDER = "C libraries before glibc 2.33, musl, programs linked statically"
UNSEEN = {
    "accept": "servers in C; Python has accept4",
    "chown": "`os.chown`, `install`: to the only user that there is",
    "clock_getres": "`time.clock_getres` where the vDSO has no answer",
    "dup3": "`os.dup2(a, b, inheritable=False)`, Go",
    "epoll_pwait": "node, Go",
    "fallocate": "`os.posix_fallocate`, HDF5, databases",
    "fchownat": "`os.chown` with a folder, `cp -p` of newer coreutils",
    "flock": "`fcntl.flock`, lock files of many tools, Java",
    "fork": "musl",
    "getpgrp": "`os.getpgrp`, shells",
    "gettimeofday": "every clock, where the vDSO has no answer (the host's clock source)",
    "lchown": "`os.lchown`, `cp -a`",
    "lstat": OLDER,
    "mknod": "`os.mkfifo` with " + OLDER,
    "nanosleep": "Go; " + OLDER,
    "open": OLDER,
    "pidfd_open": "`os.pidfd_open`, asyncio from Python 3.12, Go",
    "pipe": OLDER,
    "ppoll": "Qt, Rust's standard library",
    "readlinkat": "`os.readlink` with a folder, Go",
    "readv": "`os.readv`; stdio of musl",
    "restart_syscall": "the kernel itself, when a sleeping process was stopped and goes on",
    "sched_setaffinity": "`os.sched_setaffinity`, OpenMP with bound threads",
    "sched_yield": "`os.sched_yield`, locks of BLAS and Java",
    "select": "`select.select` with " + OLDER,
    "sendmmsg": "glibc's resolver, with network.mode full",
    "stat": OLDER,
    "timer_delete": "partner of timer_create",
    "tkill": "raise() and abort() of musl",
    "waitid": "`os.waitid`, Go, Rust",
    "writev": "`os.writev`; stdio of musl",
}
HEAD = """# System calls

{count} system calls are allowed on x86-64, some only with certain arguments; fewer on machines that never had the
older ones. Everything else is answered with ENOSYS or, where programs should hear "not permitted", with EPERM;
foreign call tables (i386, x32) kill the caller. `cellblock explain` prints the groups with their reasons and what is
refused by name; the table that both come from is `sandbox/walls/seccomp_groups.def`.

What programs may notice: extended attributes are refused as on a file system that has none (ENOTSUP), since they
would carry capabilities and access lists out of the jail; inotify is absent, since watching the host's folders shows
what programs outside do, so watchers must poll, as `tail -f` does by itself; splice, sendfile and copy_file_range are
absent, and programs copy by reading and writing; memory is never shared by memfd. Programs can load no filters of
their own, as on a kernel without seccomp (`seccomp` is ENOSYS, PR_SET_SECCOMP and PR_GET_SECCOMP of `prctl` are
EINVAL): filters lie in memory that is one sum for the whole machine, and where a cell had used that up nobody could
load one. A process that asks to be undumpable (PR_SET_DUMPABLE) is told that it is, and stays as it was: the process
outside that serves calls must be able to read the paths they name. PR_GET_TID_ADDRESS of `prctl` is allowed for
copies of Python ([transactions.md](transactions.md)): each of their threads gets again the address at which its end is
told.

With `workspace.mode` `rw`, and with `network.mode` `none`, some of these are served by a process outside
([architecture.md](architecture.md)), which judges the resolved name:

| call | what may be done |
|---|---|
| `open`, `openat`, `creat` | with flags that write or create: a file that is not protected; never a folder's \
descriptor, no `O_TMPFILE`, no set-uid file, none with hard links from elsewhere; what \
others have just made is waited for |
| `mkdir`, `mkdirat`, `mknod`, `mknodat`, `symlink`, `symlinkat` | a new entry whose name is not protected; no \
symbolic link to what is protected, or out of the workspace, nor to a folder that has either below it |
| `link`, `linkat`, `rename`, `renameat` | if both names may be changed; no symbolic link to \
where it leads out of the workspace |
| `unlink`, `unlinkat`, `rmdir` | what is not protected |
| `truncate`, `chmod`, `fchmod`, `fchmodat`, `chown`, `fchown`, `lchown`, `fchownat`, `utimensat` | of what is \
not protected |
| `access`, `faccessat`, `faccessat2` | with `W_OK`: says what is so, though the mount is read-only |
| `bind` | a named socket in the workspace |
| `connect` | to named sockets that this jail has bound, and in the jail's own network |

For each call: the workloads of `tests/jail/workloads.py` that make it (measured with `tests/tools/syscalls.py`, which
writes this page), or who else does. A test compares the list with what `cellblock explain --json` says.

| call | needed by |
|---|---|
"""


def calls(trace):
    """Only processes born after pid 1 of the jail got its name are behind the filter."""
    before, inside, used, jailed = set(), set(), set(), False
    for line in trace.read_text(errors="replace").splitlines():
        match = LINE.match(line)
        if not match:
            continue
        pid, name, rest = match.groups()
        if jailed and pid not in before:
            inside.add(pid)
        elif not jailed:
            before.add(pid)
        if name == "prctl" and "cellblock-init" in rest:
            jailed = True
        if pid in inside and "ENOSYS" not in rest and "unfinished" not in rest:
            used.add(name)
    return used


def measure(cellblock, python, workloads):
    needed = {}
    for name, code in workloads.items():
        with tempfile.TemporaryDirectory(prefix="cb-strace-") as folder:
            work = Path(folder) / "work"
            work.mkdir()
            Path(folder).chmod(0o755)
            (work / "w.py").write_text(code)
            trace = Path(folder) / "trace"
            command = ["strace", "-f", "-qq", "-o", trace, cellblock, "run", "--python", python, "--", python, "w.py"]
            done = subprocess.run(command, cwd=work, capture_output=True, text=True)
            print(f"{name}: {done.returncode} {done.stderr[-500:]}", file=sys.stderr)
            for call in calls(trace):
                needed.setdefault(call, []).append(name)
    return needed


def allowed(cellblock):
    """The calls that `cellblock explain` says are allowed, with any or with certain arguments."""
    told = json.loads(subprocess.check_output([cellblock, "explain", "--json"]))
    names = set()
    for group in told["jail"]["syscalls"]:
        for part in group["calls"].split("; "):
            label, _, calls = part.partition(": ")
            if label in ("allowed", "by their arguments"):
                names |= set(calls.split())
    return names


def who(names, total):
    if len(names) == total:
        return "every workload"
    if len(names) > 5:
        return ", ".join(names[:4]) + f" and {len(names) - 4} more"
    return ", ".join(names)


def main(cellblock, python, *more):
    workloads = {**WORKLOADS, **{Path(m).stem: Path(m).read_text() for m in more}}
    needed = measure(cellblock, python, workloads)
    names = allowed(cellblock)
    page = HEAD.format(count=len(names))
    for call in sorted(names):
        reason = who(needed[call], len(workloads)) if call in needed else UNSEEN[call]
        page += f"| `{call}` | {reason} |\n"
    (ROOT / "docs/syscalls.md").write_text(page)
    print("made, but not allowed:", {c: needed[c] for c in sorted(set(needed) - names)}, file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
