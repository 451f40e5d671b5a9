"""The race against an accelerator whose true times are known, and against one that fails."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.evidence import NotMeasured
from autotune.measuring.race import DeviceLostError, decide
from tests.fakes.accelerator import NOISES, Accelerator, Noise

TIMES = {"best": 100.0, "close": 103.0, "far": 140.0, "default": 180.0, "xla": 90.0}
BUSY = dict.fromkeys(TIMES, 0.6)
QUIET = NOISES[0]


def race(noise=QUIET, seed=0, most_samples=600, **times):
    true = {**TIMES, **times}
    device = Accelerator(true, BUSY, noise, seed)
    return decide(
        list(true),
        device.sample,
        default="default",
        cannot_win=("xla",),
        seed=seed,
        most_samples=most_samples,
    )


@pytest.mark.parametrize("noise", NOISES, ids=lambda n: n.name)
def test_the_best_wins_in_every_kind_of_noise(noise):
    """Bars with many more runs stand in ``benchmarks/deciding.py``."""
    runs = [race(noise, seed) for seed in range(40)]
    wins = [d.ranking[0].name == "best" for d in runs if not d.void]
    assert len(wins) >= 36 and sum(wins) >= 0.95 * len(wins)


def test_the_interval_holds_the_true_ratio():
    decision = race()
    for s in decision.ranking:
        assert s.low <= TIMES[s.name] / 100.0 <= s.high


@pytest.mark.parametrize("noise", NOISES, ids=lambda n: n.name)
def test_no_difference_is_declared_among_equals(noise):
    same = dict.fromkeys(("close", "far", "default"), 100.0)
    runs = [race(noise, seed, **same) for seed in range(40)]
    false = [any(s.slower for s in d.ranking if s.name != "xla") for d in runs]
    assert sum(false) <= 2


def test_the_budget_ends_it():
    decision = race(Noise(name="wild", spread=0.3), most_samples=60, close=100.0, far=100.0)
    assert decision.stopped_by == "budget spent" and decision.count <= 60
    out_of_time = decide(
        list(TIMES), Accelerator(TIMES, BUSY, QUIET, 0).sample, out_of_time=lambda: True
    )
    assert out_of_time.count == 0 and "no candidate could be timed" in out_of_time.void


def run(change, names=tuple(TIMES)):
    """On a quiet device. ``change``: of the times by name that it gives, and how many it gave."""
    device = Accelerator(TIMES, BUSY, QUIET, 0)

    def sample(order):
        taken = device.taken
        return [change(n, us, taken) for n, us in zip(order, device.sample(order), strict=True)]

    return decide(list(names), sample, default="default", cannot_win=("xla",))


def _faster_later(names):
    """After two rounds the device is a fifth faster than before."""
    return run(lambda _, us, taken: us * (0.8 if taken >= 2 * len(names) else 1.0), names)


def test_the_default_at_the_end_voids_a_run_on_a_device_that_changed():
    """Alone it cannot tell a faster device from a candidate whose first runs were slow."""
    decision = _faster_later(["default"])
    assert decision.void.endswith("at the end of the run: the device changed")
    assert decision.drift < -0.05 and decision.count == 4  # two rounds, the end, once again


@pytest.mark.parametrize("names", [list(TIMES), ["best", "default"]])
def test_a_state_that_becomes_faster_is_the_one_that_counts(names):
    decision = _faster_later(names)
    assert not decision.void and decision.set_aside == 2
    assert decision.ranking[0].name == "best"


def test_a_device_that_stays_slower_voids_the_run():
    decision = run(lambda _, us, taken: us * (1.15 if taken >= 2 * len(TIMES) else 1.0))
    assert "became slower and stayed so" in decision.void and decision.set_aside > 1
    assert decision.count < 150  # its patience ends, not the budget


def test_a_refused_candidate_leaves_the_race_with_its_reason():
    decision = run(lambda name, us, _: NotMeasured("it aborts") if name == "best" else us)
    assert decision.refused == {"best": "it aborts"}
    assert decision.ranking[0].name == "close" and not decision.void


@pytest.mark.parametrize("no_time", [0.0, -1.0, float("nan"), float("inf")])
def test_what_is_no_time_is_refused_and_moves_nothing(no_time):
    decision = run(lambda name, us, _: no_time if name == "close" else us)
    assert "which is no time" in decision.refused["close"] and not decision.void
    assert decision.ranking[0].name == "best" and decision.samples["best"]
    assert "close" not in decision.samples


def test_what_was_measured_before_the_device_was_lost_is_kept():
    device = Accelerator(TIMES, BUSY, QUIET, 0)

    def sample(names):
        if device.taken:
            raise DeviceLostError("the device was lost")
        return device.sample(names)

    decision = decide(list(TIMES), sample, default="default")
    assert decision.void == "the device was lost" and decision.stopped_by == "device lost"
    assert decision.count == 2 * len(TIMES)


@given(
    st.lists(st.one_of(st.floats(1e-3, 1e7), st.just("refused")), min_size=1, max_size=60),
    st.integers(1, 6),
    st.booleans(),
)
def test_whatever_a_device_answers_there_is_an_end(answers, count, has_default):
    names = [f"c{n}" for n in range(count)]
    turn = iter(answers * 1000)

    def sample(order):
        return [NotMeasured("no") if isinstance(a := next(turn), str) else a for _ in order]

    decision = decide(names, sample, default="c0" if has_default else None, most_samples=150)
    assert decision.count <= 150
    told = [s.name for s in decision.ranking]
    assert len(told) == len(set(told)) and not set(told) & set(decision.refused)
    assert decision.void or told
