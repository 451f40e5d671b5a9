"""The real compiler, end to end: everything here is slow."""

import sys
from pathlib import Path

import pytest

for folder in ("cli", "db", "engine"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/e2e/" in str(item.path):
            item.add_marker(pytest.mark.slow)
