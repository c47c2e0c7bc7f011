"""How `cellblock mcp` ends, and what becomes of cells whose client, or whose kernel, has gone: nothing is left."""

import pytest

pytest.importorskip("mcp", reason="the MCP SDK needs Python 3.10")
pytest.importorskip("msgspec")
import httpx2 as httpx  # noqa: E402

from mcpserver import Http, Lines  # noqa: E402

pytestmark = pytest.mark.once
FOREVER = "n = 1\nprint('on my way', flush=True)\nwhile True: pass"


@pytest.fixture
def begun(tmp_path):
    """begun(kind, word, …): a server, which ends with the test."""
    servers = []

    def begin(kind, *words):
        servers.append(kind(tmp_path, *words))
        return servers[-1]

    yield begin
    for server in servers:
        server.end()


@pytest.fixture
def http():
    with httpx.Client(timeout=120) as client:
        yield client


def text(result):
    return result["content"][0]["text"]


def until_it_writes(lines):
    for line in lines:
        if "on my way" in line:
            return


@pytest.mark.parametrize("how, status, busy", [
    ("end of file", 0, True), ("SIGTERM", 143, True), ("SIGINT", 130, True), ("SIGINT", 130, False),
])
def test_over_stdio_nothing_is_left(begun, how, status, busy):
    server = begun(Lines)
    assert server.call("run_python", code="x = 1")["structuredContent"]["ok"]
    if busy:
        server.begin("run_python", code=FOREVER)
        while server.read().get("method") != "notifications/progress":
            pass
    assert server.look()
    if how == "end of file":
        server.process.stdin.close()
    else:
        server.signal(how)
    assert server.wait() == (status, "")
    server.nothing_left()


@pytest.mark.parametrize("how, status", [("SIGTERM", 143), ("SIGINT", 130)])
def test_over_http_nothing_is_left_and_a_cell_that_runs_is_answered(begun, http, how, status):
    server = begun(Http)
    assert server.call(http, "run_python", code="x = 1")["structuredContent"]["ok"]
    with server.begin(http, "run_python", code=FOREVER) as answer:
        lines = answer.iter_lines()
        until_it_writes(lines)
        assert len(server.kernels()) == 2
        server.signal(how)
        rest = "".join(lines)
    assert '"isError":true' in rest and "the sandbox was closed" in rest, rest
    got, said = server.wait()
    assert got == status and "Traceback" not in said, said
    server.nothing_left()


def test_a_client_that_goes_away_interrupts_its_cell(begun, http):
    server = begun(Http, "--set", "timeout.interrupt=0")  # it is waited for, however slow the machine is
    name = server.call(http, "run_python", code="n = 0")["structuredContent"]["session"]
    with server.begin(http, "run_python", code=FOREVER, session=name) as answer:
        until_it_writes(answer.iter_lines())
    said = server.call(http, "run_python", code="n", session=name)["structuredContent"]
    assert said["repr"] == "1" and said["state"] == "kept", said


def test_two_clients_of_one_token_go_on_in_a_session_by_its_name_alone(begun):
    server = begun(Http)
    with httpx.Client(timeout=120) as one, httpx.Client(timeout=120) as two:
        name = server.call(one, "run_python", code="x = 1")["structuredContent"]["session"]
        assert server.call(two, "run_python", code="x", session=name)["structuredContent"]["repr"] == "1"
        other = server.call(two, "run_python", code="x")["structuredContent"]
        assert other["session"] != name and other["error"]["name"] == "NameError"
    assert len(server.kernels()) == 2


@pytest.mark.parametrize("busy", [False, True])
def test_a_kernel_that_was_killed_is_told_with_the_cure(begun, busy):
    server = begun(Lines, "--files")
    assert server.call("run_python", code="x = 1")["structuredContent"]["ok"]
    kernel, = server.kernels()
    if busy:
        asked = server.begin("run_python", code=FOREVER)
        while server.read().get("method") != "notifications/progress":
            pass
        kernel.kill()
        done = server.wait_for(asked)["result"]
        assert done["isError"] and "killed by SIGKILL" in text(done) and "`reset_session`" in text(done), done
    else:
        kernel.kill()
        kernel.wait(60)
    for tool, arguments in (("run_python", {"code": "x"}), ("list_files", {}), ("run_command", {"argv": ["true"]})):
        done = server.call(tool, **arguments)
        assert done["isError"] and "killed by SIGKILL" in text(done) and "`reset_session`" in text(done), done
    assert not server.call("reset_session")["isError"]
    assert server.call("run_python", code="'x' in globals()")["structuredContent"]["repr"] == "False"


def test_a_session_that_made_room_is_told_with_the_cure(begun):
    server = begun(Lines, "--sessions", "2")
    names = [server.call("run_python", code="1", session="new")["structuredContent"]["session"] for _ in range(3)]
    assert len(server.kernels()) == 2
    done = server.call("run_python", code="1", session=names[0])
    assert done["isError"] and "made room for a newer one (2 at most)" in text(done)
    assert 'With "new" in place of its name' in text(done)


def test_where_all_sessions_are_in_use_a_new_one_is_refused(begun):
    server = begun(Lines, "--sessions", "1")
    asked = server.begin("run_python", code=FOREVER, session="new")
    while server.read().get("method") != "notifications/progress":
        pass
    done = server.call("run_python", code="1", session="new")
    assert done["isError"] and "all 1 sessions are in use; go on with one of them" in text(done)
    server.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": asked}})
    while server.call("run_python", code="1", session="new")["isError"]:  # until the cell is interrupted
        pass
