"""What a caller gives by mistake is one clear error, before a kernel is started for it."""

import re
import uuid
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

import cellblock
from cellblock._checks import environment

pytestmark = pytest.mark.once
DEEP = []
for _ in range(100_000):
    DEEP = [DEEP]


def pool_lease(**how):
    return cellblock.Pool("agent").lease(**how)


NEVER = [
    (lambda: cellblock.Sandbox("agent", grace="x"), TypeError, "grace is 'x': allowed are seconds from 0 on"),
    (lambda: cellblock.Sandbox("agent", grace=float("nan")), ValueError, "grace is nan"),
    (lambda: cellblock.Sandbox("agent", tools=5), cellblock.ToolError, "tools is 5, and must be a list of functions"),
    (lambda: cellblock.Sandbox("agent", tools="ab"), cellblock.ToolError, "tools is 'ab'"),
    (lambda: cellblock.Sandbox("agent", network=1), cellblock.PolicyError, "network is 1; give 'none', 'full'"),
    (lambda: cellblock.Sandbox("agent", workspace=""), cellblock.PolicyError, "workspace is an empty text"),
    (lambda: cellblock.Sandbox("agent", imports=[]), cellblock.PolicyError, "imports is empty, which"),
    (lambda: cellblock.Sandbox("agent", imports=iter([])), cellblock.PolicyError, "imports is empty, which"),
    (lambda: cellblock.Sandbox("agent", on_input="yes"), TypeError, "on_input is 'yes', and must be a function"),
    (lambda: pool_lease(ttl=10**400), ValueError, "ttl is inf: allowed are seconds above 0; None is no end"),
    (lambda: pool_lease(ttl="1"), TypeError, "ttl is '1'"),
    (lambda: pool_lease(wait=float("nan")), ValueError, "wait is nan: allowed are seconds from 0 on; None is no end"),
]


@pytest.mark.parametrize("use, error, says", NEVER, ids=[says[:12] for *_, says in NEVER])
def test_of_what_is_made(use, error, says):
    with pytest.raises(error, match=re.escape(says)):
        use()


USES = [
    (lambda sb: sb.run("1", timeout=10**400), ValueError, "timeout is inf"),
    (lambda sb: sb.run("1", env={"A=B": "c"}), ValueError, "env has the name 'A=B'"),
    (lambda sb: sb.run("1", env={"": "c"}), ValueError, "env has the name ''"),
    (lambda sb: sb.run("1", env={"A": "b", "TOKEN": None}), TypeError, "env['TOKEN'] is None, and must be a text"),
    (lambda sb: sb.run("1", env={None: "c"}), TypeError, "a name of env is None, and must be a text"),
    (lambda sb: sb.run_command(["ls"], env={"A": b"c"}), TypeError, "env['A'] is of type bytes, and must be a text"),
    (lambda sb: sb.run("1", env={"A": 1j}), TypeError,
     "env['A'] is of type complex, and must be a text, number or path"),
    (lambda sb: sb.run("1", env={"A": [5]}), TypeError, "env['A'] is of type list, and must be a text, number or path"),
    (lambda sb: sb.run_command("ls"), TypeError, "argv is a list of words"),
    (lambda sb: sb.run_command(5), TypeError, "argv is a list of words"),
    (lambda sb: sb.run_command(["ls", "\ud800"]), ValueError, "argv[1] has half a character"),
    (lambda sb: sb.run_command(["ls"], timeout=-1), ValueError, "timeout is -1: allowed are seconds above 0"),
    (lambda sb: sb.run_command(["ls"], cwd=5), TypeError, "path is of type int"),
    (lambda sb: sb.read_file("\ud800"), ValueError, "path has half a character"),
    (lambda sb: sb.write_file(b"a", "x"), TypeError, "path is of type bytes"),
    (lambda sb: sb.write_file("a", 5), TypeError, "data is of type int, and must be a str or bytes"),
    (lambda sb: sb.open(b"a"), TypeError, "path is of type bytes"),
    (lambda sb: sb.open("a", "q"), ValueError, "invalid mode: 'q'"),
    (lambda sb: sb.adopt(None), cellblock.CheckpointError, "only an open branch of this sandbox"),
    (lambda sb: cellblock._loop.call(sb._a.adopt(sb.branch())), cellblock.CheckpointError, "only an open branch"),
    (lambda sb: sb.set("x", DEEP), TypeError, "x: only JSON, bytes and numpy arrays can go into a sandbox"),
]


@pytest.mark.parametrize("use, error, says", USES, ids=range(len(USES)))
def test_of_what_is_used(use, error, says):
    sb = cellblock.Sandbox("agent")
    with pytest.raises(error, match=re.escape(says)):
        use(sb)
    assert sb.kernel.pid is None, "no kernel was started for it"


def test_variables_may_be_numbers_and_paths():
    given = {"A": 5, "B": 0.5, "C": True, "D": Path("/tmp"), "E": "text"}
    assert environment(given) == {"A": "5", "B": "0.5", "C": "True", "D": "/tmp", "E": "text"}
    given = {"A": Decimal("0.50"), "B": Fraction(1, 2), "C": uuid.UUID(int=5)}
    assert environment(given) == {"A": "0.50", "B": "1/2", "C": "00000000-0000-0000-0000-000000000005"}


def test_variables_may_be_numbers_of_numpy():
    numpy = pytest.importorskip("numpy")
    given = {"A": numpy.int64(5), "B": numpy.float32(0.5), "C": numpy.bool_(True)}
    assert environment(given) == {"A": "5", "B": "0.5", "C": "True"}
    for value in (numpy.array([1, 2]), numpy.complex128(1j)):
        with pytest.raises(TypeError, match=r"env\['A'\] is of type \w+, and must be a text, number or path"):
            environment({"A": value})


def test_arrays_with_fields_do_not_go_in_without_them():
    numpy = pytest.importorskip("numpy")
    with pytest.raises(TypeError, match="an array with named fields can't go into a sandbox"):
        cellblock.Sandbox("agent").set("x", numpy.zeros(3, [("a", "i4"), ("b", "f8")]))
