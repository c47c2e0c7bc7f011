"""Beats a kernel's heart and asks on its control channel, and keeps the longest time that an answer took.

A process of its own: what a test's client reads and parses meanwhile must not count as the kernel's time. Used by
jail/test_bombs.py.

    with Prober() as prober:
        prober.begin(kernel.connection)
        worst, count = prober.end()    # seconds, rounds
"""

import json
import os
import select
import subprocess
import sys
import time


class Prober:
    def __init__(self):
        command = [sys.executable, os.path.abspath(__file__)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def _say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def begin(self, connection):
        """Returns after the first answers."""
        self._say(json.dumps(connection))

    def end(self):
        return self._say("")


def probe(connection, stop):
    from rawclient import Client

    worst, count = 0.0, 0
    with Client(connection=connection, channels=("control", "hb")) as client:
        while True:
            for ask in (client.beat, lambda: client.request("kernel_info_request", {}, channel="control")):
                start = time.monotonic()
                ask()
                worst = max(worst, time.monotonic() - start)
            count += 1
            if count == 1:
                print("[]", flush=True)
            if select.select([stop], [], [], 0.02)[0]:
                break
    print(json.dumps([worst, count]), flush=True)


def main():
    lines = os.fdopen(0, "rb", buffering=0)
    while True:
        line = lines.readline()
        if not line:
            return
        probe(json.loads(line), lines)
        lines.readline()


if __name__ == "__main__":
    main()
