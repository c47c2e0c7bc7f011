"""`reset()` leaves no mark of what was before, wherever cells have put one.

CELLBLOCK_TEST_MANY=1 resets 1,000 times in each workspace mode and says what that took.
"""

import asyncio
import gc
import os
import time

import psutil
import pytest

import cellblock
import kernels
import markers
import rawclient

TIMES = 1000 if os.environ.get("CELLBLOCK_TEST_MANY") == "1" else 3
FIGURES_EACH = 25  # matplotlib takes its time to be imported
EVERYWHERE = {
    "tmp", "shm", "home", "prefix", "globals", "builtins", "modules", "path", "environment",
    "environment of a child", "warnings", "folder", "umask", "threads", "processes", "signal handlers", "signal mask",
    "sockets", "ports", "descriptors", "limits", "niceness", "In", "Out", "underscores", "readline",
    "%history", "%history -g", "history of the session", "magics", "events", "comms", "tools that are covered",
}


def cbtool() -> int:
    """A tool of the host's."""
    return 1


class Looked:
    """A sandbox, what is planted in it, and what is found."""

    def __init__(self, sb):
        self.sb, self.not_made = sb, 0
        self.workspace = sb.run("import os; os.getcwd()", check=True).value
        self.nice = sb.run("os.nice(0)", check=True).value

    def ask(self, kind, channel="shell"):
        return self.sb.request(kind, channel).content

    def plant(self, figure):
        self.sb.run(markers.PLANT, check=True)
        if figure:
            self.sb.run(markers.FIGURE, check=True)
        self.sb.checkpoint("cbmark")
        self.sb.request("create_subshell_request", "control")
        for tries in range(3):  # a busy machine may have no room for a copy
            try:
                self.sb.branch("cbmark").__enter__()  # nobody closes it
                return
            except cellblock.CheckpointError:
                self.not_made += 1

    def look(self):
        code = markers.LOOK.replace("WORKSPACE", repr(self.workspace)).replace("NICE", repr(self.nice))
        r = self.sb.run(code)
        assert r.ok and r.has_value, r.text()
        found = dict(r.value)
        asked = {
            "comms by message": self.ask("comm_info_request").get("comms"),
            "checkpoints": self.sb.checkpoints(),
            "branches": self.ask("cellblock_list_branches_request", "control").get("branches"),
            "subshells": self.ask("list_subshell_request", "control").get("subshell_id"),
            "history by message": [row for row in self.history() if "cbmark_out" in str(row)],
            "count of cells": [r.execution_count] * (r.execution_count > 1),
        }
        return {**found, **{place: marks for place, marks in asked.items() if marks}}

    def history(self):
        asked = {"hist_access_type": "tail", "n": 100, "raw": True, "output": False}
        return self.sb.request("history_request", "shell", asked).content["history"]


class Sync(cellblock.Sandbox):
    def request(self, kind, channel, content=None):
        return cellblock._loop.call(self._a._session.request(kind, content or {}, channel=channel))


def size():
    return psutil.Process().memory_info().rss / 2**20


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def expected(mode):
    places = EVERYWHERE | {"comms by message", "checkpoints", "branches", "subshells", "history by message",
                           "count of cells", "figures", "settings of matplotlib"}
    return places | ({"workspace"} if mode != "ro" else set())


@pytest.fixture
def folder(nothing_left, request):
    folder = nothing_left / request.node.name.replace("/", "_")[:40]
    kernels.let_in(folder)
    return folder


@pytest.mark.timeout(300 if TIMES < 100 else 14400)
@pytest.mark.parametrize("mode", ["tmpfs", "overlay", "ro", "rw"])
def test_reset_leaves_no_mark(folder, mode, capsys):
    pytest.importorskip("matplotlib")
    policy = {"workspace.mode": mode, "history.file": ":memory:", "limits.pids": 300}
    with Sync("notebook", workspace=folder, policy=policy, tools=[cbtool]) as sb:
        looked = Looked(sb)
        looked.plant(figure=True)
        found = looked.look()
        assert set(found) == expected(mode), set(found) ^ expected(mode)
        stays = {"workspace": ["cbmark"]} if mode == "rw" else {}  # a folder of the caller's is not his to empty

        def say(text):
            with capsys.disabled():
                print("\n" + text, flush=True)

        took, sizes, fds, shm = [], [], [], set(os.listdir("/dev/shm"))
        for n in range(TIMES):
            old = psutil.Process(sb.kernel.pid)
            family, file = [old, *kernels.below(old.pid)], sb.kernel.connection_file
            groups = kernels.groups_of(family)
            began = time.monotonic()
            sb.reset()
            took.append(time.monotonic() - began)
            assert looked.look() == stays, f"after reset {n + 1}"
            assert sb.run("cbtool()").value == 1  # tools outlive it
            assert kernels.wait_gone(family) == []
            end = rawclient.deadline_in(None)
            while left := [
                *(g for g in groups if g.exists()), *(f for f in set(os.listdir("/dev/shm")) - shm if "cellblock" in f),
                *(d for d in [os.path.dirname(file)] if os.path.exists(d)),
            ]:
                assert time.monotonic() < end, left
            if n % 50 == 0 or n + 1 == TIMES:
                gc.collect()
                sizes.append(size())
                fds.append(descriptors())
                if TIMES > 100:
                    say(f"{mode}: {n + 1} resets; client {sizes[-1]:.1f} MiB, {fds[-1]} descriptors")
            if n + 1 < TIMES:
                looked.plant(figure=n % FIGURES_EACH == 0)
        assert max(fds) <= fds[0] + 2
        if TIMES > 100:
            assert sizes[-1] < sizes[2] + 8  # the first hundred fill caches and pools of memory
            took.sort()
            say(f"{mode}: a reset takes {took[TIMES // 2] * 1000:.0f} ms (median), "
                f"{took[TIMES * 99 // 100] * 1000:.0f} ms (p99); {looked.not_made} branches were not made")


def test_history_in_a_file_is_the_users_and_no_cell_sees_it(folder):
    """`history.file` is what people look things up in: its sessions stay there, and outside."""
    policy = {"workspace.mode": "tmpfs", "history.file": os.fspath(folder / "history.sqlite")}
    with Sync("notebook", policy=policy) as sb:
        sb.run("cbmark_out = 1", check=True)
        sb.reset()
        looked = Looked(sb)
        assert not {"%history", "%history -g", "history of the session", "In"} & set(looked.look())
        assert [row[2] for row in looked.history() if "cbmark_out" in row[2]] == ["cbmark_out = 1"]


def test_reset_of_an_async_sandbox(folder):
    async def main():
        async with cellblock.AsyncSandbox("agent", workspace=folder) as sb:
            await sb.run("import os\nmark = os.environ['MARK'] = '1'\nopen('/tmp/mark', 'w').close()", check=True)
            await sb.reset()
            r = await sb.run("import os\n'mark' in globals(), 'MARK' in os.environ, os.path.exists('/tmp/mark')")
            assert r.value == [False, False, False] and r.execution_count == 1

    asyncio.run(main())
