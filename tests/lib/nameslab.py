"""A workspace with what programs outside would act on, and jails in it: for tests of what protects it by name.

Role: test code, outside the jail. The host's part of each test runs as the owner of the workspace. Whatever a cell
makes in its own right is named cell-… and begins with CELL; whatever the host saves has the word HOST in it: so an
alias, a write and a move can be told afterwards.
"""

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import kernels

HERE = Path(__file__).resolve().parents[1] / "jail/names"
ROOT = os.geteuid() == 0
PYTHON = "/usr/bin/python3"
MARK = b"CELL was here"
GIT = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b",
    "GIT_CONFIG_NOSYSTEM": "1",
}
HALVES = ["root", "root without cgroups", "user"] if ROOT else ["user"]

# The workspace of every test. Lists are of files; absent names are made by nobody but an attacker.
EXISTING = [
    ".git/config",
    ".git/hooks/pre-commit",
    ".envrc",
    ".vscode/settings.json",
    ".idea/workspace.xml",
    ".pre-commit-config.yaml",
    "venv/pyvenv.cfg",
    "venv/bin/activate",
    "venv/lib/python3/site-packages/there.pth",
    "sub/.envrc",
    "sub/.git/config",
    "sub/.git/hooks/post-merge",
]
ABSENT = [
    ".git/hooks/post-checkout",
    ".git/hooks/x",
    ".vscode/tasks.json",
    ".devcontainer/devcontainer.json",
    ".devcontainer",
    ".husky/pre-commit",
    ".husky",
    "venv/bin/python9",
    "venv/lib/python3/site-packages/evil.pth",
    "venv/lib/python3/site-packages/sitecustomize.py",
    "sub/.vscode",
    "sub/.idea",
    "sub/pyvenv.cfg",
    "pyvenv.cfg",
    "conda-meta",
    ".git/commondir",
    ".git/config.worktree",
    ".git/config.lock",
    ".git/info/attributes",
    ".git/objects/info/alternates",
    ".git/rebase-merge",
    ".git/sequencer",
    ".git/modules",
    ".git/worktrees",
]
# Names that the policy got along with the judge.
NEWER = [
    ".claude",
    ".claude/settings.json",
    ".cursor",
    ".mcp.json",
    ".direnv",
    "mise.toml",
    "lefthook.yml",
    ".hg/hgrc",
    ".hg",
    "sub/.mcp.json",
]


def program(kind="cellblock"):
    return kernels.spec_argv()[0][0]


