"""What a copy costs the cells after it: pages are got anew before they are written to (guest/copier/pages.c).

Memory and faults are read from outside, for a cell that reads them makes some of its own.
"""

import os
import re
import signal
import time
from pathlib import Path

import pytest

from fake_supervisor import ROOM, Kept
from memory import own, rollup, state

MB = 1 << 20
SIZE = 128  # MiB
PAGES = SIZE * MB // 4096
ARRAY = """
import mmap
memory = mmap.mmap(-1, %d << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_HUGEPAGE)
def write(text, step=1):
    for at in range(0, len(memory), step * 4096): memory[at:at + 4] = text
def seen():
    return sorted({memory[at:at + 4] for at in range(0, len(memory), 4096)})
write(b"kept")
""" % SIZE


def faults(pid):
    return int(Path("/proc/%d/stat" % pid).read_text().rsplit(")", 1)[1].split()[7])


def delayed(pid):
    """Seconds that it was ready to run and had no processor."""
    return int(Path("/proc/%d/schedstat" % pid).read_text().split()[1]) / 1e9


def resident_without_huge_pages(pid):
    """MiB of what has asked for none (proc_pid_smaps(5): "nh")."""
    areas = Path("/proc/%d/smaps" % pid).read_text().split("\nVmFlags:")
    return sum(int(re.search(r"^Rss: *(\d+) kB", area, re.M)[1]) >> 10
               for area, flags in zip(areas, areas[1:]) if "nh" in flags.split("\n")[0].split())


def stop_at_work(pid):
    """Where it has copied a part of the array. False: it had copied all before."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        os.kill(pid, signal.SIGSTOP)
        while state(pid) != "T":
            pass
        if own(pid) > SIZE / 8:
            return own(pid) < SIZE * 3 / 4
        os.kill(pid, signal.SIGCONT)
    raise AssertionError("it does not copy")


class Session(Kept):
    def faults_of(self, code):
        before = faults(self.pid)
        result = self.guest.run(code)
        assert result.ok, result.error
        return faults(self.pid) - before

    def settles(self, code, below):
        """Whether a cell that is run again and again, each time after a copy, comes to make fewer faults: what is put
        into huge pages is put there some hundredths of a second at a time. A time at which others had the processor for
        a part of that is none."""
        times = 0
        while times < 30:
            if self.faults_of(code) < below:
                return True
            before = delayed(self.pid)
            self.copy()
            times += delayed(self.pid) - before < 0.01
        return False

    def back(self):
        self.guest.start("import os; os._exit(3)")
        with pytest.raises(EOFError):
            self.guest.finish()
        self.woken()


@pytest.fixture
def session(new_guest):
    return Session(new_guest())


@pytest.fixture
def with_array(session):
    """A session that has written to large memory since its first copy."""
    if tuple(map(int, os.uname().release.split("-")[0].split(".")[:2])) < (6, 1):
        pytest.skip("this kernel has no MADV_COLLAPSE")
    session.copy()
    assert session.guest.run(ARRAY).ok
    if rollup(session.pid, "AnonHugePages") < SIZE * 3 / 4:
        pytest.skip("this host has no huge pages")
    return session


def test_large_memory_is_copied_by_the_copy(with_array):
    """So the next cell copies hardly anything, and huge pages stay; the copy has what there was."""
    twin = with_array.copy()
    assert own(twin) > SIZE * 3 / 4
    assert with_array.faults_of("write(b'next')") < PAGES / 8
    assert rollup(with_array.pid, "AnonHugePages") > SIZE * 3 / 4
    with_array.back()
    assert with_array.guest.run("seen()").result == "[b'kept']"
    with_array.copy()
    assert with_array.settles("write(b'more')", PAGES / 8), "of a woken state, too"


def test_one_that_is_woken_while_it_copies(with_array, monkeypatch):
    """What it has not come to is there all the same, and is as it was."""
    guest, digest = with_array.guest, "hashlib.sha256(memory).hexdigest()"
    assert guest.run("import hashlib, os; memory[:] = os.urandom(len(memory))").ok
    before = guest.run(digest).result
    while not stop_at_work((twin := guest.checkpoint(ROOM)).process.pid):
        guest.twins.remove(twin)
        twin.drop()
        assert guest.run("memory[::4096] = memory[::4096]").ok
    assert guest.run("write(b'next')").ok
    send = guest.send
    monkeypatch.setattr(guest, "send", lambda *how: (send(*how), os.kill(twin.process.pid, signal.SIGCONT))[0])
    assert guest.take_over(twin).run(digest).result == before  # it was told to wake before it went on


def test_large_memory_that_ends_somewhere(with_array):
    """And not where a huge page does, as most arrays of NumPy."""
    assert with_array.guest.run("memory.resize(len(memory) - 4096)").ok
    assert own(with_array.copy()) > SIZE * 3 / 4
    assert with_array.faults_of("write(b'next')") < PAGES / 8
    assert rollup(with_array.pid, "AnonHugePages") > SIZE * 3 / 4
    with_array.back()
    assert with_array.guest.run("seen()").result == "[b'kept']"


def test_large_memory_that_loses_its_end(with_array):
    """What is left of it is still known."""
    with_array.copy()
    assert with_array.guest.run("memory.resize(len(memory) - 4096)").ok
    assert with_array.faults_of("write(b'more')") < PAGES / 8
    assert own(with_array.copy()) > SIZE * 3 / 4
    assert with_array.faults_of("write(b'next')") < PAGES / 8
    with_array.back()
    assert with_array.guest.run("seen()").result == "[b'more']"


def test_a_file_that_is_only_read_is_not_copied(session, tmp_path):
    """The kernel says of a file's pages, too, that one process alone has them."""
    (tmp_path / "large").write_bytes(os.urandom(SIZE << 20))
    session.copy()
    assert session.guest.run(f"import mmap; f = open({str(tmp_path / 'large')!r}, 'rb')").ok
    assert session.guest.run("m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY)").ok
    for _ in range(4):
        assert session.guest.run("sum(m[::4096]) > 0").result == "True"
        assert rollup(session.copy(), "Anonymous") < SIZE / 2
    assert rollup(session.pid, "Anonymous") < SIZE / 2


