"""What a kernel holds: memory, descriptors, processes, control groups, mounts, files.

Role: test code, outside the jail. Invariants: only what belongs to our own kernels is counted, for others may run on
the same machine. Callers: session.py, tests/soak/soak.
"""

import os
import time
from pathlib import Path

import kernels
import psutil

ROLES = {"cellblock": "supervisor", "cellblock-jail": "broker", "cellblock-init": "pid 1"}
ROLES["cellblock-names"] = "notifier"
GROUPS = Path("/sys/fs/cgroup")
MIB = 1 << 20
MEMORY_MAX = 12  # MiB that a process may have grown by
FILES_MAX = 12  # descriptors; a copy of Python has five, and there are one or two more at times


def role_of(process):
    name = process.name()
    return "twin" if name.startswith("cellblock-twin") else ROLES.get(name, "guest")


def find(kernel, role):
    """The processes of that role below a kernel, the kernel's own among them; a guest's children are guests too."""
    found = []
    for p in [psutil.Process(kernel.pid), *kernel.family()]:
        try:
            if role_of(p) == role:
                found.append(p)
        except psutil.Error:  # it has just ended
            pass
    return found


def guest(kernel):
    """The guest alone: what is left of pid 1's children when the twins are taken away; the oldest with our start."""
    found = []
    for init in find(kernel, "pid 1"):
        for p in init.children():
            try:
                if role_of(p) == "guest" and any("boot.py" in word for word in p.cmdline()):
                    found.append(p)
            except psutil.Error:
                pass
    return found


def figures(kernel):
    """{role: (processes, descriptors, MiB)} of supervisor, broker, pid 1 and notifier."""
    found = {}
    for role in ROLES.values():
        for p in find(kernel, role):
            try:
                try:
                    fds = p.num_fds()
                except psutil.AccessDenied:  # not dumpable, and we are not root
                    fds = 0
                so_far = found.get(role, (0, 0, 0.0))
                mib = p.memory_info().rss / MIB
                found[role] = (so_far[0] + 1, so_far[1] + fds, max(so_far[2], mib))
            except psutil.NoSuchProcess:
                pass
    return found


def grown(before, after):
    """What is not flat, in words."""
    words = []
    for role in ("supervisor", "broker"):
        if role in before and role in after:
            (p0, f0, m0), (p1, f1, m1) = before[role], after[role]
            if p1 > p0 or f1 > f0 + FILES_MAX or m1 > m0 + MEMORY_MAX:
                words.append(f"{role} {p0} processes, {f0} descriptors, {m0:.1f} MiB -> {p1}, {f1}, {m1:.1f}")
    return words


class Left:
    """What kernels leave behind outside: groups, mounts, shared memory, files."""

    def __init__(self):
        self.groups, self.shm, self.mounts = set(), set(os.listdir("/dev/shm")), self.mounted()

    @staticmethod
    def mounted():
        return {line.split(" ", 5)[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}

    def note(self, kernel):
        """The control groups of a kernel that runs."""
        for p in find(kernel, "pid 1"):
            try:
                text = Path(f"/proc/{p.pid}/cgroup").read_text()
            except OSError:
                continue
            for line in text.splitlines():
                self.groups |= {part for part in line.split(":", 2)[2].split("/") if part.startswith("cellblock-")}

    def now(self, folders):
        """What there is of it; each an empty list where all has gone. `folders`: TMPDIR and such of our kernels."""
        groups = [d for _, names, _ in os.walk(GROUPS) for d in names if d in self.groups]
        shm = [f for f in set(os.listdir("/dev/shm")) - self.shm if "cellblock" in f]
        mine = [str(f) for f in folders]
        mounts = [m for m in self.mounted() - self.mounts if any(m.startswith(f) for f in mine)]
        files = [str(f) for d in folders if d.exists() for f in d.iterdir()]
        return {"groups": groups, "mounts": mounts, "shared memory": shm, "files": files}


def wait_gone(processes, what):
    """Waits until they have ended; those of a kernel that was killed go by themselves."""
    left = kernels.wait_gone(processes, 20)
    for p in left:
        p.kill()
    assert not left, f"{what} left behind: {left}"


def settled(kernel, moments=50):
    """The figures, once there is one of each role."""
    for _ in range(moments):
        now = figures(kernel)
        if all(now.get(role, (0,))[0] == 1 for role in ("supervisor", "broker")):
            break
        time.sleep(0.02)
    return now
