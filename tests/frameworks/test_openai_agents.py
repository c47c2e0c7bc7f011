"""cellblock.openai_agents: sessions of the OpenAI Agents SDK, and an agent with a scripted model."""

import asyncio
import io
import json
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("agents", reason="the OpenAI Agents SDK is tried with Python 3.11")

import agents  # noqa: E402
import kernels  # noqa: E402
import pages  # noqa: E402
from agents import Model, ModelResponse, RunConfig, Runner, Usage  # noqa: E402
from agents.run_config import SandboxRunConfig  # noqa: E402
from agents.sandbox import Manifest, SandboxAgent  # noqa: E402
from agents.sandbox.entries import File  # noqa: E402
from agents.sandbox.errors import (  # noqa: E402
    ExecTimeoutError, ExecTransportError, InvalidManifestPathError, WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError, WorkspaceReadNotFoundError,
)
from agents.sandbox.snapshot import LocalSnapshotSpec  # noqa: E402
from cellblock.openai_agents import CellblockSandboxClient, CellblockSandboxClientOptions  # noqa: E402
from openai.types.responses import (  # noqa: E402
    ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText,
)

SECRET = "sk-of-the-host"


def session(work, client=None, **how):
    """Runs `work` with a new session, in a loop of its own."""

    async def main():
        made = client or CellblockSandboxClient(**how.pop("settings", {}))
        found = await made.create(**how)
        async with found:
            result = await work(found)
        await made.delete(found)
        return result

    return asyncio.run(main())


async def sh(found, command, **how):
    done = await found.exec(command, **how)
    return done.exit_code, done.stdout.decode(), done.stderr.decode()


def test_commands():
    async def work(found):
        assert await found.running() and not found.supports_pty()
        assert await sh(found, "echo $A; pwd; echo e >&2; exit 3") == (3, "a b\n/workspace\n", "e\n")
        assert await sh(found, "kill -9 $$") == (137, "", "")
        killed = await sh(found, "kill -9 $PPID")  # an answer for the model, as in other adapters
        assert killed[0] == 137 and await sh(found, "echo on") == (0, "on\n", "")
        assert (await found.exec("printf", "%s|", "a b", "c\n'", shell=False)).stdout == b"a b|c\n'|"
        with pytest.raises(ExecTransportError):
            await found.exec("nosuch", shell=False)
        for limit in (2, 10, 30):  # on a busy machine a shell may not have said it by then
            with pytest.raises(ExecTimeoutError) as caught:
                await found.exec("echo so far; sleep 1000", timeout=limit)
            if caught.value.context["stdout"]:
                break
        assert caught.value.context["stdout"] == "so far\n"
        with pytest.raises(ExecTimeoutError):
            await found.exec("while :; do :; done", timeout=1)
        code, out, _ = await sh(found, "yes | head -c 50000000")
        assert len(out) <= 5 << 20
        code, _, err = await sh(found, "python3 -c 'x = bytearray(1 << 30)'")
        assert code != 0 and ("MemoryError" in err or "memory" in err)
        assert await sh(found, "echo next") == (0, "next\n", "")

    session(work, manifest=Manifest(environment={"value": {"A": "a b"}}), settings={"memory": "300M"})


NAMES = ["plain.txt", "with space", "new\nline", "ünïcode-✓", "-rf", "a/b/c.txt", "$(id)`id`", "'\""]


def test_files():
    async def work(found):
        for name in NAMES:
            data = bytes(range(256)) + name.encode()
            await found.write(Path("dir") / name, io.BytesIO(data))
            assert (await found.read(Path("/workspace/dir") / name)).read() == data, name
            assert await found.read_bounded(Path("dir") / name, max_bytes=5) == data[:5]
        big = bytes(range(256)) * 12_000
        await found.write(Path("big"), io.BytesIO(big))
        assert (await found.read(Path("big"))).read() == big
        await found.mkdir(Path("new/deep"), parents=True)
        await found.write(Path("text"), io.StringIO("tëxt"))
        assert (await found.read(Path("text"))).read() == "tëxt".encode()
        assert {Path(e.path).name for e in await found.ls(".")} >= {"dir", "big", "new", "text"}
        await found.rm(Path("new"), recursive=True)
        with pytest.raises(WorkspaceReadNotFoundError):
            await found.read(Path("nosuch"))
        with pytest.raises(WorkspaceArchiveReadError):
            await found.read(Path("dir"))
        with pytest.raises(WorkspaceReadNotFoundError):
            await found.read_bounded(Path("nosuch"), max_bytes=5)

    session(work)


def test_no_path_leads_out(nothing_left):
    (nothing_left / "secret").write_text(SECRET)

    async def work(found):
        await found.exec(f"ln -s /etc etc; ln -s {nothing_left}/secret s; ln -s /tmp tmp; mkfifo pipe")
        for path in ("../etc/passwd", "/etc/passwd", "etc/passwd", "s", "tmp/x", f"{nothing_left}/secret", "a/../../x"):
            for call in (found.read(Path(path)), found.write(Path(path), io.BytesIO(b"x"))):
                with pytest.raises((InvalidManifestPathError, WorkspaceArchiveReadError, WorkspaceArchiveWriteError)):
                    await call
        with pytest.raises(WorkspaceArchiveReadError):
            await found.read(Path("pipe"))
        _, out, _ = await sh(found, f"cat /etc/shadow {nothing_left}/secret s; env; cat /proc/1/environ; ls /root")
        assert SECRET not in out and "root:" not in out

    session(work)
    assert (nothing_left / "secret").read_text() == SECRET


