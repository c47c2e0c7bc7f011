"""Random sequences of cells, failures, checkpoints, rollbacks and branches, against a model of what the states must be.

CELLBLOCK_MODEL_STEPS says how many steps each sequence has (by default few, for ./check).
"""

import copy
import os
import random

import pytest

pytestmark = [pytest.mark.cellblock_only("no other kernel does this"), pytest.mark.once]

STEPS = int(os.environ.get("CELLBLOCK_MODEL_STEPS", "120"))
NAMES = ["one", "two", "three"]
BRANCHES = 4  # at one time
DEATHS = ["os._exit(1)", "os.abort()", "os.kill(os.getpid(), 9)", "ctypes.string_at(0)"]


STEPS_OF = ["cell"] * 6 + ["error", "death", "death", "checkpoint", "rollback", "undo"]
STEPS_OF += ["branch", "branch", "branch_cell", "branch_cell", "branch_death", "end_branch"]


class Model:
    """What Python holds: a dict, and lists in it of which some are the same object twice."""

    def __init__(self, kernel, pick):
        self.c, self.pick = kernel.client, pick
        self.state = {"a": [], "b": [], "n": 0}
        self.names = {}
        self.branches = {}  # id -> state
        self.run("import os, ctypes; s = {'a': [], 'b': [], 'n': 0}; s['same'] = s['a']")

    def send(self, code, where=None):
        """In the main line, or in a branch."""
        return self.c.run(code, header=self.c.header("execute_request", **({"subshell_id": where} if where else {})))

    def run(self, code, where=None):
        cell = self.send(code, where)
        assert cell.ok, cell.content
        return cell

    def somewhere(self):
        """A branch, if there are any."""
        return self.pick.choice(sorted(self.branches)) if self.branches else None

    def change(self):
        value, key = self.pick.randrange(1000), self.pick.choice("ab")
        return self.pick.choice(
            [
                (f"s[{key!r}].append({value})", lambda s: s[key].append(value)),
                (f"s['n'] += {value}", lambda s: s.update(n=s["n"] + value)),
                (f"del s[{key!r}][:1]", lambda s: s[key].__delitem__(slice(0, 1))),
                ("s['b'].extend(s['same'])", lambda s: s["b"].extend(s["a"])),
            ]
        )

    def cell(self):
        code, apply = self.change()
        self.run(code)
        apply(self.state)

    def error(self):
        """An ordinary exception keeps what was done before it."""
        code, apply = self.change()
        assert self.c.run(code + "\n1 / 0").content["ename"] == "ZeroDivisionError"
        apply(self.state)

    def death(self):
        cell = self.c.run(f"{self.change()[0]}; {self.pick.choice(DEATHS)}")
        assert cell.about["state"] == "restored", cell.content
        assert len(cell.about["undone"]) == 1, cell.about

    def checkpoint(self):
        name = self.pick.choice(NAMES)
        assert self.c.request("cellblock_checkpoint_request", {"name": name}).content["status"] == "ok"
        self.names[name] = copy.deepcopy(self.state)

    def rollback(self):
        name = self.pick.choice(NAMES)
        reply = self.c.request("cellblock_rollback_request", {"name": name}).content
        assert (reply["status"] == "ok") == (name in self.names), reply
        if name in self.names:
            self.state = copy.deepcopy(self.names[name])

    def undo(self):
        """A cell, and back to before it."""
        self.run(self.change()[0])
        reply = self.c.request("cellblock_rollback_request", {}).content
        assert reply["status"] == "ok" and len(reply["undone"]) == 1, reply

    def branch(self):
        """Of now or of a name; one too many ends another."""
        name = self.pick.choice([None, *NAMES])
        if len(self.branches) >= BRANCHES:
            self.end_branch()
        reply = self.c.request("cellblock_branch_request", {"from": name}, channel="control").content
        assert (reply["status"] == "ok") == (name is None or name in self.names), reply
        if reply["status"] == "ok":
            self.branches[reply["subshell_id"]] = copy.deepcopy(self.names[name] if name else self.state)

    def branch_cell(self):
        where = self.somewhere()
        if where:
            code, apply = self.change()
            self.run(code, where)
            apply(self.branches[where])

    def branch_death(self):
        where = self.somewhere()
        if where:
            cell = self.send(f"{self.change()[0]}; {self.pick.choice(DEATHS)}", where)
            assert (cell.about["state"], cell.content["ename"]) == ("lost", "KernelDiedError"), cell.content
            del self.branches[where]

    def end_branch(self):
        where = self.somewhere()
        if where:
            reply = self.c.request("delete_subshell_request", {"subshell_id": where}, channel="control").content
            assert reply["status"] == "ok", reply
            del self.branches[where]

    def check(self):
        for where in {None, self.somewhere()}:
            state = self.branches[where] if where else self.state
            got = self.run("print(s['a'], s['b'], s['n'], s['same'] is s['a'])", where).text()
            assert got == f"{state['a']} {state['b']} {state['n']} True\n"
        listed = self.c.request("cellblock_list_branches_request", {}).content["branches"]
        assert sorted(each["subshell_id"] for each in listed) == sorted(self.branches)


@pytest.mark.parametrize("seed", range(2))
def test_random_sequences(start, seed):
    pick = random.Random(seed)
    model = Model(start(args=["--set", "transactions.mode=always"]), pick)
    for _ in range(STEPS):
        getattr(model, pick.choice(STEPS_OF))()
        model.check()
