"""The AppArmor profile that Ubuntu needs: its syntax, and that it is for the broker where it gets installed."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

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
