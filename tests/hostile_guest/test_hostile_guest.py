"""Whatever the guest sends: the supervisor stays up, bounded in memory; the request ends with error, reply and idle; a
good guest works in the next cell.

The kernel is started from a copy of the installed tree in which boot.py is hostile_boot.py (see there); what it does is
written into the file `hostile` in the workspace, so that one kernel sees one hostile guest after the other.
"""

import ast
import os
import select
import re
import shutil
from pathlib import Path

import pytest

import kernels
from rawclient import DEADLINE, Client, NoMessage

pytestmark = [pytest.mark.cellblock_only("the guest's wire is cellblock's own"), pytest.mark.timeout(900)]

HERE = Path(__file__).parent
BOOT = HERE / "hostile_boot.py"
MIB = 1 << 20


def names(prefix=None, block=None):
    """Behaviours, read from the script itself so that none is forgotten."""
    tree = ast.parse(BOOT.read_text())
    if block:
        value = next(
            n.value for n in tree.body if isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == block
        )
        return [k.value for k in value.keys]
    return [n.name for n in tree.body if isinstance(n, ast.FunctionDef) and n.name.startswith(prefix)]


def section(title):
    """The functions between one heading comment of the script and the next."""
    text = BOOT.read_text()
    part = text[text.index(f"# ---- {title}") :]
    part = part[: part.index("\n# ---- ", 10)] if "\n# ---- " in part[10:] else part
    return [
        line[4 : line.index("(")] for line in part.splitlines() if line.startswith("def ") and line.endswith("(r):")
    ]


def hostile_tree(folder):
    """A copy of the installed programs whose guest is the hostile one."""
    program, guest = kernels.copy_programs(folder / "tree")
    (guest / "boot.py").rename(guest / "boot_good.py")
    shutil.copy(BOOT, guest / "boot.py")
    return program


SETTINGS = ["limits.message=16M", "limits.output=32M", "timeout.grace=0.5", "transactions.mode=off"]


class Jail:
    """One kernel, whose next guest is what the test says."""

    def __init__(self, nothing_left, count):
        folder = nothing_left / f"hostile{count}"
        folder.mkdir()
        program = hostile_tree(folder)
        argv = [str(program), *kernels.spec_argv()[0][1:]]
        self.kernel = kernels.Kernel(folder / "k", argv=argv, args=[w for s in SETTINGS for w in ("--set", s)])
        self.client = Client(self.kernel)
        self.client.ready()
        assert self.client.run("6*7").result == "42"

    def become(self, name, keep=False):
        """Ends the guest; the next one behaves as `name` says, and (unless kept) only that one."""
        hostile, started = self.kernel.workspace / "hostile", self.kernel.workspace / "started"
        hostile.write_text(name)
        hostile.chmod(0o644)
        (self.kernel.workspace / "starts").unlink(missing_ok=True)
        if not started.exists():
            os.mkfifo(started)
            os.chown(started, self.kernel.workspace.stat().st_uid, -1)
        pipe = os.open(started, os.O_RDONLY | os.O_NONBLOCK)
        try:
            self.client.run("import os; os._exit(0)")
            assert select.select([pipe], [], [], DEADLINE)[0], "no new guest came up"
        finally:
            os.close(pipe)
        if not keep:
            self.behave()
        self.client.drop()

    def behave(self):
        (self.kernel.workspace / "hostile").unlink(missing_ok=True)


class Jails:
    def __init__(self, folder):
        self.folder, self.count, self.jail = folder, 0, None

    def get(self):
        if self.jail is None or self.jail.kernel.closed or not self.jail.kernel.alive():
            self.count += 1
            self.jail = Jail(self.folder, self.count)
        return self.jail

    kernel = property(lambda self: self.jail.kernel)


@pytest.fixture(scope="module")
def shared(nothing_left):
    jails = Jails(nothing_left)
    yield jails
    if jails.jail:
        jails.jail.client.close()
        jails.jail.kernel.stop()


@pytest.fixture
def jail(shared):
    j = shared.get()
    before = j.kernel.memory()
    yield j
    j.behave()
    assert j.kernel.alive(), j.kernel.said()
    assert j.kernel.memory() - before < 150 * MIB
    good(j)


