"""A writable workspace cannot be held to a size: its growth is seen, and said."""

import os
import shutil

import pytest

import kernels

pytestmark = pytest.mark.cellblock_only


def until_said(k, word, cells=2000):
    """Cells, one after the other, until one says it; the look is made in the background after a cell. The first look,
    that the others are compared with, is made beside the start, and may have seen what the first cell has written."""
    for _ in range(cells):
        said = k.client.run("open('big', 'ab').write(bytes(100 << 10)); import time; time.sleep(0.1)").text("stderr")
        if said:
            assert word in said, said
            return said
    raise AssertionError(f"no cell said {word!r}")


def test_growth_is_said_once(start):
    k = start(argv=kernels.system_argv("workspace.size=1M"))
    k.client.run("import os; open('big', 'wb').write(os.urandom(3 << 20))")
    assert "workspace.size = 1048576" in until_said(k, "workspace.size")
    for _ in range(3):
        assert k.client.run("1").text("stderr") == ""


@pytest.mark.timeout(900)  # so many files, made and removed
def test_a_folder_that_cannot_be_counted_is_told_once(start):
    k = start(argv=kernels.system_argv("workspace.size=1M"))
    k.client.run("1")
    for i in range(200_001):  # names are counted; a file system gives a file some ten thousand of them
        if i % 50_000 == 0:
            os.mknod(k.workspace / str(i))
        else:
            os.link(k.workspace / str(i - i % 50_000), k.workspace / str(i))
    assert "can't be counted whole" in until_said(k, "workspace.size is not watched")
    for _ in range(3):
        assert k.client.run("1").text("stderr") == ""
    shutil.rmtree(k.workspace)


def test_what_no_cell_could_say_is_in_the_log(start):
    for _ in range(10):  # the first look may be late, and see the file
        k = start(argv=kernels.system_argv("workspace.size=64K"))
        k.client.run("1")
        k.client.run("open('big', 'wb').write(bytes(1 << 20))")
        k.stop()
        if said := "workspace.size = 65536" in k.said():
            break
    assert said
