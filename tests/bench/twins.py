#!/usr/bin/env python3
"""What a twin costs: how long the guest stands still, what copying costs the next cell, how long a take-over lasts; and
what branches cost: how long one takes to make, and the memory of many.

usage: twins.py [--python EXE] [--runs N] [--json FILE] [--megabytes N,…] [--room N] [--branches N] [--jail]
                [--import NAME,…]

Branches are those of a whole kernel. For the rest it drives a guest without a jail (tests/guest/fake_supervisor.py), so
that only fork and memory are timed. A twin may itself copy --room MB of what is large (guest/copier/pages.c), and each
cell waits until it has; with 0 cells copy for themselves, as where memory is short. With --jail only take-overs of a
whole kernel are timed, from the hard stop to the twin's first word, as the log has them. Medians; nothing is asserted.
A heap of N MB is half one array, half small objects, if numpy is there; else all small objects.
"""

import argparse
import json
import os
import re
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

for name in "guest", "lib":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / name))

import kernels  # noqa: E402
import psutil  # noqa: E402
from fake_supervisor import FakeSupervisor, Kept, build_guest  # noqa: E402
from memory import own, rollup  # noqa: E402
from rawclient import Client  # noqa: E402

OBJECT = 96  # bytes of a small dict's share in the list below, about


def fill(megabytes):
    return (
        "try:\n    import numpy as np\n    a = np.ones(%d)\nexcept ImportError: np = a = None\n"
        "objects = [[i] for i in range(%d if np else %d)]\n"
        "def touch():\n    global a\n    if np: a += 1\n"
        "def walk():\n    n = 0\n    for each in objects: n += each[0]\n    return n"
        % (megabytes << 16, (megabytes << 19) // OBJECT, (megabytes << 20) // OBJECT)
    )


def timed(kept, code):
    started = time.perf_counter()
    result = kept.guest.run(code)
    assert result.ok, result.error
    return 1000 * (time.perf_counter() - started)


def settle(kept, code, room):
    """What a cell writes to is put into huge pages some hundredths of a second at a time, after each copy."""
    huge = calm = 0
    while calm < 3:
        timed(kept, code)
        kept.copy(room)
        now = rollup(kept.pid, "AnonHugePages")
        calm = 0 if now > huge else calm + 1
        huge = max(now, huge)


def measure(guest, runs, room):
    """A cell beside no twin, and the same again and again, each time with a new one that has come to rest."""
    kept = Kept(guest)
    figures = {name: [] for name in ("still_ms", "walk_ms", "walk_after_ms", "touch_ms", "touch_after_ms", "wake_ms")}
    figures["own_mb"] = []
    for code in ("walk", "touch"):
        settle(kept, code + "()", room)
        for _ in range(runs):
            figures["own_mb"].append(own(kept.copy(room)))
            figures["still_ms"].append(1000 * kept.stood)
            figures[code + "_after_ms"].append(timed(kept, code + "()"))
        kept.drop()
        timed(kept, code + "()")
        figures[code + "_ms"] += [timed(kept, code + "()") for _ in range(runs)]
    for _ in range(runs):
        kept.copy(room)
        os.kill(kept.pid, signal.SIGKILL)
        guest.process.wait()
        started = time.perf_counter()
        kept.woken()
        figures["wake_ms"].append(1000 * (time.perf_counter() - started))
    return {name: round(statistics.median(values), 2) for name, values in figures.items()}


def memory(kernel):
    """MB of all processes of the jail, what they share counted once; and of the supervisor."""
    pss = 0
    for process in kernel.family():
        try:
            pss += process.memory_full_info().pss
        except psutil.Error:
            pass
    return pss / (1 << 20), kernel.memory() / (1 << 20)


def measure_branches(folder, session, count):
    """From the request to the reply, and to the answer of its first cell; then all of them have run one."""
    room = f"limits.pids={8 * count + 100}"
    kernel = kernels.Kernel(folder, args=["--set", room, "--set", "transactions.mode=always"])
    with Client(kernel) as client:
        client.ready()
        assert client.run(session).ok
        before, made, answered, ids = memory(kernel), [], [], []
        for _ in range(count):
            started = time.perf_counter()
            ids.append(client.request("cellblock_branch_request", {}, channel="control").content["subshell_id"])
            made.append(1000 * (time.perf_counter() - started))
            header = client.header("execute_request", subshell_id=ids[-1])
            assert client.run("x = 1", header=header).ok
            answered.append(1000 * (time.perf_counter() - started))
        after = memory(kernel)
        family = kernel.family()
        client.send("shutdown_request", {"restart": False}, channel="control")
        kernel.wait(60)
        assert not kernels.wait_gone(family, 60)  # page tables of many large heaps take their time
    kernel.stop()
    return {
        "branches": count,
        "made_ms": round(statistics.median(made), 2),
        "answered_ms": round(statistics.median(answered), 2),
        "jail_mb_each": round((after[0] - before[0]) / count, 2),
        "supervisor_mb_each": round((after[1] - before[1]) / count, 3),
    }


def measure_jail(folder, session, runs):
    """Milliseconds from the order to stop to RESUMED."""
    args = ["--set", "transactions.mode=always", "--log-level", "info"]
    kernel = kernels.Kernel(folder, args=args)
    with Client(kernel) as client:
        client.ready()
        assert client.run(session, timeout=600).ok
        for _ in range(runs):
            assert client.run("import os; os._exit(1)", timeout=600).about["state"] == "restored"
    kernel.stop()
    times = [float(ms) for ms in re.findall(r"restored in ([0-9.]+) ms", kernel.said())]
    return {"awake_ms": statistics.median(times), "most_ms": max(times), "within_5_ms": sum(ms <= 5 for ms in times)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--megabytes", default="0,50,1024,4096")
    parser.add_argument("--room", type=int, default=8192)
    parser.add_argument("--branches", type=int, default=100)
    parser.add_argument("--jail", action="store_true")
    parser.add_argument("--import", dest="modules", default="")
    options = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        guest_dir = build_guest(Path(folder))
        for megabytes in map(int, options.megabytes.split(",")):
            session = "".join(f"import {each}\n" for each in options.modules.split(",") if each) + fill(megabytes)
            if options.jail:
                found[megabytes] = measure_jail(Path(folder) / f"jail{megabytes}", session, options.runs)
                print("%5d MB  %s" % (megabytes, found[megabytes]))
                continue
            guest = FakeSupervisor(options.python, guest_dir, folder).wait_hello()
            assert guest.run(session).ok
            found[megabytes] = {"room_mb": options.room, **measure(guest, options.runs, options.room << 20)}
            guest.close()
            if options.branches:
                found[megabytes].update(
                    measure_branches(Path(folder) / f"kernel{megabytes}", session, options.branches)
                )
            who = "the twin copies" if options.room else "cells copy"
            print("%5d MB, %s  " % (megabytes, who), "  ".join("%s %.2f" % item for item in found[megabytes].items()))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
