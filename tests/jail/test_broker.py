"""The broker and pid 1 with real jails, without a supervisor: launch, report, signals, every way to die, exit status.

Run by ctest with CELLBLOCK_BUILD set. Everything is tried as the caller, as root of a rootless container and, where
root runs it, as an ordinary user.
"""

import os
import select
import signal
import subprocess
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

from broker import KILL, SPAWN, Broker, Refused, jail_command  # noqa: E402

BUILD = os.environ.get("CELLBLOCK_BUILD") or next(
    (str(b) for n in ("check", "dev", "release") if (b := HERE.parents[1] / "build" / n).is_dir()), "build"
)
PATIENCE = 300  # s
USER = ["setpriv", "--reuid=65533", "--regid=65533", "--clear-groups"]
FDS = "for f in /proc/self/fd/*; do [ -L $f ] && echo ${f##*/}; done"  # one more was open while the names were read
WAIT = "while :; do read -r x <&3; done"
# Busy, since a shell that is told between looking for signals and reading would read on.
TOLD = "trap 'exit 5' INT TERM; echo ready; while :; do :; done"


def sh(script, *more):
    return ["argv=/bin/sh", "argv=-c", f"argv={script}", *more]


def status_of(pid):
    return dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())


class AsMyself(unittest.TestCase):
    prefix = []

    def broker(self, *spec):
        b = Broker(BUILD, *spec, prefix=self.prefix)
        self.addCleanup(b.close)
        return b

    def run_jailed(self, *spec, timeout=None, **kwargs):
        command = [*self.prefix, *jail_command(BUILD, spec, "run"), *(["--timeout", str(timeout)] if timeout else [])]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, cwd="/", **kwargs)

    # ---- a jail's life ----

    def test_streams_report_and_end(self):
        jail = self.broker(*sh("echo out; echo err >&2; echo log >&4; exit 3")).spawn()
        self.assertEqual(os.waitstatus_to_exitcode(jail.exited()), 3)
        self.assertTrue(jail.gone())
        self.assertEqual([jail.read("stdout"), jail.read("stderr"), jail.read("log")], [b"out\n", b"err\n", b"log\n"])

    def test_only_the_listed_descriptors(self):
        jail = self.broker(*sh(f"{FDS}; readlink /proc/self/fd/0")).spawn()
        self.assertEqual(jail.read("stdout"), b"0\n1\n2\n3\n4\n5\n6\n7\n/dev/null\n")

    def test_process_outside(self):
        jail = self.broker(*sh(WAIT)).spawn()
        status = status_of(jail.guest_pid)
        self.assertEqual(status["Name"], "sh")
        self.assertNotIn("0", status["Uid"].split())
        self.assertEqual((status["Seccomp"], status["NoNewPrivs"]), ("2", "1"))
        self.assertEqual({status[c] for c in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}, {"0" * 16})
        self.assertEqual(status["NSpid"].split()[1:], ["2"])
        pid1 = status_of(int(status["PPid"]))
        self.assertEqual((pid1["Name"], pid1["Seccomp"], pid1["NoNewPrivs"]), ("cellblock-init", "2", "1"))
        self.assertEqual(pid1["CapEff"], "0" * 16)
        if os.geteuid() == 0:
            self.assertEqual(sorted(os.listdir(f"/proc/{status['PPid']}/fd")), ["0", "1", "2", "3", "4", "5", "6"])

    def test_namespaces_are_its_own(self):
        if os.geteuid() != 0:
            self.skipTest("an ordinary user cannot look")
        jail = self.broker(*sh(WAIT)).spawn()
        for name in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
            inside, mine = os.readlink(f"/proc/{jail.guest_pid}/ns/{name}"), os.readlink(f"/proc/self/ns/{name}")
            self.assertNotEqual(inside, mine, name)

    def test_environment_is_the_descriptions(self):
        os.environ["CB_LEAK"] = "1"
        self.addCleanup(os.environ.pop, "CB_LEAK")
        jail = self.broker("argv=/usr/bin/env", "env=A=b c", "env=EMPTY=").spawn()
        self.assertEqual(jail.read("stdout"), b"A=b c\nEMPTY=\n")

    def test_orphans_are_reaped(self):
        script = (
            "set -- $(for i in 1 2 3; do (/bin/true > /dev/null & echo $!); done); "
            "for p; do while [ -e /proc/$p ]; do :; done; done; echo none of $#"
        )
        self.assertEqual(self.broker(*sh(script)).spawn().read("stdout"), b"none of 3\n")

    def test_survivors_die_with_the_guest(self):
        jail = self.broker(*sh("setsid sleep 1000 >&2 & echo started")).spawn()
        self.assertEqual(jail.read("stdout"), b"started\n")
        self.assertTrue(jail.gone())
        self.assertEqual(jail.read("stderr"), b"")

    # ---- signals and deaths ----

    def test_signal_reaches_the_guest(self):
        jail = self.broker(*sh(TOLD)).spawn()
        self.assertEqual(os.read(jail.stdout, 6), b"ready\n")
        jail.signal(signal.SIGINT)
        self.assertEqual(os.waitstatus_to_exitcode(jail.exited()), 5)

    def test_signals_that_are_none_are_ignored(self):
        jail = self.broker(*sh(TOLD)).spawn()
        self.assertEqual(os.read(jail.stdout, 6), b"ready\n")
        for number in (0, -1, 65, 2**31 - 1):
            jail.signal(number)
        jail.link.send(b"short")
        jail.signal(signal.SIGINT)
        self.assertEqual(os.waitstatus_to_exitcode(jail.exited()), 5)

    def test_every_way_to_end(self):
        broker = self.broker(*sh(WAIT))
        ways = {
            "terminate": lambda jail: jail.terminate(),
            "kill": broker.kill,
            "the link's end": lambda jail: jail.link.shutdown(2),
        }
        for name, end in ways.items():
            with self.subTest(name):
                jail = broker.spawn()
                guest = os.pidfd_open(jail.guest_pid)
                end(jail)
                self.assertTrue(jail.gone())
                self.assertTrue(select.select([guest], [], [], PATIENCE)[0])
                os.close(guest)
        broker.kill(jail)  # ended: without effect
        self.assertFalse(broker.spawn().gone(0))

    def test_broker_killed(self):
        broker = self.broker(*sh(WAIT))
        jail = broker.spawn()
        broker.process.kill()
        self.assertTrue(jail.gone())

    def test_end_of_file_ends_all(self):
        broker = self.broker(*sh(WAIT))
        guests = [os.pidfd_open(broker.spawn().guest_pid) for _ in range(2)]
        self.assertEqual(broker.close(), 0)
        for fd in guests:
            self.assertTrue(select.select([fd], [], [], PATIENCE)[0])
            os.close(fd)

    def test_signals_to_the_broker_are_ignored(self):
        broker = self.broker(*sh(WAIT))
        broker.spawn()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            broker.process.send_signal(number)
        self.assertFalse(broker.spawn().gone(0))

    # ---- refusals ----

    def refusal(self, *spec):
        with self.assertRaises(Refused) as caught:
            self.broker(*spec).spawn()
        return caught.exception

    def test_refusals_name_step_and_cure(self):
        r = self.refusal("argv=/nonexistent")
        self.assertEqual((r.step, r.code), ("exec", -2))
        self.assertIn("/nonexistent", r.text)
        r = self.refusal("argv=/bin/true", "cwd=/nonexistent")
        self.assertEqual(r.step, "working folder", r.text)
        self.assertTrue(r.cure)
        r = self.refusal("argv=/bin/true", "workspace_source=/nonexistent/w")
        self.assertEqual(r.step, "workspace")

    def test_files_of_the_host_are_not_let_in(self):
        broker = self.broker(*sh(WAIT))
        root = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
        for fds in ([root] * 7, [root] * 3, []):
            broker.ask(SPAWN, fds=fds)
            self.assertEqual(broker.answer()[0][0], -22)
        os.close(root)
        broker.ask(99)
        broker.sock.send(b"short")
        broker.ask(KILL, 4711)
        broker.ask(KILL, 0)
        self.assertFalse(broker.spawn().gone(0))

    # ---- run ----

    def test_exit_status(self):
        cases = {
            0: sh("exit 0"),
            9: sh("exit 9"),
            137: sh("kill -9 $$"),
            126: ["argv=/etc/passwd"],
            127: ["argv=/nonexistent"],
            125: ["argv=/bin/true", "workspace_source=/nonexistent/w"],
        }
        for status, spec in cases.items():
            with self.subTest(status):
                self.assertEqual(self.run_jailed(*spec).returncode, status)

    def test_stdio_passes_through(self):
        p = self.run_jailed(*sh(f"cat; echo err >&2; {FDS}"), input="hello\n")
        self.assertEqual(p.stdout, "hello\n0\n1\n2\n")
        self.assertEqual(p.stderr, "err\n")

    def test_a_folder_as_stdin_is_refused(self):
        folder = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
        p = self.run_jailed("argv=/bin/true", stdin=folder)
        os.close(folder)
        self.assertEqual(p.returncode, 125)
        self.assertIn("stdin", p.stderr)

    def test_timeout(self):
        self.assertEqual(self.run_jailed("argv=/bin/sleep", "argv=1000", timeout=0.2).returncode, 124)
        self.assertEqual(self.run_jailed(*sh("trap '' TERM; while :; do :; done"), timeout=0.2).returncode, 124)

    def test_signal_is_passed_on(self):
        command = [*self.prefix, *jail_command(BUILD, sh(TOLD), "run")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/") as p:
            try:
                self.assertEqual(p.stdout.readline(), b"ready\n")
                p.send_signal(signal.SIGTERM)
                self.assertEqual(p.wait(PATIENCE), 5)
            finally:
                p.kill()

    def test_memory_is_bounded(self):
        script = "try:\n b = bytearray(1 << 30)\nexcept MemoryError:\n print('refused')"
        p = self.run_jailed("argv=/usr/bin/python3", "argv=-c", f"argv={script}", f"limit_data={256 << 20}")
        self.assertEqual(p.stdout, "refused\n")

    def test_processes_are_bounded(self):
        script = (  # what serves the jail's calls has its tasks when it has served one
            "import os, socket, time\nsocket.socket(socket.AF_UNIX).bind('/tmp/s')\nn = 0\ntry:\n while True:\n"
            "  if os.fork() == 0: time.sleep(100)\n  n += 1\nexcept BlockingIOError:\n print(n)"
        )
        p = self.run_jailed("argv=/usr/bin/python3", "argv=-c", f"argv={script}", "limit_pids=20")
        self.assertEqual(p.stdout, "19\n")


class AsAnOrdinaryUser(AsMyself):
    prefix = USER

    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0:
            raise unittest.SkipTest("not root: AsMyself was it")
        if subprocess.run([*USER, "test", "-x", f"{BUILD}/tests/spec-make"], check=False).returncode != 0:
            raise unittest.SkipTest("an ordinary user cannot reach the build folder")


class AsRootOfARootlessContainer(AsMyself):
    """Its root is an ordinary user outside, and the only uid that it has."""

    prefix = [*(USER if os.geteuid() == 0 else []), "unshare", "--user", "--map-root-user"]

    @classmethod
    def setUpClass(cls):
        if subprocess.run([*cls.prefix, "test", "-x", f"{BUILD}/tests/spec-make"], check=False).returncode != 0:
            raise unittest.SkipTest("no user namespaces, or the build folder is out of reach")


if __name__ == "__main__":
    unittest.main()
