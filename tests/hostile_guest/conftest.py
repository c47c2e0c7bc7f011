"""The supervisor reads a guest's frames in the same way whoever started it: ./check sends the hostile ones once."""

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.once)
