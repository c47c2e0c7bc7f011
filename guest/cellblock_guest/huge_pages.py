"""Puts large arrays back into huge pages after a twin has cost them theirs.

A first write to memory that a twin shares copies 4 KiB at a time, also where it lay in pages of 2 MiB, and cells that
work on large arrays run a tenth to a third slower from then on. MADV_COLLAPSE (Linux 6.1, madvise(2)) mends that for
about half of what the copying has cost; the supervisor counts it (twin_cost.c). Before the second cell since a twin,
not sooner: the next twin undoes it again. Only pages that no twin shares, so nothing is copied that need not be; only
where the host allows huge pages.
"""

import os
import re
from resource import RUSAGE_SELF, getrusage

_LEAST = 16384  # pages: less is not worth looking for them; twin_cost.c knows it too
_PAGE, _HUGE = 4096, 2 << 20
_PIECE = 32 * _HUGE  # what is looked at and asked for at a time
_MADV_COLLAPSE = 25
_OWN = 0x81  # the highest byte of a pagemap entry: present, and in this process only (admin-guide/mm/pagemap.rst)
# Of one area: where a kernel says nothing of THPeligible no search goes on to the end.
_AREA = rb"(?m)^([0-9a-f]+)-([0-9a-f]+) rw-p .*\n(?:[A-Z].*\n)*?THPeligible: +([01])"


class HugePages:
    def __init__(self):
        self._cells = None  # since a twin; None before the first one
        self._faults = 0

    def twin_made(self):
        self._cells = 0

    def cell_begins(self, guest):
        if self._cells is None:
            return
        self._cells += 1
        if self._cells == 1:
            self._faults = getrusage(RUSAGE_SELF).ru_minflt
        elif self._cells == 2 and getrusage(RUSAGE_SELF).ru_minflt - self._faults >= _LEAST:
            try:
                collapse(guest)
            except BaseException:  # no such file in this /proc, no ctypes, or what user code has put in its place
                guest.log_exception("huge pages")


def collapse(guest):
    """Ends early when the kernel refuses (too old, no memory) or the user interrupts."""
    import ctypes

    if os.sysconf("SC_PAGESIZE") != _PAGE:
        return
    interrupts = guest.interrupts
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    with open("/proc/self/smaps", "rb") as f:
        areas = [(int(a, 16), int(b, 16)) for a, b, eligible in re.findall(_AREA, f.read()) if eligible == b"1"]
    with open("/proc/self/pagemap", "rb", 0) as pagemap:
        for begin, end in areas:
            begin, end = -(-begin // _HUGE) * _HUGE, end // _HUGE * _HUGE
            for piece in range(begin, end, _PIECE):
                size = min(_PIECE, end - piece)
                pages = os.pread(pagemap.fileno(), size // _PAGE * 8, piece // _PAGE * 8)[7::8]
                for at, length in _own(pages):
                    if interrupts.pending or interrupts.late or madvise(piece + at, length, _MADV_COLLAPSE) != 0:
                        return


def _own(pages):
    """(offset, length) of what is this process's own: huge pages that lie side by side are one."""
    each, found = _HUGE // _PAGE, []
    for i in range(0, len(pages), each):
        if pages.count(_OWN, i, i + each) == each:
            at = i * _PAGE
            if found and sum(found[-1]) == at:
                found[-1] = (found[-1][0], found[-1][1] + _HUGE)
            else:
                found.append((at, _HUGE))
    return found
