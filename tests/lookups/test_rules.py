"""Blocks for shapes that nobody tuned: made from what was compiled, safe by arithmetic."""

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import ceil
from typing import Any

import pytest

from autotune.domain.codec import from_data, to_data
from autotune.domain.config import Config
from autotune.domain.key import Key
from autotune.domain.outcome import Estimate
from autotune.domain.record import Record
from autotune.domain.rule import CostTerm, ShapeRule
from autotune.domain.snapshot import Change
from autotune.lookups import rules
from autotune.lookups.bundle import bundle_from_bytes, bundle_to_bytes, new_bundle
from autotune.lookups.matching import DEFAULT, EXACT, NEAREST, RULE, TOOLCHAIN, Index, ruled_config
from autotune.tables.rule_source import rule_source
from autotune.tables.shape_rule import Known, LeftOut, judged, make_rule
from autotune.wording import match as words
from tests.samples.matching import SPEC, older, question, record

BLOCKS = (128, 256, 512)
LENGTHS = (300, 512, 640, 1024, 1500, 2048, 3072, 4096, 5000)


def estimated(m: int, block: int) -> Estimate:
    """A step costs 1 us and 0.01 us a row."""
    time_us = ceil(m / block) * (1 + 0.01 * block)
    return replace(
        record().estimate, time_us=time_us, vmem_used_bytes=block, vmem_allowed_bytes=600
    )


def config(block: int) -> Config:
    return replace(record().config, axes=(("bm", block), ("unroll", True)))


@pytest.fixture(scope="module")
def known() -> Known:
    found: dict[Key, list[tuple[Config, Estimate]]] = {}
    for m, k in product(LENGTHS, (128, 256)):
        blocks = [b for b in BLOCKS if b < m] + [m] * (m in (300, 512))
        found[question(m, k)] = [(config(b), estimated(m, b)) for b in dict.fromkeys(blocks)]
    return found


@pytest.fixture(scope="module")
def rule(known: Known) -> ShapeRule:
    made = make_rule(known, SPEC.cuts)
    assert made is not None
    return replace(made, problems=9, median_regret=0.01, worst_regret=0.05, default_regret=0.4)


def shapes(count: int) -> Iterator[dict[str, int]]:
    draw = random.Random(0)
    for _ in range(count):
        yield {"m": draw.randint(300, 5000), "k": draw.choice((128, 256))}


def test_hundreds_of_shapes_get_what_nothing_larger_or_uncut_was_compiled_than(
    known: Known, rule: ShapeRule
) -> None:
    answered = 0
    for dims in shapes(500):
        found = rules.chosen(rule, dims)
        if found is None:
            continue
        answered += 1
        block, m = found[0]["bm"], dims["m"]
        was_cut = any(c["bm"] == block < key.problem["m"] for key, p in known.items() for c, _ in p)
        assert block == m or (block < m and was_cut)
        assert any(
            c["bm"] >= block and (block == m or c["bm"] < key.problem["m"])
            for key, pairs in known.items()
            for c, _ in pairs
        )
    assert answered > 450


@pytest.mark.parametrize(("m", "best"), [(2560, 512), (1152, 256), (1280, 256)])
def test_the_steps_that_cost_least_are_chosen(rule: ShapeRule, m: int, best: int) -> None:
    found = rules.chosen(rule, {"m": m, "k": 128})
    assert found is not None and found[0] == {"bm": best}


@pytest.mark.parametrize("dims", [{"m": 299, "k": 128}, {"m": 5001, "k": 128}, {"m": 512, "k": 1}])
def test_nothing_is_said_outside_of_what_was_seen(rule: ShapeRule, dims: dict[str, int]) -> None:
    assert rules.chosen(rule, dims) is None
    assert rules.chosen(rule, {**dims, "n": 128}) is None


def test_vmem_that_grows_with_a_dimension_must_still_be_allowed(known: Known) -> None:
    made = make_rule(
        {k: [(c, replace(e, vmem_used_bytes=599)) for c, e in p] for k, p in known.items()},
        SPEC.cuts,
        ("m",),
    )
    assert made is not None
    longest = {"m": 4096, "k": 128}
    assert rules.proof(made, longest, {"bm": 128}) is not None
    short = tuple(one for one in made.compiled if dict(one.dims)["m"] < 4096)
    assert rules.proof(replace(made, compiled=short), longest, {"bm": 128}) is None


def test_blocks_that_always_divided_divide_again() -> None:
    known = {
        question(m): [(config(block), estimated(m, block)) for block in (128, 256)]
        for m in range(512, 512 * 10, 512)
    }
    made = make_rule(known, SPEC.cuts)
    assert made is not None and ("bm", "m") in made.divides
    assert rules.chosen(made, {"m": 1000, "k": 128}) is None
    assert rules.chosen(made, {"m": 1152, "k": 128}) is not None


def test_too_few_problems_make_no_rule(known: Known) -> None:
    assert make_rule(dict(list(known.items())[:7]), SPEC.cuts) is None


def left_out(rule: float, nearest: float, default: float) -> list[LeftOut]:
    return [
        LeftOut(key=question(), rule=rule, nearest=nearest, default=default, is_answered=True)
    ] * 8


def test_a_rule_is_offered_only_where_it_beats_both(rule: ShapeRule) -> None:
    assert judged(rule, left_out(0.1, 0.05, 0.5)) == words.BEATS_NOTHING
    assert judged(rule, left_out(0.1, 0.5, 0.05)) == words.BEATS_NOTHING
    better = judged(rule, left_out(0.1, 0.2, 0.3))
    assert isinstance(better, ShapeRule)
    assert (better.left_out, better.problems, better.worst_regret) == (8, 8, 0.1)
    assert "answered 7 of 7" in str(judged(rule, left_out(0.1, 0.2, 0.3)[:7]))


