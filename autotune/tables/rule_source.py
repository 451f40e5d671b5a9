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
    choice = _CHOOSERS[which].choose({name: index(size) for name, size in dims.items()})
    if choice is None:
        return None
    sizes, compiled = choice
    safe = compiled.config
    return {
        "axes": {**dict(safe.axes), **sizes},
        "grid_order": safe.grid_order,
        "dimension_semantics": safe.dimension_semantics,
        "vmem_limit_bytes": safe.vmem_limit_bytes,
    }
'''


def rule_source(records: Sequence[Record], in_words: Callable[[ShapeRule], str]) -> str:
    """The text of a module with the rules of these records: of each dtype and set of options the
    newest rule, whatever its toolchain and source. Callers of the module call its ``config``.
    ``in_words`` makes the sentence that says what a rule is worth. Raises ``InvalidInputError``
    where the records are of several kernels or chips, or where a rule is too large to be asked."""
    newest = {_group(r): r for r in sorted(records, key=_made_at)}
    for option, names in (
        ("kernel", {r.key.kernel for r in newest.values()}),
        ("chip", {r.key.chip.value for r in newest.values()}),
    ):
        if len(names) > 1:
            raise InvalidInputError(
                f"there are rules for several {option}s: choose one of {', '.join(sorted(names))} "
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
    identity = identity_of(record.key)
    return identity.kernel, identity.chip, identity.dtype, identity.options


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
        values = {field.name: getattr(value, field.name) for field in fields(value)}
        literals = [
            f"{name}={_literal(part, depth + 1)}"
            for name, part in values.items()
            if not isinstance(part, datetime)
        ]
        return f"SimpleNamespace({_indented(literals, depth)})"
    if isinstance(value, tuple) and value and is_dataclass(value[0]):
        return f"({_indented([_literal(part, depth + 1) for part in value], depth)})"
    if isinstance(value, float) and not isfinite(value):
        return f'float("{value}")'
    return ascii(value)


def _indented(parts: Sequence[str], depth: int) -> str:
    """Each part on a line of its own."""
    lines = "".join(f"{'    ' * (depth + 1)}{part},\n" for part in parts)
    return f"\n{lines}{'    ' * depth}"
