"""A published config as somebody takes it along."""

import json
from dataclasses import asdict
from shlex import quote

from autotune.domain.codec import to_data
from autotune.domain.record import Record

Taken = tuple[tuple[str, str], ...]
"""What for, and the text."""


def taken(record: Record, call: str) -> Taken:
    """``call``: the address that answers with it, without a query of its own."""
    key, config = record.key, record.config
    fields = {name: value for name, value in asdict(config).items() if value}
    python = f"autotune.Config({', '.join(f'{name}={value!r}' for name, value in fields.items())})"
    sizes = "".join(
        f", {name}={size!r}" for name, size in (*key.problem.dims, *key.problem.options)
    )
    tuned = f"TUNED.config(TUNED.problem(dtype={key.problem.dtype!r}{sizes}))"
    return (
        ("Python", python),
        ("JSON", json.dumps(to_data(config))),
        ("curl", f"curl {quote(call)}"),
        ("Tuned", tuned),
    )
