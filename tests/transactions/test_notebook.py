"""A bad notebook, run by unmodified nbclient with allow_errors: it reaches its end with its variables.

With mode `auto` cells share a twin only where the kernel's log says that one more would be dear: what an error says is
undone is undone, and nothing else.
"""

import re

import nbformat
import pytest
from kernels import NAME
from session_state import BAD_LIMITS, bad_notebook, without_a_twin

pytestmark = [pytest.mark.cellblock_only("transactions"), pytest.mark.once]


def undone(cell):
    """The numbers that a cell's error names."""
    said = [out["evalue"] for out in cell.outputs if out.output_type == "error"]
    assert len(said) == 1 and "as they were before cell" in said[0], cell
    many = re.search(r"cells \[(\d+)\] to \[(\d+)\] are undone", said[0])
    one = re.search(r"before cell \[(\d+)\]", said[0])
    return range(int(many[1]), int(many[2]) + 1) if many else [int(one[1])]


@pytest.mark.parametrize("mode", ["always", "auto"])
def test_bad_notebook(tmp_path, mode, monkeypatch, capfd):
    from nbclient import NotebookClient

    monkeypatch.setenv("CELLBLOCK_LOG", "info")
    cells = bad_notebook()
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code, _ in cells])
    sets = {**BAD_LIMITS, "transactions.mode": mode}
    client = NotebookClient(
        notebook,
        kernel_name=NAME,
        allow_errors=True,
        timeout=120,
        resources={"metadata": {"path": str(tmp_path)}},
        extra_arguments=[word for key, value in sets.items() for word in ("--set", f"{key}={value}")],
    )
    client.execute()
    assert [cell.execution_count for cell in notebook.cells] == list(range(1, len(cells) + 1))
    nbformat.validate(notebook)
    dear, gone = without_a_twin(capfd.readouterr().err), set()
    for cell, (_, fails) in zip(notebook.cells, cells):
        more = set(undone(cell)) if fails else set()
        gone |= more
        assert more - {cell.execution_count} <= dear, (cell, dear)
    log = [n for n in range(0, len(cells) - 1, 2) if n + 1 not in gone]
    assert notebook.cells[-1].outputs[0].get("text") == f"{log}\n", notebook.cells[-1].outputs
    assert mode == "auto" or 2 * len(log) == len(cells) - 1
