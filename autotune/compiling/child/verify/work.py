"""How much interpret mode has to do for a problem, by its shapes, grid and known integers: what is
proved depends on this, never on how busy the machine is."""

from collections.abc import Iterable
from math import inf, prod

from autotune.compiling.child.trace.pallas_call import Call

# What the interpreter does in the time of one access to simulated memory, which leaves JAX for
# Python (about a millisecond).
_FLOPS = 1e7
_VECTOR_OPS = 1e6


def work_of(calls: Iterable[Call]) -> float:
    """Of one run of a function, in accesses to simulated memory; without end where it makes no
    call that can be looked into. A loop of unknown length counts once."""
    return sum(map(_of_call, calls)) or inf


def is_bounded(calls: Iterable[Call]) -> bool:
    """Whether the length of every loop is known, so that it cannot be more work."""
    return all(call.runs is not None and call.body.is_bounded for call in calls)


def _of_call(call: Call) -> float:
    body, blocks = call.body, prod(call.grid) * len(call.mapping.block_mappings)
    once = blocks + body.accesses + body.mxu_flops / _FLOPS + body.vector_ops / _VECTOR_OPS
    return once if call.runs is None else call.runs * once
