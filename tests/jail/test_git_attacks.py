"""What a cell writes into a repository cannot steer git outside: references, the trees of an index, and a bare
repository that is yet to come.

Attacks are tried without a jail first, where they succeed."""

import os
import shutil
import subprocess
import zlib

import pytest

import gitindex
import kernels

pytestmark = [
    pytest.mark.cellblock_only,
    pytest.mark.skipif(not shutil.which("git"), reason="there is no git here"),
]
CELLBLOCK = kernels.spec_argv()[0][0]
PYTHON = "/usr/bin/python3"
ENV = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}


def git(work, *arguments, check=True, **more):
    return subprocess.run(["git", *arguments], cwd=work, env=ENV, capture_output=True, check=check, **more)


@pytest.fixture(scope="module")
def repository(nothing_left):
    """What each test has a copy of."""
    folder = nothing_left / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "user.name", "x")
    git(folder, "config", "user.email", "x@example.org")
    (folder / "a").write_text("a\n")
    git(folder, "add", "a")
    git(folder, "commit", "-q", "-m", "first")
    git(folder, "branch", "side")
    hook = folder / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    return folder


@pytest.fixture
def work(nothing_left, repository, request):
    folder = nothing_left / str(zlib.crc32(request.node.name.encode())) / "repository"
    return shutil.copytree(repository, folder, symlinks=True)


def outside(work, script, *arguments):
    """What the cell does, without a jail."""
    return subprocess.run(
        [PYTHON, "-c", script, *arguments], cwd=work, capture_output=True, text=True, timeout=120, check=False
    )


def inside(work, script, *arguments):
    argv = [CELLBLOCK, "run", "--python", PYTHON, "--", PYTHON, "-c", script, *arguments]
    return subprocess.run(argv, cwd=work, capture_output=True, text=True, timeout=120, check=False)


def closed(work):
    """What no cell may change, also beside the repository: all but objects, references, logs and a commit's."""
    found = {}
    for top, _, names in os.walk(work.parent):
        for name in names:
            path = os.path.join(top, name)
            inner = os.path.relpath(path, work / ".git")
            if inner.startswith("../") and not inner.startswith("../../"):
                continue
            if inner.split("/")[0] not in ("objects", "refs", "logs", "index", "HEAD", "COMMIT_EDITMSG", "ORIG_HEAD"):
                with open(path, "rb") as f:
                    found[inner] = f.read()
    return found


# ---- references ----

# `ref` is what is written, `text` what it then says.
WAYS = {
    "in place": "open(ref, 'w').write(text)",
    "anew": "os.remove(ref); os.close(os.open(ref, os.O_CREAT | os.O_EXCL | os.O_WRONLY)); open(ref, 'w').write(text)",
    "lock": "open(ref + '.lock', 'x').write(text); os.rename(ref + '.lock', ref)",
    "rename": "open('x', 'w').write(text); os.rename('x', ref)",
    "rename of a log": "open('.git/logs/refs/heads/x', 'w').write(text); os.rename('.git/logs/refs/heads/x', ref)",
    "link": "open('.git/MERGE_MSG', 'w').write(text); os.remove(ref); os.link('.git/MERGE_MSG', ref)",
    "a second name": "os.link(ref, '.git/MERGE_MSG'); open('.git/MERGE_MSG', 'w').write(text)",
    "away and back": "os.rename(ref, '.git/MERGE_MSG'); open('.git/MERGE_MSG', 'w').write(text);"
    "os.rename('.git/MERGE_MSG', ref)",
    "folder": "d = os.path.dirname(ref); os.rename(d, 'd'); open('d/' + os.path.basename(ref), 'w').write(text);"
    "os.rename('d', d)",
    "descriptor": "good = open(ref).read(); f = open(ref + '.lock', 'x'); f.write(good); f.flush();"
    "os.rename(ref + '.lock', ref); f.seek(0); f.truncate(); f.write(text); f.flush()",
    "cut": "open(ref + '.lock', 'x').write(text + open(ref).read()); os.rename(ref + '.lock', ref);"
    "os.truncate(ref, len(text))",
    "own descriptor again": "f = open(ref); open(f'/proc/self/fd/{f.fileno()}', 'w').write(text)",
    "own descriptor of one that may be made": "f = os.open(ref, os.O_RDONLY | os.O_CREAT);"
    "os.write(os.open(f'/proc/self/fd/{f}', os.O_WRONLY | os.O_TRUNC), text.encode())",
    "own descriptor of one that may be made, cut": "f = os.open(ref, os.O_RDONLY | os.O_CREAT);"
    "os.truncate(f'/proc/self/fd/{f}', 0); os.write(os.open(f'/proc/self/fd/{f}', os.O_RDWR), text.encode())",
    "symbolic link": "os.remove(ref); os.symlink(text[5:-1], ref)",
    "node": "os.remove(ref); os.mknod(ref, 0o100644); open(ref, 'w').write(text)",
    "another's lock": "open('.git/HEAD.lock', 'x').write(text); os.rename('.git/HEAD.lock', ref)",
}
WRITE = "import os, sys\nref, text = sys.argv[1], sys.argv[2]\n"
PLACES = ["../../out/deep/name", "../hooks/pre-commit", "../config", "commondir", "hooks/post-commit"]


