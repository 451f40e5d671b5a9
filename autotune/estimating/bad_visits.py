"""Which blocks a grid writes and reads: each block of an output once, and all that the default
reads of an input. Decided on a trace alone."""

from autotune.domain import outcome as outcomes
from autotune.domain.trace import Operand, Trace


def bad_output_visits(
    trace: Trace,
) -> outcomes.RevisitedOutput | outcomes.UnwrittenOutput | outcomes.UnsafeAlias | None:
    """Why an output would be wrong in this grid order whatever the semantics, or None. What nobody
    reads cannot be wrong."""
    for call in trace.calls:
        aliased = [call.operands[out] for _, out in call.aliases]
        for op in (op for op in call.operands if is_read(op) and op.is_pipelined):
            if op.fetches != op.blocks:
                return outcomes.RevisitedOutput(
                    operand=op.name, visits=op.fetches, blocks=op.blocks
                )
            if op.blocks < op.blocks_total and all(op is not other for other in aliased):
                total = op.blocks_total
                return outcomes.UnwrittenOutput(
                    operand=op.name, blocks=op.blocks, blocks_total=total
                )
        if not call.alias_safe:
            return outcomes.UnsafeAlias()
    return None


def unread_input(trace: Trace, default: Trace | None) -> outcomes.UnreadInput | None:
    """The first input of which less is read than the default reads, which reads it whole; None
    where the calls differ, or nothing is known of the default.

    An array that XLA makes may be padded for any config, and the default's last block be padding:
    of such a one at least such a block must be missing.
    """
    if default is None or len(trace.calls) != len(default.calls):
        return None
    for call, other in zip(trace.calls, default.calls, strict=True):
        if len(call.operands) == len(other.operands):
            for op, whole in zip(call.operands, other.operands, strict=True):
                if unread := _unread_input(op, whole):
                    return unread
    return None


def _unread_input(op: Operand, default: Operand) -> outcomes.UnreadInput | None:
    if op.is_output or not op.is_pipelined or op.shape != default.shape:
        return None
    for place, (read, whole) in enumerate(zip(op.reached, default.reached, strict=True)):
        least = 1 if op.at_boundary else default.block[place]
        if read is not None and whole == op.shape[place] and whole - read >= least:
            return outcomes.UnreadInput(operand=op.name, dimension=place, read=read, whole=whole)
    return None


def is_read(op: Operand) -> bool:
    """An output that somebody reads."""
    return op.is_output and not op.is_unread
