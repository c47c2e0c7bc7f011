"""cellblock.smolagents: the executor's interface, tools and managed agents on this side, and whole runs of an agent."""

import asyncio
import datetime
import decimal
import itertools
import json
import os
import pathlib
import re
import signal
import threading

import pytest

smolagents = pytest.importorskip("smolagents", reason="smolagents needs Python 3.11 here")

import kernels  # noqa: E402
import pages  # noqa: E402
from agentscripts import Scripted  # noqa: E402
import cellblock.smolagents as ours  # noqa: E402
from cellblock import ErrorInfo, Result, SandboxError, _carry  # noqa: E402
from cellblock._adapters import ANEW  # noqa: E402
from cellblock._tools import Dispatcher, Limits  # noqa: E402
from cellblock.smolagents import (  # noqa: E402
    CellblockCodeAgent, CellblockExecutor, ExecutionError, _failure, _pictures, code_agent,
)
from smolagents import CodeAgent, FinalAnswerTool, Tool, ToolCallingAgent, tool  # noqa: E402
from smolagents.models import MODEL_REGISTRY, ChatMessage  # noqa: E402

pytestmark = pytest.mark.once
SECRET = "key-of-the-tool-4711"


@pytest.fixture
def executor(nothing_left):
    made = []

    def make(*args, **how):
        folder = nothing_left / f"agent{len(made)}"
        kernels.let_in(folder)
        made.append(CellblockExecutor(*args, **{"workspace": folder, **how}))
        return made[-1]

    yield make
    for one in made:
        one.cleanup()


@tool
def add(a: int, b: int = 2) -> int:
    """Adds.

    Args:
        a: first
        b: second
    """
    assert SECRET
    return a + b


def ready(executor, *tools, **variables):
    executor.send_variables(variables=variables)
    executor.send_tools({t.name: t for t in (*tools, FinalAnswerTool())})
    return executor


def said(executor, code):
    with pytest.raises(ExecutionError) as caught:
        executor(code)
    return str(caught.value)


# the interface


def test_a_step(executor):
    ex = ready(executor())
    done = ex("print('seen')\nx = 41\nx + 1")
    assert (done.output, done.logs, done.is_final_answer) == (42, "seen\n", False)
    assert ex("x").output == 41 and ex.state["_print_outputs"] == ""
    assert ex("(1, [2])").output == "(1, [2])" and ex("[1, {'a': 2}]").output == [1, {"a": 2}]
    assert ex("None").output is None and ex("print").output == "<function print(*args, sep=' ', end='\\n', "\
        "file=None, flush=False)>"


def test_an_error_keeps_what_was_printed(executor):
    ex = ready(executor())
    assert said(ex, "print('before')\ny = 7\n1 / 0") == (
        "Code execution failed at line '1 / 0' due to: ZeroDivisionError: division by zero"
    )
    assert ex.state["_print_outputs"] == "before\n" and ex("y").output == 7
    assert len(ex("print('x' * 200_000)").logs) < 51_000


def test_a_terminal_obeys_nothing_that_a_step_shows(executor):
    ex = ready(executor(["sys"]))
    evil = "\x1b]52;c;aGk=\x07\x1b[2Jshown\x9b31m"
    code = f"import sys\nprint({evil!r})\nprint({evil!r}, file=sys.stderr)\n{evil!r}"
    done = ex(code)
    assert (done.output, done.logs, ex.state["_print_outputs"]) == ("shown", "shown\nshown\n", "shown\nshown\n")
    assert ex(f"class X:\n    def __repr__(self): return {evil!r}\nX()").output == "shown"
    assert said(ex, f"{code}\nraise ValueError({evil!r})").endswith("ValueError: shown")
    assert ex.state["_print_outputs"] == "shown\nshown\n"
    assert ex(f"final_answer({evil!r})").output == evil  # data for the program


def test_hard_faults_cost_nothing(executor):
    for limit in (5, 30):  # on a busy machine the good ones may take as long
        ex = ready(executor(["os", "ctypes"], timeout=limit), add)
        try:
            ex("x = [1]")
            assert "KernelDiedError" in said(ex, "import os\nos._exit(3)")
            assert "CellTimeoutError" in said(ex, "while True: pass")
            assert ex("x + [add(1)]").output == [1, 3]
            break
        except ExecutionError as e:
            if limit == 30 or "CellTimeoutError" not in str(e):
                raise
    with pytest.raises(ValueError):
        CellblockExecutor(fresh="always")
    with pytest.raises(ValueError, match="tools can't be given"):
        CellblockExecutor(tools=[])


