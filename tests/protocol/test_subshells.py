"""Subshells (JEP 91): cells beside the main shell's, in threads of the same Python."""

import threading
import time
import uuid

import pytest

pytestmark = [pytest.mark.cellblock_only("the details are ours"), pytest.mark.once]


def create(client):
    c = client.request("create_subshell_request", {}, channel="control").content
    assert c["status"] == "ok"
    return c["subshell_id"]


def delete(client, subshell):
    return client.request("delete_subshell_request", {"subshell_id": subshell}, channel="control").content


def listed(client):
    return client.request("list_subshell_request", {}, channel="control").content["subshell_id"]


def start_in(client, subshell, code, *, metadata=None, **content):
    return client.start(
        code, header=client.header("execute_request", subshell_id=subshell), metadata=metadata, **content
    )


def run_in(client, subshell, code, **how):
    return client.finish(start_in(client, subshell, code, **how))


def interrupt(client, **header):
    header = client.header("interrupt_request", **header)
    assert client.request("interrupt_request", {}, channel="control", header=header).content["status"] == "ok"


@pytest.fixture
def subshell(client):
    made = create(client)
    yield made
    if made in listed(client):
        delete(client, made)


def test_life(client):
    assert "kernel subshells" in client.request("kernel_info_request").content["supported_features"]
    before = listed(client)
    one, two = create(client), create(client)
    assert uuid.UUID(one) != uuid.UUID(two)
    assert sorted(listed(client)) == sorted([*before, one, two])
    assert delete(client, one) == {"status": "ok"}
    assert delete(client, two) == {"status": "ok"}
    assert listed(client) == before


def test_an_unknown_one(client):
    assert delete(client, "a 'b\\")["ename"] == "UnknownSubshellError"
    cell = run_in(client, "no such", "1")
    assert cell.content["ename"] == "UnknownSubshellError" and cell.types == ["status", "status"]
    asked = client.send("comm_info_request", {}, header=client.header("comm_info_request", subshell_id="nobody"))
    assert client.reply(asked).content["ename"] == "UnknownSubshellError", "a request, unlike other messages of comms"
    msg = client.send("comm_msg", {"comm_id": "c", "data": {}}, header=client.header("comm_msg", subshell_id="no such"))
    assert [m.type for m in client.until_idle(msg)] == ["status", "status"]
    reply = client.request("delete_subshell_request", {}, channel="control").content
    assert reply["ename"] == "MalformedRequestError"


def test_there_is_a_most(start):
    c = start().client
    made = [create(c) for _ in range(64)]
    assert c.request("create_subshell_request", {}, channel="control").content["ename"] == "SubshellError"
    delete(c, made[0])
    create(c)
    assert run_in(c, made[1], "6*7").result == "42"


def test_one_namespace_and_one_count(client, subshell):
    client.run("x = 6")
    done = run_in(client, subshell, "y = x * 7\ny")
    assert done.ok and done.result == "42"
    assert done.of("execute_input")[0].content["execution_count"] == done.content["execution_count"]
    assert done.of("execute_result")[0].content["execution_count"] == done.content["execution_count"]
    after = client.run("y, Out[%d]" % done.content["execution_count"])
    assert after.result == "(42, 42)" and after.content["execution_count"] == done.content["execution_count"] + 1
    assert done.about["state"] == "kept" and done.about["limit"] is None


def test_beside_the_main_shell(client, subshell):
    """Neither could end without the other; each output is under its own cell."""
    client.run("import threading\na, b = threading.Event(), threading.Event()")
    main = client.start("a.set(); print('main')\nok = b.wait(60)\nprint('main end')\n'main', ok")
    beside = start_in(client, subshell, "ok2 = a.wait(60)\nprint('beside')\nb.set()\n'beside', ok2")
    one, two = client.finish(main), client.finish(beside)
    assert (one.result, two.result) == ("('main', True)", "('beside', True)")
    assert (one.text(), two.text()) == ("main\nmain end\n", "beside\n")
    assert one.content["execution_count"] != two.content["execution_count"]


def test_its_own_order_and_thread(client, subshell):
    ids = [start_in(client, subshell, f"import threading\n{i}, threading.current_thread().name") for i in range(5)]
    results = [client.finish(i).result for i in ids]
    assert [r.split(",")[0] for r in results] == [f"({i}" for i in range(5)]
    assert len({r.split(",")[1] for r in results}) == 1 and "subshell" in results[0]


