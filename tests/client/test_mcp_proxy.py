"""`cellblock mcp --proxy`: other servers' tools as functions of the code inside; their keys, and the user's word."""

import asyncio
import json
import os
import sys

import pytest

pytest.importorskip("mcp", reason="the MCP SDK needs Python 3.10")
pytest.importorskip("msgspec")
from mcp.client import Client  # noqa: E402
from mcp.client.stdio import StdioServerParameters  # noqa: E402
from mcp_types import ElicitResult  # noqa: E402

from cellblock import AsyncSandbox  # noqa: E402
from cellblock.mcp.__main__ import main as command  # noqa: E402
from cellblock.mcp._proxy import read_servers  # noqa: E402
from cellblock.mcp._server import Options, Server  # noqa: E402
from mcpserver import KEYS_INSIDE, Connections  # noqa: E402

pytestmark = pytest.mark.once

MODES = ["legacy", "2026-07-28"]
KEY = "sk-the-key-of-the-other-server-93721"
OTHER = """
import os, pathlib
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
server = MCPServer("other")

@server.tool()
def look_up(word: str, limit: int = 3) -> list[str]:
    "Looks a word up."
    assert os.environ["OTHER_KEY"] == KEY
    return [word] * limit

@server.tool(name="delete-it")
def delete(name: str) -> str:
    "Deletes."
    with pathlib.Path("deleted").open("a") as log: log.write(name + "\\n")
    return "deleted " + name

@server.tool()
def fails() -> str:
    "Fails."
    raise ToolError("out of luck")

server.run("stdio")
""".replace("KEY)", f"{KEY!r})").replace("== KEY", f"== {KEY!r}")


def configured(folder, program, *arguments, **more):
    """The file that names another server, which is this program."""
    (folder / "other.py").write_text(program)
    server = {"command": sys.executable, "args": [str(folder / "other.py"), *arguments], "cwd": str(folder), **more}
    (folder / "proxy.json").write_text(json.dumps({"mcpServers": {"other": server}}))
    return str(folder / "proxy.json")


@pytest.fixture(scope="module")
def connections(nothing_left):
    held = Connections()
    held.file = configured(nothing_left, OTHER, env={"OTHER_KEY": "${A_KEY_OF_MINE}"}, approve=["delete-it"])
    (nothing_left / "work").mkdir()
    yield held
    held.end()


@pytest.fixture
def serve(connections, nothing_left):
    """serve(body, mode, elicit): runs `async body(client)` with a client that other tests may have used before. Where
    elicit is given it can ask its user."""
    async def ask(*asked):
        return await connections.elicit(*asked)

    def run(body, mode="legacy", elicit=None):
        server = StdioServerParameters(
            command=sys.executable, args=["-m", "cellblock.mcp", "--proxy", connections.file],
            cwd=str(nothing_left / "work"), env={**os.environ, "A_KEY_OF_MINE": KEY})
        connections.elicit = elicit
        connections.run((mode, elicit is None), lambda: Client(
            server, mode=mode, elicitation_callback=ask if elicit else None), body)

    run.deleted = nothing_left / "deleted"
    run.deleted.unlink(missing_ok=True)
    return run


async def python(client, code, **arguments):
    done = await client.call_tool("run_python", {"code": code, **arguments})
    assert done.structured_content is not None, done
    return done.structured_content


@pytest.mark.parametrize("mode", MODES)
def test_tools_of_another_server_are_functions(serve, mode):
    async def body(client):
        assert "look_up" not in {t.name for t in (await client.list_tools()).tools}
        said = await python(client, "sorted(look_up('a') + look_up('b', limit=1)), look_up.__doc__")
        assert said["repr"] == "(['a', 'a', 'a', 'b'], 'Looks a word up.')", said
        assert [c["tool"] for c in said["calls"]] == ["look_up", "look_up"]
        said = await python(client, "look_up()")
        assert "missing a required argument: 'word'" in said["error"]["value"]
        said = await python(client, "look_up('a', evil=1)")
        assert "unexpected" in said["error"]["value"]
        said = await python(client, "fails()")
        assert said["error"]["value"].startswith("RemoteToolError: ") and "out of luck" in said["error"]["value"]
        said = await python(client, KEYS_INSIDE)
        assert said["repr"] == "(False, False, False)", said

    serve(body, mode=mode)


