"""`cellblock mcp` over stdio, as the official SDK's client uses it, in both modes of the protocol."""

import asyncio
import base64
import os
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("mcp", reason="the MCP SDK needs Python 3.10")
pytest.importorskip("msgspec")
import anyio  # noqa: E402
from mcp.client import Client  # noqa: E402
from mcp.client.stdio import StdioServerParameters  # noqa: E402
from mcp.shared.exceptions import MCPError  # noqa: E402

from cellblock import SandboxError, _launch  # noqa: E402
from cellblock._policy import refused  # noqa: E402
from cellblock.mcp._server import INSTRUCTIONS, MAX_FILE, CommandSandbox, Options, Server  # noqa: E402
from cellblock.mcp._sessions import Sessions  # noqa: E402
from mcpserver import Connections  # noqa: E402

pytestmark = pytest.mark.once

MODES = ["legacy", "2026-07-28"]


def connection(folder, *words, mode="legacy"):
    server = StdioServerParameters(command=sys.executable, args=["-m", "cellblock.mcp", *words], cwd=str(folder))
    return Client(server, mode=mode)


@pytest.fixture
def serve(tmp_path):
    """serve(body, word, …): runs `async body(client)` against a server with these options."""
    work = tmp_path / "work"
    work.mkdir()

    def run(body, *words, mode="legacy"):
        async def main():
            async with connection(work, *words, mode=mode) as client:
                await body(client)

        asyncio.run(asyncio.wait_for(main(), 240))

    run.work = work
    return run


@pytest.fixture(scope="module")
def connections():
    held = Connections()
    yield held
    held.end()


@pytest.fixture
def served(connections, nothing_left):
    """served(body): the same against the module's server without options, and in its client's own session."""
    def run(body, mode="legacy"):
        connections.run(mode, lambda: connection(nothing_left, mode=mode), body)

    return run


async def python(client, code, **arguments):
    done = await client.call_tool("run_python", {"code": code, **arguments})
    assert done.structured_content is not None, done
    return done


@pytest.mark.parametrize("mode", MODES)
def test_state_stays_from_call_to_call(served, mode):
    async def body(client):
        names = {t.name for t in (await client.list_tools()).tools}
        assert names == {"run_python", "run_command", "reset_session"}
        done = await python(client, "x = 41\nprint('hello')\nx + 1")
        said = done.structured_content
        assert said["ok"] and said["repr"] == "42" and said["stdout"] == "hello\n" and said["state"] == "kept", said
        assert "hello" in done.content[0].text and not done.is_error
        assert (await python(client, "x", session=said["session"])).structured_content["repr"] == "41"
        assert (await python(client, "x")).structured_content["session"] == said["session"]
        other = (await python(client, "x", session="new")).structured_content
        assert other["session"] != said["session"] and other["error"]["name"] == "NameError"

    served(body, mode=mode)


def test_a_crash_keeps_the_state(served):
    async def body(client):
        await python(client, "x = 1")
        done = await python(client, "x = 2\nimport os; os._exit(3)")
        said = done.structured_content
        assert done.is_error and said["error"]["name"] == "KernelDiedError" and said["state"] == "restored", said
        assert (await python(client, "x")).structured_content["repr"] == "1"

    served(body)


def test_the_instructions_say_what_may_become_of_variables():
    assert all(f'"{state}"' in INSTRUCTIONS for state in ("kept", "restored", "lost"))
    assert "costs nothing" not in INSTRUCTIONS and "stay as it left them" in INSTRUCTIONS


def test_an_error_is_told(served):
    async def body(client):
        done = await python(client, "print('before')\n1 / 0")
        said = done.structured_content
        assert done.is_error and said["fault"] == "code" and said["error"]["name"] == "ZeroDivisionError"
        assert "before" in done.content[0].text and "ZeroDivisionError" in done.content[0].text
        done = await python(client, "while True: pass", timeout=0.5)
        assert done.structured_content["limit"] == "time" and done.structured_content["fault"] == "limit"

    served(body)