def test_an_error_aborts_in_its_subshell_only(client, subshell, gate, new_gate):
    main = client.start("print('running', flush=True)\nopen('gate').read()")
    client.says(main, "running")
    after_main = client.start("'main went on'")
    go = new_gate(client.kernel, "go")
    bad, aborted = start_in(client, subshell, "open('go').read()\n1/0"), start_in(client, subshell, "2")
    client.request("kernel_info_request")  # both have come by then
    go()
    failed = client.finish(bad)
    assert failed.content["ename"] == "ZeroDivisionError" == failed.error["ename"]
    assert client.finish(aborted).content["status"] == "aborted"
    gate()
    assert client.finish(main).ok and client.finish(after_main).ok
    assert run_in(client, subshell, "3").result == "3"


def test_displays_errors_payloads_expressions(client, subshell):
    cell = run_in(client, subshell, "from IPython.display import display, HTML\ndisplay(HTML('<b>'))\nlen?")
    assert cell.of("display_data")[0].content["data"]["text/html"] == "<b>"
    assert cell.content["payload"][0]["source"] == "page"
    assert client.run("1").content["payload"] == []
    cell = run_in(client, subshell, "z = 5", user_expressions={"e": "z + 1"})
    assert cell.content["user_expressions"]["e"]["data"]["text/plain"] == "6"
    cell = run_in(client, subshell, "1+")
    assert cell.content["ename"] == "SyntaxError" and cell.error is not None
    assert run_in(client, subshell, "%%time\n'timed'").ok
    assert run_in(client, subshell, "import asyncio\nawait asyncio.sleep(0)\n'awaited'").result == "'awaited'"


def answer(client, value, **header):
    """To the question that came first; with a subshell's id in the header to that one's."""
    asked = client.wait("stdin", lambda m: m.type == "input_request")
    header = client.header("input_reply", **header)
    client.send("input_reply", {"value": value}, channel="stdin", parent=asked.header, header=header)
    return asked


def test_input(client, subshell):
    cell = start_in(client, subshell, "print('first')\nx = input('name? ')\nx", allow_stdin=True)
    client.says(cell, "first\n")
    asked = answer(client, "Zoë")
    assert asked.content == {"prompt": "name? ", "password": False}
    assert asked.parent_id == cell and asked.parent["subshell_id"] == subshell
    assert client.finish(cell).result == "'Zoë'"
    cell = start_in(client, subshell, "import getpass\ngetpass.getpass('pw: ')", allow_stdin=True)
    assert answer(client, "secret").content == {"prompt": "pw: ", "password": True}
    assert client.finish(cell).result == "'secret'"
    cell = start_in(client, subshell, "input()", allow_stdin=True)
    answer(client, "\x04")
    assert client.finish(cell).content["ename"] == "EOFError"
    assert run_in(client, subshell, "input()").content["ename"] == "StdinNotImplementedError"


def test_input_beside_the_main_shells(client, subshell):
    """The answer's subshell_id says whose it is; without one it is the main shell's."""
    main = client.start("input('main')", allow_stdin=True)
    assert client.wait("stdin").content["prompt"] == "main"
    beside = start_in(client, subshell, "input('beside')", allow_stdin=True)
    answer(client, "to the subshell", subshell_id=subshell)
    assert client.finish(beside).result == "'to the subshell'"
    client.send("input_reply", {"value": "to the main shell"}, channel="stdin")
    assert client.finish(main).result == "'to the main shell'"
    beside = start_in(client, subshell, "input('alone')", allow_stdin=True)
    answer(client, "found")
    assert client.finish(beside).result == "'found'"


def test_an_answer_to_a_deleted_one_is_no_other_cells(client):
    """Its cell still asks, and so does the main shell's: the answer, perhaps a password, names the subshell."""
    main = client.start("input('main')", allow_stdin=True)
    assert client.wait("stdin").content["prompt"] == "main"
    made = create(client)
    beside = start_in(client, made, "input('beside')", allow_stdin=True)
    asked = client.wait("stdin", lambda m: m.type == "input_request")
    assert delete(client, made) == {"status": "ok"}
    for text, where in ("secret", {"subshell_id": made}), ("nobody's", {"subshell_id": made}), ("main's", {}):
        header = client.header("input_reply", **where)
        client.send("input_reply", {"value": text}, channel="stdin", parent=asked.header, header=header)
    assert client.finish(beside).result == "'secret'"
    assert client.finish(main).result == '"main\'s"'


