"""What several files of attacks on names start from: see lib/nameslab.py."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

import nameslab


@pytest.fixture
def lab(request, nothing_left):
    """A folder with the host's files and a way of starting jails in it; the parameter is one of nameslab.halves()."""
    user = request.getfixturevalue("ordinary_user") if request.param == "user" and nameslab.ROOT else None
    # Not below pytest's folder: it keeps those of the last three runs, and these are full of junk.
    folder = tempfile.mkdtemp(prefix="cb-names-")
    lab = nameslab.Lab(Path(folder) / "lab", request.param, user)
    os.chmod(folder, 0o755)
    yield lab
    lab.end()
    shutil.rmtree(folder, ignore_errors=True)
