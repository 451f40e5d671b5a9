"""Which records are checked."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Chip, Toolchain
from autotune.domain.problem import Problem
from autotune.domain.record import Record

_VERSIONS = ("jax", "jaxlib", "libtpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFilter:
    """Of the toolchain that a record was made with: ``name`` is jax, jaxlib or libtpu."""

    name: str
    version: str

    def admits(self, toolchain: Toolchain) -> bool:
        """Whether its version is this one, or begins with it (0.10 is 0.10.2)."""
        have = str(getattr(toolchain, self.name))
        return have == self.version or have.startswith(self.version + ".")


def parse_version_filter(text: str) -> VersionFilter:
    """``jax=0.10.2`` or ``0.10.2``. Raises ``InvalidInputError``."""
    name, equals, version = text.rpartition("=")
    name = name.rstrip("=") if equals else "jax"
    if name not in _VERSIONS or not version:
        raise InvalidInputError(
            f"{text!r} is no version to select records by: write jax=0.10.2 or libtpu=0.0.42.1"
        )
    return VersionFilter(name=name, version=version)


def selected(
    records: Iterable[Record],
    *,
    kernels: Collection[str] = (),
    problems: Collection[tuple[str, Problem]] | None = None,
    chips: Collection[Chip] = (),
    made_with: VersionFilter | None = None,
    not_with: Toolchain | None = None,
) -> list[Record]:
    """The newest record of each kernel, problem and chip; all of them where none is named.
    ``problems``: with the name of their kernel."""
    newest: dict[object, Record] = {}
    for record in records:
        key = record.key
        if (kernels and key.kernel not in kernels) or (chips and key.chip not in chips):
            continue
        if problems is not None and (key.kernel, key.problem) not in problems:
            continue
        if key.toolchain == not_with or (made_with and not made_with.admits(key.toolchain)):
            continue
        same = (key.kernel, key.problem, key.chip)
        if same not in newest or newest[same].created_at < record.created_at:
            newest[same] = record
    return sorted(newest.values(), key=lambda record: str(record.key))
