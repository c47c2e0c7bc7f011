"""Fixtures of the tests that drive the finished kernel from outside. See CONTRIBUTING.md for how they are run.

Invariants: nothing sleeps; after every module no process, mount or file of it may be left (children of dead kernels
come to this process, which made itself their subreaper, so that none escapes the count).
"""

import ctypes
import gc
import os
import pwd
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

HERE = Path(__file__).parent
for folder in ("lib", "frontends", "jail"):
    sys.path.insert(0, str(HERE / folder))

import kernels  # noqa: E402
import rawclient  # noqa: E402

PR_SET_CHILD_SUBREAPER = 36
AGAIN = 200  # s
LIMIT = pytest.StashKey()
ONCE = {"frameworks", "hostile_guest"}  # how the kernel takes them is the same whoever starts it


def pytest_configure(config):
    config.addinivalue_line("markers", "by_root: root's half of ./check tries it as an ordinary user, too")
    config.addinivalue_line("markers", "cellblock_only: what only cellblock promises; skipped with a stand-in kernel")
    config.addinivalue_line("markers", "library(names): what the test imports in a cell")
    config.addinivalue_line("markers", "once: the same whoever starts the kernel; ./check tries it as a user")
    config.addinivalue_line("markers", "stand_in_fails(reason): known not to hold for the stand-in kernel (ipykernel)")
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is imported stays: Python need not look for garbage in it, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_sessionfinish(session):
    """A suite whose time was over left tests out: no failure of one would say so."""
    if str(session.shouldfail).startswith("session-timeout"):
        session.exitstatus = pytest.ExitCode.INTERRUPTED


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item, settings):
    """What was told once that its time is over may hang on its way out: it is told again."""
    done = yield
    signal.setitimer(signal.ITIMER_REAL, settings.timeout, AGAIN)
    item.stash[LIMIT] = settings
    return done


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    """The timer ends with what fails: what is done after that has a limit as well."""
    if LIMIT in item.stash:
        item.config.hook.pytest_timeout_set_timer(item=item, settings=item.stash[LIMIT])
    return (yield)


def mark_for_check(item):
    """What one half of ./check leaves to the other, by the folder."""
    folders = {folder.name for folder in item.path.parents if folder.parent == HERE}
    if folders & ONCE:
        item.add_marker(pytest.mark.once)
    params = item.callspec.params.values() if hasattr(item, "callspec") else ()
    if "jail" in folders and ("user" in params or "files" in item.fixturenames):
        item.add_marker(pytest.mark.by_root)  # root tries it as an ordinary user, in the same way


def pytest_collection_modifyitems(config, items):
    for item in items:
        mark_for_check(item)
    for item in items if rawclient.SLOW != 1 else ():  # as each wait is longer, so is the whole
        mark = item.get_closest_marker("timeout")
        limit = mark.args[0] if mark else config.getoption("timeout") or config.getini("timeout") or 0
        item.add_marker(pytest.mark.timeout(float(limit) * rawclient.SLOW), append=False)
    if kernels.NAME == "cellblock" or kernels.NAME.startswith("cellblock"):
        return
    for item in items:
        for name in ("cellblock_only", "stand_in_fails"):
            mark = item.get_closest_marker(name)
            if mark:
                item.add_marker(pytest.mark.skip(reason=f"{name}: {mark.args[0] if mark.args else kernels.NAME}"))


