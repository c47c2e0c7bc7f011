"""`cellblock mcp` between hostile cells, hostile other servers, and clients that do not behave."""

import asyncio
import json
import re
import socket
import subprocess
import sys

import pytest

pytest.importorskip("mcp", reason="the MCP SDK needs Python 3.10")
pytest.importorskip("msgspec")
from mcp.client import Client  # noqa: E402
from mcp.client.stdio import StdioServerParameters  # noqa: E402

from cellblock._result import Result  # noqa: E402
from cellblock.mcp import _reply, _runs  # noqa: E402
from cellblock.mcp._proxy import _python_name  # noqa: E402
from cellblock.mcp._runs import Run, Runs, approve  # noqa: E402
from cellblock.mcp._sessions import McpSession  # noqa: E402
from cellblock._tools import Call, check_name  # noqa: E402

pytestmark = pytest.mark.once

TOKEN = "a-token-of-a-test-0123456789"
MIME = "application/vnd.cellblock.value+json"
DEEP = f"""import os, struct
from cellblock_guest import context
value = b"[" * 250 + b"]" * 250
content = b'{{"data":{{"text/plain":"deep","{MIME}":{{"json":' + value + b'}}}},"metadata":{{}}}}'
data = struct.pack("<IIIIQII", 9, len(content), 0, 0, context.current(), 0, 0) + content
assert os.write(3, data) == len(data)
"""


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_no_cell_makes_a_reply_that_clients_can_not_read(tmp_path, mode):
    """Parsers have limits of depth: over them the whole reply is dropped, and the call waits for ever."""
    async def main():
        server = StdioServerParameters(command=sys.executable, args=["-m", "cellblock.mcp"], cwd=str(tmp_path))
        async with Client(server, mode=mode) as client:
            heard = []

            async def progress(done, total, message):
                heard.append(message)

            async def run(code):
                done = await asyncio.wait_for(
                    client.call_tool("run_python", {"code": code}, progress_callback=progress), 100)
                return done.structured_content
            said = await run(DEEP)
            assert said["ok"] and not said["has_value"] and said["repr"] == "deep"
            shows = "print('\\x1b[2Ja\\x9b31m\\x07b', flush=True)\nraise type('\\x1b[1mE', (Exception,), {})('x')"
            said = await run(shows)
            assert said["stdout"] == "ab\n" and said["error"]["name"] == "E"
            assert not set("\x1b\x9b\x07") & set(json.dumps([said["stdout"], said["error"], said["repr"], *heard],
                                                            ensure_ascii=False))
            said = await run("class X:\n    def __repr__(self): return '\\x1b]0;title\\x07shown'\nX()")
            assert said["repr"] == "shown"

    asyncio.run(asyncio.wait_for(main(), 140))


