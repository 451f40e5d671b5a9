"""Operations that a CPU does not do, or not as a TPU. ``pltpu.pack_elementwise`` and
``unpack_elementwise`` have no rule in JAX (0.12 at least): vLLM's causal convolution unpacks
bfloat16 so. Of 4,096 equal bfloat16 numbers a CPU's sum is 4 % off, as it rounds after each
element (tpu-inference's attention adds its weights so).
"""

from functools import cache, partial
from typing import Any


@cache
def add_rules() -> None:
    """Nothing on a JAX that has them, or has no such primitives."""
    from jax._src.interpreters import mlir
    from jax._src.pallas.mosaic import primitives
    from jax._src.pallas.mosaic.interpret import interpret_pallas_call

    for name, rule in (("pack_elementwise_p", _pack), ("unpack_elementwise_p", _unpack)):
        primitive = getattr(primitives, name, None)
        if primitive is not None and primitive not in mlir._lowerings:
            lowered = mlir.lower_fun(rule, multiple_results=False)
            mlir.register_lowering(primitive, lowered, platform="cpu")
    if (remove := getattr(interpret_pallas_call, "remove_memory_space_p", None)) is not None:
        remove.def_abstract_eval(_without_memory_space)


def _without_memory_space(aval: Any) -> Any:
    """An array of ``pl.kernel`` may be in SMEM (tokamax's grouped product): JAX refuses that."""
    from jax._src import core

    is_plain = isinstance(aval.memory_space, core.MemorySpace)
    return aval if is_plain else core.ShapedArray(aval.shape, aval.dtype)


def _pack(*parts: Any, packed_dtype: Any) -> Any:
    """The first part in the lowest bits; integers are cut, floats rounded."""
    import jax.numpy as jnp

    bits, unsigned = _bits(packed_dtype), f"uint{_bits(parts[0].dtype)}"
    packed = jnp.zeros(parts[0].shape, unsigned)
    for number, part in enumerate(parts):
        if jnp.issubdtype(part.dtype, jnp.floating):
            part_bits = part.astype(packed_dtype).view(f"uint{bits}").astype(unsigned)
        else:
            part_bits = part.view(unsigned) & ((1 << bits) - 1)
        packed |= part_bits << (number * bits)
    return packed


def _unpack(packed: Any, *, index: int, packed_dtype: Any, unpacked_dtype: Any) -> Any:
    """Integers keep their sign; a bfloat16 is the upper half of its float32."""
    import jax.numpy as jnp

    bits, wide = _bits(packed_dtype), _bits(unpacked_dtype)
    raised = packed.view(f"uint{wide}") << (wide - (index + 1) * bits)
    if jnp.issubdtype(unpacked_dtype, jnp.floating):
        upper = raised >> (wide - bits) << (wide - bits)
        return upper.view(unpacked_dtype)
    sign = "int" if jnp.issubdtype(packed_dtype, jnp.signedinteger) else "uint"
    return (raised.view(f"{sign}{wide}") >> (wide - bits)).view(unpacked_dtype)


def _bits(dtype: Any) -> int:
    import jax.numpy as jnp

    is_floating = jnp.issubdtype(dtype, jnp.floating)
    return int((jnp.finfo if is_floating else jnp.iinfo)(dtype).bits)


_LANES = 128  # of a register, along the last axis
_SUBLANES = 16  # rows of a register of bfloat16, along any other


@cache
def add_half_sum_rule() -> None:
    """For this process, on its CPU alone: sums of bfloat16 as a TPU makes them.

    libtpu 0.0.42 to 0.0.50 adds in float32 on chips before v6e. On v6e and v7x it adds whole
    registers one after another in bfloat16, then the elements of the one that is left: across lanes
    in bfloat16 too, across sublanes in float32 (final listings of a sum over either axis). What is
    done here is the least exact of these, on any chip.
    """
    from jax import lax
    from jax._src.interpreters import mlir

    default = mlir._lowerings.get(lax.reduce_sum_p)
    if default is None:
        return
    rule = getattr(default, "rule", default)

    def lowered(context: Any, x: Any, **params: Any) -> Any:
        (given,) = context.avals_in
        if given.dtype != "bfloat16" or not given.size:
            return rule(context, x, **params)
        total = partial(_total, axes=params["axes"])
        return mlir.lower_fun(total, multiple_results=False)(context, x)

    mlir.register_lowering(lax.reduce_sum_p, lowered, platform="cpu")


def _total(x: Any, *, axes: tuple[int, ...]) -> Any:
    for axis in sorted(axes, reverse=True):
        x = _along(x, axis, _LANES if axis == x.ndim - 1 else _SUBLANES)
    return x


def _along(x: Any, axis: int, register: int) -> Any:
    import jax.numpy as jnp
    from jax import lax

    def add(total: Any, other: Any) -> Any:
        return lax.reduce_precision(total + other, exponent_bits=8, mantissa_bits=7)

    x = jnp.moveaxis(x, axis, 0).astype(jnp.float32)
    padding = [(0, -len(x) % register), *[(0, 0)] * (x.ndim - 1)]
    registers = jnp.pad(x, padding).reshape(-1, register, *x.shape[1:])
    total, _ = lax.scan(lambda total, other: (add(total, other), None), registers[0], registers[1:])
    while len(total) > 1:
        total = add(*jnp.split(total, 2))
    return total[0].astype(jnp.bfloat16)
