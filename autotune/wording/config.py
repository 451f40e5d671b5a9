"""A config in parts, spelled out; a problem in a column of a table."""

from autotune.domain.key import Key
from autotune.domain.problem import SEMANTICS, VMEM_LIMIT, AxisValue, Config, parts_of


def spelled_parts(config: Config) -> dict[str, AxisValue]:
    """As ``parts_of``, without abbreviations: where there is room."""
    parts = parts_of(config)
    if config.dimension_semantics:
        parts[SEMANTICS] = ", ".join(config.dimension_semantics)
    if config.vmem_limit_bytes is None:
        parts[VMEM_LIMIT] = "the compiler's own"
    return parts


def problem_cell(key: Key) -> str:
    """The kernel and its problem in a column: lines are broken at spaces."""
    return f"{key.kernel} {key.problem}".replace(",", ", ")
