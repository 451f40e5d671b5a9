"""Which of the packages that this one asks for are there, as its own metadata names them."""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

_OURS = "pallas-autotune"


def unmet(extra: str = "") -> list[str]:
    """What ``extra`` (empty: the base) asks for and is not there in a version that will do."""
    return [str_of(one) for one in _asked(extra) if not _is_met(one)]


def is_begun(extra: str) -> bool:
    """Whether something of it is there that the base does not bring."""
    return any(_installed(one.name) is not None for one in _asked(extra))


def str_of(requirement: Requirement) -> str:
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
    found = _installed(requirement.name)
    return found is not None and requirement.specifier.contains(found, prereleases=True)


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
