"""Which of the packages that this one asks for are there, as its own metadata names them."""

import json
from collections.abc import Iterator
from importlib.metadata import distribution, requires

from packaging.requirements import Requirement

from autotune.domain.version import NAME, installed_version


def unmet(extra: str = "") -> list[str]:
    """What ``extra`` (empty: the base) asks for and is not there in a version that will do."""
    return [
        _written(asked)
        for asked in _asked(extra)
        if (installed := installed_version(asked.name)) is None
        or not asked.specifier.contains(installed, prereleases=True)
    ]


def extra_of(module: str) -> str | None:
    """The first extra that brings a module along; None where none does."""
    extras = ("store", "search", "serve", "postgres")
    return next(
        (e for e in extras if module in {requirement.name for requirement in _asked(e)}), None
    )


def pip_install(extra: str) -> str:
    """The command for it, from where this installation came: an index may not have it."""
    origin = json.loads(distribution(NAME).read_text("direct_url.json") or "{}")
    vcs = f"{origin['vcs_info']['vcs']}+" if "vcs_info" in origin else ""
    return f"pip install '{NAME}[{extra}]" + (f" @ {vcs}{origin['url']}'" if origin else "'")


def _written(requirement: Requirement) -> str:
    """``name>=1``, without the extra that asks for it."""
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}{requirement.specifier}"


def _asked(extra: str) -> Iterator[Requirement]:
    for line in requires(NAME) or ():
        requirement = Requirement(line)
        of_base = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if of_base == (not extra) and (
            requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        ):
            yield requirement
