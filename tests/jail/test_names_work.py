"""What people do in a writable workspace works while names are judged: git, archives, pip, make, databases, mappings;
and a repository cannot be made to run what a cell wrote.

The host looks at the result: contents, owners, modes and times.
"""

import importlib.util
import json
import os
import shutil
import time
import zipfile
from pathlib import Path

import pytest

import nameslab
from nameslab import PYTHON

pytestmark = [pytest.mark.cellblock_only, pytest.mark.timeout(600)]
halves = nameslab.halves


def needs(*programs):
    for p in programs:
        if not shutil.which(p) and importlib.util.find_spec(p) is None:
            pytest.skip(f"{p} is not there")


# ---- git ----

GIT_WORKS = """
set -e
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=advice.ignoredHook GIT_CONFIG_VALUE_0=false
export GIT_AUTHOR_NAME=c GIT_AUTHOR_EMAIL=c@c GIT_COMMITTER_NAME=c GIT_COMMITTER_EMAIL=c@c
echo one > one; mkdir -p d/e; echo two > d/e/two
git status --short | grep -q one
git add one d; git commit -q -m first; git log --oneline | grep -q first
git branch side; git checkout -q side; echo side > side; git add side; git commit -q -m side
git checkout -q with; echo more >> one; git commit -q -a -m more; git merge -q -m merged side
test -f side; git mv side other; git commit -q -m moved; git rm -q other; git commit -q -m removed
echo x >> one; git stash -q; test -z "$(git status --short)"; git stash pop -q; git diff | grep -q x
git tag light; git tag -a -m heavy heavy; git reset -q --hard HEAD~1; git reset -q --soft HEAD~1
git commit -q -m again
git checkout -q -b third; for i in 1 2 3 4 5 6 7 8 9 10; do echo $i > n$i; git add n$i; git commit -q -m $i; done
git checkout -q with; git gc -q; git fsck --no-progress; git repack -q -a -d; git reflog | grep -q merge
git update-ref refs/heads/direct HEAD; git show-ref | grep -q direct; git notes add -m note; git describe --always
git cherry-pick third >/dev/null; git revert --no-edit HEAD >/dev/null; git clean -q -n; git blame one >/dev/null
git archive HEAD | tar t > /dev/null; git worktree list >/dev/null; git grep -q one; git show --stat >/dev/null
echo good
"""


@halves("root without cgroups")
def test_git_in_an_existing_repository(lab):
    needs("git")
    lab.furnish()
    done = lab.run("sh", "-c", GIT_WORKS, timeout=200)
    assert done.returncode == 0 and done.stdout.endswith("good\n"), done.stdout[-500:] + done.stderr[-3000:]
    lab.host("git", "fsck", "--strict")
    assert "again" in lab.host("git", "log", "--oneline") or "Revert" in lab.host("git", "log", "--oneline")
    owner = {(lab.work / n).lstat().st_uid for n in (".git/index", ".git/HEAD", "one")}
    assert owner == {lab.work.stat().st_uid}
    assert not lab.faults(existing=[".git/config", ".git/hooks/pre-commit"])


GIT_REFUSED = {
    "config": "git config core.fsmonitor 'touch cell-pwned'",
    "config --edit by -f": "git config -f .git/config core.pager 'touch cell-pwned'",
    "remote add": "git remote add evil ext::sh",
    "hook": "echo 'touch cell-pwned' > .git/hooks/pre-push",
    "hooks moved": "mv .git/hooks .git/h",
    "init --bare": "git init -q --bare cell-bare",
    "submodule add": "git -c protocol.file.allow=always submodule add -f ./sub cell-module",
    "worktree add": "git worktree add -q cell-worktree -b cell-branch",
    "attributes": "mkdir -p .git/info; echo '* filter=x' > .git/info/attributes",
    "alternates": "mkdir -p .git/objects/info; echo /tmp > .git/objects/info/alternates",
    "commondir": "echo ../cell > .git/commondir",
    "worktree config": "echo > .git/config.worktree",
    "rebase": "mkdir -p .git/rebase-merge; echo 'exec touch cell-pwned' > .git/rebase-merge/git-rebase-todo",
    "sequencer": "mkdir -p .git/sequencer && echo x > .git/sequencer/todo",
    "modules": "mkdir -p .git/modules/x && echo '[core]' > .git/modules/x/config",
    "worktrees": "mkdir -p .git/worktrees/x && echo .. > .git/worktrees/x/commondir",
}


