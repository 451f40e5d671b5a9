"""The families of ``samples.py``: each returns a function and its arguments as (shape, dtype).

Arguments of a builder are the shape, the blocks, a dtype and an option of the sweep. Those of the
catalogue come from there; the others are as plain as a ``pallas_call`` can be.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from autotune.declaring.kernel import Kernel
from autotune.domain.problem import Problem, make_config
from autotune_kernels import flash_attention as flash_module
from autotune_kernels import matmul as matmul_module

Built = tuple[Callable[..., Any], list[Any]]
Shape = tuple[int, ...]


def matmul(shape: Shape, blocks: Shape, dtype: str, option: str) -> Built:
    """[m, k] @ [k, n] with blocks m, k, n, the rows and columns parallel."""
    dims = dict(zip(("m", "k", "n"), shape, strict=True))
    options = {"transpose_rhs": option == "transpose_rhs", "activation": "none"}
    if option == "gelu":
        options["activation"] = "gelu"
    axes = dict(zip(("block_m", "block_k", "block_n"), blocks, strict=True))
    semantics = ("parallel", "parallel", "arbitrary")
    return _catalogue(matmul_module.KERNEL, dims, dtype, options, axes, ("m", "n", "k"), semantics)


def flash(shape: Shape, blocks: Shape, dtype: str, option: str) -> Built:
    """Attention of [batch, heads, length, head_dim], as many keys as queries."""
    batch, heads, length, head_dim = shape
    dims = {
        "batch": batch,
        "q_heads": heads,
        "kv_heads": heads,
        "q_len": length,
        "kv_len": length,
        "head_dim": head_dim,
    }
    axes = dict(zip(("block_q", "block_kv"), blocks, strict=True))
    semantics = ("parallel", "parallel", "parallel", "arbitrary")
    options = {"causal": option == "causal"}
    order = ("batch", "head", "q", "kv")
    return _catalogue(flash_module.KERNEL, dims, dtype, options, axes, order, semantics)


def _catalogue(
    kernel: Kernel,
    dims: dict[str, int],
    dtype: str,
    options: dict[str, Any],
    axes: dict[str, int],
    order: Sequence[str],
    semantics: Sequence[str],
) -> Built:
    problem = Problem(dims=tuple(dims.items()), dtype=dtype, options=tuple(options.items()))
    config = make_config(axes, grid_order=tuple(order), dimension_semantics=tuple(semantics))
    arrays = [(array.shape, array.dtype) for array in kernel.inputs(problem)]
    return kernel.build(problem, config), arrays


def jax_flash(shape: Shape, blocks: Shape, dtype: str, _: str) -> Built:
    """The forward flash attention that JAX ships, with blocks q, kv."""
    from jax.experimental.pallas.ops.tpu import flash_attention as shipped

    q, kv = blocks
    sizes = shipped.BlockSizes(block_q=q, block_k_major=kv, block_k=kv, block_b=1)

    def attention(q: Any, k: Any, v: Any) -> Any:
        return shipped.flash_attention(q, k, v, block_sizes=sizes)

    return attention, [(shape, dtype)] * 3


def batched(shape: Shape, blocks: Shape, dtype: str, _: str) -> Built:
    """[b, m, k] @ [b, k, n], one batch a step, accumulated in the output block."""
    batch, m, k, n = shape
    block_m, block_k, block_n = blocks

    def body(x: Any, y: Any, out: Any) -> None:
        @pl.when(pl.program_id(3) == 0)  # type: ignore[untyped-decorator]
        def _() -> None:
            out[...] = jnp.zeros_like(out)

        out[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

    call = pl.pallas_call(
        body,
        grid=(batch, m // block_m, n // block_n, k // block_k),
        in_specs=[
            pl.BlockSpec((None, block_m, block_k), lambda b, i, _, s: (b, i, s)),
            pl.BlockSpec((None, block_k, block_n), lambda b, _, j, s: (b, s, j)),
        ],
        out_specs=pl.BlockSpec((None, block_m, block_n), lambda b, i, j, _: (b, i, j)),
        out_shape=jax.ShapeDtypeStruct((batch, m, n), jnp.float32),
    )
    return call, [((batch, m, k), dtype), ((batch, k, n), dtype)]


def _rows(function: Callable[[Any], Any]) -> Callable[..., Built]:
    """A family that turns whole rows, so many at a time."""

    def make(shape: Shape, blocks: Shape, dtype: str, _: str) -> Built:
        return _tiles(function, shape, (blocks[0], shape[1]), dtype, 1)

    return make


def _tiles(
    function: Callable[..., Any], shape: Shape, block: Shape, dtype: str, count: int
) -> Built:
    """``count`` arrays in, one out, tile by tile; computed in float32."""

    def body(*refs: Any) -> None:
        *inputs, out = refs
        out[...] = function(*(ref[...].astype(jnp.float32) for ref in inputs)).astype(out.dtype)

    spec = pl.BlockSpec(block, lambda i, j: (i, j))
    call = pl.pallas_call(
        body,
        grid=(shape[0] // block[0], shape[1] // block[1]),
        in_specs=[spec] * count,
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct(shape, jnp.dtype(dtype)),
    )
    return call, [(shape, dtype)] * count


def add(shape: Shape, blocks: Shape, dtype: str, _: str) -> Built:
    """x + y."""
    return _tiles(lambda x, y: x + y, shape, blocks, dtype, 2)


def copy(shape: Shape, blocks: Shape, dtype: str, _: str) -> Built:
    """x."""
    return _tiles(lambda x: x, shape, blocks, dtype, 1)


def exponential(shape: Shape, blocks: Shape, dtype: str, option: str) -> Built:
    """exp(x), or three of them in a row."""
    return _tiles(_repeated(jnp.exp, option), shape, blocks, dtype, 1)


def reduce(shape: Shape, blocks: Shape, dtype: str, option: str) -> Built:
    """Rows times their sums, or three or six times in a row: with few rows six take every unit."""
    scale = _repeated(lambda x: x * jnp.sum(x, axis=1, keepdims=True), option)
    return _tiles(scale, shape, blocks, dtype, 1)


def rotate(shape: Shape, blocks: Shape, dtype: str, _: str) -> Built:
    """Lanes moved on by one."""
    return _tiles(lambda x: jnp.roll(x, 1, axis=1), shape, blocks, dtype, 1)


def _repeated(function: Callable[[Any], Any], option: str) -> Callable[[Any], Any]:
    times = {"": 1, "thrice": 3, "sixfold": 6}[option]

    def repeated(x: Any) -> Any:
        for _ in range(times):
            x = function(x)
        return x

    return repeated


def fetch(shape: Shape, blocks: Shape, dtype: str, _: str) -> Built:
    """The sum of all tiles: many reads, one write."""
    rows, width = blocks

    def body(x: Any, out: Any) -> None:
        @pl.when(pl.program_id(0) == 0)  # type: ignore[untyped-decorator]
        def _() -> None:
            out[...] = jnp.zeros_like(out)

        out[...] += x[:8, :]

    call = pl.pallas_call(
        body,
        grid=(shape[0] // rows,),
        in_specs=[pl.BlockSpec((rows, width), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((8, width), lambda _: (0, 0)),
        out_shape=jax.ShapeDtypeStruct((8, width), jnp.dtype(dtype)),
    )
    return call, [(shape, dtype)]


def dot(shape: Shape, _: Shape, dtype: str, option: str) -> Built:
    """One matrix product of whole arrays."""
    m, k, n = shape
    transposed = option == "transpose_rhs"
    contracted = (((1,), (1 if transposed else 0,)), ((), ()))
    out_dtype = jnp.int32 if dtype == "int8" else jnp.float32

    def body(x: Any, y: Any, out: Any) -> None:
        out[...] = lax.dot_general(x[...], y[...], contracted, preferred_element_type=out_dtype)

    call = pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((m, n), out_dtype))
    return call, [((m, k), dtype), ((n, k) if transposed else (k, n), dtype)]


def attend(shape: Shape, _: Shape, dtype: str, __: str) -> Built:
    """softmax(q @ k.T) @ v of whole arrays, the second product of float32: [rows, keys, width]."""
    rows, keys, width = shape
    last = (((1,), (1,)), ((), ()))

    def body(q: Any, k: Any, v: Any, out: Any) -> None:
        scores = lax.dot_general(q[...], k[...], last, preferred_element_type=jnp.float32)
        weights = jnp.exp(scores - jnp.max(scores, axis=1, keepdims=True))
        total = jnp.sum(weights, axis=1, keepdims=True)
        out[...] = (jnp.dot(weights, v[...].astype(jnp.float32)) / total).astype(out.dtype)

    call = pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((rows, width), jnp.dtype(dtype)))
    return call, [((rows, width), dtype), ((keys, width), dtype), ((keys, width), dtype)]


def gelu(shape: Shape, blocks: Shape, dtype: str, _: str) -> Built:
    """gelu(x), the tanh form."""
    return _tiles(jax.nn.gelu, shape, blocks, dtype, 1)


def _normalised(x: Any) -> Any:
    centred = x - jnp.mean(x, axis=1, keepdims=True)
    return centred * lax.rsqrt(jnp.mean(centred * centred, axis=1, keepdims=True) + 1e-6)


rmsnorm = _rows(lambda x: x * lax.rsqrt(jnp.mean(x * x, axis=1, keepdims=True) + 1e-6))
layernorm = _rows(_normalised)
softmax = _rows(lambda x: jax.nn.softmax(x, axis=1))


def transpose(shape: Shape, blocks: Shape, dtype: str, _: str) -> Built:
    """x.T, tile by tile."""
    rows, columns = blocks

    def body(x: Any, out: Any) -> None:
        out[...] = x[...].T

    call = pl.pallas_call(
        body,
        grid=(shape[0] // rows, shape[1] // columns),
        in_specs=[pl.BlockSpec((rows, columns), lambda i, j: (i, j))],
        out_specs=pl.BlockSpec((columns, rows), lambda i, j: (j, i)),
        out_shape=jax.ShapeDtypeStruct(shape[::-1], jnp.dtype(dtype)),
    )
    return call, [(shape, dtype)]


def emitted(shape: Shape, blocks: Shape, dtype: str, _: str) -> Built:
    """exp(x) by ``emit_pipeline`` inside one step."""
    spec = pl.BlockSpec(blocks, lambda i, j: (i, j))

    def inner(x: Any, out: Any) -> None:
        out[...] = jnp.exp(x[...])

    def body(x: Any, out: Any) -> None:
        grid = (shape[0] // blocks[0], shape[1] // blocks[1])
        pltpu.emit_pipeline(inner, grid=grid, in_specs=[spec], out_specs=[spec])(x, out)

    call = pl.pallas_call(
        body,
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        out_shape=jax.ShapeDtypeStruct(shape, jnp.dtype(dtype)),
    )
    return call, [(shape, dtype)]


def loop(shape: Shape, blocks: Shape, dtype: str, _: str) -> Built:
    """Rows summed eight at a time by a ``fori_loop`` that stays a loop in the listing."""
    rows, width = blocks[0], shape[1]

    def body(x: Any, out: Any) -> None:
        def more(i: Any, total: Any) -> Any:
            return total + jnp.exp(x[pl.ds(pl.multiple_of(i * 8, 8), 8), :])

        out[...] = lax.fori_loop(0, rows // 8, more, jnp.zeros((8, width), jnp.float32))

    call = pl.pallas_call(
        body,
        grid=(shape[0] // rows,),
        in_specs=[pl.BlockSpec((rows, width), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((8, width), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((shape[0] // rows * 8, width), jnp.dtype(dtype)),
    )
    return call, [(shape, dtype)]
