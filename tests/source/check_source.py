#!/usr/bin/env python3
"""Checks the sources against the project's rules; ctest label "source".

usage: check_source.py [ROOT]      every fault as FILE:LINE: what; exit status 1 if there is any
       check_source.py --self-test feeds each rule what it must refuse and what it must let pass

Rules are functions of a path and its lines, so that the self-test can call them without files. A C function is what
stands between a '{' and a '}' of their own in column 0; the rule `braces` refuses what would hide one from that.
"""

import ast
import functools
import os
import re
import sys
from pathlib import Path

MAX_COLUMNS, MAX_FUNCTION, MAX_FILE = 120, 80, 800
TAB = 8

# Tables: files that may pass MAX_FILE, and functions that may pass MAX_FUNCTION, each with its reason.
LONG_FILES = {}
LONG_FUNCTIONS = {}

CODE = (".c", ".h", ".py", ".sh")
WIDE = (".def", ".json", ".md", ".ipynb", ".svg")
TEXT = CODE + WIDE + (".txt", ".cmake", ".ini", ".toml", ".yml", ".in")
SCRIPTS = ("check", "demo", ".ci/run")
SKIPPED_FOLDERS = {".git", ".venv", "build", "demo-output", "corpus", "__pycache__", ".pytest_cache", ".hypothesis"}

LIBRARIES = {
    "seccomp": re.compile(r"^seccomp\.h$"),
    "zmq": re.compile(r"^zmq\.h$"),
    "jansson": re.compile(r"^jansson\.h$"),
    "openssl": re.compile(r"^openssl/"),
    "sqlite3": re.compile(r"^sqlite3\.h$"),
}
BASE_HEADERS = {"banned", "buffer", "clock", "error", "fd", "filter", "json_scan", "json_write", "log", "visible"}
BASE_HEADERS |= {"cgroup_own", "child", "folder", "host_memory", "proc_stat", "size_text", "states", "unique_name"}
KERNEL_LIBRARIES = {"zmq", "jansson", "openssl", "sqlite3"}
# folder: (folders whose headers it may include by "…", libraries, cellblock headers or None for all); the longest match
# counts
LAYERS = {
    "include/cellblock": ((), set(), None),
    "base": (("base",), set(), BASE_HEADERS),
    "sandbox/client": (("sandbox/client",), set(), None),
    "sandbox": (("sandbox",), {"seccomp"}, None),
    "kernel": (("kernel",), KERNEL_LIBRARIES, None),
}

# The folders whose files docs may name in `…`.
NAMED = "base|docs|examples|guest|include|kernel|kernelspec|sandbox|tests|tools"

# Files of other projects that comments name.
FOREIGN = {
    "lib/sm.h": "dqlite",
    "ceval_gil.h": "CPython",
    "Modules/_asynciomodule.c": "CPython",
    "arch/x86/kernel/signal_64.c": "Linux",
    "arch/arm64/kernel/signal.c": "Linux",
}

# One letter in brackets: this file must pass its own check.
MACHINE_PATHS = re.compile(r"/[w]ork/(main|shared)|/root/\.(pyenv|cache|local)/|/opt/[w]heels|/tmp/[b]ash_jobs")


def layer_of(path):
    return max((f for f in LAYERS if path.startswith(f + "/")), key=len, default=None)


COMMENT_OR_LITERAL = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def strip_c(lines):
    """The lines without comments, with string and character literals emptied."""
    return stripped("\n".join(lines)).split("\n")


@functools.lru_cache(maxsize=1)  # several rules ask for the same file's
def stripped(text):
    def blank(match):
        found = match.group()
        return '""' if found[0] in "\"'" else "\n" * found.count("\n")

    return COMMENT_OR_LITERAL.sub(blank, text)


INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')


def includes(path, lines):
    layer = layer_of(path)
    if layer is None or not path.endswith((".c", ".h")):
        return
    folders, libraries, headers = LAYERS[layer]
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        kind, name = match.groups()
        if kind == '"':
            beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
            places = [beside] if "/" in name or layer != "kernel" else [beside, "kernel/" + name]
            if not any(layer_of(p) == f for p in places for f in folders):
                yield number, f'{layer}/ must not include "{name}"'
        elif name.startswith("cellblock/"):
            if headers is not None and name[len("cellblock/") : -len(".h")] not in headers:
                yield number, f"{layer}/ must not include <{name}>"
        else:
            for library, what in LIBRARIES.items():
                if what.match(name) and library not in libraries:
                    yield number, f"{layer}/ must not use {library}"


