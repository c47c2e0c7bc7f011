"""Kernels that come from one zygote, one after another, each with a cell: nothing may grow, and nothing may be left.

Role: a command, `.venv/bin/python tests/soak/starts.py [--faults | --at-once] [STARTS]` (10,000 by default); test
code, outside the jail. With --faults the zygote is killed or stopped, or its pid 1 killed, at a random moment of each
start: each kernel starts, cold at worst, and none has two Pythons. With --at-once all start at the same moment, once
where no zygote is there, and once beside one: the same must hold, and at most one zygote be made. Invariants: only what
belongs to our own kernels and zygote is counted. Exit status 1 if a start was cold that need not be, or something grew.
tests/jail/test_warm.py makes a few.
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

import kernels
import psutil
import watch
from rawclient import Client
from warmth import Warm, await_true, zygotes

SETTLED = 10  # starts, after which all that is kept has been made
FAULTS = (("zygote", signal.SIGKILL), ("zygote", signal.SIGSTOP), ("its pid 1", signal.SIGKILL))
MOMENTS = 0.2  # s after a kernel's start; a warm one has answered by then
PATIENCE = 300  # s for a start among hundreds at the same moment
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
        Warm.marks.append(self.mark)
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

    def lone(self, count=1):
        """Waits until each kernel has one Python only: of a start that was given up one may be about to end."""
        await_true("one Python of each kernel, and no other", lambda: len(self.pythons()) == count, 30)

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

    def _answers(self, kernel, all_there):
        """A kernel of many, from its first answer until all have given theirs; whether it was warm."""
        with Client(kernel) as client:
            try:
                client.ready(timeout=PATIENCE)
                answer = client.run("6 * 7", timeout=PATIENCE)
                assert answer.result == "42", answer
            except BaseException:
                all_there.abort()
                raise
            all_there.wait(PATIENCE)
            all_there.wait(PATIENCE)  # they have been counted
        return ", warm, level" in kernel.said()

    def _together(self, count):
        """So many from start to end; how many were warm."""
        folders = [self.folder / str(self.number + n) for n in range(count)]
        self.number += count
        all_there = threading.Barrier(count + 1)
        many = []
        try:
            with ThreadPoolExecutor(count) as pool:
                many.extend(kernels.Kernel(f, args=self.args, env={"CELLBLOCK_LOG": "info"}) for f in folders)
                answers = [pool.submit(self._answers, kernel, all_there) for kernel in many]
                try:
                    all_there.wait(PATIENCE)
                    self.lone(count)
                    self.groups |= set().union(*(kernels.groups_of(kernel.family()) for kernel in many))
                    all_there.wait(PATIENCE)
                except threading.BrokenBarrierError:
                    pass  # who broke it says why
                except BaseException:
                    all_there.abort()
                    raise
            wrong = [each.exception() for each in answers if each.exception()]
            for why in sorted(wrong, key=lambda e: isinstance(e, threading.BrokenBarrierError)):
                raise why  # others' barrier breaks by it
            for kernel in many:
                kernel.stop()
        finally:
            for kernel in many:
                kernel.kill()
        left = self.left.now([kernel.tmp for kernel in many])
        assert not any(left.values()), left
        for each in folders:
            shutil.rmtree(each)
        return sum(each.result() for each in answers)

    def at_once(self, count, say=lambda *words: None):
        """What was amiss, in words."""
        self.args += ["--set", "transactions.mode=off"]  # a twin is a Python, too
        amiss = []
        warm = self._together(count)
        say(f"{count} starts at once without a zygote, {warm} warm")
        zygote = self.zygote()
        try:
            warm = self._together(count)
            say(f"{count} starts at once beside a zygote, {warm} warm")
            if self.zygote().process != zygote.process:
                amiss.append("another zygote was made beside the one that was there")
        finally:
            zygote.end()
        return amiss + self.remaining()


def main(words):
    options = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    how = options.add_mutually_exclusive_group()
    how.add_argument("--faults", action="store_true", help="kill or stop the zygote within each start")
    how.add_argument("--at-once", action="store_true", help="all at the same moment, twice")
    options.add_argument("starts", nargs="?", type=int, default=10000)
    asked = options.parse_args(words)
    if asked.at_once:
        kernels.room(asked.starts)
    with tempfile.TemporaryDirectory(prefix="cellblock-starts-") as folder:
        starts = Starts(Path(folder))
        run = starts.faults if asked.faults else starts.at_once if asked.at_once else starts.run
        amiss = run(asked.starts, lambda *words: print(*words, flush=True))
    print("\n".join(amiss) or "nothing grew, and nothing is left")
    return 1 if amiss else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
