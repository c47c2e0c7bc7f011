"""What roots, pythons and first_result share: the wheels that a try needs, the README's first program, the table of
what was said."""

import json
import os
import re
import shutil
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WANTED = ["jupyter_client>=8", "msgspec", "nbclient", "ipython"]
MARK = "cellblock-tries: "  # before the line with the results


def once(path, make):
    """Makes a folder where there is none that is whole."""
    if not path.exists():
        part = path.with_name(path.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        make(part)
        part.rename(path)
    return path


def first_program():
    """The README's."""
    return re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[1]


def give(folder, wheels, wheel):
    """All that root_steps.py needs, readable for everybody."""
    shutil.copytree(wheels, folder / "wheels")
    shutil.copy(wheel, folder / "wheels")
    shutil.copy(HERE / "root_steps.py", folder)
    (folder / "first.py").write_text(first_program())
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def read(name, output, status):
    """{user: [(step, passed, text)]}; other lines are shown."""
    found = [line for line in output.splitlines() if line.startswith(MARK)]
    print(*(f"{name}: {line}" for line in output.splitlines() if line not in found), sep="\n", end="", flush=True)
    if not found:
        return {"root" if os.geteuid() == 0 else "ordinary": [("enter", False, f"the steps did not end: {status}")]}
    return json.loads(found[-1][len(MARK):])


def show(kind, results):
    """Prints the table and what failed; the exit status."""
    steps = list(dict.fromkeys(step for users in results.values() for said in users.values() for step, _, _ in said))
    print(f"| {kind} | user | " + " | ".join(steps) + " |", "|---" * (2 + len(steps)) + "|", sep="\n")
    failed = []
    for name, users in results.items():
        for user, said in users.items():
            by_step = {step: text if passed else "**failed**" for step, passed, text in said}
            print(f"| {name} | {user} | " + " | ".join(by_step.get(step, "–") for step in steps) + " |")
            failed += [f"FAILED: {name}, {user}, {step}: {text}" for step, passed, text in said if not passed]
    print(*failed, sep="\n", end="\n" if failed else "")
    return bool(failed) or not results
