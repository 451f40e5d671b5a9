"""Which of the packages that this one asks for are there, as its own metadata names them."""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

_OURS = "pallas-autotune"


def unmet(extra: str = "") -> list[str]:
    """What ``extra`` (empty: the base) asks for and is not there in a version that will do."""
    return [_written(one) for one in _asked(extra) if not _is_met(one)]


def extra_of(module: str) -> str | None:
    """The first extra that brings a module along; None where none does."""
    extras = ("store", "search", "serve", "postgres")
    return next((e for e in extras if module in {one.name for one in _asked(e)}), None)


def _written(requirement: Requirement) -> str:
    """``name>=1``, without the extra that asks for it."""
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}{requirement.specifier}"


def _asked(extra: str) -> Iterator[Requirement]:
    for line in requires(_OURS) or ():
        one = Requirement(line)
        of_base = one.marker is None or one.marker.evaluate({"extra": ""})
        if of_base == (not extra) and (one.marker is None or one.marker.evaluate({"extra": extra})):
            yield one


def _is_met(requirement: Requirement) -> bool:
    found = installed_version(requirement.name)
    return found is not None and requirement.specifier.contains(found, prereleases=True)


def installed_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
