"""The shape of Biomni's code tool: commands with a limit of 120 s, files of one folder alone, and an end to all."""

import tempfile

from cellblock import CommandTimeoutError, Sandbox


class Playground:
    def __init__(self, path, image="host"):
        self.sandbox = Sandbox("agent", workspace=path, policy={"workspace.mode": "rw", "root.path": image})
        self.open, self.close = self.sandbox.open, self.sandbox.close

    def run(self, commands, timeout_seconds=120):
        """What the program wrote, what it complained of, and its exit code; 124 where its time was up."""
        try:
            done = self.sandbox.run_command(commands, timeout=timeout_seconds)
            return done.stdout, done.stderr, done.returncode
        except CommandTimeoutError as e:
            return e.stdout, f"longer than {timeout_seconds} s", 124

    def clear(self):
        self.sandbox.clear_workspace(everything=True)


with tempfile.TemporaryDirectory() as work:
    ground = Playground(work)
    with ground.open("genes.txt", "w") as f:
        f.write("BRCA1\nTP53\nBRCA2\n")
    print(ground.run(["grep", "-c", "BRCA", "genes.txt"]))
    print(ground.run(["cat", "/etc/shadow"])[1:])
    print(ground.run(["sh", "-c", "echo begun; sleep 600"], timeout_seconds=1))
    try:
        ground.open("../secret")
    except OSError as e:
        print("refused:", e)
    ground.clear()
    print("left:", ground.run(["ls"])[0].split())
    ground.close()