def good(jail):
    """kernel_info at once; and within two cells (the first may report the loss) a good guest."""
    c = jail.client
    jail.behave()
    assert c.request("kernel_info_request", channel="control").content["status"] == "ok"
    for _ in range(2):
        cell = c.run("import os; os.getpid() > 0 and 6*7", timeout=90)  # a start that hangs has a deadline of its own
        if cell.result == "42":
            break
        if cell.ok:
            c.run("import os; os._exit(0)")  # the hostile guest lives on, tame: let a good one take its place
    else:
        cell = c.run("6*7")
    assert cell.result == "42", cell
    assert c.run("print('good')").text() == "good\n"
    c.drop()


def ends_with(cell, *enames):
    """error, reply and idle, all saying the same."""
    assert cell.content["status"] == "error" and cell.content["ename"] in enames, cell
    assert (
        cell.error is not None
        and cell.error["ename"] == cell.content["ename"]
        and cell.error["evalue"] == cell.content["evalue"]
    )
    assert cell.content["evalue"] and isinstance(cell.content["traceback"], list)
    assert cell.types[0] == cell.types[-1] == "status" and cell.about["state"] == "lost"


@pytest.mark.parametrize("name", names(block="BREACHES"))
def test_breach(jail, name):
    jail.become(name)
    cell = jail.client.run("go")
    ends_with(cell, "WireError")
    assert not jail.client.inbox["stdin"]


@pytest.mark.parametrize("name", section("deaths"))
def test_death(jail, name):
    jail.become(name)
    cell = jail.client.run("go")
    ends_with(cell, "WireError", "KernelDiedError")


@pytest.mark.parametrize("name", section("beside"))
def test_beside(jail, name):
    """What is asked beside a cell ends too, and its client is not told what was not said."""
    jail.become(name)
    c = jail.client
    made = c.request("create_subshell_request", {}, channel="control").content["subshell_id"]
    cell = c.start("go")
    c.wait_in_place("iopub", lambda m: m.parent_id == cell and m.type == "execute_input")
    if name.startswith("asked_"):
        other = c.send("complete_request", {"code": "x", "cursor_pos": 1})
    elif name.startswith("sub_"):
        other = c.start("beside", header=c.header("execute_request", subshell_id=made))
    else:
        other = c.send("comm_msg", {"comm_id": "c", "data": {}})
    ends_with(c.finish(cell), "WireError", "KernelDiedError")
    said = c.until_idle(other)
    if not name.startswith("comm_"):
        assert c.reply(other).content["status"] == ("ok" if name.endswith(("twice", "after_reply")) else "error")
    assert not [m for m in said if m.type == "execute_result"] and not c.inbox["stdin"]
    c.request("delete_subshell_request", {"subshell_id": made}, channel="control")


@pytest.mark.parametrize("how", ["interrupts", "timeout"])
@pytest.mark.parametrize("name", [n for n in section("stalls") if n != "replies_and_reads_nothing_more"])
def test_stall(jail, name, how):
    if (name, how) == ("endless_interrupted", "interrupts"):
        pytest.skip(
            "an interrupt that was delivered is obeyed: by interrupts alone no one can stop what claims that for ever"
        )
    jail.become(name)
    c = jail.client
    if how == "timeout":
        cell = c.run("go", metadata={"cellblock": {"timeout": 0.5}}, timeout=120)
        assert cell.content["ename"] == "CellTimeoutError", cell
    else:
        msg_id = c.start("go")
        c.wait_in_place("iopub", lambda m: m.parent_id == msg_id and m.type == "execute_input")
        assert c.request("kernel_info_request").content["status"] == "ok"
        c.stop_hard(msg_id)
        cell = c.finish(msg_id, timeout=120)  # all of a flood is to be read first
    assert cell.content["status"] == "error" and cell.about["state"] == "lost", cell


@pytest.mark.parametrize("name", section("lawful"))
def test_much(jail, name):
    jail.become(name)
    cell = jail.client.run("go", timeout=400)
    assert cell.content["status"] == "ok" or cell.content["ename"] == "WireError", cell
    if name in ("false_count_in_reply", "foreign_keys_in_reply"):
        assert cell.content.get("execution_count") == cell.of("execute_input")[0].content["execution_count"]
        assert cell.reply.type == "execute_reply" and cell.reply.parent_id != "x"
    if name == "broken_text":
        assert re.fullmatch("a\ufffd+b", cell.of("stream")[0].content["text"])
    if name in ("heavy_json", "many_displays") and cell.ok:
        assert cell.of("display_data")


