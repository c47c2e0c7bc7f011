"""A cell and its Result: each word of it, sync and async."""

import asyncio
import pickle
from unittest import mock

import pytest

import cellblock
from cellblock._errors import from_reply
from cellblock._session import Connected, Session
from cellblock._wire import new_message

pytestmark = pytest.mark.once


def test_output_and_result(sb):
    r = sb.run("import sys\nprint('out')\nprint('err', file=sys.stderr)\n[1, 2]")
    assert r.ok and r.error is None and r.fault is None and r.limit is None and not r.partial
    assert (r.stdout, r.stderr, r.repr, r.state, r.undone, r.calls) == ("out\n", "err\n", "[1, 2]", "kept", [], [])
    assert r.usage.wall_s > 0 and r.usage.memory_peak_bytes > 0 and r.usage.output_bytes >= 8
    assert r.text() == "out\n[stderr]\nerr\n[1, 2]"
    assert sb.last == r


def test_no_result(sb):
    r = sb.run("x = 1")
    assert r.ok and r.repr is None and r.value is None and not r.has_value and r.text() == ""


def test_value(sb, values):
    assert sb.run("{'a': [1, 2.5, None, True], 'b': (1, 'ü')}").value == {"a": [1, 2.5, None, True], "b": [1, "ü"]}
    assert sb.run("b'\\x00\\xff'").value == b"\x00\xff"
    none = sb.run("None")
    assert none.ok and none.value is None
    assert not sb.run("object()").has_value
    array = pytest.importorskip("numpy").arange(6, dtype="<i4").reshape(2, 3)
    got = sb.run("import numpy\nnumpy.arange(6, dtype='<i4').reshape(2, 3)")
    assert got.value.dtype == array.dtype and (got.value == array).all()


def test_error(sb):
    r = sb.run("print('before')\nraise ValueError('no')")
    assert not r.ok and r.fault == "code" and r.error.name == "ValueError" and r.error.value == "no"
    assert "\x1b" not in r.error.traceback and "ValueError" in r.error.traceback
    assert r.text().startswith("before\n") and r.text().endswith("ValueError: no")
    with pytest.raises(cellblock.CellError, match="ValueError: no") as caught:
        sb.run("raise ValueError('no')", check=True)
    assert caught.value.result.fault == "code"
    assert sb.run("1", check=True).ok


def test_the_kernels_hint_is_part_of_an_error(sb):
    r = sb.run("import socket\nsocket.create_connection(('example.invalid', 80))")
    assert r.error.hint.startswith('[cellblock] network.mode is "none"') and "\n" not in r.error.hint
    assert str(r.error) == f"{r.error.name}: {r.error.value}\n{r.error.hint}"
    assert r.text().count("[cellblock]") == 1 and r.text().endswith(r.error.hint)
    assert sb.run("1 / 0").error.hint == ""


def test_timeout(sb):
    sb.run("kept = 5")
    r = sb.run("import time\ntime.sleep(1000)", timeout=1)
    assert not r.ok and r.fault == "limit" and r.limit == "time" and r.error.name == "CellTimeoutError"
    assert sb.run("kept").repr == "5"
    with pytest.raises(ValueError, match="timeout is 0"):
        sb.run("1", timeout=0)


def test_env(sb, values):
    assert sb.run("import os\nos.environ['A']", env={"A": "1"}).repr == "'1'"
    assert sb.run("os.environ.get('A')").repr is None


def test_on_output(sb):
    pieces = []
    r = sb.run("import sys\nprint('a')\nsys.stdout.flush()\nprint('b', file=sys.stderr)\n7", on_output=pieces.append)
    assert sorted("".join(pieces)) == sorted("a\nb\n") and r.stdout == "a\n" and r.repr == "7"
    with pytest.raises(cellblock.CellError):
        sb.run("1/0", on_output=pieces.append, check=True)


def test_an_error_of_on_output_is_raised_and_ends_the_cell(sb):
    def stop(text):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        sb.run("import time\nprint('x', flush=True)\ntime.sleep(1000)", on_output=stop)
    assert sb.last.stdout == "x\n" and sb.last.fault == "limit" and sb.run("3").repr == "3"


def test_stream(sb):
    events = list(sb.stream("from IPython.display import display\nprint('a', flush=True)\ndisplay({'k': 1})\n1 / 0"))
    kinds = [e.kind for e in events]
    assert kinds == ["stdout", "display", "error", "end"]
    assert events[0].text == "a\n" and events[1].text == "{'k': 1}" and events[-1].result.fault == "code"


def test_displays_and_images(sb):
    pytest.importorskip("matplotlib")
    r = sb.run(
        "%matplotlib inline\nimport matplotlib.pyplot as plt\nfrom IPython.display import HTML\n"
        "plt.plot([1, 2]); plt.show()\nHTML('<b>x</b>')"
    )
    assert r.ok, r.text()
    assert [i.mime for i in r.images] == ["image/png"] and r.images[0].data.startswith(b"\x89PNG")
    assert any(d.get("text/html") == "<b>x</b>" for d in r.displays)


def test_updated_and_cleared_displays(sb):
    r = sb.run(
        "from IPython.display import display, clear_output\nh = display(1, display_id=True)\nh.update(2)\n"
    )
    assert [d["text/plain"] for d in r.displays] == ["2"]
    r = sb.run("display(1)\nclear_output()\ndisplay(3)")
    assert [d["text/plain"] for d in r.displays] == ["3"]


def test_output_limit_is_no_error(make):
    r = make("agent").run("print('x' * 3_000_000)")
    assert r.ok and r.limit == "output" and r.fault is None and len(r.stdout) < 2_000_000


