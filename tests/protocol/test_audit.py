"""audit.file: what a kernel writes, that the chain shows a change, and `cellblock audit`."""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import time

import pytest

import kernels

pytestmark = pytest.mark.cellblock_only


def program():
    return kernels.spec_argv()[0][0]


def audit(path):
    return subprocess.run([program(), "audit", str(path)], capture_output=True, text=True, timeout=60)


@pytest.fixture
def log(nothing_left, request):
    path = nothing_left / "logs" / request.node.name[:40] / "audit.jsonl"
    yield path
    shutil.rmtree(path.parent, ignore_errors=True)


def events(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def of(found, event):
    return [e for e in found if e["event"] == event]


SETS = ("limits.output=2K", "timeout.cpu=99.5", "timeout.grace=60")


def test_a_jail_that_does_not_end_by_itself(start, log):
    """The kernel does not wait for it: clients would kill that."""
    k = start(args=["--set", f"audit.file={log}"])
    assert k.client.run("import atexit, time; _ = atexit.register(time.sleep, 600)").ok
    k.stop()
    assert [e["event"] for e in events(log)[-2:]] == ["jail_end", "end"]


def test_a_session(start, log):
    k = start(args=["--set", f"audit.file={log}", *(w for s in SETS for w in ("--set", s))])
    code = "print('secret é')"
    k.client.run(code)
    k.client.run("print('x' * 5000)")
    k.client.run("import time; time.sleep(600)", metadata={"cellblock": {"timeout": 0.5}})
    k.client.run("import os; os._exit(3)")
    k.client.run("1", silent=True)
    k.client.request("cellblock_run_request", {"argv": ["true"]}, channel="control")
    k.client.request("execute_request", {"code": 1})
    k.stop()
    found = events(log)
    assert "secret" not in log.read_text(), "code is not written, only its hash"
    assert found[0]["event"] == "start" and found[0]["workspace_mode"] == "rw" and found[0]["network"] == "none"
    assert found[-1]["event"] == "end" and found[-1]["cells"] == 4
    assert len({e["kernel"] for e in found}) == 1
    cells, ends = of(found, "cell"), of(found, "cell_end")
    assert cells[0]["sha256"] == hashlib.sha256(code.encode()).hexdigest() and cells[0]["bytes"] == len(code.encode())
    assert [c["n"] for c in cells] == [1, 2, 3, 4, 4] == [c["n"] for c in ends]
    assert [c.get("limit") for c in ends] == [None, "output", "time", None, None]
    assert [c["state"] for c in ends] == ["kept", "kept", "kept", "restored", "kept"]
    restored = of(found, "restored")
    assert len(restored) == 1 and restored[0]["n"] == restored[0]["undone"][-1] == 4
    assert restored[0]["restored_to"] == 4 - len(restored[0]["undone"])
    assert "status 3" in restored[0]["why"] and not of(found, "rolled_back")
    assert [e["key"] for e in of(found, "limit")] == ["limits.output", "timeout.cell"]
    assert len(of(found, "jail")) == len(of(found, "jail_end")) == 1, "what was restored goes on in its jail"
    assert of(found, "denied")[0]["what"] == "execute_request"
    assert [e["type"] for e in of(found, "request")] == ["cellblock_run_request"]
    assert log.stat().st_mode & 0o777 == 0o600
    said = audit(log)
    assert said.returncode == 0 and f"{len(found)} lines, the chain holds" in said.stderr
    assert len(said.stdout.splitlines()) == len(found) and "no end" not in said.stderr
    assert "timeout.cpu=99.5 " in said.stdout and not re.search(r"=-|\.\d{7}\d* ", said.stdout)  # numbers as written
    last = log.read_bytes().splitlines()[-1]
    assert hashlib.sha256(last).hexdigest() in said.stderr


def test_rollbacks(start, log):
    k = start(args=["--set", f"audit.file={log}", "--set", "transactions.mode=always"])
    for code in ("x = 1", "x = 2", "%rollback"):
        assert k.client.run(code).ok
    k.stop()
    back = of(events(log), "rolled_back")
    assert [(e["n"], e["restored_to"], e["undone"]) for e in back] == [(3, 1, [2, 3])]
    assert not of(events(log), "restored")


def test_two_kernels_and_every_change(start, log):
    ks = [start(args=["--set", f"audit.file={log}"]) for _ in range(2)]
    for k in ks:
        k.client.run("1")
    ks[0].stop()
    said = audit(log)
    assert said.returncode == 0 and "1 kernel(s) have a start and no end" in said.stderr
    ended = {e["kernel"] for e in of(events(log), "end")}
    (open_one,) = {e["kernel"] for e in events(log)} - ended
    assert re.search(f"^1 kernel.* taken out: {open_one}$", said.stderr, re.M) and not ended & set(said.stderr.split())
    ks[1].stop()
    good = log.read_bytes()
    lines = good.splitlines(keepends=True)
    assert audit(log).returncode == 0 and len({e["kernel"] for e in events(log)}) == 2
    changed = {
        "changed": lines[:3] + [lines[3].replace(b'"time":"2', b'"time":"1')] + lines[4:],
        "taken out": lines[:3] + lines[4:],
        "added": lines[:4] + [lines[2]] + lines[4:],
        "beginning cut": lines[1:],
        "end cut": lines[:-1] + [lines[-1][:-9]],
        "garbage": lines[:4] + [b"\xff\x00\x1b[31m\n"] + lines[4:],
        "long line": lines[:4] + [b"x" * 1_000_000 + b"\n"] + lines[4:],
    }
    first_bad = {"changed": 5, "taken out": 4, "beginning cut": 1, "end cut": len(lines)}
    for what, those in changed.items():
        log.write_bytes(b"".join(those))
        said = audit(log)
        assert said.returncode == 1 and f"line {first_bad.get(what, 5)}:" in said.stderr, (what, said.stderr)
        assert "\x1b" not in said.stdout + said.stderr
    log.write_bytes(good)


def test_of_many_kernels_without_an_end_the_youngest_are_named(tmp_path):
    log, prev = tmp_path / "audit.jsonl", "0" * 64
    with log.open("wb") as file:
        for n in [*range(12), 5]:
            line = {"time": "t", "kernel": f"k{n}", "event": "end" if n == 5 else "start", "prev": prev}
            written = json.dumps(line).encode()
            file.write(written + b"\n")
            prev = hashlib.sha256(written).hexdigest()
    said = audit(log)
    assert said.returncode == 0
    assert re.search("^11 kernel.* taken out: k3 k4 k6 k7 k8 k9 k10 k11 and 3 older ones$", said.stderr, re.M)


def test_what_clients_choose_cannot_speak_to_the_terminal(start, log):
    k = start(args=["--set", f"audit.file={log}"])
    header = k.client.header("execute_request", session="\x1b]0;owned\x07\u202e\x7f\x00é")
    k.client.finish(k.client.start("1", header=header))
    k.stop()
    said = audit(log)
    assert said.returncode == 0 and "session=" in said.stdout
    assert all(c == "\n" or " " <= c <= "~" for c in said.stdout)


def test_code_beside_the_code(start, log):
    """What a cell evaluates behind it, and what a debugger is asked."""
    k = start(args=["--set", f"audit.file={log}"])
    content = {"code": "1", "user_expressions": {"secret": "6*7"}}
    assert k.client.request("execute_request", content).content["status"] == "ok"
    k.client.run("2")
    debug = {"type": "request", "seq": 1, "command": "evaluate", "arguments": {"expression": "secret"}}
    k.client.request("debug_request", debug, channel="control")
    k.stop()
    found = events(log)
    assert "secret" not in log.read_text()
    sums = [c.get("expressions_sha256") for c in of(found, "cell")]
    assert len(sums[0]) == 64 and sums[1] is None
    assert [e["type"] for e in of(found, "request")] == ["debug_request"] and of(found, "request")[0]["bytes"] > 50


@pytest.mark.parametrize("below", ["audit.jsonl", "new/folder/audit.jsonl"])
def test_never_in_the_workspace(start, nothing_left, below):
    work = nothing_left / f"work-{len(below)}"
    work.mkdir()
    k = start(workspace=work, args=["--set", f"audit.file={work}/{below}"])
    cell = k.client.run("1")
    assert cell.content["ename"] == "IsolationError" and "audit.file" in cell.content["evalue"]
    assert not list(work.iterdir())


@pytest.mark.parametrize("mode", ["ro", "rw"])
def test_never_in_a_mount(start, nothing_left, mode):
    """Read-only too: who can read a file can hold a lock on it, for which the kernel would wait."""
    folder = nothing_left / f"mount-{mode}"
    folder.mkdir()
    mount = json.dumps([{"source": str(folder), "target": "/data", "mode": mode}])
    k = start(args=["--set", f"mounts={mount}", "--set", f"audit.file={folder}/audit.jsonl"])
    cell = k.client.run("1")
    assert cell.content["ename"] == "IsolationError" and "audit.file" in cell.content["evalue"], cell
    assert not list(folder.iterdir())


def test_a_log_that_cannot_be_written_is_no_reason_to_go_without(start):
    k = start(args=["--set", "audit.file=/proc/audit.jsonl"])
    cell = k.client.run("1")
    assert cell.content["ename"] == "IsolationError" and "audit.file" in cell.content["evalue"]


def test_cells_do_not_see_it(start, log):
    k = start(args=["--set", f"audit.file={log}"])
    assert k.client.run(f"import os; os.path.exists({str(log)!r})").result == "False"
    assert k.client.run("sorted(os.listdir('/proc/self/fd'))").ok
    assert os.path.exists(log)


def test_run(log, nothing_left):
    work = nothing_left / "run-work"
    work.mkdir()
    argv = [program(), "run", "--workspace", str(work), "--set", f"audit.file={log}", "--", "sh", "-c", "echo inside"]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert said.returncode == 0 and said.stdout == "inside\n", said.stderr
    assert [(e["event"], e["command"]) for e in events(log)] == [("run", "sh -c echo inside")]
    assert audit(log).returncode == 0


@pytest.mark.parametrize("length", [301, 302])
def test_run_with_a_long_command(log, nothing_left, length):
    """As long as the buffer that it is put into, about."""
    work = nothing_left / "run-long"
    work.mkdir(exist_ok=True)
    command = ["true", "x" * 150, "y" * (length - len("true") - 150 - 2)]
    argv = [program(), "run", "--workspace", str(work), "--set", f"audit.file={log}", "--", *command]
    assert subprocess.run(argv, timeout=60).returncode == 0
    assert [e["command"] for e in events(log)] == [" ".join(command)[:300]]


def test_run_runs_nothing_without_its_line(log, nothing_left):
    """Somebody else holds a lock on the file."""
    work = nothing_left / "run-locked"
    work.mkdir()
    log.parent.mkdir(parents=True)
    argv = [program(), "run", "--workspace", str(work), "--set", f"audit.file={log}", "--", "touch", "ran"]
    with open(log, "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        said = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert said.returncode == 125 and f"audit.file {log}" in said.stderr, said
    assert not (work / "ran").exists()


def test_usage():
    assert subprocess.run([program(), "audit"], capture_output=True).returncode == 2
    said = subprocess.run([program(), "audit", "/nowhere"], capture_output=True, text=True)
    assert said.returncode == 1 and "/nowhere" in said.stderr


ODD = {
    "lines": b'[\n"a",\n"b"\n]',
    "a line of ours": b'{"a":\n1}',
    "number": b"5",
    "null": b"null",
    "long": b'"' + b"x" * 8000 + b'"',
}


@pytest.mark.parametrize("what", ODD)
def test_a_session_that_is_no_string_leaves_the_chain_whole(start, log, what):
    k = start(args=["--set", f"audit.file={log}"])
    for msg_type, content in (
        ("execute_request", {"code": "6*7"}),
        ("cellblock_run_request", {"argv": ["true"]}),
        ("cellblock_file_request", {"op": "list", "path": "."}),
    ):
        header = json.dumps(k.client.header(msg_type)).encode()
        header = re.sub(rb'"session": "[^"]*"', lambda _: b'"session": ' + ODD[what], header)
        msg_id = k.client.send(msg_type, content, header=header)
        assert k.client.reply(msg_id).content["status"] == "ok"
    k.stop()
    said = audit(log)
    assert said.returncode == 0 and len(of(events(log), "cell")) == 1, said.stderr


def wait_for(log, event, count=1):
    deadline = time.monotonic() + 30
    while not log.exists() or log.read_text().count(f'"event":"{event}"') < count:
        assert time.monotonic() < deadline
        os.sched_yield()


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_log_that_is_deleted_stops_the_cells(start, log, how):
    k = start(args=["--set", f"audit.file={log}"])
    k.client.run("x = 1")
    wait_for(log, "cell_end")
    if how == "deleted":
        log.unlink()
    else:
        (log.parent / "new").write_text("")
        (log.parent / "new").rename(log)
    cell = k.client.run("open('ran', 'w')")
    assert cell.content["ename"] == "AuditLogError" and str(log) in cell.content["evalue"]
    assert cell.error["ename"] == "AuditLogError", "frontends show nothing of a reply"
    for channel in ("shell", "control"):
        reply = k.client.request("cellblock_run_request", {"argv": ["touch", "ran"]}, channel=channel)
        assert reply.content["ename"] == "AuditLogError"
    assert not (k.workspace / "ran").exists()
    assert k.client.request("kernel_info_request").content["status"] == "ok"
    k.stop()
    assert f"audit.file {log} was deleted" in k.said()
    again = start(args=["--set", f"audit.file={log}"])
    assert again.client.run("1").ok
    again.stop()
    assert audit(log).returncode == 0


def test_what_waits_does_not_run_either(start, log, new_gate):
    k = start(args=["--set", f"audit.file={log}"])
    c, gate = k.client, new_gate(k)
    running = c.start("print('begun', flush=True)\nopen('gate').read()")
    c.says(running, "begun")
    cell = c.start("open('ran', 'w')")
    command = c.send("cellblock_run_request", {"argv": ["touch", "ran"]})
    c.request("kernel_info_request")  # they have been taken in
    log.unlink()
    gate()
    assert c.finish(running).ok
    failed = c.finish(cell)
    assert failed.content["ename"] == "AuditLogError" == failed.error["ename"]
    assert c.reply(command).content["ename"] == "AuditLogError"
    assert not (k.workspace / "ran").exists()


def test_a_log_that_is_renamed_goes_on_and_that_is_said(start, log):
    kernels.let_in(log.parent)  # a kernel that root starts is another user's, and looks as that
    k = start(args=["--set", f"audit.file={log}"])
    k.client.run("1")
    moved = log.with_suffix(".1")
    log.rename(moved)
    cell = k.client.run("2")
    assert cell.ok and f"audit.file {log} was renamed" in cell.text("stderr")
    assert "renamed" not in k.client.run("3").text("stderr"), "once"
    k.stop()
    assert not log.exists() and audit(moved).returncode == 0 and events(moved)[-1]["event"] == "end"
    assert len(of(events(moved), "cell")) == 3


def test_lines_that_are_taken_out_at_the_end_are_noticed(start, log):
    k = start(args=["--set", f"audit.file={log}"])
    k.client.run("1")
    wait_for(log, "cell_end")
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:-1]))
    k.client.run("2")
    k.stop()
    assert audit(log).returncode == 0, "a chain alone does not show it"
    cut = of(events(log), "cut")
    assert [c["last"] for c in cut] == [hashlib.sha256(lines[-1].rstrip(b"\n")).hexdigest()]
    assert "lines were changed or taken out" in k.said()


