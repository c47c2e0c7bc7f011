"""Interrupts at random moments of many kinds of cell: none hits another cell, none leaves one without its error.

Role: a command, `tests/soak/interrupts.py [--count N]`; test code, outside the jail. Each round runs a cell, interrupts
it at a random moment (while it waits, begins, runs, ends, or has ended), awaits its end, and at once runs a cell that
nobody interrupts; now and then several more, in which a late signal would show. Exit status 1 if anything was amiss.
tests/protocol/test_interrupt.py runs a few rounds of it; CELLBLOCK_INTERRUPTS is their number.
"""

import argparse
import random
import sys
import tempfile
import time
import venv
from collections import Counter
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))

import kernels
import rawclient

AGAIN = 2.0 * float(rawclient.DEADLINE) / 30  # s; then the interrupt came before its cell, or was swallowed
LONG = {
    "sleep": "import time; time.sleep(600)",
    "loop": "while True: pass",
    "calls": "def f(): return 1\nwhile True: f()",
    "print": "while True: print('x' * 50)",
    "display": "while True: display(1)",
    "await": "import asyncio; await asyncio.sleep(600)",
    "await busy": "import asyncio\nawait asyncio.sleep(0)\nwhile True: pass",
    "gather": "import asyncio\nawait asyncio.gather(*[asyncio.sleep(600) for _ in range(5)])",
    "lock": "import threading; l = threading.Lock(); l.acquire(); l.acquire()",
    "event": "import threading; threading.Event().wait()",
    "queue": "import queue; queue.Queue().get()",
    "join": "import threading, time\nt = threading.Thread(target=time.sleep, args=(3,), daemon=True); t.start()\n"
    "t.join()\n"
    "while True: pass",
    "subprocess": "import subprocess; subprocess.run(['sleep', '600'])",
    "select": "import select; select.select([], [], [])",
    "regex": "import re; re.match('(a+)+$', 'a' * 40 + 'b')",
    "recursion": "def f(n):\n    return f(n + 1) if n < 500 else 0\nwhile True: f(0)",
    "generator": "def g():\n    while True: yield 1\nfor _ in g(): pass",
    "finally": "import time\ntry: time.sleep(600)\nfinally: done = 1",
    "caught and raised": "import time\ntry: time.sleep(600)\nexcept KeyboardInterrupt: raise",
    "deep": "def f(n):\n    if n: f(n - 1)\n    while True: pass\nf(60)",
    "exec": "exec('while True: pass')",
    "sort": "while True: sorted(range(20000), key=lambda x: -x)",
    "json": "import json\nwhile True: json.loads(json.dumps(list(range(2000))))",
    "pool": "from concurrent.futures import ThreadPoolExecutor\nimport time\n"
    "with ThreadPoolExecutor(2) as p: list(p.map(time.sleep, [0.05] * 8))\nwhile True: pass",
}
IMPORTS = (
    "import asyncio, concurrent.futures, concurrent.futures.thread, json, os, queue\n"
    "import re, select, subprocess, threading, time"
)
SHORT = {
    "nothing": "",
    "one": "1",
    "variable": "kept_2 = 3",
    "a millisecond": "sum(range(20000))",
    "a few": "for i in range(60000): pass",
    "short sleep": "import time; time.sleep(0.004)",
    "output": "for i in range(20): print(i)",
    "an error": "1 / 0",
    "a long traceback": "def f(n):\n    return f(n - 1) if n else 1 / 0\nf(40)",
    "syntax": "for",
    "short child": "import subprocess; _ = subprocess.run(['true'])",
    "short await": "import asyncio; await asyncio.sleep(0.002)",
}
AFTER = {
    "6*7": "42",
    "sum(1 for _ in range(3000))": "3000",
    "import time; time.sleep(0.003); 5": "5",
    "import subprocess; subprocess.run(['sleep', '0.01']).returncode": "0",
    "import os; os.system('sleep 0.01')": "0",
    "import asyncio; await asyncio.sleep(0.003, 8)": "8",
}
# A signal that is not taken comes again after up to a second: a row of these lasts longer, and meets a late one.
ROW, SELDOM = 4, 0.04
LASTS = {
    "import time; time.sleep(0.3); 6": "6",
    "import time\nend = time.monotonic() + 0.3\nwhile time.monotonic() < end: pass\n7": "7",
    "import threading; threading.Event().wait(0.3)": "False",
    "import asyncio; await asyncio.sleep(0.3, 8)": "8",
}
BASH = {
    "sleep": "sleep 600",
    "loop": "while :; do :; done",
    "pipe": "sleep 600 | cat",
    "function": "f() { sleep 600; }; f",
    "lines": "for i in 1 2 3; do\n  echo $i\n  sleep 200\ndone\necho never",
    "subshell": "(sleep 600)",
    "substitution": "x=$(sleep 600)",
    "short": "echo 1",
    "short sleep": "sleep 0.005",
    "false": "false",
    "nothing": ":",
    "many lines": "\n".join("echo %d" % i for i in range(40)),
}
HOW = ({}, {}, {"store_history": False}, {"silent": True})  # a cell is sent
BASH_LASTS = {"sleep 0.3; echo 6": "6\n", "sleep 0.3 | cat; echo 7": "7\n"}
BASH_AFTER = {"echo $((6*7))": "42\n", "sleep 0.01; echo 5": "5\n", "echo a |\ncat": "a\n", "v=7\necho $v": "7\n"}


class Tally:
    def __init__(self):
        self.ended = Counter()
        self.faults = []
        self.again = Counter()
        self.rows = 0

    def fault(self, what):
        self.faults.append(what)
        print("FAULT", what, file=sys.stderr, flush=True)


