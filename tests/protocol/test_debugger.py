"""The frontend's debugger: the Debug Adapter Protocol on control and iopub, answered by debugpy in the jail."""

import contextlib
import itertools
import os
import time

import pytest

import kernels
from rawclient import NoMessage, deadline_in

pytest.importorskip("debugpy", reason="NOT RUN: debugpy is missing")
pytestmark = [pytest.mark.once, pytest.mark.cellblock_only("the details are ours")]

FUNCTION = """def add(a, b):
    c = a + b
    return c

total = add(2, 3)
total"""

# an ordinary user mostly finds no control groups; what root starts without namespaces can't reach any interpreter
HOSTS = ["no-cgroup"] if os.geteuid() == 0 else ["docker", "old-proc"]


class Debugger:
    """A frontend's debugger."""

    def __init__(self, client):
        self.client, self.seq = client, itertools.count(1)

    def ask(self, command, **arguments):
        content = {"type": "request", "seq": next(self.seq), "command": command, "arguments": arguments}
        reply = self.client.request("debug_request", content, channel="control").content
        assert reply["type"] == "response" and reply["request_seq"] == content["seq"], reply
        assert reply["command"] == command
        return reply

    def get(self, command, **arguments):
        reply = self.ask(command, **arguments)
        assert reply["success"], str(reply)
        return reply.get("body")

    def start(self):
        body = self.get("initialize", clientID="test", adapterID="", pathFormat="path", linesStartAt1=True)
        self.get("attach")
        return body

    def event(self, name):
        said = self.client.wait("iopub", lambda m: m.type == "debug_event" and m.content["event"] == name)
        assert said.parent["msg_type"] == "debug_request"
        return said.content.get("body", {})

    def breakpoints(self, code, *lines):
        path = self.get("dumpCell", code=code)["sourcePath"]
        wanted = [line if isinstance(line, dict) else {"line": line} for line in lines]
        return path, self.get("setBreakpoints", source={"path": path}, breakpoints=wanted)["breakpoints"]

    def run_to(self, code, *lines):
        """Runs code up to its first breakpoint: the request's id and the innermost frame."""
        self.breakpoints(code, *lines)
        cell = self.client.start(code)
        stop = self.event("stopped")
        assert stop["reason"] == "breakpoint"
        return cell, self.frames()[0]

    def frames(self):
        return self.get("stackTrace", threadId=1)["stackFrames"]

    def scope(self, frame, name="Locals"):
        scopes = {s["name"]: s for s in self.get("scopes", frameId=frame["id"])["scopes"]}
        found = self.get("variables", variablesReference=scopes[name]["variablesReference"])["variables"]
        return {v["name"]: v for v in found}

    def go_on(self, cell):
        self.get("continue", threadId=1)
        return self.client.finish(cell)


@pytest.fixture
def debugger(client):
    d = Debugger(client)
    d.start()
    yield d
    d.get("disconnect", restart=False, terminateDebuggee=True)


@pytest.fixture
def own(start):
    """A debugger of a kernel of its own, for what ends its Python."""

    def make(**how):
        d = Debugger(start(**how).client)
        d.start()
        return d

    return make


def test_it_is_advertised(client):
    info = client.request("kernel_info_request").content
    assert info["debugger"] is True and "debugger" in info["supported_features"]


def test_before_it_is_started(client):
    d = Debugger(client)
    info = d.get("debugInfo")
    assert info["isStarted"] is False and info["breakpoints"] == [] and info["stoppedThreads"] == []
    assert info["hashMethod"] == "Murmur2" and info["hashSeed"] == 0xC70F6907
    assert client.run("import sys; 'debugpy' in sys.modules").result == "False"
    refused = d.ask("stackTrace", threadId=1)
    assert not refused["success"] and "not started" in refused["message"]


def test_without_debugpy(start):
    """A wheel's kernelspec promises the debugger to any Python; what is asked is refused with the cure."""
    client = start().client
    client.run("import sys; sys.modules['debugpy'] = None")
    d = Debugger(client)
    for command in ("initialize", "inspectVariables"):
        refused = d.ask(command)
        assert not refused["success"] and "pip install debugpy" in refused["message"], refused
    assert d.get("debugInfo")["isStarted"] is False
    assert client.run("1 + 1").result == "2"


