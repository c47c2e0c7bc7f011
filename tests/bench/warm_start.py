#!/usr/bin/env python3
"""Kernels from a zygote, beside cold ones, the null kernel, ipykernel and xeus-python: starts, memory, calls.

usage: warm_start.py [--parts NAME,…] [--kinds NAME,…] [--starts N] [--burst N,…] [--rounds N] [--sessions N]
                     [--density N] [--kernels N] [--calls N] [--json FILE]

Each part, density apart, goes through its kinds of kernels in turns, so that what else the machine does hits all:
first     ms from the start of a kernel's process to the reply to its first cell, `1` or one that uses pandas: medians
          of --starts
burst     s until the last of N kernels, started at once, has answered a first cell: medians of --rounds
sessions  s for a start, one cell and the shutdown, --sessions of them one after another: median and p90
density   MB for each of --density kernels that live together, after a cell that imports pandas and after a group-by in
          each: by how much MemAvailable falls, and what is private to its processes (Private_* of smaps_rollup), by
          role. What a twin or a zygote shares is private to nobody. One kind after another; ends early, and says so,
          where MemAvailable gets below 2 GB
calls     ms from a request to idle and reply, for small cells to --kernels kernels in turn by one thread, --calls to
          each: median, p90 and p99. The first call to each in a row is not timed: the kernels have rested before it

Kinds: null; ipykernel, xeus-python and xeus-python-raw, left out where there is no kernelspec; cold and warm, which are
Cellblock's. "… pandas" uses pandas, which warm ones have preloaded; "cold off" is cold with transactions.mode=off.
Nothing is asserted; only the ratios within one run mean anything. Exit status 1 where a kernel gave no answer.
"""

import argparse
import contextlib
import functools
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path

import psutil

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib")]

import kernels  # noqa: E402
from kernel_latency import Bare, find  # noqa: E402
from rawclient import Client  # noqa: E402

Client.RETRY = 2  # what is measured is a matter of milliseconds

PANDAS = "import pandas as pd; len(pd.DataFrame({'a': [1, 2]}))"
SMALL = "import pandas as pd; x = 1"
GROUP_BY = """
import pandas as pd, numpy as np
pd.DataFrame({'a': np.arange(100000) % 7, 'b': 1.0}).groupby('a').sum()
"""
LEAST_MB = 2048
SETTLES = 2  # seconds after a cell, within which a kernel makes its twin
ROW = 10  # calls to each kernel before the next kind has its turn
WAIT = 600  # seconds for one of many that start at once
ROLES = {  # by the name of the process; any other is the guest
    "cellblock-jail": "broker",
    "cellblock-init": "pid 1",
    "cellblock-names": "notifier",
    "cellblock-twin": "twins",
}


class Kind:
    """Kernels of one kind; `sets` are policy keys."""

    def __init__(self, name, folder, *, argv=None, sets=(), code="1"):
        self.name, self.folder, self.argv, self.code = name, folder, argv, code
        self.args = [word for each in sets for word in ("--set", each)]
        self.is_warm = "warm.mode=auto" in sets
        self.count = 0

    def start(self, stack):
        """A kernel, which ends with the stack."""
        self.count += 1
        kernel = kernels.Kernel(self.folder / f"{self.name}-{self.count}", argv=self.argv, args=self.args)
        stack.callback(self.end, kernel)
        return kernel

    def end(self, kernel):
        """By request; the null kernel knows none."""
        if self.name == "null":
            kernel.kill()
        else:
            kernel.stop()

    def session(self):
        """Seconds to the reply to a first cell, and to the end of the shutdown that follows it."""
        begun = time.monotonic()
        with contextlib.ExitStack() as stack:
            run(self.start(stack), self.code)
            first_cell = time.monotonic() - begun
        return first_cell, time.monotonic() - begun


def run(kernel, code):
    """Returns with the reply; nobody listens to iopub, for a client that subscribes late would have to ask again."""
    with Client(kernel, channels=("shell",)) as client:
        client.ready()
        answered(client, client.start(code))


