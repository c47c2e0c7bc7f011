"""Kernels that start cold beside a zygote, or because there can be none: each log says why (docs/warm.md)."""

import contextlib
import os
import socket
from pathlib import Path

import pytest
from test_warm import warmth  # noqa: F401 (a fixture)

pytestmark = [pytest.mark.cellblock_only, pytest.mark.by_root, pytest.mark.usefixtures("no_zygotes_left")]

WAITING = 1024  # more than any zygote lets wait


def folder_of_zygotes():
    if os.geteuid() == 0:
        return Path("/run/cellblock/warm")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime, "cellblock/warm") if runtime else Path(f"/tmp/cellblock-{os.geteuid()}/warm")


def wait_at(zygote, stack, most):
    """So many that wait at its socket, or as many as there is room for; how many."""
    for number in range(most):
        waiting = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        waiting.setblocking(False)
        try:
            waiting.connect(str(folder_of_zygotes() / zygote.key))
        except BlockingIOError:
            return number
    return most


def test_more_starts_than_can_wait(warmth):  # noqa: F811
    """A burst of 200 finds room. Beyond that a start is cold at once, and not only when a zygote has had no turn."""
    w = warmth()
    with contextlib.ExitStack() as stack:
        w.process.suspend()
        stack.callback(w.process.resume)
        assert 200 <= wait_at(w, stack, WAITING) < WAITING
        kernel = w.kernel()
        assert w.was(kernel) == "cold" and kernel.client.run("1 + 1").result == "2"
        told = [line for line in kernel.said().splitlines() if "a cold start: " in line]
        assert len(told) == 1 and "too many kernels wait for the zygote" in told[0], kernel.said()
        kernel.stop()
    assert w.warm().client.run("1 + 1").result == "2"
