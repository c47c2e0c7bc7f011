#!/usr/bin/env python3
"""The same kernel built in two ways, a wheel's and a release build's say: starts, cells and floods, in turns.

usage: builds.py [--rounds N] [--python EXE] [--json FILE] PROGRAM PROGRAM

A program is a `cellblock` with its libexec beside it. Each round starts a kernel of both, one after the other, the
first of them changing, on the same Python. Reports medians of what each took by the clock and of the processor's time
in its own processes (the supervisor, the broker and pid 1 of the jail; not the guest), and the median of second to
first, round by round. Nothing is asserted.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib")]

import kernels  # noqa: E402
from kernel_latency import Bare, settle  # noqa: E402

PHASES = {  # name: (how many cells, code)
    "200 cells `1`": (200, "1"),
    "50,000 prints": (1, "for i in range(50_000): print(i)"),
    "20 MB of text": (1, "import sys\nfor i in range(200): sys.stdout.write('z' * 99_999 + '\\n')"),
    "10 displays of 1 MB": (10, "display({'text/plain': 'z' * 1_000_000}, raw=True)"),
}


def processor(kernel):
    """Milliseconds that the kernel's own processes, which are there now, have run for."""
    total = 0
    for p in [psutil.Process(kernel.pid), *kernel.family()]:
        try:
            if p.name().startswith("cellblock"):
                total += sum(int(f.read_text().split()[0]) for f in Path(f"/proc/{p.pid}/task").glob("*/schedstat"))
        except (OSError, psutil.Error):  # it has just ended
            pass
    return total / 1e6


def one(folder, program, python):
    """{phase: (milliseconds by the clock, of the processor)}"""
    argv = [program, "kernel", "--python", python, "--facts", "cache", "-f", "{connection_file}"]
    home = folder / "home"
    begun, row = time.perf_counter(), {}
    # `auto` makes copies for one kernel and none for the next
    args = ["--set", "limits.output=1G", "--set", "transactions.mode=off"]
    kernel = kernels.Kernel(folder, argv=argv, args=args, env={"HOME": str(home)})
    client = Bare(kernel)
    try:
        for name, send in (("start to kernel_info reply", lambda: client.timed("kernel_info_request", {}, idle=False)),
                           ("start to first cell's reply", lambda: client.cell("1+1", idle=False))):
            send()
            row[name] = (time.perf_counter() - begun) * 1e3, processor(kernel)
        settle(client)
        for name, (count, code) in PHASES.items():
            before, at = processor(kernel), time.perf_counter()
            for _ in range(count):
                client.cell(code)
            row[name] = (time.perf_counter() - at) * 1e3, processor(kernel) - before
        return row
    finally:
        client.close()
        kernel.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--json", type=Path, help="also write all figures here")
    parser.add_argument("program", nargs=2, type=os.path.abspath)
    args = parser.parse_args()
    told = []
    with tempfile.TemporaryDirectory(prefix="builds") as folder:
        folders = [Path(folder, "first"), Path(folder, "second")]
        for i in range(args.rounds + 1):  # the first finds out about the interpreter, and is not counted
            row = [{}, {}]
            for k in ((0, 1), (1, 0))[i % 2]:
                row[k] = one(folders[k], args.program[k], args.python)
            told += [row] * (i > 0)
    print("| | first, ms | second, ms | second/first | processor: first, ms | second, ms | second/first |")
    print("|---" * 7 + "|")
    for name in told[0][0]:
        cells = []
        for kind in (0, 1):
            pairs = [(first[name][kind], second[name][kind]) for first, second in told]
            cells += [f"{statistics.median(each):.1f}" for each in zip(*pairs)]
            cells.append(f"{statistics.median(b / a for a, b in pairs):.3f}")
        print(f"| {name} | " + " | ".join(cells) + " |")
    if args.json:
        args.json.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
