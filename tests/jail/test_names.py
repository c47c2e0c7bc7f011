"""What programs outside would execute stays out of cells' reach in a writable workspace, whatever the host does beside
them: renames over it, in place, with git, by moving its parents; existing or absent, under junk, by any path.

C programs of names/ attack from a jail while names/saves.py saves outside. Each half starts jails another way; who
judges names is the same without control groups, which each call by each name and kind of path is tried in, too.
"""

import errno
import json
import os
import re

import pytest

import kernels
import nameslab
from nameslab import ABSENT, EXISTING, NEWER, PYTHON

pytestmark = [pytest.mark.cellblock_only, pytest.mark.timeout(600)]
SAVES = 1000
# Of those that are hundreds of calls each. CELLBLOCK_TEST_MANY=1 makes them as many as the others.
SLOW = SAVES if os.environ.get("CELLBLOCK_TEST_MANY") == "1" else SAVES // 5


halves = nameslab.halves

# kind of save: (what is saved, existing names that are attacked, absent ones, times)
SAVED = {
    "rename": ([".envrc", ".git/config", ".vscode/settings.json", "venv/pyvenv.cfg"], ["sub/.git/config"], [], SAVES),
    "in_place": ([".envrc", ".git/hooks/pre-commit", "venv/bin/activate"], [], [], SAVES),
    "anew": ([".envrc", ".git/hooks/pre-commit", ".vscode/settings.json"], [], [], SAVES),
    "editor": ([".vscode/settings.json", ".git/hooks/pre-commit", "venv/bin/activate"], [], [], SAVES),
    "git_config": ([".git/config"], [".git/config.lock"], [".git/hooks/x"], SLOW),
    "checkout": ([".envrc"], [".vscode/settings.json"], [".vscode/tasks.json", ".git/hooks/x"], SLOW),
    "away_and_back of git": (
        [".git"],
        [".git/config", ".git.bak/config", ".git/hooks/pre-commit", ".git.bak/hooks/pre-commit"],
        [".git/hooks/x", ".git.bak/hooks/x", ".git.bak/commondir"],
        SAVES,
    ),
    "away_and_back of a parent": (
        ["sub", "venv"],
        ["sub/.envrc", "sub.bak/.envrc", "sub/.git/config", "sub.bak/.git/config", "venv.bak/bin/activate"],
        ["sub/.git/hooks/x", "sub.bak/.git/hooks/x", "venv.bak/lib/python3/site-packages/evil.pth"],
        SAVES,
    ),
    "copied": (
        ["sub"],
        ["sub/.envrc", "sub/.git/config", "sub/.git/hooks/post-merge"],
        ["sub/.git/hooks/x"],
        SLOW,
    ),
    "folder_anew": ([".vscode/settings.json"], [], [".vscode/tasks.json"], SAVES),
}
# The folders that the attacker would move or remove.
FOLDERS = [".git/hooks/", ".vscode/", "venv/bin/", "venv/lib/"]


def attacked(out):
    """What was granted to the attacker, and how often it went round."""
    rounds = re.search(r"^ROUNDS (\d+)$", out, re.M)
    assert rounds, out
    return re.findall(r"^WON .*$", out, re.M), int(rounds[1])


def stop(lab, spinning):
    (lab.work / "stop").touch()
    out, err = spinning.communicate(timeout=120)
    assert spinning.returncode == 0, (spinning.returncode, out, err[-2000:])
    return attacked(out)


@halves("root without cgroups")
@pytest.mark.parametrize("kind", SAVED)
def test_a_cell_that_spins_while_the_host_saves(lab, kind):
    saved, existing, absent, times = SAVED[kind]
    lab.furnish()
    lab.compile("spin")
    names = [*(n for n in saved if (lab.work / n).is_file()), *existing, *absent, *FOLDERS]
    spinning = lab.start("./spin", "stop", *dict.fromkeys(names))
    lab.until("cell-ready", spinning)
    said = lab.save(kind.split(" ")[0], times, *saved)
    won, rounds = stop(lab, spinning)
    faults = lab.faults(absent=[*absent, ".git/config.lock"])
    assert not won and not faults, f"{len(won)} calls granted in {rounds} rounds: {won[:12]}; left: {faults[:8]}"
    saves = re.search(r"SAVED (\d+) of (\d+)", said)
    assert rounds >= 200 and int(saves[1]) >= times, (rounds, said)
    lab.put(".git/config", "[core]\n\trepositoryformatversion = 0\n")  # the saves were no configuration
    lab.host("git", "fsck")


