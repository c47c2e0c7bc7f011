"""Host tools against a hostile caller: what is shown is what runs, what was not registered does not run, and what a
person is shown can't be made to look like something else.
"""

import asyncio
import dataclasses
import enum
import typing

import pytest

pytest.importorskip("msgspec")
from cellblock import tool  # noqa: E402
from cellblock._tools import Call, Dispatcher, escaped, frozen  # noqa: E402

pytestmark = pytest.mark.once


@dataclasses.dataclass
class Money:
    to: str
    amount: float = 0.0


class Level(enum.Enum):
    one = 1
    two = 2


class Lab:
    """Tools that note what ran, and what was shown before it."""

    def __init__(self):
        self.ran, self.shown, self.count = [], [], 0
        note, ask = self.ran.append, lambda call: self.shown.append(call) or True

        @tool(approve=ask)
        def text(x: str, y: str = "") -> None: note((x, y))
        @tool(approve=ask)
        def whole(x: int) -> None: note(x)
        @tool(approve=ask)
        def real(x: float) -> None: note(x)
        @tool(approve=ask)
        def truth(x: bool) -> None: note(x)
        @tool(approve=ask)
        def level(x: Level) -> None: note(x)
        @tool(approve=ask)
        def one(x: typing.Literal[1, 2]) -> None: note(x)
        @tool(approve=ask)
        def pay(x: Money) -> None: note(x)
        @tool(approve=ask)
        def pair(x: typing.Tuple[float, float]) -> None: note(x)
        @tool(approve=ask)
        def table(x: typing.Dict[str, typing.List[float]]) -> None: note(x)
        @tool(approve=ask)
        def anything(x: typing.Any) -> None: note(x)
        @tool(approve=ask)
        def either(x: typing.Union[int, float]) -> None: note(x)

        self.dispatcher = Dispatcher([text, whole, real, truth, level, one, pay, pair, table, anything, either])

    def answer(self, *calls):
        return asyncio.run(self.dispatcher.answer(list(calls)))

    def call(self, name, /, *args, **kwargs):
        self.count += 1
        self.ran.clear(), self.shown.clear()
        (answer,) = self.answer({"id": str(self.count), "tool": name, "args": list(args), "kwargs": kwargs})
        return answer.get("error")


@pytest.fixture(scope="module")
def lab():
    made = Lab()
    yield made
    made.dispatcher.close()


NAMES = ["t\u0435xt", "\uff54ext", "text ", " text", "text\0", "TEXT", "text()", "", "__init__", "__class__", "tools",
         "function", "close", "answer", None, True, 1, ["text"], {"tool": "text"}, "t" * 10**6]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_names_that_were_not_registered(lab, name):
    error = lab.call(name, "a")
    assert error["type"] == "ToolCallError" and error["message"].startswith("there is no tool '")
    assert not lab.ran and not lab.shown and len(error["message"]) < 2000 and "\0" not in error["message"]


REFUSED = [
    ("whole", True), ("whole", 1.0), ("whole", 1e300), ("whole", "1"), ("whole", None), ("whole", [1]), ("whole", {}),
    ("real", True), ("real", "1"), ("real", "nan"), ("real", float("nan")), ("real", float("inf")), ("real", 10**400),
    ("truth", 1), ("truth", 0), ("truth", "true"), ("truth", None),
    ("text", 1), ("text", None), ("text", ["a"]), ("text", "\ud800"), ("text", "a" * (5 << 20)), ("text", b"a"),
    ("level", True), ("level", 1.0), ("level", "one"), ("level", 3), ("one", True), ("one", 1.0), ("one", 3),
    ("pay", {"to": "a", "amount": 1, "too": "b"}), ("pay", {"amount": 1}), ("pay", {"to": "a", "amount": True}),
    ("pay", ["a", 1]), ("pair", [1]), ("pair", [1, 2, 3]), ("pair", [1, True]), ("table", {"a": [True]}),
    ("table", {"a": 1}), ("table", [["a", [1]]]), ("anything", float("inf")), ("anything", "\udc00"),
    ("anything", {"\ud800": 1}), ("anything", [[]] * (3 << 20)), ("anything", 1 << (16 << 20)),
    # a float can't hold them: another number would run than the one that was shown
    ("real", 2**53 + 1), ("pay", {"to": "a", "amount": 2**53 + 1}), ("pair", [0, 2**60 + 1]),
    ("table", {"a": [10**22 + 1]}),
]


@pytest.mark.parametrize("name, value", REFUSED, ids=range(len(REFUSED)))
def test_arguments_of_another_type(lab, name, value):
    error = lab.call(name, value)
    assert error and error["type"] in ("ValueError", "TypeError"), error
    assert not lab.ran and not lab.shown
    assert len(error["message"]) < 4100


def test_arguments_that_are_nested_too_deep(lab):
    value = None
    for _ in range(100_000):
        value = [value]
    assert "nested" in lab.call("anything", value)["message"] and not lab.shown
    while value:  # it can't be freed at once: that recurses
        value = value.pop()


