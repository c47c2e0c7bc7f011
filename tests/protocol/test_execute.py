"""execute_request: every field of it, and what the reply carries."""

import re
import time
from datetime import datetime

import pytest

pytestmark = pytest.mark.once


def test_count_goes_up_and_is_the_same_everywhere(client):
    first = client.run("'a'")
    second = client.run("'b'")
    n = first.content["execution_count"]
    assert second.content["execution_count"] == n + 1
    assert second.of("execute_input")[0].content == {"code": "'b'", "execution_count": n + 1}
    assert second.of("execute_result")[0].content["execution_count"] == n + 1


def test_error(client):
    cell = client.run("def f():\n    raise ValueError('what é')\nf()")
    assert cell.content["status"] == "error"
    for c in (cell.content, cell.error):
        assert (c["ename"], c["evalue"]) == ("ValueError", "what é")
        assert isinstance(c["traceback"], list) and all(isinstance(line, str) for line in c["traceback"])
    assert "f()" in re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(cell.error["traceback"]))
    assert cell.content["execution_count"] == cell.of("execute_input")[0].content["execution_count"]


def test_syntax_error_is_counted_like_any_cell(client):
    n = client.run("1").content["execution_count"]
    cell = client.run("1 +")
    assert cell.content["ename"] == "SyntaxError" and cell.content["execution_count"] == n + 1
    assert client.run("1").content["execution_count"] == n + 2


@pytest.mark.parametrize(
    "raised, ename, evalue",
    [
        (
            "class FinalAnswerException(BaseException): pass\nraise FinalAnswerException('safe:' + 'x' * 100_000)",
            "FinalAnswerException",
            "safe:" + "x" * 100_000,
        ),
        ("raise SystemExit(3)", "SystemExit", "3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt", ""),
        ("raise GeneratorExit('g')", "GeneratorExit", "g"),
    ],
    ids=["own", "exit", "interrupt", "generator"],
)
def test_base_exceptions_end_the_cell_only(client, raised, ename, evalue):
    client.run("kept = 1")
    cell = client.run(raised)
    assert (cell.error["ename"], cell.error["evalue"]) == (ename, evalue)
    assert cell.content["ename"] == ename
    assert client.run("kept").result == "1"


def test_exceptions_that_cannot_be_shown(client):
    cell = client.run("class E(Exception):\n    def __str__(self): 1/0\nraise E('x')")
    assert cell.content["status"] == "error" and cell.error["ename"] in ("E", "ZeroDivisionError")
    assert client.run("1").ok


def test_silent(client):
    n = client.run("1").content["execution_count"]
    cell = client.run("quiet = 5\n6", silent=True)
    assert cell.ok and cell.types == ["status", "status"]
    assert client.run("quiet").content["execution_count"] == n + 1


def test_silent_still_prints(client):
    assert client.run("print('p')", silent=True).text() == "p\n"


def test_silent_error_does_not_stop_the_queue(client):
    first = client.start("1/0", silent=True)
    second = client.start("2")
    assert client.finish(first).content["status"] == "error"
    assert client.finish(second).result == "2"


def test_store_history_false(client):
    n = client.run("1").content["execution_count"]
    client.run("'unstored cell'", store_history=False)
    after = client.run("2").content["execution_count"]
    assert after >= n + 1
    tail = client.request(
        "history_request", {"output": False, "raw": True, "hist_access_type": "tail", "n": 5}
    ).content["history"]
    assert all("unstored cell" not in row[2] for row in tail)


def test_user_expressions(client):
    cell = client.run("x = 7", user_expressions={"a": "x * 6", "b": "undefined_name", "c": "'é'"})
    e = cell.content["user_expressions"]
    assert e["a"]["status"] == "ok" and e["a"]["data"]["text/plain"] == "42" and e["a"]["metadata"] == {}
    assert e["b"]["status"] == "error" and e["b"]["ename"] == "NameError" and isinstance(e["b"]["traceback"], list)
    assert e["c"]["data"]["text/plain"] == "'é'"


def test_user_expressions_alone(client):
    cell = client.run("", silent=True, user_expressions={"a": "1+1"})
    assert cell.content["user_expressions"]["a"]["data"]["text/plain"] == "2"


def test_payload_page(client):
    page = [p for p in client.run("zip?").content["payload"] if p["source"] == "page"]
    assert page and "zip" in page[0]["data"]["text/plain"] and isinstance(page[0]["start"], int)


def test_payload_set_next_input(client, kernel):
    (kernel.workspace / "loaded.py").write_text("loaded = 1\n")
    found = [p for p in client.run("%load loaded.py").content["payload"] if p["source"] == "set_next_input"]
    assert found and "loaded = 1" in found[0]["text"] and found[0]["replace"] is True


