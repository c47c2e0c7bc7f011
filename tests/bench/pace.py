#!/usr/bin/env python3
"""What kept states cost cells, back to back and at the pace of people: each mode beside `off`, in turns.

usage: pace.py [--work NAMES] [--modes NAMES] [--pace SECONDS] [--rounds N] [--json FILE]

For each work and pace a kernel of each mode (`keep`: `always`, with three states to go back to) runs the same cells,
some at a time, so that what else the machine does hits all. The first cells of a turn are not timed: while one runs the
others rest, and get their twins for nothing. Reports milliseconds from a request to its reply, median and ninth of ten,
how much the median is above that of `off`, and the memory that twins have to themselves in the end. Nothing is
asserted. Needs the installed kernel.
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
from memory import await_rest, own  # noqa: E402

FILES = 5000
AHEAD = {"run-all": 200}  # cells that are sent at once, by work; each one's time is then its part of the whole
KEEP = "transactions.keep=3"
MANY_FILES = "for i in range(%d): open('f%%d' %% i, 'w').close()\nx = 0" % FILES
ARRAY = "import numpy as np; a = np.ones(1 << %d)"
OVERLAY = ("workspace.mode=overlay",)
# name: set-up, cell, policy
WORK = {
    "tiny": ("x = 0", "x += 1", ()),
    "numpy": ("import numpy as np; x = 0", "x += 1", ()),
    "run-all": ("x = 0", "x += 1", ()),
    "files": (MANY_FILES, "x += 1", OVERLAY),
    "agent": (MANY_FILES, "x += 1", ("--policy=agent",)),
    "pandas": (
        "import numpy as np, pandas as pd\ndf = pd.DataFrame({'k': np.arange(100000) % 100, 'v': np.arange(100000.)})",
        "df.groupby('k').v.sum()",
        (),
    ),
    "objects": ("many = [{'a': i} for i in range(700000)]", "x = sum(each['a'] for each in many)", ()),
    "256MB-objects": (f"many = [[i] for i in range({(256 << 20) // 96})]", "x = sum(each[0] for each in many)", ()),
    "256MB": (ARRAY % 25, "a += 1", ()),
    "1GB": (ARRAY % 27, "a += 1", ()),
    "256MB-files": (MANY_FILES + "\n" + ARRAY % 25, "a += 1", OVERLAY),
    "1GB-files": (MANY_FILES + "\n" + ARRAY % 27, "a += 1", OVERLAY),
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


def begin(folder, mode, setup, policy):
    if mode != "keep":
        return Session(folder, mode, setup, policy)
    return Session(folder / mode, "always", setup, (*policy, KEEP))


def of_twins(session):
    """MB that would be free without them."""
    twins = session.kernel.named("cellblock-twin")
    for each in twins:
        await_rest(each)
    return sum(own(each) for each in twins)


def measure(work, modes, pace, rounds):
    setup, code, policy = WORK[work]
    with tempfile.TemporaryDirectory() as folder:
        sessions = {mode: begin(Path(folder), mode, setup, policy) for mode in modes}
        took = {mode: [] for mode in modes}
        for _ in range(rounds):
            for mode, session in sessions.items():
                if work in AHEAD:
                    took[mode] += run_all(session, code, pace, AHEAD[work])
                else:
                    took[mode] += turn(session, code, pace, 10 if pace else 40)
        twins = {mode: of_twins(session) for mode, session in sessions.items()}
        for session in sessions.values():
            session.close()
    middle = {mode: statistics.median(all_) for mode, all_ in took.items()}
    return {
        mode: {
            "ms": round(1000 * middle[mode], 2),
            "ninth_ms": round(1000 * sorted(all_)[len(all_) * 9 // 10], 2),
            "percent": round(100 * (middle[mode] / middle["off"] - 1)) if "off" in middle else None,
            "twins_mb": twins[mode],
        }
        for mode, all_ in took.items()
    }


def shown(mode, figures):
    text = "%s %.2f (%.2f)" % (mode, figures["ms"], figures["ninth_ms"])
    if mode == "off":
        return text
    if figures["percent"] is not None:
        text += " %+d %%" % figures["percent"]
    return text + " %d MB" % figures["twins_mb"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", default=",".join(WORK))
    parser.add_argument("--modes", default="off,auto,always,keep")
    parser.add_argument("--pace", default="0,0.2,1", help="seconds between a reply and the next request")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = {}
    for work in options.work.split(","):
        for pace in options.pace.split(","):
            found[work + " " + pace] = each = measure(work, options.modes.split(","), float(pace), options.rounds)
            figures = "  ".join(shown(mode, figures) for mode, figures in each.items())
            print("%-13s %4s s  " % (work, pace), figures, flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
