"""What a kernel holds: memory, descriptors, processes, control groups, mounts, files.

Role: test code, outside the jail. Invariants: only what belongs to our own kernels is counted, for others may run on
the same machine. Callers: session.py, tests/soak/soak.
"""

import os
import time
import uuid
from pathlib import Path
from typing import NamedTuple

import kernels
import psutil

ROLES = {"cellblock": "supervisor", "cellblock-jail": "broker", "cellblock-init": "pid 1"}
ROLES |= {"cellblock-names": "notifier", "cellblock-job": "helper", "cellblock-twin": "twin"}
ENDURING = ("supervisor", "broker")  # one that comes in the place of another is held against that
MARK = uuid.uuid4().hex  # in the environment of our zygotes, so that other kernels have others
GROUPS = Path("/sys/fs/cgroup")
MIB = 1 << 20
MEMORY_MAX = 12  # MiB that a process may have grown by
# MiB of Python, whichever process it is by now: as in tests/transactions/test_leaks.py, and what the first MemoryErrors
# leave in the allocator, once.
GUEST_MAX = 16 + 16
FILES_MAX = 12  # descriptors; a copy of Python has five, and there are one or two more at times
TWINS_MAX = 2  # more of them: auto may have had none yet, and one that was dropped is still about to end


def role_of(process):
    return ROLES.get(process.name(), "guest")


def find(kernel, role):
    """The processes of that role below a kernel, the kernel's own among them; a guest's children are guests too."""
    if role == "zygote":
        return zygotes()
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


def numbered(kernel, number):
    """Of the guest and its branches the one that has that process id in its jail."""
    found = []
    for p in guest(kernel):
        try:
            lines = Path(f"/proc/{p.pid}/status").read_text().splitlines()
        except OSError:
            continue
        found += [p for line in lines if line.startswith("NSpid:") and line.split()[-1] == str(number)]
    return found


def guest_memory(kernel):
    """Of Python alone, which may be another process than at the last look: so what no file is mapped for, in MiB."""
    most = 0
    for p in guest(kernel):
        try:
            memory = p.memory_info()
            most = max(most, (memory.rss - memory.shared) / MIB)
        except psutil.NoSuchProcess:
            pass
    return Held(frozenset(), 0, most)


def zygotes():
    """Those that wait for our kernels; while one still loads it is not told from others."""
    mark = f"\0CELLBLOCK_SOAK={MARK}".encode()
    return [psutil.Process(pid) for pid in psutil.pids() if kernels.is_zygote(pid, mark)]


class Held(NamedTuple):
    which: frozenset  # pids, or names
    fds: int = 0
    mib: float = 0.0  # of the largest


def figures(kernel):
    """{role: Held} of all processes but what cells have started; of the guest its memory."""
    found = {"guest": guest_memory(kernel)}
    for role in ROLES.values():
        for p in find(kernel, role):
            try:
                try:
                    fds = p.num_fds()
                except psutil.AccessDenied:  # not dumpable, and we are not root
                    fds = 0
                so_far = found.get(role, Held(frozenset()))
                mib = p.memory_info().rss / MIB
                found[role] = Held(so_far.which | {p.pid}, so_far.fds + fds, max(so_far.mib, mib))
            except psutil.NoSuchProcess:
                pass
    return found


def grown(before, after):
    """What is not flat, in words. What a twin holds is the guest's."""
    words = []
    for role, b in after.items():
        a = before.get(role, Held(frozenset()))
        more = len(b.which) - len(a.which) - (TWINS_MAX if role == "twin" else 0)
        same = role in ENDURING or (role != "twin" and a.which == b.which)
        most = a.mib + (GUEST_MAX if role == "guest" else MEMORY_MAX)
        if more > 0 or (same and (b.fds > a.fds + FILES_MAX or b.mib > most)):
            words.append(f"{role} {len(a.which)}, {a.fds} descriptors, {a.mib:.1f} MiB -> ")
            words[-1] += f"{len(b.which)}, {b.fds}, {b.mib:.1f}: {sorted(b.which)}"
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
    """The figures, once there is one of each role, and no helper; a notifier that was killed has gone for good."""
    for _ in range(moments):
        now = figures(kernel)
        number = {role: len(now[role].which) if role in now else 0 for role in ROLES.values()}
        one = all(number[role] == 1 for role in (*ENDURING, "pid 1"))
        if one and number["notifier"] <= 1 and number["helper"] == 0:
            break
        time.sleep(0.02)
    return now
