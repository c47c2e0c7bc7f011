"""An attacker in a cell, for tests/jail/test_names_host.py: goes through the workspace over and over, and tries
something on whatever it meets while programs outside work there: roam.py STOP SEED ROAMERS

Trust domain: none. It makes what would be run outside wherever there is a folder, gets hold of files by descriptors,
mappings and second names, moves folders and puts others, or links, in their place. All that it writes begins with CELL,
and what it makes in its own right is named cell-…; at its end it writes through all that it still holds. It leaves
alone what nobody promises: git's objects, references and index, without which git outside would do nothing.
"""

import mmap
import os
import random
import shutil
import sys

MARK = b"CELL was here\n"
WANTED = """.envrc .vscode/tasks.json .idea/x.xml .husky/pre-commit .claude/settings.json .mcp.json .git pyvenv.cfg
conda-meta/history sitecustomize.py site-packages/evil.pth bin/activate bin/python .pre-commit-config.yaml commondir
.git/hooks/post-checkout .git/config .git/config.lock .git/info/attributes .git/rebase-merge/git-rebase-todo
.git/sequencer/todo .git/worktrees/x/commondir .git/modules/x/config hooks/post-commit .hg/hgrc lefthook.yml""".split()
DATA = ("objects", "refs", "logs", "index", "HEAD", "ORIG_HEAD", "packed-refs", "index.lock", "HEAD.lock")
DEPTH_MAX = 5  # what it makes would have no end
held, maps, aliases = [], [], []
count = 0


def own(kind):
    global count
    count += 1
    return f"cell-{kind}-{os.getpid()}-{count}"


def opened(path):
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW)
    os.pwrite(fd, MARK, 0)
    if len(held) < 800:
        held.append(fd)
    else:
        os.close(fd)


def mapped(path):
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW)
    if len(maps) < 200 and os.fstat(fd).st_size >= len(MARK):
        maps.append(mmap.mmap(fd, len(MARK)))
    os.close(fd)


def linked(path):
    name = own("alias")
    os.link(path, name, follow_symlinks=False)
    aliases.append(name)


def replaced(path):
    name = own("file")
    with open(name, "wb") as f:
        f.write(MARK)
    os.rename(name, path)


def away(path):
    os.rename(path, own("away"))


def made(path):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "xb") as f:
        f.write(MARK)


def a_link(path):
    name = own("link")
    os.symlink(random.choice(["venv/bin", ".git/hooks", "../outside", ".", "sub", "d", "cell-d"]), name)
    os.rename(name, path)


def exchanged(folder):
    """A folder for one of the cell's, or for a link."""
    os.rename(folder, own("away"))
    if random.random() < 0.5:
        a_link(folder)
    else:
        os.mkdir(folder)


def given_a_name(folder):
    name = own("d")
    os.makedirs(name + "/hooks")
    with open(name + "/hooks/x", "wb") as f:
        f.write(MARK)
    os.rename(name, os.path.join(folder, random.choice([".git", ".vscode", "hooks", ".husky", "conda-meta"])))


def put_back(folder):
    """What was moved away comes to lie under a name that is wanted."""
    mine = [n for n in os.listdir(".") if n.startswith("cell-away")]
    os.rename(random.choice(mine), os.path.join(folder, random.choice([".vscode", ".envrc", "bin", ".git", "sub"])))


FILES = [opened, opened, mapped, linked, replaced, away, a_link, os.unlink]
FOLDERS = [exchanged, given_a_name, put_back, a_link, away, lambda d: os.chmod(d, 0o777)]


def tried(act, *args):
    try:
        act(*args)
    except (OSError, ValueError, IndexError):
        pass


def roam(stop, seed):
    random.seed(seed)
    rounds = 0
    while not os.path.exists(stop):
        rounds += 1
        for folder, folders, files in os.walk("."):
            parts = folder.split("/")
            if ".git" in parts:
                folders[:] = [f for f in folders if f not in DATA]
                files = [f for f in files if f not in DATA]
            folders[:] = [f for f in folders if not f.startswith("cell-") and len(parts) < DEPTH_MAX]
            tried(made, os.path.join(folder, random.choice(WANTED)))
            for f in files:
                if not f.startswith("cell-") and f != stop:
                    tried(random.choice(FILES), os.path.join(folder, f))
            if folder != "." and random.random() < 0.1:
                tried(random.choice(FOLDERS), folder)
        for n in os.listdir("."):
            if n.startswith("cell-file") or (n.startswith("cell-away") and random.random() < 0.2):
                tried(shutil.rmtree if os.path.isdir(n) and not os.path.islink(n) else os.unlink, n)
    for fd in held:
        tried(os.pwrite, fd, MARK, 0)
    for m in maps:
        m[:] = MARK
    for name in aliases:
        tried(opened, name)
    print(f"ROUNDS {rounds} HELD {len(held)} MAPPED {len(maps)} LINKED {len(aliases)}", flush=True)


def main():
    """Several at once: what programs outside have just made is waited for."""
    stop, seed, roamers = sys.argv[1:]
    open(f"cell-ready{seed}", "w").close()
    kids = []
    for n in range(int(roamers)):
        pid = os.fork()
        if pid == 0:
            roam(stop, int(seed) * 100 + n)
            os._exit(0)
        kids.append(pid)
    sys.exit(any([os.waitpid(pid, 0)[1] for pid in kids]))


main()
