"""Checkpoints and take-overs leave nothing behind: no descriptor, process or memory, in the supervisor, the broker,
pid 1 and the guest.

CELLBLOCK_TEST_MANY=1 makes it 10,000 checkpoints and 1,000 take-overs; run it with -s to see the figures.
"""

import os
import time

import psutil
import pytest

pytestmark = pytest.mark.cellblock_only("transactions")

CHECKPOINTS, TAKE_OVERS = (10000, 1000) if os.environ.get("CELLBLOCK_TEST_MANY") else (100, 30)
MIB = 1 << 20
GUESTS = 4  # one, its twins before the last two cells (transactions.keep), and a checkpoint
ROLES = {"cellblock": "supervisor", "cellblock-jail": "broker", "cellblock-init": "pid 1"}
ROLES["cellblock-names"] = "notifier"


def count(kernel):
    """{role: [processes, descriptors, most MiB]}; what calls itself otherwise is a guest or a twin."""
    found = {}
    for p in [psutil.Process(kernel.pid), *kernel.family()]:
        try:
            try:
                fds = p.num_fds()
            except psutil.AccessDenied:  # it is not dumpable, and we are not root
                fds = 0
            role, own = ROLES.get(p.name(), "guest"), p.memory_info().rss / MIB
        except psutil.NoSuchProcess:  # it has just ended
            continue
        so_far = found.setdefault(role, [0, 0, 0])
        found[role] = [so_far[0] + 1, so_far[1] + fds, max(so_far[2], own)]
    return found


def settled(c, like=None):
    """{role: [processes, descriptors, most MiB]}, once those that were dropped have ended, and all is as in `like`;
    else as it is at the end. The broker opens files for a moment, where it measures memory: without `like` the fewest
    of 20 looks count."""
    assert c.run("pass").ok
    end = time.monotonic() + 30
    fewest, looks = {}, 0
    while True:  # each answer comes in the queue's order: the twin after the cell has been made by then
        assert c.request("cellblock_list_checkpoints_request").content["status"] == "ok"
        # and the guest has closed what it was given: it says that there is a twin before that
        assert c.request("complete_request", {"code": "x", "cursor_pos": 1}).content["status"] == "ok"
        c.drop()
        now = count(c.kernel)
        if like is None and now["guest"][0] <= GUESTS:
            looks += 1
            for role, seen in now.items():
                fewest[role] = [min(pair) for pair in zip(seen, fewest.get(role, seen))]
        same = looks == 20 if like is None else all(now[role][:2] == like[role][:2] for role in like)
        if now["guest"][0] <= GUESTS and same or time.monotonic() > end:
            return fewest if like is None else now


def checkpoints(c, n):
    for _ in range(n):
        reply = c.request("cellblock_checkpoint_request", {"name": "a"}).content
        assert reply["status"] == "ok", reply
        c.drop()


def take_overs(c, n):
    for _ in range(n):
        failed = c.run("import os; x.append(1); os._exit(1)")
        assert failed.about["state"] == "restored", failed.content
        c.drop()


@pytest.mark.timeout(3600)
def test_nothing_is_left(start):
    c = start(args=["--set", "transactions.mode=always"]).client
    assert c.run("x = []").ok
    checkpoints(c, 20)
    take_overs(c, 10)
    before = settled(c)
    checkpoints(c, CHECKPOINTS)
    between = settled(c, before)
    take_overs(c, TAKE_OVERS)
    after = settled(c, before)
    assert c.run("x").result == "[]"
    for name, now in (("before", before), (f"{CHECKPOINTS} checkpoints", between), (f"{TAKE_OVERS} take-overs", after)):
        for role, (processes, fds, mib) in now.items():
            print(f"{name:20}{role:12}{processes:3} processes {fds:4} descriptors {mib:7.1f} MiB at most")
    assert before["guest"][0] == GUESTS, before
    for now in (between, after):
        for role, (processes, fds, mib) in before.items():
            assert now[role][:2] == [processes, fds], (role, before[role], now[role])
            assert now[role][2] - mib < 16, (role, before[role], now[role])
