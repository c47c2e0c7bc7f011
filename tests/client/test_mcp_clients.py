"""`cellblock mcp` as the clients of others use it: FastMCP's, and that of the OpenAI Agents SDK, without a model.

They read our replies, fields and errors in ways of their own."""

import asyncio
import base64
import json
import os
import sys

import pytest

pytest.importorskip("mcp", reason="the MCP SDK needs Python 3.10")
pytest.importorskip("msgspec")

from mcpserver import KEYS_INSIDE, TOKEN, Http  # noqa: E402

pytestmark = pytest.mark.once
KEY = "sk-the-key-of-the-other-server-93721"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PICTURE = f"class P:\n    def _repr_mimebundle_(self, **_): return {{'image/png': {PNG!r}, 'text/plain': 'P'}}\nP()"
OTHER = f"""
import os, pathlib
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
server = FastMCP("other")

@server.tool
def look_up(word: str, limit: int = 3) -> list[str]:
    "Looks a word up."
    assert os.environ["OTHER_KEY"] == {KEY!r}
    return [word] * limit

@server.tool
def delete(name: str) -> dict:
    "Deletes."
    with pathlib.Path("deleted").open("a") as log: log.write(name + "\\n")
    return {{"deleted": name}}

@server.tool
def fails() -> str:
    "Fails."
    raise ToolError("out of luck")

server.run(show_banner=False)
"""
MODES = ["legacy", "auto"]  # the handshake; the protocol without one


