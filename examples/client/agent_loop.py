"""What an agent does: steps of code from a model, with state between them, and answers that a model can read."""

import tempfile

from cellblock import Sandbox

STEPS = [
    "prices = {'tea': 3.5, 'milk': 1.2}",
    "total = sum(prices.value())",  # models make mistakes: the error is their next message
    "total = sum(prices.values())\nprint('sum:', total)",
    "while True: pass",  # and worse ones: a limit ends it, the variables stay
    "round(total * 1.19, 2)",
]


def model(said):
    """Stands for a call of a language model: gives the next piece of code."""
    print(f"--- the model reads:\n{said}")
    return STEPS.pop(0) if STEPS else None


with tempfile.TemporaryDirectory() as work, Sandbox("agent", workspace=work, timeout=3) as sb:
    said = "Go on."
    while (code := model(said)) is not None:
        result = sb.run(code)
        said = result.text(max_chars=500) or "(no output)"
        if result.fault == "infrastructure":
            raise SystemExit("not the model's fault: try again later")
