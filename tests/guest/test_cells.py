"""Running cells: values, errors, history, payloads, expressions."""

import os
import re

import pytest


def plain(lines):
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(lines))


def test_hello(guest):
    assert guest.hello["wire_version"] == 1
    assert guest.hello["implementation"] == ("ipython" if guest.interpreter.ipython else "plain")
    assert guest.hello["python_version"].startswith("%d.%d." % guest.interpreter.version)
    assert isinstance(guest.hello["missing_paths"], list)


@pytest.mark.parametrize(
    "code, value",
    [
        ("1", "1"),
        ("1 + 1", "2"),
        ("'a'", "'a'"),
        ("x = 5\nx", "5"),
        ("x = 1; x + 1", "2"),
        ("[1,\n 2]", "[1, 2]"),
        ("lambda: 0 if 1 else 2; 7", "7"),
        ("x = 1", None),
        ("None", None),
        ("1;", None),
        ("'a;'", "'a;'"),
        ("1 # ;", "1"),
        ("for i in range(3): i", None),
        ("1; 2", "2"),
        ("{1: 2}", "{1: 2}"),
        ("1.5", "1.5"),
        ("True", "True"),
        ("", None),
        ("   ", None),
        ("# only words", None),
        ("\n\n3", "3"),
        ("10 % 4", "2"),
        ("1 != 2", "True"),
        ("'%d' % 3", "'3'"),
        ("if True:\n    y = 4\ny", "4"),
        ("x = 3\nprint(x)\nx", "3"),
        ("...", "Ellipsis"),
        ("1if 1else 2", "1"),
        ("def f(): return 8\nf()", "8"),
        ("(x := 4)", "4"),
        ("'''a\nb'''", "'a\\nb'"),
        ("x = 1;\nf'a'", "'a'"),
        ("f'a';", None),
        ("print", "<function print>"),
    ],
)
def test_value(guest, code, value):
    result = guest.run(code)
    assert result.ok
    if value == "<function print>":
        assert result.result.startswith("<")
    else:
        assert result.result == value


def test_state_is_kept(guest):
    guest.run("kept = 41")
    assert guest.run("kept + 1").result == "42"
    assert guest.run("__name__").result == "'__main__'"
    assert guest.run("import __main__; __main__.kept").result == "41"


def test_error(guest):
    result = guest.run("def f():\n    return 1 / 0\nf()")
    assert not result.ok
    assert result.error["ename"] == result.reply["ename"] == "ZeroDivisionError"
    assert result.error["evalue"] == "division by zero"
    text = plain(result.error["traceback"])
    assert "return 1 / 0" in text and "cellblock_guest" not in text and "hidden" not in text
    assert result.reply["traceback"] == result.error["traceback"]
    assert guest.run("1").result == "1"


@pytest.mark.parametrize("code", ["1 +", "def f(:", "return 1", "x = 1\nyield x", "'abc", "await = 3", "f(", "1 = 2"])
def test_syntax_error(guest, code):
    result = guest.run(code)
    assert result.error["ename"] in ("SyntaxError", "IndentationError"), result.error
    assert "cellblock_guest" not in plain(result.error["traceback"])
    assert guest.run("2").result == "2"


def test_statements_before_a_lone_return_run_in_ipython(guest, ipython):
    guest.run("before = 0")
    assert guest.run("before = 1\nreturn").error["ename"] == "SyntaxError"
    assert guest.run("before").result == "1"


def test_name_of_a_cell(guest):
    result = guest.run("import sys\nsys._getframe().f_code.co_filename")
    assert re.fullmatch(r"'/tmp/ipykernel_%d/\d+\.py'" % guest.process.pid, result.result)
    assert guest.run("import inspect\ndef named(): pass\ninspect.getsource(named)").result == "'def named(): pass\\n'"


