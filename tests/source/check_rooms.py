#!/usr/bin/env python3
"""Checks which folder of the C sources includes which, and what its README says; ctest label "source".

usage: check_rooms.py [ROOT]            every fault as FILE: what; exit status 1 if there is any
       check_rooms.py --figures [ROOT]  how the sources are laid out, in numbers
       check_rooms.py --self-test       feeds each rule what it must refuse and what it must let pass

A room is a folder of sandbox/ or kernel/ (ROOMS). An arrow leads from a file to one that it includes; X.c and X.h count
as one file. What is found is a function of the files' text alone, so that the
self-test needs no files. That the top folders keep their order, base <- sandbox <- kernel, is check_source.py's.
"""

import os
import re
import statistics
import sys
from pathlib import Path

from check_source import INCLUDE, SKIPPED_FOLDERS, c_functions, failures, strip_c

MAX_CIRCLE = 4
TOPS = ("kernel", "sandbox", "base", "include")
# Who includes it sees struct cb_kernel complete: those who handle requests, and start and end.
WHOLE, MAX_WHOLE = "kernel/requests/rooms.h", 10
README_LINES = ("In", "Out", "May touch", "May include")

# For each top folder that is laid out in rooms: what each room may include, from the top down. What a room may include
# stands below it. "." is what lies in the top folder itself.
ROOMS = {
    "sandbox": {
        ".": {"broker", "report"},
        "broker": {
            *("warm", "report", "init", "without_namespaces", "notifier", "changes", "root", "walls", "judge"),
            *("shared", "cgroup"),
        },
        "warm": {"notifier", "root", "walls", "shared", "cgroup"},
        "report": {"init", "without_namespaces", "notifier", "root", "walls", "judge", "shared", "cgroup"},
        "init": {"jobs", "without_namespaces", "notifier", "root", "walls", "shared"},
        "jobs": {"without_namespaces", "walls", "shared"},
        "without_namespaces": {"root", "walls", "shared"},
        "notifier": {"walls", "judge", "shared", "cgroup"},
        "changes": {"judge", "shared"},
        "root": {"shared"},
        "walls": {"shared", "cgroup"},
        "judge": {"shared"},
        "shared": {"cgroup"},
        "cgroup": set(),
        "client": set(),
    },
    "kernel": {
        ".": {
            *("commands", "requests", "transactions", "workspace", "shells", "python", "records", "jupyter", "setup"),
            "policy",
        },
        "commands": {"records", "jupyter", "setup", "policy"},
        "requests": {
            *("transactions", "workspace", "shells", "python", "records", "jupyter", "setup", "policy"),
        },
        "transactions": {"workspace", "shells", "python", "records", "jupyter", "setup", "policy"},
        "workspace": {"shells", "python", "records", "jupyter", "setup", "policy"},
        "shells": {"python", "records", "jupyter", "setup", "policy"},
        "python": {"records", "jupyter", "setup", "policy"},
        "records": {"jupyter", "setup", "policy"},
        "jupyter": {"setup", "policy"},
        "setup": {"policy"},
        "policy": set(),
    },
}


def room_of(path):
    """(top folder, room) of a file; kernel/requests/a.c is of ("kernel", "requests")."""
    top, _, rest = path.partition("/")
    return top, rest.split("/")[0] if "/" in rest else "."


def stem(path):
    return path.rsplit(".", 1)[0]


def included(path, text, known):
    """The files of `known` that it includes."""
    for kind, name in (match.groups() for match in map(INCLUDE.match, text.split("\n")) if match):
        beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
        places = [beside, "kernel/" + name] if kind == '"' else ["include/" + name]
        yield from [place for place in places if place in known][:1]


def arrows(files):
    return {path: list(included(path, text, files)) for path, text in files.items()}


def circles(graph):
    """Sets of more than one file in which each is reached from each."""
    units = {}
    for path, others in graph.items():
        units.setdefault(stem(path), set()).update(stem(o) for o in others if stem(o) != stem(path))
    reached = {unit: reachable(units, unit) for unit in units}
    found = {frozenset(v for v in reached[u] if u in reached[v]) for u in units if u in reached[u]}
    return sorted(map(sorted, found), key=len, reverse=True)


def reachable(graph, start):
    seen, todo = set(), [start]
    while todo:
        new = set(graph.get(todo.pop(), ())) - seen
        seen |= new
        todo += new
    return seen


