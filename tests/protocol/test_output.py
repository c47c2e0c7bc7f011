"""Text: at once, whole, merged, from everywhere, and to the right cell."""

import pytest

pytestmark = pytest.mark.once


def test_what_a_child_process_wrote_comes_before_what_follows_it(client):
    """os.system's text goes through a pipe, the result through Python's wire."""
    client.run("import os, sys\nfrom IPython.display import display")
    for code, last in (
        ("os.system('echo text')", "execute_result"),
        ("os.system('echo text >&2')", "execute_result"),
        ("os.system('echo text'); display(1, 2)", "display_data"),
        ("os.system('echo text'); 1 / 0", "error"),
    ):
        for _ in range(20):
            said = [
                m.type
                for m in client.run(code).iopub
                if m.type in ("stream", "execute_result", "display_data", "error")
            ]
            assert said[0] == "stream" and said[-1] == last, (code, said)
    for _ in range(20):
        assert client.run("os.system('echo text'); print('more')").text() == "text\nmore\n"


def test_text_is_there_while_the_cell_waits(client, gate):
    cell = client.start("print('before the gate')\nopen('gate').read()")
    client.says(cell, "before the gate")
    gate()
    assert client.finish(cell).ok


@pytest.mark.cellblock_only("no thread can flush while C code holds the GIL in ipykernel")
def test_text_is_there_while_c_code_computes(client):
    """Written text must not wait for the interpreter; the interrupt ends it."""
    cell = client.start("exec('print(\\'before\\'); sum(range(10**13))')")
    client.says(cell, "before")
    client.stop_hard(cell)
    client.finish(cell)


def test_half_lines_are_shown_too(client, gate):
    cell = client.start("import sys\nsys.stdout.write('half')\nopen('gate').read()")
    client.says(cell, "half")
    gate()
    client.finish(cell)


SOURCES = {
    "print": "print('{}')",
    "stderr": "import sys; print('{}', file=sys.stderr)",
    "write": "import os; os.write(1, b'{}\\n')",
    "write 2": "import os; os.write(2, b'{}\\n')",
    "puts": "import ctypes; libc = ctypes.CDLL(None); libc.puts(b'{}'); libc.fflush(None)",
    "system": "import os; os.system('echo {}')",
    "subprocess": "import subprocess; subprocess.run(['echo', '{}'])",
    "child's stderr": "import subprocess; subprocess.run('echo {} >&2', shell=True)",
    "fork": "import os, sys\nif os.fork() == 0:\n    os.write(1, b'{}\\n'); os._exit(0)\nos.wait()",
    "forked print": "import os, sys\nif os.fork() == 0:\n    print('{}', flush=True); os._exit(0)\nos.wait()",
    "multiprocessing": "import multiprocessing as mp\nctx = mp.get_context('fork')\n"
    "p = ctx.Process(target=print, args=('{}',), kwargs=dict(flush=True)); p.start(); p.join()",
    "thread": "import threading\nt = threading.Thread(target=print, args=('{}',)); t.start(); t.join()",
    "faulthandler": "import faulthandler, sys; print('{}'); faulthandler.dump_traceback(file=sys.__stderr__)",
    "logging": "import logging; logging.getLogger('x').warning('{}')",
    "warnings": "import warnings; warnings.warn('{}')",
}


@pytest.mark.parametrize("name", SOURCES)
def test_everything_written_arrives(client, name):
    word = "word-" + name.replace(" ", "-").replace("'", "")
    cell = client.run(SOURCES[name].replace("{}", word))
    assert cell.ok, cell
    assert (cell.text() + cell.text("stderr")).count(word) >= 1


def test_two_hundred_thousand_prints(client):
    cell = client.run("for i in range(200_000): print(i)", timeout=120)
    assert cell.ok
    assert cell.text() == "".join(f"{i}\n" for i in range(200_000))
    assert len(cell.of("stream")) < 20_000, "merged, not one message a write"


def test_a_hundred_megabytes(start):
    k = start(args=["--set", "limits.output=1G"] if start_is_cellblock() else [])
    cell = k.client.run(
        "line = 'z' * 99_999 + '\\n'\nimport sys\nfor i in range(1000): sys.stdout.write(line)\nprint('end')",
        timeout=170,
    )
    assert cell.ok and len(cell.text()) == 100_000_004 and cell.text().endswith("z\nend\n")