def commit_outside(work):
    git(work, "commit", "-q", "--allow-empty", "-m", "a message", check=False)


@pytest.mark.parametrize("place", PLACES)
def test_a_reference_is_followed_outside(work, place):
    before = closed(work)
    assert outside(work, WRITE + WAYS["in place"], ".git/refs/heads/main", f"ref: {place}\n").returncode == 0
    commit_outside(work)
    assert closed(work) != before


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("ref", [".git/refs/heads/main", ".git/HEAD"])
def test_a_reference_to_another_place(work, ref, place):
    before = closed(work)
    done = inside(work, WRITE + WAYS["lock"], ref, f"ref: {place}\n")
    assert "Read-only file system" in done.stderr, done
    (work / (ref + ".lock")).unlink(missing_ok=True)
    commit_outside(work)
    assert closed(work) == before
    assert git(work, "log", "-1", "--format=%s", "main").stdout == b"a message\n"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ref", [".git/refs/heads/main", ".git/HEAD", ".git/ORIG_HEAD"])
def test_no_way_to_such_a_reference(work, ref, way):
    if not (work / ref).exists():
        shutil.copy(work / ".git/refs/heads/side", work / ref)
    (work / ".git/logs/refs/heads").mkdir(parents=True, exist_ok=True)
    text = "ref: ../../out/name\n"
    done = inside(work, WRITE + WAYS[way], ref, text)
    assert way == "descriptor" or done.returncode != 0, done
    assert not (work / ref).exists() or not (work / ref).read_text().startswith("ref: ."), done
    assert not (work / ref).is_symlink()


OTHERS_LOCK = {
    "written": "open(lock, 'w').write(text)",
    "cut": "os.truncate(lock, 0)",
    "removed": "os.remove(lock)",
    "renamed over": "open('x', 'w').write(text); os.rename('x', lock)",
    "moved": "os.rename(lock, lock[:-5])",
    "linked": "os.link(lock, '.git/MERGE_MSG'); open('.git/MERGE_MSG', 'w').write(text)",
}


@pytest.mark.parametrize("way", OTHERS_LOCK)
@pytest.mark.parametrize("lock", [".git/refs/heads/main.lock", ".git/HEAD.lock", ".git/packed-refs.lock"])
def test_a_lock_that_git_outside_has_made(work, lock, way):
    (work / lock).write_text("of git\n")
    script = "import os, sys\nlock, text = sys.argv[1], 'ref: ../../out/name\\n'\n" + OTHERS_LOCK[way]
    done = inside(work, script, lock)
    assert "Read-only file system" in done.stderr, done
    assert (work / lock).read_text() == "of git\n"


@pytest.mark.parametrize("name", ["new", "lock"])
def test_packed_references(work, name):
    oid = git(work, "rev-parse", "main").stdout.decode().strip()
    git(work, "pack-refs", "--all")
    good = (work / ".git/packed-refs").read_bytes()
    bad = f"{oid} refs/heads/../../../out/name\n"
    done = inside(work, WRITE + "f = ref + '.' + sys.argv[3]; open(f, 'x').write(text); os.rename(f, ref)",
                  ".git/packed-refs", bad, name)  # fmt: skip
    assert "Read-only file system" in done.stderr, done
    assert "Read-only" in inside(work, WRITE + WAYS["in place"], ".git/packed-refs", bad).stderr
    assert (work / ".git/packed-refs").read_bytes() == good
    (work / f".git/packed-refs.{name}").unlink()
    better = good + f"{oid} refs/heads/zz\n".encode()
    done = inside(work, WRITE + "f = ref + '.' + sys.argv[3]; open(f, 'x').write(text); os.rename(f, ref)",
                  ".git/packed-refs", better.decode(), name)  # fmt: skip
    assert done.returncode == 0 and (work / ".git/packed-refs").read_bytes() == better, done
    assert git(work, "rev-parse", "zz").stdout.decode().strip() == oid


NAMES = ["refs/heads/" + name for name in (".x", "a..b", "a b", "x.lock/y", "a:b", "a@{b")]


