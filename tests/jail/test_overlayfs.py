"""A workspace that lies on an overlay, as a container's own files do: what is written there first is copied."""

import os

import pytest

from test_hosts import PYTHON, SOMEBODY, cellblock, disk, somebody  # noqa: F401 (a fixture)

pytestmark = pytest.mark.cellblock_only

# No more than 64 calls wait at a time, for the next one fails.
COPIED = """
import os, threading
MANY = 72
open('last', 'a').close()  # waits until it is old, and so are the others
acts = (
    lambda name: None,
    lambda name: os.truncate(name, 1),
    lambda name: os.chmod(name, 0o600),
    lambda name: os.chown(name, -1, os.getgid()),
    lambda name: os.utime(name),
    lambda name: (os.rename(name, name + '-'), os.rename(name + '-', name)),
    lambda name: (os.link(name, name + '-'), os.unlink(name + '-')),
)
faults = []
def attempt(act, name):
    together.wait()
    try: act(name)
    except OSError as e: faults.append((name, str(e)))
def work(n):
    for i, act in enumerate(acts):
        attempt(lambda name: (act(name), open(name, 'a').write('x')), f'{i}-{n}')
        attempt(os.unlink, f'{i}-{n}')
together = threading.Barrier(MANY)
threads = [threading.Thread(target=work, args=(n,)) for n in range(MANY)]
for t in threads: t.start()
for t in threads: t.join()
print(len(faults), *faults[:5], *sorted(os.listdir()))
"""


def test_no_copy_of_an_overlay_is_waited_for(disk):  # noqa: F811
    def fill(lower):
        for name in (*(f"{i}-{n}" for i in range(7) for n in range(72)), "last"):
            (lower / name).write_text("text")
            os.chown(lower / name, SOMEBODY.pw_uid, SOMEBODY.pw_gid)

    place = disk("overlayfs", fill)
    place.chmod(0o777)
    somebody("old-proc")
    done = cellblock("run", "--", PYTHON, "-c", COPIED, cwd=place, user=SOMEBODY)
    assert (done.returncode, done.stdout) == (0, "0 file last\n"), done
