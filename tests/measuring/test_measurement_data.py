"""A measurement crosses every boundary unchanged: the database, a push; and is bounded."""

from dataclasses import replace

import pytest
from pydantic import TypeAdapter, ValidationError

from autotune.domain.codec import to_data
from autotune.domain.evidence import Measurement, Timed
from autotune.domain.record import Method, Record
from autotune.domain.store import KeyResult
from autotune_db import open_store
from autotune_service.api.forms import Sent
from tests.samples import matching
from tests.samples.records import config, record, spec

SENT = TypeAdapter(Sent[Record])
MEASURED = Measurement(
    method="device time",
    device="TPU v5 lite, device 1 of 4",
    stopped_by="settled",
    drift=-0.004,
    set_aside=1,
    looks=3,
    seed=7,
    seconds=2.5,
    timed=(
        Timed(config=config(), samples_us=(4.0, 5.0, 4.5), ratio=1.0, low=1.0, high=1.0),
        Timed(config=None, samples_us=(9.0,), ratio=2.0, low=1.9, high=2.1, slower=True),
        Timed(config=config(256), samples_us=(), refused="it aborts", note="compiled here"),
    ),
)


def measured_record(**changes):
    return replace(record(), method=Method.MEASURED, measurement=MEASURED, **changes)


def test_the_store_keeps_every_sample(tmp_path):
    with open_store(f"sqlite:///{tmp_path / 'db'}", create=True) as store:
        store.save_record(measured_record())
        assert store.record(record().key) == measured_record()


def test_its_time_is_the_median_of_its_own_kind():
    assert measured_record().time_us == 4.5
    assert replace(measured_record(), method=Method.ESTIMATED).time_us == 5.5


def test_a_service_takes_it_and_gives_back_the_same():
    older = matching.record()  # it has none
    for sent in (older, replace(older, measurement=MEASURED)):
        assert SENT.validate_python(to_data(sent)) == sent


@pytest.mark.parametrize(
    "change",
    [
        {"method": "guessed"},
        {"surprise": 1},
        {"drift": float("nan")},
        {"device": "x" * 300},
        {"timed": [{"config": None, "samples_us": [1.0] * 10_001}]},
        {"timed": [{"config": None, "samples_us": [-1.0]}]},
        {"timed": [{"config": None, "samples_us": [1.0]}] * 65},
    ],
)
def test_a_service_takes_nothing_else(change):
    data = to_data(replace(matching.record(), measurement=MEASURED))
    changed = data["measurement"] | change
    with pytest.raises(ValidationError, match="measurement"):
        SENT.validate_python(data | {"measurement": changed})


def test_a_faster_measured_record_is_not_lost_to_a_slower_estimate(tmp_path):
    """Times of two kinds are not compared: of the same kind the faster one stays, and what was
    measured stays beside what was only estimated."""
    slow = replace(MEASURED, timed=(replace(MEASURED.timed[0], samples_us=(8.0,)),))
    with open_store(f"sqlite:///{tmp_path / 'db'}", create=True) as store:
        store.save_kernel(spec())
        store.save_record(measured_record())
        later = replace(measured_record(), measurement=slow)
        assert store.push([spec()], [KeyResult(record=later)], "ci").lost == 1
        estimated = replace(record(), reason="by estimate")
        assert store.push([spec()], [KeyResult(record=estimated)], "ci").lost == 1
