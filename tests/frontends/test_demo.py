"""What ./demo shows: its notebook in the jail, and that what is not as it should be there is told."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

import kernels

pytestmark = [pytest.mark.cellblock_only("attempts to escape, and a crash"), pytest.mark.once]

ROOT = Path(__file__).parents[2]
CRASH = "Python exited with status 3; all variables are as they were before cell "
SAID = {
    "[10]; files in the workspace stay as they are": None,
    "[10]; 2 messages of widgets are undone; what did not come back: 1 thread": None,
    "[5]; cells [5] to [10] are undone": "alone",
    "[9]; cells [9] to [10] are undone; what did not come back: 1 thread": "alone",
    "[10]; 1 cell without a number is undone": "alone",
    "[9]": "alone",
}


@pytest.mark.timeout(600)
def test_it_runs_as_it_should(tmp_path):
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    env["CELLBLOCK_DEMO_KERNEL"] = kernels.NAME
    argv = [sys.executable, ROOT / "tools/run_demo.py", tmp_path]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0 and "The notebook ran as it should." in done.stdout, done.stdout + done.stderr
    cells = nbformat.read(tmp_path / "notebook.ipynb", as_version=4).cells
    assert done.stdout.count("ok    [") == len([c for c in cells if c.cell_type == "code"]), done.stdout
    assert "GOT THROUGH" not in done.stdout and (tmp_path / "notebook.html").stat().st_size > 10000


@pytest.mark.parametrize("words", SAID)
def test_cells_that_a_crash_takes_with_it(words, monkeypatch):
    """Only the one that crashed may be undone."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import run_demo

    notebook = nbformat.read(run_demo.TOUR, as_version=4)
    cell = next(c for c in notebook.cells if c.metadata.get("demo", {}).get("error") == "KernelDiedError")
    cell.execution_count = 10
    cell.outputs = [nbformat.v4.new_output("error", ename="KernelDiedError", evalue=CRASH + words, traceback=[])]
    fault = run_demo.check(cell)
    assert (fault is None) == (SAID[words] is None) and (SAID[words] or "") in (fault or ""), fault