@pytest.mark.parametrize("name", NAMES)
def test_names_that_git_would_not_give(work, name):
    oid = git(work, "rev-parse", "main").stdout.decode()
    script = "os.makedirs(os.path.dirname(ref), exist_ok=True)\n" + WAYS["lock"]
    done = inside(work, WRITE + script, ".git/" + name, oid)
    assert "Read-only file system" in done.stderr, done
    assert "Read-only" in inside(work, WRITE + script, ".git/logs/" + name, oid).stderr


@pytest.mark.parametrize("name", ["config", "hooks/pre-commit", "COMMIT_EDITMSG"])
def test_logs_of_what_is_no_reference(work, name):
    script = "os.makedirs(os.path.dirname(ref), exist_ok=True); open(ref, 'w').write(text)"
    done = inside(work, WRITE + script, ".git/logs/" + name, "x")
    assert "Read-only file system" in done.stderr and not (work / ".git/logs" / name).exists(), done


@pytest.mark.parametrize("name", ["MERGE_HEAD", "FETCH_HEAD", "AUTO_MERGE"])
def test_what_git_writes_in_place_leads_nowhere(work, name):
    """Cells may write these: git writes them itself, and not what they name."""
    git(work, "switch", "-q", "side")
    (work / "a").write_text("side\n")
    git(work, "commit", "-q", "-a", "-m", "on the side")
    git(work, "switch", "-q", "main")
    (work / "a").write_text("main\n")
    commands = ["commit -q -a -m main", "fetch -q . side", "merge side", "commit -q -a -m merged", "reset -q --hard"]
    before = (work / ".git/config").read_bytes()
    for command in [*commands, "stash", "pull -q . side"]:
        done = inside(work, WRITE + WAYS["in place"], f".git/{name}", "ref: ../../out/deep/name\n")
        assert done.returncode == 0, done
        git(work, *command.split(), check=False)
    assert not (work.parent / "out").exists() and (work / ".git/config").read_bytes() == before


OTHERS_NUMBERS = {"sha1": "a" * 64, "sha256": "a" * 40}


@pytest.mark.parametrize("ref", [".git/refs/heads/odd", ".git/HEAD", ".git/packed-refs"])
@pytest.mark.parametrize("form", OTHERS_NUMBERS)
def test_numbers_of_the_other_length(work, form, ref):
    """They are let in: git says that the reference is broken, and writes nothing for it elsewhere."""
    shutil.rmtree(work / ".git")
    if git(work, "init", "-q", "-b", "main", f"--object-format={form}", check=False).returncode != 0:
        pytest.skip("this git knows one kind of numbers")
    for key, value in {"user.name": "x", "user.email": "x@example.org", "gc.auto": "0"}.items():
        git(work, "config", key, value)
    git(work, "commit", "-q", "--allow-empty", "-m", "first")
    text = OTHERS_NUMBERS[form] + (" refs/heads/odd/refs/heads/deep" if "packed" in ref else "") + "\n"
    done = inside(work, WRITE + WAYS["lock"], ref, text)
    assert done.returncode == 0 and (work / ref).read_text() == text, done.stderr
    before, said = closed(work), b""
    for words in ("status", "branch -a", "log --all", "checkout odd", "merge odd", "tag t odd", "fetch .", "branch n"):
        said += git(work, *words.split(), check=False).stderr
    commit_outside(work)
    now = closed(work)
    assert {k: v for k, v in now.items() if k != "FETCH_HEAD"} == before
    assert ref == ".git/HEAD" or b"broken" in said or b"unexpected line" in said, said
    found = {str(p.relative_to(work / ".git/refs")) for p in (work / ".git/refs").rglob("*") if p.is_file()}
    assert found <= {"heads/main", "heads/n", "heads/odd"}, found


def test_many_references_at_once(work):
    oid = git(work, "rev-parse", "main").stdout.decode().strip()
    script = "import subprocess, sys; subprocess.run(['git', 'update-ref', '--stdin'], check=True, text=True,"
    script += "input=''.join(f'create refs/heads/n/{i} {sys.argv[1]}\\n' for i in range(500)))"
    done = inside(work, script, oid)
    assert done.returncode == 0, done
    assert len(git(work, "branch", "--list", "n/*").stdout.split()) == 500


@pytest.fixture
def overlay(start, work):
    kernel = start(argv=kernels.system_argv("workspace.mode=overlay"), workspace=work)

    def commit(code):
        assert kernel.client.run(code).ok
        c = kernel.client
        content = c.reply(c.send("cellblock_file_request", {"op": "commit"}, channel="control"), "control").content
        return {e["path"]: e.get("reason", "") for e in content["changes"] if e["change"] == "skipped"}

    return commit


