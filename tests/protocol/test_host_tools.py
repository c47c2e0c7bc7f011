"""Host tools (docs/messages.md): functions of the client's, called from cells."""

import re
import time
from pathlib import Path

import pytest

import kernels
from toolhost import Host

pytestmark = [pytest.mark.cellblock_only("host tools are cellblock's own"), pytest.mark.once]
MESSAGES = Path(__file__).resolve().parents[2] / "docs/messages.md"


def add(a, b=0):
    """The sum."""
    return a + b


@pytest.fixture
def host(client):
    return Host(client, add=add).register()


def test_a_call(host):
    done = host.run("add(2, b=3)")
    assert done.ok and done.result == "5", done
    ((call,),) = done.rounds
    assert call == {"id": call["id"], "tool": "add", "args": [2], "kwargs": {"b": 3}}
    assert done.about["calls"] == [{"id": call["id"], "tool": "add", "completed": True}]


def test_the_example_of_the_docs(client):
    import jupyter_client

    section = MESSAGES.read_text().partition("## Host tools")[2]
    example = re.search(r"```python\n(.*?)```", section, re.S).group(1)
    kc = jupyter_client.BlockingKernelClient()
    kc.load_connection_info(client.connection)
    kc.start_channels()
    try:
        kc.wait_for_ready(timeout=60)
        said = []
        run = kc.execute_interactive
        kc.execute_interactive = lambda *a, **k: run(*a, output_hook=said.append, timeout=60, **k)
        scope = {"kc": kc}
        exec(example, scope)
        assert scope["reply"]["content"]["status"] == "ok", scope["reply"]
        assert "".join(m["content"].get("text", "") for m in said) == "5\n"
    finally:
        kc.stop_channels()


# ---- registering ----


@pytest.mark.parametrize(
    "content, says",
    [
        ({}, "tools"),
        ({"tools": {}}, "tools"),
        ({"tools": [5]}, "tools"),
        ({"tools": [{}]}, "tools[0].name"),
        ({"tools": [{"name": ""}]}, "tools[0].name"),
        ({"tools": [{"name": "a"}, {"name": "a b"}]}, "tools[1].name"),
        ({"tools": [{"name": "_"}]}, "tools[0].name"),
        ({"tools": [{"name": "__builtins__"}]}, "tools[0].name"),
        ({"tools": [{"name": "é"}]}, "tools[0].name"),
        ({"tools": [{"name": "x" * 65}]}, "tools[0].name"),
        ({"tools": [{"name": "a"}, {"name": "a"}]}, '"a" is there twice'),
        ({"tools": [{"name": "a", "description": 5}]}, "tools[0].description"),
        ({"tools": [{"name": "a", "inputSchema": []}]}, "tools[0].inputSchema"),
        ({"tools": [{"name": "a", "awaitable": 1}]}, "tools[0].awaitable"),
        ({"tools": [{"name": f"t{i}"} for i in range(1001)]}, "at most 1000"),
        ({"tools": [{"name": "a", "description": "x" * (1 << 20)}]}, "bytes are more than"),
    ],
    ids=lambda v: str(v)[:40],
)
@pytest.mark.parametrize("channel", ["control", "shell"])
def test_a_wrong_list(client, content, says, channel):
    reply = client.request("cellblock_tools_request", content, channel=channel).content
    assert reply["status"] == "error" and reply["ename"] == "MalformedRequestError" and says in reply["evalue"], reply


def test_a_session_is_needed(client):
    header = client.header("cellblock_tools_request", session="")
    del header["session"]
    reply = client.request("cellblock_tools_request", {"tools": []}, channel="control", header=header).content
    assert reply["ename"] == "MalformedRequestError" and "header.session" in reply["evalue"]


def test_it_is_listed(client):
    assert "cellblock_tools_request" in client.request("kernel_info_request").content["supported_features"]


