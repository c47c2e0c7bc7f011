"""The AppArmor profile that Ubuntu needs: its syntax, that it is for the broker where it gets installed, and the one
command that is printed where it is missing. The sysctls of such hosts are played: files over those of /proc/sys."""

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

import kernels

PROFILE = Path(__file__).resolve().parents[2] / "packaging/apparmor/cellblock-jail"


def test_it_parses():
    parser = shutil.which("apparmor_parser") or shutil.which("/usr/sbin/apparmor_parser")
    if not parser:
        pytest.skip("no apparmor_parser: the syntax of the AppArmor profile was not checked")
    version = subprocess.run([parser, "--version"], capture_output=True, text=True).stdout
    if int(re.search(r"version (\d+)", version).group(1)) < 4:
        pytest.skip("apparmor_parser before 4.0 does not know `userns`: the AppArmor profile was not checked")
    subprocess.run([parser, "-Q", "-K", PROFILE], check=True)


def test_it_allows_namespaces_to_the_installed_broker_and_nothing_else():
    text = re.sub(r"#.*", "", PROFILE.read_text())
    head, body = re.search(r"profile cellblock-jail (\S+) flags=\(unconfined\) \{(.*)\}", text, re.S).groups()
    assert head == "/{usr,usr/local,opt/cellblock}/libexec/cellblock/cellblock-jail"
    assert body.split() == ["userns,", "include", "if", "exists", "<local/cellblock-jail>"]


BUILD = Path(os.environ.get("CELLBLOCK_BUILD") or Path(__file__).resolve().parents[2] / "build/check")
AS_USER = ["setpriv", "--reuid=65533", "--regid=65533", "--clear-groups"]


def on_a_host(sysctl, value, like, *words):
    """`cellblock` as an ordinary user, where /proc/sys/kernel holds this sysctl alone."""
    if os.geteuid() != 0:
        pytest.skip("not root: no sysctl can be played")
    program = kernels.spec_argv()[0][0]
    for p in (program, BUILD / "tests/host-like"):
        if subprocess.run([*AS_USER, "test", "-x", p]).returncode != 0:
            pytest.skip("an ordinary user cannot reach the program")
    play = f'mount -t tmpfs none /proc/sys/kernel && echo {value} > /proc/sys/kernel/{sysctl} && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", play, "sh", *AS_USER, BUILD / "tests/host-like", like, program, *words]
    env = os.environ | {"HOME": "/nonexistent"}
    return subprocess.run(command, capture_output=True, text=True, cwd="/", env=env)


@pytest.mark.cellblock_only
def test_the_cure_is_a_command_for_this_very_program():
    """doctor and what runs in a jail print it, with the real path; what it loads names that path."""
    jail = Path(os.path.realpath(kernels.spec_argv()[0][0])).parents[1] / "libexec/cellblock/cellblock-jail"
    done = on_a_host("apparmor_restrict_unprivileged_userns", 1, "apparmor", "doctor", "--json")
    refused = [t for t in json.loads(done.stdout)["trials"] if t["result"] == "refused" and t["required"]]
    assert done.returncode == 3 and refused
    cure = refused[0]["cure"]
    words = shlex.split(cure.split(": ", 1)[1])
    assert words[:5] == [str(jail), "apparmor-profile", "|", "sudo", "tee"]
    assert words[6:] == ["&&", "sudo", "apparmor_parser", "-r", words[5]]
    assert re.fullmatch("/etc/apparmor.d/cellblock-jail-[0-9a-f]{8}", words[5])
    said = on_a_host("apparmor_restrict_unprivileged_userns", 1, "apparmor", "run", "--", "true")
    assert said.returncode == 125 and cure in said.stderr, said.stderr
    profile = subprocess.run([jail, "apparmor-profile"], capture_output=True, text=True, check=True).stdout
    name = Path(words[5]).name
    assert f'profile {name} "{jail}" flags=(unconfined) {{\n  userns,\n}}\n' in profile


@pytest.mark.cellblock_only
def test_the_cure_of_a_sysctl():
    done = on_a_host("unprivileged_userns_clone", 0, "docker", "doctor", "--json")
    cures = [t["cure"] for t in json.loads(done.stdout)["trials"] if t["result"] == "refused" and t["required"]]
    assert cures and "sudo sysctl -w kernel.unprivileged_userns_clone=1" in cures[0]


@pytest.mark.cellblock_only
def test_a_container_on_such_a_host():
    """It sees the sysctl, but its own filter is what refuses."""
    done = on_a_host("apparmor_restrict_unprivileged_userns", 1, "docker", "doctor", "--json")
    cures = [t["cure"] for t in json.loads(done.stdout)["trials"] if t["result"] == "refused" and t["required"]]
    assert cures and "seccomp=unconfined" in cures[0] and "apparmor_parser" not in cures[0], cures
