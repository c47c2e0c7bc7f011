"""What a snapshot looks at: what changed, all of that, and where the kernel tells it nothing else.

The kernel tells it from Linux 6.16 on; each test of what must not be missed also runs as on an older one, where a
snapshot looks at all names.
"""

import errno
import os
import subprocess

import pytest
from overlayfiles import BUILD, FORGET, PYTHON, against_a_model

KERNEL = tuple(int(n) for n in os.uname().release.split(".")[:2])
told = pytest.mark.skipif(KERNEL < (6, 16), reason="before Linux 6.16 the kernel tells no jail what changed")


@pytest.fixture(params=["told", "not-told"])
def make(request, files):
    if request.param == "told":
        return files
    return lambda *more: files(*more, prefix=[f"{BUILD}/tests/host-like", "no-watch", *files.prefix])


def entries(f):
    answer = f.ask(7, f.count + 1)
    f.count += 1
    assert answer["status"] == "ok" and answer["left"] == 0, answer
    return answer["entries"]


def settle(f):
    """Files that were written just before a look are looked at once more."""
    f.do("__import__('time').sleep(0.1)")
    f.snapshot()
    f.snapshot()


@told
def test_what_nobody_touched_is_not_looked_at(files):
    f = files("limit_workspace=67108864")
    f.do("[os.makedirs(f'many/{i}') for i in range(20)]")
    f.do("[open(f'many/{i % 20}/{i}', 'w').write(str(i)) for i in range(2000)]")
    settle(f)
    assert entries(f) == 0
    f.do("open('many/3/3', 'w').write('changed'), os.unlink('many/4/4'), open('many/5/new', 'w').write('new')")
    assert 3 <= entries(f) < 30
    f.do("[open(f'many/{i % 20}/{i}').read() for i in range(0, 2000, 100)]")
    assert entries(f) < 100
    f.do("len(list(os.walk('.')))")
    assert entries(f) == 0, "listing folders changes nothing"
    assert f.ask(FORGET, 1)["status"] == "ok"
    assert entries(f) == 0


@told
def test_what_is_open_for_writing_is_looked_at_each_time(files):
    f = files()
    f.do("held.update(f=open('log', 'w')) or held['f'].write('x') and held['f'].flush()")
    settle(f)
    assert entries(f) == 1
    f.do("held['f'].close()")
    settle(f)
    assert entries(f) == 0


MAP = (
    "held.update(f=open('m', 'w+b')), held['f'].truncate(99), "
    "held.update(m=mmap.mmap(held['f'].fileno(), 0)), held.pop('f').close()"
)
# Each: how it is prepared; what is done before the first snapshot (again before the second); what must come back.
HIDDEN = {
    "a mapped file": (
        MAP,
        "held['m'].__setitem__(slice(0, 5), b'%05d')",
        "open('m', 'rb').read(5).decode()",
    ),
    "a mapped file of the folder below": (
        "[held.update(m=mmap.mmap(f.fileno(), 0)) for f in [open('a', 'r+b')]]",
        "held['m'].__setitem__(slice(0, 5), b'%05d')",
        "open('a', 'rb').read(5).decode()",
    ),
    "an open file in a folder that is renamed": (
        "os.mkdir('d0'), held.update(f=open('d0/f', 'w'))",
        "os.rename([n for n in os.listdir() if n[0] == 'd'][0], 'd%05d'), held['f'].write('+%05d'), held['f'].flush()",
        "[open(n + '/f').read() for n in os.listdir() if n[0] == 'd'][0]",
    ),
    "a file that is opened by a name it had": (
        "open('was', 'w').close(), held.update(f=open('was')), os.mkdir('d'), os.link('was', 'd/is'), os.unlink('was')",
        "open(f\"/proc/self/fd/{held['f'].fileno()}\", 'w').write('%05d')",
        "open('d/is').read()",
    ),
    "a file that was made without a name": (
        "held.update(f=os.open('.', os.O_TMPFILE | os.O_RDWR)), "
        "os.link(f\"/proc/self/fd/{held['f']}\", 'named', src_dir_fd=held['f'], follow_symlinks=True)",
        "os.pwrite(held['f'], b'%05d', 0)",
        "open('named').read()",
    ),
    "another name of it": (
        "open('one', 'w').close(), os.link('one', 'old/two')",
        "open('one', 'w').write('%05d')",
        "open('old/two').read()",
    ),
    "times that were put back": (
        "open('f', 'w').write('00000')",
        "open('f', 'w').write('%05d'), os.utime('f', ns=(1, 1))",
        "open('f').read(), os.stat('f').st_mtime_ns",
    ),
    "cut by its name": ("open('f', 'w').write('x' * 99)", "os.truncate('f', 50 - %d)", "os.path.getsize('f')"),
    "its mode": ("open('f', 'w').close()", "os.chmod('f', 0o600 + %d %% 8)", "os.stat('f').st_mode"),
    "a folder exchanged for another": (
        "[os.makedirs(d + '/in') or open(d + '/in/f', 'w').write(d) for d in ('p', 'q')]",
        "os.rename('p', 't'), os.rename('q', 'p'), os.rename('t', 'q'), open('p/in/f', 'a').write('%d')",
        "open('p/in/f').read(), open('q/in/f').read()",
    ),
    "a folder that is away for a while": (
        "os.makedirs('p/in'), open('p/in/f', 'w').close()",
        "os.rename('p', 'old/away'), open('old/away/in/f', 'w').write('%d'), os.rename('old/away', 'p')",
        "open('p/in/f').read()",
    ),
    "a folder made anew over the one below": (
        "shutil.rmtree('old')",
        "shutil.rmtree('old', True), os.makedirs('old/deep'), open('old/deep/%d', 'w').close()",
        "os.listdir('old'), os.listdir('old/deep')",
    ),
}


