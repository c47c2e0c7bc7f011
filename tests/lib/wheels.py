"""A wheel of the built tree, as the real one is laid out, and the ways to install it. Used by tests/frontends and
tests/packaging.

CELLBLOCK_WHEEL names a finished wheel to use in its place.
"""

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("CELLBLOCK_BUILD") or ROOT / "build/check")
CMAKE = shutil.which("cmake") or "cmake"


def version():
    return re.search(r"project\(cellblock VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]


class Writer:
    def __init__(self, path):
        self.zip, self.record = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1), []

    def add(self, name, data, mode=0o644):
        about = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
        about.external_attr, about.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
        self.zip.writestr(about, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}")

    def add_tree(self, folder, name):
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                mode = 0o755 if os.access(path, os.X_OK) and path.stat().st_mode & 0o100 else 0o644
                self.add(f"{name}/{path.relative_to(folder)}", path.read_bytes(), mode)


def make(folder):
    """Builds the wheel in a folder; its path."""
    if os.environ.get("CELLBLOCK_WHEEL"):
        return Path(os.environ["CELLBLOCK_WHEEL"])
    prefix = Path(folder) / "prefix"
    for more in ([], ["--component", "wheel"]):
        command = [CMAKE, "--install", BUILD, "--prefix", prefix, *more]
        subprocess.run(command, check=True, capture_output=True)
    name = f"cellblock-{version()}"
    wheel = Path(folder) / f"{name}-py3-none-linux_{os.uname().machine}.whl"
    out = Writer(wheel)
    out.add_tree(ROOT / "clients/python/src/cellblock", "cellblock")
    out.add_tree(prefix / "bin", f"{name}.data/scripts")
    shutil.rmtree(prefix / "bin")
    out.add_tree(prefix, f"{name}.data/data")
    shutil.rmtree(prefix)
    needs = "Requires-Dist: jupyter_client>=8\nRequires-Dist: msgspec\nRequires-Python: >=3.9\n"
    about = f"Metadata-Version: 2.1\nName: cellblock\nVersion: {version()}\n{needs}"
    tag = f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: py3-none-linux_{os.uname().machine}\n"
    out.add(f"{name}.dist-info/METADATA", about.encode())
    out.add(f"{name}.dist-info/WHEEL", tag.encode())
    record = f"{name}.dist-info/RECORD"
    out.zip.writestr(record, "\n".join([*out.record, f"{record},,\n"]))
    out.zip.close()
    return wheel


def run(*command, env=None, **more):
    """A command that must succeed; what it said."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=env, **more)
    assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-4000:])
    return done.stdout


def pip(python, *words, env=None):
    """pip of this environment for any Python, without a network."""
    quiet = ["--disable-pip-version-check", "--no-input", "-q"]
    return run(sys.executable, "-m", "pip", "--python", python, words[0], *quiet, *words[1:], env=env)


def install(python, wheel, *more, env=None):
    return pip(python, "install", "--no-index", "--no-deps", *more, wheel, env=env)


def uv():
    return shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


def lend_packages(prefix):
    """A file in the environment that lets it import what this one has: Jupyter, and no copy of it."""
    site = next(Path(prefix).glob("lib/python3*/site-packages"))
    mine = next(Path(p) for p in sys.path if p.endswith("site-packages"))
    (site / "lent.pth").write_text(f"{mine}\n")
    return site / "lent.pth"


def files_below(folder):
    return {str(p.relative_to(folder)) for p in Path(folder).rglob("*") if not p.is_dir() or p.is_symlink()}
