"""A cell that was answered is not undone by the failure of the next, also if that one was sent in the same breath."""

import ast
import time

import pytest

import kernels
from session_state import without_a_twin
from widgets import counting_comm

pytestmark = [pytest.mark.cellblock_only("no other kernel does this"), pytest.mark.once]

DIE = "import os; os._exit(1)"
# Who asks at once for the next cell gives no time for a twin: nothing here is awaited before all is sent.
POLICIES = {"auto": [], "agent": ["--policy", "agent", "--set", "limits.cpu=0"]}
PYTHONS = ["small", "the kernelspec's"]
FILES, DEADLINE = 5000, 60
WITHOUT_A_NUMBER = {"silent": {"silent": True}, "not stored": {"store_history": False}}


def small(start, *args, **how):
    """A Python that is small enough for a copy before each cell, on slow machines too."""
    return start(argv=[*kernels.system_argv(), *args], **how).client


def logs(start, python, *args):
    """One of PYTHONS, with a log that says where no copy was made, for one is dear."""
    log = {"CELLBLOCK_LOG": "info"}
    return small(start, *args, env=log) if python == "small" else start(args=args, env=log).client


def undone(c, died, alone):
    """By a cell that was sent together with those before it: itself, and only where the kernel's log says why those
    behind which no copy was made. `alone`: never those."""
    numbers, own = died.about["undone"], died.content["execution_count"]
    if alone:
        assert numbers == [own], died.content
    dear = without_a_twin(c.kernel.said())
    assert numbers == [own] or (numbers[-1] == own and dear >= set(numbers[:-1])), (died.content, dear)
    return numbers


def send_all(c, codes):
    """Their answers, in order."""
    ids = [c.start(code, stop_on_error=False) for code in codes]
    return [c.finish(each) for each in ids]


def step(n):
    """Also where those before it are undone."""
    return f"log = [*globals().get('log', ()), {n}]"


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("policy", POLICIES)
def test_steps_in_one_go(start, policy, python):
    c = logs(start, python, *POLICIES[policy])
    assert c.run("log = []").ok
    answers, kept = send_all(c, [code for n in range(6) for code in (step(n), DIE)]), []
    for n, (good, bad) in enumerate(zip(answers[::2], answers[1::2])):
        assert good.ok, good.content
        if len(undone(c, bad, alone=python == "small" or policy != "auto")) == 1:
            assert bad.about["restored_to"] == good.content["execution_count"]
            kept.append(n)
    assert c.run("log").result == str(kept)


@pytest.mark.parametrize("python", PYTHONS)
def test_run_all(start, python):
    """Many that succeed, and then one that does not."""
    c = logs(start, python)
    assert c.run("log = []").ok
    *good, bad = send_all(c, [*(step(n) for n in range(40)), DIE])
    assert all(each.ok for each in good)
    assert c.run("print(log)").text() == f"{list(range(41 - len(undone(c, bad, alone=python == 'small'))))}\n"


@pytest.mark.parametrize("how", WITHOUT_A_NUMBER)
@pytest.mark.parametrize("policy", POLICIES)
def test_steps_without_a_number(start, policy, how):
    """Tools send such cells; they are answered like others."""
    c = small(start, *POLICIES[policy])
    assert c.run("log = []").ok
    for n in range(6):
        good, bad = c.start(step(n), **WITHOUT_A_NUMBER[how]), c.start(DIE, stop_on_error=False)
        assert c.finish(good).ok
        died = c.finish(bad)
        assert died.about["undone"] == [died.content["execution_count"]], died
        assert "undone_unnumbered" not in died.about, died
        assert c.run("log").result == str(list(range(n + 1)))


@pytest.mark.parametrize("policy", POLICIES)
def test_steps_of_two_clients(start, policy):
    """Whichever comes first, the one's answered cell is not undone by the other's."""
    c = small(start, *POLICIES[policy])
    other = start.client(c.kernel)
    other.ready()
    assert c.run("log = []").ok
    for n in range(6):
        good, bad = c.start(f"log.append({n})"), other.start(DIE, stop_on_error=False)
        assert c.finish(good).ok
        died = other.finish(bad)
        assert died.about["undone"] == [died.content["execution_count"]], died
        assert c.run("log").result == str(list(range(n + 1)))