@pytest.mark.parametrize("what", HIDDEN)
def test_no_change_is_missed(make, what):
    prepare, change, look = HIDDEN[what]
    f = make()
    f.do(prepare)
    known = {}
    for step in range(8):
        f.do(change % ((step,) * change.replace("%%", "").count("%")))
        number = f.snapshot()  # before it is read, which the kernel tells as well
        known[number] = f.do(look)
        if step == 4:
            settle(f)
    for number in (8, 2, 9, 1):
        if number in known:
            f.restore(number)
            assert f.do(look) == known[number], f"{what}, back at {number}"


def test_a_file_that_is_mapped_long_before_it_is_written(make):
    """Opening it changed nothing, and the first write makes no noise."""
    f = make()
    f.do("open('m', 'wb').write(b'x' * 99), os.link('m', 'old/m')")
    settle(f)
    f.snapshot()
    f.do("[held.update(m=mmap.mmap(g.fileno(), 0)) for g in [open('m', 'r+b')]]")
    f.snapshot()
    known = {}
    for step in range(3):
        f.do("held['m'].__setitem__(slice(0, 5), b'%05d')" % step)
        number = f.snapshot()  # before it is read, which the kernel tells as well
        known[number] = f.do("open('m', 'rb').read(5).decode(), open('old/m', 'rb').read(5).decode()")
    for number, was in known.items():
        f.restore(number)
        assert f.do("open('m', 'rb').read(5).decode(), open('old/m', 'rb').read(5).decode()") == was


@pytest.mark.parametrize("names", [["m"], ["m", "old/m"]], ids=["one name", "two names"])
def test_a_mapping_that_is_gone_by_the_next_look(make, names):
    """A page of it that was read first is written to without any change of its times."""
    f = make()
    f.do("open('m', 'wb').write(b'x' * 99)")
    for other in names[1:]:
        f.do(f"os.link('m', {other!r})")
    settle(f)
    known = {}
    for step in range(4):
        f.do(
            f"[m[0] and m.__setitem__(slice(0, 5), b'%05d') for g in [open({names[-1]!r}, 'r+b')]"
            " for m in [mmap.mmap(g.fileno(), 0)]]" % step
        )
        known[f.snapshot()] = [f.do(f"open({name!r}, 'rb').read(5).decode()") for name in names]
        settle(f)
    for number, was in known.items():
        f.restore(number)
        assert [f.do(f"open({name!r}, 'rb').read(5).decode()") for name in names] == was == was[:1] * len(names)


def test_a_mapping_of_a_file_that_has_just_been_looked_at(make):
    """It was opened and read in the same batch of what the kernel tells, under another name."""
    f = make()
    f.do("open('m', 'wb').write(b'x' * 99), os.link('m', 'old/m')")
    settle(f)
    f.do(
        "open('m').close(), os.chmod('old', 0o700), open('old/new', 'w').close(), "
        "[m[0] and m.__setitem__(0, 65) for g in [open('old/m', 'r+b')] for m in [mmap.mmap(g.fileno(), 0)]]"
    )
    number = f.snapshot()
    f.do("open('m', 'w').write('after')")
    f.restore(number)
    assert f.do("open('m').read(2), open('old/m').read(2)") == ["Ax", "Ax"]


