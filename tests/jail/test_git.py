"""git in a cell: what docs/policy.md says works, works, and what it says is refused makes and changes nothing."""

import os
import shutil
import subprocess

import pytest

import gitindex
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
git checkout -q -b other; mkdir d; echo 1 >d/x; echo 1 >d/y; git add .; git commit -q -m five
git mv d/x d/z; git rm -q d/y; git commit -q -a -m six; test -f d/z
echo 2 >d/z; echo 2 >a; git commit -q -m seven a; git diff --cached --exit-code; git reset -q --hard
git checkout -q feature; echo theirs >a; git commit -q -a -m nine
git checkout -q other; ! git merge -q feature >out; echo both >a; git add a; git commit -q -m ten; rm out
git stash list; echo new >untracked; git stash -q -u; test ! -e untracked; git stash pop -q; rm untracked
git update-index --index-version 4; echo 4 >d/v4; git add .; git commit -q -m eleven
git reset -q HEAD~1; git checkout -q -f; git read-tree HEAD; rm .git/index; git reset -q --hard
git tag t2; git tag -d t2 >out; rm out; git switch -q -c gone; git switch -q -; git pack-refs --all
git notes add -m words; git checkout -q --detach; git switch -q other
git update-ref refs/heads/deep/x HEAD; git update-ref -d refs/heads/deep/x; git update-ref refs/heads/deep HEAD
git symbolic-ref refs/heads/link refs/heads/deep; git symbolic-ref -d refs/heads/link
git fetch -q . other:fetched; git fetch -q . feature; git merge -q --no-edit -s ours FETCH_HEAD
echo 3 >a; git stash -q; git stash drop -q; git commit -q --amend --no-edit --allow-empty
git reflog expire --all --expire=now; git repack -q -a -d; git gc -q --prune=now
git -c index.threads=2 update-index --force-write-index; git update-index --force-untracked-cache
git fsck --no-progress
"""
REFUSED = [
    "git config a.b c",
    "echo more >>a; echo y | git commit -q -p -m words",
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


@pytest.fixture(scope="module")
def repository(nothing_left):
    """What each test has a copy of."""
    folder = nothing_left / "repository"
    folder.mkdir()
    for command in ("init -q -b main", "config user.name x", "config user.email x@example.org"):
        subprocess.run(["git", *command.split()], cwd=folder, check=True, env={**os.environ, **NOBODYS})
    (folder / "a").write_text("a")
    for command in ("add a", "commit -q -m first"):
        subprocess.run(["git", *command.split()], cwd=folder, check=True, env={**os.environ, **NOBODYS})
    return folder


@pytest.fixture
def work(nothing_left, repository, request):
    return shutil.copytree(repository, nothing_left / request.node.name / "repository", symlinks=True)


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


# ---- what an index may say ----

HOOK = "#!/bin/sh\ntouch hooked\n"
# What follows runs in the cell: x.good and x.bad are indexes, `lock` and `index` their places.
PRELUDE = """
import os, sys, threading, time
git = sys.argv[1]
good, bad = open("x.good", "rb").read(), open("x.bad", "rb").read()
index, lock = git + "/index", git + "/index.lock"
def write(path, data, flags=os.O_CREAT | os.O_WRONLY | os.O_TRUNC):
    fd = os.open(path, flags, 0o644)
    os.write(fd, data)
    return fd
"""
WAYS = {
    "in place": "os.close(write(index, bad, os.O_WRONLY))",
    "made": "os.remove(index); os.close(write(index, bad, os.O_CREAT | os.O_EXCL | os.O_WRONLY))",
    "rename": "os.close(write(lock, bad)); os.rename(lock, index)",
    "rename of another": "os.rename('x.bad', index)",
    "rename of another in the folder": "os.close(write(git + '/MERGE_MSG', bad)); os.rename(git + '/MERGE_MSG', index)",
    "link": "os.close(write(lock, bad)); os.remove(index); os.link(lock, index)",
    "a second name": "os.link(index, git + '/MERGE_MSG'); os.close(write(git + '/MERGE_MSG', bad, os.O_WRONLY))",
    "moved and back": "os.rename(index, git + '/MERGE_MSG'); os.close(write(git + '/MERGE_MSG', bad, os.O_WRONLY));"
    "os.rename(git + '/MERGE_MSG', index)",
    "descriptor": "fd = write(lock, good); os.rename(lock, index); os.ftruncate(fd, 0); os.pwrite(fd, bad, 0)",
    "own descriptor again": "fd = os.open(index, os.O_RDONLY);"
    "os.close(write(f'/proc/self/fd/{fd}', bad, os.O_WRONLY))",
    "a lock's second name": "os.close(write(lock, good)); os.link(lock, git + '/MERGE_MSG'); os.rename(lock, index);"
    "os.close(write(git + '/MERGE_MSG', bad))",
    "a link": "os.symlink('../x.bad', lock); os.rename(lock, index)",
    "a node": "os.remove(index); os.mknod(index, 0o100644)",
    "a node for a lock": "os.mknod(lock, 0o100644); fd = write(lock, bad, os.O_WRONLY); os.rename(lock, index)",
}
# To and fro, as fast as it goes, while the file is made an index again and again.
RACE = """
stop = False
def swap():
    while not stop:
        for data in (bad, good):
            try:
                os.pwrite(fd, data, 0)
            except OSError:
                pass
