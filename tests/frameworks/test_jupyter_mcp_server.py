"""jupyter-mcp-server in a JupyterLab whose default kernel is ours: the page's command and program, and what hurts."""

import asyncio
import shlex
import subprocess
import sys

import pytest

if sys.version_info < (3, 11):
    pytest.skip("its environment is locked for Python 3.11 and newer", allow_module_level=True)

import httpx2  # noqa: E402
import kernels  # noqa: E402
import nbformat  # noqa: E402
import pages  # noqa: E402
import servers  # noqa: E402
import wheels  # noqa: E402
from mcp.client import Client  # noqa: E402
from mcp.client.streamable_http import streamable_http_client  # noqa: E402

UNDER = "JupyterLab with jupyter-mcp-server"
SECRET = "sk-1337-of-the-server"


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """That of an environment with what the page installs: jupyter-collaboration comes along, and changes JupyterLab."""
    if not wheels.uv():
        pytest.skip("NOT RUN: uv is not there")
    folder = tmp_path_factory.mktemp("env")
    wheels.run(wheels.uv(), "venv", "-q", "--python", sys.executable, folder / "v")
    packages = ["-r", pages.ROOT / "tests/frameworks/jupyter-mcp-server.lock"]
    try:
        wheels.run(wheels.uv(), "pip", "install", "-q", "--python", folder / "v/bin/python", *packages)
    except AssertionError as e:
        pytest.skip(f"NOT RUN: uv could not install its packages: {str(e)[-300:]}")
    return folder / "v/bin/python"


@pytest.fixture(scope="module")
def lab(nothing_left, python):
    """As the page's command starts it, at another port; gives "127.0.0.1:PORT"."""
    folder = nothing_left / "lab"
    kernels.let_in(folder / "work")
    _, install, command = pages.blocks("frameworks.md", "sh", UNDER)[0].splitlines()
    words = install.replace("--sys-prefix", f"--prefix {folder}/.local").split()[1:]  # the server's home is `folder`
    subprocess.run([kernels.spec_argv()[0][0], *words, "--python", sys.executable], check=True, capture_output=True)
    options = [w for w in shlex.split(command)[2:] if not w.startswith(("--no-browser", "--port"))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SERVER_KEY", SECRET)
        with servers.running("jupyterlab", folder, options, r"http://(127\.0\.0\.1:(\d+))/lab",
                             python=python) as found:
            servers.listening(int(found[2]))
            yield found[1]


def run(lab, body):
    async def main():
        http = httpx2.AsyncClient(headers={"Authorization": "token secret"}, timeout=120)
        async with Client(streamable_http_client(f"http://{lab}/mcp", http_client=http), mode="legacy") as client:

            async def call(tool, **arguments):
                result = await client.call_tool(tool, arguments)
                return "\n".join(getattr(part, "text", part.type) for part in result.content)

            return await body(call)

    return asyncio.run(main())


def test_the_page(lab):
    program, = pages.blocks("frameworks.md", under=UNDER)
    says, = pages.blocks("frameworks.md", "text", UNDER)
    done = subprocess.run([sys.executable, "-c", program.replace("127.0.0.1:8888", lab)], capture_output=True,
                          text=True, timeout=240)
    assert done.stdout.replace("\n\n", "\n") == says, done.stderr
    saved = servers.rest((f"http://{lab}/", "secret"), "api/contents/n.ipynb")["content"]
    assert nbformat.from_dict(saved).cells[0]["outputs"][0]["data"]["text/plain"] == "False"


def test_two_notebooks_and_what_hurts(lab):
    """The kernel's limit ends an endless cell; each notebook has a kernel of its own, and no key of the server's."""

    async def body(call):
        found = []
        for name in "ab":
            path = f"{name}.ipynb"
            await call("use_notebook", notebook_name=name, notebook_path=path, mode="create", kernel_id="NEW")
            found.append(await call("execute_code", code=f"import os\nx = [{name!r}]\n'SERVER_KEY' in os.environ"))
        for code in ("1 / 0", "while True: x", "x"):
            found.append(await call("execute_code", code=code, timeout=100))
        await call("use_notebook", notebook_name="a", notebook_path="a.ipynb")
        return [*found, await call("execute_code", code="x")]

    key_a, key_b, error, endless, b, a = run(lab, body)
    assert (key_a, key_b) == ("False", "False") and "ZeroDivisionError" in error
    assert "CellTimeoutError" in endless
    assert (b, a) == ("['b']", "['a']")
