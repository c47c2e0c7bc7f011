"""What tests/soak/soak does: sessions until the time is over, figures each minute, a table at the end.

Role: test code, outside the jail. Invariants: a session that found something amiss is killed, told and counted, and the
next one begins. Callers: tests/soak/soak, tests/transactions/test_soak.py.
"""

import argparse
import random
import shutil
import tempfile
import time
import traceback
from pathlib import Path

import kernels
import psutil
import tiny
import watch
from judge import Tally
from session import ENDS, MODES, WORKSPACES, Session

PROBLEMS_MAX = 20
MINUTE = 60.0


def say(*words):
    print(*words, flush=True)


class Soak:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.tally, self.left = Tally(), watch.Left()
        self.first, self.told, self.open = None, time.monotonic(), []
        self.own = psutil.Process().num_fds()

    def minute(self, session):
        """Once a minute: what there is of everything."""
        now = time.monotonic()
        if now - self.told < MINUTE:
            return
        self.told = now
        there = watch.figures(session.kernel)
        roles = ", ".join(f"{r} {held.mib:.0f} MiB {held.fds} fds" for r, held in there.items())
        elsewhere = {k: len(v) for k, v in self.left.now([]).items() if k != "files"}
        processes = len(session.kernel.family())
        cells, minutes = self.tally.cells, (now - self.tally.began) / 60
        say(f"{minutes:.0f} min: session {session.number}, {cells} cells,", end_of(self.tally))
        more = psutil.Process().num_fds() - self.own
        say(f"    {roles}; {processes} processes; {elsewhere}; {more} fds of ours more")

    def session(self, number):
        """One kernel; gives what was amiss, or None."""
        folder = self.folder / str(number)
        session = Session(folder, self.options, number, self.tally, self.left)
        session.tick = self.minute
        try:
            session.run()
            held = [session.kernel.tmp, session.kernel.run_folder]
        except Exception as error:  # whatever it is, it is told, and the next session begins
            self.tell(session, error)
            session.kill_all()
            return error
        left = self.left.now(held)
        shutil.rmtree(folder, ignore_errors=True)
        if number % len(ENDS) != 0:  # what a killed broker leaves is removed by the next start
            left["groups"] = []
        wrong = {k: v for k, v in left.items() if v}
        if wrong:
            say(f"LEFT BEHIND by session {number} (--seed {self.options.seed} --from {number}): {wrong}")
            self.tally.problems.append((number, 0, str(wrong)))
        return None

    def tell(self, session, error):
        where = f"session {session.number} step {session.step}"
        again = f"--seed {self.options.seed} --from {session.number} --mode {session.mode}"
        again += f" --workspace {self.options.workspace} --steps {self.options.steps}"
        say(f"AMISS in {where}; again with {again} --pipeline {self.options.pipeline}")
        say("".join(traceback.format_exception(type(error), error, error.__traceback__, limit=-5)))
        for code, reply in session.recent:
            say("    " + code.replace("\n", "\n    ") + f"\n    -> {reply}")
        say("the kernel said:", session.kernel.said()[-3000:])
        self.tally.problems.append((session.number, session.step, str(error).splitlines()[0]))

    def run(self):
        number = self.options.begin
        end = time.monotonic() + self.options.minutes * MINUTE
        last = number + self.options.sessions if self.options.sessions else None
        while time.monotonic() < end and number != last and len(self.tally.problems) < PROBLEMS_MAX:
            self.session(number)
            number += 1
        return self.over(number)

    def over(self, number):
        t, seconds = self.tally, time.monotonic() - self.tally.began
        say(f"\n{t.cells} cells in {number - self.options.begin} sessions, {seconds:.0f} s, {end_of(t)}")
        tables = {"steps": t.kinds, "states": t.states, "undone at once": t.undone, "errors": t.enames}
        for words, counts in tables.items():
            say(f"{words}:")
            for name, count in sorted(counts.items(), key=lambda item: (-item[1], str(item[0]))):
                say(f"    {count:7} {name}")
        more = psutil.Process().num_fds() - self.own
        say(f"descriptors of ours: {more} more than at first; problems: {len(t.problems)}")
        for number, step, what in t.problems:
            say(f"    session {number} step {step}: {what}")
        return 1 if t.problems else 0


def end_of(tally):
    return f"{tally.cells / (time.monotonic() - tally.began):.1f} cells a second, {len(tally.problems)} problems"


def options(words=None):
    p = argparse.ArgumentParser(prog="soak", description="Runs sessions against a model of what must be left.")
    p.add_argument("--minutes", type=float, default=10.0, help="how long (default 10)")
    p.add_argument("--seed", type=int, default=None)
    p.add_argument("--from", type=int, default=0, dest="begin", metavar="SESSION", help="the first session's number")
    p.add_argument("--sessions", type=int, default=0, help="no more than so many")
    p.add_argument("--steps", type=int, default=120, help="of each session (default 120)")
    p.add_argument("--pipeline", type=int, default=24, help="most cells that are sent at once (default 24)")
    mode = "transactions.mode; keep = always, and three to undo (default: in turn from session to session)"
    p.add_argument("--mode", choices=MODES, help=mode)
    p.add_argument("--workspace", choices=WORKSPACES, default="rw", help="workspace.mode")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="more of the policy")
    p.add_argument("--cells", type=int, default=0, help="instead: so many tiny cells in one session, pipelined")
    o = p.parse_args(words)
    o.seed = random.randrange(1 << 30) if o.seed is None else o.seed
    return o


def main(words=None):
    o = options(words)
    say(f"seed {o.seed}, mode {o.mode or 'in turn'}, workspace {o.workspace}")
    try:
        with tempfile.TemporaryDirectory(prefix="soak-") as folder:
            if o.cells:
                return tiny.run(o, Path(folder), say)
            return Soak(o, Path(folder)).run()
    finally:  # no other kernels can come from these
        kernels.kill_all(watch.zygotes())