def test_one_problem_left_out_that_is_too_slow_is_one_too_many(rule: ShapeRule) -> None:
    slow = replace(left_out(0.101, 0.2, 0.3)[0], key=question(640))
    why = judged(rule, [*left_out(0.0, 0.2, 0.3), slow])
    assert isinstance(why, str) and "m=640" in why and "10.1%" in why
    unanswered = judged(rule, [*left_out(0.0, 0.2, 0.3), replace(slow, is_answered=False)])
    assert isinstance(unanswered, ShapeRule)
    assert (unanswered.left_out, unanswered.problems) == (9, 8)


def test_nothing_is_answered_where_only_slow_blocks_are_shown(rule: ShapeRule) -> None:
    dims = {"m": 2560, "k": 128}
    assert rules.chosen(rule, dims) is not None
    small = tuple(replace(one, config=config(128)) for one in rule.compiled)
    assert rules.proof(replace(rule, compiled=small), dims, {"bm": 128}) is not None
    assert rules.chosen(replace(rule, compiled=small), dims) is None


def test_a_block_that_hangs_over_costs_what_it_did() -> None:
    cost = CostTerm(us=2.0, of=("bm",), each_step=True, dim="m", axis="bm")
    assert rules.term_us(cost, {"m": 300, "bm": 128}, 3) == 768
    assert rules.term_us(cost, {"m": 384, "bm": 128}, 3) == 0


@pytest.fixture
def carrier(rule: ShapeRule) -> Record:
    return replace(record(question(1024), 128, used=10), rule=rule)


def test_a_rule_answers_between_another_toolchain_and_the_nearest(carrier: Record) -> None:
    there = Index([carrier, older(record(question(2048)), "0.9.0")], [SPEC])
    asked = [question(1024), question(2048), question(2560), question(2560, causal=True)]
    assert [there.match(one).kind for one in asked] == [EXACT, TOOLCHAIN, RULE, DEFAULT]
    found = there.match(question(2560))
    assert found.config == ruled_config(carrier.rule, question(2560).problem)  # type: ignore[arg-type]
    assert found.expected_regret == 0.01 and "1.0%" in found.why and "5.0%" in found.why
    assert there.match(question(2560), (EXACT, NEAREST)).kind == NEAREST
    assert there.match(question(10240)).kind == NEAREST


def test_a_rule_goes_with_the_record_that_carries_it(carrier: Record) -> None:
    there = Index([carrier], [SPEC])
    again = there.changed(Change(records=[replace(carrier, rule=None)]), [])
    assert again.match(question(2560)).kind == NEAREST
    assert again.changed(Change(records=[carrier]), []).match(question(2560)).kind == RULE
    gone = there.changed(Change(removed=[carrier.key]), [])
    assert gone.match(question(2560)).kind == DEFAULT
    assert there.match(question(2560)).kind == RULE


def test_the_newest_rule_answers(carrier: Record, rule: ShapeRule) -> None:
    newer = replace(rule, made_at=rule.made_at.replace(year=2100), median_regret=0.02)
    other = replace(record(question(2048)), rule=newer)
    for both in ([carrier, other], [other, carrier]):
        assert Index(both, [SPEC]).match(question(2560)).expected_regret == 0.02


def test_it_comes_back_as_it_was(carrier: Record) -> None:
    assert from_data(Record, to_data(carrier)) == carrier
    (same,) = bundle_from_bytes(bundle_to_bytes(new_bundle([carrier]))).records
    assert same.rule == carrier.rule


HOSTILE = 'm"""\'\\\n);raise SystemExit(7)#{0}\u2028'


def test_text_of_others_does_not_become_code(carrier: Record, rule: ShapeRule) -> None:
    """A kernel's names and options are anything: also what ends a docstring."""
    named = replace(
        rule,
        least=((HOSTILE, 1), *rule.least[1:]),
        most=((HOSTILE, 9), *rule.most[1:]),
        axes=(replace(rule.axes[0], name=HOSTILE, dim=HOSTILE),),
        grows=(HOSTILE,),
    )
    key = replace(carrier.key, kernel=HOSTILE, fingerprint='"""\nraise SystemExit(8)\n"""')
    problem = replace(key.problem, options=((HOSTILE, HOSTILE),))
    written = replace(carrier, key=replace(key, problem=problem), rule=named)
    usual: dict[str, Any] = {}
    exec(compile(rule_source([carrier]), "rule.py", "exec"), usual)
    module: dict[str, Any] = {}
    exec(compile(rule_source([written]), "rule.py", "exec"), module)
    assert module.keys() == usual.keys()
    assert module["RULES"][0].axes[0].name == HOSTILE
    assert "raise SystemExit(8)" in module["__doc__"]


def test_the_written_function_says_what_is_served(carrier: Record, rule: ShapeRule) -> None:
    source, module = rule_source([carrier]), {}
    exec(compile(source, "rule.py", "exec"), module)
    assert "import autotune" not in source and "5.0%" in module["__doc__"]
    for dims in (*shapes(100), {"m": 1, "k": 1}):
        found = rules.chosen(rule, dims)
        expected = found and {**dict(found[1].config.axes), **found[0]}
        assert module["blocks"](**dims) == expected
