"""An overlay workspace and its snapshots, driven at the broker and pid 1, without a supervisor: the guest is a small
interpreter that is told what to do with its files, and a copy of it takes over before they come back.
"""

import json
import os
import random
import select

from broker import GO_ON, REGISTERED, RESTORED, TWIN, Broker
from broker import RESTORE as TAKE_OVER

BUILD = os.environ.get("CELLBLOCK_BUILD", "")
SNAPSHOT, RESTORE, FORGET = 7, 8, 9
PYTHON = "/usr/bin/python3"
PATIENCE = 300  # s
GUEST = """
import hashlib, json, mmap, os, shutil, signal, socket, stat, struct, sys, time
wire = socket.socket(fileno=3).makefile("rw")
registry = socket.socket(fileno=6)
over = False
def tree():
    seen = {}
    for folder, folders, files in os.walk("."):
        for name in folders + files:
            path = os.path.join(folder, name)
            st = os.lstat(path)
            if os.path.islink(path): what = os.readlink(path)
            elif not os.path.isfile(path): what = None
            else: what = hashlib.sha1(open(path, "rb").read()).hexdigest(), st.st_mtime_ns, st.st_nlink
            seen[path] = [oct(st.st_mode), what]
    return seen
def is_pipe(path):
    return os.path.exists(path) and stat.S_ISFIFO(os.stat(path).st_mode)
def apart(number, work):
    # a process that registers as a twin
    if os.fork():
        os.wait()
        return
    if os.fork() == 0:
        os.setsid()
        registry.send(struct.pack("<I", number))
        work()
    os._exit(0)
def twin(number):
    global over
    apart(number, serve)
    over = True
held = {}
def serve():
    for line in wire:
        try: result = {"value": eval(json.loads(line))}
        except Exception as e: result = {"error": repr(e)}
        wire.write(json.dumps(result) + "\\n"); wire.flush()
        while over: signal.pause()
serve()
"""


class Files:
    """A jail with an overlay on `folder`, and what is asked of it."""

    def __init__(self, folder, prefix, *more):
        self.broker = Broker(
            BUILD,
            f"argv={PYTHON}",
            "argv=-c",
            f"argv={GUEST}",
            f"workspace_source={folder}",
            "workspace_target=/work",
            "workspace_mode=overlay",
            "cwd=/work",
            *more,
            prefix=prefix,
        )
        self.count = self.twins = 0
        self.start()

    def start(self):
        self.jail = self.broker.spawn()
        self.wire = self.jail.wire.makefile("rw")

    def try_to(self, expression):
        self.wire.write(json.dumps(expression) + "\n")
        self.wire.flush()
        return json.loads(self.wire.readline())

    def do(self, expression):
        answer = self.try_to(expression)
        assert "error" not in answer, (expression, answer)
        return answer["value"]

    def ask(self, op, number):
        mine, theirs = os.pipe()
        self.broker.ask(op, number, [theirs])
        os.close(theirs)
        data = b""
        while select.select([mine], [], [], PATIENCE)[0]:
            part = os.read(mine, 65536)
            if not part:
                break
            data += part
        os.close(mine)
        return json.loads(data)

    def snapshot(self):
        self.count += 1
        answer = self.ask(SNAPSHOT, self.count)
        assert answer["status"] == "ok" and answer["left"] == 0, answer
        return self.count

    def twin(self, make):
        """Has a process register as a twin, by an expression with its number."""
        self.twins += 1
        self.jail.tell(TWIN, self.twins)
        self.do(make.format(self.twins))
        self.await_word(REGISTERED, self.twins)
        return self.twins

    def await_word(self, op, number):
        while self.jail.hear() != (op, number):
            pass

    def take_over(self):
        """Nothing runs from then on."""
        number = self.twin("twin({})")
        self.jail.tell(TAKE_OVER, number)
        self.await_word(RESTORED, number)

    def restore(self, number):
        self.take_over()
        answer = self.ask(RESTORE, number)
        self.jail.tell(GO_ON, 0)
        assert answer["status"] == "ok" and answer["left"] == 0, answer


def against_a_model(f, change, seed, least=0):
    """Random changes and snapshots, of which any can be gone back to, from any state, again and again. The model is
    what the jail itself sees when a snapshot is made. `change` gives an expression for a random.Random."""
    pick, known = random.Random(seed), {}
    for _ in range(60):
        for _ in range(pick.randint(least, 7)):
            f.try_to(change(pick))  # some can't be done: a parent that is a file
        if known and pick.random() < 0.35:
            number = pick.choice(sorted(known))
            f.restore(number)
            assert f.do("tree()") == known[number], f"back at {number}"
        number = f.snapshot()
        known[number] = f.do("tree()")
        if len(known) > 6:
            gone = pick.choice(sorted(known))
            del known[gone]
            assert f.ask(FORGET, gone)["status"] == "ok"
