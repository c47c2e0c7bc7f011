"""A virtual environment in the workspace, as a cell of an earlier jail may have left it: its links and its pyvenv.cfg
name folders and programs of the home. None of that gets into a jail of it, and what was not followed is said."""

import json
import os
import subprocess
from pathlib import Path

import pytest

import kernels

pytestmark = pytest.mark.cellblock_only
SYSTEM = "/usr/bin/python3"
ROOT = os.geteuid() == 0

# What a cell does to the venv: shell in the workspace, with $H the home and $P python's folder below lib.
TRICKS = {
    "lib64": 'rm -rf venv/lib64; ln -s "$H/.ssh" venv/lib64',
    "lib64 by a relative link": "rm -rf venv/lib64; ln -s ../../.ssh venv/lib64",
    "lib64 to a folder without a dot": 'rm -rf venv/lib64; ln -s "$H/papers" venv/lib64',
    "lib64 by two links": 'rm -rf venv/lib64; ln -s "$H/.ssh" step; ln -s ../step venv/lib64',
    "lib": 'rm -rf venv/lib; ln -s "$H/.ssh" venv/lib',
    "a library of another version": 'ln -s "$H/.ssh" venv/lib/python3.99',
    "site-packages": 'rm -rf "venv/lib/$P/site-packages"; ln -s "$H/.ssh" "venv/lib/$P/site-packages"',
    "lib-dynload": 'ln -s "$H/.ssh" "venv/lib/$P/lib-dynload"',
    "a base that is a folder": 'mkdir h; ln -s "$H/.ssh" h/python3; echo "home = $PWD/h" > venv/pyvenv.cfg',
    "a base that is a program of the user's": 'mkdir h; ln -s "$H/tool" h/python3; '
    'echo "home = $PWD/h" > venv/pyvenv.cfg',
    "the program is a program of the user's": 'ln -sf "$H/tool" venv/bin/python',
    "the program by way of one": 'ln -s "$H/tool" step; ln -sf ../../step venv/bin/python',
    "a base's library": 'mkdir -p h/bin h/lib/$P; ln -s /usr/bin/python3 h/bin/python3; touch h/lib/$P/os.py; '
    'ln -s "$H/.ssh" h/lib64; echo "home = $PWD/h/bin" > venv/pyvenv.cfg',
    "conda's library": 'mkdir venv/conda-meta; rm venv/pyvenv.cfg venv/lib64; ln -s "$H/.ssh" venv/lib64',
    "a .pth": 'echo "$H/.ssh" > "venv/lib/$P/site-packages/x.pth"',
}
LOOK = (
    'for f in "$1/.ssh/id" "$1/papers/id" "$1/tool" "$2/lib64/id" "$2/lib/id" "$2/lib/"*/id "$2/lib/"*/*/id; '
    'do cat "$f"; done'
)


@pytest.fixture
def home(nothing_left, request):
    home = nothing_left / "".join(c if c.isalnum() else "-" for c in request.node.name)
    for name in (".ssh/id", "papers/id", "tool"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("#!/bin/sh\n# the secret\n")
    (home / "tool").chmod(0o755)
    (home / "work").mkdir()
    subprocess.run([SYSTEM, "-m", "venv", "--without-pip", home / "work/venv"], check=True)
    kernels.let_in(home.parent)
    return home


def cellblock(home, *words, user=None):
    program = Path(kernels.spec_argv()[0][0])
    env = {**os.environ, "HOME": str(home)}
    env.pop("VIRTUAL_ENV", None)
    return subprocess.run(
        [program, *words],
        cwd=home / "work",
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        **({"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}),
    )


def play(home, trick):
    python = next((home / "work/venv/lib").glob("python3*")).name
    env = {**os.environ, "H": str(home), "P": python}
    subprocess.run(["sh", "-c", TRICKS[trick]], cwd=home / "work", env=env, check=True)


@pytest.mark.parametrize("who", ["root", "user"] if ROOT else ["user"])
@pytest.mark.parametrize("trick", TRICKS)
def test_nothing_of_the_home_is_shown(home, trick, who, request):
    play(home, trick)
    user = None
    if ROOT and who == "user":
        user = request.getfixturevalue("ordinary_user")
        for d, names, files in os.walk(home):
            for n in [d, *(os.path.join(d, x) for x in names + files)]:
                os.chown(n, user.pw_uid, user.pw_gid, follow_symlinks=False)
    venv = home / "work/venv"
    ran = cellblock(home, "run", "--python", venv / "bin/python", "--", "sh", "-c", LOOK, "sh", home, venv, user=user)
    assert "the secret" not in ran.stdout
    assert ran.returncode in (1, 125), ran.stderr


def test_what_is_not_followed_is_said(home, tmp_path):
    play(home, "lib64")
    python = home / "work/venv/bin/python"
    explained = cellblock(home, "explain", "--python", python)
    assert f"not followed: {home}/work/venv/lib64 leads to {home}/.ssh" in explained.stdout, explained.stderr
    listed = json.loads(cellblock(home, "explain", "--json", "--python", python).stdout)["interpreter"]
    assert [f"{home}/.ssh" in text for text in listed["not_followed"]] == [True]
    installed = cellblock(home, "install", "--prefix", tmp_path, "--python", python)
    assert installed.returncode == 0 and f"leads to {home}/.ssh" in installed.stderr, installed.stderr
    ran = cellblock(home, "run", "--python", python, "--", "true")
    assert ran.returncode == 0 and f"leads to {home}/.ssh" in ran.stderr


def test_a_cell_says_what_is_not_followed(home, start):
    play(home, "lib64")
    argv, _ = kernels.spec_argv()
    client = start(
        argv=[argv[0], "kernel", "--python", str(home / "work/venv/bin/python"), "-f", "{connection_file}"],
        env={"HOME": str(home)},
    ).client
    assert f"leads to {home}/.ssh" in client.run("1").text("stderr")


def test_libraries_of_other_prefixes_are_followed(home):
    """What is honest: a library of another Python's own folder, wherever that lies."""
    other = home / ".pythons/3"
    python = next((home / "work/venv/lib").glob("python3*")).name
    (other / "lib" / python).mkdir(parents=True)
    for name in (f"lib/{python}/os.py", "secret"):
        (other / name).write_text("a library\n")
    os.unlink(home / "work/venv/lib64")
    os.symlink(other / "lib", home / "work/venv/lib64")
    show = 'cat "$1/lib/$2/os.py"; cat "$1/secret"'
    ran = cellblock(
        home, "run", "--python", home / "work/venv/bin/python", "--", "sh", "-c", show, "sh", other, python
    )
    assert ran.stdout == "a library\n", ran.stderr
    assert "leads to" not in ran.stderr