@halves("root without cgroups")
@pytest.mark.parametrize("what", GIT_REFUSED)
def test_git_is_not_made_to_run_things(lab, what):
    """Refused, and stderr says which key it was."""
    needs("git")
    lab.furnish()
    before = sorted(p.relative_to(lab.work) for p in (lab.work / ".git").rglob("*"))
    done = lab.run("sh", "-c", GIT_REFUSED[what])
    after = sorted(p.relative_to(lab.work) for p in (lab.work / ".git").rglob("*"))
    new = [str(p) for p in set(after) - set(before) if "objects" not in p.parts[:2] and "refs" not in p.parts[:2]]
    assert done.returncode != 0 and not [n for n in new if "commondir" in n or "config" in n or "todo" in n], new
    assert "cell-pwned" not in os.listdir(lab.work) and not lab.faults(existing=[".git/config"])
    assert "workspace.protect" in done.stderr, done.stderr


HEAD = "open('%s/HEAD', 'w').write('ref: refs/heads/x\\n')"
OBJECTS, REFS = "os.mkdir('%s/objects')", "os.mkdir('%s/refs')"
CONFIG = (
    "open('%s/config', 'w').write('[core]\\n\\tbare = false\\n\\tworktree = .\\n\\trepositoryformatversion = 0\\n"
    "\\tfsmonitor = touch cell-pwned; false\\n')"
)
HOOK = "os.mkdir('%s/hooks')"
# Steps that together make what git takes for a repository, `%s` is the folder. Each step may be refused.
REPOSITORIES = {
    "HEAD, objects, refs, config": [HEAD, OBJECTS, REFS, CONFIG],
    "HEAD, refs, objects, config": [HEAD, REFS, OBJECTS, CONFIG],
    "objects, HEAD, refs, config": [OBJECTS, HEAD, REFS, CONFIG],
    "objects, refs, HEAD, config": [OBJECTS, REFS, HEAD, CONFIG],
    "refs, HEAD, objects, config": [REFS, HEAD, OBJECTS, CONFIG],
    "refs, objects, HEAD, config": [REFS, OBJECTS, HEAD, CONFIG],
    "config first": [CONFIG, REFS, OBJECTS, HEAD],
    "config, HEAD": [CONFIG, HEAD, OBJECTS, REFS],
    "HEAD by rename": [CONFIG, REFS, OBJECTS, HEAD.replace("/HEAD", "/x"), "os.rename('%s/x', '%s/HEAD')"],
    "HEAD by link": [CONFIG, REFS, OBJECTS, HEAD.replace("/HEAD", "/x"), "os.link('%s/x', '%s/HEAD')"],
    "HEAD by symlink": [CONFIG, REFS, OBJECTS, "os.symlink('refs/heads/x', '%s/HEAD')"],
    "HEAD of an hash": [CONFIG, REFS, OBJECTS, "open('%s/HEAD', 'w').write('0' * 40 + '\\n')"],
    "refs by rename": [CONFIG, HEAD, OBJECTS, "os.mkdir('%s/r')", "os.rename('%s/r', '%s/refs')"],
    "objects by rename": [CONFIG, HEAD, REFS, "os.mkdir('%s/r')", "os.rename('%s/r', '%s/objects')"],
    "refs by symlink": [CONFIG, HEAD, OBJECTS, "os.symlink('/usr', '%s/refs')"],
    "objects by symlink": [CONFIG, HEAD, REFS, "os.symlink('/usr', '%s/objects')"],
    "refs as a program": [CONFIG, HEAD, OBJECTS, "os.close(os.open('%s/refs', os.O_CREAT | os.O_WRONLY, 0o755))"],
    "the folder by rename": [
        "os.makedirs('%s/p/objects'); os.mkdir('%s/p/refs')",
        CONFIG.replace("%s/", "%s/p/"),
        HEAD.replace("%s/", "%s/p/"),
        "[os.rename('%s/p/' + n, '%s/' + n) for n in os.listdir('%s/p')]",
    ],
    "commondir": [
        "os.mkdir('%s/c'); os.mkdir('%s/c/objects'); os.mkdir('%s/c/refs')",
        CONFIG.replace("%s/", "%s/c/"),
        "open('%s/commondir', 'w').write('c\\n')",
        HEAD,
    ],
    "commondir by rename": [
        "os.mkdir('%s/c'); os.mkdir('%s/c/objects'); os.mkdir('%s/c/refs')",
        CONFIG.replace("%s/", "%s/c/"),
        HEAD,
        "open('%s/x', 'w').write('c\\n'); os.rename('%s/x', '%s/commondir')",
    ],
    "a gitfile": [
        "os.mkdir('%s/c'); os.mkdir('%s/c/objects'); os.mkdir('%s/c/refs')",
        CONFIG.replace("%s/", "%s/c/"),
        HEAD.replace("%s/", "%s/c/"),
        "open('%s/.git', 'w').write('gitdir: c\\n')",
    ],
    "a .git that is a link": [
        "os.mkdir('%s/c'); os.mkdir('%s/c/objects'); os.mkdir('%s/c/refs')",
        CONFIG.replace("%s/", "%s/c/"),
        HEAD.replace("%s/", "%s/c/"),
        "os.symlink('c', '%s/.git')",
    ],
    ".git of its own": [
        "os.mkdir('%s/.git')",
        CONFIG.replace("%s/", "%s/.git/"),
        *(s.replace("%s/", "%s/.git/") for s in (HEAD, OBJECTS, REFS)),
    ],
    ".git by rename": [
        "os.mkdir('%s/g')",
        CONFIG.replace("%s/", "%s/g/"),
        *(s.replace("%s/", "%s/g/") for s in (OBJECTS, REFS)),
        HEAD.replace("%s/", "%s/g/"),
        "os.rename('%s/g', '%s/.git')",
    ],
    "a part of the real one, moved": [
        CONFIG,
        "os.rename('sub/.git/objects', '%s/objects'); os.rename('sub/.git/refs', '%s/refs')",
        "os.rename('sub/.git/HEAD', '%s/HEAD')",
    ],
    "the real one without its HEAD": [
        "os.rename('sub/.git/HEAD', '%s/HEAD')",
        CONFIG.replace("%s/", "sub/.git/").replace("open(", "os.unlink('sub/.git/config') or open("),
        "os.rename('%s/HEAD', 'sub/.git/HEAD')",
    ],
}
STEPS = """
import os, sys
os.mkdir("cell-repository")
for step in sys.argv[1:]:
    try:
        exec(step.replace("%s", "cell-repository"))
    except OSError as e:
        print(e)
"""


