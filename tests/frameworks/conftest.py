"""Agent frameworks, each with a scripted model, over the real kernel; the same whoever starts it."""

import importlib.util


def pytest_configure(config):
    """Tests that are coroutines."""
    if importlib.util.find_spec("anyio"):
        config.pluginmanager.import_plugin("anyio.pytest_plugin")