def send(client, msg_type, content, subshell, **how):
    more = {"subshell_id": subshell} if subshell else {}
    return client.send(msg_type, content, header=client.header(msg_type, **more), **how)


def wait_busy(client, msg_id):
    """Until it runs, or has ended: with aborted cells there is nothing between."""
    client.wait_in_place("iopub", lambda m: m.parent_id == msg_id and m.type == "status")


def interrupt(client, subshell):
    client.reply(send(client, "interrupt_request", {}, subshell, channel="control"), "control")


def undisturbed(client, tally, name, code, expected, subshell):
    """A cell that nobody interrupts."""
    content = {"code": code, "stop_on_error": False}
    cell = client.finish(send(client, "execute_request", content, subshell), timeout=rawclient.DEADLINE)
    got = cell.result if cell.result is not None else cell.text()
    if not cell.ok or got != expected or cell.error:
        tally.fault(f"after {name}: {code!r} gave {got!r}, {cell.content}, {cell.text('stderr')!r}")


def one_round(client, rng, tally, kinds, after, lasts, subshell=None, limit=False):
    """subshell: the id of a subshell or branch. limit: the time limit of the cell in the place of a user."""
    name = rng.choice(list(kinds))
    content = {"code": kinds[name], "stop_on_error": False, **rng.choice(HOW)}
    moment = rng.random() ** 2 * rng.choice((0.002, 0.02, 0.08))
    metadata = {"cellblock": {"timeout": 0.001 + moment}} if limit else {}
    cell = send(client, "execute_request", content, subshell, metadata=metadata)
    if not limit:
        if rng.random() < 0.7:
            wait_busy(client, cell)
        end = time.monotonic() + moment
        while time.monotonic() < end:
            pass
        interrupt(client, subshell)
    clicks = 1
    while True:
        try:
            client.wait_in_place("shell", lambda m: m.parent_id == cell, timeout=rawclient.DEADLINE if limit else AGAIN)
            break
        except rawclient.NoMessage:
            if limit or clicks >= 15:
                tally.fault(f"{name}: no reply after {clicks} interrupts")
                raise
            clicks += 1
            interrupt(client, subshell)
    done = client.finish(cell, timeout=4 * rawclient.DEADLINE)  # a flood of output keeps a client busy for long
    if clicks > 1:
        tally.again[name] += 1
    status = done.content["status"]
    tally.ended[done.content.get("ename", status)] += 1
    if status == "error":
        errors = done.of("error")
        said = [e.content["ename"] for e in errors]
        if len(errors) != 1 or said[0] != done.content["ename"]:
            tally.fault(f"{name}: {len(errors)} errors on iopub: {said}, the reply says {done.content['ename']}")
        elif not errors[0].content["traceback"] or not done.content["traceback"]:
            tally.fault(f"{name}: an empty traceback")
    undisturbed(client, tally, name, *rng.choice(list(after.items())), subshell)
    if rng.random() < SELDOM:
        tally.rows += 1
        for _ in range(ROW):
            undisturbed(client, tally, name, *rng.choice(list(lasts.items())), subshell)
    client.drop()


def rounds(client, count, rng, **how):
    tally = Tally()
    for _ in range(count):
        one_round(client, rng, tally, **how)
    return tally


def prepare(client, mode):
    """What rounds() takes."""
    if mode == "bash":
        return {"kinds": BASH, "after": BASH_AFTER, "lasts": BASH_LASTS}
    assert client.run(IMPORTS).ok  # a module whose import was interrupted can be left in pieces, by Python itself
    how = {"kinds": {**LONG, **SHORT}, "after": AFTER, "lasts": LASTS}
    if mode == "plain":
        assert client.run("import sys\n'IPython' in sys.modules").result == "False"
    if mode == "subshell":
        reply = client.request("create_subshell_request", {}, channel="control")
        how["subshell"] = reply.content["subshell_id"]
        # C code that waits: left behind after a while, with words of its own
        how["kinds"] = {k: v for k, v in how["kinds"].items() if k not in ("lock", "regex", "select", "queue", "pool")}
    if mode == "branch":
        reply = client.request("cellblock_branch_request", {}, channel="control")
        assert reply.content["status"] == "ok", reply
        how["subshell"] = reply.content["subshell_id"]
    if mode == "limit":
        how["limit"] = True
    return how


MODES = ("main", "plain", "subshell", "branch", "limit", "bash")


def arguments(mode, folder):
    """Of the kernel. plain: a Python without IPython, made in that folder."""
    if mode == "plain":
        venv.create(Path(folder) / "plain", symlinks=True)
        return ["--python", str(Path(folder) / "plain" / "bin" / "python")]
    return ["--language", "bash"] if mode == "bash" else []


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--count", type=int, default=2000, help="interrupts (default 2000)")
    p.add_argument("--mode", choices=MODES, default="main")
    p.add_argument("--seed", type=int, default=None)
    p.add_argument("--policy", action="append", default=[], metavar="KEY=VALUE", help="as --set of the kernel")
    p.add_argument("args", nargs="*", help="of the kernel")
    o = p.parse_args()
    seed = o.seed if o.seed is not None else random.randrange(1 << 30)
    args = [a for each in o.policy for a in ("--set", each)] + o.args
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        kernel = kernels.Kernel(folder, args=args + arguments(o.mode, folder))
        try:
            client = rawclient.Client(kernel)
            client.ready()
            began = time.monotonic()
            tally = rounds(client, o.count, random.Random(seed), **prepare(client, o.mode))
            print(f"{o.count} in {time.monotonic() - began:.0f} s: {dict(tally.ended)}")
            print(f"interrupted again: {dict(tally.again)}; rows: {tally.rows}; faults: {len(tally.faults)}")
            client.close()
        finally:
            kernel.kill() if sys.exc_info()[0] else kernel.stop()
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
