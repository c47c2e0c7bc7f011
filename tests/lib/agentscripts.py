"""What a code agent's model writes, step by step: programs that must end the same on any executor of smolagents.

Role: test code; used by tests/frameworks and tests/bench."""

import sys

from smolagents import ChatMessage, Model, tool

IMPORTS = ["json", "numpy.*"]
# what errors of the scripts say, whatever kind of error they are called
ERRORS = ["KeyError: 'milk'", "ZeroDivisionError: division by zero", "undefined_name", "Import of os is not allowed",
          "Import of subprocess is not allowed"]


class Scripted(Model):
    """A model that says what it was given, a step each; `heard` are the messages that it was sent."""

    def __init__(self, *codes):
        super().__init__(model_id="scripted")
        self.codes, self.heard = list(codes), []

    def generate(self, messages, **_how):
        self.heard.append(messages)
        return ChatMessage(role="assistant", content=f"Thought: go on\n<code>\n{self.codes.pop(0)}\n</code>")

    def to_dict(self):
        return {"codes": self.codes}

    @classmethod
    def from_dict(cls, said):
        return cls(*said["codes"])


@tool
def rainfall(city: str, days: int = 3) -> list:
    """Rain of the last days, in mm.

    Args:
        city: where
        days: how many
    """
    return [len(city) * (day + 1) / 2 for day in range(days)]


@tool
def lookup(key: str) -> dict:
    """Looks a key up.

    Args:
        key: the key
    """
    return {"key": key, "found": key in ("a", "b"), "more": [1, None, {"deep": True}]}


# name: what the agent is given, and its steps
SCRIPTS = {
    "arithmetic": ({}, ["x = 12 * 7\nprint('x is', x)", "y = x / 5\ny", "final_answer(round(y, 1))"]),
    "text": ({"text": "the quick brown fox jumps over the lazy dog the end"}, [
        "from collections import Counter\nc = Counter(text.split())\nprint(c.most_common(2))",
        "import re\nre.findall(r'\\b\\w{5}\\b', text)",
        "final_answer(', '.join(sorted(w for w, n in c.items() if n == 1)))"]),
    "tools": ({}, [
        "total = {}\nfor city in ['Oslo', 'Bergen']:\n    total[city] = sum(rainfall(city, days=2))\nprint(total)",
        "print(rainfall('Rome'))\nlookup('a')",
        "final_answer({'wettest': max(total, key=total.get), 'b': lookup(key='b')['found']})"]),
    "functions": ({}, [
        "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\nprint([fib(i) for i in range(10)])",
        "class Point:\n    def __init__(self, x, y):\n        self.x, self.y = x, y\n    def norm(self):\n"
        "        return (self.x ** 2 + self.y ** 2) ** 0.5\np = Point(3, 4)\nprint(p.norm())",
        "final_answer([fib(12), p.norm()])"]),
    "mistakes": ({}, [
        "prices = {'tea': 3.5}\nprint('before')\nprices['milk']", "1 / 0", "undefined_name + 1",
        "try:\n    int('x')\nexcept ValueError as e:\n    print('caught', e)",
        "print(prices)\nfinal_answer(len(prices))"]),
    "forbidden": ({}, ["import os\nos.listdir('/')", "import subprocess", "final_answer('gave up')"]),
    "data": ({"rows": [{"n": 1, "tag": "a"}, {"n": 5, "tag": "b"}, {"n": 3, "tag": "a"}]}, [
        "by = {}\nfor row in rows:\n    by.setdefault(row['tag'], []).append(row['n'])\nby",
        "import json, statistics\nprint(json.dumps({k: statistics.mean(v) for k, v in sorted(by.items())}))",
        "import datetime\nd = datetime.date(2026, 2, 27) + datetime.timedelta(days=3)\nstr(d)",
        "final_answer({'days': str(d), 'rows': [r for r in rows if r['n'] > 2]})"]),
    "arrays": ({}, [
        "import numpy as np\na = np.arange(12).reshape(3, 4)\nprint(a.sum(axis=0))",
        "b = np.dot(a, a.T)\nprint(b.shape, int(b.trace()))", "final_answer(float(np.linalg.norm(a)))"]),
    "nothing shown": ({}, ["z = 5\nprint(z)", "None", "print()", "final_answer(None)"]),
    "odd values": ({}, ["(1, [2, (3,)])", "{1: 'one', 2: {'x'}}", "True", "'text with \\n newline'", "1.0", "b'bytes'",
                        "final_answer((1, 'two'))"]),
}
if sys.version_info < (3, 11):
    del SCRIPTS["arrays"]
TOOLS = [rainfall, lookup]


def steps(agent, name):
    """Runs the script of this name; gives the answer, and (observations, error, answer, seconds) of each step."""
    given, codes = SCRIPTS[name]
    agent.model = Scripted(*codes)
    answer = agent.run("go", additional_args=dict(given))
    found = []
    for step in agent.memory.steps:
        if hasattr(step, "observations"):
            error = str(step.error.message) if step.error else None
            found.append((step.observations, error, step.is_final_answer, step.timing.duration))
    return answer, found
