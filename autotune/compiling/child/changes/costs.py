"""What a kernel costs, for those that do not say so: XLA counts nothing in what it cannot read."""

from collections.abc import Iterator, Sequence
from typing import Any

from autotune.compiling.child.changes.rewriting import place_of
from autotune.domain.change import ChangeKind, SourceChange


def missing_costs(calls: Sequence[Any]) -> Iterator[SourceChange]:
    """Of each call without a cost estimate whose work and traffic are known: floating-point
    operations, transcendentals, and bytes moved between HBM and VMEM, of the whole grid."""
    for call in calls:
        place = place_of(call.eqn) if hasattr(call.eqn, "source_info") else None
        if place is None or call.eqn.params.get("cost_estimate") is not None:
            continue
        (trace,) = call.traces(None)
        is_known = call.body.is_bounded and not trace.notes
        if is_known and all(op.is_pipelined and op.exact for op in trace.operands):
            special = round(call.body.transcendentals)
            figures = trace.mxu_flops + trace.vector_ops - special, special, trace.hbm_bytes
            value = ",".join(map(str, figures))
            yield SourceChange(kind=ChangeKind.COST_ESTIMATE, place=place, value=value)