def mounts():
    return {line.split(" ", 5)[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}


def descendants():
    """Living processes below this one; the dead among the adopted are reaped on the way."""
    left = []
    for p in kernels.below(os.getpid()):
        try:
            if p.status() == psutil.STATUS_ZOMBIE:
                if p.ppid() == os.getpid():
                    os.waitpid(p.pid, os.WNOHANG)
            else:
                left.append(p)
        except (psutil.NoSuchProcess, ChildProcessError):
            pass
    return left


@pytest.fixture(scope="module", autouse=True)
def nothing_left(request, tmp_path_factory):
    """No process, mount or file stays behind after a module, but for zygotes: those are there for the next ones."""
    before, mounted, shm = {p.pid for p in descendants()}, mounts(), set(os.listdir("/dev/shm"))
    folder = tmp_path_factory.mktemp(request.module.__name__)
    yield folder
    new = [p for p in descendants() if p.pid not in before and not kernels.is_zygote(p.pid)]
    left = [p for p in kernels.wait_gone(new) if not kernels.is_zygote(p.pid)]  # one may just have been started
    named = kernels.named(left)
    kernels.kill_all(left)
    descendants()
    assert not left, f"processes left behind: {named}"
    extra = {m for m in mounts() - mounted if str(folder) in m or "cellblock" in m}
    assert not extra, f"mounts left behind: {extra}"
    extra = {f for f in set(os.listdir("/dev/shm")) - shm if "cellblock" in f}
    assert not extra, f"shared memory left behind: {extra}"
    for place, folders, files in os.walk(folder):
        if "said" in files and "tmp" in folders:
            extra = os.listdir(f"{place}/tmp")
            assert not extra, f"files left behind in TMPDIR: {extra}"
        if "said" in files and "run" in folders:
            # where it is XDG_RUNTIME_DIR a zygote's folder is made there
            extra = [name for name in os.listdir(f"{place}/run") if name not in ("kernel-test.json", "cellblock")]
            assert not extra, f"files left behind beside the connection file: {extra}"


class Starter:
    def __init__(self, folder, module):
        self.folder, self.module, self.started, self.clients, self.count = folder, module, [], [], 0
        self.twins = getattr(module, "TWINS", True) or not kernels.is_cellblock(kernels.spec_argv()[0])

    def __call__(self, *, ready=True, **how):
        """Starts a kernel; gives it and a client that is ready. With TWINS = False in a module none is restored."""
        self.count += 1
        if not self.twins:
            how["args"] = ["--set", "transactions.mode=off", *how.get("args", [])]
        k = kernels.Kernel(self.folder / f"k{self.count}", **how)
        self.started.append(k)
        if ready:
            k.client = self.client(k)
            k.client.ready()
        return k

    def client(self, kernel, **how):
        c = rawclient.Client(kernel, **how)
        self.clients.append(c)
        return c

    def end(self):
        for c in self.clients:
            c.close()
        faults = []
        for k in self.started:
            if k.closed:
                continue
            try:
                k.stop()
            except AssertionError as e:
                faults.append(str(e))
        assert not faults, faults


@pytest.fixture
def start(nothing_left, request):
    starter = Starter(nothing_left / request.node.name.replace("/", "_")[:60], request.module)
    yield starter
    starter.end()


def with_python(kernel):
    """Its Python is up: what is asked before that is said to be busy twice."""
    asked = kernel.client.send("is_complete_request", {"code": "1"})
    kernel.client.reply(asked)
    kernel.client.until_idle(asked)
    return kernel


@pytest.fixture(scope="module")
def shared(nothing_left, request):
    """One kernel for the tests of a module that do no harm to it; what a module's SHARED() gives is how it starts."""
    starter = Starter(nothing_left / "shared", request.module)
    try:
        renew(starter)
        yield starter
    finally:
        starter.end()


def renew(starter):
    starter.kernel = with_python(starter(**getattr(starter.module, "SHARED", dict)()))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Beside what failed stands what its kernels have logged."""
    report = yield
    held = item.funcargs.get("shared")  # a module's own may be another thing, or several
    for each in held.values() if isinstance(held, dict) else (held,):
        if report.failed and isinstance(getattr(each, "kernel", None), kernels.Kernel):
            each.kernel.kill()
    if report.failed and isinstance(item.funcargs.get("start"), Starter):
        started = item.funcargs["start"].started
        report.sections += [(f"log of {k.folder.name}", k.said()[-5000:]) for k in started]
    return report


@pytest.fixture
def kernel(shared):
    """The module's kernel; a new one after a test that failed."""
    if shared.kernel.closed or not shared.kernel.alive():
        renew(shared)
    return shared.kernel


@pytest.fixture
def client(shared, kernel):
    """A new client of the module's kernel."""
    c = rawclient.Client(kernel)
    c.ready()
    yield c
    c.close()


@pytest.fixture
def gate(kernel):
    """A named pipe in the workspace: `open("gate").read()` in a cell waits until the test calls gate()."""
    return make_gate(kernel)


def make_gate(kernel, name="gate"):
    path = kernel.workspace / name
    if path.exists():
        path.unlink()
    os.mkfifo(path)
    owner = kernel.workspace.stat()
    os.chown(path, owner.st_uid, owner.st_gid)

    def open_it():
        path.write_text("go")

    open_it.path = path
    return open_it


@pytest.fixture
def new_gate():
    return make_gate


@pytest.fixture(scope="session")
def ordinary_user():
    """An account for what must also hold without root; only when the tests run as root."""
    if os.geteuid() != 0:
        pytest.skip("not root: the kernel runs as an ordinary user anyway")
    for name in (os.environ.get("CELLBLOCK_TEST_USER"), "cbtest", "nobody"):
        try:
            user = pwd.getpwnam(name or "")
        except KeyError:
            continue
        if subprocess.run(["runuser", "-u", user.pw_name, "--", "test", "-x", sys.executable]).returncode != 0:
            pytest.skip(f"ordinary users can't enter the folder of {sys.executable}: clone to one that they can")
        return user
    pytest.skip("no ordinary account to run as")