def test_one_write_of_many_megabytes(client):
    cell = client.run("print('é' * 15_000_000)", timeout=120)
    assert cell.ok and cell.text() == "é" * 15_000_000 + "\n"


def start_is_cellblock():
    import kernels

    return kernels.is_cellblock(kernels.spec_argv()[0])


@pytest.mark.cellblock_only("ipykernel has no limit")
def test_the_limit_is_said_and_is_no_error(start):
    k = start(args=["--set", "limits.output=1M"])
    cell = k.client.run("for i in range(100): print('x' * 99_999)\n'result'", timeout=60)
    assert cell.ok and cell.result == "'result'" and cell.about["limit"] == "output"
    assert len(cell.text()) == 1 << 20
    notice = [line for line in cell.text("stderr").splitlines() if "limits.output" in line]
    assert len(notice) == 1
    after = k.client.run("print('fresh')")
    assert after.text() == "fresh\n" and after.about["limit"] is None


FLOODS = {
    "displays": "from IPython.display import display, HTML\nfor i in range(40): display(HTML('x' * 9_999))",
    "updates": "h = display(1, display_id=True)\nfor i in range(40): h.update('x' * 9_999)",
    "errors": "for i in range(40):\n    try: raise ValueError('x' * 9_999)\n"
    "    except ValueError: get_ipython().showtraceback()",
    "comms": "import comm\nc = comm.create_comm(target_name='t')\nfor i in range(40): c.send({'x': 'x' * 9_999})",
    "buffers": "import comm\nc = comm.create_comm(target_name='t')\n"
    "for i in range(40): c.send({}, buffers=[b'x' * 9_999])",
    "clear": "from IPython.display import clear_output\nfor i in range(9_000): clear_output()",
}


@pytest.mark.cellblock_only("ipykernel has no limit")
@pytest.mark.parametrize("name", FLOODS)
def test_the_limit_counts_every_message(start, name):
    k = start(args=["--set", "limits.output=100K"])
    cell = k.client.run(FLOODS[name] + "\n'result'", timeout=120)
    assert cell.ok and cell.result == "'result'" and cell.about["limit"] == "output", cell.content
    assert sum(len(m.raw_content) + sum(map(len, m.buffers)) for m in cell.iopub) < 200_000
    notice = [line for line in cell.text("stderr").splitlines() if "limits.output" in line]
    assert len(notice) == 1
    assert k.client.run("print('fresh')").text() == "fresh\n"


@pytest.mark.cellblock_only("ipykernel has no limit")
def test_an_error_over_the_limit_is_told(start):
    k = start(args=["--set", "limits.output=1M"])
    cell = k.client.run("print('x' * 2_000_000)\n1 / 0")
    assert cell.error["ename"] == "ZeroDivisionError" == cell.content["ename"] and cell.about["limit"] == "output"
    assert cell.text() == "x" * (1 << 20)


@pytest.mark.cellblock_only("ipykernel has no limit")
def test_one_text_over_the_limit_is_cut(start):
    """Between characters, and the notice comes after it."""
    k = start(args=["--set", "limits.output=1K"])
    cell = k.client.run("print('a' + '\u20ac' * 5000)")
    streams = [m.content for m in cell.iopub if m.type == "stream"]
    assert [s["name"] for s in streams] == ["stdout", "stderr"] and "limits.output" in streams[1]["text"]
    assert streams[0]["text"] == "a" + "\u20ac" * 341


@pytest.mark.cellblock_only
def test_the_limit_holds_for_c_code_and_children(start):
    k = start(args=["--set", "limits.output=1M"])
    before = k.memory()
    cell = k.client.run("import subprocess; subprocess.run('yes | head -c 300000000', shell=True)", timeout=120)
    assert cell.ok and cell.about["limit"] == "output" and len(cell.text()) < 1_200_000
    assert k.memory() - before < 100 << 20


@pytest.mark.cellblock_only
def test_an_endless_printer_can_be_interrupted(start):
    k = start(args=["--set", "limits.output=1M"])
    cell = k.client.start("while True: print('x' * 1000)")
    k.client.says(cell, "xxx")
    k.client.request("interrupt_request", {}, channel="control")
    assert k.client.finish(cell).content["ename"] == "KeyboardInterrupt"


