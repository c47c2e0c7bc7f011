"""Sandboxes in kernels that were started by others: by a connection file, a kernel gateway, a Jupyter server."""

import asyncio
import base64
import hashlib
import http.server
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

import cellblock
import kernels
import servers
from cellblock import _connect, _keeper, _session
from cellblock._keeper import keeper
from cellblock._wire import Codec, new_message

pytestmark = pytest.mark.once

WHOLE = new_message("t", {"a": "ü"}, "s", parent={"msg_id": "p"}, metadata={"m": 1}, buffers=[b"", b"\x00\xff"])


def use(sb):
    """What a sandbox does, by whatever way it reaches its kernel."""
    r = sb.run("print('a')\nx = 6\nx * 7")
    assert (r.stdout, r.repr, r.ok) == ("a\n", "42", True) and r.usage.wall_s > 0
    assert sb.run("1/0").fault == "code"
    sb.checkpoint("c")
    sb.run("x = 7")
    sb.rollback("c")
    assert sb.run("x").repr == "6"
    with sb.branch() as b:
        assert b.run("x + 1").repr == "7"
    sb.write_file("made.bin", bytes(range(256)) * 20)
    assert sb.read_file("made.bin") == bytes(range(256)) * 20
    assert sb.run_command(["cat"], stdin=b"by buffers").stdout == "by buffers"
    events = list(sb.stream("print('up', flush=True)\nimport time\ntime.sleep(1)\n5"))
    assert events[0].text == "up\n" and events[-1].result.repr == "5"


def test_connection_file(make, start):
    kernel = start()
    sb = make(connect=kernel.file)
    use(sb)
    with pytest.raises(cellblock.SandboxError, match="connected to"):
        sb.reset()
    assert make(connect=os.fspath(kernel.file)).run("x").repr == "6"
    sb.close()
    assert kernel.alive()


def test_name_in_the_runtime_folder(make, start, monkeypatch):
    kernel = start()
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", os.fspath(kernel.file.parent))
    assert make(connect=kernel.file.name).run("1").repr == "1"


def test_curve(make, start):
    zmq = pytest.importorskip("zmq")
    public, secret = (k.decode() for k in zmq.curve_keypair())
    kernel = start(connection={"curve_publickey": public, "curve_secretkey": secret}, ready=False)
    assert make(connect=kernel.file).run("1").repr == "1"


def test_a_kernel_of_another_kind(make, tmp_path):
    """It answers none of our requests: nobody waits for that."""
    pytest.importorskip("ipykernel")
    file = tmp_path / "kernel.json"
    file.write_text(json.dumps(kernels.new_connection(tmp_path)))
    other = subprocess.Popen(
        [sys.executable, "-m", "ipykernel_launcher", "-f", file], cwd=tmp_path, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, env={**os.environ, "IPYTHONDIR": str(tmp_path / "ipython")},
    )
    try:
        with pytest.raises(cellblock.SandboxError, match="not Cellblock's: it says that it is 'ipython'"):
            make(connect=file).run("1")
    finally:
        other.kill()
        other.wait()


def test_no_such_file(make, tmp_path):
    with pytest.raises(cellblock.SandboxError, match="no connection file 'kernel-none.json'"):
        make(connect="kernel-none.json").run("1")
    ports = {f"{channel}_port": 1 for channel in ("shell", "control", "stdin", "iopub")}
    for said, why in (
        ([], "it names no ports"), ({**ports, "stdin_port": None}, "it names no stdin_port"),
        ({**ports, "ip": "127.0.0.1", "iopub_port": "x"}, "socket tcp://127.0.0.1:x can't be connected to: "),
    ):
        (tmp_path / "bad.json").write_text(json.dumps(said))
        with pytest.raises(cellblock.SandboxError, match=why):
            make(connect=tmp_path / "bad.json").run("1")


def test_gateway(make, gateway):
    sb = make(connect=gateway, token="secret")
    use(sb)
    sb.reset()
    assert sb.run("x").error.name == "NameError"


def test_a_kernel_that_its_server_has_removed(make, gateway):
    sb = make(connect=gateway, token="secret")

    def remove():
        path = f"/api/kernels/{sb.kernel.session.connected.transport._kernel}"
        servers.rest((gateway, "secret"), path, method="DELETE")
        return gateway + path

    sb.run("x = 1")
    remove()
    sb.reset()
    assert sb.run("x").error.name == "NameError"
    url = remove()
    assert url in keeper()._kept
    sb.close()
    assert url not in keeper()._kept


