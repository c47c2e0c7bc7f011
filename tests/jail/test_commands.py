"""The commands beside the kernel, with real jails: install, run, explain, doctor, and how each says what is wrong.

Run by ctest with CELLBLOCK_BUILD set. Needs no Jupyter.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = os.environ.get("CELLBLOCK_BUILD") or next(
    (str(b) for n in ("check", "dev", "release") if (b := HERE.parents[1] / "build" / n).is_dir()), "build"
)
CELLBLOCK = f"{BUILD}/bin/cellblock"
VERSION = "%d.%d.%d" % sys.version_info[:3]
VARIABLES = (
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CELLBLOCK_POLICY",
    "CELLBLOCK_LOG",
    "PYTHONPATH",
    "JUPYTER_DATA_DIR",
    "JUPYTER_CONFIG_DIR",
    "JUPYTER_CONFIG_PATH",
    "XDG_DATA_HOME",
)


class Commands(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="cb-commands-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.home, self.work = self.folder / "home", self.folder / "home/work"
        self.work.mkdir(parents=True)
        self.env = {k: v for k, v in os.environ.items() if k not in VARIABLES} | {"HOME": str(self.home)}

    def cellblock(self, *args, cwd=None, umask=-1, **env):
        return subprocess.run(
            [CELLBLOCK, *map(str, args)],
            cwd=cwd or self.work,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
            umask=umask,
        )

    def good(self, *args, **more):
        done = self.cellblock(*args, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def make_venv(self, folder):
        venv.create(folder, symlinks=True, with_pip=False)
        return folder / "bin/python"

    # ---- install ----

    def test_install(self):
        python = self.make_venv(self.folder / "v")
        done = self.good(
            "install",
            "--python",
            python,
            "--name",
            "mine",
            "--display-name",
            "My Ünïcode",
            "--policy",
            "agent",
            "--set",
            "timeout.cell=3",
            "--env",
            "A",
            "b c",
        )
        folder = self.home / ".local/share/jupyter/kernels/mine"
        self.assertIn(str(folder), done.stdout)
        spec = json.loads((folder / "kernel.json").read_text())
        self.assertEqual(
            spec["argv"],
            [
                os.path.realpath(CELLBLOCK),
                "kernel",
                "--python",
                str(python),
                "--facts",
                str(folder / "interpreter.json"),
                "--policy",
                "agent",
                "--set",
                "timeout.cell=3",
                "--set",
                "env.set.A=b c",
                "-f",
                "{connection_file}",
            ],
        )
        self.assertEqual(spec["display_name"], "My Ünïcode")
        self.assertEqual(spec["language"], "python")
        self.assertEqual(spec["interrupt_mode"], "message")
        self.assertEqual(spec["kernel_protocol_version"], "5.5")
        self.assertEqual(spec["metadata"], {"debugger": False, "supported_encryption": "curve"})
        self.assertEqual(spec["env"], {"A": "b c"})
        for size in (32, 64):
            self.assertEqual((folder / f"logo-{size}x{size}.png").read_bytes()[:4], b"\x89PNG")
        self.assertIn("<svg", (folder / "logo-svg.svg").read_text())
        self.assertGreater((folder / "pycache/bundle.pyc").stat().st_size, 500_000)
        facts = json.loads((folder / "interpreter.json").read_text())
        self.assertEqual(facts["answer"]["version"], VERSION)

    def test_a_client_that_fills_in_the_connection_file_alone(self):
        """The kernel finds its facts, and makes none where it was started."""
        self.good("install", "--python", self.make_venv(self.folder / "v"))
        spec = json.loads((self.home / ".local/share/jupyter/kernels/cellblock/kernel.json").read_text())
        names = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
        connection = {"transport": "ipc", "ip": str(self.folder / "s"), "key": "k", "signature_scheme": "hmac-sha256"}
        file = self.folder / "connection.json"
        file.write_text(json.dumps(connection | {name: i for i, name in enumerate(names, 1)}))
        (self.work / "{resource_dir}").mkdir()
        argv = [word.replace("{connection_file}", str(file)) for word in spec["argv"]]
        kernel = subprocess.Popen(argv, cwd=self.work, env=self.env | spec["env"], stderr=subprocess.DEVNULL)
        try:
            while kernel.poll() is None and not all((self.folder / f"s-{i}").exists() for i in range(1, 6)):
                pass
            self.assertIsNone(kernel.poll())
        finally:
            kernel.kill()
            kernel.wait()
        self.assertEqual(list((self.work / "{resource_dir}").iterdir()), [])

    def test_install_again_leaves_nothing_of_the_last(self):
        """What lies there is given to each jail."""
        python = self.make_venv(self.folder / "v")
        self.good("install", "--python", python)
        cache = self.home / ".local/share/jupyter/kernels/cellblock/pycache"
        made = sorted(cache.iterdir())
        for name in ("trees-CPython-30-33-of_another_place.pkl", "fontlist-v1.json", "main.cpython-30.pyc"):
            (cache / name).write_text("old")
        self.good("install", "--python", python)
        self.assertEqual(sorted(cache.iterdir()), made)

    def test_install_places(self):
        python = self.make_venv(self.folder / "v")
        self.good("install", "--python", python, "--sys-prefix")
        self.assertTrue((self.folder / "v/share/jupyter/kernels/cellblock/kernel.json").exists())
        self.good("install", "--python", python, "--prefix", "some/prefix")
        self.assertTrue((self.work / "some/prefix/share/jupyter/kernels/cellblock/kernel.json").exists())
        self.good("install", "--python", python, JUPYTER_DATA_DIR=str(self.folder / "data"))
        self.assertTrue((self.folder / "data/kernels/cellblock/kernel.json").exists())

    def test_install_names_what_the_jail_will_not_see(self):
        python = self.make_venv(self.folder / "v")
        site = next((self.folder / "v/lib").glob("python3*")) / "site-packages"
        for name in ("linked", "editable", "path"):
            (self.folder / name).mkdir()
        (site / "linked.pth").write_text(f"{self.folder}/linked\n/no/such/folder\nimport os\n")
        (site / "x-1.dist-info").mkdir()
        (site / "x-1.dist-info/direct_url.json").write_text(
            json.dumps({"url": f"file://{self.folder}/editable", "dir_info": {"editable": True}})
        )
        done = self.good("install", "--python", python, PYTHONPATH=str(self.folder / "path"))
        for name in ("linked", "editable", "path"):
            self.assertIn(f"  {self.folder}/{name}\n", done.stderr)
        self.assertNotIn("/no/such", done.stderr)

    def test_install_says_what_hides_it(self):
        python = self.make_venv(self.folder / "v")
        other = self.folder / "v/share/jupyter/kernels/python3/kernel.json"
        other.parent.mkdir(parents=True)
        other.write_text("{}")
        for environment in ({}, {"VIRTUAL_ENV": str(self.folder / "v")}):
            done = self.good("install", "--name", "python3", "--python", python, **environment)
            self.assertEqual(done.stderr.count(f"--prefix '{self.folder}/v'"), 1, done.stderr)
        self.assertNotIn("--prefix", self.good("install", "--name", "mine", "--python", python).stderr)
        done = self.good("install", "--name", "python3", "--python", python, "--prefix", self.folder / "v")
        self.assertNotIn("--prefix", done.stderr)
        self.assertIn("Cellblock", other.read_text())

    def test_install_says_that_a_python_was_not_tried(self):
        python = self.folder / "p/bin/python3"
        python.parent.mkdir(parents=True)
        for version, tried in (("3.8.18", False), ("3.9.18", True), ("3.14.0", True), ("3.15.0", False)):
            answer = {"version": version, "ipython": None, "debugpy": False, "bash": None, "missing": []}
            python.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
            python.chmod(0o755)
            done = self.good("install", "--python", python)
            self.assertIn(version, done.stdout)
            self.assertEqual("3.9 to 3.14" not in done.stderr, tried, done.stderr)

    def test_a_jail_that_the_interpreter_could_not_be_asked_in(self):
        python = self.folder / "p/bin/python3"
        python.parent.mkdir(parents=True)
        python.write_text("#!/no/such/program\n")
        python.chmod(0o755)
        done = self.cellblock("install", "--python", python)
        self.assertEqual(done.returncode, 1)
        cause, cure = done.stderr.splitlines()
        self.assertIn("exec", cause)
        self.assertIn("No such file or directory", cause)
        self.assertIn("that the jail can see", cure)

    def test_install_mistakes(self):
        for args, status, word in (
            (["--python", "/no/such/python"], 1, "/no/such/python"),
            (["--python", "/etc/passwd"], 1, "no such program"),
            (["--name", "a/b"], 2, "a/b"),
            (["--nmae", "x"], 2, "--name"),
            (["--user", "--sys-prefix"], 2, "exclude"),
            (["--policy", "agnet"], 2, "agent"),
            (["--set", "timeout.cel=1"], 2, "timeout.cell"),
            (["--set", "network.mode=allow"], 2, "not built"),
            (["--env", "1A", "x"], 2, "env.set"),
            (["--prefix", "/proc/nowhere"], 1, "--prefix"),
        ):
            done = self.cellblock("install", *args)
            self.assertEqual(done.returncode, status, (args, done.stderr))
            self.assertIn(word, done.stderr)
            self.assertEqual(done.stdout, "")
        self.assertFalse((self.home / ".local/share/jupyter").exists())

    def test_an_install_that_fails_leaves_nothing(self):
        folder = self.home / ".local/share/jupyter/kernels/mine"
        (folder / "kernel.json").mkdir(parents=True)  # in the place of the last that is written
        done = self.cellblock("install", "--name", "mine", "--python", self.make_venv(self.folder / "v"))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("can't be written", done.stderr)
        self.assertEqual(os.listdir(folder), ["kernel.json"])

    def test_a_first_install_that_is_killed_leaves_no_kernelspec(self):
        """While it writes its first file, which a limit ends here. What it leaves can be removed."""
        python = self.folder / "p/bin/python3"
        python.parent.mkdir(parents=True)
        paths = ["/" + "./" * (1900 + n) + "usr" for n in range(60)]
        answer = {"version": "3.12.1", "ipython": None, "debugpy": False, "bash": None, "missing": paths}
        python.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
        python.chmod(0o755)
        done = subprocess.run(
            ["prlimit", "--fsize=131072", CELLBLOCK, "install", "--python", python],
            cwd=self.work,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertEqual(done.returncode, -signal.SIGXFSZ, done.stderr)
        folder = self.home / ".local/share/jupyter/kernels/cellblock"
        (left,) = os.listdir(folder)
        self.assertRegex(left, r"^interpreter\.json\.\w{6}$")
        (folder / left).rename(folder / "interpreter.json.Ab12cd")  # chance may choose a word, which would be left
        self.assertIn("what was left of the kernelspec", self.good("uninstall").stdout)
        self.assertFalse(folder.exists())

    def test_what_could_not_be_written_is_told(self):
        for words in (["version"], ["help"], ["--help"], ["completion", "bash"], ["explain"], ["doctor"]):
            with open("/dev/full", "w") as full:
                done = subprocess.run(
                    [CELLBLOCK, *words],
                    cwd=self.work,
                    env=self.env,
                    stdout=full,
                    stderr=subprocess.PIPE,
                    text=True,
                    timeout=60,
                )
            self.assertNotEqual(done.returncode, 0, words)
            name = f"cellblock {words[0]}" if words[0] != "--help" else "cellblock"
            self.assertRegex(done.stderr, f"^{name}: stdout can't be written.*\n$")

    def test_each_error_of_a_command_begins_with_its_name(self):
        wrong = (["--no-such"], ["--timeout", "x", "true"], ["--set", "no.such=1", "true"], ["/no/such"])
        for words in wrong:
            self.assertTrue(self.cellblock("run", *words).stderr.startswith("cellblock run: "), words)
        self.assertIn("cellblock: unknown command", self.cellblock("no-such").stderr)

    def test_the_log_level_is_that_of_all_programs(self):
        self.assertIn("launch took", self.good("run", "--log-level", "debug", "true").stderr)
        self.assertNotIn("launch took", self.good("run", "--log-level", "error", "true", CELLBLOCK_LOG="debug").stderr)

    def test_an_ipython_that_is_too_old_is_said(self):
        python = self.make_venv(self.folder / "v")
        packages = next((self.folder / "v/lib").glob("python3*/site-packages"))
        (packages / "IPython").mkdir()
        (packages / "IPython/__init__.py").touch()
        for version, plain in (("7.20.0", True), ("7.21.0", False), ("10.0.0", False), ("5.9", True)):
            about = packages / f"ipython-{version}.dist-info"
            about.mkdir()
            (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: ipython\nVersion: {version}\n")
            said = self.good("install", "--python", python, "--sys-prefix").stdout
            said += self.good("explain", "--python", python).stdout
            self.assertEqual(said.count(f"IPython {version}"), 2, said)
            self.assertEqual(said.count("which is older than 7.21: plain mode"), 2 * plain, said)
            shutil.rmtree(about)

    def test_facts_are_asked_again_when_the_interpreter_changed(self):
        python = self.make_venv(self.folder / "v")
        self.good("install", "--python", python, "--sys-prefix")
        facts = self.folder / "v/share/jupyter/kernels/cellblock/interpreter.json"
        known = json.loads(facts.read_text())
        known["answer"]["version"] = "3.99.1"
        facts.write_text(json.dumps(known))
        ask = ("explain", "--json", "--python", python, "--facts", facts)
        # the stamp is the same: believed
        self.assertEqual(json.loads(self.good(*ask).stdout)["interpreter"]["version"], "3.99.1")
        known["stamp"]["mtime_ns"] += 1
        facts.write_text(json.dumps(known))
        self.assertEqual(json.loads(self.good(*ask).stdout)["interpreter"]["version"], VERSION)
        self.assertEqual(json.loads(facts.read_text())["answer"]["version"], VERSION)
        facts.write_text("{")
        self.assertEqual(json.loads(self.good(*ask).stdout)["interpreter"]["version"], VERSION)

    # ---- uninstall ----

    def test_uninstall_removes_what_install_wrote(self):
        python = self.make_venv(self.folder / "v")
        for where, folder in (
            ([], self.home / ".local/share/jupyter/kernels"),
            (["--prefix", "some/prefix"], self.work / "some/prefix/share/jupyter/kernels"),
            (["--sys-prefix", "--python", python], self.folder / "v/share/jupyter/kernels"),
        ):
            self.good("install", "--python", python, "--name", "mine", *where)
            self.assertTrue((folder / "mine/kernel.json").exists())
            done = self.good("uninstall", "--name", "mine", *where)
            self.assertIn(str(folder / "mine"), done.stdout)
            self.assertFalse(folder.exists())
            done = self.cellblock("uninstall", "--name", "mine", *where)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"no kernelspec in {folder}/mine: No such file or directory\n", done.stderr)

    def test_uninstall_removes_nothing_else(self):
        python = self.make_venv(self.folder / "v")
        self.good("install", "--python", python)
        folder = self.home / ".local/share/jupyter/kernels/cellblock"
        (folder / "mine.txt").write_text("kept")
        (folder / "pycache/other").write_text("kept")
        done = self.good("uninstall")
        self.assertIn("did not write", done.stdout)
        left = sorted(str(f.relative_to(folder)) for f in folder.rglob("*"))
        self.assertEqual(left, ["mine.txt", "pycache", "pycache/other"])
        other = folder.parent / "python3"
        other.mkdir()
        spec = {"argv": ["/usr/bin/python3", "-m", "ipykernel_launcher"], "display_name": "x", "language": "python"}
        (other / "kernel.json").write_text(json.dumps(spec))
        done = self.cellblock("uninstall", "--name", "python3")
        self.assertEqual(done.returncode, 1)
        self.assertIn("does not start cellblock", done.stderr)
        self.assertTrue((other / "kernel.json").exists())
        for name in ("../cellblock", ".", "a/b"):
            self.assertEqual(self.cellblock("uninstall", "--name", name).returncode, 2)

    # ---- help, version, completion ----

    def commands(self):
        text = self.good("--help").stdout.partition("commands:\n")[2]
        return re.findall(r"^  (\w+) ", text, re.M)

    def test_help_and_version(self):
        self.assertEqual(self.good("help").stdout, self.good("--help").stdout)
        self.assertEqual(self.good("version").stdout, self.good("--version").stdout)
        commands = self.commands()
        self.assertLessEqual({"install", "uninstall", "list", "completion", "help", "version"}, set(commands))
        for command in commands:
            text = self.good("help", command).stdout
            self.assertEqual(text, self.good(command, "--help").stdout)
            self.assertLessEqual(max(map(len, text.splitlines())), 100)
        done = self.cellblock("help", "instal")
        self.assertEqual(done.returncode, 2)
        self.assertIn("'install'", done.stderr)

    def test_help_of_run_says_what_each_option_is_for(self):
        text = " ".join(self.good("run", "--help").stdout.split())
        for words in (
            "the one folder that the command can write",
            "exit status 124",
            "put its bin folder first in PATH",
            "as in network.mode=full",
            "125 could not isolate",
        ):
            self.assertIn(words, text)
        self.assertNotIn("--facts", text)

    def completed(self, *words):
        """What bash would offer for the last word."""
        script = self.good("completion", "bash").stdout + (
            'compopt() { :; }\nCOMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _cellblock; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = subprocess.run(["bash", "-c", script, "-", *words], cwd=self.work, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.split()

    def test_completion_in_bash(self):
        self.assertEqual(self.completed("cellblock", "unin"), ["uninstall"])
        self.assertLessEqual(set(self.commands()), set(self.completed("cellblock", "")))
        for command in self.commands():
            listed = re.findall(r"^  (?:-., )?(--?[\w-]+)", self.good("help", command).stdout, re.M)
            offered = self.completed("cellblock", command, "-")
            self.assertLessEqual(
                {o for o in listed if o != "--f"}, {o.replace("-f", "--f") for o in offered} | {*offered}
            )
        self.assertEqual(self.completed("cellblock", "run", "--time"), ["--timeout"])
        self.assertEqual(self.completed("cellblock", "run", "--policy", "ag"), ["agent"])
        self.assertEqual(self.completed("cellblock", "run", "--policy", "=", "ag"), ["agent"])
        self.assertEqual(
            self.completed("cellblock", "explain", "--set", "network.m"),
            ["network.mode=none", "network.mode=allow", "network.mode=full"],
        )
        self.assertEqual(self.completed("cellblock", "explain", "--set", "network.mode", "=", "fu"), ["full"])
        self.assertEqual(self.completed("cellblock", "explain", "--set", "timeout.cel"), ["timeout.cell="])
        self.assertEqual(self.completed("cellblock", "completion", "z"), ["zsh"])
        self.assertEqual(self.completed("cellblock", "help", "expl"), ["explain"])
        (self.work / "folder").mkdir()
        (self.work / "file").touch()
        self.assertEqual(self.completed("cellblock", "run", "--workspace", "f"), ["folder"])
        self.assertEqual(self.completed("cellblock", "audit", "f"), [])  # files: by bash itself
        self.assertIn("true", self.completed("cellblock", "run", "tru"))

    def test_completion_for_other_shells(self):
        for shell in ("zsh", "fish"):
            text = self.good("completion", shell).stdout
            for words in ("uninstall", "network.mode=full", "notebook agent", "log-level", "bash zsh fish"):
                self.assertIn(words, text)
            if shutil.which(shell):
                done = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(self.cellblock("completion").returncode, 2)
        self.assertEqual(self.cellblock("completion", "tcsh").returncode, 2)

    def test_manual_pages(self):
        pages = Path(BUILD) / "shell/man"
        if not (pages / "stamp").exists():
            self.skipTest("NOT RUN: no scdoc when this was built")
        for command in self.commands():
            page = (pages / f"cellblock-{command}.1").read_text().replace("\\&", "")
            for option in re.findall(r"^  (?:-., )?(--[\w-]+)", self.good("help", command).stdout, re.M):
                self.assertIn(option if option != "--f" else "-f", page)
            self.assertIn(f"cellblock-{command}", (pages / "cellblock.1").read_text())
        page = (pages / "cellblock-policy.5").read_text().replace("\\&", "")
        for key in json.loads(self.good("explain", "--json").stdout)["policy"]["keys"]:
            self.assertIn(f"\\fB{key}\\fR (notebook: ", page)
        page = page.replace("\\", "")
        self.assertIn("Allowed: none, full. Not built yet: allow\n", page)
        self.assertEqual(page.count("Not built yet: all but []\n"), 2)
        self.assertIn("import; [] = any: see docs/policy.md", page)
        self.assertNotIn("see below", page)

    # ---- run ----

    def test_files_have_the_modes_that_the_users_umask_says(self):
        for umask in (0o027, 0o002, 0o077):
            self.good("run", "sh", "-c", "mkdir folder; echo > file", umask=umask)
            modes = [(self.work / name).stat().st_mode & 0o777 for name in ("folder", "file")]
            self.assertEqual(modes, [0o777 & ~umask, 0o666 & ~umask])
            (self.work / "folder").rmdir()
            (self.work / "file").unlink()

    def test_run_passes_output_and_status_through(self):
        done = self.cellblock("run", "--", "sh", "-c", "echo out; echo err >&2; pwd; exit 7")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (7, f"out\n{self.work}\n", "err\n"))

    def test_run_statuses(self):
        for limit in (("--timeout", "0.2"), ("--set", "timeout.cell=0.2")):
            done = self.cellblock("run", *limit, "sleep", "60")
            self.assertEqual(done.returncode, 124)
            said = "the command ran over its limit of 0.2 s (timeout.cell); --timeout S gives it S seconds"
            self.assertEqual(done.stderr, f"cellblock run: ended: {said}\n")
        self.assertEqual(self.cellblock("run", "no-such-program").returncode, 127)
        self.assertEqual(self.cellblock("run", "/no/such/program").returncode, 127)
        self.assertEqual(self.cellblock("run", "/etc/passwd").returncode, 126)
        self.assertEqual(self.cellblock("run", "--workspace", "/no/such", "true").returncode, 2)
        self.assertEqual(self.cellblock("run").returncode, 2)

    def test_a_command_that_ended_while_run_was_stopped_itself(self):
        """As by Ctrl-Z: the limit of time has passed when it looks again, and it is not the command that ran over."""
        wait = "echo going; until [ -e stopped ]; do sleep 0.05; done; exit 3"
        run = [CELLBLOCK, "run", "--timeout", "5", "sh", "-c", wait]
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(run, cwd=self.work, env=self.env, stdin=subprocess.DEVNULL, text=True, **both) as done:
            self.assertEqual(done.stdout.readline(), "going\n")
            time.sleep(0.5)  # until it waits
            done.send_signal(signal.SIGSTOP)
            (self.work / "stopped").touch()
            time.sleep(5.5)
            done.send_signal(signal.SIGCONT)
            self.assertEqual((done.wait(60), done.stderr.read()), (3, ""))

    def test_run_keeps_the_environment_out(self):
        done = self.good("run", "env", SECRET="s", LC_TIME="C")
        names = {line.split("=")[0] for line in done.stdout.splitlines()}
        self.assertEqual(
            names - {"PWD", "SHLVL", "_"},
            {"PATH", "HOME", "USER", "TMPDIR", "LANG"}
            | ({"SHELL"} if self.env.get("SHELL", "").startswith(("/bin/", "/usr/")) else set())
            | {n for n in {**self.env, "LC_TIME": ""} if n in ("LANG", "TZ") or n.startswith("LC_")},
        )

    def test_run_with_a_venv(self):
        python = self.make_venv(self.work / "v")
        done = self.good("run", "python", "-c", "import sys; print(sys.prefix)", VIRTUAL_ENV=str(self.work / "v"))
        self.assertEqual(done.stdout, f"{self.work}/v\n")
        for mode, works in (("ro", False), ("session", True)):
            plant = ("run", "--python", python, "--set", f"packages.mode={mode}", "sh", "-c", "echo x > v/bin/evil")
            self.assertEqual(self.cellblock(*plant).returncode == 0, works)
            self.assertFalse((self.work / "v/bin/evil").exists())

    def test_home_is_no_workspace(self):
        (self.home / "secret").write_text("s")
        done = self.good("run", "sh", "-c", "pwd; ls -A; echo x > lost", cwd=self.home)
        self.assertEqual(done.stdout, f"{self.home}\n")
        self.assertIn("--workspace", done.stderr)
        self.assertFalse((self.home / "lost").exists())
        done = self.cellblock("run", "--workspace", self.home, "true")
        self.assertEqual(done.returncode, 2)
        self.assertIn("home", done.stderr)

    def test_policy_in_the_workspace_is_refused(self):
        (self.work / "p.json").write_text("{}")
        done = self.cellblock("run", "--policy", "./p.json", "true")
        self.assertEqual(done.returncode, 2)
        self.assertIn("workspace", done.stderr)

    def test_no_cell_writes_a_policy_that_is_taken_by_its_name(self):
        config = {"JUPYTER_CONFIG_PATH": f"{self.folder}/none:{self.work}/etc/jupyter"}
        write = ("sh", "-c", "mkdir -p etc/jupyter/cellblock && echo '{}' > etc/jupyter/cellblock/strict.json")
        self.assertNotEqual(self.cellblock("run", *write, **config).returncode, 0)
        self.assertFalse((self.work / "etc/jupyter").exists())
        self.good("run", *write)
        other = self.folder / "other"
        other.mkdir()
        self.good("explain", "--policy", "strict", cwd=other, **config)  # that is where it is looked for

    def test_no_cell_writes_beside_a_history_that_is_a_link(self):
        (self.work / "sub").mkdir()
        (self.home / "history.sqlite").symlink_to("work/way/history.sqlite")
        (self.work / "way").symlink_to("sub")
        ours = ("--set", f"history.file={self.home}/history.sqlite")
        for write in ("echo x > sub/history.sqlite", "echo x > sub/history.sqlite-wal", "rm way", "mv sub other"):
            self.assertNotEqual(self.cellblock("run", *ours, "sh", "-c", write).returncode, 0, write)
        self.assertEqual([p.name for p in sorted(self.work.iterdir())], ["sub", "way"])
        self.assertEqual(list((self.work / "sub").iterdir()), [])
        self.good("run", *ours, "sh", "-c", "echo x > beside")

    def test_no_cell_writes_the_history_of_kernels_with_other_policies(self):
        share = self.home / ".local/share"
        (share / "cellblock").mkdir(parents=True)
        history = share / "cellblock/history.sqlite"
        history.write_text("theirs")
        at = ("--policy", "agent", "--set", "workspace.mode=rw", "--workspace")
        for write in ("echo x >> cellblock/history.sqlite", "echo x > cellblock/new", "mv cellblock other"):
            self.assertNotEqual(self.cellblock("run", *at, share, "sh", "-c", write).returncode, 0, write)
        self.assertEqual((history.read_text(), list(share.rglob("*"))), ("theirs", [history.parent, history]))
        self.good("run", *at, share, "sh", "-c", "echo x > beside")
        done = self.cellblock("run", *at, history.parent, "true")
        self.assertEqual(done.returncode, 2)
        self.assertIn("which Jupyter or Cellblock takes", done.stderr)

    def test_agent_works_on_an_overlay(self):
        (self.work / "file").write_text("x")
        done = self.good("run", "--policy", "agent", "sh", "-c", "pwd; ls -A; echo y > new; echo y > file; cat file")
        self.assertEqual(done.stdout, "/workspace\nfile\ny\n")
        self.assertIn("2 changes to the workspace were dropped", done.stderr)
        self.assertEqual(self.good("run", "--policy", "agent", "ls").stderr, "")
        self.assertEqual([f.read_text() for f in self.work.iterdir()], ["x"])
        done = self.good("run", "--policy", "agent", "--set", "workspace.mode=rw", "cat", "file")
        self.assertEqual((done.stdout, done.stderr), ("x", ""))

    def test_changes_are_not_counted_for_longer_than_anybody_waits(self):
        for i in range(12):
            with open(self.work / f"big{i}", "wb") as f:
                f.truncate(1 << 30)  # of holes alone, and a second to compare with the layer's
        script = "trap '' INT; for f in big*; do : >> $f; done; echo ready"
        command = [CELLBLOCK, "run", "--set", "workspace.mode=overlay", "sh", "-c", script]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, "text": True}
        with subprocess.Popen(command, cwd=self.work, env=self.env, **pipes) as run:
            self.assertEqual(run.stdout.readline(), "ready\n")
            while run.poll() is None:
                run.send_signal(signal.SIGINT)  # of those that come while the jail ends none counts
                time.sleep(0.05)
            self.assertIn("not all counted", run.stderr.read())
        self.assertEqual(run.returncode, 0)

    # ---- projects ----

    def make_project(self, parent):
        """(project, its folder of notebooks)"""
        project = parent / "group/proj"
        (project / "nb").mkdir(parents=True)
        (project / "data").mkdir()
        (project / "data/x.csv").write_text("a,b\n")
        (project / "pyproject.toml").touch()
        return project, project / "nb"

    def test_the_current_folder_stays_where_the_workspace_holds_it(self):
        project, nb = self.make_project(self.folder)
        for more, where in (
            (["--workspace", project], nb),
            (["--workspace", ".."], nb),
            (["--workspace", project, "--set", "workspace.mode=overlay"], nb),
            (["--workspace", project, "--set", "workspace.target=/workspace"], "/workspace/nb"),
            (["--workspace", project / "data"], project / "data"),
            (["--set", "workspace.mode=tmpfs"], nb),
            (["--workspace", project, "--set", "workspace.mode=tmpfs"], project),
        ):
            done = self.good("run", *more, "pwd", cwd=nb)
            self.assertEqual(done.stdout, f"{where}\n", more)

    def test_a_project_is_the_workspace(self):
        project, nb = self.make_project(self.folder)
        for options in (["--workspace", "project"], ["--set", "workspace.path=project"]):
            done = self.good("run", *options, "sh", "-c", "pwd; cat ../data/x.csv; echo y > ../new", cwd=nb)
            self.assertEqual(done.stdout, f"{nb}\na,b\n")
            self.assertEqual((project / "new").read_text(), "y\n")
        # the nearest one
        (nb / "sub/deep").mkdir(parents=True)
        for name in ".git .hg .jj .svn pyproject.toml setup.py setup.cfg Pipfile pixi.toml environment.yml".split():
            (nb / "sub" / name).mkdir()
            keys = json.loads(self.good("explain", "--json", "--workspace", "project", cwd=nb / "sub/deep").stdout)
            self.assertEqual(keys["policy"]["keys"]["workspace.path"], str(nb / "sub"))
            (nb / "sub" / name).rmdir()

    def test_no_project_is_the_folder_itself_and_never_the_home(self):
        def path_from(cwd):
            told = json.loads(self.good("explain", "--json", "--workspace", "project", cwd=cwd).stdout)
            return told["policy"]["keys"]["workspace.path"], told["policy"]["workspace_note"]

        (self.home / ".git").mkdir()  # of those who keep their dotfiles so
        (self.folder / "pyproject.toml").touch()
        self.assertEqual(path_from(self.work), (str(self.work), None))
        path, note = path_from(self.home)
        self.assertEqual(path, str(self.home))
        self.assertIn("an empty folder in memory", note)
        project, nb = self.make_project(self.home)
        self.assertEqual(path_from(nb), (str(project), None))

    def test_a_project_that_others_could_have_planted_is_none(self):
        project, nb = self.make_project(self.folder)
        project.chmod(0o777)
        told = json.loads(self.good("explain", "--json", "--workspace", "project", cwd=nb).stdout)
        self.assertEqual(told["policy"]["keys"]["workspace.path"], str(nb))

    def test_install_project(self):
        python = self.make_venv(self.folder / "v")
        self.good("install", "--python", python, "--project")
        spec = json.loads((self.home / ".local/share/jupyter/kernels/cellblock/kernel.json").read_text())
        at = spec["argv"].index("--set")
        self.assertEqual(spec["argv"][at + 1], "workspace.path=project")

    def test_parents_of_the_workspace_are_read_only(self):
        try_out = "for d in .. ../..; do echo x > $d/out.txt || mkdir $d/folder || mv $d/proj $d/p; done; echo y > in"
        for parent in ("/tmp", "/var/tmp", str(self.home)):
            for mode in ("rw", "overlay", "tmpfs"):
                with tempfile.TemporaryDirectory(prefix="cb-project-", dir=parent) as folder:
                    project, nb = self.make_project(Path(folder))
                    os.chmod(folder, 0o755)
                    how = ("run", "--set", f"workspace.mode={mode}")
                    done = self.good(*how, "sh", "-c", f"{try_out}; pwd; find {folder}", cwd=nb)
                    self.assertGreaterEqual(done.stderr.count("Read-only file system"), 4, done.stderr)
                    found = [folder, f"{folder}/group", str(project), str(nb), f"{nb}/in"]
                    self.assertEqual(done.stdout.split(), [str(nb), *found])
                    if mode == "rw":
                        self.assertEqual((nb / "in").read_text(), "y\n")
                    else:
                        self.assertEqual(list(nb.iterdir()), [])
                    everywhere = "echo x > /tmp/a && echo x > /var/tmp/b && test -e /tmp/b"
                    self.good(*how, "sh", "-c", everywhere, cwd=nb)

    def test_an_interpreter_below_var_tmp(self):
        with tempfile.TemporaryDirectory(prefix="cb-project-", dir="/var/tmp") as folder:
            os.chmod(folder, 0o755)
            python = self.make_venv(Path(folder) / "v")
            done = self.good("run", "--python", python, "python", "-c", "import sys; print(sys.prefix)")
            self.assertEqual(done.stdout, f"{folder}/v\n")

    # ---- explain, doctor ----

    def test_explain(self):
        text = self.good("explain", "--policy", "agent").stdout
        self.assertIn("workspace.mode", text)
        self.assertIn('warm.preload         ["numpy", "pandas"]', text)
        told = json.loads(self.good("explain", "--json", "--set", "limits.pids=77").stdout)
        self.assertEqual(told["policy"]["not_built"], [])
        self.assertEqual(told["policy"]["keys"]["limits.pids"], 77)
        self.assertEqual(told["policy"]["keys"]["workspace.path"], str(self.work))
        self.assertTrue(told["jail"])

    def test_docs_list_the_system_calls(self):
        told = json.loads(self.good("explain", "--json").stdout)
        allowed = set()
        for group in told["jail"]["syscalls"]:
            for part in group["calls"].split("; "):
                label, _, calls = part.partition(": ")
                if label in ("allowed", "by their arguments"):
                    allowed |= set(calls.split())
        self.assertLessEqual(len(allowed), 160)
        page = (HERE.parents[1] / "docs/syscalls.md").read_text()
        listed = dict(re.findall(r"^\| `(\w+)` \| (\S.*) \|$", page, re.M))
        if os.uname().machine == "x86_64":
            self.assertEqual(set(listed), allowed, "see tests/tools/syscalls.py")
            self.assertIn(f"\n{len(allowed)} system calls are allowed on x86-64", page)
            self.assertIn(f"{len(allowed)} are allowed", self.good("explain").stdout)
        self.assertLessEqual(allowed, set(listed))

    def test_doctor(self):
        text = self.good("doctor").stdout
        told = json.loads(self.good("doctor", "--json").stdout)
        self.assertTrue(text.startswith(f'Level "{told["level"]}": {told["meaning"]}\n'), text)
        self.assertIs(told["jail"], True)
        self.assertIn(told["level"], ("no-cgroup", "full"))
        self.assertEqual(told["kernel"], os.uname().release)
        missing = text.partition("What is missing\n")[2].partition("\nWhat was tried\n")[0]
        results = {trial["name"]: trial["result"] for trial in told["trials"]}
        for name in re.findall(r"^  (\S.*) \(", missing, re.M):
            self.assertIn(results.get(name, "refused"), ("refused",), missing)
        self.assertEqual(results["id-mapped workspace"] == "not tried", os.geteuid() != 0)
        for trial in told["trials"]:
            self.assertLessEqual({"name", "what", "required", "result"}, set(trial))
            self.assertIn(trial["result"], ("ok", "refused", "not tried"))
            self.assertIn(trial["name"], text)
            if trial["result"] == "refused":
                self.assertTrue(trial["step"] and trial["cause"] and trial["cure"], trial)
                self.assertIn(trial["cure"], text)
        if told["level"] == "no-cgroup":
            self.assertIn("memory by a watchdog, and processes; limits.cpu is not held\n", text)
        self.assertIn(told["kernel_is_old"], (True, False, None))
        self.assertEqual("in no list of ours" in text, told["kernel_is_old"] is None)
        if "of version 2 has no memory and pids" in told["cgroups"]:  # where systemd has nothing to give to its users
            self.assertNotIn("systemd user session", text)

    def test_doctor_tells_what_is_missing(self):
        """That alone: a wall that holds is not among it."""
        hosts = {"no-notifier": "calls served by name", "old-proc": "new /proc", "docker": "user namespace"}
        for host, lacks in hosts.items():
            with self.subTest(host=host):
                like = [f"{BUILD}/tests/host-like", host, CELLBLOCK, "doctor"]
                how = {"env": self.env, "cwd": self.work, "capture_output": True, "text": True, "timeout": 60}
                text = subprocess.run(like, **how).stdout
                told = json.loads(subprocess.run([*like, "--json"], **how).stdout)
                missing = text.partition("What is missing\n")[2].partition("\nWhat was tried\n")[0]
                refused = {t["name"]: t for t in told["trials"] if t["result"] == "refused"}
                self.assertIn(lacks, refused, told)
                named = set(re.findall(r"^  (\S.*?) \(", missing, re.M)) - {"a kernel without known holes"}
                self.assertEqual(named, set(refused), text)
                for trial in refused.values():
                    self.assertIn(f"    cause  {trial['cause']}\n    cure   {trial['cure']}\n", missing)

    def test_doctor_on_a_kernel_that_no_list_speaks_of(self):
        """That is not the same as a good one."""
        series = ["setarch", "--uname-2.6", CELLBLOCK, "doctor"]
        done = subprocess.run([*series, "--json"], env=self.env, capture_output=True, text=True, timeout=60)
        told = json.loads(done.stdout)
        self.assertTrue(told["kernel"].startswith("2.6."), told)
        self.assertIsNone(told["kernel_is_old"])
        done = subprocess.run(series, env=self.env, capture_output=True, text=True, timeout=60)
        self.assertIn("in no list of ours", done.stdout)

    def test_a_wrong_policy_is_told_also_where_none_is_used(self):
        log = self.folder / "empty.log"
        log.touch()
        commands = [["doctor"], ["audit", log], ["changes"], ["commit"], ["discard"], ["list"], ["warm"], ["uninstall"]]
        commands += [["run", "true"], ["explain"], ["install"], ["completion", "bash"]]
        for command in commands:
            for wrong, word in (("--policy", "nonsense"), ("--set", "no.such=1")):
                with self.subTest(command=command[0], wrong=wrong):
                    done = self.cellblock(command[0], wrong, word, *command[1:])
                    self.assertEqual(done.returncode, 2)
                    self.assertIn(f"cellblock {command[0]}: policy: ", done.stderr)
                    self.assertIn(word.partition("=")[0], done.stderr)
        self.good("audit", log, "--policy", "agent", "--set", "limits.pids=9")

    def test_explain_says_whose_loopback_it_is(self):
        for mode, words in (("none", "no other interface"), ("full", "127.0.0.1 is the host itself")):
            told = json.loads(self.good("explain", "--json", "--set", f"network.mode={mode}").stdout)["jail"]
            step = next(s for s in told["steps"] if s["step"] == "loopback")
            self.assertIn(words, step["reason"])

    def test_explain_in_short(self):
        text = self.good("explain", "--policy", "agent").stdout.split("\n\n")[0]
        for words in ("In short\n", "/workspace", "network    none", "512 MiB of memory, 100 processes", "120 seconds"):
            self.assertIn(words, text)
        self.assertIn('a start    warm.mode is "auto": from an interpreter', text)
        for sets, words in (("warm.mode=off", "its own interpreter"), ("network.mode=full", 'network.mode is "full"')):
            self.assertIn(words, self.good("explain", "--set", sets).stdout.split("  a start  ")[1].splitlines()[0])
        weaker = json.loads(self.good("explain", "--json", "--set", "isolation.minimum=container").stdout)["jail"]
        self.assertIn("landlock", [s["step"] for s in weaker["weaker_steps"]])
        self.assertLess(max(map(len, self.good("explain").stdout.split("Steps, in order")[1].splitlines())), 140)


if __name__ == "__main__":
    unittest.main(verbosity=1)
