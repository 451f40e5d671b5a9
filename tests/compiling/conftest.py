"""Each test has a folder of its own for what compilers leave, and must leave nothing there."""

import sys
from pathlib import Path

import psutil
import pytest

from autotune.compiling.process import CompilerProcess

FAKE = Path(__file__).parents[1] / "fakes" / "worker.py"


@pytest.fixture
def make_fake(temporary):
    """Makes processes that run the fake worker; closes them, and looks for what is left."""
    made = []

    def make(python=sys.executable, memory_bytes=8 << 30):
        made.append(CompilerProcess(python, memory_bytes, worker=FAKE))
        return made[-1]

    yield make
    for process in made:
        process.close()
    assert list(temporary.iterdir()) == []
    assert [
        p for p in psutil.Process().children() if "fakes/worker.py" in " ".join(p.cmdline())
    ] == []


@pytest.fixture
def fake(make_fake):
    return make_fake()


def is_alive(pid):
    """A zombie that nobody reaps is dead."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def alive():
    return is_alive
