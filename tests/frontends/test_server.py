"""jupyter_server between kernel and client: an output flood is neither dropped by its rate limits nor does it hide what
comes after it; its resource monitor; and its culler, which must see that a kernel computes."""

import contextlib
import json
import time
import urllib.error
from collections import deque
from datetime import datetime

import pytest

import servers
from rawclient import Client

pytest.importorskip("jupyter_server", reason="NOT RUN: no release of jupyter_server's is pinned for this Python")


@contextlib.contextmanager
def jupyter_server(folder, options):
    """Its address, with a token."""
    (folder / "work").mkdir(parents=True)
    address = r"(http://127\.0\.0\.1:\d+/)\S*\?token=(\w+)"
    with servers.running("jupyter_server", folder, options, address) as found:
        servers.listening(int(found[1].rstrip("/").rpartition(":")[2]))
        yield found[1], found[2]


@pytest.fixture(scope="module")
def server(nothing_left):
    # twice the defaults, so that nothing depends on how busy this machine is; the defaults are checked by the dates
    options = ["--ServerApp.iopub_data_rate_limit=2e6", "--ServerApp.iopub_msg_rate_limit=2000"]
    with jupyter_server(nothing_left / "server", options) as found:
        yield found


@pytest.fixture(scope="module")
def notebook(server):
    each = servers.Notebook(server)
    yield each
    each.close()


FLOODS = {
    "text": ("for i in range(45): print('x' * 99_999)", 4_500_000),
    "displays": ("for i in range(4500): display(i)", 4500),
}


@pytest.mark.once
@pytest.mark.timeout(600)
@pytest.mark.cellblock_only("ipykernel's output over the limits is dropped")
@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_arrives_whole_and_what_follows_it_too(notebook, name):
    import asyncio

    code, expected = FLOODS[name]
    said = asyncio.run(notebook.run(code + "\n1/0"))
    text = "".join(m["content"]["text"] for m in said if m["msg_type"] == "stream" and m["content"]["name"] == "stdout")
    warned = [m["content"]["text"] for m in said if m["msg_type"] == "stream" and m["content"]["name"] == "stderr"]
    shown = sum(m["msg_type"] == "display_data" for m in said)
    assert not warned and (shown if name == "displays" else len(text)) == expected
    assert [m["msg_type"] for m in said[-3:]].count("error") == 1
    sent = deque()
    for message in said:
        if message["channel"] != "iopub" or message["msg_type"] in ("status", "execute_input"):
            continue
        at = datetime.fromisoformat(message["header"]["date"].replace("Z", "+00:00")).timestamp()
        sent.append((at, len(json.dumps(message["content"])) if message["msg_type"] == "stream" else 0))
        while sent[0][0] < at - 3:
            sent.popleft()
        assert len(sent) <= 3000 and sum(size for _, size in sent) <= 3_000_000


@pytest.mark.timeout(600)
def test_the_resource_monitor(notebook):
    """jupyter-resource-usage asks the kernel; its sidebar shows what comes back."""
    import asyncio

    pytest.importorskip("jupyter_resource_usage")
    asyncio.run(notebook.run("kept = b'x' * (50 << 20)"))
    answer = notebook.rest(f"api/metrics/v1/kernel_usage/get_usage/{notebook.kernel}")
    assert answer["content"]["kernel_memory"] > 50 << 20 and answer["content"]["pid"] > 0
    assert answer["content"]["host_virtual_memory"]["total"] > 0


