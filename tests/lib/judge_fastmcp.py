"""FastMCP's own tests of CodeMode with CellblockSandboxProvider in place of its providers: `pytest -p judge_fastmcp`.

Those that are expected to fail are listed with the reason; one that passes all the same is a failure (strict).
"""

import judges
from cellblock.fastmcp import CellblockSandboxProvider

FILES = [f"tests/experimental/transforms/test_code_mode{part}.py" for part in ("", "_discovery", "_serialization")]
OPTIONS = []

LIMITS = "asks for the keyword limits, which is Monty's"
EXPECTED = {
    "test_monty_provider_raises_informative_error_when_missing": "of pydantic-monty, which is not needed here",
    "test_monty_provider_forwards_limits": LIMITS,
    "test_monty_provider_applies_default_limits": LIMITS,
    "test_monty_provider_explicit_none_disables_limits": LIMITS,
    "test_monty_provider_explicit_limits_override_defaults": LIMITS,
    "test_monty_provider_default_limits_are_not_shared_between_instances": LIMITS,
    "test_monty_provider_cancels_future_when_task_cancelled": "looks at _run_monty, a method of Monty's provider",
}


def pytest_collection_modifyitems(items):
    for module in {item.module for item in items}:
        for name in ("_UnsafeTestSandboxProvider", "MontySandboxProvider"):
            if hasattr(module, name):
                setattr(module, name, CellblockSandboxProvider)
    judges.expect(items, EXPECTED)
