"""What a prediction ends is not the last word where the gate refuses it, or a TPU can tell."""

from dataclasses import replace

import pytest

from autotune.declaring.fingerprint import ReadOnce
from autotune.domain.codec import from_data, to_data
from autotune.domain.evidence import Verdict
from autotune.domain.key import Choices
from autotune.domain.known_config import KnownConfig
from autotune.domain.problem import ProblemSpec, make_config
from autotune.domain.record import Evidence, Record
from autotune.publishing import task as task_module
from autotune.publishing.estimated_ties import better
from autotune.publishing.publish import opened, running
from autotune.publishing.task import Plan, Timing, TuningObserver, TuningTask
from autotune.publishing.tuning import limits_of, tune_one
from autotune.searching.subject import SearchLimits
from autotune.wording.publication import default_note, record_reason, times_default
from autotune_db import open_store
from tests.publishing.test_publish import SUBJECT
from tests.samples import records
from tests.samples.dashboard import estimated
from tests.samples.database import new_store
from tests.samples.traces import V5E
from tests.searching import test_transfer as kernel

ROWS = 1 << 17
BEST = kernel.fastest(ROWS)


@pytest.fixture
def store(tmp_path):
    with new_store(tmp_path / "db.db", kernel.taught) as opened:
        yield opened


@pytest.fixture
def known(tmp_path):
    """So many predictions that a default need not be compiled."""
    with new_store(tmp_path / "known.db", kernel.confirmed) as opened:
        yield opened


def verdict(config):
    right = config["block"] != BEST
    return Verdict(ok=right, reason="right" if right else "wrong")


def tuned(
    store,
    rows,
    verified,
    observer=None,
    block=kernel.BLOCKS[kernel.DEFAULT],
    blocks=kernel.BLOCKS,
    plan=None,
):
    compilers = kernel.compilers(
        rows,
        verified=verified,
        spec=replace(SUBJECT.spec, problems=ProblemSpec(dims=("rows",), dtypes=("bfloat16",))),
        chip=V5E,
        choices=Choices(axes={"block": list(blocks)}, default={"block": block}, grid=()),
        traced=lambda config: [kernel.traced(rows, config["block"])],
    )
    subject = kernel.subject(rows)
    task = TuningTask(ref=subject.ref, chip=V5E.chip, problem=subject.problem)
    return tune_one(
        running(compilers), opened(store), task, plan or Plan(), observer or TuningObserver()
    )


def test_a_search_goes_on_when_the_gate_refuses_its_winner(store):
    over = []
    observer = TuningObserver()
    observer.tuned = over.append
    result = tuned(store, ROWS, verdict, observer)
    assert (result.stopped_by, len(result.trials)) == ("exhausted", len(kernel.BLOCKS))
    left = [block for block in kernel.BLOCKS if block != BEST]
    assert result.record is not None and not result.record.is_default
    assert result.record.config["block"] == min(left, key=lambda b: kernel.time_us(ROWS, b))
    assert over == [result]


def test_what_others_know_is_told_once(store):
    name = SUBJECT.spec.name
    known = KnownConfig(
        kernel=name, problem=(), chips=(), axes=(("block", BEST),), source="a table"
    )
    store.save_known_configs([known])
    lines = []
    observer = TuningObserver()
    observer.announce = lines.append
    result = tuned(store, ROWS, verdict, observer)
    assert (result.stopped_by, len(result.given)) == ("exhausted", 1)
    assert len([line for line in lines if "a table" in line]) == 1


def test_what_is_right_ends_it_and_is_the_answer_of_the_next_search(store, monkeypatch):
    monkeypatch.setattr(ReadOnce, "searched_source", lambda *_: "as it is")
    result = tuned(store, ROWS, lambda _: Verdict(ok=True, reason="right"))
    assert result.record is not None and result.search is not None
    assert (result.stopped_by, result.record.config["block"]) == ("prediction", BEST)
    again = tuned(store, ROWS, verdict)
    assert (again.search, again.stopped_by) == (None, "prediction")
    assert again.record == result.record


def test_another_default_and_other_choices_go_on_searching(tmp_path):
    """What was compiled is used again; the default is that of today wherever one looks."""
    plan = Plan(limits=SearchLimits(trials=3))

    def searched(block, blocks):
        right = Verdict(ok=True, reason="right")
        return tuned(store, ROWS, lambda _: right, block=block, blocks=blocks, plan=plan)

    with open_store(f"{tmp_path}/fresh.db", create=True) as store:
        first = searched(8, (8, 16, 32))
        assert (first.stopped_by, len(first.trials)) == ("trials", 3)
        assert searched(8, (8, 16, 32)).search is None
        for block in (16, 64):
            other = searched(block, (8, 16, 32, *[64] * (block == 64)))
            assert other.search is not None and other.record is not None
            assert other.record.default.config == make_config({"block": block})
            assert other.before == store.trials(other.key)[0]
            assert store.history()[0].default_us == other.record.default.time_us
        assert len(other.trials) == 4
        more = searched(64, kernel.BLOCKS)
        assert (more.stopped_by, len(more.trials)) == ("trials", 7)  # three more
        assert searched(64, kernel.BLOCKS).search is None


def test_what_a_tpu_times_is_searched_to_its_limit(monkeypatch):
    subject, limits = kernel.subject(ROWS), SearchLimits()
    timed = Plan(timing=Timing())
    monkeypatch.setattr(task_module, "attached_chips", lambda: (subject.chip.chip,))
    assert limits_of(limits, timed, subject).full
    assert not limits_of(limits, Plan(), subject).full
    monkeypatch.setattr(task_module, "attached_chips", lambda: ())
    assert not limits_of(limits, timed, subject).full


PREDICTED = kernel.NEXT
"""A problem whose default is not compiled."""


def test_a_record_says_that_its_default_was_only_predicted(known):
    result = tuned(known, PREDICTED, lambda _: Verdict(ok=True, reason="right"))
    assert result.publication is not None and result.record is not None
    record = result.record
    assert (result.publication.default, record.is_default) == (None, False)
    assert record.default.config not in [trial.config for trial in result.trials]
    assert record.estimate.time_us == kernel.time_us(PREDICTED, kernel.fastest(PREDICTED))
    assert record.default.time_us is None and record.default.is_predicted
    assert "default is predicted to be" in record_reason(record)
    assert record.default.is_predicted and "not compiled" in default_note(record.default)
    assert from_data(Record, to_data(record)) == record
    assert times_default(record.default, record.estimate.time_us).endswith("predicted")


def test_when_the_gate_refuses_the_winner_the_default_is_compiled(known):
    best = kernel.fastest(PREDICTED)
    verdict = lambda config: Verdict(ok=config["block"] != best, reason="seen")  # noqa: E731
    result = tuned(known, PREDICTED, verdict)
    assert (result.stopped_by, len(result.trials)) == ("exhausted", len(kernel.BLOCKS))
    assert result.before is not None and result.record is not None
    assert result.record.default.time_us == kernel.time_us(PREDICTED, kernel.BLOCKS[kernel.DEFAULT])


def test_nothing_is_published_that_may_be_slower_than_a_predicted_default():
    default = Evidence(config=None, time_us=None, expected_us=100.0, expected_error=0.1)
    trials = [records.trial(1, estimated(us)) for us in (50.0, 89.0, 95.0)]
    assert [t.estimate.time_us for t in better(trials, None, default) if t.estimate] == [50.0]
    assert len(better(trials, None, Evidence(config=None, time_us=None))) == 3
