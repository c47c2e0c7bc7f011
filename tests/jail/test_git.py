"""git in a cell: what docs/policy.md says works, works, and what it says is refused makes and changes nothing."""

import os
import shutil
import subprocess

import pytest

import kernels

pytestmark = [
    pytest.mark.cellblock_only,
    pytest.mark.skipif(not shutil.which("git"), reason="there is no git here"),
]
CELLBLOCK = kernels.spec_argv()[0][0]
NOBODYS = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}

WORKS = """set -ex
export GIT_CONFIG_GLOBAL=/dev/null
git commit -q --allow-empty -m one
git switch -q -c feature
echo b >b; git add b; git commit -q -m two; git switch -q -; git commit -q --allow-empty -m three
git merge -q --no-edit feature
git tag -a -m words t1
echo more >>a; git stash -q; git diff --exit-code; git stash pop -q; git checkout -q a
git cherry-pick --allow-empty --keep-redundant-commits feature >out
echo c >c; git add c; git commit -q -m four; git revert --no-edit HEAD >out; rm out
git reset -q --hard HEAD~1
git gc -q
rm a; git restore a
git fsck --no-progress
"""
REFUSED = [
    "git config a.b c",
    "git init -q new",
    "git init -q --bare bare.git",
    "git clone -q . copy",
    "git worktree add -q other",
    "git branch -q side; git branch -u main side",
    "git bisect start",
    "git rebase -q -f --root",
    "mkdir .git/hooks/x",
    "mv .git git",
    "ln -s a .git/index.lock",
    "mkdir -p x/objects x/refs && echo ref: refs/heads/main >x/HEAD",
]


def closed(folder):
    """What a cell must not have changed, of all repositories here."""
    found = {}
    for top, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(top, name)
            if name in ("config", "description", "commondir", "gitdir") or "/hooks/" in path or "/info/exclude" in path:
                found[path] = open(path, "rb").read()
    return {path: text for path, text in found.items() if "/objects/" not in path}


@pytest.fixture
def work(nothing_left, request):
    folder = nothing_left / request.node.name / "repository"
    folder.mkdir(parents=True)
    for command in ("init -q -b main", "config user.name x", "config user.email x@example.org"):
        subprocess.run(["git", *command.split()], cwd=folder, check=True, env={**os.environ, **NOBODYS})
    (folder / "a").write_text("a")
    for command in ("add a", "commit -q -m first"):
        subprocess.run(["git", *command.split()], cwd=folder, check=True, env={**os.environ, **NOBODYS})
    return folder


def in_a_cell(work, script):
    return subprocess.run(
        [CELLBLOCK, "run", "--", "sh", "-c", script], cwd=work, capture_output=True, text=True, timeout=120, check=False
    )


def test_git_works(work):
    before = closed(work)
    done = in_a_cell(work, WORKS)
    assert done.returncode == 0, done
    assert "Read-only" not in done.stderr, done.stderr
    assert closed(work) == before
    log = subprocess.run(["git", "log", "--oneline"], cwd=work, capture_output=True, text=True, check=True)
    assert "three" in log.stdout and "two" in log.stdout


def test_what_names_programs_is_refused(work):
    before = closed(work)
    tried = "; ".join(f"( {command} ) >/dev/null 2>&1 && echo {n}" for n, command in enumerate(REFUSED))
    done = in_a_cell(work, "export GIT_CONFIG_GLOBAL=/dev/null; " + tried + "; true")
    assert done.returncode == 0 and done.stdout == "", (done, REFUSED)
    after = closed(work)
    assert {path: after.get(path) for path in before} == before
    assert [p for p in after if "/.git/" in p and p not in before] == []
    made = [p for p in work.rglob("*") if all((p / name).exists() for name in ("HEAD", "objects", "refs"))]
    assert made == [work / ".git"]
