"""Sends cells, takes what comes back, and holds each reply, output, count and `undone` against the model.

Role: test code, outside the jail. Invariants: whatever is not as it must be raises Amiss with both sides; line.now is
None from when a state was lost, or SETUP undone, until SETUP has run again. Callers: session.py.
"""

import json
import re
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Callable

import rawclient
from faults import ANY, DIES, OK, RAISES
from world import PEEK, Line

RECENT = 40  # cells and steps that are told when something is amiss
LATE = 120.0  # s; what takes longer is lost
LATE_TO_STOP = ("CellTimeoutError",)
STATES = ("kept", "restored", "lost")
TOLD = re.compile(r"^\[cellblock: .*; all variables.*(as they were before|lost)", re.M)
DEAR = re.compile(rb"no twin was made behind cell \[(\d+)\]")
OLDER = re.compile(r"did not work when it was woken|memory was short|was given up")


class Amiss(AssertionError):
    """The kernel is not what the model says."""


def ensure(holds, *what):
    if not holds:
        raise Amiss(" ".join(str(w) for w in what))


@dataclass
class Sent:
    code: str
    apply: Callable
    end: str = OK
    enames: tuple = ()
    store: bool = True
    silent: bool = False
    takes_all: bool = False
    text: str | None = None  # what stdout must be
    id: str = ""
    interrupted: bool = False


@dataclass
class Tally:
    cells: int = 0
    kinds: Counter = field(default_factory=Counter)
    states: Counter = field(default_factory=Counter)
    undone: Counter = field(default_factory=Counter)
    enames: Counter = field(default_factory=Counter)
    problems: list = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)


