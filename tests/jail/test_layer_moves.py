"""Folders of an overlay workspace that others exchange: what is moved keeps the times of all that is in it."""

import os
import shutil

import pytest

from layers import LATER, ask, await_tick, skipped_of, tree

pytestmark = pytest.mark.cellblock_only


def exchange(folder, good):
    """As `rm -r` and `mv` do it."""
    shutil.rmtree(folder)
    good.rename(folder)


@pytest.fixture
def good(overlay):
    """A folder like the workspace's, elsewhere, that is older than all that cells do."""
    owner, folder = overlay.workspace.stat(), overlay.workspace.parent / "good"
    (folder / "e").mkdir(parents=True)
    (folder / "x").write_text("good x")
    (folder / "e/y").write_text("good y")
    for p in (folder, *folder.rglob("*")):
        os.chown(p, owner.st_uid, owner.st_gid)
    await_tick()
    return folder


REMOVED = {
    "removed": ("shutil.rmtree('d')", "d"),
    "a file": ("shutil.rmtree('d'); open('d', 'w').close()", "d"),
    "made anew": ("shutil.rmtree('d'); os.mkdir('d')", "d/e"),
    "in one that was removed": ("shutil.rmtree('d')", "d/e"),
}


@pytest.mark.parametrize("way", REMOVED)
def test_a_folder_that_was_moved_there_later_stays(overlay, good, way):
    work, run = overlay.workspace, overlay.client.run
    code, name = REMOVED[way]
    assert run("import os, shutil; " + code).ok
    await_tick()
    exchange(work / name, good)
    there = tree(work / name)
    for _ in range(2):
        content = ask(overlay, "commit")
        skipped = skipped_of(content)
        assert set(skipped) == {name if way == "made anew" else "d"}, content
        assert all(LATER in reason for reason in skipped.values()), content
        assert tree(work / name) == there
        await_tick()


def test_a_folder_that_a_commit_has_worked_in_goes(overlay):
    """Its own work is nobody else's change; nor is what it has removed from a folder that must stay."""
    work, run = overlay.workspace, overlay.client.run
    protected, owner = work / "d/e/.envrc", work.stat()
    protected.write_text("kept")
    os.chown(protected, owner.st_uid, owner.st_gid)
    await_tick()
    for code in (
        "import os, shutil; shutil.rmtree('f'); os.remove('d/x'); open('d/e/z', 'w').close()",
        "os.makedirs('f/n'); os.chmod('f', 0o500)",
        "os.chmod('f', 0o700); open('f/n/z', 'w').close()",
    ):
        assert run(code).ok
        content = ask(overlay, "commit")
        assert content["skipped"] == content["failed"] == 0, content
        await_tick()
    assert run("shutil.rmtree('f'); shutil.rmtree('d')").ok
    await_tick()
    for _ in range(2):
        content = ask(overlay, "commit")
        assert not (work / "f").exists(), content
        assert set(skipped_of(content)) == {"d/e/.envrc"}, content
        assert "workspace.protect" in skipped_of(content)["d/e/.envrc"], content
        assert tree(work / "d") == {"e/.envrc": "kept"}, content
        await_tick()


STAY = {
    "merged": ("open('f/g', 'w').write('older'); open('f/x', 'w').write('older')", {"f/x"}),
    "made anew": ("shutil.rmtree('f'); os.mkdir('f')", {"f/x", "f/e"}),
    "below": ("os.mkdir('f/e'); open('f/e/y', 'w').write('older')", {"f/e/y"}),
}


@pytest.mark.parametrize("way", STAY)
def test_what_is_in_a_folder_that_was_moved_there_later_stays(overlay, good, way):
    """At each commit: what the first one adds to it does not make it the cells'."""
    work, run = overlay.workspace, overlay.client.run
    code, stay = STAY[way]
    assert run("import os, shutil; " + code + "; open('f/new', 'w').write('1')").ok
    await_tick()
    exchange(work / "f", good)
    await_tick()
    kept = tree(work / "f")
    for n in (1, 2, 3):
        assert run(f"open('f/new', 'w').write('{n}'); open('f/new{n}', 'w').close()").ok
        content = ask(overlay, "commit")
        skipped = skipped_of(content)
        assert set(skipped) == stay and all(LATER in reason for reason in skipped.values()), content
        there = tree(work / "f")
        assert {name: there.get(name) for name in kept} == kept, content
        assert there["new"] == str(n) and there[f"new{n}"] == "", content
        await_tick()
