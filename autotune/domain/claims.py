"""What a config that others send must be, by the description of its kernel."""

import re
from collections.abc import Mapping

from autotune.domain.key import Chip, KernelSpec, Key
from autotune.domain.problem import ARBITRARY, PARALLEL, AxisValue, Config
from autotune.domain.record import Record

MOST_VMEM_BYTES: Mapping[Chip, int] = {
    Chip.V2: 16 << 20,
    Chip.V3: 16 << 20,
    Chip.V4: 16 << 20,
    Chip.V5E: 128 << 20,
    Chip.V5P: 64 << 20,
    Chip.V6E: 128 << 20,
    Chip.V7X: 64 << 20,
}
"""Of a TensorCore, as ``get_tpu_info_for_chip`` of jax 0.10 to 0.12 has it: services have no JAX
that they could ask."""

_MOST = 2**31 - 1  # of a number that is no block size: what an index on a TPU holds
_LANES = 128  # a block of whole tiles may be larger than a short dimension: the rest is padding
_WORD = re.compile(r"[A-Za-z0-9_.+:/-]{0,100}")


def has_possible_config(record: Record, spec: KernelSpec | None) -> bool:
    """Whether its config may be handed on, as far as a description of its kernel says so."""
    return (
        spec is None or impossible(record.config, record.default.config, spec, record.key) is None
    )


def impossible(config: Config, like: Config | None, spec: KernelSpec, key: Key) -> str | None:
    """Why no space of this key has this config, in a sentence; None: it may have.

    ``like``: the default config, whose axes have values of the same types.
    """
    given = dict(config.axes)
    if set(given) != set(spec.axes) or len(config.axes) != len(spec.axes):
        return f"its configs must have the axes {', '.join(spec.axes)}"
    types = {name: type(value) for name, value in like.axes} if like else {}
    dims, cuts = dict(key.problem.dims), dict(spec.cuts)
    for name, value in given.items():
        if name in cuts and cuts[name] in dims:
            why = _of_block(value, dims[cuts[name]])
        else:
            why = _of_value(value, types.get(name))
        if why is not None:
            return f"axis {name} {why}"
    return _of_grid(config, spec) or _of_limit(config.vmem_limit_bytes, key.chip)


def _of_block(value: AxisValue, size: int) -> str | None:
    most = max(size, _LANES)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        return f"is a block size: it must be a whole number from 1 to {most}"
    return None


def _of_value(value: AxisValue, kind: type[AxisValue] | None) -> str | None:
    if kind is not None and type(value) is not kind:
        return f"must be of the type {kind.__name__}, as it is in the default config"
    if isinstance(value, str) and not _WORD.fullmatch(value):
        return "must be a word of letters, digits and _.+:/-"
    if not isinstance(value, str) and not 0 <= value <= _MOST:
        return f"must be from 0 to {_MOST}"
    return None


def _of_grid(config: Config, spec: KernelSpec) -> str | None:
    order, semantics = config.grid_order, config.dimension_semantics
    if order and sorted(order) != sorted(spec.grid):
        return f"its grid order must name each of {', '.join(spec.grid) or 'no axis'} once"
    if order and semantics and len(order) != len(semantics):
        return "it must have as many dimension semantics as grid axes"
    if not set(semantics) <= {PARALLEL, ARBITRARY}:
        return f"its dimension semantics must be {PARALLEL} or {ARBITRARY}"
    return None


def _of_limit(limit_bytes: int | None, chip: Chip) -> str | None:
    most = MOST_VMEM_BYTES[chip]
    if limit_bytes is not None and not 0 < limit_bytes <= most:
        return f"its VMEM limit must be from 1 to {most} bytes, which is what a {chip} has"
    return None