def test_murmur_of_known_text(guest):
    """As ipykernel computes it for the debugger: 2354412189 is `1/0`."""
    text = plain(
        guest.run("import traceback\ntry:\n    exec(compile('1/0', 'x', 'exec'))\nexcept Exception: pass\n1/0").error[
            "traceback"
        ]
    )
    assert "ZeroDivisionError" in text
    result = guest.run("__import__('cellblock_guest.tracebacks').tracebacks.murmur2(b'1/0', 0xc70f6907)")
    assert result.result == "2354412189"


def test_system_exit_is_an_error(guest):
    result = guest.run("import sys; sys.exit(3)")
    assert result.error["ename"] == "SystemExit" and result.error["evalue"] == "3"
    assert guest.run("1").ok


@pytest.mark.parametrize("code", ["exit", "exit()", "quit", "quit()"])
def test_exit_asks(guest, code):
    result = guest.run(code)
    assert result.ok
    assert [p["source"] for p in result.reply["payload"]] == ["ask_exit"]
    assert guest.run("1").reply["payload"] == []


@pytest.mark.parametrize(
    "code", ["raise BaseException('x')", "class E(BaseException): pass\nraise E('x')", "raise GeneratorExit('x')"]
)
def test_base_exceptions(guest, code):
    assert guest.run(code).error["evalue"] == "x"
    assert guest.run("1").ok


def test_exception_whose_text_fails(guest):
    result = guest.run("class E(Exception):\n    def __str__(self): raise ValueError('no')\nraise E")
    assert result.error["ename"] == "E"
    assert guest.run("1").ok


def test_exception_that_is_false(guest):
    result = guest.run("class Empty(Exception):\n    def __len__(self): return 0\nraise Empty")
    assert not result.ok and result.error["ename"] == "Empty"


def test_exception_group(guest):
    if guest.interpreter.version < (3, 11):
        pytest.skip("needs exception groups")
    result = guest.run("raise ExceptionGroup('many', [ValueError('one'), TypeError('two')])")
    text = plain(result.error["traceback"])
    assert result.error["ename"] == "ExceptionGroup" and "ValueError: one" in text and "TypeError: two" in text
    assert "cellblock_guest" not in text


def test_recursion_error(guest):
    result = guest.run("def deep(): deep()\ndeep()")
    assert result.error["ename"] == "RecursionError"
    assert guest.run("1").ok


def test_silent(guest):
    before = guest.run("1").request
    assert before
    result = guest.run("3", silent=True)
    assert result.ok and not result.of("EXECUTE_RESULT")
    assert guest.run("print('seen')", silent=True).stdout == "seen\n"


def test_user_expressions(guest):
    result = guest.run("a = 3", user_expressions={"sum": "a + 1", "bad": "nope"})
    values = result.reply["user_expressions"]
    assert values["sum"]["status"] == "ok" and values["sum"]["data"]["text/plain"] == "4"
    assert values["bad"]["status"] == "error" and values["bad"]["ename"] == "NameError"
    assert guest.run("1/0", user_expressions={"a": "1"}).reply["user_expressions"] == {}


def test_execution_count_is_the_supervisors(guest, ipython):
    result = guest.run("get_ipython().execution_count", metadata={"execution_count": 900})
    assert result.result == "900"
    guest.run("'nine hundred one'", metadata={"execution_count": 901})
    assert guest.run("_901", metadata={"execution_count": 902}).result == "'nine hundred one'"
    assert guest.run("Out[901]", metadata={"execution_count": 903}).result == "'nine hundred one'"
    assert guest.run("In[901]", metadata={"execution_count": 904}).result == "\"'nine hundred one'\""
    guest.count = 904


def test_underscores(guest):
    guest.run("11")
    assert guest.run("_").result == "11"
    if guest.interpreter.ipython:
        guest.run("12")
        assert guest.run("__").result == "11"
        assert guest.run("_ih[-1]").ok and guest.run("_i").ok


