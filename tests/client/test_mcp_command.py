"""The command `cellblock mcp`: it becomes the Python package of the environment that the program lies in."""

import asyncio
import os
import shutil
import subprocess

import pytest

pytest.importorskip("mcp", reason="the MCP SDK needs Python 3.10")
pytest.importorskip("msgspec")
from mcp.client import Client  # noqa: E402
from mcp.client.stdio import StdioServerParameters  # noqa: E402

pytestmark = pytest.mark.once

PROGRAM = shutil.which("cellblock")


def test_it_serves(tmp_path):
    # what lies in the current folder, which may be a workspace, is not imported
    (tmp_path / "cellblock.py").write_text("raise SystemExit('imported from the workspace')")
    (tmp_path / "sys.py").write_text("raise SystemExit('imported from the workspace')")
    words = ["mcp", "--files", "--checkpoints", "--workspace", str(tmp_path), "--set", "limits.pids=60",
             "--sessions", "3", "--lifetime", "60"]

    async def main():
        server = StdioServerParameters(command=PROGRAM, args=words, cwd=str(tmp_path))
        async with Client(server, mode="legacy") as client:
            assert len((await client.list_tools()).tools) == 9
            done = await client.call_tool("run_python", {"code": "open('sys.py').read()[:5], 6 * 7"})
            assert done.structured_content["repr"] == "('raise', 42)"

    asyncio.run(asyncio.wait_for(main(), 240))


def test_wrong_words(tmp_path):
    def said(*words):
        done = subprocess.run([PROGRAM, "mcp", *words], capture_output=True, text=True, timeout=200, cwd=tmp_path)
        assert done.returncode == 2 and not done.stdout
        return done.stderr

    assert "unknown option '--fils'; did you mean '--files'?" in said("--fils")
    assert "unexpected argument 'x'" in said("x")
    assert "limits.pid" in said("--set", "limits.pid=3")
    assert "less than 1" in said("--sessions", "0")


def test_without_the_package_the_cure_is_named(tmp_path):
    prefix = tmp_path / "prefix"
    (prefix / "bin").mkdir(parents=True)
    shutil.copy(PROGRAM, prefix / "bin/cellblock")
    libexec = os.path.join(os.path.dirname(PROGRAM), "..", "libexec")
    shutil.copytree(libexec, prefix / "libexec")
    done = subprocess.run([prefix / "bin/cellblock", "mcp"], capture_output=True, text=True, timeout=200)
    assert done.returncode == 1 and "no Python lies beside this program" in done.stderr
    assert "pip install 'cellblock[mcp]'" in done.stderr
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or "/usr/bin/python3"
    for name in ("python", "python3"):
        (prefix / "bin" / name).symlink_to(python)
        done = subprocess.run([prefix / "bin/cellblock", "mcp"], capture_output=True, text=True, timeout=200)
        assert done.returncode == 1 and "the Python package is not there" in done.stderr, done
        assert f"{prefix}/bin/{name}: pip install \"cellblock[mcp]\"" in done.stderr
