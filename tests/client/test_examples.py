"""The programs of examples/client, README's and docs/client.md's lines: they run, and say what they should."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kernels

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
SAYS = {
    "three_lines.py": r"^45$",
    "agent_loop.py": r"(?s)AttributeError.*sum: 4\.7.*CellTimeoutError.*5\.59",
    "host_tools.py": r"(?s)'Dracula', 'Emma'\].*title=\"Dracula\".*2.*ToolRefusedError.*Emma stays.*inside: \[\]",
    "try_plans.py": r"scores \[5, 0, \d\]; the best: result = sorted\(data\); \[1, 2, 3, 5, 8, 9\]",
    "files_and_commands.py": r"(?s)\['1', '2', '3'\].*3 lines.*now: \['numbers.txt'\].*added sorted.txt.*sorted.txt",
    "stream.py": r"(?s)stdout step 0.*variables are kept: True",
    "biomni_tool.py": r"(?s)\('2\\n', '', 0\).*shadow: No such file or directory\\n', 1\)"
                      r".*\('begun\\n', 'longer than 1 s', 124\).*refused: .*left: \[\]",
    "letta_tools.py": r"(?s)Oslo \['one'\] new.*Oslo \['one', 'two'\] same.*Rome \['one', 'two', 'three'\] new.*"
                      r"\('ZeroDivisionError: division by zero', 'error'\)",
    "agent_inside.py": r"(?s)asked: 2 messages.*asked: 5 messages.*says: extraordinary.*'TaskStep', "
                       r"'ActionStep', 'ActionStep'\]",
}


def run(code, folder):
    kernels.let_in(folder)
    done = subprocess.run(
        [sys.executable, *code], cwd=folder, capture_output=True, text=True, timeout=240,
        env={**os.environ, "CELLBLOCK_POLICY": "", "TMPDIR": os.fspath(folder)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("file", sorted((ROOT / "examples/client").glob("*.py")), ids=lambda f: f.name)
def test_example(file, nothing_left):
    for module in re.findall(r"(?m)^from (smolagents) import", file.read_text()):
        pytest.importorskip(module, reason=f"{module} needs Python 3.11 here")
    assert len(file.read_text().splitlines()) < 40
    assert re.search(SAYS[file.name], run([file], nothing_left / file.stem))


def blocks(file):
    return re.findall(r"```python\n(.*?)```", (ROOT / file).read_text(encoding="utf-8"), re.S)


def test_readme(nothing_left):
    code, = (b for b in blocks("README.md") if "cellblock" in b)
    assert len(code.splitlines()) == 3 and run(["-c", code], nothing_left / "readme") == "[1, 4, 9]\n"
    assert len(blocks("clients/python/README.md")) == 1
    assert run(["-c", blocks("clients/python/README.md")[0]], nothing_left / "package") == "[1, 4, 9]\n"


def test_docs(nothing_left):
    """Each example of the page goes on from the one before, in one program."""
    code = "\n".join(b for b in blocks("docs/client.md") if "# not run here" not in b)
    assert run(["-c", code], nothing_left / "docs").endswith("the end\n")
