"""Rich output: displays, updates, what is not JSON, matplotlib, pandas."""

import base64

import pytest

VALUE = "application/vnd.cellblock.value+json"


def test_display(guest):
    result = guest.run("display(1, 'two')")
    assert [f.content["data"]["text/plain"] for f in result.of("DISPLAY_DATA")] == ["1", "'two'"]


def test_rich_methods(guest):
    code = """class Rich:
    def _repr_html_(self): return '<b>x</b>'
    def _repr_png_(self): return b'\\x89PNG\\x00'
    def __repr__(self): return 'Rich!'
Rich()"""
    data = guest.run(code).of("EXECUTE_RESULT")[0].content["data"]
    assert data["text/html"] == "<b>x</b>" and data["text/plain"] == "Rich!"
    assert base64.b64decode(data["image/png"]) == b"\x89PNG\x00"


def test_mimebundle(guest):
    code = """class Bundle:
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {'application/json': {'a': [1, None]}, 'text/plain': 'bundle'}, {'application/json': {'expanded': True}}
Bundle()"""
    content = guest.run(code).of("EXECUTE_RESULT")[0].content
    assert content["data"] == {"application/json": {"a": [1, None]}, "text/plain": "bundle"}
    assert content["metadata"] == {"application/json": {"expanded": True}}


def test_display_id_and_update(guest):
    result = guest.run("h = display('one', display_id='here')\nh.update('two')")
    shown, updated = result.of("DISPLAY_DATA", "UPDATE_DISPLAY_DATA")
    assert shown.kind == "DISPLAY_DATA" and updated.kind == "UPDATE_DISPLAY_DATA"
    assert shown.content["transient"] == updated.content["transient"] == {"display_id": "here"}
    assert updated.content["data"]["text/plain"] == "'two'"


HTML = "{'text/html': '<b>x</b>', 'text/plain': 'x'}"


def test_display_of_what_is_a_bundle_already(guest):
    content = guest.run(f"display({HTML}, raw=True, metadata={{'a': 1}})").of("DISPLAY_DATA")[0].content
    assert content["data"]["text/html"] == "<b>x</b>" and content["data"]["text/plain"] == "x"
    assert content["metadata"] == {"a": 1}
    assert guest.run("display(1, raw=True)").error["ename"] == "TypeError"


def test_metadata_of_a_display(guest):
    code = """class Bundle:
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {'text/plain': 'bundle'}, {'text/plain': {'own': 1, 'both': 1}}
display(Bundle(), metadata={'text/plain': {'both': 2}, 'more': 3})"""
    content = guest.run(code).of("DISPLAY_DATA")[0].content
    assert content["metadata"] == {"text/plain": {"own": 1, "both": 2}, "more": 3}


def test_display_updates_an_earlier_one(guest):
    shown, updated = guest.run(
        "h = display(display_id=True, transient={'a': 1})\ndisplay(2, display_id=h.display_id, update=True)"
    ).of("DISPLAY_DATA", "UPDATE_DISPLAY_DATA")
    assert (shown.kind, updated.kind) == ("DISPLAY_DATA", "UPDATE_DISPLAY_DATA")
    assert updated.content["data"]["text/plain"] == "2" and shown.content["transient"].pop("a") == 1
    assert updated.content["transient"] == shown.content["transient"] and shown.content["transient"]["display_id"]
    again = guest.run("h.update(3)").of("UPDATE_DISPLAY_DATA")[0].content
    assert again["data"]["text/plain"] == "3" and again["transient"] == shown.content["transient"]
    assert guest.run("display(1, update=True)").error["ename"] == "TypeError"
    if guest.interpreter.ipython not in ((7, 21), (7, 22)):  # they do not know it
        cleared = guest.run("display(1, clear=True)")
        assert [f.kind for f in cleared.frames][:2] == ["CLEAR_OUTPUT", "DISPLAY_DATA"]
    assert guest.run("display(1)").result is None


def test_clear_output(guest, ipython):
    result = guest.run("from IPython.display import clear_output\nprint('a')\nclear_output(wait=True)\nprint('b')")
    assert [f.kind for f in result.frames] == ["STREAM", "CLEAR_OUTPUT", "STREAM", "EXECUTE_REPLY"]
    assert result.frames[1].content == {"wait": True}


