"""cellblock.langchain: LangChain's own judges of tools, agents with a scripted model, host tools, hostile code."""

import asyncio
import os
import threading

import pytest

pytest.importorskip("langchain", reason="langchain needs Python 3.11 here")

import cellblock  # noqa: E402
import kernels  # noqa: E402
import langchain.agents  # noqa: E402
import pages  # noqa: E402
from cellblock.langchain import CellblockPython, HostTool  # noqa: E402
from langchain.agents import create_agent  # noqa: E402
from langchain_core.tools import StructuredTool, ToolException, tool  # noqa: E402
from langchain_tests.integration_tests import ToolsIntegrationTests  # noqa: E402
from langchain_tests.unit_tests import ToolsUnitTests  # noqa: E402
from pydantic import BaseModel  # noqa: E402
from scripted import Scripted  # noqa: E402

KEY = "key-of-the-host-4711"
CALL = {"name": "python", "args": {"code": "1"}, "id": "c1", "type": "tool_call"}


@pytest.fixture
def anyio_backend():
    return "asyncio"


class TestUnits(ToolsUnitTests):
    @property
    def tool_constructor(self):
        return CellblockPython

    @property
    def tool_invoke_params_example(self):
        return {"code": "1 + 1"}


@pytest.mark.anyio
class TestIntegration(ToolsIntegrationTests):
    made = None

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def sandbox(cls, nothing_left):
        with CellblockPython() as cls.made:
            yield

    @property
    def tool_constructor(self):
        return self.made

    @property
    def tool_invoke_params_example(self):
        return {"code": "print('out')\n1 + 1"}


@tool
def price(item: str, currency: str = "EUR") -> dict:
    """What an item costs.

    Args:
        item: its name
        currency: three letters
    """
    if item == "gold":
        raise ToolException("gold is not for sale")
    return {"item": item, "price": 4.5, "currency": currency, "signed": len(KEY)}


async def _later(n: int) -> int:
    """Doubles."""
    await asyncio.sleep(0)
    return n * 2


later = StructuredTool.from_function(coroutine=_later, name="later")


def plain(a: int) -> int:
    """A function without LangChain."""
    return a + 1


@pytest.fixture(scope="module")
def python(nothing_left):
    with CellblockPython(tools=[price, later, plain], max_calls=5) as made:
        yield made


@pytest.fixture(params=["sync", "async"])
def said(request, python):
    """Calls the tool as an agent does; gives the message."""

    def call(code, tool=python):
        asked = {**CALL, "args": {"code": code}}
        return tool.invoke(asked) if request.param == "sync" else asyncio.run(tool.ainvoke(asked))

    return call


# the tool


def test_state_and_results(said):
    done = said("x = [1, 2]\nprint('seen')\nsum(x)")
    assert (done.content, done.status, done.name, done.tool_call_id) == ("seen\n3", "success", "python", "c1")
    assert done.artifact["value"] == 3 and done.artifact["stdout"] == "seen\n" and done.artifact["ok"]
    assert said("x.append(3); x").artifact["value"] == [1, 2, 3]
    assert said("pass").content == "[no output]"
    assert "value" not in said("b'bytes'").artifact and said("{1: float('nan')}").artifact["ok"]


def test_an_error_keeps_what_was_printed(said):
    done = said("y = 7\nprint('before')\n1 / 0")
    assert done.status == "error" and done.content.startswith("before\n") and "ZeroDivisionError" in done.content
    assert done.artifact["error"]["name"] == "ZeroDivisionError" and done.artifact["fault"] == "code"
    assert said("y").content == "7"


def test_without_a_call(python):
    assert python.invoke({"code": "print(5)"}) == "5"
    assert python.invoke("print(6)") == "6"
    assert set(python.args) == {"code"} and "code" in python.tool_call_schema.model_json_schema()["required"]


def test_pictures(said):
    pytest.importorskip("matplotlib")
    done = said("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nprint('drawn')")
    text, picture = done.content
    assert text["type"] == "text" and "drawn" in text["text"]
    assert picture["type"] == "image" and picture["mime_type"] == "image/png" and picture["base64"].startswith("iVBOR")
    assert done.content_blocks[1]["type"] == "image"


