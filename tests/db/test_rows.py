"""Whatever a trial holds comes back equal, and digests see names and values only."""

from dataclasses import replace
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.codec import to_data
from autotune.domain.outcome import (
    CompileFailed,
    Crashed,
    Estimate,
    Estimated,
    OutOfVmem,
    WrongResult,
)
from autotune.domain.problem import Config, Problem
from autotune_db.rows import key_identity, key_values, trial_from_row, trial_values
from autotune_db.tables import digest
from tests.samples.records import key, trial

text = st.text(st.characters(codec=None))
finite = st.floats(allow_nan=False, allow_infinity=False)
values = st.one_of(st.integers(), st.booleans(), text)
names = st.lists(text, unique=True, max_size=5)
configs = st.builds(
    Config,
    axes=names.flatmap(lambda drawn: st.tuples(*(st.tuples(st.just(n), values) for n in drawn))),
    grid_order=names.map(tuple),
    dimension_semantics=st.lists(text, max_size=3).map(tuple),
    vmem_limit_bytes=st.none() | st.integers(),
)
estimates = st.builds(
    Estimate,
    time_us=finite,
    compute_us=finite,
    memory_us=finite,
    overhead_us=finite,
    fill_us=finite,
    notes=st.lists(text).map(tuple),
)
outcomes = st.one_of(
    st.builds(Estimated, estimate=estimates, program=text),
    st.builds(
        WrongResult,
        estimate=st.none() | estimates,
        reason=text,
        check=text,
        where=text,
        error=st.none() | st.floats(0, 1e9),
    ),
    st.builds(CompileFailed, reason=text, message=text),
    st.builds(OutOfVmem, reason=text),
    st.builds(Crashed, reason=text, log_tail=text),
)


@given(configs, outcomes)
def test_round_trip(config: Config, outcome: Estimated) -> None:
    saved = replace(trial(), config=config, outcome=outcome)
    values = trial_values(saved)
    assert trial_from_row(SimpleNamespace(_mapping=values)) == saved
    assert all(v.isascii() and "\0" not in v for v in values.values() if isinstance(v, str))


@given(configs, st.randoms(use_true_random=False))
def test_digest_ignores_the_order_of_axes(config: Config, chance: object) -> None:
    axes = list(config.axes)
    chance.shuffle(axes)  # type: ignore[attr-defined]
    turned = config.replace(axes=tuple(axes))
    assert digest(to_data(turned)) == digest(to_data(config))


@given(configs, configs)
def test_digest_tells_configs_apart(first: Config, other: Config) -> None:
    same = digest(to_data(first)) == digest(to_data(other))
    typed = [
        {name: (type(value), value) for name, value in config.axes} for config in (first, other)
    ]
    rest = [replace(config, axes=()) for config in (first, other)]
    assert same == (typed[0] == typed[1] and rest[0] == rest[1])


def test_the_digest_never_changes() -> None:
    """A database outlives the program that wrote it."""
    assert trial_values(trial())["config_digest"] == "78567043ed81a863376a528bb5f86c7f"
    assert key_identity(key())["problem_digest"] == "7f209223c9bea9dde4e44f6cd5a4ab6d"


def test_the_text_of_a_problem_keeps_its_order() -> None:
    problem = key().problem
    turned = Problem(dims=problem.dims[::-1], dtype=problem.dtype, options=problem.options[::-1])
    first, second = key_values(key()), key_values(replace(key(), problem=turned))
    assert first["problem_digest"] == second["problem_digest"]
    assert first["problem"] != second["problem"]
