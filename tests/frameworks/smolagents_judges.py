"""What smolagents' own tests ask of an executor, asked of ours. Not run from here: test_smolagents_suite.py puts this
file into the tests of smolagents' source archive, whose classes it takes, and runs it there.

Adapted: AgentError is the executor's own ExecutionError; the judges of FinalAnswerTool call it from jailed code.
"""

import inspect
import os

import PIL.Image
import pytest
from cellblock.smolagents import CellblockExecutor, ExecutionError
from smolagents.agent_types import handle_agent_output_types

from . import test_final_answer, test_remote_executors

test_remote_executors.AgentError = ExecutionError


@pytest.fixture(scope="module")
def custom_executor():
    with CellblockExecutor(["numpy.*", "PIL.*", "base64", "io"], workspace=os.environ["JUDGED_IN"]) as executor:
        yield executor


@pytest.fixture
def e2b_executor(custom_executor):
    return custom_executor


class TestAsDocker(test_remote_executors.CommonDockerExecutorIntegration):
    """The tests of its Docker and Modal executors."""


class TestAsE2B(test_remote_executors.TestE2BExecutorIntegration):
    """Those of its E2B executor."""


class Called:
    """A tool whose calls are made by the code in the jail; the answer is what an agent gives its user."""

    def __init__(self, tool, executor):
        self.tool, self.executor = tool, executor

    def __getattr__(self, name):
        return getattr(self.tool, name)

    def __call__(self, *args, sanitize_inputs_outputs=False, **kwargs):
        self.executor.send_variables(variables={"args": list(args), "kwargs": kwargs})
        self.executor.send_tools({self.tool.name: self.tool})
        done = self.executor(f"{self.tool.name}(*args, **kwargs)")
        assert done.is_final_answer
        return handle_agent_output_types(done.output, self.tool.output_type) if sanitize_inputs_outputs else done.output


class TestFinalAnswerFromTheJail(test_final_answer.TestFinalAnswerTool):
    @pytest.fixture(autouse=True)
    def jailed(self, custom_executor):
        self.tool = Called(self.tool, custom_executor)

    @pytest.fixture
    def inputs(self):
        """Without sound, for which smolagents wants torch; tests/client/test_smolagents.py has it."""
        return {"string": {"answer": "Text"}, "image": {"answer": PIL.Image.new("RGB", (512, 512), (1, 2, 3))}}


class TestVariables:
    """What the tests of RemotePythonExecutor want of send_variables and send_tools, seen from the code."""

    def test_no_tools(self, custom_executor):
        custom_executor.send_tools({})
        assert custom_executor("1").output == 1

    def test_no_variables(self, custom_executor):
        names = "sorted(n for n in vars() if n[0] != '_')"
        before = custom_executor(names).output
        custom_executor.send_variables({})
        assert custom_executor(names).output == before

    def test_variables_come_as_they_are(self, custom_executor):
        variables = {"counter": 1, "tags": ("a", "b"), "blob": b"binary"}
        custom_executor.send_variables(variables)
        custom_executor.send_tools({"final_answer": test_final_answer.FinalAnswerTool()})
        for name, value in variables.items():
            assert custom_executor(f"final_answer({name})").output == value

    def test_nothing_is_pickled(self, custom_executor):
        assert "allow_pickle" not in inspect.signature(CellblockExecutor).parameters
        with pytest.raises(TypeError, match="the variable 'error'"):
            custom_executor.send_variables({"error": ValueError("boom")})

    def test_an_answer_of_unknown_form_is_refused(self, custom_executor):
        custom_executor.send_tools({"final_answer": test_final_answer.FinalAnswerTool()})
        with pytest.raises(ExecutionError, match="ValueError|TypeError"):
            custom_executor("host_final_answer([{'__cellblock__': 'no such form', 'v': 1}], {})")
