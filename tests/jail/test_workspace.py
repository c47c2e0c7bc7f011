"""The workspace: its modes, what a limited layer of changes holds, and that nothing that an earlier jail left in it
leads the next one astray.

Run by ctest with CELLBLOCK_BUILD set. Everything is tried as the caller and, where root runs it, as an ordinary user.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

from broker import Broker, Refused, jail_command  # noqa: E402

BUILD = os.environ.get("CELLBLOCK_BUILD") or next(
    (str(b) for n in ("check", "dev", "release") if (b := HERE.parents[1] / "build" / n).is_dir()), "build"
)
UID = 65533
PATIENCE = 300  # s
USER = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"]


class AsMyself(unittest.TestCase):
    prefix = []
    uid = os.geteuid()

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="cb-workspace-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.folder.chmod(0o755)
        self.ws = self.folder / "ws"
        self.make({"ws/a": "a", "ws/b": "b", "ws/d/x": "x", "ws/d/e/y": "y"})

    def make(self, files):
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.give()

    def give(self):
        for folder, _, names in os.walk(self.folder):
            for name in [folder, *(os.path.join(folder, n) for n in names)]:
                os.chown(name, self.uid, self.uid if self.uid != os.geteuid() else -1, follow_symlinks=False)

    def spec(self, script, *more, mode="overlay"):
        return [
            f"workspace_source={self.ws}",
            "workspace_target=/workspace",
            f"workspace_mode={mode}",
            "argv=/bin/sh",
            "argv=-c",
            f"argv={script}",
            *more,
        ]

    def broker(self, script, *more, **how):
        b = Broker(BUILD, *self.spec(script, *more, **how), prefix=self.prefix)
        self.addCleanup(b.close)
        return b

    def run_jailed(self, script, *more, **how):
        command = [*self.prefix, *jail_command(BUILD, self.spec(script, *more, **how), "run")]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, cwd="/")

    def good(self, script, *more, **how):
        done = self.run_jailed(script, *more, **how)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def tree(self):
        return {
            str(p.relative_to(self.ws)): os.readlink(p) if p.is_symlink() else p.read_text()
            for p in sorted(self.ws.rglob("*"))
            if not p.is_dir()
        }

    # ---- overlay ----

    def test_overlay_shows_changes_inside_and_keeps_the_folder(self):
        before = self.tree()
        done = self.good(
            "cat a; echo more >> a; rm b; mkdir n; echo z > n/z; mv d/x d/e/x; rm -r d/e; mkdir d/e; ln -s /etc l;"
            "chmod 700 d; find . | sort; cat a"
        )
        self.assertEqual(done.stdout, "a.\n./a\n./d\n./d/e\n./l\n./n\n./n/z\namore\n")
        self.assertIn("changes to the workspace were dropped", done.stderr)
        self.assertEqual(self.tree(), before)
        done = self.good("cat a b; ls")
        self.assertEqual((done.stdout, done.stderr), ("aba\nb\nd\n", ""))

    def test_overlay_is_limited_in_bytes_and_files(self):
        script = "head -c 3000000 /dev/zero > big; wc -c < big; rm big; echo small > s && cat s"
        done = self.good(script, f"limit_workspace={1 << 20}")
        size, small = done.stdout.split()
        self.assertTrue(int(size) <= 1 << 20)
        self.assertEqual(small, "small")
        self.assertIn("No space left", done.stderr)
        done = self.run_jailed("i=0; while : > f$i; do i=$((i+1)); done", "limit_inodes=100")
        self.assertIn("No space left", done.stderr)

    def test_tmpfs_is_limited(self):
        done = self.run_jailed(
            "ls -A; head -c 3000000 /dev/zero > big", f"limit_workspace={1 << 20}", "workspace_source=", mode="tmpfs"
        )
        self.assertEqual(done.stdout, "")
        self.assertIn("No space left", done.stderr)

    def test_layers_themselves_are_out_of_reach(self):
        done = self.good("echo x > secret; ls -A /run; grep -c overlay /proc/self/mounts; find / -xdev -name secret")
        self.assertEqual(done.stdout.splitlines(), ["1"])
        self.assertEqual(
            self.good("grep -q overlay /proc/mounts; ls -A /run; grep -c /run /proc/mounts; true").stdout, "0\n"
        )

    def test_changes_outlive_a_guest_but_not_the_broker(self):
        broker = self.broker(
            "ls; echo new > n$$$(ls | wc -l); rm -rf d && mkdir d && echo x > d/new; cat a; echo + >> a"
        )
        self.assertEqual(broker.spawn().read("stdout"), b"a\nb\nd\na")
        first = broker.spawn().read("stdout")
        self.assertEqual(first.count(b"\n"), 5, first)
        self.assertTrue(first.endswith(b"a+\n"), first)
        self.assertTrue(broker.spawn().read("stdout").endswith(b"a+\n+\n"))
        self.assertEqual(self.good("ls").stdout, "a\nb\nd\n")

    def test_what_others_own_is_read_only(self):
        if os.geteuid() != 0:
            self.skipTest("only root can make a file of another user")
        os.chown(self.ws / "b", 4711, 4711)
        os.chmod(self.ws / "b", 0o666)
        done = self.run_jailed("cat b; echo x >> b")
        self.assertEqual(done.stdout, "b")
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual((self.ws / "b").read_text(), "b")

    def test_protected_entries_change_in_the_layer_alone(self):
        self.make({"ws/sub/.git/hooks/pre-commit": "host", "ws/sub/.git/HEAD": "ref", "ws/.envrc": "host"})
        done = self.good(
            "echo x > .envrc; echo x > sub/.git/hooks/pre-commit; cat .envrc sub/.git/hooks/*",
            "protect=.git/hooks",
            "protect=.envrc",
        )
        self.assertEqual(done.stdout, "x\nx\n")
        self.assertEqual((self.ws / ".envrc").read_text(), "host")
        self.assertEqual((self.ws / "sub/.git/hooks/pre-commit").read_text(), "host")

    def test_entries_that_the_host_would_execute_are_neither_changed_nor_made(self):
        self.make({"ws/.envrc": "host", "ws/sub/x": "x"})
        done = self.run_jailed(
            "echo x > .envrc; echo x > sub/.envrc; mkdir -p r/.git/hooks; rm .envrc; mv sub/x sub/.envrc; "
            "ln sub/x a.envrc; ln a.envrc d/.envrc; echo > d/ok; cat .envrc",
            "protect=.envrc",
            "protect=.git/hooks",
            mode="rw",
        )
        self.assertEqual(done.stdout, "host")
        self.assertEqual(done.stderr.count("Read-only file system"), 6, done.stderr)
        self.assertTrue((self.ws / "d/ok").exists())
        self.assertFalse((self.ws / "sub/.envrc").exists() or (self.ws / "r/.git/hooks").exists())

    # ---- another system than the host's ----

    def make_image(self):
        """A tiny system: a shell, cat and ls, with the libraries that they need."""
        image = self.folder / "image"
        (image / "usr/bin").mkdir(parents=True)
        for program in ("sh", "cat", "ls"):
            real = os.path.realpath(shutil.which(program))
            shutil.copy(real, image / "usr/bin" / program)
            for word in subprocess.run(["ldd", real], capture_output=True, text=True, check=True).stdout.split():
                if word.startswith("/"):
                    target = image / "usr" / re.sub("^/(usr/)?", "", word)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(os.path.realpath(word), target)
        for name in ("bin", *(n for n in ("lib", "lib64") if (image / "usr" / n).is_dir())):
            (image / name).symlink_to("usr/" + name)
        self.make({"image/usr/share/mark": "image", "image/etc/os-release": "ID=tiny\n", "image/secret": "no"})
        return image

    def test_an_image_is_the_system_inside(self):
        image = self.make_image()
        (image / "etc/localtime").symlink_to("/secret")  # in the image
        (image / "etc/fonts").symlink_to("../../ws")  # not out of it
        done = self.good(
            "cat /usr/share/mark /etc/os-release /etc/localtime; ls -d /usr/share/doc /image /secret /etc/fonts/a "
            "/run/.image; echo x > /usr/share/mark; ls / | cat",
            f"root_path={image}",
        )
        self.assertTrue(done.stdout.startswith("imageID=tiny\nno"), done.stdout)
        self.assertEqual(done.stderr.count("No such file"), 5, done.stderr)
        self.assertIn("Read-only", done.stderr)
        self.assertEqual((image / "usr/share/mark").read_text(), "image")

    def test_an_image_reached_by_a_link_is_refused(self):
        self.make_image()
        (self.folder / "link").symlink_to("image")
        done = self.run_jailed("true", f"root_path={self.folder}/link")
        self.assertEqual(done.returncode, 125)
        self.assertIn("root.path", done.stderr)

    # ---- a workspace that an earlier jail, or somebody else, has changed ----

    def refusal(self, broker):
        with self.assertRaises(Refused) as caught:
            broker.spawn()
        return caught.exception

    def test_a_folder_swapped_between_two_guests_is_refused(self):
        for mode in ("rw", "ro", "overlay"):
            with self.subTest(mode):
                broker = self.broker("ls", mode=mode)
                self.assertEqual(broker.spawn().read("stdout"), b"a\nb\nd\n")
                self.ws.rename(self.folder / "old")
                self.ws.symlink_to("/etc")
                refused = self.refusal(broker)
                self.assertEqual(refused.step, "workspace")
                self.assertIn("symbolic links", refused.cure)
                self.ws.unlink()
                self.make({"ws/other": "o"})
                self.assertIn("another folder", self.refusal(broker).text)
                (self.ws / "other").unlink()
                self.ws.rmdir()
                (self.folder / "old").rename(self.ws)
                self.assertEqual(broker.spawn().read("stdout"), b"a\nb\nd\n")

    def test_a_link_on_the_way_is_refused(self):
        (self.folder / "link").symlink_to(self.folder)
        done = self.run_jailed("ls", f"workspace_source={self.folder}/link/ws")
        self.assertEqual(done.returncode, 125)
        self.assertIn("symbolic links", done.stderr)

    def test_links_in_it_lead_nowhere_outside(self):
        outside = self.folder / "outside"
        outside.write_text("host")
        self.give()
        (self.ws / "link").symlink_to(outside)
        (self.ws / ".envrc").symlink_to(outside)
        (self.ws / "up").symlink_to("../outside")
        for mode in ("rw", "overlay"):
            done = self.run_jailed("cat link up; echo x > link; echo x > up", "protect=.envrc", mode=mode)
            self.assertEqual(done.stdout, "")
            self.assertEqual(outside.read_text(), "host")


class AsAnOrdinaryUser(AsMyself):
    prefix = USER
    uid = UID

    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0:
            raise unittest.SkipTest("not root: AsMyself was it")
        if subprocess.run([*USER, "test", "-x", f"{BUILD}/tests/spec-make"], check=False).returncode != 0:
            raise unittest.SkipTest("an ordinary user cannot reach the build folder")


if __name__ == "__main__":
    unittest.main()
