"""What the next jail of a session finds where cells of the last one have used up their layer, or removed the folder
that the kernel was started in."""

import os
import subprocess

import pytest

import kernels
import layers

pytestmark = pytest.mark.cellblock_only
CELLBLOCK = kernels.spec_argv()[0][0]
PLAIN_PYTHON = "/usr/bin/python3"

FILL = {
    "files": ("limits.inodes=1000", "    while True: open(f'n{n}', 'a').close(); n += 1"),
    "bytes": ("workspace.size=1M", "    with open('n0', 'ab', 0) as f:\n        while f.write(bytes(4096)): pass"),
}
# a name that stands for a deleted one takes room itself
AFTER = """
import os
for name in ("n0", "n1", "n2", "b"):
    if os.path.exists(name): os.remove(name)
open("n0", "x").write("new")
"""
# what comes from a zygote is started by no program, and enters its folder with more rights
COLD = ("workspace.mode=overlay", "transactions.mode=off", "warm.mode=off")


@pytest.mark.parametrize("what", FILL)
@pytest.mark.parametrize("who", ["caller", "user"])
def test_a_full_layer_goes_on_in_the_next_jail(start, nothing_left, request, who, what):
    """And in the one after that: what the first one needed is there again."""
    user = request.getfixturevalue("ordinary_user") if who == "user" else None
    limit, fill = FILL[what]
    work = nothing_left / f"full-{who}-{what}"
    work.mkdir()
    (work / "b").write_text("b")
    if user:
        kernels.let_in(start.folder, work)
        for path in (work, work / "b"):
            os.chown(path, user.pw_uid, user.pw_gid)
    argv = kernels.system_argv("workspace.mode=overlay", "transactions.mode=off", limit)
    run = start(argv=argv, workspace=work, user=user).client.run
    for _ in range(2):
        cell = run(f"n = 0\ntry:\n{fill}\nexcept OSError as e:\n    print(e.errno)")
        assert cell.text().startswith("28"), cell
        run("import os; os._exit(3)")
        cell = run(AFTER)
        assert cell.ok, cell
    assert run("open('n0').read(), os.path.exists('b')").result == "('new', False)"


@pytest.mark.parametrize("mode", ["overlay", "rw"])
def test_a_current_folder_that_a_cell_removes(start, nothing_left, mode):
    """Outside nobody could put it back in an overlay: cells begin in the workspace then."""
    project = nothing_left / f"project-{mode}"
    project.mkdir()
    sets = (f"workspace.path={project}", "workspace.target=/workspace", f"workspace.mode={mode}")
    k = start(argv=kernels.system_argv(*sets, "transactions.mode=off"), workspace=project / "nb")
    run, pwd = k.client.run, {"argv": ["pwd"]}
    assert run("import os; os.getcwd()").result == "'/workspace/nb'"
    for change in ("os.rmdir('nb')", "open('nb', 'w').close()"):
        run(f"os.chdir('/workspace'); {change}; os._exit(3)")
        cell = run("import os; os.getcwd()")
        assert cell.result == "'/workspace'", (change, cell)
        told = "/workspace/nb can't be entered any more" in cell.text("stderr")
        assert told == change.startswith("os.rmdir"), "once"
        told = "cellblock: /workspace/nb can't be entered any more: the workspace's own folder takes its place\n"
        for cwd, where, said in ((None, "/workspace", told), (".", "/workspace", told), ("/tmp", "/tmp", "")):
            asked = {**pwd, "cwd": cwd} if cwd else pwd
            done = k.client.request("cellblock_run_request", asked, channel="control").content
            assert (done["stdout"], done["stderr"]) == (f"{where}\n", said), change
    run("os.remove('nb'); os.mkdir('nb'); os._exit(3)")
    assert run("import os; os.getcwd()").result == "'/workspace/nb'"


def test_a_workspace_that_a_cell_closes(start, nothing_left):
    """Cells begin in the jail's home then, from where they can open it again."""
    work = nothing_left / "closed"
    work.mkdir()
    argv = kernels.system_argv(f"workspace.path={work}", "workspace.target=/workspace", *COLD)
    run = start(argv=argv, workspace=work).client.run
    run("import os; os.chmod('/workspace', 0); os._exit(3)")
    cell = run("import os; os.getcwd()")
    assert cell.result == "'/home/user'", cell
    assert "/workspace can't be entered any more: cells begin in the jail's home" in cell.text("stderr")
    run("os.chmod('/workspace', 0o755); os._exit(3)")
    assert run("import os; os.getcwd()").result == "'/workspace'"


CHANGES = {
    "removed": "os.remove('.venv')",
    "a file": "os.remove('.venv'); open('.venv', 'w').close()",
    "leads nowhere": "os.remove('.venv'); os.symlink('/no/such/place', '.venv')",
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_environments_link_that_a_cell_takes_away(start, nothing_left, change):
    """No Python can be started then; the error names what brings it back, and that does."""
    folder = nothing_left / f"link-{change}".replace(" ", "-")
    (folder / "work").mkdir(parents=True)
    make = [PLAIN_PYTHON, "-m", "venv", "--without-pip", "--system-site-packages", folder / "envs/own"]
    subprocess.run(make, check=True)
    (folder / "work/.venv").symlink_to("../envs/own")
    sets = [word for each in COLD for word in ("--set", each)]
    python = str(folder / "work/.venv/bin/python")
    argv = [CELLBLOCK, "kernel", "--python", python, *sets, "-f", "{connection_file}"]
    k = start(argv=argv, workspace=folder / "work")
    client = k.client
    client.run(f"import os; {CHANGES[change]}; os._exit(3)")
    for _ in range(2):
        error = client.run("1").content
        assert error["ename"] == "IsolationError", error
        assert "have removed or replaced" in error["evalue"] and "`cellblock discard`" in error["evalue"], error
    assert layers.ask(k, "discard")["status"] == "ok"
    assert client.run("import sys; sys.prefix").result == repr(str(folder / "work/.venv"))
