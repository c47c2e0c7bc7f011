"""jupyter_client, unmodified: prompts, payloads, displays and history as a program that uses it sees them."""

import os

import pytest
from jupyter_client.manager import start_new_kernel

import kernels

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    work = tmp_path_factory.mktemp("work")
    env = {**os.environ, "XDG_DATA_HOME": str(tmp_path_factory.mktemp("data"))}  # its history is not the user's
    manager, client = start_new_kernel(kernel_name=kernels.NAME, cwd=str(work), env=env, startup_timeout=60)
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def run(client, code, *answers):
    """(reply's content, outputs, what was asked)."""
    outputs, asked, answers = [], [], list(answers)

    def on_stdin(message):
        asked.append((message["content"]["prompt"], message["content"]["password"]))
        client.input(answers.pop(0))

    reply = client.execute_interactive(
        code, allow_stdin=bool(answers), stdin_hook=on_stdin, output_hook=outputs.append, timeout=60
    )
    shown = [m for m in outputs if m["msg_type"] not in ("status", "execute_input")]
    return reply["content"], shown, asked


def text(outputs):
    return "".join(m["content"]["text"] for m in outputs if m["msg_type"] == "stream")


def test_prompts(client):
    code = "import getpass\nprint(input('Name? '), getpass.getpass('Key: '))"
    reply, outputs, asked = run(client, code, "Ada", "secret")
    assert reply["status"] == "ok" and asked == [("Name? ", False), ("Key: ", True)] and text(outputs) == "Ada secret\n"
    reply, _, _ = run(client, "input()", "\x04")
    assert reply["ename"] == "EOFError"
    reply, _, _ = run(client, "input()")
    assert reply["ename"] == "StdinNotImplementedError"


@pytest.mark.cellblock_only("ipykernel's commands read nothing and hang")
def test_a_command_that_reads(client):
    reply, outputs, asked = run(client, "!printf 'name? '; read x; echo hello $x", "Ada")
    assert reply["status"] == "ok" and asked == [("", False)] and text(outputs) == "name? hello Ada\n"
    _, outputs, _ = run(client, "!read x; echo end")
    assert text(outputs) == "end\n"


def test_payloads(client):
    codes = {"len?": "page", "get_ipython().set_next_input('n')": "set_next_input", "exit": "ask_exit"}
    for code, source in codes.items():
        assert source in [p["source"] for p in run(client, code)[0]["payload"]], code
    page = run(client, "len?")[0]["payload"][0]
    assert "number of items" in page["data"]["text/plain"] and page["start"] == 0
    assert run(client, "1")[1][0]["content"]["data"]["text/plain"] == "1", "ask_exit asks: the client decides"


def test_displays(client):
    code = "from IPython.display import clear_output\nh = display(1, display_id='d')\nh.update(2)\n"
    code += "print(3)\nclear_output(wait=True)\nprint(4)"
    _, outputs, _ = run(client, code)
    assert [m["msg_type"] for m in outputs] == [
        "display_data",
        "update_display_data",
        "stream",
        "clear_output",
        "stream",
    ]
    assert [m["content"]["transient"]["display_id"] for m in outputs[:2]] == ["d", "d"]
    assert outputs[3]["content"] == {"wait": True}


def test_history(client):
    for code in ("first = 1", "second = 2", "first = 1"):
        run(client, code)

    def ask(**how):
        msg_id = client.history(**how)
        while True:
            reply = client.get_shell_msg(timeout=60)
            if reply["parent_header"]["msg_id"] == msg_id:
                return [entry[2] for entry in reply["content"]["history"]]

    assert ask(hist_access_type="tail", n=2) == ["second = 2", "first = 1"]
    assert ask(hist_access_type="search", pattern="first*", n=10).count("first = 1") == 2
    assert ask(hist_access_type="search", pattern="first*", n=10, unique=True).count("first = 1") == 1
    assert ask(hist_access_type="range", session=0, start=1, stop=2)
