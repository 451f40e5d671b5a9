"""Rules as a Python module without dependencies: what is served, and the arithmetic as it is."""

import inspect
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

from autotune.domain.record import Record
from autotune.lookups import rules
from autotune.wording.match import by_rule

_BLOCKS = '''

def blocks(which: int = 0, /, **dims: int) -> dict[str, Any] | None:
    """The values of all axes for a problem with these dimensions, by one of RULES; None: outside of
    what was seen, or nothing can be shown to be legal and within VMEM."""
    found = chosen(RULES[which], dims)
    return None if found is None else {**dict(found[1].config.axes), **found[0]}
'''


def rule_source(records: Sequence[Record]) -> str:
    """Of records that carry rules; ``blocks`` is what to call."""
    told = [
        line.encode("unicode_escape").decode().replace('"', '\\"')  # names are anybody's
        for number, record in enumerate(records)
        for line in _evidence(number, record)
    ]
    _, _, code = inspect.getsource(rules).split('"""', 2)
    tables = "".join(f"    {_literal(record.rule, 1)},\n" for record in records)
    code = code.replace("from typing", "from types import SimpleNamespace\nfrom typing", 1)
    head = '"""Block sizes by rules that pallas-autotune has made.\n\n' + "\n".join(told)
    return f'{head}\n"""\n{code}{_BLOCKS}\n\nRULES = [\n{tables}]\n'


def _evidence(number: int, record: Record) -> list[str]:
    key, rule = record.key, record.rule
    assert rule is not None
    most = dict(rule.most)
    ranges = ", ".join(f"{name} {least} to {most[name]}" for name, least in rule.least)
    options = "".join(f", {name}={value}" for name, value in key.problem.options)
    return [
        f"RULES[{number}]: {key.kernel}[{key.fingerprint}], {key.problem.dtype}{options}, "
        f"{key.chip},",
        f"{key.toolchain}; {ranges}.",
        f"Made {rule.made_at:%Y-%m-%d} {by_rule(rule)}.",
        "",
    ]


def _literal(value: Any, depth: int = 0) -> str:
    """A dataclass as a namespace: its values have the same names."""
    if is_dataclass(value):
        pad = "    " * (depth + 1)
        own = "".join(
            f"{pad}{one.name}={_literal(getattr(value, one.name), depth + 1)},\n"
            for one in fields(value)
            if not isinstance(getattr(value, one.name), datetime)
        )
        return f"SimpleNamespace(\n{own}{'    ' * depth})"
    if isinstance(value, tuple) and value and is_dataclass(value[0]):
        pad = "    " * (depth + 1)
        own = "".join(f"{pad}{_literal(one, depth + 1)},\n" for one in value)
        return f"(\n{own}{'    ' * depth})"
    return repr(value)
