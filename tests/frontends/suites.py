"""Runs the test suites that other projects carry in their source archives, with our kernel in the place of `python3`.

Role: test code. The archives come from PyPI at test time into a cache folder (CELLBLOCK_TEST_CACHE, or
build/test-cache); nothing of them is kept in this tree. known_failures.json lists what fails for a reason that is not
ours, with that reason.
"""

import contextlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

import kernels

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("CELLBLOCK_TEST_CACHE", HERE.parents[1] / "build/test-cache"))


# With the plugins alone that are named: see pytest.ini.
PYTEST = (sys.executable, "-m", "pytest", "-q", "--disable-plugin-autoload", "-p", "no:cacheprovider")
PLUGINS = ("anyio", "asyncio", "flaky", "timeout", "cov_option")
# ipykernel's tests ask for an option of pytest-cov
COV = """def pytest_addoption(parser):
    parser.addoption("--cov", default=None)
"""


def source_archive(project):
    """The unpacked source of the version that is installed; skips, with the reason, where it can't be had."""
    version = importlib.metadata.version(project)
    folder = CACHE / f"{project}-{version}"
    if not folder.is_dir():
        with unfinished(folder) as part:
            pip = ["timeout", "400", sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", part]
            pip += ["--no-binary", project, f"{project}=={version}"]
            for more in (["--no-build-isolation"], []):  # what builds it is here, as a rule
                got = subprocess.run([*pip, *more], capture_output=True, text=True)
                if got.returncode == 0:
                    break
            archive = part / f"{project}-{version}.tar.gz"
            if got.returncode or not archive.exists():
                pytest.skip(f"NOT RUN: the source archive of {project} {version} can't be had: {got.stderr[-300:]}")
            with tarfile.open(archive) as tar:
                tar.extractall(part, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
            finish(part / folder.name, folder)
    return folder


@contextlib.contextmanager
def unfinished(folder):
    """A new folder beside this one of the cache: what is made there is seen in whole, or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".part-", dir=folder.parent) as part:
        os.chmod(part, 0o755)
        yield Path(part)


def finish(part, folder):
    """Puts it in its place, unless another run of tests was faster."""
    try:
        part.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def as_python3(folder):
    """A JUPYTER_PATH on which `python3` is our kernel."""
    argv, env = kernels.spec_argv()
    spec = folder / "jupyter/kernels/python3"
    spec.mkdir(parents=True)
    mode = "message" if kernels.is_cellblock(argv) else "signal"
    (spec / "kernel.json").write_text(
        json.dumps({"argv": argv, "env": env, "display_name": "t", "language": "python", "interrupt_mode": mode})
    )
    return str(folder / "jupyter")


def listed(project):
    return json.loads((HERE / "known_failures.json").read_text())[project]


def known_failures(project):
    kernel = "cellblock" if kernels.is_cellblock(kernels.spec_argv()[0]) else "ipykernel"
    return {**listed(project)["any kernel"], **listed(project).get(kernel, {})}


def run_suite(project, tests, folder, timeout=500, add=()):
    """Runs pytest on `tests` of the archive; gives {test id: message} of the failures and the number that passed.

    `add`: {path: text} of files that the archive lacks."""
    source = folder / "source"
    shutil.copytree(source_archive(project), source)
    for path, text in dict(add).items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_text(text)
    report = folder / "report.xml"
    bin_dir = Path(sys.executable).parent
    env = {
        **os.environ,
        "JUPYTER_PATH": as_python3(folder),
        "PATH": f"{bin_dir}:{os.environ['PATH']}",
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_ALLOW_INSECURE_WRITES": "1",
    }
    env = {k: v for k, v in env.items() if not k.startswith("PYTEST")}
    (folder / "ipython/profile_default").mkdir(parents=True)  # some tests name its path
    (source / "pytest.ini").write_text("[pytest]\n")
    (source / "cov_option.py").write_text(COV)
    done = subprocess.run(
        [
            *PYTEST,
            "-c",
            "pytest.ini",
            *(word for name in PLUGINS for word in ("-p", name)),
            "--timeout=60",
            f"--junit-xml={report}",
            *tests,
        ],
        cwd=source,
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert report.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    failed, passed = {}, 0
    for case in xml.parse(report).iter("testcase"):
        bad = case.find("failure") if case.find("failure") is not None else case.find("error")
        if bad is not None:
            failed[f"{case.get('classname').split('.')[-1]}::{case.get('name')}"] = (bad.get("message") or "")[:400]
        elif case.find("skipped") is None:
            passed += 1
    return failed, passed


def check_suite(project, tests, folder, at_least):
    failed, passed = run_suite(project, tests, folder)
    known, in_setup = known_failures(project), listed(project).get("in a set-up", ())
    late = {name for name, m in failed.items() if m.startswith("failed on setup") and any(w in m for w in in_setup)}
    new = {name: message for name, message in failed.items() if name not in known and name not in late}
    assert not new, json.dumps(new, indent=1)
    assert passed >= at_least, f"only {passed} passed: has the suite changed?"