@pytest.mark.parametrize(
    "value, expected",
    [
        ("float('nan')", None),
        ("[float('inf'), 1.5]", [None, 1.5]),
        ("'\\ud800'", "\ufffd"),
        ("{1: 2}", {"1": 2}),
        ("{True: 1, None: 2, 1.5: 3}", {"true": 1, "null": 2, "1.5": 3}),
        ("{'a\\ud800': 1, 'a\\ud801': 2}", {"a\ufffd": 2}),
        ("(1, 2)", [1, 2]),
        ("b'ab'", "YWI="),
        ("10 ** 5000", hex),
        ("object", str),
        ("{1, }", [1]),
        ("2 ** 70", 2**70),
        ("__import__('datetime').date(2020, 1, 2)", "2020-01-02"),
        ("-0.0", 0.0),
        ("{1: 'a', '1': 'b'}", {"1": "b"}),
        ("[range(3), {'a': 1}.keys(), {'b': 2}.items()]", [[0, 1, 2], ["a"], [["b", 2]]]),
        ("__import__('collections').deque('ab')", ["a", "b"]),
        ("type('Bad', (), {'__index__': lambda s: 1 / 0, '__str__': lambda s: 'bad'})()", "bad"),
        ("type('Bad', (), {'__iter__': lambda s: iter([s, s]), '__str__': lambda s: 'bad'})()", list),
    ],
)
def test_what_is_not_json(guest, ipython, value, expected):
    code = "from IPython.display import publish_display_data\npublish_display_data({'application/json': %s})" % value
    data = guest.run(code).of("DISPLAY_DATA")[0].content["data"]
    assert list(data) == ["application/json"]
    if expected in (hex, str):
        assert isinstance(data["application/json"], str)
    elif expected is list:  # without an end
        assert isinstance(data["application/json"], list)
    else:
        assert data["application/json"] == expected


def test_deep_circular_and_huge(guest, ipython):
    guest.run("from IPython.display import publish_display_data as publish")
    assert guest.run("deep = []\nfor _ in range(5000): deep = [deep]\npublish({'application/json': deep})").ok
    assert guest.run("ring = []; ring.append(ring)\npublish({'application/json': ring})").ok
    assert guest.run("publish({'application/json': {str(i): {} for i in range(70000)}})").ok
    many = guest.run("publish({'application/json': [{'a': i} for i in range(70000)]})")
    assert len(many.of("DISPLAY_DATA")[0].content["data"]["application/json"]) == 70000
    assert guest.run("publish({})").of("DISPLAY_DATA")[0].content["data"] == {}


def test_a_raw_display_is_sent_as_it_is(guest, ipython):
    """Bokeh and others publish bundles without text; a frontend that is sent some would show it."""
    code = (
        "from IPython.display import display\ndisplay({'application/x.load+json': '', 'text/html': '<p>'}, raw=True%s)"
    )
    shown = guest.run(code % "").of("DISPLAY_DATA")[0].content["data"]
    assert shown == {"application/x.load+json": "", "text/html": "<p>"}
    assert guest.run(code % ", display_id='a', update=True").of("UPDATE_DISPLAY_DATA")[0].content["data"] == shown


def test_surrogates_in_a_result(guest):
    result = guest.run("class S:\n    def __repr__(self): return 'a\\ud800b'\nS()")
    assert result.result == "a\ufffdb"
    assert guest.run("raise ValueError('\\ud800')").error["evalue"] == "\ufffd"
    assert guest.run("{}['\\udcff']").error["ename"] == "KeyError"


def test_repr_that_fails(guest):
    result = guest.run("class Bad:\n    def __repr__(self): raise ValueError('no repr')\nBad()")
    assert not result.ok and result.error["evalue"] == "no repr"
    assert guest.run("1").ok


def test_repr_of_odd_types(guest):
    assert guest.run("class N(int):\n    def __repr__(self): return 'N!'\nN(3)").result == "N!"
    assert guest.run("'x' * 5").result == "'xxxxx'"


def test_precision_is_obeyed(guest, ipython):
    guest.run("3.14159")
    guest.run("%precision 2")
    assert guest.run("3.14159").result == "3.14"
    guest.run("%precision")
    assert guest.run("3.14159").result == "3.14159"


def test_own_formatter_is_obeyed(new_guest, ipython):
    guest = new_guest()
    guest.run("1")
    guest.run("get_ipython().display_formatter.formatters['text/html'].for_type(int, lambda n: '<i>%d</i>' % n)")
    assert guest.run("5").of("EXECUTE_RESULT")[0].content["data"] == {"text/plain": "5", "text/html": "<i>5</i>"}


def test_capture(guest, ipython):
    result = guest.run("%%capture out\nprint('hidden')\ndisplay(1)")
    assert not result.of("STREAM", "DISPLAY_DATA")
    assert guest.run("out.stdout").result == "'hidden\\n'"
    assert guest.run("len(out.outputs)").result == "1"


def test_images(guest, ipython):
    code = "from IPython.display import Image\nImage(data=b'\\x89PNG\\r\\n\\x1a\\n' + b'\\0' * 50, format='png')"
    assert base64.b64decode(guest.run(code).of("EXECUTE_RESULT")[0].content["data"]["image/png"]).startswith(b"\x89PNG")


def test_matplotlib(guest, need, ipython):
    need("matplotlib")
    result = guest.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nprint('after')")
    kinds = [f.kind for f in result.frames if f.kind in ("STREAM", "DISPLAY_DATA", "EXECUTE_RESULT")]
    assert kinds[-1] == "DISPLAY_DATA" and "image/png" in result.of("DISPLAY_DATA")[0].content["data"]
    result = guest.run("%matplotlib inline\nfig, ax = plt.subplots()\nax.plot([3, 4]);")
    assert "image/png" in result.of("DISPLAY_DATA")[0].content["data"]
    assert guest.run("plt.get_backend()").result.lower().endswith(("inline'", "backend_inline'"))
    assert not guest.run("1").of("DISPLAY_DATA")


