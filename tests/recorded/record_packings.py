"""Records what the final listing of a kernel is put together from, and libtpu's own listing.

    python -m tests.recorded.record_packings [PYTHON…]

Each interpreter has ``jax[tpu]``. For each chip ``packings/<jax>-<chip>.json.gz`` holds the
operations, the packer's log and the listing of a row sum with a branch and an inner loop.
"""

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from autotune.compiling import libtpu
from autotune.domain.key import Chip

FOLDER = Path(__file__).with_name("packings")
_ROOT = Path(__file__).resolve().parents[2]
_CHIPS = (Chip.V4, Chip.V5E, Chip.V5P, Chip.V6E, Chip.V7X)
_SOURCE = """
import sys
from pathlib import Path
from autotune.compiling import libtpu
folder = Path(sys.argv[1])
if sys.argv[3] == "log":
    libtpu.log_the_packing(folder)
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl
from autotune.compiling.child.chips import compile_only_device
from autotune.domain.key import Chip
from jax.sharding import SingleDeviceSharding

def row_sum(x_ref, o_ref):
    @pl.when(pl.program_id(1) == 0)
    def _():
        o_ref[...] = jnp.zeros_like(o_ref)
    def add(i, _):
        o_ref[...] += jnp.sum(x_ref[i].astype(jnp.float32), axis=-1, keepdims=True)
    jax.lax.fori_loop(0, 4, add, None)

def function(x):
    return pl.pallas_call(
        row_sum, grid=(4, 8),
        in_specs=[pl.BlockSpec((4, 64, 256), lambda i, j: (j, i, 0))],
        out_specs=pl.BlockSpec((64, 1), lambda i, j: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((256, 1), jnp.float32))(x)

sharding = SingleDeviceSharding(compile_only_device(Chip(sys.argv[2])))
x = jax.ShapeDtypeStruct((32, 256, 256), jnp.bfloat16, sharding=sharding)
jax.jit(function).trace(x).lower().compile()
print(jax.__version__)
"""


def main():
    FOLDER.mkdir(exist_ok=True)
    for python in sys.argv[1:] or [sys.executable]:
        for chip in _CHIPS:
            version, logged, log = _compiled(python, chip, "log")
            _, printed, _ = _compiled(python, chip, "listing")
            (name,) = (one for one in printed if libtpu.is_kernel(printed[one]))
            row = {
                "name": name,
                "operations": logged[name],
                "log": re.sub(r"^[IW]\d{4} (?!.*bundle_packer).*\n", "", log, flags=re.M),
                "listing": printed[name],
            }
            path = FOLDER / f"{version}-{chip}.json.gz"
            path.write_bytes(gzip.compress(json.dumps(row).encode(), 9, mtime=0))
            print(path.name, path.stat().st_size)


def _compiled(python, chip, what):
    """The version of JAX, texts by function, and the log."""
    with tempfile.TemporaryDirectory() as name:
        dump, log = Path(name) / "dump", Path(name) / "log"
        dump.mkdir()
        environment = libtpu.child_environment(dump, {**os.environ, "PYTHONPATH": str(_ROOT)})
        with log.open("ab") as stderr:
            version = subprocess.run(
                [python, "-c", _SOURCE, str(dump), chip.value, what],
                env=environment,
                check=True,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            ).stdout.strip()
        if what == "listing":
            return version, libtpu.listings(dump), ""
        from autotune.estimating.simulator.assembly import function_name

        found = {function_name(text): text for text in libtpu.operations(dump)}
        return version, found, log.read_text(errors="replace")


if __name__ == "__main__":
    main()
