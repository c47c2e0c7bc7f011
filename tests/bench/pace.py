#!/usr/bin/env python3
"""What kept states cost cells, back to back and at the pace of people: each mode beside `off`, in turns.

usage: pace.py [--work NAMES] [--modes NAMES] [--pace SECONDS] [--rounds N] [--json FILE]

For each work and pace a kernel of each mode runs the same cells, some at a time, so that what else the machine does
hits all. The first cells of a turn are not timed: while one runs the others rest, and get their twins for nothing.
Reports milliseconds from a request to its reply, median and ninth of ten. Nothing is asserted. Needs the installed
kernel.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

from auto import Session  # noqa: E402

FILES = 5000
AHEAD = {"run-all": 200}  # cells that are sent at once, by work; each one's time is then its part of the whole
MANY_FILES = "for i in range(%d): open('f%%d' %% i, 'w').close()\nx = 0" % FILES
# name: set-up, cell, policy
WORK = {
    "tiny": ("x = 0", "x += 1", ()),
    "numpy": ("import numpy as np; x = 0", "x += 1", ()),
    "run-all": ("x = 0", "x += 1", ()),
    "files": (MANY_FILES, "x += 1", ("workspace.mode=overlay",)),
    "agent": (MANY_FILES, "x += 1", ("--policy=agent",)),
    "pandas": (
        "import numpy as np, pandas as pd\ndf = pd.DataFrame({'k': np.arange(100000) % 100, 'v': np.arange(100000.)})",
        "df.groupby('k').v.sum()",
        (),
    ),
    "objects": ("many = [{'a': i} for i in range(700000)]", "x = sum(each['a'] for each in many)", ()),
    "256MB": ("import numpy as np; a = np.ones(1 << 25)", "a += 1", ()),
    "1GB": ("import numpy as np; a = np.ones(1 << 27)", "a += 1", ()),
}
WARM = 5


def turn(session, code, pace, n):
    """Seconds that each cell took."""
    took = []
    for i in range(WARM + n):
        time.sleep(pace)
        started = time.perf_counter()
        assert session.client.run(code).ok
        took.append(time.perf_counter() - started)
    session.client.drop()
    return took[WARM:]


def run_all(session, code, pace, n):
    time.sleep(pace)
    started = time.perf_counter()
    for cell in [session.client.start(code) for _ in range(n)]:
        assert session.client.finish(cell).ok
    took = time.perf_counter() - started
    session.client.drop()
    return [took / n]


def measure(work, modes, pace, rounds):
    setup, code, policy = WORK[work]
    with tempfile.TemporaryDirectory() as folder:
        sessions = {mode: Session(Path(folder), mode, setup, policy) for mode in modes}
        took = {mode: [] for mode in modes}
        for _ in range(rounds):
            for mode, session in sessions.items():
                if work in AHEAD:
                    took[mode] += run_all(session, code, pace, AHEAD[work])
                else:
                    took[mode] += turn(session, code, pace, 10 if pace else 40)
        for session in sessions.values():
            session.close()
    return {
        mode: [round(1000 * each, 2) for each in (statistics.median(all_), sorted(all_)[len(all_) * 9 // 10])]
        for mode, all_ in took.items()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", default=",".join(WORK))
    parser.add_argument("--modes", default="off,auto,always")
    parser.add_argument("--pace", default="0,0.2,1", help="seconds between a reply and the next request")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = {}
    for work in options.work.split(","):
        for pace in options.pace.split(","):
            found[work + " " + pace] = each = measure(work, options.modes.split(","), float(pace), options.rounds)
            figures = "  ".join("%s %.2f (%.2f)" % (mode, *took) for mode, took in each.items())
            print("%-8s %4s s  " % (work, pace), figures, flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
