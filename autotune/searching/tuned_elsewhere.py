"""Where a search starts: what tables of others have for a problem, which it has to beat, and what
won for it on other chips and with other toolchains."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

from autotune.domain.compilers import Compilers
from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Key
from autotune.domain.problem import Config
from autotune.domain.record import Record, Trial
from autotune.domain.store import Store
from autotune.estimating.space import Candidate, Space
from autotune.searching.one_config import config_judge
from autotune.searching.subject import Subject

_MOST_KNOWN = 5
_MOST_WINNERS = 3  # they are often the same
_FEWEST_TRIALS = 3  # with a time, before the fastest of them says something


def tuned_elsewhere(
    compilers: Compilers, store: Store, subject: Subject, announce: Callable[[str], None]
) -> list[Config]:
    """The fastest first where their tables have times. ``announce`` hears of each."""
    known = [
        known_config
        for known_config in store.known_configs(subject.spec.name)
        if known_config.serves(subject.problem, subject.chip.chip)
    ]
    if not known:
        return []
    judge, configs = config_judge(compilers, subject), list[Config]()
    for entry in sorted(known, key=lambda entry: entry.time_us or inf)[:_MOST_KNOWN]:
        try:
            configs.append(judge.complete(dict(entry.axes)))
            announce(f"tuned elsewhere, toolchain unknown: {configs[-1]} ({entry.source})")
        except InvalidInputError as error:
            announce(f"{entry.source} has no config of this kernel: {error}")
    return configs


def announce_other_sources(store: Store, subject: Subject, announce: Callable[[str], None]) -> None:
    """What won for an earlier source of the kernel is tried first, where this has no record."""
    records = store.records(subject.spec.name)
    if any(record.key == subject.key for record in records):
        return
    for record in records:
        if replace(record.key, fingerprint=subject.spec.fingerprint) == subject.key:
            announce(
                f"the source changed: {record.config}, which won for the earlier source "
                f"({record.key.fingerprint}), is tried again first"
            )


def winners_elsewhere(records: Sequence[Record], key: Key, space: Space) -> list[Config]:
    """The candidates with the blocks and the grid order that won for the same problem under other
    toolchains and on other chips, the newest records first."""
    won = [
        record.config
        for record in sorted(records, key=lambda record: record.created_at, reverse=True)
        if record.key.problem == key.problem and not record.is_default and record.key != key
    ]
    return [candidate.config for candidate in _alike(won, space)][:_MOST_WINNERS]


def fastest_elsewhere(
    others: Sequence[tuple[Key, Trial]], key: Key, space: Space
) -> list[Candidate]:
    """The candidates with the blocks and the grid order that are the fastest so far for the same
    problem under other toolchains and on other chips, where these are searched at the same time."""
    timed: dict[Key, list[tuple[float, Config]]] = {}
    for of, trial in others:
        if of.problem == key.problem and of != key and trial.estimate:
            timed.setdefault(of, []).append((trial.estimate.time_us, trial.config))
    enough = [times for times in timed.values() if len(times) >= _FEWEST_TRIALS]
    return _alike([min(times, key=lambda pair: pair[0])[1] for times in enough], space)


def _alike(configs: Sequence[Config], space: Space) -> list[Candidate]:
    if not configs:
        return []
    by_blocks = {(c.config.axes, c.config.grid_order): c for c in space.candidates[::-1]}
    candidates = [by_blocks.get((config.axes, config.grid_order)) for config in configs]
    return list({candidate.config: candidate for candidate in candidates if candidate}.values())
