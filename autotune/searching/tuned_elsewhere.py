"""Where a search starts: what tables of others have for a problem, which it has to beat, and what
won for it on other chips and with other toolchains."""

from collections.abc import Callable, Sequence
from math import inf

from autotune.candidates.space import Space
from autotune.domain.config import Config
from autotune.domain.key import Key
from autotune.domain.record import Record
from autotune.errors import InvalidInputError
from autotune.ports.compilers import Compilers
from autotune.ports.known_configs import KnownConfigs
from autotune.searching.one_config import config_judge
from autotune.searching.subject import Subject

_MOST_KNOWN = 5
_MOST_WINNERS = 3  # they are often the same


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


def winners_elsewhere(records: Sequence[Record], key: Key, space: Space) -> list[Config]:
    """The candidates with the blocks and the grid order that won for the same problem under other
    toolchains and on other chips, the newest records first."""
    blocks = [
        (one.config.axes, one.config.grid_order)
        for one in sorted(records, key=lambda record: record.created_at, reverse=True)
        if one.key.problem == key.problem and not one.is_default and one.key != key
    ]
    by_blocks = {(c.config.axes, c.config.grid_order): c.config for c in space.candidates[::-1]}
    found = dict.fromkeys(by_blocks[one] for one in blocks if one in by_blocks)
    return list(found)[:_MOST_WINNERS]
