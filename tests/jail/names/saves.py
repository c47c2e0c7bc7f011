"""What programs outside do to protected entries while a cell attacks them: saves.py KIND TIMES NAME…

Role: the host's side of tests/jail/test_names.py; runs outside the jail in the workspace, as its owner. What it writes
begins with HOST. It goes on until the cell has been round 200 times, as the length of cell-rounds says. Temporary files
lie beside the workspace unless the kind is an editor, whose lie beside the entry.
"""

import os
import shutil
import subprocess
import sys
import time

TEXT = "HOST saved this, time %d\n"
ASIDE = "../host-temporary"


def write(path, n, sync=False):
    """Without waiting, should a cell have put a named pipe there."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK, 0o644), "w") as f:
        f.write(TEXT % n)
        if sync:
            f.flush()
            os.fsync(f.fileno())


def rename(name, n):
    write(ASIDE, n)
    os.replace(ASIDE, name)


def in_place(name, n):
    write(name, n)


def anew(name, n):
    os.unlink(name)
    write(name, n)


def editor(name, n):
    """As vim and most others: a copy beside it, whole and on the disk, takes its place; the old one stays as NAME~."""
    folder, base = os.path.split(name)
    beside = os.path.join(folder, f".{base}.swp" if n % 2 else f"{base}.tmp{n}")
    write(beside, n, sync=n % 20 == 0)
    if os.path.exists(name):
        os.replace(name, name + "~")
    os.replace(beside, name)


def git_config(name, n):
    subprocess.run(["git", "config", "cb.saved", f"HOST {n}"], check=True)


def checkout(name, n):
    subprocess.run(["git", "checkout", "-q", "-f", ("without", "with")[n % 2]], check=True)


def away_and_back(name, n):
    os.rename(name, name + ".bak")
    os.rename(name + ".bak", name)


def folder_anew(name, n):
    folder = os.path.dirname(name)
    shutil.rmtree(folder)
    os.mkdir(folder)
    write(name, n)


def copied(name, n):
    os.rename(name, name + ".old")
    shutil.copytree(name + ".old", name, symlinks=True)
    shutil.rmtree(name + ".old")


KINDS = {
    f.__name__: f for f in (rename, in_place, anew, editor, git_config, checkout, away_and_back, folder_anew, copied)
}


def rounds():
    return os.path.getsize("cell-rounds") if os.path.exists("cell-rounds") else 200


def main():
    kind, times, *names = sys.argv[1:]
    faults = done = 0
    for n in range(1000 * int(times)):
        if n >= int(times):  # only the cell's rounds are wanted still: it gets the processor, too
            if n % 2 == 0 and rounds() >= 200:  # what goes to and fro is back
                break
            time.sleep(0.05)
        done += len(names)
        for name in names:
            try:
                KINDS[kind](name, n)
            except (OSError, subprocess.CalledProcessError) as e:
                faults += 1  # a cell that came between
                fault = e
    print(f"SAVED {done - faults} of {done}", fault if faults else "")


if __name__ == "__main__":
    main()
