"""Names that a cell chose, printed by our commands and under cells: a terminal shows them and obeys nothing in them."""

import json
import os
import subprocess
from pathlib import Path

import pytest

import kernels

pytestmark = pytest.mark.cellblock_only
# a title and a clear screen; the same in one character (C1); turned text; nothing to see; a line of one's own
EVIL = "a\x1b]0;x\x07\x1b[2J\x9b2J\u202egpj.\u2066\u200b\ncellblock: all is well"
SHOWN = (
    "a\\x1b]0;x\\x07\\x1b[2J\\xc2\\x9b2J\\xe2\\x80\\xaegpj."
    "\\xe2\\x81\\xa6\\xe2\\x80\\x8b\\x0acellblock: all is well"
)


def cellblock(*words, home="/nonexistent", **how):
    program = kernels.spec_argv()[0][0]
    env = {**os.environ, "HOME": str(home)}
    return subprocess.run([program, *map(str, words)], env=env, capture_output=True, timeout=60, **how)


def harmless(done):
    for out in (done.stdout, done.stderr):
        text = out.decode()
        assert not [c for c in text if (c < " " and c != "\n") or "\x7f" <= c < "\xa0" or c in "\u202e\u2066\u200b"]
        assert "\ncellblock: all is well" not in text
    return (done.stdout + done.stderr).decode()


@pytest.fixture
def work(nothing_left, request):
    folder = nothing_left / request.node.name / EVIL
    folder.mkdir(parents=True)
    return folder


def test_run_names_the_workspace(work):
    """One that can't be one: what it is instead is said with its name."""
    assert SHOWN in harmless(cellblock("run", "--", "true", cwd=work, home=work))


def test_run_passes_the_commands_own_output_through(work):
    done = cellblock("run", "--", "printf", r"\033[2J", cwd=work)
    assert done.stdout == b"\x1b[2J"


def test_errors_quote_names(work):
    assert SHOWN in harmless(cellblock("run", "--", EVIL, cwd=work))
    assert SHOWN in harmless(cellblock("run", "--set", f"workspace.path={work}/none", "--", "true"))
    assert SHOWN in harmless(cellblock("explain", "--policy", work / "none.json"))
    assert SHOWN in harmless(cellblock("install", "--python", work / "none"))
    assert SHOWN in harmless(cellblock("audit", work / "none"))


def test_explain(work):
    words = ["--python", "/usr/bin/python3", "--workspace", work]
    assert SHOWN in harmless(cellblock("explain", *words)).replace("\n", "")
    done = cellblock("explain", "--json", *words)
    harmless(done)
    assert json.loads(done.stdout)["policy"]["keys"]["workspace.path"] == str(work)


def test_install(tmp_path):
    name = EVIL.replace("\n", "")  # a .pth has a line for each
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    site = next((tmp_path / "venv/lib").glob("python3*/site-packages"))
    (tmp_path / name).mkdir()
    (site / "x.pth").write_text(f"{tmp_path}/{name}\n")
    done = cellblock("install", "--prefix", tmp_path, "--python", tmp_path / "venv/bin/python")
    assert SHOWN.replace("\\x0a", "") in harmless(done) and done.returncode == 0, done.stderr


def test_changes_commit_and_discard(start):
    argv, _ = kernels.spec_argv()
    k = start(argv=[*argv, "--set", "workspace.mode=overlay"])
    k.client.run(f"import os\nos.makedirs({EVIL!r})\nopen({EVIL!r} + '/f', 'w').write('x')")
    for command in ("changes", "commit"):
        assert SHOWN + "/f" in harmless(cellblock(command, "--kernel", k.file))
    assert (Path(k.workspace) / EVIL / "f").read_text() == "x"
    k.client.run(f"open({EVIL!r} + '/f', 'w').write('y')")
    done = cellblock("changes", "--json", "--kernel", k.file)
    harmless(done)
    assert EVIL + "/f" in [e["path"] for e in json.loads(done.stdout)["changes"]]


def test_what_the_kernel_says_under_cells(start, work):
    client = start(workspace=work, env={"HOME": str(work)}).client
    said = client.run("1").text("stderr")
    assert SHOWN in said and not set(said) & set("\x1b\x9b\u202e\u2066\u200b")
