"""The same scripted agents on smolagents' own LocalPythonExecutor and on ours: the same answers, and the same words for
the model at each step."""

import pytest

smolagents = pytest.importorskip("smolagents", reason="smolagents needs Python 3.11 here")

import agentscripts  # noqa: E402
import kernels  # noqa: E402
from cellblock.smolagents import code_agent  # noqa: E402
from smolagents import CodeAgent  # noqa: E402


@pytest.fixture(scope="module")
def jailed(nothing_left):
    kernels.let_in(nothing_left / "w")
    with code_agent(agentscripts.TOOLS, agentscripts.Scripted(), additional_authorized_imports=agentscripts.IMPORTS,
                    executor={"workspace": nothing_left / "w", "fresh": "run"}, verbosity_level=0) as agent:
        yield agent


@pytest.mark.parametrize("name", agentscripts.SCRIPTS)
def test_the_same_end(jailed, name):
    local = CodeAgent(agentscripts.TOOLS, agentscripts.Scripted(), verbosity_level=0,
                      additional_authorized_imports=agentscripts.IMPORTS)
    answer, steps = agentscripts.steps(local, name)
    ours, our_steps = agentscripts.steps(jailed, name)
    assert ours == answer and type(ours) is type(answer)
    assert len(our_steps) == len(steps) == len(agentscripts.SCRIPTS[name][1])
    for (seen, error, last, _), (our_seen, our_error, our_last, _) in zip(steps, our_steps):
        assert (our_seen, our_last) == (seen, last)
        if error is None:
            assert our_error is None
            continue
        # the same line; the interpreter has names of its own for some of Python's errors
        assert our_error.partition(" due to: ")[0] == error.partition(" due to: ")[0]
        told = [words for words in agentscripts.ERRORS if words in error]
        assert told and told == [words for words in agentscripts.ERRORS if words in our_error]