def test_pandas(guest, need):
    need("pandas")
    data = guest.run("import pandas as pd\npd.DataFrame({'a': [1, 2]})").of("EXECUTE_RESULT")[0].content["data"]
    assert "<table" in data["text/html"] and "a" in data["text/plain"]


def test_numpy_values_in_json(guest, need):
    need("numpy")
    code = (
        "import numpy as np\nfrom IPython.display import publish_display_data\n"
        "publish_display_data({'application/json': {'f': np.float64('nan'), 'i': np.int64(3), 'b': np.bool_(True)}})"
    )
    assert guest.run(code).of("DISPLAY_DATA")[0].content["data"]["application/json"] == {"f": None, "i": 3, "b": True}
    code = "from IPython.display import JSON\nJSON({"
    code += "'a': np.arange(3), 'b': np.float32([[1, np.nan]]), 'c': np.array(7)})"
    if guest.interpreter.ipython:
        shown = guest.run(code).of("EXECUTE_RESULT")[0].content["data"]["application/json"]
        assert shown == {"a": [0, 1, 2], "b": [[1.0, None]], "c": 7}


def test_hooks(guest, ipython):
    code = """pub, got = get_ipython().display_pub, []
def hook(msg): got.append(msg['content']['data']['text/plain'])
pub.register_hook(hook)
display(1)
pub.unregister_hook(hook)
display(2)
got"""
    result = guest.run(code)
    assert result.result == "['1']" and len(result.of("DISPLAY_DATA")) == 1


def test_hooks_of_results(guest, ipython):
    guest.run(
        "hook, seen = get_ipython().displayhook, []\ndef change(msg):\n"
        "    seen.append((msg['header']['msg_type'], msg['content']['execution_count']))\n"
        "    msg['content']['data'] = {'text/plain': 'changed'}\n    return msg\n"
        "def keep(msg): seen.append('kept')\nhook.register_hook(change)"
    )
    assert guest.run("1").result == "changed"
    number = guest.count
    guest.run("hook.register_hook(keep)")
    assert not guest.run("2").of("EXECUTE_RESULT", "DISPLAY_DATA")
    guest.run("gone = hook.unregister_hook(change), hook.unregister_hook(keep), hook.unregister_hook(keep)")
    seen = [("execute_result", number), ("execute_result", number + 2), "kept"]
    assert eval(guest.run("gone, seen, Out[%d]" % (number + 2)).result) == ((True, True, False), seen, 2)


def test_display_from_a_thread_of_an_ended_cell(guest):
    first = guest.run(
        "import threading\ngo = threading.Event()\n"
        "t = threading.Thread(target=lambda: (go.wait(), display('late')))\nt.start()"
    )
    second = guest.run("go.set(); t.join()")
    assert [f.request for f in second.of("DISPLAY_DATA")] == [first.request]


def test_too_large_for_a_message(new_guest):
    """The supervisor would kill a guest for it; the guest gives up the output, not the state."""
    guest = new_guest(env={"CELLBLOCK_MESSAGE_MAX": "100000"})
    result = guest.run("kept = 'x' * 200000\nkept")
    assert "limits.message" in result.result and result.ok
    failed = guest.run("raise KeyError(kept)")
    for said in failed.error, failed.reply:
        assert (said["ename"], said["evalue"]) == ("KeyError", "'" + "x" * 9999)
        assert len(said["traceback"]) == 1 and "limits.message" in said["traceback"][0]
    assert failed.reply["status"] == "error"
    full = "def full(_):\n    m.loads = loads\n    raise MemoryError\n"
    code = "import cellblock_guest.main as m\nloads = m.loads\n" + full + "m.loads = full\nraise KeyError(kept)"
    assert guest.run(code).reply["evalue"] == "reply too large"
    assert guest.run("print(kept)").stdout == "x" * 200000 + "\n"
    assert guest.run("len(kept)", user_expressions={"k": "kept"}).result == "200000"


def test_a_value_leaves_the_result_its_room(new_guest):
    """limits.output would drop both: the value is left out, whatever else the cell has said."""
    guest = new_guest(env={"CELLBLOCK_POLICY_SAYS": '{"limits.output": 100000}'})

    def of(code):
        (result,) = guest.run(code, metadata={"value": True}).of("EXECUTE_RESULT")
        return result.content["data"]

    assert of("'x' * 40_000")[VALUE] == {"json": "x" * 40_000}
    for code in ("'x' * 60_000", "b'x' * 50_000", "'ü' * 20_000 + 'x' * 20_000", "[1.5] * 30_000"):
        assert set(of(code)) == {"text/plain"}, code
    assert set(of("print('x' * 30_000)\n'x' * 40_000")) == {"text/plain"}
    assert VALUE in of("'x' * 40_000")
