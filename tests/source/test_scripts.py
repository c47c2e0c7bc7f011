#!/usr/bin/env python3
"""What ./check makes of a test that fails: with stand-ins for what it builds, and a pytest that fails at first. And
what ./check and ./demo do before they build.

Role: test code, run by ctest (label "source") with the system's Python alone. The scripts are copies in a folder of
their own.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BOOTSTRAP = "VENV=$ROOT/.venv\nbegin() { :; }\nsay() { echo \"== $*\"; }\nwant_packages() { :; }\n"
BOOTSTRAP += "bootstrap() { :; }\nmake_venv() { :; }\ninstall_kernelspec() { :; }\n"
# fails until it is told to run what failed; writes what pytest would
PYTEST = """#!/bin/sh
for word; do
    case $last in --junit-xml) out=$word ;; esac
    case $word in --last-failed) again=1 ;; esac
    last=$word
done
case $1 in -m) ;; *) exec {python} "$@" ;; esac
said= status=0
[ "$again" ] || said='<failure message="it was late"/>' status=1
echo "<testsuites><testcase name='one'>$said</testcase></testsuites>" >"$out"
exit $status
"""
DIES = "#!/bin/sh\nexit 2\n"


class Check(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for name in ("tools", "tests/guest", ".venv/bin"):
            (self.root / name).mkdir(parents=True)
        for name in ("check", "tools/summary.py"):
            shutil.copy(ROOT / name, self.root / name)
        (self.root / "tools/bootstrap.sh").write_text(BOOTSTRAP)

    def run_check(self, pytest, **env):
        """The summary of a run of one suite."""
        python = self.root / ".venv/bin/python"
        python.write_text(pytest.replace("{python}", sys.executable))
        python.chmod(0o755)
        rest = {name: value for name, value in os.environ.items() if not name.startswith("CELLBLOCK")}
        told = {**rest, "CELLBLOCK_CHECK_ONLY": "suites", **env}
        subprocess.run([self.root / "check"], env=told, check=True, stdout=subprocess.DEVNULL)
        summary = [sys.executable, self.root / "tools/summary.py", self.root / "build/results"]
        return subprocess.run(summary, stdout=subprocess.PIPE, text=True, env=rest)

    def test_what_failed_has_failed(self):
        for env in ({}, {"CELLBLOCK_RETRY": "0"}):
            done = self.run_check(PYTEST, **env)
            self.assertEqual((done.returncode, done.stdout.splitlines()[-1]), (1, "0 passed, 1 failed, 0 skipped"))
            self.assertIn("FAILED user-guest: one: it was late", done.stdout)

    def test_a_second_try_is_asked_for_and_named(self):
        done = self.run_check(PYTEST, CELLBLOCK_RETRY="1")
        self.assertEqual((done.returncode, done.stdout.splitlines()[-1]), (0, "1 passed, 0 failed, 0 skipped"))
        self.assertIn("UNSTEADY user-guest: one: passed at the second try; first: it was late", done.stdout)

    def test_a_suite_that_breaks_off(self):
        done = self.run_check(DIES, CELLBLOCK_RETRY="1")
        self.assertEqual((done.returncode, done.stdout.splitlines()[-1]), (1, "0 passed, 1 failed, 0 skipped"))
        self.assertIn("FAILED user-guest: broke off", done.stdout)


class Bootstrap(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for name in ("check", "demo", "tools/bootstrap.sh"):
            (self.root / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)

    def bash(self, script, **how):
        script = f"set -u\nROOT={self.root}\n. tools/bootstrap.sh\n{script}"
        return subprocess.run([shutil.which("bash"), "-c", script, "demo"], cwd=self.root, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, **how)

    def test_one_at_a_time(self):
        (self.root / "build/results").mkdir(parents=True)
        with (self.root / "build/running").open("w") as lock:
            print(4711, file=lock, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
            for name in ("check", "demo"):
                done = subprocess.run([self.root / name], stderr=subprocess.PIPE, text=True)
                self.assertEqual(done.returncode, 1)
                self.assertIn("runs in this folder already (process 4711)", done.stderr)
            self.assertTrue((self.root / "build/results").is_dir())
        done = self.bash("flock() { return 1; }\nbegin")
        self.assertEqual(done.returncode, 1)
        self.assertIn("build/running can't be locked", done.stdout)
        done = self.bash("begin; echo $$; cat build/running")
        self.assertEqual((done.returncode, len(set(done.stdout.split()))), (0, 1), done.stdout)

    def test_what_goes_on_is_said(self):
        """The command ends when that was said twice; its output stays in the log."""
        wait = "echo talks; until grep -q 'still running after 2 s' said; do sleep 0.1; done"
        done = self.bash(f"exec >said\nSTILL_SECONDS=1\nquietly long sh -c \"{wait}\"", timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout)
        log = self.root / "build/long.log"
        self.assertEqual(log.read_text(), "talks\n")
        first, second = (self.root / "said").read_text().splitlines()[:2]
        self.assertEqual(first, f"== still running after 1 s: long (its output: {log})")
        self.assertEqual(second, f"== still running after 2 s: long (its output: {log})")

    def test_nothing_stays_of_who_says_what_goes_on(self):
        """Neither keeps the pipe that all is said to, nor the lock."""
        script = "begin\nSTILL_SECONDS=100000\nquietly short true\nexec flock build/running -c 'echo free' 9>&-"
        done = self.bash(script, timeout=300)
        self.assertEqual((done.returncode, done.stdout), (0, "free\n"))

    def test_what_is_below_is_ended(self):
        """A signal to check ends what has a session of its own, too."""
        begun = "(setsid sh -c 'echo $$ >below; exec sleep 1000' & wait) &"
        script = f"{begun}\nuntil [ -s below ]; do sleep 0.1; done\nend_below ''\nend_below $!\nwait\necho over"
        done = self.bash(script, timeout=300)
        self.assertEqual((done.returncode, done.stdout), (0, "over\n"))
        end, stat = time.monotonic() + 60, Path("/proc", (self.root / "below").read_text().strip(), "stat")
        while stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] != "Z":
            self.assertLess(time.monotonic(), end, "it runs on")
            time.sleep(0.01)

    def test_an_environment_of_another_python_stays(self):
        kept = self.root / ".venv/lib/python3.1/site-packages/mine.py"
        kept.parent.mkdir(parents=True)
        kept.touch()
        done = self.bash("make_venv")
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"the Python of {self.root}/.venv does not start", done.stdout)
        self.assertTrue(kept.exists())

    def test_an_environment_without_pip_gets_it(self):
        """And all the rest, whatever the stamps say: it was installed for the version that Python had before."""
        (self.root / "tests").mkdir()
        for name in ("requirements.txt", "requirements.lock"):
            shutil.copy(ROOT / "tests" / name, self.root / "tests" / name)
        mine, stamp, venv = self.root / ".venv/mine", self.root / ".venv/.requirements", self.root / ".venv"
        make = "install_python() { echo installs; }\nmake_venv && .venv/bin/pip --version"
        self.bash('"$(find_python)" -m venv --without-pip .venv && touch .venv/mine .venv/.client')
        self.bash("cat tests/requirements.txt tests/requirements.lock | cksum >.venv/.requirements")
        kept = stamp.read_text()
        done = self.bash(make)
        self.assertEqual((done.returncode, mine.exists(), stamp.read_text()), (0, True, kept), done.stdout)
        self.assertTrue("installs" in done.stdout and not (venv / ".client").exists(), done.stdout)
        self.assertNotIn("installs", self.bash(make).stdout)
        shutil.rmtree(next(venv.glob("lib/python*/site-packages/pip")))  # what says that it is there stays
        done = self.bash(make)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"move {venv} away", done.stdout)
        shutil.rmtree(venv / "lib")
        (venv / "bin/python").unlink()
        stamp.write_text(kept)
        self.assertIn("installs", self.bash(make).stdout)

    def test_what_other_systems_lack_is_named(self):
        """They have a C library and its headers, and the program sqlite3 without its headers."""
        tools = self.root / "bin"
        tools.mkdir()

        def program(name, text="exit 0"):
            (tools / name).write_text(f"#!/bin/sh\n{text}\n")
            (tools / name).chmod(0o755)

        for name in ("getconf", "sqlite3"):
            program(name)
        program("clang", 'case "$*" in *sqlite3.h*) exit 1 ;; esac')
        for manager, said in (("dnf", "dnf install make .*zeromq-devel .*sqlite-devel"),
                              ("pacman", "pacman -S make .*zeromq .*sqlite")):
            program(manager)
            done = self.bash("name_packages", env={"PATH": str(tools), "CC": "clang"})
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stdout, said)
            (tools / manager).unlink()


class Metadata(unittest.TestCase):
    def test_the_wheel_and_the_client_offer_the_same(self):
        """Extras and entry points stand in both: the wheel holds the client."""
        parts = []
        for name in ("pyproject.toml", "clients/python/pyproject.toml"):
            text = (ROOT / name).read_text()
            parts.append(text[text.index("[project.optional-dependencies]"):text.index("\n[tool.")])
        self.assertEqual(parts[0], parts[1])

    def test_what_is_locked_fits_each_python_of_a_minor_version(self):
        """./check turns root's environment into one of the user's Python: soupsieve 4 on 3.11.2 broke nbconvert."""
        text = (ROOT / "tests/requirements.lock").read_text()
        self.assertEqual(re.findall(r"^.*python_full_version [<>=]+ '3\.\d+\.[1-9].*$", text, re.M), [])


if __name__ == "__main__":
    unittest.main()