def order_faults(rooms):
    """The table itself."""
    for top, table in rooms.items():
        names = list(table)
        for place, (room, below) in enumerate(table.items()):
            for other in sorted(below - set(names[place + 1 :])):
                yield "tests/source/check_rooms.py", f"{top}/{room} may not include {other}, which is not below it"


def arrow_faults(graph, rooms):
    for path, others in graph.items():
        top, room = room_of(path)
        if top not in rooms:
            continue
        if room not in rooms[top]:
            yield path, f"{top}/{room} is not in the table of tests/source/check_rooms.py"
            continue
        for other in others:
            other_top, other_room = room_of(other)
            if other_top == top and other_room != room and other_room not in rooms[top][room]:
                yield path, f"must not include {other}: {room} may include {sorted(rooms[top][room])} of {top}/"


def circle_faults(graph, rooms):
    for circle in circles(graph):
        if circle[0].split("/")[0] not in rooms:
            continue
        if len({room_of(unit) for unit in circle}) > 1:
            yield circle[0], f"circle of includes that crosses folders: {' '.join(circle)}"
        if len(circle) > MAX_CIRCLE:
            yield circle[0], f"circle of {len(circle)} files, {MAX_CIRCLE} are allowed: {' '.join(circle)}"


def declaration_faults(files, rooms):
    """What one room defines is not declared in another's header: an arrow to it would lead to the wrong room."""
    defined = {}
    for path, text in files.items():
        if path.endswith(".c") and room_of(path)[0] in rooms:
            for name in re.findall(r"^(?!static\b|\s).*?\b(\w+)\([^;]*?\)\n\{", text, re.M):
                defined[name] = path
    for path, text in files.items():
        if path.endswith(".h"):
            for name in re.findall(r"^(?!static\b|typedef\b|#|\s).*?\b(\w+)\([^{]*?;", text, re.M):
                at = defined.get(name, path)
                if room_of(at)[0] == room_of(path)[0] and room_of(at) != room_of(path):
                    yield path, f"declares {name}, which {at} defines"


def whole_faults(graph):
    found = seers(graph)
    if len(found) > MAX_WHOLE:
        yield WHOLE, f"{len(found)} files see struct cb_kernel complete, {MAX_WHOLE} are allowed: {' '.join(found)}"


def seers(graph):
    return [path for path in sorted(graph) if WHOLE in reachable(graph, path)]


def readme_faults(files, rooms):
    """A folder's README says what comes in and goes out, what may be touched and included, and names its files."""
    sources = {}
    for path in files:
        if not path.endswith(".md"):
            sources.setdefault(os.path.dirname(path), set()).add(stem(os.path.basename(path)))
    for folder, stems in sources.items():
        name, text = f"{folder}/README.md", files.get(f"{folder}/README.md")
        if text is None:
            yield name, f"is missing: its lines {', '.join(README_LINES)}"
            continue
        for line in README_LINES:
            if not re.search("^- " + line + ": ", text, re.M):
                yield name, f"has no line that begins with \"- {line}:\""
        for one in sorted(stems):
            if not re.search(rf"\b{one}\.(c|h|def)\b", text):
                yield name, f"does not name {one}"
        top, room = room_of(f"{folder}/")
        if top in rooms and room in rooms[top]:
            said = re.findall(r"\w+", " ".join(re.findall(r"^- May include: (.*)", text, re.M)))
            if set(said) & set(rooms[top]) != rooms[top][room]:
                yield name, f"May include: the table of tests/source/check_rooms.py has {sorted(rooms[top][room])}"


def check(files, rooms):
    """(file, what) of all that is wrong; files: path -> text."""
    code = {path: strip(text) for path, text in files.items() if path.endswith((".c", ".h", ".def"))}
    graph = arrows(code)
    yield from order_faults(rooms)
    yield from arrow_faults(graph, rooms)
    yield from circle_faults(graph, rooms)
    yield from declaration_faults(code, rooms)
    yield from whole_faults(graph)
    yield from readme_faults(files, rooms)


def strip(text):
    """Without comments; names of included files stay, other strings do not."""
    lines = text.split("\n")
    bare = strip_c(lines)
    return "\n".join(old if re.match(r"\s*#\s*include", new) else new for old, new in zip(lines, bare))