# Nobody exchanges a test's files for links: see banned.h.
ALLOWED_IN_TESTS = {"chmod", "fchmodat", "chown", "truncate", "utime", "utimes"}


def banned_names(header):
    return re.findall(r"^#define (\w+)\(\.\.\.\) CB_BANNED", header, re.M)


def banned_calls(path, lines, names):
    if not path.endswith((".c", ".h")) or path == "include/cellblock/banned.h":
        return
    if path.startswith("tests/"):
        names = [name for name in names if name not in ALLOWED_IN_TESTS]
    pattern = re.compile(r"\b(%s)\s*\(|#\s*undef\s+(%s)\b" % ("|".join(names), "|".join(names)))
    for number, line in enumerate(strip_c(lines), 1):
        match = pattern.search(line)
        if match:
            yield number, f"banned: {match.group(1) or match.group(2)}"


def c_functions(lines):
    """(name, first line, length) of each; the length counts from the opening brace to the closing one."""
    opened, name = None, "?"
    for number, line in enumerate(lines, 1):
        if re.match(r"[A-Za-z_].*\(", line):
            match = re.search(r"(\w+)\(", line)
            name = match.group(1) if match else "?"
        if line == "{":
            opened = number
        elif line == "}" and opened is not None:
            yield name, opened, number - opened + 1
            opened = None


def python_functions(lines):
    nodes = [ast.parse("\n".join(lines))]
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1
        nodes += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)]  # no def is in one


def lengths(path, lines):
    if not path.endswith((".c", ".h", ".py")):
        return
    if len(lines) > MAX_FILE and path not in LONG_FILES:
        yield MAX_FILE, f"file of {len(lines)} lines, {MAX_FILE} are allowed"
    functions = python_functions(lines) if path.endswith(".py") else c_functions(strip_c(lines))
    for name, number, length in functions:
        if length > MAX_FUNCTION and f"{path}:{name}" not in LONG_FUNCTIONS:
            yield number, f"function {name} of {length} lines, {MAX_FUNCTION} are allowed"


def braces(path, lines):
    if path.endswith((".c", ".h")):
        for number, line in enumerate(strip_c(lines), 1):
            if re.match(r"[A-Za-z_][^=]*\)\s*\{", line):
                yield number, "the brace of a function belongs on a line of its own"


# A key behind a brace or a comma, in a literal.
WRITTEN_JSON = re.compile(r"""[{,]\\"[^"'{}]*\\":|\{\\\"""")
# These pass on what jansson has read, indented: see CONTRIBUTING.md.
JANSSON_WRITES = re.compile(r"\bjson_(pack|dump|object_set|array_append)")
JANSSON_ROOMS = ("kernel/commands/", "kernel/policy/", "kernel/setup/")


def json_by_hand(path, lines):
    """Objects are written by base/json_write.c, which sets the commas and escapes the text."""
    if path.startswith(("base/", "include/", "sandbox/", "kernel/")) and path.endswith((".c", ".h")):
        for number, line in enumerate(lines, 1):
            if WRITTEN_JSON.search(line):
                yield number, "JSON by hand: cb_json_put writes objects"
            if JANSSON_WRITES.search(line) and not path.startswith(JANSSON_ROOMS):
                yield number, "JSON by jansson: cb_json_put writes objects"


def head(path, lines):
    """Every source says first what it is."""
    body = [line for line in lines if line.strip()]
    if body and body[0].startswith("#!"):
        body = body[1:]
    if not body:
        return
    if path.endswith((".c", ".h")):
        good = body[0].startswith("/*")
    elif path.endswith(".py"):
        good = body[0].startswith(('"""', "'''", 'r"""', "#"))
    else:
        good = not (path.endswith(".sh") or path in SCRIPTS) or body[0].startswith("#")
    if not good:
        yield 1, "no head comment: role, trust domain, invariants"


def layout(path, lines):
    for number, line in enumerate(lines, 1):
        if line != line.rstrip():
            yield number, "trailing blanks"
        if len(line.expandtabs(TAB)) > MAX_COLUMNS and not path.endswith(WIDE):
            yield number, f"{len(line.expandtabs(TAB))} columns, {MAX_COLUMNS} are allowed"
        if path.endswith(".py") and line.startswith("\t"):
            yield number, "tab in Python"
        if path.endswith((".c", ".h")) and re.match(r" {4}", line) and not re.match(r" {4,}\*", line):
            yield number, "indented by blanks"
        if MACHINE_PATHS.search(line):
            yield number, "path of one machine"


