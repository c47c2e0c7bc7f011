"""What a user does with a wheel, step by step. Prints a line of results. Standard library of Python 3.9.

Started by tests/packaging/roots inside of a root, as root and pid 1: makes an ordinary user and runs the steps as both.
With the word `here` (tests/packaging/pythons): the steps alone, as this user. Beside this file lie the wheels and the
README's first program.
"""

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import traceback
from pathlib import Path

MARK = "cellblock-tries: "
USER = "somebody"
TRY = Path(__file__).resolve().parent
NOTEBOOK = [
    ("import sys; print('Python %d.%d' % sys.version_info[:2])", "Python %d.%d\n" % sys.version_info[:2]),
    ("open('/etc/shadow')", "FileNotFoundError"),
    ("from concurrent.futures import ThreadPoolExecutor as T; pool = T(2); list(pool.map(abs, [-1, -2]))", "[1, 2]"),
    ("x = 6 * 7", None),
    ("import os; os._exit(3)", "KernelDiedError"),
    ("x", "42"),  # or undone, too, where the machine is busy: then the cell before says so
    ("list(pool.map(abs, [-4, 5]))", "[4, 5]"),  # its threads are there again
    ("x = 42", None),
    ("open('here.txt', 'w').write('abc')", "3"),
]
WITH_IPYTHON = [*NOTEBOOK, ("!echo {x + 1}", "43\n"), ("%who int", "x\t \n")]
LEVELS = {True: ("full",), False: ("no-cgroup", "full")}  # by whether it is root
# What may be left, by path (in the home where it is relative) and whose it is; all else must go with Cellblock.
NAMED = {".ipython": "IPython's, made by jupyter_client where it looks for kernelspecs",
         ".local/share/jupyter/runtime": "Jupyter's", ".cache/pip": "pip's", ".local/share/jupyter": "empty",
         ".local/share": "empty", ".local": "empty", ".cache": "empty",
         "/run/cellblock": "which uids the kernels that root starts have; until the next boot"}


class Steps:
    def __init__(self):
        self.home, self.said = Path.home(), []
        self.venv, self.work = self.home / "v", self.home / "work"

    def run(self, *command, **how):
        words = [str(word) for word in command]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600,
                              cwd=self.work, **how)
        if done.returncode != 0:
            raise AssertionError(f"{' '.join(words)}: status {done.returncode}: {done.stdout[-1500:]}"
                                 f"{done.stderr[-3000:]}")
        return done.stdout

    def bin(self, name, *words):
        return self.run(self.venv / "bin" / name, *words)

    def pip(self, *words):
        return self.bin("pip", *words, "--disable-pip-version-check", "-q")

    def all(self):
        self.work.mkdir()
        for step in ("install", "kernelspec", "first example", "notebook", "notebook with IPython", "doctor",
                     "uninstall", "left in the environment"):
            try:
                told = getattr(self, step.replace(" ", "_"))()
                self.said.append((step, True, told or "passed"))
            except Exception as e:
                self.said.append((step, False, str(e) if isinstance(e, AssertionError) else traceback.format_exc()))
        shutil.rmtree(self.venv, ignore_errors=True)
        shutil.rmtree(self.work, ignore_errors=True)
        return self.said

    def install(self):
        self.run(sys.executable, "-m", "venv", self.venv)
        self.before = files_below(self.venv)
        self.pip("install", "--no-index", "--find-links", TRY / "wheels", "cellblock", "nbclient")
        return f"Python {sys.version.split()[0]}, pip {self.bin('pip', '--version').split()[1]}"

    def kernelspec(self):
        told = self.bin("jupyter", "kernelspec", "list")
        assert re.search(rf"(?m)^ *cellblock +{self.venv}/share/jupyter/kernels/cellblock$", told), told

    def first_example(self):
        told = self.bin("python", TRY / "first.py")
        assert told.strip() == "[1, 4, 9]", told

    def notebook(self, wanted=NOTEBOOK):
        cells = [{"cell_type": "code", "source": code, "metadata": {"tags": ["raises-exception"]}, "outputs": [],
                  "execution_count": None, "id": f"c{i}"} for i, (code, _) in enumerate(wanted)]
        spec = {"name": "cellblock", "display_name": "cellblock", "language": "python"}
        path = self.work / "n.ipynb"
        path.write_text(json.dumps({"cells": cells, "metadata": {"kernelspec": spec}, "nbformat": 4,
                                    "nbformat_minor": 5}))
        self.bin("python", "-c", "from nbclient.cli import main; main()", "--inplace", path)
        before = ""
        for cell, (code, told) in zip(json.loads(path.read_text())["cells"], wanted):
            outputs = json.dumps(cell["outputs"])
            if code == "x" and "before cell [4]" in before:
                told = "NameError"
            before = outputs
            as_wanted = told in shown(cell) if told else not cell["outputs"]
            assert as_wanted, (code, outputs)

    def notebook_with_IPython(self):
        self.pip("install", "--no-index", "--find-links", TRY / "wheels", "ipython")
        self.notebook(WITH_IPYTHON)
        version = "from importlib.metadata import version; print(version('ipython'))"
        return f"IPython {self.bin('python', '-c', version).strip()}"

    def doctor(self):
        told = json.loads(self.bin("cellblock", "doctor", "--json"))
        assert told["level"] in LEVELS[os.geteuid() == 0], told
        self.bin("cellblock", "doctor")
        return f"`{told['level']}`"

    def uninstall(self):
        self.bin("cellblock", "install", "--user", "--name", "mine")
        spec = self.home / ".local/share/jupyter/kernels/mine"
        assert spec.is_dir()
        told = self.bin("cellblock", "uninstall", "--all")
        assert not spec.exists() and f"{spec}" in told, told
        self.pip("uninstall", "-y", "cellblock")

    def left_in_the_environment(self):
        """Nothing that is not of another package."""
        others = set()
        for record in self.venv.glob("lib/python3*/site-packages/*.dist-info/RECORD"):
            for line in record.read_text().splitlines():
                path = line.rsplit(",", 2)[0].strip('"')
                others.add(os.path.normpath(record.parent.parent / path))
        left = sorted(path for path in files_below(self.venv) - self.before - others
                      if not (path.endswith(".pyc") and source_of(path) in others))
        assert not left, left
        return "nothing"