class Judge:
    """One kernel's main line. `mode` is transactions.mode, or keep."""

    def __init__(self, mode, files_too, tally):
        self.mode, self.tally = mode, tally
        self.line = Line(files_too)
        self.count = 0
        self.loose = False  # copies may be missing: older states come back
        self.owed = None  # words of what a silent cell's reply has told: the next cell that is not silent says them
        self.recent = deque(maxlen=RECENT)
        self.read, self.without = 0, []  # of what the kernel has said
        self.known = {}  # ids of requests of which more may come
        self.candidates = None  # of line.now, where an interrupt leaves it open
        self.open_from = 0  # the first entry after that

    # ---- messages ----

    def send(self, sent, about=None, **content):
        if sent.silent:
            content["silent"] = True
        if not sent.store:
            content["store_history"] = False
        content.setdefault("stop_on_error", False)
        sent.id = self.client.start(sent.code, metadata=about, **content)
        self.known[sent.id] = sent
        return sent

    def collect(self, all_sent):
        """The Cell of each, in one pass over what arrives; other messages on iopub are looked at too."""
        order = {s.id: i for i, s in enumerate(all_sent)}
        replies, spoken, idle, busy = {}, {i: [] for i in order}, set(), []
        deadline = time.monotonic() + LATE
        shell, iopub = self.client.inbox["shell"], self.client.inbox["iopub"]
        while True:
            while shell:
                m = shell.popleft()
                ensure(m.parent_id in order, "a reply to nothing that waits:", m)
                ensure(m.parent_id not in replies, "a second reply:", m, "after", replies.get(m.parent_id))
                replies[m.parent_id] = m
            while iopub:
                m = iopub.popleft()
                if m.parent_id not in order or m.parent_id in idle:
                    self.stray(m)
                    continue
                spoken[m.parent_id].append(m)
                if m.type == "status":
                    state = m.content["execution_state"]
                    idle |= {m.parent_id} if state == "idle" else set()
                    busy += [order[m.parent_id]] if state == "busy" else []
            if len(replies) == len(idle) == len(order):
                break
            self.client.pump(deadline, f"the end of {len(order) - len(idle)} cells")
        ensure([order[i] for i in replies] == sorted(order.values()), "replies out of order:", list(replies))
        ensure(busy == sorted(busy), "cells out of order on iopub:", busy)
        return [rawclient.Cell(replies[s.id], spoken[s.id]) for s in all_sent]

    def stray(self, m):
        """What is said when no cell waits for it: about the kernel itself, or late words of what a cell has left."""
        if (m.parent or {}).get("session", self.client.session) != self.client.session:
            return  # of another client
        about_kernel = m.type == "status" and m.content["execution_state"] in ("starting", "restarting", "idle", "busy")
        late = m.parent_id in self.known and m.type in ("stream", "comm_close", "comm_msg", "error", "comm_open")
        ensure(about_kernel or late or m.type in ("comm_close", "shutdown_reply", "stream"), "nobody asked for", m)

    # ---- judging ----

    def judge(self, sent, cell):
        """Makes the model follow the reply; gives the reply's state."""
        content, about = cell.content, cell.about
        self.tally.cells += 1
        del self.known[sent.id]
        if len(self.known) < 100:
            self.known[sent.id] = sent
        brief = {k: v for k, v in about.items() if k != "usage"}
        code = "(PEEK)" if sent.code == PEEK else sent.code
        self.recent.append([code, json.dumps({k: v for k, v in content.items() if v})[:400] + json.dumps(brief)[:300]])
        if content["status"] == "aborted":
            ensure(cell.types == ["status", "status"], "an aborted cell spoke:", cell)
            return "aborted"
        if self.owed and not sent.silent:
            ensure(self.owed.search(cell.text("stderr")), "before a silent cell, without a word:", self.owed, cell)
            self.owed = None
        before = self.count
        self.numbers(sent, cell)
        self.errors(sent, cell)
        state = about.get("state")
        ensure(state in STATES, "no state:", cell)
        self.tally.states[state] += 1
        if state == "restored":
            state = self.restored(sent, cell, before)
        elif state == "lost":
            self.lost(sent, cell, before)
        if state == "kept":
            self.kept(sent, cell, before)
        if sent.text is not None and cell.ok:
            ensure(cell.text() == sent.text, "stdout is", repr(cell.text()), "not", repr(sent.text))
        return state

    def numbers(self, sent, cell):
        states = [m.content["execution_state"] for m in cell.of("status")]
        ensure(states[:1] == ["busy"] and states[-1] == "idle", "status:", states)
        ensure(cell.iopub[0].type == "status" and cell.iopub[-1].type == "status", "outside of busy and idle:", cell)
        stored = sent.store and not sent.silent
        self.count += stored
        ensure(cell.content["execution_count"] == self.count, "count is not", self.count, cell)
        inputs = [m.content for m in cell.of("execute_input")]
        if sent.silent:
            ensure(not inputs, "input of a silent cell:", inputs)
        else:
            ensure([i["code"] for i in inputs] == [sent.code], "execute_input:", inputs)
            expected = self.count + (not stored)
            ensure(inputs[0]["execution_count"] == expected, "count of execute_input is not", expected, inputs)
        for m in cell.of("execute_result"):
            ensure(m.content["execution_count"] == self.count + (not stored), "count of a result:", m, cell)

    def errors(self, sent, cell):
        content, errors = cell.content, [e.content for e in cell.of("error")]
        if cell.ok:
            ensure(not errors, "an error with an ok:", errors, cell)
            return
        self.tally.enames[content["ename"]] += 1
        if errors or not sent.silent:
            ensure(len(errors) == 1, len(errors), "errors on iopub:", cell)
            same = [errors[0][k] == content[k] for k in ("ename", "evalue")]
            ensure(all(same), "reply and iopub say two things:", content, errors)

    def restored(self, sent, cell, before):
        """A cell that ended Python, or one that is told of an end before it, and is itself done."""
        about, text = cell.about, cell.content.get("evalue", "")
        mine = not cell.ok and "all variables" in text and " as they were before " in text
        if mine:
            number = self.count if sent.store and not sent.silent else None
            self.line.add(number, before, self.after(sent))
            late = sent.enames == LATE_TO_STOP and "did not stop within" in text  # on a machine that is busy
            ensure(sent.end in (DIES, ANY) or sent.interrupted or late, "undone, which it must not be:", cell)
            if sent.enames and not sent.interrupted:
                ensure(cell.content["ename"] in sent.enames, cell.content["ename"], "is not of", sent.enames)
        elif sent.silent:
            self.owed = TOLD
        else:
            ensure(TOLD.search(cell.text("stderr")), "restored, without a word:", cell)
        count = len(about.get("undone", ())) + about.get("undone_unnumbered", 0) + about.get("undone_messages", 0)
        count += about.get("undone_before", 0)
        wrong = self.line.undo(about)
        ensure(wrong is None, wrong, cell)
        self.tally.undone[min(count, 9)] += 1
        if mine:
            ensure(count >= 1, "nothing was undone:", cell)
        strict = self.mode in ("auto", "always", "keep") and mine and not self.loose and not OLDER.search(text)
        strict = strict and not any(n >= about["restored_to"] for n in self.dear())  # only in auto are there any
        ensure(count == 1 or not strict, count, "are undone:", cell)
        self.loose = False
        self.candidates = None
        return "restored" if mine else "kept"

    def dear(self):
        """The cells behind which this kernel made no copy, for one would have delayed the next one by too much."""
        with open(self.kernel.out, "rb") as said:
            said.seek(self.read)
            lines = said.read().rpartition(b"\n")[0]
        self.read += len(lines)
        self.without += [int(n) for n in DEAR.findall(lines)]
        return self.without

    def lost(self, sent, cell, before):
        told = cell.content.get("evalue", "") + cell.text("stderr")
        allowed = self.mode == "off" or sent.takes_all or self.loose or OLDER.search(told)
        if sent.silent and "lost" not in told:
            self.owed = TOLD if allowed else OLDER
        else:
            ensure("lost" in told, "lost, without a word:", cell)
            ensure(allowed, "all is lost:", cell)
        ensure(sent.end in (DIES, ANY) or sent.takes_all or sent.interrupted or cell.ok or TOLD.search(told), cell)
        self.forget()
        if "all variables" not in cell.content.get("evalue", ""):  # it has run in the Python after that
            self.line.add(self.count if sent.store and not sent.silent else None, before, None)

    def forget(self):
        self.line.reset()
        self.loose, self.candidates = False, None

    def kept(self, sent, cell, before):
        ensure(sent.end != DIES, "Python is still there:", cell)
        if not sent.interrupted:
            ensure(cell.ok or sent.end != OK, "an error:", cell)
            ensure(not cell.ok or sent.end != RAISES, "no error:", cell)
            if not cell.ok and sent.enames:
                ensure(cell.content["ename"] in sent.enames, cell.content["ename"], "is not of", sent.enames)
        after = self.after(sent)
        if after is None:
            pass
        elif sent.end == ANY or sent.interrupted:  # how far it came is seen by the next look
            if not self.candidates:
                self.open_from = len(self.line.entries) + 1
            earlier = self.candidates or [self.line.now]
            self.candidates = [*earlier, *(sent.apply(w) for w in earlier)]
        elif self.candidates:
            self.candidates = [sent.apply(w) for w in self.candidates]
        self.line.add(self.count if sent.store and not sent.silent else None, before, after)
        if self.loose or cell.about.get("given_up"):
            self.loose = True

    def after(self, sent):
        return None if self.line.now is None else sent.apply(self.line.now)

    def looked(self, text, root):
        """What PEEK has printed; where the model leaves it open this says which it is."""
        worlds = self.candidates or [self.line.now]
        found = [w for w in worlds if w.peek(root) == text]
        ensure(found, "the variables are\n", text, "by the model one of\n", *[w.peek(root) for w in worlds])
        self.line.now = found[0]
        if self.candidates:
            for entry in self.line.entries[self.open_from :]:  # looks and cures, which change nothing
                entry.before = found[0]
        self.candidates = None
