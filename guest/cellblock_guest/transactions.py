"""%checkpoint, %rollback, %undo, %checkpoints, %limits: a cell asks, its reply's metadata carries what it asked.

The supervisor says with each cell which checkpoints there are (where it says nothing there are none to be had), and why
no more can be made, if so.
"""

import re
import sys
from _thread import get_ident

from . import refusals

NAME_BYTES = 127  # as the supervisor takes them: CB_CHECKPOINT_NAME and CB_CHECKPOINT_ASKED
NAMES_OF_A_CELL = 16
LINES = ("checkpoint", "rollback", "undo", "checkpoints", "limits")
_LINE = r"(?m)^%%(%s)\b[ \t]*(.*)$" % "|".join(LINES)  # compiled when it is first used


class Rollback(BaseException):
    """Ends the cell; the state goes back when its reply is out."""


class Transactions:
    def __init__(self, guest):
        self._guest = guest
        self._known = self._no_copies = None
        self._names, self._back = [], {}
        self.error = RuntimeError  # IPython's UsageError, which is shown without a traceback, replaces it

    def begin(self, metadata):
        self._known, self._no_copies = metadata.get("checkpoints"), metadata.get("no_copies")
        self._names, self._back = [], {}

    @property
    def ended(self):
        """The cell has asked to be rolled back: nothing after that runs. For the main shell's: no other may."""
        return bool(self._back) and get_ident() == self._guest.wire.main

    def asked(self):
        """For the metadata of the reply."""
        asked = {}
        if self._names:
            asked["checkpoint"] = self._names
        if self._back:
            asked.update(self._back)
        return asked

    def run(self, name, line):
        return getattr(self, name)(line.strip())

    def _allowed(self, what, between_cells=False):
        """What is asked for goes with a cell's reply: in a widget's callback or a task there is none between cells."""
        in_cell = between_cells or self._guest.aio.executing
        if get_ident() != self._guest.wire.main or self._guest.wire.forked or not in_cell:
            raise self.error("%%%s works in the main thread of a cell only, while that runs" % what)
        if self._known is None:
            raise self.error("%%%s: %s" % (what, self._no_copies or "this kernel keeps no checkpoints"))

    def checkpoint(self, name):
        self._allowed("checkpoint")
        if not name:
            raise self.error("%checkpoint NAME: which name?")
        if self._no_copies:  # how many names there may be is judged when the cell ends: one may be deleted until then
            raise self.error("%%checkpoint %s: %s" % (name, self._no_copies))
        if len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES or any(c < " " or c == "\x7f" for c in name):
            raise self.error(
                "%%checkpoint: a name has at most %d bytes (of UTF-8), and no control characters" % NAME_BYTES
            )
        if name in self._names:
            return
        if len(self._names) == NAMES_OF_A_CELL:
            raise self.error("%%checkpoint %s: a cell makes at most %d" % (name, NAMES_OF_A_CELL))
        self._names.append(name)

    def rollback(self, name):
        self._allowed("rollback")
        known = [each["name"] for each in self._known]
        if name and name not in known and name not in self._names:
            raise self.error(
                "%%rollback %s: no such checkpoint; there %s"
                % (name, "are " + ", ".join(known) if known else "is none (%checkpoint NAME makes one)")
            )
        self._back = {"rollback": name or None}
        raise Rollback

    def undo(self, cells):
        self._allowed("undo")
        if cells and not (cells.isascii() and cells.isdigit() and len(cells) < 7 and int(cells)):
            raise self.error("%%undo %s: how many cells? %%undo undoes the last one, %%undo 3 the last three" % cells)
        self._back = {"undo": int(cells or 1)}
        raise Rollback

    def checkpoints(self, _line):
        self._allowed("checkpoints", between_cells=True)
        for each in self._known:
            size = refusals.size(each["memory_bytes"]) if each.get("memory_bytes") else ""
            print("%-20s after [%s]  %s  %s" % (each["name"], each["execution_count"], each.get("created", ""), size))
        if not self._known:
            print("No checkpoints. %checkpoint NAME makes one when its cell ends.")

    def limits(self, _line):
        says, shown = self._guest.refusals, False
        for key, value in sorted(says.says.items()):
            if key.startswith(("limits.", "timeout.", "transactions.")) or (key == "workspace.size" and value):
                none = not value and not key.startswith("transactions.")
                print("%-22s %s" % (key, "0 (no limit)" if none else says.said(key)[len(key) + 4 :]))
                shown = True
        if says.lowered:
            print("%-22s %s (this cell)" % ("memory", refusals.size(says.lowered)))
        if not shown:
            print("No limits are known here.", file=sys.stderr)


def as_python(code):
    """Plain mode's cells: lines that are a magic of ours become calls; None if there is none."""
    found, count = re.subn(_LINE, lambda m: "__cellblock_line__(%r, %r)" % m.groups(), code)
    return found if count else None
