"""Names that protect, in places where they do not say so by themselves: what an environment will be made of before
anybody makes it, where a link of a protected name leads, and what a workspace itself is called.
"""

import json
import os
import shutil
import subprocess

import pytest

import nameslab
from nameslab import PYTHON

pytestmark = [pytest.mark.cellblock_only, pytest.mark.timeout(600)]
halves = nameslab.halves


# What a cell tries; each line of its output is one thing that it was granted.
TRY = """
import os, sys
def t(what, act):
    try: act()
    except OSError as e: assert e.errno in (2, 18, 20, 30), (what, e)
    else: print(what)
def write(p):
    os.makedirs(os.path.dirname(p) or ".", exist_ok=True)
    with open(p, "a") as f: f.write("CELL was here\\n")
def link(p, target):
    os.makedirs(os.path.dirname(p), exist_ok=True); os.symlink(target, p)
"""

# ---- environments to be ----

SEEDS = [
    "v/lib/python3.11/site-packages/a.pth",
    "v/lib64/python3.12/site-packages/sitecustomize.py",
    "v/local/lib/python3/dist-packages/a.pth",
    "v/Lib/site-packages/a.pth",
    "libs/python3.11/site-packages/a.pth",
    "site-packages/a.pth",
    "v/bin/activate",
    "v/bin/activate.fish",
    "v/bin/Activate.ps1",
    "v/bin/activate_this.py",
    "v/bin/python",
    "v/bin/python3.11",
    "v/bin/pypy3",
    "v/bin/pip",
    "v/bin/pip3.11",
    "v/Scripts/activate.bat",
    "v/Scripts/python.exe",
    "v/Scripts/pip.exe",
    "v/etc/conda/activate.d/x.sh",
    "v/pyvenv.cfg",
    "v/conda-meta/history",
    "v/pip.conf",
    "v/.condarc",
    "v/etc/ipython/ipython_config.py",
    "bin/activate",
    "pip.conf",
]
FREE = [
    "v/bin/tool",
    "v/bin/pip-compile",
    "v/bin/activate-global-python-argcomplete",
    "v/bin/python-argcomplete-check-easy-install-script",
    "v/activate",
    "lib/python/x.py",
    "target/requests/x.py",
    "libz.so.1.2",
]


@halves("root without cgroups")
def test_what_an_environment_will_be_made_of(lab):
    """Before it is one. What packages bring with them elsewhere is free."""
    got = lab.good(TRY + "for p in sys.argv[1:]: t(p, lambda: write(p))", *SEEDS, *FREE).split()
    assert got == FREE
    assert [n for n in SEEDS if os.path.lexists(lab.work / n)] == []


FOLDERS = """
t("a link called bin", lambda: link("l/bin", "../other"))
t("a link called Scripts", lambda: link("l/Scripts", "../other"))
t("a link called site-packages", lambda: link("l/lib/python3.11/site-packages", "../../../other"))
write("x/activate"); write("y/tool")
t("a folder with activate renamed to bin", lambda: os.rename("x", "v/bin"))
os.mkdir("free")
t("FREE a folder renamed to bin", lambda: os.rename("y", "free/bin"))
t("FREE bin renamed", lambda: os.rename("free/bin", "free/tools"))
link("m/lib", "../libs"); link("n/lib/libz.so", "libz.so.1")
t("by a link of its parent", lambda: write("m/lib/python3.11/site-packages/a.pth"))
os.rename("free/tools", "free/bin")
t("into what became bin", lambda: write("free/bin/activate"))
t("a file renamed to it", lambda: (os.mkdir("z"), os.mkdir("z/bin"), os.rename("x/activate", "z/bin/activate")))
"""


@halves("root without cgroups")
def test_folders_led_or_moved_to_where_an_environment_will_be(lab):
    got = lab.good(TRY + "os.mkdir('v')\n" + FOLDERS).splitlines()
    assert got == ["FREE a folder renamed to bin", "FREE bin renamed"]