def looks(lab, folder):
    """What the host's git takes for the repository there, and whether it ran what a cell wrote."""
    said = lab.host("sh", "-c", f"cd {folder} && git status >/dev/null 2>&1; git rev-parse --absolute-git-dir || true")
    ran = [str(p) for p in lab.work.rglob("cell-pwned")]
    return said.strip(), ran


@halves("root without cgroups")
@pytest.mark.parametrize("how", REPOSITORIES)
def test_no_repository_is_made(lab, how):
    needs("git")
    lab.furnish()
    (lab.work / "sub/.git/logs").mkdir(exist_ok=True)
    lab.good(STEPS, *REPOSITORIES[how])
    for folder in ("cell-repository", "sub"):
        said, ran = looks(lab, folder)
        assert not ran, (said, ran)
        if said.startswith(str(lab.work / "cell-repository")):
            assert not os.path.lexists(Path(said) / "config"), said
            assert said.endswith("/.git"), f"a bare repository: {said}"


def test_the_attack_by_a_bare_repository_counts(nothing_left):
    """The host's git does run what such a folder names."""
    needs("git")
    lab = nameslab.Lab(nothing_left / "counts", "user", None)
    steps = [s.replace("%s", "cell-repository") for s in REPOSITORIES["config first"]]
    lab.host(PYTHON, "-c", "import os, sys\nos.mkdir('cell-repository')\nfor s in sys.argv[1:]: exec(s)", *steps)
    assert looks(lab, "cell-repository")[1]