def test_commands(served):
    async def body(client):
        done = await client.call_tool("run_command", {"argv": ["sh", "-c", "echo out; echo err >&2; exit 3"]})
        said = done.structured_content
        assert (said["returncode"], said["stdout"], said["stderr"]) == (3, "out\n", "err\n") and done.is_error
        done = await client.call_tool("run_command", {"argv": ["no-such-program"]})
        assert done.is_error and "FileNotFoundError" in done.content[0].text

    served(body)


def test_reset(served):
    async def body(client):
        name = (await python(client, "x = 1; open('/tmp/mark', 'w')")).structured_content["session"]
        done = await client.call_tool("reset_session", {"session": name})
        assert done.structured_content["session"] == name
        said = (await python(client, "import os; ('x' in globals(), os.path.exists('/tmp/mark'))", session=name))
        assert said.structured_content["repr"] == "(False, False)"

    served(body)


def test_a_session_is_known_by_its_name_alone(serve):
    async def body(client):
        for name in ("s_", "../x", "s_" + "a" * 32, "\x1b[2J"):
            done = await client.call_tool("run_python", {"code": "1", "session": name})
            assert done.is_error and "there is no such session" in done.content[0].text
        first = (await python(client, "1", session="new")).structured_content["session"]
        second = (await python(client, "1", session="new")).structured_content["session"]
        third = (await python(client, "1", session="new")).structured_content["session"]
        assert len({first, second, third}) == 3 and all(len(n) >= 32 for n in (first, second, third))
        done = await client.call_tool("run_python", {"code": "1", "session": first})
        assert done.is_error  # two at most: the one longest unused has ended
        assert (await python(client, "1", session=third)).structured_content["ok"]

    serve(body, "--sessions", "2")


def test_a_session_that_nobody_uses_ends(serve):
    async def body(client):
        done = await python(client, "print('x' * 50_000)", session="new")
        name, uri = done.structured_content["session"], done.content[1].uri
        with pytest.raises(MCPError, match="a session that ended"):
            while await client.read_resource(uri):  # which is no use of the session
                await asyncio.sleep(0.05)
        done = await client.call_tool("run_python", {"code": "1", "session": name})
        assert "without use" in done.content[0].text

    serve(body, "--lifetime", "1")


@pytest.mark.parametrize("tool, arguments", [
    ("run_python", {"code": "x"}), ("run_python", {"code": "1"}), ("run_command", {"argv": ["true"]}),
    ("read_file", {"path": "a"}), ("list_files", {}), ("write_file", {"path": "a", "content": ""}),
    ("reset_session", {}), ("checkpoint", {"name": "a"}), ("workspace_changes", {}),
])
def test_a_connections_own_session_that_ended_is_told_by_the_next_reply(tmp_path, tool, arguments):
    """By a server in this process."""
    async def body(client):
        done = await python(client, "x = 1; open('a', 'w'); print('x' * 50_000)")
        assert done.structured_content["note"] is None
        uri = done.content[1].uri
        with pytest.raises(MCPError, match="a session that ended"):
            while await client.read_resource(uri):  # which is no use of the session
                await asyncio.sleep(0.05)
        done = await client.call_tool(tool, arguments)
        text, said = done.content[0].text, done.structured_content
        note = "[This connection's session had ended after 1 seconds without use. This is a new one: "
        assert note in text[:200] and (said is None or said["note"].startswith(note)), done
        if tool.startswith("run_"):
            assert text.startswith(note)

    async def main():
        server = Server(lambda _: CommandSandbox("agent", workspace=tmp_path), Options(True, True, lifetime=1))
        async with Client(server.mcp, mode="legacy") as client:
            await body(client)
        await server.close()

    asyncio.run(asyncio.wait_for(main(), 240))


class Nothing:
    async def close(self):
        pass


@pytest.mark.parametrize("shared", [False, True])
def test_the_longest_unused_makes_room_unless_it_is_the_connections_own(shared):
    async def main():
        sessions = Sessions(Nothing, 2, 3600, shared)
        first, second = await sessions.get(None), await sessions.get("new")
        first.used, second.used = 1, 2
        third = await sessions.get("new")
        assert set(sessions._all) == {second.name if shared else first.name, third.name}
        await sessions.close()

    asyncio.run(main())


