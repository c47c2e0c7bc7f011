"""Memory that processes have, and when they are at rest, read from outside: who reads that of itself makes some."""

import re
import time
from pathlib import Path

PATIENCE = 60  # s


def rollup(pid, name):
    """MiB."""
    return int(re.search(name + r": *(\d+) kB", Path("/proc/%d/smaps_rollup" % pid).read_text())[1]) >> 10


def own(pid):
    return rollup(pid, "Private_Dirty")


def state(pid):
    """A letter: proc_pid_stat(5)."""
    return Path("/proc/%d/stat" % pid).read_text().rsplit(")", 1)[1].split()[0]


def await_rest(pid):
    """Until it waits for what comes next: three looks in a row that find it asleep, with all that it has."""
    end, calm, had = time.monotonic() + PATIENCE, 0, None
    while calm < 3:
        have = own(pid)
        calm = calm + 1 if state(pid) == "S" and have == had else 0
        had = have
        assert time.monotonic() < end, "it comes to no end"
        time.sleep(0.01)
