"""The ecosystem's own conformance suite, whole."""

import jupyter_kernel_test
import kernels
import pytest
from rawclient import DEADLINE

pytestmark = pytest.mark.once
jupyter_kernel_test.TIMEOUT = DEADLINE

try:
    from jupyter_kernel_test import IopubWelcomeTests, KernelTests
except ImportError:  # Debian 12's generation has no IopubWelcomeTests
    from jupyter_kernel_test import KernelTests

    IopubWelcomeTests = None


@pytest.fixture(scope="module", autouse=True)
def own_history(tmp_path_factory):
    """What whoever runs this has in his history is not searched."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


class TestKernel(KernelTests):
    kernel_name = kernels.NAME
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('oops', file=sys.stderr)"
    completion_samples = [{"text": "zi", "matches": {"zip"}}, {"text": "imp", "matches": {"import"}}]
    complete_code_samples = ["1", "print('hello')", "def f(x):\n  return x*2\n\n\n"]
    incomplete_code_samples = ["print('''hello", "def f(x):\n  x*2"]
    invalid_code_samples = ["import = 7q"]
    code_page_something = "zip?"
    code_generate_error = "raise ValueError('e')"
    code_execute_result = [{"code": "1+2+3", "result": "6"}, {"code": "'é'", "result": "'é'"}]
    code_display_data = [
        {"code": "from IPython.display import HTML, display; display(HTML('<b>t</b>'))", "mime": "text/html"},
        {"code": "from IPython.display import Math, display; display(Math('x'))", "mime": "text/latex"},
    ]
    code_history_pattern = "1?2*"
    # ipykernel answers a range of session 0 with a session of 0, which the suite refuses
    supported_history_operations = (
        ("tail", "range", "search") if kernels.NAME.startswith("cellblock") else ("tail", "search")
    )
    code_inspect_sample = "zip"
    code_clear_output = "from IPython.display import clear_output; clear_output()"

    def execute_helper(self, *args, timeout=DEADLINE, **how):
        return super().execute_helper(*args, timeout=timeout, **how)


del KernelTests

if IopubWelcomeTests is not None:

    class TestWelcome(IopubWelcomeTests):
        kernel_name = kernels.NAME
        support_iopub_welcome = True

    del IopubWelcomeTests
