"""A session's state that no copying of objects would bring back: what makes it, what ruins it, what finds it whole; and
the ways to fail.

Role: cells, as text. Used by tests/guest/test_twins.py and tests/transactions. CHECK can be run once per PROGRAM.
"""

import re

PROGRAM = """
import collections, contextvars, hashlib, itertools, math, os, random, re, sqlite3, struct, threading, weakref
class Thing: pass
thing = Thing(); thing.self = thing; alias = [thing, thing]; ref = weakref.ref(thing)
def counter():
    n = 0
    def count():
        nonlocal n
        n += 1
        return n
    return count
count = counter(); count()
def numbers():
    try:
        for i in itertools.count(): yield i
    finally: print('closed')
half = numbers(); next(half)
db = sqlite3.connect(':memory:'); db.execute('create table t (a)'); db.execute('insert into t values (1)')
held, free = threading.Lock(), threading.Lock(); held.acquire()
hasher = hashlib.sha256(b'a'); pattern = re.compile('a(b)'); unpack = struct.Struct('<I').unpack
var = contextvars.ContextVar('var'); var.set('kept')
open('read.txt', 'w').write('abcdefgh' * 4); reading = open('read.txt', buffering=4); reading.read(3)
writing = open('half.txt', 'w'); writing.write('before,')
random.seed(4); expected = random.Random(); expected.setstate(random.getstate())
folder = os.getcwd()
"""

RUIN = """
alias.clear(); del thing; [count() for _ in range(9)]; half.close(); db.execute('delete from t'); held.release()
free.acquire(); var.set('lost'); reading.read(); writing.write('undone'); writing.flush(); random.random()
hasher.update(b'b'); random.seed(9); os.chdir('/tmp'); del re, counter
"""

CHECK = """
assert alias[0] is alias[1] is thing is thing.self is ref()
assert count() == 2 and next(half) == 1
assert db.execute('select a from t').fetchall() == [(1,)]
assert held.locked() and not free.locked()
assert hasher.digest() == hashlib.sha256(b'a').digest()
assert pattern.match('ab').group(1) == 'b' and unpack(b'abcd') and re and counter
assert var.get() == 'kept' and os.getcwd() == folder
assert reading.read(4) == 'defg'
writing.write('after'); writing.close(); assert open('half.txt').read().startswith('before,after')
assert [random.random() for _ in range(5)] == [expected.random() for _ in range(5)]
'whole'
"""

ARRAYS = """
import numpy as np, pandas as pd, matplotlib; matplotlib.use('agg')
import matplotlib.pyplot as plt, copy, io
a = np.arange(6.0); view = a[::2]; rng = np.random.default_rng(3); np.random.seed(5)
big = np.ones((400, 400)); dot = (big @ big)[0, 0]
df = pd.DataFrame({'x': [1, 2, 2]}); groups = df.groupby('x'); fig, ax = plt.subplots(); ax.plot([1, 2]);
later = copy.deepcopy(rng).random(3), np.random.RandomState(5).random_sample(3)
"""

RUIN_ARRAYS = "a[:] = 0; rng.random(5); np.random.random(5); df['x'] = 0; plt.close(fig); big[:] = 0"

CHECK_ARRAYS = """
view[0] = 7; assert a[0] == 7 and view.base is a
assert (big @ big)[0, 0] == dot == 400
assert (rng.random(3) == later[0]).all() and (np.random.random_sample(3) == later[1]).all()
assert groups.size()[2] == 2
fig.savefig(io.BytesIO()); assert plt.gcf() is fig
'whole'
"""

SOON = {"cellblock": {"cpu": 1}}  # what ruins the state is done by then, however busy the machine is
SWALLOW = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
KILL = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"

# name: code, ename, metadata
FAILURES = {
    "loop that ignores the soft stop": (SWALLOW, "CellTimeoutError", SOON),
    "C code that holds the GIL": ("sum(range(10**13))", "CellTimeoutError", SOON),
    "stops itself": ("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", "KernelDiedError", None),
    "memory": (
        "import mmap, time\nm, block = mmap.mmap(-1, 1 << 31), b'1' * (1 << 20)\n"
        "for i in range(1 << 11): m.write(block)\nwhile True: time.sleep(1)",  # the watchdog may be late to look
        "CellMemoryError",
        None,
    ),
    "segfault": ("import ctypes; ctypes.string_at(0)", "KernelDiedError", None),
    "abort": ("import os; os.abort()", "KernelDiedError", None),
    "os._exit": ("import os; os._exit(3)", "KernelDiedError", None),
    "kills itself": (KILL, "KernelDiedError", None),
    "fork bomb": (
        "import os, signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "while True:\n    try: os.fork()\n    except OSError: pass",
        "CellTimeoutError",
        SOON,
    ),
}


def bad_notebook():
    """Cells of which every other one fails for good; the last one prints what is left: (code, whether it fails)."""
    cells = []
    for name, (code, _, _) in FAILURES.items():
        if "GIL" not in name and "stops" not in name:
            cells += [("log = globals().get('log', []) + [%d]" % len(cells), False), ("log = None\n" + code, True)]
    return [*cells, ("print(globals().get('log', []))", False)]


# so that each of them ends soon, and the good ones are in time however busy the machine is
BAD_LIMITS = {"timeout.cpu": 1, "timeout.grace": 0.3, "limits.memory": "300M", "limits.pids": 100}


DEAR = 10  # ms: docs/transactions.md
NO_TWIN = re.compile(r"no twin was made behind cell \[(\d+)\](?:: it would delay the next by ([0-9.]+) ms)?")


def without_a_twin(log):
    """Numbers of the cells behind which mode `auto` made none, by the kernel's log, which says what one would cost."""
    said = NO_TWIN.findall(log)
    assert all(ms and float(ms) >= DEAR for _, ms in said), said
    return {int(number) for number, _ in said}