# ---- what worked before ----

WORKS = {}
WORKS["files"] = r"""
import fcntl, mmap, os, shutil, stat, tempfile, time
os.makedirs("w/a/b"); open("w/a/f", "w").write("text")
for mask in (0o022, 0o077, 0):
    old = os.umask(mask)
    open(f"w/u{mask:o}", "w").close(); os.mkdir(f"w/d{mask:o}"); os.mkfifo(f"w/p{mask:o}")
    os.close(os.open(f"w/e{mask:o}", os.O_CREAT | os.O_WRONLY, 0o751))
    os.umask(old)
    assert stat.S_IMODE(os.stat(f"w/u{mask:o}").st_mode) == 0o666 & ~mask
    assert stat.S_IMODE(os.stat(f"w/d{mask:o}").st_mode) == 0o777 & ~mask
    assert stat.S_IMODE(os.stat(f"w/p{mask:o}").st_mode) == 0o666 & ~mask
    assert stat.S_IMODE(os.stat(f"w/e{mask:o}").st_mode) == 0o751 & ~mask
shutil.copytree("w/a", "w/c"); shutil.copy2("w/a/f", "w/g"); shutil.move("w/c", "w/m"); os.replace("w/g", "w/h")
with open("w/log", "a") as one, open("w/log", "a") as two:
    for i in range(100):
        one.write("1\n"); one.flush(); two.write("2\n"); two.flush()
assert open("w/log").read() == "1\n2\n" * 100
with open("w/map", "w+b") as f:
    f.truncate(8192)
    with mmap.mmap(f.fileno(), 8192) as m:
        m[4096:4099] = b"abc"; m.flush()
    f.seek(4096); assert f.read(3) == b"abc"
f = os.open("w/h", os.O_RDWR); os.fchmod(f, 0o640); os.utime(f, (1, 2)); os.ftruncate(f, 2)
os.utime(f, ns=(5, 6)); os.close(f); os.utime("w/h", (1000, 2000)); os.chmod("w/h", 0o600)
assert (os.stat("w/h").st_mtime, os.stat("w/h").st_atime) == (2000, 1000)
g = os.open("w/h", os.O_RDONLY); os.fchmod(g, 0o644); os.utime(g, (7, 8)); os.close(g)   # open to read, and changed
assert os.stat("w/h").st_mtime == 8 and stat.S_IMODE(os.stat("w/h").st_mode) == 0o644
f = os.open("w/moving", os.O_CREAT | os.O_WRONLY, 0o600); os.rename("w/moving", "w/moved"); os.fchmod(f, 0o640)
assert stat.S_IMODE(os.stat("w/moved").st_mode) == 0o640; os.link("w/moved", "w/kept")
for name, mode in ("w/moved", 0o604), ("w/kept", 0o664):   # its name has gone, then all of its names have
    os.unlink(name); os.fchmod(f, mode); assert stat.S_IMODE(os.fstat(f).st_mode) == mode
os.close(f)
os.symlink("h", "w/s"); os.utime("w/s", (3, 4), follow_symlinks=False); assert os.lstat("w/s").st_mtime == 4
d = os.open("w/a", os.O_RDONLY); os.utime(d, (9, 10)); os.fchmod(d, 0o700); os.fsync(d)
os.mkdir("deep", dir_fd=d); os.close(os.open("deep/x", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=d))
os.unlink("deep/x", dir_fd=d)
os.rmdir("deep", dir_fd=d); os.rename("f", "f2", src_dir_fd=d, dst_dir_fd=d); os.close(d)
with open("w/lock", "w") as f:
    fcntl.flock(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_UN)
tempfile.tempdir = os.getcwd() + "/w"
with tempfile.NamedTemporaryFile() as t, tempfile.TemporaryFile() as u, tempfile.TemporaryDirectory() as td:
    t.write(b"x"); u.write(b"y"); open(td + "/z", "w").close()
os.chdir("w/a/b"); open("rel", "w").write("r"); os.makedirs("p/q"); os.chdir("p/q"); open("../../up", "w").close()
os.chdir("../../../../.."); assert os.path.exists("w/a/b/up")
p = os.path.abspath("w/abs"); open(p, "x").close(); assert os.path.exists("w/abs"); os.truncate(p, 100)
assert os.access("w/abs", os.W_OK)
for wrong, number in ((lambda: open("w/abs", "x"), 17), (lambda: open("w/none/x", "w"), 2),
                      (lambda: os.mkdir("w"), 17),
                      (lambda: os.rmdir("w"), 39), (lambda: open("w", "w"), 21), (lambda: os.unlink("w/none"), 2),
                      (lambda: os.rename("w", "w/a/in"), 22), (lambda: open("w/abs/x", "w"), 20),
                      (lambda: os.rename("w/abs", "/tmp/x"), 18), (lambda: open("w/" + "n" * 300, "w"), 36)):
    try: wrong()
    except OSError as e: assert e.errno == number, (number, e)
    else: raise SystemExit(f"no errno {number}")
os.symlink("loop", "w/loop")
try: open("w/loop", "w")
except OSError as e: assert e.errno == 40
os.symlink("target", "w/dangling"); open("w/dangling", "w").write("t"); assert open("w/target").read() == "t"
"""
WORKS["modes that let others write"] = r"""
import itertools, os, stat, tempfile
d, modes = tempfile.mkdtemp(dir="/tmp"), itertools.cycle((0o720, 0o702, 0o722, 0o766, 0o770, 0o777))
def can(call, *args, of, **how):
    mode = next(modes); call(*args, mode, **how)
    assert stat.S_IMODE(os.stat(of).st_mode) == mode, (args, oct(mode), os.stat(of))
def fails(number, call, *args):
    try: call(*args, 0o666)
    except OSError as e: assert e.errno == number, (args, e)
    else: raise SystemExit(f"{args}: no errno {number}")
open("kept", "w").close(); os.symlink("/dev/fd/1", d + "/1")
for folder in d, os.getcwd():
    os.chdir(folder); open("f", "w").close(); f = os.open("f", os.O_RDWR)
    can(os.chmod, "f", of=f); can(os.chmod, "./f", of=f); can(os.chmod, folder + "//f", of=f)
    can(os.chmod, "f", of=f, dir_fd=os.open(folder, os.O_RDONLY)); can(os.fchmod, f, of=f)
    os.symlink("f", "l"); can(os.chmod, "l", of=f); fails(20, os.chmod, "f/"); fails(20, os.chmod, "f/x")
    for way in "/proc/self/fd/", "/proc//self/./fd/", "/proc/thread-self/fd/", "/dev/fd/", "//dev/./fd//":
        can(os.chmod, f"{way}{f}", of=f); can(os.chmod, f"{way}{os.open('f', os.O_PATH)}", of=f)
        fails(2, os.chmod, way + "999")
    out = os.dup(1); os.dup2(f, 1); can(os.chmod, "/dev/stdout", of=f); can(os.chmod, d + "/1", of=f); os.dup2(out, 1)
    os.symlink("loop", "loop"); fails(40, os.chmod, "loop"); fails(2, os.chmod, ""); fails(2, os.chmod, "none")
    os.mkdir("d"); can(os.chmod, "d", of="d"); can(os.chmod, "d/.", of="d")
    can(os.fchmod, os.open("d", os.O_RDONLY), of="d")
    os.mkfifo("i"); can(os.chmod, "i", of="i"); fails(9, os.fchmod, os.open("f", os.O_PATH)); fails(9, os.fchmod, 999)
    os.rename("f", "g"); can(os.fchmod, f, of="g"); can(os.fchmod, f, of=f)
    if folder == d:
        os.link("g", "h"); os.unlink("g"); can(os.fchmod, f, of="h"); os.unlink("h")
    else:
        os.unlink("g")
    can(os.fchmod, f, of=f); can(os.chmod, f"/proc/self/fd/{f}", of=f)
r, w = os.pipe(); can(os.fchmod, r, of=r); can(os.chmod, f"/dev/fd/{w}", of=w)
fails(30, os.chmod, "/usr")
"""
WORKS["sqlite"] = r"""
import sqlite3
for mode in ("delete", "wal", "truncate", "persist"):
    c = sqlite3.connect(f"{mode}.db"); c.execute(f"pragma journal_mode={mode}"); c.execute("pragma mmap_size=1000000")
    c.execute("create table t (n)")
    for i in range(50):
        c.execute("insert into t values (?)", (i,)); c.commit()
    d = sqlite3.connect(f"{mode}.db"); assert d.execute("select count(*) from t").fetchone() == (50,)
    d.close(); c.execute("vacuum"); c.close()
"""
WORKS["archives"] = r"""
import os, shutil, subprocess, zipfile
os.makedirs("src/a/b")
for i in range(50): open(f"src/a/{i}", "w").write(str(i))
os.chmod("src/a/1", 0o755); os.symlink("1", "src/a/link"); os.link("src/a/2", "src/a/hard")
subprocess.run("tar cf t.tar src && mkdir out && tar xpf t.tar -C out && cp -a src copy && diff -r src out/src",
    shell=True, check=True)
assert os.stat("out/src/a/hard").st_nlink == 2
shutil.make_archive("z", "zip", "src"); zipfile.ZipFile("z.zip").extractall("unzipped")
if shutil.which("unzip"): subprocess.run(["unzip", "-q", "-o", "z.zip", "-d", "un"], check=True)
shutil.rmtree("out")
subprocess.run("rm -rf copy src && install -m 644 t.tar installed && touch -d 2001-01-01 installed", shell=True,
    check=True)
"""
BUILD = r"""
import os, subprocess
for i in range(10): open(f"f{i}.c", "w").write(f"int f{i}(void) {{ return {i}; }}\n")
open("main.c", "w").write("int f3(void); int main(void) { return f3(); }\n")
open("Makefile", "w").write("O = main.o " + " ".join(f"f{i}.o" for i in range(10)) +
  "\nall: p\np: $O lib.a\n\t$(CC) -o $@ $O\nlib.a: $O\n\tar rc $@ $O\n")
subprocess.run(%r, check=True, shell=True)
assert subprocess.run(["./p"]).returncode == 3
subprocess.run(["sh", "-c", "strip p && ./p; test $? = 3 && cp p q && ./q; test $? = 3"], check=True)
"""
WORKS["cc"] = BUILD % "for f in *.c; do cc -c $f; done; ar rc lib.a *.o; cc -o p *.o"
WORKS["make"] = BUILD % "make -s -j4"
WORKS["multiprocessing"] = r"""
import multiprocessing, os
def work(n):
    for i in range(20):
        open(f"m{n}-{i}", "w").write(str(n)); os.rename(f"m{n}-{i}", f"r{n}-{i}")
    return n
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(6) as pool:
        assert pool.map(work, range(12)) == list(range(12))
    assert len([n for n in os.listdir(".") if n[0] == "r"]) == 240
"""
WORKS["shell"] = r"""
import subprocess
subprocess.run('''
set -e; echo a > a; echo b >> a; cat < a > b; sed -i s/a/c/ b; grep -q c b; mkdir -p x/y/z; mv b x/y; cp -r x w
ln -s x l; ln a hard; chmod -R u+w x; touch -r a x/y/b; find . -name z -empty -delete; ls -l > list
sort list | tee l2 > l3; mkfifo f; (cat f > fromf &) ; echo hi > f
dd if=/dev/zero of=big bs=64k count=20 conv=notrunc 2>/dev/null
truncate -s 10 big; test $(stat -c %s big) = 10; rm -r w; exec 5> five; echo x >&5; : > a; test ! -s a
''', shell=True, check=True)
"""
WORKS["numpy"] = r"""
import numpy as np
a = np.arange(1000.0); np.save("a.npy", a); np.savez("b.npz", a=a); np.savetxt("c.txt", a)
assert (np.load("a.npy", mmap_mode="r+") == a).all(); m = np.memmap("m", dtype="f8", mode="w+", shape=(10,))
m[:] = 1; m.flush()
"""
WORKS["pandas"] = r"""
import pandas as pd
d = pd.DataFrame({"a": [1, 2]}); d.to_csv("d.csv"); assert pd.read_csv("d.csv", index_col=0).equals(d)
d.to_pickle("d.pkl")
"""