def test_underscore_of_the_user_is_kept(new_guest, ipython):
    guest = new_guest()
    guest.run("_ = 'mine'")
    guest.run("5")
    assert guest.run("_").result == "'mine'"


@pytest.mark.parametrize(
    "code",
    [
        "with ThreadPoolExecutor() as p: list(p.map(lambda n: 1 / n, [0]))",
        "await asyncio.to_thread(lambda: 1 / 0)",
        "with ThreadPoolExecutor() as p: p.submit(int, 'x').result()",
    ],
)
def test_an_error_in_a_threads_pool_shows_no_frame_of_ours(guest, code):
    result = guest.run("import asyncio\nfrom concurrent.futures import ThreadPoolExecutor\n" + code)
    text = plain(result.error["traceback"])
    assert "cellblock_guest" not in text and "run_as" not in text and "concurrent" in text


def test_subprocesses_signature(guest):
    code = "import inspect, subprocess\nclass Mine(subprocess.Popen):\n    def __init__(self, word): pass\n"
    code += "list(inspect.signature(subprocess.Popen).parameters)[:2], str(inspect.signature(Mine))"
    assert guest.run(code).result == "(['args', 'bufsize'], '(word)')"


def test_cell_with_future_import(guest):
    assert guest.run("from __future__ import annotations\ndef f(a: Nope): pass").ok
    assert guest.run("def g(a: Nope): pass\ng.__annotations__").result == "{'a': 'Nope'}"


def test_a_future_import_behind_other_code(new_guest, ipython):
    """As behind a magic; what is last shows all the same."""
    guest = new_guest()
    assert guest.run("x = 1\nfrom __future__ import division\nx + 1").result == "2"
    assert guest.run("x = 1\nfrom __future__ import annotations\nx + 1;").result is None
    shown = guest.run("%config InteractiveShell.ast_node_interactivity = 'all'\nx\nfrom __future__ import division\nx")
    assert shown.ok and len(guest.run("x\nfrom __future__ import division\nx").of("EXECUTE_RESULT")) == 2


def test_a_future_import_alone(new_guest):
    guest = new_guest()
    assert guest.run("from __future__ import annotations").ok
    assert guest.run("def g(a: Nope): pass\ng.__annotations__").result == "{'a': 'Nope'}"


def test_warnings_show_once_per_cell(guest):
    code = "import warnings\nwarnings.warn('look')"
    assert "UserWarning: look" in guest.run(code).stderr


def test_large_cell(guest):
    result = guest.run("x = %r\nlen(x)" % ("a" * 3_000_000))
    assert result.result == "3000000"


def test_surrogates_in_code(guest):
    result = guest.run("len('\ud800')")
    assert result.result == "1" or result.error["ename"] in ("UnicodeEncodeError", "SyntaxError")
    assert guest.run("1").ok


def test_environment_of_a_cell(guest, guest_dir):
    result = guest.run("import sys, os\n(sys.path[0], sys.argv[0], [p for p in sys.path if p == %r])" % str(guest_dir))
    assert result.result.startswith("('', 'cellblock', [])")
    assert guest.run("os.environ['PAGER']").result == "'cat'"


def test_unset_metadata(guest):
    guest.pending = guest.send("EXECUTE", {"code": "1"}, {"execution_count": 1})
    assert guest.finish().ok


def test_many_cells_are_quick_to_answer(guest):
    for number in range(200):
        assert guest.run("n = %d\nn" % number).result == str(number)


def test_missing_paths(new_guest, interpreter, tmp_path):
    site = tmp_path / "lib" / "site-packages"
    site.mkdir(parents=True)
    (site / "gone.pth").write_text("/no/such/folder\nimport os\n# word\n")
    (site / "__editable___thing_finder.py").write_text("MAPPING: dict = {'thing': '/no/such/thing'}\n")
    guest = new_guest(env={"PYTHONPATH": str(site) + ":/no/such/path"})
    missing = guest.hello["missing_paths"]
    assert {"/no/such/folder", "/no/such/thing", "/no/such/path"} <= set(missing)