def test_a_kernel_that_its_server_restarts(make, gateway):
    """Because it was asked to, and because the kernel was killed while a cell ran."""
    sb = make(connect=gateway, token="secret")
    kernel = sb.start().kernel.session.connected.transport._kernel
    servers.rest((gateway, "secret"), f"/api/kernels/{kernel}/restart", b"", method="POST")
    with pytest.raises(cellblock.SandboxError, match=r"restarted by others.*reset\(\)"):
        sb.run("1")
    sb.reset()
    file = f"kernel-{sb.kernel.session.connected.transport._kernel}.json"
    (process,) = (p for p in kernels.below(os.getpid()) if file in " ".join(kernels.words_of(p)[1:]))
    with pytest.raises(cellblock.SandboxError, match=r"restarted by others.*reset\(\)"):
        for _ in sb.stream("print('up', flush=True)\nimport time\ntime.sleep(10000)"):
            process.kill()
    sb.reset()
    assert sb.run("'new'").repr == "'new'"


def test_a_kernel_that_others_restart(make, start):
    """Its jail is its own matter, and no restart of the kernel."""
    first = start(ready=False, args=["--set", "transactions.mode=off"])
    sb = make(connect=first.file)
    assert sb.run("x = 1\nimport os\nos._exit(1)").state == "lost"
    assert sb.run("x = 1").ok and sb.run("x").repr == "1"
    first.kill()
    start(connection=first.connection)
    with pytest.raises(cellblock.SandboxError, match="restarted by others"):
        sb.run("x")


@pytest.mark.parametrize("code", [
    "while not os.path.exists('go'):\n    print('.', flush=True)\n    time.sleep(0.02)",
    "while not os.path.exists('go'):\n    time.sleep(0.02)",
], ids=["what is heard is life", "it is asked a second time"])
def test_a_kernel_whose_answer_is_late(make, start, monkeypatch, code):
    """As over a server, where the answer stands in a queue; and where the event loop has stood still."""
    kernel = start(ready=False)
    sb = make(connect=kernel.file)
    transport, asked = sb.start().kernel.session.connected.transport, []
    send = transport.send
    monkeypatch.setattr(_session, "SILENCE", 1.0)

    def late(channel, message):
        asked.extend([message] if message.type == "kernel_info_request" else [])
        if message not in asked or (len(asked) == 2 and "print" not in code):
            send(channel, message)
        if len(asked) == 2:
            (kernel.workspace / "go").touch()

    monkeypatch.setattr(transport, "send", late)
    assert sb.run(f"import os, time\n{code}\n7").repr == "7" and asked


def test_a_kernel_that_answers_no_more(make, start, monkeypatch):
    kernel = start(ready=False)
    sb = make(connect=kernel.file)
    sb.run("1")
    monkeypatch.setattr(_session, "SILENCE", 0.2)
    kernel.signal(signal.SIGSTOP)
    try:
        with pytest.raises(cellblock.SandboxError, match="has not answered for 0.6 seconds"):
            sb.run("2")
    finally:
        kernel.signal(signal.SIGCONT)


def test_a_request_that_is_too_large_for_a_message(make, gateway):
    sb = make(connect=gateway, token="secret")
    with pytest.raises(cellblock.ValueTooLargeError, match="limits.message allows"):
        sb.run_command(["true"], stdin=b"x" * (70 << 20))
    assert sb.run("1").repr == "1"


def test_closed_when_its_loop_has_ended(gateway):
    sb = cellblock.AsyncSandbox.connect(gateway, token="secret")
    asyncio.run(sb.start())
    url = f"{gateway}/api/kernels/{sb.kernel.session.connected.transport._kernel}"
    asyncio.run(sb.close())
    assert url not in keeper()._kept


def test_a_message_that_is_too_large_for_the_server(make, server):
    sb = make(connect=server, token="secret")
    sb.run("x = 1")
    with pytest.raises(cellblock.SandboxError, match=r"takes 10485760 .*write_file.*websocket_max_message_size"):
        sb.set("x", b"x" * (11 << 20))
    sb.reset()
    assert sb.run("1").repr == "1"


@pytest.mark.parametrize("answered", ["first", "later", None])
def test_a_large_message_that_the_server_took_is_not_to_blame_for_a_later_end(answered):
    async def main():
        socket, told = _connect.WebSocket(_connect.Server("http://none", None), "k"), []
        first, later = (new_message("execute_request", {"code": c}, "s") for c in ("x" * (11 << 20), "x"))
        socket.send("stdin", first)  # nobody answers what goes this way
        socket.send("shell", first)
        socket.send("shell", later)
        parent = {"first": first.header, "later": later.header, None: {}}[answered]
        said = [_connect.pack_json("iopub", new_message("status", {}, "k", parent=parent)), None]

        class Ended:
            close_code = None

            async def read_message(self):
                return said.pop(0)

        socket._socket = Ended()
        await socket._read(lambda channel, message: None, told.append)
        return told

    (why,) = asyncio.run(main())
    assert ("the largest message to it" in why) is (answered is None)