def test_hostile_code(nothing_left, said):
    kernels.let_in(nothing_left)
    (nothing_left / "secret").write_text(KEY)
    for limit in (2, 10, 30):  # on a busy machine the good ones may take as long
        with CellblockPython(timeout=limit) as python:
            before = said("x = 41", python).content
            done = said("print('begun')\nwhile True: pass", python)
            after = said("x + 1", python).content
        if "limit" not in before and "begun" in done.content and after == "42":
            break
    assert "limit" not in before and after == "42"
    assert "CellTimeoutError" in done.content and "begun" in done.content and done.artifact["limit"] == "time"
    with CellblockPython(timeout=60) as python:
        assert "limit" not in said("x = 41", python).content
        done = said("y = bytearray(4 << 30)", python)
        assert done.status == "error" and done.artifact["limit"] == "memory"
        assert "KernelDiedError" in said("import os\nos._exit(3)", python).content
        done = said("for i in range(300_000): print('x' * 50)", python)
        assert len(str(done.content)) <= 8000 and done.artifact["limit"] in ("output", "time")
        assert "FileNotFoundError" in said(f"open({str(nothing_left / 'secret')!r})", python).content
        assert said("x + 1", python).content == "42"


def test_a_folder_that_the_policy_names(nothing_left):
    kernels.let_in(nothing_left / "shown")
    (nothing_left / "shown" / "given").write_text("data")
    with CellblockPython(policy={"workspace": {"path": str(nothing_left / "shown")}}) as python:
        assert python.invoke("print(open('given').read())") == "data"


def test_two_at_once(nothing_left):
    with CellblockPython() as one, CellblockPython() as two:

        async def main():
            await asyncio.gather(one.ainvoke("x = 1"), two.ainvoke("x = 2"))
            return await asyncio.gather(one.ainvoke("x"), two.ainvoke("x"))

        assert asyncio.run(main()) == ["1", "2"]
        pids = [one.sandbox.kernel.pid, two.sandbox.kernel.pid]
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_cancelling_interrupts_the_cell(nothing_left):
    begun = threading.Event()

    def begin():
        begun.set()

    async def main(python):
        running = asyncio.ensure_future(python.ainvoke("n = 5\nbegin()\nwhile True: pass"))
        await asyncio.to_thread(begun.wait)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        last = python.sandbox.last
        assert last.fault == "limit" and last.error.name in ("KeyboardInterrupt", "HostToolCancelledError")
        return await python.ainvoke("n")

    with CellblockPython(tools=[begin], grace=60, policy={"timeout.interrupt": 0}) as python:
        assert asyncio.run(main(python)) == "5"


def test_a_dead_kernel(nothing_left):
    with CellblockPython() as python:
        python.invoke("x = 1")
        os.kill(python.sandbox.kernel.pid, 9)
        with pytest.raises(cellblock.SandboxError):
            create_agent(Scripted([("python", {"code": "x"})], "never said"), [python]).invoke({"messages": "go"})
        done = python.invoke({**CALL, "args": {"code": "x"}})
        assert "started anew" in done.content and "NameError" in done.content
        assert python.invoke("2") == "2"
    with pytest.raises(cellblock.SandboxClosedError):
        python.invoke("2")


def test_calls_at_once_after_the_kernels_death(nothing_left):
    with CellblockPython() as python:
        python.invoke("1")
        os.kill(python.sandbox.kernel.pid, 9)
        with pytest.raises(cellblock.SandboxError):
            python.invoke("1")

        async def main():
            return await asyncio.gather(*[python.ainvoke(f"a{n} = {n}; a{n}") for n in range(4)])

        said = asyncio.run(main())
        assert [text[-1] for text in said] == list("0123") and sum("started anew" in text for text in said) == 1
        assert python.invoke("a0 + a1 + a2 + a3") == "6"


# host tools


def test_host_tools(said, python):
    assert said("price('tea')['price'] * 2").content == "9.0"
    assert said("price(item='tea', currency='USD')['currency'], plain(1)").content == "('USD', 2)"
    assert said("later(4)").content == "8"
    done = said("try:\n    price('gold')\nexcept Exception as e:\n    print(type(e).__name__, e)")
    assert "gold is not for sale" in done.content
    for code, words in {"price()": "missing a required argument", "price(1, 2, 3)": "takes 2 arguments",
                        "price('a', z=1)": "unexpected keyword", "price([])": "valid string",
                        "[price('a') for i in range(6)]": "5 times in one run"}.items():
        done = said(code)
        assert done.status == "error" and words in done.content, done.content
    assert "price(item: string; currency: string, optional)" in python.description and "EUR" not in python.description
    assert KEY not in said("print(vars(), price.__doc__)").content


