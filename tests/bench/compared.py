#!/usr/bin/env python3
"""What users notice, tried on Cellblock and on the kernels beside it: the table of docs/compared.md.

usage: compared.py [--only NAME,…] [--rows WORD] [--write]

Takes the kernelspecs cellblock, python3 (ipykernel) and xpython (xeus-python) as any client does; those that are not
there are left out. Each row is a probe of its own with a kernel of its own. --write puts the table into
docs/compared.md. Nothing is asserted: tests/ does that, in the tests that the last column names.
"""

import argparse
import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))

import kernels  # noqa: E402
from rawclient import Client, KernelGone, NoMessage  # noqa: E402

PAGE = ROOT / "docs/compared.md"
KERNELS = {"cellblock": "Cellblock", "python3": "ipykernel", "xpython": "xeus-python"}
ROWS = []


def row(what, shown_by):
    """A probe: takes a Trial, gives words."""

    def add(probe):
        ROWS.append((what, shown_by, probe))
        return probe

    return add


class Trial:
    def __init__(self, spec, folder, count):
        self.ours = spec == "cellblock"
        self.kernel = kernels.Kernel(Path(folder) / f"{spec}{count}", argv=kernels.spec_argv(spec)[0])
        self.client = Client(self.kernel)
        self.client.ready()

    def end(self):
        self.client.close()
        self.kernel.kill()

    def running(self, code, **how):
        cell = self.client.start("print('running', flush=True)\n" + code, **how)
        self.client.says(cell, "running")
        return cell

    def interrupt(self):
        if self.ours:
            self.client.send("interrupt_request", {}, channel="control")
        else:
            os.killpg(self.kernel.pid, signal.SIGINT)

    def rss(self):
        return sum(p.memory_info().rss for p in [psutil.Process(self.kernel.pid), *self.kernel.family()])


def within(seconds, wait, words="{ms:.0f} ms"):
    """The words with the time that it took, or that it took longer."""
    begun = time.monotonic()
    try:
        wait(seconds)
    except NoMessage:
        return f"not within {seconds} s"
    except KernelGone:
        return "the kernel ends"
    return words.format(ms=(time.monotonic() - begun) * 1000)


INTERRUPTED = {
    "`time.sleep`": "time.sleep(8)",
    "`while True`": "while True: pass",
    "`await asyncio.sleep`": "await asyncio.sleep(8)",
    "`input()`": "input()",
    "`subprocess.run`": "subprocess.run(['sleep', '8'])",
    "`Lock.acquire()`": "l = threading.Lock(); l.acquire(); l.acquire()",
    "a regular expression that does not end": "re.match('(a+)+$', 'a' * 40 + 'b')",
    "`!sleep`": "!sleep 8",
}
for _what, _code in INTERRUPTED.items():

    @row(f"interrupt of {_what}", "protocol/test_interrupt.py::test_interrupt")
    def interrupted(t, code=_code):
        t.client.run("import asyncio, re, subprocess, threading, time\n1/0")
        cell = t.running(code, allow_stdin=True)
        if "input" in code:
            t.client.wait("stdin")
        t.interrupt()
        return within(5, lambda s: t.client.reply(cell, timeout=s))


@row(
    "interrupt of C code that holds the interpreter",
    "protocol/test_interrupt.py::test_c_code_that_can_not_stop_is_said",
)
def interrupt_c(t):
    cell = t.running("sum(range(10**12))")
    t.interrupt()

    def notice(m):
        return m.type == "stream" and "C code" in str(m.content)

    said = within(3, lambda s: t.client.wait("iopub", notice, s))
    if "ends" in said:
        return said
    t.interrupt()
    ended = within(5, lambda s: t.client.reply(cell, timeout=s))
    return ended if "not" in said else f"says so after {said}; a second one stops it in {ended}"


def beside(t, msg_type, content):
    t.client.run("a_name = {'k': 1}")
    cell = t.running("import time\nend = time.time() + 3\nwhile time.time() < end: pass")
    asked = t.client.send(msg_type, content)
    took = within(10, lambda s: t.client.reply(asked, timeout=s))
    t.client.finish(cell)
    return took


@row(
    "first completion while a cell of 3 s computes",
    "protocol/test_completion.py::test_they_are_answered_while_a_cell_runs",
)
def complete_busy(t):
    return beside(t, "complete_request", {"code": "a_na", "cursor_pos": 4})


@row(
    "first inspection while a cell of 3 s computes",
    "protocol/test_completion.py::test_they_are_answered_while_a_cell_runs",
)
def inspect_busy(t):
    return beside(t, "inspect_request", {"code": "a_name", "cursor_pos": 4, "detail_level": 0})