def test_crafted_references_are_not_committed(overlay, work):
    oid = git(work, "rev-parse", "main").stdout.decode().strip()
    skipped = overlay(
        "import os\nrefs = '.git/refs/heads/'\n"
        "for name in ('main', 'second', 'x.lock', '.y'): open(refs + name, 'w').write('ref: ../../out/name\\n')\n"
        "os.remove(refs + 'second')\nfor name in (refs + 'second', '.git/MERGE_MSG'): os.link(refs + 'main', name)\n"
        f"open('.git/packed-refs', 'w').write('{oid} refs/../../x\\n'); os.symlink('side', refs + 'link')\n"
        "os.makedirs('new.git/hooks'); open('new.git/hooks/update', 'w').write('x')\n"
        f"open(refs + 'good', 'w').write('ref: refs/heads/side\\n')"
    )
    refs = {".git/refs/heads/" + name for name in ("main", "second", "x.lock", ".y", "link")}
    assert set(skipped) == refs | {".git/packed-refs", "new.git/hooks"}, skipped
    assert git(work, "rev-parse", "main", "good").stdout.decode().split() == [oid, oid]
    assert not (work / ".git/packed-refs").exists() and not (work / "new.git/hooks").exists()


# ---- what an index says besides its names ----

# The tree of the commit, as the index' extension says, and not of what the index holds.
CACHED = """
import os, subprocess, sys
sys.path.insert(0, os.getcwd())
import gitindex
run = lambda *a, **k: subprocess.run(['git', *a], check=True, capture_output=True, **k).stdout.decode().strip()
oid = run('rev-parse', ':a')
evil = run('hash-object', '-w', '--stdin', input=b'evil')
tree = run('mktree', input=f'100644 blob {oid}\\ta\\n100644 blob {evil}\\tsetup.py\\n'.encode())
more = gitindex.extension('TREE', b'\\0' + b'2 0\\n' + bytes.fromhex(tree))
data = gitindex.index([('a', oid), ('b', oid)], extensions=more)
with open('.git/index.lock', 'xb') as f: f.write(data)
os.rename('.git/index.lock', '.git/index')
"""


@pytest.mark.parametrize("where", [outside, inside])
def test_a_commit_holds_what_the_index_holds(work, where):
    shutil.copy(gitindex.__file__, work / "gitindex.py")
    assert where(work, CACHED).returncode == 0
    commit_outside(work)
    names = git(work, "ls-tree", "--name-only", "main").stdout.decode().split()
    assert names == (["a", "b"] if where is inside else ["a", "setup.py"])
    assert git(work, "fsck", "--no-progress").returncode == 0
    assert git(work, "write-tree").returncode == 0


@pytest.fixture
def module(work):
    """There before the overlay is: what is added below one while somebody lists the folder may not be seen in it."""
    shutil.copy(gitindex.__file__, work / "gitindex.py")


def test_a_committed_index_has_no_trees(module, overlay, work):
    before = (work / ".git/index").read_bytes()
    assert overlay("import sys\n" + CACHED) == {}
    after = (work / ".git/index").read_bytes()
    assert after != before and b"TREE" not in after
    assert git(work, "fsck", "--no-progress").returncode == 0


# ---- a repository that is yet to come ----

BEFORE = {
    "hook": "os.makedirs('new.git/hooks'); open('new.git/hooks/post-update', 'w').write(hook);"
    "os.chmod('new.git/hooks/post-update', 0o755)",
    "folder": "os.makedirs('new/hooks'); open('new/hooks/post-update', 'w').write(hook);"
    "os.chmod('new/hooks/post-update', 0o755); os.rename('new', 'new.git')",
    "link": "os.makedirs('new/hooks'); open('new/hooks/post-update', 'w').write(hook);"
    "os.chmod('new/hooks/post-update', 0o755); os.symlink('new', 'new.git')",
    "hard link of a link": "os.makedirs('new/hooks'); open('new/hooks/post-update', 'w').write(hook);"
    "os.chmod('new/hooks/post-update', 0o755); os.symlink('new', 'l');"
    "os.link('l', 'new.git', follow_symlinks=False)",
    "above": "os.makedirs('above/other/hooks'); open('above/other/hooks/post-update', 'w').write(hook);"
    "os.chmod('above/other/hooks/post-update', 0o755); os.rename('above/other', 'above/new.git');"
    "os.rename('above/new.git', 'new.git')",
    "a work tree for a while": "os.makedirs('new.git/.git'); os.makedirs('new.git/hooks');"
    "open('new.git/hooks/post-update', 'w').write(hook); os.chmod('new.git/hooks/post-update', 0o755);"
    "os.rmdir('new.git/.git')",
}