SAME = [("real", 2**53), ("real", 0.1), ("either", 2**53 + 1), ("either", 1.0), ("pair", [1, 2.5]), ("whole", 10**300),
        ("anything", {"__class__": "x", "": [None, {}]}), ("pay", {"to": "a", "amount": 3}), ("level", 1), ("one", 2)]


@pytest.mark.parametrize("name, value", SAME, ids=range(len(SAME)))
def test_what_runs_is_what_was_shown(lab, name, value):
    assert lab.call(name, value) is None
    (shown,), (ran,) = [c.raw["x"] for c in lab.shown], lab.ran
    ran = dataclasses.asdict(ran) if isinstance(ran, Money) else getattr(ran, "value", ran)
    assert frozen(ran) == shown or shown == {"to": "a", "amount": 3} == ran


COLLIDING = [
    {"self": "a"}, {"x": "a", "class": "b"}, {"": "a"}, {"x": "a", "__class__": "b"}, {"args": [], "kwargs": {}},
    {"x": "a", "x ": "b"}, {"\u0445": "a"}, {"x": "a", "y\0": "b"}, {"x": "a", "function": "b"}, {"given": "a"}]


@pytest.mark.parametrize("kwargs", COLLIDING, ids=range(len(COLLIDING)))
def test_names_of_arguments_that_collide(lab, kwargs):
    lab.ran.clear(), lab.shown.clear()
    (answer,) = lab.answer({"id": repr(kwargs), "tool": "text", "args": [], "kwargs": kwargs})
    assert answer["error"]["type"] == "TypeError" and not lab.ran and not lab.shown
    assert lab.call("text", "a", x="b")["type"] == "TypeError" and not lab.ran
    assert lab.call("text", "a", "b", y="c")["type"] == "TypeError" and not lab.ran
    assert lab.call("text", "a", "b", "c")["type"] == "TypeError" and not lab.ran


def test_one_question_for_each_call_and_no_second_run(lab):
    lab.ran.clear(), lab.shown.clear()
    call = {"id": "again", "tool": "text", "args": ["a"], "kwargs": {}}
    first, second, third = lab.answer(call, dict(call), {**call, "args": ["b"]})
    assert "ok" in first and "error" in second and "error" in third
    assert "error" in lab.answer(call)[0]
    assert lab.ran == [("a", "")] and len(lab.shown) == 1


UNSEEN = ["\u3164", "\u115f", "\u1160", "\uffa0", "\u2800", "\u034f", "\ufe0f", "\u180b", "\U000e0100", "\u17b4",
          "\u00ad", "\u200b", "\u200d", "\u2028", "\u2029", "\u061c", "\u202e", "\u2067", "\ufeff", "\U000e0041",
          "\u0085", "\u00a0", "\u3000", "\ue000", "\ufff9", "\U000110bd"]


@pytest.mark.parametrize("c", UNSEEN, ids=[f"{ord(c):x}" for c in UNSEEN])
def test_nothing_unseen_is_shown_as_itself(lab, c):
    assert lab.call("text", f"a{c}b", c) is None
    assert c not in str(lab.shown[0]) and c not in repr(lab.shown[0]) and lab.ran == [(f"a{c}b", c)]
    assert escaped(f"a{c}b") != escaped("ab")


def test_what_stands_before_a_text_is_not_changed_by_it(lab):
    lab.call("text", "\u0338\u0301x", "e\u0301")
    assert str(lab.shown[0]) == 'text(x="\\u0338\\u0301x", y="e\u0301")'


def test_no_argument_is_pushed_out_of_sight(lab):
    lab.call("text", "a" + " " * 3000 + "text(x=\"harmless\")", "evil")
    assert " " * 17 not in str(lab.shown[0]) and "\\x20" * 100 in str(lab.shown[0])
    assert escaped("    if x:\n        y") == "    if x:\\n        y"


def test_names_of_arguments_do_not_look_like_arguments():
    shown = str(Call("1", "delete", frozen({'path="safe.txt", force': True, "n": 1}, escaped), {}))
    assert shown == 'delete("path=\\"safe.txt\\", force"=true, n=1)'


def test_an_exceptions_secrets_stay_here():
    secret = "sk-" + "93" * 20

    class Broken(Exception):
        def __str__(self):
            raise RuntimeError(secret)

    @tool
    def chained(x: str) -> None:
        key = secret  # noqa: F841
        try:
            raise ValueError(secret)
        except ValueError as e:
            error = KeyError("no")
            error.__notes__ = [secret]
            error.key = secret
            raise error from e

    @tool
    def unreadable(x: str) -> None:
        raise Broken(secret)

    @tool
    async def grouped(x: str) -> object:
        return {"a": object(), "key": Broken}

    @tool
    def exits(x: str) -> None:
        raise SystemExit(3)

    dispatcher = Dispatcher([chained, unreadable, grouped, exits])
    calls = [{"id": n, "tool": n, "args": ["x"], "kwargs": {}} for n in dispatcher.tools]
    answers = asyncio.run(dispatcher.answer(calls))
    dispatcher.close()
    assert all("error" in a for a in answers) and secret not in repr(answers) and "Traceback" not in repr(answers)
