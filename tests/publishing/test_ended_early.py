"""What a prediction ends is not the last word where the gate refuses it, or a TPU can tell."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from autotune.domain.codec import from_data, to_data
from autotune.domain.config import Config
from autotune.domain.kernel_spec import Choices
from autotune.domain.known_config import KnownConfig
from autotune.domain.record import Evidence, Record
from autotune.domain.verdict import Verdict
from autotune.publishing import timing
from autotune.publishing.publish import Publication
from autotune.publishing.ties import better
from autotune.publishing.timing import Timing
from autotune.publishing.tuning import Plan, TuningTask, limits_of, tune, tune_all
from autotune.searching.limits import SearchLimits
from autotune.searching.result import SearchResult
from autotune.wording.publication import times_default
from autotune_db import SqlStore, open_store
from tests.publishing.test_publish import SUBJECT
from tests.publishing.test_tuning import Watching
from tests.samples import records
from tests.samples.dashboard import estimated
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


PREDICTED = kernel.NEXT
"""A problem whose default is not compiled."""


def predicted_default(
    store: SqlStore, verified: Any, plan: Plan | None = None
) -> tuple[SearchResult, Publication | None]:
    kernel.confirmed(store)
    compilers: Any = kernel.compilers(PREDICTED, verified=verified)
    found = kernel.subject(PREDICTED), kernel.space(PREDICTED)
    return tune(compilers, store, *found, plan or Plan(), Watching())


def test_a_record_says_that_its_default_was_only_predicted(store: SqlStore) -> None:
    result, found = predicted_default(store, lambda _: Verdict(ok=True, reason="right"))
    assert found is not None and found.record is not None
    record = found.record
    assert (found.default, record.is_default) == (None, False)
    assert record.default.config not in [trial.config for trial in result.trials]
    assert record.estimate.time_us == kernel.time_us(PREDICTED, kernel.fastest(PREDICTED))
    assert record.default.time_us is None and record.default.is_predicted
    assert "default is predicted to be" in record.reason
    assert "not compiled" in record.default.note
    assert from_data(Record, to_data(record)) == record
    assert times_default(record.default, record.estimate.time_us).endswith("predicted")


def test_when_the_gate_refuses_the_winner_the_default_is_compiled(store: SqlStore) -> None:
    best = kernel.fastest(PREDICTED)
    verdict = lambda config: Verdict(ok=config["block"] != best, reason="seen")  # noqa: E731
    result, found = predicted_default(store, verdict)
    assert (result.stopped_by, len(result.trials)) == ("exhausted", len(kernel.BLOCKS))
    assert found is not None and found.default is not None and found.record is not None
    assert found.record.default.time_us == kernel.time_us(PREDICTED, kernel.BLOCKS[kernel.DEFAULT])


def test_nothing_is_published_that_may_be_slower_than_a_predicted_default() -> None:
    default = Evidence(config=None, time_us=None, expected_us=100.0, expected_error=0.1)
    trials = [records.trial(1, estimated(us)) for us in (50.0, 89.0, 95.0)]
    assert [t.estimate.time_us for t in better(trials, None, default) if t.estimate] == [50.0]
    assert len(better(trials, None, Evidence(config=None, time_us=None))) == 3
