#!/usr/bin/env python3
"""What transactions.mode auto costs cells that come back to back, and how far back a failure then goes.

usage: auto.py [--pairs N] [--json FILE] [--work tiny,pandas,numpy]

Two kernels, with mode off and auto, run the same blocks of cells in turns, so that what else the machine does hits
both. While one runs the other is quiet, and gets a twin for nothing; so the first cells after that are not timed.
Reports the overhead of auto by the clock and by the processor time of all in the jail (all pairs together), and, from
failures at random places between the cells, how often the state came back and how many cells that had succeeded were
undone with the failed one. Nothing is asserted. Needs the installed kernel.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

from kernels import Kernel  # noqa: E402
from rawclient import Client  # noqa: E402

# name: set-up, cell, cells in a block, blocks in all for one kernel, cells up to a failure (at most)
WORK = {
    "tiny": ("x = 0", "x += 1", 1000, 10, 600),
    "pandas": (
        "import numpy as np, pandas as pd; r = np.random.default_rng(1)\n"
        "df = pd.DataFrame({'k': r.integers(0, 1000, 500_000), 'v': r.random(500_000)})",
        "g = df.groupby('k').v.agg(['mean', 'sum']).reset_index(); m = df.merge(g, on='k'); m['w'] = m.v / m['sum']",
        100,
        3,
        40,
    ),
    "numpy": ("import numpy as np; a = np.ones(1 << 27)", "a += 1", 2000, 1, 40),
}


class Session:
    def __init__(self, folder, mode, setup, policy=()):
        sets = (f"transactions.mode={mode}", "limits.memory=8G", *policy)
        args = [each if each.startswith("--") else f"--set={each}" for each in sets]
        self.kernel = Kernel(folder / mode, args=args)
        self.client = Client(self.kernel)
        self.client.ready()
        assert self.client.run(setup).ok

    def cpu(self):
        usage = self.client.request("cellblock_usage_request", channel="control").content["usage"]
        return usage["cpu_user_s"] + usage["cpu_sys_s"]

    def block(self, code, n):
        """Seconds by the clock and of the processors."""
        cpu, started = self.cpu(), time.perf_counter()
        for _ in range(n):
            assert self.client.run(code).ok
        took = time.perf_counter() - started
        self.client.drop()
        return took, self.cpu() - cpu

    def fail(self):
        """How many cells before the failed one are undone; None if nothing came back."""
        about = self.client.run("import os; os._exit(1)").about
        self.client.drop()
        return len(about["undone"]) - 1 if about["state"] == "restored" else None

    def close(self):
        self.client.close()
        self.kernel.stop()


def measure(name, pairs):
    setup, code, n, blocks, furthest = WORK[name]
    with tempfile.TemporaryDirectory() as folder:
        off, auto = Session(Path(folder), "off", setup), Session(Path(folder), "auto", setup)
        times = {off: [], auto: []}
        for i in range(pairs or blocks):
            for session in (off, auto) if i % 2 else (auto, off):
                session.block(code, 3)
                times[session].append(session.block(code, n))
        off.close()
        back = []
        for _ in range(10):
            auto.block(code, random.randrange(furthest))
            back.append(auto.fail())
            if back[-1] is None:
                auto.client.run(setup)
        auto.close()
    undone = [n for n in back if n is not None]
    clock, cpu = (100 * (sum(t[i] for t in times[auto]) / sum(t[i] for t in times[off]) - 1) for i in range(2))
    return {
        "cell_ms": round(1000 * statistics.median(t[0] for t in times[off]) / n, 3),
        "clock_percent": round(clock, 1),
        "cpu_percent": round(cpu, 1),
        "restored": f"{len(undone)} of {len(back)}",
        "undone_median": statistics.median(undone) if undone else None,
        "undone_most": max(undone, default=None),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, help="blocks of cells for each kernel")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--work", default=",".join(WORK))
    options = parser.parse_args()
    found = {}
    for name in options.work.split(","):
        found[name] = measure(name, options.pairs)
        print("%-8s" % name, "  ".join("%s %s" % item for item in found[name].items()), flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