def test_imports(executor):
    ex = ready(executor(["xml.etree.*"]))
    assert ex("import math, xml.etree.ElementTree as E, time\ntime.strptime('2', '%d').tm_mday").output == 2
    words = said(ex, "import os")
    assert "Import of os is not allowed. Authorized imports are: [" in words and "'xml.etree.*'" in words
    with pytest.raises(ExecutionError, match="no_such_module_x"):
        ready(executor(["no_such_module_x.*"]))
    assert ready(executor(["*"]))("import os\nos.getcwd() and 1").output == 1


VALUES = [
    0, -1, 10**30, 1.5, float("inf"), True, None, "text \u00e4 \n", [1, [2]], {"a": {"b": None}}, {1: 2, (3, 4): "x"},
    (1, 2), {1, 2}, frozenset({"a"}), b"\x00\xff", 1 + 2j, datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
    datetime.date(2026, 1, 2), datetime.time(1, 2), datetime.timedelta(days=-1, seconds=5), decimal.Decimal("1.10"),
    pathlib.PurePosixPath("/a/b"), {"__cellblock__": "image", "v": 5},
]


def test_values_go_in_and_come_out(executor):
    ex = ready(executor(), **{f"x{n}": value for n, value in enumerate(VALUES)})
    for n, value in enumerate(VALUES):
        done = ex(f"print(repr(x{n}))\nfinal_answer(x{n})")
        assert done.is_final_answer and done.output == value and type(done.output) is type(value), value
        assert done.logs == repr(value) + "\n"


def test_arrays_and_pictures_go_in_and_come_out(executor):
    numpy, image = pytest.importorskip("numpy"), pytest.importorskip("PIL.Image")
    picture = image.new("RGB", (3, 2), (9, 8, 7))
    ex = ready(executor(), a=numpy.arange(6.0).reshape(2, 3), p=picture)
    out = ex("final_answer({'a': a * 2, 'p': p, 'size': p.size, 'n': a[0][1], 0: 1})").output
    assert (out["a"] == numpy.arange(6.0).reshape(2, 3) * 2).all() and out["size"] == (3, 2)
    assert out["n"] == 1.0 and out["p"].getpixel((2, 1)) == (9, 8, 7)
    assert ex("final_answer(p)").output.size == (3, 2)


def test_what_cannot_be_carried_is_named(executor):
    ex = executor()
    with pytest.raises(TypeError, match="the variable 'lock' can't be sent into the sandbox: a object"):
        ex.send_variables(variables={"x": 1, "lock": object()})
    ready(ex)
    assert "NameError" in said(ex, "x")
    assert "a object can't leave the sandbox" in said(ex, "final_answer(object())")
    assert ex("final_answer(1)").output == 1


# tools


def test_tools_run_here(executor):
    ex = ready(executor(), add)
    assert ex("add(1), add(a=1, b=5), add(2, 3)").output == "(3, 6, 5)"
    for code, words in {
        "add('a')": "ValueError: arguments of add: argument a is a str, and must be: integer",
        "add(True)": "argument a is a bool",
        "add(1, 2, 3)": "takes 2 arguments, not 3",
        "add(1, a=2)": "multiple values for argument 'a'",
        "add(c=1)": "unexpected keyword argument 'c'",
        "add()": "missing a required argument: 'a'",
    }.items():
        assert words in said(ex, code) and "host_" not in said(ex, code), code
    assert SECRET not in ex("print(add.__doc__, vars(), add.__code__.co_consts)").logs


class Draw(Tool):
    name, description, output_type = "draw", "Draws.", "image"
    inputs = {"picture": {"type": "image", "description": "what to turn"}}

    def forward(self, picture):
        return picture.rotate(90, expand=True)


class Odd(Tool):
    name, description, output_type, inputs = "odd", "Gives an object.", "object", {}

    def forward(self):
        return {"when": datetime.date(2026, 1, 2), "what": self.what}


