"""A cell makes no symbolic link that leads out of a writable workspace, or that could come to: not into the place of a
folder that a program outside fills, nor of a file that it saves.
"""

import errno
import json
import os

import pytest

from nameslab import PYTHON, halves

pytestmark = [pytest.mark.cellblock_only, pytest.mark.timeout(600)]
FILES = 300

# When a program outside has begun to fill the folder, a link takes its place.
SWAP = """
import os, sys
target, folder = sys.argv[1:]
def count():
    try:
        return len(os.listdir(folder))
    except OSError:
        return 0
swaps = 0
said = set()
open("cell-ready", "w").close()
while not os.path.exists("stop"):
    if not os.path.islink(folder) and count() >= 2:
        try:
            os.symlink(target, "cell-link")
        except OSError as e:
            said.add(e.errno)
            continue
        os.rename(folder, f"cell-away{swaps}")
        os.rename("cell-link", folder)
        swaps += 1
print(swaps, *said)
"""
FILLERS = {
    "tar": "tar xf ../d.tar",
    "cp": "cp -a ../src/d .",
    "shutil": f"{PYTHON} -c 'import shutil; shutil.copytree(\"../src/d\", \"d\")'",
    "tarfile": f"{PYTHON} -c 'import tarfile; tarfile.open(\"../d.tar\").extractall()'",
    "zipfile": f"{PYTHON} -c 'import zipfile; zipfile.ZipFile(\"../d.zip\").extractall()'",
    "checkout": "git checkout -q with",
}


def furnish(lab):
    """What is to be put into the folder d, and a folder outside that nobody shall write."""
    source = lab.folder / "src/d"
    source.mkdir(parents=True)
    (lab.folder / "outside").mkdir()
    for i in range(FILES):
        (source / f"{i:03}").write_text("HOST\n")
    lab.give()
    lab.host("tar", "cf", "d.tar", "-C", "src", "d", cwd=lab.folder)
    lab.host(PYTHON, "-m", "zipfile", "-c", "d.zip", "src/d", cwd=lab.folder)
    lab.host("git", "init", "-q", "-b", "without")
    lab.host("git", "commit", "-q", "--allow-empty", "-m", "one")
    lab.host("git", "checkout", "-q", "-b", "with")
    lab.host("cp", "-r", "../src/d", ".")
    lab.host("git", "add", "d")
    lab.host("git", "commit", "-q", "-m", "two")
    lab.host("git", "checkout", "-q", "without")


@halves("root without cgroups")
@pytest.mark.parametrize("filler", FILLERS)
def test_a_folder_that_is_filled_outside(lab, filler):
    furnish(lab)
    outside = lab.folder / "outside"
    swapping = lab.start(PYTHON, "-c", SWAP, outside, "d")
    lab.until("cell-ready", swapping)
    lab.host("sh", "-c", FILLERS[filler] + " || true")
    (lab.work / "stop").touch()
    out, err = swapping.communicate(timeout=120)
    assert swapping.returncode == 0, (out, err)
    assert not list(outside.iterdir()), out


