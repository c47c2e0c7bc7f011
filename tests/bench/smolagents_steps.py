#!/usr/bin/env python3
"""How long a step of a smolagents agent takes: its own LocalPythonExecutor beside a jail, the same scripted agents.

usage: smolagents_steps.py [TIMES]     medians in ms; one jail for all runs
"""

import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

import agentscripts  # noqa: E402
from cellblock.smolagents import code_agent  # noqa: E402
from smolagents import CodeAgent  # noqa: E402

HOW = {"verbosity_level": 0, "additional_authorized_imports": agentscripts.IMPORTS}


def main():
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as work:
        jailed = code_agent(agentscripts.TOOLS, agentscripts.Scripted(), executor={"workspace": work}, **HOW)
        with jailed:
            agentscripts.steps(jailed, "arithmetic")  # starts the jail
            took = {(who, name): [] for name in agentscripts.SCRIPTS for who in ("local", "jail")}
            for _ in range(times):
                for who, name in took:
                    agent = jailed if who == "jail" else CodeAgent(agentscripts.TOOLS, agentscripts.Scripted(), **HOW)
                    took[who, name] += [seconds for *_, seconds in agentscripts.steps(agent, name)[1]]
    for name in agentscripts.SCRIPTS:
        local, jail = (statistics.median(took[who, name]) * 1e3 for who in ("local", "jail"))
        print(f"{name:14} local {local:8.2f} ms   jail {jail:8.2f} ms a step")
    for who in ("local", "jail"):
        every = sorted(t * 1e3 for (w, _), found in took.items() if w == who for t in found)
        p90 = every[int(len(every) * 0.9)]
        print(f"{who:6} median {statistics.median(every):8.2f} ms, p90 {p90:8.2f}, best {every[0]:8.2f}")


if __name__ == "__main__":
    main()