@pytest.mark.parametrize("shared", [False, True])
def test_a_connections_own_session_that_ended_is_told_once(shared):
    async def main():
        sessions = Sessions(Nothing, 8, 0.001, shared)
        first, other = await sessions.get(None), await sessions.get("new")
        assert first.head() == {"session": first.name, "note": None} and other.head()["note"] is None
        while first.name in sessions._all or other.name in sessions._all:
            await asyncio.sleep(0.01)
        assert (await sessions.get("new")).head()["note"] is None
        second = await sessions.get(None)
        assert second.name != first.name and bool(second.head()["note"]) is not shared
        assert second.head() == {"session": second.name, "note": None}
        await sessions.close()

    asyncio.run(main())


PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def test_pictures_and_what_is_large(served):
    async def body(client):
        done = await python(client, f"""
class P:
    def _repr_mimebundle_(self, **_): return {{"image/png": {PNG!r}, "text/plain": "P"}}
P()
""")
        assert done.content[1].type == "image" and base64.b64decode(done.content[1].data).startswith(b"\x89PNG")
        done = await python(client, "print('x' * 300_000)")
        said = done.structured_content
        assert len(said["stdout"]) <= 20_000 and len(done.content[0].text) <= 20_000
        link = done.content[1]
        assert link.type == "resource_link" and link.size == 300_001
        whole = (await client.read_resource(link.uri)).contents[0]
        assert base64.b64decode(whole.blob) == b"x" * 300_000 + b"\n"
        for uri in (link.uri[:-1], "cellblock://x/y", f"cellblock://{said['session']}/%2e%2e"):
            with pytest.raises(MCPError):
                await client.read_resource(uri)

    served(body)


@pytest.mark.parametrize("mode", MODES)
def test_progress_while_output_comes(served, mode):
    async def body(client):
        told, heard = [], asyncio.Event()

        async def progress(done, total, message):
            told.append((done, message))
            heard.set()

        task = asyncio.ensure_future(client.call_tool(
            "run_python", {"code": "print('first')\n1 / 0"}, progress_callback=progress))
        await asyncio.wait({task, asyncio.ensure_future(heard.wait())}, return_when=asyncio.FIRST_COMPLETED)
        done = await task
        assert done.is_error and told[0][0] >= 6 and "first" in told[0][1]

    served(body, mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_cancelling_interrupts_and_keeps_the_state(serve, mode):
    async def body(client):
        await python(client, "n = 0")
        heard = anyio.Event()

        async def progress(done, total, message):
            heard.set()

        async with anyio.create_task_group() as group:
            async def forever():
                code = "n = 1\nprint('on my way')\nwhile True: pass"
                await client.call_tool("run_python", {"code": code}, progress_callback=progress)

            group.start_soon(forever)
            await heard.wait()
            group.cancel_scope.cancel()
        said = (await python(client, "n")).structured_content
        assert said["repr"] == "1" and said["execution_count"] == 3, said

    serve(body, "--set", "timeout.interrupt=0", mode=mode)  # it is waited for, however slow the machine is


def test_files(serve):
    async def body(client):
        assert {"read_file", "write_file", "list_files"} <= {t.name for t in (await client.list_tools()).tools}

        async def call(name, **arguments):
            return await client.call_tool(name, arguments)

        await call("write_file", path="a/b.txt", content="hellö")
        assert (await call("read_file", path="a/b.txt")).structured_content["text"] == "hellö"
        assert (await python(client, "open('a/b.txt').read()")).structured_content["repr"] == "'hellö'"
        await call("write_file", path="raw", content=base64.b64encode(b"\xff\x00").decode(), encoding="base64")
        assert (await call("read_file", path="raw")).structured_content["base64"] == "/wA="
        entries = (await call("list_files")).structured_content["entries"]
        assert [(e["name"], e["type"]) for e in entries] == [("a", "folder"), ("raw", "file")]
        for path in ("../../etc/passwd", "/etc/passwd", "/proc/self/environ", "nothing"):
            done = await call("read_file", path=path)
            assert done.is_error and "Error" in done.content[0].text, done
        assert (await call("write_file", path="../x", content="")).is_error
        assert (await call("write_file", path="x", content="%%", encoding="base64")).is_error

    serve(body, "--files")


def test_a_text_that_is_cut_within_a_character(serve):
    """What is shown of it ends before that. Bytes that are no text stay bytes, and so do those of half a character at
    a file's own end."""
    (serve.work / "long").write_text("a" + "é" * (MAX_FILE // 2), encoding="utf-8")
    (serve.work / "bytes").write_bytes(b"\xff" + "é".encode() * (MAX_FILE // 2))
    (serve.work / "half").write_bytes("é".encode()[:1])

    async def body(client):
        async def read(path):
            done = (await client.call_tool("read_file", {"path": path})).structured_content
            return done["text"], done["base64"], done["size"], done["truncated"]

        shown = "a" + "é" * (MAX_FILE // 2 - 1)
        text, coded, size, truncated = await read("long")
        assert coded is None and text == shown and size == MAX_FILE - 1 and truncated
        text, coded, size, truncated = await read("bytes")
        assert text is None and truncated and len(base64.b64decode(coded)) == size == MAX_FILE
        assert await read("half") == (None, "ww==", 1, False)

    serve(body, "--files", "--workspace", ".")


def test_checkpoints_and_never_a_commit(serve):
    (serve.work / "mine").write_text("before")

    async def body(client):
        names = {t.name for t in (await client.list_tools()).tools}
        assert {"checkpoint", "rollback", "workspace_changes"} <= names
        assert not any("commit" in n for n in names)
        await python(client, "x = 1; open('mine', 'w').write('after')")
        await client.call_tool("checkpoint", {"name": "clean"})
        await python(client, "x = 2")
        await client.call_tool("rollback", {"name": "clean"})
        assert (await python(client, "x")).structured_content["repr"] == "1"
        changes = (await client.call_tool("workspace_changes", {})).structured_content["changes"]
        assert [(c["path"], c["change"]) for c in changes] == [("mine", "modified")]
        assert (await client.call_tool("rollback", {"name": "no such"})).is_error

    serve(body, "--checkpoints", "--workspace", str(serve.work))
    assert (serve.work / "mine").read_text() == "before"


def test_wrong_arguments_are_told(serve):
    async def body(client):
        for arguments in ({}, {"code": 3}, {"code": "1", "timeout": -1}):
            done = await client.call_tool("run_python", arguments)
            assert done.is_error, arguments
        assert (await client.call_tool("run_shell", {})).is_error

    serve(body)


def test_cures_name_options_of_the_command(serve):
    async def body(client):
        told = (await client.call_tool("run_python", {"code": "1"})).content[0].text
        assert "Name a folder of its own with --workspace or workspace.path, " in told, told

    serve(body, "--workspace", "/")


@pytest.mark.parametrize("option, cure", [
    ("workspace", "with --workspace."), ("python", "with `cellblock install --prefix /p --python`."),
])
def test_what_the_command_calls_an_option_of_the_kernels(option, cure):
    sandbox = CommandSandbox("agent")
    sandbox._process = SimpleNamespace(argv=["/p/bin/cellblock"])
    assert str(refused(f"IsolationError: no jail: x. Name one with --{option}.", sandbox._word)).endswith(cure)
    sandbox._process = None


def test_a_program_that_is_not_there_is_no_matter_of_keywords(monkeypatch, tmp_path):
    monkeypatch.delenv("CELLBLOCK", raising=False)
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    monkeypatch.setattr(sys, "prefix", os.fspath(tmp_path))
    monkeypatch.setattr(_launch, "__file__", os.fspath(tmp_path / "lib/python3/site-packages/cellblock/_launch.py"))
    with pytest.raises(SandboxError, match="name it by .CELLBLOCK") as caught:
        asyncio.run(CommandSandbox("agent").start())
    assert "binary=" not in str(caught.value)


@pytest.mark.parametrize("words, said", [
    (["--sessions", "0"], "less than 1"), (["--set", "x"], "KEY=VALUE"), (["--nonsense"], "--nonsense"),
    (["--http", "65536"], "more than 65535"), (["--workspace", "/no/such"], "no such folder"),
])
def test_wrong_words(words, said):
    import subprocess
    done = subprocess.run([sys.executable, "-m", "cellblock.mcp", *words], capture_output=True, text=True, timeout=200)
    assert done.returncode == 2 and said in done.stderr and not done.stdout