@pytest.mark.parametrize("watched", [True, False])
def test_a_tool_that_is_assigned_to_is_the_tool_again(executor, monkeypatch, watched):
    """Also in a Python without IPython, which has no events of cells."""
    if not watched:
        monkeypatch.setattr(ours, "INSIDE", ours.INSIDE.replace('"get_ipython"', '"no_such_name"'))
    ex = ready(executor(), add)
    words = "Cannot assign to name '{}': doing this would erase the existing tool!"
    for code in ("final_answer = add(1)", "add = add('a')", "def add(a): return 'mine'", "del add",
                 "global add\nadd = 7\n1 / 0", "from math import pow as add"):
        try:
            logs = ex(code).logs
        except ExecutionError:
            logs = ex.state["_print_outputs"]
        logs += ex("1").logs
        name = "final_answer" if "final_answer" in code else "add"
        assert logs.count(words.format(name)) == ("'a'" not in code) and logs.count("Cannot") == logs.count("\n"), code
        assert ex("add(1)").output == 3 and ex("print(5)").logs == "5\n", code
    assert ex("final_answer(1)").is_final_answer
    ready(ex, add, add=5)  # what the user gives is what counts, as with smolagents' own executor
    assert ex("add").output == 5 and ex("add").logs == ""


def raw(city: str, days: int = 0) -> str:
    return f"{city} {days}"


class Raw(Tool):
    """As adapters of MCP make them: arguments as JSON schema has them, and a function that takes any."""

    name, description, output_type = "search", "Searches.", "string"
    skip_forward_signature_validation = True

    def __init__(self):
        self.inputs = {
            "city": {"type": "string", "description": "where"},
            "days": {"type": "string", "description": "how many", "anyOf": [{"type": "integer"}, {"type": "null"}]},
        }
        self.is_initialized = True

    def forward(self, *args, **kwargs):
        return raw(*args, **kwargs)


def test_tools_that_say_themselves_what_they_lack(executor):
    ex = ready(executor(), Raw(), add)
    local = smolagents.LocalPythonExecutor([])
    local.send_tools({"search": Raw(), "add": add})
    for code in ("search(city='Oslo')", "search('Oslo')", "search('Oslo', 3)", "search(city='Oslo', days=4)",
                 "search({'city': 'Oslo'})", "search({'city': 'Oslo', 'days': 2})", "add({'a': 1})"):
        assert ex(code).output == local(code).output, code
    assert "missing 1 required positional argument: 'city'" in said(ex, "search()")
    for code in ("add({})", "add({'other': 1})"):
        assert "argument a is a dict" in said(ex, code)
    assert "unexpected keyword argument 'other'" in said(ex, "search(city='Oslo', other=1)")
    assert ex("final_answer({'answer': 4})").output == 4 and ex("final_answer({})").output == {}


def test_a_tool_of_langchain(executor):
    made = pytest.importorskip("langchain_core.tools").StructuredTool.from_function(
        raw, name="search", description="Searches.")
    ex = ready(executor(), Tool.from_langchain(made))
    assert ex("search(city='Oslo')").output == "Oslo 0" == ex("search({'city': 'Oslo'})").output
    assert "city" in said(ex, "search()") and "NameError" not in said(ex, "search()")


def test_pictures_and_objects_of_tools(executor):
    image = pytest.importorskip("PIL.Image")
    odd = Odd()
    odd.what = {1, 2}
    ex = ready(executor(), Draw(), odd, p=image.new("RGB", (3, 2)))
    assert ex("draw(p).size").output == "(2, 3)"
    assert ex("odd()['what'] == {1, 2}").output is True
    odd.what = object()
    assert "the tool odd returned what the jailed code can't have: a object" in said(ex, "odd()")


def test_other_tools_in_the_next_run(executor):
    ex = ready(executor(), add)
    assert ex("kept = add(1)").output is None
    ready(ex, Odd())
    assert "NameError: name 'add' is not defined" in said(ex, "add(1)")
    assert ex("kept").output == 3


def test_approve_limits_and_final_answers_of_ones_own(executor):
    asked = []

    def ask(call):
        asked.append(str(call))
        return call.raw["a"] < 5

    class Checked(FinalAnswerTool):
        def forward(self, answer):
            if answer != "good":
                raise ValueError("that is no good answer")
            return answer.upper()

    ex = executor(approve=ask, max_calls=2)
    ex.send_variables(variables={})
    ex.send_tools({"add": add, "final_answer": Checked()})
    assert ex("add(1)").output == 3 and asked == ["add(a=1)"]
    assert "ToolRefusedError" in said(ex, "add(7)")
    assert "ToolLimitError" in said(ex, "add(1); add(2); add(3)")
    assert "that is no good answer" in said(ex, "final_answer('bad')")
    done = ex("try:\n    final_answer('good')\nexcept Exception:\n    pass\nprint('went on')")
    assert done.is_final_answer and done.output == "GOOD" and done.logs == ""


