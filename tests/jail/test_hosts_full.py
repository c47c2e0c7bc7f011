"""Hosts where something is used up, or larger than others have it: a user's keys, the names of /etc/hosts."""

import os
import subprocess

import pytest

import kernels

pytestmark = pytest.mark.cellblock_only
ROOT = os.geteuid() == 0
CELLBLOCK = kernels.spec_argv()[0][0]
PYTHON = "/usr/bin/python3"
PATIENCE = 150  # s
KEYLESS = 65531

# Keys as many as a user may have, in the session's keyring, which what is started then has as well.
ALL_KEYS = """
import ctypes, os, sys
libc, add, ctl = ctypes.CDLL(None, use_errno=True), int(sys.argv[1]), int(sys.argv[2])
if libc.syscall(ctl, 1, None) < 0:
    sys.exit(77)
n = 0
while libc.syscall(add, b"keyring", b"%d" % n, None, ctypes.c_size_t(0), -3) > 0:
    n += 1
if ctypes.get_errno() != 122:
    sys.exit(f"error {ctypes.get_errno()} after {n} keys")
os.execv(sys.argv[3], sys.argv[3:])
"""
ASK_FOR_KEYS = """
import ctypes, sys
libc, add, ctl = ctypes.CDLL(None, use_errno=True), int(sys.argv[1]), int(sys.argv[2])
print(libc.syscall(ctl, 0, -3, 0), ctypes.get_errno(), libc.syscall(ctl, 11, -3, None, 0), ctypes.get_errno())
"""


@pytest.mark.skipif(not ROOT, reason="it uses up all keys of a user who does nothing else")
def test_a_user_without_keys_left(tmp_path):
    """The jail goes without a keyring of its own, and reaches none."""
    kernels.let_in(tmp_path)
    who = {"user": KEYLESS, "group": KEYLESS, "extra_groups": [], "env": os.environ | {"HOME": "/nonexistent"}}
    if subprocess.run(["test", "-x", CELLBLOCK], **who).returncode != 0:
        pytest.skip("an ordinary user cannot reach the program")
    calls = ["217", "219"] if os.uname().machine == "aarch64" else ["248", "250"]
    jailed = [CELLBLOCK, "run", "--", PYTHON, "-c", ASK_FOR_KEYS, *calls]
    done = subprocess.run([PYTHON, "-c", ALL_KEYS, *calls, *jailed], cwd=tmp_path, capture_output=True, text=True,
                          timeout=PATIENCE, stdin=subprocess.DEVNULL, **who)
    if done.returncode == 77:
        pytest.skip("keys can't be had here")
    assert (done.returncode, done.stdout) == (0, "-1 1 -1 1\n"), done


# A name server's or a user's list of names to be blocked, which is larger than we copy.
LARGE_HOSTS = """
set -e
{ echo 192.0.2.1 blocked; head -c 2000000 /dev/zero | tr '\\0' '#'; } > hosts
mount --bind hosts /etc/hosts
exec "$0" run --set network.mode=full -- grep -c '' /etc/hosts
"""


@pytest.mark.skipif(not ROOT, reason="only root can mount files")
def test_a_large_hosts_file(tmp_path):
    kernels.let_in(tmp_path / "work")
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", LARGE_HOSTS, CELLBLOCK]
    done = subprocess.run(command, cwd=tmp_path / "work", capture_output=True, text=True, timeout=PATIENCE,
                          stdin=subprocess.DEVNULL)
    if "mount: " in done.stderr:
        pytest.skip(f"this host refuses the mount: {done.stderr.strip()}")
    assert done.returncode == 0 and "/etc/hosts is larger" in done.stderr, done
    assert done.stdout == "2\n", done
