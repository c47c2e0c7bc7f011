"""`cellblock mcp --http`: on this machine alone, with a token, and for no page of another origin."""

import asyncio
import http.client as http_client
import re
import select
import subprocess
import sys
import urllib.parse

import pytest

pytest.importorskip("mcp", reason="the MCP SDK needs Python 3.10")
pytest.importorskip("msgspec")
import httpx2 as httpx  # noqa: E402
from mcp.client import Client  # noqa: E402
from mcp.client.streamable_http import streamable_http_client  # noqa: E402

from cellblock.mcp.__main__ import main  # noqa: E402

pytestmark = pytest.mark.once

TOKEN = "a-token-of-a-test-0123456789"
HELLO = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
    "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}}
ACCEPT = {"accept": "application/json, text/event-stream", "authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def address(nothing_left):
    """Of one server: no test does harm to it."""
    (nothing_left / "token").touch(0o600)
    (nothing_left / "token").write_text(TOKEN + "\n")
    server = subprocess.Popen(
        [sys.executable, "-m", "cellblock.mcp", "--http", "0", "--token-file", str(nothing_left / "token")],
        cwd=nothing_left, stderr=subprocess.PIPE, text=True,
    )
    try:
        yield re.search(r"http://127\.0\.0\.1:\d+/mcp", server.stderr.readline()).group()
    finally:
        server.terminate()
        try:
            server.wait(60)
        finally:
            server.kill()  # nothing where it has ended
            server.wait()
            server.stderr.close()


def test_a_connection_that_rests_is_the_clients_to_close(address):
    """Clients let go of it within 5 s; a server that does so first loses the request that is on its way."""
    where = urllib.parse.urlsplit(address)
    http = http_client.HTTPConnection(where.hostname, where.port, timeout=200)
    http.request("POST", where.path, body=b"{}")
    assert http.getresponse().read().startswith(b"send the token")
    assert not select.select([http.sock], [], [], 7)[0], "it was closed"
    http.close()


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_sessions_are_known_by_their_names(address, mode):
    async def connection(body):
        async with httpx.AsyncClient(headers={"authorization": f"Bearer {TOKEN}"}, timeout=200) as http:
            async with Client(streamable_http_client(address, http_client=http), mode=mode) as client:
                return await body(client)

    async def first(client):
        one = (await client.call_tool("run_python", {"code": "x = 1"})).structured_content["session"]
        two = (await client.call_tool("run_python", {"code": "x"})).structured_content
        assert two["session"] != one and two["error"]["name"] == "NameError"
        return one

    async def both():
        name = await connection(first)
        done = await connection(lambda client: client.call_tool("run_python", {"code": "x", "session": name}))
        assert done.structured_content["repr"] == "1"  # a session outlives the connection

    asyncio.run(asyncio.wait_for(both(), 240))


def test_nothing_without_the_token(address):
    with httpx.Client(timeout=200) as http:
        for given in ({}, {"authorization": TOKEN}, {"authorization": "Bearer"}, {"authorization": f"Bearer {TOKEN}x"},
                      {"authorization": f"bearer {TOKEN[:-1]}"}, {"authorization": "Basic " + TOKEN}):
            for method in ("GET", "POST", "DELETE", "OPTIONS"):
                said = http.request(method, address, headers={"accept": ACCEPT["accept"], **given}, json=HELLO)
                assert said.status_code == 401 and TOKEN not in said.text
        assert http.post(address, headers=ACCEPT, json=HELLO).status_code == 200


def test_no_other_host_or_origin(address):
    port = address.split(":")[2].split("/")[0]
    with httpx.Client(timeout=200) as http:
        for headers, status in (
            ({"host": "evil.example"}, 421), ({"host": f"evil.example:{port}"}, 421), ({"host": "127.0.0.1"}, 421),
            ({"origin": "http://evil.example"}, 403), ({"origin": "null"}, 403),
            ({"origin": f"http://127.0.0.1:{port}1"}, 403), ({"origin": f"http://localhost:{port}"}, 200),
            ({"host": f"localhost:{port}"}, 200),
        ):
            said = http.post(address, headers={**ACCEPT, **headers}, json=HELLO)
            assert said.status_code == status, (headers, said.text)


def test_it_listens_on_loopback_alone(address):
    import psutil
    port = int(address.split(":")[2].split("/")[0])
    listening = {c.laddr.ip for c in psutil.net_connections("tcp") if c.laddr.port == port and c.status == "LISTEN"}
    assert listening == {"127.0.0.1"}


@pytest.mark.parametrize("content, mode, said", [
    (TOKEN, 0o644, "chmod 600"), ("short", 0o600, "at least 16"), ("two words in one file", 0o600, "without spaces"),
    (None, 0, "No such file"),
])
def test_wrong_tokens(tmp_path, capsys, content, mode, said):
    if content is not None:
        (tmp_path / "token").write_text(content)
        (tmp_path / "token").chmod(mode)
    with pytest.raises(SystemExit) as end:
        main(["--http", "0", "--token-file", str(tmp_path / "token")])
    told = capsys.readouterr().err
    assert end.value.code == 1 and said in told and "http://" not in told