def test_streams_keep_their_names(client):
    cell = client.run("import sys\nprint('o')\nprint('e', file=sys.stderr)")
    assert (cell.text(), cell.text("stderr")) == ("o\n", "e\n")


@pytest.mark.stand_in_fails("ipykernel gives it to the newest cell")
def test_a_threads_text_goes_to_the_cell_that_started_it(client, gate):
    first = client.start(
        "import threading\ndef late():\n    open('gate').read()\n    print('from the thread', flush=True)\n"
        "t = threading.Thread(target=late); t.start()"
    )
    assert client.finish(first).ok
    gate()
    second = client.start("t.join()")
    done = client.finish(second)
    client.says(first, "from the thread")
    assert "from the thread" not in done.text()


def test_a_tasks_text_goes_to_its_cell(client):
    first = client.start(
        "import asyncio\nev = asyncio.Event()\nasync def late():\n    await ev.wait()\n"
        "    print('from the task', flush=True)\ntask = asyncio.create_task(late())"
    )
    client.finish(first)
    client.finish(client.start("ev.set()\nawait task"))
    client.says(first, "from the task")


def test_broken_utf8_of_children_does_no_harm(client):
    cell = client.run(
        "import os\nfor b in (b'\\xff\\xfe', b'ok \\xc3', b'\\xa9\\n', b'\\xed\\xa0\\x80\\n"
        "'): os.write(1, b)\nprint('end')"
    )
    assert cell.ok and "ok" in cell.text() and "end" in cell.text()


def test_a_letter_cut_in_two_by_writes_is_one_letter(client):
    cell = client.run(
        "import os\nb = '\\U0001f600'.encode()\nfor i in range(4): os.write(1, b[i:i+1])\nos.write(1, b'\\n')"
    )
    if client.kernel.is_cellblock:
        assert cell.text() == "😀\n"


def test_control_characters_come_through(client):
    text = "".join(chr(i) for i in range(1, 32)) + "\x7f\u2028\u0085"
    cell = client.run(f"print({text!r}, end='')")
    assert cell.text() == text


def test_nul_comes_through(client):
    assert client.run("print('a\\0b', end='')").text() == "a\0b"


@pytest.mark.cellblock_only("ipykernel deadlocks: its own thread that reads the pipe needs the GIL")
def test_c_code_that_prints_megabytes_and_holds_the_gil(client):
    code = (
        "import ctypes\nc = ctypes.PyDLL(None)\ndata = b'x' * (1 << 20)\nfor i in range(8): c.write(1, data, len(data))"
    )
    cell = client.run(code)
    assert cell.ok and cell.text() == "x" * (8 << 20)


@pytest.mark.cellblock_only("ipykernel keeps all of it in its history manager")
def test_printed_text_is_not_kept(client):
    resident = "int(open('/proc/self/statm').read().split()[1]) * 4096"
    client.run("print('x' * 10**6)\nbefore = " + resident)
    for _ in range(4):
        assert client.run("for i in range(10): print('x' * 10**6)").ok
    assert int(client.run(resident + " - before").result) < 12e6


def test_pools_print_under_their_own_cell(client):
    code = (
        "import multiprocessing as mp, concurrent.futures as f\nctx = mp.get_context('fork')\n"
        "with ctx.Pool(2) as pool: pool.map(print, ['{0} pool'] * 4)\n"
        "with f.ProcessPoolExecutor(2, mp_context=ctx) as pool: list(pool.map(print, ['{0} executor'] * 4))\n"
        "with f.ThreadPoolExecutor(2) as pool: list(pool.map(print, ['{0} thread'] * 4))"
    )
    for name in ("one", "two"):
        text = client.run(code.format(name)).text()
        for kind in ("pool", "executor", "thread"):  # threads may print each other's newline
            assert text.count(f"{name} {kind}") == 4
            text = text.replace(f"{name} {kind}", "")
        assert text.split() == []


@pytest.mark.cellblock_only
def test_text_that_is_larger_than_limits_message(start):
    cell = start(args=["--set", "limits.message=64K"]).client.run("print('x' * 200_000)")
    assert cell.ok and cell.text() == "x" * 200_000 + "\n"