def test_a_cell_has_the_name_that_was_dumped(client):
    d = Debugger(client)
    info, code = d.get("debugInfo"), "import sys; sys._getframe().f_code.co_filename  # ä"
    path = d.get("dumpCell", code=code)["sourcePath"]
    assert path.startswith(info["tmpFilePrefix"]) and path.endswith(info["tmpFileSuffix"])
    assert client.run(code).result == repr(path)
    assert d.get("source", source={"path": path})["content"] == code


def test_a_breakpoint(debugger, client):
    path, made = debugger.breakpoints(FUNCTION, 2)
    assert made[0]["verified"] and made[0]["line"] == 2 and made[0]["source"]["path"] == path
    assert debugger.get("debugInfo")["breakpoints"] == [{"source": path, "breakpoints": [{"line": 2}]}]
    cell, frame = debugger.run_to(FUNCTION, 2)
    assert debugger.get("debugInfo")["stoppedThreads"] == [1]
    frames = debugger.frames()
    assert [(f["name"], f["line"]) for f in frames] == [("add", 2), ("<module>", 5)]
    assert all(f["source"]["path"] == path for f in frames)  # nothing of what called the cell
    variables = debugger.scope(frame)
    assert variables["a"]["value"] == "2" and variables["b"]["type"] == "int" and "c" not in variables
    done = debugger.go_on(cell)
    assert done.ok and done.result == "5"
    debugger.event("continued")
    assert debugger.get("debugInfo")["stoppedThreads"] == []


@pytest.mark.parametrize("host", HOSTS)
def test_a_breakpoint_on_another_host(own, host):
    """Without control groups, namespaces or a new /proc; "none" for kernels that have no Landlock either."""
    if not os.environ.get("CELLBLOCK_BUILD"):
        pytest.skip("CELLBLOCK_BUILD is not set")
    d = own(argv=kernels.on_host(host, kernels.spec_argv()[0]), args=["--set", "isolation.minimum=none"])
    cell, frame = d.run_to(FUNCTION, 2)
    assert frame["name"] == "add" and d.scope(frame)["b"]["value"] == "3"
    assert d.go_on(cell).result == "5"


def test_steps(debugger):
    cell, frame = debugger.run_to(FUNCTION, 5)
    for command, line in ("stepIn", 2), ("next", 3), ("stepOut", 5), ("next", 6):
        debugger.get(command, threadId=1)
        debugger.event("stopped")
        assert debugger.frames()[0]["line"] == line
    assert debugger.go_on(cell).result == "5"


def test_a_condition(debugger):
    code = "for i in range(5):\n    x = i\nx"
    cell, frame = debugger.run_to(code, {"line": 2, "condition": "i == 3"})
    assert debugger.scope(frame, "Globals")["i"]["value"] == "3"
    assert debugger.get("debugInfo")["breakpoints"][0]["breakpoints"][0]["condition"] == "i == 3"
    assert debugger.go_on(cell).result == "4"


def test_leading_empty_lines(debugger):
    cell, frame = debugger.run_to("\n\n" + FUNCTION, 4)
    assert frame["line"] == 4 and frame["name"] == "add"
    assert debugger.go_on(cell).result == "5"


def test_an_awaiting_cell(debugger):
    code = "import asyncio\nasync def f(x):\n    await asyncio.sleep(0)\n    return x\nawait f(7)"
    cell, frame = debugger.run_to(code, 4)
    assert [f["name"] for f in debugger.frames()] == ["f", "<module>"]
    assert debugger.go_on(cell).result == "7"


def test_evaluate_and_set(debugger):
    cell, frame = debugger.run_to(FUNCTION, 3)
    assert debugger.get("evaluate", expression="a * 10", frameId=frame["id"], context="repl")["result"] == "20"
    debugger.get("setExpression", expression="c", value="99", frameId=frame["id"])
    assert debugger.scope(frame)["c"]["value"] == "99"
    bad = debugger.ask("evaluate", expression="nothing_such", frameId=frame["id"], context="repl")
    assert not bad["success"]
    assert debugger.go_on(cell).result == "99"


