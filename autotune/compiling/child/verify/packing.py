"""``pltpu.pack_elementwise`` and ``unpack_elementwise`` on a CPU, for which JAX (0.12 at least) has
no rule: vLLM's causal convolution unpacks bfloat16 so."""

from functools import cache
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
