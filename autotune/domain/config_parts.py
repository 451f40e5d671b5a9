"""A config in parts, by the names and values that tables and plots have."""

from collections.abc import Iterable, Sequence

from autotune.domain.config import AxisValue, Config

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


def order_text(order: Sequence[str]) -> str:
    """From the outermost axis to the innermost."""
    return ">".join(order)


def semantics_text(semantics: Sequence[str]) -> str:
    """A letter for each grid axis."""
    return "".join(kind[:1].upper() for kind in semantics)


def limit_text(limit_bytes: int | None) -> str:
    """*own* is the compiler's own."""
    if limit_bytes is None:
        return "own"
    is_small = limit_bytes < 2**30
    return f"{limit_bytes / 2**20:.2f} MiB" if is_small else f"{limit_bytes / 2**30:.2f} GiB"


def limit_sizes(configs: Iterable[Config]) -> dict[str, int]:
    """The VMEM limits of these by their texts, to put the texts in order; the compiler's own is the
    smallest."""
    limits = {config.vmem_limit_bytes for config in configs}
    return {limit_text(limit): limit or 0 for limit in limits}
