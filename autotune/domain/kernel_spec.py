"""A kernel as plain data: what the parent process and the database know of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.domain.codec import Flat
from autotune.domain.config import AxisValue
from autotune.domain.problem import Option, ProblemSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSpec:
    """``fingerprint`` changes when the source of the declaring module does.

    ``cuts``: (axis, dimension) for each axis that is a block size over a dimension. Empty where
    that is not known: descriptions saved by older versions do not say it.
    """

    name: str
    fingerprint: str
    problems: Flat[ProblemSpec]
    axes: tuple[str, ...]
    grid: tuple[str, ...]
    doc: str = ""
    cuts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The raw space of a problem: values per axis, the default, the names of the grid axes."""

    axes: dict[str, list[AxisValue]]
    default: dict[str, AxisValue]
    grid: tuple[str, ...]


def spec_to_data(spec: KernelSpec) -> dict[str, Any]:
    """Plain JSON data; ``spec_from_data`` is the inverse."""
    return {
        "name": spec.name,
        "fingerprint": spec.fingerprint,
        "dims": list(spec.problems.dims),
        "dtypes": list(spec.problems.dtypes),
        "options": [
            {"name": o.name, "choices": list(o.choices), "default": o.default}
            for o in spec.problems.options
        ],
        "axes": list(spec.axes),
        "grid": list(spec.grid),
        "doc": spec.doc,
        "cuts": [list(cut) for cut in spec.cuts],
    }


def spec_from_data(data: Mapping[str, Any]) -> KernelSpec:
    options = tuple(
        Option(name=o["name"], choices=tuple(o["choices"]), default=o["default"])
        for o in data["options"]
    )
    problems = ProblemSpec(dims=tuple(data["dims"]), dtypes=tuple(data["dtypes"]), options=options)
    return KernelSpec(
        name=data["name"],
        fingerprint=data["fingerprint"],
        problems=problems,
        axes=tuple(data["axes"]),
        grid=tuple(data["grid"]),
        doc=data["doc"],
        cuts=tuple((axis, dim) for axis, dim in data.get("cuts", ())),
    )
