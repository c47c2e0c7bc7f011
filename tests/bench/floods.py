#!/usr/bin/env python3
"""Floods of output, for each kernel that is there: how much arrives, how long it takes, what it costs in memory.

usage: floods.py [--only NAME,…] [--small]

1,000,000 prints; 1 GB of text (limits.output lifted); 100,000 displays; 200,000 prints beside a second subscriber that
does not read. For each: seconds until reply and idle are there, the share of the output that arrived, and by how much
the kernel's processes had grown at the most. --small does a hundredth of it. "hangs": no idle came within a minute of
silence. Nothing is asserted; tests/protocol/test_output.py and test_iopub.py do that.
"""

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import zmq

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib")]

import kernels  # noqa: E402
from kernel_latency import Bare, settle  # noqa: E402
from rawclient import endpoint  # noqa: E402

KERNELS = {"cellblock": "Cellblock", "python3": "ipykernel", "xpython": "xeus-python"}


def floods(n):
    """(name, code, bytes of iopub content that carry output, with a subscriber that does not read)"""
    return [
        (f"{n:,} prints", f"for i in range({n}): print(i)", sum(len(str(i)) + 2 for i in range(n)), False),
        (
            f"{n // 1000:,} MB of text",
            f"import sys\nfor i in range({n // 100}): sys.stdout.write('z' * 99_999 + '\\n')",
            n // 100 * 100_001,
            False,
        ),
        (f"{n // 10:,} displays", f"for i in range({n // 10}): display(i)", None, False),
        (f"{n // 5:,} prints, one subscriber stuck", f"for i in range({n // 5}): print(i)", None, True),
    ]


class Growth(threading.Thread):
    """Watches how large all processes of a kernel are together."""

    def __init__(self, kernel):
        super().__init__(daemon=True)
        self.kernel, self.end, self.first = kernel, threading.Event(), self.now_of(kernel)
        self.most = self.first
        self.start()

    @staticmethod
    def now_of(kernel):
        total = 0
        for p in [psutil.Process(kernel.pid), *kernel.family()]:
            try:
                total += p.memory_info().rss
            except psutil.Error:
                pass
        return total

    def run(self):
        while not self.end.wait(0.2):
            self.most = max(self.most, self.now_of(self.kernel))

    def stop(self):
        self.end.set()
        self.join()
        return (self.most - self.first) / 1e6


class Counting(Bare):
    """Counts displays and the letters of text, without parsing more than it must."""

    def flood(self, code):
        mark = self.send(
            "execute_request",
            {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False},
        ).encode()
        text = shown = 0
        while True:
            frames = self.iopub.recv_multipart()
            at = frames.index(b"<IDS|MSG>")
            header, parent, content = frames[at + 2], frames[at + 3], frames[at + 5]
            if mark not in parent:
                continue
            if b'"stream"' in header:
                text += len(content)
            elif b'"display_data"' in header:
                shown += 1
            elif b'"status"' in header and b'"idle"' in content:
                break
        self.shell.recv_multipart()
        return text, shown


def tried(folder, argv, name, code, size, stuck):
    args = ["--set", "limits.output=4G"] if kernels.is_cellblock(argv) else []
    k = kernels.Kernel(folder, argv=argv, args=args)
    c, context = Counting(k), zmq.Context()
    try:
        settle(c)
        if stuck:
            s = context.socket(zmq.SUB)
            s.linger, s.rcvhwm = 0, 1
            s.subscribe(b"")
            s.connect(endpoint(k.connection, "iopub"))
            c.cell("1")
        grown, begun = Growth(k), time.perf_counter()
        try:
            text, shown = c.flood(code)
        except zmq.Again:
            return f"hangs, {grown.stop():+.0f} MB"
        took = time.perf_counter() - begun
        count = int("".join(filter(str.isdigit, name.split()[0])))
        expected = size or sum(len(str(i)) + 2 for i in range(count))
        share = shown / count if "displays" in name else min(1, text / expected)
        return f"{took:.1f} s, {100 * share:.4g} %, {grown.stop():+.0f} MB"
    finally:
        context.destroy(linger=0)
        c.close()
        k.kill()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--only", default="", help="kernelspecs, with commas")
    ap.add_argument("--small", action="store_true")
    args = ap.parse_args()
    specs = [s for s in KERNELS if not args.only or s in args.only.split(",")]
    print("| | " + " | ".join(KERNELS[s] for s in specs) + " |\n" + "|---" * (len(specs) + 1) + "|", flush=True)
    with tempfile.TemporaryDirectory(prefix="floods") as folder:
        for i, (name, code, size, stuck) in enumerate(floods(10_000 if args.small else 1_000_000)):
            cells = []
            for spec in specs:
                try:
                    argv = kernels.spec_argv(spec)[0]
                except Exception:
                    cells.append("not there")
                    continue
                cells.append(tried(Path(folder) / f"{spec}{i}", argv, name, code, size, stuck))
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
