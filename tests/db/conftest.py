"""A store in a fresh database for each test, and a user without rights."""

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = 65534


@contextmanager
def _as_nobody():
    root = os.geteuid() == 0
    if root:  # root may write everywhere
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.fixture
def as_nobody():
    """Inside, file permissions hold, even where the tests run as root."""
    return _as_nobody


@pytest.fixture
def open_folder():
    """A folder that every user may read: pytest's own may be closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="autotune-db-"))
    folder.chmod(0o755)
    yield folder
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    shutil.rmtree(folder)