def test_forged_values_are_refused(executor):
    """The host's side of a tool is called as no function of ours would."""
    ex = ready(executor(), Draw(), add)
    for code in (
        "host_draw([{'__cellblock__': 'image', 'v': 'AAAA'}], {})",
        "host_draw([{'__cellblock__': 'pickle', 'v': 'AAAA'}], {})",
        "host_draw([{'__cellblock__': ['x']}], {})",
        "host_draw([{'__cellblock__': 'array', 'dtype': '|O', 'shape': [1], 'v': 'AAAAAAAAAAA='}], {})",
        "host_draw([{'__cellblock__': 'decimal', 'v': [1, 2]}], {})",
        "host_draw([{'__cellblock__': 'timedelta', 'v': 1e300}], {})",
        "host_draw([{'__cellblock__': 'set', 'v': [[1]]}], {})",
        "host_draw(1, 2)",
        "host_draw([], {}, x=1)",
        "host_add([1], {'self': 2})",
    ):
        assert re.search("HostToolError: (Value|Type)Error", said(ex, code)), code
    assert ex("add(1)").output == 3


def test_pictures_are_decoded_in_the_tools_thread_once_the_call_may_happen(executor, monkeypatch):
    image = pytest.importorskip("PIL.Image")
    threads, unpack = [], ours.unpack

    def watched(value, room):
        threads.append(threading.current_thread().name)
        return unpack(value, room)

    monkeypatch.setattr(ours, "unpack", watched)
    ex = ready(executor(max_calls=2, approve=lambda call: len(call.raw["picture"]["v"]) > 10), Draw(),
               p=image.new("RGB", (3, 2)))
    assert ex("draw(p).size").output == "(2, 3)" and threads == ["cellblock-tool"]
    assert "argument picture" not in said(ex, "host_draw([{'__cellblock__': 'image', 'v': 'AAAA'}], {})")
    assert len(threads) == 1
    assert "ToolLimitError" in said(ex, "draw(p); draw(p); draw(p)") and len(threads) == 3
    bad = "{'__cellblock__': 'image', 'v': 'AAAAAAAAAAAAAAAA'}"
    assert "ValueError: arguments of draw: a value that says" in said(ex, f"host_draw([{bad}], {{}})")
    assert not [call["completed"] for call in ex.last.calls if call["completed"]]


def test_pictures_of_calls_that_run_at_once_share_their_pixels(monkeypatch):
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(_carry, "PIXELS", 10)
    held, gate = threading.Event(), threading.Event()

    class Hold(Draw):
        name = "hold"

        def forward(self, picture):
            held.set()
            gate.wait(60)
            return picture

    pixels = ours._Pixels()
    dispatcher = Dispatcher([ours._AgentTool(t.name, t, Limits(), list, pixels) for t in (Hold(), Draw())])
    picture, ids = _carry.pack(image.new("RGB", (3, 2))), itertools.count()

    async def answer(name):
        call = {"id": str(next(ids)), "tool": f"host_{name}", "args": [[picture], {}]}
        return (await dispatcher.answer([call]))[0]

    async def work():
        assert "ok" in await answer("draw") and "ok" in await answer("draw")  # one after the other: each has all
        holding = asyncio.ensure_future(answer("hold"))
        await asyncio.to_thread(held.wait, 60)
        refused = await answer("draw")
        assert refused["error"]["message"].startswith("arguments of draw: pictures may have 10 pixels in all")
        assert refused["completed"] is False
        gate.set()
        assert "ok" in await holding and "ok" in await answer("draw")

    try:
        asyncio.run(work())
    finally:
        dispatcher.close()


def test_the_first_of_many_final_answers_counts_and_no_other_is_kept(executor):
    ex = ready(executor())
    code = "for n in range(50):\n    try:\n        final_answer(n)\n    except BaseException:\n        pass"
    assert ex(code).output == 0 and ex._final == [0]


def test_a_final_answer_that_comes_late_is_not_the_next_steps(executor):
    gate, given = threading.Event(), threading.Event()

    class Slow(FinalAnswerTool):
        def forward(self, answer):
            ex.sandbox.write_file("began", "")
            gate.wait(60)
            return answer

    class Open(Tool):
        name, description, inputs, output_type = "open_gate", "Lets the answer end.", {}, "boolean"

        def forward(self):
            gate.set()
            going = ex.sandbox._a._dispatcher._going
            while len(going) > 1:  # this call alone is left
                given.wait(0.01)
            return True

    ex = executor(["threading"])
    ex.send_variables(variables={})
    ex.send_tools({"final_answer": Slow(), "open_gate": Open()})
    code = "import threading, time\nthreading.Thread(target=final_answer, args=(1,), daemon=True).start()\n"
    code += "while True:\n    try:\n        open('began')\n        break\n"
    code += "    except FileNotFoundError:\n        time.sleep(0.01)"
    assert not ex(code).is_final_answer
    done = ex("open_gate()\n2 + 3")
    assert not done.is_final_answer and done.output == 5


