"""Starts a Jupyter server with a home of its own, for tests that speak to kernels through one. Traffic stays on
loopback."""

import collections
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import uuid

import pytest

import kernels


@contextlib.contextmanager
def running(module, folder, options, address, server=True, python=sys.executable):
    """`module` (jupyter_server, jupyterlab) with `folder` as home and folder/work as root; gives the match of
    `address`, a pattern, with what the server says of itself. server: it takes the options of one."""
    jupyter = os.path.join(os.path.dirname(os.path.dirname(sys.executable)), "share/jupyter")
    env = {**os.environ, "HOME": str(folder), "JUPYTER_PATH": jupyter, "IPYTHONDIR": str(folder / "ipython")}
    if server:
        options = ["--no-browser", "--allow-root", "--port=0", f"--ServerApp.root_dir={folder}/work", *options]
        options.append("--ResourceUseDisplay.enable_prometheus_metrics=False")  # it reads all of /proc each second
    process = subprocess.Popen(
        [python, "-m", module, *options],
        env={k: v for k, v in env.items() if not k.startswith("PYTEST")},
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder if server else folder / "work",
    )
    try:
        said = ""
        for line in process.stderr:
            said += line
            found = re.search(address, line)
            if found:
                break
        else:
            pytest.fail(f"{module} did not start: {said[-2000:]}")
        log = collections.deque(maxlen=50)
        reader = threading.Thread(target=lambda: log.extend(process.stderr), daemon=True)  # its log never blocks it
        reader.start()
        yield found
    finally:
        process.terminate()
        try:
            process.wait(200)
        except subprocess.TimeoutExpired:
            process.kill()  # no server stays, however slow its end
            reader.join()
            pytest.fail(f"{module} did not end; its last words: {''.join(log)}")


def listening(port):
    """It names its address before it listens there."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def rest(server, path, body=None, method=None):
    address, token = server
    headers = {"Authorization": f"token {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(address + path, body, headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read() or b"null")


class Notebook:
    """A session as a browser has one: made by REST, its kernel spoken to over a websocket."""

    def __init__(self, server):
        self.server = self.address, self.token = server
        self.session = uuid.uuid4().hex
        self.made = self._make()

    def _make(self):
        body = {"path": "n.ipynb", "name": "n", "type": "notebook", "kernel": {"name": kernels.NAME}}
        about = self.rest("api/sessions", json.dumps(body).encode())
        self.kernel = about["kernel"]["id"]
        return f"api/sessions/{about['id']}"

    def rest(self, path, body=None, method=None):
        return rest(self.server, path, body, method)

    async def run(self, code):
        """All messages of a cell, to its idle and reply."""
        from tornado.websocket import websocket_connect

        url = self.address.replace("http", "ws") + f"api/kernels/{self.kernel}/channels?token={self.token}"
        connection = await websocket_connect(url, max_message_size=1 << 30)
        msg_id, found, ends = uuid.uuid4().hex, [], 0
        header = {"msg_id": msg_id, "msg_type": "execute_request", "session": self.session, "username": "u"}
        header |= {"date": "2026-01-01T00:00:00Z", "version": "5.4"}
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
        await connection.write_message(json.dumps({**message, "buffers": []}))
        while ends < 2:
            message = json.loads(await connection.read_message())
            if message["parent_header"].get("msg_id") == msg_id:
                found.append(message)
                ends += message["msg_type"] == "execute_reply" or message["content"].get("execution_state") == "idle"
        connection.close()
        return found

    def close(self):
        self.rest(self.made, method="DELETE")


class Kernel(Notebook):
    """A kernel without a notebook, as gateways give them."""

    def _make(self):
        self.kernel = self.rest("api/kernels", json.dumps({"name": kernels.NAME}).encode())["id"]
        return f"api/kernels/{self.kernel}"
