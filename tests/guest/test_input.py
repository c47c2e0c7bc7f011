"""input() and getpass(), and commands that read from a terminal."""

import re

import pytest
from fake_supervisor import Subshell


def test_input(guest):
    asked = []
    result = guest.run("name = input('Name? ')\nprint('hello', name)", on_input=lambda c: asked.append(c) or "wörld")
    assert result.stdout == "hello wörld\n"
    assert asked == [{"prompt": "Name? ", "password": False}]


def test_getpass(guest):
    asked = []
    result = guest.run("import getpass\ngetpass.getpass('Key: ')", on_input=lambda c: asked.append(c) or "secret")
    assert result.result == "'secret'" and asked == [{"prompt": "Key: ", "password": True}]


def test_prompt_need_not_be_text(guest):
    asked = []
    guest.run("input(5); input()", on_input=lambda c: asked.append(c["prompt"]) or "")
    assert asked == ["5", ""]


def test_text_comes_before_the_question(guest):
    result = guest.run("print('before', end='')\ninput('?')\nprint('after')", on_input=lambda c: "x")
    assert [f.kind for f in result.frames[:3]][:2] == ["STREAM", "INPUT_REQUEST"]


@pytest.mark.parametrize("where", ["main", "subshell"])
def test_a_prompt_that_is_too_large_for_a_message(new_guest, where):
    guest = new_guest(env={"CELLBLOCK_MESSAGE_MAX": "100000"}, side=True)
    shell = guest if where == "main" else Subshell(guest)
    for ask in ("input('x' * 100_000)", "import getpass; getpass.getpass('x' * 100_000)"):
        error = shell.run(ask, allow_stdin=True).error
        assert error["ename"] == "ValueError" and "limits.message" in error["evalue"]
    assert shell.run("6*7").result == "42"


def test_names_of_many_tools_count_in_the_size_of_a_question(new_guest):
    guest = new_guest(env={"CELLBLOCK_MESSAGE_MAX": "100000"})
    tools = [{"name": "t%063d" % i, "awaitable": True} for i in range(256)]
    code = "import asyncio\nawait asyncio.gather(*(globals()['t%063d' % i]('x' * 270) for i in range(256)))"
    guest.start(code, metadata={"tools": tools}, allow_stdin=True)
    asked = guest.until("INPUT_REQUEST")[-1]
    assert len(asked.metadata["calls"]) > 200


def test_end_of_file(guest):
    assert guest.run("input()", on_input=lambda c: "\x04").error["ename"] == "EOFError"


def test_not_allowed(guest):
    result = guest.run("input('x')")
    assert result.error["ename"] == "StdinNotImplementedError"
    result = guest.run("import getpass; getpass.getpass()")
    assert result.error["ename"] == "StdinNotImplementedError"


def test_interrupt(guest):
    guest.start("input('x')", allow_stdin=True)
    guest.until("INPUT_REQUEST")
    guest.interrupt()
    result = guest.finish()
    assert result.error["ename"] == "KeyboardInterrupt"
    assert guest.run("input('y')", on_input=lambda c: "fine").result == "'fine'"


def test_late_reply_is_dropped(guest):
    """The answer and the interrupt crossed on their way."""
    request = guest.start("input('x')", allow_stdin=True)
    guest.until("INPUT_REQUEST")
    guest.interrupt()
    assert guest.finish().error["ename"] == "KeyboardInterrupt"
    guest.send("INPUT_REPLY", {"value": "late"}, request=request)
    assert guest.run("input('y')", on_input=lambda c: "fine").result == "'fine'"


@pytest.mark.parametrize("where", ["main", "subshell"])
def test_an_answer_to_another_question(new_guest, where):
    guest = new_guest(side=True)
    shell = guest if where == "main" else Subshell(guest)
    shell.start("input('x')", allow_stdin=True)
    guest.until("INPUT_REQUEST")
    request, wire = (guest.pending, guest.sock) if where == "main" else (shell.request, guest.side)
    for value, question in (("late", {"question": 0}), ("fine", {})):
        about = {"lane": 1, **question}
        guest.send("INPUT_REPLY", {"value": value}, about, request=request, wire=wire)
    assert shell.finish().result == "'fine'"


def test_in_a_thread(guest):
    code = (
        "import threading\ngot = []\n"
        "t = threading.Thread(target=lambda: got.append(input('t?'))); t.start(); t.join()\ngot"
    )
    assert guest.run(code, on_input=lambda c: "yes").result == "['yes']"


def test_thread_that_still_asks_when_the_cell_ends(guest):
    code = (
        "import threading\nasking = threading.Event()\ndef ask():\n    asking.set()\n    try: input('t?')\n"
        "    except EOFError as e: print(e)\nt = threading.Thread(target=ask); t.start(); asking.wait()"
    )
    result = guest.run(code, allow_stdin=True)
    assert result.ok
    assert guest.run("t.join(); 1").result == "1"


