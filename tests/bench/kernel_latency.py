#!/usr/bin/env python3
"""Start-up, round trips, throughput and memory of the null kernel, ipykernel, xeus-python and Cellblock, side by side
in one run.

usage: kernel_latency.py [--runs N] [--starts N] [--json FILE] [--only NAME,…] [NAME=KERNEL_JSON …]

Builds null_kernel.c (the floor: libzmq, a signature, no work), finds the kernelspecs of python3, xpython, xpython-raw
and cellblock as any client does, and adds those given. Times are medians; only the ratios to the null kernel within one
run mean anything. Nothing is asserted: the targets stand beside the figures. Exit status 1 where a kernel gave no
answer. Cellblock's are started cold (warm.mode=off), whatever zygote is there: warm_start.py has warm ones.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import zmq

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

import kernels  # noqa: E402
from rawclient import Client  # noqa: E402

# (figure, what, target as a multiple of the null kernel)
FIGURES = [
    ("info_reply_ms", "start to kernel_info reply", 1.5),
    ("first_cell_ms", "start to first cell's reply", 10),
    ("cell_us", "cell `1`", 1.5),
    ("assign_us", "cell `x = 1`", 1.5),
    ("print_us", "cell `print(1)`", 3.5),
    ("complete_us", "completion of `import o`", 40),
    ("pipelined_cells_per_s", "cells per second, sent ahead", None),
    ("prints_200k_s", "200,000 prints", None),
    ("prints_200k_whole", "… share that arrived", None),
    ("text_100mb_s", "100 MB of text", None),
    ("text_100mb_whole", "… share that arrived", None),
    ("pss_mb", "memory, PSS of all processes", None),
    ("uss_mb", "memory, USS of all processes", None),
]
# name: kernelspec
SPECS = {
    "ipykernel": "python3",
    "xeus-python": "xpython",
    "xeus-python-raw": "xpython-raw",
    "cellblock": "cellblock",
}
SETS = ["limits.output=1G", "warm.mode=off"]  # of Cellblock's


class Bare(Client):
    """Reads only what it must: frames are counted, not parsed, so that the kernel is timed and not this client."""

    def __init__(self, kernel):
        super().__init__(kernel, channels=("shell", "iopub"))
        self.shell, self.iopub = self.sockets["shell"], self.sockets["iopub"]
        for s in (self.shell, self.iopub):
            s.rcvtimeo = 60_000

    def timed(self, msg_type, content, idle=True):
        """Sends; waits for idle and reply; gives the bytes of iopub contents."""
        mark, out = self.send(msg_type, content).encode(), 0
        while idle:
            frames = self.iopub.recv_multipart()
            at = frames.index(b"<IDS|MSG>")
            out += len(frames[at + 5])
            if mark in frames[at + 3] and b'"idle"' in frames[at + 5] and b'"status"' in frames[at + 2]:
                break
        self.shell.recv_multipart()
        return out

    def cell(self, code, idle=True):
        return self.timed(
            "execute_request",
            {
                "code": code,
                "silent": False,
                "store_history": True,
                "user_expressions": {},
                "allow_stdin": False,
                "stop_on_error": True,
            },
            idle,
        )


def median_us(act, runs):
    for _ in range(min(20, runs)):
        act()
    took = []
    for _ in range(runs):
        t = time.perf_counter()
        act()
        took.append(time.perf_counter() - t)
    return statistics.median(took) * 1e6


def memory(kernel):
    full = [p.memory_full_info() for p in [psutil.Process(kernel.pid), *kernel.family()]]
    return sum(m.pss for m in full) / 2**20, sum(m.uss for m in full) / 2**20


def start(folder, argv):
    begun = time.perf_counter()
    sets = SETS if kernels.is_cellblock(argv) else []
    k = kernels.Kernel(folder, argv=argv, args=[word for each in sets for word in ("--set", each)])
    return k, Bare(k), begun


def measure(folder, argv, runs, starts):
    info, first, row = [], [], {}
    for i in range(starts):
        k, c, begun = start(folder / str(i), argv)
        try:
            c.timed("kernel_info_request", {}, idle=False)
            info.append(time.perf_counter() - begun)
            c.cell("1+1", idle=False)
            first.append(time.perf_counter() - begun)
            if i == starts - 1:
                row.update(steady(c, k, runs))
        finally:
            c.close()
            k.kill()
    return {"info_reply_ms": statistics.median(info) * 1e3, "first_cell_ms": statistics.median(first) * 1e3, **row}


def settle(c):
    """Until the subscription holds and iopub is quiet: a PUB socket forgets what was said before."""
    while not c.iopub.poll(100):
        c.send("kernel_info_request")
        c.shell.recv_multipart()
    while c.iopub.poll(300):
        c.iopub.recv_multipart()


def steady(c, k, runs):
    row = {}
    settle(c)
    row["pss_mb"], row["uss_mb"] = memory(k)
    for code, name in (("1", "cell_us"), ("x = 1", "assign_us"), ("print(1)", "print_us")):
        row[name] = median_us(lambda: c.cell(code), runs)
    row["complete_us"] = median_us(
        lambda: c.timed("complete_request", {"code": "import o", "cursor_pos": 8}), max(20, runs // 5)
    )
    t = time.perf_counter()
    for _ in range(runs):
        c.send(
            "execute_request",
            {"code": "1", "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False},
        )
    for _ in range(runs):
        c.shell.recv_multipart()
    row["pipelined_cells_per_s"] = runs / (time.perf_counter() - t)
    if k.argv[0] == "sh":
        return row  # it runs nothing, so it has no text to send
    settle(c)
    for name, code, size in (
        ("prints_200k", "for i in range(200_000): print(i)", sum(len(f"{i}") + 2 for i in range(200_000))),
        ("text_100mb", "import sys\nfor i in range(1000): sys.stdout.write('z' * 99_999 + '\\n')", 100_001_000),
    ):
        t = time.perf_counter()
        try:
            got = c.cell(code)
        except zmq.Again:
            row[name + "_s"], row[name + "_whole"] = float("nan"), 0
            continue
        row[name + "_s"], row[name + "_whole"] = time.perf_counter() - t, min(1.0, got / size)
    return row


def null_kernel(folder):
    program = folder / "null_kernel"
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "libzmq", "jansson", "libcrypto"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    subprocess.run(["cc", "-O2", "-w", "-o", program, HERE / "null_kernel.c", *flags], check=True)
    return ["sh", "-c", 'exec "$0" "$1"', str(program), "{connection_file}"]  # it takes one argument only


def find(folder, given, only):
    found = {"null": null_kernel(folder)}
    for name, spec in SPECS.items():
        try:
            found[name] = kernels.spec_argv(spec)[0]
        except Exception as e:
            print(f"{name}: no kernelspec {spec}: {e}", file=sys.stderr)
    for item in given:
        name, _, path = item.partition("=")
        found[name] = [
            a.replace("{resource_dir}", str(Path(path).parent)) for a in json.loads(Path(path).read_text())["argv"]
        ]
    return {n: a for n, a in found.items() if not only or n in only or n == "null"}


def table(rows):
    lines = ["figure".ljust(34) + "".join(n.rjust(22) for n in rows) + "  target".rjust(10)]
    for key, what, target in FIGURES:
        base = rows.get("null", {}).get(key)
        cells = ""
        for r in rows.values():
            value = r.get(key)
            shown = "-" if value is None else f"{value:.2f}" + (f" ({value / base:6.2f}x)" if base else "")
            cells += shown.rjust(22)
        lines.append(what.ljust(34) + cells + (f"<= {target}x" if target else "").rjust(10))
    return "\n".join(lines)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--runs", type=int, default=1000)
    ap.add_argument("--starts", type=int, default=5)
    ap.add_argument("--json", help="also write the figures here")
    ap.add_argument("--only", default="", help="names, with commas; the null kernel always runs")
    ap.add_argument("kernel", nargs="*", metavar="NAME=KERNEL_JSON")
    args = ap.parse_args()
    rows, bad = {}, 0
    with tempfile.TemporaryDirectory() as folder:
        for name, argv in find(Path(folder), args.kernel, [n for n in args.only.split(",") if n]).items():
            name += ", cold" if kernels.is_cellblock(argv) else ""
            try:
                rows[name] = measure(Path(folder) / name, argv, args.runs, args.starts)
            except (zmq.Again, psutil.Error, OSError, AssertionError) as e:
                print(f"{name}: no answer: {str(e)[-500:]!r}", file=sys.stderr)
                bad = 1
    print(table(rows))
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")
    return bad


if __name__ == "__main__":
    sys.exit(main())