def test_payload_ask_exit(start):
    k = start()
    cell = k.client.run("exit")
    assert any(p["source"] == "ask_exit" and p["keepkernel"] is False for p in cell.content["payload"])


def test_empty_cells(client):
    for code in ("", "   ", "\n\n", "# only a comment"):
        assert client.run(code).ok


@pytest.mark.parametrize(
    "text", ["é", "😀", "\u2028", "a\u0000b"[:1], "日本語" * 1000, "\\", '"', "\x7f\x1b[31m"], ids=ascii
)
def test_text_comes_through(client, text):
    cell = client.run(f"t = {text!r}\nprint(t)\nt")
    assert cell.text() == text + "\n" and cell.result == repr(text)


def test_source_with_an_escaped_astral_letter(client):
    """A client may write any letter as \\u escapes."""
    content = b'{"code":"print(\'\\ud83d\\ude00\\u0041\')","silent":false}'
    msg_id = client.send("execute_request", content)
    cell = client.finish(msg_id)
    assert cell.text() == "😀A\n" and cell.of("execute_input")[0].content["code"] == "print('😀A')"


@pytest.mark.cellblock_only("ipykernel sends bytes that are no UTF-8")
def test_what_is_not_text_is_repaired(client):
    """Lone surrogates and NaN come out as something a browser can read, and the cell ends."""
    cell = client.run(
        "print('a\\ud800b')\nfrom IPython.display import publish_display_data\n"
        "publish_display_data({'text/plain': 'x\\udc80', 'application/json': {'n': float('nan'), 'i': float('inf')}})\n"
        "'z\\udfff'"
    )
    assert cell.ok and cell.text().startswith("a") and cell.text().rstrip().endswith("b")
    assert cell.of("display_data") and cell.of("execute_result")
    assert client.run("1").ok


def test_missing_fields_take_their_defaults(client):
    cell = client.finish(client.send("execute_request", {"code": "3"}))
    assert cell.result == "3"


@pytest.mark.cellblock_only
def test_reply_metadata(client):
    cell = client.run("sum(range(100_000))\nprint('x' * 1000)")
    started = datetime.fromisoformat(cell.reply.metadata["started"].replace("Z", "+00:00"))
    assert started.tzinfo is not None
    assert started <= datetime.fromisoformat(cell.reply.header["date"].replace("Z", "+00:00"))
    about = cell.about
    assert about["limit"] is None and about["state"] == "kept"
    usage = about["usage"]
    assert {"wall_s", "cpu_user_s", "cpu_sys_s", "memory_peak_bytes", "output_bytes"} <= set(usage)
    assert 0 < usage["wall_s"] < 60 and usage["output_bytes"] >= 1001 and usage["memory_peak_bytes"] > 1 << 20


@pytest.mark.cellblock_only
def test_usage_is_the_cells_own(client):
    busy = client.run("import time\nt = time.process_time()\nwhile time.process_time() - t < 0.3: pass").about["usage"]
    sent = time.monotonic()
    idle, took = client.run("1").about["usage"], time.monotonic() - sent
    assert busy["cpu_user_s"] + busy["cpu_sys_s"] > 0.2
    assert idle["cpu_user_s"] + idle["cpu_sys_s"] < 0.2 and idle["wall_s"] <= took


def test_cells_of_two_clients_are_both_served(client, shared):
    other = shared.client(client.kernel)
    other.ready()
    a, b = client.start("'mine'"), other.start("'other'")
    assert client.finish(a).result == "'mine'" and other.finish(b).result == "'other'"
    client.wait("iopub", lambda m: m.parent_id == b and m.type == "execute_result", what="the other client's result")


def test_many_cells_in_flight_keep_their_order(client):
    ids = [client.start(f"'cell {i}'") for i in range(300)]
    for i, msg_id in enumerate(ids):
        assert client.finish(msg_id).result == f"'cell {i}'"


def test_display_id_and_update(client):
    cell = client.run("from IPython.display import display\nh = display(1, display_id='here')\nh.update(2)")
    first, second = cell.of("display_data", "update_display_data")
    assert first.content["transient"] == {"display_id": "here"} and second.type == "update_display_data"
    assert second.content["transient"] == {"display_id": "here"} and second.content["data"]["text/plain"] == "2"


def test_clear_output(client):
    cell = client.run(
        "from IPython.display import clear_output\nprint(1)\nclear_output(wait=True)\nprint(2)\nclear_output()"
    )
    assert [m.content for m in cell.of("clear_output")] == [{"wait": True}, {"wait": False}]