@pytest.mark.parametrize("where", [outside, inside])
@pytest.mark.parametrize("way", BEFORE)
def test_a_bare_repository_made_later(work, way, where):
    script = "import os\nhook = '#!/bin/sh\\ntouch ../hooked\\n'\n" + BEFORE[way]
    done = where(work, script)
    assert (done.returncode == 0) == (where is outside), done
    git(work, "init", "-q", "--bare", "new.git")
    git(work, "push", "-q", "new.git", "main")
    assert (work / "hooked").exists() == (where is outside)


GIT_FOLDERS = [".git", "bare", "x.git", ".git/modules/m", ".git/worktrees/w"]


CHMODS = {
    "by name": "os.chmod(f, mode)",
    "by dots": "os.chmod(f + '/.', mode)",
    "by descriptor": "os.fchmod(os.open(f, os.O_RDONLY), mode)",
}


@pytest.mark.parametrize("where", [outside, inside])
@pytest.mark.parametrize("way", CHMODS)
def test_no_git_folder_is_opened_to_others_or_closed(work, where, way):
    """Whatever it is called."""
    for name in GIT_FOLDERS[1:4]:
        git(work, "init", "-q", "--bare", name)
    git(work, "worktree", "add", "-q", "w", "side")
    folders = [work / name for name in GIT_FOLDERS]
    before = [f.stat().st_mode & 0o777 for f in folders]
    for mode in (0o777, 0o720, 0o500, 0):
        for f, was in zip(folders, before):
            done = where(work, f"import os; f, mode = {str(f.relative_to(work))!r}, {mode}; {CHMODS[way]}")
            assert (done.returncode == 0) == (where is outside), (f, mode, done)
            assert (f.stat().st_mode & 0o777 == was) == (where is inside), (f, mode)
            f.chmod(was)
    others = f"import os; f = 'd'; os.mkdir(f)\nfor mode in 0o777, 0o755: {CHMODS[way]}\n"
    done = where(work, others + "os.chmod(f, 0); os.chmod(f, 0o755)")
    assert done.returncode == 0, done


def test_a_work_tree_whose_name_ends_so(work):
    git(work, "clone", "-q", ".", "tree.git")
    done = inside(work, "import os; os.mkdir('tree.git/d'); open('tree.git/d/f', 'w').write('x'); open('f.git', 'w')")
    assert done.returncode == 0, done
    done = inside(work, "import os; os.chmod('tree.git', 0o775); os.chmod('f.git', 0o666)")
    assert done.returncode == 0 and (work / "tree.git").stat().st_mode & 0o777 == 0o775, done