def test_a_copy_that_is_dear_is_told(start):
    """Each cell writes to many pages, which it would have to copy."""
    c = logs(start, "small")
    touch = "a[::4096] = bytes(len(a) // 4096)"
    assert c.run("a = bytearray(200 << 20)").ok
    for _ in range(4):
        assert c.run(touch).ok
    *_, bad = send_all(c, [*[touch] * 4, DIE])
    assert len(undone(c, bad, alone=False)) > 1


def await_twin(c, before):
    """One that was not there before."""
    end = time.monotonic() + DEADLINE
    while not set(c.kernel.named("cellblock-twin")) - before:
        assert time.monotonic() < end, "no twin is made"
        time.sleep(0.01)


def test_beside_many_files(start):
    """Nobody touches them, and a copy looks at what was touched alone, from Linux 6.16 on: in an overlay, too, it costs
    little (tests/jail/test_snapshot_looks.py)."""
    c = logs(start, "small", "--set", "workspace.mode=overlay")
    assert c.run(f"import os\nfor i in range({FILES}): open(f'many{{i}}', 'w').close()").ok
    for _ in range(4):  # of the copies in these pauses the last knows what one costs when nothing was touched
        before = set(c.kernel.named("cellblock-twin"))
        assert c.run("log = []").ok
        await_twin(c, before)
    steps = [f"open('step{n}', 'w').close(); {step(n)}" for n in range(9)]
    die = "os.unlink('many7'); " + DIE
    *good, bad = send_all(c, [*steps[:6], die])
    assert all(each.ok for each in good)
    kept = list(range(7 - len(undone(c, bad, alone=kernels.LINUX >= (6, 16)))))
    assert "all variables and files are" in bad.content["evalue"], bad.content
    answers = send_all(c, [code for each in steps[6:] for code in (each, die)])
    for n, (good, bad) in enumerate(zip(answers[::2], answers[1::2]), 6):
        assert good.ok and "all variables and files are" in bad.content["evalue"], bad.content
        kept += [n] * (len(undone(c, bad, alone=False)) == 1)  # files that went back are looked at once more
    assert ast.literal_eval(c.run("log").result) == kept
    there = c.run("names = os.listdir(); sorted(n for n in names if 'step' in n), sum('many' in n for n in names)")
    assert ast.literal_eval(there.result) == ([f"step{n}" for n in kept], FILES)


WORK = """
import os, threading, time
n = 0
def work():
    global n
    while not os.path.exists('go'): time.sleep(0.01)
    end = time.monotonic() + 1  # a copy is watched from 0.3 s on
    while time.monotonic() < end: time.sleep(0.01)
    n = 1
    print('done')
threading.Thread(target=work).start()
"""


@pytest.mark.parametrize("policy", POLICIES)
def test_what_a_thread_does_between_cells(start, policy):
    """It is in a copy that is made before the next cell."""
    c = small(start, *POLICIES[policy], "--set", "workspace.mode=rw")
    works = c.start(WORK)
    assert c.finish(works).ok
    assert c.request("cellblock_list_checkpoints_request").content["status"] == "ok"  # a copy of that is there
    (c.kernel.workspace / "go").touch()
    c.says(works, "done")
    died = c.run(DIE)
    assert died.about["undone"] == [died.content["execution_count"]], died.content
    assert c.run("print(n)").text() == "1\n"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_subshell(start, policy):
    c = small(start, *POLICIES[policy])
    where = c.request("create_subshell_request", {}, channel="control").content["subshell_id"]
    assert c.run("log = []").ok
    for n in range(6):
        good, bad = (
            c.start(code, header=c.header("execute_request", subshell_id=where)) for code in (f"log.append({n})", DIE)
        )
        assert c.finish(good).ok
        assert c.finish(bad).content["ename"] == "KernelDiedError"
        assert c.run("log").result == str(list(range(n + 1)))