def test_a_new_list_replaces_the_old(host):
    host.tools = {"mul": lambda a, b: a * b}
    host.register("shell")
    assert host.run("mul(2, 3)").result == "6"
    assert host.run("add(1)", 0).content["ename"] == "NameError"
    host.tools = {}
    host.register()
    assert host.run("mul", 0).content["ename"] == "NameError"


def test_a_thousand_tools(client):
    host = Host(client, **{f"tool{i}": (lambda i=i: i) for i in range(1000)}).register()
    assert host.run("tool0(), tool999()", 2).result == "(0, 999)"


def test_what_the_function_says_of_itself(client):
    host = Host(client, look=lambda: 1)
    schema = {
        "type": "object",
        "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}, "x": {"anyOf": []}},
        "required": ["query"],
    }
    tool = {"name": "look", "description": "Looks.", "inputSchema": schema}
    client.request("cellblock_tools_request", {"tools": [tool]})
    done = host.run("import inspect\nprint(look.__name__, look.__doc__, inspect.signature(look))", 0)
    assert done.text() == "look Looks. (query: str, limit: int = ..., x=...)\n", done


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": []},
        {"properties": {"class": {}}},
        {"properties": {"a b": {"type": ["x"]}}},
        {"properties": {"a": {}, "b": {}}, "required": ["b"]},
        {"properties": {"a": {"type": {}}}, "required": 5},
        {"properties": {"a": 5}},
        {},
    ],
    ids=str,
)
def test_a_schema_that_is_no_signature(client, schema):
    host = Host(client, look=lambda *a, **k: 1)
    client.request("cellblock_tools_request", {"tools": [{"name": "look", "inputSchema": schema}]})
    assert host.run("look(1, z=2)").result == "1"


# ---- whose names ----


def test_the_functions_are_there_only_while_a_cell_of_the_session_runs(host, shared):
    other = shared.client(host.client.kernel)
    other.ready()
    assert host.run("kept = add\nadd(1)").ok
    for code in ("add", "kept(1)"):
        done = other.run(code, allow_stdin=True)
        assert done.content["ename"] == "NameError" and "'add' is not defined" in done.content["evalue"], done
    assert other.run("'add' in globals(), 'HostToolError' in globals()").result == "(False, False)"
    assert not other.inbox["stdin"]
    assert host.run("kept(1)").ok
    done = host.client.run("add", allow_stdin=False)
    assert done.content["ename"] == "NameError"
    done = host.client.run("kept(1)", allow_stdin=False)
    assert done.content["ename"] == "HostToolError" and "allow_stdin" in done.content["evalue"]


def test_a_name_that_the_user_bound_stays_the_users(host):
    assert host.run("add = 5", 0).ok
    assert host.run("add", 0).result == "5"
    assert host.client.run("add").result == "5"
    assert host.run("del add", 0).ok
    assert host.run("add(4)").result == "4"


def test_two_sessions_with_a_tool_of_one_name(host, shared):
    other = shared.client(host.client.kernel)
    other.ready()
    second = Host(other, add=lambda a: -a).register()
    assert second.run("add(1)").result == "-1"
    assert host.run("add(1)").result == "1"
    subshell = other.request("create_subshell_request", {}, channel="control").content["subshell_id"]
    mine = host.client.start("import time\nadd(1)\nadd(2)", allow_stdin=True)
    first = host.question()
    assert second.run("add(7)", header=other.header("execute_request", subshell_id=subshell)).result == "-7"
    host.answer(first)
    host.answer(host.question())
    assert host.client.finish(mine).result == "2"
    assert other.run("'add' in globals()").result == "False"


# ---- calls ----


@pytest.mark.parametrize(
    "value",
    ["[None, True, {'a': [1.5, 'é😀']}]", "'\\n\"\\\\' * 100", "{}", "10**50", "-0.0", "'x' * 1000000"],
)
def test_what_crosses_comes_back(client, value):
    host = Host(client, echo=lambda v: v).register()
    done = host.run(f"v = {value}\necho(v) == v and type(echo(v)) is type(v)", 2)
    assert done.result == "True", done