@halves()
def test_every_name_existing_and_absent(lab):
    """Nobody saves: each call, once for each name."""
    lab.furnish()
    lab.compile("spin")
    (lab.work / "stop").touch()
    done = lab.run("./spin", "stop", *EXISTING, *ABSENT, *FOLDERS)
    won, _ = attacked(done.stdout)
    assert not won and not lab.faults(absent=ABSENT), (won[:20], lab.faults(absent=ABSENT)[:10])


@halves("root without cgroups")
def test_names_that_current_tools_run(lab):
    lab.furnish()
    lab.compile("spin")
    (lab.work / "stop").touch()
    lab.put(".hg/store/x")
    lab.give()
    names = [n for n in NEWER if n != ".hg"]
    won, _ = attacked(lab.run("./spin", "stop", *names).stdout)
    assert not won and not lab.faults(absent=names), (won[:20], lab.faults(absent=names))


HELD = """
import os, sys, time
held, seen = [], set()
open("cell-ready", "w").close()
while not os.path.exists("stop"):
    for name in os.listdir("."):
        if name in seen or name.startswith("cell-") or name == "stop":
            continue
        try:
            held.append(os.open(name, os.O_RDWR | os.O_NONBLOCK))
        except OSError:
            continue
        seen.add(name) if name == "file" else None
        os.unlink("cell-x") if os.path.exists("cell-x") else None
        if len(held) > 200:
            os.close(held.pop(0))
for fd in held:
    try:
        os.pwrite(fd, b"CELL was here", 0)
    except OSError:
        pass
"""


@halves("root without cgroups")
def test_temporary_files_of_an_editor_beside_the_entry(lab):
    """The file that takes the entry's place is opened while it has another name, and written when it has its own."""
    lab.furnish()
    (lab.work / "file").unlink()
    holding = lab.start(PYTHON, "-c", HELD)
    lab.until("cell-ready", holding)
    lab.save("editor", 300, ".envrc", ".pre-commit-config.yaml")
    (lab.work / "stop").touch()
    assert holding.wait(60) == 0, holding.communicate()
    entries = (".envrc has bytes", ".pre-commit-config.yaml has bytes")
    assert not [f for f in lab.faults() if f.startswith(entries)]


# ---- what a refusal says ----

REFUSED = """
import errno, json, os, sys
def tried(f, *a):
    try:
        f(*a)
    except OSError as e:
        return errno.errorcode[e.errno]
    return "granted"
open("cell-mine", "w").close()
r = {}
for name in json.loads(sys.argv[1]):
    r[name] = {
        "open": tried(lambda: open(name, "r+" if os.path.exists(name) else "x")),
        "rename": tried(os.rename, "cell-mine", name),
        "link": tried(os.link, "cell-mine", name) if not os.path.exists(name) else "EROFS",
        "unlink": tried(os.unlink, name) if os.path.lexists(name) else "EROFS",
        "mkdir": tried(os.mkdir, name) if not os.path.exists(name) else "EROFS",
        "symlink": tried(os.symlink, "x", name) if not os.path.lexists(name) else "EROFS",
        "chmod": tried(os.chmod, name, 0o600) if os.path.exists(name) else "EROFS",
        "utime": tried(os.utime, name) if os.path.exists(name) else "EROFS",
        "truncate": tried(os.truncate, name, 0) if os.path.exists(name) else "EROFS",
        "mkfifo": tried(os.mkfifo, name) if not os.path.exists(name) else "EROFS",
    }
print(json.dumps(r))
"""


@halves("root without cgroups")
def test_a_refusal_is_erofs(lab):
    """As on a read-only file system: programs have words for that."""
    lab.furnish()
    names = [".git/config", ".git/hooks/pre-commit", ".git/hooks/x", ".envrc", ".vscode/x", ".husky", "venv/bin/x"]
    result = json.loads(lab.good(REFUSED, json.dumps(names)))
    wrong = {n: {c: e for c, e in calls.items() if e != errno.errorcode[errno.EROFS]} for n, calls in result.items()}
    assert not any(wrong.values()), wrong


