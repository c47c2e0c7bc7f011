"""Kernels that start cold beside a zygote, or because there can be none: each log says why (docs/warm.md)."""

import contextlib
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

import kernels
from warmth import Warm, await_true, place

pytestmark = [pytest.mark.cellblock_only, pytest.mark.usefixtures("no_zygotes_left")]

WAITING = 1024  # more than any zygote lets wait


def wait_at(zygote, stack, most):
    """So many that wait at its socket, or as many as there is room for; how many."""
    for number in range(most):
        waiting = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        waiting.setblocking(False)
        try:
            waiting.connect(str(place() / zygote.key))
        except BlockingIOError:
            return number
    return most


def test_more_starts_than_can_wait(warmth):
    """A burst of 200 finds room. Beyond that a start is cold at once, and not only when a zygote has had no turn."""
    w = warmth()
    with contextlib.ExitStack() as stack:
        w.process.suspend()
        stack.callback(w.process.resume)
        most = int(Path("/proc/sys/net/core/somaxconn").read_text())
        assert min(200, most) <= wait_at(w, stack, WAITING) < WAITING
        kernel = w.kernel()
        assert w.was(kernel) == "cold" and kernel.client.run("1 + 1").result == "2"
        told = [line for line in kernel.said().splitlines() if "a cold start: " in line]
        assert len(told) == 1 and "too many kernels wait for the zygote" in told[0], kernel.said()
        kernel.stop()
    assert w.warm().client.run("1 + 1").result == "2"


@pytest.fixture
def library(module):
    """A module that has loaded the threads of tests/guest/copier_threads.c as `c`, with more lines of code."""
    if shutil.which("cc") is None:
        pytest.skip("no compiler")
    source = Path(__file__).parents[1] / "guest/copier_threads.c"
    made = []

    def make(code):
        name = module("")
        site = next(Path(kernels.spec_argv()[0][0]).resolve().parents[1].glob("lib/python3*/site-packages"))
        made.append(site / f"{name}.so.0")  # no name of a module's
        command = ["cc", "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", "-pthread", source, "-o", made[-1]]
        subprocess.run(command, check=True)
        (site / f"{name}.py").write_text(f"import ctypes\nc = ctypes.CDLL(__file__[:-2] + 'so.0')\n{code}\n")
        return name

    yield make
    for each in made:
        each.unlink()


def test_a_module_whose_thread_does_not_stop(start, library):
    """No copy could be made: there is no zygote then, and no start is tried with one."""
    name = library("begun = c.begin_to_be_deaf()")
    w = Warm(start, f'warm.preload=["{name}"]')
    first = w.kernel()
    assert first.client.run(f"import {name}; {name}.begun").result == "0"
    first.stop()
    why = f"{name} leaves a thread running that can't be stopped, nor copied. Preload without it"
    await_true("its failure", lambda: w.has_failed(why))
    w.is_told(why)
    assert not any("gave no guest" in kernel.said() for kernel in start.started)


@pytest.mark.once
def test_ports_of_many_kernels(monkeypatch):
    """What tests/soak/starts.py and tests/bench/warm_start.py start at once: none has bound its ports before the last
    has got its own."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    if first < 10000 + 4 * kernels.BLOCK:
        pytest.skip("the host gives all ports above %d to programs that name none" % first)
    monkeypatch.setattr(kernels, "PORTS", None)
    kernels.room(200)
    ports = [port for _ in range(200) for port in kernels.free_ports(5)]
    assert len(set(ports)) == len(ports) == 1000