@halves()
@pytest.mark.parametrize("name", WORKS)
def test_workload(lab, name):
    if name in ("numpy", "pandas") and lab.run(PYTHON, "-c", f"import {name}").returncode != 0:
        pytest.skip(f"{name} is not there")
    needs(*{"make": ["make", "cc"], "cc": ["cc"], "archives": ["tar"]}.get(name, ()))
    started = time.time()
    done = lab.run(PYTHON, "-c", WORKS[name], timeout=300)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    owner = lab.work.stat()
    made = list(lab.work.rglob("*"))
    assert made
    for path in made:
        st = path.lstat()
        assert (st.st_uid, st.st_gid) == (owner.st_uid, owner.st_gid), path
        assert st.st_ctime >= started - 2 and not st.st_mode & 0o6000, path


def make_wheel(folder, files):
    name = folder / "made_up-1-py3-none-any.whl"
    with zipfile.ZipFile(name, "w") as z:
        record = []
        for n in range(files):
            z.writestr(f"made_up/p{n // 100}/m{n}.py", f"x = {n}\n")
            record.append(f"made_up/p{n // 100}/m{n}.py,,\n")
        for n, text in {
            "METADATA": "Metadata-Version: 2.1\nName: made-up\nVersion: 1\n",
            "WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }.items():
            z.writestr(f"made_up-1.dist-info/{n}", text)
            record.append(f"made_up-1.dist-info/{n},,\n")
        z.writestr("made_up-1.dist-info/RECORD", "".join(record) + "made_up-1.dist-info/RECORD,,\n")
    return name


@halves("root without cgroups")
def test_pip_into_the_workspace(lab):
    if lab.run(PYTHON, "-m", "pip", "--version").returncode != 0:
        pytest.skip("no pip for the system's Python")
    make_wheel(lab.work, 300)
    lab.give()
    pip = [PYTHON, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", "site", "--no-compile"]
    done = lab.run(*pip, "made_up-1-py3-none-any.whl", timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(list((lab.work / "site/made_up").rglob("*.py"))) == 300
    assert lab.good("import sys; sys.path.insert(0, 'site'); from made_up.p2 import m299; print(m299.x)") == "299\n"
    again = lab.run(*pip, "--upgrade", "made_up-1-py3-none-any.whl", timeout=300)
    assert again.returncode == 0, again.stderr[-2000:]


UNSAID = """
import json, os
print(json.dumps([os.access(n, os.W_OK) for n in (".envrc", ".git/config", "file")]))
"""


@halves("root without cgroups")
def test_access_tells_what_may_be_written(lab):
    """A program that asks first hears the truth of what is free to write."""
    lab.furnish()
    assert json.loads(lab.good(UNSAID))[2] is True
