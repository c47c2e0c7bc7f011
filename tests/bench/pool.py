#!/usr/bin/env python3
"""A pool's figures: how long it takes to fill, what a sandbox that waits costs, and how long a lease takes.

usage: pool.py [SIZE] [LEASES]     64 and 20 by default; memory is the proportional set (PSS) of all its processes
"""

import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import psutil

from cellblock import Pool


def memory():
    """MiB of everything that this program has started."""
    total = 0
    for process in psutil.Process().children(recursive=True):
        try:
            total += process.memory_full_info().pss
        except psutil.Error:
            pass
    return total / (1 << 20)


def main():
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    times = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    tmpfs = {"workspace.mode": "tmpfs"}
    with tempfile.TemporaryDirectory() as work:
        begun = time.perf_counter()
        with Pool("agent", size=size, workspace=work, policy=tmpfs) as pool:
            first = time.perf_counter() - begun
            with ThreadPoolExecutor(size) as threads:
                leases = [pool.lease(wait=600) for _ in range(size)]
                sandboxes = list(threads.map(lambda lease: lease.__enter__(), leases))
            filled = time.perf_counter() - begun
            took = memory()
            answers = [sb.run("1 + 1").value for sb in sandboxes]
            assert answers == [2] * size, answers
            print(f"{size} sandboxes: the first ready after {first:.2f} s, all after {filled:.1f} s; "
                  f"{took / size:.1f} MiB each")
            ended = time.perf_counter()
            for lease in leases:
                lease.__exit__()
            print(f"all given back in {time.perf_counter() - ended:.2f} s")
            waits = []
            for _ in range(times):
                begun = time.perf_counter()
                with pool.lease(wait=600) as sb:
                    sb.run("1")
                    waits.append(time.perf_counter() - begun)
            print(f"lease and cell: median {statistics.median(waits) * 1000:.1f} ms, most {max(waits) * 1000:.0f}")
            begun = time.perf_counter()
        print(f"closed in {time.perf_counter() - begun:.1f} s")


if __name__ == "__main__":
    main()