def test_a_log_that_stands_still_costs_no_request_its_answer(start, log):
    """Somebody holds a lock on it for ever, and the thread that writes it waits for that; also not the kernel's end."""
    k = start(args=["--set", f"audit.file={log}"])
    c = k.client
    assert c.run("1").ok
    wait_for(log, "cell_end")
    written = log.read_bytes()
    with open(log) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        first = c.start("print('runs', flush=True)\nimport time; time.sleep(600)")
        cells = [c.start(f"{i}", stop_on_error=False) for i in range(10)]
        c.says(first, "runs")
        assert c.request("interrupt_request", {}, channel="control").content["status"] == "ok"
        assert c.finish(first).content["ename"] == "KeyboardInterrupt"
        assert [c.finish(cell).content["status"] for cell in cells] == ["aborted"] * 10
        cells = [c.start(f"{i}") for i in range(10)]
        for channel in ("shell", "control"):
            command = c.send("cellblock_run_request", {"argv": ["true"]}, channel=channel)
            assert c.reply(command, channel).content["returncode"] == 0
            c.until_idle(command)
        assert [c.finish(cell).result for cell in cells] == [str(i) for i in range(10)]
        assert log.read_bytes() == written, "its thread waits"
        k.stop()
    assert "the last lines may be lost, the file is busy" in k.said()
    assert audit(log).returncode == 0
