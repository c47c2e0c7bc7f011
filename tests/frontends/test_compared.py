"""docs/compared.md names the tests that hold Cellblock to its table: they are there."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs/compared.md"


def test_every_row_names_tests_that_exist():
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("|") and ".py" in line]
    assert len(rows) > 20
    for line in rows:
        for name in re.findall(r"[\w/]+\.py(?:::\w+)?", line.rsplit("|", 2)[1]):
            file, _, test = name.partition("::")
            assert (TESTS / file).is_file(), name
            assert not test or f"def {test}(" in (TESTS / file).read_text(), name