@pytest.mark.parametrize("mode", ["auto", "always"])
def test_a_question_that_is_being_answered(start, mode):
    """It comes while the first cell runs, and takes longer."""
    c = small(start, "--set", f"transactions.mode={mode}")
    slow = "class Slow:\n    def __dir__(self): asked.set(); go.wait(60); return ['aa']\ns = Slow()"
    assert c.run(f"import threading, time\nasked, go = threading.Event(), threading.Event()\nlog = []\n{slow}").ok
    for n in range(3):
        assert c.run("asked.clear(); go.clear()").ok
        end = "threading.Timer(0.3, go.set).start()"
        good = c.start(f"asked.wait(60); log.append({n}); {end}")
        question = c.send("complete_request", {"code": "s.", "cursor_pos": 2})
        bad = c.start(DIE)
        assert c.finish(good).ok and not c.finish(bad).ok
        c.until_idle(question)
        assert c.run("log").result == str(list(range(n + 1)))


def test_a_cell_that_waits_for_a_question_is_taken_back(start):
    """The next one waits as long as that would have."""
    c = small(start, "--set", "transactions.mode=always")
    slow = "class Slow:\n    def __dir__(self): asked.set(); go.wait(60); return ['aa']\ns = Slow()"
    assert c.run(f"import threading\nasked, go = threading.Event(), threading.Event()\nlog = []\n{slow}").ok
    later = "threading.Timer(1.2, print, ['now']).start(); threading.Timer(1.6, go.set).start()"
    for _ in range(10):
        good = c.start(f"asked.wait(60); log.append(0); {later}")
        question = c.send("complete_request", {"code": "s.", "cursor_pos": 2})
        held = c.start("log.append(1)")
        assert c.finish(good).ok
        found = c.request("interrupt_request", {"msg_id": held}, channel="control").content["found"]
        if found == "waiting":
            break
        c.finish(held)  # this machine took longer than it waits
        c.until_idle(question)
        assert c.run("asked.clear(); go.clear(); log.clear()").ok
    assert found == "waiting"
    c.says(good, "now")
    assert not c.run(DIE).ok
    c.until_idle(question)
    assert c.run("log").result == "[0]"


def test_two_cells_that_wait_for_a_question(start):
    """Each waits for a second; neither begins anew because of the other."""
    c = small(start, "--set", "transactions.mode=always")
    where = c.request("create_subshell_request", {}, channel="control").content["subshell_id"]
    slow = "class Slow:\n    def __dir__(self): asked.set(); go.wait(300); return ['aa']\ns = Slow()"
    assert c.run(f"import threading\nasked, go = threading.Event(), threading.Event()\n{slow}").ok
    first = c.start("asked.wait(60)")
    question = c.send("complete_request", {"code": "s.", "cursor_pos": 2})
    assert c.finish(first).ok
    waiting = [c.start("1"), c.start("2", header=c.header("execute_request", subshell_id=where))]
    assert all(c.finish(each, 60).ok for each in waiting)
    assert c.run("go.set()").ok
    c.until_idle(question)


def test_messages_of_widgets_beside_a_cell_are_counted(start):
    c = start(args=["--set", "transactions.mode=always"]).client
    comm = counting_comm(c)
    awaits = c.start("import asyncio, os\nwhile n < 3: await asyncio.sleep(0.01)\nos._exit(1)")
    for _ in range(3):
        c.until_idle(c.send("comm_msg", {"comm_id": comm, "data": {}}))
    died = c.finish(awaits)
    assert died.about["undone_messages"] == 3, died.about
    assert c.run("n").result == "0"


