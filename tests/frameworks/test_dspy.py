"""cellblock.dspy: DSPy's modules with a scripted model, and its interpreter's interface, over the real kernel."""

import contextlib
import dataclasses
import datetime
import functools
import inspect
import math
import re
import threading

import pytest

pytest.importorskip("dspy", reason="dspy is tried with Python 3.11")

import dspy  # noqa: E402
import pages  # noqa: E402
from cellblock import _dspy_inside  # noqa: E402
from cellblock.dspy import CellblockInterpreter  # noqa: E402
from dspy.primitives.code_interpreter import (  # noqa: E402
    CodeExecutionError, CodeInterpreter, CodeInterpreterError, FinalOutput,
)
from dspy.utils.callback import BaseCallback  # noqa: E402
from dspy.utils.dummies import DummyLM  # noqa: E402
from pydantic import BaseModel  # noqa: E402

SECRET = "sk-of-the-host"

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated and will be removed in 3.5:DeprecationWarning")


@pytest.fixture(scope="module")
def shared(nothing_left):
    """For tests that leave it as it was; its tools are theirs."""
    with CellblockInterpreter() as interpreter:
        yield interpreter


@pytest.fixture
def it(shared):
    shared.tools.clear()
    shared.output_fields = None
    return shared


def said(interpreter, code, kind=CodeExecutionError, **how):
    with pytest.raises(kind) as caught:
        interpreter.execute(code, **how)
    return str(caught.value)


def test_results(it):
    assert isinstance(it, CodeInterpreter)
    for code, value in {
        "1 + 1": 2, "x = 1": None, "x": 1, "print('a'); print('b')": "a\nb\n", "None": None, "(1, 'ü')": [1, "ü"],
        "{1: [None]}": {"1": [None]}, "b'ab'": "b'ab'", "{2}": "{2}", "float('inf')": "inf", "": None,
        "import sys; print('e', file=sys.stderr)": "e\n", "await __import__('asyncio').sleep(0, 'z')": "z",
    }.items():
        assert it.execute(code) == value, code
    assert it("x") == 1 and it.last.execution_count > 5


class Model(BaseModel):
    day: datetime.date = datetime.date(2026, 1, 2)
    tags: set[str] = {"a"}


@dataclasses.dataclass
class Data:
    n: int = 1


def test_variables_of_any_json(it):
    given = {
        "a": [1, {"k": None, "ü\n\"'\\": [True, 2.5]}], "b": "x" * 3_000_000, "c": Model(), "d": Data(), "e": {3, 1, 2},
        "f": (1, (2,)), "g": datetime.date(2026, 1, 2), "h": "\ud7ff\0", "n": 1 << 200,
    }
    assert it.execute("a, len(b), c, d, e, f, g, h, n", variables=given) == [
        given["a"], 3_000_000, {"day": "2026-01-02", "tags": ["a"]}, {"n": 1}, [1, 2, 3], [1, [2]], "2026-01-02",
        "\ud7ff\0", 1 << 200,
    ]
    code = "import math\n[math.isnan(x), y == -math.inf]"
    assert it.execute(code, variables={"x": math.nan, "y": -math.inf}) == [True, True]
    assert it.execute("a") == given["a"]
    for name in ("class", "a b", "SUBMIT", "__builtins__", 1):
        assert "Invalid variable name" in said(it, "1", CodeInterpreterError, variables={name: 1})
    assert "Unable to serialize object" in said(it, "1", CodeInterpreterError, variables={"o": object()})
    assert it.execute("1") == 1


def test_submit(it):
    assert it.execute("SUBMIT([1, 'a'])") == FinalOutput({"output": [1, "a"]})
    assert it.execute("SUBMIT(output=None)\nnever") == FinalOutput({"output": None})
    assert "SUBMIT() missing 1 required positional argument: 'output'" in said(it, "SUBMIT()")
    it.output_fields = [{"name": "answer", "type": "str"}, {"name": "score"}]
    for code in ("SUBMIT('a', 0.5)", "SUBMIT(score=0.5, answer='a')", "SUBMIT('a', score=0.5)"):
        assert it.execute(code) == FinalOutput({"answer": "a", "score": 0.5})
    assert "'score'" in said(it, "SUBMIT('a')") and "unexpected keyword" in said(it, "SUBMIT(x=1)")
    odd = it.execute("import datetime\nSUBMIT({1}, [datetime.date(2026, 1, 2), object, float('inf')])").output
    assert odd == {"answer": [1], "score": ["2026-01-02", "<class 'object'>", math.inf]}
    assert it.execute("try:\n    SUBMIT('a', 1)\nexcept BaseException:\n    pass").output["answer"] == "a"
    assert "more than" in said(it, "SUBMIT('x' * 13_000_000, 1)") and it.execute("1") == 1


