"""tests/soak/notebooks.py, which runs other people's notebooks here and on ipykernel, sees a difference and no more."""

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

import kernels

pytestmark = pytest.mark.once

TOOL = Path(__file__).parents[1] / "soak/notebooks.py"
SAME = [
    "import sys, time, random\nfor i in range(3): print(i, random.random(), flush=True)",
    "import warnings; warnings.warn('old')\nobject()",
    "1/0",
    "def f(:",
    "from IPython.display import HTML, clear_output, display, Markdown\ndisplay(HTML('<b>x</b>')); Markdown('y')",
    "h = display(1, display_id=True); h.update(2)",
    "print('a'); clear_output(); print('b')",
    "%timeit -n 1 -r 1 pass",
    "%whos",
    "?len",
    "!echo a; echo b",
    "%%bash\necho out; echo err >&2",
    "open('made.txt', 'w').write('x')",
    "input()",
]
# what docs/compared.md lists: a cell, what ipykernel says to it, what is said here
DIFFERS = [
    ("import os; print(os.environ['HOME'] == '/home/user')", "[stdout] False", "[stdout] True"),
    ("%no_such_magic", "[stderr] UsageError", "[error UsageError] UsageError"),
    ("!yes | head -n 1", "[stdout] yes: ", ""),
]
if sys.version_info >= (3, 11):
    said = "[error SyntaxError] SyntaxError: "
    DIFFERS += [("print(1", said + "incomplete input", said + "'(' was never closed")]


def write(path, sources):
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(s) for s in sources]), path)
    return path


@pytest.mark.cellblock_only("the command compares it with ipykernel")
def test_what_differs_is_seen_and_no_more(tmp_path):
    (tmp_path / "project/.git").mkdir(parents=True)
    write(tmp_path / "project/deep/same.ipynb", SAME)
    write(tmp_path / "project/other.ipynb", ["1", *(cell for cell, _, _ in DIFFERS)])
    argv = [sys.executable, TOOL, "--out", tmp_path / "out", "--kernel", kernels.NAME, tmp_path / "project"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    assert "same of  14 cells" in done.stdout, (done, (tmp_path / "out/differences.txt").read_text())
    assert f"{len(DIFFERS)} differ of   {len(DIFFERS) + 1} cells" in done.stdout and done.returncode == 1
    said = (tmp_path / "out/differences.txt").read_text().split("\n\n")
    for number, (cell, theirs, ours) in enumerate(DIFFERS, 2):
        found = said[number - 2].strip().splitlines()
        assert found[0].endswith(f"other.ipynb code cell {number}"), (cell, found)
        assert found[1].startswith(f"  -{theirs}"), (cell, found)
        here = [line for line in found if line.startswith("  +")]
        assert here[0].startswith(f"  +{ours}") if ours else not here, (cell, found)
    assert not (tmp_path / "project/deep/made.txt").exists()
