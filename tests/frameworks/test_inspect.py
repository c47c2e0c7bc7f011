"""cellblock.inspect_ai: evaluations with a scripted model, limits and errors in Inspect's words, concurrent samples."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

inspect_ai = pytest.importorskip("inspect_ai", reason="Inspect needs Python 3.11 here")

import anyio  # noqa: E402
import cellblock  # noqa: E402
import kernels  # noqa: E402
import pages  # noqa: E402
from cellblock.inspect_ai import CellblockSandboxConfig, CellblockSandboxEnvironment  # noqa: E402
from inspect_ai import Task, eval as evaluate  # noqa: E402
from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.model import ModelOutput, get_model  # noqa: E402
from inspect_ai.scorer import includes  # noqa: E402
from inspect_ai.solver import generate, solver, use_tools  # noqa: E402
from inspect_ai.tool import bash, bash_session, python, text_editor  # noqa: E402
from inspect_ai.util import (  # noqa: E402
    OutputLimitExceededError, SandboxEnvironmentSpec, SandboxUserUnsupportedError, sandbox,
)
from inspect_ai.util._sandbox.limits import override_sandbox_output_limit  # noqa: E402

pytestmark = pytest.mark.anyio
SECRET = "key-of-the-host-4711"


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@pytest.fixture(autouse=True)
def elsewhere(nothing_left, monkeypatch):
    """Inspect keeps its files in a folder of the test's."""
    monkeypatch.setenv("INSPECT_LOG_DIR", str(nothing_left / "logs"))
    monkeypatch.setenv("XDG_DATA_HOME", str(nothing_left / "data"))
    monkeypatch.setenv("HOST_KEY", SECRET)


@pytest.fixture
def env(nothing_left):
    made = anyio.run(CellblockSandboxEnvironment.sample_init, "t", None, {})
    yield made["default"]
    anyio.run(CellblockSandboxEnvironment.sample_cleanup, "t", None, made, False)


def model(*steps):
    """Says each step: a text, or the name of a tool and its arguments."""
    outputs = [
        ModelOutput.from_content("mockllm/model", step) if isinstance(step, str)
        else ModelOutput.for_tool_call("mockllm/model", *step) for step in steps
    ]
    made = get_model("mockllm/model", custom_outputs=outputs)

    async def count(text):
        return len(text) // 4

    made.api.count_text_tokens = count  # its own fetches a table from the network
    return made


def run(task, *steps, **how):
    (log,) = evaluate(task, model=model(*steps), display="none", log_level="error", **how)
    return log


def tools_said(sample):
    return [m for m in sample.messages if m.role == "tool"]


# whole evaluations


def test_an_evaluation(nothing_left):
    for limit in (1, 10, 30):  # on a busy machine Python may not have said it by then
        sample = Sample("Count.", target="42", files={"in/data.txt": "21"}, setup="#!/bin/bash\necho ready >set.txt")
        task = Task(
            dataset=[sample], solver=[use_tools(bash(timeout=30), python(timeout=limit)), generate()],
            scorer=includes(), sandbox="cellblock",
        )
        log = run(
            task,
            ("bash", {"command": "cat set.txt; pwd; whoami; echo no >&2; exit 3"}),
            ("python", {"code": "print(int(open('in/data.txt').read()) * 2)"}),
            ("python", {"code": "print('begun', flush=True)\nwhile True: pass"}),
            ("bash", {"command": "ls; env; cat /root/x"}),
            "It is 42.",
        )
        if all(word in m.text for word, m in zip(("42", "begun"), tools_said(log.samples[0])[1:])):
            break
    assert log.status == "success" and log.results.scores[0].metrics["accuracy"].value == 1.0, log.error
    said = tools_said(log.samples[0])
    assert said[0].text == "no\n\nready\n/workspace\nuser\n" and said[1].text == "42\n"
    assert said[2].error.type == "timeout" and "begun" in said[2].text
    assert "set.txt" in said[3].text and SECRET not in said[3].text
    assert not CellblockSandboxEnvironment._live