@pytest.mark.parametrize(
    "code, ename",
    [
        ("add({1})", "TypeError"),
        ("add(b'x')", "TypeError"),
        ("add(object())", "TypeError"),
        ("add(float('nan'))", "ValueError"),
        ("add(x=float('inf'))", "ValueError"),
        ("add({1: 2, '1': 3})", "ValueError"),
        ("add('\\ud800')", "UnicodeEncodeError"),
        ("a = []\na.append(a)\nadd(a)", "ValueError"),
        ("a = []\nfor i in range(300): a = [a]\nadd(a)", "ValueError"),
        ("a = []\nfor i in range(100000): a = [a]\nadd(a)", "ValueError"),
        ("add({str(i): 0 for i in range(70000)})", "ValueError"),
        ("add(10**4100)", "ValueError"),
        ("add('x' * (65 << 20))", "HostToolError"),
    ],
)
def test_arguments_that_do_not_cross(host, code, ename):
    done = host.run(code, 0)
    assert done.content["ename"] == ename and "calls" not in done.about, done
    assert host.run("add(1)").ok


def test_keys_are_as_json_has_them(client):
    host = Host(client, echo=lambda v: v).register()
    assert host.run("echo({1: (2,), None: 3})").result == "{'1': [2], 'null': 3}"


def test_an_error_of_the_hosts(host):
    done = host.run("add('a', 1)")
    assert done.content["ename"] == "HostToolError" and done.content["evalue"].startswith("TypeError: ")
    assert done.about["calls"][0]["completed"] and "hosttools.py" not in "".join(done.content["traceback"])
    done = host.run("try: add('a', 1)\nexcept HostToolError as e: print('caught', e)")
    assert done.ok and done.text().startswith("caught TypeError: ")


ANSWERS = {
    "text": "hello",
    "nothing": "",
    "nan": '{"results": [NaN]}',
    "key_twice": '{"results": [], "results": []}',
    "list": "[]",
    "no_results": {},
    "results_null": {"results": None},
    "none": {"results": []},
    "numbers": {"results": [1, 2]},
    "other_id": {"results": [{"id": "nonsense", "ok": 1}]},
    "id_is_a_number": {"results": [{"id": 1, "ok": 1}]},
    "never_given": {"results": [{"id": "18446744073709551615", "ok": 1}]},
    "too_deep": '{"results": ' + "[" * 300 + "]" * 300 + "}",
    "very_deep": "[" * 1000000,
    "half": '{"results": [{"id": "1", "ok": ',
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_that_is_none(host, answer):
    cell = host.client.start("add(1)", allow_stdin=True)
    host.say(answer, host.question())
    done = host.client.finish(cell)
    assert done.content["ename"] == "HostToolError" and "the client's answer" in done.content["evalue"], done
    assert not done.about["calls"][0]["completed"]
    host.rounds.clear()
    assert host.run("add(1)").ok


@pytest.mark.parametrize(
    "result",
    [{}, {"ok": 1, "error": {}}, {"error": "x"}, {"error": {}}, {"error": {"type": 1, "message": ""}}],
    ids=str,
)
def test_a_result_that_is_none(host, result):
    cell = host.client.start("add(1)", allow_stdin=True)
    asked = host.question()
    (call,) = asked.metadata["cellblock"]["calls"]
    host.say({"results": [{"id": call["id"], **result}]}, asked)
    assert host.client.finish(cell).content["ename"] == "HostToolError"


@pytest.mark.parametrize("content", [{}, {"value": 5}, {"value": "x" * (65 << 20)}], ids=["none", "number", "large"])
def test_a_reply_that_is_none(host, content):
    cell = host.client.start("add(1)", allow_stdin=True)
    asked = host.question()
    host.client.send("input_reply", content, channel="stdin", parent=asked.header)
    done = host.client.finish(cell)
    assert done.content["ename"] == "HostToolError" and "the client's answer" in done.content["evalue"], done
    assert done.about["calls"][0]["completed"] is None


def test_an_input_between_calls(host):
    cell = host.client.start("a = add(1)\nb = input('name')\na, b, add(2)", allow_stdin=True)
    host.answer(host.question())
    asked = host.client.wait("stdin")
    assert asked.content["prompt"] == "name" and asked.metadata == {}
    host.say('{"results": []}', asked)
    host.answer(host.question())
    assert host.client.finish(cell).result == "(1, '{\"results\": []}', 2)"


def test_a_result_that_crosses_an_interrupt_is_none_to_the_next_call(host):
    code = kernels.CROSSED % "SIGINT" + "try: add(1)\nexcept KeyboardInterrupt: pass\nadd(2), add(3)"
    done = host.run(code, 3)
    assert done.result == "(2, 3)", done


def test_a_stranger_answers(host, shared):
    other = shared.client(host.client.kernel)
    other.ready()
    cell = host.client.start("add(1)", allow_stdin=True)
    asked = host.question()
    (call,) = asked.metadata["cellblock"]["calls"]
    Host(other).say({"results": [{"id": call["id"], "ok": "forged"}]}, asked)
    other.request("kernel_info_request", channel="control")
    host.answer(asked)
    assert host.client.finish(cell).result == "1"


# ---- several at a time ----


def test_threads_share_round_trips(host):
    code = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(20) as pool: got = list(pool.map(add, range(100)))\ngot == list(range(100))"
    )
    done = host.run(code, 100)
    assert done.result == "True" and len(done.rounds) < 100, [len(r) for r in done.rounds]
    assert len(done.about["calls"]) == 100 and all(call["completed"] for call in done.about["calls"])