def test_matplotlib_inline(client):
    if not client.run("import matplotlib").ok:
        pytest.skip("the kernel's interpreter has no matplotlib")
    cell = client.run(
        "%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.show()", timeout=120
    )
    shown = cell.of("display_data")
    assert shown and "image/png" in shown[-1].content["data"] and "text/plain" in shown[-1].content["data"]


@pytest.mark.parametrize(
    "code, expected",
    [
        ("!echo hello", "hello"),
        ("%%bash\necho from bash", "from bash"),
        ("%cd -q .\n%pwd", None),
        ("x = !echo a; echo b\nprint(list(x))", "['a', 'b']"),
        ("%colors nocolor", None),
        ("import asyncio\nawait asyncio.sleep(0)\nprint('awaited')", "awaited"),
        ("%%timeit -n1 -r1\n1", None),
    ],
    ids=lambda v: str(v)[:12],
)
def test_ipython_surface(client, code, expected):
    cell = client.run(code)
    assert cell.ok, cell
    assert expected is None or expected in cell.text()


def test_tasks_go_on_between_cells(client, gate):
    client.run(
        "import asyncio\nasync def later():\n    global done\n    await asyncio.sleep(0)\n    done = True\n"
        "done = False\ntask = asyncio.create_task(later())"
    )
    assert client.run("await task\ndone").result == "True"


def test_kernel_surface_that_libraries_look_at(client):
    cell = client.run(
        "ip = get_ipython()\n"
        "print(type(ip).__name__, 'IPKernelApp' in ip.config, ip.kernel is not None, 'zmq' in str(type(ip)).lower())"
    )
    assert cell.text() == "ZMQInteractiveShell True True True\n"


@pytest.mark.parametrize(
    "code",
    [
        "ip.set_custom_exc((ZeroDivisionError,), lambda *a, **k: print('mine'))\n1/0",
        "ip.showtraceback = lambda *a, **k: print('mine')\n1/0",
        "ip._showtraceback = lambda *a, **k: print('mine')\nawait asyncio.sleep(0)\n1/0",
        "ip.showsyntaxerror = lambda *a, **k: print('mine')\nip.run_cell('x =').raise_error()",
        "print('mine')\nraise bdb.BdbQuit",
    ],
)
def test_an_error_that_the_user_shows_is_shown_once(client, code):
    """As rich.traceback.install() does, or q at pdb's prompt: no second error below it; the reply has it."""
    cell = client.run("import asyncio, bdb\nip = get_ipython()\n" + code)
    restore = "ip.set_custom_exc((), None)\nfor n in ('showtraceback', '_showtraceback', 'showsyntaxerror'):\n"
    assert client.run(restore + "    ip.__dict__.pop(n, None)").ok
    assert not cell.of("error") and not cell.ok and cell.content["ename"] and "mine" in cell.text()
    cell = client.run("ip.showtraceback = 5\n1/0")
    client.run("del ip.showtraceback")
    assert [m.content["ename"] for m in cell.of("error")] == ["TypeError"], "what can't be shown is said"


def test_printers_registered_before_the_first_result(start):
    """Numbers and strings are shown the quick way, but only while nobody has another."""
    client = start().client
    client.run("plain = get_ipython().display_formatter.formatters['text/plain']\n"
               "plain.for_type(int, lambda n, p, cycle: p.text('<%d>' % n))\n"
               "plain.for_type_by_name('builtins', 'complex', lambda n, p, cycle: p.text('C'));")
    assert [client.run(code).result for code in ("5", "1j", "1.5", "True")] == ["<5>", "C", "1.5", "True"]
    client.run("class Loud(type(plain)):\n    def __call__(self, value): return '!' + repr(value)\n"
               "get_ipython().display_formatter.formatters['text/plain'] = Loud()")
    assert [client.run(code).result for code in ("5", "'s'", "[1]")] == ["!5", "!'s'", "![1]"]


@pytest.mark.cellblock_only
@pytest.mark.parametrize("shell, name", [("/bin/bash", "bash"), ("/usr/not-there", "sh"), ("/root/sh", "sh")])
def test_commands_run_under_the_users_shell(start, shell, name):
    """What notebooks are full of: `!source`, `![[ … ]]`, `!echo {1..3}`. A shell that is not inside is no shell."""
    client = start(env={"SHELL": shell}).client
    assert client.run("!echo $$0").text() == f"/bin/{name}\n"
    assert client.run("x = !echo $$0\nprint(x[0])").text().endswith(f"{name}\n")
    if name == "bash":
        assert client.run("!source /dev/null && [[ 1 == 1 ]] && echo {1..3}").text() == "1 2 3\n"
