#!/usr/bin/env python3
"""How long a call of a host tool takes: `Sandbox` beside raw stdin of jupyter_client and a function of the cell's own.

usage: host_calls.py [CALLS]     10,000 by default, of each kind, in blocks that take turns

Each call is timed by the cell that calls. Memory (resident, MiB) of client, supervisor and guest is read after each
block of `Sandbox`: it is flat where calls leave nothing behind.
"""

import json
import os
import statistics
import sys
import tempfile

import psutil
from jupyter_client import KernelManager

from cellblock import Sandbox, tool

BLOCK = 500
TIMED = """
import json, time

def timed(function, calls):
    took, now = [], time.perf_counter
    for n in range(calls):
        begun = now()
        function(n)
        took.append(now() - begun)
    return took

def bare(n: int) -> int:
    return n + 1

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
"""


@tool
def plus_one(n: int) -> int:
    """The next number."""
    return n + 1


@tool
async def plus_one_async(n: int) -> int:
    """The next number, by the event loop."""
    return n + 1


class Raw:
    """A client that serves the same tool by hand, as docs/messages.md has it."""

    def __init__(self):
        self.km = KernelManager(kernel_name="cellblock")
        self.km.start_kernel(stdout=-3, stderr=-3)
        self.kc = self.km.blocking_client()
        self.kc.start_channels()
        self.kc.wait_for_ready(timeout=60)
        tools = {"tools": [{"name": "plus_one", "inputSchema": {"type": "object", "properties": {"n": {}}}}]}
        self.kc.control_channel.send(self.kc.session.msg("cellblock_tools_request", tools))
        assert self.kc.control_channel.get_msg(timeout=60)["content"]["status"] == "ok"
        self.run(TIMED)

    def answer(self, message):
        calls = message["metadata"]["cellblock"]["calls"]
        self.kc.input(json.dumps({"results": [{"id": c["id"], "ok": c["args"][0] + 1} for c in calls]}))

    def run(self, code):
        said = []
        reply = self.kc.execute_interactive(
            code, allow_stdin=True, stdin_hook=self.answer, timeout=600, output_hook=said.append
        )
        assert reply["content"]["status"] == "ok", reply["content"]
        return "".join(m["content"].get("text", "") for m in said if m["msg_type"] == "stream")

    def timed(self, calls):
        return json.loads(self.run(f"print(json.dumps(timed(plus_one, {calls})))"))

    def close(self):
        self.kc.stop_channels()
        self.km.shutdown_kernel()


def main():
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 10000
    took = {name: [] for name in ("a function of the cell's", "raw stdin", "Sandbox", "Sandbox, async function")}
    memory = []
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        raw = Raw()
        with Sandbox("notebook", tools=[plus_one, plus_one_async]) as sb:
            sb.run(TIMED, check=True)
            # the async function in a loop of awaits, as a cell has them
            sb.run(
                "async def timed_async(calls):\n    took, now = [], time.perf_counter\n    for n in range(calls):\n"
                "        begun = now()\n        await plus_one_async(n)\n        took.append(now() - begun)\n"
                "    return took",
                check=True,
            )
            done = 0
            while done < calls:
                block = min(BLOCK, calls - done)
                took["a function of the cell's"] += sb.run(f"timed(bare, {block})", check=True).value
                took["raw stdin"] += raw.timed(block)
                took["Sandbox"] += sb.run(f"timed(plus_one, {block})", check=True).value
                took["Sandbox, async function"] += sb.run(f"await timed_async({block})", check=True).value
                done += block
                guest = sb.run("resident()", check=True).value
                processes = (psutil.Process(), psutil.Process(sb.kernel.pid))
                memory.append((done, *(p.memory_info().rss / 2**20 for p in processes), guest / 2**20))
        raw.close()
        os.chdir("/")
    for name, times in took.items():
        times.sort()
        print(
            f"{name:26} median {statistics.median(times) * 1e6:9.1f} us, p99 {times[len(times) * 99 // 100] * 1e6:9.1f}"
        )
    print(f"{'calls':>8} {'client':>8} {'supervisor':>11} {'guest':>8}")
    for at in memory[:: max(1, len(memory) // 8)] + memory[-1:]:
        print("{:8} {:8.1f} {:11.1f} {:8.1f}".format(*at))


if __name__ == "__main__":
    main()
