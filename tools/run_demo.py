"""Runs examples/tour.ipynb in the jail with nbclient, an ordinary Jupyter client, and says what was refused and what
survived.

usage: run_demo.py OUTPUT_FOLDER. Writes notebook.ipynb and notebook.html there. Exit status 1 if an attempt to escape
got through or an output is not what it should be. Runs on the host, outside the jail; what the notebook prints is only
looked at as text.
"""

import os
import re
import shutil
import socket
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbconvert import HTMLExporter

TOUR = Path(__file__).resolve().parents[1] / "examples" / "tour.ipynb"


class Client(NotebookClient):
    """nbclient, which also sends what a cell's metadata says about limits along with the cell."""

    async def async_execute_cell(self, cell, cell_index, **kwargs):
        session, make = self.kc.session, type(self.kc.session).msg
        limits = cell.metadata.get("cellblock")

        def msg(msg_type, content=None, parent=None, header=None, metadata=None):
            if msg_type == "execute_request" and limits:
                metadata = {**(metadata or {}), "cellblock": limits}
            return make(session, msg_type, content, parent, header, metadata)

        session.msg = msg
        return await super().async_execute_cell(cell, cell_index, **kwargs)


def make_workspace(folder, port):
    """A fresh project folder with what an attacker would like to change, and where to find a server of this machine."""
    shutil.rmtree(folder, ignore_errors=True)
    hooks = folder / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "post-commit").write_text("#!/bin/sh\n")
    (folder / "server-port").write_text(str(port))


def text_of(cell):
    return "".join(o.get("text", "") for o in cell.outputs if o.output_type == "stream")


def mimes_of(cell):
    return {mime for o in cell.outputs for mime in o.get("data", {})}


def error_of(cell):
    return next((f"{o.ename}: {o.evalue}" for o in cell.outputs if o.output_type == "error"), "")


def check(cell):
    """What is wrong with a cell's outputs; None if nothing. The notebook's metadata says what is expected."""
    wanted = cell.metadata.get("demo", {})
    said, error = text_of(cell), error_of(cell)
    if wanted.get("text", "") not in said:
        return f"expected the text {wanted['text']!r}, got {said[-200:]!r} {error}"
    if "mime" in wanted and wanted["mime"] not in mimes_of(cell):
        return f"expected an output of type {wanted['mime']}, got {sorted(mimes_of(cell))} {error}"
    if not error.startswith(wanted.get("error", "")) or bool(error) != ("error" in wanted):
        return f"expected {wanted.get('error', 'no error')}, got {error or 'none'}"
    if wanted.get("error") == "KernelDiedError" and not undone_alone(cell, error):
        return f"expected that cell [{cell.execution_count}] alone is undone, got {error}"
    return None


def undone_alone(cell, error):
    """Whether a crash's error says so: the state is that from before this cell, and no other cell is named with it."""
    before = re.search(r"all variables.* are as they were before cell \[(\d+)\]", error)
    return before and int(before[1]) == cell.execution_count and not re.search(r"\bcells?\b[^;]* undone", error)


def report(notebook):
    faults = 0
    for number, cell in enumerate((c for c in notebook.cells if c.cell_type == "code"), 1):
        fault = check(cell)
        through = [line for line in text_of(cell).splitlines() if line.startswith("GOT THROUGH")]
        faults += bool(fault) + len(through)
        title = cell.metadata.get("demo", {}).get("title", "")
        print(f"{'FAULT' if fault else 'ok':6}[{number}] {title}" + (f": {fault}" if fault else ""))
        for line in text_of(cell).splitlines():
            if line.startswith(("refused", "GOT THROUGH")):
                print(f"          {line}")
        if error_of(cell) and not fault:
            print(f"          {error_of(cell)}")
    return faults


def main(folder):
    notebook = nbformat.read(TOUR, as_version=4)
    workspace = folder / "project"
    server = socket.create_server(("127.0.0.1", 0))
    make_workspace(workspace, server.getsockname()[1])
    os.environ["DEMO_SECRET"] = "a token of the host"
    name = os.environ.get("CELLBLOCK_DEMO_KERNEL", "cellblock")
    client = Client(
        notebook,
        kernel_name=name,
        allow_errors=True,
        timeout=120,
        resources={"metadata": {"path": str(workspace)}},
        extra_arguments=["--set", "transactions.mode=always"],  # whatever a copy costs on this machine
    )
    client.execute()
    nbformat.write(notebook, folder / "notebook.ipynb")
    (folder / "notebook.html").write_text(HTMLExporter().from_notebook_node(notebook)[0], encoding="utf-8")
    faults = report(notebook)
    print(f"\n{folder / 'notebook.ipynb'}\n{folder / 'notebook.html'}")
    print("The notebook ran as it should." if not faults else f"{faults} faults.")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
