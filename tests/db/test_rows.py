"""Whatever a trial holds comes back equal, and digests see names and values only."""

from dataclasses import fields, is_dataclass, replace
from math import inf, nan
from types import SimpleNamespace
from typing import get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.codec import to_data
from autotune.domain.outcome import Estimated, Outcome, TimedOut, WrongResult
from autotune.domain.problem import Config
from autotune_db.rows import key_identity, trial_from_row, trial_values
from autotune_db.tables import digest
from tests.samples.records import estimate, key, save_trial, trial

text = st.text(st.characters(codec=None))
values = st.one_of(st.integers(), st.booleans(), text)
names = st.lists(text, unique=True, max_size=5)
configs = st.builds(
    Config,
    axes=names.flatmap(lambda drawn: st.tuples(*(st.tuples(st.just(n), values) for n in drawn))),
    grid_order=names.map(tuple),
    dimension_semantics=st.lists(text, max_size=3).map(tuple),
    vmem_limit_bytes=st.none() | st.integers(),
)


@given(configs)
def test_every_config_comes_back_the_same_from_its_row(config):
    saved = replace(trial(), config=config)
    values = trial_values(saved)
    assert trial_from_row(SimpleNamespace(_mapping=values)) == saved
    assert all(v.isascii() and "\0" not in v for v in values.values() if isinstance(v, str))


@given(configs, st.randoms(use_true_random=False))
def test_digest_ignores_the_order_of_axes(config, chance):
    axes = list(config.axes)
    chance.shuffle(axes)
    turned = config.replace(axes=tuple(axes))
    assert digest(to_data(turned)) == digest(to_data(config))


@given(configs, configs)
def test_digest_tells_configs_apart(first, other):
    same = digest(to_data(first)) == digest(to_data(other))
    typed = [
        {name: (type(value), value) for name, value in config.axes} for config in (first, other)
    ]
    rest = [replace(config, axes=()) for config in (first, other)]
    assert same == (typed[0] == typed[1] and rest[0] == rest[1])


def test_the_digest_never_changes():
    """A database outlives the program that wrote it."""
    assert trial_values(trial())["config_digest"] == "78567043ed81a863376a528bb5f86c7f"
    assert key_identity(key())["problem_digest"] == "7f209223c9bea9dde4e44f6cd5a4ab6d"


NOT_FINITE = (inf, -inf, nan)


def _value(hint, numbers):
    """Any value of a type, with such numbers wherever a float can be."""
    if hint is float:
        return numbers
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        parts = {field.name: _value(hints[field.name], numbers) for field in fields(hint)}
        return st.builds(hint, **parts)
    args = get_args(hint)
    if get_origin(hint) is tuple and args[-1] is ...:
        return st.lists(_value(args[0], numbers), min_size=1, max_size=2).map(tuple)
    if get_origin(hint) is tuple:
        return st.tuples(*(_value(arg, numbers) for arg in args))
    types = [arg for arg in args if arg is not type(None)]
    return st.one_of(*(_value(arg, numbers) for arg in types)) if types else st.from_type(hint)


# A field that has its default is left out, and -0.0 equals 0.0: adding 0.0 makes it that.
@given(_value(Outcome, st.floats().map(lambda us: us + 0.0) | st.sampled_from(NOT_FINITE)))
def test_every_outcome_comes_back_the_same_from_its_row(outcome):
    saved = trial(0, outcome)
    row = SimpleNamespace(_mapping=trial_values(saved))
    assert str(trial_from_row(row)) == str(saved)  # NaN is not NaN


@pytest.mark.parametrize("number", NOT_FINITE)
def test_both_databases_keep_it_and_let_none_of_it_win(store, number):
    outcomes = [
        Estimated(estimate=estimate(number), program=""),
        WrongResult(reason="NaN", error=number, estimate=estimate(number)),
        TimedOut(reason="never", limit_s=number),
    ]
    saved = [trial(*published) for published in enumerate(outcomes)]
    assert all(save_trial(store, key(), published) for published in saved)
    store.replace_outcome(key(), saved[0].config, saved[0].outcome)
    assert str(store.trials(key())) == str(saved)
    (searched,) = store.history()
    assert (searched.best_us, searched.default_us) == (None, None)
