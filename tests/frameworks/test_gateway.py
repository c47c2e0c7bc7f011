"""A kernel gateway whose every kernel is ours, whatever its clients ask for: the page's command and program,
smolagents' own functions for kernels behind a gateway, and a notebook that the gateway serves over HTTP."""

import contextlib
import json
import re
import shlex
import subprocess
import sys
import urllib.error
import urllib.request
from unittest import mock

import pytest

import cellblock
import kernels
import nbformat
import pages
import servers

pytest.importorskip("kernel_gateway", reason="NOT RUN: no kernel gateway is pinned for this Python")
websocket = pytest.importorskip("websocket")

UNDER = "Kernel gateway"
SECRET = "sk-4711-of-the-gateway"


@contextlib.contextmanager
def gateway(folder, monkeypatch, *more, force=True, ready="Jupyter Kernel Gateway"):
    """As the page's command starts it, at another port; gives "127.0.0.1:PORT" when its log has said `ready`."""
    kernels.let_in(folder / "work")
    command = pages.blocks("frameworks.md", "sh", UNDER)[0].strip()
    setting, *words = shlex.split(command)
    assert words[:2] == ["jupyter", "kernelgateway"]
    port = kernels.free_ports(1)[0]
    options = [w.replace("8888", str(port)) for w in words[2:]] + ["--KernelGatewayApp.ip=127.0.0.1", *more]
    with monkeypatch.context() as patch:
        if force:
            patch.setenv(*setting.split("="))
        patch.setenv("GATEWAY_KEY", SECRET)
        with servers.running("kernel_gateway", folder, options, ready, server=False):
            servers.listening(port)
            yield f"127.0.0.1:{port}"


def test_the_page(nothing_left, monkeypatch):
    program, = pages.blocks("frameworks.md", under=UNDER)
    with gateway(nothing_left / "page", monkeypatch) as at:
        done = subprocess.run([sys.executable, "-c", program.replace("127.0.0.1:8888", at)], capture_output=True,
                              text=True, timeout=240)
    assert (done.stdout, done.returncode) == ("False\n", 0), done.stderr


@pytest.mark.parametrize("force, body", [
    ("variable", b""), ("variable", b'{"name": "python"}'), ("option", b'{"name": "python3"}'),
])
def test_smolagents_functions(nothing_left, monkeypatch, force, body):
    """Those of its Docker, Modal and Blaxel executors: a websocket for each step, no limit of their own."""
    remote = pytest.importorskip("smolagents.remote_executors", reason="smolagents needs Python 3.11 here")
    from smolagents.monitoring import AgentLogger, LogLevel

    logger = AgentLogger(LogLevel.OFF)
    more = ["--KernelGatewayApp.force_kernel_name=cellblock"] if force == "option" else []
    with gateway(nothing_left / f"{force}{len(body)}", monkeypatch, *more, force=force == "variable") as at:
        if body:
            request = urllib.request.Request(f"http://{at}/api/kernels?token=secret", body, method="POST")
            kernel = json.load(urllib.request.urlopen(request))["id"]
        else:
            kernel = remote._create_kernel_http(f"http://{at}/api/kernels?token=secret", logger)

        def step(code):
            with contextlib.closing(
                websocket.create_connection(f"ws://{at}/api/kernels/{kernel}/channels?token=secret")
            ) as ws:
                return remote._websocket_run_code_raise_errors(code, ws, logger)

        seek = "import os\n[p for p in ('/etc/shadow', '/root/.ssh') if os.path.exists(p)], 'GATEWAY_KEY' in os.environ"
        assert step(seek).output == "([], False)"
        assert step("x = 41\nprint('said')").logs == "said\n"
        with pytest.raises(remote.AgentError, match="KernelDiedError"):
            step("os._exit(3)")
        assert step("x + 1").output == "42"
        flood = step("for i in range(400): display(i)\nclass FinalAnswerException(BaseException): pass\n"
                     "raise FinalAnswerException('safe:' + '\"answer\"')")
        assert flood.is_final_answer and flood.output == "answer"  # more than 1,000 a second the server drops


def test_the_prompt_connection(nothing_left, monkeypatch):
    """Servers load it by the page's name; it sets TCP_NODELAY before the first message."""
    option, = re.findall(r"`(--KernelGatewayApp.kernel_websocket\S+)`", (pages.ROOT / "docs/frameworks.md").read_text())
    with gateway(nothing_left / "prompt", monkeypatch, option) as at:
        with cellblock.Sandbox.connect(f"http://{at}", token="secret") as sb:
            assert sb.run("6 * 7").repr == "42"
    jupyter = pytest.importorskip("cellblock.jupyter")
    done = []
    monkeypatch.setattr(jupyter.ZMQChannelsWebsocketConnection, "connect", lambda self: done.append("connect") or "it")
    connection = jupyter.PromptConnection.__new__(jupyter.PromptConnection)
    handler = mock.Mock(spec=pytest.importorskip("jupyter_server.services.kernels.websocket").KernelWebsocketHandler)
    handler.set_nodelay.side_effect = done.append
    connection.websocket_handler = handler
    assert connection.connect() == "it"
    assert done == [True, "connect"]


def test_a_notebook_over_http(nothing_left, monkeypatch):
    """Each cell with a path is an address; the rest runs first. Nothing is asked before the kernel's greeting: on
    messages without a parent the gateway's handler raises, and it does not read on (frameworks.md)."""
    folder = nothing_left / "http"
    kernels.let_in(folder / "work")
    seen = ("# GET /seen/:who\ncalls.append(json.loads(REQUEST)['path']['who'])\n"
            "print(calls, os.path.exists('/etc/shadow'))")
    sources = ("import json, os\ncalls = []", seen, "# GET /bad\n1 / 0")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    notebook.metadata = {"kernelspec": {"name": kernels.NAME, "display_name": "", "language": "python"}}
    nbformat.write(notebook, folder / "work/n.ipynb")
    more = ["--KernelGatewayApp.api=kernel_gateway.notebook_http", "--KernelGatewayApp.seed_uri=n.ipynb"]
    with gateway(folder, monkeypatch, *more, ready="Could not find callback") as at:
        def get(path):
            return urllib.request.urlopen(f"http://{at}/{path}?token=secret", timeout=100).read().decode()

        assert [get("seen/a"), get("seen/b")] == ["['a'] False\n", "['a', 'b'] False\n"]
        with pytest.raises(urllib.error.HTTPError, match="500") as told:
            get("bad")
        assert "ZeroDivisionError" in told.value.read().decode()
        assert get("seen/c") == "['a', 'b', 'c'] False\n"


def test_a_wrong_token(nothing_left, monkeypatch):
    with gateway(nothing_left / "token", monkeypatch) as at:
        with pytest.raises(urllib.error.HTTPError, match="401|403"):
            urllib.request.urlopen(urllib.request.Request(f"http://{at}/api/kernels?token=wrong", b"", method="POST"))