def test_messages_of_widgets_in_between(start):
    """They get no twin each, but what they do is in the one of the next cell."""
    c = start(args=["--set", "transactions.mode=always"]).client
    comm = counting_comm(c)
    for _ in range(5):
        c.send("comm_msg", {"comm_id": comm, "data": {}})
    _, bad = send_all(c, ["1", DIE])
    assert bad.about["undone"] == [bad.content["execution_count"]], bad.content
    assert c.run("n").result == "5"


def test_what_has_no_number_is_told(start):
    """Cells that are not stored, and messages of widgets."""
    c = start(args=["--set", "transactions.mode=always"]).client
    assert c.run("n = 0").ok
    assert c.request("cellblock_checkpoint_request", {"name": "a"}).content["status"] == "ok"
    assert c.run("n += 1", store_history=False).ok and c.run("n += 1", silent=True).ok and c.run("n += 1").ok
    reply = c.request("cellblock_rollback_request", {"name": "a"}).content
    assert (reply["restored_to"], reply["undone"], reply["undone_unnumbered"]) == (1, [2], 2), reply
    assert c.run("n").result == "0"
    assert "undone_unnumbered" not in c.request("cellblock_rollback_request", {"name": "a"}).content


@pytest.mark.parametrize("how", WITHOUT_A_NUMBER)
def test_a_cell_without_a_number_that_dies(start, how):
    """It is counted by the reply; its own error needs not tell it."""
    c = start(args=["--set", "transactions.mode=always"]).client
    assert c.run("n = 1").ok
    died = c.run(f"n = 2; {DIE}", **WITHOUT_A_NUMBER[how])
    assert (died.about["state"], died.about["restored_to"]) == ("restored", 1), died.about
    assert died.about["undone_unnumbered"] == 1 and not died.about.get("undone"), died.about
    assert "without a number" not in died.content["evalue"]
    assert c.run("n").result == "1"


@pytest.mark.parametrize("how", ["numbered", *WITHOUT_A_NUMBER])
def test_what_has_no_number_is_told_by_a_cell_that_dies(start, how):
    """While a cell of a subshell runs there are no twins: what comes meanwhile is undone with the one that dies."""
    c, dies = start(args=["--set", "transactions.mode=always"]).client, WITHOUT_A_NUMBER.get(how, {})
    comm = counting_comm(c)
    where = c.request("create_subshell_request", {}, channel="control").content["subshell_id"]
    assert c.run("1").ok
    beside = c.start(
        "print('runs', flush=True)\nimport threading; threading.Event().wait()",
        header=c.header("execute_request", subshell_id=where),
    )
    c.says(beside, "runs")
    assert c.run("n += 1", silent=True).ok and c.run("n += 1", store_history=False).ok
    c.until_idle(c.send("comm_msg", {"comm_id": comm, "data": {}}))
    died = c.run(DIE, **dies)
    assert "; 2 cells without a number are undone; 1 message of widgets is undone" in died.content["evalue"], died
    assert died.about["undone_unnumbered"] == 2 + bool(dies) and died.about["undone_messages"] == 1, died.about
    assert died.about["undone"] == ([4] if dies else [4, 5]), died.about  # [4] is the subshell's
    assert not c.finish(beside).ok
    assert c.run("n").result == "0"


def test_messages_of_widgets_are_told(start, new_gate):
    """They come one behind the other, so that no copy is made between them: all wait for a cell."""
    c = start().client
    c.run(
        "import os\nfrom ipykernel.comm import Comm\nn = 0\ncomm = Comm(target_name='t')\ndef on(message):\n"
        "    global n; n += 1\n    if message['content']['data']: os._exit(1)\ncomm.on_msg(on)"
    )
    comm = c.run("comm.comm_id").result.strip("'")
    gate = new_gate(c.kernel)
    cell = c.start("open('gate').read()")
    for die in (0, 0, 0, 1):
        c.send("comm_msg", {"comm_id": comm, "data": {"die": 1} if die else {}})
    c.request("kernel_info_request")  # they have been read
    gate()
    assert c.finish(cell).ok
    assert "; 3 messages of widgets are undone" in c.run("n").text("stderr")