def test_pictures_of_a_step_share_their_pixels(monkeypatch):
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(_carry, "PIXELS", 10)
    shown = [{"image/png": _carry.pack(image.new("RGB", size))["v"]} for size in ((3, 2), (3, 2), (2, 2))]
    assert [p.size for p in _pictures(Result(displays=shown))] == [(3, 2), (2, 2)]


# how long state lives


def test_fresh(executor):
    ex = ready(executor(fresh="step"), add, given=5)
    assert ex("x = add(given)\nopen('/tmp/f', 'w').write('a')").output == 1
    assert "NameError" in said(ex, "x") and ex("add(given)").output == 7
    ex = ready(executor(fresh="run"), add, given=5)
    ex("x = 1\nopen('/tmp/f', 'w').write('a')")
    assert ex("x").output == 1
    ready(ex, add, given=6)
    assert "NameError" in said(ex, "x") and "FileNotFoundError" in said(ex, "open('/tmp/f')")
    assert ex("add(given)").output == 8


def test_a_step_leaves_no_other_state_in_the_place_of_the_clean_one(executor):
    ex = ready(executor(fresh="step"), add, given=5)
    ex("x = 1\n%checkpoint cellblock-clean")
    assert "NameError" in said(ex, "x") and ex.state["_print_outputs"] == ANEW
    assert ex("add(given)").output == 7 and ex.state["_print_outputs"] == ""
    ex.sandbox.delete_checkpoint("cellblock-clean")  # as where memory ran out, and it could not be copied
    assert ex("x = add(given)\nx").output == 7 and ex.state["_print_outputs"] == ANEW
    assert "NameError" in said(ex, "x") and ex.state["_print_outputs"] == ""


def test_a_step_that_goes_back_to_before_the_tools_does_not_lose_them(executor):
    ex = executor(policy={"warm.mode": "off"})
    ex.sandbox.checkpoint("bare")
    ready(ex, add, given=5)
    assert ex("kept = 1\nadd(given)").output == 7
    ex("%rollback bare")
    assert set(ex.last.undone) - {ex.last.execution_count}
    assert ex("add(given)").output == 7 and "NameError" in said(ex, "kept")


@pytest.mark.parametrize("number", ["9" * 5000, "12"])
def test_a_line_that_is_not_there_is_not_shown(number):
    failed = Result(error=ErrorInfo("E", "e", f'File "<cell>", line {number}'))
    assert _failure("x = 1", failed) == "E: e"


def test_reset_and_cleanup(executor):
    ex = ready(executor(), add, given=5)
    ex("x = 1")
    ex.reset()
    assert "NameError" in said(ex, "x") and ex("add(given)").output == 7
    pid = ex.sandbox.kernel.pid
    ex.cleanup()
    assert not pathlib.Path(f"/proc/{pid}").exists()
    assert ex("add(given)").output == 7 and ex.sandbox.kernel.pid != pid


# whole agents


def test_the_step_after_the_kernels_death_says_what_is_gone(executor):
    ex = executor()
    ex.send_tools({})
    ex("x = 1")
    os.kill(ex.sandbox.kernel.pid, signal.SIGKILL)
    with pytest.raises(SandboxError, match="killed by SIGKILL"):
        ex("x")
    with pytest.raises(ExecutionError, match="NameError"):
        ex("print('on')\nx")
    assert ex.state["_print_outputs"] == ANEW + "on\n"
    assert ex("print('two')").logs == "two\n"


def killed(ex):
    os.kill(ex.sandbox.kernel.pid, signal.SIGKILL)
    return ex


