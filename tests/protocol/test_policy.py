"""Where a policy comes from, seen from outside: names, files, flags, environment, and the administrator's ceiling."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import kernels
import pytest

pytestmark = pytest.mark.cellblock_only

# A copy of /etc with a ceiling in it, for one command: in namespaces of its own.
UNDER_A_CEILING = """set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work"
mount -t overlay overlay -o lowerdir=/etc,upperdir="$1/upper",workdir="$1/work" /etc
mkdir -p /etc/cellblock
case $2 in
link) ln -s /nowhere/ceiling.json /etc/cellblock/ceiling.json ;;
folder) mv /etc/cellblock "$1/other" && ln -s /nowhere /etc/cellblock ;;
*) printf %s "$2" >/etc/cellblock/ceiling.json ;;
esac
shift 2
exec "$@"
"""


def explain(folder, *args, env=None, before=()):
    program, _, *python = kernels.spec_argv()[0]
    return subprocess.run(
        [*before, program, "explain", "--json", *python[: python.index("-f")], *args],
        cwd=folder,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=60,
    )


def keys(said):
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)["policy"]["keys"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "config/cellblock").mkdir(parents=True)
    return tmp_path


def test_flags_beat_environment_and_file(folder):
    (folder / "config/cellblock/team.json").write_text('{"limits": {"pids": 11, "inodes": 1000}}')
    (folder / "own.json").write_text('{"limits.pids": 12}')
    env = {"JUPYTER_CONFIG_DIR": str(folder / "config"), "CELLBLOCK_POLICY": "team"}
    work = folder / "work"
    assert keys(explain(work, env=env))["limits.pids"] == 11
    assert keys(explain(work, "--policy", str(folder / "own.json"), env=env))["limits.pids"] == 12
    found = keys(explain(work, "--set", "limits.pids=13", env=env))
    assert found["limits.pids"] == 13 and found["limits.inodes"] == 1000


def test_words_that_are_not_known_name_the_nearest(folder):
    (folder / "config/cellblock/team.json").write_text("{}")
    env = {"JUPYTER_CONFIG_DIR": str(folder / "config")}
    for args, near in (
        (["--policy", "tema"], "team"),
        (["--policy", "agnet"], "agent"),
        (["--set", "timeout.cel=1"], "timeout.cell"),
        (["--set", "network.mode=nnoe"], "none"),
        (["--set", "workspace.mode=overly"], "overlay"),
    ):
        said = explain(folder / "work", *args, env=env)
        assert said.returncode == 2 and f'"{near}"' in said.stderr, said.stderr


@pytest.mark.parametrize("args", [["--policy", "nonsense"], ["--set", "no.such=1"], ["--set", "limits.pids=x"]])
def test_a_kernel_with_a_wrong_policy_answers_with_the_error(start, args):
    """A frontend shows what a cell says, and not why a kernel did not start."""
    k = start(args=args)
    word = args[-1].partition("=")[0]
    for _ in range(2):
        cell = k.client.run("open('ran', 'w')")
        assert cell.content["ename"] == "IsolationError" == cell.error["ename"], cell
        assert word in cell.error["evalue"], cell
    reply = k.client.request("cellblock_run_request", {"argv": ["touch", "ran"]}).content
    assert (reply["status"], reply["ename"]) == ("error", "IsolationError") and word in reply["evalue"], reply
    assert not (k.workspace / "ran").exists()
    k.stop()
    assert k.process.returncode == 0


def test_never_from_the_workspace(folder):
    work = folder / "work"
    (work / "mine.json").write_text("{}")
    (work / "cellblock").mkdir()
    (work / "cellblock/named.json").write_text("{}")
    for args, env in ((["--policy", "./mine.json"], {}), (["--policy", "named"], {"JUPYTER_CONFIG_DIR": str(work)})):
        said = explain(work, *args, env=env)
        assert said.returncode == 2 and "lies in the workspace" in said.stderr
    assert explain(work, "--policy", "named").returncode == 2


def test_one_that_cannot_be_reached_is_not_replaced_by_a_later_one(folder):
    """A link to a disk that is not mounted: the other one of that name may allow more."""
    strict, later = folder / "config/cellblock/strict.json", folder / "later/cellblock/strict.json"
    later.parent.mkdir(parents=True)
    later.write_text('{"limits.pids": 99}')
    env = {"JUPYTER_CONFIG_PATH": f"{folder}/config:{folder}/later"}
    assert keys(explain(folder / "work", "--policy", "strict", env=env))["limits.pids"] == 99
    strict.symlink_to("/no/such/disk/strict.json")
    said = explain(folder / "work", "--policy", "strict", env=env)
    assert said.returncode == 2 and f"{strict}: No such file" in said.stderr, said


def test_a_service_whose_home_is_anothers(folder, ordinary_user):
    kernels.let_in(folder / "work")
    (folder / "home").mkdir(mode=0o700)
    as_user = ["runuser", "-u", ordinary_user.pw_name, "--", "env", "-u", "JUPYTER_CONFIG_DIR", f"HOME={folder}/home"]
    said = explain(folder / "work", "--policy", "team", before=as_user)
    assert said.returncode == 2 and f"{folder}/home/.jupyter/cellblock/team.json: Permission denied" in said.stderr
    assert "Set HOME or JUPYTER_CONFIG_DIR, or name the file by its path." in said.stderr


def test_from_a_folder_that_is_no_workspace(folder):
    """In Jupyter's own the default workspace is an empty folder in memory."""
    own = folder / "home/.jupyter/cellblock"
    own.mkdir(parents=True)
    (own / "lab.json").write_text('{"limits.pids": 44}')
    env = {"HOME": str(folder / "home")}
    assert keys(explain(own, "--policy", "./lab.json", env=env))["limits.pids"] == 44
    assert explain(own, "--policy", "./lab.json", "--workspace", str(own), env=env).returncode == 2


