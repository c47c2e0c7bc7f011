"""stdout and stderr: order, merging, threads, processes, odd text."""

import os

import pytest
from fake_supervisor import IN_A_FRAME, Subshell


def test_one_print_is_one_frame(guest):
    guest.run("1")
    frames = guest.run("print('a', 1)").of("STREAM")
    assert [f.content for f in frames] == ["a 1\n"]


def test_order_of_streams(guest):
    result = guest.run(
        "import sys\nfor i in range(3):\n    print('o', i)\n    print('e', i, file=sys.stderr)\n"
        "print('no newline', end='')"
    )
    merged = [(f.flags, f.content) for f in result.of("STREAM")]
    assert merged == [
        (1, "o 0\n"),
        (2, "e 0\n"),
        (1, "o 1\n"),
        (2, "e 1\n"),
        (1, "o 2\n"),
        (2, "e 2\n"),
        (1, "no newline"),
    ]


def _all_text(guest):
    """Until the guest is gone."""
    with pytest.raises(EOFError):
        while True:
            guest.frame()
    return "".join(f.content for f in guest.seen if f.kind == "STREAM")


@pytest.mark.parametrize("end", ["os._exit(1)", "os.kill(os.getpid(), 9)"])
@pytest.mark.parametrize("line", ["print(i, flush=True)", "print(i); sys.stdout.flush()"])
def test_what_was_flushed_is_out_when_python_ends(new_guest, line, end):
    guest = new_guest()
    guest.start("import os, sys\nfor i in range(500): %s\n%s" % (line, end))
    assert _all_text(guest) == "".join("%d\n" % i for i in range(500))


STARTS = [
    "subprocess.run(kill, shell=True)",
    "os.system(kill)",
    "os.posix_spawn('/bin/sh', ['sh', '-c', kill], {}); time.sleep(100)",
    "os.posix_spawnp('sh', ['sh', '-c', kill], {}); time.sleep(100)",
    "multiprocessing.util.spawnv_passfds(b'/bin/sh', ['sh', '-c', kill], []); time.sleep(100)",
]


@pytest.mark.parametrize("start", STARTS)
def test_what_was_printed_is_out_before_a_child_starts(new_guest, start):
    """Whose text comes by another way. This one ends Python, and with it what it still holds."""
    guest = new_guest()
    imports = "import multiprocessing.util, os, subprocess, time\n"
    guest.start(imports + "kill = 'kill -9 $PPID'\nfor i in range(500): print(i)\n" + start)
    assert _all_text(guest) == "".join("%d\n" % i for i in range(500))


@pytest.mark.parametrize("name", ["system", "posix_spawn", "posix_spawnp"])
def test_what_starts_a_child_is_as_a_builtin(guest, name):
    code = "import os, pickle\nf = os.%s\n" % name
    code += "pickle.loads(pickle.dumps(f)) is f, f.__name__, f.__doc__[0] > ' '"
    assert guest.run(code).result == repr((True, name, True))


def test_os_system_can_be_the_attribute_of_a_class(guest):
    result = guest.run("import os\nclass A: run = os.system\nA().run('exit 3') >> 8, os.system(command='true')")
    assert result.result == "(3, 0)"
    assert guest.run("import inspect; str(inspect.signature(A.run))").result == "'(command)'"


def test_order_against_displays(guest):
    result = guest.run("for i in range(100):\n    print(i, end=' ')\n    display(i)")
    seen = [f.content if f.kind == "STREAM" else "<%s>" % f.content["data"]["text/plain"] for f in result.frames[:-1]]
    assert "".join(seen) == "".join("%d <%d>" % (i, i) for i in range(100))


def test_many_prints_are_merged(guest):
    result = guest.run("for i in range(200000): print(i)")
    assert result.stdout == "".join("%d\n" % i for i in range(200000))
    assert len(result.of("STREAM")) < 5000


def test_big_text(guest):
    result = guest.run("import sys\nn = sys.stdout.write('é' * 3_000_000)\nn")
    assert result.result == "3000000" and result.stdout == "é" * 3_000_000
    assert max(len(f.content.encode()) for f in result.of("STREAM")) <= 1 << 18


