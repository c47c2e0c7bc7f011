"""Host tools (docs/messages.md): functions of the client's, called from cells."""

import json
import re
from pathlib import Path

import pytest

from rawclient import Client

pytestmark = pytest.mark.cellblock_only("host tools are cellblock's own")
MESSAGES = Path(__file__).resolve().parents[2] / "docs/messages.md"


class Host:
    """A client that serves tools: {name: function}."""

    def __init__(self, client, **tools):
        self.client, self.tools, self.rounds = client, tools, []

    def register(self, channel="control", **more):
        specs = [{"name": name, "description": t.__doc__, **more} for name, t in self.tools.items()]
        reply = self.client.request("cellblock_tools_request", {"tools": specs}, channel=channel)
        assert reply.content == {"status": "ok", "tools": len(specs)}, reply
        return self

    def question(self):
        asked = self.client.wait("stdin", lambda m: m.type == "input_request")
        self.rounds.append(asked.metadata["cellblock"]["calls"])
        return asked

    def answer(self, asked):
        results = []
        for call in asked.metadata["cellblock"]["calls"]:
            try:
                results.append({"id": call["id"], "ok": self.tools[call["tool"]](*call["args"], **call["kwargs"])})
            except Exception as e:
                results.append({"id": call["id"], "error": {"type": type(e).__name__, "message": str(e)}})
        self.say({"results": results}, asked)

    def say(self, value, asked):
        value = value if isinstance(value, str) else json.dumps(value)
        self.client.send("input_reply", {"value": value}, channel="stdin", parent=asked.header)

    def run(self, code, calls=1, **more):
        cell = self.client.start(code, allow_stdin=True, **more)
        while sum(map(len, self.rounds)) < calls:
            self.answer(self.question())
        self.rounds, rounds = [], self.rounds
        done = self.client.finish(cell)
        done.rounds = rounds
        return done


def add(a, b=0):
    """The sum."""
    return a + b


@pytest.fixture
def host(client):
    return Host(client, add=add).register()


def test_a_call(host):
    done = host.run("add(2, b=3)")
    assert done.ok and done.result == "5", done
    ((call,),) = done.rounds
    assert call == {"id": call["id"], "tool": "add", "args": [2], "kwargs": {"b": 3}}
    assert done.about["calls"] == [{"id": call["id"], "tool": "add", "completed": True}]


def test_the_example_of_the_docs(client):
    import jupyter_client

    section = MESSAGES.read_text().partition("## Host tools")[2]
    example = re.search(r"```python\n(.*?)```", section, re.S).group(1)
    kc = jupyter_client.BlockingKernelClient()
    kc.load_connection_info(client.connection)
    kc.start_channels()
    try:
        kc.wait_for_ready(timeout=60)
        said = []
        run = kc.execute_interactive
        kc.execute_interactive = lambda *a, **k: run(*a, output_hook=said.append, timeout=60, **k)
        scope = {"kc": kc}
        exec(example, scope)
        assert scope["reply"]["content"]["status"] == "ok", scope["reply"]
        assert "".join(m["content"].get("text", "") for m in said) == "5\n"
    finally:
        kc.stop_channels()