def test_inspects_own_tools_inside(nothing_left):
    """text_editor and bash_session put a program of Inspect's into the sandbox, which serves them there."""
    task = Task(
        dataset=[Sample("Edit.", target="done")], solver=[use_tools(text_editor(), bash_session()), generate()],
        scorer=includes(), sandbox="cellblock",
    )
    log = run(
        task,
        ("text_editor", {"command": "create", "path": "/workspace/a.txt", "file_text": "one\ntwo\n"}),
        ("text_editor", {"command": "str_replace", "path": "/workspace/a.txt", "old_str": "two", "new_str": "2"}),
        ("bash_session", {"action": "type_submit", "input": "x=kept; cat /workspace/a.txt"}),
        ("bash_session", {"action": "type_submit", "input": "echo \"[$x]\""}),
        "done",
    )
    assert log.status == "success", log.error
    said = tools_said(log.samples[0])
    assert not any(m.error for m in said), said
    assert "one\r\n2" in said[2].text.replace("\r\r", "\r") or "one\n2" in said[2].text
    assert "[kept]" in said[3].text


def test_samples_at_once_do_not_meet(nothing_left):
    @solver
    def own():
        async def solve(state, generate):
            box = sandbox()
            await box.write_file("mine", state.input_text)
            await box.exec(["sh", "-c", "echo $0 >>/tmp/all", state.input_text])
            state.output = ModelOutput.from_content("m", await box.read_file("/tmp/all") + await box.read_file("mine"))
            return state

        return solve

    samples = [Sample(f"n{n}", target=f"n{n}\nn{n}") for n in range(6)]
    log = run(Task(dataset=samples, solver=own(), scorer=includes(), sandbox="cellblock"), max_samples=6, epochs=2)
    assert log.results.scores[0].metrics["accuracy"].value == 1.0 and len(log.samples) == 12


def test_a_failure_of_the_sandbox_is_not_scored(nothing_left):
    @solver
    def killed():
        async def solve(state, generate):
            box = sandbox().as_type(CellblockSandboxEnvironment)
            os.kill(box.sandbox.kernel.pid, 9)
            return await generate(state)

        return solve

    task = Task(
        dataset=[Sample("Go.", target="hi")], solver=[use_tools(bash()), killed(), generate()], scorer=includes(),
        sandbox="cellblock",
    )
    log = run(task, ("bash", {"command": "echo hi"}), "hi", fail_on_error=False)
    assert log.samples[0].error is not None and "SandboxError" in log.samples[0].error.traceback
    assert not log.samples[0].scores and not CellblockSandboxEnvironment._live


def test_what_is_wrong_is_said_before_the_first_sample(nothing_left):
    wrong = SandboxEnvironmentSpec("cellblock", CellblockSandboxConfig(policy={"limits.pid": 5}))
    with pytest.raises(cellblock.PolicyError, match="limits.pids"):
        run(Task(dataset=[Sample("Go.")], sandbox=wrong), "never said")


def test_the_page(nothing_left, monkeypatch):
    for n, code in enumerate(pages.blocks("inspect.md")):
        folder = nothing_left / f"page{n}"
        kernels.let_in(folder)
        monkeypatch.chdir(folder)
        (folder / "task.py").write_text(code)
        names = {"__name__": "task", "__file__": str(folder / "task.py")}
        exec(compile(code, folder / "task.py", "exec"), names)
        log = run(names["count"](), ("bash", {"command": "wc -l <words.txt"}), "There are 3.")
        assert log.status == "success" and log.results.scores[0].metrics["accuracy"].value == 1.0, log.error
        assert tools_said(log.samples[0])[0].text.strip() == "3"


def test_it_is_found_by_its_name(nothing_left):
    """In a program that imports nothing of ours."""
    code = "from inspect_ai.util._sandbox.registry import registry_find_sandboxenv as f; print(f('cellblock').__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=nothing_left, timeout=250)
    assert done.stdout == "CellblockSandboxEnvironment\n", done.stderr


# commands and files