def test_text_is_seen_while_the_cell_computes(guest):
    """Also without a newline and a flush; the cell ends only when the pipe of its own says so."""
    for code in (
        "print('first')",
        "print('first', end='')",
        "sys.stdout.write('fir'); sys.stdout.write('st')",
        "print('first', file=sys.stderr)",
    ):
        guest.start(
            "import sys, os, threading\nr, w = os.pipe()\nthreading.Timer(30, os.write, (w, b'x')).start()\n"
            + code
            + "\nos.read(r, 1)"
        )
        frames = guest.until("STREAM", lambda f: f.content.endswith("st") or f.content.endswith("\n"))
        assert "".join(f.content for f in frames).strip() == "first"
        guest.interrupt()
        assert guest.finish().error["ename"] == "KeyboardInterrupt"


def test_text_is_seen_while_c_code_holds_the_interpreter(guest, tmp_path):
    """The line is out before the call ends, which waits for this test with the interpreter's lock held."""
    os.mkfifo(tmp_path / "gate")
    guest.start(
        "import ctypes, os\nfd = os.open(%r, os.O_RDWR)\nprint('before')\n"
        "ctypes.PyDLL(None).read(fd, ctypes.create_string_buffer(1), 1)" % str(tmp_path / "gate")
    )
    guest.until("STREAM", lambda f: "before" in f.content)
    (tmp_path / "gate").write_text("x")
    assert guest.finish().result == "1"


@pytest.mark.parametrize(
    "code, text",
    [
        ("print('\\ud800')", "\ufffd\n"),
        ("print('a\\udc80b')", "a\ufffdb\n"),
        ("print('\\ud83d\\ude00')", "\U0001f600\n"),
        ("print('\\x00')", "\x00\n"),
        ("print('')", "\n"),
        ("print('äöü€😀')", "äöü€😀\n"),
        ("import sys; sys.stdout.buffer.write(b'bytes\\xff\\n')", "bytes\ufffd\n"),
        ("import sys; sys.stdout.buffer.write('é'.encode()[:1]); sys.stdout.buffer.write('é'.encode()[1:])", "é"),
        ("import sys; sys.stdout.writelines(['a', 'b'])", "ab"),
        ("import sys; _ = sys.stdout.write('')", ""),
    ],
)
def test_odd_text(guest, code, text):
    result = guest.run(code)
    assert result.ok and result.stdout == text


def test_stream_objects(guest):
    code = """import sys, io
s = sys.stdout
a = (s.isatty(), s.encoding.lower(), s.fileno(), sys.stderr.fileno(), s.name, s.closed, s.writable(), s.readable())
b = (isinstance(s, io.TextIOBase), type(s).__name__, type(s).__module__, sys.__stdout__ is s, s.errors)
s.close(); s.flush()
a + b"""
    value = eval(guest.run(code).result)
    assert value == (
        False,
        "utf-8",
        1,
        2,
        "<stdout>",
        False,
        True,
        False,
        True,
        "OutStream",
        "ipykernel.iostream",
        True,
        "replace",
    )


def test_write_of_no_text(guest):
    assert guest.run("import sys\nsys.stdout.write(b'x')").error["ename"] == "TypeError"


def test_assignable_write(guest):
    code = """import sys
old, got = sys.stdout.write, []
sys.stdout.write = got.append
print('hidden')
sys.stdout.write = old
got"""
    assert guest.run(code).result == "['hidden', '\\n']"


def test_redirect(guest):
    result = guest.run(
        "import contextlib, io\nf = io.StringIO()\nwith contextlib.redirect_stdout(f): print('in')\nf.getvalue()"
    )
    assert result.result == "'in\\n'" and result.stdout == ""


TEE = """class Tee:
    def __init__(self, *files): self.files = files
    def write(self, text): return [f.write(text) for f in self.files][0]
    def flush(self): [f.flush() for f in self.files]
sys.stdout = Tee(sys.__stdout__, open('log.txt', 'w'))
"""


@pytest.mark.parametrize(
    "replace, where",
    [
        ("sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')\n", "stdout"),
        ("sys.stdout = io.TextIOWrapper(sys.stderr.buffer, encoding='utf-8')\n", "stderr"),
        ("sys.stdout = os.fdopen(1, 'w', closefd=False)\n", "fd1"),
        (TEE, "stdout"),
    ],
)
def test_what_a_cell_has_put_in_the_place_of_stdout_is_flushed_at_its_end(new_guest, replace, where):
    guest = new_guest(side=True)
    result = guest.run("import io, os, sys\n" + replace + "print('hello')")
    assert result.ok and getattr(result, where) in ("hello\n", b"hello\n")
    if replace == TEE:
        assert guest.run("open('log.txt').read()").result == repr("hello\n")
    subshell = Subshell(guest)
    if where != "fd1":
        assert getattr(subshell.run("print('more')"), where) == "more\n"


