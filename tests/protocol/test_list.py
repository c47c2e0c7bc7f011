"""`cellblock list`, and how `changes`, `commit` and `discard` find the kernel that is meant."""

import json
import shutil
import socket
import subprocess
import sys
import time

import pytest

import kernels

pytestmark = pytest.mark.cellblock_only
CELLBLOCK = kernels.spec_argv()[0][0]


@pytest.fixture(scope="module")
def running(nothing_left, request):
    """A runtime folder with two notebooks' kernels, one that another client started, and one that is not ours."""
    folder = nothing_left / "runtime"
    folder.mkdir()
    dead = folder / "kernel-dead.json"
    dead.write_text(json.dumps(kernels.new_connection(nothing_left)))
    dead.chmod(0o600)
    (folder / "nbserver-1.json").write_text("{}")
    argv, _ = kernels.spec_argv()
    overlay = [*argv, "--set", "workspace.mode=overlay"]
    started = {}
    # ipykernel's end is not what is tried here, and it hung once
    request.addfinalizer(lambda: [k.stop() if k.is_cellblock else k.kill() for k in started.values()])
    for name, session, words in (
        ("0123abcd-1111", "work/first notebook.ipynb", overlay),
        ("0123abcd-2222", "work/second.ipynb", argv),
        ("42", None, [*argv, "--policy", "agent", "--set", "workspace.target=same"]),
        ("77", None, [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]),
    ):
        k = kernels.Kernel(nothing_left / name, argv=words, env={"JPY_SESSION_NAME": session})
        started[name] = k
        shutil.copy(k.file, folder / f"kernel-{name}.json")
    for k in started.values():
        with kernels.Client(k) as c:
            c.ready()
            c.run("open('new', 'w').close()")
            c.run("import time\nend = time.process_time() + 0.1\nwhile time.process_time() < end: pass")
    return folder, started


def cellblock(folder, *args):
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "JUPYTER_RUNTIME_DIR": str(folder)}
    return subprocess.run([CELLBLOCK, *args], env=env, capture_output=True, text=True, timeout=60)


def test_a_kernel_on_ipv6(nothing_left):
    folder = nothing_left / "v6"
    folder.mkdir()
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as e:
        pytest.skip(f"no ::1: {e}")
    k = kernels.Kernel(folder / "k", connection={"ip": "::1"})
    try:
        shutil.copy(k.file, folder / "kernel-v6.json")
        while socket.socket(socket.AF_INET6).connect_ex(("::1", k.connection["control_port"])) != 0:
            assert k.process.poll() is None, k.said()
        done = cellblock(folder, "list", "--json")
        (told,) = json.loads(done.stdout)["kernels"]
        assert told["answers"] is True, done
    finally:
        k.kill()
    assert json.loads(cellblock(folder, "list", "--json").stdout)["kernels"] == []