def test_in_a_child(guest):
    code = (
        "import os\nif os.fork() == 0:\n    try: input('x')\n    except EOFError: os._exit(7)\n"
        "os.waitstatus_to_exitcode(os.wait()[1])"
    )
    assert guest.run(code, allow_stdin=True).result == "7"


def test_pdb(guest):
    answers = iter(["p 6 * 7", "c"])
    result = guest.run("import pdb\npdb.set_trace()\nprint('on')", on_input=lambda c: next(answers))
    assert "42" in result.stdout and "on" in result.stdout


def test_breakpoint(guest):
    answers = iter(["p 6 * 7", "c"])
    result = guest.run("def f():\n    x = 1\n    breakpoint()\n    return x\nf()", on_input=lambda c: next(answers))
    assert "42" in result.stdout


@pytest.mark.parametrize("first", ["%debug", "breakpoint()", "import IPython.core.debugger, pdb\npdb.set_trace()"])
def test_debugger_whatever_is_imported_first(new_guest, ipython, first):
    guest = new_guest()
    guest.run("1/0")
    result = guest.run(first, on_input=lambda c: "q" if first == "%debug" else "c")
    assert result.ok, result.error
    assert guest.run("import pdb\npdb.Pdb.__name__").result == "'CellPdb'"


def test_interrupt_of_a_debuggers_prompt(guest, ipython):
    """It ends the debugger; pdb's own would ask again."""
    for code in ("breakpoint()", "import pdb; pdb.set_trace()"):
        guest.start(code, allow_stdin=True)
        said = "".join(f.content for f in guest.until("INPUT_REQUEST") if f.kind == "STREAM")
        assert "<module>" in said and "shell.py" not in said
        guest.interrupt()
        assert not guest.finish().of("INPUT_REQUEST")
        assert guest.run("2").result == "2"


def test_debug_magic(guest, ipython):
    guest.run("def bad():\n    inside = 99\n    1/0\nbad()")
    answers = iter(["p inside", "q"])
    result = guest.run("%debug", on_input=lambda c: next(answers))
    assert "99" in result.stdout


@pytest.mark.parametrize(
    "command, shown, hidden",
    [
        ("printf 'name? '; read x; echo hello $$x", "name? hello Ada\n", False),
        ("printf 'key: '; stty -echo; read x; stty echo; echo; echo $$x", "key: \nAda\n", True),
        ("cat", "Ada\n", False),
        ("/usr/bin/python3 -c 'import readline; print(input(\"who? \") * 2)'", "who? Ada\nAdaAda\n", False),
    ],
    ids=["read", "password", "cat", "readline"],
)
def test_command_that_reads(guest, ipython, command, shown, hidden):
    asked = []
    result = guest.run("!" + command, on_input=lambda c: asked.append(c) or ("\x04" if len(asked) > 1 else "Ada"))
    assert asked[0] == {"prompt": "", "password": hidden} and len(asked) == 1 + (command == "cat")
    assert result.ok and re.sub(r"\x1b\[\?2004[lh]\r?", "", result.stdout).replace("\r", "") == shown


SLEEPS = {
    "poll": "subprocess.run(['sleep', '1'], capture_output=True)",
    "select": "select.select([os.pipe()[0]], [], [0], 1)",
}


@pytest.mark.parametrize("wait", sorted(SLEEPS))
@pytest.mark.parametrize("may", [True, False], ids=["may", "may not"])
def test_command_that_waits_for_something_else(guest, ipython, wait, may):
    """Behind a line that is not at its end, as progress bars leave it. Nobody is asked, and nothing is typed."""
    asked = []
    code = "import os, select, subprocess, sys, termios, tty; tty.setcbreak(0); %s; " % SLEEPS[wait]
    code += "print(select.select([0], [], [], 0)[0])"
    result = guest.run("!printf 'x '; /usr/bin/python3 -c \"%s\"" % code, on_input=asked.append, allow_stdin=may)
    assert (asked, result.stdout) == ([], "x []\n")


@pytest.mark.parametrize("call", ["select.select([5, 0], [], [])", "p = select.poll(); p.register(0); p.poll()"])
def test_command_that_waits_for_the_terminal_among_others(guest, ipython, call):
    code = "import os, select; os.dup2(os.pipe()[0], 5); %s; print(input())" % call
    result = guest.run("!printf 'x '; /usr/bin/python3 -c '%s'" % code, on_input=lambda c: "Ada")
    assert result.stdout == "x Ada\n"


def test_command_that_may_not_ask_reads_end_of_file(guest, ipython):
    """In ipykernel it hangs until an interrupt."""
    result = guest.run("!read x; echo status $?; cat; echo end")
    assert result.stdout == "status 1\nend\n"


def test_interrupt_of_a_command_that_waits(guest, ipython):
    guest.start("!read x; echo not reached", allow_stdin=True)
    guest.until("INPUT_REQUEST")
    guest.interrupt()
    result = guest.finish()
    assert result.error["ename"] == "KeyboardInterrupt" and "not reached" not in result.stdout
    assert guest.run("!echo on").stdout == "on\n"
