"""For all tests: no deadlines, machines are noisy; one pool of real compilers for each file."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from autotune.compiler.pool import CompilerPool

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture(scope="module")
def pool() -> Iterator[CompilerPool]:
    with CompilerPool(2) as compilers:
        yield compilers