TRIES = """
import json, os, sys
work = os.getcwd()
os.makedirs("a/b/c")
open("f", "w").close()
os.symlink("f", "inside")
def tried(call):
    try:
        call()
    except OSError as e:
        return e.errno
    return 0
said = {}
for path, target in json.loads(sys.argv[1]):
    target = target.replace("WORK", work)
    said[path + " -> " + target.replace(work, "WORK")] = tried(lambda: os.symlink(target, path))
    if os.path.islink(path):
        os.unlink(path)
print(json.dumps(said))
"""
ALLOWED = [
    ("l", "f"),
    ("l", "nothing"),
    ("l", "."),
    ("l", "./f"),
    ("l", "inside"),
    ("l", "a/b//c/./"),
    ("a/l", "../f"),
    ("a/l", ".."),
    ("a/b/l", "../../f"),
    ("a/b/l", ".././../nothing/x"),
    ("a/b/c/l", "../../../inside"),
    ("l", "WORK/f"),
    ("a/b/l", "WORK"),
    ("a/b/l", "WORK/a/nothing"),
    ("l", "WORK/chain"),
    ("l", "absolute/x"),
    ("l", "l"),
]
REFUSED = [
    ("l", ".."),
    ("l", "../f"),
    ("l", "/"),
    ("l", "/etc/passwd"),
    ("l", "/tmp/x"),
    ("l", "/dev/null"),
    ("l", "/proc/self/cwd"),
    ("l", "WORK/.."),
    ("l", "WORK/../outside"),
    ("l", "WORKx"),
    ("a/l", "../../f"),
    ("a/b/l", "../../../f"),
    ("a/l", "b/../../f"),  # names, then dots: another folder may come to be in the way
    ("l", "a/b/.."),
    ("l", "nothing/../.."),
    ("l", "out"),  # the host's own links
    ("l", "out/x"),
    ("a/l", "../out/x"),
    ("l", "up"),
    ("l", "up/x"),
    ("l", "chain/../x"),
    ("l", "far/x"),
    ("l", "WORK/out/x"),
]


def host_links(lab):
    for name, target in {
        "out": lab.folder / "outside",
        "up": "../outside",
        "far": "out",
        "chain": "inside",
        "absolute": lab.work / "a",
    }.items():
        (lab.work / name).symlink_to(target)
    lab.give()


@halves("root without cgroups")
def test_where_links_may_lead(lab):
    host_links(lab)
    said = json.loads(lab.good(TRIES, json.dumps(ALLOWED + REFUSED)))
    wrong = {name: said[name] for name in (f"{p} -> {t}" for p, t in ALLOWED) if said[name] != 0}
    wrong |= {name: said[name] for name in (f"{p} -> {t}" for p, t in REFUSED) if said[name] != errno.EPERM}
    assert not wrong


MOVES = """
import errno, json, os, sys
os.makedirs("a/b/c/d")
os.symlink("../../../f", "a/b/c/l")
os.symlink("../f", "a/l")
os.symlink("../x", "a/b/c/d/x")
os.makedirs("e/near")
os.symlink("y", "e/near/x")
said = {}
for code in json.loads(sys.argv[1]):
    try:
        exec(code)
        said[code] = 0
    except OSError as e:
        said[code] = e.errno
print(json.dumps(said))
"""
# In order: what is moved has gone.
MOVED = {
    "os.rename('a/b/c', 'c')": errno.EPERM,
    "os.rename('a/b', 'b')": errno.EPERM,
    "os.rename('a/b/c', 'a/c')": errno.EPERM,
    "os.rename('a/b/c/l', 'a/l2')": errno.EPERM,
    "os.rename('a/l', 'l')": errno.EPERM,
    "os.link('a/l', 'l', follow_symlinks=False)": errno.EPERM,
    "os.link('a/l', 'a/b/l2', follow_symlinks=False)": 0,
    "os.rename('a/b/c', 'a/b/c2')": 0,
    "os.rename('a/b/c2/d', 'a/d')": 0,
    "os.rename('e/near', 'near')": 0,
    "os.rename('out', 'mine')": errno.EPERM,
    "os.rename('sub', 'mine')": errno.EPERM,
    "os.rename('up', 'e/up')": 0,
    "os.link('out', 'mine', follow_symlinks=False)": errno.EPERM,
    "os.unlink('out')": 0,
}


@halves("root without cgroups")
def test_links_go_with_their_folder(lab):
    host_links(lab)
    (lab.work / "sub/deep").mkdir(parents=True)
    (lab.work / "sub/deep/out").symlink_to(lab.folder / "outside")
    lab.give()
    said = json.loads(lab.good(MOVES, json.dumps(list(MOVED))))
    assert said == MOVED