def test_a_kernel_that_dies_between_two_steps_is_replaced(executor):
    """Whoever meets it first: the tools of the agent's next run, or a step that does something before its code."""
    ex = ready(executor(), given=5)
    ready(killed(ex), add)  # the next run
    assert ex("add(given)").output == 7 and ex.state["_print_outputs"] == ANEW
    with pytest.raises(SandboxError, match="killed by SIGKILL"):
        killed(ex)("1")
    ready(ex, Odd(), given=6)
    assert "NameError: name 'add' is not defined" in said(ex, "add(given)") and ex("given").output == 6
    ex = ready(executor(fresh="step"), add, given=5)
    with pytest.raises(SandboxError, match="killed by SIGKILL"):
        killed(ex)("add(given)")
    assert ex("add(given)").output == 7
    ex.reset()
    os.kill(ex._sandbox.kernel.pid, signal.SIGKILL)  # before it is made ready
    with pytest.raises(SandboxError, match="killed by SIGKILL"):
        ex("add(given)")
    assert ex("add(given)").output == 7


def test_an_agent(nothing_left):
    kernels.let_in(nothing_left / "w")
    model = Scripted("import os", "print('hits', add(1))\nkept = 5", "final_answer(add(kept, extra))")
    with code_agent([add], model, executor={"workspace": nothing_left / "w"}, verbosity_level=0) as agent:
        assert agent.run("do it", additional_args={"extra": 10}) == 15
    heard = [str(messages[-1].content) for messages in model.heard]
    assert "Import of os is not allowed" in heard[1] and "hits 3" in heard[2]
    assert str(agent.python_executor.authorized_imports) in model.heard[0][0].content[0]["text"]


def test_a_managed_agent_and_its_tools(nothing_left):
    for name in "ab":
        kernels.let_in(nothing_left / name)
    inner = code_agent(
        [add], Scripted("final_answer({'short': add(1), 'task': task_seen})".replace("task_seen", "'inner'")),
        executor={"workspace": nothing_left / "a"}, name="worker", description="works", verbosity_level=0,
    )
    outer = code_agent(
        [], Scripted("r = worker('count', additional_args={'k': [1]})\nprint(r)\nfinal_answer(r)"),
        executor={"workspace": nothing_left / "b"}, managed_agents=[inner], verbosity_level=0,
    )
    with inner, outer:
        assert "'short': 3" in outer.run("delegate")


def test_a_managed_agent_takes_what_it_declares(nothing_left):
    for name in "ab":
        kernels.let_in(nothing_left / name)
    inner = code_agent([], Scripted("final_answer(1)"), executor={"workspace": nothing_left / "a"}, name="worker",
                       description="works", verbosity_level=0, max_steps=2)
    model = Scripted("worker('count', max_steps=10**6)", "worker(task='count', reset=False)",
                     "final_answer(worker(task='count', additional_args={'k': 1}))")
    outer = code_agent([], model, executor={"workspace": nothing_left / "b"}, managed_agents=[inner], verbosity_level=0)
    with inner, outer:
        assert "1" in outer.run("delegate")
    heard = [str(messages[-1].content) for messages in model.heard]
    assert "unexpected keyword argument 'max_steps'" in heard[1]
    assert "unexpected keyword argument 'reset'" in heard[2]


def test_an_executor_of_manager_and_managed_agent_is_refused_at_once(executor):
    shared = executor(policy={"timeout.wait": 60})
    inner = code_agent([], Scripted("final_answer(1)"), executor=shared, name="worker", description="works",
                       verbosity_level=0)
    model = Scripted("kept = 1\nworker('count')", "final_answer(add(kept))")
    outer = code_agent([add], model, executor=shared, managed_agents=[inner], verbosity_level=0)
    assert outer.run("delegate") == 3
    assert "ToolError: this executor runs the step that has called" in str(model.heard[1][-1].content)


def test_pictures_for_the_model(nothing_left):
    pytest.importorskip("matplotlib")
    kernels.let_in(nothing_left / "w")
    model = Scripted("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()", "final_answer('seen')")
    agent = code_agent(
        [], model, additional_authorized_imports=["matplotlib.*"], executor={"workspace": nothing_left / "w"},
        verbosity_level=0,
    )
    with agent:
        assert agent.run("draw") == "seen"
    step = agent.memory.steps[1]
    assert len(step.observations_images) == 1 and step.observations_images[0].width > 100
    assert any(part.get("type") == "image" for message in model.heard[1] for part in message.content)


class Silent(Scripted):
    """Where a step's code is None it writes none."""

    def generate(self, messages, **how):
        said = super().generate(messages, **how)
        return ChatMessage(role="assistant", content="What now?") if "\nNone\n" in said.content else said


