#!/usr/bin/env python3
"""Checks that the guest's modules import only downwards; ctest label "source".

usage: check_guest.py [ROOT]      every fault as FILE:LINE: what; exit status 1 if there is any
       check_guest.py --self-test feeds the check what it must refuse and what it must let pass

The rooms are the table in guest/README.md, the only one: a room, what it does, its modules, the rooms whose modules it
may import, which stand above it in the table. An import counts wherever it stands, also in a function. So does a
module's full name in a string, which finds it in sys.modules or has IPython import it.
"""

import ast
import re
import sys
from pathlib import Path

from check_source import failures

PACKAGE = "cellblock_guest"
README = "guest/README.md"
GENERATED = {"wire_constants"}
NAMED = re.compile(r"\b%s\.(\w+)" % PACKAGE)


class Rooms:
    """The table, and what is wrong with it in itself."""

    def __init__(self, text):
        self.of = {}  # module -> its room
        self.below = {}  # room -> those that it may import
        self.faults = []
        for number, line in enumerate(text.split("\n"), 1):
            cells = [cell.strip() for cell in line.split("|")[1:-1]]
            if len(cells) == 4 and re.fullmatch(r"`\w+`", cells[0]):
                self._add(number, cells[0].strip("`"), *(re.findall(r"`(\w+)`", cell) for cell in cells[2:]))

    def _add(self, number, room, modules, below):
        for other in below:
            if other not in self.below:
                self.faults.append((number, f"{room} may import {other}, which does not stand above it"))
        if room in self.below:
            self.faults.append((number, f"{room} is there twice"))
        self.below[room] = {room, *below}
        for module in modules:
            if module in self.of:
                self.faults.append((number, f"{module} is in {self.of[module]} already"))
            self.of[module] = room


def imports(tree):
    """(line, name of a module of the package) for each import; names of other things may be among them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level or module.split(".")[0] == PACKAGE:
                inside = module if node.level else module.partition(".")[2]
                for name in [inside.split(".")[0]] if inside else [alias.name for alias in node.names]:
                    yield node.lineno, name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith(PACKAGE + "."):
                    yield node.lineno, alias.name.split(".")[1]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for name in NAMED.findall(node.value):
                yield node.lineno, name


def check(rooms, module, text):
    room = rooms.of.get(module)
    if room is None:
        yield 1, f"{module} is in no room of {README}"
        return
    for number, name in imports(ast.parse(text)):
        other = rooms.of.get(name)
        if other is None:
            yield number, f"{name} is no module of {README}"
        elif other not in rooms.below[room]:
            yield number, f"{room} must not import {other} ({name})"


def check_tree(root):
    rooms = Rooms((root / README).read_text(encoding="utf-8"))
    faults = [(README, number, what) for number, what in rooms.faults]
    files = [root / "guest/boot.py", *sorted((root / "guest" / PACKAGE).rglob("*.py"))]
    modules = {path.stem: path for path in files if path.stem != "__init__"}
    for module, path in modules.items():
        found = check(rooms, module, path.read_text(encoding="utf-8"))
        faults += [(path.relative_to(root), number, what) for number, what in found]
    gone = rooms.of.keys() - modules.keys() - GENERATED
    faults += [(README, 1, f"{module} does not exist") for module in sorted(gone)]
    for path, number, what in faults:
        print(f"{path}:{number}: {what}")
    print(f"{len(modules)} modules in {len(rooms.below)} rooms, {len(faults)} faults")
    return 1 if faults or len(modules) < 20 else 0


TABLE = """| room | does | modules | may import |
|---|---|---|---|
| `low` | a | `one` `two` | — |
| `high` | b | `three` | `low` |
| `top` | c | `four` | `low` `high` |
"""
# (module, text, part of the fault expected or None)
SELF_TEST = [
    ("three", "from . import one, two as W\nfrom .one import x\nimport os\nfrom os import path\n", None),
    ("four", "def f():\n    from .three import x\n", None),
    ("one", "from .two import x\nfrom cellblock_guest import two\nimport cellblock_guest.two\n", None),
    ("one", '"""three, and cellblock_guest/three.py"""\nskip = ["cellblock_guest.*"]\n', None),
    ("one", "from .three import x\n", "low must not import high (three)"),
    ("one", "from . import two, three as W\n", "low must not import high (three)"),
    ("one", "def f():\n    from .four import x\n", "low must not import top"),
    ("one", "from cellblock_guest import three\n", "low must not import high"),
    ("one", "from cellblock_guest.three import x\n", "low must not import high"),
    ("one", "import cellblock_guest.three as x\n", "low must not import high"),
    ("one", 'm = sys.modules.get("cellblock_guest.three")\n', "low must not import high"),
    ("three", 'f("cellblock_guest.four:Class")\n', "high must not import top"),
    ("three", "from .five import x\n", "five is no module of"),
    ("five", "import os\n", "five is in no room"),
]
# (row that is put before the table's last, part of the fault expected)
ROWS = [
    ("| `mid` | d | `six` | `top` |", "which does not stand above it"),
    ("| `mid` | d | `one` | `low` |", "one is in low already"),
    ("| `low` | d | `six` | — |", "low is there twice"),
]


def self_test():
    rooms = Rooms(TABLE)
    failed = failures(SELF_TEST, lambda module, text: [what for _, what in check(rooms, module, text)])
    failed += failures(
        ROWS, lambda row: [what for _, what in Rooms(TABLE.replace("| `top`", row + "\n| `top`")).faults]
    )
    failed += len(rooms.faults)
    print(f"{len(SELF_TEST) + len(ROWS)} snippets, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(self_test())
    sys.exit(check_tree(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]))
