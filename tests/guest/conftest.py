"""Fixtures: the guest put together from the sources, and every interpreter that is there to run it.

CELLBLOCK_TEST_PYTHONS: interpreters, separated by ':'. Without it: this one, /usr/bin/python3 and what PATH has. What
is not covered is said in the header. CELLBLOCK_GUEST_DIR: a guest that is built already.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fake_supervisor import FakeSupervisor, build_guest  # noqa: E402

PROBE = """
import importlib.util as u, sys
try:
    import IPython
    v = IPython.__version__
except Exception:
    v = ''
has = [m for m in
('jedi','numpy','pandas','matplotlib','matplotlib_inline','ipywidgets','comm','nest_asyncio','pexpect',
                   'ipykernel','nbformat','sklearn','tqdm','requests') if u.find_spec(m)]
print('%d.%d' % sys.version_info[:2], v or '-', ','.join(has) or '-')
"""


class Interpreter:
    def __init__(self, path):
        self.path = path
        version, ipython, has = subprocess.run(
            [path, "-c", PROBE], check=True, capture_output=True, text=True
        ).stdout.split()
        self.version = tuple(map(int, version.split(".")))
        self.ipython = None if ipython == "-" else tuple(int(n) for n in ipython.split(".")[:2])
        self.has = set(has.split(","))
        self.name = "py%s-%s" % (version, "ipython" + ipython if self.ipython else "plain")


def _interpreters():
    listed = os.environ.get("CELLBLOCK_TEST_PYTHONS")
    if listed:
        paths = [p for p in listed.split(":") if p]
    else:
        paths = [sys.executable, "/usr/bin/python3"]
        paths += [p for p in (shutil.which("python3.%d" % minor) for minor in range(9, 15)) if p]
    found = {}
    for path in paths:
        try:
            each = Interpreter(path)
        except (OSError, subprocess.CalledProcessError):
            continue
        if each.version >= (3, 9):
            found.setdefault(each.name, each)
    return list(found.values())


INTERPRETERS = _interpreters()


def pytest_report_header(config):
    kinds = {
        "plain": lambda i: not i.ipython,
        "IPython 7 or 8": lambda i: i.ipython and i.ipython < (9,),
        "IPython 9": lambda i: i.ipython and i.ipython >= (9,),
    }
    lines = ["guest interpreters: " + ", ".join(i.name for i in INTERPRETERS)]
    for kind, test in kinds.items():
        if not any(map(test, INTERPRETERS)):
            lines.append("NOT COVERED: %s (set CELLBLOCK_TEST_PYTHONS)" % kind)
    return lines


@pytest.fixture(scope="session")
def whole_guest_dir(tmp_path_factory):
    if os.environ.get("CELLBLOCK_GUEST_DIR"):
        return Path(os.environ["CELLBLOCK_GUEST_DIR"])
    return build_guest(tmp_path_factory.mktemp("guest"))


@pytest.fixture
def guest_dir(whole_guest_dir):
    return whole_guest_dir


@pytest.fixture(params=INTERPRETERS, ids=lambda i: i.name, scope="module")
def interpreter(request, nothing_left):
    yield request.param
    for old in _shared.values():
        old.close()
    _shared.clear()


@pytest.fixture
def new_guest(interpreter, guest_dir, tmp_path):
    """Starts guests of one's own: new_guest(env={...}, cwd=…, side=…)."""
    started = []

    def start(env=None, cwd=None, hello=True, **how):
        guest = FakeSupervisor(interpreter.path, guest_dir, cwd or tmp_path, env, **how)
        started.append(guest)
        guest.interpreter = interpreter
        return guest.wait_hello() if hello else guest

    yield start
    for guest in started:
        guest.close()


_shared = {}


@pytest.fixture
def guest(interpreter, guest_dir, tmp_path_factory):
    """One guest for all tests of an interpreter; a test that leaves it dead or busy gets the next one a new one."""
    key = interpreter.name, guest_dir
    current = _shared.get(key)
    if current is None:
        current = FakeSupervisor(interpreter.path, guest_dir, tmp_path_factory.mktemp("cwd"))
        current.interpreter = interpreter
        try:
            current.wait_hello()
        except BaseException:
            current.close()
            raise
        _shared[key] = current
    current.seen.clear()
    del _shared[key]
    yield current  # put back only if it is fit for the next test
    if current.process.poll() is None and not current.pending:
        _shared[key] = current
    else:
        current.close()


@pytest.fixture
def ipython():
    """For tests of IPython mode; pytest_collection_modifyitems leaves them out elsewhere."""


@pytest.fixture
def plain():
    """The same for plain mode."""


def pytest_collection_modifyitems(config, items):
    """A test of one mode is no test of an interpreter in the other: not run, and not counted as skipped."""

    def applies(item):
        interpreter = getattr(item, "callspec", None) and item.callspec.params.get("interpreter")
        if not interpreter:
            return True
        return not (
            "ipython" in item.fixturenames
            and not interpreter.ipython
            or "plain" in item.fixturenames
            and interpreter.ipython
        )

    other = [item for item in items if not applies(item)]
    if other:
        config.hook.pytest_deselected(items=other)
        items[:] = [item for item in items if applies(item)]


@pytest.fixture
def need(interpreter):
    def check(*modules):
        missing = [m for m in modules if m not in interpreter.has]
        if missing:
            pytest.skip("%s lacks %s" % (interpreter.name, ", ".join(missing)))

    return check
