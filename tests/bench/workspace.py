#!/usr/bin/env python3
"""What writing in the workspace costs, beside an older build, in one run.

usage: workspace.py BUILD [OLDER_BUILD …] [--runs N] [--only WORD …] [--files N] [--json FILE]

BUILD is a build folder, or a prefix that it was installed into. Each figure is taken with all builds in turns, N times:
medians, and their ratio to the last build's, which stands for what was before; "outside" is the same without a jail.
Nothing is asserted. Run by hand, on a quiet machine, from release builds. A start through the broker needs spec-make
(cmake -DBUILD_TESTING=ON, target spec-make).
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))
import broker  # noqa: E402

PYTHON = "/usr/bin/python3"
TRUE = "/usr/bin/true"

SQLITE = """
import sqlite3, time
c = sqlite3.connect("t.db")
c.execute("pragma journal_mode=%s"); c.execute("create table t (n)")
t = time.perf_counter()
for i in range(1000):
    c.execute("insert into t values (?)", (i,)); c.commit()
print(time.perf_counter() - t)
"""
TIMED = """
import subprocess, sys, time
t = time.perf_counter()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(time.perf_counter() - t)
"""
CALL_NAMES = {
    "write-open": "open to write",
    "create": "create and unlink",
    "rename": "two renames",
    "mkdir": "mkdir and rmdir",
    "read-open": "open to read",
    "stat": "stat",
    "tmp-open": "open to write in /tmp",
}
START, START_FULL = "start, cellblock run, empty folder", "start, cellblock run, {} files"
BROKER, BROKER_FULL = "start, broker, empty folder", "start, broker, {} files"


class Build:
    def __init__(self, folder):
        self.folder, self.name = folder, folder.parents[1].name if folder.parent.name == "build" else folder.name
        self.program = folder / "bin/cellblock"
        if not self.program.exists():
            sys.exit(f"{folder}: no bin/cellblock in it")

    def run(self, argv, cwd):
        return [self.program, "run", "--", *argv]


class Outside:
    """No jail at all."""

    name, folder = "outside", None

    def run(self, argv, cwd):
        return argv


def output(build, argv, cwd):
    argv = [str(a) for a in build.run(argv, cwd)]
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv[:6])}: {done.stdout[-200:]}{done.stderr[-600:]}")
    return done.stdout


def wheel(path, files):
    with zipfile.ZipFile(path, "w") as z:
        names = [f"made_up/p{n // 100}/m{n}.py" for n in range(files)]
        for n, name in enumerate(names):
            z.writestr(name, f"x = {n}\n")
        info = "made_up-1.dist-info/"
        z.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: made-up\nVersion: 1\n")
        z.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        names += [info + n for n in ("METADATA", "WHEEL", "RECORD")]
        z.writestr(info + "RECORD", "".join(f"{n},,\n" for n in names))


# ---- what is measured: each takes a build and an empty folder, and gives seconds ----


def call(what, calls, times):
    def measure(build, folder):
        shutil.copy(calls, folder / "calls")
        return float(output(build, ["./calls", what, times], folder).split()[0]) * 1e-6

    return measure


def pip(source):
    def measure(build, folder):
        shutil.copy(source, folder)
        argv = [PYTHON, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile", "--target", "site"]
        return float(output(build, [PYTHON, "-c", TIMED, *argv, source.name], folder))

    return measure


def git_commit(build, folder):
    subprocess.run(["git", "init", "-q", folder], check=True)
    for n in range(1000):
        (folder / f"d{n // 50}").mkdir(exist_ok=True)
        (folder / f"d{n // 50}/{n}").write_text(str(n))
    script = "git add . && git -c user.name=a -c user.email=a@b commit -q -m all"
    return float(output(build, [PYTHON, "-c", TIMED, "sh", "-c", script], folder))


def make(build, folder):
    objects = " ".join(f"f{n}.o" for n in range(100))
    for n in range(100):
        (folder / f"f{n}.c").write_text(f"int f{n}(void) {{ return {n}; }}\n")
    (folder / "main.c").write_text("int main(void) { return 0; }\n")
    (folder / "Makefile").write_text(f"p: main.o {objects}\n\t$(CC) -o $@ main.o {objects}\n")
    return float(output(build, [PYTHON, "-c", TIMED, "make", "-s"], folder))


def compile_all(build, folder):
    for n in range(100):
        (folder / f"f{n}.c").write_text(f"int f{n}(void) {{ return {n}; }}\n")
    return float(output(build, [PYTHON, "-c", TIMED, "sh", "-c", "for f in *.c; do cc -c $f; done"], folder))


def sqlite(mode):
    return lambda build, folder: float(output(build, [PYTHON, "-c", SQLITE % mode], folder))


def untar(source):
    def measure(build, folder):
        shutil.copy(source, folder)
        return float(output(build, [PYTHON, "-c", TIMED, "tar", "xf", source.name], folder))

    return measure


def start(full):
    def measure(build, folder):
        t = time.perf_counter()
        output(build, [TRUE], full or folder)
        return time.perf_counter() - t

    return measure


def broker_start(full):
    """Beside the broker's own start: the third jail of each broker."""

    def measure(build, folder):
        if build.folder is None or not (build.folder / "tests/spec-make").exists():
            raise FileNotFoundError("no tests/spec-make")
        where = full or folder
        spec = [f"workspace_source={where}", "workspace_target=/workspace", "workspace_mode=rw", f"argv={TRUE}"]
        spec += [f"protect={n}" for n in (".git/hooks", ".git/config", ".vscode", ".envrc", "pyvenv.cfg")]
        with broker.Broker(build.folder, *spec) as b:
            for _ in range(3):
                t = time.perf_counter()
                jail = b.spawn()
                jail.exited()
                assert jail.gone()
                took = time.perf_counter() - t
                jail.close()
                b.jails.clear()
        return took

    return measure