async def test_timeouts(env):
    for limit in (1, 10, 30):  # on a busy machine a shell may not have said it by then
        said = []
        await env.write_file("runs", "")
        for retry in (True, False):
            with pytest.raises(TimeoutError) as caught:
                await env.exec(["sh", "-c", "echo x >>runs; echo begun; trap '' TERM; while :; do :; done"],
                               timeout=limit, timeout_retry=retry)
            said.append(caught.value.truncated_output)
        if said == ["begun\n"] * 2:
            break
    assert said == ["begun\n"] * 2
    assert await env.read_file("runs") == "x\nx\n"  # none was run again
    await env.exec(["rm", "runs"])


async def test_limits_of_output(env):
    with override_sandbox_output_limit(1000):
        for where in ("1", "2"):
            with pytest.raises(OutputLimitExceededError) as caught:
                await env.exec(["sh", "-c", f"yes | head -c 1001 >&{where}"])
            assert len(caught.value.truncated_output) == 1000 and "1000 bytes" in str(caught.value)
        assert len((await env.exec(["sh", "-c", "yes | head -c 1000; yes | head -c 1000 >&2"])).stdout) == 1000
        await env.write_file("/tmp/f", "ä" * 500)
        assert await env.read_file("/tmp/f") == "ä" * 500
        await env.write_file("/tmp/f", "ä" * 501)
        for file in ("/tmp/f", "f"):
            await env.exec(["cp", "/tmp/f", "f"])
            with pytest.raises(OutputLimitExceededError):
                await env.read_file(file)
    with pytest.raises(OutputLimitExceededError) as caught:
        await env.exec(["sh", "-c", "yes | head -c 60000000"])
    assert 10 << 20 <= len(caught.value.truncated_output) < 11 << 20


async def test_memory_is_the_commands_fault(env):
    await env.write_file("kept", "kept")
    bomb = "import mmap\nm = mmap.mmap(-1, 8 << 30)\nfor i in range(0, 8 << 30, 4096): m[i] = 1"
    done = await env.exec(["python3", "-c", bomb])
    assert (done.success, done.returncode) == (False, 137) and done.stderr
    assert (await env.exec(["echo", "fine"])).stdout == "fine\n"


async def test_errors_of_commands(env):
    assert (await env.exec(["no_such_program_x"])).returncode == 127
    assert (await env.exec(["true"], cwd="/no/such/folder")).returncode == 127
    await env.write_file("no_program", "x")
    with pytest.raises(PermissionError):
        await env.exec(["./no_program"])
    await env.exec(["chmod", "+x", "no_program"])
    assert (await env.exec(["./no_program"])).returncode in (126, 127)
    for user in ("root", "0", "nobody"):
        with pytest.raises(SandboxUserUnsupportedError, match="user = 1000"):
            await env.exec(["true"], user=user)
    for user in ("user", "1000"):
        assert (await env.exec(["whoami"], user=user)).stdout == "user\n"
    words = ["x" * 100_000] * 12
    done = await env.exec(["sh", "-c", 'echo $#; cat', "sh", *words], input=b"rest")
    assert done.stdout == "12\nrest"


async def test_files_of_the_host_are_not_there(env, nothing_left):
    secret = nothing_left / "secret"
    secret.write_text(SECRET)
    kernels.let_in(nothing_left)
    await env.exec(["sh", "-c", 'ln -sfn "$0" link; ln -sfn "$0" /tmp/link', str(secret)])
    for file in (str(secret), f"../../..{secret}", "link", "/tmp/link", "/etc/shadow", f"/proc/{os.getpid()}/environ"):
        with pytest.raises(OSError):
            await env.read_file(file)
    for file in (str(secret), f"../..{secret}", "link", "/tmp/link"):
        try:
            await env.write_file(file, "overwritten")  # in the jail, if at all
        except OSError:
            pass
        assert secret.read_text() == SECRET
    assert SECRET not in (await env.exec(["sh", "-c", "env; cat /proc/*/environ"])).stdout
    await env.write_file("a b\nü😀", b"\x00\xff")
    assert await env.read_file("a b\nü😀", text=False) == b"\x00\xff"
    with pytest.raises(UnicodeDecodeError):
        await env.read_file("a b\nü😀")