def test_a_sessions_workspace_goes_into_the_next(nothing_left):
    client = CellblockSandboxClient()

    async def work(found):
        await found.exec("echo kept > 'a b'; mkdir -p d; ln -s 'a b' d/link; printf '\\377\\000' > bin; chmod 700 bin")
        return found.state

    spec = LocalSnapshotSpec(base_path=nothing_left / "snapshots")
    state = session(work, client, snapshot=spec, manifest=Manifest(entries={"in.txt": File(content=b"in")}))
    said = client.serialize_session_state(state)
    assert json.loads(json.dumps(said)) == said

    async def again():
        other = CellblockSandboxClient()
        found = await other.resume(other.deserialize_session_state(said))
        async with found:
            assert await sh(found, "cat 'a b' in.txt; ls -A; stat -c %a bin; readlink d/link; od -An -tx1 bin") == (
                0, "kept\nina b\nbin\nd\nin.txt\n700\na b\n ff 00\n", "",
            )
        assert not await found.running()
        await other.delete(found)

    asyncio.run(again())


def test_a_session_that_lives_is_resumed_in_its_sandbox():
    async def main():
        client = CellblockSandboxClient()
        first = await client.create()
        await first.start()
        await first.exec("echo here > /tmp/f")
        second = await client.resume(client.deserialize_session_state(client.serialize_session_state(first.state)))
        await second.start()
        assert await sh(second, "cat /tmp/f") == (0, "here\n", "")
        third = await client.create()
        async with third:
            assert (await sh(third, "cat /tmp/f"))[0] == 1
        await client.delete(second)
        assert not await first.running()
        with pytest.raises(ExecTransportError):
            await second.exec("true")

    asyncio.run(main())


def test_archives_that_lead_out_are_refused():
    def archive(**fields):
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as tar:
            member = tarfile.TarInfo(fields.pop("name", "x"))
            for key, value in fields.items():
                setattr(member, key, value)
            tar.addfile(member)
        return io.BytesIO(made.getvalue())

    async def work(found):
        for how in ({"name": "../x"}, {"name": "/x"}, {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}):
            with pytest.raises(WorkspaceArchiveWriteError):
                await found.hydrate_workspace(archive(**how))
        with pytest.raises(WorkspaceArchiveWriteError):
            await found.hydrate_workspace(io.BytesIO(b"no archive"))
        await found.hydrate_workspace(archive(name="d/x"))
        assert await sh(found, "ls -A . d") == (0, ".:\nd\n\nd:\nx\n", "")
        with tarfile.open(fileobj=await found.persist_workspace()) as tar:
            assert {name.removeprefix("./") for name in tar.getnames()} == {".", "d", "d/x"}

    session(work)


def test_options_and_a_folder_of_the_host(nothing_left):
    kernels.let_in(nothing_left / "w")
    (nothing_left / "w" / "f").write_text("host's")

    async def work(found):
        assert await sh(found, "cat f; echo changed > f; cat f") == (0, "host'schanged\n", "")
        return found._inner.sandbox.usage()["limits"]

    options = CellblockSandboxClientOptions(workspace=str(nothing_left / "w"), policy={"limits.pids": 60})
    limits = session(work, settings={"memory": "350M"}, options=options)
    assert limits["memory"] == 350 << 20 and limits["pids"] == 60
    assert (nothing_left / "w" / "f").read_text() == "host's"
    for makes in (CellblockSandboxClient, CellblockSandboxClientOptions):
        with pytest.raises(ValueError, match="memroy"):
            makes(memroy=1)


# an agent


class Scripted(Model):
    """Each step is a text, which ends the run, or calls: (tool, arguments). `heard`: what it was sent."""

    def __init__(self, *steps):
        self.steps, self.heard = list(steps), []

    async def get_response(self, system_instructions, input, *args, **how):
        self.heard.append(input)
        step = self.steps.pop(0)
        if isinstance(step, str):
            text = ResponseOutputText(text=step, type="output_text", annotations=[])
            message = {"id": "1", "type": "message", "role": "assistant", "status": "completed"}
            output = [ResponseOutputMessage(content=[text], **message)]
        else:
            output = [
                ResponseFunctionToolCall(
                    id=f"f{n}", call_id=f"c{len(self.heard)}_{n}", type="function_call", name=name,
                    arguments=json.dumps(arguments),
                )
                for n, (name, arguments) in enumerate(step)
            ]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *args, **how):
        raise NotImplementedError


def outputs(model):
    return [str(item["output"]) for item in model.heard[-1] if item.get("type") == "function_call_output"]


def test_an_agent():
    model = Scripted(
        [("exec_command", {"cmd": cmd}) for cmd in ("cat in.txt; cat /etc/shadow", "echo two > out; cat out")],
        [("exec_command", {"cmd": "exit 7"})],
        "done",
    )
    agent = SandboxAgent(name="a", model=model, default_manifest=Manifest(entries={"in.txt": File(content=b"given\n")}))
    config = RunConfig(sandbox=SandboxRunConfig(client=CellblockSandboxClient()), tracing_disabled=True)
    result = asyncio.run(Runner.run(agent, "go", run_config=config))
    first, second, third = outputs(model)
    assert result.final_output == "done" and "two" in second and "7" in third
    assert "given" in first and "/etc/shadow: No such file" in first


def test_the_page(monkeypatch):
    command = "python3 -c \"import csv; print(sum(int(r['total']) for r in csv.DictReader(open('sales.csv'))))\""
    model = Scripted([("exec_command", {"cmd": command})], "seven")
    told = []
    made = agents.sandbox.SandboxAgent
    monkeypatch.setattr(agents.sandbox, "SandboxAgent", lambda **how: made(**{**how, "model": model}))
    exec(pages.blocks("openai-agents.md")[0], {"print": told.append})
    assert told == ["seven"] and "7" in outputs(model)[0]
