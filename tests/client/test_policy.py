"""What a sandbox may do, and what is said where it can't be had."""

import os
import sys
from pathlib import Path

import pytest

import cellblock
import kernels
from cellblock import Policy, PolicyError, SandboxError, _launch
from cellblock._adapters import policy_for
from cellblock._launch import find_binary
from cellblock._policy import refused
from cellblock.mcp.__main__ import parser as mcp_parser, policy as mcp_policy

pytestmark = pytest.mark.once


def test_keywords(make):
    sb = make("notebook", memory="256M", cpu=0.5, timeout=77, network="none", policy={"limits": {"pids": 50}})
    usage = sb.usage()
    assert usage["limits"]["memory"] == 256 << 20 and usage["limits"]["pids"] == 50
    assert usage["limits"]["cpu"] == 0.5 and usage["timeout"]["cell"] == 77
    assert sb.run("import os; os.getcwd()").repr == repr(os.fspath(sb.policy.workspace))


def test_arguments():
    policy = Policy("agent", memory=5, network=["pypi"], imports=("json",), settings={"env": {"set": {"A": "1"}}})
    words = policy.arguments()
    assert words[:2] == ["--policy", "agent"]
    assert set(words[3::2]) == {
        "history.file=:memory:", "limits.memory=5", "network.mode=allow", 'network.allow=["pypi"]',
        'imports.allow=["json"]', "env.set.A=1",
    }
    assert "network.mode=full" in Policy(network=True).arguments()


def test_names_from_an_iterator_are_kept():
    """What a second start is told is what the first was told."""
    policy = Policy(network=iter(["pypi"]), imports=iter(["json"]))
    words = policy.arguments()
    assert 'network.allow=["pypi"]' in words and 'imports.allow=["json"]' in words and policy.arguments() == words
    pool = cellblock.AsyncPool("agent", imports=iter(["json"]), tools=iter([len_of]))
    first, second = pool._make(), pool._make()
    assert first.policy == second.policy and first._tools == second._tools == [len_of]


def len_of(text: str) -> int:
    return len(text)


def test_what_is_in_a_list():
    policy = Policy(settings={"mounts": [{"source": Path("/data"), "target": "/data"}]})
    assert 'mounts=[{"source": "/data", "target": "/data"}]' in policy.arguments()
    for wrong in (Policy(imports=[os]), Policy(settings={"imports.allow": [{1}]})):
        with pytest.raises(PolicyError, match="^policy: imports.allow is "):
            wrong.arguments()


def test_default_is_tight(monkeypatch):
    monkeypatch.delenv("CELLBLOCK_POLICY", raising=False)
    assert Policy().arguments()[:2] == ["--policy", "agent"]
    monkeypatch.setenv("CELLBLOCK_POLICY", "notebook")
    assert Policy().arguments()[:2] == ["--policy", "notebook"]
    assert Policy("agent").arguments()[:2] == ["--policy", "agent"]


@pytest.mark.parametrize(
    "how, says",
    [
        ({"policy": {"limits.pid": 5}}, "limits.pid"),
        ({"memory": "lots"}, "limits.memory"),
        ({"cpu": -1}, "limits.cpu"),
        ({"network": ["example.com"]}, "network"),
        ({"imports": ["json;"]}, "imports.allow"),
        ({"base": "no-such-policy"}, "no-such-policy"),
    ],
)
def test_a_wrong_policy_is_told_in_the_kernels_words(make, how, says):
    how = dict(how)
    with pytest.raises(PolicyError, match=says) as error:
        make(how.pop("base", "agent"), **how).run("1")
    assert "--set" not in str(error.value), "that is of the command line"
    assert str(error.value).startswith("policy: ") and "no jail" not in str(error.value), "no jail was tried"


LOWEST = {
    "limits.memory": 48 << 20, "limits.pids": 8, "limits.open_files": 64, "limits.file_size": 4096,
    "limits.tmp": 65536, "limits.shm": 65536, "limits.inodes": 256, "limits.output": 1024, "limits.message": 65536,
}


@pytest.mark.parametrize("key, value", LOWEST.items())
def test_the_lowest_limit_that_is_allowed_works(make, key, value):
    assert make("agent", policy={key: value}).run("6 * 7").value == 42
    with pytest.raises(PolicyError, match=f"{key}: {value - 1} is not allowed"):
        make("agent", policy={key: value - 1}).run("1")


def test_a_wrong_value_in_python(make):
    with pytest.raises(PolicyError, match="base='agent'"):
        make(policy="agent")
    with pytest.raises(PolicyError, match="limits.pids"):
        make("agent", policy={"limits.pids": object()}).run("1")
    with pytest.raises(PolicyError, match="not both.*Adapters.*as keywords"):
        make(Policy("agent"), memory="1G")
    for how in ({"policy": ["a"]}, {"policy": 5}, {"imports": "math"}, {"imports": b"m"}, {"imports": 5}, {"base": 5}):
        (name,) = how
        with pytest.raises(PolicyError, match=f"^{name} is"):
            cellblock.Sandbox(**how)
    with pytest.raises(PolicyError, match="^imports is 'math'"):
        Policy(imports="math")


def test_a_workspace_that_is_not_there(make, tmp_path):
    with pytest.raises(SandboxError, match="gone"):
        make("agent", workspace=tmp_path / "gone").run("1")


