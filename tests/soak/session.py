"""One kernel from its start to its end, with steps drawn from a seed.

Role: test code, outside the jail. Invariants: what a step does depends on the seed, the session's number and the
step's alone, not on how long anything takes; a step that finds something amiss raises, and the kernel is then killed.
Callers: tests/soak/soak, tests/transactions/test_soak.py.
"""

import json
import random
import signal
import time
from dataclasses import replace

import interrupts
import rawclient
import watch
from faults import ANY, DIES, MANY, OK, RAISES, TABLE, UNDO
from judge import LATE, Judge, Sent, ensure
from managed import Managed
from world import PEEK, SETUP, World, change, nothing

LIMITS = ["timeout.grace=3", "limits.memory=512M", "limits.pids=100", "limits.output=4M", "limits.tmp=16M"]
LIMITS += ["limits.inodes=2000", "limits.open_files=256", "history.file=none"]
MODES = {
    "auto": ["transactions.mode=auto"],
    "always": ["transactions.mode=always"],
    "keep": ["transactions.mode=always", "transactions.keep=3"],
    "off": ["transactions.mode=off"],
}
ALL_KEPT = ("always", "keep")  # with auto it depends on what copies cost
WORKSPACES = ("rw", "overlay", "tmpfs")
STEPS = ["cell"] * 6 + ["pipeline"] * 3 + ["fault"] * 8 + ["interrupt"] * 4 + ["kill"] * 2 + ["checkpoint"] * 2
STEPS += ["rollback", "rollback", "undo", "undo", "message", "message", "question", "through_jupyter"]
ENDS = ("shutdown", "restart", "restart_now", "kill_supervisor", "kill_broker", "kill_supervisor_busy")
NAMES = ("one", "two", "three")
BESIDE = {"helper": "JobLostError", "branch": "KernelDiedError"}  # what is said of its end
KILLED = ["twin", "guest", "pid 1", "notifier", "zygote", *BESIDE]
KINDS = {**interrupts.LONG, **interrupts.SHORT}
COMM = (
    "from ipykernel.comm import Comm\ncomm = Comm(target_name='soak')\n"
    "def heard(m): a.append(m['content']['data']['v']); del a[:-8]\ncomm.on_msg(heard)\nprint(comm.comm_id, root)"
)
TRIM = "gc.collect()\n_ = ctypes.CDLL(None).malloc_trim(0)"  # what is held then is not what was held for a while
SETUPS = 5  # tries
SETTLED = 20  # steps, after which memory is compared; of a short session after half of it


def deck(seed, number, size):
    """The faults of a session: all kinds come before any comes again."""
    cards = []
    first = number * size
    while len(cards) < first + size:
        turn = list(TABLE)
        random.Random(f"{seed}/{len(cards) // len(TABLE)}").shuffle(turn)
        cards += turn
    return cards[first : first + size]


