"""README.md, word for word: its policy is one, and its commands about it work in the folder that it names."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
PREFIX = Path(sys.executable).parents[1]
POLICY = next(block for block in re.findall(r"```json\n(.*?)```", README, re.S))
COMMANDS = [
    line.partition("#")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", README, re.S)
    for line in block.splitlines()
    if line.startswith(("cellblock explain", "cellblock install")) and "strict" in line or "--set" in line
]


@pytest.mark.parametrize("command", COMMANDS)
def test_policy(tmp_path, command):
    home, work = tmp_path / "home", tmp_path / "sources/try"
    home.mkdir()
    work.mkdir(parents=True)
    (home / "strict.json").write_text(POLICY)
    env = {"PATH": f"{PREFIX / 'bin'}:/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8"}
    command = command.replace("--sys-prefix", f"--prefix {tmp_path / 'prefix'} --python /usr/bin/python3")
    done = subprocess.run(["sh", "-c", command], cwd=work, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and not done.stderr, (command, done.stderr)


def test_its_commands_are_tried():
    assert [c.split()[1] for c in COMMANDS] == ["explain", "install", "explain"]