def test_the_last_of_many_answers_counts_and_no_other_is_kept(it):
    code = "for n in range(50):\n    try:\n        SUBMIT(n)\n    except BaseException:\n        pass"
    assert it.execute(code) == FinalOutput({"output": 49}) and it._final == [{"output": 49}]


def test_tools_run_here(it):
    main = threading.get_ident()

    def add(a: int, b=2):
        assert SECRET and threading.get_ident() != main
        return a + b

    async def later(**kwargs):
        return {"given": kwargs, "settings": dspy.settings.max_errors}

    def fails():
        raise LookupError("no tea")

    it.tools.update(add=add, later=later, fails=fails, model=Model, odd=object, __dspy_x__=lambda **k: k["v"])
    assert it.execute("add(1), add(1, b=5), add(b=1, a=1)") == [3, 6, 2]
    with dspy.context(max_errors=77):
        assert it.execute("later(x=[1])") == {"given": {"x": [1]}, "settings": 77}
    assert it.execute("model(), globals()['__dspy_x__'](v=3)") == [{"day": "2026-01-02", "tags": ["a"]}, 3]
    assert it.execute("try:\n    fails()\nexcept RuntimeError as e:\n    print(e)") == "LookupError: no tea\n"
    assert "RuntimeError: CodeInterpreterError: Unable to serialize object" in said(it, "odd()")
    assert "TypeError" in said(it, "add(1, 2, 3)") and "TypeError" in said(it, "add(object())")
    code = "from concurrent import futures\nwith futures.ThreadPoolExecutor() as p: r = list(p.map(add, range(9)))"
    assert it.execute(code) is None and it.execute("r") == list(range(2, 11))
    assert SECRET not in it.execute("str([vars(), add.__closure__, add.__code__.co_consts])")
    del it.tools["add"]
    it.tools["other"] = lambda: "new"
    assert it.execute("other()") == "new" and "NameError" in said(it, "add(1)")


@pytest.mark.parametrize("watched", [True, False])
def test_what_code_assigns_to_is_the_tool_again(nothing_left, monkeypatch, watched):
    """As in DSPy's own interpreter; also in a Python without IPython, which has no events of cells."""
    source = inspect.getsource(_dspy_inside)
    if not watched:
        monkeypatch.setattr(inspect, "getsource", lambda _: source.replace('"get_ipython"', '"no_such_name"'))
    with CellblockInterpreter({"add": lambda a: a + 1}, memory="400M") as interpreter:
        for code in ("add = add(1)\nSUBMIT = 3", "del add, SUBMIT", "def add(a): 1 / 0\nadd(1)",
                     "import os; os._exit(3)"):
            with contextlib.suppress(CodeExecutionError):
                assert interpreter.execute(code) is None
            assert interpreter.execute("SUBMIT(add(1))") == FinalOutput({"output": 2}), code
        del interpreter.tools["add"]
        assert "NameError" in said(interpreter, "add(1)")
        assert interpreter.execute("add = 5") is None and interpreter.execute("add") == 5


def test_a_tool_cannot_execute_in_its_own_interpreter(it):
    it.tools["again"] = lambda: it.execute("1")
    assert "already has an active execution" in said(it, "again()") and it.execute("2") == 2


def test_an_interrupt_of_a_tool_is_for_who_executes(it):
    def stops():
        raise KeyboardInterrupt("enough")

    it.tools["stops"] = stops
    with pytest.raises(KeyboardInterrupt, match="enough"):
        it.execute("stops()")
    assert it.execute("3") == 3


def test_calls_forged_in_the_jail_are_refused(it):
    it.tools.update(add=lambda a: a, any=lambda *args, **kwargs: 1)
    for call in (
        "call('nosuch', [], {})", "call('add', 1, 2)", "call()", "call('add', [], {}, x=1)", "own()", "own([])",
        "own(1.5)", "own('{')", "own('[' * 100000)", "own(1, 2)", "call('SUBMIT', [1], {})",
        "call('any', ['bad'], {'args[0]': 'good'})",
    ):
        assert re.search("HostToolError: (Value|Type)Error", said(it, f"cellblock_dspy_{call}")), call
    assert it.execute("cellblock_dspy_own(-5), cellblock_dspy_own(1 << 70)") == ["", ""]
    assert it.execute("cellblock_dspy_own('3')") == FinalOutput(3) and it.execute("add(1)") == 1


