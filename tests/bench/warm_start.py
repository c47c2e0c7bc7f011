#!/usr/bin/env python3
"""Kernels from a zygote, beside cold ones, the null kernel and ipykernel: first cells, many at once, memory.

usage: warm_start.py [--starts N] [--burst N] [--density N] [--json FILE]

In one run, interleaved: ms from the start of a kernel's process to the reply to its first cell `1`, medians of --starts
(cold, warm, warm with pandas preloaded and used; null; ipykernel). Seconds until the last of --burst kernels, started
at once, has answered. MB by which MemAvailable falls for each of --density warm kernels with pandas preloaded, after
`x = 1` and after a group-by. Nothing is asserted; only the ratios within one run mean anything. Exit status 1 where a
kernel gave no answer.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib")]

import kernels  # noqa: E402
from kernel_latency import null_kernel  # noqa: E402
from rawclient import Client  # noqa: E402

PANDAS = "import pandas as pd; len(pd.DataFrame({'a': [1, 2]}))"
GROUP_BY = """
import pandas as pd, numpy as np
pd.DataFrame({'a': np.arange(100000) % 7, 'b': 1.0}).groupby('a').sum()
"""


class Kind:
    """Kernels of one kind; `sets` are policy keys."""

    def __init__(self, name, folder, *, argv=None, sets=(), code="1"):
        self.name, self.folder, self.argv, self.code = name, folder, argv, code
        self.args = [word for each in sets for word in ("--set", each)]
        self.count, self.times = 0, []

    def start(self):
        self.count += 1
        return kernels.Kernel(self.folder / f"{self.name}-{self.count}", argv=self.argv, args=self.args)

    def first(self, code=None):
        """(kernel, its client, ms to the reply to a first cell)"""
        begun = time.monotonic()
        kernel = self.start()
        client = Client(kernel)
        client.ready()
        assert client.run(code or self.code).ok, f"{self.name}: the first cell failed"
        return kernel, client, (time.monotonic() - begun) * 1000

    def once(self):
        kernel, client, ms = self.first()
        self.times.append(ms)
        client.close()
        end(kernel)


def end(kernel):
    """By request where that ends it: the null kernel knows none, and ipykernel takes its time."""
    if kernels.is_cellblock(kernel.argv):
        kernel.stop()
    else:
        kernel.kill()


def await_zygote(kind):
    """One kernel, behind whose end a zygote is started; returns when that can serve."""
    program = kernels.spec_argv()[0][0]

    def ready():
        told = json.loads(subprocess.run([program, "warm", "--json"], capture_output=True, check=True).stdout)
        return {each["key"] for each in told["zygotes"] if each["state"] == "ready"}

    before, end = ready(), time.monotonic() + 60
    kind.once()
    kind.times.clear()
    while not ready() - before:
        if time.monotonic() > end:
            raise SystemExit("no zygote came to serve within 60 s")
        time.sleep(0.1)


def burst(kind, n):
    begun = time.monotonic()
    many = [kind.start() for _ in range(n)]
    clients = [Client(kernel) for kernel in many]
    for client in clients:
        client.ready()
        assert client.run("1").ok
    seconds = time.monotonic() - begun
    for client, kernel in zip(clients, many):
        client.close()
        end(kernel)
    return seconds


def available():
    text = Path("/proc/meminfo").read_text()
    return int(text.split("MemAvailable:")[1].split()[0]) / 1024


def density(kind, n):
    """MB for each of n kernels after a small cell, and after a group-by in each."""
    before, running = available(), []
    for _ in range(n):
        kernel, client, _ = kind.first("x = 1")
        running.append((kernel, client))
    small = (before - available()) / n
    for _, client in running:
        assert client.run(GROUP_BY).ok
    large = (before - available()) / n
    for kernel, client in running:
        client.close()
        kernel.stop()
    return small, large


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--starts", type=int, default=11)
    parser.add_argument("--burst", type=int, default=20)
    parser.add_argument("--density", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cb-warm-") as name:
        folder = Path(name)
        mark = "env.set=" + json.dumps({"CELLBLOCK_BENCH": uuid.uuid4().hex})
        preload = ["warm.mode=auto", mark, 'warm.preload=["numpy", "pandas"]']
        kinds = {
            "null": Kind("null", folder, argv=null_kernel(folder)),
            "ipykernel": Kind("ipykernel", folder, argv=[sys.executable, "-m", "ipykernel", "-f", "{connection_file}"]),
            "cold": Kind("cold", folder, sets=["warm.mode=off"]),
            "warm": Kind("warm", folder, sets=["warm.mode=auto", mark]),
            "cold, pandas": Kind("cold-pandas", folder, sets=["warm.mode=off"], code=PANDAS),
            "warm, pandas": Kind("warm-pandas", folder, sets=preload, code=PANDAS),
        }
        for each in ("warm", "warm, pandas"):
            await_zygote(kinds[each])
        for _ in range(options.starts):
            for kind in kinds.values():
                kind.once()
        figures = {f"first cell, {name}: ms": statistics.median(kind.times) for name, kind in kinds.items()}
        for each in ("cold", "warm", "ipykernel"):
            figures[f"{options.burst} at once, {each}: s"] = burst(kinds[each], options.burst)
        figures["x = 1, pandas loaded: MB each"], figures["a group-by: MB each"] = density(
            kinds["warm, pandas"], options.density
        )
    for what, value in figures.items():
        print(f"{what:40} {value:9.2f}")
    floor = figures["first cell, null: ms"]
    print(f"warm is {figures['first cell, warm: ms'] / floor:.1f} times the null kernel, cold", end=" ")
    print(f"{figures['first cell, cold: ms'] / floor:.1f} times")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
