"""A client that serves host tools (docs/messages.md). Role: test code, outside the jail."""

import json


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
