"""Records what the compiler makes of a function around a kernel, for the reader of modules.

    python -m tests.recorded.record_modules [PYTHON…]

Each interpreter has ``jax[tpu]``; the text goes to ``modules/<jax>.hlo.gz`` without the programs of
kernels, whose text is long and read by nobody.
"""

import gzip
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from autotune.compiling import libtpu

FOLDER = Path(__file__).with_name("modules")
_ROOT = Path(__file__).resolve().parents[2]
_BODY = re.compile(r'"custom_call_config":\{"body":"[^"]*"')
_SOURCE = """
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


def main():
    FOLDER.mkdir(exist_ok=True)
    for python in sys.argv[1:] or [sys.executable]:
        with tempfile.TemporaryDirectory() as folder:
            environment = libtpu.child_environment(Path(folder), {"PYTHONPATH": str(_ROOT)})
            printed = subprocess.run(
                [python, "-c", _SOURCE], env=environment, check=True, capture_output=True, text=True
            ).stdout
        version, _, text = printed.partition("\n")
        text = _BODY.sub('"custom_call_config":{"body":""', text)
        path = FOLDER / f"{version}.hlo.gz"
        path.write_bytes(gzip.compress(text.encode(), mtime=0))
        print(path.name, len(text))


if __name__ == "__main__":
    main()
