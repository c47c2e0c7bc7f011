"""Very many small cells in one session, pipelined, with a death now and then; memory must stay flat.

Role: test code, outside the jail. Callers: command.py (`tests/soak/soak --cells N`).
"""

import random
import time

import watch
from judge import Amiss, Sent, Tally, ensure
from session import Session

AT_ONCE = 100  # cells under way
DEATHS = 1000  # one in so many cells
TOLD = 10.0  # s


def batch(session, rng, size):
    """So many cells that add one to n; of them some end Python."""
    sent = []
    for _ in range(size):
        if rng.randrange(DEATHS) == 0:
            sent.append(Sent("n += 1; os._exit(1)", add_one, end="dies", enames=("KernelDiedError",)))
        else:
            sent.append(Sent("n += 1", add_one))
        session.send(sent[-1])
    return sent


def add_one(w):
    return type(w)(**{**vars(w), "n": w.n + 1})


def run(options, folder, say):
    """Exit status."""
    tally, rng, left = Tally(), random.Random(options.seed), watch.Left()
    session = Session(folder, options, 0, tally, left)
    try:
        session.connect()
        session.start_over()
        before, told, began = None, time.monotonic(), time.monotonic()
        while tally.cells < options.cells:
            sent = batch(session, rng, AT_ONCE)
            for each, cell in zip(sent, session.collect(sent)):
                if session.line.now is None:
                    each.end, each.enames = "any", ()  # n is gone: whatever comes
                session.judge(each, cell)
            if session.line.now is None:
                session.start_over()
            if rng.random() < 0.1:
                session.look()
            if before is None and tally.cells > options.cells // 10:
                before = session.settled()
            if time.monotonic() - told > TOLD:
                told = time.monotonic()
                figures = {r: f"{h.mib:.1f} MiB {h.fds} fds" for r, h in watch.figures(session.kernel).items()}
                say(f"{tally.cells} cells, {tally.cells / (told - began):.0f} a second, {figures}")
        after = session.settled()
        ensure(not watch.grown(before or after, after), watch.grown(before or after, after))
        say(f"{tally.cells} cells, {tally.cells / (time.monotonic() - began):.0f} a second; {dict(tally.states)};")
        say(f"undone at once: {dict(tally.undone)}; first {before}, last {after}")
        session.end("shutdown")
        return 0
    except (Amiss, AssertionError) as error:
        say(f"AMISS after {tally.cells} cells, --seed {options.seed}: {error}")
        session.kill_all()
        return 1