LOCKED = "open(lock, 'xb').write(open('.git/index', 'rb').read()); os.chmod(lock, 0o666); os.rename(lock, '.git/index')"
# The first thread ends, another one goes on.
FIRST_THREAD_ENDS = """
import ctypes, threading
me = f'/proc/self/task/{os.getpid()}/stat'
def last():
    try:
        while open(me).read().rsplit(')', 1)[1].split()[0] != 'Z': pass
        CHMOD
    finally:
        os._exit(0)
threading.Thread(target=last).start()
ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[os.uname().machine], 0)
"""
BY_DESCRIPTOR = {
    "its descriptor": "os.fchmod(f, 0o666)",
    "its descriptor's name": "os.chmod(f'/proc/self/fd/{f}', 0o666)",
    "that with two slashes": "os.chmod(f'//proc//self/fd//{f}', 0o666)",
    "that with a dot": "os.chmod(f'/proc/./self/./fd/{f}', 0o666)",
    "that by dots": "os.chmod(f'/dev/../proc/self/fd/{f}', 0o666)",
    "that from /proc": "os.chdir('/proc'); os.chmod(f'self/fd/{f}', 0o666)",
    "that from its folder": "os.chmod(str(f), 0o666, dir_fd=os.open('/proc/self/fd', os.O_RDONLY))",
    "that of the thread": "os.chmod(f'/proc/thread-self/fd/{f}', 0o666)",
    "that of the process": "os.chmod(f'/proc/{os.getpid()}/fd/{f}', 0o666)",
    "that of the task": "os.chmod(f'/proc/self/task/{os.getpid()}/fd/{f}', 0o666)",
    "a link to that": "os.dup2(f, 1); os.chmod('/dev/stdout', 0o666)",
    "it, with no first thread": FIRST_THREAD_ENDS.replace("CHMOD", "os.fchmod(f, 0o666)"),
}
# The name that it was opened by goes, another one stays.
NAME_GOES = {
    "a link": "os.link('.git/MERGE_MSG', '.git/FETCH_HEAD'); os.unlink('.git/MERGE_MSG');",
    "a link and another file": "os.link('.git/MERGE_MSG', '.git/FETCH_HEAD'); os.unlink('.git/MERGE_MSG');"
    "open('.git/MERGE_MSG', 'w').close();",
}
OPENED = {
    "made": "os.mkdir('d'); os.mkdir('d/.git', 0o777)",
    "a bare one": "os.mkdir('x.git', 0o777)",
    "an empty one": "os.mkdir('x.git'); os.chmod('x.git', 0o777)",
    "a folder in it": "os.mkdir('.git/refs/heads/d', 0o777)",
    "a file in it": "os.close(os.open('.git/MERGE_MSG', os.O_CREAT | os.O_WRONLY, 0o666))",
    "a file that is moved in": "os.close(os.open('x', os.O_CREAT, 0o666)); os.rename('x', '.git/MERGE_MSG')",
    **{
        f"a file that was opened, by {way}": f"f = os.open('.git/MERGE_MSG', os.O_CREAT | os.O_WRONLY, 0o600); {chmod}"
        for way, chmod in BY_DESCRIPTOR.items()
    },
    **{
        f"a file that was opened and is moved in, by {way}": "f = os.open('x', os.O_CREAT | os.O_RDWR, 0o600);"
        f"os.rename('x', '.git/MERGE_MSG'); {chmod}"
        for way, chmod in BY_DESCRIPTOR.items()
    },
    **{
        f"a file whose name has gone, by {what} and {way}": "f = os.open('.git/MERGE_MSG', os.O_CREAT | os.O_RDWR,"
        f"0o600); {leave} {chmod}"
        for way, chmod in BY_DESCRIPTOR.items()
        for what, leave in NAME_GOES.items()
    },
    "a program that runs": "f = os.open('.git/MERGE_MSG', os.O_CREAT | os.O_RDONLY, 0o700);"
    "g = os.open('.git/MERGE_MSG', os.O_WRONLY); os.write(g, open('/bin/sh', 'rb').read()); os.close(g);"
    f"{NAME_GOES['a link']} os.execve(f'/proc/self/fd/{{f}}', ['sh', '-c', 'chmod 777 /proc/$$/exe; :'], os.environ)",
    "a file of two names that is moved in": "os.close(os.open('x', os.O_CREAT, 0o600)); os.link('x', 'y');"
    "os.rename('x', '.git/MERGE_MSG'); os.chmod('y', 0o666)",
    "a file of two names that is moved out": "os.close(os.open('.git/MERGE_MSG', os.O_CREAT, 0o600));"
    "os.link('.git/MERGE_MSG', '.git/FETCH_HEAD'); os.rename('.git/MERGE_MSG', 'y'); os.chmod('y', 0o666)",
    "a node in it": "os.mknod('.git/MERGE_MSG', 0o100666)",
    "a lock": LOCKED.replace("os.chmod(lock, 0o666)", "pass").replace("lock", "'.git/index.lock'"),
    "a lock whose mode is set": LOCKED.replace("lock", "'.git/index.lock'"),
    "a file that becomes the index": LOCKED.replace("lock", "'x'"),
    **{
        f"mode of {name}": f"os.chmod('.git/{name}', os.stat('.git/{name}').st_mode & 0o777 | 0o022)"
        for name in ("index", "HEAD", "refs/heads/main", "packed-refs", "objects", "refs", "refs/heads", "logs")
    },
}


def open_to_others(work):
    """What any user could write that is called as git's things are."""
    found = [p for p in work.rglob("*") if ".git" in str(p.relative_to(work)) and not p.is_symlink()]
    return {str(p.relative_to(work)) for p in found if p.stat().st_mode & 0o002}


@pytest.mark.parametrize("where", [outside, inside])
@pytest.mark.parametrize("way", OPENED)
def test_nothing_of_git_s_is_opened_to_others(work, where, way):
    git(work, "pack-refs", "--all")
    git(work, "branch", "-f", "main", "HEAD", check=False)
    git(work, "update-ref", "refs/heads/side", "main")
    (work / ".git/refs/heads/main").write_bytes(git(work, "rev-parse", "main").stdout)
    done = where(work, "import os; os.umask(0)\n" + OPENED[way])
    assert bool(open_to_others(work)) == (where is outside), done
    assert not way.startswith("mode of") or where is outside or "Read-only file system" in done.stderr, done


# Another thread exchanges what the call is about while it is looked at: 50 is the file's descriptor, 51 another one.
EXCHANGES = {
    "descriptor": ("os.dup2(50, 9); os.dup2(51, 9)", "os.fchmod(9, 0o666)"),
    "path": ("name[15] = b'0'; libc.sched_yield(); name[15] = b'1'; libc.sched_yield()", "libc.chmod(name, 0o666)"),
}
EXCHANGE = """
import ctypes, os, sys, threading
os.dup2(os.open('.git/MERGE_MSG', os.O_CREAT | os.O_WRONLY, 0o600), 50)
for n in 51, 9: os.dup2(os.pipe()[0], n)
name, libc = ctypes.create_string_buffer(b'/proc/self/fd/51'), ctypes.CDLL(None)
done = False
def exchange():
    while not done: EXCHANGE
other = threading.Thread(target=exchange)
other.start()
for i in range(int(sys.argv[1])):
    try: CHMOD
    except OSError: pass
    if os.fstat(50).st_mode & 0o022: break
done = True
other.join()
"""