SPIN = """
import os, sys
seeds = ["v/lib/python%d.%d/site-packages/a.pth" % sys.version_info[:2], "v/bin/activate", "v/bin/python"]
kept = []
open("cell-ready", "w").close()
while not os.path.exists("stop"):
    for p in seeds:
        try:
            os.makedirs(os.path.dirname(p), exist_ok=True)
            kept.append(open(p, "x"))
            print("made", p)
        except OSError: pass
for f in kept:
    f.write("import os; open('PWNED', 'w')  # CELL was here\\n")
    f.close()
"""


@halves("root without cgroups")
def test_an_environment_is_made_while_a_cell_spins(lab):
    spinning = lab.start(PYTHON, "-c", SPIN)
    lab.until("cell-ready", spinning)
    for _ in range(3):
        # the cell makes folders in it meanwhile: removed as often as it takes
        while (lab.work / "v").exists():
            shutil.rmtree(lab.work / "v", ignore_errors=True)
        lab.host(PYTHON, "-m", "venv", "--without-pip", "v")
    (lab.work / "stop").touch()
    out, err = spinning.communicate(timeout=120)
    assert spinning.returncode == 0 and "made" not in out, out + err[-2000:]
    lab.host("v/bin/python", "-c", "0")
    assert not (lab.work / "PWNED").exists() and not lab.faults(existing=["v/pyvenv.cfg", "v/bin/activate"])


# ---- links of protected names ----

AT_LINKS = """
for p in ("vs/tasks.json", "configs/envrc", "s/pc", "hooked/x", "d/i/x", "e/i/x", "there"):
    t(p, lambda: write(p))
t("parent moved", lambda: os.rename("configs", "c2"))
t("way moved", lambda: os.unlink("d"))
t("target removed", lambda: os.unlink("configs/envrc"))
t("target replaced", lambda: (write("own"), os.rename("own", "configs/envrc")))
t("target linked", lambda: os.link("s/pc", "alias"))
t("FREE beside", lambda: write("configs/other"))
"""


def furnish_links(lab):
    lab.host("git", "init", "-q", ".")
    for name in ("vs/settings.json", "configs/envrc", "s/pc", "hooked/y", "e/i/workspace.xml"):
        lab.put(name)
    for name, target in {
        ".vscode": "vs",
        ".envrc": "configs/envrc",
        ".git/hooks/pre-commit": "../../s/pc",
        ".husky": lab.work / "hooked",
        "d": "e",
        ".idea": "d/i",
        ".mcp.json": "there",
    }.items():
        (lab.work / name).parent.mkdir(exist_ok=True)
        (lab.work / name).symlink_to(target)
    lab.give()


TARGETS = ["vs/settings.json", "configs/envrc", "s/pc", "hooked/y", "e/i/workspace.xml"]


@halves("root without cgroups")
def test_where_links_of_protected_names_lead(lab):
    furnish_links(lab)
    got = lab.good(TRY + AT_LINKS).splitlines()
    assert got == ["FREE beside"]
    assert [(lab.work / n).read_text() for n in TARGETS] == ["HOST\n"] * len(TARGETS)


@halves("root without cgroups")
def test_where_a_folder_of_hooks_leads(lab):
    lab.host("git", "init", "-q", ".")
    shutil.rmtree(lab.work / ".git/hooks")
    lab.put("hooks/pre-commit")
    lab.put("s/pc")
    (lab.work / "hooks/post-merge").symlink_to("../s/pc")
    (lab.work / ".git/hooks").symlink_to("../hooks")
    (lab.work / ".git/config").rename(lab.work / "gitconfig")
    (lab.work / ".git/config").symlink_to("../gitconfig")
    lab.give()
    tried = ["hooks/pre-commit", "hooks/pre-push", "s/pc", "gitconfig"]
    assert lab.good(TRY + "for p in sys.argv[1:]: t(p, lambda: write(p))", *tried) == ""


LATER = """
import time
write("configs/envrc"); write("a/pc"); print("before")
open("cell-ready", "w").close()
while not os.path.exists("go"): time.sleep(0.01)
t("configs/envrc", lambda: write("configs/envrc")); t("a/pc", lambda: write("a/pc"))
"""