def test_a_picture_is_of_one_step(nothing_left):
    """Steps that ran no code have none: one that could not be read, the one after the last, the next run's first."""
    image = pytest.importorskip("PIL.Image")
    kernels.let_in(nothing_left / "w")
    show = f"class Shown:\n    def _repr_png_(self): return {_carry.pack(image.new('RGB', (3, 2)))['v']!r}\nShown()"
    model = Silent(show, None, show, None, None, "1", "final_answer(1)")
    with code_agent([], model, executor={"workspace": nothing_left / "w"}, verbosity_level=0, max_steps=3) as agent:
        agent.run("draw")
        assert [len(step.observations_images or []) for step in agent.memory.steps[1:]] == [1, 0, 1, 0]
        assert len(agent.python_executor.images) == 1
        agent.run("go on")
        assert not any(step.observations_images for step in agent.memory.steps[1:])


def test_a_saved_agent_is_never_loaded_without_its_jail(nothing_left, monkeypatch):
    kernels.let_in(nothing_left / "w")
    monkeypatch.setitem(MODEL_REGISTRY, "Scripted", Scripted)
    agent = code_agent(
        [], Scripted("final_answer(open('/proc/self/comm').read())"), additional_authorized_imports=["json"],
        executor={"workspace": str(nothing_left / "w"), "memory": "300M"},
    )
    saved = agent.to_dict()
    assert saved["executor_type"] == "cellblock"
    with pytest.raises(ValueError, match="Unsupported executor type: cellblock"):
        CodeAgent.from_dict(saved)
    with CellblockCodeAgent.from_dict(saved) as again:
        assert isinstance(again.python_executor, CellblockExecutor)
        assert again.python_executor.sandbox.usage()["limits"]["memory"] == 300 << 20
        assert "json" in again.authorized_imports and again.executor_kwargs == saved["executor_kwargs"]
    plain = CodeAgent([], Scripted(), executor=CellblockExecutor())
    assert plain.to_dict()["executor_type"] == "local"  # smolagents' own; what the docs warn of
    with pytest.raises(ValueError, match="would run unjailed"):
        CellblockCodeAgent.from_dict(plain.to_dict())


def test_a_saved_agent_has_all_of_its_executor(nothing_left, monkeypatch):
    kernels.let_in(nothing_left / "w")
    monkeypatch.setitem(MODEL_REGISTRY, "Scripted", Scripted)
    how = {"base": "notebook", "workspace": nothing_left / "w", "max_calls": 3, "timeout": None, "fresh": "run",
           "policy": {"limits.pids": 50}}
    for executor in (CellblockExecutor(**how), how):
        saved = json.loads(json.dumps(code_agent([], Scripted(), executor=executor).to_dict()))
        again = CellblockCodeAgent.from_dict(saved)
        assert again.python_executor._limits.max_calls == 3 and again.python_executor.fresh == "run"
        assert again.python_executor.keywords == {**how, "workspace": str(nothing_left / "w")}
        assert again.executor_kwargs == saved["executor_kwargs"]
    asks = CellblockExecutor(approve=lambda call: True, on_input=lambda *asked: "")
    saved = json.loads(json.dumps(code_agent([], Scripted(), executor=asks).to_dict()))
    for none in ({}, {"executor": None}):
        with pytest.raises(ValueError, match="saved without its executor's approve, on_input"):
            CellblockCodeAgent.from_dict(saved, **none)
    assert CellblockCodeAgent.from_dict(saved, executor=asks).python_executor is asks


def test_an_agent_of_the_class_is_jailed_whatever_it_is_given():
    agent = CellblockCodeAgent([], Scripted(), additional_authorized_imports=["csv"], max_print_outputs_length=9,
                               executor_kwargs={"max_calls": 3})
    assert isinstance(agent.python_executor, CellblockExecutor)
    assert agent.python_executor.keywords == {"max_calls": 3, "max_print_outputs_length": 9}
    assert agent.python_executor.authorized_imports == agent.authorized_imports and "csv" in agent.authorized_imports
    with pytest.raises(ValueError, match="executor_type is 'docker'"):
        CellblockCodeAgent([], Scripted(), executor_type="docker")


def managing(*managed, **how):
    return code_agent([], Scripted(), managed_agents=list(managed), name="chief", description="d", **how)


def loaded_from_folder(agent, tmp_path, **how):
    agent.save(tmp_path / "saved")
    return CellblockCodeAgent.from_folder(tmp_path / "saved", **how)


def loaded_from_dict(agent, _, **how):
    return CellblockCodeAgent.from_dict(json.loads(json.dumps(agent.to_dict())), **how)


