"""What of the user's home is seen in a jail: IPython's start-up files and configuration, matplotlib's, all read-only;
and what is ready for a first plot."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import kernels

pytestmark = pytest.mark.cellblock_only

FILES = {
    ".ipython/profile_default/startup/00-mine.py": "import os\nstarted = 'yes'\nprint('start-up says')\n",
    ".ipython/profile_default/startup/10-magics.ipy": "%alias hi echo hello\n",
    ".ipython/profile_default/ipython_config.py": "c.InteractiveShellApp.exec_lines = ['line = 1']\n"
    "c.InteractiveShell.ast_node_interactivity = 'all'\nc.InlineBackend.figure_formats = {'svg'}\n",
    ".config/matplotlib/matplotlibrc": "figure.figsize: 2, 1\n",
    ".config/matplotlib/stylelib/mine.mplstyle": "lines.linewidth: 7\n",
    ".config/secret": "of no concern\n",
    ".ssh/id_rsa": "a key\n",
}


def has(module):
    """Whether the kernel's interpreter has it, by a look from outside."""
    argv = kernels.spec_argv()[0]
    python = argv[argv.index("--python") + 1] if "--python" in argv else sys.executable
    look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([python, "-c", look], cwd="/").returncode == 0


def test_configuration_of_ipython_and_matplotlib(start, nothing_left):
    home = nothing_left / "mine"
    for name, text in FILES.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    client = start(env={"HOME": str(home)}).client
    assert client.run("started, line").result == "('yes', 1)"
    assert client.run("hi").text() == "hello\n"
    cell = client.run("1\n2")
    assert [m.content["data"]["text/plain"] for m in cell.of("execute_result")] == ["1", "2"]
    for name in FILES:
        seen = client.run(f"os.path.exists(os.path.expanduser('~/{name}'))").result == "True"
        assert seen == (".ssh" not in name and "secret" not in name), name
        if seen:
            error = client.run(f"open(os.path.expanduser('~/{name}'), 'w')").error
            assert "Read-only" in error["evalue"] or "Permission" in error["evalue"]
            assert (home / name).read_text() == FILES[name]
    if has("matplotlib"):
        assert client.run("import matplotlib.pyplot as plt").ok
        assert client.run("plt.rcParams['figure.figsize']").result == "[2.0, 1.0]"
        assert client.run("plt.style.use('mine')\nplt.rcParams['lines.linewidth']").result == "7.0"
        assert "image/svg+xml" in client.run("plt.plot([1]);").of("display_data")[0].content["data"]


def test_the_list_of_fonts_is_ready(start):
    """Made at installation: looking through a desktop's fonts takes seconds, and each kernel's home is new."""
    spec = Path(kernels.KernelSpecManager().get_kernel_spec(kernels.NAME).resource_dir)
    if not has("matplotlib"):
        pytest.skip("the kernel's interpreter has no matplotlib")
    lists = list(spec.glob("pycache/fontlist-*.json"))
    fonts = json.loads(lists[0].read_text())["ttflist"]
    client = start().client
    cell = client.run("import matplotlib, os\nos.listdir(matplotlib.get_cachedir())")
    assert cell.result == repr([lists[0].name]) and cell.types.count("stream") == 0
    assert client.run("from matplotlib.font_manager import fontManager\nlen(fontManager.ttflist)").result == str(
        len(fonts)
    )


def test_what_jedi_reads_first_is_ready(start):
    """Made at installation: read anew in each kernel's empty home it takes seconds."""
    spec = Path(kernels.KernelSpecManager().get_kernel_spec(kernels.NAME).resource_dir)
    if not has("jedi"):
        pytest.skip("the kernel's interpreter has no jedi")
    ready = sorted(tree.name for tree in spec.glob("pycache/trees-*.pkl"))
    assert ready
    client = start().client
    asked = {"code": "'text'.joi", "cursor_pos": 10}
    assert "join" in client.request("complete_request", asked, timeout=60).content["matches"]
    cell = client.run(
        "import jedi, os, parso.cache as c\nf = os.path.join(jedi.settings.cache_directory, c._VERSION_TAG)\n"
        "print(*('trees-%s-%s' % (c._VERSION_TAG, name) for name in os.listdir(f) if name.endswith('.pkl')))"
    )
    assert sorted(cell.text().split()) == ready
