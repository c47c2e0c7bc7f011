"""Snapshots of an overlay workspace: files come back as they were, through the mount that the jail goes on using."""

import contextlib
import json
import os
import select
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

from broker import DROP  # noqa: E402
from overlayfiles import FORGET, GO_ON, RESTORE, SNAPSHOT, against_a_model  # noqa: E402


def outside(folder):
    return {str(p): (p.read_bytes() if p.is_file() else None) for p in sorted(folder.rglob("*"))}


CHANGES = {
    "written": "open('a', 'w').write('changed')",
    "appended": "open('b', 'a').write('more')",
    "deleted": "os.unlink('old/c')",
    "made": "open('new', 'w').write('new')",
    "folder made": "os.makedirs('n/e/w') or open('n/e/w/f', 'w').write('f')",
    "folder deleted": "shutil.rmtree('old')",
    "folder made anew": "shutil.rmtree('old') or os.mkdir('old') or open('old/other', 'w').write('o')",
    "folders made anew": "shutil.rmtree('old') or os.makedirs('old/deep/er')",
    "folders made anew twice": "shutil.rmtree('old') or os.mkdir('old') or shutil.rmtree('old')"
    " or os.makedirs('old/deep')",
    "folder moved into one made anew": "os.mkdir('n') or shutil.rmtree('old') or os.mkdir('old')"
    " or os.rename('n', 'old/deep')",
    "folder instead of a file": "os.unlink('a') or os.mkdir('a') or open('a/x', 'w').write('x')",
    "file instead of a folder": "shutil.rmtree('old/deep') or open('old/deep', 'w').write('d')",
    "link instead of a file": "os.unlink('b') or os.symlink('/etc/passwd', 'b')",
    "file instead of a link": "os.unlink('link') or open('link', 'w').write('l')",
    "renamed": "os.rename('old/c', 'moved')",
    "mode": "os.chmod('a', 0o400) or os.chmod('old', 0o500)",
    "closed": "os.mkdir('shut') or open('shut/f', 'w').write('f') and os.chmod('shut', 0)",
    "same size, same time": "open('a', 'w').write('b' * 100) and os.utime('a', ns=(0, os.stat('b').st_mtime_ns))",
    "linked": "os.link('a', 'l')",
    "linked, and written": "os.link('a', 'old/l') or open('a', 'a').write('+')",
    "a link instead of a file": "os.unlink('b') or os.link('a', 'b')",
    "files exchanged, one with two names": "os.link('a', 'l') or os.rename('b', 'a') or os.link('l', 'b')",
    "holes": "os.truncate(os.open('hole', os.O_CREAT | os.O_WRONLY), 1 << 20)",
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_is_undone(files, change):
    f, before = files(), outside(files.work)
    first, at_first = f.snapshot(), f.do("tree()")
    f.do(CHANGES[change])
    changed = f.do("tree()")
    assert changed != at_first
    f.restore(first)
    assert f.do("tree()") == at_first
    assert outside(files.work) == before, "the folder itself is never touched"


@pytest.mark.parametrize("change", [name for name in CHANGES if name != "closed"])
def test_each_change_comes_back(files, change):
    """What was changed before the snapshot, and undone after it."""
    f = files()
    empty = f.snapshot()
    f.do(CHANGES[change])
    then, at_then = f.snapshot(), f.do("tree()")
    f.restore(empty)
    assert f.do("tree()") != at_then
    f.restore(then)
    assert f.do("tree()") == at_then


def test_a_request_waits_for_the_one_before_it(files):
    """Which has answered, but is not gone yet: on a busy machine that takes its time."""
    f = files()
    (first, full), (second, last) = os.pipe(), os.pipe()
    os.set_blocking(full, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(full, b" " * 65536)
    os.set_blocking(full, True)
    for number, pipe in (1, full), (2, last):
        f.broker.ask(SNAPSHOT, number, [pipe])
        os.close(pipe)
    assert not select.select([second], [], [], 1)[0], "ignored, or begun though the first has not ended"
    for pipe in first, second:
        with open(pipe, "rb") as answer:
            assert json.loads(answer.read())["status"] == "ok"


def test_an_open_file_is_the_same_file(files):
    f = files()
    f.do("held.update(f=open('new', 'w+')) or held['f'].write('before') and held['f'].flush()")
    number = f.snapshot()
    f.do("held['f'].write(' and after') and held['f'].flush()")
    f.restore(number)
    assert f.do("held['f'].seek(0) or held['f'].read()") == "before"
    assert f.do("os.fstat(held['f'].fileno()).st_ino == os.stat('new').st_ino")


def test_links_of_the_jails_lead_nowhere(files, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    secret.chmod(0o666)
    f = files()
    f.do("os.mkdir('d'), open('d/secret', 'w').write('mine'), open('secret', 'w').write('mine')")
    number = f.snapshot()
    f.do(f"shutil.rmtree('d') or os.symlink({str(tmp_path)!r}, 'd')")
    f.do(f"os.unlink('secret') or os.symlink({str(secret)!r}, 'secret')")
    f.restore(number)
    assert secret.read_text() == "secret"
    assert f.do("open('d/secret').read(), open('secret').read(), os.path.islink('d')") == ["mine", "mine", False]


def test_names_of_one_file(files):
    """They stay that, take its room once, and those that are to be files of their own become that."""
    f = files("limit_workspace=8388608")
    f.do("open('big', 'wb').write(os.urandom(1 << 20)), os.mkdir('d')")
    f.do("[os.link('big', f'd/{i}') for i in range(40)]")
    first, linked = f.snapshot(), f.do("tree()")
    f.do("[os.unlink(f'd/{i}') for i in range(40)], [open(f'd/{i}', 'w').write(str(i)) for i in range(40)]")
    then, apart = f.snapshot(), f.do("tree()")
    f.restore(first)
    assert f.do("tree()") == linked
    f.restore(then)
    assert f.do("tree()") == apart
    f.do("[os.unlink(f'd/{i}') for i in range(40)], [os.link('big', f'd/{i}') for i in range(20)]")
    f.restore(first)
    assert f.do("tree()") == linked


# A file that differs in its last byte is compared for long. It is exchanged for a link to the victim meanwhile.
SWAP = """
SIZE = 32 << 20
def make(last):
    with open('t', 'wb') as f: f.write(bytes(SIZE - 1) + last)
    os.chmod('t', 0o400)
    os.rename('t', 'f')
def swap():
    while True:
        try:
            for name in {'t', 'l'} & set(os.listdir()): os.unlink(name)
            make(b'y')
            os.symlink(victim, 'l')
            while True:
                time.sleep(0.004)
                os.rename('f', 't')
                os.rename('l', 'f')
                time.sleep(0.004)
                os.rename('f', 'l')
                os.rename('t', 'f')
        except OSError: pass
def wake():
    while True:
        for pid in filter(str.isdigit, os.listdir('/proc')):
            if pid != '1' and int(pid) != os.getpid():
                try: os.kill(int(pid), signal.SIGCONT)
                except OSError: pass
"""


@pytest.fixture
def swapped(files, tmp_path):
    """Files with a snapshot, and whether something outside was touched."""
    victim = tmp_path / "victim"
    victim.write_text("key")
    victim.chmod(0o444)
    os.chown(victim, files.work.stat().st_uid, -1)
    f = files("limit_workspace=268435456")
    f.do(f"globals().update(victim={str(victim)!r}) or exec({SWAP!r}, globals()) or make(b'x')")
    yield f, f.snapshot(), lambda: victim.stat().st_mode & 0o777 != 0o444


def test_no_file_comes_back_while_somebody_runs(swapped):
    f, number, touched = swapped
    f.do("os.fork() or swap()")
    for _ in range(100):  # without the wall each of some ten is a hit
        answer = f.ask(RESTORE, number)
        assert not touched()
        if answer["status"] == "error":
            break
    assert answer["status"] == "error" and "could be stopped, so none was touched" in answer["evalue"]


def test_who_claims_to_be_a_twin_does_not_run_on(swapped):
    """It is spared when the others die, and wakes others that are stopped; but none runs until the files are back, nor
    then: those that are to try it again are new ones."""
    f, number, touched = swapped
    for _ in range(8):
        false = [f.twin("apart({}, %s)" % work) for work in ("swap", "wake", "wake")]
        f.do("[None for _ in iter(lambda: os.path.lexists('l') or time.sleep(0.001), True)]")
        f.restore(number)
        assert not touched()
        for twin in false:
            f.jail.tell(DROP, twin)


def test_without_room_it_says_so(files):
    f = files("limit_workspace=4194304")
    f.do("open('big', 'wb').write(b'x' * 3000000)")
    answer = f.ask(SNAPSHOT, 1)
    assert answer["left"] == 1 and answer["reason"].startswith("big: No space left"), answer
    assert f.ask(FORGET, 1)["status"] == "ok"
    assert f.do("open('after', 'wb').write(b'x' * 500000)") == 500000, "its room is free again"


def test_room_that_comes_free_on_the_way_is_used(files):
    """What goes has a later name than what needs its room."""
    f = files("limit_workspace=4194304")
    f.do("open('a', 'wb').write(b'x' * 1500000)")
    number = f.snapshot()
    f.do("open('a', 'w').write('y')")
    f.do("open('zz', 'wb').write(b'z' * 2200000)")
    f.restore(number)
    assert f.do("(os.path.getsize('a'), os.path.exists('zz'))") == [1500000, False]


def test_what_does_not_come_back_leaves_no_part_of_it(files):
    """A commit would write the part over the owner's file."""
    (files.work / "big").write_bytes(b"x" * 6000000)
    (files.work / "large").write_bytes(b"x" * 6000000)
    for name in ("big", "large"):
        os.chown(files.work / name, files.work.stat().st_uid, files.work.stat().st_gid)
    f = files("limit_workspace=4194304")
    number = f.snapshot()
    f.do("os.unlink('big')")
    f.do("open('large', 'w').write('y')")
    f.take_over()
    answer = f.ask(RESTORE, number)
    f.jail.tell(GO_ON, 0)
    assert answer["left"] == 2 and "No space left" in answer["reason"], answer
    assert f.do("(os.path.exists('big'), open('large').read(9))") == [False, "y"]


def test_an_error_is_no_word_on_what_was_there(files):
    """A folder outside that can't be looked into, for now: its files are not taken away from cells."""
    if os.geteuid() == 0 and not files.prefix:
        pytest.skip("root may look into any folder of his own")
    f = files()
    number = f.snapshot()
    f.do("open('old/c', 'w').write('changed')")
    (files.work / "old").chmod(0)
    try:
        f.take_over()
        answer = f.ask(RESTORE, number)
    finally:
        (files.work / "old").chmod(0o755)
    f.jail.tell(GO_ON, 0)
    assert answer["left"] > 0 and "Permission denied" in answer["reason"], answer
    assert f.do("open('old/c').read()") == "changed"


def test_unchanged_files_are_kept_once(files):
    f = files("limit_workspace=16777216")
    f.do("open('big', 'wb').write(b'x' * 4000000)")
    f.do("__import__('time').sleep(0.1)")  # the clock of change times ticks
    numbers = [f.snapshot() for _ in range(10)]
    f.do("open('big', 'wb').write(b'y')")
    f.restore(numbers[-1])
    assert f.do("os.path.getsize('big')") == 4000000
    for number in numbers:
        assert f.ask(FORGET, number)["left"] == 0


def test_unknown_snapshots(files):
    f = files()
    f.take_over()
    assert f.ask(RESTORE, 7)["status"] == "error"
    f.jail.tell(GO_ON, 0)
    assert f.ask(FORGET, 7)["status"] == "error"
    f.snapshot()
    assert f.ask(SNAPSHOT, 1)["status"] == "error", "numbers are used once"
    assert f.do("1") == 1


def test_a_new_jail_after_snapshots(files):
    f = files()
    f.do("open('a', 'w').write('kept')")
    number, then = f.snapshot(), f.do("tree()")
    f.broker.kill(f.jail)
    assert f.jail.gone()
    f.broker.ended(f.jail)
    f.start()
    assert f.do("tree()") == then
    f.do("os.unlink('a')")
    f.restore(number)
    assert f.do("tree()") == then


def random_change(pick):
    names = ["a", "b", "old/c", "old/deep/d", "x", "y", "old/z", "x/a", "x/b", "old/deep", "old", "x/y"]
    name, other = pick.choice(names), pick.choice(names)
    return pick.choice(
        [
            f"open({name!r}, 'w').write({pick.random()!r} and str({pick.random()!r}))",
            f"open({name!r}, 'a').write('+')",
            f"os.makedirs({name!r}, exist_ok=True)",
            f"os.path.isdir({name!r}) and not os.path.islink({name!r}) and shutil.rmtree({name!r})",
            f"os.unlink({name!r})",
            f"os.rename({name!r}, {other!r})",
            f"os.symlink({other!r}, {name!r})",
            f"os.link({other!r}, {name!r}, follow_symlinks=False)",
            f"os.chmod({name!r}, {pick.choice([0o700, 0o755, 0o777])})",
        ]
    )


@pytest.mark.parametrize("seed", range(2))
def test_random_changes(files, seed):
    against_a_model(files(), random_change, seed, least=1)