@pytest.mark.parametrize(
    "how, cure",
    [
        ({"workspace": "/no/such"}, "Name an existing folder with workspace=."),
        ({"workspace": "/"}, "Name a folder of its own with workspace= or workspace.path, "),
        ({"python": "/no/such"}, "/no/such: no such program. Name one with python=."),
    ],
)
def test_a_cure_is_a_keyword(make, how, cure):
    with pytest.raises(SandboxError) as error:
        make("agent", **how).run("1")
    assert cure in str(error.value) and not isinstance(error.value, PolicyError)


def test_where_others_gave_the_words_they_stay():
    """A kernel that was connected to has a command line, and this program gave it no keywords."""
    text = "IsolationError: no jail: workspace: workspace.path /x: gone. Name an existing folder with --workspace."
    assert type(refused(text, None)) is SandboxError and str(refused(text, None)) == text
    install = "IsolationError: no jail: interpreter: /x. Name a Python: cellblock install --user --python EXE."
    assert str(refused(install, "{}=".format)) == install, "a command as a whole"
    named = "IsolationError: no jail: workspace: workspace.path /policy: x: No such file"
    assert type(refused(named, "{}=".format)) is SandboxError


def test_no_program(make, monkeypatch, tmp_path):
    monkeypatch.delenv("CELLBLOCK", raising=False)
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    monkeypatch.setattr(sys, "prefix", os.fspath(tmp_path))
    monkeypatch.setattr(_launch, "__file__", os.fspath(tmp_path / "lib/python3/site-packages/cellblock/_launch.py"))
    with pytest.raises(SandboxError) as caught:
        make("agent").run("1")
    for word in ("binary=", "$CELLBLOCK", f"{tmp_path}/bin/cellblock", "PATH", "pip install cellblock"):
        assert word in str(caught.value)
    with pytest.raises(SandboxError, match="binary= '/no/such'"):
        make("agent", binary="/no/such").run("1")
    monkeypatch.setenv("CELLBLOCK", "/no/such")
    with pytest.raises(SandboxError, match=r"\$CELLBLOCK '/no/such'"):
        find_binary()
    with pytest.raises(SandboxError, match="exited with status"):
        make("agent", binary="/bin/false").run("1")


def test_in_a_jail(make):
    """There is no jail in a jail; what the kernel says of that is told."""
    code = "import cellblock\ntry: cellblock.Sandbox().start()\nexcept cellblock.SandboxError as e: print(e)"
    said = make("agent").run(code).stdout
    assert said.startswith("the kernel exited with status 1; it had said: ") and "signalfd" in said


def test_another_system(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SandboxError, match="Linux only, and this is darwin"):
        find_binary()


def test_the_kernel_for_experts(make):
    sb = make("agent")
    sb.run("x = 5")
    kernel = sb.kernel
    assert kernel.pid and kernel.info["implementation"] == "cellblock" and os.path.exists(kernel.connection_file)
    assert os.stat(kernel.connection_file).st_mode & 0o77 == 0
    if make.kind == "async":
        return
    kc = kernel.kc
    kc.start_channels()
    try:
        kc.wait_for_ready(timeout=60)
        reply = kc.execute_interactive("x", timeout=60, user_expressions={"x": "x"})
        assert reply["content"]["user_expressions"]["x"]["data"]["text/plain"] == "5"
    finally:
        kc.stop_channels()
    assert kernel.km.is_alive()


def test_exports():
    assert all(hasattr(cellblock, name) for name in cellblock.__all__)
    assert kernels.is_cellblock([find_binary()])


def test_adapters_loosen_no_policy_that_is_named(monkeypatch):
    settings = {"timeout.cell": 3600}
    monkeypatch.delenv("CELLBLOCK_POLICY", raising=False)
    assert policy_for({}, settings) == {"timeout.cell": 3600, "workspace.mode": "tmpfs"}
    assert policy_for({"policy": {"timeout.cell": 5}}, settings)["timeout.cell"] == 5
    assert policy_for({"base": "strict"}, settings) == {"workspace.mode": "tmpfs"}
    monkeypatch.setenv("CELLBLOCK_POLICY", "strict")
    assert policy_for({"workspace": "."}, settings) is None


def test_a_folder_that_a_policys_key_names_is_shown(tmp_path, monkeypatch):
    monkeypatch.delenv("CELLBLOCK_POLICY", raising=False)
    for own in ({"workspace.path": str(tmp_path)}, {"workspace": {"path": str(tmp_path)}}):
        assert policy_for({"policy": own}) == own
        assert policy_for({"policy": own}, {"timeout.cell": 9}) == {"timeout.cell": 9, **own}
    for own in ({"workspace.size": "9M"}, {"workspace": {"size": "9M"}}):
        assert policy_for({"policy": own}) == {"workspace.mode": "tmpfs", **own}


def test_the_policy_of_the_mcp_server(tmp_path, monkeypatch):
    def of(*words):
        made = mcp_policy(mcp_parser().parse_args(words))
        return made.base, made.workspace, dict(made.settings)

    monkeypatch.delenv("CELLBLOCK_POLICY", raising=False)
    assert of() == (None, None, {"workspace.mode": "tmpfs"})
    assert of("--policy", "x", "--workspace", str(tmp_path)) == ("x", str(tmp_path), {})
    assert of("--set", f"workspace.path={tmp_path}") == (None, str(tmp_path), {})
    assert of("--workspace", "project") == (None, None, {"workspace.path": "project"})
    assert of("--set", "workspace.mode=ro") == (None, None, {"workspace.mode": "ro"})
    with pytest.raises(ValueError, match="no such folder"):
        of("--set", f"workspace.path={tmp_path}/none")