def references(root, path, lines):
    """Files that the documentation names exist."""
    if not path.endswith(".md"):
        return
    for number, line in enumerate(lines, 1):
        named = re.findall(r"`((?:%s)/[\w./*-]*)`" % NAMED, line)
        linked = [os.path.join(os.path.dirname(path), n) for n in re.findall(r"\]\(([^):#]+)\)", line)]
        for name in named + linked:
            if not any(True for _ in root.glob(name.rstrip("/"))):
                yield number, f"{name} does not exist"


@functools.lru_cache(maxsize=1)
def names_of_files(root):
    return {os.path.basename(path) for path in sources(root)}


NAMED_IN_COMMENT = re.compile(r"(?<![\w/<\".*-])((?:[\w.-]+/)*[a-z_][\w-]*\.(?:c|h|def|py))\b")


def references_of_comments(root, path, text):
    """Files that comments name exist: FOLDER/FILE from the root, from a folder that rooms lie in, or from beside the
    file; a name without a folder anywhere. <…> is a header of the system, or of include/."""
    if not path.endswith((".c", ".h")):
        return
    places = [root, *(root / top for top in ("kernel", "sandbox", "guest", "include")), (root / path).parent]
    for comment in COMMENT_OR_LITERAL.finditer(text):
        if comment.group()[0] != "/":
            continue
        for match in NAMED_IN_COMMENT.finditer(text, comment.start(), comment.end()):
            name = match.group(1)
            there = any((p / name).exists() for p in places) if "/" in name else name in names_of_files(root)
            if not there and name not in FOREIGN:
                yield text.count("\n", 0, match.start()) + 1, f"{name} does not exist"


def check(path, text, names):
    if text and not text.endswith("\n"):
        yield text.count("\n") + 1, "no newline at the end"
    lines = text.split("\n")[:-1] if text.endswith("\n") else text.split("\n")
    for rule in (includes, lengths, braces, json_by_hand, head, layout):
        yield from rule(path, lines)
    yield from banned_calls(path, lines, names)


def sources(root):
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in SKIPPED_FOLDERS)
        for name in sorted(files):
            path = os.path.relpath(os.path.join(folder, name), root)
            if path.endswith(TEXT) or path in SCRIPTS:
                yield path


def check_tree(root):
    names = banned_names((root / "include/cellblock/banned.h").read_text())
    files = faults = 0
    for path in sources(root):
        files += 1
        text = (root / path).read_text(encoding="utf-8")
        named = [*references(root, path, text.split("\n")), *references_of_comments(root, path, text)]
        for number, what in [*check(path, text, names), *named]:
            faults += 1
            print(f"{path}:{number}: {what}")
    print(f"{files} files, {faults} faults")
    if files < 20:
        print("too few files: is this the root of the sources?")
    return 1 if faults or files < 20 else 0


def function(lines):
    return "/* h */\nint f(void)\n{\n" + "\tg();\n" * (lines - 2) + "}\n"


