"""What a prediction ends is not the last word where the gate refuses it, or a TPU can tell."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from autotune.domain.config import Config
from autotune.domain.kernel_spec import Choices
from autotune.domain.known_config import KnownConfig
from autotune.domain.verdict import Verdict
from autotune.publishing import timing
from autotune.publishing.publish import Publication
from autotune.publishing.timing import Timing
from autotune.publishing.tuning import Plan, TuningTask, limits_of, tune, tune_all
from autotune.searching.limits import SearchLimits
from autotune.searching.loop import SearchResult
from autotune_db import SqlStore, open_store
from tests.publishing.test_publish import SUBJECT
from tests.publishing.test_tuning import Watching
from tests.searching import test_transfer as kernel

ROWS = 1 << 17
BEST = kernel.fastest(ROWS)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    with open_store(f"{tmp_path}/db.db", create=True) as opened:
        kernel.taught(opened)
        yield opened


def verdict(config: Config) -> Verdict:
    right = config["block"] != BEST
    return Verdict(ok=right, reason="right" if right else "wrong")


def alone(compilers: Any, store: Any, plan: Plan) -> tuple[SearchResult, Publication | None]:
    found = kernel.subject(ROWS), kernel.space(ROWS)
    return tune(compilers, store, *found, plan, Watching())


def side_by_side(compilers: Any, store: Any, plan: Plan) -> tuple[SearchResult, Publication | None]:
    task = TuningTask(subject=kernel.subject(ROWS), space=kernel.space(ROWS), watcher=Watching())
    told: list[Publication] = []
    (done,) = tune_all(compilers, store, [task], plan, lambda _, found: told.append(found))
    assert told == [done[1]]
    return done


@pytest.mark.parametrize("run", [alone, side_by_side])
def test_a_search_goes_on_when_the_gate_refuses_its_winner(store: SqlStore, run: Any) -> None:
    result, found = run(kernel.compilers(ROWS, verified=verdict), store, Plan())
    assert (result.stopped_by, len(result.trials)) == ("exhausted", len(kernel.BLOCKS))
    left = [block for block in kernel.BLOCKS if block != BEST]
    assert found.record.config["block"] == min(left, key=lambda b: kernel.time_us(ROWS, b))
    assert not found.record.is_default


def test_what_others_know_is_told_once(store: SqlStore) -> None:
    name = SUBJECT.spec.name
    some = KnownConfig(kernel=name, problem=(), chips=(), axes=(("block", BEST),), source="a table")
    store.save_known_configs([some])
    said: list[str] = []
    watcher = Watching()
    watcher.announce = said.append  # type: ignore[method-assign]
    task = TuningTask(subject=kernel.subject(ROWS), space=kernel.space(ROWS), watcher=watcher)
    choices = Choices(axes={"block": list(kernel.BLOCKS)}, default={"block": BEST}, grid=())
    refused = kernel.compilers(
        ROWS, verified=verdict, choices=choices, traced=lambda c: [kernel.traced(ROWS, c["block"])]
    )
    ((result, _),) = tune_all(cast(Any, refused), store, [task], Plan())
    assert (result.stopped_by, len(result.start_from)) == ("exhausted", 1)
    assert len([line for line in said if "a table" in line]) == 1


@pytest.mark.parametrize("run", [alone, side_by_side])
def test_what_is_right_ends_it(store: SqlStore, run: Any) -> None:
    always = kernel.compilers(ROWS, verified=lambda _: Verdict(ok=True, reason="right"))
    result, found = run(always, store, Plan())
    assert (result.stopped_by, found.record.config["block"]) == ("prediction", BEST)


def test_what_a_tpu_times_is_searched_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    subject, limits = kernel.subject(ROWS), SearchLimits()
    monkeypatch.setattr(timing, "attached_chips", lambda: (subject.chip.chip,))
    assert limits_of(limits, Timing(), subject).full
    assert not limits_of(limits, None, subject).full
    monkeypatch.setattr(timing, "attached_chips", lambda: ())
    assert not limits_of(limits, Timing(), subject).full
