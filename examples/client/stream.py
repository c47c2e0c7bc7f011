"""Output as it comes, a picture, and an end that the caller chooses."""

import tempfile

from cellblock import Sandbox

CODE = """
import time
for i in range(1000):
    print("step", i, flush=True)
    time.sleep(0.01)
"""

with tempfile.TemporaryDirectory() as work, Sandbox("agent", workspace=work) as sb:
    for event in sb.stream(CODE):
        print(event.kind, event.text, end="")
        if event.text.startswith("step 3") or "step 3" in event.text:
            break  # leaving the loop interrupts the cell
    print("variables are kept:", sb.run("i >= 3").repr)
