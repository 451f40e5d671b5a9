"""Records what compilers write, for the tests that read it.

    python -m tests.recorded.record {lines,packings,modules} [PYTHON…]

Each interpreter has ``jax[tpu]``. ``lines/<jax>-<chip>.json.gz`` is libtpu's description of
tests/samples/known_costs.py, the texts of its passes, and the listing. ``packings`` has of a chip
the operations, the packer's log and the listing of a row sum with a branch and an inner loop.
``modules/<jax>.hlo.gz`` is what the compiler makes of a function around a kernel, without the
programs of kernels, whose text is long and read by nobody.
"""

import base64
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

FOLDER = Path(__file__).parent
_ROOT = FOLDER.resolve().parents[1]
_BODY = re.compile(r'"custom_call_config":\{"body":"[^"]*"')
_LINES = """
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
_PACKINGS = """
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
_MODULES = """
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl
from autotune.compiling.child.chips import compile_only_device
from autotune.domain.key import Chip
from jax.sharding import SingleDeviceSharding

def double(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2

def function(x, odd, n):
    grid = (x.shape[0] // 256,)
    spec = pl.BlockSpec((256, 512), lambda i: (i, 0))
    y = pl.pallas_call(double, grid=grid, in_specs=[spec], out_specs=spec,
                       out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)
    def step(i, state):
        return jnp.sin(state) @ state
    small = jax.lax.fori_loop(0, 5, step, odd[:128, :128])
    open_end = jax.lax.while_loop(lambda s: s.sum() < n, lambda s: s @ s, small)
    return y.T + 1, odd[1:, 3:] * 2, open_end, jnp.sort(x[:8], axis=0)

device = compile_only_device(Chip.V5E)
def array(shape, dtype):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=SingleDeviceSharding(device))
x, odd = array((32768, 512), jnp.bfloat16), array((1000, 300), jnp.float32)
n = array((), jnp.float32)
print(jax.__version__)
print(jax.jit(function).trace(x, odd, n).lower().compile().as_text())
"""


def lines(python):
    source = str(_ROOT / "tests" / "samples" / "known_costs.py")
    for chip in (Chip.V5E, Chip.V5P, Chip.V6E, Chip.V7X):
        with tempfile.TemporaryDirectory() as name:
            given = (_LINES, chip.value, source, name)
            versions, _ = _compiled(python, Path(name), *given, **{libtpu.SOURCE_LINES: "1"})
            jax, version = versions.split()
            printed = libtpu.listings(Path(name)).items()
            ((function, listing),) = (pair for pair in printed if libtpu.is_kernel(pair[1]))
            sources = libtpu.source_texts(Path(name))[function]
        module = base64.b64encode(sources.module).decode()
        row = {"libtpu": version, "module": module, "passes": sources.passes, "listing": listing}
        _write(f"lines/{jax}-{chip}.json.gz", json.dumps(row))


def packings(python):
    from autotune.estimating.simulator.assembly import function_name

    for chip in (Chip.V4, Chip.V5E, Chip.V5P, Chip.V6E, Chip.V7X):
        with tempfile.TemporaryDirectory() as name:
            version, log = _compiled(python, Path(name), _PACKINGS, name, chip.value, "log")
            texts = [path.read_text() for path in libtpu.operations(Path(name))]
            logged = {function_name(text): text for text in texts}
        with tempfile.TemporaryDirectory() as name:
            _compiled(python, Path(name), _PACKINGS, name, chip.value, "listing")
            printed = libtpu.listings(Path(name))
        (name,) = (one for one in printed if libtpu.is_kernel(printed[one]))
        log = re.sub(r"^[IW]\d{4} (?!.*bundle_packer).*\n", "", log, flags=re.M)
        row = {"operations": logged[name], "log": log, "listing": printed[name]}
        _write(f"packings/{version.strip()}-{chip}.json.gz", json.dumps({"name": name, **row}))


def modules(python):
    with tempfile.TemporaryDirectory() as name:
        version, _, text = _compiled(python, Path(name), _MODULES)[0].partition("\n")
    _write(f"modules/{version}.hlo.gz", _BODY.sub('"custom_call_config":{"body":""', text))


def _compiled(python, dump, code, *words, **more):
    """What the program prints, and its log."""
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        environment = {**os.environ, "PYTHONPATH": str(_ROOT), **more}
        done = subprocess.run(
            [python, "-c", code, *words],
            env=libtpu.child_environment(dump, environment),
            check=True,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        log.seek(0)
        return done.stdout, log.read()


def _write(name, text):
    path = FOLDER / name
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(name, path.stat().st_size)


if __name__ == "__main__":
    for interpreter in sys.argv[2:] or [sys.executable]:
        {"lines": lines, "packings": packings, "modules": modules}[sys.argv[1]](interpreter)
