"""The shape of Letta's tool sandbox: one for each configuration, kept until that changes; the agent's state goes in and
comes out as JSON, so that nothing that a tool returns is ever unpickled here."""

import json
import sys

from cellblock import Sandbox

CALL = """{source}
import json
arguments, agent_state = json.loads({given!r})
[{name}(**arguments), agent_state]"""
NOTE = """import os
def note(text):
    agent_state["notes"].append(text)
    return os.environ["PLACE"]"""
kept = {"config": None, "sandbox": None}


def run_tool(source, name, arguments, state, *, env, python=sys.executable, memory="512M", seconds=180, image="host"):
    """Gives result, state and status. `python`: that of a venv; `image`: the folder of an unpacked base image."""
    config = json.dumps([env, python, memory, seconds, image], sort_keys=True)
    if config != kept["config"]:
        if kept["sandbox"]:
            kept["sandbox"].close()
        policy = {"workspace.mode": "tmpfs", "root.path": image, "env.set": env}
        kept["sandbox"] = Sandbox("agent", python=python, memory=memory, timeout=seconds, policy=policy)
        kept["config"] = config
    done = kept["sandbox"].run(CALL.format(source=source, name=name, given=json.dumps([arguments, state])))
    return (*done.value, "success") if done.ok else (str(done.error), state, "error")


state, env = {"notes": []}, {"PLACE": "Oslo"}
for text, place in ("one", "Oslo"), ("two", "Oslo"), ("three", "Rome"):
    before = kept["sandbox"]
    result, state, status = run_tool(NOTE, "note", {"text": text}, state, env={"PLACE": place})
    print(status, result, state["notes"], "same sandbox" if kept["sandbox"] is before else "new sandbox")
print(run_tool("def bad(): return 1 / 0", "bad", {}, state, env=env)[::2])
kept["sandbox"].close()
