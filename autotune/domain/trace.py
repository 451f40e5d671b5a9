"""A traced ``pallas_call`` as plain data: everything that rules, memory and traffic need."""

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from autotune.domain.codec import OmitDefault


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One blocked input or output. Shapes in elements; squeezed block dimensions are 1.

    ``varies`` tells for each grid axis whether the block index changes along it, ``exclusive``
    whether no block is visited at two different positions of that axis. ``fetches`` counts the
    changes of block over the whole grid (a block that stays is not transferred again), ``blocks``
    the different blocks visited, ``blocks_total`` those that cover the array.
    ``hbm_bytes`` is what all fetches move, ragged edges clipped.
    ``buffers`` is what the kernel asks for, 0 where it leaves that to the compiler.
    ``at_boundary``: the array is an argument or a result of the whole function as it is; any other
    one XLA computes, and may keep where it likes.
    ``exact``: the visits are known; where not, a new block at every step is counted.
    ``is_unread``: an output that nothing uses after the call. One whose block never changes is
    scratch memory by another name.
    ``reached``: how many elements of each dimension the grid gets to, where its block index is a
    grid index as it is; None for any other dimension: blocks may be left out of it on purpose.
    """

    name: str
    is_output: bool
    shape: tuple[int, ...]
    block: tuple[int, ...]
    dtype: str
    space: str  # default, vmem, smem, any, hbm, semaphore
    varies: tuple[bool, ...]
    exclusive: tuple[bool, ...]
    fetches: int
    blocks: int
    blocks_total: int
    hbm_bytes: int
    buffers: int = 0
    at_boundary: bool = False
    is_unread: bool = False
    exact: OmitDefault[bool] = True
    reached: OmitDefault[tuple[int | None, ...]] = ()

    @property
    def is_pipelined(self) -> bool:
        """Moved block by block between HBM and VMEM by the Pallas pipeline."""
        return self.space in ("default", "vmem")

    @property
    def buffer_count(self) -> int:
        """Of a pipelined one: what the kernel asks for, else two where the block changes over the
        grid and one where it stays (seen from jax 0.9 on)."""
        return self.buffers or (2 if self.fetches > 1 else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """Scratch memory, an unread output that stays in VMEM among it (``space`` is "output": its
    bytes are the operand's). ``carried`` when a grid step reads what an earlier step wrote.

    ``reset_axes``: the contents are written afresh whenever all these grid axes are at 0; None
    when a carried scratch has no such reset that could be recognised.
    """

    shape: tuple[int, ...]
    dtype: str
    space: str
    carried: bool
    reset_axes: tuple[int, ...] | None = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One ``pallas_call`` for one problem, config and grid order.

    ``aliases`` are (operand index of an input, operand index of an output); operands are inputs
    then outputs; the ``scalar_operands``, grid bounds and scalar prefetch, which come before them,
    are apart.
    ``mxu_flops`` counts the multiply-adds of matrix products as two and ``vector_ops`` the
    elements of all other arithmetic, both over the whole grid and weighted by how often each
    conditional region runs; ``least_mxu_flops`` is what runs of ``mxu_dtype`` for certain.
    A function may make several calls: ``more`` are those after the first. ``name``: of the kernel;
    ``runs``: how often the function makes this call, None where that depends on data.
    ``dimension_semantics`` are those of all grid axes; ``added_axes`` are those that ``vmap`` has
    put before the kernel's own, which are parallel always: a config has nothing for them.
    """

    grid: tuple[int, ...]
    operands: tuple[Operand, ...]
    scratch: tuple[Scratch, ...]
    scalar_operands: int
    scalar_prefetch_bytes: int
    aliases: tuple[tuple[int, int], ...]
    alias_safe: bool
    dimension_semantics: tuple[str, ...]
    vmem_limit_bytes: int | None
    mxu_flops: int
    mxu_dtype: str | None
    vector_ops: int
    io_bytes: int
    """Bytes of all arguments and results once: the least that can cross HBM."""
    kept_bytes: int = 0
    """The largest wide matrix product that the body needs again after reducing it, bytes."""
    notes: tuple[str, ...] = ()
    name: OmitDefault[str] = ""
    runs: OmitDefault[int | None] = 1
    more: OmitDefault[tuple["Trace", ...]] = ()
    added_axes: OmitDefault[tuple[int, ...]] = ()
    least_mxu_flops: OmitDefault[int] = 0

    @property
    def calls(self) -> tuple["Trace", ...]:
        """This call and those after it."""
        return (self, *self.more)

    @property
    def own_axes(self) -> tuple[int, ...]:
        """The grid axes that the kernel was written for."""
        return tuple(axis for axis in range(len(self.grid)) if axis not in self.added_axes)

    @property
    def own_semantics(self) -> tuple[str, ...]:
        """What a config says of them; all there is where the kernel says too much or too little."""
        if len(self.dimension_semantics) != len(self.grid):
            return self.dimension_semantics
        return tuple(self.dimension_semantics[axis] for axis in self.own_axes)

    def with_semantics(self, kinds: tuple[str, ...]) -> "Trace":
        """The same with the semantics that a config gives to the own axes of every call."""
        each = dict(zip(self.own_axes, kinds, strict=False))
        semantics = tuple(each.get(axis, "parallel") for axis in range(len(self.grid)))
        more = tuple(call.with_semantics(kinds) for call in self.more)
        return replace(self, dimension_semantics=semantics if kinds else (), more=more)

    def with_each(self, **changes: Any) -> "Trace":
        more = tuple(replace(call, **changes) for call in self.more)
        return replace(self, **changes, more=more)

    @property
    def steps(self) -> int:
        return prod(self.grid)

    @property
    def hbm_bytes(self) -> int:
        """All that the pipeline moves between HBM and VMEM, bytes."""
        return sum(op.hbm_bytes for op in self.operands) + self.scalar_prefetch_bytes