def test_where_memory_is_short_nobody_copies(with_array):
    twin = with_array.copy(room=8 * MB)
    assert own(twin) < 32
    assert with_array.faults_of("write(b'late')") > PAGES / 2
    assert rollup(with_array.pid, "AnonHugePages") < SIZE / 2
    with_array.back()
    assert with_array.guest.run("seen()").result == "[b'kept']"


def test_small_pages_are_put_into_huge_ones(with_array):
    """Those that a cell has copied one by one because it came too soon, and those of many small objects."""
    with_array.copy(room=0)
    with_array.faults_of("write(b'torn')")
    assert rollup(with_array.pid, "AnonHugePages") < SIZE / 2
    with_array.copy()
    assert with_array.settles("write(b'next')", PAGES / 8)
    assert rollup(with_array.pid, "AnonHugePages") > SIZE * 3 / 4
    assert with_array.guest.run("seen()").result == "[b'next']"


def test_what_is_written_to_no_more_is_copied_no_more(with_array):
    """Of all that is large a piece is left out now and then: who has not written to that writes to none of it."""
    assert own(with_array.copy()) > SIZE * 3 / 4
    for _ in range(20):
        twin = with_array.copy()
        if own(twin) < SIZE / 4:
            break
    assert own(twin) < SIZE / 4
    for text in ("anew", "more"):  # a copy that looks at what was left out looks at all that is new the next time
        with_array.faults_of("write(b'%s')" % text)
        twin = with_array.copy()
    assert own(twin) > SIZE * 3 / 4, "and if it is, it is again"


def test_what_is_written_to_in_few_places_is_not_copied_whole(with_array):
    """As a heap is by a small cell: some hundreds of pages here and there, for which all would be copied each time."""
    for i in range(20):
        with_array.faults_of("write(b'%04d', 64)" % i)
        twin = with_array.copy()
        if own(twin) < SIZE / 4:
            break
    assert own(twin) < SIZE / 4
    with_array.faults_of("write(b'late')")
    with_array.back()
    assert with_array.guest.run("seen()").result == "[b'%04d', b'kept']" % i


def test_what_is_written_to_stays_known(with_array):
    """The pieces that are left out are others each time."""
    for i in range(12):
        with_array.copy()
        assert with_array.faults_of("write(b'%04d')" % i) < PAGES / 4, i
    with_array.back()
    assert with_array.guest.run("seen()").result == "[b'0010']"


