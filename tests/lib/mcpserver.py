"""`cellblock mcp` as a stranger starts it: a process, lines or HTTP requests written by hand, signals.

Role: test code. Invariants: what it starts ends with it; its temporary folder is its own, so that a test can tell what
stays behind.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import kernels

TOKEN = "a-token-of-a-test-0123456789"
VERSION = "2026-07-28"
CLIENT = {"name": "test", "version": "1"}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}
META = {f"io.modelcontextprotocol/{k}": v for k, v in (
    ("protocolVersion", VERSION), ("clientInfo", CLIENT), ("clientCapabilities", {}))}
# A cell that looks for the key of another server, and for a variable of the client's. Every one it sees is True.
KEYS_INSIDE = """
import os, pathlib
def read(process, file):
    try:
        return pathlib.Path('/proc', process, file).read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b''  # ended since the listing, or about to: a twin, for one
texts = [read(p, f) for p in os.listdir('/proc') if p.isdigit() for f in ('environ', 'cmdline')]
assert any(texts), "nothing could be read"
any(b'-other-' + b'server-' in t for t in texts), 'A_KEY_OF_MINE' in os.environ, 'OTHER_KEY' in os.environ
"""


class Connections:
    """Clients of the SDK, with their servers, that tests of a module use one after another: a server's start is a
    second of computing. Each is opened and closed in a task of its own; after a test that failed it is a new one."""

    def __init__(self):
        self.loop, self.held = asyncio.new_event_loop(), {}

    def run(self, name, make, body):
        """Runs `async body(client)` with the client of that name; make() gives one that is not open yet."""
        try:
            self.loop.run_until_complete(asyncio.wait_for(self._run(name, make, body), 240))
        except BaseException:
            self._close(name)
            raise

    async def _run(self, name, make, body):
        if name not in self.held:
            opened, end = self.loop.create_future(), asyncio.Event()
            self.held[name] = self.loop.create_task(self._hold(make(), opened, end)), opened, end
        task, opened, _ = self.held[name]
        await asyncio.wait({task, opened}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            raise AssertionError("the client is closed") from task.exception()
        await body(opened.result())

    @staticmethod
    async def _hold(client, opened, end):
        async with client:
            opened.set_result(client)
            await end.wait()

    def _close(self, name):
        task, _, end = self.held.pop(name)
        end.set()
        self.loop.run_until_complete(asyncio.wait({task}, timeout=60))
        return task

    def end(self):
        for task in [self._close(name) for name in list(self.held)]:
            task.result()
        self.loop.close()


class Server:
    """A server, and all that it has started."""

    def __init__(self, folder, *words):
        self.temporary = Path(tempfile.mkdtemp(prefix="m", dir="/tmp"))  # names of sockets in it must be short
        env = {k: v for k, v in os.environ.items() if k != "XDG_RUNTIME_DIR"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cellblock.mcp", *words], cwd=folder, env={**env, "TMPDIR": str(self.temporary)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.started, self.lines, self.first = [], [], threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)  # a server whose stderr is full stands still
        self.reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line.decode())
            self.first.set()
        self.first.set()

    @contextlib.contextmanager
    def ended_where_this_fails(self):
        try:
            yield
        except BaseException:
            self.end()
            raise

    def said(self):
        """All that it wrote on stderr until it closed that."""
        self.reader.join(60)
        return "".join(self.lines)

    def look(self):
        """Notes which processes there are below it."""
        self.started = kernels.below(self.process.pid)
        return self.started

    def kernels(self):
        return [p for p in self.look() if kernels.words_of(p)[1:2] == ["kernel"]]

    def signal(self, name):
        self.process.send_signal(getattr(signal, name))

    def wait(self):
        """Waits for the end; gives the exit status and what it wrote on stderr."""
        self.process.wait(120)
        return self.process.returncode, self.said()

    def nothing_left(self):
        assert not kernels.wait_gone(self.started)
        left = [str(f) for f in self.temporary.iterdir()]
        assert not left, left

    def end(self):
        self.process.kill()
        self.process.wait(60)
        self.reader.join(60)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()
        kernels.wait_gone(self.started)
        shutil.rmtree(self.temporary, ignore_errors=True)


class Lines(Server):
    """Over stdio: lines by hand."""

    def __init__(self, folder, *words):
        super().__init__(folder, *words)
        self.number = 0
        with self.ended_where_this_fails():
            self.wait_for(self.ask("initialize", HELLO))
            self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def write(self, line):
        data = line if isinstance(line, bytes) else json.dumps(line).encode()
        self.process.stdin.write(data + b"\n")
        self.process.stdin.flush()

    def ask(self, method, params):
        self.number += 1
        self.write({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        return self.number

    def read(self):
        line = self.process.stdout.readline()
        assert line, "the server has closed its end: " + self.said()
        return json.loads(line)

    def wait_for(self, number):
        while True:
            said = self.read()
            if said.get("id") == number and "method" not in said:
                return said

    def begin(self, tool, **arguments):
        """Calls a tool, with progress asked for."""
        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": 1}}
        return self.ask("tools/call", params)

    def call(self, tool, **arguments):
        """The result of a tool."""
        said = self.wait_for(self.begin(tool, **arguments))
        assert "result" in said, said
        return said["result"]


class Http(Server):
    """Over HTTP: requests by hand, without a handshake (the protocol of 2026-07-28)."""

    def __init__(self, folder, *words):
        token = Path(folder) / "token"
        token.touch(0o600)
        token.write_text(TOKEN)
        super().__init__(folder, "--http", "0", "--token-file", str(token), *words)
        with self.ended_where_this_fails():
            assert self.first.wait(120)
            self.url = re.search(r"http://127\.0\.0\.1:\d+/mcp", self.lines[0]).group()

    @staticmethod
    def headers(tool):
        return {"authorization": f"Bearer {TOKEN}", "accept": "application/json, text/event-stream",
                "content-type": "application/json", "mcp-protocol-version": VERSION, "mcp-method": "tools/call",
                "mcp-name": tool}

    @staticmethod
    def body(tool, arguments):
        meta = {**META, "progressToken": 1}
        params = {"name": tool, "arguments": arguments, "_meta": meta}
        return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})

    def begin(self, http, tool, **arguments):
        """An answer as it comes: use it by `with`."""
        return http.stream("POST", self.url, headers=self.headers(tool), content=self.body(tool, arguments))

    def call(self, http, tool, **arguments):
        """The result of a tool."""
        with self.begin(http, tool, **arguments) as answer:
            said = answer.read().decode()
            assert answer.status_code == 200, said
        lines = [line[5:] for line in said.splitlines() if line.startswith("data:")] or [said]
        return json.loads(lines[-1])["result"]