def answered(client, cell):
    status = client.reply(cell, timeout=WAIT).content["status"]
    assert status == "ok", f"{client.kernel.folder.name}: {status}"


def zygotes(mark):
    """Of this run, those that can serve."""
    program = kernels.spec_argv()[0][0]
    told = json.loads(subprocess.run([program, "warm", "--json"], capture_output=True, check=True).stdout)
    pids = {each["pid"] for each in told["zygotes"] if each["state"] == "ready"}
    return {pid for pid in pids if kernels.is_zygote(pid, mark.encode())}


def await_zygote(kind, mark):
    """One kernel, behind whose end a zygote is started; returns when that can serve."""
    before, end = zygotes(mark), time.monotonic() + 60
    kind.session()
    while not zygotes(mark) - before:
        if time.monotonic() > end:
            raise SystemExit("no zygote came to serve within 60 s")
        time.sleep(0.1)


def end_zygotes(mark):
    for pid in zygotes(mark):
        psutil.Process(pid).kill()


def at(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


# ---- the parts: what is measured, value ----


def in_turns(kinds, rounds, measure):
    """(kind, what `measure` says of it in each round)"""
    took = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind in kinds:
            took[kind].append(measure(kind))
    return took.items()


def first(kinds, options):
    for kind, times in in_turns(kinds, options.starts, lambda kind: kind.session()[0]):
        yield f"first cell, {kind.name}: ms", statistics.median(times) * 1000


def burst_once(kind, n):
    begun = time.monotonic()
    with contextlib.ExitStack() as stack:
        many = [kind.start(stack) for _ in range(n)]
        clients = [stack.enter_context(Client(kernel, channels=("shell",))) for kernel in many]
        for client, cell in [(client, client.start(kind.code)) for client in clients]:
            answered(client, cell)
        return time.monotonic() - begun


def burst(kinds, options):
    for n in map(int, options.burst.split(",")):
        for kind, times in in_turns(kinds, options.rounds, functools.partial(burst_once, n=n)):
            yield f"{n} at once, {kind.name}: s", statistics.median(times)


def sessions(kinds, options):
    for kind, times in in_turns(kinds, options.sessions, lambda kind: kind.session()[1]):
        yield f"session, {kind.name}: s", statistics.median(times)
        yield f"session, {kind.name}, p90: s", at(times, 0.9)


def available():
    return psutil.virtual_memory().available / 2**20


def enough(what, many):
    if available() >= LEAST_MB:
        return True
    print(f"{what}: ends at {len(many)} kernels, MemAvailable is below {LEAST_MB} MB", file=sys.stderr)
    return False


def private(many):
    """MB of private memory of all processes of these kernels, by role."""
    tops = {kernel.pid: "supervisor" if kernel.is_cellblock else "kernel" for kernel in many}
    total = Counter()
    found = {process.pid: process for process in psutil.process_iter(["name", "ppid"])}
    for process in found.values():
        above = process
        while above and above.pid not in tops:
            above = found.get(above.info["ppid"])
        if not above:
            continue
        role = tops[above.pid] if process is above else ROLES.get(process.info["name"], "guest")
        with contextlib.suppress(psutil.Error):
            total[role] += process.memory_full_info().uss / 2**20
    return total


def density(kinds, options):
    for kind in kinds:
        name = f"density, {kind.name}"
        with contextlib.ExitStack() as stack:
            running, each = [], 0
            for what, code in ("x = 1", SMALL), ("a group-by", GROUP_BY):
                before, done = available(), []
                while len(done) < (len(running) or options.density) and enough(f"{name}, {what}", done):
                    kernel = running[len(done)] if running else kind.start(stack)
                    run(kernel, code)
                    done.append(kernel)
                if not done:
                    break
                time.sleep(SETTLES)
                each += (before - available()) / len(done)
                yield f"{name}, {what}: kernels", len(done)
                yield f"{name}, {what}: MB each", each
                roles = private(done)
                for role, total in [*roles.items(), ("all private", sum(roles.values()))]:
                    yield f"{name}, {what}, {role}: MB each", total / len(done)
                running = done


def calls(kinds, options):
    took = {kind: [] for kind in kinds}
    with contextlib.ExitStack() as stack:
        many = {kind: [kind.start(stack) for _ in range(options.kernels)] for kind in kinds}
        clients = {kind: [stack.enter_context(Bare(kernel)) for kernel in each] for kind, each in many.items()}
        for client in itertools.chain(*clients.values()):
            client.ready()
        for left in range(options.calls, 0, -ROW):
            for kind in kinds:
                for turn in range(1 + min(left, ROW)):
                    for client in clients[kind]:
                        begun = time.monotonic()
                        client.cell("x = 1\nx")
                        if turn:
                            took[kind].append(time.monotonic() - begun)
    for kind, times in took.items():
        for what, share in ("p50", 0.5), ("p90", 0.9), ("p99", 0.99):
            yield f"calls to {options.kernels}, {kind.name}, {what}: ms", at(times, share) * 1000


ALONE = ("null", "ipykernel", "xeus-python", "xeus-python-raw", "cold", "warm")
PARTS = {
    "first": (first, (*ALONE, *(f"{name} pandas" for name in ALONE[1:]))),
    "burst": (burst, ALONE),
    "sessions": (sessions, ALONE),
    "density": (density, tuple(f"{name} pandas" for name in ALONE[1:])),
    "calls": (calls, (*ALONE[:-1], "cold off", "warm")),
}


def all_kinds(folder, mark):
    off, auto = ["warm.mode=off"], ["warm.mode=auto", "env.set=" + json.dumps({"CELLBLOCK_BENCH": mark})]
    kinds = []
    for name, argv in find(folder, [], []).items():
        if name != "cellblock":
            kinds += [Kind(name, folder, argv=argv), Kind(f"{name} pandas", folder, argv=argv, code=PANDAS)]
    kinds += [
        Kind("cold", folder, sets=off),
        Kind("cold pandas", folder, sets=off, code=PANDAS),
        Kind("cold off", folder, sets=[*off, "transactions.mode=off"]),
        Kind("warm", folder, sets=auto),
        Kind("warm pandas", folder, sets=[*auto, 'warm.preload=["numpy", "pandas"]'], code=PANDAS),
    ]
    return {kind.name: kind for kind in kinds}


def some_of(known):
    def split(text):
        wrong = set(text.split(",")) - set(known)
        if wrong:
            raise argparse.ArgumentTypeError(f"{', '.join(wrong)}: none of {', '.join(known)}")
        return text.split(",")

    return split


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = list(dict.fromkeys(name for _, names in PARTS.values() for name in names))
    parser.add_argument("--parts", type=some_of(PARTS), default=list(PARTS))
    parser.add_argument("--kinds", type=some_of(every), default=every)
    parser.add_argument("--starts", type=int, default=11)
    parser.add_argument("--burst", default="20,100")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--density", type=int, default=50)
    parser.add_argument("--kernels", type=int, default=20)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    kernels.room(max(*map(int, options.burst.split(",")), options.density, options.kernels * len(PARTS["calls"][1])))
    figures, mark = {}, uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="cb-warm-") as name, contextlib.ExitStack() as stack:
        stack.callback(end_zygotes, mark)
        kinds = all_kinds(Path(name), mark)
        waiting = set()
        for part in options.parts:
            measure, names = PARTS[part]
            chosen = [kinds[each] for each in names if each in kinds and each in options.kinds]
            for kind in chosen:
                if kind.is_warm and kind not in waiting:
                    await_zygote(kind, mark)
                    waiting.add(kind)
            for what, value in measure(chosen, options):
                figures[what] = value
                print(f"{what:52} {value:9.2f}", flush=True)
    floor = figures.get("first cell, null: ms")
    for each in ("warm", "cold"):
        if floor and f"first cell, {each}: ms" in figures:
            print(f"{each} is {figures[f'first cell, {each}: ms'] / floor:.1f} times the null kernel")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