def test_cwd_is_importable_and_does_not_shadow_the_start(new_guest, tmp_path):
    for name in ("random", "json", "traitlets", "IPython"):
        (tmp_path / (name + ".py")).write_text("raise RuntimeError('shadowed')")
    (tmp_path / "mine.py").write_text("value = 5")
    guest = new_guest(cwd=tmp_path)
    assert guest.hello["implementation"] == ("ipython" if guest.interpreter.ipython else "plain")
    assert guest.run("import mine; mine.value").result == "5"


def written_at_the_end(guest):
    """What Python has written to fd 1, as it ends."""
    assert guest.shutdown() == 0
    guest.drain_pipes()
    return bytes(guest.captured[guest.fd1])


def test_shutdown_runs_atexit(new_guest):
    guest = new_guest()
    guest.run("import atexit, os\natexit.register(os.write, 1, b'bye')\natexit.register(print, 'last words')")
    assert written_at_the_end(guest) == b"bye"
    assert guest.until("STREAM")[-1].content == "last words\n"


def test_no_thread_of_ours_begins_at_the_end(new_guest):
    """Python frees what one has that has not begun: on a busy machine it begins late, and uses that."""
    guest = new_guest()
    guest.run(
        "import atexit, os\nfrom cellblock_guest import streams\n"
        "streams.try_deaf = lambda function: os.write(1, b'a thread')\natexit.register(print, 'last words')"
    )
    assert written_at_the_end(guest) == b""
    assert guest.until("STREAM")[-1].content == "last words\n"


def test_a_thread_of_ours_that_has_not_begun_at_the_end(new_guest):
    guest = new_guest()
    guest.run(
        "import os, time\nfrom cellblock_guest import threads\nreal = threads.get_native_id\n"
        "def late(): time.sleep(0.5); os.write(1, b'begun'); return real()\n"
        "threads.get_native_id = late; threads.start_deaf(int)"
    )
    assert written_at_the_end(guest) == b"begun"


def test_dead_wire_ends_the_guest(new_guest):
    guest = new_guest()
    guest.sock.shutdown(2)
    assert guest.process.wait(20) is not None


def test_dead_home_and_no_home(new_guest, tmp_path):
    guest = new_guest(env={"HOME": "/nonexistent"})
    result = guest.run("1")
    assert result.ok and guest.log_text() == "" and result.fd2 == b""
    assert not os.path.exists("/nonexistent")


def test_nothing_is_written_to_home(new_guest, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    guest = new_guest(env={"HOME": str(home)})
    guest.run("1")
    guest.ask("COMPLETE", code="import o", cursor_pos=8)
    assert guest.shutdown() == 0
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("wait", ["", "import asyncio\nawait asyncio.sleep(0)\n"])
def test_an_exception_that_lets_nobody_set_attributes(guest, wait):
    code = "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass MyError(Exception):\n    x: int\n"
    result = guest.run(code + wait + "raise MyError(1)")
    assert result.error["ename"] == "MyError" and "FrozenInstanceError" not in "".join(result.error["traceback"])


@pytest.mark.parametrize("end, status", [("pass", 0), ("sys.exit()", 0), ("sys.exit(3)", 3), ("1/0", 1)])
def test_a_child_of_fork_ends_as_in_python(guest, end, status):
    code = "import os, sys\npid = os.fork()\nif not pid: %s\nstatus = pid and os.waitpid(pid, 0)[1] >> 8" % end
    assert guest.run(code).ok and guest.run("status").result == str(status)


def test_a_question_that_cannot_be_looked_at_has_an_empty_answer(guest):
    """The supervisor lets none like it pass."""
    reply = guest.ask("INSPECT", code="print", cursor_pos=3, detail_level=0, omit_sections=1)
    assert reply == {"status": "ok", "found": False, "data": {}, "metadata": {}}
    assert guest.run("6*7").result == "42"