def test_approve_and_limits(nothing_left):
    asked = []

    def ask(call):
        asked.append(str(call))
        return call.raw.get("b") != 9 or "b is nine"

    how = {"approve": ask, "max_calls": 3, "timeout": 60, "memory": "400M"}
    with CellblockInterpreter({"add": lambda a, b=1: a + b}, **how) as interpreter:
        assert interpreter.execute("add(1), add(a=1, b=2)", variables={"v": 1}) == [2, 3]
        assert asked == ["add(a=1)", "add(a=1, b=2)"]
        assert "ToolRefusedError: cellblock_dspy_call was refused: b is nine" in said(interpreter, "add(1, b=9)")
        assert "ToolLimitError" in said(interpreter, "[add(n) for n in range(4)]")
        assert interpreter.execute("SUBMIT(add(1))") == FinalOutput({"output": 2})


@pytest.mark.parametrize(
    "code, words",
    [
        ("import os; os._exit(3)", "KernelDiedError"),
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
        ("import ctypes\nctypes.string_at(0)", "KernelDiedError"),
        ("def f(): f()\nf()", "RecursionError"),
        ("x = = 1", None),
        ("raise SyntaxError('own')", None),
    ],
)
def test_after_hostile_code_the_session_goes_on(code, words, hostile):
    if words is None:
        assert "Invalid Python syntax. message" in said(hostile, code, SyntaxError)
    else:
        assert re.search(words, said(hostile, code))
    assert hostile.execute("x, add(x)", variables={"v": 1}) == [41, 42]


def test_after_an_endless_loop_the_session_goes_on(nothing_left):
    for limit in (4, 30):  # on a busy machine the good ones may take as long
        try:
            with CellblockInterpreter({"add": lambda a: a + 1}, timeout=limit) as interpreter:
                interpreter.execute("x = 41")
                assert re.search("timeout.cell", said(interpreter, "y = 2\nwhile True: pass"))
                assert interpreter.execute("x, add(x)", variables={"v": 1}) == [41, 42]
            break
        except CodeExecutionError as e:
            if limit == 30 or "timeout.cell" not in str(e):
                raise


@pytest.fixture(scope="module")
def hostile(nothing_left):
    with CellblockInterpreter({"add": lambda a: a + 1}, timeout=60) as interpreter:
        interpreter.execute("x = 41")
        yield interpreter


def test_a_memory_bomb(nothing_left):
    with CellblockInterpreter(memory="300M") as interpreter:
        interpreter.execute("x = 41")
        code = "z = []\nwhile True: z.append('x' * (1 << 24))"
        assert re.search("MemoryError|limits.memory", said(interpreter, code))
        assert interpreter.execute("del z\nx" if interpreter.last.state == "kept" else "x") == 41


def test_huge_output_is_bounded(hostile):
    found = hostile.execute("for n in range(200): print('x' * 100_000)")
    assert len(found) < 20_000_000 and hostile.last.limit == "output"