class Computing(servers.Kernel):
    """A kernel of the server's with a cell that runs until end(): in its main shell, or in a subshell."""

    def __init__(self, server, folder, in_subshell):
        super().__init__(server)
        self.client = Client(connection=json.loads(next(folder.rglob(f"kernel-{self.kernel}.json")).read_text()))
        until(self.is_heard, "the server's subscription")
        made = self.client.request("create_subshell_request", {}, channel="control")
        self.subshell, self.beside = made.content["subshell_id"], not in_subshell
        code = "import time\nwhile not globals().get('end'):\n    time.sleep(0.01)"
        self.cell = self.client.start(code, header=self.header("execute_request", in_subshell))
        until(lambda: self.state() == "busy", "busy")
        self.client.ready()

    def is_heard(self):
        """By the server: what a kernel publishes before the server's subscription is there is lost to it."""
        self.client.request("kernel_info_request", {}, channel="control")
        return self.state() == "idle"

    def header(self, msg_type, in_subshell):
        return self.client.header(msg_type, **({"subshell_id": self.subshell} if in_subshell else {}))

    def state(self):
        return self.rest(f"api/kernels/{self.kernel}")["execution_state"]

    def stays_busy(self, msg_type, content, channel="shell", in_subshell=False):
        """A request comes and goes; the server still holds the kernel for busy, or does as soon as it has read on."""
        asked = self.client.send(msg_type, content, channel=channel, header=self.header(msg_type, in_subshell))
        self.client.reply(asked, channel)
        self.client.until_idle(asked)
        until(lambda: self.state() == "busy", f"busy after {msg_type}")

    def end(self):
        self.stays_busy("execute_request", {"code": "6*7"}, in_subshell=self.beside)
        self.client.start("end = True", header=self.header("execute_request", self.beside))
        assert self.client.finish(self.cell).ok
        self.client.close()


def until(condition, what):
    deadline = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.05)


def culled(kernel):
    def gone():
        try:
            kernel.rest(f"api/kernels/{kernel.kernel}")
        except urllib.error.HTTPError as e:
            return e.code == 404

    until(gone, "the end of an idle kernel")


# The server's own culler, from the moment on that there is a file: on a busy machine a kernel that just starts is idle
# for longer than the limit.
WHEN_TOLD = """import os
from jupyter_server.services.kernels.kernelmanager import MappingKernelManager
cull_kernels = MappingKernelManager.cull_kernels
async def when_told(manager):
    if os.path.exists("cull"):
        await cull_kernels(manager)
MappingKernelManager.cull_kernels = when_told
"""


@pytest.mark.once
@pytest.mark.timeout(600)
@pytest.mark.cellblock_only("another request's idle is the last that a server hears of ipykernel: it is culled")
def test_the_culler_ends_nothing_that_computes(nothing_left):
    """One kernel computes in its shell, one in a subshell; other requests come and go, and then nothing is heard of the
    two for longer than the culler's limit, which the end of a third one shows. Once they are idle they end as well."""
    folder = nothing_left / "culler"
    (folder / ".jupyter").mkdir(parents=True)
    (folder / ".jupyter/jupyter_server_config.py").write_text(WHEN_TOLD)
    options = [f"--MappingKernelManager.{o}" for o in ("cull_idle_timeout=2", "cull_interval=1", "cull_connected=True")]
    with jupyter_server(folder, options) as server:
        computing = [Computing(server, folder, in_subshell) for in_subshell in (False, True)]
        for each in computing:
            each.stays_busy("kernel_info_request", {}, "control")
            each.stays_busy("usage_request", {}, "control")
            each.stays_busy("list_subshell_request", {}, "control")
            each.stays_busy("inspect_request", {"code": "int", "cursor_pos": 3, "detail_level": 0})
            each.stays_busy("execute_request", {"code": "6*7"}, in_subshell=each.beside)
            if each.beside:  # one without it is for all that run
                each.stays_busy("interrupt_request", {}, "control", in_subshell=True)
            each.stays_busy("complete_request", {"code": "imp", "cursor_pos": 3})
        idle = servers.Kernel(server)
        assert idle.rest(f"api/kernels/{idle.kernel}")
        (folder / "cull").touch()
        culled(idle)
        for each in computing:
            assert each.state() == "busy"
            each.end()
        for each in computing:
            culled(each)