def user(answers, asked):
    """A client's user: answers each question with the next of `answers`."""
    given = iter(answers)

    async def elicit(context, params):
        asked.append(params.message)
        action, content = next(given)
        return ElicitResult(action=action, content=content)

    return elicit


@pytest.mark.parametrize("mode", MODES)
def test_a_users_yes_lets_a_call_happen_and_everything_else_does_not(serve, mode):
    asked = []
    answers = [("accept", {"approve": True}), ("accept", {"approve": False}), ("decline", None), ("cancel", None),
               ("accept", {"approve": True})]

    async def body(client):
        said = await python(client, "n = globals().get('n', 0) + 1\ndelete_it('one'), n")
        assert said["repr"] == "('deleted one', 1)", said  # the cell ran once
        for _ in range(3):
            said = await python(client, "delete_it('two')")
            assert said["error"]["value"].startswith("ToolRefusedError: delete_it was refused"), said
        said = await python(client, "delete_it('\\x1b[2Jthree'), n")
        assert said["repr"] == "('deleted \\x1b[2Jthree', 1)"

    serve(body, mode=mode, elicit=user(answers, asked))
    assert len(asked) == 5 and 'delete_it(name="one")' in asked[0]
    assert 'delete_it(name="\\x1b[2Jthree")' in asked[4] and "\x1b" not in asked[4]
    assert serve.deleted.read_text() == "one\n\x1b[2Jthree\n"


@pytest.mark.parametrize("mode", MODES)
def test_several_questions_of_one_cell(serve, mode):
    asked = []

    async def body(client):
        said = await python(client, "[delete_it(str(n)) for n in range(3)]")
        assert said["repr"] == "['deleted 0', 'deleted 1', 'deleted 2']", said

    serve(body, mode=mode, elicit=user([("accept", {"approve": True})] * 3, asked))
    assert len(asked) == 3 and serve.deleted.read_text() == "0\n1\n2\n"


@pytest.mark.parametrize("mode", MODES)
def test_a_client_that_cannot_ask_is_a_no(serve, mode):
    async def body(client):
        said = await python(client, "x = 1\ndelete_it('one')")
        assert "the MCP client can't ask its user" in said["error"]["value"] and said["state"] == "kept", said
        assert (await python(client, "x"))["repr"] == "1"

    serve(body, mode=mode)
    assert not serve.deleted.exists()


def test_a_forged_state_resumes_nothing(serve):
    async def body(client):
        first = await client.session.call_tool("run_python", {"code": "delete_it('one')"}, allow_input_required=True)
        state = first.request_state
        for forged in ("", "x", state[:-2] + ("AA" if not state.endswith("AA") else "BB"), state + "A"):
            try:
                done = await client.session.call_tool(
                    "run_python", {"code": "delete_it('one')"}, request_state=forged, allow_input_required=True,
                    input_responses={"approve": ElicitResult(action="accept", content={"approve": True})})
            except Exception:
                continue
            assert getattr(done, "is_error", False) or getattr(done, "request_state", None), done
        assert not serve.deleted.exists()
        yes = {"approve": ElicitResult(action="accept", content={"approve": True})}
        done = await client.session.call_tool("run_python", {"code": "delete_it('one')"}, request_state=state,
                                              input_responses=yes, allow_input_required=True)
        assert done.structured_content["repr"] == "'deleted one'"
        done = await client.session.call_tool("run_python", {"code": "delete_it('one')"}, request_state=state,
                                              input_responses=yes, allow_input_required=True)
        assert done.is_error and "resumed already" in done.content[0].text
        assert serve.deleted.read_text() == "one\n"

    async def nobody(context, params):
        raise AssertionError("not asked")

    serve(body, mode="2026-07-28", elicit=nobody)


