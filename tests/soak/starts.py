"""Kernels that come from one zygote, one after another, each with a cell: nothing may grow, and nothing may be left.

Role: a command, `.venv/bin/python tests/soak/starts.py [STARTS]` (10,000 by default); test code, outside the jail.
Invariants: only what belongs to our own kernels and zygote is counted. Exit status 1 if a start was cold or something
grew. tests/jail/test_warm.py makes a few starts.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

import kernels
import psutil
import watch
from rawclient import Client

SETTLED = 10  # starts, after which all that is kept has been made
FILES_MAX, MEMORY_MAX = 2, 8  # descriptors, MiB by which a process may have grown; it can't have by one for each start


class Zygote:
    """What kernels are copied from, and pid 1 of its jail."""

    def __init__(self, pid):
        self.process = psutil.Process(pid)
        self.family = {"zygote": self.process, "its pid 1": self.process.parent()}

    def figures(self):
        """{name: (processes below, descriptors, MiB that are its own)}"""
        return {
            name: (len(p.children(recursive=True)), p.num_fds(), p.memory_full_info().uss / watch.MIB)
            for name, p in self.family.items()
        }

    def end(self):
        for p in self.family.values():
            if p.is_running():
                p.kill()


def grown(before, after):
    words = []
    for name, (below, files, own) in after.items():
        b, f, m = before[name]
        if below > b or files > f + FILES_MAX or own > m + MEMORY_MAX:
            words.append(f"{name}: {b} processes, {f} descriptors, {m:.1f} MiB -> {below}, {files}, {own:.1f}")
    return words


class Starts:
    def __init__(self, folder):
        self.folder, self.left, self.groups, self.number = folder, watch.Left(), set(), 0
        self.mark = uuid.uuid4().hex
        sets = ["warm.mode=auto", "env.set=" + json.dumps({"CELLBLOCK_TEST": self.mark})]
        self.args = [word for each in sets for word in ("--set", each)]

    def one(self):
        """A kernel from start to end; whether it was warm."""
        self.number += 1
        folder = self.folder / str(self.number)
        kernel = kernels.Kernel(folder, args=self.args, env={"CELLBLOCK_LOG": "info"})
        try:
            with Client(kernel) as client:
                client.ready()
                answer = client.run("6 * 7")
                assert answer.result == "42", answer
            self.groups |= kernels.groups_of(kernel.family())
            kernel.stop()
        finally:
            kernel.kill()
        left = self.left.now([kernel.tmp])
        assert not any(left.values()), left
        warm = ", warm, level" in kernel.said()
        shutil.rmtree(folder)
        return warm

    def zygote(self, seconds=200):
        """The one that is made at the first kernel's end."""
        end, mark = time.monotonic() + seconds, f"\0CELLBLOCK_TEST={self.mark}".encode()
        while time.monotonic() < end:
            told = subprocess.run([kernels.spec_argv()[0][0], "warm", "--json"], capture_output=True, check=True)
            found = json.loads(told.stdout)
            for each in found["zygotes"] if isinstance(found, dict) else found:
                if each["state"] == "ready" and kernels.is_zygote(each["pid"], mark):
                    return Zygote(each["pid"])
            time.sleep(0.05)  # nobody tells of a zygote's start
        raise AssertionError(f"no zygote within {seconds} s")

    def run(self, count, say=lambda *words: None):
        """What was amiss, in words."""
        assert not self.one(), "a first start can't be warm"
        zygote = self.zygote()
        try:
            cold, before, began = 0, None, time.monotonic()
            for number in range(1, count + 1):
                cold += not self.one()
                if number == SETTLED:
                    before = zygote.figures()
                if number == SETTLED or number % 500 == 0 or number == count:
                    there = ", ".join(f"{n} {f} fds {m:.1f} MiB" for n, (_, f, m) in zygote.figures().items())
                    each = (time.monotonic() - began) / number * 1e3
                    say(f"{number} starts, {cold} cold, {each:.0f} ms each: {there}")
            amiss = grown(before, zygote.figures())
        finally:
            zygote.end()
        if cold:
            amiss.append(f"{cold} starts of {count} were cold")
        return amiss + [f"left behind: {g}" for g in sorted(self.groups) if g.exists()]


def main(words):
    count = int(words[0]) if words else 10000
    with tempfile.TemporaryDirectory(prefix="cellblock-starts-") as folder:
        amiss = Starts(Path(folder)).run(count, lambda *words: print(*words, flush=True))
    print("\n".join(amiss) or "nothing grew, and nothing is left")
    return 1 if amiss else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