@pytest.mark.parametrize(
    "how, error, says",
    [
        ({"code": None}, TypeError, "code is None"),
        ({"code": b"1"}, TypeError, "code is of type bytes"),
        ({"code": "a\nb = '\ud800'"}, ValueError, r"code has half a character .*at position 7, in line 2"),
        ({"timeout": "x"}, TypeError, "timeout is 'x'"),
        ({"timeout": True}, TypeError, "timeout is True"),
        ({"timeout": float("nan")}, ValueError, "timeout is nan"),
        ({"env": ["A"]}, TypeError, r"env is \['A'\]"),
        ({"env": "A=1"}, TypeError, "env is 'A=1'"),
        ({"env": {"A": "\ud800"}}, ValueError, r"env\['A'\] has half a character"),
    ],
)
def test_a_wrong_argument_is_named(sb, how, error, says):
    how = {"code": "1", **how}
    with pytest.raises(error, match=says) as caught:
        sb.run(how.pop("code"), **how)
    assert caught.type is error
    if "env" in how:
        with pytest.raises(error, match=says):
            sb.run_command(["true"], **how)
    assert sb.run("1").ok


@pytest.mark.parametrize("code", ["import numpy\nnumpy.ones(100_000)", "list(range(400_000))", "'x' * 600_000"])
def test_a_value_that_is_too_large_leaves_its_text(make, code):
    if "numpy" in code:
        pytest.importorskip("numpy")
    r = make("agent").run(code)
    assert r.ok and r.limit is None and not r.has_value and r.repr and r.text()


def test_a_crash_is_the_code_s_fault_and_costs_no_variable(make):
    sb = make("agent")
    sb.run("x = 41")
    r = sb.run("import os\nos._exit(3)")
    assert not r.ok and r.fault == "code" and r.state == "restored" and r.error.name == "KernelDiedError"
    assert r.undone == [2] and sb.run("x + 1").repr == "42"


def test_input(make):
    async def answer(prompt, password):
        return f"{prompt}-{password}"

    assert make("notebook", on_input=answer).run("input('who')").repr == "'who-False'"
    r = make("notebook").run("input('who')")
    assert r.error.name == "StdinNotImplementedError" and r.fault == "code"


def test_use_after_close(make):
    sb = make("agent")
    sb.run("1")
    sb.close()
    sb.close()
    for use in (lambda: sb.run("1"), sb.start, sb.reset, sb.changes):
        with pytest.raises(cellblock.SandboxClosedError, match="closed"):
            use()


def test_a_second_event_loop(make):
    if make.kind == "sync":
        pytest.skip("a Sandbox has no event loop of its caller's")
    sb = make("agent")
    sb.run("1")

    async def elsewhere():
        with pytest.raises(cellblock.SandboxError, match="close it and make a new AsyncSandbox here"):
            await sb.inner.run("1")
        await sb.inner.close()
        async with cellblock.AsyncSandbox("agent", workspace=make.work()) as new:
            assert (await new.run("2")).repr == "2"

    asyncio.run(elsewhere())


def test_a_late_answer_is_none_to_the_next_question(make):
    async def main():
        second = asyncio.Event()

        async def answer(prompt, password):
            if prompt == "1":
                await sb.interrupt()
                await second.wait()
                return "late"
            second.set()
            await asyncio.sleep(0.5)  # in which the late one would be sent
            return "right"

        async with cellblock.AsyncSandbox("notebook", workspace=make.work(), on_input=answer) as sb:
            code = "try:\n    input('1')\nexcept KeyboardInterrupt:\n    pass\ninput('2')"
            assert (await sb.run(code)).value == "right"

    asyncio.run(main())


def test_an_answer_names_where_its_cell_was_sent():
    """Also when the run is over by then: without a name it would be one to the main line's question."""

    async def main():
        transport, session = mock.Mock(), Session(mock.AsyncMock())
        session._loop, session.connected = asyncio.get_running_loop(), Connected(transport, mock.AsyncMock(), str)
        for where in {"subshell_id": "branch"}, {}:
            question = new_message("input_request", {}, "kernel", parent={"msg_id": "over", **where})
            session._say("over", question, "typed")
            (channel, answer), _ = transport.send.call_args
            assert channel == "stdin" and answer.content["value"] == "typed"
            assert answer.header.get("subshell_id") == where.get("subshell_id")

    asyncio.run(main())


@pytest.mark.parametrize("error", [
    cellblock.CellError(cellblock.Result()), cellblock.CheckpointError("CheckpointError", "x", {"a": 1}),
    cellblock.CommandTimeoutError("CommandTimeoutError", "t", {"stdout": "out"}),
])
def test_errors_go_from_process_to_process(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)


def test_an_interrupted_command_has_what_it_wrote():
    said = {"status": "error", "ename": "KeyboardInterrupt", "evalue": "interrupted", "stdout": "out", "stderr": "err"}
    error = from_reply(said)
    assert type(error) is cellblock.CommandError and (error.stdout, error.stderr) == ("out", "err")
    assert type(from_reply({**said, "ename": "CheckpointError"})) is cellblock.CheckpointError


def test_an_error_does_not_say_its_classs_name_twice():
    for name, text in {
        "CheckpointError": "why", "CommandTimeoutError": "why", "KernelBusyError": "KernelBusyError: why",
        "OtherError": "OtherError: why",
    }.items():
        error = from_reply({"status": "error", "ename": name, "evalue": "why"})
        assert (str(error), error.name, error.text) == (text, name, "why")
    assert str(from_reply({"status": "error", "ename": "CheckpointError"})) == "CheckpointError"
