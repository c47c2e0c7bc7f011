#!/usr/bin/env python3
"""How long a cell takes through a kernel gateway: with the server's own connection class and with ours, for the Python
client (`connect`) and for smolagents' functions, which open a websocket for each step.

usage: gateway.py [CELLS]     ms: median, p90 and best; the two gateways taking turns, cell by cell
"""

import contextlib
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

import kernels  # noqa: E402
import servers  # noqa: E402
from cellblock import Sandbox  # noqa: E402
from smolagents.monitoring import AgentLogger, LogLevel  # noqa: E402
from smolagents.remote_executors import _create_kernel_http, _websocket_run_code_raise_errors  # noqa: E402
from websocket import create_connection  # noqa: E402

OURS = "--KernelGatewayApp.kernel_websocket_connection_class=cellblock.jupyter.PromptConnection"
LOGGER = AgentLogger(LogLevel.OFF)


def step(at, kernel):
    with contextlib.closing(create_connection(f"ws://{at}/api/kernels/{kernel}/channels?token=secret")) as ws:
        return _websocket_run_code_raise_errors("print(6 * 7)\n1 + 1", ws, LOGGER)


def main():
    cells = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    took = {}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        os.environ["KG_FORCE_KERNEL_NAME"] = "cellblock"
        ways = {}
        for name, more in ("its own", []), ("nodelay", [OURS]):
            port = kernels.free_ports(1)[0]
            (folder / name / "work").mkdir(parents=True)
            options = [f"--KernelGatewayApp.port={port}", "--KernelGatewayApp.ip=127.0.0.1",
                       "--KernelGatewayApp.auth_token=secret", *more]
            running = servers.running("kernel_gateway", folder / name, options, "Kernel Gateway", server=False)
            stack.enter_context(running)
            servers.listening(port)
            at = f"127.0.0.1:{port}"
            sandbox = stack.enter_context(Sandbox.connect(f"http://{at}", token="secret"))
            sandbox.run("1")
            ways["connect()", name] = lambda sb=sandbox: sb.run("print(6 * 7)\n1 + 1")
            kernel = _create_kernel_http(f"http://{at}/api/kernels?token=secret", LOGGER)
            ways["smolagents", name] = lambda at=at, kernel=kernel: step(at, kernel)
        for _ in range(cells):
            for way, cell in ways.items():
                begun = time.perf_counter()
                cell()
                took.setdefault(way, []).append((time.perf_counter() - begun) * 1e3)
    for (client, name), times in took.items():
        times.sort()
        print(f"{client:11} {name:8} median {statistics.median(times):7.1f}  p90 {times[int(len(times) * 0.9)]:7.1f}"
              f"  best {times[0]:7.1f}")


if __name__ == "__main__":
    main()