def in_turn(number):
    """The mode of a session, where none is asked for; so that in time each mode meets each of ENDS."""
    return list(MODES)[(number + number // 12) % len(MODES)]


class Session(Judge):
    def __init__(self, folder, options, number, tally, left):
        super().__init__(options.mode or in_turn(number), options.workspace == "overlay", tally)
        self.seed, self.number, self.steps, self.left = options.seed, number, options.steps, left
        self.most = options.pipeline
        sets = [*LIMITS, *MODES[self.mode], f"workspace.mode={options.workspace}"]
        sets += ["env.set=" + json.dumps({"CELLBLOCK_SOAK": watch.MARK}), *options.set]
        args = [word for each in sets for word in ("--set", each)]
        self.kernel = Managed(folder, args)
        self.step, self.client, self.tick = 0, None, lambda session: None

    # ---- life ----

    def run(self):
        """All steps, and the end; how much memory and so on the kernel held in between and at the end."""
        cards = iter(deck(self.seed, self.number, self.steps))
        self.connect()
        self.start_over()
        before = None
        for self.step in range(self.steps):
            rng = random.Random(f"{self.seed}/{self.number}/{self.step}")
            kind = rng.choice(STEPS)
            self.tally.kinds[kind] += 1
            self.recent.append([f"# step {self.step}: {kind}", ""])
            if kind == "fault":
                self.fault(rng, next(cards))
            else:
                getattr(self, kind)(rng)
            self.look(rng)
            self.client.inbox["control"].clear()
            if self.step == min(SETTLED, self.steps // 2):
                before = self.settled()
            self.tick(self)
        if before:
            after = self.settled()
            ensure(not watch.grown(before, after), "not flat:", watch.grown(before, after))
        self.end(ENDS[self.number % len(ENDS)])

    def connect(self):
        if self.client:
            self.client.close()
        self.client = rawclient.Client(self.kernel)
        self.client.ready(LATE)
        self.known.clear()

    def start_over(self):
        """SETUP in a Python that is new, or where it is undone. Both cells can be undone with those behind them."""
        for each in self.line.names:
            self.client.request("cellblock_delete_checkpoint_request", {"name": each}, timeout=LATE)
        self.line.names.clear()
        for _ in range(SETUPS):
            begun = self.one(Sent(SETUP, nothing, end=ANY), keep=True)
            sent = self.one(Sent(COMM, nothing, end=ANY), keep=True)
            if begun.cell.ok and sent.cell.ok:
                break
            undone = {begun.state, sent.state} & {"lost", "restored"} or sent.cell.content["ename"] == "NameError"
            ensure(undone, "a new Python can't be set up:", begun.cell, sent.cell)
        ensure(sent.cell.ok, "a new Python can't be set up:", begun.cell, sent.cell)
        self.comm, self.root = sent.cell.text().split()
        self.line.now, self.candidates = World(file="0"), None

    def one(self, sent, about=None, keep=False, **content):
        self.send(sent, about, **content)
        cell = self.collect([sent])[0]
        sent.state = self.judge(sent, cell)
        sent.cell = cell if keep else None
        if self.line.now is None and sent.code not in (SETUP, COMM):
            self.start_over()
            sent.state = "lost"
        return sent

    def look(self, rng=None):
        """Every variable against the model."""
        while True:
            store = rng is None or rng.random() < 0.7
            sent = self.one(Sent(PEEK, nothing, end=ANY, store=store), keep=True)
            if sent.state == "kept":
                break
            ensure(sent.state == "lost", "a look at the variables came to nothing:", sent.cell)
        ensure(sent.cell.ok, "a look at the variables failed:", sent.cell)
        if self.candidates:  # the look's own entry is no question
            self.candidates = list(dict.fromkeys(self.candidates))
        self.looked(sent.cell.text(), self.root)

    def settled(self):
        """What is held when there are no names and no more copies than there always are."""
        self.left.note(self.kernel)
        for name in NAMES:
            self.client.request("cellblock_delete_checkpoint_request", {"name": name}, timeout=LATE)
        self.line.names.clear()
        self.one(Sent(TRIM, nothing, end=ANY))
        for _ in range(5):  # as many copies as there ever are
            self.look()
        self.client.request("cellblock_list_checkpoints_request", {}, timeout=LATE)  # the last one is there by then
        now = watch.settled(self.kernel)
        outside = self.left.now([self.kernel.tmp, self.kernel.run_folder])
        return {**now, **{k: watch.Held(frozenset(v)) for k, v in outside.items() if k != "shared memory"}}

    def restart(self, now=True):
        family = []
        if self.kernel.alive():
            family = self.kernel.family()
            self.left.note(self.kernel)
        self.kernel.restart(now)
        watch.wait_gone(family, "processes of the kernel before")
        self.count, self.owed = 0, None
        self.dear()
        self.without.clear()
        self.forget()
        self.connect()
        self.start_over()

    def end(self, how):
        self.tally.kinds[f"end: {how}"] += 1
        if how.startswith("restart"):
            self.restart(now=how == "restart_now")
            self.look()
        elif how.startswith("kill_supervisor"):
            if how.endswith("busy"):
                self.send(Sent("time.sleep(600)", nothing))
            self.dead("supervisor", signal.SIGKILL)
        elif how == "kill_broker":
            busy = [self.send(Sent("time.sleep(600)", nothing, end=ANY, takes_all=True)) for _ in range(3)]
            self.client.wait_in_place("iopub", lambda m: m.parent_id == busy[0].id and m.type == "execute_input")
            self.dead("broker", signal.SIGKILL, busy)
        family = self.kernel.family()
        self.client.close()
        self.kernel.stop()
        watch.wait_gone(family, "processes")

    def dead(self, role, number, waiting=()):
        """Kills it; the kernel ends, and is started again as a server does."""
        family = self.kernel.family()
        watch.find(self.kernel, role)[0].send_signal(number)
        try:
            deadline = time.monotonic() + LATE
            while True:
                self.client.pump(deadline, "the kernel's end")
        except rawclient.KernelGone:
            pass
        for sent in waiting:
            said = [m for m in self.client.inbox["shell"] if m.parent_id == sent.id]
            ensure(len(said) == 1 and said[0].content["status"] in ("error", "aborted"), "at the kernel's end:", said)
            heard = [m for m in self.client.inbox["iopub"] if m.parent_id == sent.id]
            idle = [m for m in heard if m.content.get("execution_state") == "idle"]
            ensure(len(idle) == 1 and heard[-1] is idle[0], "idle at the kernel's end:", heard)
        watch.wait_gone(family, f"processes after the {role} was killed")
        ensure(not self.kernel.manager.is_alive(), "the manager sees a living kernel")
        self.restart()
        self.look()

    # ---- steps ----

    def cell(self, rng):
        code, apply = change(rng)
        more = rng.choice([{}, {}, {}, {"store": False}, {"store": False, "silent": True}])
        v = rng.randrange(1000)
        sent = self.one(Sent(f"{code}\nprint({v})\n{v} * 2", apply, text=f"{v}\n", **more), keep=True)
        if not sent.silent and sent.cell is not None and sent.state == "kept":
            ensure(sent.cell.result == str(v * 2), "result", sent.cell)

    def pipeline(self, rng):
        """Many at once: with an error that aborts those behind it, and with deaths."""
        batch, count = [], rng.randrange(2, self.most + 1)
        bad, kind = rng.randrange(count), rng.choice(["none", "error", "abort", "death", "death"])
        for i in range(count):
            code, apply = change(rng)
            sent = Sent(f"{code}\nprint({i})", apply, text=f"{i}\n")
            if i == bad and kind in ("error", "abort"):
                sent = Sent(f"{code}\n1 / 0", apply, end=RAISES, enames=("ZeroDivisionError",))
            elif i == bad and kind == "death":
                sent = Sent(f"{code}\nos._exit(7)", apply, end=DIES, enames=("KernelDiedError",))
            batch.append(self.send(sent, stop_on_error=i == bad and kind == "abort"))
        states = []
        for i, (sent, cell) in enumerate(zip(batch, self.collect(batch))):
            if self.line.now is None:  # what comes behind a loss finds no names
                sent.end, sent.text, sent.enames = ANY, None, ()
            states.append(self.judge(sent, cell))
        gone = [i for i, s in enumerate(states) if s == "aborted"]
        ensure(not gone or (kind == "abort" and gone == list(range(bad + 1, bad + 1 + len(gone)))), "aborted:", gone)
        if self.line.now is None:
            self.start_over()

    def fault(self, rng, f):
        self.tally.kinds[f"fault: {f.name}"] += 1
        self.recent.append([f"# {f.name}:\n{f.code}", ""])
        code, apply = change(rng)
        sent = Sent(f"{code}\n{f.code}", apply, f.end, f.enames, takes_all=f.takes_all)
        sent.store, sent.silent = f.more.get("store_history", True), f.more.get("silent", False)
        more = {k: v for k, v in f.more.items() if k not in ("store_history", "silent")}
        self.send(sent, f.about, **more)
        if f.more.get("allow_stdin"):
            self.client.wait("stdin", lambda m: m.parent_id == sent.id, timeout=LATE)
            self.interrupt_now()
        cell = self.collect([sent])[0]
        state = self.judge(sent, cell)
        self.loose |= state == "kept" and f.forks
        if f.name == "expressions" and state == "kept":
            said = [cell.content["user_expressions"][k]["status"] for k in "xyz"]
            ensure(said == ["error", "ok", "error"], "user_expressions", said)
        if self.line.now is None:
            self.start_over()
        elif state == "kept" and f.cure:
            self.cure(f)

    def cure(self, f):
        if f.cure == UNDO:
            self.back(None, needed=self.mode in ALL_KEPT and not f.forks)
            return
        code = f.cure.replace("{folder}", f"os.chdir(root + '/{self.line.now.folder}')")
        self.one(Sent(code, nothing, end=ANY, takes_all=f.forks))

    def interrupt_now(self):
        self.client.request("interrupt_request", {}, channel="control", timeout=LATE)

    def interrupt(self, rng):
        """At a random moment: before, in or after the cell."""
        name = rng.choice(sorted(KINDS))
        self.recent.append([f"# interrupt: {name}", ""])
        code, apply = change(rng, without=("file", "next", "draw"))
        sent = Sent(f"{code}\n{KINDS[name]}", apply, end=ANY, interrupted=True)
        moment = rng.random() ** 2 * rng.choice((0.002, 0.02, 0.08))
        late = rng.random() < 0.7
        self.send(sent)
        if late:
            self.client.wait_in_place("iopub", lambda m: m.parent_id == sent.id and m.type == "status")
        end = time.monotonic() + moment
        while time.monotonic() < end:
            pass
        for _ in range(6):
            self.interrupt_now()
            try:
                self.client.wait_in_place("shell", lambda m: m.parent_id == sent.id, timeout=interrupts.AGAIN)
                break
            except rawclient.NoMessage:
                self.tally.kinds["interrupted again"] += 1
        cell = self.collect([sent])[0]
        if not cell.ok and name not in interrupts.SHORT:
            ensure(cell.content["ename"] == "KeyboardInterrupt", f"{name} was interrupted:", cell)
        self.judge(sent, cell)
        if self.line.now is None:
            self.start_over()

    def kill(self, rng):
        """One process of the jail, or the zygote, from outside, between cells or while one runs."""
        role, busy = rng.choice(KILLED), rng.random() < 0.5
        if role == "branch" and self.mode == "off":  # there are none
            role = "helper"
        number = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGSTOP])
        number = signal.SIGKILL if role != "guest" else number
        self.tally.kinds[f"kill: {role}{' busy' if busy else ''}"] += 1
        self.recent.append([f"# kill: {role}{' busy' if busy else ''}, signal {number}", ""])
        code, apply = change(rng)
        sent = Sent(f"{code}\nprint('runs', flush=True)\ntime.sleep(600)", apply, interrupted=True)
        sent.end, sent.takes_all = {"guest": DIES, "pid 1": DIES}.get(role, ANY), role == "pid 1"
        beside = self.begin_beside(role) if role in BESIDE else None
        if busy:
            self.send(sent)
            self.client.says(sent.id, "runs", timeout=LATE)
        found = self.found(role, beside)
        command = [child for p in found for child in p.children()] if role == "helper" else []
        for p in found:
            try:
                p.send_signal(number)
            except watch.psutil.NoSuchProcess:
                pass
        if role in ("guest", "pid 1", *BESIDE):
            ensure(found, "no", role)
        if role == "zygote" and not found:
            self.tally.kinds["there was no zygote yet"] += 1
        if role != "guest":  # cells run until pid 1 has gone; what a notifier had before it, fails
            watch.wait_gone([*found, *command], f"{role} that was killed")
        if beside:
            self.end_beside(role, beside[0])
        if role == "twin":
            self.line.names.clear()
            self.loose = True
        if busy and role in ("twin", "notifier", "zygote", *BESIDE):
            self.client.stop_hard(sent.id, LATE)
        if busy:
            sent.end = ANY if role == "guest" else sent.end
            self.judge(sent, self.collect([sent])[0])
        else:
            self.loose |= role == "guest"  # there was no copy from behind the last cell yet
            safe = role in ("zygote", *BESIDE)  # a kernel that has come from a zygote does not notice
            self.one(Sent("None", nothing, end=OK if safe else ANY, takes_all=role == "pid 1", interrupted=not safe))
        if self.line.now is None:
            self.start_over()

    def begin_beside(self, role):
        """Beside the main line: a command, or a branch with a cell that changes what the main line has, too. The id of
        what was asked for, and the branch's number in its jail."""
        if role == "helper":
            return self.client.send("cellblock_run_request", {"argv": ["sleep", "600"]}, channel="control"), None
        reply = self.client.request("cellblock_branch_request", {}, channel="control", timeout=LATE).content
        ensure(reply["status"] == "ok", "no branch:", reply)
        content = {"code": "a.clear(); n = -1\nprint(os.getpid(), flush=True)\ntime.sleep(600)"}
        cell = interrupts.send(self.client, "execute_request", content, reply["subshell_id"])
        return cell, int(self.client.says(cell, "\n", timeout=LATE))

    def found(self, role, beside):
        if role == "branch":
            return watch.numbered(self.kernel, beside[1])
        end = time.monotonic() + LATE
        found = watch.guest(self.kernel) if role == "guest" else watch.find(self.kernel, role)
        while role == "helper" and not found and time.monotonic() < end:
            found = watch.find(self.kernel, role)
        return found

    def end_beside(self, role, asked):
        """It is answered, and was all that is lost."""
        channel = "control" if role == "helper" else "shell"
        reply = self.client.reply(asked, channel, LATE)
        ensure(reply.content.get("ename") == BESIDE[role], f"the {role} was killed:", reply)
        self.client.until_idle(asked, LATE)

    def back(self, name, needed=True):
        """A rollback; a Python that can't go back is started anew."""
        content = {"name": name} if name else {}
        reply = self.client.request("cellblock_rollback_request", content, timeout=LATE).content
        self.recent.append([f"# rollback {name}", str(reply)])
        self.loose, self.candidates = False, None
        if reply["status"] != "ok":
            ensure(not needed, "no way back:", reply)
            self.tally.kinds["no way back"] += 1
            self.restart()
            return
        wrong = self.line.undo(reply)
        ensure(wrong is None, wrong, reply)
        for each in [n for n, (depth, _) in self.line.names.items() if depth > self.depth()]:
            del self.line.names[each]
            reply = self.client.request("cellblock_delete_checkpoint_request", {"name": each}, timeout=LATE).content
            ensure(reply["status"] == "ok", "a checkpoint was to be deleted:", reply)
        if self.line.now is None:
            self.start_over()

    def depth(self):
        return self.line.forgotten + len(self.line.entries)

    def checkpoint(self, rng):
        name = rng.choice(NAMES)
        reply = self.client.request("cellblock_checkpoint_request", {"name": name}, timeout=LATE).content
        ensure((reply["status"] == "ok") == (self.mode != "off"), "checkpoint:", reply)
        if reply["status"] == "ok":
            self.line.names[name] = self.depth(), self.line.now

    def rollback(self, rng):
        name = rng.choice(NAMES)
        if name not in self.line.names:
            reply = self.client.request("cellblock_rollback_request", {"name": name}, timeout=LATE).content
            ensure(reply["status"] == "error", "back to what was never kept:", reply)
            return
        depth, world = self.line.names[name]
        self.back(name)
        ensure(self.depth() == depth, "rolled back to", self.depth(), "not", depth)
        then = world if self.line.files_too else replace(world, file=self.line.now.file)
        ensure(self.line.now == then, "rolled back to", self.line.now, "not", then)

    def undo(self, rng):
        """A cell, and back to before it."""
        if self.mode == "off":
            return
        for _ in range(rng.randrange(1, MANY) if self.mode == "keep" else 1):
            code, apply = change(rng)
            self.one(Sent(code, apply))
        self.back(None, needed=self.mode in ALL_KEPT and not self.loose)

    def message(self, rng):
        """Of a widget: what it does is undone with the cells."""
        for _ in range(rng.randrange(1, 4)):
            value = rng.randrange(1000)
            content = {"comm_id": self.comm, "data": {"v": value}}
            sent = self.client.send("comm_msg", content)
            self.client.until_idle(sent, LATE)
            now = self.line.now
            self.line.add(None, self.count, replace(now, a=(*now.a, value)[-8:]))

    def question(self, rng):
        """While a cell runs."""
        code, apply = change(rng)
        code += "\nprint('runs', flush=True); time.sleep(0.05)\nprint(1)"
        sent = self.send(Sent(code, apply, text="runs\n1\n"))
        asked = [
            self.client.send("complete_request", {"code": "impor", "cursor_pos": 5}),
            self.client.send("inspect_request", {"code": "print", "cursor_pos": 3, "detail_level": 0}),
            self.client.send("is_complete_request", {"code": "if n:"}),
            self.client.send("history_request", {"hist_access_type": "tail", "n": 3}),
            self.client.send("comm_info_request", {}),
            self.client.send("kernel_info_request", {}),
        ]
        for each in asked:
            reply = self.client.reply(each, timeout=LATE)
            ensure(reply.content["status"] in ("ok", "incomplete"), "a question's answer:", reply)
            self.client.until_idle(each, LATE)
        cell = self.collect([sent])[0]
        self.judge(sent, cell)
        if self.line.now is None:
            self.start_over()

    def through_jupyter(self, rng):
        """A cell sent with jupyter_client's own client."""
        code, apply = change(rng)
        other, said = self.kernel.manager.client(), []
        other.start_channels()
        try:
            other.wait_for_ready(timeout=LATE)
            reply = other.execute_interactive(
                f"{code}\nprint(5)", store_history=False, allow_stdin=False, timeout=LATE, output_hook=said.append
            )
        finally:
            other.stop_channels()
        ensure(reply["content"]["status"] == "ok", "through jupyter_client:", reply)
        ensure([m["content"]["text"] for m in said if m["msg_type"] == "stream"] == ["5\n"], "said:", said)
        self.client.drop()
        self.line.add(None, self.count, apply(self.line.now))

    def kill_all(self):
        if self.client:
            self.client.close()
        self.kernel.kill()
