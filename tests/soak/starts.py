"""Kernels that come from one zygote, one after another, each with a cell: nothing may grow, and nothing may be left.

Role: a command, `.venv/bin/python tests/soak/starts.py [--faults] [STARTS]` (10,000 by default); test code, outside
the jail. With --faults the zygote is killed or stopped, or its pid 1 killed, at a random moment of each start: each
kernel starts, cold at worst, and none has two Pythons. Invariants: only what belongs to our own kernels and zygote is
counted. Exit status 1 if a start was cold that need not be, or something grew. tests/jail/test_warm.py makes a few.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

import kernels
import psutil
import watch
from rawclient import Client
from warmth import await_true, zygotes

SETTLED = 10  # starts, after which all that is kept has been made
FAULTS = (("zygote", signal.SIGKILL), ("zygote", signal.SIGSTOP), ("its pid 1", signal.SIGKILL))
MOMENTS = 0.2  # s after a kernel's start; a warm one has answered by then
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

    def pythons(self):
        """Numbers of the processes that are a guest of ours."""
        found, mark = [], f"\0CELLBLOCK_TEST={self.mark}".encode()
        for p in psutil.process_iter():
            try:
                python = os.path.basename(os.readlink(f"/proc/{p.pid}/exe")).startswith("python")
                if python and mark in Path(f"/proc/{p.pid}/environ").read_bytes():
                    found += [] if kernels.is_zygote(p.pid, mark) else [p.pid]
            except OSError:  # another's, or it has ended
                pass
        return found

    def lone(self):
        """Waits until there is one Python only: of a start that was given up one may be about to end."""
        await_true("one Python of the kernel, and no other", lambda: len(self.pythons()) == 1, 30)

    def one(self, fault=None):
        """A kernel from start to end; whether it was warm. fault: what is done meanwhile, and may cost it its first
        Python."""
        self.number += 1
        folder = self.folder / str(self.number)
        kernel = kernels.Kernel(folder, args=self.args, env={"CELLBLOCK_LOG": "info"})
        timer = fault and threading.Timer(random.uniform(0, MOMENTS), fault)
        if timer:
            timer.start()
        try:
            with Client(kernel) as client:
                client.ready()
                answer = client.run("6 * 7")
                if timer:
                    timer.join()
                    if not (answer.ok and client.run("pass").ok):
                        answer = client.run("6 * 7")
                    self.lone()
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

    def zygote(self):
        """The one that is made at the first kernel's end."""
        mark = f"\0CELLBLOCK_TEST={self.mark}".encode()
        ours = lambda each: each["state"] == "ready" and kernels.is_zygote(each["pid"], mark)  # noqa: E731
        return Zygote(await_true("a zygote", lambda: [*filter(ours, zygotes().values())])[0]["pid"])

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
        return amiss + self.remaining()

    def remaining(self):
        return [f"left behind: {g}" for g in sorted(self.groups) if g.exists()]

    def faults(self, count, say=lambda *words: None):
        """What was amiss, in words."""
        self.args += ["--set", "transactions.mode=off"]  # a twin is a Python, too
        warm = 0
        for number in range(count):
            self.one()  # behind its end there is a zygote
            zygote = self.zygote()
            try:
                who, what = FAULTS[number % len(FAULTS)]
                warm += self.one(lambda: zygote.family[who].send_signal(what))
            finally:
                zygote.end()
            if (number + 1) % 100 == 0 or number + 1 == count:
                say(f"{number + 1} starts, {warm} warm in spite of the fault")
        return self.remaining()


def main(words):
    options = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    options.add_argument("--faults", action="store_true", help="kill or stop the zygote within each start")
    options.add_argument("starts", nargs="?", type=int, default=10000)
    asked = options.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="cellblock-starts-") as folder:
        starts = Starts(Path(folder))
        run = starts.faults if asked.faults else starts.run
        amiss = run(asked.starts, lambda *words: print(*words, flush=True))
    print("\n".join(amiss) or "nothing grew, and nothing is left")
    return 1 if amiss else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
