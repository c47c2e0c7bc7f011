"""A random walk against a model: cells of subshells that run beside others, checkpoints, failures, going back.

The model knows when each cell ended and what the state was whenever nothing ran. Going back to a name undoes every cell
that had not ended, or was undone, when that was made; a failure goes back to a moment in which nothing ran.
"""

import ast
import random

import pytest

pytestmark = [pytest.mark.cellblock_only("no other kernel does this"), pytest.mark.once]
ALWAYS = ["--set", "transactions.mode=always", "--set", "transactions.names=8"]
OPERATIONS = ["main", "main", "begin", "begin", "finish", "finish", "name", "back", "crash", "crash beside", "look"]
BEGIN = """
log.append(("a", {0}))
half[{0}].set()
go[{0}].wait(60)
log.append(("b", {0}))
"""
DIE = "os._exit(3)"


class Walk:
    def __init__(self, c, seed):
        self.c, self.random, self.step, self.count = c, random.Random(seed), 0, 0
        self.subshells = [c.request("create_subshell_request", channel="control").content["subshell_id"]
                          for _ in range(3)]
        self.log, self.done, self.running, self.names, self.trace = [], set(), {}, {}, []
        self.calm = []  # what the state was, oldest first, whenever nothing ran
        self.main("import threading, os; log, go, half = [], {}, {}")

    def now(self):
        return list(self.log), set(self.done)

    def main(self, code):
        cell = self.c.run(code)
        self.count += 1
        assert cell.ok and cell.content["execution_count"] == self.count, (self.trace[-10:], cell)
        self.done.add(self.count)
        self.rests()
        return cell

    def beside(self, code, where):
        self.count += 1
        return self.c.start(code, header=self.c.header("execute_request", subshell_id=where))

    def free(self):
        return self.random.choice([each for each in self.subshells if each not in self.running] or [None])

    def goes(self):
        self.step += 1
        what = self.random.choice(OPERATIONS)
        self.trace.append((what, self.count))
        getattr(self, what.replace(" ", "_") + "_")()
        self.rests()

    def rests(self):
        if not self.running:
            self.calm.append(self.now())

    def main_(self):
        self.main(f"log.append({self.step})")
        self.log.append(self.step)

    def look_(self):
        seen = self.main("log").result
        assert ast.literal_eval(seen) == self.log, (self.trace[-10:], seen, self.log)

    def begin_(self):
        where = self.free()
        if where:
            self.main(f"go[{self.step}], half[{self.step}] = threading.Event(), threading.Event()")
            cell = self.beside(BEGIN.format(self.step), where)
            self.c.wait("iopub", lambda m: m.type == "execute_input" and m.parent_id == cell)
            self.running[where] = (cell, self.step, self.count)
            self.main(f"half[{self.step}].wait(60)")
            self.log.append(("a", self.step))

    def finish_(self):
        if self.running:
            where = self.random.choice(list(self.running))
            cell, step, number = self.running.pop(where)
            self.main(f"go[{step}].set()")
            assert self.c.finish(cell).ok
            self.done.add(number)
            self.log.append(("b", step))

    def name_(self):
        name = f"name {self.random.randrange(4)}"
        made = self.c.request("cellblock_checkpoint_request", {"name": name}).content
        assert made["status"] == "ok", made
        self.names[name] = self.now()

    def back_(self):
        if self.names and not self.running:
            name = self.random.choice(list(self.names))
            back = self.c.request("cellblock_rollback_request", {"name": name}).content
            log, done = self.names[name]
            assert (back["status"], back["undone"]) == ("ok", sorted(self.done - done)), (self.trace[-10:], name, back)
            self.log, self.done = list(log), set(done)

    def crash_(self):
        self.count += 1
        self.falls(self.c.start(DIE))

    def crash_beside_(self):
        where = self.free()
        if where:
            self.falls(self.beside(DIE, where))

    def falls(self, cell):
        """All that ran are told the same: what has ended since one of the calm moments, and they themselves."""
        failed, at_work = self.count, {number for _, _, number in self.running.values()}
        told = [self.c.finish(each).about for each in (cell, *(each for each, _, _ in self.running.values()))]
        assert all((each["state"], each["undone"]) == ("restored", told[0]["undone"]) for each in told), told
        undone = set(told[0]["undone"])
        for log, done in reversed(self.calm):
            if undone == (self.done - done) | at_work | {failed}:
                break
        else:
            pytest.fail(f"{self.trace[-10:]}: {sorted(undone)} are undone of {sorted(self.done)} and {at_work}")
        self.log, self.done = list(log), set(done)
        self.running.clear()
        self.look_()


@pytest.mark.parametrize("seed", [1, 2, 3, 5, 17, 28])
def test_a_walk(start, seed):
    walk = Walk(start(args=ALWAYS).client, seed)
    for _ in range(60):
        walk.goes()
    walk.look_() if not walk.running else None
