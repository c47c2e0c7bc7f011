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
    ("l", "./f"),
    ("l", "inside"),
    ("l", "a/b//c/./"),
    ("a/l", "../f"),
    ("a/b/l", "../../f"),
    ("a/b/l", ".././../nothing/x"),
    ("a/b/c/l", "../../../inside"),
    ("l", "WORK/f"),
    ("a/b/l", "WORK/a/nothing"),
    ("l", "WORK/chain"),
    ("l", "absolute/x"),
    ("l", "l"),
]
WHOLE = [("l", "."), ("a/l", ".."), ("a/b/l", "WORK")]  # if none of the host's links leads out
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
    said = json.loads(lab.good(TRIES, json.dumps(ALLOWED + WHOLE + REFUSED)))
    wrong = {name: said[name] for name in (f"{p} -> {t}" for p, t in ALLOWED) if said[name] != 0}
    wrong |= {name: said[name] for name in (f"{p} -> {t}" for p, t in WHOLE + REFUSED) if said[name] != errno.EPERM}
    assert not wrong


@halves("root without cgroups")
def test_links_to_the_whole_workspace(lab):
    said = json.loads(lab.good(TRIES, json.dumps(WHOLE)))
    assert set(said.values()) == {0}


VENV = "os.makedirs('.venv/bin'); open('.venv/pyvenv.cfg', 'w')"
# What the host has, then links of a cell's, the first of which leads to the victim once the others are there.
TWO_STEPS = {
    "an environment": (VENV, [("l", "g/.venv/bin/p"), ("g", ".")]),
    "by its whole path": (VENV, [("l", "g/.venv/bin/p"), ("g", "WORK")]),
    "from a folder": (VENV, [("a/l", "g/.venv/bin/p"), ("a/g", "..")]),
    "in the place of a folder": (VENV + "; os.makedirs('g/.venv/bin')", [("l", "g/.venv/bin/p"), ("g", ".")]),
    "deeper": (
        "os.makedirs('sub/deep/venv/bin'); open('sub/deep/venv/pyvenv.cfg', 'w')",
        [("l", "g/venv/bin/p"), ("g", "sub/deep")],
    ),
    "by the host's link": (
        "os.makedirs('sub/venv/bin'); open('sub/venv/pyvenv.cfg', 'w'); os.mkdir('d'); os.symlink('../sub', 'd/h')",
        [("l", "g/h/venv/bin/p"), ("g", "d")],
    ),
    "out": ("os.symlink('../outside', 'data')", [("l", "g/data/p"), ("g", ".")]),
    "out of a folder": (
        "os.makedirs('d/e'); os.symlink('../../../outside', 'd/e/data')",
        [("l", "g/e/data/p"), ("g", "d")],
    ),
    "out by two links": (
        "os.mkdir('d'); os.symlink('../e', 'd/h'); os.mkdir('e'); os.symlink('../../outside', 'e/data')",
        [("l", "g/h/data/p"), ("g", "d")],
    ),
    "a repository": (
        "os.makedirs('srv/r/hooks'); [os.mkdir('srv/r/' + n) for n in ('refs', 'objects', 'HEAD')]",
        [("l", "g/r/hooks/p"), ("g", "srv")],
    ),
    "a repository by its name": ("os.makedirs('srv/r.git/hooks')", [("l", "g/r.git/hooks/p"), ("g", "srv")]),
    "a longer name": ("os.mkdir('mise')", [("l", "g/config.toml"), ("g", "mise")]),
    "where a link leads": ("os.mkdir('c'); os.symlink('c/p', '.envrc')", [("l", "g/c/p"), ("g", ".")]),
    "where a hook leads": (
        "os.makedirs('.git/hooks'); os.mkdir('c'); os.symlink('../../c/p', '.git/hooks/pre-commit')",
        [("l", "g/c/p"), ("g", ".")],
    ),
}
STEPS = """
import json, os, sys
os.makedirs("a", exist_ok=True)
for path, target in json.loads(sys.argv[1]):
    if os.path.isdir(path):
        os.rename(path, "aside")
    os.symlink(target.replace("WORK", os.getcwd()), path)
"""


@halves("root without cgroups")
@pytest.mark.parametrize("way", TWO_STEPS)
def test_two_links_that_lead_farther_than_each(lab, way):
    host, links = TWO_STEPS[way]
    (lab.folder / "outside").mkdir()
    lab.give()
    lab.host(PYTHON, "-c", "import os; " + host)
    done = lab.python(STEPS, json.dumps(links))
    (last, _), (first, _) = links[-1], links[0]
    assert done.returncode != 0 and not (lab.work / last).is_symlink(), done
    assert "OSError" in done.stderr or "PermissionError" in done.stderr, done
    assert "cellblock run: workspace." in done.stderr and f'{last} ("' in done.stderr, done
    assert (lab.work / first).is_symlink(), done


ORDINARY = """
import os
os.makedirs("runs/5/sub"); os.makedirs("node_modules/x/bin"); os.makedirs("node_modules/.bin"); os.makedirs("pkg/lib")
for name in ("runs/5/log", "node_modules/x/cli.js", "node_modules/x/bin/tool", "pkg/lib/a"): open(name, "w").close()
os.symlink("runs/5", "latest"); os.symlink("5", "runs/newest"); os.symlink("../log", "runs/5/sub/log")
os.symlink("../x/cli.js", "node_modules/.bin/x"); os.symlink("../x/bin/tool", "node_modules/.bin/tool")
os.symlink("../pkg", "node_modules/pkg"); os.symlink("lib", "pkg/lib64"); os.symlink("node_modules", "modules")
os.symlink("checkout", "here"); os.symlink("../runs", "checkout/runs"); os.symlink("runs/none", "soon")
os.symlink(os.getcwd() + "/runs", "whole"); os.rename("runs", "moved"); os.rename("node_modules", "pkg/modules")
"""


@halves("root without cgroups")
def test_links_that_programs_make(lab):
    lab.host("git", "init", "-q", "checkout")
    lab.put("checkout/f")
    lab.give()
    lab.good(ORDINARY)


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