def test_many_small_objects(session):
    session.copy()
    assert session.guest.run("many = [{'a': i} for i in range(300000)]").ok
    walk = "sum(each['a'] for each in many)"
    session.copy(room=0)
    alone = session.faults_of(walk)
    session.copy()
    assert session.settles(walk, alone / 2)
    assert session.faults_of(walk) < 100, "without a copy there is nothing to copy"
    session.back()
    assert session.guest.run(walk).result == str(sum(range(300000)))


def test_single_pages_are_got_before_the_cell(session):
    """A small cell writes to some hundreds of pages; which they are is learned once, and again now and then."""
    before = faults(session.pid)
    session.copy()
    session.faults_of("x = 1")
    counts = [faults(session.pid) - before]  # with what other threads of it write to between the copy and the cell
    for _ in range(11):
        session.copy()
        counts.append(session.faults_of("x = 1"))
    assert counts[0] > 50, "the first copy: nothing is known"
    assert sorted(counts)[6] < counts[0] / 2, counts


def test_what_is_gone_is_left_alone(session):
    """Memory that was known and is given back, with something else in its place."""
    code = "import mmap\ndef area():\n    m = mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
    code += "    for at in range(0, len(m), 4096): m[at:at + 1] = b'x'\n    return m\nhere = area()"
    session.copy()
    assert session.guest.run(code).ok
    session.copy()
    assert session.guest.run("here.close(); here = area()").ok
    session.copy()
    assert session.guest.run("here.close(); b = bytearray(8 << 20)").ok
    session.copy()
    assert session.guest.run("len(b), sum(b)").result == "(%d, 0)" % (8 * MB)
    session.back()
    assert session.guest.run("len(b), sum(b)").result == "(%d, 0)" % (8 * MB)


LIBC = "import ctypes, os; c = ctypes.CDLL(None, use_errno=True); c.mmap.restype = ctypes.c_void_p\n"
LIBC += "c.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)\n"
LIBC += "c.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)\nSIZE = 4 << 20\n"


def test_a_file_in_its_place_is_not_touched(session, tmp_path):
    """Asking for pages of a shared mapping would give a sparse file room on the disk."""
    sparse = tmp_path / "sparse"
    sparse.write_bytes(b"")
    os.truncate(sparse, 4 * MB)
    session.copy()
    assert session.guest.run(LIBC + "at = c.mmap(None, SIZE, 3, 0x22, -1, 0); ctypes.memset(at, 1, SIZE)").ok
    session.copy()
    code = "fd = os.open(%r, os.O_RDWR); c.mmap(at, SIZE, 3, 0x11, fd, 0) == at" % str(sparse)
    assert session.guest.run(code).result == "True"
    changed = sparse.stat().st_mtime_ns
    for _ in range(4):
        session.copy()
        session.faults_of("x = 1")
    assert sparse.stat().st_blocks == 0 and sparse.stat().st_mtime_ns == changed


def test_memory_that_can_not_be_written_to_any_more(with_array):
    """What the kernel refuses for one area says nothing of the others."""
    assert with_array.guest.run(LIBC + "at = c.mmap(None, SIZE, 3, 0x22, -1, 0); ctypes.memset(at, 1, SIZE)").ok
    with_array.copy()
    assert with_array.guest.run("c.mprotect(at, 1 << 20, 1)").result == "0"
    for i in range(3):
        with_array.faults_of("write(b'%04d')" % i)
        twin = with_array.copy()
    assert own(twin) > SIZE * 3 / 4
    assert with_array.guest.run("ctypes.string_at(at, 1), ctypes.string_at(at + SIZE - 1, 1)").result == (
        "(b'\\x01', b'\\x01')"
    )


def test_sparse_memory_stays_sparse(session):
    """Where holes are none are filled."""
    session.copy()
    code = "import mmap\nm = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
    code += "m.madvise(mmap.MADV_NOHUGEPAGE)\ndef write():\n"
    code += "    for at in range(0, len(m), 4 * 4096): m[at] = 1\nwrite()"
    assert session.guest.run(code).ok
    for _ in range(3):
        assert resident_without_huge_pages(session.copy()) == 16
        session.faults_of("write()")
    assert resident_without_huge_pages(session.pid) == 16
