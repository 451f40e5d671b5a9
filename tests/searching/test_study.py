"""A study gives each candidate out once, forgets nothing and tells Optuna all that it knows."""

import subprocess
import sys

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.trial import TrialState

from autotune.searching.sampler import ListedRandom, parameters
from autotune.searching.study import CandidateStudy
from tests.samples.candidates import candidate, fits, space, time_us

SPACE = space()
LIMITS = (None, 2**25)

every_method = pytest.mark.parametrize("method", ("gp", "tpe", "random"))


def _study(method="gp", *, seed=0, of=SPACE):
    later = [of[0].config.replace(vmem_limit_bytes=limit) for limit in LIMITS]
    return CandidateStudy(of, later, seed=seed, method=method)


def _search(study, trials):
    asked = []
    for _ in range(trials):
        proposed = study.ask()
        if proposed is None:
            break
        asked.append(proposed)
        study.tell(proposed, time_us(proposed) if fits(proposed) else None, "out of VMEM")
    return asked


def _stored(study):
    """What its samplers learn from."""
    return study._study.trials


@every_method
@settings(max_examples=10)
@given(st.data())
def test_any_order_of_asking_telling_learning_and_adding(method, data):
    study, out, seen = _study(method, of=SPACE[:12]), [], set()
    extra = [candidate(128, 512, limit=2**25), candidate(128, 256, limit=2**25)]
    total = 12
    for step in data.draw(st.lists(st.sampled_from("atlx"), max_size=30)):
        if step == "a" and (proposed := study.ask()) is not None:
            assert proposed.config not in seen
            seen.add(proposed.config)
            out.append(proposed)
        elif step == "t" and out:
            study.tell(out.pop(0), data.draw(st.sampled_from([None, 3.0, 5.0])), "why")
        elif step == "l":
            proposed = data.draw(st.sampled_from(SPACE[:12]))
            if proposed.config not in seen:
                seen.add(proposed.config)
                study.learn(proposed, data.draw(st.sampled_from([None, 4.0])), "why")
        elif step == "x" and extra:
            total += study.add(extra.pop())
    while (proposed := study.ask()) is not None:
        assert proposed.config not in seen
        seen.add(proposed.config)
    assert len(seen) == total


def test_what_optuna_is_told_decides(monkeypatch):
    """The study searches: what it does not hear of changes nothing, and its sampler proposes."""
    heard = _search(_study(), 20)
    monkeypatch.setattr(optuna.Study, "tell", lambda *_, **__: None)
    assert _search(_study(), 20) != heard
    monkeypatch.undo()
    study = _study()
    study._study.sampler = ListedRandom(study._listed, 0)
    assert _search(study, 20) == _search(_study("random"), 20) != heard


def test_failures_are_failed_trials_with_their_reason():
    study = _study()
    proposed, other = study.ask(), study.ask()
    assert proposed is not None and other is not None
    study.tell(proposed, None, "needs 40 MiB of VMEM")
    study.tell(other, 7.5, "")
    study.learn(SPACE[0], None, "timed out")
    first, second, third = _stored(study)
    assert (first.state, first.value) == (TrialState.FAIL, None)
    assert first.user_attrs["reason"] == "needs 40 MiB of VMEM"
    assert (second.state, second.value) == (TrialState.COMPLETE, 7.5)
    assert (third.state, third.value) == (TrialState.FAIL, None)


@every_method
def test_the_parameters_in_optuna_are_those_of_the_candidate(method):
    study = _study(method)
    (proposed,) = _search(study, 1)
    (trial,) = _stored(study)
    assert trial.params == parameters(proposed.config)
    assert trial.params["axis:block_m"] == proposed.config["block_m"]


@every_method
def test_a_resumed_study_asks_nothing_again(method):
    few = SPACE[::12]
    before = _search(_study(method, of=few), 3)
    study = _study(method, of=few)
    for proposed in before:
        study.learn(proposed, time_us(proposed) if fits(proposed) else None, "out of VMEM")
    after = _search(study, len(few))
    assert len(_stored(study)) == len(few) == len(before + after)
    assert not {proposed.config for proposed in before} & {proposed.config for proposed in after}


def test_what_is_learnt_is_told_to_optuna_once():
    study = _study()
    for proposed in SPACE[:5] * 2:
        study.learn(proposed, time_us(proposed), "")
    assert [trial.value for trial in _stored(study)] == [
        time_us(proposed) for proposed in SPACE[:5]
    ]


@every_method
def test_the_seed_decides_and_repeats(method):
    runs = [
        tuple(str(c.config) for c in _search(_study(method, seed=seed), 12))
        for seed in (0, 0, 1, 2, 3)
    ]
    assert runs[0] == runs[1]
    assert len(set(runs)) > 2


@pytest.mark.parametrize("seed", range(5))
def test_finds_the_best_of_a_valley_with_a_cliff(seed):
    best = min(time_us(proposed) for proposed in SPACE if fits(proposed))
    asked = _search(_study(seed=seed), 20)
    assert min(time_us(proposed) for proposed in asked if fits(proposed)) <= 1.03 * best


_AS_BEFORE = """
import optuna, warnings
from tests.samples.candidates import space
before = optuna.logging.get_verbosity()
from autotune.searching.study import CandidateStudy
study = CandidateStudy(space())
study.tell(study.ask(), 1.0, "")
assert optuna.logging.get_verbosity() == before
assert not any("optuna" in str(one) for one in warnings.filters)
"""


def test_a_search_says_nothing_and_leaves_the_settings_of_the_process_alone():
    done = subprocess.run([sys.executable, "-c", _AS_BEFORE], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
