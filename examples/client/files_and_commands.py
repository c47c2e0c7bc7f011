"""A folder that cells see and change, while the folder itself stays as it is until its owner commits."""

import tempfile
from pathlib import Path

from cellblock import Sandbox

with tempfile.TemporaryDirectory() as work:
    Path(work, "numbers.txt").write_text("3\n1\n2\n")
    with Sandbox("agent", workspace=work) as sb:
        sb.run("lines = sorted(open('numbers.txt'))\nopen('sorted.txt', 'w').writelines(lines)", check=True)
        with sb.open("sorted.txt") as f:
            print("cells wrote:", f.read().split())
        print("a command:", sb.run_command(["wc", "-l", "sorted.txt"]).stdout.split()[0], "lines")
        print("in the folder by now:", sorted(p.name for p in Path(work).iterdir()))
        for change in sb.commit():
            print("committed:", change.change, change.path)
    print("in the folder at last:", sorted(p.name for p in Path(work).iterdir()))
