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


VALUES = """class Fails:
    def _repr_html_(self): raise ValueError('no html')
    def _repr_markdown_(self): return '*fine*', {'about': 1}
    def __repr__(self): return 'its text'
class Bundle:
    _repr_html_ = None
    def _repr_mimebundle_(self, include, exclude): return {'text/x': repr((include, exclude))}, {'of': 'it'}
class Wrong:
    def _repr_mimebundle_(self): return {}
    def __repr__(self): return 'its text'
class Nothing:
    def __repr__(self): raise ValueError('no text')
"""


def test_a_representation_that_fails_costs_no_other(guest):
    result = guest.run(VALUES + "Fails()")
    shown = result.of("EXECUTE_RESULT")[0].content
    assert shown["data"] == {"text/plain": "its text", "text/markdown": "*fine*"}
    assert shown["metadata"] == {"text/markdown": {"about": 1}}
    assert result.reply["evalue"] == "no html" and len(result.of("ERROR")) == 1
    assert guest.run("str(_)").result == "'its text'"


@pytest.mark.parametrize("value, error", [("Wrong()", "TypeError"), ("Nothing()", "ValueError")])
def test_representations_that_fail(guest, value, error):
    result = guest.run(VALUES + value)
    assert result.error["ename"] == error and result.result == ("its text" if error == "TypeError" else None)


def test_a_representation_that_fails_in_a_display_does_not_end_the_cell(guest):
    """As in IPython."""
    result = guest.run(VALUES + "display(Fails(), Nothing()); print('goes on')")
    assert [f.kind for f in result.frames] == ["ERROR", "DISPLAY_DATA", "ERROR", "STREAM", "EXECUTE_REPLY"]
    assert result.ok and result.of("DISPLAY_DATA")[0].content["data"]["text/markdown"] == "*fine*"
    assert "no html" in result.of("ERROR")[0].content["traceback"][-1]


def test_a_bundle_is_asked_as_ipython_asks_it(guest):
    shown = guest.run(VALUES + "Bundle()").of("EXECUTE_RESULT")[0].content
    assert "Bundle object" in shown["data"].pop("text/plain")
    assert shown == {"data": {"text/x": "(None, None)"}, "metadata": {"of": "it"}}


def test_the_text_of_exit_asks_for_nothing(guest):
    for code in ("[exit]", "str(quit)", "print(exit)"):
        shown = guest.run(code)
        assert "() to exit" in shown.stdout + str(shown.result) and shown.reply["payload"] == []


def test_a_raw_display_is_sent_as_it_is(guest):
    """As in IPython mode: without text of our own."""
    code = "display({'application/x.load+json': '', 'text/html': '<p>'}, raw=True%s)"
    shown = guest.run(code % "").of("DISPLAY_DATA")[0].content["data"]
    assert shown == {"application/x.load+json": "", "text/html": "<p>"}
    assert guest.run(code % ", display_id='a', update=True").of("UPDATE_DISPLAY_DATA")[0].content["data"] == shown
    assert guest.run("display({}, raw=True)").of("DISPLAY_DATA")[0].content["data"] == {}