def test_text_in_a_stream_of_the_users_keeps_its_place(new_guest):
    result = new_guest().run(
        "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer)\nprint('a'); display(1)\n"
        "print('b'); input(); print('c')\n1 / 0",
        on_input=lambda content: "",
    )
    kinds = [f.content if f.kind == "STREAM" else f.kind for f in result.frames]
    assert kinds == ["a\n", "DISPLAY_DATA", "b\n", "INPUT_REQUEST", "c\n", "ERROR", "EXECUTE_REPLY"]


def test_text_in_a_stream_of_the_users_comes_before_the_result(new_guest):
    guest = new_guest(side=True)
    code = "import io, sys\nsys.stdout = io.TextIOWrapper(sys.__stdout__.buffer)\nprint('a')\n6*7"
    for shell in (guest, Subshell(guest)):
        assert [f.kind for f in shell.run(code).frames] == ["STREAM", "EXECUTE_RESULT", "EXECUTE_REPLY"]


@pytest.mark.parametrize("flush", ["def flush(self): 1 / 0", "flush = None", "pass"])
def test_a_stream_of_the_users_that_cannot_be_flushed(new_guest, flush):
    guest = new_guest()
    result = guest.run("import sys\nclass Odd:\n    def write(self, text): pass\n    %s\nsys.stdout = Odd()\n5" % flush)
    assert result.ok and result.result == "5" and not result.stderr
    assert guest.run("sys.stdout = None\ndel sys.stderr\n6").result == "6"


def test_a_stream_of_the_users_that_shows_what_it_is_told(new_guest):
    result = new_guest().run(
        "import sys\nclass Shows:\n    def write(self, text): pass\n    def flush(self): display('flushed')\n"
        "sys.stdout = Shows()\ndisplay(1)"
    )
    assert [f.content["data"]["text/plain"] for f in result.of("DISPLAY_DATA")] == ["'flushed'", "1", "'flushed'"]


def test_an_interrupt_of_a_flush(new_guest):
    guest = new_guest()
    guest.start(
        "import sys\nclass Slow:\n    def write(self, text): pass\n"
        "    def flush(self):\n        sys.__stdout__.write('go\\n')\n        while True: pass\nsys.stdout = Slow()"
    )
    guest.until("STREAM", lambda f: "go" in f.content)
    guest.interrupt()
    assert guest.finish().error["ename"] == "KeyboardInterrupt"
    assert guest.run("sys.stdout = sys.__stdout__\nprint('works')").stdout == "works\n"


SLOW = (
    "import signal, sys, threading\nflushing = threading.Event()\nclass Slow:\n    def write(self, text): pass\n"
    "    def flush(self):\n        sys.__stdout__.write('go\\n')\n        flushing.set()\n        while True: pass\n"
)


def test_a_flush_that_was_interrupted_is_not_begun_again(new_guest):
    guest = new_guest()
    guest.start(SLOW + "sys.stdout = Slow()\n1 / 0")
    guest.until("STREAM", lambda f: "go" in f.content)
    guest.interrupt()
    result = guest.finish()
    assert [e["ename"] for e in (result.error, result.of("ERROR")[0].content)] == ["ZeroDivisionError"] * 2
    guest.start("6")
    guest.until("STREAM", lambda f: "go" in f.content)  # the next cell tries it anew
    guest.interrupt()
    assert not guest.finish().ok


def test_a_thread_that_flushes_keeps_no_cell_from_it(new_guest):
    guest = new_guest()
    result = guest.run(
        "import io, sys, threading\nentered, go = threading.Event(), threading.Event()\n"
        "class Waits(io.StringIO):\n    def flush(self):\n"
        "        if threading.current_thread() is not threading.main_thread():\n"
        "            entered.set(); go.wait()\n            return\n"
        "        sys.__stdout__.write(self.getvalue()); self.seek(0); self.truncate()\n"
        "sys.stdout = Waits()\nt = threading.Thread(target=display, args=(1,)); t.start()\n"
        "entered.wait(); print('mine')"
    )
    assert result.stdout == "mine\n"
    assert guest.run("go.set(); t.join(); print('next')").stdout == "next\n"


