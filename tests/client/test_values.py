"""Values as data, and texts for models: the decoding alone. What is malformed gives no value."""

import builtins
import sys

import pytest

import cellblock
from cellblock import _carry
from cellblock._result import ErrorInfo, NoValue, Result, decode_value
from cellblock._values import code_to_set

pytestmark = pytest.mark.once

ARRAY = {"dtype": "<f8", "shape": [1, 2], "data": "AAAAAAAA8D8AAAAAAAAAQA=="}


def test_decode():
    numpy = pytest.importorskip("numpy")
    assert decode_value({"json": {"a": [1]}}) == {"a": [1]}
    assert decode_value({"bytes": "AP8="}) == b"\x00\xff"
    array = decode_value({"array": ARRAY})
    assert array.dtype == numpy.dtype("<f8") and array.tolist() == [[1.0, 2.0]]
    array[0, 0] = 5  # writable


def test_without_numpy(monkeypatch):
    real = builtins.__import__

    def without(name, *args):
        if name == "numpy":
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    array = decode_value({"array": ARRAY})
    assert array == cellblock.Array("<f8", (1, 2), array.data) and len(array.data) == 16


@pytest.mark.parametrize(
    "said",
    [
        None,
        {},
        {"pickle": "gASVAQAAAAAAAABLAS4="},
        {"json": 1, "bytes": ""},
        {"bytes": "no base64!"},
        {"bytes": 5},
        {"array": None},
        {"array": {**ARRAY, "dtype": "|O8"}},
        {"array": {**ARRAY, "dtype": "O"}},
        {"array": {**ARRAY, "dtype": "<f8,<O8"}},
        {"array": {**ARRAY, "dtype": "V9999999999999999999999"}},
        {"array": {**ARRAY, "shape": [3, 3]}},
        {"array": {**ARRAY, "shape": [-1, -2]}},
        {"array": {**ARRAY, "shape": [1.0, 2]}},
        {"array": {**ARRAY, "shape": [1] * 65}},
        {"array": {**ARRAY, "shape": [2**70, 0]}},
        {"array": {**ARRAY, "data": None}},
    ],
)
def test_malformed(said):
    pytest.importorskip("numpy")
    with pytest.raises(NoValue):
        decode_value(said)


def test_code_to_set():
    space = {}
    for value in ({"a": [1, "'\"\n\\"]}, b"\x00'", 1.5, None, "ü\ud800"):
        exec(code_to_set("x", value), space)
        assert space["x"] == value
    numpy = pytest.importorskip("numpy")
    exec(code_to_set("x", numpy.arange(4, dtype="f4").reshape(2, 2)), space)
    assert space["x"].dtype == "f4" and space["x"].tolist() == [[0, 1], [2, 3]]
    for scalar in (numpy.float64(1.5), numpy.float32("nan"), numpy.bool_(True), numpy.datetime64("2026-01-02"),
                   numpy.str_("ü"), numpy.array(1.5)):
        exec(code_to_set("x", scalar), space)
        assert type(space["x"]) is type(scalar) and repr(space["x"]) == repr(scalar)
    for wrong in (object(), {1}, float("nan"), numpy.array([object()])):
        with pytest.raises(TypeError):
            code_to_set("x", wrong)
    for wrong in ("x y", "import", "", "x;y", 5):
        with pytest.raises(ValueError):
            code_to_set(wrong, 1)


def carried(kind, members):
    said = [[m, 0] for m in members] if kind == "dict" else list(members)
    return _carry.unpack([{_carry.MARK: "tuple", "v": [{_carry.MARK: kind, "v": said}]}], _carry.Room())[0][0]


