"""What a sandbox asks its user for: whatever his functions raise or do, the cell is answered, and others go on."""

import asyncio

import pytest

import cellblock

pytestmark = pytest.mark.once
EMPTY = {"workspace.mode": "tmpfs"}


class Odd(BaseException):
    pass


ERRORS = [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(), Odd()]


@pytest.fixture(scope="module")
def other(nothing_left):
    with cellblock.Sandbox("agent", policy=EMPTY) as sb:
        yield sb


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("where", ["tool", "approve", "input"])
def test_whatever_the_users_coroutines_raise_the_cell_is_answered(other, where, error):
    async def boom(*_: object) -> int:
        raise error

    async def tool() -> int:
        raise error

    @cellblock.tool(approve=boom)
    def approved() -> int:
        return 1

    code = {"tool": "await tool()", "approve": "approved()", "input": "input('?')"}[where]
    with cellblock.Sandbox("agent", policy=EMPTY, tools=[tool, approved], on_input=boom) as sb:
        failed = sb.run(code)
        names = {"tool": type(error).__name__, "approve": "ToolRefusedError", "input": "EOFError"}
        assert not failed.ok and names[where] in (failed.error.name, failed.error.value.split(":")[0]), failed.error
        assert sb.run("1").value == 1 and other.run("2").value == 2


def test_what_is_wrong_with_on_input_is_logged(caplog):
    def on_input(prompt, password):
        return 5 if prompt == "number" else int(prompt)

    with cellblock.Sandbox("agent", policy=EMPTY, on_input=on_input) as sb, caplog.at_level("INFO", "cellblock.input"):
        assert sb.run("input('raise')").error.name == sb.run("input('number')").error.name == "EOFError"
    assert [r.getMessage() for r in caplog.records] == ["on_input raised", "on_input gave 5, which is no text"]
    assert "in on_input\n" in caplog.text and "invalid literal" in caplog.text


def test_on_input_uses_the_sandbox_that_asks():
    def on_input(prompt, password):
        with pytest.raises(cellblock.ToolError, match="waits for"):
            sb.run("1")
        return sb.read_file(prompt).decode()

    with cellblock.Sandbox("agent", policy=EMPTY, on_input=on_input) as sb:
        sb.write_file("f", "content")
        assert sb.run("input('f')").value == "content"