def everything(stock, args):
    """name: (function, unit)"""
    for what, name in CALL_NAMES.items():
        yield name, call(what, stock / "calls", 5000), "µs"
    has_pip = subprocess.run([PYTHON, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0
    yield f"pip install, {args.files} files", pip(stock / "made_up-1-py3-none-any.whl") if has_pip else None, "s"
    yield "tar, 2000 files", untar(stock / "t.tar"), "s"
    yield "git commit, 1000 files", git_commit if shutil.which("git") else None, "s"
    yield "make, 100 files", make if shutil.which("make") else None, "s"
    yield "cc, 100 files", compile_all, "s"
    yield "SQLite, 1000 transactions", sqlite("delete"), "s"
    yield "SQLite, 1000 transactions, WAL", sqlite("wal"), "s"
    full, many = stock / "full", f"{args.many:_}".replace("_", " ")
    yield START, start(None), "ms"
    yield START_FULL.format(many), start(full), "ms"
    yield BROKER, broker_start(None), "ms"
    yield BROKER_FULL.format(many), broker_start(full), "ms"


def lay_in(stock, args):
    subprocess.run(["cc", "-O2", "-o", stock / "calls", Path(__file__).with_name("file_calls.c")], check=True)
    wheel(stock / "made_up-1-py3-none-any.whl", args.files)
    (stock / "t").mkdir()
    for n in range(2000):
        (stock / f"t/{n}").write_text(str(n))
    subprocess.run(["tar", "cf", "t.tar", "t"], cwd=stock, check=True)
    for n in range(args.many):
        if n % 500 == 0:
            folder = stock / f"full/{n // 5000}/{n // 500}"
            folder.mkdir(parents=True)
        (folder / str(n)).touch()
    (stock / "full").mkdir(exist_ok=True)


def measure_all(builds, folder, args):
    stock = folder / "stock"
    stock.mkdir()
    lay_in(stock, args)
    times, left_out = {}, {}
    for name, measure, unit in everything(stock, args):
        if args.only and not any(w in name for w in args.only):
            continue
        if measure is None:
            left_out[name] = "not installed"
            continue
        for run in range(args.runs + 1):  # the first warms the caches
            for build in builds[run % len(builds) :] + builds[: run % len(builds)]:
                if (name, build.name) in left_out:
                    continue
                place = Path(tempfile.mkdtemp(dir=folder))
                try:
                    seconds = measure(build, place)
                except (RuntimeError, FileNotFoundError, broker.Refused) as e:
                    left_out[name, build.name] = str(e).strip().splitlines()[-1][:150]
                else:
                    if run > 0:
                        times.setdefault(name, (unit, {}))[1].setdefault(build.name, []).append(seconds)
                shutil.rmtree(place)
        if name in times:
            say(name, *times[name], builds)
    return times, left_out


def say(name, unit, of, builds):
    scale = {"µs": 1e6, "ms": 1e3, "s": 1}[unit]
    medians = {b.name: statistics.median(of[b.name]) if b.name in of else None for b in builds}
    text = "".join("         -   " if m is None else f"{m * scale:10.2f} {unit:2}" for m in medians.values())
    first, last = (medians[builds[i].name] for i in (1, -1))
    print(f"{name:38}{text}" + (f"   {first / last:.2f}" if first and last and len(builds) > 2 else ""), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", type=lambda p: Path(p).resolve(), nargs="+")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=[], help="words that a figure's name must have one of")
    parser.add_argument("--files", type=int, default=10_000, help="in the wheel")
    parser.add_argument("--many", type=int, default=200_000, help="files in the full folder")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    builds = [Outside(), *map(Build, args.builds)]
    for n, b in enumerate(builds):
        if b.name in [o.name for o in builds[:n]]:
            b.name = str(b.folder)
    print(f"{'':38}" + "".join(f"{b.name[-11:]:>12} " for b in builds) + ("  ratio" if len(builds) > 2 else ""))
    with tempfile.TemporaryDirectory(prefix="cb-bench-") as folder:
        Path(folder).chmod(0o755)
        times, left_out = measure_all(builds, Path(folder), args)
    for name, why in left_out.items():
        print(f"{' by '.join([name] if isinstance(name, str) else name):38}LEFT OUT: {why}")
    if args.json:
        args.json.write_text(json.dumps({n: {"unit": "s", **of} for n, (_, of) in times.items()}, indent=1))


if __name__ == "__main__":
    main()
