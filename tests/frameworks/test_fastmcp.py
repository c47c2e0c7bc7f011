"""cellblock.fastmcp: CodeMode servers whose clients' code is hostile, over the real kernel."""

import asyncio
import functools
import json

import pytest

pytest.importorskip("fastmcp", reason="fastmcp is tried with Python 3.11")

import pages  # noqa: E402
from cellblock import AsyncPool, SandboxError  # noqa: E402
from cellblock.fastmcp import CellblockSandboxProvider  # noqa: E402
from fastmcp import Client, FastMCP  # noqa: E402
from fastmcp.exceptions import ToolError  # noqa: E402
from fastmcp.experimental.transforms.code_mode import CodeMode  # noqa: E402

SECRET = "sk-of-the-host"


def server(**how):
    mcp = FastMCP("jailed", transforms=[CodeMode(sandbox_provider=CellblockSandboxProvider(**how))])

    @mcp.tool
    def add(a: int, b: int = 1) -> int:
        """Adds."""
        assert SECRET
        return a + b

    @mcp.tool
    async def fails() -> str:
        raise ToolError("no tea")

    return mcp


def executed(code, mcp=None, **how):
    async def main():
        async with Client(mcp or server(**how)) as client:
            result = await client.call_tool("execute", {"code": code})
            return result.data if result.data is not None else "".join(part.text for part in result.content)

    return asyncio.run(main())


def ran(provider, code, **how):
    return asyncio.run(provider.run(code, **how))


def test_a_client_calls_tools_by_code():
    code = """import math
parts = [await call_tool("add", {"a": n}) for n in range(3)]
return [math.prod(p["result"] for p in parts), '''kept
  as it is''']"""
    assert json.loads(executed(code)) == [6, "kept\n  as it is"]


def test_a_tools_error_can_be_caught_and_else_ends_the_run():
    code = "try:\n    await call_tool('fails', {})\nexcept Exception as e:\n    return str(e)"
    assert "no tea" in executed(code)
    with pytest.raises(ToolError, match="no tea"):
        executed("await call_tool('fails', {})")
    with pytest.raises(ToolError, match="Unknown tool: nosuch"):
        executed("await call_tool('nosuch', {})")
    with pytest.raises(ToolError, match=r"(?s)call_tool\('add'\) failed.*Valid parameters for add"):
        executed("await call_tool('add', {'a': 1, 'c': 2})")


@pytest.mark.parametrize(
    "code, value",
    [
        ("return {1}, (2,), None", [[1], [2], None]),
        ("x = 5\nx + 1", 6),
        ("", None),
        ("print('seen by nobody')", None),
        ("import datetime\ndatetime.date(2026, 1, 2)", "2026-01-02"),
        ("def f(n):\n    return n and n + f(n - 1)\nreturn f(4)", 10),
        ("class A:\n    pass\nreturn y, isinstance(A(), A)", [{"k": "ü\n"}, True]),
    ],
)
def test_results_are_json(code, value):
    assert ran(CellblockSandboxProvider(), code, inputs={"y": {"k": "ü\n"}}) == value


@pytest.mark.parametrize("code, words", [
    ("return [1, float('nan')]", "ValueError: Out of range float values"),
    ("import math\n{'a': (math.inf,)}", "ValueError: Out of range float values"),
    ("x = []\nfor n in range(200): x = [x]\nx", "too large, or nested too deep"),
])
def test_a_result_that_is_no_json_says_why(code, words):
    with pytest.raises(ToolError, match=words):
        ran(CellblockSandboxProvider(), code)


def test_functions_of_any_kind():
    async def later(a, *, b):
        await asyncio.sleep(0)
        return a + b

    def now(n):
        return {"n": n}

    code = "import asyncio\nreturn await asyncio.gather(later(1, b=2), now(3), *[now(n=n) for n in range(20)])"
    found = ran(CellblockSandboxProvider(), code, external_functions={"later": later, "now": now})
    assert found == [3, {"n": 3}, *({"n": n} for n in range(20))]
    asked = []
    provider = CellblockSandboxProvider(approve=lambda call: asked.append(str(call)) or "never")
    with pytest.raises(ToolError, match="now was refused: never"):
        ran(provider, "await now(7)", external_functions={"now": now})
    assert asked == ['now("args[0]"=7)']
    with pytest.raises(ToolError, match="no names"):
        ran(provider, "await any('bad', **{'args[0]': 'good'})", external_functions={"any": lambda *a, **k: 1})
    assert len(asked) == 1


def test_what_a_partial_has_bound_is_not_for_the_code():
    def fetch(path, **more):
        return [path, more]

    bound = {"fetch": functools.partial(fetch, token=SECRET)}
    assert ran(CellblockSandboxProvider(), "await fetch('p', n=1)", external_functions=bound) == [
        "p", {"token": SECRET, "n": 1}]
    with pytest.raises(ToolError, match="unexpected keyword argument 'token'"):
        ran(CellblockSandboxProvider(), "await fetch('p', token='evil')", external_functions=bound)