def test_await_and_gather(client):
    host = Host(client, add=add).register(awaitable=True)
    done = host.run("import asyncio\nawait asyncio.gather(*(add(i) for i in range(300)))\n", 300)
    assert done.ok and [len(r) for r in done.rounds] == [256, 44], [len(r) for r in done.rounds]
    assert host.run("await add(3)").result == "3"
    assert host.run("import inspect\ninspect.iscoroutinefunction(add)", 0).result == "True"
    done = host.run("try: await add('a', 1)\nexcept HostToolError as e: print(e)")
    assert done.text().startswith("TypeError: ")


def test_the_loop_goes_on_while_a_call_waits(client):
    host = Host(client, add=add).register(awaitable=True)
    cell = client.start(
        "import asyncio\nasync def tick():\n    for i in range(3):\n        print(i)\n        await asyncio.sleep(0)\n"
        "    print('ticked')\nawait asyncio.gather(add(1), tick())",
        allow_stdin=True,
    )
    asked = host.question()
    client.says(cell, "0\n1\n2\nticked\n")
    host.answer(asked)
    assert client.finish(cell).ok


def test_a_wait_that_is_given_up(client, gate):
    """As by asyncio.wait_for, whose time is over here once the call has come."""
    host = Host(client, add=add).register(awaitable=True)
    cell = client.start(
        "import asyncio\ncall = asyncio.ensure_future(add(1))\n"
        "await asyncio.get_running_loop().run_in_executor(None, lambda: open('gate').read())\ncall.cancel()\n"
        "try: await call\nexcept asyncio.CancelledError: print('late')\nawait add(2)",
        allow_stdin=True,
    )
    first = host.question()
    gate()
    client.says(cell, "late\n")
    host.answer(first)
    host.answer(host.question())
    assert client.finish(cell).result == "2"


def test_a_task_that_outlives_its_cell(client, gate):
    host = Host(client, add=add).register()
    assert host.run(
        "import threading\ngo = threading.Event()\ndef later():\n    go.wait()\n    try: print('got', add(5))\n"
        "    except BaseException as e: print(type(e).__name__, e)\nt = threading.Thread(target=later)\nt.start()",
        0,
    ).ok
    done = host.run("go.set()\nt.join()")  # another cell of the session runs
    assert done.about["calls"][0]["completed"]


