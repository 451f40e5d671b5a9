"""Two keys are one for all who tell keys apart, or for none of them."""

import json
from copy import deepcopy
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.answering.bundle import bundle_from_bytes, bundle_to_bytes, new_bundle
from autotune.answering.matching import Index
from autotune.domain.codec import from_data, to_data
from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Chip, Key, Toolchain, identity_of
from autotune.domain.problem import Problem
from autotune.domain.record import Change
from autotune_db.rows import key_identity
from autotune_service.api.lookup import LookupStruct, _published, _request
from autotune_service.api.questions import QuestionStruct, key_of, known_identity
from autotune_service.snapshot_cache import EMPTY
from tests.samples.matching import SPEC, question, record

ALIKE = st.sampled_from([0, 1, 2, True, False, "0", "1", "true", "True", "", "False"])
NAMES = st.lists(st.sampled_from(["a", "b", "c"]), unique=True, min_size=1, max_size=3)


def _named(values):
    return NAMES.flatmap(lambda names: st.tuples(*(st.tuples(st.just(n), values) for n in names)))


VERSION = st.sampled_from(["1", "1.0"])
KEYS = st.builds(
    Key,
    kernel=st.sampled_from(["mm", "MM"]),
    fingerprint=st.sampled_from(["f", "1"]),
    problem=st.builds(
        Problem,
        dims=_named(st.integers(1, 2)),
        dtype=st.sampled_from(["int8", "int4"]),
        options=_named(ALIKE),
    ),
    chip=st.sampled_from([Chip.V5E, Chip.V5P]),
    toolchain=st.builds(Toolchain, jax=VERSION, jaxlib=VERSION, libtpu=VERSION),
)


@st.composite
def pairs(draw):
    """Keys that differ in little, or in the order of names only."""
    one, other = draw(KEYS), draw(KEYS)
    problem = one.problem
    near = Problem(
        dims=tuple(draw(st.permutations(problem.dims))),
        dtype=problem.dtype,
        options=tuple(
            (name, draw(ALIKE | st.just(value)))
            for name, value in draw(st.permutations(problem.options))
        ),
    )
    return one, draw(st.sampled_from([other, replace(one, problem=near)]))


@given(pairs())
def test_all_agree_which_keys_are_one(pair):
    one, other = pair
    content = bundle_to_bytes(new_bundle([record(one)]))
    data = to_data(other)
    question = {name: data[name] for name in ("kernel", "fingerprint", "problem")}
    snapshot = EMPTY.changed(1, Change(records=[record(one)]), [])
    asked = msgspec.convert({**question, "toolchain": data["toolchain"]}, QuestionStruct)
    found = known_identity(asked, other.chip.value, None, snapshot)
    assert found == identity_of(other)
    same = found == identity_of(one)
    assert {
        "service": snapshot.exact.get(found) is not None,
        "database": key_identity(one) == key_identity(other),
        "bundle": Index(bundle_from_bytes(content).records).exact(other) is not None,
        "text": json.dumps(to_data(one), sort_keys=True)
        == json.dumps(to_data(other), sort_keys=True),
    } == dict.fromkeys(("service", "database", "bundle", "text"), same)


KEY = replace(question(), problem=replace(question().problem, dims=(("m", 1), ("k", 2))))
NEAR = [True, 1, 1.0, "1", "v5e\n", "\x01", "\x7f", " v5e", "", None, [], {}, 2**70, "x" * 201]


@pytest.mark.parametrize("value", NEAR, ids=repr)
@pytest.mark.parametrize("part", ["call", "toolchain", "question", "problem", "dims", "options"])
def test_what_is_answered_by_its_types_alone_is_right(part, value):
    """It means the same where all of it is checked, what no question uses too."""
    names = {
        "call": ["chip", "toolchain", "accept", "snapshot", "unknown"],
        "toolchain": ["jax", "jaxlib", "libtpu", "unknown"],
        "question": [*to_data(KEY), "unknown"],
    }.get(part, ["m", "k", "causal", "dims", "dtype", "options", "unknown"])
    for name, is_used in product(names, [True, False]):
        asked = to_data(KEY)
        shared = {one: asked.pop(one) if is_used else asked[one] for one in ("chip", "toolchain")}
        call = {"questions": [asked], **deepcopy(shared)}
        parts = {"call": call, "toolchain": call["toolchain"], "question": asked}
        problem = asked["problem"]
        (parts.get(part) or {**problem, "problem": problem}[part])[name] = value
        _check_alike(call)


def _check_alike(call):
    snapshot = EMPTY.changed(1, Change(records=[record(KEY)]), [])
    snapshots = SimpleNamespace(current=snapshot, in_memory={None: snapshot, 1: snapshot}.get)
    try:
        typed = msgspec.json.decode(json.dumps(call), type=LookupStruct)
    except msgspec.ValidationError:
        return
    for place, answer in enumerate(_published(typed, snapshots)[1]):
        if answer is not None:
            checked = _request.validate_json(json.dumps(call))
            one = checked["questions"][place]
            meant = key_of(one, checked.get("chip"), checked.get("toolchain"), snapshot)
            assert identity_of(meant) == identity_of(KEY)


@pytest.mark.parametrize("value", [1, 1.0, True, "true", "TRUE"])
def test_in_the_spelling_of_its_kernel_an_option_has_one_value(value):
    problem = SPEC.problems.problem({"k": 128, "m": 1024}, "bf16", {"causal": value})
    key = question(1024, causal=True)
    assert identity_of(replace(key, problem=problem)) == identity_of(key)
    assert str(problem) == str(key.problem)


@pytest.mark.parametrize("size", [1.0, True, "1", None])
def test_a_dimension_is_a_whole_number(size):
    with pytest.raises(ValueError, match="dimension m"):
        Problem(dims=(("m", size),), dtype="int8")
    with pytest.raises(InvalidInputError, match="dimension m"):
        SPEC.problems.problem({"m": size, "k": 1}, None, {})
    with pytest.raises(ValueError, match="dimension m"):
        from_data(Problem, {"dims": {"m": size}, "dtype": "int8", "options": {}})