@row(
    "kernel_info on control while C code holds the interpreter",
    "protocol/test_kernel_info.py::test_while_c_code_holds_the_gil",
)
def info_busy(t):
    cell = t.running("sum(range(10**8))\n'done'")
    asked = t.client.send("kernel_info_request", {}, channel="control")
    took = within(20, lambda s: t.client.reply(asked, "control", timeout=s))
    t.client.finish(cell)
    return took


@row(
    "last status seen after such a request, while the cell still runs",
    "protocol/test_status.py::test_busy_is_said_again_after_an_idle_while_a_cell_runs",
)
def status_busy(t):
    cell = t.running("import time\ntime.sleep(2)")
    asked = t.client.send("kernel_info_request", {}, channel="control")
    t.client.reply(asked, "control")
    last = []

    def look(m):
        if m.type == "status":
            last.append(m.content["execution_state"])
        return False

    within(0.7, lambda s: t.client.wait("iopub", look, s))
    t.client.reply(cell)
    return last[-1] + (": servers may cull it" if last[-1] == "idle" else "")


@row("`execute_request` without code", "protocol/test_malformed.py::test_wrong_content")
def malformed(t):
    asked = t.client.send("execute_request", {})
    return within(2, lambda s: t.client.reply(asked, timeout=s), "an error reply").replace("not within 2 s", "silence")


@row("`os.fork()`: the child prints", "protocol/test_output.py::test_everything_written_arrives")
def forks(t):
    cell = t.client.start(
        "import os\npid = os.fork()\nif not pid:\n    print('child', flush=True); os._exit(0)\nos.waitpid(pid, 0)"
    )
    took = within(5, lambda s: t.client.says(cell, "child", timeout=s), "shown")
    return took.replace("not within", "not shown within")


@row("`!read x; echo got $x`", "frontends/test_client.py::test_a_command_that_reads")
def reads(t):
    cell = t.client.start("!read x; echo got $x", allow_stdin=True)
    asked = within(3, lambda s: t.client.wait("stdin", timeout=s), "asks the user")
    if "asks" not in asked:
        return "hangs until it is interrupted"
    t.client.send("input_reply", {"value": "v"}, channel="stdin")
    return asked if "got v" in t.client.finish(cell).text() else "the answer is lost"


@row("`breakpoint()`", "guest/test_input.py::test_breakpoint")
def breaks(t):
    t.client.start("x = 1\nbreakpoint()\nx", allow_stdin=True)
    return within(3, lambda s: t.client.wait("stdin", timeout=s), "pdb's prompt").replace("not within 3 s", "no prompt")


@row(
    "20 MB printed by one cell: memory that is kept",
    "protocol/test_output.py::test_printed_text_is_not_kept",
)
def prints(t):
    t.client.run("for i in range(1000): print('x' * 99)")
    before = t.rss()
    t.client.run("for i in range(200_000): print('x' * 99)", timeout=120)
    return f"{max(0, t.rss() - before) / 1e6:+.0f} MB"


@row("200,000 prints: lines that arrive", "protocol/test_output.py::test_two_hundred_thousand_prints")
def many_prints(t):
    def lines(s):
        return t.client.run("for i in range(200_000): print(i)", timeout=s).text().count("\n")

    try:
        return f"{lines(60):,}"
    except NoMessage:
        return "the client waits for ever: `idle` was lost"


@row(
    "text of a thread that outlives its cell",
    "protocol/test_output.py::test_a_threads_text_goes_to_the_cell_that_started_it",
)
def late(t):
    first = t.client.start(
        "import threading\ne = threading.Event()\n"
        "threading.Thread(target=lambda: (e.wait(9), print('late', flush=True))).start()"
    )
    t.client.finish(first)
    second = t.client.start("e.set()\nimport time; time.sleep(0.5)")
    where = []

    def look(m):
        if m.type == "stream" and "late" in m.content["text"]:
            where.append(m.parent_id)
        return bool(where)

    within(5, lambda s: t.client.wait("iopub", look, s))
    return {first: "under its own cell", second: "under the cell that runs"}.get(where[0] if where else None, "lost")


@row(
    "stdout, stderr, stdout, display in turn",
    "protocol/test_status.py::test_order_of_streams_and_displays_is_exact",
)
def order(t):
    cell = t.client.run(
        "import sys\nfrom IPython.display import display\n"
        "print('1'); print('2', file=sys.stderr); print('3'); display('4'); print('5')"
    )
    said = [m.content.get("text", str(m.content.get("data"))) for m in cell.of("stream", "display_data")]
    seen = re.sub(r"\D", "", "".join(said))
    return "in this order" if seen == "12345" else f"as {', '.join(seen)}"