@functools.cache
def compiled(name, *more):
    """The bytes of a program of tests/jail/names."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / name
        subprocess.run(["cc", "-O1", "-o", out, HERE / f"{name}.c", "-pthread", *more], check=True)
        return out.read_bytes()


@functools.cache
def furnished():
    """A workspace that is copied for each test: git is ten programs."""
    folder = tempfile.mkdtemp(prefix="cb-names-")
    atexit.register(shutil.rmtree, folder)
    lab = Lab(Path(folder) / "lab", "furnished", None)
    lab.furnish_anew()
    return lab.work


class Lab:
    def __init__(self, folder, half, user):
        self.folder, self.half = Path(folder), half
        self.user = user if half == "user" and ROOT else None
        self.work = self.folder / "work"
        self.work.mkdir(parents=True)
        for d in [self.folder, *self.folder.parents]:
            if d.stat().st_uid == os.geteuid() and str(d).startswith(tempfile.gettempdir() + "/"):
                d.chmod(d.stat().st_mode | 0o055)
        self.give()
        self.env = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LANG": "C.UTF-8", **GIT}
        self.running = []

    def give(self):
        """All that root made is the user's."""
        if self.user:
            for d, folders, files in os.walk(self.folder):
                for n in [d, *(os.path.join(d, x) for x in folders + files)]:
                    os.chown(n, self.user.pw_uid, self.user.pw_gid, follow_symlinks=False)

    def who(self):
        if not self.user:
            return {}
        return {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}

    # ---- the host ----

    def put(self, name, text="HOST\n", mode=None):
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if mode is not None:
            path.chmod(mode)
        return path

    def host(self, *argv, **how):
        """A program outside, as the workspace's owner; its output."""
        how = {"cwd": self.work, "env": self.env, "text": True, "timeout": 600, "stderr": subprocess.STDOUT, **how}
        return subprocess.run([str(a) for a in argv], stdout=subprocess.PIPE, check=True, **self.who(), **how).stdout

    def furnish(self):
        """The entries of EXISTING, with two repositories; one has branches with and without .envrc and .vscode."""
        shutil.copytree(furnished(), self.work, symlinks=True, dirs_exist_ok=True)
        self.give()
        self.host("git", "update-index", "-q", "--refresh")  # these files are others

    def furnish_anew(self):
        for where in (".", "sub"):
            (self.work / where).mkdir(exist_ok=True)
            subprocess.run(["git", "init", "-q", "-b", "without", self.work / where], check=True, env=self.env)
            (self.work / where / ".git/hooks").mkdir(exist_ok=True)
            for sample in (self.work / where / ".git/hooks").glob("*.sample"):
                sample.unlink()
        for name in EXISTING:
            if not name.endswith(".git/config"):
                self.put(name)
        (self.work / ".git/hooks/pre-commit").chmod(0o644)
        self.put("venv/pyvenv.cfg", "home = /usr/bin\nHOST = 1\n")
        (self.work / "venv/bin/python3").symlink_to(PYTHON)
        self.put(".git/info/exclude", "cell-*\nvenv\nsub\nspin\n.pre-commit-config.yaml\n.idea\n*~\nstop\n")
        self.put("file", "HOST file\n")
        for where in (".", "sub"):
            self.host("git", "config", "cb.saved", "HOST", cwd=self.work / where)
        self.host("git", "add", "file")
        self.host("git", "commit", "-q", "-m", "one")
        self.host("git", "checkout", "-q", "-b", "with")
        self.host("git", "add", "-f", ".envrc", ".vscode")
        self.host("git", "commit", "-q", "-m", "two")

    def save(self, kind, times, *names):
        return self.host(PYTHON, HERE / "saves.py", kind, times, *names)

    # ---- the jail ----

    def compile(self, name, *more):
        """A program of tests/jail/names, in the workspace."""
        if not shutil.which("cc"):
            pytest.skip("no compiler: what attacks from C was not tried")
        out = self.work / name
        out.write_bytes(compiled(name, *more))
        out.chmod(0o755)
        if self.user:
            os.chown(out, self.user.pw_uid, self.user.pw_gid)
        return out

    def command(self, argv, settings=()):
        host = "no-cgroup" if "without" in self.half else "as it is"
        more = [w for s in settings for w in ("--set", s)]
        return kernels.on_host(host, [program(), "run", *more, "--", *(str(a) for a in argv)])

    def start(self, *argv, settings=(), **how):
        how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
        p = subprocess.Popen(
            self.command(argv, settings), cwd=self.work, env=self.env, text=True, **self.who(), **how
        )
        self.running.append(p)
        return p

    def run(self, *argv, settings=(), timeout=120, **how):
        p = self.start(*argv, settings=settings, **how)
        out, err = p.communicate(timeout=timeout)
        return subprocess.CompletedProcess(argv, p.returncode, out, err)

    def python(self, code, *argv, **how):
        return self.run(PYTHON, "-c", code, *argv, **how)

    def good(self, code, *argv, **how):
        """Python in a jail that has to end well; what it printed."""
        done = self.python(code, *argv, **how)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    def until(self, name, process, timeout=60):
        """Waits for a file that a jail makes; the jail's end before that is a failure."""
        deadline = time.monotonic() + timeout
        while not (self.work / name).exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, f"no {name} in time"
            time.sleep(0.01)

    def end(self):
        for p in self.running:
            if p.poll() is None:
                p.kill()
            p.communicate()

    # ---- afterwards ----

    def faults(self, existing=EXISTING, absent=()):
        """What a cell has won: by the state that it left."""
        found = []
        for folder, folders, files in os.walk(self.work):
            for n in folders + files:
                path = os.path.join(folder, n)
                name = os.path.relpath(path, self.work)
                if os.path.islink(path) or not os.path.isfile(path):
                    continue
                with open(path, "rb") as f:
                    data = f.read(1 << 16)
                mine = any(p.startswith("cell-") for p in name.split("/"))
                if MARK in data and not mine and not data.startswith(b"\x7fELF"):
                    found.append(f"{name} has bytes of the cell")
                if mine and b"HOST" in data:
                    found.append(f"{name} is an alias of the host's, or the file itself")
        for name in existing:
            path = self.work / name
            if not os.path.lexists(path):
                found.append(f"{name} is gone")
            elif path.is_symlink() or (path.is_file() and path.stat().st_nlink != 1):
                found.append(f"{name} has another name")
        found += [f"{name} came into being" for name in absent if os.path.lexists(self.work / name)]
        return found


def halves(*left_out):
    """The parameter of tests that run once for each way of starting jails."""
    return pytest.mark.parametrize("lab", [h for h in HALVES if h not in left_out], indirect=True)


if __name__ == "__main__":
    sys.exit("a module for tests")