NOTED = {
    "open('.git/config', 'a')": ".git",
    "open('.git/hooks/pre-push', 'w')": ".git",
    "open('.envrc', 'w')": ".envrc",
    "open('sub/.envrc', 'w')": ".envrc",
    "import os; os.rename('mine', '.vscode/settings.json')": ".vscode",
    "import os; os.mkdir('.husky')": ".husky",
    "import os; os.symlink('mine', 'sub/.pre-commit-config.yaml')": ".pre-commit-config.yaml",
    "import os; os.link('mine', '.husky')": ".husky",
    "import os; os.unlink('venv/pyvenv.cfg')": "pyvenv.cfg",
    "open('venv/bin/x', 'w')": "pyvenv.cfg",
    "open('venv/lib/python3/site-packages/x.pth', 'w')": "site-packages",
    "import pathlib; pathlib.Path('.devcontainer').mkdir()": ".devcontainer",
    "import os; os.chmod('.git/hooks', 0o777)": ".git",
}


def test_a_refusal_names_key_and_name(start, nothing_left):
    """The exception's note; before Python 3.11 a line on stderr."""
    lab = nameslab.Lab(nothing_left / "noted", "user", None)
    lab.furnish()
    k = start(argv=kernels.system_argv(), workspace=lab.work)
    k.client.run("open('mine', 'w').close()")
    missing = {}
    for code, name in NOTED.items():
        cell = k.client.run(code)
        said = cell.text("stderr") + "\n".join(cell.content.get("traceback", ()))
        if cell.ok or "workspace.protect" not in said or name not in said.split("workspace.protect", 1)[1]:
            missing[code] = "granted" if cell.ok else said[-200:]
    assert not missing


# ---- junk, case, paths ----

JUNK = """
import os
for i in range(300):
    os.makedirs(f"junk/{i:03}")
    for k in range(100):
        os.close(os.open(f"junk/{i:03}/{k}", os.O_CREAT | os.O_WRONLY, 0o600))
here = "d/" * 40
os.makedirs(here)
for i in range(600):
    os.makedirs(f"found/{i:03}")
print(len(os.listdir("junk")))
"""


@halves("root without cgroups")
def test_junk_before_the_next_jail(lab):
    """More entries, deeper and more finds than a search would bear; the next jail protects as the first did."""
    lab.furnish()
    assert lab.good(JUNK, timeout=400).strip() == "300"
    deep = "d/" * 40 + "repo"
    for i in range(600):
        lab.put(f"found/{i:03}/.envrc")
    lab.put(f"{deep}/.git/hooks/pre-commit")
    lab.put("zzz/.git/config", "[core]\n\tHOST = 1\n")
    lab.put("zzz/.git/HEAD", "ref: refs/heads/x\n")
    (lab.work / "zzz/.git/objects").mkdir()
    (lab.work / "zzz/.git/refs").mkdir()
    lab.put("zzz/env/pyvenv.cfg", "home = /usr/bin\nHOST = 1\n")
    lab.put("zzz/env/bin/activate")
    lab.give()
    existing = [
        "zzz/.git/config",
        "zzz/env/pyvenv.cfg",
        "zzz/env/bin/activate",
        "found/599/.envrc",
        f"{deep}/.git/hooks/pre-commit",
    ]
    absent = ["zzz/.git/hooks/x", "zzz/env/bin/x", "found/000/.vscode", f"{deep}/.git/hooks/x", f"{deep}/.envrc"]
    lab.compile("spin")
    (lab.work / "stop").touch()
    won, _ = attacked(lab.run("./spin", "stop", *existing, *absent).stdout)
    faults = lab.faults(existing=EXISTING + existing, absent=absent)
    assert not won and not faults, (won[:20], faults[:10])


def test_junk_that_no_folder_may_pass_unseen(nothing_left):
    """The limits of a search are no way around: one folder deeper than any path of the kernel's."""
    lab = nameslab.Lab(nothing_left / "deep", "user", None)
    made = lab.good(
        "import os\ntry:\n    for i in range(100):\n        os.mkdir('d' * 50); os.chdir('d' * 50)\n"
        "    os.mkdir('.git'); os.mkdir('.git/hooks'); print('granted')\n"
        "except OSError as e:\n    print(e.errno)"
    ).strip()
    lab.host("rm", "-rf", "d" * 50)
    assert int(made) in (errno.EROFS, errno.ENAMETOOLONG), made


CASES = [".GIT/config", ".Git/hooks/pre-commit", "git~1/config", "GIT~1/hooks/x", ".git /config", ".git./config"]


