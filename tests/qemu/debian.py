"""Root file systems and kernels of another machine or another Debian, for tests/qemu/run: out of Debian's packages and
a wheel of Cellblock.

apt has a state of its own here (build/qemu/NAME/apt), so that this machine's lists and architectures stay as they are.
Packages are unpacked, never installed: no program of the other machine runs, no script of a package either. What they
would have made (users, sudo's rules) is written by hand. What was fetched is kept.
"""

import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What the kernel's tests import; versions are those of tests/requirements.txt. Python's own packages alone are pure.
IMPORTS = "ipython jedi jupyter_client jupyter_core msgspec psutil pytest pytest-timeout pyzmq tornado traitlets"
MODULES = ("overlay", "inet_diag", "tcp_diag", "udp_diag", "unix_diag")  # of the kernel, that jails use
PREFIX = "opt/venv"  # where the wheel is installed, an environment of the root's Python
USERS = "root:x:0:0:root:/root:/bin/sh\nsomebody:x:1000:1000::/home/somebody:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"


class Missing(Exception):
    pass


def mirror():
    """Of this machine's own Debian."""
    shown = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Identifier: Packages", "Origin: Debian"],
        capture_output=True, text=True, env={**os.environ, "APT_CONFIG": ""},
    ).stdout  # fmt: skip
    found = [line.split()[0] for line in shown.splitlines() if re.fullmatch(r"\S+ [a-z]+", line)]
    if not found:
        raise Missing("apt-get knows no mirror of Debian")
    return found[0]


class Debian:
    def __init__(self, folder, release, architecture, packages):
        self.folder, self.release, self.architecture = Path(folder), release, architecture
        self.packages, self.archives = packages.split(), Path(folder) / "apt/cache/archives"

    def apt(self, *words):
        home = self.folder / "apt"
        for name in ("state/lists/partial", "cache/archives/partial", "parts"):
            (home / name).mkdir(parents=True, exist_ok=True)
        (home / "status").touch()
        key = "/usr/share/keyrings/debian-archive-keyring.gpg"
        (home / "sources").write_text(f"deb [signed-by={key}] {mirror()} {self.release} main\n")
        settings = {
            "APT::Architecture": self.architecture,
            "APT::Architectures": self.architecture,
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
            "Dir::State": home / "state",
            "Dir::State::status": home / "status",
            "Dir::Cache": home / "cache",
            "Dir::Etc::sourcelist": home / "sources",
            "Dir::Etc::sourceparts": home / "parts",
        }
        (home / "conf").write_text("".join(f'{key} "{value}";\n' for key, value in settings.items()))
        done = subprocess.run(
            ["apt-get", "-q", *words], env={**os.environ, "APT_CONFIG": str(home / "conf")}, capture_output=True,
            text=True, timeout=1800,
        )  # fmt: skip
        if done.returncode != 0:
            raise Missing(f"apt-get {words[0]} for {self.release}, {self.architecture}: {done.stderr.strip()[-400:]}")

    def fetch(self):
        """All packages with what they depend on, once."""
        stamp = self.folder / "apt/fetched"
        if stamp.exists() and stamp.read_text() == " ".join(self.packages):
            return
        shutil.rmtree(self.archives, ignore_errors=True)
        self.apt("update")
        self.apt("install", "--yes", "--no-install-recommends", "--download-only", *self.packages)
        stamp.write_text(" ".join(self.packages))

    def unpack(self, root):
        """The root, and beside it the kernel's image; its path. Of what is not built in the MODULES lie in the root."""
        shutil.rmtree(root, ignore_errors=True)
        for name in ("bin", "lib", "sbin", "lib64"):
            (root / "usr" / name).mkdir(parents=True)
            (root / name).symlink_to(f"usr/{name}")
        for deb in sorted(self.archives.glob("*.deb")):
            of_kernel = ["--wildcards", "./boot/vmlinuz*", *(f"*/{name}.ko*" for name in MODULES)]
            only = of_kernel if deb.name.startswith("linux-image-") else []
            if only and deb.stat().st_size < 1 << 20:
                continue  # it only depends on the newest one
            with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as tar:
                command = ["tar", "-x", "-p", "-C", root, "--keep-directory-symlink", "--exclude=./usr/share/doc/*"]
                command += ["--exclude=./usr/share/locale/*", "--exclude=./usr/share/man/*"]
                subprocess.run([*command, *only], stdin=tar.stdout, check=True)
        kernel = sorted((root / "boot").glob("vmlinuz-*"))[-1]
        shutil.move(kernel, self.folder / kernel.name)
        return self.folder / kernel.name

    def python(self, root):
        """Its version, as 3.11."""
        return re.search(r"python(3\.\d+)$", os.readlink(root / "usr/bin/python3"))[1]


