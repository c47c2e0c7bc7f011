"""`cellblock uninstall --all`: what pip can't know of goes, each with a line, and nothing else; and what `doctor` and
`list` say where Jupyter sees no kernelspec of ours."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import kernels
import wheels

pytestmark = [pytest.mark.cellblock_only, pytest.mark.once]
PROGRAM = None


@pytest.fixture(scope="module", autouse=True)
def program(tmp_path_factory):
    """An installation of its own: --all takes the kernelspecs of its prefix, too."""
    global PROGRAM
    prefix, installed = tmp_path_factory.mktemp("prefix"), Path(os.path.realpath(kernels.spec_argv()[0][0])).parents[1]
    (prefix / "bin").mkdir()
    shutil.copy2(installed / "bin/cellblock", prefix / "bin/cellblock")
    shutil.copytree(installed / "libexec/cellblock", prefix / "libexec/cellblock")
    PROGRAM = str(prefix / "bin/cellblock")


@pytest.fixture
def env(tmp_path):
    kept = {k: v for k, v in os.environ.items() if not re.match("PYTEST|JUPYTER|VIRTUAL_ENV|CONDA|XDG_", k)}
    return {**kept, "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}


def run(*words, env, status=0):
    done = subprocess.run([PROGRAM, *words], env=env, capture_output=True, text=True)
    assert done.returncode == status, (done.stdout, done.stderr)
    return done.stdout + done.stderr


def put(folder, name, first, *more):
    (folder / name).mkdir(parents=True)
    argv = [str(first), "kernel", *more, "-f", "{connection_file}"]
    (folder / name / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": name, "language": "python"}))


def test_all(env, tmp_path):
    user, path = tmp_path / ".local/share/jupyter/kernels", tmp_path / "path/kernels"
    other = tmp_path / "other/bin/cellblock"
    other.parent.mkdir(parents=True)
    other.write_text("another one")
    put(user, "ours", PROGRAM)
    put(user, "gone", "/no/such/bin/cellblock")
    put(path, "ours-too", PROGRAM)
    own = Path(PROGRAM).parents[1] / "share/jupyter/kernels"
    put(own, "own", PROGRAM)
    put(user, "others", other)
    put(user, "wheels", "{resource_dir}/../../../../bin/cellblock")
    put(user, "packages", PROGRAM, "--facts", "cache")
    put(user, "ipython", "/usr/bin/python3")
    data, cache = tmp_path / ".local/share/cellblock", tmp_path / ".cache/cellblock"
    data.mkdir(parents=True)
    for name in ("history.sqlite", "history.sqlite-wal", "history.sqlite-shm"):
        (data / name).write_text("")
    (cache / "0123456789abcdef/pycache").mkdir(parents=True)
    (cache / "0123456789abcdef/interpreter.json").write_text("{}")
    (cache / "0123456789abcdef/pycache/bundle.pyc").write_text("")
    env["JUPYTER_PATH"] = str(tmp_path / "path")
    before = wheels.files_below(tmp_path)
    said = run("uninstall", "--all", "--dry-run", env=env)
    assert wheels.files_below(tmp_path) == before
    gone = [user / "ours", user / "gone", path / "ours-too", own / "own", data / "history.sqlite", cache]
    for thing in gone:
        assert re.search(f"^Would remove .*{re.escape(str(thing))}$", said, re.M), said
    said = run("uninstall", "--all", env=env)
    for thing in gone:
        assert re.search(f"^Removed .*{re.escape(str(thing))}$", said, re.M), said
        assert not thing.exists()
    left = {"others", "wheels", "packages", "ipython"}
    assert {p.name for p in user.iterdir()} == left and not data.exists()
    assert not (tmp_path / "path/kernels").exists()  # nor the folder of kernelspecs where it is empty
    for name, why in (
        ("others", "another Cellblock"),
        ("wheels", "pip uninstall cellblock"),
        ("packages", "apt remove cellblock"),
    ):
        assert re.search(f"^Left .*{user / name}: .*{why}", said, re.M), said
    assert "ipython" not in said and "Removed" not in run("uninstall", "--all", env=env)


def half(folder, name):
    """As an interrupted `install` leaves it, or an uninstall."""
    (folder / name / "pycache").mkdir(parents=True)
    (folder / name / "interpreter.json").write_text('{"stamp": {"path": "/usr/bin/python3"}, "answer": {}}')
    (folder / name / "logo-64x64.png").write_text("")
    for each in ("bundle.pyc", "bundle.pyc.Ab12cd", "fontlist-v390.json.Ab12cd", "trees-33-1.pkl.Ab12cd"):
        (folder / name / "pycache" / each).write_text("")
    for each in ("interpreter.json.Ab12cd", "kernel.json.xyzabC", "logo-svg.svg.a1b2c3"):
        temporary(folder / name / each)


def temporary(path):
    path.touch(0o600)
    path.chmod(0o600)


def test_what_an_interrupted_command_leaves(env, tmp_path):
    user = tmp_path / ".local/share/jupyter/kernels"
    half(user, "half")
    half(user, "full")
    half(user, "other")
    half(user, "link")
    (user / "first").mkdir()  # it had written no file to its end
    temporary(user / "first/interpreter.json.Ab12cd")
    (user / "other/interpreter.json").write_text("{}")  # somebody else's
    (user / "link/kernel.json").symlink_to("/no/such/disk/kernel.json")
    (user / "full/pycache/mine").write_text("")
    # a user's own: words, dates, other names, what others may read, and what is no file
    own = ["kernel.json.backup", "interpreter.json.BACKUP", "kernel.json.250131", "mine.json.Ab12cd", "k.Ab12cd"]
    for each in (*own, "kernel.json.Read1y"):
        temporary(user / "full" / each)
    (user / "full/kernel.json.Read1y").chmod(0o644)
    (user / "full/kernel.json.L1nked").symlink_to("mine")
    own += ["kernel.json.Read1y", "kernel.json.L1nked", "pycache/mine"]
    cache = tmp_path / ".cache/cellblock"
    half(cache, "0123456789abcdef")
    (cache / "0123456789abcdef/logo-64x64.png").unlink()
    said = run("uninstall", "--all", "--dry-run", env=env)
    assert f"Would remove what is left of the kernelspec {user}/half\n" in said
    assert f"Would remove what is left of the kernelspec {user}/first\n" in said
    assert f"Removed what was left of the kernelspec {user}/half\n" in run("uninstall", "--name", "half", env=env)
    assert not (user / "half").exists()
    half(user, "half")
    kept = wheels.files_below(user / "other") | wheels.files_below(user / "link")
    said = run("uninstall", "--all", env=env)
    assert f"Removed what was left of the kernelspec {user}/half\n" in said
    assert f"in {user}/full files are left that install did not write" in said
    assert {p.name for p in user.iterdir()} == {"full", "other", "link"} and not cache.exists()
    assert wheels.files_below(user / "other") | wheels.files_below(user / "link") == kept
    assert wheels.files_below(user / "full") == set(own)
    assert "kernelspec" not in run("uninstall", "--all", env=env)
    assert "no kernelspec in" in run("uninstall", "--name", "full", env=env, status=1)


def test_where_a_wheel_had_its_kernelspec(env, tmp_path):
    """`install --sys-prefix` has replaced it."""
    prefix, again = Path(PROGRAM).parents[1], "pip install --force-reinstall --no-deps cellblock"
    for script in (False, True):
        if script:
            (prefix / "bin/cellblock-python").write_text("#!python\n")
        for folder, name in ((prefix, "cellblock"), (prefix, "other"), (tmp_path, "cellblock")):
            put(folder / "share/jupyter/kernels", name, PROGRAM)
            said = run("uninstall", "--prefix", str(folder), "--name", name, env=env)
            assert "Removed the kernelspec" in said
            assert (again in said) == (script and (folder, name) == (prefix, "cellblock")), said
    (prefix / "bin/cellblock-python").unlink()


def test_a_program_that_is_named_without_its_folder(env, tmp_path):
    """Jupyter looks it up in its own PATH, which may have another Cellblock."""
    user, folder = tmp_path / ".local/share/jupyter/kernels", tmp_path / "bin"
    program, bare, relative = folder / "cellblock", user / "bare", user / "relative"
    folder.mkdir()
    env["PATH"] = str(folder)
    put(user, "bare", "cellblock")
    put(user, "relative", "bin/cellblock")
    before = wheels.files_below(user)
    said = run("uninstall", "--all", env=env)
    for left, name in ((bare, "cellblock"), (relative, "bin/cellblock")):
        assert f'Left the kernelspec {left}: it starts "{name}", and what that is depends' in said
    program.write_text("another one")
    program.chmod(0o755)
    assert f"Left the kernelspec {bare}: it starts another Cellblock" in run("uninstall", "--all", env=env)
    assert wheels.files_below(user) == before
    program.unlink()
    program.symlink_to(PROGRAM)
    assert "`cellblock install" not in run("list", env=env)
    assert f"Removed the kernelspec {bare}" in run("uninstall", "--all", env=env)
    assert not bare.exists() and relative.exists()


def test_nothing_goes_where_it_is_not_known_what_runs(env, tmp_path):
    user = tmp_path / ".local/share/jupyter/kernels"
    put(user, "ours", PROGRAM)
    (tmp_path / "runtime").write_text("")
    env["JUPYTER_RUNTIME_DIR"] = str(tmp_path / "runtime")
    before = wheels.files_below(tmp_path)
    said = run("uninstall", "--all", env=env, status=1)
    assert f"can't read {tmp_path}/runtime: Not a directory" in said and wheels.files_below(tmp_path) == before


def test_nothing_goes_while_a_kernel_runs(env, tmp_path):
    ours = tmp_path / ".local/share/jupyter/kernels/ours"
    put(ours.parent, ours.name, PROGRAM)
    with kernels.Kernel(tmp_path / "kernel") as kernel, kernels.Client(kernel) as client:
        client.ready()
        env["JUPYTER_RUNTIME_DIR"] = str(kernel.file.parent)
        assert len(json.loads(run("list", "--json", env=env))) == 1
        said = run("uninstall", "--all", env=env, status=1)
        assert "1 kernel of this user still runs" in said and "`cellblock list` has" in said and ours.exists()
    assert f"Removed the kernelspec {ours}" in run("uninstall", "--all", env=env) and not ours.exists()


def test_a_wheels_kernelspec_is_pips(env, tmp_path):
    put(tmp_path / "share/jupyter/kernels", "cellblock", "{resource_dir}/../../../../bin/cellblock")
    said = run("uninstall", "--prefix", str(tmp_path), env=env, status=1)
    assert "came with a wheel" in said and "pip uninstall cellblock" in said


def test_wrong_words(env):
    for words in (["--dry-run"], ["--all", "--name", "x"], ["--all", "--user"]):
        assert "--all" in run("uninstall", *words, env=env, status=2)


def test_what_jupyter_does_not_see_is_said(env, tmp_path):
    """As after `uv tool install`: the kernelspec lies in an environment of the tool's own."""
    assert "`cellblock install --user` writes one" in run("list", env=env)
    assert json.loads(run("doctor", "--json", env=env))["kernelspec"] is None
    assert json.loads(run("doctor", "--json", env=env))["kernelspecs"] == []
    assert "Kernelspec that Jupyter sees: none; `cellblock install --user`" in run("doctor", env=env)
    put(tmp_path / ".local/share/jupyter/kernels", "mine", PROGRAM)
    assert "install" not in run("list", env=env)
    seen = Path(json.loads(run("doctor", "--json", env=env))["kernelspec"])
    assert seen == tmp_path / ".local/share/jupyter/kernels/mine"
    put(seen.parent, "second", PROGRAM)
    put(tmp_path / "path/kernels", "mine", PROGRAM)
    env["JUPYTER_PATH"] = f"{tmp_path}/path"
    all_of_them = {str(seen), str(seen.parent / "second"), f"{tmp_path}/path/kernels/mine"}
    told = json.loads(run("doctor", "--json", env=env))
    assert set(told["kernelspecs"]) == all_of_them and told["kernelspec"] == told["kernelspecs"][0]
    assert set(re.findall("Kernelspec that Jupyter sees: (.*)", run("doctor", env=env))) == all_of_them


def test_the_environment_of_the_jupyter_on_path(env, tmp_path):
    """Also where that is a link, as pipx and uv make it."""
    tool = tmp_path / "tool"
    (tool / "bin").mkdir(parents=True)
    (tool / "bin/jupyter").write_text("#!/bin/sh\n")
    (tool / "bin/jupyter").chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/jupyter").symlink_to(tool / "bin/jupyter")
    put(tool / "share/jupyter/kernels", "mine", PROGRAM)
    env["PATH"] = f"{tmp_path}/bin:{env['PATH']}"
    assert json.loads(run("doctor", "--json", env=env))["kernelspec"] == str(tool / "share/jupyter/kernels/mine")