@row('`print("\\ud800")`', "protocol/test_execute.py::test_what_is_not_text_is_repaired")
def surrogate(t):
    cell = t.client.start("print('before'); print('\\ud800'); print('after')")
    try:
        text = t.client.finish(cell, timeout=5).text()
    except NoMessage:
        return "the cell never ends"
    return "shown, repaired" if "before" in text and "after" in text else "all the cell's text is lost"


@row(
    "C code prints 2 MB and holds the interpreter",
    "protocol/test_output.py::test_c_code_that_prints_megabytes_and_holds_the_gil",
)
def c_prints(t):
    cell = t.client.start(
        "import ctypes\nlibc = ctypes.PyDLL(None)\nfor i in range(20_000): libc.puts(b'x' * 99)\nlibc.fflush(None)"
    )
    try:
        return f"{t.client.finish(cell, timeout=10).text().count(chr(10)):,} lines shown"
    except NoMessage:
        return "hangs for ever"


@row(
    "an `await`ed answer of a widget (comm message)",
    "protocol/test_comms.py::test_a_cell_may_await_a_comm_message",
)
def awaits(t):
    t.client.run(
        "import asyncio, comm\ngot = asyncio.get_event_loop().create_future()\n"
        "c = comm.create_comm(target_name='t', comm_id='c1')\nc.on_msg(lambda m: got.set_result(42))"
    )
    cell = t.running("await asyncio.wait_for(got, 4)")
    t.client.send("comm_msg", {"comm_id": "c1", "data": {}})
    done = t.client.finish(cell)
    return "arrives" if done.result == "42" else "the cell waits in vain"


for _what, _code in {
    "`os._exit(1)` in a cell": "import os\nos._exit(1)",
    "a segmentation fault": "import ctypes\nctypes.string_at(8)",
}.items():

    @row(_what, "protocol/test_death.py::test_death, transactions/test_failures.py")
    def dies(t, code=_code):
        t.client.run("kept = 42")
        time.sleep(1)  # as between cells of a person
        cell = t.client.start(code)
        try:
            failed = t.client.finish(cell, timeout=10).content.get("ename")
            again = t.client.run("kept", timeout=30).result
        except NoMessage:
            return "no answer: the client waits until somebody restarts the kernel"
        except KernelGone:
            return "no reply, no reason: the kernel is gone, with all variables"
        return f"`{failed}`; the next cell runs, variables {'kept' if again == '42' else 'lost'}"


@row("a cell sent before another's error was known", "protocol/test_stop_on_error.py")
def aborts(t):
    t.client.start("import time; time.sleep(0.5); 1/0")
    waits = t.client.start("'waits'")
    status = t.client.reply(waits).content["status"]
    return f"it: {status}; the next one: {t.client.run('1').content['status']}"


def tried(specs, words):
    with tempfile.TemporaryDirectory(prefix="compared") as folder:
        for count, (what, shown_by, probe) in enumerate(ROWS):
            if words and words not in what:
                continue
            cells = []
            for spec in specs:
                try:
                    t = Trial(spec, folder, count)
                except (NoMessage, KernelGone):
                    cells.append("does not start")
                    continue
                try:
                    cells.append(probe(t))
                except (NoMessage, KernelGone) as e:
                    cells.append("no answer" if isinstance(e, NoMessage) else "the kernel ends")
                finally:
                    t.end()
            print("|", " | ".join([what, *cells]), "|", file=sys.stderr, flush=True)
            yield what, cells, shown_by


def table(specs, rows):
    lines = ["| " + " | ".join(["", *(KERNELS[s] for s in specs), "shown by"]) + " |", "|---" * (len(specs) + 2) + "|"]
    for what, cells, shown_by in rows:
        lines.append("| " + " | ".join([what, *cells, f"`{shown_by}`"]) + " |")
    return "\n".join(lines) + "\n"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--only", default="", help="kernelspecs, with commas")
    ap.add_argument("--rows", default="", help="only rows with this word")
    ap.add_argument("--write", action="store_true", help="put the table into docs/compared.md")
    args = ap.parse_args()
    specs = []
    for spec in KERNELS:
        try:
            kernels.spec_argv(spec)
        except Exception:
            print(f"no kernelspec {spec}", file=sys.stderr)
            continue
        if not args.only or spec in args.only.split(","):
            specs.append(spec)
    made = table(specs, tried(specs, args.rows))
    print(made)
    if args.write:
        page = PAGE.read_text()
        head, rest = page.split("<!-- table -->\n", 1)
        PAGE.write_text(head + "<!-- table -->\n" + made + rest[rest.index("<!-- end -->") :])


if __name__ == "__main__":
    main()
