"""For all tests: no deadlines, machines are noisy; one real compiler for each file (and each
worker of pytest-xdist: two together are what a machine of two cores has room for)."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from autotune.compiler.pool import CompilerPool

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture(scope="module")
def pool() -> Iterator[CompilerPool]:
    with CompilerPool(1) as compilers:
        yield compilers


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this process and its children keep temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder
