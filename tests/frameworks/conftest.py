"""Agent frameworks, each with a scripted model, over the real kernel; the same whoever starts it."""

import importlib.util
from pathlib import Path

import pytest


def pytest_configure(config):
    """Tests that are coroutines."""
    if importlib.util.find_spec("anyio"):
        config.pluginmanager.import_plugin("anyio.pytest_plugin")


def pytest_collection_modifyitems(items):
    for item in items:  # of all suites that this pytest runs
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.once)
