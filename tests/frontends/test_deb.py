"""The Debian package that CPack makes (cmake/deb.cmake): what is in it, what it asks for, and that its programs run.
Installing it is tried by hand: docs/installing.md."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.cellblock_only
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    build, folder = Path(os.environ.get("CELLBLOCK_BUILD") or ROOT / "build/check"), tmp_path_factory.mktemp("deb")
    cache = build / "CMakeCache.txt"
    for program in ("cpack", "dpkg-deb", "dpkg-shlibdeps"):
        if not shutil.which(program):
            pytest.skip(f"{program} is missing (Debian packages cmake, dpkg-dev)")
    if not cache.exists() or f"CMAKE_HOME_DIRECTORY:INTERNAL={ROOT}\n" not in cache.read_text():
        pytest.skip("CMake packages only where it was configured: this is a copy")
    made = ["cpack", "--config", build / "CPackConfig.cmake", "-B", folder]
    done = subprocess.run(made, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    assert done.returncode == 0, done.stdout
    (found,) = folder.glob("*.deb")
    return found


def field(package, name):
    return subprocess.run(["dpkg-deb", "-f", package, name], check=True, capture_output=True, text=True).stdout.strip()


def test_what_it_asks_for(package):
    wanted = {word.split()[0] for word in field(package, "Depends").split(", ")}
    assert {"python3", "libc6", "libjansson4", "libsqlite3-0", "libzmq5"} <= wanted and len(wanted) == 6, wanted
    assert package.name == f"cellblock_{field(package, 'Version')}_{field(package, 'Architecture')}.deb"
    assert "python3-jupyter-client" in field(package, "Recommends")


def test_its_files(package, tmp_path):
    subprocess.run(["dpkg-deb", "-x", package, tmp_path], check=True)
    assert [p.name for p in tmp_path.iterdir()] == ["usr"]
    spec = json.loads((tmp_path / "usr/share/jupyter/kernels/cellblock/kernel.json").read_text())
    wheels = json.loads((ROOT / "packaging/wheel/kernel.json").read_text())
    assert spec["argv"][:4] == ["/usr/bin/cellblock", "kernel", "--python", "/usr/bin/python3"]
    assert {**spec, "argv": wheels["argv"]} == wheels and spec["argv"][4:] == wheels["argv"][4:]
    for name in ("man/man5/cellblock-policy.5", "man/man1/cellblock.1", "doc/cellblock/copyright"):
        assert (tmp_path / "usr/share" / name).stat().st_size > 0
    for path in tmp_path.rglob("*"):
        assert path.lstat().st_mode & 0o7022 == 0, f"others may write it, or it is set-uid: {path}"
        assert path.is_dir() or str(ROOT).encode() not in path.read_bytes(), f"a path of the build: {path}"
    run = [tmp_path / "usr/bin/cellblock", "run", "--", "/usr/bin/python3", "-c", "print(6 * 7)"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