def parent(path):
    """The same path, whose folder is there now."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def write(root, path, text, mode=0o644):
    path = parent(root / path)
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(mode)


def furnish(root):
    """Accounts and folders that scripts of packages would have made."""
    for name in "proc sys dev run home/somebody root workspaces var/tmp tmp mnt usr/local".split():
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    write(root, "root/.profile", "")
    write(root, "etc/passwd", USERS)
    write(root, "etc/group", "root:x:0:\nsomebody:x:1000:\nnogroup:x:65534:\n")
    write(root, "etc/shadow", "root:*:1::::::\nsomebody:*:1::::::\n", 0o600)
    write(root, "etc/hosts", "127.0.0.1 localhost (none)\n")
    os.chown(root / "home/somebody", 1000, 1000)


def install_wheel(wheel, prefix, python):
    """As pip does it, which cannot run there: programs, data, package; and an environment around it."""
    site = prefix / f"lib/python{python}/site-packages"
    site.mkdir(parents=True)
    with zipfile.ZipFile(wheel) as files:
        for info in files.infolist():
            if info.is_dir():
                continue
            data = re.match(r"cellblock-[^/]*\.data/(scripts|data)/(.*)", info.filename)
            to = site / info.filename if not data else prefix / ("bin" if data[1] == "scripts" else "") / data[2]
            text = files.read(info)
            if data and data[1] == "scripts" and text.startswith(b"#!python"):
                text = text.replace(b"#!python", b"#!/" + PREFIX.encode() + b"/bin/python", 1)
            parent(to).write_bytes(text)
            to.chmod(0o755 if info.external_attr >> 16 & 0o100 else 0o644)
    (prefix / "bin/python").symlink_to("/usr/bin/python3")
    (prefix / "bin/python3").symlink_to("python")
    (prefix / "pyvenv.cfg").write_text(f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {python}\n")
    return site


def add_imports(site, python, machine, cache):
    """What clients and tests import, for the other machine's Python, from PyPI."""
    if not (cache / "fetched").exists():
        shutil.rmtree(cache, ignore_errors=True)
        wanted = ROOT / "tests/requirements.txt"
        pinned = [line.split(";")[0].strip() for line in wanted.read_text().splitlines() if "==" in line]
        pins = [line for line in pinned if line.split("==")[0] in IMPORTS.split()]
        command = [ROOT / ".venv/bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        command += ["--no-compile", "--target", cache, "--only-binary=:all:"]
        command += ["--python-version", python, "--implementation", "cp"]
        for tag in ("manylinux_2_28", "manylinux2014", "manylinux_2_17"):
            command += ["--platform", f"{tag}_{machine}"]
        done = subprocess.run([*command, *pins], capture_output=True, text=True, timeout=1800)
        if done.returncode != 0:
            raise Missing(f"pip has not what clients import for {machine}: {done.stderr.strip()[-400:]}")
        (cache / "fetched").touch()
    shutil.copytree(cache, site, dirs_exist_ok=True)
