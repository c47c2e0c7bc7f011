"""Kernel gateway and Voila: kernels that are driven for others."""

import asyncio
import os
import urllib.request

import nbformat
import pytest

import kernels
import servers

pytestmark = pytest.mark.once

def lines(result):
    return "".join(m["content"]["text"] for m in result if m["msg_type"] == "stream")


def test_kernel_gateway(nothing_left):
    pytest.importorskip("kernel_gateway")
    folder, port = nothing_left / "gateway", kernels.free_ports(1)[0]
    (folder / "work").mkdir(parents=True)
    options = [f"--KernelGatewayApp.port={port}", "--KernelGatewayApp.ip=127.0.0.1"]
    with servers.running("kernel_gateway", folder, options, "Jupyter Kernel Gateway", server=False):
        servers.listening(port)
        kernel = servers.Kernel((f"http://127.0.0.1:{port}/", ""))
        assert lines(asyncio.run(kernel.run("print(6 * 7)"))) == "42\n"
        failed = asyncio.run(kernel.run("import os; os._exit(1)"))
        assert [m["content"]["ename"] for m in failed if m["msg_type"] == "error"] == ["KernelDiedError"]
        assert lines(asyncio.run(kernel.run("print('again')"))) == "again\n"
        kernel.close()


def test_voila(nothing_left):
    pytest.importorskip("voila")
    folder, port = nothing_left / "voila", kernels.free_ports(1)[0]
    (folder / "work").mkdir(parents=True)
    code = [
        "print('said', 6 * 7)",
        "from IPython.display import HTML\nHTML('<b>shown as HTML</b>')",
        "import ipywidgets\nipywidgets.IntSlider(3)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in code])
    notebook.metadata.kernelspec = {"name": kernels.NAME, "display_name": "t", "language": "python"}
    nbformat.write(notebook, folder / "work/n.ipynb")
    options = [os.fspath(folder / "work/n.ipynb"), f"--port={port}", "--no-browser"]
    with servers.running("voila", folder, options, r"Voil. is running|127\.0\.0\.1:\d+", server=False):
        servers.listening(port)
        page = urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=90).read().decode()
    for shown in ("said 42", "shown as HTML", "application/vnd.jupyter.widget-view+json", "IntSlider(value=3)"):
        assert shown in page
