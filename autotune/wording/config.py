"""A config in parts, as tables, figures and stored refusals show them."""

from collections.abc import Iterable, Sequence

from autotune.domain.config import AxisValue, Config
from autotune.wording.units import mebibytes

GRID_ORDER, SEMANTICS, VMEM_LIMIT = "grid order", "semantics", "VMEM limit"


def parts_of(config: Config) -> dict[str, AxisValue]:
    """Its axes, and what every Pallas kernel has, by the names under which people see them."""
    parts: dict[str, AxisValue] = dict(config.axes)
    if config.grid_order:
        parts[GRID_ORDER] = order_text(config.grid_order)
    if config.dimension_semantics:
        parts[SEMANTICS] = semantics_text(config.dimension_semantics)
    parts[VMEM_LIMIT] = limit_text(config.vmem_limit_bytes)
    return parts


def spelled_parts(config: Config) -> dict[str, AxisValue]:
    """The same without abbreviations, where there is room."""
    parts = parts_of(config)
    if config.dimension_semantics:
        parts[SEMANTICS] = ", ".join(config.dimension_semantics)
    if config.vmem_limit_bytes is None:
        parts[VMEM_LIMIT] = "the compiler's own"
    return parts


def order_text(order: Sequence[str]) -> str:
    """From the outermost axis to the innermost."""
    return ">".join(order)


def semantics_text(semantics: Sequence[str]) -> str:
    """A letter for each grid axis."""
    return "".join(kind[:1].upper() for kind in semantics)


def limit_text(limit_bytes: int | None) -> str:
    """*own* is the compiler's own."""
    return "own" if limit_bytes is None else mebibytes(limit_bytes)


def limit_sizes(configs: Iterable[Config]) -> dict[str, int]:
    """The VMEM limits of these by their texts, to put the texts in order; the compiler's own is the
    smallest."""
    limits = {config.vmem_limit_bytes for config in configs}
    return {limit_text(limit): limit or 0 for limit in limits}
