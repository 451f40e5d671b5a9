"""Rules as a Python module without dependencies: what is served, and the arithmetic as it is."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from math import isfinite
from typing import Any

from autotune.answering import rules
from autotune.domain.errors import InvalidInputError
from autotune.domain.key import identity_of
from autotune.domain.record import Record
from autotune.domain.rule import ShapeRule

_CONFIG = '''

def config(which: int = 0, /, **dims: int) -> dict[str, Any] | None:
    """The axes, the order and semantics of the grid, and the VMEM limit (None: the compiler's own)
    for a problem with these dimensions, by one of RULES: only all of them together were shown to be
    legal and within VMEM. None: outside of what was seen, or nothing can be shown."""
    found = _CHOOSERS[which].choose({name: index(size) for name, size in dims.items()})
    if found is None:
        return None
    sizes, compiled = found
    own = compiled.config
    return {
        "axes": {**dict(own.axes), **sizes},
        "grid_order": own.grid_order,
        "dimension_semantics": own.dimension_semantics,
        "vmem_limit_bytes": own.vmem_limit_bytes,
    }
'''


def rule_source(records: Sequence[Record], in_words: Callable[[ShapeRule], str]) -> str:
    """Of records that carry rules, of each dtype and set of options the newest; ``config`` is what
    to call. ``in_words``: what a rule is worth. Raises ``InvalidInputError`` where they are of
    several kernels or chips."""
    newest = {_group(r): r for r in sorted(records, key=_made_at)}
    for name, option, own in (
        ("kernels", "kernel", {r.key.kernel for r in newest.values()}),
        ("chips", "chip", {r.key.chip.value for r in newest.values()}),
    ):
        if len(own) > 1:
            raise InvalidInputError(
                f"there are rules for several {name}: choose one of {', '.join(sorted(own))} "
                f"with --{option}"
            )
    for record in newest.values():
        if not rules.is_small(record.rule):
            raise InvalidInputError(f"the rule for {record.key} is too large to be asked")
    _, _, code = inspect.getsource(rules).split('"""', 2)
    tables = "".join(
        f"{_evidence(number, record, in_words)}    {_literal(record.rule, 1)},\n"
        for number, record in enumerate(newest.values())
    )
    code = code.replace("from typing", "from types import SimpleNamespace\nfrom typing", 1)
    code = code.replace("from operator import or_", "from operator import index, or_", 1)
    head = (
        '"""Block sizes by rules that pallas-autotune has made; RULES has what is known of each."""'
    )
    choosers = "_CHOOSERS = [Chooser(rule) for rule in RULES]\n"
    return f"{head}\n{code}{_CONFIG}\n\nRULES = [\n{tables}]\n{choosers}"


def _group(record: Record) -> tuple[Any, ...]:
    """Of whatever toolchain and source."""
    own = identity_of(record.key)
    return own.kernel, own.chip, own.dtype, own.options


def _made_at(record: Record) -> datetime:
    assert record.rule is not None
    return record.rule.made_at


def _evidence(number: int, record: Record, in_words: Callable[[ShapeRule], str]) -> str:
    """Comments: names and values of options come from others, and must not end one."""
    key, rule = record.key, record.rule
    assert rule is not None
    most = dict(rule.most)
    ranges = ", ".join(f"{name} {least} to {most[name]}" for name, least in rule.least)
    options = "".join(f", {name}={value}" for name, value in key.problem.options)
    lines = [
        f"{number}: {key.kernel}[{key.fingerprint}], {key.problem.dtype}{options}, {key.chip},",
        f"{key.toolchain}; {ranges}.",
        f"Made {rule.made_at:%Y-%m-%d} {in_words(rule)}.",
    ]
    return "".join(f"    # {ascii(line)[1:-1]}\n" for line in lines)


def _literal(value: Any, depth: int = 0) -> str:
    """A dataclass as a namespace: its values have the same names."""
    if is_dataclass(value):
        pad = "    " * (depth + 1)
        own = "".join(
            f"{pad}{field.name}={_literal(getattr(value, field.name), depth + 1)},\n"
            for field in fields(value)
            if not isinstance(getattr(value, field.name), datetime)
        )
        return f"SimpleNamespace(\n{own}{'    ' * depth})"
    if isinstance(value, tuple) and value and is_dataclass(value[0]):
        pad = "    " * (depth + 1)
        own = "".join(f"{pad}{_literal(one, depth + 1)},\n" for one in value)
        return f"(\n{own}{'    ' * depth})"
    if isinstance(value, float) and not isfinite(value):
        return f'float("{value}")'
    return ascii(value)