def read(root, tops):
    files = {}
    for top in tops:
        for folder, folders, names in os.walk(root / top):
            folders[:] = sorted(f for f in folders if f not in SKIPPED_FOLDERS | {"tests"})
            for name in sorted(names):
                if name.endswith((".c", ".h", ".def", ".md")):
                    path = os.path.normpath(os.path.join(os.path.relpath(folder, root), name))
                    files[path] = (root / path).read_text(encoding="utf-8")
    return files


def upward(graph, top, rooms):
    """Arrows against the table."""
    rooms_of = [(room_of(path), room_of(other)) for path, others in graph.items() for other in others]
    inside = [(a[1], b[1]) for a, b in rooms_of if a[0] == top == b[0]]
    return sum(a != b and b not in rooms[top].get(a, ()) for a, b in inside)


def figures(root):
    files = read(root, TOPS)
    code = {path: strip(text) for path, text in files.items() if path.endswith((".c", ".h", ".def"))}
    graph = arrows(code)
    counted = {path: text for path, text in read(root, ["."]).items() if path.endswith((".c", ".h"))}
    yield "lines of C outside tests", sum(text.count("\n") for text in counted.values())
    spoken = (strip(text).split("\n") for text in counted.values())
    yield "lines of C without comments and blank ones", sum(sum(bool(line.strip()) for line in t) for t in spoken)
    yield "files of C outside tests", len(counted)
    for top in ("kernel", "sandbox"):
        found = [circle for circle in circles(graph) if circle[0].startswith(top + "/")]
        yield f"{top}/: files", sum(path.startswith(top + "/") for path in counted)
        yield f"{top}/: files in rooms", sum(room_of(p)[0] == top and room_of(p)[1] in ROOMS[top] for p in counted)
        yield f"{top}/: folders", len({room_of(path) for path in code if path.startswith(top + "/")})
        yield f"{top}/: largest circle of includes (files)", len(found[0]) if found else 0
        yield f"{top}/: upward arrows between folders", upward(graph, top, ROOMS)
    yield "files that see struct cb_kernel complete", len(seers(graph))
    found = []
    for path, text in counted.items():
        found += [(n, f"{name} ({path})") for name, _, n in c_functions(strip_c(text.split("\n")))]
    yield "longest function (lines)", "{} {}".format(*max(found))
    yield "median function (lines)", statistics.median(n for n, _ in found)


