#!/usr/bin/env python3
"""What a jail costs: its set-up beside bubblewrap, runc, crun and runsc, and the speed of code in it, in one run.

usage: jail_setup.py BUILD_FOLDER [--runs N] [--json FILE]

Each way starts `true` to its end, in turns, N times; medians and best. What is not installed or does not run here is
named and left out. Then the same Python code outside and inside, in turns: the best of each, and their ratio. Nothing
is asserted. Run by hand, on a quiet machine, from a release build.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))
import broker  # noqa: E402

TRUE = "/usr/bin/true"
CODE = {
    "computing": "x = 0\nfor i in range(3_000_000): x += i * i % 7",
    "allocating": "for i in range(30): a = [str(n) for n in range(50_000)]",
    "getppid": "for i in range(300_000): os.getppid()",
    "reading": "f = os.open('/dev/zero', 0)\nfor i in range(200_000): os.read(f, 1)",
    "opening": "for i in range(50_000): os.close(os.open('/usr/bin/env', 0))",
    "stat": "for i in range(100_000): os.stat('/usr/bin/env')",
    "writing files": "for i in range(3_000):\n    open('/tmp/cb-f', 'w').write('x' * 4096)\n    os.unlink('/tmp/cb-f')",
    "pipes": "r, w = os.pipe()\nfor i in range(100_000):\n    os.write(w, b'x'); os.read(r, 1)",
    "ioctl": "import fcntl\nr, w = os.pipe()\nfor i in range(200_000): fcntl.ioctl(r, 0x541b, b'0000')",
    "threads": "import threading\nfor i in range(2_000):\n    t = threading.Thread(target=int); t.start(); t.join()",
    "children": "import subprocess\nfor i in range(100): subprocess.run(['/usr/bin/true'])",
}
TIMED = "import os, time\ncode = compile({code!r}, 'x', 'exec')\nt = time.perf_counter()\nexec(code, {{\"os\": os}})\n"
TIMED += "print(time.perf_counter() - t)\n"


def oci(folder, program):
    """A bundle with the system's folders read-only, as our jail has them."""
    bundle = folder / program
    root = bundle / "root"
    for d in ("usr", "proc", "dev", "tmp", "sys"):
        (root / d).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        if os.path.islink("/" + name):
            (root / name).symlink_to(os.readlink("/" + name))
    subprocess.run([program, "spec"], cwd=bundle, check=True, capture_output=True)
    config = json.loads((bundle / "config.json").read_text())
    config["process"].update(args=[TRUE], terminal=False)
    config["root"] = {"path": "root", "readonly": True}
    config["mounts"] = [m for m in config["mounts"] if m["type"] not in ("cgroup", "cgroup2", "sysfs", "mqueue")]
    options = ["bind", "ro", "nosuid", "nodev"]
    config["mounts"].append({"destination": "/usr", "type": "none", "source": "/usr", "options": options})
    (bundle / "config.json").write_text(json.dumps(config))
    return bundle


class Ways:
    """name: a function that runs `true` to its end; None = plainly."""

    def __init__(self, build, folder):
        self.build, self.count, self.broker = build, 0, None
        self.ways = {"exec alone": lambda: self.command(TRUE)}
        if (build / "tests/spec-make").exists():
            self.broker = broker.Broker(build, f"argv={TRUE}")
            self.ways["cellblock, a jail of a running kernel"] = self.spawn
        work = folder / "work"
        work.mkdir()
        self.ways["cellblock run"] = lambda: self.command(build / "bin/cellblock", "run", "--", TRUE, cwd=work)
        links = [a for n in ("bin", "sbin", "lib", "lib64") for a in ("--symlink", "usr/" + n, "/" + n)]
        binds = ["--ro-bind", "/usr", "/usr", *links, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
        self.ways["bubblewrap"] = lambda: self.command("bwrap", "--unshare-all", *binds, TRUE)
        for program in ("crun", "runc", "runsc"):
            if shutil.which(program):
                bundle = oci(folder, program)
                more = ["--network=none", "--ignore-cgroups"] if program == "runsc" else []
                self.ways[program] = lambda p=program, m=more, b=bundle: self.container(p, m, b)
            else:
                self.ways[program] = lambda p=program: self.command(p)

    def command(self, *argv, cwd=None):
        subprocess.run(argv, check=True, capture_output=True, cwd=cwd)

    def spawn(self):
        jail = self.broker.spawn()
        jail.exited()
        assert jail.gone()
        jail.close()
        self.broker.jails.clear()

    def container(self, program, more, bundle):
        self.count += 1
        self.command(program, *more, "run", "--bundle", bundle, f"cb-bench-{os.getpid()}-{self.count}")

    def close(self):
        if self.broker:
            self.broker.close()


def set_up(build, folder, runs):
    ways = Ways(build, folder)
    times, left_out = {}, {}
    for i in range(runs + 2):
        for name, run in ways.ways.items():
            if name in left_out:
                continue
            start = time.perf_counter()
            try:
                run()
            except FileNotFoundError:
                left_out[name] = "not installed"
            except (subprocess.CalledProcessError, broker.Refused) as e:
                said = getattr(e, "stderr", None) or str(e).encode()
                left_out[name] = said.decode(errors="replace").strip().splitlines()[-1][:120]
            else:
                if i >= 2:  # the first two warm the caches
                    times.setdefault(name, []).append((time.perf_counter() - start) * 1000)
    ways.close()
    return {name: {"median": statistics.median(t), "best": min(t)} for name, t in times.items()}, left_out


def speed(build, folder, rounds=5):
    ratios = {}
    work = folder / "speed"
    work.mkdir()
    for name, code in CODE.items():
        (work / "c.py").write_text(TIMED.format(code=code))
        plain = ["/usr/bin/python3", "-I", "c.py"]
        best = [float("inf")] * 2
        for _ in range(rounds):
            for i, argv in enumerate((plain, [build / "bin/cellblock", "run", "--", *plain])):
                best[i] = min(best[i], float(subprocess.check_output(argv, cwd=work)))
        ratios[name] = {"outside_s": best[0], "inside_s": best[1], "ratio": best[1] / best[0]}
    return ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=lambda p: Path(p).resolve())
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cb-bench-") as folder:
        folder = Path(folder)
        folder.chmod(0o755)
        times, left_out = set_up(args.build, folder, args.runs)
        ratios = speed(args.build, folder)
    plain = times["exec alone"]
    for name, ms in times.items():
        beyond = f"{ms['median'] - plain['median']:+8.2f} (best {ms['best'] - plain['best']:+.2f}) beyond exec"
        print(f"{name:40}{ms['median']:8.2f} ms   {beyond}")
    for name, why in left_out.items():
        print(f"{name:40}LEFT OUT: {why}")
    for name, r in ratios.items():
        print(f"{name:40}{r['outside_s'] * 1000:8.1f} ms outside {r['inside_s'] * 1000:8.1f} inside   {r['ratio']:.2f}")
    if args.json:
        args.json.write_text(json.dumps({"set_up_ms": times, "left_out": left_out, "speed": ratios}, indent=1))


if __name__ == "__main__":
    main()
