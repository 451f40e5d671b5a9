"""The real compiler, end to end: everything here is slow. One pool of compilers for each file."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.compiler.pool import CompilerPool

for folder in ("cli", "db", "engine"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/e2e/" in str(item.path):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module")
def pool() -> Iterator[CompilerPool]:
    with CompilerPool(2) as compilers:
        yield compilers
