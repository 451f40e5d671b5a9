"""One point of a kernel's space."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from autotune.domain.codec import ByName
from autotune.domain.limits import Bytes, Choice, Names

AxisValue = Choice

PARALLEL = "parallel"
ARBITRARY = "arbitrary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Block sizes and other declared axes, and what every Pallas kernel has.

    ``grid_order`` names the grid axes from the outermost to the innermost (empty: the kernel's
    grid has no names and its order is fixed). ``dimension_semantics`` is in grid order. A
    ``vmem_limit_bytes`` of None leaves the compiler's own limit in force.
    """

    axes: ByName[AxisValue]
    grid_order: Names = ()
    dimension_semantics: Names = ()
    vmem_limit_bytes: Bytes | None = None

    def __getitem__(self, axis: str) -> Any:
        """The value of a declared axis. ``KeyError`` for one that is not declared."""
        return dict(self.axes)[axis]

    def keys(self) -> list[str]:
        """So that ``BlockSizes(**config)`` and ``dict(config)`` take the axes."""
        return [name for name, _ in self.axes]

    def replace(self, **changes: Any) -> "Config":
        return replace(self, **changes)

    def __str__(self) -> str:
        parts = [f"{name}={value}" for name, value in self.axes]
        if self.grid_order:
            parts.append("order=" + ">".join(self.grid_order))
        if self.dimension_semantics:
            parts.append("semantics=" + "".join(s[0].upper() for s in self.dimension_semantics))
        if self.vmem_limit_bytes is not None:
            parts.append(f"vmem={self.vmem_limit_bytes / 2**20:g}MiB")
        return " ".join(parts)


def make_config(axes: Mapping[str, AxisValue], **fields: Any) -> Config:
    """A config from a mapping of axis values, in the mapping's order."""
    return Config(axes=tuple(axes.items()), **fields)
