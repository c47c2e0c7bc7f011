"""`approve`: who is asked what, and that only a clear yes lets a call happen."""

import asyncio
import threading

import pytest

pytest.importorskip("msgspec")
from cellblock._tools import Call, Dispatcher, escaped, tool  # noqa: E402

pytestmark = pytest.mark.once


def attempt(approve, *args, **kwargs):
    """What the tool got, or the error."""
    ran = []

    @tool(approve=approve)
    def f(path: str, more: dict = {}) -> str:  # noqa: B006
        ran.append((path, more))
        return "done"

    dispatcher = Dispatcher([f])
    answer = asyncio.run(dispatcher.answer([{"id": "1", "tool": "f", "args": list(args), "kwargs": kwargs}]))[0]
    dispatcher.close()
    assert ("ok" in answer) == bool(ran)
    return ran[0] if ran else f"{answer['error']['type']}: {answer['error']['message']}"


async def yes_later(call):
    await asyncio.sleep(0)
    return True


async def fails_later(call):
    raise ValueError


def fails(call):
    raise KeyboardInterrupt


@pytest.mark.parametrize("approve", [lambda c: True, yes_later, lambda c: yes_later(c)])
def test_yes(approve):
    assert attempt(approve, "x") == ("x", {})


@pytest.mark.parametrize("approve", [
    lambda c: False, lambda c: None, lambda c: 1, lambda c: "", lambda c: [True], fails, fails_later,
    lambda c: fails_later(c), lambda: True,
])
def test_everything_else_is_a_no(approve):
    assert attempt(approve, "x") == "ToolRefusedError: f was refused: it was not approved"


def test_much_is_made_ready_for_showing_in_a_thread(monkeypatch):
    """A character at a time; other sandboxes are served meanwhile."""
    threads = set()

    def watched(text):
        threads.add(threading.current_thread().name)
        return escaped(text)

    monkeypatch.setattr("cellblock._tools.escaped", watched)
    long = "\u00e4" * 100_000
    assert attempt(lambda c: c.arguments["path"] == long, long) == (long, {})
    assert threads == {"cellblock-approve"}


def test_a_text_is_the_reason():
    assert attempt(lambda c: "not on Sundays", "x") == "ToolRefusedError: f was refused: not on Sundays"


def test_who_does_not_answer_is_cancelled_and_the_tool_does_not_run():
    asked, gate, ran = threading.Event(), threading.Event(), []

    def never(call):
        asked.set()
        gate.wait(60)
        return True

    @tool(approve=never)
    def f() -> None:
        ran.append(1)

    dispatcher = Dispatcher([f])

    async def main():
        task = asyncio.ensure_future(dispatcher.answer([{"id": "1", "tool": "f"}]))
        while not asked.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.set()

    asyncio.run(main())
    dispatcher.close()
    assert not ran


def test_arguments_are_checked_before_anybody_is_asked():
    asked = []
    assert attempt(lambda c: asked.append(c) or True, 3).startswith("ValueError")
    assert not asked


def test_what_was_shown_is_what_runs():
    def meddles(call):
        assert call.raw["more"]["a"] == (1, {"b": "c"})
        for change in (
            lambda: call.arguments.update(path="y"),
            lambda: call.raw.__setitem__("path", "y"),
            lambda: call.raw["more"]["a"].append(1),
            lambda: call.raw["more"]["a"][1].update(b="y"),
            lambda: setattr(call, "raw", {}),
        ):
            with pytest.raises((AttributeError, TypeError)):
                change()
        return True

    assert attempt(meddles, "x", more={"a": [1, {"b": "c"}]}) == ("x", {"a": [1, {"b": "c"}]})


def test_what_is_shown_does_a_terminal_no_harm():
    shown = []
    evil = "\x1b[2K\rls\u202egpj.exe\u2066\x07\x9b\n\ud7ff\U000e0041\u200b"
    attempt(lambda c: shown.append(c), evil, more={"\x1bkey": [evil]})
    call: Call = shown[0]
    for text in (call.arguments["path"], *call.arguments["more"], call.arguments["more"]["\\x1bkey"][0], str(call)):
        assert text.isprintable() and "\u202e" not in text and "\x1b" not in text
    assert "\\x1b[2K\\rls\\u202egpj.exe\\u2066\\x07\\x9b\\n" in call.arguments["path"]
    assert call.raw["path"] == evil and evil not in repr(call) and "\x1b" not in repr(call)
    assert str(call).startswith('f(path="\\x1b[2K')


def test_different_texts_are_shown_differently():
    texts = ["\x1b", "\\x1b", "\\\\x1b", "\u202e", "\\u202e", "a b", "a\u00a0b", "é", "e\u0301", "日本"]
    assert len({escaped(t) for t in texts}) == len(texts)
    assert escaped("é 日本 ok") == "é 日本 ok"
