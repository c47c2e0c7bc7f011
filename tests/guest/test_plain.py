"""What only plain mode has to do itself."""

import pytest


pytestmark = pytest.mark.usefixtures("plain")


def test_completion(guest):
    guest.run("value_of_mine = 1")
    reply = guest.ask("COMPLETE", code="x = value_of", cursor_pos=12)
    assert reply["matches"] == ["value_of_mine"] and (reply["cursor_start"], reply["cursor_end"]) == (4, 12)
    assert "str.upper" in guest.ask("COMPLETE", code="str.up", cursor_pos=6)["matches"]
    assert guest.ask("COMPLETE", code="", cursor_pos=0)["matches"] == []


def test_inspection(guest):
    guest.run("def documented(a, b=2):\n    '''words of it'''\n    return a")
    reply = guest.ask("INSPECT", code="documented", cursor_pos=3, detail_level=0)
    assert reply["found"] and "(a, b=2)" in reply["data"]["text/plain"] and "words of it" in reply["data"]["text/plain"]
    assert "return a" in guest.ask("INSPECT", code="documented(1", cursor_pos=12, detail_level=1)["data"]["text/plain"]
    assert guest.ask("INSPECT", code="nope", cursor_pos=2, detail_level=0)["found"] is False


@pytest.mark.parametrize(
    "code, status",
    [
        ("1", "complete"),
        ("x = 1\ny = 2", "complete"),
        ("for i in x:", "incomplete"),
        ("1 +* 2", "invalid"),
        ("f(", "incomplete"),
        ("def f():\n    return 1", "incomplete"),
        ("def f():\n    return 1\n", "complete"),
        ("await x", "complete"),
        ("'''abc", "incomplete"),
        ("", "complete"),
    ],
)
def test_is_complete(guest, code, status):
    reply = guest.ask("IS_COMPLETE", code=code)
    assert reply["status"] == status
    assert ("indent" in reply) == (status == "incomplete")


def test_indent(guest):
    assert guest.ask("IS_COMPLETE", code="if x:\n    for i in y:")["indent"] == "        "


def test_help_goes_to_stdout(guest):
    assert "Return the number of items" in guest.run("help(len)").stdout


def test_the_text_of_exit_asks_for_nothing(guest):
    for code in ("[exit]", "str(quit)", "print(exit)"):
        shown = guest.run(code)
        assert "() to exit" in shown.stdout + str(shown.result) and shown.reply["payload"] == []