@pytest.mark.parametrize("number", ["SIGALRM", "SIGINT"])
def test_what_a_signals_handler_raises_in_a_flush_is_shown(new_guest, number):
    guest = new_guest()
    guest.start(
        SLOW + "class Late(Exception): pass\ndef late(*_): raise Late\nsignal.signal(signal.%s, late)\n"
        "sys.stdout = Slow()\n"
        "def alarm(): flushing.wait(); signal.pthread_kill(threading.main_thread().ident, signal.%s)\n"
        "threading.Thread(target=alarm).start()\ndisplay(1)\nprint('not reached', file=sys.stderr)" % (number, number)
    )
    result = guest.finish()
    assert result.error["ename"] == "Late" and result.stderr == ""


def test_a_wrapper_that_is_dropped_leaves_the_stream_open(guest):
    code = "import io, sys\nfor text in ('one', 'two'):\n    f = io.TextIOWrapper(sys.stdout.buffer)\n"
    result = guest.run(code + "    print(text, file=f)\n    del f\nprint('three')")
    assert result.ok and result.stdout == "one\ntwo\nthree\n"


def test_thread_prints_under_its_cell(guest):
    first = guest.run(
        "import threading\ngo = threading.Event()\n"
        "t = threading.Thread(target=lambda: (go.wait(), print('from the thread')))\nt.start()"
    )
    second = guest.run("print('second')\ngo.set(); t.join()")
    late = [f for f in second.of("STREAM") if "thread" in f.content]
    assert [f.request for f in late] == [first.request]
    assert [f.request for f in second.of("STREAM") if "second" in f.content] == [second.request]


def test_thread_of_a_thread(guest):
    first = guest.run(
        "import threading\ngo = threading.Event()\n"
        "def outer():\n    go.wait()\n    t = threading.Thread(target=print, args=('inner',))\n"
        "    t.start(); t.join()\n"
        "t = threading.Thread(target=outer); t.start()"
    )
    second = guest.run("go.set(); t.join()")
    assert {f.request for f in second.of("STREAM")} == {first.request}


def test_executor_prints_under_the_submitting_cell(guest):
    first = guest.run(
        "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)\n"
        "pool.submit(print, 'one').result()"
    )
    second = guest.run("pool.submit(print, 'two').result()")
    assert {f.request for f in first.of("STREAM")} == {first.request}
    assert {f.request for f in second.of("STREAM")} == {second.request}
    assert guest.run("pool.submit(int, 'x').exception().__class__.__name__").result == "'ValueError'"


@pytest.mark.parametrize(
    "work",
    [
        "pool.apply(print, ('x',))",
        "pool.apply_async(func=print, args=('x',)).get()",
        "pool.map(print, 'x')",
        "pool.map_async(print, 'x', chunksize=2).get()",
        "pool.starmap(print, ['x'])",
        "list(pool.imap(print, 'x'))",
        "list(pool.imap(print, 'x', 2))",
        "list(pool.imap_unordered(print, 'x'))",
    ],
)
@pytest.mark.parametrize("made", ["multiprocessing.pool.ThreadPool", "multiprocessing.dummy.Pool"])
def test_pool_of_threads_prints_under_the_submitting_cell(guest, made, work):
    guest.run("import multiprocessing.dummy, multiprocessing.pool\npool = %s(1)\npool.apply(int)" % made)
    result = guest.run(work + "\npool.apply(dict, (), dict(request=1, function=2, self=3))")
    assert result.result == "{'request': 1, 'function': 2, 'self': 3}"
    assert result.stdout == "x\n" and {f.request for f in result.of("STREAM")} == {result.request}
    assert guest.run("pool.apply(int, 'x')").error["ename"] == "ValueError"
    guest.run("pool.terminate(); pool.join()")


def test_executor_of_interpreters_gets_what_was_submitted(new_guest):
    """Python 3.14's takes functions to interpreters in which there is no guest."""
    result = new_guest().run(
        "import sys, types\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "class InterpreterPoolExecutor(ThreadPoolExecutor): pass\n"
        "module = types.SimpleNamespace(InterpreterPoolExecutor=InterpreterPoolExecutor)\n"
        "def caller(): return sys._getframe(1).f_code.co_name\n"
        "usual = ThreadPoolExecutor(1).submit(caller).result()\n"
        "sys.modules['concurrent.futures.interpreter'] = module\n"
        "usual, InterpreterPoolExecutor(1).submit(caller).result()"
    )
    assert result.result == "('run_as', 'run')"


