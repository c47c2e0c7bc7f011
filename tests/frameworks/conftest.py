"""Agent frameworks, each with a scripted model, over the real kernel; the same whoever starts it."""

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.once)
