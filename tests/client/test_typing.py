"""The package is typed: mypy --strict has nothing to say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "clients/python"


@pytest.mark.once
@pytest.mark.timeout(1600)  # half a minute of computing
def test_mypy_strict():
    pytest.importorskip("mypy")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, "--config-file", "pyproject.toml"],
        cwd=PACKAGE, capture_output=True, text=True, timeout=1500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