TABLE = {"sandbox": {".": {"up"}, "up": {"low"}, "low": set()}}
README = "- In: x\n- Out: x\n- May touch: x\n- May include: {}\n`main.c` `a.h` `b.h` `c.h` 0.h 1.h 2.h 3.h 4.h\n"
READMES = {"sandbox/README.md": README.format("up."), "sandbox/up/README.md": README.format("`low/` (its x).")}
READMES |= {"sandbox/low/README.md": README.format("no other room.")}
SEER = {f"kernel/{n}.c": '#include "requests/rooms.h"\n' for n in range(MAX_WHOLE)} | {WHOLE: ""}
SEER |= {"kernel/README.md": README + " ".join(SEER), "kernel/requests/README.md": README + "`rooms.h`"}
UP, LOW = '#include "../up/a.h"\n', '#include "../low/b.h"\n'
CIRCLE = {f"sandbox/up/{n}.h": f'#include "{(n + 1) % 5}.h"\n' for n in range(5)}
F, LONG_F = "int f(int x)", "int f(int x,\n      int y)"
# (files beside READMES, part of the fault expected or None)
SELF_TEST = [
    ({"sandbox/main.c": '#include "up/a.h"\n', "sandbox/up/a.h": ""}, None),
    ({"sandbox/up/a.c": LOW, "sandbox/low/b.h": ""}, None),
    ({"sandbox/low/b.c": '#include "b.h"\n#include "c.h"\n', "sandbox/low/b.h": "", "sandbox/low/c.h": ""}, None),
    ({"sandbox/low/b.c": UP, "sandbox/up/a.h": ""}, "must not include sandbox/up/a.h"),
    ({"sandbox/low/b.c": '# include "../up/a.def"\n', "sandbox/up/a.def": ""}, "must not include sandbox/up/a.def"),
    ({"sandbox/low/b.c": f"/*\n{UP}*/\n", "sandbox/up/a.h": ""}, None),
    ({"sandbox/main.c": '#include "low/b.h"\n', "sandbox/low/b.h": ""}, "must not include sandbox/low/b.h"),
    ({"sandbox/new/a.c": ""}, "sandbox/new is not in the table"),
    ({"sandbox/up/a.h": LOW, "sandbox/low/b.h": UP}, "circle of includes that crosses folders"),
    (CIRCLE, "circle of 5 files"),
    ({**CIRCLE, "sandbox/up/3.h": '#include "0.h"\n'}, None),
    # X.c and X.h are one file: no header closes this circle
    ({path[:-1] + "c": text for path, text in CIRCLE.items()} | dict.fromkeys(CIRCLE, ""), "circle of 5 files"),
    ({"sandbox/up/a.c": F + "\n{\n}\n", "sandbox/low/b.h": F + ";\n"}, "declares f, which sandbox/up/a.c defines"),
    ({"sandbox/up/a.c": LONG_F + "\n{\n}\n", "sandbox/low/b.h": LONG_F + ";\n"}, "declares f"),
    ({"sandbox/up/a.c": "static " + F + "\n{\n}\n", "sandbox/low/b.h": F + ";\n"}, None),
    ({"sandbox/up/a.c": F + "\n{\n}\n", "sandbox/up/b.h": F + ";\n"}, None),
    ({"sandbox/up/a.c": "", "sandbox/up/README.md": None}, "sandbox/up/README.md: is missing"),
    ({"base/a.c": ""}, "base/README.md: is missing"),
    ({"base/a.c": "", "base/README.md": README}, None),
    ({"base/a.c": "", "base/README.md": README.replace("- In:", "In:")}, 'begins with "- In:"'),
    ({"base/a.c": "", "base/README.md": README.replace("\n- Out:", " Out:")}, 'begins with "- Out:"'),
    ({"base/a.c": "", "base/README.md": README.replace("- May t", "- Must t")}, 'begins with "- May touch:"'),
    ({"base/a.c": "", "base/README.md": README.replace("- May i", "- Must i")}, 'begins with "- May include:"'),
    ({"base/a.c": "", "base/aa.c": "", "base/README.md": README}, "does not name aa"),
    ({"sandbox/up/a.c": "", "sandbox/up/README.md": README.format("nothing.")}, "the table of tests/source/check"),
    ({"sandbox/low/b.c": "", "sandbox/low/README.md": README.format("up.")}, "the table of tests/source/check"),
    (SEER, None),
    ({**SEER, "kernel/main.c": '#include "0.c"\n'}, "11 files see struct cb_kernel complete, 10 are allowed"),
]


def self_test():
    def find(added):
        files = {path: text for path, text in {**READMES, **added}.items() if text is not None}
        return [f"{path}: {what}" for path, what in check(files, TABLE)]

    failed = failures(SELF_TEST, find)
    kernel = {"kernel/a.h": '#include "r/b.h"\n', "kernel/r/b.h": '#include "a.h"\n', "kernel/a.c": '#include "a.h"\n'}
    kernel = arrows(kernel)
    right = {
        "order": [what for _, what in order_faults({"sandbox": {"low": {"up"}, "up": {"low"}}})]
        == ["sandbox/up may not include low, which is not below it"],
        "circles": circles(kernel) == [["kernel/a", "kernel/r/b"]],
        "upward": upward({"sandbox/low/a.c": ["sandbox/up/a.h"]}, "sandbox", TABLE) == 1,
        "downward": upward({"sandbox/up/a.c": ["sandbox/low/a.h"]}, "sandbox", TABLE) == 0,
        "reachable": reachable(kernel, "kernel/a.c") == {"kernel/a.h", "kernel/r/b.h"},
    }
    failed += list(right.values()).count(False)
    print(f"{len(SELF_TEST) + len(right)} snippets, {failed} failed", *(name for name in right if not right[name]))
    return 1 if failed else 0


def main(words):
    if words[:1] == ["--self-test"]:
        return self_test()
    given = [word for word in words if word != "--figures"]
    root = Path(given[0]) if given else Path(__file__).resolve().parents[2]
    if "--figures" in words:
        for name, value in figures(root):
            print(f"{name}: {value}")
        return 0
    files = read(root, TOPS)
    faults = list(check(files, ROOMS))
    for path, what in faults:
        print(f"{path}: {what}")
    print(f"{len(files)} files, {len(faults)} faults")
    if len(files) < 20:
        print("too few files: is this the root of the sources?")
    return 1 if faults or len(files) < 20 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
