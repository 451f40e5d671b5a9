"""A kernel that nobody here wrote: tokamax's ragged dot, declared in one file."""

import json
import os
from pathlib import Path

import pytest

from tests.servers.commands import autotune

PYTHON = os.environ.get("TOKAMAX_PYTHON", "")
FILE = Path(__file__).parents[2] / "benchmarks" / "kernels" / "tokamax_ragged_dot.py"
SHAPE = "m=512,k=256,n=256,groups=4"


@pytest.mark.skipif(not PYTHON, reason="TOKAMAX_PYTHON names no interpreter with tokamax and JAX")
@pytest.mark.parametrize("mode", ["fwd", "dlhs", "drhs"])
def test_it_is_searched_verified_and_published(mode: str, tmp_path: Path) -> None:
    done = autotune(
        "search",
        f"{FILE}:KERNEL",
        "--shape",
        SHAPE,
        "--option",
        f"mode={mode}",
        "--chip",
        "v6e",
        "--trials",
        "4",
        "--python",
        PYTHON,
        "--json",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["record"]["verified"]