def test_holes_are_not_read(make):
    """They are larger than all that there is time for; what lies behind such a file comes back."""
    f = make("limit_workspace=67108864")
    f.do("[open('hole', 'wb').truncate(1 << 40), open('some', 'wb').truncate(1 << 40)]")
    f.do("[g.seek(1 << 39) and g.write(b'x') for g in [open('some', 'r+b')]], open('zz', 'w').write('then')")
    f.do("held.update(f=open('hole', 'r+b'))")
    settle(f)
    number = f.snapshot()
    f.do("[g.seek(1 << 38) and g.write(b'y') for g in [open('some', 'r+b')]], open('zz', 'w').write('after')")
    f.restore(number)
    assert f.do("os.path.getsize('hole'), os.path.getsize('some'), open('zz').read()") == [1 << 40, 1 << 40, "then"]
    look = "[[g.seek(n), g.read(1).decode()][1] for g in [open('some', 'rb')] for n in (1 << 38, 1 << 39)]"
    assert f.do(look) == ["\0", "x"]


def test_names_of_one_file_where_paths_are_too_long(make):
    """What were two files is one when they come back: neither gets the other's content."""
    f = make()
    deep = "/".join(["d" * 250] * 17)
    f.do(f"[os.mkdir(n) or os.chdir(n) for n in {deep!r}.split('/')]")
    f.do("open('a', 'w').write('a'), open('b', 'w').write('b')")
    number = f.snapshot()
    f.do("os.unlink('b'), os.link('a', 'b'), open('a', 'w').write('one')")
    f.restore(number)
    assert f.do("open('a').read(), open('b').read()") == ["a", "b"]


def test_a_mapping_outlives_the_descriptor_and_its_process(make):
    """Whoever has it: here a child that shares it, and writes when it is told."""
    f = make()
    f.do(MAP)
    f.do("held.update(go=os.pipe(), done=os.pipe())")
    f.do(
        "os.fork() or [held['m'].__setitem__(0, c[0]) or os.write(held['done'][1], c)"
        " for c in iter(lambda: os.read(held['go'][0], 1), b'')]"
    )
    f.do("held.pop('m').close()")
    known = {}
    for letter in "abcdef":
        f.do(f"os.write(held['go'][1], {letter!r}.encode()), os.read(held['done'][0], 1).decode()")
        known[f.snapshot()] = letter
    f.restore(3)
    assert f.do("open('m').read(1)") == known[3]


def test_more_new_names_than_are_known(make):
    """What keeps them grows meanwhile, and then still knows the uppermost folder, in which they are."""
    f = make("limit_workspace=67108864")
    f.snapshot()
    f.do("[open(f'many{i}', 'w').close() for i in range(1000)]")
    then, at_then = f.snapshot(), f.do("tree()")
    f.do("open('many7', 'w').write('7'), os.unlink('many8'), open('new', 'w').close()")
    f.restore(then)
    assert f.do("tree()") == at_then


def test_more_than_the_kernel_keeps_in_mind(make):
    f = make("limit_workspace=134217728")
    f.do("os.mkdir('many'), open('many/first', 'w').write('1')")
    f.snapshot()
    f.do("[open(f'many/{i}', 'w').close() or os.unlink(f'many/{i}') for i in range(6000)]")
    f.do("open('many/first', 'w').write('2'), open('many/last', 'w').write('3')")
    then, at_then = f.snapshot(), f.do("tree()")
    f.do("shutil.rmtree('many')")
    f.restore(then)
    assert f.do("tree()") == at_then


# All that one user may have of what tells a process of changes; then how it was refused one more, and how many it got.
HOLD = """
import ctypes, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, 2 * resource.getrlimit(resource.RLIMIT_NOFILE)[1:])
libc, count = ctypes.CDLL(None, use_errno=True), 0
while libc.fanotify_init(0x201, 0) >= 0: count += 1  # FAN_REPORT_FID, FAN_CLOEXEC
print(ctypes.get_errno(), count, flush=True)
sys.stdin.read()
"""
OF_ITS_OWN = 1_000_000_000 + os.getpid()  # others of that user would be told of nothing meanwhile
as_its_own = pytest.param(
    ("setpriv", f"--reuid={OF_ITS_OWN}", f"--regid={OF_ITS_OWN}", "--clear-groups"),
    id="user of its own",
    marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a jail as a user of its own"),
)


