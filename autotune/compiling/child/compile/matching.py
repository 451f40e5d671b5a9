"""Which compiled Pallas call is which ``pallas_call`` of the function."""

import re
from collections.abc import Sequence

from autotune.compiling.child.compile.hlo import KernelCall
from autotune.compiling.child.trace.pallas_call import Call

_OTHER = re.compile(r"[^A-Za-z0-9_.-]")  # XLA writes them as underscores


def match(calls: Sequence[Call], compiled: Sequence[KernelCall]) -> list[KernelCall | None]:
    """For each call of the function the compiled one: of its shapes and, where several have those,
    of its name; those that are alike in both go in their order. None for one that XLA has dropped,
    or merged with another that does the same to the same operands."""
    left = list(compiled)
    matched: list[KernelCall | None] = []
    for call in calls:
        alike = [
            candidate
            for candidate in left
            if (list(candidate.operands), list(candidate.results)) == call.shapes()
        ]
        named = [
            candidate
            for candidate in alike
            if candidate.name.startswith(_OTHER.sub("_", call.name))
        ]
        chosen = next(iter(named or alike), None)
        if chosen is not None:
            left.remove(chosen)
        matched.append(chosen)
    return matched
