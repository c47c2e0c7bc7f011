"""complete, inspect, is_complete: positions are letters, not bytes."""

import re

import pytest

pytestmark = pytest.mark.once


def complete(client, code, pos=None):
    return client.question(
        "complete_request", {"code": code, "cursor_pos": len(code) if pos is None else pos}
    ).content


def test_complete(client):
    c = complete(client, "imp")
    assert c["status"] == "ok" and "import" in c["matches"] and (c["cursor_start"], c["cursor_end"]) == (0, 3)
    assert isinstance(c["metadata"], dict)


def test_complete_names_of_the_user(client):
    client.run("a_rather_long_name = {'key': 1}")
    assert "a_rather_long_name" in complete(client, "a_rather_l")["matches"]


def test_positions_are_letters(client):
    code = "s = '😀é'; imp"
    c = complete(client, code)
    assert "import" in c["matches"] and (c["cursor_start"], c["cursor_end"]) == (len(code) - 3, len(code))


def test_in_the_middle(client):
    c = complete(client, "imp\nx = 1", 3)
    assert "import" in c["matches"] and c["cursor_end"] == 3


@pytest.mark.cellblock_only("ipykernel answers with silence")
@pytest.mark.parametrize("pos", [-1, 100, 10**12])
def test_a_position_outside_the_code_does_no_harm(client, pos):
    msg_id = client.send("complete_request", {"code": "imp", "cursor_pos": pos})
    assert client.reply(msg_id, timeout=60).content["status"] in ("ok", "error")
    client.until_idle(msg_id)


def test_inspect(client):
    client.run("def documented(a, b=2):\n    'the words of the docstring'\n    return a")
    for level in (0, 1):
        c = client.request("inspect_request", {"code": "documented", "cursor_pos": 5, "detail_level": level}).content
        text = re.sub(r"\x1b\[[0-9;]*m", "", c["data"]["text/plain"])
        assert c["status"] == "ok" and c["found"] is True and "the words of the docstring" in text
        assert ("return a" in text) == (level == 1)


def test_inspect_what_is_not_there(client):
    c = client.request("inspect_request", {"code": "no_such_name", "cursor_pos": 3, "detail_level": 0}).content
    assert (c["status"], c["found"], c["data"]) == ("ok", False, {})


@pytest.mark.parametrize(
    "code, status",
    [
        ("1 + 1", "complete"),
        ("for i in x:", "incomplete"),
        ("x = = 1", "invalid"),
        ("'''", "incomplete"),
        ("", "complete"),
        ("!ls", "complete"),
        ("%cd", "complete"),
        ("await x", "complete"),
    ],
)
def test_is_complete(client, code, status):
    c = client.request("is_complete_request", {"code": code}).content
    assert c["status"] == status
    assert ("indent" in c) == (status == "incomplete")


def test_they_wait_for_no_cell_before_them_when_python_is_free(client):
    client.finish(client.start("made_before = 1"))
    asked = client.send("complete_request", {"code": "made_bef", "cursor_pos": 8})
    assert "made_before" in client.reply(asked, timeout=60).content["matches"]


ENDLESS = "import threading, time\nstop = False\nmade_meanwhile = {'k': 1}\nprint('running', flush=True)\n%s"
BUSY = {"loop": "while True: pass", "sleep": "time.sleep(600)", "await": "import asyncio\nawait asyncio.sleep(600)"}


@pytest.mark.cellblock_only
def test_what_they_need_is_there_before_they_are_asked(start):
    """Imported while nobody waits; jedi only when it is used, for its size."""
    c = start().client
    names = ("IPython.core.completer", "IPython.core.oinspect", "pygments.lexers.python")
    cell = c.start(
        "import sys, threading, time\ndef watch():\n"
        f"    while not all(n in sys.modules for n in {names}): time.sleep(0.01)\n"
        "    print('there')\nthreading.Thread(target=watch).start()"
    )
    if "there" not in c.finish(cell).text():
        c.says(cell, "there")
    assert c.run("import IPython\n'jedi' in sys.modules and IPython.version_info >= (9,)").result == "False"


@pytest.mark.cellblock_only("ipykernel answers when the cell has ended")
def test_they_are_answered_while_the_first_cell_runs_if_they_came_before_python_was_up(start):
    c = start(ready=False)
    c = start.client(c)
    cell = c.start(ENDLESS % BUSY["sleep"])
    asked = {"code": "int", "cursor_pos": 3, "detail_level": 0}
    assert c.question("inspect_request", asked).content["found"] is True
    c.says(cell, "running")
    c.request("interrupt_request", {}, channel="control")
    assert c.finish(cell).content["ename"] == "KeyboardInterrupt"


@pytest.mark.cellblock_only("ipykernel answers when the cell has ended")
@pytest.mark.parametrize("name", BUSY)
def test_they_are_answered_while_a_cell_runs(client, name):
    cell = client.start(ENDLESS % BUSY[name])
    client.says(cell, "running")
    c = complete(client, "made_mean")
    assert c["matches"] == ["made_meanwhile"] and (c["cursor_start"], c["cursor_end"]) == (0, 9)
    c = complete(client, "x = made_meanwhile.fromk")
    assert c["matches"] == ["fromkeys"] and (c["cursor_start"], c["cursor_end"]) == (19, 24)
    reply = client.question("inspect_request", {"code": "made_meanwhile", "cursor_pos": 3, "detail_level": 0})
    assert reply.content["found"] is True
    # whoever looks at iopub last sees that the kernel is busy
    assert [m.content["execution_state"] for m in client.until_idle(reply.parent_id)] == ["busy", "idle"]
    again = client.wait("iopub", lambda m: m.type == "status" and m.parent_id == cell)
    while again.content["execution_state"] != "busy":
        again = client.wait("iopub", lambda m: m.type == "status" and m.parent_id == cell)
    c = client.question("is_complete_request", {"code": "for i in x:"}).content
    assert c == {"status": "incomplete", "indent": "    "}
    client.request("interrupt_request", {}, channel="control")
    content = client.finish(cell).content
    assert content["ename"] == "KeyboardInterrupt", content
    assert "made_meanwhile" in complete(client, "made_mean")["matches"]


