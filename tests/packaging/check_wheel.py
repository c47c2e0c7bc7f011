#!/usr/bin/env python3
"""Reads finished wheels: names, tags, RECORD, and of each program machine, libraries, glibc and hardening.

usage: check_wheel.py [--same OTHER] WHEEL ...

Run after packaging/wheel/build, which calls it; not part of ./check, which builds no wheel. Needs readelf.
"""

import argparse
import base64
import csv
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
GLIBC = (2, 28)
LIBC = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2",
        "ld-linux-aarch64.so.1"}
MACHINES = {"x86_64": "Advanced Micro Devices X86-64", "aarch64": "AArch64"}
LINKED = ("zeromq3", "jansson", "openssl", "libseccomp", "sqlite3", "libsodium", "zig", "libcxx", "libcxxabi",
          "libunwind")


def of_sources():
    """What the three places say differently that know version and dependencies."""
    package, client = ((ROOT / name).read_text() for name in ("pyproject.toml", "clients/python/pyproject.toml"))
    for line in re.findall(r"(?m)^(?:name|version|requires-python|dependencies|mcp|otel) = .*$", client):
        if line not in package:
            yield f"pyproject.toml has not: {line}"
    version = re.search(r"project\(cellblock VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
    if f'version = "{version}"' not in package:
        yield f"pyproject.toml has not the version {version}"


def of_elf(path, machine):
    """What is wrong with a program, or a library."""
    text = subprocess.run(["readelf", "-hldVW", "--dyn-syms", path], capture_output=True, text=True, check=True).stdout
    if f"Machine:                           {MACHINES[machine]}" not in text:
        yield f"is not for {machine}"
    if re.search(r"\((RPATH|RUNPATH)\)", text):
        yield "has a path of libraries"
    if "GNU_RELRO" not in text or not re.search(r"BIND_NOW|FLAGS_1.*NOW", text):
        yield "its tables stay writable"
    if not re.search(r"GNU_STACK +\S+ +\S+ +\S+ +\S+ +\S+ +RW ", text):
        yield "its stack can be executed"
    for found in sorted(set(re.findall(rb"/[!-~]*/(?:x86_64|aarch64)/(?:bin|src|prefix)\b[!-~]*", path.read_bytes()))):
        yield f"has a path of the build: {found.decode()}"
    yield from of_library(text) if "DYN (Shared object file)" in text else of_program(text)


def of_library(text):
    """The copier runs where nothing of the C library may be called (guest/copier/README.md)."""
    strong = set(re.findall(r"GLOBAL +DEFAULT +UND (\w+)", text))
    if strong or "(NEEDED)" in text or "GLIBC_" in text:
        yield f"needs others: {sorted(strong)}"


def of_program(text):
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", text))
    versions = {tuple(map(int, v.split("."))) for v in re.findall(r"\bGLIBC_([0-9.]+)", text)}
    imported = set(re.findall(r"UND (\w+)", text))
    if needed - LIBC:
        yield f"needs {sorted(needed - LIBC)}"
    if not versions or max(versions) > GLIBC:
        yield f"needs glibc {'.'.join(map(str, max(versions, default=())))}"
    if "DYN (Position-Independent Executable file)" not in text:
        yield "is not position-independent"
    if "__stack_chk_fail" not in imported:
        yield "is not built with the stack protector"
    if not any(name.endswith("_chk") for name in imported):
        yield "is not built with _FORTIFY_SOURCE"


def of_record(wheel, folder):
    rows = {name: (digest, size) for name, digest, size in
            csv.reader(wheel.read(f"{folder}/RECORD").decode().splitlines())}
    names = {info.filename for info in wheel.infolist() if not info.is_dir()}
    if set(rows) != names:
        yield f"RECORD and files differ: {sorted(set(rows) ^ names)}"
    for name in names & set(rows) - {f"{folder}/RECORD"}:
        data = wheel.read(name)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        if rows[name] != (f"sha256={digest}", str(len(data))):
            yield f"RECORD is wrong about {name}"


def of_wheel(path):
    """What is wrong with a wheel."""
    name, version, tag = re.fullmatch(r"([^-]+)-([^-]+)-(.*)\.whl", path.name).groups()
    folder, data = f"{name}-{version}.dist-info", f"{name}-{version}.data"
    machine = next((m for m in MACHINES if tag == f"py3-none-manylinux_2_28_{m}"), None)
    if name != "cellblock" or machine is None:
        yield f"its name has the tag {tag}"
        return
    with zipfile.ZipFile(path) as wheel:
        names = {info.filename for info in wheel.infolist()}
        if re.findall(r"(?m)^Tag: (.*)$", wheel.read(f"{folder}/WHEEL").decode()) != [tag]:
            yield "WHEEL and name have other tags"
        if "Root-Is-Purelib: false" not in wheel.read(f"{folder}/WHEEL").decode():
            yield "WHEEL says that it holds Python alone"
        yield from of_record(wheel, folder)
        for wanted in ("data/libexec/cellblock/cellblock-jail", "data/libexec/cellblock/guest/boot.py",
                       "data/libexec/cellblock/guest/cellblock_guest/libcopier.so",
                       "data/share/jupyter/kernels/cellblock/kernel.json", "data/share/man/man1/cellblock.1",
                       "data/share/bash-completion/completions/cellblock", "scripts/cellblock",
                       "scripts/cellblock-python"):
            if f"{data}/{wanted}" not in names:
                yield f"{wanted} is missing"
        listed = set(re.findall(r"(?m)^License-File: (.*)$", wheel.read(f"{folder}/METADATA").decode()))
        shipped = {n[len(f"{folder}/licenses/"):] for n in names if n.startswith(f"{folder}/licenses/")}
        if listed != shipped:
            yield f"licenses listed and shipped differ: {sorted(listed ^ shipped)}"
        for library in LINKED:
            if not any(n.startswith(f"packaging/wheel/licenses/LICENSE.{library}.") for n in listed & shipped):
                yield f"the license of {library} is missing"
        if "cellblock/__init__.py" not in names:
            yield "the Python package is missing"
        binaries = 0
        for info in wheel.infolist():
            if wheel.read(info)[:4] != b"\x7fELF":
                continue
            binaries += 1
            if not info.external_attr >> 16 & 0o100 and not info.filename.endswith(".so"):
                yield f"{info.filename}: may not be executed"
            with tempfile.NamedTemporaryFile() as copy:
                copy.write(wheel.read(info))
                copy.flush()
                yield from (f"{info.filename}: {wrong}" for wrong in of_elf(pathlib.Path(copy.name), machine))
        if binaries < 3:
            yield f"{binaries} programs and libraries"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", nargs="+", type=pathlib.Path, metavar="WHEEL")
    parser.add_argument("--same", type=pathlib.Path, metavar="OTHER", help="a wheel that must have the same bytes")
    args = parser.parse_args()
    wrong = [*of_sources(), *(f"{path}: {text}" for path in args.wheels for text in of_wheel(path))]
    if args.same and args.same.read_bytes() != args.wheels[0].read_bytes():
        wrong.append(f"{args.same} and {args.wheels[0]} differ")
    print("\n".join(wrong) or f"{len(args.wheels)} right")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