@halves("root without cgroups")
def test_a_link_that_is_made_while_a_cell_runs(lab):
    lab.host("git", "init", "-q", ".")
    p = lab.start(PYTHON, "-c", TRY + LATER)
    lab.until("cell-ready", p)
    (lab.work / ".envrc").symlink_to("configs/envrc")
    (lab.work / ".git/hooks/pre-commit").symlink_to("../../a/pc")
    (lab.work / "go").touch()
    out, err = p.communicate(timeout=60)
    assert (p.returncode, out) == (0, "before\n"), err


# ---- what the workspace is called ----

PLACES = {
    ".vscode": "",
    "x/.git/hooks": "",
    "venv/bin": "venv/pyvenv.cfg",
    "venv/lib/python3/site-packages": "venv/pyvenv.cfg",
    "site-packages/x": "",
    ".CLAUDE/hooks": "",
    "bare/hooks": "bare/HEAD bare/objects/x bare/refs/x",
}


@halves("root without cgroups")
@pytest.mark.parametrize("mode", ["rw", "overlay"])
@pytest.mark.parametrize("place", PLACES)
def test_a_workspace_in_what_is_protected(lab, place, mode):
    for name in PLACES[place].split():
        lab.put(name)
    lab.work = lab.work / place
    lab.work.mkdir(parents=True)
    done = lab.run("touch", "cell-x", settings=[f"workspace.mode={mode}"])
    assert done.returncode != 0 and not os.listdir(lab.work), done.stderr
    assert str(lab.work) in done.stderr and "workspace.protect" in done.stderr, done.stderr
    read = lab.run("true", settings=["workspace.mode=ro"])
    assert read.returncode == 0, read.stderr


@halves("root without cgroups")
@pytest.mark.parametrize("place", ["p/.claude/worktrees/w", "v/src/w", "p/.cursor/w/sub"])
def test_a_workspace_of_its_own_below_such_names(lab, place):
    """A checkout is a project of its own wherever a tool has put it; an environment's own parts are few."""
    lab.put("v/pyvenv.cfg")
    top = lab.work
    lab.work = top / place
    lab.work.mkdir(parents=True)
    for checkout in ("p/.claude/worktrees/w", "p/.cursor/w"):
        if (top / checkout).is_dir():
            (top / checkout / ".git").write_text("gitdir: /nowhere\n")
    lab.give()
    done = lab.run("touch", "cell-x")
    assert done.returncode == 0 and (lab.work / "cell-x").exists(), done.stderr


@halves("root without cgroups")
def test_names_begin_above_the_workspace(lab):
    """In a workspace called bin, `activate` is bin/activate."""
    lab.work = lab.work / "v/bin"
    lab.work.mkdir(parents=True)
    lab.give()
    assert lab.good(TRY + "for p in ('activate', 'python3', 'tool'): t(p, lambda: write(p))") == "tool\n"


@halves("root without cgroups")
def test_explain_tells_the_names_that_begin_above(lab):
    plain = jail_mounts(lab)
    lab.work = lab.work / "v/bin"
    lab.work.mkdir(parents=True)
    lab.give()
    mounts = jail_mounts(lab)
    assert mounts[f"{lab.work}/activate"] == mounts[f"{lab.work}/python3*"] == "read-only"
    assert not [path for path in plain if path.endswith("/activate") and path.startswith("/")], plain
    text = " ".join(lab.host(nameslab.program(), "explain").split())
    assert f"{lab.work}/activate," in text and "with the names of the folders above" in text, text
    lab.put(".git/HEAD")
    lab.work = lab.work / ".git/hooks"
    lab.work.mkdir()
    lab.give()
    text = " ".join(lab.host(nameslab.program(), "explain").split())
    assert f'{lab.work} refused: no jail starts – workspace.path {lab.work}: programs outside' in text, text
    assert "Name a folder elsewhere with --workspace" in text and "refused: no jail" not in json.dumps(plain)