@pytest.mark.cellblock_only("ipykernel answers when the cell has ended")
def test_they_are_answered_while_a_cell_asks_and_in_a_flood(client):
    cell = client.start("name_of_mine = input('?')", allow_stdin=True)
    client.wait("stdin")
    assert "import" in complete(client, "impor")["matches"]
    client.send("input_reply", {"value": "v"}, channel="stdin")
    assert client.finish(cell).ok
    cell = client.start("print('running', flush=True)\nwhile True: print('x' * 100)")
    client.says(cell, "running")
    assert complete(client, "name_of_m")["matches"] == ["name_of_mine"]
    client.request("interrupt_request", {}, channel="control")
    client.finish(cell, timeout=90)


@pytest.mark.cellblock_only
def test_a_question_leaves_the_cells_warnings_alone(client):
    """The filters are those of the whole process."""
    client.run(
        "import threading, warnings\nasked, left = threading.Event(), threading.Event()\n"
        "class Slow:\n    def __dir__(self):\n        asked.set(); left.wait(60)\n        return ['an_attribute']\n"
        "s, before = Slow(), list(warnings.filters)"
    )
    cell = client.start(
        "with warnings.catch_warnings():\n    warnings.simplefilter('ignore')\n    print('running', flush=True)\n"
        "    in_time = asked.wait(60)"
    )
    client.says(cell, "running")
    asked = client.send("complete_request", {"code": "s.an_a", "cursor_pos": 6})
    assert client.finish(cell).ok and client.run("in_time").result == "True"
    client.run("left.set()")
    assert client.reply(asked).content["matches"] in (["an_attribute"], [".an_attribute"], ["s.an_attribute"])
    assert client.run("warnings.filters == before").result == "True"


@pytest.mark.cellblock_only
@pytest.mark.parametrize("kind", ["complete_request", "inspect_request", "is_complete_request"])
def test_a_question_beside_a_cell_changes_no_filters(client, kind, gate):
    client.run(
        "import threading, warnings\nusual, made = warnings.catch_warnings, []\nclass Spy(usual):\n"
        "    def __init__(self, *args, **kwargs):\n        made.append(threading.current_thread().name)\n"
        "        super().__init__(*args, **kwargs)\n"
        "warnings.catch_warnings = Spy"
    )
    cell = client.start("warnings.simplefilter('default')\nprint('running', flush=True)\nopen('gate').read()")
    client.says(cell, "running")
    for code in ("usua", "1 is 1", "'\\d'", "for i in 1 is 1:", "x ="):
        assert client.request(kind, {"code": code, "cursor_pos": len(code)}).content["status"] != "error"
    gate()
    done = client.finish(cell)
    assert done.ok and done.text() == "running\n", "and what they meet is nobody's"
    assert client.run("warnings.catch_warnings = usual\n[each for each in made if 'questions' in each]").result == "[]"
    client.run("warnings.resetwarnings()")


@pytest.mark.cellblock_only
def test_code_that_lets_nothing_else_run_delays_them_to_a_deadline(start):
    """Then there is an error, never silence; and the late answer does no harm."""
    c = start().client
    c.run("x_marks = 1")
    for _ in range(5):
        cell = c.start("exec('print(\\'running\\', flush=True); sum(range(10**13))')")
        c.says(cell, "running")
        got = c.request("complete_request", {"code": "x_mar", "cursor_pos": 5}).content
        if got["status"] == "error":
            break
        c.stop_hard(cell)
        c.finish(cell)
    assert got["ename"] == "KernelBusyError"
    c.stop_hard(cell)
    assert c.finish(cell).content["status"] == "error"
    c.run("x_marks = 1")
    assert complete(c, "x_mar")["matches"] == ["x_marks"]


@pytest.mark.cellblock_only
def test_an_interrupt_ends_an_endless_completion(client):
    client.run("import time\nclass Slow:\n    def __dir__(self):\n        while True: time.sleep(600)\ns = Slow()")
    asked = client.send("complete_request", {"code": "s.", "cursor_pos": 2})
    client.wait("iopub", lambda m: m.parent_id == asked and m.content.get("execution_state") == "busy")
    client.stop_hard(asked)
    client.reply(asked)
    assert client.run("1").ok


# What its own code raises is no answer, and no reason to end Python.
ODD = """
class Exits:
    def __getattr__(self, name): raise SystemExit(name)
    def __dir__(self): raise SystemExit
class Fails:
    __doc__ = property(lambda self: 1 / 0)
    def __repr__(self): raise ValueError
    def __len__(self): raise ZeroDivisionError
exits, fails = Exits(), Fails()
"""


@pytest.mark.cellblock_only("others say it in other ways")
@pytest.mark.parametrize("name", ["exits", "fails"])
def test_objects_that_raise(client, name):
    assert client.run(ODD).ok
    for level in (0, 1):
        ask = {"code": name, "cursor_pos": len(name), "detail_level": level}
        reply = client.request("inspect_request", ask, channel="shell").content
        assert reply["status"] == "ok" and isinstance(reply["found"], bool), reply
    ask = {"code": name + ".", "cursor_pos": len(name) + 1}
    reply = client.request("complete_request", ask, channel="shell").content
    assert reply["status"] == "ok" and isinstance(reply["matches"], list), reply
    assert client.run("exits.__class__.__name__").result == "'Exits'"