@told
@pytest.mark.parametrize("files", [as_its_own], indirect=True)
def test_where_the_user_has_too_many_such_kernels(files):
    """The kernel tells this one nothing: all names are looked at, and files come back all the same."""
    subprocess.run(["chown", "-R", f"{OF_ITS_OWN}:{OF_ITS_OWN}", files.work], check=True)
    hold = [*files.prefix, PYTHON, "-c", HOLD]
    with subprocess.Popen(hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/") as holder:
        refused, held = map(int, holder.stdout.readline().split())
        assert refused == errno.EMFILE and held > 0
        one_more = subprocess.run(hold, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, cwd="/")
        assert one_more.stdout == f"{errno.EMFILE} 0\n", "it was the limit of a process, not the user's"
        f = files()
        f.do("open('a', 'w').write('before'), open('new', 'w').write('before'), os.mkdir('n')")
        settle(f)
        assert entries(f) > 0, "the kernel has told that nothing was touched"
        then, at_then = f.snapshot(), f.do("tree()")
        f.do("open('a', 'w').write('after'), open('new', 'a').write('after'), os.unlink('old/c'), os.rmdir('n')")
        assert f.do("tree()") != at_then
        f.restore(then)
        assert f.do("tree()") == at_then


def test_pipes_and_sockets_come_back(make):
    f = make()
    f.do("os.mkfifo('pipe', 0o640), held.update(s=socket.socket(socket.AF_UNIX)), held['s'].bind('sock')")
    number, then = f.snapshot(), f.do("tree()")
    f.do("os.unlink('pipe'), os.unlink('sock')")
    f.restore(number)
    assert f.do("tree()") == then


def test_what_could_not_be_kept_stays_as_it_is(make):
    f = make("limit_workspace=4194304")
    f.do("open('big', 'wb').write(b'x' * 3000000), open('small', 'w').write('1')")
    answer = f.ask(7, 1)
    assert answer["left"] == 1 and answer["reason"].startswith("big: No space left"), answer
    f.do("open('small', 'w').write('2')")
    f.take_over()
    answer = f.ask(8, 1)
    f.jail.tell(9, 0)
    assert answer["left"] == 1 and answer["reason"].startswith("big:"), answer
    assert f.do("os.path.getsize('big'), open('small').read()") == [3000000, "1"]


NAMES = ["a", "b", "old/c", "old/deep/d", "x", "y", "old/z", "x/a", "x/b", "old/deep", "old", "x/y", "x/y/z", "q/a"]


def random_change(pick):
    name, other = pick.choice(NAMES), pick.choice(NAMES)
    return pick.choice(
        [
            f"not is_pipe({name!r}) and open({name!r}, 'w').write({str(pick.random())!r})",
            f"not is_pipe({name!r}) and open({name!r}, 'a').write('+')",
            f"os.makedirs({name!r}, exist_ok=True)",
            f"shutil.rmtree({name!r})",
            f"os.unlink({name!r})",
            f"os.rename({name!r}, {other!r})",
            f"os.rename({name!r}, {other!r})",
            f"os.symlink({other!r}, {name!r})",
            f"os.link({other!r}, {name!r}, follow_symlinks=False)",
            f"os.chmod({name!r}, {pick.choice([0o700, 0o755, 0o777])})",
            f"os.utime({name!r}, ns=(5, {pick.randrange(9)}))",
            f"os.mkfifo({name!r})",
            f"os.path.isfile({name!r}) and held.update(f=open({name!r}, 'r+'))",
            f"held['f'].write({str(pick.random())!r}), held['f'].flush()",
            f"held.update(of=open({name!r}, 'r+b')) if os.path.isfile({name!r}) else None, "
            "held.update(m=mmap.mmap(held['of'].fileno(), 0))",
            f"os.fstat(held['of'].fileno()).st_size and held['m'].__setitem__(0, {pick.randrange(256)})",
            "held.clear()",
        ]
    )


@pytest.mark.parametrize("seed", range(int(os.environ.get("CELLBLOCK_MODEL_SEEDS", "2"))))
def test_random_changes_against_a_model(make, seed):
    against_a_model(make(), random_change, seed)