def test_variables_while_nothing_is_stopped(debugger, client):
    client.run("text = 'so'\nmany = {'one': [1, 2]}\n_1 = 2")
    found = {v["name"]: v for v in debugger.get("inspectVariables")["variables"]}
    assert found["text"]["value"] == "'so'" and "get_ipython" not in found and "_1" not in found
    inside = debugger.get("variables", variablesReference=found["many"]["variablesReference"])["variables"]
    assert "'one'" in [v["name"] for v in inside]
    rich = debugger.get("richInspectVariables", variableName="text")
    assert rich["data"] == {"text/plain": "'so'"}
    assert not debugger.ask("richInspectVariables", variableName="a b")["success"]
    assert not debugger.ask("richInspectVariables", variableName="nothing_such")["success"]


def test_rich_variables_of_a_frame(debugger, client):
    code = "class R:\n    def _repr_html_(self):\n        return '<b>é</b>'\ndef f():\n    r = R()\n    return 1\nf()"
    cell, frame = debugger.run_to(code, 6)
    rich = debugger.get("richInspectVariables", variableName="r", frameId=frame["id"])
    assert rich["data"]["text/html"] == "<b>é</b>" and "text/plain" in rich["data"]
    debugger.get("copyToGlobals", srcVariableName="r", dstVariableName="kept", srcFrameId=frame["id"])
    refused = debugger.ask("copyToGlobals", srcVariableName="r", dstVariableName="x']", srcFrameId=frame["id"])
    assert not refused["success"] and "identifiers" in refused["message"]
    debugger.go_on(cell)
    assert client.run("type(kept).__name__").result == "'R'"


def test_modules_threads_and_exceptions(debugger, client):
    every = debugger.get("modules")
    assert every["totalModules"] > 50 and any(m["name"] == "json" for m in every["modules"])
    assert len(debugger.get("modules", startModule=1, moduleCount=2)["modules"]) == 2
    assert [t["name"] for t in debugger.get("threads")["threads"]] == ["MainThread"]
    debugger.get("setExceptionBreakpoints", filters=["raised"])
    cell = client.start("def f():\n    return 1/0\ntry:\n    f()\nexcept ZeroDivisionError:\n    pass")
    assert debugger.event("stopped")["reason"] == "exception"
    about = debugger.get("exceptionInfo", threadId=1)
    assert "ZeroDivisionError" in about["exceptionId"]
    debugger.get("setExceptionBreakpoints", filters=[])
    assert debugger.go_on(cell).ok


def test_an_exception_that_nobody_catches(debugger, client):
    debugger.get("setExceptionBreakpoints", filters=["uncaught"])
    cell = client.start("def f():\n    inside = 7\n    return 1/0\ntry:\n    1/0\nexcept Exception:\n    pass\nf()")
    assert debugger.event("stopped")["reason"] == "exception"
    frame = debugger.frames()[0]
    assert frame["line"] == 3 and debugger.scope(frame)["inside"]["value"] == "7"
    done = debugger.go_on(cell)
    assert done.error["ename"] == "ZeroDivisionError"


def test_breakpoint_in_code(debugger, client):
    cell = client.start("x = 1\nbreakpoint()\ny = 2")
    debugger.event("stopped")
    assert debugger.frames()[0]["line"] == 3  # the first that runs after it
    assert debugger.go_on(cell).ok


def test_unknown_and_malformed(debugger, client):
    answer = debugger.ask("noSuchThing")
    assert not answer["success"] and "noSuchThing" in answer["message"]
    for content in {}, {"command": "threads"}, {"seq": "1", "command": "threads"}, {"seq": 1, "command": 5}:
        reply = client.request("debug_request", content, channel="control").content
        assert reply["ename"] == "MalformedRequestError"


def test_an_interrupt_ends_a_stopped_cell(debugger, client):
    for _ in range(2):  # and the next one stops again
        cell, frame = debugger.run_to(FUNCTION, 2)
        client.request("interrupt_request", {}, channel="control")
        done = client.finish(cell)
        assert done.error["ename"] == "KeyboardInterrupt"
        assert not any("pydevd" in line for line in done.error["traceback"])
        debugger.event("continued")
        assert debugger.get("debugInfo")["stoppedThreads"] == []
    client.run("1")


def test_terminate_ends_the_session_and_the_cell(own):
    d = own()
    cell, frame = d.run_to(FUNCTION, 2)
    d.get("terminate")
    d.event("terminated")
    assert d.client.finish(cell).error["ename"] == "KeyboardInterrupt"
    assert d.get("debugInfo")["isStarted"] is False


