"""input() and getpass over stdin."""

import ast

import pytest
from kernels import CROSSED

pytestmark = pytest.mark.once


def answer(client, value, **how):
    asked = client.wait("stdin", lambda m: m.type == "input_request")
    client.send("input_reply", {"value": value}, channel="stdin", parent=asked.header, **how)
    return asked


def test_input(client):
    cell = client.start("x = input('name? ')\nx", allow_stdin=True)
    asked = answer(client, "Zoë 😀")
    assert asked.content == {"prompt": "name? ", "password": False} and asked.parent_id == cell
    assert client.finish(cell).result == "'Zoë 😀'"


def test_prompt_by_name(client):
    """Python's own takes it by place alone; notebooks are used to more."""
    cell = client.start("input(prompt='name? ')", allow_stdin=True)
    assert answer(client, "Ada").content["prompt"] == "name? " and client.finish(cell).result == "'Ada'"


def test_password(client):
    cell = client.start("import getpass\ngetpass.getpass('pw: ')", allow_stdin=True)
    asked = answer(client, "secret")
    assert asked.content == {"prompt": "pw: ", "password": True}
    done = client.finish(cell)
    assert done.result == "'secret'" and "secret" not in done.text()


def test_text_before_the_prompt_comes_first(client):
    cell = client.start("print('first')\ninput('p')", allow_stdin=True)
    client.says(cell, "first\n")
    answer(client, "")
    assert client.finish(cell).ok


def test_several_in_a_row(client):
    cell = client.start("[input(str(i)) for i in range(20)]", allow_stdin=True)
    for i in range(20):
        assert answer(client, f"a{i}").content["prompt"] == str(i)
    assert ast.literal_eval(client.finish(cell).result) == [f"a{i}" for i in range(20)]


@pytest.mark.parametrize("allowed", [{"allow_stdin": False}])
def test_not_allowed(client, allowed):
    for code in ("input()", "import getpass; getpass.getpass()"):
        cell = client.run(code, **allowed)
        assert cell.content["ename"] == "StdinNotImplementedError"
    assert not client.inbox["stdin"]


def test_end_of_file(client):
    cell = client.start("input()", allow_stdin=True)
    answer(client, "\x04")
    assert client.finish(cell).content["ename"] == "EOFError"


def test_an_interrupt_ends_the_wait_and_the_next_input_works(client):
    cell = client.start("input('first')", allow_stdin=True)
    client.wait("stdin")
    assert client.request("interrupt_request", channel="control").content["status"] == "ok"
    assert client.finish(cell).content["ename"] == "KeyboardInterrupt"
    cell = client.start("input('second')", allow_stdin=True)
    assert answer(client, "2").content["prompt"] == "second"
    assert client.finish(cell).result == "'2'"


@pytest.mark.parametrize("error", ["TimeoutError", "KeyboardInterrupt"])
def test_a_question_that_a_signals_handler_ends(client, gate, error):
    """What people write who want input() with a time limit, which is over here once the question was asked."""
    cell = client.start(
        f"import signal, threading\ndef late(*_): raise {error}('late')\nsignal.signal(signal.SIGALRM, late)\n"
        "def end(): open('gate').read(); signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)\n"
        "threading.Thread(target=end).start()\n"
        f"try: input('a')\nexcept {error} as e: print(e)\ninput('b')",
        allow_stdin=True,
    )
    assert client.wait("stdin").content["prompt"] == "a"
    gate()
    answer(client, "x")
    done = client.finish(cell)
    assert done.result == "'x'" and "late" in done.text()


@pytest.mark.cellblock_only
@pytest.mark.parametrize("signal, error", [("SIGINT", "KeyboardInterrupt"), ("SIGALRM", "TimeoutError")])
def test_an_answer_that_crosses_a_signal_is_none_to_the_next_question(client, signal, error):
    code = CROSSED % signal + f"try: input('a')\nexcept {error}: pass\ninput('b'), input('c')"
    cell = client.start(code, allow_stdin=True)
    for prompt in "abc":
        assert answer(client, prompt.upper()).content["prompt"] == prompt
    assert client.finish(cell).result == "('B', 'C')"