def deep(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("value", [
    deep(70), deep(900), float("nan"), [float("inf")], "\ud800", {"\ud800": 1}, b"x", "x" * 60_000, "\x00" * 20_000,
    [0] * 60_000, object()], ids=range(11))
def test_values_that_are_left_out(value):
    said = _reply.of_result(McpSession(None), Result(ok=True, value=value, has_value=True, repr="r")).structured_content
    assert said["has_value"] is False and said["value"] is None and said["repr"] == "r"


class Silent:
    """A client whose user never answers the form."""

    protocol_version = "2025-06-18"

    class client_capabilities:
        elicitation = True

    def __init__(self):
        self.asked, self.let_go = [], 0

    async def elicit(self, text, form):
        self.asked.append(text)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.let_go += 1


def test_a_user_who_never_answers_holds_no_reply_up(monkeypatch):
    async def main():
        async def cell(run):
            monkeypatch.setattr(_runs, "WAIT", 0.05)
            first = await approve(Call("1", "first", {}, {}))
            monkeypatch.setattr(_runs, "WAIT", 600)
            second = asyncio.ensure_future(approve(Call("2", "second", {}, {})))
            while len(silent.asked) < 2:
                await asyncio.sleep(0.01)
            second.cancel()  # as a call is whose cell has hit its limit
            return first

        silent = Silent()
        assert "did not answer" in await Runs().to_the_end(Run(cell), silent)
        await asyncio.sleep(0)
        assert [t.rpartition(" ")[2] for t in silent.asked] == ["first()", "second()"] and silent.let_go == 2

    asyncio.run(asyncio.wait_for(main(), 60))


def test_names_of_other_servers_tools():
    taken, made = {"x"}, []
    evil = ["x", "x", "x", "print", "open", "import", "None", "__import__", "_", "__", "", "1a", "\u0430bc",
            "t" * 100, "t" * 101, "HostToolError", "In", "a\nb", "a;b", "get_ipython().x", "b_x", "b_x"]
    for tool in evil:
        for server in ("b", "1", "__", "é", "a b", "import"):
            name = check_name(_python_name(server, tool, taken))
            assert name not in taken and name not in dir(__builtins__) and name not in ("In", "HostToolError", "print")
            taken.add(name), made.append(name)
    assert made[0] == "b_x"
    assert _python_name("b", "look-up", taken) == "look_up" and _python_name("b", "a.b", set()) == "a_b"


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    folder = tmp_path_factory.mktemp("http")
    (folder / "token").touch(0o600)
    (folder / "token").write_text(TOKEN)
    server = subprocess.Popen(
        [sys.executable, "-m", "cellblock.mcp", "--http", "0", "--token-file", str(folder / "token")],
        cwd=folder, stderr=subprocess.PIPE, text=True,
    )
    try:
        yield int(re.search(r":(\d+)/mcp", server.stderr.readline()).group(1))
    finally:
        server.terminate()
        try:
            said = server.communicate(timeout=200)[1]
        finally:
            server.kill()  # nothing where it has ended
            server.wait()
        assert "Traceback" not in said, said


HELLO = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
    "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}})
GOOD = f"Authorization: Bearer {TOKEN}\r\n"
HTTP = {  # what is sent, and the answer's status; PORT stands for the server's
    "good": ("Host: 127.0.0.1:PORT\r\n" + GOOD, HELLO, 200),
    "two tokens": ("Host: 127.0.0.1:PORT\r\n" + GOOD + "Authorization: Bearer x\r\n", HELLO, 401),
    "no token": ("Host: 127.0.0.1:PORT\r\n", HELLO, 401),
    "half a token": ("Host: 127.0.0.1:PORT\r\n" + GOOD.replace("789", ""), HELLO, 401),
    "another scheme": ("Host: 127.0.0.1:PORT\r\n" + GOOD.replace("Bearer", "Basic"), HELLO, 401),
    "two hosts": ("Host: 127.0.0.1:PORT\r\nHost: evil.example\r\n" + GOOD, HELLO, 400),
    "no host": (GOOD, HELLO, 400),
    "another host": ("Host: evil.example\r\n" + GOOD, HELLO, 421),
    "a host that begins well": ("Host: 127.0.0.1:PORT.evil.example\r\n" + GOOD, HELLO, 421),
    "no port": ("Host: 127.0.0.1\r\n" + GOOD, HELLO, 421),
    "another origin": ("Host: 127.0.0.1:PORT\r\nOrigin: http://evil.example\r\n" + GOOD, HELLO, 403),
    "no origin's name": ("Host: 127.0.0.1:PORT\r\nOrigin: null\r\n" + GOOD, HELLO, 403),
    "an origin that begins well": ("Host: 127.0.0.1:PORT\r\nOrigin: http://127.0.0.1:PORT.evil\r\n" + GOOD, HELLO, 403),
    "two origins": (
        "Host: 127.0.0.1:PORT\r\nOrigin: http://127.0.0.1:PORT\r\nOrigin: http://evil.example\r\n" + GOOD, HELLO, 401),
    "two lengths": ("Host: 127.0.0.1:PORT\r\nContent-Length: 5\r\n" + GOOD, HELLO, 400),
    "length and chunks": (
        "Host: 127.0.0.1:PORT\r\nTransfer-Encoding: chunked\r\n" + GOOD, "0\r\n\r\nGET / HTTP/1.1\r\n\r\n", 400),
    "deep": ("Host: 127.0.0.1:PORT\r\n" + GOOD, "[" * 100_000, 400),
    "another's connection": ("Host: 127.0.0.1:PORT\r\nMcp-Session-Id: " + "0" * 32 + "\r\n" + GOOD, HELLO, 404),
    "a websocket": (
        "Host: 127.0.0.1:PORT\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n", "", 401),
    "more than is read": ("Host: 127.0.0.1:PORT\r\n" + GOOD, '{"a":"' + "x" * (100 << 20) + '"}', 413),
}


@pytest.mark.parametrize("name", HTTP)
def test_http(port, name):
    headers, body, status = HTTP[name]
    method = "GET" if name == "a websocket" else "POST"
    head = f"{method} /mcp HTTP/1.1\r\nAccept: application/json, text/event-stream\r\n"
    head += "Content-Type: application/json\r\n"
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    with socket.create_connection(("127.0.0.1", port), 60) as s:
        try:
            s.sendall((head + headers.replace("PORT", str(port)) + length + "\r\n").encode() + body.encode())
        except OSError:
            pass  # it has answered and reads no more
        said = s.recv(65536)
    assert int(said.split(b" ")[1]) == status, said
    # what is hidden behind it may have an answer of its own: an error
    assert said.count(b"HTTP/1.1 2") == (status == 200)
