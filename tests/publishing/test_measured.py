"""A measurement decides what is published, or says why it does not."""

import pytest

from autotune.answering.push import _of_measurement
from autotune.domain.evidence import Measurement, NotMeasured, Timed
from autotune.domain.problem import make_config
from autotune.wording.publication import record_reason
from tests.publishing.test_publish import estimated, run, verified_blocks

OUTCOMES = [estimated(100), estimated(50), estimated(49), estimated(48), estimated(90)]


def timed(number, us, ratio, *, slower=True, refused=""):
    bounds = (None, None) if ratio is None else (ratio * 0.99, ratio * 1.01)
    return Timed(
        config=make_config({"b": number}),
        samples_us=(us, us, us),
        ratio=ratio,
        low=bounds[0],
        high=bounds[1],
        slower=slower,
        refused=refused,
    )


def measurement(*rows, void=""):
    return Measurement(
        method="device time",
        device="TPU v5 lite, device 0 of 1",
        timed=rows,
        stopped_by="settled",
        void=void,
    )


def answering(found, asked=None):
    def measure(candidates, default):
        if asked is not None:
            asked.append(([c.config["b"] for c in candidates], default and default["b"]))
        return found

    return measure


WON = measurement(
    timed(1, 40, 1.0, slower=False), timed(2, 44, 1.1), timed(3, 48, 1.2), timed(0, 120, 3.0)
)


def test_the_measured_winner_is_published_against_the_estimates():
    asked = []
    published, store, compiler = run(OUTCOMES, measure=answering(WON, asked))
    record = store.saved[0]
    assert asked == [([3, 2, 1, 4, 0], 0)]  # the best few by estimate, the default last
    assert record.config["b"] == 1 and record.method == "measured" and not record.is_default
    assert record.time_us == 40 and record.estimate.time_us == 50
    assert record.measurement == WON
    assert record_reason(record) == (
        "measured 3.00 times as fast as the default (2.970 to 3.030); the runner-up takes 1.100 "
        "times as long (1.089 to 1.111), distinguishable"
    )
    assert sorted(verified_blocks(compiler)) == [0, 1, 2, 3, 4] and published.winner is not None


def test_only_what_is_verified_is_measured():
    asked = []
    _, store, _ = run(OUTCOMES, {3: False, 2: None}, measure=answering(WON, asked))
    assert asked == [([1, 4, 0], 0)]
    assert list(store.wrong) == [3] and store.saved[0].verified


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (
            measurement(timed(1, 40, 1.0, slower=False), timed(0, 41, 1.02, slower=False)),
            "nothing was measured to be faster than the default by more than the noise",
        ),
        (
            measurement(timed(0, 39, 1.0, slower=False), timed(1, 40, 1.03)),
            "the default was measured to be the fastest; the runner-up takes 1.030 times as long "
            "(1.020 to 1.040), distinguishable",
        ),
    ],
    ids=["a winner that cannot be told from it", "it is the fastest"],
)
def test_the_default_stays(found, why):
    _, store, _ = run(OUTCOMES, measure=answering(found))
    record = store.saved[0]
    assert record.is_default and record.method == "measured" and record.config["b"] == 0
    assert record_reason(record) == why


@pytest.mark.parametrize(
    ("found", "why", "kept"),
    [
        (NotMeasured("the accelerator is busy"), "the accelerator is busy", False),
        (measurement(timed(1, 40, 1.0), void="the device was lost"), "the device was lost", True),
        (measurement(timed(1, 1, None, refused="it aborts")), "it aborts", True),
        (
            measurement(timed(1, 40, 1.0), timed(0, 1, None, refused="it hangs")),
            "the default could not be measured: it hangs",
            True,
        ),
    ],
)
def test_without_a_decision_the_estimate_decides_and_says_why(found, why, kept):
    _, store, compiler = run(OUTCOMES, measure=answering(found))
    record = store.saved[0]
    assert record.method == "estimated" and record.time_us == record.estimate.time_us
    assert record_reason(record).endswith(f"because measuring decided nothing: {why}")
    assert (record.measurement is not None) == kept
    verified = compiler.verified_configs
    assert len(verified) == len(set(verified))  # nothing is verified twice


def test_a_wrong_default_is_no_rival():
    alone = measurement(timed(1, 40, 1.0, slower=False), timed(2, 44, 1.1))
    asked = []
    _, store, _ = run(OUTCOMES, {0: False}, measure=answering(alone, asked))
    assert asked[0][1] is None and store.saved[0].config["b"] == 1
    assert record_reason(store.saved[0]) == (
        "measured to be the fastest; the default was no alternative; the runner-up takes 1.100 "
        "times as long (1.089 to 1.111), distinguishable"
    )


def test_a_push_that_only_calls_itself_measured_is_refused():
    from dataclasses import replace

    _, store, _ = run(OUTCOMES, measure=answering(WON))
    good = store.saved[0]
    assert _of_measurement(good) is None
    assert "no measurement" in str(_of_measurement(replace(good, measurement=None)))
    clock = replace(WON, method="wall clock")
    assert "by wall clock" in str(_of_measurement(replace(good, measurement=clock)))
    other = replace(good, config=make_config({"b": 9}))
    assert "its config was not" in str(_of_measurement(other))
    slow = replace(
        good,
        config=make_config({"b": 0}),
        default=replace(good.default, config=make_config({"b": 1})),
    )
    assert "slower than the default" in str(_of_measurement(slow))
