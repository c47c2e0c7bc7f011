"""Programs outside work in the workspace, as people do all day, while cells do whatever they can to it: nothing of the
cells' gets to a protected name, and nothing of the programs' out of the workspace.
"""

import os
import shutil
import subprocess
import time

import pytest

import nameslab
from nameslab import PYTHON, halves

pytestmark = [pytest.mark.cellblock_only, pytest.mark.timeout(900)]
MOMENT = 1.5  # a save that has taken longer may have been seen, as docs say

# What is done outside, in the workspace; a last word that is a name is saved by way of another one.
WORK = {
    "git config": "git config cb.one HOST; git config --unset cb.one",
    "git commit": "echo HOST >> file; git add file; git commit -q -m m; git commit -q --amend -m n",
    "git checkout": "git checkout -q -f without; git checkout -q -f with",
    "git switch": "git switch -q -f -c new$N; git switch -q -f with; git branch -q -D new$N",
    "git rebase": "git checkout -q -f without; git rebase -q with; git rebase --abort; git checkout -q -f with",
    "git stash": "echo HOST > .envrc; git stash -q; git stash pop -q; git checkout -q -f .",
    "git cherry-pick": "git cherry-pick with~1..with; git cherry-pick --abort; git reset -q --hard with",
    "git merge": "git merge -q -m m without; git merge --abort",
    "git revert": "git revert --no-edit HEAD; git reset -q --hard HEAD~1",
    "git bisect": "git bisect start HEAD HEAD~1; git bisect reset",
    "git am": "git format-patch -q -1 --stdout > ../p; git reset -q --hard HEAD~1; git am -q ../p; git am --abort",
    "git worktree": "git worktree add -q tree$N without; echo HOST > tree$N/.envrc; git worktree remove -f tree$N",
    "git submodule": "git -c protocol.file.allow=always submodule --quiet add -f ../other module$N;"
    " git reset -q --hard",
    "git clone": "git clone -q ../other clone$N; echo HOST > clone$N/.envrc; git -C clone$N config cb.x HOST",
    "git init": "git init -q repo$N; echo HOST > repo$N/.git/hooks/pre-commit",
    "git gc": "git gc -q; git reflog expire --all; git prune",
    "git clean": "git clean -q -f -d -e 'cell-*' -e stop -e venv sub",
    "git restore": "rm -rf .vscode; git restore .vscode; git checkout -q -f with -- .envrc",
    "sed .envrc": "sed -i s/^.*/HOST/ .envrc",
    "perl venv/bin/activate": "perl -i -pe s/^.*/HOST/ venv/bin/activate",
    "patch .pre-commit-config.yaml": "cp .pre-commit-config.yaml ../a; sed s/^/HOST/ ../a > ../b;"
    " diff -u ../a ../b > ../d; patch -s .pre-commit-config.yaml ../d",
    "vim .vscode/settings.json": "vim -u NONE -es -c '%s/.*/HOST/' -c wq .vscode/settings.json",
    "vim with a backup .envrc": "vim -u NONE -es -c 'set backup bkc=no' -c '%s/.*/HOST/' -c wq .envrc",
    "install": "echo HOST > ../t; install -m 755 ../t .git/hooks/pre-commit",
    "tee": "echo HOST | tee .idea/workspace.xml sub/.envrc",
    "tar": "tar xf ../all.tar; tar xf ../all.tar -C d",
    "cp -a": "cp -a ../copy/. .; cp -a --remove-destination ../copy d/copy$N",
    "rsync": "rsync -a ../copy/ .",
    "mv of a parent": "mv -T sub sub2; mv -T sub2 sub",
    "python -m venv": f"{PYTHON} -m venv --without-pip env$N",
    "venv again": f"{PYTHON} -m venv --without-pip --upgrade venv",
    "pip into a venv": "cd venv/lib/python3/site-packages && mkdir -p new$N && echo HOST > n$N.pth &&"
    " mv n$N.pth m$N.pth; echo HOST > ../../../bin/tool$N",
    "conda": "mkdir -p conda$N/conda-meta; echo HOST > conda$N/conda-meta/history; mkdir conda$N/bin;"
    " echo HOST > conda$N/bin/activate; echo HOST > conda$N/bin/python3",
    "npm": "mkdir -p node_modules/.p-$N/bin; echo HOST > node_modules/.p-$N/package.json;"
    " mv -T node_modules/.p-$N node_modules/p; ln -sf ../p/bin node_modules/.bin; echo HOST > .npmrc",
    "jupyter": "echo '{}' > .~n.ipynb; mv .~n.ipynb n.ipynb; mkdir -p .ipynb_checkpoints;"
    " cp n.ipynb .ipynb_checkpoints/n-checkpoint.ipynb",
    "editors": "echo HOST > .envrc~; ln -sf me@here.1 .#x; echo HOST > d/.x.swp; rm -f .#x",
    "husky": "mkdir -p .husky/_; echo HOST > .husky/pre-commit; git config core.hooksPath .git/hooks",
}
BY_NAME = {".vscode", ".idea", ".envrc", ".husky", ".claude", ".mcp.json", "sitecustomize.py", "site-packages", ".hg"}
BY_NAME |= {".pre-commit-config.yaml", "pyvenv.cfg", "conda-meta", "lefthook.yml", ".npmrc"}
GIT_DATA = {"objects", "refs", "logs", "index", "HEAD", "ORIG_HEAD", "FETCH_HEAD", "packed-refs", "COMMIT_EDITMSG"}
GIT_DATA |= {"MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "AUTO_MERGE", "CHERRY_PICK_HEAD", "REVERT_HEAD", "SQUASH_MSG"}
TOOLS = {"activate", "python", "python3", "pip"}


def is_protected(name):
    """A second opinion: of a path from the workspace."""
    parts = name.split("/")
    for i, part in enumerate(parts):
        if part in BY_NAME or (part in TOOLS and i > 0 and parts[i - 1] == "bin") or (part == "venv" and i == 0):
            return True
        if part == ".git":
            rest = parts[i + 1 :]
            return not rest or not (rest[0].removesuffix(".lock") in GIT_DATA or rest[0] in ("modules", "worktrees"))
    return False


def furnish(lab):
    lab.furnish()
    (lab.work / ".git/info/exclude").write_text("cell-*\nstop\n")
    lab.put("d/x")
    lab.put("d/y/z")
    lab.put("sub/data")
    for name in (".envrc", ".vscode/settings.json", "d/x", "d/.envrc", "plain"):
        path = lab.folder / "copy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("HOST\n")
    (lab.folder / "outside").mkdir()
    (lab.folder / "outside/kept").write_text("HOST\n")
    lab.give()
    lab.host("tar", "cf", "../all.tar", "-C", "../copy", ".")
    lab.host("git", "init", "-q", lab.folder / "other")
    lab.host("git", "commit", "-q", "--allow-empty", "-m", "m", cwd=lab.folder / "other")


def work(lab, times):
    """All of it, some times; names that were saved so slowly that a cell may have got hold of what became them."""
    slow = set()
    for n in range(times):
        for what, command in WORK.items():
            if not shutil.which(command.split()[0]):
                continue
            began = time.monotonic()
            lab.host("sh", "-c", command + "; true", env={**lab.env, "N": str(n), "GIT_EDITOR": "true"})
            if time.monotonic() - began > MOMENT:
                slow.add(what.split()[-1])
                if what == "rsync":  # which saves each of these by way of another name
                    copied = lab.folder / "copy"
                    slow |= {str(path.relative_to(copied)) for path in copied.rglob("*")}
    return slow


def found(lab):
    """Every entry of the workspace that is protected, and what is wrong with it."""
    names, faults = set(), []
    for folder, folders, files in os.walk(lab.work):
        for n in folders + files:
            path = os.path.join(folder, n)
            name = os.path.relpath(path, lab.work)
            if name.split("/")[0].startswith("cell-"):
                continue  # moved there, if by a cell
            if not is_protected(name):
                continue
            names.add(name)
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            with open(path, "rb") as f:
                if nameslab.MARK in f.read(1 << 20):
                    faults.append(f"{name} has bytes of the cell")
            if os.lstat(path).st_nlink > 1 and ".git/objects" not in name:
                faults.append(f"{name} has another name")
    return names, faults


def beside(lab, times, start):
    """The work while attackers roam; what of it was slow, and what they say."""
    roaming = [start("1"), start("2")]
    for seed, cell in enumerate(roaming, 1):
        lab.until(f"cell-ready{seed}", cell)
    slow = work(lab, times)
    (lab.work / "stop").touch()
    said = []
    for cell in roaming:
        out, err = cell.communicate(timeout=300)
        assert cell.returncode == 0 and "ROUNDS" in out, (out, err[-2000:])
        said.append(out)
    return slow, said


@pytest.mark.once
@halves("root", "root without cgroups")
def test_the_attack_counts(lab):
    """Without a jail it wins in many ways."""
    furnish(lab)
    roam = [PYTHON, nameslab.HERE / "roam.py", "stop"]
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": lab.work, **lab.who()}
    beside(lab, 3, lambda seed: subprocess.Popen([*roam, seed, "1"], **how))
    names, faults = found(lab)
    assert len(faults) > 5 and any("another name" in f for f in faults), (len(names), faults)


@halves("root without cgroups")
def test_a_day_of_work_beside_hostile_cells(lab):
    furnish(lab)
    lab.put("cell-roam.py", (nameslab.HERE / "roam.py").read_text())
    lab.give()
    slow, said = beside(lab, 2, lambda seed: lab.start(PYTHON, "cell-roam.py", "stop", seed, "4"))
    faults = [f for f in found(lab)[1] if not any(f.startswith(name + " ") for name in slow)]
    assert not faults, (len(faults), faults[:20], said, slow)
    assert os.listdir(lab.folder / "outside") == ["kept"]
    assert (lab.folder / "outside/kept").read_text() == "HOST\n"
    mine = {"work", "copy", "outside", "other", "all.tar", "p", "a", "b", "d", "t"}
    assert set(os.listdir(lab.folder)) <= mine | {".viminfo", ".cache", ".local"}, os.listdir(lab.folder)
