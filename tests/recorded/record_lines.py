"""Records what the lines of a listing come from: libtpu's description of a kernel, the texts of its
passes, and the listing.

    python -m tests.recorded.record_lines [PYTHON…]

Each interpreter has ``jax[tpu]``. For each chip ``lines/<jax>-<chip>.json.gz`` is of
tests/samples/known_costs.py.
"""

import base64
import gzip
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from autotune.compiling import libtpu
from autotune.domain.key import Chip

FOLDER = Path(__file__).with_name("lines")
_ROOT = Path(__file__).resolve().parents[2]
_SOURCE = _ROOT / "tests" / "samples" / "known_costs.py"
_CHIPS = (Chip.V5E, Chip.V5P, Chip.V6E, Chip.V7X)
_CODE = """
import sys
from pathlib import Path
import jax
from jax.sharding import SingleDeviceSharding
from autotune.compiling.child.chips import compile_only_device
from autotune.compiling import libtpu
from autotune.domain.key import Chip

libtpu.log_the_packing(Path(sys.argv[3]))
exec(compile(Path(sys.argv[2]).read_text(), Path(sys.argv[2]).name, "exec"))
sharding = SingleDeviceSharding(compile_only_device(Chip(sys.argv[1])))
jax.jit(function).trace(*arguments(sharding)).lower().compile()
print(jax.__version__, __import__("importlib.metadata").metadata.version("libtpu"))
"""


def main():
    FOLDER.mkdir(exist_ok=True)
    for python in sys.argv[1:] or [sys.executable]:
        for chip in _CHIPS:
            with tempfile.TemporaryDirectory() as name:
                jax, version = _compiled(python, chip, dump := Path(name))
                ((function, listing),) = (
                    pair for pair in libtpu.listings(dump).items() if libtpu.is_kernel(pair[1])
                )
                sources = libtpu.source_texts(dump)[function]
            row = {
                "libtpu": version,
                "module": base64.b64encode(sources.module).decode(),
                "passes": sources.passes,
                "listing": listing,
            }
            path = FOLDER / f"{jax}-{chip}.json.gz"
            path.write_bytes(gzip.compress(json.dumps(row).encode(), 9, mtime=0))
            print(path.name, path.stat().st_size)


def _compiled(python, chip, dump):
    """The versions of JAX and libtpu."""
    known = {**os.environ, "PYTHONPATH": str(_ROOT), libtpu.SOURCE_LINES: "1"}
    done = subprocess.run(
        [python, "-c", _CODE, chip.value, str(_SOURCE), str(dump)],
        env=libtpu.child_environment(dump, known),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout.split()


if __name__ == "__main__":
    main()
