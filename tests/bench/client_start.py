#!/usr/bin/env python3
"""How long until the first cell is answered, and until a cell is: the Python client beside raw jupyter_client.

usage: client_start.py [TIMES]     medians in ms, the two taking turns; the same kernel with the policy `notebook`
"""

import os
import statistics
import sys
import tempfile
import time

from jupyter_client import KernelManager

from cellblock import Sandbox


def raw(took):
    begun = time.perf_counter()
    km = KernelManager(kernel_name="cellblock")
    km.start_kernel(stdout=-3, stderr=-3)
    kc = km.blocking_client()
    kc.start_channels()
    try:
        kc.wait_for_ready(timeout=60)
        kc.execute_interactive("1", timeout=60, output_hook=lambda m: None)
        took["raw", "start"].append(time.perf_counter() - begun)
        for _ in range(20):
            begun = time.perf_counter()
            kc.execute_interactive("1", timeout=60, output_hook=lambda m: None)
            took["raw", "cell"].append(time.perf_counter() - begun)
    finally:
        begun = time.perf_counter()
        kc.stop_channels()
        km.shutdown_kernel()
        took["raw", "end"].append(time.perf_counter() - begun)


def client(took):
    begun = time.perf_counter()
    sb = Sandbox("notebook")
    sb.run("1")
    took["client", "start"].append(time.perf_counter() - begun)
    for _ in range(20):
        begun = time.perf_counter()
        sb.run("1")
        took["client", "cell"].append(time.perf_counter() - begun)
    begun = time.perf_counter()
    sb.close()
    took["client", "end"].append(time.perf_counter() - begun)


def main():
    took = {(who, what): [] for who in ("raw", "client") for what in ("start", "cell", "end")}
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 15):
            raw(took)
            client(took)
        os.chdir("/")
    for (who, what), times in took.items():
        print(f"{who:7} {what:6} {statistics.median(times) * 1e3:8.1f} ms, best {min(times) * 1e3:8.1f}")


if __name__ == "__main__":
    main()
