"""The frameworks' own tests, run with our adapters in place of theirs.

They are not ours to keep, so each wants a checkout of its framework: CELLBLOCK_JUDGE_DSPY=~/dspy, …_FASTMCP, …_AGENTS
(openai-agents-python). tests/lib/judge_*.py say which of them run, and which are expected to fail, with the reason.
"""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

LIB = Path(__file__).parents[1] / "lib"


@pytest.mark.parametrize("name", ["agents", "dspy", "fastmcp"])
def test_the_frameworks_own_tests(name, capsys):
    checkout = os.environ.get(f"CELLBLOCK_JUDGE_{name.upper()}")
    if not checkout:
        pytest.skip(f"no checkout is given: CELLBLOCK_JUDGE_{name.upper()}")
    judge = importlib.import_module(f"judge_{name}")
    argv = [sys.executable, "-m", "pytest", "-q", "-rfEx", "-o", "addopts=", "-p", f"judge_{name}"]
    argv += ["-p", "no:cacheprovider", *judge.OPTIONS, *judge.FILES]
    done = subprocess.run(argv, cwd=checkout, env={**os.environ, "PYTHONPATH": str(LIB)}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    with capsys.disabled():
        print(f"\n{name}: {done.stdout.splitlines()[-1]}")
    assert done.returncode == 0, done.stdout[-20000:]