# ---- interrupts and time ----


def interrupt(client):
    assert client.request("interrupt_request", channel="control").content["status"] == "ok"


def test_an_interrupt_ends_a_call(host):
    cell = host.client.start("add(1)", allow_stdin=True)
    late = host.question()
    interrupt(host.client)
    done = host.client.finish(cell)
    assert done.content["ename"] == "HostToolCancelledError" and "not known" in done.content["evalue"]
    assert done.about["calls"][0]["completed"] is False and done.about["state"] == "kept"
    host.rounds.clear()
    cell = host.client.start("add(2)", allow_stdin=True)
    asked = host.question()
    host.answer(late)
    host.answer(asked)
    assert host.client.finish(cell).result == "2"


def test_a_late_answer_is_noted(host):
    cell = host.client.start("try: add(1)\nexcept HostToolCancelledError: pass\nadd(2)", allow_stdin=True)
    late = host.question()
    interrupt(host.client)
    asked = host.question()
    host.answer(late)
    host.answer(asked)
    done = host.client.finish(cell)
    assert done.result == "2" and [call["completed"] for call in done.about["calls"]] == [True, True]


def test_a_cell_can_not_miss_an_interrupt_by_catching_exceptions(host):
    cell = host.client.start("while True:\n    try: add(1)\n    except Exception: pass", allow_stdin=True)
    host.question()
    interrupt(host.client)
    assert host.client.finish(cell).content["ename"] == "HostToolCancelledError"


def test_an_interrupt_of_threads_calls(host):
    cell = host.client.start(
        "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(4)\n"
        "jobs = [pool.submit(add, i) for i in range(4)]\n"
        "try:\n    print('on')\n    jobs[0].result()\nexcept KeyboardInterrupt: pass\n"
        "for job in jobs: print(type(job.exception()).__name__)",
        allow_stdin=True,
    )
    host.client.says(cell, "on\n")
    asked = host.question()
    interrupt(host.client)
    rest = 4 - len(asked.metadata["cellblock"]["calls"])  # have come meanwhile
    while rest > 0:
        asked = host.question()
        rest -= len(asked.metadata["cellblock"]["calls"])
        host.answer(asked)
    done = host.client.finish(cell)
    assert done.ok and "HostToolCancelledError" in done.text(), (done, done.text())


def test_an_interrupt_of_what_awaits(client):
    host = Host(client, add=add).register(awaitable=True)
    cell = client.start("await add(1)", allow_stdin=True)
    late = host.question()
    interrupt(client)
    assert client.finish(cell).content["ename"] == "KeyboardInterrupt"
    host.answer(late)
    host.rounds.clear()
    assert host.run("await add(2)").result == "2"


def test_a_thread_that_still_waits_at_the_end_of_its_cell(host, gate):
    """Also for input(): its end is no breach of the wire."""
    for call in ("add, (1,)", "input, ('x',)"):
        cell = host.client.start(
            f"import threading\nt = threading.Thread(target=lambda f, a: f(*a), args=({call}))\nt.start()\n"
            "open('gate').read()",
            allow_stdin=True,
        )
        host.client.wait("stdin")
        gate()
        done = host.client.finish(cell)
        assert done.result == "'go'", (call, done.content)
    assert host.run("add(1)").ok


def test_the_clock_stands_while_a_call_waits(start):
    for limit in (1, 15):  # on a busy machine what is no wait may take as long as the limit
        limits = ("--set", f"timeout.cell={limit}", "--set", f"timeout.wait={2 * limit}", "--set", "timeout.grace=60")
        kernel = start(args=limits)
        Host(kernel.client, add=add).register()
        done = kernel.client.run("add(1)", allow_stdin=True)
        if "timeout.wait" in done.content["evalue"]:
            break
    assert kernel.client.inbox["stdin"]
    assert done.content["ename"] == "CellTimeoutError" and "timeout.wait" in done.content["evalue"], done
    assert done.about["state"] == "kept"