def test_an_interrupt_ends_the_wait_for_input(client, subshell):
    code = "try: input('one')\nexcept KeyboardInterrupt: print('interrupted')\ninput('two')"
    cell = start_in(client, subshell, code, allow_stdin=True)
    assert client.wait("stdin").content["prompt"] == "one"
    interrupt(client, subshell_id=subshell)
    assert answer(client, "2").content["prompt"] == "two"
    done = client.finish(cell)
    assert done.result == "'2'" and "interrupted" in done.text()


def test_waiting_for_input_is_no_running(start):
    c = start(args=["--set", "timeout.wait=1"]).client
    made = create(c)
    cell = start_in(c, made, "input()", allow_stdin=True, metadata={"cellblock": {"timeout": 600}})
    done = c.finish(cell)
    assert done.content["ename"] == "CellTimeoutError" and "timeout.wait" in done.content["evalue"]
    assert done.about["state"] == "kept" and run_in(c, made, "1").result == "1"


CODES = {
    "loop": "print('running', flush=True)\nwhile True: pass",
    "sleep": "import time\nprint('running', flush=True)\ntime.sleep(600)",
    "await": "import asyncio\nprint('running', flush=True)\nawait asyncio.sleep(600)",
    "event": "import threading\nprint('running', flush=True)\nthreading.Event().wait()",
    "queue": "import queue\nprint('running', flush=True)\nqueue.Queue().get(timeout=600)",
    "join": "import threading\ngo = threading.Event()\nt = threading.Thread(target=go.wait, daemon=True)\nt.start()\n"
    "print('running', flush=True)\ntry: t.join()\nfinally: go.set()",
    "child": "import subprocess\nprint('running', flush=True)\nsubprocess.run(['sleep', '600'])",
    "future": "from concurrent.futures import Future\nprint('running', flush=True)\nFuture().result()",
}


@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize("how", ["all", "one"])
def test_interrupt(client, subshell, name, how):
    cell = start_in(client, subshell, CODES[name])
    client.says(cell, "running")
    interrupt(client, **({"subshell_id": subshell} if how == "one" else {}))
    assert client.finish(cell).content["ename"] == "KeyboardInterrupt"
    assert run_in(client, subshell, "6*7").result == "42"


SEES = {
    "sleep": "import time\nfor i in range(3):\n    try:\n        print('seen', i, flush=True); time.sleep(600)\n"
    "    except KeyboardInterrupt: pass\n'done'",
    "loop": "for i in range(3):\n    try:\n        print('seen', i, flush=True)\n        while True: pass\n"
    "    except KeyboardInterrupt: pass\n'done'",
    "calls": "for i in range(3):\n    try:\n        print('seen', i, flush=True)\n"
    "        while True: sum(range(10**6))\n    except KeyboardInterrupt: pass\n'done'",
    "with": "import contextlib\nfor i in range(3):\n    with contextlib.suppress(KeyboardInterrupt):\n"
    "        print('seen', i, flush=True)\n        input()\n'done'",
    "await": "import asyncio\nfor i in range(3):\n    try:\n        print('seen', i, flush=True)\n"
    "        await asyncio.sleep(600)\n    except asyncio.CancelledError: pass\n'done'",
}


@pytest.mark.parametrize("name", SEES)
def test_one_that_was_taken_is_over(client, subshell, name):
    """The next is another one, not a second one that ends all of Python."""
    cell = start_in(client, subshell, SEES[name], allow_stdin=True)
    for i in range(3):
        client.says(cell, f"seen {i}")
        time.sleep(0.3)  # sooner it would be the same click
        interrupt(client, subshell_id=subshell)
    done = client.finish(cell)
    assert done.result == "'done'", done.content


def test_one_that_was_not_taken_is_not_over(start):
    """Its thread is in C code: the second one ends Python."""
    c = start(args=["--set", "transactions.mode=always"]).client
    made = create(c)
    cell = start_in(c, made, "print('runs', flush=True)\nsum(range(10**13))")
    c.says(cell, "runs")
    interrupt(c, subshell_id=made)
    time.sleep(0.6)  # of which it makes no use
    interrupt(c, subshell_id=made)
    assert c.finish(cell).about["state"] == "restored"


