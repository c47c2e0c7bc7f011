#!/usr/bin/env python3
"""What a snapshot of an overlay workspace costs beside files that nobody touches.

usage: CELLBLOCK_BUILD=DIR snapshots.py [--files N,…] [--runs N] [--host-like KIND]

Drives the broker, without a supervisor. Each run changes one file and makes a snapshot: milliseconds by the clock, from
the request to the answer, and of the processor as the answer has them. Medians; nothing is asserted.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

from overlayfiles import BUILD, FORGET, SNAPSHOT, Files  # noqa: E402


def measure(count, runs, prefix):
    with tempfile.TemporaryDirectory() as folder:
        f = Files(folder, prefix, "limit_workspace=1073741824", "limit_inodes=1000000")
        f.do(f"[os.makedirs(f'many/{{i}}') for i in range({(count + 99) // 100})]")
        f.do(f"[open(f'many/{{i // 100}}/{{i}}', 'w').write('x') for i in range({count})] and None")
        clock, cpu, looked = [], [], 0
        for number in range(1, runs + 4):
            f.do(f"open('many/0/0', 'w').write('{number}')")
            started = time.perf_counter()
            answer = f.ask(SNAPSHOT, number)
            clock.append(1000 * (time.perf_counter() - started))
            cpu.append(1000 * answer["cpu_s"])
            looked = answer["entries"]
            if number > 1:
                f.ask(FORGET, number - 1)
        f.broker.close()
    return statistics.median(clock[3:]), statistics.median(cpu[3:]), looked


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--files", default="10,5000,50000")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--host-like", help="as on another host: see tests/tools/host_like.c")
    options = parser.parse_args()
    prefix = [f"{BUILD}/tests/host-like", options.host_like] if options.host_like else []
    for count in map(int, options.files.split(",")):
        clock, cpu, looked = measure(count, options.runs, prefix)
        print(f"{count:6} files  {clock:8.2f} ms  {cpu:8.2f} ms of a processor  {looked} entries looked at", flush=True)


if __name__ == "__main__":
    main()
