"""After an error the cells that the client sent before it could know are not run; those sent later are."""

import time

import pytest

pytestmark = pytest.mark.once


def aborted(reply):
    return reply.content["status"] in ("aborted", "error")


def test_queued_cells_are_not_run(client, gate):
    first = client.start("ran = []\nprint('running', flush=True)\nopen('gate').read()\n1/0")
    queued = [client.start(f"ran.append({i})") for i in range(5)]
    client.says(first, "running")
    gate()
    assert client.finish(first).content["ename"] == "ZeroDivisionError"
    for msg_id in queued:
        cell = client.finish(msg_id)
        assert aborted(cell.reply)
        assert cell.types == ["status", "status"], "busy and idle, no input, no output"
    assert client.run("ran").result == "[]"


def test_other_requests_in_the_queue_are_served(client, gate):
    first = client.start("print('running', flush=True)\nopen('gate').read()\n1/0")
    ask = [
        client.send("complete_request", {"code": "imp", "cursor_pos": 3}),
        client.send("is_complete_request", {"code": "1"}),
        client.send("comm_info_request", {}),
        client.send("history_request", {"hist_access_type": "tail", "n": 1, "output": False, "raw": True}),
    ]
    client.says(first, "running")
    gate()
    client.finish(first)
    for msg_id in ask:
        assert client.reply(msg_id).content["status"] in ("ok", "complete")
        client.until_idle(msg_id)


def test_without_stop_on_error_the_queue_runs_on(client, gate):
    first = client.start("print('running', flush=True)\nopen('gate').read()\n1/0", stop_on_error=False)
    second = client.start("'went on'")
    client.says(first, "running")
    gate()
    assert client.finish(first).content["status"] == "error"
    assert client.finish(second).result == "'went on'"


@pytest.mark.parametrize("lane", ["the main shell", "a subshell"])
def test_a_cell_sent_after_the_reply_runs(client, lane):
    """Sent at once, before `idle`."""
    about = {}
    if lane == "a subshell":
        about["subshell_id"] = client.request("create_subshell_request", {}, channel="control").content["subshell_id"]
    header = lambda: client.header("execute_request", **about)  # noqa: E731
    for _ in range(100):
        assert client.reply(client.start("1/0", header=header())).content["status"] == "error"
        assert client.run("1", header=header()).result == "1"
    if about:
        client.request("delete_subshell_request", about, channel="control")


@pytest.mark.cellblock_only("ipykernel looks at the moment of arrival only")
def test_a_cell_dated_before_the_failure_is_not_run(client, gate):
    """It was sent before the client could know, and was only slower on its way; by more than messages ever were."""
    began = time.monotonic()
    assert client.run("1").ok
    way = time.monotonic() - began
    failed = client.start("late = 'not run'\nprint('running', flush=True)\nopen('gate').read()\n1/0")
    client.says(failed, "running")
    early = client.header("execute_request")
    time.sleep(way)
    gate()
    assert client.finish(failed).content["status"] == "error"
    cell = client.run("late = 'run'", header=early)
    assert aborted(cell.reply)
    assert client.run("late").result == "'not run'"


@pytest.mark.cellblock_only("ipykernel looks at the moment of arrival only")
def test_dates_of_another_session_do_not_matter(client, shared):
    other = shared.client(client.kernel)
    other.ready()
    early = other.header("execute_request", date="2020-01-01T00:00:00Z")
    assert client.run("1/0").content["status"] == "error"
    assert other.run("5", header=early).result == "5"


@pytest.mark.cellblock_only("one queue for all in ipykernel")
def test_only_what_the_client_could_not_know(client, gate):
    """A cell without a date is judged by its arrival."""
    header = client.header("execute_request")
    del header["date"]
    assert client.run("1/0").content["status"] == "error"
    assert client.run("7", header=header).result == "7"


def test_counts_go_on_after_an_abort(client, gate):
    first = client.start("print('running', flush=True)\nopen('gate').read()\n1/0")
    second = client.start("2")
    client.says(first, "running")
    gate()
    n = client.finish(first).content["execution_count"]
    client.finish(second)
    assert client.run("3").content["execution_count"] == n + 1
