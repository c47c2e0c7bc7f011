"""A writable workspace cannot be held to a size, nor kept from new entries: both are seen, and said."""

import json
import re

import pytest

import kernels

pytestmark = pytest.mark.cellblock_only
PLAIN_PYTHON = "/usr/bin/python3"


MANY = """
import os
for i in range(30):
    os.makedirs(str(i) + "x" * 60)
    open(str(i) + "x" * 60 + "/.envrc", "w").close()
"""


def until_said(k, word, cells=200):
    """Cells, one after the other, until one says it; the look is made in the background after a cell."""
    for _ in range(cells):
        said = k.client.run("import time; time.sleep(0.1)").text("stderr")
        if said:
            assert word in said, said
            return said
    raise AssertionError(f"no cell said {word!r}")


def test_growth_and_new_entries_are_said_once(start):
    argv = [kernels.spec_argv()[0][0], "kernel", "--python", PLAIN_PYTHON, "--set", "workspace.size=1M"]
    k = start(argv=[*argv, "-f", "{connection_file}"])
    (k.workspace / ".envrc").write_text("the host's")
    assert k.client.run("import os; os.mkdir('new'); open('new/.envrc', 'w').close()").text("stderr") == ""
    assert "new/.envrc" in until_said(k, "workspace.protect")
    k.client.run("open('big', 'wb').write(os.urandom(3 << 20))")
    assert "workspace.size = 1048576" in until_said(k, "workspace.size")
    for _ in range(3):
        assert k.client.run("1").text("stderr") == ""


def test_many_are_counted(start, nothing_left):
    log = nothing_left / "logs/audit.jsonl"
    argv = [kernels.spec_argv()[0][0], "kernel", "--python", PLAIN_PYTHON, "--set", f"audit.file={log}"]
    k = start(argv=[*argv, "-f", "{connection_file}"])
    k.client.run("1")
    assert k.client.run(MANY).ok
    said = until_said(k, "workspace.protect")
    more = int(re.search(r" and (\d+) more\]", said)[1])
    assert said.count("/.envrc") + more == 30 and len(said) < 1000
    k.stop()
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert len({e["path"] for e in events if e["event"] == "protected"}) == 30


def test_what_no_cell_could_say_is_in_the_log(start):
    argv = [kernels.spec_argv()[0][0], "kernel", "--python", PLAIN_PYTHON, "-f", "{connection_file}"]
    k = start(argv=argv)
    k.client.run("1")
    k.client.run("open('.envrc', 'w').close()")
    k.stop()
    assert ".envrc" in k.said()