@pytest.mark.parametrize("waits", [True, False])
def test_a_start_on_a_server_that_is_given_up_leaves_no_kernel(gateway, monkeypatch, waits):
    """Also where the program's event loop ends at once."""
    rest = _connect.Server._rest
    asked, ended = threading.Event(), threading.Event()

    def noted(server, method, path, *more, **how):
        if method == "POST":
            asked.set()
        said = rest(server, method, path, *more, **how)
        if method == "DELETE":
            ended.set()
        return said

    async def main():
        start = asyncio.ensure_future(cellblock.AsyncSandbox.connect(gateway, token="secret").start())
        await asyncio.get_running_loop().run_in_executor(None, asked.wait, 60)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        if waits:
            await asyncio.get_running_loop().run_in_executor(None, ended.wait, 60)

    monkeypatch.setattr(_connect.Server, "_rest", noted)

    def there():
        return {kernel["id"] for kernel in servers.rest((gateway, "secret"), "/api/kernels")}

    before = there()
    asyncio.run(main())
    assert ended.wait(60) and there() <= before


def test_a_start_on_a_server_that_is_given_up_as_the_program_ends():
    """The server answers only then. What it has started is ended all the same."""
    asked, ends, ended = threading.Event(), threading.Event(), threading.Event()

    class Slow(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            asked.set()
            ends.wait(60)
            self.send_response(201)
            self.end_headers()
            self.wfile.write(b'{"id": "late"}')

        def do_DELETE(self):
            self.send_response(204)
            self.end_headers()
            if self.path == "/api/kernels/late":
                ended.set()

    code = (
        "import atexit, sys\nimport cellblock._connect\n"
        "atexit.register(lambda: print('ends', flush=True))  # the last is called first\n"
        "try:\n    cellblock.Sandbox.connect(sys.argv[1]).start()\n"
        "except KeyboardInterrupt:\n    print('interrupted', flush=True)\n"
    )
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        client = subprocess.Popen([sys.executable, "-c", code, url], stdout=subprocess.PIPE, text=True)
        with client:
            try:
                assert asked.wait(60)
                client.send_signal(signal.SIGINT)
                assert client.stdout.readline() == "interrupted\n"
                late = threading.Timer(60, client.kill)
                late.start()
                assert client.stdout.readline() == "ends\n", "it waits for the server before that"
                ends.set()
                assert client.wait() == 0 and ended.wait(60)
                late.cancel()
            finally:
                ends.set()
                client.kill()
        server.shutdown()


@pytest.mark.parametrize("binary", [True, False])
def test_kernel_of_a_gateway(make, gateway, monkeypatch, binary):
    if not binary:
        monkeypatch.setattr(_connect, "V1", "no such protocol")
    first = make(connect=f"{gateway}?token=secret")
    first.run("x = 1")
    transport = first.kernel.session.connected.transport
    there = f"{gateway}/api/kernels/{transport._kernel}"
    second = make(connect=there, token="secret")
    assert second.run("x").repr == "1"
    use(second)
    assert second.kernel.session.connected.transport._binary is binary
    second.close()
    assert first.run("x").repr == "6"


def test_wrong_token(make, gateway):
    with pytest.raises(cellblock.SandboxError, match="40[13].*Give its token"):
        make(connect=gateway, token="wrong").run("1")
    with pytest.raises(cellblock.SandboxError, match="404|no websocket"):
        make(connect=f"{gateway}/api/kernels/none", token="secret").run("1")


def test_no_server(make):
    port = kernels.free_ports(1)[0]
    with pytest.raises(cellblock.SandboxError, match="does not answer"):
        make(connect=f"http://127.0.0.1:{port}").run("1")


def test_both_forms_of_the_websocket():
    assert _connect.unpack_v1(_connect.pack_v1("shell", WHOLE)) == ("shell", WHOLE)
    assert _connect.unpack_json(_connect.pack_json("shell", WHOLE)) == ("shell", WHOLE)
    text = _connect.pack_json("shell", WHOLE._replace(buffers=[]))
    assert isinstance(text, str) and _connect.unpack_json(text) == ("shell", WHOLE._replace(buffers=[]))


@pytest.mark.parametrize("read", [_connect.unpack_v1, _connect.unpack_json])
def test_malformed_messages_of_a_websocket(read):
    for data in (b"", b"\xff" * 64, b"\0" * 64, _connect.pack_v1("shell", WHOLE)[:100], "[]", "{", '{"header": 5}'):
        with pytest.raises((ValueError, TypeError, LookupError)):
            read(data)


def test_signatures():
    codec = Codec("key")
    frames = [b"identity", *codec.pack(WHOLE)]
    assert codec.unpack(frames) == WHOLE
    for i, wrong in ((2, b"0" * 64), (3, b"{}"), (6, json.dumps({"a": "b"}).encode())):
        with pytest.raises(ValueError):
            codec.unpack([*frames[:i], wrong, *frames[i + 1 :]])
    for short in ([], [b"x"], frames[:2], frames[:4]):
        with pytest.raises(ValueError):
            codec.unpack(short)


def test_a_user_in_the_url_is_a_header():
    server = _connect.Server("http://me:a%20b@host:8888/base/?token=not%20used", None)
    assert server.base == "http://host:8888/base"
    assert server.headers() == {"Authorization": "Basic " + base64.b64encode(b"me:a b").decode()}


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """A proxy that sends all to another address; and who asks to stop a kernel has to say who it is."""

    asked: list = []

    def answer(self, code, **headers):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(code)
        for name, value in {"Content-Length": "2", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b"[]")

    def do_POST(self):
        self.asked.append(("POST", self.headers.get("Authorization")))
        self.answer(301, Location=f"http://127.0.0.1:{self.server.server_port}/elsewhere")

    def do_GET(self):
        self.asked.append(("GET", self.headers.get("Authorization")))
        self.answer(200)

    def do_DELETE(self):
        self.asked.append(("DELETE", self.headers.get("Authorization")))
        self.answer(204 if self.headers.get("Authorization") else 401)

    def log_message(self, *_):
        pass


class Page(Elsewhere):
    """A server of another kind, which takes all for good."""

    def do_POST(self):
        self.answer(200)


@pytest.fixture
def elsewhere(request):
    kind = getattr(request, "param", Elsewhere)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        Elsewhere.asked = []
        yield server
        server.shutdown()
        thread.join()


def test_a_server_that_is_elsewhere(make, elsewhere):
    """Its token goes to no other address, and the error says where it is."""
    with pytest.raises(cellblock.SandboxError, match="301.*/elsewhere"):
        make(connect=f"http://127.0.0.1:{elsewhere.server_port}", token="secret").run("1")
    assert [method for method, _ in Elsewhere.asked] == ["POST"]


@pytest.mark.parametrize("elsewhere", [Page], indirect=True)
def test_a_server_of_another_kind(make, elsewhere):
    url = f"http://127.0.0.1:{elsewhere.server_port}"
    with pytest.raises(cellblock.SandboxError, match=r"with \[\], which names no kernel: connect to the URL"):
        make(connect=url).run("1")
    with pytest.raises(cellblock.SandboxError, match="gives no websocket for kernel k: .* Connect to the URL of"):
        make(connect=f"{url}/api/kernels/k").run("1")


def test_a_websocket_that_opens_when_nobody_waits_for_it_is_closed():
    async def main():
        asked, given_up, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def serve(reader, writer):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            asked.set()
            await given_up.wait()
            (key,) = (line.split(": ")[1] for line in head.split("\r\n") if line.startswith("Sec-Websocket-Key"))
            proof = base64.b64encode(hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest())
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                         b"Sec-WebSocket-Accept: " + proof + b"\r\n\r\n")
            assert await reader.readexactly(1) == b"\x88"  # it closes
            writer.close()
            closed.set()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            socket = _connect.WebSocket(_connect.Server(url, None), "k")
            opening = asyncio.ensure_future(socket.open(lambda channel, message: None, lambda why: None))
            await asked.wait()
            opening.cancel()
            await asyncio.wait({opening})
            await socket.close()
            given_up.set()
            await closed.wait()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_the_keeper_says_who_asks(elsewhere, monkeypatch):
    """As the program itself does: a server that wants a name and a password knows no token."""
    kept = {}
    url = f"http://me:pw@127.0.0.1:{elsewhere.server_port}"
    server = _connect.Server(url, None)
    monkeypatch.setattr(server, "_rest", lambda *_, **__: {"id": "k"})
    monkeypatch.setattr(_connect, "keeper", lambda: type("K", (), {"keep": lambda _, key, **what: kept.update(what)})())
    asyncio.run(server.start("python3"))
    _keeper._stop(**kept)
    assert Elsewhere.asked == [("DELETE", server.headers()["Authorization"])]
