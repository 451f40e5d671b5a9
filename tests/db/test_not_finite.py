"""An outcome is kept with whatever numbers it has: NaN and infinity are no JSON, and no reason to
lose a search."""

from dataclasses import fields, is_dataclass
from math import inf, nan
from types import SimpleNamespace
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.outcome import Estimated, Outcome, TimedOut, WrongResult
from autotune_db import SqlStore
from autotune_db.rows import trial_from_row, trial_values
from tests.samples.records import estimate, key, save_trial, trial

NOT_FINITE = (inf, -inf, nan)


def _value(hint: Any, numbers: st.SearchStrategy[float]) -> st.SearchStrategy[Any]:
    """Any value of a type, with such numbers wherever a float can be."""
    if hint is float:
        return numbers
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        parts = {field.name: _value(hints[field.name], numbers) for field in fields(hint)}
        return st.builds(hint, **parts)  # type: ignore[arg-type]
    args = get_args(hint)
    if get_origin(hint) is tuple and args[-1] is ...:
        return st.lists(_value(args[0], numbers), min_size=1, max_size=2).map(tuple)
    if get_origin(hint) is tuple:
        return st.tuples(*(_value(arg, numbers) for arg in args))
    types = [arg for arg in args if arg is not type(None)]
    return st.one_of(*(_value(arg, numbers) for arg in types)) if types else st.from_type(hint)


# A field that has its default is left out, and -0.0 equals 0.0: adding 0.0 makes it that.
@given(_value(Outcome, st.floats().map(lambda us: us + 0.0) | st.sampled_from(NOT_FINITE)))
def test_every_outcome_comes_back_the_same_from_its_row(outcome: Outcome) -> None:
    saved = trial(0, outcome)
    row = SimpleNamespace(_mapping=trial_values(saved))
    assert str(trial_from_row(row)) == str(saved)  # NaN is not NaN


@pytest.mark.parametrize("number", NOT_FINITE)
def test_both_databases_keep_it_and_let_none_of_it_win(store: SqlStore, number: float) -> None:
    outcomes: list[Outcome] = [
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
