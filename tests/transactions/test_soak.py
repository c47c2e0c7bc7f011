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
