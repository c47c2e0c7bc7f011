"""`cellblock mcp` and what nobody should send: each answer is one clear error that names what, and the cure."""

import base64
import json

import pytest

pytest.importorskip("mcp", reason="the MCP SDK needs Python 3.10")
pytest.importorskip("msgspec")
import httpx2 as httpx  # noqa: E402

from mcpserver import Http, Lines  # noqa: E402

pytestmark = pytest.mark.once
MIB = 1 << 20
HALF = "\ud800"  # of a character


@pytest.fixture(scope="module")
def lines(nothing_left):
    server = Lines(nothing_left, "--files", "--set", "limits.output=16M")
    yield server
    server.end()


@pytest.fixture(scope="module")
def served(nothing_left):
    server = Http(nothing_left, "--files")
    yield server
    server.end()


def failed(result):
    assert result["isError"], result
    text = result["content"][0]["text"]
    assert 0 < len(text) < 6000 and "Traceback" not in text, text
    return text


@pytest.mark.parametrize("tool, more", [("run_python", {"code": "1"}), ("run_command", {"argv": ["true"]})])
def test_times_that_are_none(lines, tool, more):
    for timeout, said in ((0, "greater than 0"), (-1, "greater than 0"), (float("inf"), "finite"), ("soon", "number")):
        text = failed(lines.call(tool, timeout=timeout, **more))
        assert "timeout" in text and said in text, text
    assert not lines.call(tool, timeout=1e300, **more)["isError"]  # the policy's is less


def test_code_that_is_too_long(lines):
    text = failed(lines.call("run_python", code="#" + "x" * 10 * MIB))
    assert f"more than {MIB} characters" in text and "write it to a file" in text
    assert not lines.call("run_python", code="#" + "\U0001f600" * (MIB - 1))["isError"]


def test_output_without_end_is_cut(lines):
    said = lines.call("run_python", code="for _ in range(1000): print('x' * 100_000)")
    assert len(json.dumps(said)) < 100_000 and said["structuredContent"]["state"] == "kept"
    said = lines.call("run_python", code="'y' * 50_000_000")
    assert len(json.dumps(said)) < 100_000, said["content"][0]["text"][:300]
    said = lines.call("run_command", argv=["sh", "-c", "yes | head -c 100000000"])
    assert len(json.dumps(said)) < 200_000
    assert lines.call("run_python", code="1 + 1")["structuredContent"]["repr"] == "2"


def test_a_picture_that_is_too_large_is_a_link(lines):
    code = "import base64\nclass P:\n    def _repr_mimebundle_(self, **_): return {'image/png': " \
           "base64.b64encode(b'\\x89PNG' + b'x' * (3 << 20)).decode()}\nP()"
    done = lines.call("run_python", code=code)
    link, = [part for part in done["content"] if part["type"] == "resource_link"]
    assert link["size"] == 3 * MIB + 4 and link["mimeType"] == "image/png"
    said = lines.wait_for(lines.ask("resources/read", {"uri": link["uri"]}))["result"]["contents"][0]
    assert base64.b64decode(said["blob"]).startswith(b"\x89PNGxx")


def test_a_command_that_takes_too_long_gives_what_it_had_written(lines):
    argv = ["sh", "-c", "echo out; echo err >&2; exec sleep 100"]
    for limit in (1, 10, 30):  # on a busy machine a shell may not have said it by then
        text = failed(lines.call("run_command", argv=argv, timeout=limit))
        if "out\nerr" in text:
            break
    said = f"CommandTimeoutError: the command ran longer than {limit} s and was killed"
    assert said in text and "out\nerr" in text, text
    assert text.count("CommandTimeoutError") == 1


@pytest.mark.parametrize("argv, said", [
    ([], "at least 1 item"), ([""], "a program is missing"), (["ec\0ho"], "NUL"), (["echo", "x" * 3 * MIB], "1048576"),
    (["no-such-program"], "FileNotFoundError"), ("echo", "list"),
])
def test_commands_that_are_none(lines, argv, said):
    assert said in failed(lines.call("run_command", argv=argv))


@pytest.mark.parametrize("path, said", [
    ("a\0b", "a NUL is not allowed"), ("", "is a folder"), ("/", "not in the workspace"),
    ("..", "not in the workspace"), ("../x", "not in the workspace"), ("a/../../x", "not in the workspace"),
    ("/etc/passwd", "not in the workspace"), ("//etc/passwd", "not in the workspace"),
    ("/proc/self/mem", "not in the workspace"), ("/dev/zero", "not in the workspace"), ("x" * 300, "name too long"),
    ("x/" * 2500 + "x", "longer than 4095 bytes"), ("link", "not in the workspace"),
    ("root/etc/passwd", "not in the workspace"), ("pipe", "a named pipe"),
])
def test_paths_that_lead_nowhere(lines, path, said):
    made = "import os\nif not os.path.lexists('link'): os.symlink('/etc/passwd', 'link'); os.symlink('/', 'root'); " \
           "os.mkfifo('pipe'); os.mkdir('a')"
    assert not lines.call("run_python", code=made)["isError"]
    assert said in failed(lines.call("read_file", path=path))
    assert said in failed(lines.call("write_file", path=path, content="x"))


def test_strange_names_are_names(lines):
    for name in ("a\nb", "\x1b[2J", "~", "-rf", " ", "a\\b", "ä\U0001f600"):
        assert not lines.call("write_file", path=name, content=name)["isError"]
        assert lines.call("read_file", path=name)["structuredContent"]["text"] == name
    entries = lines.call("list_files")["structuredContent"]["entries"]
    assert {"a\nb", "\x1b[2J", "~"} <= {e["name"] for e in entries}


def test_a_line_that_is_no_message_is_answered(lines):
    for line, code, name in (
        (b"nonsense", -32700, None), (b'{"jsonrpc": "2.0", "id": 77', -32700, None), (b"[]", -32600, None),
        (b'{"jsonrpc": "2.0", "id": "seven"}', -32600, "seven"), (b"[" * 100_000, -32700, None),
        (b'{"jsonrpc": "2.0", "id": 78, "method": "tools/call", "params": {"x": "\\ud800"}}', -32700, 78),
    ):
        lines.write(line)
        said = lines.read()
        assert said["error"]["code"] == code and said.get("id") == name and said["error"]["message"], (line[:80], said)
    assert lines.call("run_python", code="'fine'")["structuredContent"]["repr"] == "'fine'"


def test_half_a_character_is_refused(served):
    with httpx.Client(timeout=120) as http:
        for tool, arguments in (("run_python", {"code": f"'{HALF}'"}), ("run_command", {"argv": ["echo", HALF]}),
                                ("write_file", {"path": HALF, "content": "x"}), ("read_file", {"path": HALF})):
            text = failed(served.call(http, tool, **arguments))
            assert "half a character" in text and "send both halves" in text, text
        assert "surrogates not allowed" in failed(served.call(http, "write_file", path="x", content=HALF))


def test_a_file_of_the_largest_size_passes_over_http(served):
    content = base64.b64encode(b"\xff" * 4 * MIB).decode()
    with httpx.Client(timeout=120) as http:
        done = served.call(http, "write_file", path="large", content=content, encoding="base64")
        assert done["structuredContent"]["text"] == f"{4 * MIB} bytes written", done
        text = failed(served.call(http, "write_file", path="large", content="x" * (4 * MIB + 1)))
        assert f"more than {4 * MIB} bytes" in text and "let code write it" in text
        said = http.post(served.url, headers=served.headers("run_python"), content=b" " * 33 * MIB)
        assert said.status_code == 413