def test_nothing_of_the_host_is_inside(it, nothing_left, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    (nothing_left / "secret").write_text(SECRET)
    code = f"""
import os
found = [str(dict(os.environ)), str(os.listdir())]
for path in ("/etc/shadow", {str(nothing_left / "secret")!r}):
    os.path.lexists("link") and os.unlink("link")
    os.symlink(path, "link")
    for name in (path, "link"):
        try:
            found.append(open(name).read())
        except OSError as e:
            found.append(type(e).__name__)
found"""
    found = it.execute(code)
    assert SECRET not in str(found) and found[1:] == ["[]"] + ["FileNotFoundError"] * 4


def test_two_at_once_and_from_other_threads(nothing_left):
    barrier, found = threading.Barrier(2, timeout=100), []

    def work(n):
        with CellblockInterpreter({"meet": barrier.wait}) as interpreter:
            interpreter.execute("meet()\nx = n", variables={"n": n})
            found.append(interpreter.execute("x"))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [0, 1]


def test_the_end(nothing_left):
    events = []

    class Heard(BaseCallback):
        def on_interpreter_startup_start(self, call_id, instance, inputs):
            events.append("start")

        def on_interpreter_execute_end(self, call_id, outputs, exception=None):
            events.append(outputs)

        def on_interpreter_tool_call_end(self, call_id, outputs, exception=None):
            events.append(["tool", outputs])

        def on_interpreter_shutdown_end(self, call_id, outputs, exception=None):
            events.append("end")

    interpreter = CellblockInterpreter({"f": lambda: 1}, callbacks=[Heard()])
    assert interpreter.execute("f()") == 1
    interpreter.shutdown()
    interpreter.shutdown()
    for call in (interpreter.start, lambda: interpreter.execute("1")):
        with pytest.raises(CodeInterpreterError, match="session has ended"):
            call()
    assert events[:4] == ["start", ["tool", 1], 1, "end"]
    lost = CellblockInterpreter()
    assert lost.execute("1") == 1
    lost.sandbox.kernel.km.shutdown_kernel(now=True)
    for _ in range(2):
        with pytest.raises(CodeInterpreterError):
            lost.execute("1")


def test_wrong_words():
    for names in ({"class": print}, {"SUBMIT": print}, {"a b": print}):
        with pytest.raises(ValueError, match="tool names must be"):
            CellblockInterpreter(names)
    with pytest.raises(ValueError, match="output field names"):
        CellblockInterpreter(output_fields=[{"name": "a"}, {"name": "a"}])
    with pytest.raises(CodeInterpreterError, match="limits.nosuch"):
        CellblockInterpreter(policy={"limits.nosuch": 1}).start()


# DSPy's modules, with a model that says what it was given


def test_program_of_thought(nothing_left):
    lm = DummyLM([
        {"reasoning": "a", "generated_code": "```python\nresult = 1 / 0\nSUBMIT({'answer': result})\n```"},
        {"reasoning": "b", "generated_code": "```python\nresult = 1 + 1\nSUBMIT({'answer': result})\n```"},
        {"reasoning": "c", "answer": "2"},
    ])
    with dspy.context(lm=lm, interpreter_factory=CellblockInterpreter):
        found = dspy.ProgramOfThought("question -> answer")(question="what is 1+1?")
    assert found.answer == "2"
    assert "ZeroDivisionError: division by zero" in str(lm.history[1]["messages"])
    assert '"answer": 2' in str(lm.history[2]["messages"])


def factorial(n):
    return 1 if n <= 1 else n * factorial(n - 1)


def test_code_act(nothing_left):
    lm = DummyLM([
        {"reasoning": "a", "generated_code": "```python\nprint(factorial(nosuch))\n```", "finished": False},
        {"reasoning": "b", "generated_code": "```python\nprint(factorial(5))\n```", "finished": True},
        {"reasoning": "c", "factorial": "120"},
    ])
    with dspy.context(lm=lm):
        act = dspy.CodeAct("n -> factorial", tools=[factorial], interpreter_factory=CellblockInterpreter)
        found = act(n=5)
    assert found.factorial == "120" and found.trajectory["code_output_1"] == '"120\\n"'
    assert "NameError: name 'nosuch' is not defined" in found.trajectory["observation_0"]


def test_rlm_its_tools_and_its_sub_agents(nothing_left):
    def price(item: str) -> float:
        """What an item costs."""
        return {"tea": 4.5}[item]

    lm = DummyLM([
        {"reasoning": "a", "code": "```python\np = price('tea')\nprint(len(text), p, price('milk'))\n```"},
        {"reasoning": "b", "code": "```python\nq = llm_query('how much?')\nprint(q, p)\n```"},
        {"response": "much"},
        {"reasoning": "c", "code": "```python\nr = dspy.Predict('a -> n: int')(a='x')\nSUBMIT(p * r.n, 'ok')\n```"},
        {"n": "2"},
    ])
    with dspy.context(lm=lm):
        factory = CellblockInterpreter.factory(memory="600M")
        rlm = dspy.RLM("text -> total: float, note: str", tools=[price], interpreter_factory=factory)
        found = rlm(text="long " * 300_000)
    assert (found.total, found.note) == (9.0, "ok"), found.trajectory
    assert "KeyError: 'milk'" in found.trajectory[0]["output"] and "4.5" in found.trajectory[1]["output"]
    assert "CPython in a jail" in str(lm.history[0]["messages"])


def test_what_a_partial_has_bound_is_not_for_the_code(nothing_left):
    def fetch(path, base_url):
        return base_url + path

    with CellblockInterpreter(tools={"fetch": functools.partial(fetch, base_url="mine/")}) as it:
        assert it.execute("fetch('x')") == "mine/x"
        assert "unexpected keyword argument 'base_url'" in said(it, "fetch('x', base_url='evil/')")
        made = dspy.Tool(functools.partial(fetch, base_url="mine/"), name="fetch")
        it.tools = {"fetch": dspy.RLM("q -> a", tools=[made])._prepare_execution_tools()["fetch"]}
        assert it.execute("fetch('x')") == "mine/x"
        assert "unexpected keyword argument 'base_url'" in said(it, "fetch('x', base_url='evil/')")


def test_the_page(nothing_left, monkeypatch):
    first, second = pages.blocks("dspy.md")
    code = "```python\nSUBMIT(sum(population(c) for c in cities))\n```"
    monkeypatch.setattr(dspy, "LM", lambda name: DummyLM([{"reasoning": "a", "code": code}]))
    told = []
    names = {"print": told.append}
    settings = dspy.settings.copy()
    try:
        exec(first, names)
        exec(second, names)
    finally:
        dspy.configure(**settings)
    assert told == [3_470_000, 3_470_000]