@pytest.mark.parametrize("kind", ["set", "frozenset", "dict"])
def test_members_whose_hashes_were_chosen(kind):
    """Each would be compared with each: the jail sends a few megabytes, and the event loop stands still for minutes."""
    modulus = sys.hash_info.modulus
    tuples = [{_carry.MARK: "tuple", "v": [n * modulus, 1]} for n in range(1000)]
    for same in ([n * modulus for n in range(1000)], tuples, [str(n) for n in range(10**5)] + tuples):
        with pytest.raises(_carry.TooMuchError, match="more than 64 members or keys .* have one hash; give a list"):
            carried(kind, same)
    sets = [{_carry.MARK: "frozenset", "v": [n * modulus, n + 1, -n]} for n in range(2, 3)] * 3
    same = [{_carry.MARK: "frozenset", "v": [{_carry.MARK: "tuple", "v": [n * modulus]}, 1]} for n in range(5)]
    assert len(carried("set", sets)) == 1
    with pytest.raises(_carry.TooMuchError, match="more than 4 members or keys"):
        carried(kind, same)
    with pytest.raises(_carry.TooMuchError, match="20000 members or keys that are no text; give a list"):
        carried(kind, range(20_001))
    for good in (range(20_000), [2.0**n for n in range(-1074, 1024)], [str(n) for n in range(10**5)], [-1, -2, True]):
        found = carried(kind, good)
        assert len(found) == len(good) and found == {"dict": dict.fromkeys(good, 0)}.get(kind, set(good))


def test_pictures_share_their_pixels(monkeypatch):
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(_carry, "PIXELS", 10)
    said = _carry.pack(image.new("RGB", (3, 2)))
    room = _carry.Room()
    assert _carry.unpack({"a": [said]}, room)["a"][0].size == (3, 2)
    monkeypatch.setattr(image.Image, "load", None)  # what is too large is not even loaded
    with pytest.raises(_carry.TooMuchError, match="10 pixels in all"):
        _carry.unpack([said], room)


def test_text_has_no_terminal_escapes():
    bad = "\x1b[2Ja\x1b]0;title\x07b\x1b]8;;http://x\x1b\\c\x9b31md\x1bPq\x1b\\e\x1b]never ends"
    r = Result(stdout=bad + "\n\tf\r\n", error=ErrorInfo("E", "why\x1b[1m", "\x1b[31mtrace\x00"))
    assert str(r.error) == "E: why"
    assert r.text() == "abcde\n\tf\r\ntrace\nE: why"
    assert r.stdout.startswith(bad)


def test_text_keeps_head_tail_and_error():
    r = Result(stdout="a" * 5000 + "z" * 5000, error=ErrorInfo("E", "why", "\x1b[31mtrace\x1b[0m"))
    for most in (50, 200, 1000, 8000):
        text = r.text(most)
        assert len(text) <= most and text.endswith("E: why") and "\x1b" not in text
    assert r.text(1000).startswith("aaa") and "10000 characters in all" in r.text(1000) and "zzz" in r.text(1000)
    assert Result(stdout="short").text() == "short" and len(r.stdout) == 10000


@pytest.mark.parametrize("name, why, place", [
    ("SyntaxError", "invalid syntax", " (12.py, line 1)"),
    ("IndentationError", "expected an indented block after 'if' statement on line 1", " (12.py, line 2)"),
    ("SyntaxError", "unterminated string literal (detected at line 1)", " (<unknown>, line 1)"),
    ("SyntaxError", "invalid syntax", " (line 1)"),
])
def test_text_says_once_what_is_wrong_with_the_syntax(name, why, place):
    traceback = f"  Cell In[1], line 1\n    1 +\n       ^\n{name}: {why}\n"
    assert Result(error=ErrorInfo(name, why + place, traceback)).text() == traceback
    assert Result(error=ErrorInfo(name, why + place, "trace")).text() == f"trace\n{name}: {why}{place}"
    assert Result(error=ErrorInfo(name, "other" + place, traceback)).text().endswith(f"\n{name}: other{place}")


def test_a_masked_array_is_refused():
    """By its bytes it would come with numbers in the places that have none."""
    numpy = pytest.importorskip("numpy")
    with pytest.raises(TypeError, match="masked"):
        code_to_set("x", numpy.ma.array([1, 2, 3], mask=[0, 1, 0]))