def test_list_as_json(running):
    folder, started = running
    done = cellblock(folder, "list", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    told = {k["id"]: k for k in json.loads(done.stdout)["kernels"]}
    assert list(told) == ["0123abcd-1111", "0123abcd-2222", "42"]
    for name, k in told.items():
        assert k["connection_file"] == str(folder / f"kernel-{name}.json")
        assert k["workspace"] == str(started[name].workspace) and k["answers"] is True
        assert k["level"] in ("full", "no-cgroup")
        assert k["memory_bytes"] > 5e6 and k["cpu_s"] > 0
        assert 0 <= k["age_s"] < time.monotonic()
    assert [k["session"] for k in told.values()] == ["work/first notebook.ipynb", "work/second.ipynb", None]
    assert [k["workspace_mode"] for k in told.values()] == ["overlay", "rw", "overlay"]
    assert [k["policy"] for k in told.values()] == ["notebook", "notebook", "agent"]
    assert told["42"]["memory_limit_bytes"] == 512 << 20
    assert told["42"]["client"], "the program that started it"


def test_list(running):
    head, *rows = cellblock(running[0], "list").stdout.splitlines()
    assert head.split()[:5] == ["ID", "MEMORY", "CPU", "AGE", "LEVEL"]
    assert [row.split()[0] for row in rows] == ["0123abcd-1111", "0123abcd-2222", "42"]
    assert "first notebook.ipynb" in rows[0] and "agent" in rows[2]


def test_many(running, tmp_path):
    """As many as a machine has room for; here one that many connection files name."""
    for i in range(40):
        shutil.copy(running[0] / "kernel-42.json", tmp_path / f"kernel-{i}.json")
    told = json.loads(cellblock(tmp_path, "list", "--json").stdout)["kernels"]
    assert sorted(int(k["id"]) for k in told) == list(range(40)) and all(k["answers"] for k in told)


def test_a_folder_that_cannot_be_read(tmp_path):
    """What was not seen is not known to be missing."""
    path = tmp_path / "runtime"
    path.write_text("")
    for command in ("list", "changes"):
        done = cellblock(path, command)
        assert done.returncode == 1 and done.stdout == ""
        assert f"can't read {path}: Not a directory" in done.stderr and "connection files" in done.stderr
    done = cellblock(tmp_path / "none", "list")
    assert done.returncode == 0 and "no kernel runs" in done.stderr


def test_without_kernels(tmp_path):
    done = cellblock(tmp_path, "list")
    said, *more = done.stderr.splitlines()
    assert (done.returncode, done.stdout, said) == (0, "", "no kernel runs")
    assert not more or "no kernelspec of this Cellblock lies where Jupyter looks" in more[0]  # of this very build
    assert json.loads(cellblock(tmp_path / "absent", "list", "--json").stdout) == {"kernels": []}


def test_kernels_are_named_by_their_notebooks(running):
    folder, _ = running
    done = cellblock(folder, "changes")
    assert done.returncode == 1
    for words in ("more than one kernel", "0123abcd-1111 (work/first notebook.ipynb)", "work/second.ipynb", "42 ("):
        assert words in done.stderr
    assert "77" not in done.stderr
    for which in ("0123abcd-1", "work/first notebook.ipynb", "first notebook.ipynb", "first notebook"):
        done = cellblock(folder, "changes", "--kernel", which)
        assert (done.returncode, done.stdout) == (0, "added     new\n"), done.stderr
    assert "0123abcd-2222 (work/second.ipynb)" in cellblock(folder, "changes", "--kernel", "0123").stderr
    for which in ("notebook.ipynb", "irst notebook", "nope", "77"):
        done = cellblock(folder, "changes", "--kernel", which)
        assert done.returncode == 1
        assert f"no running kernel with this notebook or id: {which}" in done.stderr


def test_one_kernels_notebook_and_the_start_of_anothers_id(running, tmp_path):
    """`discard` must not take another kernel than the one whose notebook was named."""
    folder, _ = running
    shutil.copy(folder / "kernel-0123abcd-1111.json", tmp_path / "kernel-1.json")
    shutil.copy(folder / "kernel-0123abcd-2222.json", tmp_path / "kernel-first notebook-2.json")
    for command in ("changes", "commit", "discard"):
        done = cellblock(tmp_path, command, "--kernel", "first notebook")
        assert done.returncode == 1 and done.stdout == "", done
        assert 'more than one kernel runs that is meant by "first notebook"' in done.stderr
        for name in ("1 (work/first notebook.ipynb)", "first notebook-2 (work/second.ipynb)", '".ipynb"'):
            assert name in done.stderr
    for which in ("first notebook.ipynb", "1"):
        assert cellblock(tmp_path, "changes", "--kernel", which).stdout == "added     new\n"
    shutil.copy(folder / "kernel-0123abcd-1111.json", tmp_path / "kernel-first notebook-2.json")
    (tmp_path / "kernel-1.json").unlink()  # of one kernel both may hold
    assert cellblock(tmp_path, "changes", "--kernel", "first notebook").stdout == "added     new\n"


def test_another_program_s_kernels_leave_one(running, tmp_path):
    folder, _ = running
    for name in ("0123abcd-1111", "77"):
        shutil.copy(folder / f"kernel-{name}.json", tmp_path)
    assert cellblock(tmp_path, "changes").stdout == "added     new\n"