@pytest.mark.parametrize("where", [outside, inside])
@pytest.mark.parametrize("way", EXCHANGES)
def test_what_is_exchanged_is_not_opened_to_others(work, where, way):
    exchange, chmod = EXCHANGES[way]
    times = "5000" if where is inside else "100000000"  # until it succeeds
    done = where(work, EXCHANGE.replace("EXCHANGE", exchange).replace("CHMOD", chmod), times)
    assert done.returncode == 0, done
    assert bool(open_to_others(work)) == (where is outside), done


# A jail hands its descriptor to another one, which has a writable mount of its own.
GIVES = """
import os, socket
f = os.open('.git/MERGE_MSG', os.O_CREAT | os.O_RDWR, 0o600)
LEAVE
s = socket.socket(socket.AF_UNIX)
s.bind('s')
s.listen()
print(flush=True)
c = s.accept()[0]
socket.send_fds(c, [b'x'], [f])
c.recv(1)
"""
TAKES = """
import os, socket
c = socket.socket(socket.AF_UNIX)
c.connect('s')
f = socket.recv_fds(c, 1, 1)[1][0]
assert os.fstat(f).st_mode & 0o777 == 0o600
CHMOD
"""


@pytest.mark.parametrize("where", [outside, inside])
@pytest.mark.parametrize("way", ["its descriptor", "its descriptor's name", "that of the process"])
@pytest.mark.parametrize("leave", NAME_GOES)
def test_no_descriptor_of_another_jail_opens_to_others(work, where, way, leave):
    run = [CELLBLOCK, "run", "--set", "network.mode=full", "--python", PYTHON, "--"] if where is inside else []
    gives = [*run, PYTHON, "-c", GIVES.replace("LEAVE", NAME_GOES[leave])]
    with subprocess.Popen(gives, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "\n", other.communicate(timeout=120)
        takes = [*run, PYTHON, "-c", TAKES.replace("CHMOD", BY_DESCRIPTOR[way])]
        done = subprocess.run(takes, cwd=work, capture_output=True, text=True, timeout=120, check=False)
        other.communicate(timeout=120)
    assert bool(open_to_others(work)) == (where is outside), done
    assert (done.returncode == 0) == (where is outside) and "recv_fds" not in done.stderr, done


ELSEWHERE = {
    "a file": "f = os.open('/tmp/a', os.O_CREAT | os.O_RDWR, 0o600)",
    "a file whose name has gone": "f = os.open('/tmp/a', os.O_CREAT | os.O_RDWR, 0o600); os.link('/tmp/a', '/tmp/b');"
    "os.unlink('/tmp/a')",
    "a file without a name": "f = os.open('/tmp', os.O_TMPFILE | os.O_RDWR, 0o600)",
    "a pipe": "f = os.pipe()[1]",
    "stdout": "f = 1",
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_lies_elsewhere_is_opened_to_others(work, name):
    script = f"import os; {ELSEWHERE[name]}; os.fchmod(f, 0o622); assert os.fstat(f).st_mode & 0o777 == 0o622"
    argv = [CELLBLOCK, "run", "--python", PYTHON, "--", PYTHON, "-c", script]
    flags = os.statvfs(work.parent).f_flag
    if name == "stdout" and os.geteuid() == 0:
        pytest.skip("root's file is not the jail's user's")
    if name == "stdout" and flags & os.ST_NOSUID and flags & os.ST_NODEV:
        pytest.skip("it lies on a mount that may be a jail's")
    with open(work.parent / "out", "wb") as out:
        done = subprocess.run(argv, cwd=work, stdout=out, stderr=subprocess.PIPE, timeout=120, check=False)
    assert done.returncode == 0, done


def test_who_shares_a_repository_goes_on(work):
    """Where a group may write already it may go on: it could put others into the place of what is there."""
    for name in (".git", ".git/refs/heads"):
        (work / name).chmod(0o775)
    (work / ".git/logs/HEAD").chmod(0o664)
    script = (
        "import os; os.umask(0o002); os.mkdir('.git/refs/heads/d'); os.chmod('.git/HEAD', 0o664)\n"
        "os.chmod('.git/logs/HEAD', 0o660); " + LOCKED.replace("0o666", "0o664").replace("lock", "'.git/index.lock'")
    )
    done = inside(work, script)
    assert done.returncode == 0, done
    for name in (".git/HEAD", ".git/index", ".git/logs/HEAD", ".git/refs/heads/d"):
        assert (work / name).stat().st_mode & 0o022 == 0o020, name
    assert "Read-only" in inside(work, "import os; os.chmod('.git/HEAD', 0o666)").stderr


def test_a_git_folder_is_its_owner_s_whatever_the_umask(work):
    done = inside(work, "import os; os.umask(0o777); os.mkdir('x.git'); os.mkdir('d')")
    assert done.returncode == 0, done
    assert [(work / name).stat().st_mode & 0o777 for name in ("x.git", "d")] == [0o700, 0]


def test_nothing_of_git_s_is_committed_open(overlay, work):
    skipped = overlay(
        "import os; os.umask(0)\n"
        "for f in ('index', 'HEAD', 'refs/heads/main'): os.chmod('.git/' + f, 0o666)\n"
        "for f in ('objects', 'refs', 'refs/heads', 'logs'): os.chmod('.git/' + f, 0o777)\n"
        "for f in ('x.git', 'n/.git', '.git/refs/heads/d'): os.makedirs(f)\n"
        "open('.git/MERGE_MSG', 'w').close(); open('free', 'w').close()\n"
        "open('+x', 'w').close(); os.link('+x', '.git/FETCH_HEAD'); os.link('.git/FETCH_HEAD', 'zz')"
    )
    assert skipped == {} and open_to_others(work) == set()
    assert (work / "free").stat().st_mode & 0o777 == 0o666 and (work / "x.git").is_dir()
    assert (work / ".git/MERGE_MSG").exists() and (work / ".git/refs/heads/d").is_dir()
    assert (work / ".git/FETCH_HEAD").stat().st_nlink == 1 and (work / "zz").stat().st_nlink == 2


def test_who_protects_nothing_of_git_has_no_rules_for_it(work):
    script = "import os; os.umask(0); os.mkdir('x.git', 0o777); os.mkdir('y.git'); os.chmod('y.git', 0o770)"
    argv = [CELLBLOCK, "run", "--set", "workspace.protect=[]", "--python", PYTHON, "--", PYTHON, "-c", script]
    done = subprocess.run(argv, cwd=work, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done
    assert [(work / name).stat().st_mode & 0o777 for name in ("x.git", "y.git")] == [0o777, 0o770]


# "p/r" is none, "q/r" is one: by turns either is what the other's path means.
EXCHANGED = """
import os, threading
os.makedirs('p/r')
top = os.getcwd()
os.chdir('p/r')
done = False
def exchange():
    while not done:
        for old, new in (('p', 't'), ('q', 'p'), ('p', 'q'), ('t', 'p')):
            os.rename(f'{top}/{old}', f'{top}/{new}')
mover = threading.Thread(target=exchange)
mover.start()
for i in range(3000):
    for mode in 0o777, 0o755:
        try: os.chmod('.', mode)
        except OSError: pass
done = True
mover.join()
"""


def test_a_git_folder_that_comes_into_another_s_place_is_not_opened(work):
    git(work, "init", "-q", "--bare", "q/r")
    was = (work / "q/r").stat()
    done = inside(work, EXCHANGED)
    assert done.returncode == 0, done
    now = (work / "q/r").stat()
    assert (now.st_ino, now.st_mode, now.st_ctime_ns) == (was.st_ino, was.st_mode, was.st_ctime_ns)


def test_a_pipe_of_a_protected_name(work):
    """No mount that is read-only keeps anybody from writing into one."""
    for name in (".git/hooks/f", "f"):
        os.mkfifo(work / name)
        reader = os.open(work / name, os.O_RDONLY | os.O_NONBLOCK)
        for how in ("os.O_WRONLY", "os.O_RDWR", "os.O_WRONLY | os.O_EXCL", "os.O_WRONLY | os.O_CREAT"):
            done = inside(work, f"import os; os.write(os.open({name!r}, {how} | os.O_NONBLOCK), b'x')")
            assert (done.returncode == 0) == (name == "f") == ("Read-only" not in done.stderr), (name, how, done)
            assert os.read(reader, 9) == (b"x" if name == "f" else b""), (name, how)
        os.close(reader)


@pytest.mark.parametrize("name", [".bzr", "_darcs", ".repo", ".sl", ".pijul", ".fossil-settings", ".github/hooks"])
def test_folders_of_others(work, name):
    script = "os.makedirs(ref, exist_ok=True); open(ref + '/x', 'w').write(text)"
    assert "Read-only file system" in inside(work, WRITE + script, name, "x").stderr
    assert not (work / name / "x").exists()