def test_executor_gives_every_name_to_what_was_submitted(guest):
    code = "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)\n"
    code += "pool.submit(dict, request=1, function=2, self=3).result()"
    assert guest.run(code).result == "{'request': 1, 'function': 2, 'self': 3}"


def test_a_lazy_module_is_not_loaded_by_the_look_for_c_code(new_guest):
    """Its import may fail, and anything can be in sys.modules."""
    guest = new_guest()
    code = (
        "import importlib.util, sys\ntext = 'open(\"ran\", \"w\"); import no_such'\n"
        "with open('lazy_one.py', 'w') as f: f.write(text)\n"
        "spec = importlib.util.find_spec('lazy_one'); loader = importlib.util.LazyLoader(spec.loader)\n"
        "spec.loader = loader; module = sys.modules['lazy_one'] = importlib.util.module_from_spec(spec)\n"
        "loader.exec_module(module)\nclass Odd: __slots__ = ()\n"
        "sys.modules['odd'], sys.modules['none'] = Odd(), None\n"
    )
    assert guest.run(code).ok
    assert guest.run("import os; os.path.exists('ran')").result == "False"


def test_error_in_a_thread(guest):
    result = guest.run("import threading\nt = threading.Thread(target=lambda: 1/0); t.start(); t.join()")
    assert "ZeroDivisionError" in result.stderr and result.ok


def test_thread_goes_on_after_the_cell(guest):
    first = guest.run(
        "import threading\nstop = threading.Event()\n"
        "def tick():\n    n = 0\n    while not stop.wait(0.002): n += 1; print('tick', n)\n"
        "t = threading.Thread(target=tick); t.start()"
    )
    frames = guest.until("STREAM", lambda f: "tick 5" in f.content)
    assert {f.request for f in frames} == {first.request}
    assert guest.run("stop.set(); t.join()").ok


def test_thread_that_names_its_parent(guest, ipython):
    code = (
        "import threading\nip, first = get_ipython(), threading.Event()\nparent = ip.get_parent()\n"
        "def late():\n    first.wait()\n    token = ip.set_thread_parent(other)\n    print('other')\n"
        "    ip.reset_thread_parent(token)\n    print('mine')\n"
        "t = threading.Thread(target=late); t.start()"
    )
    mine = guest.run(code).request
    other = guest.run("other = ip.get_parent()").request
    result = guest.run("first.set(); t.join(); print('last')")
    said = [(f.request, f.content) for f in result.of("STREAM")]
    assert said == [(other, "other\n"), (mine, "mine\n"), (result.request, "last\n")]


def test_many_threads_tear_nothing(guest):
    code = """import threading, sys
def work(n):
    for i in range(300):
        sys.stdout.write('%d:%d\\n' % (n, i))
        if i % 50 == 0: display(i)
ts = [threading.Thread(target=work, args=(n,)) for n in range(8)]
[t.start() for t in ts]; [t.join() for t in ts]
None"""
    result = guest.run(code)
    lines = result.stdout.split("\n")[:-1]
    assert sorted(lines) == sorted("%d:%d" % (n, i) for n in range(8) for i in range(300))
    assert len(result.of("DISPLAY_DATA")) == 48


def test_finaliser_that_prints(guest):
    code = """import gc
class Loud:
    def __init__(self): self.me = self
    def __del__(self): print('gone')
for i in range(200):
    Loud()
    print(i)
gc.collect(); None"""
    assert guest.run(code).stdout.count("gone") == 200


def test_finaliser_that_prints_in_the_middle_of_a_frame(new_guest):
    """Another thread prints, and waits for that frame's end: neither may wait for the other."""
    result = new_guest().run(
        IN_A_FRAME + "t = threading.Thread(target=sys.stdout.write, args=('other\\n',))\n"
        "class Loud:\n    def __del__(self): print('gone', flush=True); display('gone as well')\n"
        "def hit(): t.start(); await_wire(t); Loud()\n"
        "next_frame(hit); display('first'); t.join()"
    )
    said = [f.content if f.kind == "STREAM" else f.content["data"]["text/plain"] for f in result.frames[:-1]]
    assert [each for each in said if each != "other\n"] == ["'first'", "gone", "\n", "'gone as well'"]
    assert "other\n" in said