# (path, text, part of the fault expected or None)
SELF_TEST = [
    ("base/a.c", '/* h */\n#include <cellblock/error.h>\n#include "utf8.h"\n#include <stdio.h>\n', None),
    ("base/a.c", "/* h */\n#include <cellblock/sandbox.h>\n", "base/ must not include"),
    ("base/a.c", "/* h */\n#include <jansson.h>\n", "must not use jansson"),
    ("base/a.c", '/* h */\n#include "../sandbox/shared/jail.h"\n', "must not include"),
    ("sandbox/walls/a.c", '/* h */\n#include "../shared/jail.h"\n#include <cellblock/sandbox.h>\n', None),
    ("sandbox/walls/a.c", "/* h */\n#include <seccomp.h>\n", None),
    ("sandbox/a.c", '/* h */\n#include "../kernel/policy/policy.h"\n', "must not include"),
    ("sandbox/a.c", "/* h */\n#include <zmq.h>\n", "must not use zmq"),
    ("sandbox/client/a.c", "/* h */\n#include <seccomp.h>\n", "must not use seccomp"),
    ("sandbox/client/a.c", '/* h */\n#include "../shared/jail.h"\n', "must not include"),
    ("kernel/commands/a.c", '/* h */\n#include "options.h"\n#include "../policy/policy.h"\n#include <zmq.h>\n', None),
    ("kernel/a.c", '/* h */\n#include "../sandbox/shared/jail.h"\n', "must not include"),
    ("kernel/a.c", "/* h */\n# include <seccomp.h>\n", "must not use seccomp"),
    ("kernel/a.c", function(MAX_FUNCTION), None),
    ("kernel/a.c", function(MAX_FUNCTION + 1), "function f of 81 lines"),
    ("kernel/a.c", "/* h */\nint f(void) {\n}\n", "line of its own"),
    ("kernel/a.py", '"""h"""\ndef f():\n' + "    g()\n" * MAX_FUNCTION, "function f of 81 lines"),
    ("kernel/a.h", "/* h */\n" + "int x;\n" * MAX_FILE, "file of 801 lines"),
    ("kernel/a.def", "/* h */\n" + "int x;\n" * MAX_FILE, None),
    ("kernel/a.c", "/* h */\nint a = strcpy (x, y);\n", "banned: strcpy"),
    ("kernel/a.c", "/* h */\n#undef sprintf\n", "banned: sprintf"),
    ("kernel/a.c", '/* strcpy(x) */\nint a = my_strcpy(x); // system(x)\nchar *b = "system(x)";\n', None),
    ("kernel/a.c", '/* h */\nint a = f(&b, "{\\"size\\":%d}", n);\n', "JSON by hand"),
    ("sandbox/a.c", '/* h */\nint a = f(&b, ",\\"%s\\":", key);\n', "JSON by hand"),
    ("kernel/a.c", '/* h */\nint a = f("mode is \\"rw\\": no", "{}", "a \\"b\\", \\"c\\"");\n', None),
    ("kernel/shells/a.c", "/* h */\nint a = json_object_set_new(b, c, d);\n", "JSON by jansson"),
    ("kernel/shells/a.c", "/* h */\nint a = json_object_get(b, c);\n", None),
    ("kernel/policy/a.c", "/* h */\nint a = json_object_set_new(b, c, d);\n", None),
    ("tests/unit/a.c", '/* h */\nint a = f("{\\"size\\":1}");\n', None),
    ("kernel/a.c", "int a;\n", "no head comment"),
    ("kernel/a.py", "import os\n", "no head comment"),
    ("kernel/a.py", "#!/usr/bin/env python3\nimport os\n", "no head comment"),
    ("tools/a.sh", "#!/bin/sh\necho\n", "no head comment"),
    ("check", "#!/bin/sh\n# what it does\necho\n", None),
    ("kernel/a.c", "/* h */\nint a; \n", "trailing blanks"),
    ("kernel/a.c", "/* h */\n" + "x" * 121 + "\n", "121 columns"),
    ("kernel/a.c", "/* h */\n" + "\t" * 15 + "x\n", "121 columns"),
    ("kernel/a.json", "x" * 121 + "\n", None),
    ("kernel/a.c", "/* h */\n    int a;\n", "indented by blanks"),
    ("kernel/a.py", '"""h"""\nif x:\n\ty()\n', "tab in Python"),
    ("docs/a.md", "see /work/" + "main/x\n", "path of one machine"),
    ("docs/a.md", "no newline", "no newline at the end"),
]


def failures(cases, find):
    """How many of the cases find something else than what stands last in each: a part of a fault, or None; each of
    these is printed. `find` takes the rest of a case and gives what is wrong with it."""
    failed = 0
    for *given, expected in cases:
        found = list(find(*given))
        if found if expected is None else not any(expected in what for what in found):
            failed += 1
            print(f"{given!r:.200}: expected {expected!r}, found {found}")
    return failed


def self_test():
    names = banned_names(
        "#define strcpy(...) CB_BANNED(strcpy)\n#define sprintf(...) CB_BANNED(sprintf)\n"
        "#define system(...) CB_BANNED(system)\n"
    )
    failed = failures(SELF_TEST, lambda path, text: [what for _, what in check(path, text, names)])
    root = Path(__file__).resolve().parents[2]
    text = ["`base/fd.c` `kernel/*.c` [x](../README.md) [y](https://example.org/)", "`base/no.c`", "[x](no.md)"]
    if [number for number, _ in references(root, "docs/a.md", text)] != [2, 3]:
        failed += 1
        print("references: wrong")
    text = """/* python/frames.c
 * shells/frames.c, kernel/start.c, kernel/no.c, no_such_file.c, frames.c, parts.h, <sys/no.h>, and dqlite's lib/sm.h */
#include "no/no.h"
char *text = "no/no.c"; /* ../start.c */ // ../no.c
"""
    if [what.split()[0] for _, what in references_of_comments(root, "kernel/shells/a.c", text)] != [
        *("python/frames.c", "kernel/no.c", "no_such_file.c", "../no.c")
    ]:
        failed += 1
        print("references of comments: wrong")
    print(f"{len(SELF_TEST) + 2} snippets, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(self_test())
    sys.exit(check_tree(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]))