def shown(cell):
    """Results and text as a reader sees them; of an error its name."""
    return [output.get("ename") or "".join(output.get("text") or output["data"]["text/plain"])
            for output in cell["outputs"]]


def source_of(pyc):
    folder, name = os.path.split(pyc)
    return os.path.join(os.path.dirname(folder), name.split(".")[0] + ".py")


def files_below(folder):
    return {os.path.join(at, name) for at, folders, files in os.walk(folder)
            for name in [*files, *(f for f in folders if os.path.islink(os.path.join(at, f)))]}


# ---- as root ----


def everything():
    """All of the root's own paths, and what lies in memory."""
    found = set()
    for at, folders, files in os.walk("/"):
        if at == "/":
            folders[:] = [f for f in folders if f not in ("proc", "sys", "dev", "try")]
        if at.startswith("/usr/"):
            folders[:] = [f for f in folders if f != "__pycache__"]  # of the system's Python
        found.update(os.path.join(at, name) for name in [*folders, *files])
    return found | {os.path.join("/dev/shm", name) for name in os.listdir("/dev/shm")}


def no_process_left():
    """Children whose parents are gone are pid 1's: they end, or are named."""
    def too_late(*_):
        pids = [p for p in os.listdir("/proc") if p.isdigit() and p != "1"]
        raise AssertionError(str([Path(f"/proc/{p}/cmdline").read_text().replace("\0", " ") for p in pids]))

    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(60)
    try:
        while True:
            os.wait()
    except ChildProcessError:
        return None
    except AssertionError as e:
        return str(e)
    finally:
        signal.alarm(0)


def left_in(home, before):
    """What has come and has not gone; what others leave is named, not counted."""
    new = sorted(everything() - before)
    named, left = {}, []
    for path in new:
        name = next((name for name, whose in NAMED.items() if path == os.path.join(home, name)
                     or (whose != "empty" and path.startswith(os.path.join(home, name) + "/"))), None)
        if name is None or (NAMED[name] == "empty" and not os.path.isdir(path)):
            left.append(path)
        elif NAMED[name] != "empty":
            named[name] = NAMED[name]
    return left, named


def as_user(user):
    account = pwd.getpwnam(user)

    def become():
        os.initgroups(user, account.pw_gid)
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)

    env = {"HOME": account.pw_dir, "USER": user, "LOGNAME": user, "PATH": "/usr/local/bin:/usr/bin:/bin",
           "LC_ALL": "C.UTF-8"}
    before = everything()
    done = subprocess.run([sys.executable, __file__, "here"], env=env, cwd="/", preexec_fn=become,
                          stdout=subprocess.PIPE, text=True)
    said = list(json.loads(done.stdout.splitlines()[-1][len(MARK):]).values())[0]
    processes = no_process_left()
    left, named = left_in(account.pw_dir, before)
    wrong = [f"files {left}"] * bool(left) + [f"processes {processes}"] * bool(processes)
    told = "; ".join(f"`{path}` ({whose})" for path, whose in named.items())
    said.append(("left elsewhere", not wrong, "; ".join(wrong) or told or "nothing"))
    return said


def main():
    if len(sys.argv) > 1:
        print(MARK + json.dumps({"root" if os.geteuid() == 0 else "ordinary": Steps().all()}))
        return
    subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", USER], check=True)
    print(MARK + json.dumps({"root": as_user("root"), "ordinary": as_user(USER)}), flush=True)


if __name__ == "__main__":
    main()
