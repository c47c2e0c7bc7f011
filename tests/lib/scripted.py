"""A chat model of LangChain that says what it was given."""

from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class Scripted(BaseChatModel):
    """Each step is a text, which ends the run, or a list of calls: (tool, arguments). `heard`: what it was sent."""

    steps: list[Any]
    heard: list[Any] = []
    bound: list[Any] = []

    def __init__(self, *steps, **fields):
        super().__init__(steps=list(steps), **fields)

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **_how):
        self.bound.append(tools)
        return self

    def _generate(self, messages, stop=None, run_manager=None, **_how):
        self.heard.append(messages)
        step = self.steps.pop(0)
        if isinstance(step, str):
            message = AIMessage(step)
        else:
            n = len(self.heard)
            calls = [{"name": name, "args": args, "id": f"call_{n}_{i}"} for i, (name, args) in enumerate(step)]
            message = AIMessage("", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])