@pytest.mark.cellblock_only("ipykernel's question is lost, and the cell waits for ever")
@pytest.mark.parametrize("code", ["input('?')", "await asyncio.to_thread(input, '?')"])
def test_a_client_whose_stdin_comes_later_is_asked(shared, kernel, code):
    """ZeroMQ may connect one of a new client's sockets later than the others."""
    with shared.client(kernel, channels=("shell", "control", "iopub", "hb")) as late:
        late.ready()
        cell = late.start(f"import asyncio\nprint('up', flush=True)\n{code}", allow_stdin=True)
        late.says(cell, "up\n")
        late.open("stdin")
        assert answer(late, "here").content["prompt"] == "?"
        assert late.finish(cell).result == "'here'"


def test_a_stale_answer_is_not_taken(client):
    client.send("input_reply", {"value": "stale"}, channel="stdin")
    client.request("kernel_info_request", channel="control")
    cell = client.start("input()", allow_stdin=True)
    answer(client, "fresh")
    assert client.finish(cell).result == "'fresh'"


@pytest.mark.cellblock_only("ipykernel takes any answer")
def test_the_answer_of_a_stranger_is_not_taken(client, shared):
    other = shared.client(client.kernel)
    cell = client.start("input()", allow_stdin=True)
    asked = client.wait("stdin")
    other.send("input_reply", {"value": "stranger"}, channel="stdin", parent=asked.header)
    other.request("kernel_info_request", channel="control")
    client.send("input_reply", {"value": "mine"}, channel="stdin", parent=asked.header)
    assert client.finish(cell).result == "'mine'"


def test_the_question_goes_to_the_client_that_asked(client, shared):
    other = shared.client(client.kernel)
    other.ready()
    cell = client.start("input('mine')", allow_stdin=True)
    answer(client, "x")
    client.finish(cell)
    assert not other.inbox["stdin"] and not other.sockets["stdin"].poll(0)


@pytest.mark.cellblock_only("ipykernel answers malformed contents with silence")
@pytest.mark.parametrize("content", [{}, {"value": 5}, {"value": None}, b"{", b"[]"], ids=str)
def test_a_malformed_answer_does_not_hang_the_cell_for_good(client, content):
    cell = client.start("input()", allow_stdin=True)
    asked = client.wait("stdin")
    client.send("input_reply", content, channel="stdin", parent=asked.header)
    client.request("kernel_info_request", channel="control")
    client.send("input_reply", {"value": "good"}, channel="stdin", parent=asked.header)
    done = client.finish(cell)
    assert done.result == "'good'" or done.content["status"] == "error"
    assert client.run("1").ok


@pytest.mark.cellblock_only("what no JSON of ours may carry")
def test_an_answer_that_is_refused_ends_the_question(client):
    cell = client.start("input()", allow_stdin=True)
    asked = client.wait("stdin")
    client.send("input_reply", b'{"value": "\\ud800"}', channel="stdin", parent=asked.header)
    done = client.finish(cell)
    assert done.content["ename"] == "EOFError" and "answer" in done.text("stderr"), done


def test_pdb(client):
    cell = client.start("import pdb\nlocal = 5\npdb.set_trace()\n'done'", allow_stdin=True)
    answer(client, "p local + 1")
    answer(client, "c")
    done = client.finish(cell)
    assert done.ok and "6" in done.text()


@pytest.mark.cellblock_only
def test_a_prompt_over_limits_message(start):
    c = start(args=["--set", "limits.message=1M"]).client
    cell = c.run("kept = 1\ninput('x' * 2_000_000)", allow_stdin=True)
    assert cell.error["ename"] == "ValueError" and "limits.message" in cell.error["evalue"]
    assert c.run("kept").result == "1"


def test_a_command_that_waits_for_its_terminal_among_others(client):
    """What it waits for stands in its memory, which the guest reads."""
    wait = "import os, select; select.select([os.pipe()[0], 0], [], []); print(input())"
    cell = client.start(f"!printf 'name? '; python3 -c '{wait}'", allow_stdin=True)
    answer(client, "Ada")
    assert client.finish(cell).text().replace("\r", "") == "name? Ada\n"


def test_a_command_that_waits_for_something_else_asks_nobody(client):
    wait = "import subprocess; subprocess.run(['sleep', '0.5'], capture_output=True)"
    done = client.run(f"!printf 'x '; python3 -c \"{wait}\"; echo done", allow_stdin=True)
    assert done.ok and done.text() == "x done\n" and not client.inbox["stdin"]
