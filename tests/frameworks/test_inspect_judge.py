"""cellblock.inspect_ai before Inspect's own self-check of sandboxes: every check, with asyncio and with trio."""

import pytest

pytest.importorskip("inspect_ai", reason="Inspect needs Python 3.11 here")

import anyio  # noqa: E402
from cellblock.inspect_ai import CellblockSandboxEnvironment  # noqa: E402
from inspect_ai.util._sandbox.self_check import *  # noqa: E402, F403

pytestmark = pytest.mark.anyio
EXPECTED = {"test_exec_as_user": "the jail has one user, and no root that could add another"}


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@pytest.fixture(scope="module")
def sandbox(nothing_left):
    """One sandbox for all checks: it belongs to no event loop."""
    made = anyio.run(CellblockSandboxEnvironment.sample_init, "judge", None, {})
    yield made["default"]
    anyio.run(CellblockSandboxEnvironment.sample_cleanup, "judge", None, made, False)


@pytest.fixture
def sandbox_env(sandbox, request):
    if request.node.originalname in EXPECTED:
        request.applymarker(pytest.mark.xfail(reason=EXPECTED[request.node.originalname], strict=True))
    return sandbox
