"""Which blocks a grid writes and reads: each block of an output once, and all that the default
reads of an input. Decided on a trace alone."""

from autotune.domain import outcome as outcomes
from autotune.domain.trace import Operand, Trace


def bad_output_visits(
    trace: Trace,
) -> outcomes.RevisitedOutput | outcomes.UnwrittenOutput | outcomes.UnsafeAlias | None:
    """Why an output would be wrong in this grid order whatever the semantics, or None. What nobody
    reads cannot be wrong; what begins as the same block of an input goes on when it comes again."""
    for call in trace.calls:
        begun = {out: call.operands[given].is_pipelined for given, out in call.aliases}
        for place, op in enumerate(call.operands):
            if not is_read(op) or not op.is_pipelined:
                continue
            if op.fetches != op.blocks and not begun.get(place):
                return outcomes.RevisitedOutput(
                    operand=op.name, visits=op.fetches, blocks=op.blocks
                )
            if op.blocks < op.blocks_total and place not in begun:
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