def test_an_interrupt_before_it_is_sent_loses_no_text(new_guest):
    result = new_guest().run(
        "import sys\nfrom cellblock_guest import streams\nreal = streams.utf8\n"
        "def interrupted(text):\n    streams.utf8 = real\n    raise KeyboardInterrupt\n"
        "streams.utf8 = interrupted\ntry: sys.stdout.write('first\\n')\n"
        "except KeyboardInterrupt: print('interrupted')"
    )
    assert result.stdout == "first\ninterrupted\n"


def test_an_interrupt_after_it_was_sent_repeats_none(new_guest):
    result = new_guest().run(
        IN_A_FRAME + "next_frame(lambda: signal.raise_signal(signal.SIGINT))\n"
        "try: sys.stdout.write('first\\n')\nexcept KeyboardInterrupt: print('interrupted')"
    )
    assert result.stdout == "first\ninterrupted\n"


def test_a_clock_that_is_exchanged_changes_nothing(new_guest):
    """As freezegun does: lines are still sent at once, then and later."""
    result = new_guest().run(
        "import sys, time\nfrom cellblock_guest import streams\nstreams.monotonic = lambda: 1e12\n"
        "sys.stdout.write('frozen\\n'); streams.monotonic = time.monotonic\n"
        "sys.stdout.write('later\\n'); held = sys.stdout._output.parts[:]\nheld"
    )
    assert result.result == "[]" and result.stdout == "frozen\nlater\n"


def test_output_of_fds_and_children(guest):
    guest.run("import os, subprocess, sys")
    guest.run("os.write(1, b'raw one'); os.write(2, b'raw two')")
    guest.wait_pipe(1, b"raw one")
    guest.wait_pipe(2, b"raw two")
    guest.run("subprocess.run(['sh', '-c', 'echo child; echo wrong >&2'])")
    guest.wait_pipe(1, b"child\n")
    guest.wait_pipe(2, b"wrong\n")
    assert guest.run("subprocess.run([sys.executable, '-c', 'print(5)'], stdout=sys.stdout).returncode").result == "0"
    guest.wait_pipe(1, b"5\n")


def test_c_stdio_is_flushed_before_the_reply(guest):
    result = guest.run("import ctypes\nctypes.CDLL(None).printf(b'from C, no newline')")
    assert result.fd1.endswith(b"from C, no newline")


def test_forked_child_writes_to_the_pipes_only(guest):
    code = """import os
print('before', end='')
pid = os.fork()
if pid == 0:
    print('child text'); display('child display')
    import sys; print('child error', file=sys.stderr)
    os._exit(3)
os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])"""
    result = guest.run(code)
    assert result.result == "3" and result.stdout == "before"
    guest.wait_pipe(1, b"child text\n'child display'\n")
    guest.wait_pipe(2, b"child error\n")


def test_forked_child_that_ends_the_cell_does_not_serve(guest):
    result = guest.run(
        "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('both', 'parent' if pid else 'child')"
    )
    assert result.stdout == "both parent\n"
    guest.wait_pipe(1, b"both child\n")
    assert guest.run("1").ok


def test_forked_child_with_an_error(guest):
    assert guest.run("import os\npid = os.fork()\nif not pid: 1/0\n_ = os.waitpid(pid, 0)").ok
    guest.wait_pipe(2, b"ZeroDivisionError")
    assert guest.run("1").ok


def test_multiprocessing_fork(guest):
    code = """import multiprocessing as mp
def work(n):
    print('worker', n)
    return n * n
with mp.get_context('fork').Pool(2) as pool: r = pool.map(work, range(4))
r"""
    result = guest.run(code)
    assert result.result == "[0, 1, 4, 9]", result.frames
    for n in range(4):
        guest.wait_pipe(1, b"worker %d\n" % n)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_multiprocessing_of_importable_functions(guest, method):
    result = guest.run(
        "import multiprocessing as mp, math\n"
        "with mp.get_context(%r).Pool(1) as pool: r = pool.map(math.sqrt, [4, 9])\nr" % method
    )
    assert result.result == "[2.0, 3.0]", result.frames


def test_logging_and_warnings_go_to_stderr(guest):
    result = guest.run("import logging\nlogging.getLogger('x').warning('careful')")
    assert "careful" in result.stderr


def test_100_mb(guest):
    result = guest.run("for i in range(100): print('x' * 1_000_000)")
    assert sum(len(f.content) for f in result.of("STREAM")) == 100 * 1_000_001