fd = write(lock, good)
thread = threading.Thread(target=swap, daemon=True); thread.start()
for _ in range(300):
    try:
        os.rename(lock, index)
    except OSError:
        os.remove(lock)
    assert b".git/hooks" not in open(index, "rb").read()
    fd, old = write(lock, good), fd
    os.close(old)
stop = True
thread.join()
"""
# Git outside has made the lock, and renames it when it is done.
OTHERS_LOCK = {
    "written": "write(lock, bad)",
    "cut": "os.truncate(lock, 0)",
    "replaced": "os.remove(lock); write(lock, bad)",
    "renamed over": "os.rename('x.bad', lock)",
    "moved": "os.rename(lock, index)",
    "linked": "os.link(lock, git + '/MERGE_MSG'); write(git + '/MERGE_MSG', bad)",
}


def git(work, *arguments, **more):
    return subprocess.run(
        ["git", *arguments], cwd=work, env={**os.environ, **NOBODYS}, capture_output=True, check=True, **more
    ).stdout


@pytest.fixture
def crafted(work):
    """x.good, x.bad: an index as it should be, and one that makes git write a hook."""
    oid = git(work, "hash-object", "-w", "a").decode().strip()
    hook = git(work, "hash-object", "-w", "--stdin", input=HOOK.encode()).decode().strip()
    (work / "x.good").write_bytes(gitindex.index([("a", oid)]))
    (work / "x.bad").write_bytes(gitindex.index([(".git/hooks/post-checkout", hook, {"mode": 0o100755}), ("a", oid)]))
    return work


def what_the_host_does(work):
    """Afterwards, with whatever is there; whether a hook has come and run."""
    for _ in range(2):
        subprocess.run(["git", "checkout", "-f", "."], cwd=work, env={**os.environ, **NOBODYS}, check=False)
        subprocess.run(["git", "checkout", "-f"], cwd=work, env={**os.environ, **NOBODYS}, check=False)
    return (work / "hooked").exists() or (work / ".git/hooks/post-checkout").exists()


def in_python(work, script, folder=".git"):
    return subprocess.run(
        [CELLBLOCK, "run", "--", "/usr/bin/python3", "-c", PRELUDE + script, folder],
        cwd=work,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("way", ["in place", "rename"])
def test_a_crafted_index_is_believed_outside(crafted, way):
    subprocess.run(["/usr/bin/python3", "-c", PRELUDE + WAYS[way], ".git"], cwd=crafted, check=True)
    assert what_the_host_does(crafted)


@pytest.mark.parametrize("way", WAYS)
def test_no_way_to_a_crafted_index(crafted, way):
    done = in_python(crafted, WAYS[way])
    assert way == "descriptor" or "Read-only file system" in done.stderr, done
    assert not what_the_host_does(crafted), done
    (crafted / ".git/index.lock").unlink(missing_ok=True)
    done = in_python(crafted, "os.close(write(lock, good)); os.rename(lock, index)")
    assert done.returncode == 0 and (crafted / ".git/index").read_bytes() == (crafted / "x.good").read_bytes(), done


def test_no_moment_of_a_crafted_index(crafted):
    done = in_python(crafted, RACE)
    assert done.returncode == 0, done
    assert not what_the_host_does(crafted)


@pytest.mark.parametrize("way", OTHERS_LOCK)
def test_a_lock_that_git_outside_has_made(crafted, way):
    lock = crafted / ".git/index.lock"
    lock.write_bytes((crafted / "x.good").read_bytes())
    done = in_python(crafted, OTHERS_LOCK[way])
    assert "Read-only file system" in done.stderr, done
    assert lock.read_bytes() == (crafted / "x.good").read_bytes()
    lock.rename(crafted / ".git/index")
    assert not what_the_host_does(crafted)


@pytest.mark.parametrize("way", ["in place", "rename", "descriptor"])
@pytest.mark.parametrize("kind", ["worktree", "submodule", "bare"])
def test_indexes_of_worktrees_submodules_and_bare_ones(crafted, kind, way):
    other = crafted.parent / "other"
    if kind == "worktree":
        git(crafted, "worktree", "add", "-q", "-b", "side", "tree")
        folder = ".git/worktrees/tree"
    elif kind == "submodule":
        git(crafted, "clone", "-q", ".", other)
        git(crafted, "-c", "protocol.file.allow=always", "submodule", "add", "-q", other, "tree")
        folder = ".git/modules/tree"
    else:
        git(crafted, "clone", "-q", "--bare", ".", "tree")
        folder = "tree"
        shutil.copy(crafted / "x.good", crafted / "tree/index")
    before = (crafted / folder / "index").read_bytes()
    done = in_python(crafted, WAYS[way], folder)
    assert way == "descriptor" or "Read-only file system" in done.stderr, done
    after = (crafted / folder / "index").read_bytes()
    assert after == ((crafted / "x.good").read_bytes() if way == "descriptor" else before)
    if kind != "bare":
        (crafted / folder / "index.lock").unlink(missing_ok=True)
        script = "export GIT_CONFIG_GLOBAL=/dev/null; cd tree && git reset -q --hard && echo 1 >new && git add . && "
        done = in_a_cell(crafted, script + "git -c user.name=x -c user.email=x@example.org commit -q -m inside")
        assert done.returncode == 0, done


@pytest.fixture
def overlay(start, crafted):
    kernel = start(argv=kernels.system_argv("workspace.mode=overlay"), workspace=crafted)

    def commit(code):
        assert kernel.client.run(PRELUDE.replace("sys.argv[1]", "'.git'") + code).ok
        c = kernel.client
        return c.reply(c.send("cellblock_file_request", {"op": "commit"}, channel="control"), "control").content

    return commit


def test_a_crafted_index_is_not_committed(overlay, crafted):
    before = (crafted / ".git/index").read_bytes()
    content = overlay("os.link(index, 'second'); write(index, bad); write(lock, bad)")
    reasons = {e["path"]: e.get("reason", "") for e in content["changes"] if e["change"] == "skipped"}
    assert set(reasons) == {".git/index", ".git/index.lock"} and ".git" in reasons[".git/index"], content
    assert (crafted / ".git/index").read_bytes() == before
    assert sorted(p.name for p in (crafted / ".git").iterdir() if p.name.startswith(("index", ".cell"))) == ["index"]
    assert not what_the_host_does(crafted)


def test_an_index_is_committed(overlay, crafted):
    content = overlay("write(lock, good); os.rename(lock, index); os.link(index, 'second')")
    assert {"change": "modified", "path": ".git/index"}.items() <= next(
        e for e in content["changes"] if e["path"] == ".git/index"
    ).items(), content
    assert (crafted / ".git/index").read_bytes() == (crafted / "x.good").read_bytes()
    assert (crafted / ".git/index").stat().st_nlink == 1 and (crafted / "second").stat().st_nlink == 1


def test_another_object_format(crafted):
    work = crafted.parent / "other"
    subprocess.run(["git", "init", "-q", "--object-format=sha256", work], check=True, env={**os.environ, **NOBODYS})
    shutil.copy(crafted / "x.good", work / "x.good")
    shutil.copy(crafted / "x.good", work / "x.bad")
    done = in_python(work, WAYS["rename"])
    assert "Read-only file system" in done.stderr and not (work / ".git/index").exists(), done


def test_times_stay(crafted):
    """Git takes a file that changed when its index was written for changed; so the index keeps its time."""
    script = "os.close(write(lock, good)); os.utime(lock, ns=(5, 1234567890)); os.chmod(lock, 0o640);"
    done = in_python(crafted, script + "os.rename(lock, index)")
    assert done.returncode == 0, done
    st = (crafted / ".git/index").stat()
    assert (st.st_mtime_ns, st.st_mode & 0o777) == (1234567890, 0o640)
    assert not (crafted / ".git/index.lock").exists()