@pytest.mark.parametrize("name", section("after the reply"))
def test_after_the_reply(jail, name):
    """The cell itself was answered; the breach falls into the time after it and is not charged to a later cell's
    result."""
    jail.become(name)
    c = jail.client
    cell = c.run("go")
    assert cell.ok or name in ("reply_twice", "garbage_after_reply")
    try:
        c.wait("iopub", lambda m: m.type == "status" and m.content["execution_state"] == "restarting")
    except NoMessage:
        pytest.fail("a breach while idle goes unseen")
    assert not c.inbox["stdin"]


def test_a_guest_that_reads_nothing(jail):
    """The supervisor neither blocks nor keeps all that is sent to it."""
    jail.become("replies_and_reads_nothing_more")
    c = jail.client
    assert c.run("go").ok
    before = jail.kernel.memory()
    ids = [c.start("x = '" + "a" * (4 * MIB) + "'") for _ in range(20)]
    assert c.request("kernel_info_request", channel="control").content["status"] == "ok"
    assert jail.kernel.memory() - before < 120 * MIB
    c.stop_hard(ids[0])
    for i in ids:
        assert c.finish(i).content["status"] in ("error", "aborted")


@pytest.mark.parametrize("name", [n for n in names("start_") if n not in ("start_lying_hello",)])
def test_start(jail, name):
    """A guest that does not come up: kernel_info works all the while, and cells are told."""
    jail.become(name, keep=True)
    c = jail.client
    assert c.request("kernel_info_request").content["status"] == "ok"
    msg_id = c.start("go")
    assert c.request("kernel_info_request").content["status"] == "ok"
    if name in ("start_never_hello", "start_exec_loop"):
        c.stop_hard(msg_id)
    cell = c.finish(msg_id, timeout=120)
    assert cell.content["status"] == "error" and cell.content["evalue"] and cell.error, cell


def test_lies_about_itself_do_no_harm(jail):
    jail.become("start_lying_hello")
    jail.client.run("go")
    info = jail.client.request("kernel_info_request").content
    assert (
        info["language_info"]["name"] == "python"
        and "\x1b" not in str(info["banner"])
        and "\n" not in info["language_info"]["version"]
    )


def test_restarts_are_bounded(jail):
    """A guest that dies at once for ever is not started for ever."""
    jail.become("start_exit", keep=True)
    c = jail.client
    cell = c.run("go", timeout=120)
    assert cell.content["status"] == "error"
    starts = jail.kernel.workspace / "starts"
    counted = len(starts.read_text())
    used = sum(kernels.psutil.Process(jail.kernel.pid).cpu_times()[:2])
    with pytest.raises(NoMessage):
        c.wait("iopub", lambda m: False, timeout=3)
    assert len(starts.read_text()) - counted <= 6, "in three seconds"
    assert sum(kernels.psutil.Process(jail.kernel.pid).cpu_times()[:2]) - used < 0.5


def test_the_kernel_ends_although_the_guest_ignores_it(nothing_left):
    j = Jail(nothing_left, 9000)
    try:
        j.become("ignores_shutdown")
        assert j.client.run("go").content["status"] in ("ok", "error")
        j.client.request("shutdown_request", {"restart": False}, channel="control")
        j.kernel.wait()
    finally:
        j.client.close()
        j.kernel.stop()


def test_many_hostile_guests_in_a_row_leave_nothing(jail):
    c = jail.client
    breaches = names(block="BREACHES")[:12]
    jail.become(breaches[0], keep=True)
    for name in breaches:
        (jail.kernel.workspace / "hostile").write_text(name)
        assert c.run("go").content["status"] == "error"
    first = jail.kernel.memory(), jail.kernel.open_files()
    for name in breaches:
        (jail.kernel.workspace / "hostile").write_text(name)
        assert c.run("go").content["status"] == "error"
    assert jail.kernel.memory() - first[0] < 20 * MIB
    # the new guest's copy is there already, or not yet: seven files
    assert jail.kernel.open_files() <= first[1] + 7 + 2 < first[1] + len(breaches)
