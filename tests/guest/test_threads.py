"""Which threads of the process are the guest's own."""

import json

# One begins before each line of the count in turn: how many are no threads of ours then, and whether there was such a
# line.
BEGINS = """
from cellblock_guest import threads
import _thread, sys
real = threads.get_native_id
def count(line=0):
    gate, begun, end = locks = [_thread.allocate_lock() for _ in range(3)]
    for each in locks: each.acquire()
    def late(): gate.acquire(); return real()
    def work(): begun.release(); end.acquire()
    def begin(): gate.release(); begun.acquire()
    lines = 0
    def trace(frame, event, arg):
        nonlocal lines
        if frame.f_code is not threads.strangers.__code__: return None
        lines += event == "line"
        if event == "line" and lines == line: begin()
        return trace
    threads.get_native_id = late
    threads.start_deaf(work)
    sys.settrace(trace)
    others, starting = threads.strangers()
    sys.settrace(None)
    if lines < line or line == 0: begin()
    end.release()
    return len(others) - starting, lines >= line
counts = [count()]
while counts[-1][1]: counts.append(count(len(counts)))
[n for n, _ in counts]
"""


def test_a_thread_that_begins_while_they_are_counted(new_guest):
    counts = json.loads(new_guest().run(BEGINS).result)
    assert len(counts) > 5 and set(counts) == {counts[0]}, counts
