"""A whole search: try, verify, time where a TPU is attached, publish."""

from dataclasses import dataclass, field
from typing import Protocol

from autotune.candidates.space import Space
from autotune.domain.config import Config
from autotune.ports import WorkerStore
from autotune.ports.compilers import Compilers
from autotune.publishing.publish import Publication, publish
from autotune.publishing.timing import Timing, new_measure
from autotune.searching.loop import Observer, SearchLimits, SearchResult, Subject, run_search
from autotune.searching.tuned_elsewhere import tuned_elsewhere


class Watcher(Observer, Protocol):
    """Who watches all of it."""

    def announce(self, line: str) -> None: ...


class TuningStore(WorkerStore, Protocol):
    """Where it is kept. ``url``: for Optuna's studies."""

    @property
    def url(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to search. ``timing``: None for never. ``start_from``: tried right after the default."""

    limits: SearchLimits = field(default_factory=SearchLimits)
    seed: int = 0
    method: str = "gp"
    allow_unverified: bool = False
    timing: Timing | None = None
    start_from: tuple[Config, ...] = ()


def tune(
    compilers: Compilers,
    store: TuningStore,
    subject: Subject,
    space: Space,
    plan: Plan,
    watcher: Watcher,
) -> tuple[SearchResult, Publication | None]:
    """It starts with what ``plan`` says, then with what others know of the problem. None: it was
    interrupted, and the same again resumes. Raises ``AutotuneError``."""
    known = tuned_elsewhere(compilers, store, subject, watcher.announce)
    result = run_search(
        compilers,
        store,
        subject,
        space,
        plan.limits,
        watcher,
        study_url=store.url,
        seed=plan.seed,
        method=plan.method,
        start_from=tuple(dict.fromkeys((*plan.start_from, *known))),
    )
    if result.stopped_by == "interrupted":
        return result, None
    timing = plan.timing
    timer = new_measure(compilers, subject, timing, watcher.announce) if timing else None
    published = publish(
        compilers,
        store,
        result,
        allow_unverified=plan.allow_unverified,
        announce=watcher.announce,
        measure=timer,
    )
    return result, published
