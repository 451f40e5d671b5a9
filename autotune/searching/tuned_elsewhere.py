"""What tables of others have for a problem: a search starts from it, and has to beat it."""

from collections.abc import Callable
from math import inf

from autotune.domain.config import Config
from autotune.errors import InvalidInputError
from autotune.ports.compilers import Compilers
from autotune.ports.known_configs import KnownConfigs
from autotune.searching.one_config import config_judge
from autotune.searching.subject import Subject

_MOST_KNOWN = 5


def tuned_elsewhere(
    compilers: Compilers, store: KnownConfigs, subject: Subject, announce: Callable[[str], None]
) -> list[Config]:
    """The fastest first where their tables have times. ``announce`` hears of each."""
    known = [
        one
        for one in store.known_configs(subject.spec.name)
        if one.serves(subject.problem, subject.chip.chip)
    ]
    if not known:
        return []
    judge, found = config_judge(compilers, subject), list[Config]()
    for one in sorted(known, key=lambda one: one.time_us or inf)[:_MOST_KNOWN]:
        try:
            found.append(judge.complete(dict(one.axes)))
            announce(f"tuned elsewhere, toolchain unknown: {found[-1]} ({one.source})")
        except InvalidInputError as error:
            announce(f"{one.source} has no config of this kernel: {error}")
    return found