# ---- subshells ----


@pytest.fixture
def subshell(client):
    made = client.request("create_subshell_request", {}, channel="control").content["subshell_id"]
    yield made
    client.request("delete_subshell_request", {"subshell_id": made}, channel="control")


def test_calls_from_a_subshell(host, subshell):
    header = host.client.header("execute_request", subshell_id=subshell)
    code = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(20) as pool: got = list(pool.map(add, range(50)))\nadd(1), got == list(range(50))"
    )
    done = host.run(code, 51, header=header)
    assert done.result == "(1, True)" and len(done.about["calls"]) == 51 and len(done.rounds) < 51


def test_awaiting_in_a_subshell(client, subshell):
    host = Host(client, add=add).register(awaitable=True)
    header = client.header("execute_request", subshell_id=subshell)
    done = host.run("import asyncio\nawait asyncio.gather(*(add(i) for i in range(10)))", 10, header=header)
    assert done.result == "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]" and [len(r) for r in done.rounds] == [10]


@pytest.mark.parametrize("call", ["add(1)", "await wadd(1)", "threads()"])
def test_an_interrupt_in_a_subshell(client, subshell, call):
    host = Host(client, add=add, wadd=add)
    specs = [{"name": "add"}, {"name": "wadd", "awaitable": True}]
    assert client.request("cellblock_tools_request", {"tools": specs}).content["status"] == "ok"
    client.run(
        "import threading\ndef threads():\n    t = threading.Thread(target=add, args=(1,))\n    t.start()\n    t.join()"
    )
    header = client.header("execute_request", subshell_id=subshell)
    cell = client.start(call, allow_stdin=True, header=header)
    late = host.question()
    header = client.header("interrupt_request", subshell_id=subshell)
    assert client.request("interrupt_request", channel="control", header=header).content["status"] == "ok"
    done = client.finish(cell)
    assert done.content["ename"] in ("HostToolCancelledError", "KeyboardInterrupt"), done
    host.answer(late)
    host.rounds.clear()
    header = client.header("execute_request", subshell_id=subshell)
    assert host.run("add(2), await wadd(3)", 2, header=header).result == "(2, 3)"


# ---- a client that is gone ----

BUT_STDIN = ("shell", "control", "iopub", "hb")


def gone(kernel, client):
    """Ends the client; returns when the kernel has no connection of its stdin any more."""
    port = f"{kernel.connection['stdin_port']:04X}"
    client.close()
    until = time.monotonic() + kernels.DEADLINE
    while any(
        line.split()[1].endswith(f":{port}") and line.split()[3] not in ("0A", "06")  # listening, over
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
    ):
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize("code", ["add(1)", "await wait_add(1)", "input('?')"])
def test_a_client_that_is_gone_before_it_is_asked(start, new_gate, code):
    kernel = start(ready=False)
    gate = new_gate(kernel)
    with start.client(kernel) as client, start.client(kernel, channels=BUT_STDIN) as other:
        client.ready()
        other.ready()
        specs = [{"name": "add"}, {"name": "wait_add", "awaitable": True}]
        assert client.request("cellblock_tools_request", {"tools": specs}).content["status"] == "ok"
        cell = client.start(f"print('up', flush=True)\nopen('gate').read()\n{code}", allow_stdin=True)
        other.says(cell, "up")
        gone(kernel, client)
        gate()
        error = other.wait("iopub", lambda m: m.type == "error" and m.parent_id == cell).content
        if code == "input('?')":
            assert error["ename"] == "EOFError"
        else:
            assert error["ename"] in ("HostToolCancelledError", "KeyboardInterrupt"), error
        if code == "add(1)":
            assert "its client is gone; whether the host did it is not known" in error["evalue"], error
        # what comes before its end would be aborted with it
        other.wait("iopub", lambda m: m.content.get("execution_state") == "idle" and m.parent_id == cell)
        assert other.run("1").result == "1"
