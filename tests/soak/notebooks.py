#!/usr/bin/env python3
"""Notebooks of other people, run by nbclient on ipykernel and on Cellblock: what is not the same, cell by cell.

usage: notebooks.py --out FOLDER [--reference NAME] [--kernel NAME] [--timeout S] PATH… | @FILE

Role: a command; test code, outside the jail. PATH is a notebook or a folder of them, @FILE a list, one path a line.
Take the Python of the environment that has both kernelspecs and what the notebooks import. A notebook runs in a copy of
its project (the nearest folder upwards with .git, else its own folder), one copy for each kernel, so that neither sees
the other's files. The kernels are python3, which no jail holds, and cellblock, best installed with --project.

Outputs are compared without colours, addresses, times, temporary names and ids. A notebook with differences runs on the
reference a second time: of a cell that differs from itself there, only the kinds of its outputs are compared. The
executed notebooks and differences.txt are in FOLDER; exit status 1 if there are any. tests/frontends/test_notebooks.py
runs it on small notebooks, one of which differs.
"""

import argparse
import difflib
import json
import os
import re
import shutil
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

SHOWN = 12  # lines of one cell's difference
COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
KERNELS_OWN = re.compile(r"File \S*/(ipykernel|cellblock_guest)/")  # a frame of a traceback
NOISE = [
    (COLOURS, ""),
    (r"(?m)^[^\n]*\r(?!\n)", ""),  # what was written over
    (r"\r\n", "\n"),
    (r"0x[0-9a-fA-F]{4,}", "ADDRESS"),
    (r"/tmp/ipykernel_\d+/\d+\.py", "CELL"),
    (r"/tmp/[\w.-]*[a-z0-9_]{8}\b", "TEMPORARY"),
    (r"\b[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\b", "ID"),
    (r"\b[0-9a-f]{32}\b", "ID"),
    (r"\bp?\d{4,}\b(?=[\"'\\])|(?<=[\"'#_-])p?\d{4,}\b", "ID"),
    (r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?(\.\d+)?", "DATE"),
    (r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun)\w*,? [\w ,]+ \d\d:\d\d(:\d\d)?( \d{4})?", "DATE"),
    (r"\b\d+:\d\d(:\d\d)?(\.\d+)?\b", "TIME"),
    (r"\b\d[\d.,]*(e[+-]\d+)? ?(ns|[µμ]s|us|ms|s|sec|secs|seconds|min|minutes|it/s|s/it)\b", "TIME"),
    (r"\b[\d,]+ loops?", "N loops"),
    (r"(?m)^The slowest run took.*\n", ""),
    (r"\bpid[= ]\d+", "pid"),
]
NOISE = [(re.compile(pattern), word) for pattern, word in NOISE]


def plain(kind, text, folder):
    text = text if isinstance(text, str) else json.dumps(text)
    text = text.replace(str(folder), "PROJECT").replace(os.path.expanduser("~") + "/", "~/")
    for pattern, word in NOISE:
        text = pattern.sub(word, text)
    if kind.startswith("error"):  # the lines around the one at fault: IPython counts blank ones in ipykernel alone
        text = re.sub(r"(?m)^ +\d+\b.*\n?", "", text)
    return text


def parts(output):
    """What is compared of an output: pairs of its kind and text."""
    if output.output_type == "stream":
        return [(output.name, output.text)]
    if output.output_type == "error":
        frames = [f for f in output.traceback if not KERNELS_OWN.match(COLOURS.sub("", f))]
        return [("error " + output.ename, "\n".join([f"{output.ename}: {output.evalue}", *frames]))]
    data = sorted(output.get("data", {}).items())
    return [(f"{output.output_type} {mime}", text) for mime, text in data] or [(output.output_type, "")]


def outputs(cell, folder):
    found = []
    for output in cell.get("outputs", []):
        for kind, text in parts(output):
            if found and found[-1][0] == kind and kind in ("stdout", "stderr"):
                text = found.pop()[1] + text
            found.append((kind, text))
    return [(kind, text if " image/p" in kind else plain(kind, text, folder)) for kind, text in found]


def kinds(found):
    return sorted({kind for kind, _ in found})


def lines(found):
    return [f"[{kind}] {line}" for kind, text in found for line in (text.splitlines() or [""])]


def difference(theirs, ours):
    """Lines that say what is not the same, or none."""
    if theirs == ours:
        return []
    if sorted(theirs) == sorted(ours):
        return [f"the order: {[k for k, _ in theirs]} and here {[k for k, _ in ours]}"]
    said = difflib.unified_diff(lines(theirs), lines(ours), "reference", "here", n=0, lineterm="")
    said = [line[:300] for line in said if not line.startswith(("---", "+++", "@@"))]
    if not said:
        return ["how text is divided"]
    return said[:SHOWN] + ([f"… {len(said) - SHOWN} more lines"] if len(said) > SHOWN else [])


def project_of(path):
    return next((p for p in path.parents if (p / ".git").exists()), path.parent)


def execute(path, kernel, copies, timeout):
    """The executed notebook, and the folder that its project's copy is in."""
    project = project_of(path)
    copy = copies / re.sub(r"\W+", "-", str(project)).strip("-")
    if not copy.exists():
        shutil.copytree(project, copy, symlinks=True)
    notebook = nbformat.read(path, as_version=4)
    folder = copy / path.parent.relative_to(project)
    client = NotebookClient(
        notebook, kernel_name=kernel, timeout=timeout, interrupt_on_timeout=True, allow_errors=True,
        startup_timeout=120, resources={"metadata": {"path": str(folder)}},
    )  # fmt: skip
    try:
        client.execute(env={**os.environ, "MPLBACKEND": "module://matplotlib_inline.backend_inline"})
    except Exception as error:  # a kernel that dies, a client that gives up: a difference like any other
        notebook.metadata["stopped"] = f"{type(error).__name__}: {error}"[:500]
    nbformat.write(notebook, copies / f"{copy.name}-{path.stem}.ipynb")
    return notebook, copy


def compare(path, args):
    """Pairs of a code cell's number and its difference; and how many cells there were."""

    def run(kernel, folder):
        notebook, copy = execute(path, kernel, args.out / folder, args.timeout)
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        return notebook.metadata.get("stopped"), [outputs(cell, copy) for cell in cells]

    stopped, theirs = run(args.reference, "reference")
    ended, ours = run(args.kernel, "here")
    found = [] if stopped == ended else [(0, [f"the run: {stopped} and here {ended}"])]
    found += [(n, said) for n, pair in enumerate(zip(theirs, ours), 1) if (said := difference(*pair))]
    if found:
        again = run(args.reference, "again")[1]
        varies = {n for n, pair in enumerate(zip(theirs, again), 1) if pair[0] != pair[1]}
        found = [(n, said) for n, said in found if n not in varies or kinds(theirs[n - 1]) != kinds(ours[n - 1])]
    return found, len(theirs)


def notebooks(paths):
    for path in (Path(p).resolve() for p in paths):
        if path.is_dir():
            yield from sorted(p for p in path.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
        else:
            yield path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], fromfile_prefix_chars="@")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--reference", default="python3")
    parser.add_argument("--kernel", default="cellblock")
    parser.add_argument("--timeout", type=int, default=300, help="seconds for one cell")
    parser.add_argument("paths", nargs="+")
    args = parser.parse_args()
    args.out = args.out.resolve()
    for folder in ("reference", "here", "again"):
        (args.out / folder).mkdir(parents=True, exist_ok=True)
    total, cells, amiss, same = 0, 0, 0, 0
    with open(args.out / "differences.txt", "w", encoding="utf-8") as report:
        for path in notebooks(args.paths):
            found, count = compare(path, args)
            print(f"{'same' if not found else f'{len(found)} differ':>10} of {count:3} cells  {path}", flush=True)
            for number, said in found:
                print(f"\n{path} code cell {number}", *said, sep="\n  ", file=report, flush=True)
            total, cells, amiss, same = total + 1, cells + count, amiss + len(found), same + (not found)
    print(f"{total} notebooks, {cells} cells: {same} notebooks the same, {amiss} cells differ: {report.name}")
    return 1 if amiss else 0


if __name__ == "__main__":
    sys.exit(main())