@pytest.mark.parametrize("loaded", [loaded_from_dict, loaded_from_folder])
def test_a_saved_manager_has_managed_agents_with_jails_of_their_own(loaded, tmp_path, monkeypatch):
    monkeypatch.setitem(MODEL_REGISTRY, "Scripted", Scripted)
    worker = code_agent([Draw()], Scripted(), executor={"max_calls": 3}, name="worker", description="works")
    caller = ToolCallingAgent([Draw()], Scripted(), managed_agents=[worker], name="caller", description="calls")
    agent, own, model = managing(worker, caller, executor={"max_calls": 2}), CellblockExecutor(), Scripted()
    for how in ({}, {"executor": own, "model": model, "max_steps": 3}):
        again = loaded(agent, tmp_path, **how)
        workers = [again.managed_agents["worker"], again.managed_agents["caller"].managed_agents["worker"]]
        for one in workers:
            assert isinstance(one, CellblockCodeAgent) and one.python_executor.keywords == {"max_calls": 3}
            assert list(one.tools) == ["draw", "final_answer"] and one.max_steps != 3
        assert isinstance(again.managed_agents["caller"], ToolCallingAgent)
        agents = [again, again.managed_agents["caller"], *workers]
        assert len({id(a.python_executor) for a in (again, *workers)}) == 3
        assert all((a.model is model) == bool(how) for a in agents)
    assert again.python_executor is own and again.max_steps == 3
    assert not loaded(agent, tmp_path, managed_agents=[]).managed_agents


@pytest.mark.parametrize("loaded", [loaded_from_dict, loaded_from_folder])
def test_a_managed_agent_that_would_run_unjailed_is_refused(loaded, tmp_path, monkeypatch):
    monkeypatch.setitem(MODEL_REGISTRY, "Scripted", Scripted)
    jailed = CodeAgent([], Scripted(), executor=CellblockExecutor(), name="worker", description="works")
    caller = ToolCallingAgent([], Scripted(), managed_agents=[jailed], name="caller", description="calls")
    for agent in (managing(jailed), managing(caller)):
        with pytest.raises(ValueError, match="'worker' was saved as a CodeAgent.* would run unjailed"):
            loaded(agent, tmp_path, executor=CellblockExecutor())
    assert loaded(managing(jailed), tmp_path, managed_agents=[jailed]).managed_agents == {"worker": jailed}

    class Other(CodeAgent):
        pass

    other = managing(Other([], Scripted(), executor=CellblockExecutor(), name="worker", description="works"))
    with pytest.raises(ValueError, match="'worker' is a Other"):
        loaded(other, tmp_path)


def test_wrong_words():
    with pytest.raises(ValueError, match="executor_type"):
        code_agent([], Scripted(), executor_type="docker")
    with pytest.raises(Exception, match="another list of imports"):
        code_agent([], Scripted(), executor=CellblockExecutor(["json"]))
    with pytest.raises(ValueError, match="a text"):
        CellblockExecutor("numpy")


@pytest.mark.parametrize("wrong, says", [
    ({"policy": {"limits.pid": 4}}, "limits.pid"), ({"workspace": "/no/such"}, "/no/such"), ({"memmory": 5}, "memmory"),
])
def test_a_wrong_setting_is_the_callers_not_the_models(wrong, says):
    """The model would try until its steps are used up, for each is a call that may cost."""
    model = Scripted("1", "final_answer(1)")
    agent = code_agent([], model, executor=wrong, verbosity_level=0)
    for _ in range(2):  # and nothing of the first try is kept
        with pytest.raises(Exception, match=says):
            agent.run("go")
    assert model.heard == []


def test_the_page(nothing_left, monkeypatch):
    """docs/smolagents.md, with a model that needs no service."""
    first, second = pages.blocks("smolagents.md")
    kernels.let_in(nothing_left / "w")
    monkeypatch.chdir(nothing_left / "w")
    code = "t = [weather(c)['celsius'] for c in ('Oslo', 'Rome')]\nfinal_answer(sum(t) / len(t))"
    monkeypatch.setattr(smolagents, "InferenceClientModel", lambda: Scripted(code))
    told = []
    page_file = nothing_left / "w" / "page.py"  # smolagents reads the source of a tool
    page_file.write_text(first)
    exec(compile(first, page_file, "exec"), {"__name__": "page", "print": told.append})
    assert told == [21.0]
    names = {"tools": [add], "model": Scripted("final_answer(add(2))")}
    exec(second, names)
    with names["agent"] as agent:
        assert agent.run("add") == 4
