"""Host tools, the host's side alone: what a function tells about itself, and which functions are refused."""

import dataclasses
import enum
import functools
import json
import sys
from typing import Annotated, Any, Callable, Literal, Optional, TypedDict, Union

import pytest

pytest.importorskip("msgspec")
from cellblock._errors import ToolError  # noqa: E402
from cellblock._tools import Dispatcher, Tool, tool  # noqa: E402

pytestmark = pytest.mark.once


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Place(TypedDict):
    city: str


@dataclasses.dataclass
class Hit:
    url: str
    key: str = "hidden-secret"
    next: Optional["Hit"] = None


def test_schema_comes_from_hints_and_docstring():
    @tool
    def search(query: str, limit: int = 5, *, color: Optional[Color] = None) -> list:
        """Searches the library.

        And more.

        Args:
            query: what to look for,
                in words
            limit (int): how many
        Returns:
            a list
        """
        return [query, limit, color]

    assert isinstance(search, Tool) and search("a") == ["a", 5, None] and search.__name__ == "search"
    spec = Dispatcher([search]).specs[0]
    assert spec["name"] == "search" and spec["description"] == "Searches the library.\n\nAnd more."
    assert "awaitable" not in spec
    schema = spec["inputSchema"]
    assert schema["required"] == ["query"] and schema["additionalProperties"] is False
    assert schema["properties"]["query"] == {"type": "string", "description": "what to look for, in words"}
    assert schema["properties"]["limit"] == {"type": "integer", "description": "how many"}
    assert schema["$defs"]["Color"]["enum"] == ["blue", "red"]


def test_numpy_and_sphinx_docstrings():
    @tool
    def a(x: int, y: str) -> None:
        """Does it.

        Parameters
        ----------
        x : int
            the first
        y
            the second
        """

    @tool
    def b(x: int, y: str) -> None:
        """Does it.

        :param x: the first
        :param str y: the second
        :return: nothing
        """

    for made in (a, b):
        assert made.description == "Does it."
        assert [p["description"] for p in made.input_schema["properties"].values()] == ["the first", "the second"]


def test_names_and_descriptions_can_be_given():
    @tool(name="look_up", description="Looks up.")
    async def f(x: int) -> int:
        return x

    spec = Dispatcher([f]).specs[0]
    assert (spec["name"], spec["description"], spec["awaitable"]) == ("look_up", "Looks up.", True)


def test_no_default_goes_into_the_schema():
    @tool
    def f(a: str = "hidden-secret", b: Hit = Hit("x"), default: int = 31337, c: Literal["default"] = "default") -> None:
        pass

    text = json.dumps(f.input_schema)
    assert "hidden-secret" not in text and "31337" not in text
    assert "default" in f.input_schema["properties"] and f.input_schema["properties"]["c"] == {"enum": ["default"]}
    assert "next" in f.input_schema["$defs"]["Hit"]["properties"]


@pytest.mark.parametrize("hint", [
    str, int, float, bool, None, Any, list, dict, tuple, list[int], dict[str, list[float]], tuple[int, str],
    Optional[int], Union[int, str], Literal["a", "b"], Literal[1], Color,
    Place, Hit, Annotated[int, "note"], dict[Literal["a"], int],
])
def test_hints_that_json_has(hint):
    def f(x):
        pass

    f.__annotations__ = {"x": hint}
    json.dumps(tool(f).input_schema)


@pytest.mark.parametrize("hint", [
    set, bytes, complex, object, Callable, list[bytes], dict[int, str], Optional[set], "nowhere.Thing", type, range,
    dict[str, complex],
])
def test_other_hints_fail_at_decoration(hint):
    def f(x):
        pass

    f.__annotations__ = {"x": hint}
    with pytest.raises(ToolError, match="'f'.*(parameter 'x'|type hints).*"):
        tool(f)


def test_a_hint_deep_inside_is_found():
    @dataclasses.dataclass
    class Inner:
        raw: bytes

    def f(x):
        pass

    f.__annotations__ = {"x": Optional[list[Inner]]}
    with pytest.raises(ToolError, match="because of bytes.*Allowed: str, int"):
        tool(f)


def test_pydantic_models():
    pydantic = pytest.importorskip("pydantic")

    class Sub(pydantic.BaseModel):
        q: int = 31337

    class Model(pydantic.BaseModel):
        a: int
        sub: Sub = Sub()

    def f(m, more):
        return m

    f.__annotations__ = {"m": Model, "more": list[Model]}
    made = tool(f)
    text = json.dumps(made.input_schema)
    assert "31337" not in text and "Sub" in made.input_schema["$defs"]


def test_functions_that_cannot_be_tools():
    def no_hint(x):
        pass

    def rest(*args: int):
        pass

    def generator(x: int):
        yield x

    async def stream(x: int):
        yield x

    class Thing:
        def method(self, x: int) -> int:
            return x

    def bad_name(x: int) -> int:
        return x

    with pytest.raises(ToolError, match="'x' has no type hint"):
        tool(no_hint)
    with pytest.raises(ToolError, match="'args' has no name"):
        tool(rest)
    for f in (generator, stream, Thing):
        with pytest.raises(ToolError, match="yields or is a class"):
            tool(f)
    with pytest.raises(ToolError, match="give the bound one"):
        tool(Thing.method)
    assert tool(Thing().method).name == "method"
    assert tool(functools.partial(bad_name), name="part").name == "part"
    for name in ("", "a b", "../x", "class", "x" * 65, "é", "_", "__x", 3):
        with pytest.raises(ToolError, match="Python name"):
            tool(name=name)(bad_name)
    for wrong in ({"timeout": 0}, {"timeout": "1"}, {"max_calls": 1.5}, {"concurrency": -1}, {"approve": 3},
                  {"max_bytes": True}):
        with pytest.raises(ToolError, match=next(iter(wrong))):
            tool(**wrong)(bad_name)
    with pytest.raises(ToolError, match="two tools are named 'bad_name'"):
        Dispatcher([bad_name, tool(bad_name)])
    with pytest.raises(ToolError, match="is a function"):
        Dispatcher([3])
    with pytest.raises(ToolError, match="tools is a function: give a list"):
        Dispatcher(bad_name)


def test_pydantic_is_not_imported():
    import subprocess
    code = "import sys, cellblock._tools; assert 'pydantic' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=200)
