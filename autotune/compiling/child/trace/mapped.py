"""Kernels for a mesh of TensorCores (``pl.kernel``) as the ``pallas_call`` that they come to: one
step, every operand in HBM, copied by the kernel itself."""

from types import SimpleNamespace
from typing import Any

from autotune.compiling.child.trace.scalars import open_jaxpr


def as_pallas_call(eqn: Any) -> Any | None:
    """What ``Call`` reads of a ``pallas_call``; None for any other equation, and for kernels of
    several meshes or of SparseCores."""
    if eqn.primitive.name == "pallas_call":
        return eqn
    if eqn.primitive.name != "mpmd_map":
        return None
    meshes = eqn.params["meshes"]
    if len(meshes) != 1 or "TensorCore" not in type(meshes[0]).__name__:
        return None
    (jaxpr,) = eqn.params["jaxprs"]
    refs = open_jaxpr(jaxpr).invars
    arrays = [var.aval for var in (*eqn.invars, *eqn.outvars)]
    mapping = SimpleNamespace(
        grid=(),
        num_dynamic_grid_bounds=0,
        num_index_operands=0,
        num_inputs=len(eqn.invars),
        num_scratch_operands=len(refs) - len(arrays),
        block_mappings=[_whole(n, *pair) for n, pair in enumerate(zip(arrays, refs, strict=False))],
    )
    params = {**eqn.params, "jaxpr": jaxpr, "grid_mapping": mapping}
    return SimpleNamespace(
        primitive=eqn.primitive, invars=eqn.invars, outvars=eqn.outvars, params=params
    )


def _whole(number: int, array: Any, ref: Any) -> Any:
    """A block mapping of an operand that is one block."""
    import jax

    starts = jax.make_jaxpr(lambda: (0,) * len(array.shape))()
    return SimpleNamespace(
        array_aval=array,
        block_aval=ref.aval,
        block_shape=tuple(array.shape),
        index_map_jaxpr=starts,
        origin=f"operand {number}",
        pipeline_mode=None,
    )