def jail_mounts(lab):
    said = json.loads(lab.host(nameslab.program(), "explain", "--json", stderr=subprocess.DEVNULL))
    return {row["target"]: row["content"] for row in said["jail"]["mounts"]}


# ---- what is said ----


@halves("root without cgroups")
def test_what_was_refused_is_told_at_the_end(lab):
    lab.host("git", "init", "-q", ".")
    done = lab.run("sh", "-c", "git config x.y z; git config x.y z; echo x > sub\\\tx/.envrc; echo > file")
    told = [line for line in done.stderr.splitlines() if "workspace.protect" in line]
    assert len(told) == 1 and told[0].count(".git/config.lock") == 1, done.stderr
    many = "for i in range(500): t(i, lambda: os.mkdir('d%d' % i)); t(i, lambda: write('d%d/.envrc' % i))"
    done = lab.python(TRY + many)
    told = [line for line in done.stderr.splitlines() if "workspace.protect" in line]
    assert len(told) == 1 and ".envrc" in told[0] and "more" in told[0] and len(told[0]) < 4096, done.stderr
    name = "ä\x1b[31m\n"
    done = lab.python(TRY + f"t(1, lambda: write({name!r} + '/.envrc'))")
    told = [line for line in done.stderr.splitlines() if "workspace.protect" in line]
    assert len(told) == 1 and "ä\\x1b[31m\\x0a/.envrc" in told[0], done.stderr
    assert "workspace.protect" not in lab.run("sh", "-c", "echo > file; test -w .git/config").stderr


@halves("root without cgroups")
def test_links_that_were_refused_are_told_at_the_end(lab):
    """Each kind in a line of its own, with key and cure; what is refused for other reasons in none."""
    lab.put("two", "HOST\n")
    lab.give()
    os.link(lab.work / "two", lab.folder / "elsewhere")
    lab.put("set", "HOST\n")
    lab.give()
    (lab.work / "set").chmod(0o4755)
    tries = TRY.replace("in (2,", "in (1, 2,")
    acts = (
        "t('l', lambda: os.symlink('/etc/passwd', 'l')); os.makedirs('a/b'); os.symlink('../../x', 'a/b/up')\n"
        "t('m', lambda: os.rename('a/b', 'c')); t('w', lambda: open('two', 'a')); t('s', lambda: open('set', 'a'))\n"
        "t('n', lambda: os.link('two', 'three')); t('c', lambda: os.chmod('two', 0o600))\n"
    )
    done = lab.python(tries + acts)
    assert done.stdout == "", done.stdout
    told = [line for line in done.stderr.splitlines() if line.startswith("cellblock run: workspace.mode is")]
    assert len(told) == 2 and "workspace.protect" not in done.stderr, done.stderr
    assert 'neither made nor moved: l ("/etc/passwd"), c; with "overlay"' in told[0], told
    assert 'not written: two ("hard links"), set ("set-uid or set-gid"); copy' in told[1], told
    fine = "open('f', 'w').close(); os.symlink('f', 'l2'); t('d', lambda: os.link('a', 'd'))\n"
    assert "workspace.mode" not in lab.python(tries + fine).stderr
    # the cure is one
    assert lab.python("import os, shutil; shutil.copy('two', 'n'); os.rename('n', 'two'); open('two', 'a').write('x')")
    assert (lab.work / "two").read_text() == "HOST\nx" and (lab.folder / "elsewhere").read_text() == "HOST\n"


@halves("root without cgroups")
def test_a_file_that_run_gets_as_stdout_is_the_commands_own(lab):
    """As docs say, with the way round it."""
    cut = "import os\ntry: os.ftruncate(1, 0)\nexcept OSError as e: pass\n"
    log = lab.folder / "log"
    for ways, left in ((lambda f: {"stdout": f}, ""), (lambda f: {}, "before\n")):
        log.write_text("before\n")
        with open(log, "a") as f:
            assert lab.python(cut, **ways(f)).returncode == 0
        assert log.read_text() == left
