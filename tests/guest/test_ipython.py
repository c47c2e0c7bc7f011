"""What IPython adds: magics, commands, completion, inspection, payloads, configuration."""

import os
import re

import pytest

pytestmark = pytest.mark.usefixtures("ipython")


def clean(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\r", "")


def test_shell_as_libraries_see_it(guest):
    code = """ip = get_ipython()
(type(ip).__name__, type(ip).__module__, 'IPKernelApp' in ip.config, 'zmq' in str(type(ip)).lower(), ip.kernel.shell is
ip,
 ip.has_trait('kernel'), ip.kernel is not None, any(c.__name__ == 'ZMQInteractiveShell' for c in type(ip).__mro__))"""
    assert eval(guest.run(code).result) == (
        "ZMQInteractiveShell",
        "ipykernel.zmqshell",
        True,
        True,
        True,
        True,
        True,
        True,
    )
    assert guest.run("from IPython import get_ipython as g; g() is ip").result == "True"
    assert (
        guest.run("from IPython.core.interactiveshell import InteractiveShell as I; I.instance() is ip").result
        == "True"
    )


def test_commands(guest):
    assert clean(guest.run("!echo one; echo two >&2").stdout) == "one\ntwo\n"
    assert guest.run("x = !echo three\nx").result == "['three']"
    assert guest.run("v = 5\ny = !echo $v {v + 1}\ny").result == "['5 6']"
    assert guest.run("!exit 3\n_exit_code").result == "3"
    assert guest.run("get_ipython().system('true')").ok
    assert guest.run("!sleep 1 &").error["ename"] == "OSError"


def test_commands_show_lines_and_both_streams_in_order(guest):
    """No \\r\\n; a terminal, as people's tools expect; what is left in the background does not hold the cell."""
    code = "!for i in 1 2 3; do echo out $$i; echo err $$i >&2; done; test -t 1 && stty size; sleep 100 & echo end"
    assert guest.run(code).stdout == "".join(f"out {i}\nerr {i}\n" for i in (1, 2, 3)) + "24 80\nend\n"
    big = guest.run("!head -c 3000000 /dev/zero | tr '\\0' x; echo; sh -c 'kill -9 $PPID'")
    assert len(big.stdout) == 3000001 and guest.run("_exit_code").result == "-9"


def test_the_last_words_of_a_command(new_guest):
    """Written after a look at the terminal, and before the look at the command, which has ended by then."""
    guest = new_guest()
    guest.run(
        "import os, subprocess\nos.mkfifo('go')\nreal = subprocess.Popen.poll\n"
        "def poll(process):\n    subprocess.Popen.poll = real\n    with open('go', 'w') as go: go.write('now\\n')\n"
        "    return process.wait()\nsubprocess.Popen.poll = poll"
    )
    assert guest.run("!read x < go; seq 1500").stdout == "".join("%d\n" % i for i in range(1, 1501))


def test_cell_magics(guest):
    result = guest.run("%%bash\necho out; echo err >&2")
    assert "out\n" in result.stdout and "err\n" in result.stderr
    assert guest.run("%%bash\nexit 4").error["ename"] == "CalledProcessError"
    assert "CPU times" in guest.run("%%time\nx = 1").stdout
    assert guest.run("%%time\n1 + 1").result == "2"
    assert guest.run("%timeit -n1 -r1 1").stdout
    assert guest.run("%%writefile made.txt\nhello").ok and guest.run("open('made.txt').read()").result == "'hello\\n'"
    assert guest.run("%%python\nprint(6)").stdout == "6\n"
    assert guest.run("%%html\n<b>x</b>").of("DISPLAY_DATA")[0].content["data"]["text/html"].strip() == "<b>x</b>"
    assert guest.run("%%nope\n1").error["ename"] == "UsageError"


def test_line_magics(guest):
    guest.run("shown = 1")
    assert "shown" in guest.run("%who").stdout
    assert guest.run("%pwd").result.startswith("'/")
    assert guest.run("pwd").result.startswith("'/")
    assert guest.run("%cd /").stdout == "/\n"
    guest.run("%cd -q -")
    assert guest.run("d = %pwd\nlen(d) > 1").result == "True"
    assert "'shown'" in guest.run("%who_ls").result
    assert guest.run("%env PAGER").result == "'cat'"
    assert guest.run("%lsmagic").ok
    assert guest.run("%colors nocolor").ok
    assert "\x1b" not in "".join(guest.run("1/0").error["traceback"])
    guest.run("%colors Linux" if guest.interpreter.ipython < (9,) else "%colors linux")
    assert guest.run("%xmode Minimal").ok and guest.run("%xmode Context").ok


def test_run_and_load(guest):
    guest.run("open('script.py', 'w').write('value = 12\\nprint(__name__)\\n')")
    assert guest.run("%run script.py").stdout == "__main__\n"
    assert guest.run("value").result == "12"
    payload = guest.run("%load script.py").reply["payload"]
    assert (
        payload[0]["source"] == "set_next_input"
        and "value = 12" in payload[0]["text"]
        and payload[0]["replace"] is True
    )


def test_pager(guest):
    payload = guest.run("len?").reply["payload"]
    assert payload[0]["source"] == "page" and payload[0]["start"] == 0
    assert "Return the number of items" in clean(payload[0]["data"]["text/plain"])
    guest.run("def mine():\n    'words'\n    return 1")
    assert "return 1" in clean(guest.run("mine??").reply["payload"][0]["data"]["text/plain"])
    assert guest.run("1").reply["payload"] == []


def test_next_input(guest):
    result = guest.run("get_ipython().set_next_input('more')")
    assert result.reply["payload"] == [{"source": "set_next_input", "text": "more", "replace": False}]


def test_payload_survives_an_error(guest):
    result = guest.run("get_ipython().set_next_input('more'); 1/0")
    assert result.reply["payload"] and not result.ok


def test_history_of_the_session(new_guest):
    guest = new_guest()
    guest.run("first = 1")
    guest.run("'second'")
    assert guest.run("%history").stdout == "first = 1\n'second'\n%history\n"
    assert guest.run("In[1], Out[2], _i1, _i2, _2").result.startswith("('first = 1', 'second', 'first = 1'")
    assert guest.run("%recall 1").ok
    assert guest.run("%macro m 1").ok and guest.run("m").ok
    assert guest.run("%rerun 2").ok
    assert guest.run("import threading\n[t.name for t in threading.enumerate() if 'History' in t.name]").result == "[]"


def test_run_cell_inside_a_cell(guest):
    result = guest.run("r = get_ipython().run_cell('1/0')\nprint(r.success, type(r.error_in_exec).__name__)")
    assert "False ZeroDivisionError" in result.stdout
    assert guest.run("get_ipython().run_cell('4 + 4')\nNone").result == "8"
    assert guest.run("get_ipython().run_line_magic('pwd', '')").result.startswith("'/")
    assert guest.run("get_ipython().ev('2 + 2')").result == "4"


def test_a_cell_that_a_cell_has_stored(new_guest):
    """Each number keeps its own source in In, of those before and after."""
    guest = new_guest()
    guest.run("get_ipython().run_cell('inner = 1', store_history=True); 'outer'")
    own = guest.run("In[1][-7:], _i1 == In[1], _i, len(In)")
    assert own.result == "(\"'outer'\", True, 'inner = 1', 3)"
    assert guest.run("In[2][:2], _i2 == In[2], len(In)").result == "('In', True, 4)"


@pytest.mark.parametrize("wait", ["t.join()", "while t.is_alive(): await asyncio.sleep(0.01)"])
def test_a_threads_cell_awaits_in_a_loop_of_its_own(guest, wait):
    """Whatever the cells' own loop does meanwhile."""
    guest.run(
        "import asyncio, threading\nmain, ran = asyncio.get_running_loop(), []\ndef work():\n"
        "    code = 'await asyncio.sleep(0); ran.append(asyncio.get_running_loop() is main)'\n"
        "    ran.append(get_ipython().run_cell(code).success)"
    )
    result = guest.run("t = threading.Thread(target=work); t.start()\n%s\nran" % wait)
    assert result.result == "[False, True]" and not result.stderr
    assert guest.run("await asyncio.sleep(0, asyncio.get_running_loop() is main)").result == "True"


def test_events(guest):
    code = """ip, seen = get_ipython(), []
ip.events.register('pre_execute', lambda: seen.append('pre'))
ip.events.register('pre_run_cell', lambda info: seen.append(info.raw_cell))
ip.events.register('post_run_cell', lambda result: seen.append(result.success))
ip.events.register('post_execute', lambda: seen.append('post'))"""
    guest.run(code)
    guest.run("del seen[:]")
    guest.run("7")
    assert "'pre', '7', 'post', True" in guest.run("seen").result
    guest.run(
        "for name in list(ip.events.callbacks):\n    for f in ip.events.callbacks[name][:]:\n"
        "        if '<lambda>' in getattr(f, '__name__', ''): ip.events.unregister(name, f)"
    )


def test_event_that_fails(guest):
    guest.run("def bad(): raise ValueError('in an event')\nget_ipython().events.register('post_execute', bad)")
    result = guest.run("1")
    assert "in an event" in result.stdout + str(result.error)
    guest.run("get_ipython().events.unregister('post_execute', bad)")


def test_input_transformers_and_ast(guest):
    guest.run(
        "def shout(lines): return [l.replace('LOUD', 'loud') for l in lines]\n"
        "get_ipython().input_transformers_post.append(shout)"
    )
    assert guest.run("'LOUD'").result == "'loud'"
    guest.run("get_ipython().input_transformers_post.clear()")
    guest.run(
        "import ast\nclass Twice(ast.NodeTransformer):\n    def visit_Constant(self, n):\n"
        "        return ast.copy_location(ast.Constant(n.value * 2), n) if type(n.value) is int else n\n"
        "get_ipython().ast_transformers.append(Twice())"
    )
    assert guest.run("4").result == "8"
    guest.run("get_ipython().ast_transformers.clear()")
    guest.run(
        "def cleanup(lines): return [l.replace('QUIET', 'quiet') for l in lines]\n"
        "get_ipython().input_transformers_cleanup.append(cleanup)"
    )
    assert guest.run("'QUIET'").result == "'quiet'"
    guest.run("get_ipython().input_transformers_cleanup.pop()")


def test_own_magics(guest):
    guest.run(
        "from IPython.core.magic import register_line_magic\n@register_line_magic\ndef triple(line): return line * 3"
    )
    assert guest.run("%triple ab").result == "'ababab'"
    guest.run("del triple")
    assert guest.run("triple ab").result == "'ababab'"
    assert guest.run("%config InteractiveShell.ast_node_interactivity = 'all'").ok
    assert [f.content["data"]["text/plain"] for f in guest.run("1\n2").of("EXECUTE_RESULT")] == ["1", "2"]
    guest.run("%config InteractiveShell.ast_node_interactivity = 'last_expr'")
    guest.run("%config InteractiveShell.ast_node_interactivity = 'last_expr_or_assign'")
    assert guest.run("q = 9").result == "9"
    guest.run("%config InteractiveShell.ast_node_interactivity = 'last_expr'")


def test_autocall_and_automagic(guest):
    guest.run("%autocall 1")
    assert guest.run("len 'abc'").result == "3"
    guest.run("%autocall 0")
    guest.run("%automagic off")
    assert guest.run("pwd").error["ename"] == "NameError"
    guest.run("%automagic on")


def test_completion(guest):
    guest.run(
        "value_of_mine = {'key one': 1}\nclass Thing:\n    attribute_a = 1\n    def method_b(self): pass\n"
        "thing = Thing()"
    )
    reply = guest.ask("COMPLETE", code="value_of", cursor_pos=8)
    assert reply["matches"] == ["value_of_mine"] and (reply["cursor_start"], reply["cursor_end"]) == (0, 8)
    reply = guest.ask("COMPLETE", code="x = thing.att", cursor_pos=13)
    assert [m.split(".")[-1] for m in reply["matches"]] == ["attribute_a"]
    assert reply["metadata"]["_jupyter_types_experimental"][0]["end"] == 13
    assert "os" in guest.ask("COMPLETE", code="import o", cursor_pos=8)["matches"]
    assert guest.ask("COMPLETE", code="%tim", cursor_pos=4)["matches"]
    assert any("key one" in m for m in guest.ask("COMPLETE", code="value_of_mine['", cursor_pos=15)["matches"])
    reply = guest.ask("COMPLETE", code="é = 1\nvalue_of", cursor_pos=14)
    assert reply["cursor_start"] == 6
    assert guest.ask("COMPLETE", code="zzzz", cursor_pos=4)["matches"] == []
    assert guest.ask("COMPLETE", code="", cursor_pos=0)["status"] == "ok"
    assert guest.ask("COMPLETE", code="value_of", cursor_pos=99)["status"] == "ok"


@pytest.mark.parametrize("jedi", [True, False])  # it is not asked while a cell runs
def test_completion_of_an_attribute_names_it_alone(guest, jedi):
    guest.run("class Thing: pass\nthing = Thing()\nthing.one = Thing()\nthing.one.attribute_a = 1")
    guest.run(f"%config Completer.use_jedi = {jedi}")
    reply = guest.ask("COMPLETE", code="x = thing.one.att", cursor_pos=17)
    guest.run("%config Completer.use_jedi = True")
    assert (reply["matches"], reply["cursor_start"], reply["cursor_end"]) == (["attribute_a"], 14, 17)
    found = reply["metadata"]["_jupyter_types_experimental"][0]
    assert (found["text"], found["start"], found["end"]) == ("attribute_a", 14, 17)


def test_inspection(guest):
    guest.run("def documented(a, b=2):\n    '''words of it'''\n    return a")
    reply = guest.ask("INSPECT", code="documented", cursor_pos=10, detail_level=0)
    text = clean(reply["data"]["text/plain"])
    assert (
        reply["found"] and "documented(a, b=2)" in text and "words of it" in text and "text/html" not in reply["data"]
    )
    assert "return a" in clean(
        guest.ask("INSPECT", code="documented(", cursor_pos=11, detail_level=1)["data"]["text/plain"]
    )
    missing = guest.ask("INSPECT", code="no_such_name", cursor_pos=4, detail_level=0)
    assert missing["found"] is False and missing["data"] == {} and missing["status"] == "ok"


@pytest.mark.parametrize(
    "code, status",
    [
        ("1", "complete"),
        ("for i in x:", "incomplete"),
        ("1 +* 2", "invalid"),
        ("%%bash\nx", "incomplete"),
        ("!ls", "complete"),
        ("await x", "complete"),
    ],
)
def test_is_complete(guest, code, status):
    version = guest.interpreter.ipython
    if code == "await x" and (version < (7, 33) or version == (8, 0)):
        pytest.skip("this IPython itself calls it invalid")
    reply = guest.ask("IS_COMPLETE", code=code)
    assert reply["status"] == status
    assert ("indent" in reply) == (status == "incomplete")


def test_a_runner_of_another_loop(new_guest):
    guest = new_guest()
    guest.run(
        "import types\n@types.coroutine\ndef ask(n): return (yield n)\n"
        "def runner(coroutine):\n    said = []\n    try:\n        value = None\n        while True:\n"
        "            said.append(coroutine.send(value)); value = said[-1] * 2\n"
        "    except StopIteration as e:\n        ran.append(said); return e.value\nran = []"
    )
    assert guest.run("%autoawait runner\nNone").ok
    assert guest.run("x = await ask(21)\nx").result == "42"
    assert guest.run("await ask(1)\n1/0").error["ename"] == "ZeroDivisionError"
    assert guest.run("ran").result == "[[21], [1]]"
    assert guest.run("%autoawait asyncio\nNone").ok
    assert guest.run("import asyncio\nawait asyncio.sleep(0, 5)").result == "5"


def test_trio(new_guest):
    guest = new_guest()
    if not guest.run("import trio").ok:
        pytest.skip("no trio")
    guest.run("%autoawait trio")
    code = "async with trio.open_nursery() as n: n.start_soon(trio.sleep, 0.001)\nawait trio.sleep(0)\n'slept'"
    assert guest.run(code).result == "'slept'"
    guest.start("print('go', flush=True)\nawait trio.sleep(600)")
    guest.until("STREAM", lambda f: "go" in f.content)
    guest.interrupt()
    assert guest.finish().error["ename"] == "KeyboardInterrupt"
    assert guest.run(code).result == "'slept'"


def test_profile(new_guest, tmp_path):
    profile = tmp_path / ".ipython" / "profile_default"
    (profile / "startup").mkdir(parents=True)
    (profile / "startup" / "10-first.py").write_text("from_startup = 5\nprint('starting')")
    (profile / "startup" / "20-second.ipy").write_text("x = %pwd\n")
    (profile / "ipython_config.py").write_text(
        "c.InteractiveShell.ast_node_interactivity = 'all'\nc.InteractiveShellApp.exec_lines = ['from_line = 6']\n"
    )
    guest = new_guest(env={"HOME": str(tmp_path)})
    result = guest.run("from_startup\nfrom_line\nx")
    assert [f.content["data"]["text/plain"] for f in result.of("EXECUTE_RESULT")][:2] == ["5", "6"]
    assert any("starting" in f.content for f in guest.seen if f.kind == "STREAM")


def test_profile_of_kernels(new_guest, tmp_path):
    """The application's own section goes before, or adds to, that of all shells'."""
    profile = tmp_path / ".ipython" / "profile_default"
    profile.mkdir(parents=True)
    (tmp_path / "a_file.py").write_text("from_file = 7\n")
    (tmp_path / "start.py").write_text("started = 1\n")
    (profile / "ipython_config.py").write_text(
        "c.InteractiveShellApp.exec_lines = ['line = [1]']\nc.InteractiveShellApp.exec_files = ['none.py']\n"
        "c.InteractiveShellApp.extensions.append('ext_a')\n"
    )
    (profile / "ipython_kernel_config.py").write_text(
        "c.IPKernelApp.exec_lines.append('line.append(2)')\nc.IPKernelApp.exec_files = ['~/a_file.py']\n"
        "c.IPKernelApp.exec_PYTHONSTARTUP = False\nc.IPKernelApp.extensions.append('ext_b')\n"
    )
    for name in "ab":
        text = "def load_ipython_extension(ip): ip.push({'ext_%s': 1})" % name
        (tmp_path / ("ext_%s.py" % name)).write_text(text)
    env = {"HOME": str(tmp_path), "PYTHONPATH": str(tmp_path), "PYTHONSTARTUP": str(tmp_path / "start.py")}
    guest = new_guest(env=env)
    assert guest.run("line, from_file, ext_a, ext_b, 'started' in globals()").result == "([1, 2], 7, 1, 1, False)"


def test_a_profile_is_run_in_ipythons_order(new_guest, tmp_path):
    """And the names that it makes are not shown as the user's, but for `_`, which is told by that."""
    profile = tmp_path / ".ipython" / "profile_default"
    (profile / "startup").mkdir(parents=True)
    (tmp_path / "start.py").write_text("order = ['PYTHONSTARTUP']\n")
    (tmp_path / "last.py").write_text("order.append('exec_files')\n")
    (profile / "startup" / "1.py").write_text("order.append('startup')\n")
    (profile / "ipython_config.py").write_text(
        "c.InteractiveShellApp.exec_lines = ['order.append(\"exec_lines\")', '_ = len']\n"
        "c.InteractiveShellApp.exec_files = [%r]\n" % str(tmp_path / "last.py")
    )
    env = {"HOME": str(tmp_path), "PYTHONSTARTUP": str(tmp_path / "start.py")}
    guest = new_guest(env=env)
    assert guest.run("%who_ls").result == "[]"
    assert guest.run("order").result == "['PYTHONSTARTUP', 'startup', 'exec_lines', 'exec_files']"
    assert guest.run("_ is len").result == "True"
    assert guest.run("order = mine = 1\n%who_ls").result == "['mine', 'order']"


def test_broken_profile_is_survived(new_guest, tmp_path):
    profile = tmp_path / ".ipython" / "profile_default"
    (profile / "startup").mkdir(parents=True)
    (profile / "startup" / "bad.py").write_text("1/0")
    (profile / "ipython_config.py").write_text("nonsense(")
    guest = new_guest(env={"HOME": str(tmp_path)})
    assert guest.run("1").result == "1"
    assert "ipython_config" in guest.log_text() and "AttributeError" not in guest.log_text()
    assert [f.content["ename"] for f in guest.seen if f.kind == "ERROR"] == ["ZeroDivisionError"]


def test_extension(guest):
    guest.run("open('an_extension.py', 'w').write('def load_ipython_extension(ip): ip.push({\"loaded\": 1})')")
    assert guest.run("%load_ext an_extension\nloaded").result == "1"
    assert guest.run("%load_ext autoreload\n%autoreload 2").ok
    guest.run("%autoreload 0")


def test_store_and_bookmarks_stay_in_memory(guest):
    guest.run("kept = 3")
    assert guest.run("%store kept").ok and "kept" in guest.run("%store").stdout
    guest.run("kept = [1]\n%store kept\nkept.append(2)")
    assert guest.run("%store -r kept\nkept").result == "[1]"


def test_log_with_results(guest, tmp_path):
    log = tmp_path / "log.py"
    assert guest.run("%%logstart -o %s" % log).ok
    guest.run("1 + 1")
    guest.run("%logstop")
    assert "1 + 1\n#[Out]# 2\n" in log.read_text()


@pytest.mark.parametrize("gui", ["widget", "notebook", "ipympl", "inline"])
def test_guis_without_an_event_loop(guest, gui):
    """IPython gives these names where it does not ask matplotlib for them."""
    assert guest.run("get_ipython().enable_gui(%r)" % gui).ok
    assert guest.run("get_ipython().enable_gui('qt')").error["ename"] == "UsageError"


def test_kernel_facade(guest):
    code = """k = get_ipython().kernel
k.send_response(k.iopub_socket, 'display_data', {'data': {'text/plain': 'sent'}, 'metadata': {}})
k.session.send(k.iopub_socket, 'stream', {'name': 'stdout', 'text': 'said'})
sorted(k.get_parent()), k.language_info['name']"""
    result = guest.run(code)
    assert result.of("DISPLAY_DATA")[0].content["data"]["text/plain"] == "sent" and result.stdout == "said"
    assert result.result == "(['content', 'header', 'metadata', 'parent_header'], 'python')"
    assert "the frontend can" in guest.run("get_ipython().kernel.do_shutdown(True)").error["evalue"]


def test_what_is_known_of_the_request_that_runs(guest):
    code = "p = get_ipython().get_parent()\np['header']['session'], p['parent_header'], p['metadata'], p['content']"
    known = guest.run(code, metadata={"cell_id": "abc"})
    assert eval(known.result) == ("s", {}, {"cellId": "abc"}, {"code": code})
    assert guest.run("get_ipython().get_parent()['metadata']").result == "{}"


def test_a_hook_sees_the_metadata_of_a_cell(guest):
    if not guest.run("from IPython.core.interactiveshell import ExecutionInfo; ExecutionInfo.cell_meta").ok:
        pytest.skip("this IPython knows none")
    guest.run("ip, seen = get_ipython(), []\ndef note(info): seen.append(info.cell_meta)")
    guest.run("ip.events.register('pre_run_cell', note)")
    guest.run("ip.run_cell('1', cell_meta={'a': 1})\nNone", metadata={"cell_id": "abc"})
    assert guest.run("ip.events.unregister('pre_run_cell', note)\nseen").result == "[{'cellId': 'abc'}, {'a': 1}, {}]"


def test_debugger_frames_start_in_user_code(guest):
    guest.run("def f(): 1/0\nf()")
    assert guest.run("import sys; sys.last_traceback.tb_frame.f_code.co_name").result == "'<module>'"


def test_pip_magic(guest):
    result = guest.run("%pip --version")
    assert result.ok and "pip " in result.stdout


def test_a_traceback_points_at_the_line_that_failed(guest):
    """Also where `finally` ran on, in a cell that is in no file."""
    lines = clean("\n".join(guest.run("x = 1\ntry:\n    1/0\nfinally:\n    y = 2").error["traceback"])).splitlines()
    assert [line for line in lines if line.startswith(("-->", "--->", "---->")) and "1/0" in line], lines


def test_notebook_magic(guest, need):
    need("nbformat")
    guest.run("6 * 7")
    guest.run("1 / 0")
    assert guest.run("%notebook exported.ipynb").ok
    cells = eval(guest.run("import json; json.load(open('exported.ipynb'))['cells']").result)
    kinds = [o["output_type"] for c in cells[-2:] for o in c["outputs"]]
    if guest.interpreter.ipython >= (9, 0):
        assert kinds == ["execute_result", "error"]


def test_many_displays_are_not_kept(guest):
    """%notebook writes outputs where IPython can; a flood of small ones costs no more memory than large ones may."""
    guest.run("from IPython.display import display\nfor i in range(40_000): display(i)")
    kept = "sum(map(len, getattr(get_ipython().history_manager, 'outputs', {}).values()))"
    assert int(guest.run(kept).result) < 20_000


def test_large_displays_of_json_are_not_kept(new_guest):
    """Their values count as well, and what no notebook can hold is left out."""
    guest = new_guest()
    guest.run(
        "import array\nhistory = get_ipython().history_manager\n"
        "def kept(): return sum(map(len, getattr(history, 'outputs', {}).values()))"
    )
    show = "display({'application/json': %s}, raw=True)"
    guest.run(show % "{'a': [1, 2.5, None, True, ('b',)]}")
    guest.run(show % "array.array('d', range(10))")
    assert int(guest.run("kept()").result) == (guest.interpreter.ipython >= (9, 0))
    guest.run("for i in range(100): " + show % "[i] * 20_000")
    assert int(guest.run("kept()").result) < 20


def test_history_magics_look_at_the_session(guest):
    guest.run("needle = 1")
    guest.run("other = 2")
    assert "needle = 1" in guest.run("%history -g needle*").stdout
    assert guest.run("%history -l 2").stdout.splitlines() == ["other = 2", "%history -g needle*"]
    assert [p["text"] for p in guest.run("%recall needle =").reply["payload"]] == ["needle = 1"]


def test_a_name_that_is_taken_while_stand_ins_are_there(new_guest):
    result = new_guest().run(
        "import sys\nfrom cellblock_guest import lazy_modules\nold = sys.modules.pop('pprint', None)\n"
        "with lazy_modules.stand_ins():\n    from pprint import pformat, PrettyPrinter\n"
        "pformat([1]), PrettyPrinter().pformat([2]), PrettyPrinter is sys.modules['pprint'].PrettyPrinter"
    )
    assert result.result == "('[1]', '[2]', True)"


def test_a_parser_that_another_thread_disturbed_is_asked_again(guest):
    """CPython's gh-106905: a SystemError, and nothing is wrong with the cell."""
    guest.run(
        "ip = get_ipython()\nparse, said = ip.compile.ast_parse, ['AST constructor recursion depth mismatch']\n"
        "def once(*args, **kwargs):\n    if said: raise SystemError(said.pop())\n    return parse(*args, **kwargs)\n"
        "ip.compile.ast_parse = once"
    )
    assert guest.run("x = 1\nx + 1").result == "2" and guest.run("said").result == "[]"


def test_an_ipython_that_knows_no_cell_ids(new_guest):
    """Before 7.33, and 8.0 to 8.2."""
    guest = new_guest()
    guest.run(
        "from cellblock_guest import shell\nclass Info:\n"
        "    def __init__(self, raw_cell, store_history, silent, shell_futures):\n"
        "        self.raw_cell, self.store_history = raw_cell, store_history\n"
        "        self.silent, self.shell_futures = silent, shell_futures\n"
        "shell.ExecutionInfo = Info"
    )
    assert guest.run("6 * 7", metadata={"cell_id": "a"}).result == "42"


def test_an_ipython_that_is_too_old(new_guest, tmp_path):
    """Before 7.21. Cells run as without it, and the log says why."""
    (tmp_path / "sitecustomize.py").write_text(
        "from IPython.core import compilerop\ndel compilerop.CachingCompiler.get_code_name\n"
    )
    guest = new_guest(env={"PYTHONPATH": str(tmp_path)})
    assert guest.hello["implementation"] == "plain" and guest.run("6 * 7").result == "42"
    guest.wait_pipe(4, b"is older than 7.21")


def test_an_integer_too_long_to_be_shown_is_remembered(new_guest, ipython):
    guest = new_guest()
    result = guest.run("10 ** 5000")
    assert not any("cellblock_guest" in line for line in result.error["traceback"])
    assert guest.run("Out[1] == 10 ** 5000").result == "True"


def test_the_name_of_the_session(new_guest, ipython):
    guest = new_guest({"JPY_SESSION_NAME": "/a/b.ipynb"})
    assert guest.run("__session__").result == "'/a/b.ipynb'"
    assert "__session__" not in guest.run("%who").text()


def test_what_is_imported_while_nobody_asks_sets_filters_of_warnings(new_guest, tmp_path):
    text = "import warnings\nwarnings.warn('not seen')\nwarnings.simplefilter('always', ResourceWarning)\n"
    (tmp_path / "sets_filters.py").write_text(text + "open('told', 'w').close()\n")
    os.mkfifo(tmp_path / "told")
    guest = new_guest()
    guest.run(
        "import warnings, cellblock_guest.warm as w\nwarnings.simplefilter('always')\n"
        "def look():  # but for one that IPython's completer sets\n"
        "    return [each for each in warnings.filters if 'Completer' not in each[2].__name__]\nbefore = look()\n"
        "w._MODULES, warm = ('sets_filters',), get_ipython().warm\n"
        "warm._steps, warm.done = w._steps(get_ipython()), False"
    )
    assert (tmp_path / "told").read_text() == ""  # once that is open there, and closed
    result = guest.run("first, *others = look()\nfirst[0], first[2].__name__, others == before")
    assert result.result == "('always', 'ResourceWarning', True)"
    assert not guest.has_said("not seen")