@pytest.mark.parametrize("content, said", [
    ("{", "no JSON"), ("[]", "an object is needed"), ('{"mcpServers": {}}', "an object is needed"),
    ('{"mcpServers": {"a": {}}}', "mcpServers.a: either command or url"),
    ('{"mcpServers": {"a": {"command": "x", "url": "y"}}}', "either command or url"),
    ('{"mcpServers": {"a": {"command": "x", "argz": []}}}', "argz is not known"),
    ('{"mcpServers": {"a": {"command": "x", "args": "y"}}}', "args: must be a list"),
    ('{"mcpServers": {"a": {"command": "x", "approve": "y"}}}', "approve: true, false"),
    ('{"mcpServers": {"a": {"command": "x", "approve": ["y", 3]}}}', "approve: each entry must be a text"),
    ('{"mcpServers": {"a": {"command": "x", "tools": [["y"]]}}}', "tools: each entry must be a text"),
])
def test_files_that_say_nothing_clear(tmp_path, content, said):
    (tmp_path / "p.json").write_text(content)
    with pytest.raises(ValueError, match=said):
        read_servers(str(tmp_path / "p.json"))


@pytest.fixture
def refused(capsys):
    """refused(file): what the command says that can't use the servers of that file."""
    def run(file):
        with pytest.raises(SystemExit) as end:
            command(["--proxy", file])
        said = capsys.readouterr().err
        assert end.value.code == 1 and "Traceback" not in said, said
        return said

    return run


@pytest.mark.parametrize("server, said", [
    ({"command": "/no/such/program"}, "'other' can't be used"),
    ({"command": "x", "env": {"K": "${NO_SUCH_VARIABLE_HERE}"}}, "there is no such variable"),
])
def test_a_server_that_cannot_be_reached_is_named(refused, tmp_path, server, said):
    assert said in refused(configured(tmp_path, "", **server))


# Another server without the SDK, which starts at once. Its words: the number of its tools, or their names.
PAGES = """
import json, sys
count = int(sys.argv[1]) if sys.argv[1].isdigit() else len(sys.argv) - 1

def answer(method, params):
    if method == "initialize":
        about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "pages", "version": "1"}}
        return {"protocolVersion": params["protocolVersion"], **about}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": params["name"]}]}
    if method == "tools/list":
        at = int(params.get("cursor") or 0)
        names = [f"tool{n}" if len(sys.argv) == 2 else sys.argv[n + 1] for n in range(at, min(at + 10, count))]
        more = {"nextCursor": str(at + 10)} if count == 0 or at + 10 < count else {}
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names], **more}

for line in sys.stdin:
    said = json.loads(line)
    result = answer(said["method"], said.get("params") or {})
    result = {"result": result} if result else {"error": {"code": -32601, "message": "not known"}}
    if "id" in said:
        print(json.dumps({"jsonrpc": "2.0", "id": said["id"], **result}), flush=True)
"""


@pytest.mark.parametrize("key, names", [("approve", ["delete-it", "delete_it"]), ("tools", ["Look_up"])])
def test_a_name_that_the_server_does_not_have_is_an_error(refused, tmp_path, key, names):
    """As the code inside and the user see it the name is `delete_it`; it must not be taken for one that asks nobody."""
    how = {"approve": ["delete-it"], key: names}
    said = refused(configured(tmp_path, PAGES, "look_up", "delete-it", "fails", **how))
    assert f"the MCP server 'other': {key} names {names[-1]!r}, and it has no such tool: it has 'look_up', " \
        "'delete-it', 'fails'" in said


@pytest.mark.parametrize("count", [35, 1000])
def test_a_servers_tools_come_from_all_pages(tmp_path, count):
    file = configured(tmp_path, PAGES, str(count))

    async def main():
        made = Server(lambda s: AsyncSandbox("agent", policy={"workspace.mode": "tmpfs"}, tools=s.tools),
                      Options(proxy=read_servers(file)))
        await made.start()
        async with Client(made.mcp, mode="legacy") as client:
            said = await python(client, f"tool0(), tool{count - 1}()")
            assert said["repr"] == f"('tool0', 'tool{count - 1}')", said
        await made.close()

    asyncio.run(asyncio.wait_for(main(), 240))


def test_a_name_that_a_server_of_many_tools_does_not_have_is_an_error(refused, tmp_path):
    said = refused(configured(tmp_path, PAGES, "35", approve=["tool35"]))
    assert "it has no such tool: it has " + ", ".join(f"'tool{n}'" for n in range(20)) + " and 15 others\n" in said


@pytest.mark.parametrize("count", ["1001", "0"])
def test_too_many_tools_and_a_list_without_end_are_told(refused, tmp_path, count):
    said = refused(configured(tmp_path, PAGES, count))
    assert "'other' can't be used: RemoteToolError: its list of tools does not end, or has more than 1000" in said
