"""A whole agent inside the jail: smolagents' CodeAgent runs there with its own executor, and what it can't have there,
the model with its key and network, is a tool of this program. It needs smolagents for the jailed Python."""

import tempfile

from cellblock import Sandbox, tool

ANSWERS = ["words = task_text.split()\nprint(len(words))", "final_answer(max(words, key=len))"]


@tool(timeout=120, max_calls=10)
def complete(messages: list[dict]) -> str:
    """Asks the model. A real one is called here, with its key."""
    print("the model is asked:", len(messages), "messages")
    return f"Thought: go on\n<code>\n{ANSWERS.pop(0)}\n</code>"


INSIDE = """
from smolagents import ChatMessage, CodeAgent, Model

class HostModel(Model):
    def generate(self, messages, **options):
        plain = [{"role": str(m.role), "content": "".join(p.get("text", "") for p in m.content)} for m in messages]
        return ChatMessage(role="assistant", content=complete(plain))

agent = CodeAgent([], HostModel(), verbosity_level=0, max_steps=5)
agent.run("Which word is the longest?", additional_args={"task_text": "a short and extraordinary text"})
"""

with tempfile.TemporaryDirectory() as work:
    with Sandbox("agent", workspace=work, timeout=120, memory="1G", tools=[complete]) as sb:
        result = sb.run(INSIDE)
        print("the agent says:", result.value if result.ok else result.text())
        print("steps:", sb.run("[type(step).__name__ for step in agent.memory.steps]").repr)
