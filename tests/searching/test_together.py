"""Several searches that start at once on a database that does not exist yet."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = """
from tests.samples.candidates import space
from autotune.searching.study import CandidateStudy
study = CandidateStudy(space(), name="together", url={url!r})
assert study.ask() is not None
"""


@pytest.mark.slow
def test_processes_that_create_the_tables_together_all_get_them(tmp_path: Path) -> None:
    script = SCRIPT.format(url=f"sqlite:///{tmp_path}/new.db")
    started = [
        subprocess.Popen(
            [sys.executable, "-c", script], stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
        for _ in range(4)
    ]
    errors = [process.communicate(timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0] * 4, errors
