"""What a kernel must do with any interpreter, with IPython or without: one test for each kind of request. Run by
tests/matrix/run with the kernelspec that CELLBLOCK_TEST_KERNEL names."""

import os
import re


def test_a_segmentation_fault_costs_nothing(start):
    client = start(args=("--set", "transactions.mode=always")).client
    client.run("kept = [1, 2]\nclass Mine: pass\nmine = Mine()")
    cell = client.run("import ctypes\nkept.append(3)\nctypes.string_at(0)")
    assert cell.content["ename"] == "KernelDiedError" and "signal 11 " in cell.content["evalue"]
    assert client.run("kept, type(mine).__name__").result == "([1, 2], 'Mine')"


def test_execute(client):
    cell = client.run("import sys\nprint('out')\nprint('err', file=sys.stderr)\n6*7")
    assert (cell.text(), cell.text("stderr"), cell.result) == ("out\n", "err\n", "42")


def test_the_interpreter_is_the_one_that_was_asked_for(client):
    said = client.request("kernel_info_request").content["language_info"]["version"]
    assert client.run("import platform\nplatform.python_version()").result == repr(said)


def test_its_library_is_whole(client):
    code = "import asyncio, bz2, ctypes, decimal, hashlib, json, lzma, multiprocessing, sqlite3, ssl, zlib\n'all'"
    assert client.run(code).result == "'all'"


def test_await_and_processes(client):
    assert client.run("import asyncio\nawait asyncio.sleep(0.01, 'awaited')").result == "'awaited'"
    cell = client.run("import subprocess, sys\nsubprocess.check_output([sys.executable, '-c', 'print(1)'])")
    assert cell.result == "b'1\\n'"


def test_error(client):
    cell = client.run("def inner():\n    1/0\ninner()")
    text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(cell.error["traceback"]))
    assert cell.error["ename"] == "ZeroDivisionError" and "inner()" in text and "1/0" in text
    assert client.run("1+").error["ename"] == "SyntaxError"


def test_completion(client):
    client.run("a_rather_long_name = {'key': 1}")
    found = client.request("complete_request", {"code": "x = a_rather_l", "cursor_pos": 14}, timeout=90).content
    assert found["matches"] == ["a_rather_long_name"] and (found["cursor_start"], found["cursor_end"]) == (4, 14)


def test_inspection(client):
    client.run("def documented(a, b=2):\n    'the words of the docstring'\n    return a")
    asked = {"code": "documented", "cursor_pos": 5, "detail_level": 1}
    found = client.request("inspect_request", asked, timeout=90).content
    text = re.sub(r"\x1b\[[0-9;]*m", "", found["data"]["text/plain"])
    assert found["found"] and "return a" in text


def test_is_complete(client):
    for code, status in (("1", "complete"), ("for i in x:", "incomplete"), ("1 +* 2", "invalid")):
        assert client.request("is_complete_request", {"code": code}).content["status"] == status


def test_input(client):
    cell = client.start("input('Name? ')", allow_stdin=True)
    asked = client.next("stdin")
    assert asked.content == {"prompt": "Name? ", "password": False}
    client.send("input_reply", {"value": "Ada"}, channel="stdin", parent=asked.header)
    assert client.finish(cell).result == "'Ada'"


def test_interrupt(client):
    for code in ("while True: pass", "import time; time.sleep(600)", "import asyncio; await asyncio.sleep(600)"):
        cell = client.start(f"print('running', flush=True)\n{code}")
        client.says(cell, "running")
        client.request("interrupt_request", {}, channel="control")
        assert client.finish(cell).content["ename"] in ("KeyboardInterrupt", "CancelledError"), code


def test_subshell_beside_a_cell(client, gate):
    cell = client.start("print('running', flush=True)\nopen('gate').read()")
    client.says(cell, "running")
    made = client.request("create_subshell_request", {}, channel="control").content["subshell_id"]
    header = client.header("execute_request", subshell_id=made)
    assert client.finish(client.start("6*7", header=header)).result == "42"
    gate()
    assert client.finish(cell).ok


def test_nothing_of_the_host(client):
    assert client.run("import os\nos.path.exists('/etc/shadow'), os.environ['HOME']").result == "(False, '/home/user')"
    assert client.run("open('here', 'w').write('so')").result == "2"
    prefix = client.run("import sys\nprint(sys.prefix)").text().strip()
    client.run(f"open({prefix!r} + '/evil', 'w')")  # read-only, or a layer over it
    assert os.path.isdir(prefix) and not os.path.exists(prefix + "/evil")
