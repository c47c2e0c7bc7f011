"""history_request: range, tail, search; what survives a dead guest and a restart of the kernel."""

import sqlite3

import pytest

pytestmark = pytest.mark.once


def ask(client, access, **content):
    msg_id = client.send("history_request", {"output": False, "raw": True, "hist_access_type": access, **content})
    reply = client.reply(msg_id)
    client.until_idle(msg_id)
    assert reply.content["status"] == "ok"
    return reply.content["history"]


@pytest.fixture
def filled(client):
    n = client.run("h_one = 1").content["execution_count"]
    for code in ("h_two = 2", "h_one = 1", "# é 😀 'quoted'"):
        client.run(code)
    return client, n


def test_tail(filled):
    client, n = filled
    rows = ask(client, "tail", n=4)
    assert [r[2] for r in rows] == ["h_one = 1", "h_two = 2", "h_one = 1", "# é 😀 'quoted'"]
    assert [r[1] for r in rows] == list(range(n, n + 4))
    assert all(len(r) == 3 and isinstance(r[0], int) for r in rows)


def test_tail_is_bounded_by_what_there_is(filled):
    assert ask(filled[0], "tail", n=100_000)
    assert ask(filled[0], "tail", n=0) == []


def test_range_of_this_session(filled):
    client, n = filled
    rows = ask(client, "range", session=0, start=n, stop=n + 2)
    assert [(r[1], r[2]) for r in rows] == [(n, "h_one = 1"), (n + 1, "h_two = 2")]


def test_search(filled):
    client, n = filled
    assert [r[2] for r in ask(client, "search", pattern="h_t?o*", n=1)] == ["h_two = 2"]
    assert ask(client, "search", pattern="nothing like this*", n=10) == []
    assert any("😀" in r[2] for r in ask(client, "search", pattern="*😀*", n=10))


def test_search_unique(filled):
    client, n = filled
    plain = [r[2] for r in ask(client, "search", pattern="h_one*", n=50)]
    unique = [r[2] for r in ask(client, "search", pattern="h_one*", n=50, unique=True)]
    assert len(plain) >= 2 and unique == ["h_one = 1"]


def test_with_outputs(filled):
    rows = ask(filled[0], "tail", n=1, output=True)
    assert len(rows[0]) == 3 and rows[0][2][0] == "# é 😀 'quoted'"


def test_patterns_are_no_sql(filled):
    client, n = filled
    for pattern in ("'; drop table history; --", "%", "[", "[^", "*" * 200):
        ask(client, "search", pattern=pattern, n=2)
    assert ask(client, "tail", n=1)


@pytest.mark.cellblock_only
def test_a_pattern_that_is_too_long(client):
    assert ask(client, "search", pattern="é" * 500) == []
    reply = client.request("history_request", {"hist_access_type": "search", "pattern": "é" * 500 + "x"}).content
    assert reply["ename"] == "MalformedRequestError" and "pattern is too long" in reply["evalue"], reply


@pytest.mark.cellblock_only("ipykernel dies with its cell")
def test_survives_the_death_of_the_guest(start):
    c = start().client
    c.run("before = 1")
    c.run("import os; os._exit(3)")
    assert c.run("after = 1").ok
    assert [r[2] for r in ask(c, "tail", n=3)] == ["before = 1", "import os; os._exit(3)", "after = 1"]


def test_survives_a_restart_with_a_file(start, tmp_path):
    db = tmp_path / "history.sqlite"
    args = [f"--HistoryManager.hist_file={db}"]
    k = start(args=args)
    k.client.run("from_the_first = 1")
    k.stop()
    c = start(args=args).client
    c.run("from_the_second = 1")
    assert [r[2] for r in ask(c, "tail", n=2)] == ["from_the_first = 1", "from_the_second = 1"]
    rows = ask(c, "range", session=-1, start=1, stop=2)
    assert [r[2] for r in rows] == ["from_the_first = 1"]


@pytest.mark.cellblock_only
def test_a_file_above_the_workspace(start, tmp_path):
    """Cells see nothing of it, so nothing speaks against it."""
    (tmp_path / "work").mkdir()
    how = {"workspace": tmp_path / "work", "args": [f"--HistoryManager.hist_file={tmp_path}/history.sqlite"]}
    k = start(**how)
    assert k.client.run("import os\nos.path.exists('../history.sqlite')").result == "False"
    assert "history" not in k.said()
    k.stop()
    assert ask(start(**how).client, "tail", n=1)[0][2].startswith("import os")


@pytest.mark.cellblock_only
def test_a_file_that_is_refused_is_not_opened(start, tmp_path):
    """Cells could have made it, or what SQLite keeps beside it."""
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "link.sqlite").symlink_to(work / "history.sqlite")
    k = start(workspace=work, args=[f"--HistoryManager.hist_file={tmp_path}/link.sqlite"])
    assert "lies in the workspace itself" in k.client.run("1").error["evalue"]
    ask(k.client, "tail", n=1)
    k.stop()
    assert list(work.glob("*.sqlite*")) == []


@pytest.mark.cellblock_only
def test_a_locked_database_costs_no_request_its_answer(start, tmp_path):
    """Also not the kernel's start, which keeps its history in memory then."""
    db = tmp_path / "history.sqlite"
    args = [f"--HistoryManager.hist_file={db}"]
    first = start(args=args)
    other = sqlite3.connect(db, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for i in range(15):
        first.client.run(f"line = {i}")
    assert [r[2] for r in ask(first.client, "tail", n=15)] == [f"line = {i}" for i in range(15)]
    assert first.said().count("history") == 1 and "locked by another program" in first.said()
    second = start(args=args)
    second.client.run("own = 1")
    assert [r[2] for r in ask(second.client, "tail", n=15)] == ["own = 1"]
    assert "kept in memory only" in second.said() and "locked" in second.said()
    other.execute("COMMIT")
    first.client.run("after = 1")
    first.stop()
    assert [source for (source,) in other.execute("SELECT source FROM history")] == [
        *(f"line = {i}" for i in range(15)),
        "after = 1",
    ]
    other.close()


@pytest.mark.cellblock_only
def test_a_kernel_ends_while_its_database_is_locked(start, tmp_path):
    """What waits is answered before that, and what it can't write it says."""
    db = tmp_path / "history.sqlite"
    k = start(args=[f"--HistoryManager.hist_file={db}"])
    c = k.client
    other = sqlite3.connect(db, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    cells = [c.start(f"line = {i}") for i in range(10)]
    asked = [c.send("history_request", {"hist_access_type": "tail", "n": 3}) for _ in range(10)]
    assert all(c.finish(cell).ok for cell in cells)
    for each in asked:
        assert c.reply(each).content["status"] == "ok"
        c.until_idle(each)
    k.stop()
    assert "history: 10 lines were not written, the database is locked" in k.said()
    assert other.execute("SELECT count(*) FROM history").fetchone() == (0,)
    other.execute("ROLLBACK")
    other.close()


@pytest.mark.cellblock_only
def test_a_broken_history_file_does_not_stop_the_kernel(start, tmp_path):
    db = tmp_path / "history.sqlite"
    db.write_bytes(b"this is no database" * 1000)
    c = start(args=[f"--HistoryManager.hist_file={db}"]).client
    assert c.run("6*7").result == "42"