@pytest.mark.parametrize(
    "code, words",
    [
        ("1 / 0", "ZeroDivisionError"),
        ("x = = 1", "SyntaxError"),
        ("while True: pass", "timeout.cell"),
        ("x = 'x' * (1 << 30)", "MemoryError|limits.memory"),
        ("import os\nos._exit(3)", "KernelDiedError"),
        ("return 'x' * 20_000_000", "the result is too large"),
        ("import json\njson.loads = lambda text: 5", "has replaced what sends its result"),
        ("import json\njson.loads = lambda text: {}", "has replaced what sends its result"),
        ("import json\njson.loads = lambda text: []", "has replaced what sends its result"),
        ("import json\njson.loads = lambda text: None", "has replaced what sends its result"),
        (
            "from cellblock_guest import extras\nextras._as_data = lambda *_: {'json': None}\n5",
            "has replaced what sends its result",
        ),
        ("raise ValueError('e' * 1_000_000)", "ValueError: eee"),
        ("await call_tool('add', {'a': 'x' * 14_000_000})", "ValueError|limits.message|more than"),
    ],
)
def test_hostile_code_ends_its_run_alone(code, words):
    for limit in (3, 60) if "while" in code else (60,):  # on a busy machine the good one may take as long
        mcp = server(timeout=limit)
        with pytest.raises(ToolError, match=words) as caught:
            executed(code, mcp)
        assert len(str(caught.value)) < 5000
        try:
            assert executed("return 'next'", mcp) == "next"
            break
        except ToolError as e:
            if limit == 60 or "timeout.cell" not in str(e):
                raise


def test_nothing_of_the_host_is_inside(nothing_left, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    (nothing_left / "secret").write_text(SECRET)
    code = f"""
import os, pathlib
found = [str(dict(os.environ)), str(globals().keys()), str(call_tool.__dict__)]
for path in ("/etc/shadow", {str(nothing_left / "secret")!r}, "/proc/1/environ"):
    try:
        found.append(pathlib.Path(path).read_text())
    except OSError as e:
        found.append(type(e).__name__)
return str(found)
"""
    said = executed(code)
    assert SECRET not in said and said.count("FileNotFoundError") >= 2, said


def test_runs_share_nothing_and_go_side_by_side():
    async def main():
        async with CellblockSandboxProvider(size=2) as provider:
            code = "import os\nold = os.path.exists('/tmp/f') or os.listdir()\nopen('/tmp/f', 'w')\nopen('g', 'w')\nold"
            assert await asyncio.gather(*[provider.run(code) for _ in range(4)]) == [[]] * 4
        return await provider.run("return 1"), await provider.close()

    assert asyncio.run(main())[0] == 1


def test_a_run_in_a_jail_that_stood_ready_may_take_as_long_as_its_timeout(monkeypatch):
    monkeypatch.setattr(AsyncPool.lease, "__defaults__", (0.001,))  # what a lease lasts that is asked for no time

    async def main():
        async with CellblockSandboxProvider(size=1) as provider:
            return await provider.run("return 7"), len(provider._pool._leased)

    assert asyncio.run(main()) == (7, 0)


def test_jails_that_could_not_start_are_tried_again():
    provider, wrong = CellblockSandboxProvider(size=1), [SandboxError("no jail today")]
    make = provider._make

    def make_or_fail():
        if wrong:
            raise wrong.pop()
        return make()

    provider._make = make_or_fail

    async def main():
        with pytest.raises(ToolError, match="the sandbox failed, not the code: no jail today"):
            await provider.run("return 1")
        run = asyncio.ensure_future(provider.run("return 2"))
        while provider._pool is None:
            await asyncio.sleep(0)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        return await provider.run("return 3"), await provider.close()

    assert asyncio.run(main())[0] == 3


def test_a_client_that_gives_up_ends_the_run():
    async def main():
        began, ended = asyncio.Event(), asyncio.Event()

        async def wait():
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        run = asyncio.ensure_future(CellblockSandboxProvider().run("await wait()", external_functions={"wait": wait}))
        await began.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await ended.wait()

    asyncio.run(main())


def test_wrong_words():
    for how, words in {"tools": "tools can't be given", "size": "size is"}.items():
        with pytest.raises(ValueError, match=words):
            CellblockSandboxProvider(**{how: -1})
    with pytest.raises(ValueError, match="in common"):
        ran(CellblockSandboxProvider(), "1", inputs={"a": 1}, external_functions={"a": print})


def test_the_page():
    names = {"__name__": "page"}
    exec(pages.blocks("fastmcp.md")[0], names)
    code = "return sum([(await call_tool('price', {'item': i}))['result'] for i in ('tea', 'milk')])"
    assert float(executed(code, names["server"])) == 5.7
