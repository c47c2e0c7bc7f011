"""A client that starts and speaks as VS Code's does: it finds the kernelspec itself, starts the kernel without a
server, sends before it has subscribed, and prepares the kernel with silent cells."""

import pytest

import kernels
from rawclient import Client

pytestmark = pytest.mark.once

# what its start-up asks of Python kernels: the cell's folder, where modules lie, completion and matplotlib settings
START = [
    "import os as _o, sys as _s\n_cwd = _o.getcwd()\nif _cwd not in _s.path: _s.path.insert(0, _cwd)\ndel _o, _s, _cwd",
    "%config Completer.use_jedi = False",
    "%matplotlib inline\nimport matplotlib_inline.backend_inline\n"
    "%config InlineBackend.figure_formats = {'svg', 'png'}",
    "def __VSCODE_inject():\n    import builtins as b, IPython.core.getipython as g\n"
    "    b.get_ipython_for_vscode = g.get_ipython\n    return True\n__VSCODE_inject()\ndel __VSCODE_inject",
]


@pytest.fixture
def code(start):
    argv, _ = kernels.spec_argv()
    if "-f" in argv:  # `--f=FILE` in one word
        at = argv.index("-f")
        argv = [*argv[:at], f"--f={argv[at + 1]}", *argv[at + 2 :]]
    env = {"VSCODE_PID": "1", "VSCODE_CWD": "/", "VSCODE_IPC_HOOK": "/nowhere/sock", "PYTHONUNBUFFERED": "1"}
    k = start(ready=False, argv=argv, env=env)
    c = Client(k, channels=("shell", "control", "stdin"))
    start.clients.append(c)
    return k, c


def silent(client, source, **how):
    content = {"silent": True, "store_history": False, "stop_on_error": False, "allow_stdin": False, **how}
    return client.start(source, **content)


def test_start(code):
    """The first requests go out before anybody subscribes: none of what they say may be lost, then or later."""
    k, c = code
    info = c.send("kernel_info_request")
    first = silent(c, START[0])
    assert c.reply(info).content["status"] == "ok"
    assert c.reply(first).content["status"] == "ok"
    c.open("iopub")
    welcome = c.wait("iopub", lambda m: m.type == "iopub_welcome")
    assert welcome is not None
    assert c.until_idle(info) and c.until_idle(first)
    for source in START[1:]:
        asked = silent(c, source)
        done = c.finish(asked)
        assert done.ok, done
        assert not [m for m in done.iopub if m.type not in ("status", "stream")]
    cell = c.run("x = 6 * 7\nx", metadata={"cellId": "vscode-notebook-cell:/n.ipynb#W0sZmlsZQ%3D%3D"})
    assert cell.result == "42" and cell.content["execution_count"] == 1
    assert c.run("1/0").error["ename"] == "ZeroDivisionError"
    assert c.request("complete_request", {"code": "x.bit_l", "cursor_pos": 7}).content["matches"] == ["bit_length"]


def test_it_interrupts_by_message_and_restarts_by_the_process(code):
    k, c = code
    c.open("iopub")
    c.request("kernel_info_request")
    cell = c.start("print('running', flush=True)\nimport time\ntime.sleep(600)")
    c.says(cell, "running")
    c.send("interrupt_request", {}, channel="control")
    assert c.finish(cell).content["ename"] == "KeyboardInterrupt"
    c.send("shutdown_request", {"restart": True}, channel="control")
    k.wait()


def test_variables_are_listed_while_nothing_runs(code):
    """Its variable view: silent cells whose user_expressions bring the answer."""
    _, c = code
    c.open("iopub")
    c.run("frame = {'a': 1}")
    asked = silent(c, "", user_expressions={"names": "[n for n in dir() if n == 'frame']"})
    done = c.finish(asked)
    assert done.content["user_expressions"]["names"]["data"]["text/plain"] == "['frame']"
    assert not done.of("execute_input", "execute_result")
