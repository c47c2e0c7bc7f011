"""AutoGen's JupyterCodeExecutor, whose kernel is ours by name: docs/frameworks.md's program, agents, and what hurts."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kernels
import pages

pytest.importorskip("autogen_ext.code_executors.jupyter", reason="AutoGen is pinned for Python 3.11 and later")

from autogen_agentchat.agents import CodeExecutorAgent  # noqa: E402
from autogen_agentchat.messages import TextMessage  # noqa: E402
from autogen_core import CancellationToken  # noqa: E402
from autogen_core.code_executor import CodeBlock  # noqa: E402
from autogen_ext.code_executors.jupyter import JupyterCodeExecutor  # noqa: E402
from autogen_ext.models.replay import ReplayChatCompletionClient  # noqa: E402

UNDER = "AutoGen"


@pytest.fixture(scope="module")
def folder(nothing_left):
    """The kernelspecs by the page's command, in a prefix of their own; a folder to start in."""
    command, = [line for line in pages.blocks("frameworks.md", "sh", UNDER)[0].splitlines() if "install --" in line]
    program = kernels.spec_argv()[0][0]
    for name, more in (("agent", []), ("other", ["--set", "timeout.cell=50", "--set", "limits.output=64K"])):
        words = command.replace("--sys-prefix", f"--prefix {nothing_left}").replace("--name agent", f"--name {name}")
        argv = [program, *words.split()[1:], *more, "--python", sys.executable]
        subprocess.run(argv, check=True, capture_output=True)
    kernels.let_in(nothing_left / "work")
    return nothing_left


@pytest.fixture
def executor(folder, monkeypatch):
    monkeypatch.setenv("JUPYTER_PATH", str(folder / "share/jupyter"))
    monkeypatch.chdir(folder / "work")

    def make(name="other"):
        return JupyterCodeExecutor(kernel_name=name, timeout=60, output_dir=folder / "shown")

    return make


async def blocks(executor, *codes):
    made = [CodeBlock(code=code, language="python") for code in codes]
    return await executor.execute_code_blocks(made, CancellationToken())


@pytest.mark.usefixtures("executor")
def test_the_page(capsys):
    program, = pages.blocks("frameworks.md", under=UNDER)
    exec(compile(program, "frameworks.md", "exec"), {"__name__": "page"})
    says, = pages.blocks("frameworks.md", "text", UNDER)
    assert capsys.readouterr().out == says


def test_an_agent_that_writes_and_runs_code(executor):
    code = "import os\ntotal = sum(range(10))\nprint('jailed:', os.path.exists('/etc/shadow'), total)"

    async def main():
        async with executor() as ex:
            model = ReplayChatCompletionClient([f"```python\n{code}\n```", "done"])
            agent = CodeExecutorAgent("coder", code_executor=ex, model_client=model)
            seen = [m async for m in agent.run_stream(task="add up")]
            return [m.to_text() for m in seen if hasattr(m, "to_text")], await blocks(ex, "total")

    messages, kept = asyncio.run(main())
    assert any("jailed: False 45" in m for m in messages) and messages[-1] == "done" and kept.output == "45", messages


def test_blocks_of_a_message(executor):
    async def main():
        async with executor() as ex:
            agent = CodeExecutorAgent("runner", code_executor=ex)
            text = "```python\nx = 1\n```\nand\n```python\nprint(x + 1)\n```"
            message = TextMessage(content=text, source="user")
            return (await agent.on_messages([message], CancellationToken())).chat_message

    assert "2" in asyncio.run(main()).content


def test_what_hurts_costs_no_state(executor):
    """A crash, all memory, a flood of output: an error each, and the next call is answered with the variables."""

    async def main():
        async with executor() as ex:
            await blocks(ex, "x = 41")
            died = await blocks(ex, "import os\nos._exit(3)", "never = 1")
            memory = await blocks(ex, "bytearray(1 << 36)")
            flood = await blocks(ex, "for i in range(100_000): print('x' * 1000)")
            return died, memory, flood, await blocks(ex, "x + 1, 'never' in vars()")

    died, memory, flood, after = asyncio.run(main())
    assert died.exit_code == 1 and "KernelDiedError" in died.output
    assert memory.exit_code == 1 and re.search("MemoryError|CellMemoryError", memory.output)
    assert len(flood.output) < 200_000
    assert after.exit_code == 0 and after.output.endswith("(42, False)")


def test_pictures_come_as_files(executor):
    png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    code = f"class P:\n    def _repr_mimebundle_(self, **_): return {{'image/png': {png!r}}}\nP()"

    async def main():
        async with executor() as ex:
            return await blocks(ex, code)

    result = asyncio.run(main())
    assert Path(result.output_files[0]).read_bytes().startswith(b"\x89PNG")


def test_the_host_is_out_of_reach(executor, folder, monkeypatch):
    """No key of the environment, no file beside the workspace; two executors see nothing of each other's variables."""
    monkeypatch.setenv("MODEL_KEY", "sk-0815-of-the-host")
    (folder / "beside.txt").write_text("sk-0815-of-the-host")
    seek = (
        "import os, pathlib\n"
        "found = [v for v in os.environ.values() if 'sk-0815' in v]\n"
        "for p in ('../beside.txt', %r, '/proc/1/environ', '/root/.ssh', '/proc/%d/environ'):\n"
        "    try: found.append(pathlib.Path(p).read_bytes())\n"
        "    except OSError: pass\n"
        "any(b'sk-0815' in (f if isinstance(f, bytes) else f.encode()) for f in found)"
    ) % (str(folder / "beside.txt"), __import__("os").getpid())
    planted = "import os; os.environ['PLANTED'] = 'sk-0815-of-the-host'\n"

    async def main():
        async with executor() as one, executor() as two:
            await blocks(one, "mine = 1\nopen('made.txt', 'w').write('by one')")
            return [await blocks(two, seek), await blocks(two, planted + seek), await blocks(two, "'mine' in vars()"),
                    await blocks(two, "import os; os.path.exists('made.txt')")]

    assert [r.output for r in asyncio.run(main())] == ["False", "True", "False", "False"]
    assert not (folder / "work/made.txt").exists()