@pytest.mark.parametrize("why", ["interrupt", "time"])
def test_what_waits_in_c_code_ends_and_nothing_is_lost(start, why):
    """Nor is anything later, with the thread that still waits there."""
    c = start(args=["--set", "transactions.mode=always", "--set", "timeout.grace=60"]).client
    made = create(c)
    assert c.run("import threading\nlock = threading.Lock()\nlock.acquire()").ok
    limit = {"metadata": {"cellblock": {"timeout": 3}}} if why == "time" else {}
    cell = start_in(c, made, "print('running', flush=True)\nlock.acquire()", **limit)
    if why == "interrupt":
        c.says(cell, "running")
    assert c.run("kept = 1\nlock.locked()").result == "True"
    if why == "interrupt":
        interrupt(c, subshell_id=made)
    done = c.finish(cell)
    assert done.content["ename"] == ("KeyboardInterrupt" if why == "interrupt" else "CellTimeoutError")
    assert done.about["state"] == "kept" and run_in(c, made, "kept").result == "1"
    point = c.request("cellblock_checkpoint_request", {"name": "here"}, channel="control").content
    assert point["status"] == "ok", point
    died = run_in(c, made, "kept = 2\nimport os\nos._exit(1)")
    undone = died.about["undone"]
    assert died.about["state"] == "restored" and undone[-1] == died.content["execution_count"]
    assert died.about["restored_to"] == undone[0] - 1 and run_in(c, made, "kept").result == "1"


def test_interrupt_of_one_leaves_the_others(client, subshell, gate):
    main = client.start("print('running', flush=True)\nopen('gate').read()")
    client.says(main, "running")
    cell = start_in(client, subshell, CODES["loop"])
    client.says(cell, "running")
    interrupt(client, subshell_id=subshell)
    assert client.finish(cell).content["ename"] == "KeyboardInterrupt"
    gate()
    assert client.finish(main).ok


def test_time_limits_hold(start):
    c = start(args=["--set", "timeout.grace=60"]).client
    made = create(c)
    c.run("kept = 1")
    done = run_in(c, made, "while True: pass", metadata={"cellblock": {"timeout": 1}})
    assert done.content["ename"] == "CellTimeoutError" and done.about["limit"] == "time"
    assert done.about["state"] == "kept" and c.run("kept").result == "1"
    done = run_in(c, made, "1", metadata={"cellblock": {"memory": "64M"}})
    assert done.content["ename"] == "MalformedRequestError"


def test_what_does_not_stop_is_ended_and_subshells_outlive_it(start):
    c = start(args=["--set", "timeout.grace=1"]).client
    made = create(c)
    cell = start_in(
        c,
        made,
        "import time\nwhile True:\n    try:\n        while True: time.sleep(0.01)\n    except KeyboardInterrupt: pass",
        metadata={"cellblock": {"timeout": 1}},
    )
    done = c.finish(cell, timeout=60)
    assert done.content["ename"] == "CellTimeoutError" and done.about["state"] in ("lost", "restored")
    assert listed(c) == [made]
    assert run_in(c, made, "6*7").result == "42"