def under_a_ceiling(folder, text, *args):
    top = folder / "etc"
    top.mkdir(exist_ok=True)
    unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("no mount namespace can be had to try a ceiling in")
    what = text if isinstance(text, str) else json.dumps(text)
    return explain(folder / "work", *args, before=[*unshare, "sh", "-c", UNDER_A_CEILING, "sh", str(top), what])


def test_each_key_is_in_the_docs(folder):
    text = (Path(__file__).parents[2] / "docs/policy.md").read_text()
    found = [key for key in keys(explain(folder / "work")) if "." in key]
    assert len(found) > 30 and [key for key in found if f"`{key}`" not in text] == []


@pytest.mark.parametrize("policy", ["notebook", "agent"])
def test_the_defaults_in_the_docs_are_those(folder, policy):
    text = (Path(__file__).parents[2] / "docs/policy.md").read_text()
    lines = [line for line in text.splitlines() if re.match(r"\| `([a-z]+\.[a-z_]+|mounts)` \|", line)]
    rows = [[c.strip() for c in line.split("|")[1:-1]] for line in lines]
    said = {}
    for key, notebook, agent, *_ in rows:
        value = notebook if policy == "notebook" or agent == "same" else agent
        if value != "see below":
            said[key.strip("`")] = value.strip('"')
    assert len(said) > 30
    words = [word for key, value in said.items() for word in ("--set", f"{key}={value}")]
    work = folder / "work"
    assert keys(explain(work, "--policy", policy, *words)) == keys(explain(work, "--policy", policy))


def test_each_protected_name_has_its_reason(folder):
    text = (Path(__file__).parents[2] / "docs/policy.md").read_text()
    found = keys(explain(folder / "work"))["workspace.protect"]
    assert len(found) > 50 and [name for name in found if f"`{name}`" not in text] == []


def test_the_ceiling_bounds_what_is_asked_for(folder):
    ceiling = {"limits": {"pids": 50, "memory": "256M"}, "network.mode": "none", "workspace.protect": ["Makefile"]}
    asked = ["--set", "limits.pids=99", "--set", "limits.memory=64M", "--set", "network.mode=full"]
    found = keys(under_a_ceiling(folder, ceiling, *asked))
    assert found["limits.pids"] == 50 and found["limits.memory"] == 64 << 20 and found["network.mode"] == "none"
    assert "Makefile" in found["workspace.protect"] and ".git" in found["workspace.protect"]


@pytest.mark.parametrize("ceiling", [{"limits": {"pidz": 1}}, {"workspace.path": "/x"}, []])
def test_a_ceiling_that_cannot_be_obeyed_is_an_error(folder, ceiling):
    said = under_a_ceiling(folder, ceiling)
    assert said.returncode == 2 and "/etc/cellblock/ceiling.json" in said.stderr


@pytest.mark.parametrize("what", ["link", "folder"])
def test_a_ceiling_on_a_disk_that_is_not_mounted_is_an_error(folder, what):
    said = under_a_ceiling(folder, what)
    assert said.returncode == 2 and "/etc/cellblock/ceiling.json: No such file" in said.stderr, said


def test_a_pipe_is_no_policy(folder):
    os.mkfifo(folder / "pipe")
    said = explain(folder / "work", "--policy", str(folder / "pipe"))
    assert said.returncode == 2 and "not a regular file" in said.stderr, said


@pytest.mark.parametrize(
    "what", ["policy", "link", "history", "histories", "workspace", "kernelspecs", "config", "cache"]
)
def test_nothing_protected_lies_in_a_writable_mount(folder, what):
    held = folder / "held"
    for each in (held / "beside", held / "work"):
        each.mkdir(parents=True)
    (held / "own.json").write_text("{}")
    args, env, work = (), {}, folder / "work"
    if what == "policy":
        args = ("--policy", str(held / "own.json"))
    elif what == "link":  # a cell could lead it to another policy
        (folder / "strict.json").write_text("{}")
        (held / "link.json").symlink_to(folder / "strict.json")
        args = ("--policy", str(held / "link.json"))
    elif what == "history":
        args = ("--set", f"history.file={held}/h/history.sqlite")
    elif what == "histories":  # of kernels with other policies
        (folder / "home/.local/share").mkdir(parents=True)
        (folder / "home/.local/share/cellblock").symlink_to(held / "h")
        args, env = ("--policy", "agent"), {"HOME": str(folder / "home"), "XDG_DATA_HOME": ""}
    elif what == "kernelspecs":
        env = {"XDG_DATA_HOME": str(held / "data")}
    elif what == "config":
        env = {"JUPYTER_CONFIG_PATH": f"relative:{held}/config"}
    elif what == "cache":
        env = {"XDG_CACHE_HOME": str(held / "cache")}
    else:
        work = held / "work"
    mount = json.dumps([{"source": str(held), "mode": "rw"}])
    said = explain(work, *args, "--set", f"mounts={mount}", env=env)
    assert said.returncode != 0 and "can't be writable: it holds" in said.stderr, said
    assert explain(work, *args, "--set", f"mounts={mount.replace('rw', 'ro')}", env=env).returncode == 0
    beside = json.dumps([{"source": str(held / "beside"), "mode": "rw"}])
    assert explain(work, *args, "--set", f"mounts={beside}", env=env).returncode == 0
