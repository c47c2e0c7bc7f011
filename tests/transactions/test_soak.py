"""Some sessions of tests/soak/soak with a fixed seed: faults, kills, interrupts and restarts against a model.

CELLBLOCK_SOAK_STEPS says how many steps each has (by default few, for ./check).
"""

import os
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.cellblock_only("no other kernel does this")

STEPS = os.environ.get("CELLBLOCK_SOAK_STEPS", "15")
MODES = {"auto": "rw", "always": "overlay", "keep": "tmpfs", "off": "rw"}


@pytest.fixture
def command(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "soak"))
    import command

    return command


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_lost(command, mode, capsys):
    words = ["--seed", "1", "--from", str(sorted(MODES).index(mode)), "--sessions", "1", "--steps", STEPS]
    words += ["--minutes", "60", "--mode", mode, "--workspace", MODES[mode]]
    assert command.main(words) == 0, capsys.readouterr().out[-8000:]


def test_tiny_cells(command, capsys):
    assert command.main(["--seed", "1", "--cells", "200"]) == 0, capsys.readouterr().out[-8000:]


def test_what_is_amiss_is_told(command, capsys, monkeypatch):
    """A model that is wrong is told with the seed and the session, and in the exit status."""
    session = sys.modules["session"]
    monkeypatch.setattr(session, "STEPS", ["cell"])
    monkeypatch.setattr(session, "change", lambda rng: ("n = 1", lambda world: world))
    assert command.main(["--seed", "1", "--sessions", "1", "--steps", "2"]) == 1
    said = capsys.readouterr().out
    assert "AMISS in session 0 step 0" in said and "--seed 1 --from 0" in said, said


def test_what_is_not_flat_is_told(command):
    """Each role, and what lies outside; a process that has come in the place of another may be larger."""
    import watch

    def held(*which, fds=10, mib=20.0):
        return watch.Held(frozenset(which), fds, mib)

    before = {"supervisor": held(1), "broker": held(2), "pid 1": held(3), "notifier": held(4), "twin": held(5)}
    before |= {"groups": held("cellblock-1"), "mounts": held(), "files": held("a")}
    assert not watch.grown(before, before)
    later = {role: held(*b.which, fds=10 + watch.FILES_MAX, mib=20 + watch.MEMORY_MAX) for role, b in before.items()}
    assert not watch.grown(before, later)
    for role in ("supervisor", "broker", "pid 1", "notifier"):
        for more in ({"fds": 23}, {"mib": 32.1}, {"which": {*before[role].which, 9}}):
            found = watch.grown(before, {**before, role: before[role]._replace(**more)})
            assert [words.startswith(role) for words in found] == [True], (role, more)
        jump = watch.grown(before, {**before, role: held(9, fds=99, mib=99)})
        assert bool(jump) == (role in ("supervisor", "broker")), role
    for role, more in {"groups": ("cellblock-2", "cellblock-1"), "mounts": ("/x",), "files": ("a", "b")}.items():
        assert watch.grown(before, {**before, role: held(*more)}), role
    assert watch.grown(before, {**before, "helper": held(8)})
    assert watch.grown(before, {**before, "twin": held(5, 6, 7, 8)})
    assert not watch.grown(before, {**before, "twin": held(6, 7, 8, fds=99, mib=999)})
    guest = {"guest": held(fds=0)}
    assert not watch.grown(guest, {"guest": held(fds=0, mib=20 + watch.GUEST_MAX)})
    assert watch.grown(guest, {"guest": held(fds=0, mib=20.1 + watch.GUEST_MAX)})


def test_sessions_take_turns(command):
    """Each mode meets each end."""
    session = sys.modules["session"]
    met = {(session.in_turn(n), session.ENDS[n % len(session.ENDS)]) for n in range(24)}
    assert len(met) == len(session.MODES) * len(session.ENDS) and command.options([]).mode is None
    assert len({session.in_turn(n) for n in range(4)}) == 4


def test_the_cell_that_sets_up_is_undone_with_the_others(command):
    """Where copies are dear a failure can undo all cells that there were: then the model begins anew."""
    import world

    line = world.Line(files_too=False)
    line.add(1, 0, None)
    line.now = world.World()
    line.add(2, 1, world.World(n=5))
    line.add(3, 2, world.World(n=6))
    assert line.undo({"undone": [2, 3], "restored_to": 1}) is None and line.now == world.World()
    line.add(4, 3, world.World(n=7))
    assert line.undo({"undone": [1, 4], "restored_to": 0}) is None and line.now is None and not line.entries
    assert line.undo({"undone": [1], "restored_to": 0}) is not None