def test_python_dies(start):
    c = start().client
    made = create(c)
    cell = start_in(c, made, "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    done = c.finish(cell)
    assert done.content["ename"] == "KernelDiedError" and done.about["state"] in ("lost", "restored")
    assert run_in(c, made, "6*7").result == "42"


BOMB = "import mmap\nm, block = mmap.mmap(-1, 1 << 31), b'1' * (1 << 20)\nfor i in range(1 << 11): m.write(block)"


@pytest.mark.parametrize("mode, state", [("always", "restored"), ("off", "lost")])
def test_memory_runs_out(start, mode, state):
    c = start(args=["--set", "limits.memory=1G", "--set", f"transactions.mode={mode}"]).client
    made = create(c)
    c.run("kept = 1")
    done = run_in(c, made, BOMB)
    assert done.content["ename"] == "CellMemoryError" and "limits.memory" in done.content["evalue"], done.content
    assert (done.about["limit"], done.about["state"]) == ("memory", state), done.content
    assert run_in(c, made, "6*7").result == "42"


def test_a_memory_limit_of_the_main_shells_cell(start):
    """Holds for the whole process; what fails for it elsewhere says whose it is, and does not lift it."""
    c = start().client
    made = create(c)
    c.run("import threading\nlet_go = threading.Event()")
    code = "print('running', flush=True)\nlet_go.wait(60)\nimport resource\nresource.getrlimit(resource.RLIMIT_DATA)[0]"
    main = c.start(code, metadata={"cellblock": {"memory": "400M"}})
    c.says(main, "running")
    done = run_in(c, made, "b'1' * (1 << 30)")
    assert done.content["ename"] == "MemoryError"
    assert "the main shell's running cell is 400M" in "\n".join(done.content["traceback"]) + done.text("stderr")
    run_in(c, made, "let_go.set()")
    assert c.finish(main).result == str(400 << 20)


@pytest.mark.parametrize("channel", ["control", "shell"])
def test_no_rollback_under_a_running_cell(start, channel):
    c = start().client
    made = create(c)
    c.run("import threading\nlet_go = threading.Event()")
    c.run("x = 1")
    c.request("cellblock_checkpoint_request", {"name": "one"}, channel="control")
    cell = start_in(c, made, "print('running', flush=True)\nlet_go.wait(60)\nx = 2\n'ended'")
    c.says(cell, "running")
    back = {"name": "one"}
    assert c.request("cellblock_rollback_request", back, channel=channel).content["ename"] == "KernelBusyError"
    c.run("let_go.set()")
    assert c.finish(cell).result == "'ended'"
    assert c.request("cellblock_rollback_request", back, channel=channel).content["status"] == "ok"
    assert c.run("x").result == "1"
    assert run_in(c, made, "x").result == "1"


def test_a_fork_beside_it(client, subshell):
    """Python's own hooks find nothing in the child that they stumble over."""
    code = (
        "import os, threading, warnings\nwith warnings.catch_warnings():\n"
        "    warnings.simplefilter('ignore')  # newer Pythons advise against it\n    pid = os.fork()\n"
        "if not pid: os._exit(40 + threading.active_count())\n"
        "os.waitpid(pid, 0)[1] >> 8"
    )
    for cell in (run_in(client, subshell, code), client.run(code)):
        assert (cell.result, cell.text("stderr")) == ("41", "")


def test_deleted_while_busy(client):
    """What runs ends by itself, or is interrupted, and is answered; what waits is aborted; its id is unknown from then
    on."""
    made = create(client)
    code = (
        "import threading\ntry:\n    print('running', flush=True)\n    threading.Event().wait(60)\n"
        "except KeyboardInterrupt: said = input()\nsaid"
    )
    cell = start_in(client, made, code, allow_stdin=True)
    client.says(cell, "running")
    waits = start_in(client, made, "1")
    assert delete(client, made) == {"status": "ok"}
    assert client.finish(waits).content["status"] in ("aborted", "error")  # or it came after the deletion
    assert run_in(client, made, "1").content["ename"] == "UnknownSubshellError"
    interrupt(client)
    answer(client, "ended")
    assert client.finish(cell).result == "'ended'"


@pytest.fixture
def comm(client, subshell):
    """Sends a comm message to the subshell."""
    return lambda kind, **content: client.send(kind, content, header=client.header(kind, subshell_id=subshell))


def test_comms_are_served_while_a_cell_runs(client, comm, gate):
    client.run(
        "def opened(comm, msg):\n    comm.on_msg(lambda m: comm.send({'got': m['content']['data']}))\n"
        "get_ipython().kernel.comm_manager.register_target('t', opened)"
    )

    client.until_idle(comm("comm_open", comm_id="c1", target_name="t", data={}))
    cell = client.start("print('running', flush=True)\nopen('gate').read()")
    client.says(cell, "running")
    for n in range(3):
        said = client.until_idle(comm("comm_msg", comm_id="c1", data={"n": n}))
        assert [m.content["data"] for m in said if m.type == "comm_msg"] == [{"got": {"n": n}}]
    gate()
    assert client.finish(cell).ok


def test_a_comms_handler_runs_a_cell(client, comm, gate):
    """One that awaits, in the main shell and in a subshell: it is no client's."""
    client.run(
        "import asyncio\nran = []\ndef opened(comm, msg):\n"
        "    comm.on_msg(lambda m: ran.append(get_ipython().run_cell('await asyncio.sleep(0, 7)').success))\n"
        "get_ipython().kernel.comm_manager.register_target('runs', opened)"
    )

    client.until_idle(comm("comm_open", comm_id="r1", target_name="runs", data={}))
    client.until_idle(comm("comm_msg", comm_id="r1", data={}))
    cell = client.start("print('running', flush=True)\nopen('gate').read()")
    client.says(cell, "running")
    client.until_idle(comm("comm_msg", comm_id="r1", data={}))
    gate()
    assert client.finish(cell).ok
    assert client.run("ran").result == "[True, True]"


def test_comms_reach_a_cell_that_awaits(client, subshell, comm):
    """What it waits for may be one of them; they go past a cell that waits."""
    client.run(
        "import asyncio, threading\nwaits = {}\n"
        "def opened(comm, msg):\n"
        "    comm.on_msg(lambda m: waits[m['content']['data']].set_result(threading.current_thread().name))\n"
        "get_ipython().kernel.comm_manager.register_target('waits', opened)"
    )

    client.until_idle(comm("comm_open", comm_id="w1", target_name="waits", data={}))
    code = (
        "waits.update(a=asyncio.Future(), b=asyncio.Future())\nprint('running', flush=True)\n"
        "await waits['a'], await waits['b']"
    )
    cell = start_in(client, subshell, code)
    behind = start_in(client, subshell, "'after'")
    client.says(cell, "running")
    said = [comm("comm_msg", comm_id="w1", data=name) for name in "ab"]
    assert client.finish(cell).result.count("subshell") == 2  # in its own thread
    for each in said:
        client.until_idle(each)
    assert client.finish(behind).result == "'after'"


def test_what_a_comms_handler_begins_goes_on(client, subshell, comm, gate):
    """JupyterLab sends widgets' messages to subshells: `button.on_click(lambda _: asyncio.create_task(work()))`."""
    client.run(
        "import asyncio, threading\nsteps, done, kept = [], threading.Event(), []\n"
        "async def work():\n"
        "    kept.append(asyncio.get_running_loop())\n    print('begun')\n    await asyncio.sleep(0.01)\n"
        "    steps.append(threading.current_thread().name)\n    done.set()\n"
        "def opened(comm, msg):\n    comm.on_msg(lambda m: kept.append(asyncio.create_task(work())))\n"
        "get_ipython().kernel.comm_manager.register_target('begins', opened)"
    )
    client.until_idle(comm("comm_open", comm_id="b1", target_name="begins", data={}))
    cell = client.start("print('running', flush=True)\nopen('gate').read()")
    client.says(cell, "running")
    clicked = comm("comm_msg", comm_id="b1", data={})
    client.says(clicked, "begun")
    gate()
    assert client.finish(cell).ok
    assert client.run("done.wait(60)").result == "True"
    assert "subshell" in client.run("steps").result
    assert run_in(client, subshell, "'next', kept[1] is asyncio.get_running_loop()").result == "('next', True)"
    calls = "asyncio.run_coroutine_threadsafe(asyncio.sleep(0, 42), kept[1]).result(60)"  # while it has nothing to do
    assert client.run(calls).result == "42"
    run_in(client, subshell, "asyncio.get_running_loop().call_later(0.01, lambda: 1 / 0)")
    for n in range(20):  # frames come while a task runs, and end no cell's wait
        assert run_in(client, subshell, f"kept.append(asyncio.create_task(work())); await asyncio.sleep(0, {n})").ok
    assert run_in(client, subshell, "await asyncio.gather(asyncio.sleep(0.02, 1))").result == "[1]"


def test_one_that_ends_leaves_nothing_open(start):
    c = start(args=["--set", "transactions.mode=off"]).client
    c.run(
        "import asyncio, gc, os, threading, traceback\nasync def work(): await asyncio.sleep(0)\n"
        "async def never(): await asyncio.sleep(99)\n"
        "class Loop(asyncio.SelectorEventLoop):\n    def _make_self_pipe(self):\n"
        "        self.depth = len(traceback.extract_stack())\n        super()._make_self_pipe()\n"
        "gc.disable()"
    )
    count = (
        "for t in threading.enumerate():\n    'subshell' in t.name and t.join()\n"
        "loop = Loop(); loop.close()\nloop.depth, len(os.listdir('/proc/self/fd'))"
    )

    def use():
        made = create(c)
        assert run_in(c, made, "t = asyncio.create_task(never()); await work()").ok
        assert delete(c, made) == {"status": "ok"}

    use()
    before = c.run(count).result
    for _ in range(50):
        use()
    last = c.run(count)
    assert last.result == before and last.text() == ""
    assert c.run("del t; _ = gc.collect()").text() == ""


def test_output_is_the_cells_own_however_many_run_beside_it(start):
    """The supervisor keeps whom output belongs to for 1,024 requests, and for those under way."""
    c = start(args=["--set", "transactions.mode=off"]).client
    assert c.run("import threading; go = threading.Event()").ok
    slow = start_in(c, create(c), "print('begun', flush=True); go.wait(600); print('late')")
    c.says(slow, "begun")
    for _ in range(1100):
        assert c.run("1").ok
    c.run("go.set()")
    assert c.finish(slow).text() == "begun\nlate\n"


def test_nothing_of_an_overlay_is_written_while_its_cell_runs(start):
    c = start(args=["--set", "workspace.mode=overlay"]).client
    made = c.run("import threading; go = threading.Event()")
    if not made.ok and made.content["ename"] == "IsolationError":
        pytest.skip(f"no overlay on this host: {made.content['evalue']}")
    running = start_in(c, create(c), "open('half', 'w').close(); print('begun', flush=True); go.wait(600)")
    c.says(running, "begun")
    for op in ("commit", "discard"):
        for channel in ("control", "shell"):
            refused = c.request("cellblock_file_request", {"op": op}, channel=channel).content
            assert refused["ename"] == "KernelBusyError" and "subshell" in refused["evalue"], refused
    assert c.request("cellblock_file_request", {"op": "changes"}, channel="control").content["status"] == "ok"
    assert c.run("go.set()").ok and c.finish(running).ok
    assert c.request("cellblock_file_request", {"op": "commit"}, channel="control").content["added"] == 1


def test_many_clients_and_subshells(start):
    """Answers find their way, in order for each."""
    k = start()
    k.client.run("import time")
    makers, faults = [create(k.client) for _ in range(4)], []
    clients = [start.client(k) for _ in makers]

    def work(client, made):
        try:
            for n in range(25):
                assert run_in(client, made, f"print({n})\n{n}").result == str(n)
        except Exception as e:
            faults.append(e)

    for client in clients:
        client.ready()  # they have subscribed
    threads = [threading.Thread(target=work, args=a) for a in zip(clients, makers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults, faults


def test_signals_are_the_main_threads_and_the_subshells(client, subshell):
    """One that a cell sends to its own process, holds back and waits for must not end up in a thread of ours; children
    of a subshell inherit what it blocks, which is nothing."""
    blocked = "[l.split()[1] for l in open(f'/proc/self/task/{t}/status') if l.startswith('SigBlk')][0]"
    main = "import os, threading\nother = [t for t in os.listdir('/proc/self/task') if int(t) != os.getpid()]\n"
    assert run_in(client, subshell, f"{main}t = threading.get_native_id()\nprint({blocked})").text() == "0" * 16 + "\n"
    client.run("print('the flusher runs, too')")
    code = f"{main}lane = t\nfor t in other:\n    if int(t) != lane: print(int({blocked}, 16) >> 9 & 1)"
    assert set(client.run(code).text().split()) == {"1"}


FULL = """import threading
go, held = threading.Event(), []
try:
    while True:
        held.append(threading.Thread(target=go.wait))
        held[-1].start()
except RuntimeError:
    del held[-1]
print('full', flush=True)
go.wait()"""


def test_where_no_more_threads_can_be_had(start):
    """What needs one fails, and does not wait for ever; later it works."""
    sets = ("limits.pids=40", "limits.memory=1G", "transactions.mode=off")
    c = start(args=[word for s in sets for word in ("--set", s)]).client
    made = create(c)
    cell = c.start(FULL)
    c.says(cell, "full")
    done = run_in(c, made, "1")
    assert done.content["ename"] == done.error["ename"] == "RuntimeError"
    assert "limits.pids is 40" in done.error["evalue"] and "limits.pids is 40" in done.error["traceback"][0]
    assert c.question("complete_request", {"code": "hel", "cursor_pos": 3}).content["matches"] == []
    debug = {"type": "request", "seq": 1, "command": "debugInfo", "arguments": {}}
    assert not c.request("debug_request", debug, channel="control").content["success"]
    interrupt(c)
    assert c.finish(cell).content["ename"] == "KeyboardInterrupt"
    assert c.run("go.set()\nfor each in held: each.join()").ok
    assert run_in(c, made, "6*7").result == "42"
    assert c.request("debug_request", debug, channel="control").content["success"]
