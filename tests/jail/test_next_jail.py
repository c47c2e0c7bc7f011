"""What the next jail of a session finds where cells of the last one have used up their layer."""

import os

import pytest

import kernels

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


@pytest.mark.parametrize("what", FILL)
@pytest.mark.parametrize("who", ["caller", "user"])
def test_a_full_layer_goes_on_in_the_next_jail(start, nothing_left, request, who, what):
    """And in the one after that: what the first one needed is there again."""
    user = request.getfixturevalue("ordinary_user") if who == "user" else None
    limit, fill = FILL[what]
    sets = [word for each in ("workspace.mode=overlay", "transactions.mode=off", limit) for word in ("--set", each)]
    work = nothing_left / f"full-{who}-{what}"
    work.mkdir()
    (work / "b").write_text("b")
    if user:
        kernels.let_in(start.folder, work)
        for path in (work, work / "b"):
            os.chown(path, user.pw_uid, user.pw_gid)
    argv = [CELLBLOCK, "kernel", "--python", PLAIN_PYTHON, *sets, "-f", "{connection_file}"]
    run = start(argv=argv, workspace=work, user=user).client.run
    for _ in range(2):
        cell = run(f"n = 0\ntry:\n{fill}\nexcept OSError as e:\n    print(e.errno)")
        assert cell.text().startswith("28"), cell
        run("import os; os._exit(3)")
        cell = run(AFTER)
        assert cell.ok, cell
    assert run("open('n0').read(), os.path.exists('b')").result == "('new', False)"