def test_approval_and_a_sandbox_of_ones_own(nothing_left):
    asked = []

    def ask(call):
        asked.append(str(call))
        return call.raw["item"] == "tea"

    with CellblockPython(tools=[price], approve=ask) as python:
        assert python.invoke("price('tea')['price']") == "4.5" and asked == ['price(item="tea")']
        assert "ToolRefusedError" in python.invoke("price('oil')")
    kernels.let_in(nothing_left / "own")
    with cellblock.Sandbox("agent", workspace=nothing_left / "own", tools=[HostTool(price)]) as sb:
        with CellblockPython(sb, name="shell") as python:
            assert python.name == "shell" and python.invoke("price('tea')['price']") == "4.5"
        assert sb.run("1").ok
    with pytest.raises(ValueError, match="HostTool"):
        CellblockPython(sb, tools=[price])


def test_an_async_tool_may_use_a_sandbox_of_its_own(nothing_left):
    """It runs in the thread that drives both."""
    begun = threading.Event()

    def begin():
        begun.set()

    async def _research(code: str) -> str:
        """Runs it elsewhere."""
        return await inner.ainvoke(code)

    async def main(outer):
        assert await outer.ainvoke("research('x = 4; x')") == "'4'"
        running = asyncio.ensure_future(outer.ainvoke("research('x = 5\\nbegin()\\nwhile True: pass')"))
        await asyncio.to_thread(begun.wait)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return await outer.ainvoke("research('x')")  # after the cell, which has been interrupted

    how = {"grace": 60, "policy": {"timeout.interrupt": 0}}
    research = StructuredTool.from_function(coroutine=_research, name="research")
    with CellblockPython(tools=[begin], **how) as inner, CellblockPython(tools=[research], **how) as outer:
        assert outer.invoke("research('1 + 1')") == "'2'"
        assert "ZeroDivisionError" in outer.invoke("research('1 / 0')")
        assert asyncio.run(main(outer)) == "'5'"


class Odd(BaseModel):
    type: str
    id: str = ""
    args: dict = {}


def test_what_runs_is_the_call_that_approve_was_shown():
    def order(**given):
        return given

    odd = StructuredTool.from_function(order, name="order", description="Orders.", args_schema=Odd)
    host = HostTool(odd)
    given = {"type": "tool_call", "id": "1", "args": {"type": "other"}}
    assert host.prepare(host.bind([], given))() == given
    assert asyncio.run(HostTool(later).prepare({"n": 4})()) == 8


# whole agents


@pytest.mark.parametrize("how", ["sync", "async"])
def test_an_agent(python, how):
    model = Scripted(
        [("python", {"code": "total = price('tea')['price']\nprint(total)"})],
        [("python", {"code": "total / 0"})],
        [("python", {"code": "total * 2"})],
        "It is 9.",
    )
    agent, asked = create_agent(model, [python]), {"messages": [{"role": "user", "content": "go"}]}
    done = agent.invoke(asked) if how == "sync" else asyncio.run(agent.ainvoke(asked))
    said = [m for m in done["messages"] if m.type == "tool"]
    assert [m.status for m in said] == ["success", "error", "success"]
    assert said[0].content == "4.5" and "ZeroDivisionError" in said[1].content and said[2].content == "9.0"
    assert done["messages"][-1].content == "It is 9." and model.bound[0][0].name == "python"


def test_the_page(monkeypatch):
    code, printed = "sum(weather(c)['celsius'] for c in ('Oslo', 'Rome')) / 2", []
    model = Scripted([("python", {"code": code})], "21")
    monkeypatch.setattr(langchain.agents, "create_agent", lambda _model, **how: create_agent(model, **how))
    program = compile(pages.blocks("langchain.md")[0], "langchain.md", "exec")
    exec(program, {"__name__": "page", "print": printed.append})
    assert printed == ["21"] and model.heard[1][-1].content == "21.0"
