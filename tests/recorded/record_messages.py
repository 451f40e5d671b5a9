"""Record what the TPU compiler says when it refuses: run under each JAX whose words are wanted.

    PYTHON tests/recorded/record_messages.py

writes ``messages/<jax version>-<case>.json`` with the type and the text of the exception. Needs
no TPU; takes a minute.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from autotune.compiling import libtpu  # noqa: E402
from autotune.domain.key import Chip  # noqa: E402

MOST_CHARACTERS = 20_000
MIB = 2**20


def copy_kernel(rows, block, scratch_bytes=0, limit=None, dtype="float32"):
    """Moves [rows, 128] in blocks; the scratch, if any, outlives a step."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import tpu as pltpu

    def body(x, out, *scratch):
        out[0:8, :] = x[0:8, :]
        for buffer in scratch:
            buffer[0:8, :] = x[0:8, :] + buffer[8:16, :]
            out[0:8, :] = buffer[0:8, :]

    spec = pl.BlockSpec((block, 128), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct((rows, 128), jnp.dtype(dtype))
    buffers = [pltpu.VMEM((scratch_bytes // 512, 128), jnp.float32)] if scratch_bytes else []
    params = getattr(pltpu, "CompilerParams", None) or pltpu.TPUCompilerParams
    call = pl.pallas_call(
        body,
        grid=(-(-rows // block),),
        in_specs=[spec],
        out_specs=spec,
        out_shape=shape,
        scratch_shapes=buffers,
        compiler_params=params(vmem_limit_bytes=limit),
    )
    return call, [shape]


def whole(body, *shapes):
    """A kernel of one step over whole arrays; the last shape is the output's."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import pallas as pl

    *given, out = [jax.ShapeDtypeStruct(s, jnp.dtype(d)) for s, d in shapes]
    return pl.pallas_call(body, out_shape=out), given


def bf16_matmul():
    import jax.numpy as jnp

    def body(x, y, out):
        out[...] = jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

    square = ((128, 128), "bfloat16")
    return whole(body, square, square, ((128, 128), "float32"))


def shape_cast():
    def body(x, out):
        out[...] = x[...].reshape(out.shape)

    return whole(body, ((24, 128), "float32"), ((32, 96), "float32"))


def no_lowering():
    import jax.numpy as jnp

    def body(x, out):
        out[...] = jnp.linalg.cholesky(x[...])

    return whole(body, ((128, 128), "float32"), ((128, 128), "float32"))


def too_much_hbm():
    import jax
    import jax.numpy as jnp

    return (lambda x: x * 2), [jax.ShapeDtypeStruct((1 << 16, 1 << 16), jnp.float32)]


CASES = {
    "scoped_vmem": (Chip.V5E, lambda: copy_kernel(1 << 17, 1 << 15)),
    "scoped_vmem_limit": (Chip.V6E, lambda: copy_kernel(1 << 17, 1 << 15, limit=32 * MIB)),
    "capacity_v4": (Chip.V4, lambda: copy_kernel(1 << 17, 1 << 14)),
    "capacity_v5p": (Chip.V5P, lambda: copy_kernel(1 << 17, 1 << 15, 48 * MIB, limit=64 * MIB)),
    "one_buffer": (Chip.V5E, lambda: copy_kernel(64, 32, scratch_bytes=256 * MIB)),
    "misaligned": (Chip.V5E, lambda: copy_kernel(100, 12)),
    "half_tiles": (Chip.V6E, lambda: copy_kernel(128, 8, dtype="int8")),
    "bf16_matmul_v2": (Chip.V2, bf16_matmul),
    "shape_cast": (Chip.V5E, shape_cast),
    "no_lowering": (Chip.V5E, no_lowering),
    "hbm": (Chip.V5E, too_much_hbm),
}


def refusal(chip, function, shapes):
    import jax
    from jax.sharding import SingleDeviceSharding

    from autotune.compiling.child.chips import compile_only_device
    from autotune.compiling.child.devices import abstract_mesh

    device = compile_only_device(chip)
    sharding = SingleDeviceSharding(device)
    specs = [jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sharding) for s in shapes]
    try:
        with abstract_mesh(device):
            jax.jit(function).trace(*specs).lower().compile()
    except Exception as error:
        message = str(error).replace(str(HERE), "tests/recorded")[:MOST_CHARACTERS]
        return {"type": type(error).__name__, "message": message}
    return None


def main():
    with tempfile.TemporaryDirectory() as dump:
        os.environ.update(libtpu.child_environment(Path(dump), os.environ))
        import jax

        folder = HERE / "messages"
        folder.mkdir(exist_ok=True)
        for name, (chip, make) in CASES.items():
            found = refusal(chip, *make())
            print(jax.__version__, name, "compiles" if found is None else found["message"][:150])
            if found is not None:
                data = {"jax": jax.__version__, "chip": chip.value, "case": name, **found}
                text = json.dumps(data, indent=1, ensure_ascii=False)
                (folder / f"{jax.__version__}-{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