@halves("root without cgroups")
def test_case_and_short_names(lab):
    """On file systems without case they are the same entry; here they are absent and stay so in a repository."""
    lab.furnish()
    won = lab.good(
        "import os, sys\nfor n in sys.argv[1:]:\n    try:\n        os.makedirs(os.path.dirname(n), exist_ok=True)\n"
        "        open(n, 'w').write('CELL was here')\n        print('WON', n)\n    except OSError: pass",
        *CASES[:2],
        ".ENVRC",
        ".VSCode/settings.json",
        "VENV/../venv/PYVENV.CFG",
    )
    assert not won, won


PATHS = r"""
import ctypes, errno, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
won = []
def link(target, name):
    try: os.symlink(target, name)  # to what is protected: refused, and there already
    except OSError: pass
def at(what, path, dir_fd=None, follow=True):
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_CREAT, os.O_RDONLY | os.O_TRUNC):
        try:
            fd = os.open(path, flags, 0o600, dir_fd=dir_fd)
        except (OSError, ValueError):
            continue
        won.append(what)
        os.write(fd, b"CELL was here") if flags & 3 else None
        os.close(fd)
cwd = os.getcwd()
d = os.open(".", os.O_RDONLY)
g = os.open(".git", os.O_RDONLY)
gp = os.open(".git", os.O_PATH)
h = os.open(".git/hooks", os.O_RDONLY)
link(".git", "cell-link"); link(cwd + "/.git", "/tmp/link"); link("/tmp/link", "cell-far")
link(".git/config", "cell-config"); link(".git/hooks/new", "cell-new")
link("cell-l2", "cell-l1"); link(".git", "cell-l2")
os.makedirs("a/b/c", exist_ok=True); link("../../../.git", "a/b/c/up")
link("/proc/self/cwd/.git", "cell-proc")
for base in (".git/config", ".git/hooks/x", ".git/hooks/pre-commit", ".envrc", ".vscode/new"):
    rest = base.split("/", 1)[1] if base.startswith(".git/") else None
    at("plain " + base, base)
    at("/proc/self/cwd " + base, "/proc/self/cwd/" + base)
    at("/proc/self/root " + base, "/proc/self/root" + cwd + "/" + base)
    at("/proc/thread-self/cwd " + base, "/proc/thread-self/cwd/" + base)
    at(f"/proc/pid/cwd " + base, f"/proc/{os.getpid()}/cwd/" + base)
    at("/proc/1/root " + base, "/proc/1/root" + cwd + "/" + base)
    at("/proc/self/fd/N " + base, f"/proc/self/fd/{d}/{base}")
    at("/dev/fd/N " + base, f"/dev/fd/{d}/{base}")
    at("dirfd " + base, base, dir_fd=d)
    at("chain of dots " + base, "a/b/../../a/b/c/../../../" + base)
    at("above and back " + base, "../" * 40 + cwd.lstrip("/") + "/" + base)
    at("slashes " + base, "./" * 200 + "//".join(base.split("/")))
    at("long " + base, "./" * ((4090 - len(base)) // 2) + base)
    at("too long " + base, "./" * 4000 + base)
    at("trailing slash " + base, base + "/")
    at("trailing dot " + base, base + "/.")
    if rest:
        at("dirfd .git " + rest, rest, dir_fd=g)
        at("O_PATH dirfd .git " + rest, rest, dir_fd=gp)
        at("/proc fd of .git " + rest, f"/proc/self/fd/{g}/{rest}")
        at("/proc O_PATH fd of .git " + rest, f"/proc/self/fd/{gp}/{rest}")
        for link in ("cell-link", "/tmp/link", "cell-far", "cell-l1", "a/b/c/up", "cell-proc"):
            at(link + " " + rest, link + "/" + rest)
at("link to the file", "cell-config"); at("link to an absent one", "cell-new")
at("hooks by dirfd", "y", dir_fd=h); at("dots from hooks", "../config", dir_fd=h)
at("absolute with dirfd of hooks", cwd + "/.git/config", dir_fd=h)
os.chdir(".git/hooks"); at("cwd in hooks", "z"); at("cwd in hooks, dots", "../config"); at("cwd, dot", "./z")
os.chdir(cwd)
f = os.open(".git/config", os.O_RDONLY)
at("reopen by /proc", f"/proc/self/fd/{f}"); at("reopen by /dev/fd", f"/dev/fd/{f}")
at("reopen by task", f"/proc/self/task/{os.getpid()}/fd/{f}")
fp = os.open(".git/config", os.O_PATH)
at("reopen O_PATH", f"/proc/self/fd/{fp}")
at("empty", ""); at("empty with dirfd", "", dir_fd=f); at("NUL", b".git/config\0x".split(b"\0")[0])
for flags in (0x1000, 0x400, 0x1400):  # AT_EMPTY_PATH, AT_SYMLINK_FOLLOW
    for source in (b"", f"/proc/self/fd/{f}".encode(), b".git/config", b"cell-config"):
        if libc.linkat(f if source == b"" else -100, source, -100, b"cell-linked", flags) == 0:
            if not os.path.islink("cell-linked"): won.append(f"linkat {source} {flags:x}")
            os.unlink("cell-linked")
        if libc.fchmodat(f if source == b"" else -100, source, 0o777, flags) == 0:
            won.append(f"fchmodat {source} {flags:x}")
for call in (lambda: os.rename("cell-link/config", "cell-got"), lambda: os.rename("cell-link/hooks", "cell-got"),
             lambda: os.unlink("cell-link/config"), lambda: os.chmod("cell-config", 0o777),
             lambda: os.utime("cell-config"),
             lambda: os.truncate("cell-config", 0), lambda: os.truncate(f"/proc/self/fd/{f}", 0),
             lambda: os.ftruncate(f, 0),
             lambda: os.fchmod(f, 0o777), lambda: os.utime(f), lambda: os.chmod(f"/proc/self/fd/{f}", 0o777),
             lambda: os.utime(f"/proc/self/fd/{f}"), lambda: os.mkdir("cell-link/hooks/d"),
             lambda: os.mkdir("hooks/d", dir_fd=g),
             lambda: os.symlink("x", "/tmp/link/hooks/s"), lambda: os.rename("file", "hooks/r", dst_dir_fd=g),
             lambda: os.mkfifo("cell-link/hooks/f"), lambda: os.link("file", "cell-link/hooks/l"),
             lambda: os.link("cell-link/config", "cell-alias"), lambda: os.link("config", "cell-alias", src_dir_fd=g),
             lambda: os.mkdir(".husky/"), lambda: os.mkdir("a/../.husky//"), lambda: os.rename("a", ".husky/"),
             lambda: os.rename("a/", ".husky"), lambda: os.rename(".vscode/", "cell-v"),
             lambda: os.symlink("a", ".husky")):
    try:
        call()
    except OSError:
        continue
    won.append(f"call in line {call.__code__.co_firstlineno} {call.__code__.co_consts} {call.__code__.co_names}")
os.mkdir("gone"); os.chdir("gone"); os.rmdir(cwd + "/gone")
at("deleted folder", ".git/config"); at("deleted folder, dots", "../.git/config"); at("deleted folder, empty", "")
os.chdir(cwd)
print(json.dumps(won))
"""


