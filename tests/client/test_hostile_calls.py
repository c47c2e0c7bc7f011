"""Calls of host tools that hostile cells make by frames of their own: in the kernel's order, for the cell that runs,
as often as the tool allows; and nothing after it.
"""

import threading

import pytest

pytest.importorskip("msgspec")
import cellblock  # noqa: E402
import kernels  # noqa: E402
from rawclient import DEADLINE  # noqa: E402

pytestmark = [
    pytest.mark.cellblock_only("the guest's wire is cellblock's own"),
    pytest.mark.once,
]

FRAMES = """import json, os, struct, threading, time
from cellblock_guest import context
def put(metadata, request=None):
    content = b'{"prompt":"","password":false}'
    metadata = metadata if isinstance(metadata, bytes) else json.dumps(metadata).encode()
    data = struct.pack("<IIIIQII", 31, len(content), len(metadata), 0, request or context.current(), 0, 0)
    data += content + metadata
    while data:
        data = data[os.write(3, data):]
def call(*args, tool="pay", **kwargs):
    return {"tool": tool, "args": list(args), "kwargs": kwargs}
"""


class Bank:
    def __init__(self):
        self.ran, self.asked, self.paid, self.came = [], [], threading.Semaphore(0), threading.Event()

    def ask(self, call):
        self.asked.append(str(call))
        return True

    def tools(self):
        @cellblock.tool(approve=self.ask, max_calls=3)
        def pay(amount: int) -> int:
            self.ran.append(amount)
            self.paid.release()
            return amount

        @cellblock.tool
        def slow() -> str:
            self.came.set()
            threading.Event().wait(0.3)
            return "slow"

        return [pay, slow]


@pytest.fixture(scope="module")
def whole(nothing_left):
    bank = Bank()
    folder = nothing_left / "calls"
    kernels.let_in(folder)
    with cellblock.Sandbox("notebook", workspace=folder, tools=bank.tools(), policy={"workspace.mode": "tmpfs"}) as sb:
        yield sb, bank


@pytest.fixture
def lab(whole):
    sb, bank = whole
    bank.ran.clear(), bank.asked.clear(), bank.came.clear()
    assert sb.run("pay(1)").ok  # may meet the end of the guest of the test before
    bank.ran.clear(), bank.asked.clear(), bank.came.clear()
    bank.paid = threading.Semaphore(0)
    return sb, bank


def put(lab, calls, paid):
    """Runs a cell that puts these calls, and `slow` behind them; ends it when that has come and so many have paid."""
    sb, bank = lab

    def end():
        bank.came.wait(DEADLINE)
        for _ in range(paid):
            bank.paid.acquire(timeout=DEADLINE)
        sb.interrupt()

    ending = threading.Thread(target=end, daemon=True)
    ending.start()
    r = sb.run(f"{FRAMES}put({{'calls': {calls} + [call(tool='slow')]}})\ntime.sleep(600)", timeout=DEADLINE)
    ending.join()
    return r


def test_max_calls_holds_for_frames_too(lab):
    sb, bank = lab
    r = put(lab, "[call(n) for n in range(200)]", 3)
    assert not r.ok and len(bank.ran) == 3 == len(bank.asked), (r, bank.ran)
    assert len(r.calls) == 201 and len({c["id"] for c in r.calls}) == 201
    assert sb.run("pay(7)").repr == "7" and bank.ran[-1] == 7


@pytest.mark.parametrize("said", [
    "{'calls': [{**call(1), 'id': 'mine'}]}", "{'calls': [call(1, tool='Pay')]}", "{'calls': [call(1, tool='pay ')]}",
    "{'calls': [call(1, tool='__init__')]}", "{'calls': [call(1, tool='p\\u0430y')]}", "{'calls': call(1)}",
    "b'{\"calls\":[{\"tool\":\"slow\",\"tool\":\"pay\",\"args\":[1],\"kwargs\":{}}]}'",
    "b'{\"calls\":[{\"tool\":\"pay\",\"args\":[1],\"kwargs\":{\"a\":1,\"a\":2}}]}'",
    "b'{\"calls\":[{\"tool\":\"pay\",\"args\":[' + b'9' * 5000 + b'],\"kwargs\":{}}]}'",
])
def test_frames_that_break_the_rules_run_nothing(lab, said):
    sb, bank = lab
    r = sb.run(f"{FRAMES}put({said})\ntime.sleep(60)", timeout=30)
    assert r.error.name == "WireError" and r.fault == "code" and not bank.ran and not bank.asked, r
    assert sb.run("pay(2)").repr == "2"


@pytest.mark.parametrize("said", [
    "call(True)", "call(1.5)", "call('1')", "call([1])", "call()", "call(1, 2)", "call(1, amount=2)",
    "call(amount=None)", "call(1, self=2)", "call(**{'amount ': 1})",
])
def test_arguments_that_do_not_fit_are_asked_for_by_nobody(lab, said):
    sb, bank = lab
    r = put(lab, f"[{said}, call(5)]", 1)
    assert not r.ok and bank.ran == [5] and bank.asked == ["pay(amount=5)"], (r, bank.asked)


def test_nothing_runs_after_the_cell(lab):
    sb, bank = lab
    r = sb.run(f"""{FRAMES}
kept, mine = pay, context.current()
go = threading.Event()
def late(by):
    go.wait()
    try: put({{"calls": [call(9)]}}, mine) if by == "frame" else kept(9)
    except BaseException as e: print(type(e).__name__)
for by in ("frame", "function"): threading.Thread(target=late, args=(by,)).start()""")
    assert r.ok, r
    sb.set("x", 1)  # a cell of its own
    sb.run("go.set(); time.sleep(1)")
    # at most one of them, as a call of the cell that ran by then
    assert all(shown == "pay(amount=9)" for shown in bank.asked) and len(bank.ran) <= 1
    assert sb.run("1 + 1").ok or sb.run("1 + 1").ok


def test_two_lines_have_counts_of_their_own(lab):
    sb, bank = lab
    with sb.branch() as a:
        for line in (sb, a):
            r = line.run("for n in range(5): pay(n)")
            assert r.error.name == "HostToolError" and "max_calls" in r.error.value
            assert [c["tool"] for c in r.calls] == ["pay"] * 4
    assert bank.ran == [0, 1, 2] * 2


def test_answers_go_to_those_who_asked(lab):
    sb, bank = lab
    r = sb.run("""import threading
got = {}
def one(n): got[n] = (slow() if n % 2 else n)
threads = [threading.Thread(target=one, args=(n,)) for n in range(6)]
[t.start() for t in threads]; [t.join() for t in threads]
got[100] = pay(100)
sorted(got.items())""")
    assert r.value == [[0, 0], [1, "slow"], [2, 2], [3, "slow"], [4, 4], [5, "slow"], [100, 100]], r


def test_a_reset_sandbox_answers_no_call_of_the_old_one(lab):
    sb, bank = lab
    sb.run("kept = pay")
    sb.reset()
    assert sb.run("kept").error.name == "NameError" and sb.run("pay(4)").repr == "4" and bank.ran == [4]