def test_one_session_after_the_other(client):
    for _ in range(3):
        d = Debugger(client)
        d.start()
        cell, frame = d.run_to(FUNCTION, 2)
        d.get("disconnect")
        assert client.finish(cell).result == "5"
        info = d.get("debugInfo")
        assert info["isStarted"] is False and info["breakpoints"] == []
        assert client.run(FUNCTION).result == "5"  # nothing stops any more
        look, end = "import sys, threading\nsys.gettrace(), threading.active_count()", deadline_in(None)
        while (left := client.run(look).result) != "(None, 1)":  # threads of the debugger's may be about to end
            assert time.monotonic() < end, left


def test_time_at_a_breakpoint_does_not_count(own):
    for limit in (3, 20):  # on a busy machine what is no wait may take as long as the limit
        d = own(args=["--set", f"timeout.cell={limit}"])
        with contextlib.suppress(NoMessage):
            cell, frame = d.run_to("import time\nx = 1\ntime.sleep(0.1)\nx", 3)
            with pytest.raises(NoMessage):
                d.client.reply(cell, timeout=limit + 1)
            done = d.go_on(cell)
            if done.ok:
                break
    assert done.ok, done
    spin = d.client.run("while True: pass")
    assert spin.error["ename"] == "CellTimeoutError"


def test_questions_are_answered_while_a_cell_is_stopped(debugger, client):
    cell, frame = debugger.run_to(FUNCTION, 2)
    assert "print" in client.question("complete_request", {"code": "pri", "cursor_pos": 3}).content["matches"]
    assert client.question("inspect_request", {"code": "len", "cursor_pos": 3, "detail_level": 0}).content["found"]
    assert debugger.go_on(cell).ok


def test_a_death_ends_the_session(own):
    d = own(args=["--set", "transactions.mode=off"])
    cell = d.client.run("import os; os._exit(3)")
    assert not cell.ok
    d.event("terminated")
    assert d.get("debugInfo")["isStarted"] is False
    d.start()
    cell, frame = d.run_to(FUNCTION, 2)
    assert d.go_on(cell).result == "5"


def test_a_take_over_ends_the_session(own):
    d = own(args=["--set", "transactions.mode=always"])
    d.breakpoints(FUNCTION, 2)
    before = d.get("debugInfo")["tmpFilePrefix"]
    d.client.run("kept = 1")
    dead = d.client.run("import os; os._exit(3)")
    assert dead.about["state"] == "restored"
    d.event("terminated")
    assert d.client.run(FUNCTION).result == "5"  # nobody is there to go on from a breakpoint
    info = d.get("debugInfo")
    assert info["isStarted"] is False and info["tmpFilePrefix"] == before
    d.start()
    cell, frame = d.run_to(FUNCTION, 2)
    assert d.go_on(cell).result == "5"
    assert d.client.run("kept").result == "1"


def test_a_restart_at_a_breakpoint(own):
    d = own()
    d.run_to(FUNCTION, 2)
    reply = d.client.request("shutdown_request", {"restart": True}, channel="control")
    assert reply.content["restart"] is True


def test_children_do_not_stop(debugger, client):
    code = "import os\ndef child():\n    x = 1\n    os._exit(7)\npid = os.fork()\nif not pid:\n    child()\n"
    code += "os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])"
    debugger.breakpoints(code, 3)
    assert client.run(code).result == "7"


def test_a_subshell_stops(debugger, client):
    subshell = client.request("create_subshell_request", {}, channel="control").content["subshell_id"]
    debugger.breakpoints(FUNCTION, 2)
    cell = client.start(FUNCTION, header=client.header("execute_request", subshell_id=subshell))
    thread = debugger.event("stopped")["threadId"]
    assert debugger.get("stackTrace", threadId=thread)["stackFrames"][0]["name"] == "add"
    assert debugger.go_on(cell).result == "5"
    client.request("delete_subshell_request", {"subshell_id": subshell}, channel="control")


def test_a_thread_stops(debugger, client):
    code = "import threading\ndef work():\n    x = 1\nt = threading.Thread(target=work)\nt.start()\nt.join()\n"
    code += "t.is_alive()"
    debugger.breakpoints(code, 3)
    cell = client.start(code)
    thread = debugger.event("stopped")["threadId"]
    assert thread != 1
    assert debugger.get("stackTrace", threadId=thread)["stackFrames"][0]["name"] == "work"
    assert debugger.go_on(cell).result == "False"