@halves()
def test_every_kind_of_path(lab):
    lab.furnish()
    leads = {"cell-link": ".git", "cell-config": ".git/config", "cell-new": ".git/hooks/new", "cell-l2": ".git"}
    for name, target in leads.items():  # made outside: cells may not
        (lab.work / name).symlink_to(target)
    won = json.loads(lab.good(PATHS))
    faults = lab.faults(absent=[".git/hooks/x", ".git/hooks/y", ".git/hooks/z", ".vscode/new", ".husky"])
    assert not won and not faults, (won[:15], faults)


LEADS_OUT = """
import os, sys
for name in ("cell-out", "cell-up", "cell-tmp/x", "cell-abs/x"):
    for flags in (os.O_WRONLY, os.O_WRONLY | os.O_CREAT):
        try:
            os.write(os.open(name, flags, 0o600), b"CELL was here")
            print("WON" if not name.startswith("cell-tmp") else "", name)
        except OSError: pass
open("/tmp/x", "w").write("mine")
open("cell-tmp/y", "w").write("mine")   # a link into the jail's own /tmp is the jail's own affair
print(open("/tmp/y").read())
"""


@halves("root without cgroups")
def test_links_that_lead_out_of_the_workspace(lab):
    """What is outside is judged by the jail's mounts, never done outside of it."""
    outside = lab.folder / "outside"
    outside.mkdir()
    (outside / "x").write_text("HOST\n")
    for name, target in {
        "cell-out": outside / "x",
        "cell-up": "../outside/x",
        "cell-tmp": "/tmp",
        "cell-abs": outside,
    }.items():
        (lab.work / name).symlink_to(target)
    lab.give()
    said = lab.good(LEADS_OUT)
    assert "WON" not in said and said.endswith("mine\n"), said
    assert (outside / "x").read_text() == "HOST\n" and os.listdir(outside) == ["x"]
    assert not os.path.exists("/tmp/y")