async def _until_gone(made, words):
    while words in (await made.exec(["ps", "ax"])).stdout:
        pass


async def test_connection_and_end(nothing_left):
    made = (await CellblockSandboxEnvironment.sample_init("t", None, {}))["default"]
    said = await made.connection()
    assert said.type == "cellblock" and said.command.startswith("jupyter console --existing ")
    assert Path(said.command.split()[-1]).exists()
    with pytest.raises(SandboxUserUnsupportedError):
        await made.connection(user="root")
    pid = made.sandbox.kernel.pid
    with anyio.move_on_after(0.2):
        await made.exec(["sleep", "1000"])
    assert (await made.exec(["echo", "on"])).stdout == "on\n"
    await _until_gone(made, "sleep 1000")
    async with anyio.create_task_group() as group:  # beside each other: each waits for the other
        group.start_soon(made.exec, ["sh", "-c", "mkfifo /tmp/p; echo x >/tmp/p"])
        group.start_soon(made.exec, ["sh", "-c", "until [ -e /tmp/p ]; do :; done; cat /tmp/p"])
    with anyio.CancelScope() as scope:
        scope.cancel()  # a sample that was interrupted
        await CellblockSandboxEnvironment.sample_cleanup("t", None, {"default": made}, True)
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(ConnectionError):
        await made.connection()
    with pytest.raises(cellblock.SandboxError):
        await made.exec(["true"])
    with anyio.CancelScope() as scope:
        scope.cancel()
        await CellblockSandboxEnvironment.sample_init("t", None, {})
    left = (await CellblockSandboxEnvironment.sample_init("t", None, {}))["default"]
    await CellblockSandboxEnvironment.task_cleanup("t", None, False)
    assert (await left.exec(["true"])).success
    await CellblockSandboxEnvironment.task_cleanup("t", None, True)
    assert not CellblockSandboxEnvironment._live


async def test_configuration(nothing_left):
    said = CellblockSandboxEnvironment.config_deserialize({"memory": "300M", "policy": {"limits.pids": 50}})
    made = (await CellblockSandboxEnvironment.sample_init("t", said, {}))["default"]
    limits = made.sandbox.usage()["limits"]
    assert limits["memory"] == 300 << 20 and limits["pids"] == 50 and limits["message"] == 128 << 20
    (nothing_left / "policy.json").write_text('{"limits.memory": "200M", "workspace.mode": "tmpfs"}')
    named = (await CellblockSandboxEnvironment.sample_init("t", str(nothing_left / "policy.json"), {}))["default"]
    assert named.sandbox.usage()["limits"]["memory"] == 200 << 20
    kernels.let_in(nothing_left / "w")
    (nothing_left / "w" / "given").write_text("data")
    shown = CellblockSandboxConfig(workspace=str(nothing_left / "w"))
    shown = (await CellblockSandboxEnvironment.sample_init("t", shown, {}))["default"]
    assert await shown.read_file("given") == "data"
    await shown.write_file("given", "changed")
    assert (nothing_left / "w" / "given").read_text() == "data"
    await CellblockSandboxEnvironment.sample_cleanup("t", None, {"a": made, "b": named, "c": shown}, False)
    # the name of a policy, which Inspect makes a path; and no policy gives the current folder
    for base in (os.path.abspath("notebook"), CellblockSandboxConfig(base="notebook")):
        made = (await CellblockSandboxEnvironment.sample_init("t", base, {}))["default"]
        assert (await made.exec(["ls", "-A"])).stdout == "" and made.sandbox.policy.base == "notebook"
        await CellblockSandboxEnvironment.sample_cleanup("t", None, {"a": made}, False)
    with pytest.raises(cellblock.PolicyError):
        await CellblockSandboxEnvironment.sample_init("t", "no_such_policy_x", {})
    with pytest.raises(ValueError, match="memori"):
        CellblockSandboxConfig(memori=5)
