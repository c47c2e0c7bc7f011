"""Kernels that come from a zygote: gets one going, and tells which start was warm.

Role: test code, outside the jail. Invariants: each Warm has a zygote of its own, since a variable of the environment is
part of what zygotes are told apart by; it is ended with it. Used by tests/jail, tests/soak.
"""

import contextlib
import json
import os
import subprocess
import time
import uuid
from pathlib import Path

import psutil

import kernels

CELLBLOCK = kernels.spec_argv()[0][0]
LOG = {"CELLBLOCK_LOG": "info"}


def places():
    """Where zygotes of a user can have their sockets."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    below = [f"{runtime}/cellblock/warm"] if runtime else []
    return [Path(each) for each in ("/run/cellblock/warm", *below, f"/tmp/cellblock-{os.geteuid()}/warm")]


def place():
    """Where those of this one have them."""
    return places()[0 if os.geteuid() == 0 else 1]


def zygotes():
    told = subprocess.run([CELLBLOCK, "warm", "--json"], capture_output=True, text=True, timeout=60, check=True)
    found = json.loads(told.stdout)
    return {each["key"]: each for each in (found["zygotes"] if isinstance(found, dict) else found)}


def await_true(what, condition, seconds=200):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.25)  # nobody tells of a zygote's start, and each look asks all of them
    raise AssertionError(f"{what}: not within {seconds} s")


class Warm:
    """Kernels of one zygote. `start` makes them, from keywords args, env and ready. variables: of the environment."""

    marks = []  # of all

    def __init__(self, start, *sets, **variables):
        self.mark = uuid.uuid4().hex
        self.marks.append(self.mark)
        env = json.dumps({"CELLBLOCK_TEST": self.mark, **variables})
        self.start, self.sets = start, ["warm.mode=auto", "env.set=" + env, *sets]
        self.key = self.pid = self.process = None

    def kernel(self, ready=True):
        args = [word for each in self.sets for word in ("--set", each)]
        kernel = self.start(args=args, env=LOG, ready=ready)
        if ready:  # its Python is up, and has no history yet
            kernel.client.run("pass", silent=True, store_history=False)
        return kernel

    def begin(self):
        """The first kernel is cold; behind its end a zygote is started."""
        first = self.kernel()
        assert self.was(first) == "cold"
        first.stop()
        return self.await_zygote()

    def await_zygote(self):
        ready = lambda: [each for each in zygotes().values() if each["state"] == "ready" and self.is_mine(each["pid"])]
        found = await_true("a zygote", ready)
        self.key, self.pid = found[0]["key"], found[0]["pid"]
        self.process = psutil.Process(self.pid)
        return self

    @staticmethod
    def was(kernel):
        said = kernel.said()
        started = [line for line in said.splitlines() if " started: guest pid " in line]
        return "warm" if ", warm, level" in started[-1] else "cold"

    def warm(self):
        """One that is. Where its zygote had no turn within three seconds, and that was said, the next one."""
        for _ in range(10):
            kernel = self.kernel()
            if self.was(kernel) == "warm":
                return kernel
            assert "a cold start" in kernel.said() and "ETIMEDOUT" in kernel.said(), kernel.said()
            kernel.stop()
        raise AssertionError("ten times the zygote was late")

    @staticmethod
    def guest(kernel):
        """The number of its Python."""
        return int(kernel.said().split(" started: guest pid ")[-1].split(",")[0])

    def is_mine(self, pid):
        """Others run at the same time, of other tests."""
        return kernels.is_zygote(pid, b"\0CELLBLOCK_TEST=" + self.mark.encode())

    def keeper(self):
        """Pid 1 of the one that is starting, or None."""
        for p in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess):  # it may end meanwhile
                if self.is_mine(p.pid):
                    return p.parent()
        return None

    def is_told(self, why):
        """The next kernel is cold, and its log says why when it would have started the next zygote."""
        kernel = self.kernel()
        assert self.was(kernel) == "cold" and kernel.client.run("1 + 1").result == "2"
        await_true("the reason", lambda: "no zygote: the last one could not serve: " in kernel.said())
        assert why in kernel.said() and self.has_failed(why)

    @staticmethod
    def has_failed(why):
        return any(z["state"] == "could not serve" and why in z["why"] for z in zygotes().values())

    def end(self):
        if self.process:  # its number may be another's by now, which psutil sees
            with contextlib.suppress(psutil.NoSuchProcess):
                self.process.kill()
