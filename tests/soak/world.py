"""What a session's Python must hold, and which cells it has come from.

Role: test code, outside the jail; the model of tests/soak/soak. Invariants: a World is never changed in place, so that
each entry of a line can keep the one from before it. Callers: session.py.
"""

import os
import random
import zlib
from dataclasses import dataclass, field, replace

SEED = 7
LINE_MAX = 100000  # entries; a large state is kept seldom, and cells may be tiny
FOLDERS = ("one", "two")
IMPORTS = (
    "import asyncio, builtins, concurrent.futures, concurrent.futures.thread, ctypes, faulthandler, gc, itertools\n"
    "import json, os, queue, random, re, resource, select, signal, socket, subprocess, sys, tempfile, threading\n"
    "import time, zlib\n"
)
SETUP = IMPORTS + (
    "a, b, n, text, made = [], [], 0, '', itertools.count()\n"
    "same, root = a, os.getcwd()\n"
    "for each in ('one', 'two'): os.makedirs(each, exist_ok=True)\n"
    "_ = open('file.txt', 'w').write('0')\n"
    "os.environ['SOAK'] = '0'; random.seed(7)"
)
PEEK = (
    "print(repr((a, b, n, text, same is a, repr(made), os.path.basename(os.getcwd()), os.environ.get('SOAK'),"
    " zlib.crc32(repr(random.getstate()).encode()), open(root + '/file.txt').read())))"
)


class Drawn:
    """The state of random after so many draws, as PEEK shows it."""

    def __init__(self):
        self.generator, self.at, self.known = random.Random(SEED), 0, {}

    def __getitem__(self, draws):
        if draws not in self.known:
            if draws < self.at:
                self.generator, self.at = random.Random(SEED), 0
            for _ in range(draws - self.at):
                self.generator.random()
            self.at = draws
            self.known[draws] = zlib.crc32(repr(self.generator.getstate()).encode())
        return self.known[draws]


DRAWN = Drawn()


@dataclass(frozen=True)
class World:
    a: tuple = ()
    b: tuple = ()
    n: int = 0
    text: str = ""
    made: int = 0
    folder: str = ""  # of root
    env: str = "0"
    drawn: int = 0
    file: str = "0"  # goes back in an overlay only

    def peek(self, root):
        folder = self.folder or os.path.basename(root)
        known = (list(self.a), list(self.b), self.n, self.text, True, f"count({self.made})", folder, self.env)
        return repr((*known, DRAWN[self.drawn], self.file)) + "\n"


# each is one step for Python: an interrupt comes before or behind it
CHANGES = {
    "append": ("a[:] = [*a, {v}][-8:]", lambda w, v: replace(w, a=(*w.a, v)[-8:])),
    "extend": ("b[:] = [*b, *same][-20:]", lambda w, v: replace(w, b=(w.b + w.a)[-20:])),
    "add": ("n += {v}", lambda w, v: replace(w, n=w.n + v)),
    "cut": ("del same[:1]", lambda w, v: replace(w, a=w.a[1:])),
    "text": ("text = 'ä{v}€'", lambda w, v: replace(w, text=f"ä{v}€")),
    "next": ("_ = next(made)", lambda w, v: replace(w, made=w.made + 1)),
    "draw": ("_ = random.random()", lambda w, v: replace(w, drawn=w.drawn + 1)),
    "folder": (
        "os.chdir(root + '/' + ('one', 'two')[{v} % 2])",
        lambda w, v: replace(w, folder=FOLDERS[v % 2]),
    ),
    "back": ("os.chdir(root)", lambda w, v: replace(w, folder="")),
    "env": ("os.environ['SOAK'] = '{v}'", lambda w, v: replace(w, env=str(v))),
    "file": (
        "with open(root + '/file.txt', 'w') as opened: _ = opened.write('{v}')",
        lambda w, v: replace(w, file=str(v)),
    ),
}


def change(rng, without=()):
    """A line of code, and what it does to a World."""
    name = rng.choice([n for n in CHANGES if n not in without])
    value = rng.randrange(1, 1000)
    code, apply = CHANGES[name]
    return code.replace("{v}", str(value)), lambda w: apply(w, value)


def nothing(w):
    return w


@dataclass
class Entry:
    """What has been done and not undone: a cell, or a message of a widget."""

    number: int | None  # None: it was not stored, or was a message
    before: World | None  # None: SETUP had not run
    count: int  # the execution count before it


@dataclass
class Line:
    """The World as it is now and what led to it. `files_too`: the workspace's files go back with the variables."""

    files_too: bool
    now: World | None = None
    entries: list = field(default_factory=list)
    names: dict = field(default_factory=dict)  # name -> (number of entries then, World)
    forgotten: int = 0

    def add(self, number, count, after):
        self.entries.append(Entry(number, self.now, count))
        self.now = after
        if len(self.entries) > LINE_MAX:
            del self.entries[: LINE_MAX // 2]
            self.forgotten += LINE_MAX // 2

    def go_back(self, world):
        """A state from before SETUP is None: it is to run again."""
        same = self.files_too or world is None or self.now is None
        self.now = world if same else replace(world, file=self.now.file)

    def undo(self, about):
        """What a reply's metadata or content says is undone; gives what is wrong with that, or None."""
        numbers = about.get("undone", [])
        before, unnumbered = about.get("undone_before", 0), about.get("undone_unnumbered", 0)
        count = len(numbers) + before + unnumbered + about.get("undone_messages", 0)
        if count > len(self.entries):
            return f"{count} entries are said to be undone, of {len(self.entries)} that there were"
        gone = self.entries[len(self.entries) - count :]
        known = [e.number for e in gone if e.number is not None]
        if known[before:] != numbers:
            return f"undone are {numbers}, by the model {known}"
        if gone:
            left = self.entries[: len(self.entries) - count]
            least = (left[-1].number or left[-1].count) if left else 0
            if not least <= about["restored_to"] <= gone[0].count:  # cells between were undone before
                return f"restored_to is {about['restored_to']}, by the model {least} to {gone[0].count}"
            self.go_back(gone[0].before)
            del self.entries[len(self.entries) - count :]
        return None

    def reset(self):
        self.now, self.names = None, {}
        self.entries.clear()