@pytest.fixture(scope="module")
def folder(nothing_left):
    """With the file that offers the tools of a FastMCP server inside; its key is in its environment."""
    pytest.importorskip("fastmcp", reason="NOT RUN: FastMCP is not installed")
    (nothing_left / "work").mkdir()
    (nothing_left / "other.py").write_text(OTHER)
    (nothing_left / "proxy.json").write_text(json.dumps({"mcpServers": {"other": {
        "command": sys.executable, "args": [str(nothing_left / "other.py")], "env": {"OTHER_KEY": "${A_KEY_OF_MINE}"},
        "cwd": str(nothing_left), "approve": ["delete"]}}}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("A_KEY_OF_MINE", KEY)
        yield nothing_left


@pytest.fixture(scope="module")
def words(folder):
    # an interrupt is waited for, however slow the machine is
    return ["--proxy", str(folder / "proxy.json"), "--set", "timeout.interrupt=0"]


@pytest.fixture(scope="module")
def served(folder, words):
    server = Http(folder / "work", *words)
    yield server
    server.end()


@pytest.fixture(params=["stdio", "http"])
def fast(request, folder, words):
    """fast(body, …): runs `async body(client)` with FastMCP's client, over stdio of a server of its own, over HTTP of
    the module's. proxied: over stdio, too, FastMCP's server is there, which takes its time to start."""
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport, StreamableHttpTransport

    def run(body, proxied=True, **options):
        if request.param == "http":
            transport = StreamableHttpTransport(request.getfixturevalue("served").url, auth=TOKEN)
        else:
            transport = StdioTransport(
                sys.executable, ["-m", "cellblock.mcp", *words[0 if proxied else 2:]], env=dict(os.environ),
                cwd=str(folder / "work"), keep_alive=False)

        async def main():
            async with Client(transport, **options) as client:
                await body(client)

        asyncio.run(asyncio.wait_for(main(), 240))

    run.deleted = folder / "deleted"
    run.deleted.unlink(missing_ok=True)
    return run


async def python(client, code, **arguments):
    done = await client.call_tool("run_python", {"code": code, **arguments}, raise_on_error=False)
    assert done.structured_content is not None, done
    return done


@pytest.mark.parametrize("mode", MODES)
def test_fastmcp_state_crash_picture_cancel_and_progress(fast, mode):
    async def body(client):
        assert {"run_python", "run_command", "reset_session"} == {t.name for t in await client.list_tools()}
        done = await python(client, "x = 41\nprint('hello')\nx + 1")
        assert done.data.ok and done.data.repr == "42" and done.data.stdout == "hello\n"  # made from our schema
        name = done.data.session
        done = await python(client, "x = 2\nimport os; os._exit(3)", session=name)
        assert done.is_error and done.structured_content["state"] == "restored"
        assert (await python(client, "x", session=name)).data.repr == "41"
        done = await python(client, PICTURE, session=name)
        assert done.content[1].type == "image" and base64.b64decode(done.content[1].data).startswith(b"\x89PNG")

        heard = asyncio.Event()

        async def progress(done, total, message):
            if "on my way" in (message or ""):
                heard.set()

        code = "n = 1\nprint('on my way')\nwhile True: pass"
        running = asyncio.ensure_future(
            client.call_tool("run_python", {"code": code, "session": name}, progress_handler=progress))
        await asyncio.wait({running, asyncio.ensure_future(heard.wait())}, return_when=asyncio.FIRST_COMPLETED)
        assert not running.done()
        running.cancel()
        await asyncio.wait({running})
        said = (await python(client, "n", session=name)).structured_content
        assert said["repr"] == "1" and said["state"] == "kept", said

    fast(body, proxied=False, mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_fastmcp_a_users_yes_and_no_and_none(fast, mode):
    from fastmcp.client.elicitation import ElicitResult

    asked = []
    answers = [{"approve": True}, {"approve": False}, ElicitResult(action="decline"), ElicitResult(action="cancel")]

    async def elicit(message, kind, params, context):
        asked.append(message)
        return answers[len(asked) - 1]

    async def body(client):
        done = await python(client, "n = globals().get('n', 0) + 1\ndelete('one'), n")
        name, said = done.structured_content["session"], done.structured_content
        assert said["repr"] == "({'deleted': 'one'}, 1)", said  # the cell ran once
        for _ in range(3):
            said = (await python(client, "delete('two')", session=name)).structured_content
            assert said["error"]["value"].startswith("ToolRefusedError: delete was refused"), said

    fast(body, mode=mode, elicitation_handler=elicit)
    assert len(asked) == 4 and 'delete(name="one")' in asked[0] and fast.deleted.read_text() == "one\n"

    async def nobody(client):
        said = (await python(client, "delete('three')")).structured_content
        assert "the MCP client can't ask its user" in said["error"]["value"], said

    fast(nobody, mode=mode)
    assert fast.deleted.read_text() == "one\n"


def test_fastmcp_a_server_of_theirs_is_proxied_and_its_key_stays_outside(fast):
    async def body(client):
        said = (await python(client, "sorted(look_up('a') + look_up('b', limit=1)), look_up.__doc__")).data
        assert said.repr == "(['a', 'a', 'a', 'b'], 'Looks a word up.')", said
        said = (await python(client, "fails()", session=said.session)).structured_content
        assert "RemoteToolError" in said["error"]["value"] and "out of luck" in said["error"]["value"]
        said = (await python(client, KEYS_INSIDE)).structured_content
        assert said["repr"] == "(False, False, False)", said

    fast(body)


@pytest.mark.parametrize("kind", ["stdio", "http"])
def test_openai_agents(tmp_path, kind):
    agents = pytest.importorskip("agents.mcp", reason="NOT RUN: the OpenAI Agents SDK is not installed")
    server = Http(tmp_path, "--files") if kind == "http" else None

    async def main():
        if server is None:
            params = {"command": sys.executable, "args": ["-m", "cellblock.mcp", "--files"], "cwd": str(tmp_path)}
            client = agents.MCPServerStdio(params=params, client_session_timeout_seconds=None)
        else:
            params = {"url": server.url, "headers": {"Authorization": f"Bearer {TOKEN}"}}
            client = agents.MCPServerStreamableHttp(params=params, client_session_timeout_seconds=None)
        async with client:
            tools = {t.name for t in await client.list_tools()}
            assert {"run_python", "run_command", "reset_session", "read_file", "write_file", "list_files"} == tools
            done = await client.call_tool("run_python", {"code": "x = 1\nprint('hello')\nx"})
            said = done.structured_content
            assert said["repr"] == "1" and "hello" in done.content[0].text
            done = await client.call_tool("run_python", {"code": "x + 1", "session": said["session"]})
            assert done.structured_content["repr"] == "2" and not done.is_error
            done = await client.call_tool("read_file", {"path": "../x", "session": said["session"]})
            assert done.is_error and "not in the workspace" in done.content[0].text

    try:
        asyncio.run(asyncio.wait_for(main(), 240))
    finally:
        if server is not None:
            server.end()
