"""Blocks for shapes that nobody tuned: made from what was compiled, safe by arithmetic."""

import random
from dataclasses import replace
from itertools import product
from math import ceil

import pytest

from autotune.answering import rules
from autotune.answering.bundle import bundle_from_bytes, bundle_to_bytes, new_bundle
from autotune.answering.matching import DEFAULT, EXACT, NEAREST, RULE, TOOLCHAIN, Index
from autotune.answering.rule_answers import ruled_config
from autotune.domain.codec import from_data, to_data
from autotune.domain.key import Chip
from autotune.domain.outcome import Estimated
from autotune.domain.record import Change, Record, Trial
from autotune.domain.rule import (
    CostTerm,
    HbmTerm,
    NoRule,
    RuleRefusal,
    SeenRange,
    ShapeRule,
    VmemTerm,
)
from autotune.estimating.simulator import MODEL
from autotune.tables.rule_costs import term_us
from autotune.tables.rule_fit import known_of, make_rule, undivided
from autotune.tables.rule_maker import LeftOut, best_form, judged
from autotune.wording.match import by_rule, why
from tests.samples.matching import NOON, SPEC, older, question, record
from tests.samples.rule_costs import call_us

BLOCKS = (128, 256, 512)
LENGTHS = (300, 512, 640, 1024, 1500, 2048, 3072, 4096, 5000)


def estimated(m, block):
    """A step costs 1 us and 0.01 us a row."""
    time_us = ceil(m / block) * (1 + 0.01 * block)
    return replace(
        record().estimate,
        time_us=time_us,
        model=MODEL,
        vmem_used_bytes=block,
        vmem_allowed_bytes=600,
    )


def config(block):
    return replace(record().config, axes=(("bm", block), ("unroll", True)))


@pytest.fixture(scope="module")
def known():
    found = {}
    for m, k in product(LENGTHS, (128, 256)):
        blocks = [b for b in BLOCKS if b < m] + [m] * (m in (300, 512))
        found[question(m, k)] = [(config(b), estimated(m, b)) for b in dict.fromkeys(blocks)]
    return found


@pytest.fixture(scope="module")
def rule(known):
    return made_by(make_rule, known)


def made_by(form, known):
    made = form(known, passed(known), SPEC.cuts)
    assert made is not None and made.costs
    return replace(made, problems=9, median_regret=0.01, worst_regret=0.05, default_regret=0.4)


def passed(known):
    return [(k, min(pairs, key=lambda pair: pair[1].time_us)[0]) for k, pairs in known.items()]


def shapes(count):
    draw = random.Random(0)
    for _ in range(count):
        yield {"m": draw.randint(300, 5000), "k": draw.choice((128, 256))}


def test_hundreds_of_shapes_get_what_nothing_larger_or_uncut_was_compiled_than(known, rule):
    answered = 0
    for dims in shapes(500):
        found = rules.Chooser(rule).choose(dims)
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
def test_the_steps_that_cost_least_are_chosen(rule, m, best):
    found = rules.Chooser(rule).choose({"m": m, "k": 128})
    assert found is not None and found[0] == {"bm": best}


@pytest.mark.parametrize("dims", [{"m": 299, "k": 128}, {"m": 5001, "k": 128}, {"m": 512, "k": 1}])
def test_nothing_is_said_outside_of_what_was_seen(rule, dims):
    assert rules.Chooser(rule).choose(dims) is None
    assert rules.Chooser(rule).choose({**dims, "n": 128}) is None


def test_vmem_that_grows_with_a_dimension_must_still_be_allowed(known):
    full = {k: [(c, replace(e, vmem_used_bytes=599)) for c, e in p] for k, p in known.items()}
    made = make_rule(full, passed(known), SPEC.cuts, ("m",))
    assert made is not None
    longest = {"m": 4096, "k": 128}
    assert rules.Chooser(made).choose(longest) is not None
    short = tuple(one for one in made.compiled if dict(one.dims)["m"] < 4096)
    assert rules.Chooser(replace(made, compiled=short)).choose(longest) is None


def test_it_divides_wherever_all_that_the_gate_passed_does(known):
    right = [(key, config(128)) for key in known if key.problem["m"] % 128 == 0]
    made = make_rule(known, right, SPEC.cuts)
    assert made is not None
    assert rules.Chooser(made).choose({"m": 1111, "k": 128}) is None
    assert rules.Chooser(made).choose({"m": 1152, "k": 128}) is not None
    assert make_rule(known, (), SPEC.cuts) is None


@pytest.mark.parametrize(
    ("chip", "semantics", "sizes"),
    [(Chip.V5E, "arbitrary", BLOCKS), (Chip.V4, "parallel", BLOCKS[2:])],
)
def test_semantics_are_weakened_where_they_are_the_same_program(known, chip, semantics, sizes):
    """The largest blocks alone are parallel, and pass most often."""
    some = {
        replace(key, chip=chip): [
            (c if c["bm"] == 512 else replace(c, dimension_semantics=("arbitrary",)), e)
            for c, e in pairs
        ]
        for key, pairs in known.items()
    }
    made = make_rule(some, passed(some), SPEC.cuts)
    assert made is not None and made.axes[0].sizes == sizes
    assert {one.config.dimension_semantics for one in made.compiled} == {(semantics,)}


def test_trials_of_another_model_teach_nothing():
    tried = [trial(0, model="an older one"), trial(1), replace(trial(2), pushed_by="x")]
    ((found, _),) = known_of([(question(), tried)])[question()]
    assert found == tried[1].config


def trial(number, model=MODEL):
    estimate = replace(record().estimate, model=model)
    outcome = Estimated(estimate=estimate, program="p")
    return Trial(
        number=number, config=config(8 << number), outcome=outcome, seconds=0.0, created_at=NOON
    )


def left_out(rule, nearest, default):
    one = LeftOut(
        key=question(), rule=rule, nearest=nearest, default=default, config=record().config
    )
    return [one] * 8


def test_a_rule_is_offered_only_where_it_beats_both(rule):
    for nearest, default in ((0.05, 0.5), (0.5, 0.05)):
        refused = judged(rule, left_out(0.1, nearest, default))
        assert isinstance(refused, NoRule) and refused.cause is RuleRefusal.BEATS_NOTHING
    better = judged(rule, left_out(0.1, 0.2, 0.3))
    assert isinstance(better, ShapeRule)
    assert (better.left_out, better.problems, better.worst_regret) == (8, 8, 0.1)
    few = judged(rule, left_out(0.1, 0.2, 0.3)[:5])
    assert isinstance(few, NoRule) and few.cause is RuleRefusal.FEW_ANSWERED
    assert (few.count, few.left_out) == (5, 5)


def test_the_form_is_one_that_may_be_published(rule):
    """Where the nearest record is better than any answer, a form that answers less loses less."""
    tree = replace(rule, runs=("k",))
    rest = left_out(0.015, 0.0, 0.5)[:5]
    few = [*left_out(0.0, 0.1, 0.5)[:5], *(replace(one, config=None) for one in rest)]
    many = [*left_out(0.015, 0.1, 0.5)[:5], *rest]
    for better, worse in ((rule, tree), (tree, rule)):
        for both in ([(worse, few), (better, many)], [(better, many), (worse, few)]):
            made, own = best_form(both)
            assert isinstance(made, ShapeRule) and (made.runs, own) == (better.runs, many)
    faster = left_out(0.0, 0.1, 0.5)
    assert best_form([(rule, many), (tree, faster)])[1] is faster


def test_one_problem_left_out_that_is_too_slow_is_one_too_many(rule):
    slow = replace(left_out(0.101, 0.2, 0.3)[0], key=question(640))
    refused = judged(rule, [*left_out(0.0, 0.2, 0.3), slow])
    assert isinstance(refused, NoRule) and refused.cause is RuleRefusal.TOO_SLOW
    assert (refused.problem, refused.worst_regret) == (slow.key.problem, 0.101)
    unanswered = judged(rule, [*left_out(0.0, 0.2, 0.3), replace(slow, config=None)])
    assert isinstance(unanswered, ShapeRule)
    assert (unanswered.left_out, unanswered.problems) == (9, 8)


def test_what_a_step_does_in_turns_takes_longer_the_shorter_they_are(known):
    turns = {
        key: [
            (replace(c, axes=(*c.axes, ("chunk", size))), replace(e, time_us=e.time_us + us))
            for c, e in pairs
            for size in (16, 32, 64)
            for us in (64 / size * dict(key.problem.dims)["m"] / 100,)
        ]
        for key, pairs in known.items()
    }
    made = make_rule(turns, passed(turns), SPEC.cuts)
    assert made is not None
    for dims in shapes(20):
        found = rules.Chooser(made).choose(dims)
        assert found is not None and found[0]["chunk"] == 64
        timed = {size: call_us(made, dims | found[0] | {"chunk": size}) for size in (16, 32, 64)}
        assert min(timed, key=lambda size: timed[size]) == 64


def test_a_block_that_hangs_over_costs_what_it_did(rule):
    cost = CostTerm(us=2.0, of=("bm",), each_step=True, dim="m", axis="bm")
    assert term_us(rule, cost, {"m": 300, "k": 1, "bm": 128}) == 768
    assert term_us(rule, cost, {"m": 384, "k": 1, "bm": 128}) == 0


@pytest.fixture
def carrier(rule):
    return carried(rule)


def carried(rule):
    return replace(record(question(1024), 128, used=10), rule=rule)


def test_a_rule_answers_between_another_toolchain_and_the_nearest(carrier, rule):
    there = Index([carrier, older(record(question(2048)), "0.9.0")], [SPEC])
    asked = [question(1024), question(2048), question(2560), question(2560, causal=True)]
    assert [there.match(one).kind for one in asked] == [EXACT, TOOLCHAIN, RULE, DEFAULT]
    found = there.match(question(2560))
    assert found.config == ruled_config(carrier.rule, question(2560).problem)
    assert found.expected_regret == 0.01 and by_rule(rule) in why(found, question(2560))
    assert there.match(question(2560), (EXACT, NEAREST)).kind == NEAREST
    assert there.match(question(10240)).kind == NEAREST


def test_a_rule_goes_with_the_record_that_carries_it(carrier):
    there = Index([carrier], [SPEC])
    again = there.changed(Change(records=[replace(carrier, rule=None)]), [])
    assert again.match(question(2560)).kind == NEAREST
    assert again.changed(Change(records=[carrier]), []).match(question(2560)).kind == RULE
    gone = there.changed(Change(removed=[carrier.key]), [])
    assert gone.match(question(2560)).kind == DEFAULT
    assert there.match(question(2560)).kind == RULE


def test_it_comes_back_as_it_was(rule):
    carrier = carried(rule)
    assert from_data(Record, to_data(carrier)) == carrier
    (same,) = bundle_from_bytes(bundle_to_bytes(new_bundle([carrier]))).records
    assert same.rule == carrier.rule


def test_a_rule_that_takes_too_long_to_ask_is_not_asked(carrier):
    rule = carrier.rule
    many = replace(rule.axes[0], sizes=tuple(range(1, 1000)))
    for large in (
        replace(rule, axes=(many,)),
        replace(rule, axes=(replace(many, sizes=(0,)),)),
        replace(rule, compiled=rule.compiled * 201),
        replace(rule, costs=rule.costs * 1000),
        replace(rule, vmem=(VmemTerm(bytes_each=1.0, of=("bm",)),) * 1000),
        replace(rule, seen=rule.seen * 1000),
        replace(rule, hbm=(HbmTerm(us=1.0, of=("m",)),) * 7),
        replace(rule, hbm=(HbmTerm(us=1.0, of=("nothing",)),)),
        replace(rule, hbm=(HbmTerm(us=1.0, of=("m",), again=("nothing",)),)),
        replace(rule, hbm=(HbmTerm(us=1.0, of=("m",), where=("m",)),)),
        replace(rule, seen=(SeenRange(uncut=(), least=(("nothing", 1),), most=()),)),
        replace(rule, divides=(("bm", "nothing"),)),
        replace(rule, grows=("nothing",)),
        replace(rule, diagonal=("bm",)),
        replace(rule, diagonal=("bm", "m")),
        replace(rule, costs=()),
    ):
        there = Index([replace(carrier, rule=large)], [SPEC])
        assert there.match(question(2560)).kind == NEAREST


def test_what_seems_to_fit_and_to_be_faster_is_not_passed_over(rule):
    """It is told apart, so that it can be compiled; what is too large is no reason for silence."""
    dims = {"m": 2560, "k": 128}
    shown = replace(rule, compiled=tuple(replace(c, config=config(256)) for c in rule.compiled))
    chooser = rules.Chooser(shown)
    assert chooser.choose(dims) is None
    better = chooser.unshown(dims)
    assert better is not None and better[0] == {"bm": 512}
    term = VmemTerm(bytes_each=601 / 512, of=("bm",))
    large = rules.Chooser(replace(shown, vmem=(term,)))
    found = large.choose(dims)
    assert found is not None and found[0] == {"bm": 256}
    assert large.unshown(dims) is None
    assert rules.Chooser(rule).unshown(dims) is None


def test_vmem_of_blocks_that_nobody_compiled_is_that_of_their_arrays(rule):
    for block in (256, 384):
        needed = sum(
            term.bytes_each * (block if term.of else 1) for term in rule.vmem if "k" not in term.of
        )
        assert needed == pytest.approx(block, rel=0.01)


@pytest.mark.parametrize(("m", "is_answered"), [(1024, True), (600, True), (500, False)])
def test_nothing_is_said_far_from_what_was_seen_with_the_same_of_what_nothing_cuts(
    known, m, is_answered
):
    some = {key: pairs for key, pairs in known.items() if key.problem["k"] == 128}
    some |= {key: p for key, p in known.items() if key.problem["m"] in (1024, 2048)}
    made = make_rule(some, passed(some), SPEC.cuts)
    assert made is not None
    assert (rules.Chooser(made).choose({"m": m, "k": 256}) is not None) == is_answered
    assert rules.Chooser(made).choose({"m": m, "k": 128}) is not None


def test_a_whole_that_is_no_longer_than_the_kernel_declares_may_be_better(known):
    """No block of 1500 was compiled, and 1000 is a multiple of nothing that was."""
    made = make_rule(known, passed(known), SPEC.cuts, (), {"bm": 2048})
    assert made is not None and made.axes[0].most == 2048
    for m in (1000, 1500):
        better = rules.Chooser(replace(made, vmem=())).unshown({"m": m, "k": 128})
        assert better is not None and better[0] == {"bm": m}
    assert rules.Chooser(replace(made, vmem=())).unshown({"m": 2560, "k": 128}) is None


def test_what_divides_by_chance_is_told_for_the_gate(known):
    always = [(k, c) for k, c in passed(known) if k.problem["m"] % c["bm"] == 0]
    told = undivided(known, always, SPEC.cuts)
    assert told and all(key.problem["m"] % c["bm"] for key, c in told)
    assert len({key for key, _ in told}) == len(told) == 2
    made = make_rule(known, always, SPEC.cuts)
    assert made is not None and ("bm", "m") in made.divides
    freed = make_rule(known, [*always, *told], SPEC.cuts)
    assert freed is not None and ("bm", "m") not in freed.divides


def seen_by(m, k, bm, bk):
    """Steps and columns of blocks along a causal mask, one after the other, and those of blocks
    of columns that are no whole tiles."""
    found = [
        min(bk, k - column)
        for row in range(0, m, bm)
        for column in range(0, k, bk)
        if column < row + bm + k - m
    ]
    return len(found), sum(found), sum(width for width in found if width % rules.TILE)


def causal_us(m, k, bm, bk, step_us=1, odd_us=0):
    """By steps that do anything; an element takes a nanosecond."""
    steps, columns, odd = seen_by(m, k, bm, bk)
    return step_us * steps + 1e-3 * bm * columns + odd_us * bm * odd


def causal_rule(lengths, widths, step_us=1, odd_us=0):
    """``widths``: of the blocks of columns."""
    known = {}
    for m, k in ((m, k) for m, k in product(lengths, repeat=2) if m <= k):
        known[question(m, k)] = [
            (
                replace(config(bm), axes=(("bm", bm), ("bk", bk))),
                replace(
                    estimated(m, bm),
                    time_us=causal_us(m, k, bm, bk, step_us, odd_us),
                    flops=4 * bm * seen_by(m, k, bm, bk)[1],
                ),
            )
            for bm, bk in product(BLOCKS, widths)
        ]
    made = make_rule(known, passed(known), (("bm", "m"), ("bk", "k")))
    assert made is not None
    return made


@pytest.fixture(scope="module")
def causal():
    made = causal_rule(LENGTHS[2:], BLOCKS)
    return replace(made, problems=9, median_regret=0.01, worst_regret=0.05, default_regret=0.4)


def test_steps_that_do_nothing_cost_nothing(causal):
    """Which ones do is seen by what the matrix unit does."""
    assert (causal.diagonal, causal.clips) == (("bm", "bk"), True)
    one = rules.Chooser(causal)
    for m, k in ((1100, 1100), (2048, 2304), (2000, 4900), (4096, 4096)):
        found = one.choose({"m": m, "k": k})
        times = {
            (bm, bk): call_us(causal, {"m": m, "k": k, "bm": bm, "bk": bk})
            for bm, bk in product(BLOCKS, repeat=2)
        }
        assert times[found[0]["bm"], found[0]["bk"]] == pytest.approx(min(times.values()))
        assert causal_us(m, k, **found[0]) <= 1.01 * min(causal_us(m, k, *own) for own in times)


def test_what_is_done_along_a_diagonal_is_counted_in_one_go(causal):
    draw = random.Random(0)
    for _ in range(500):
        m, k = draw.randint(1, 900), draw.randint(1, 900)
        bm, bk = draw.randint(1, m), draw.randint(1, k)
        steps, columns, odd = seen_by(m, k, bm, bk)
        blocks = ceil(m / bm) * ceil(k / bk)
        shares = rules.done_shares(causal, {"m": m, "k": k}, (bm, bk))
        if blocks == 1:
            elements = sum(max(0, row + 1 + k - m) for row in range(m))
            assert shares[1] == pytest.approx(elements / (m * k))
            continue
        assert shares == pytest.approx([n / blocks for n in (steps, columns / bk, odd / bk)])
        whole = rules.done_shares(replace(causal, clips=False), {"m": m, "k": k}, (bm, bk))
        assert whole[:2] == pytest.approx([steps / blocks] * 2)


@pytest.mark.parametrize(("odd_us", "is_answered"), [(5e-5, True), (5e-4, False)])
def test_columns_that_cost_much_for_being_odd_are_not_answered(odd_us, is_answered):
    """Blocks of columns that end in half a tile take longer, but fewer steps."""
    made = causal_rule((1536, 2304, 3072, 3840), (256, 384, 640), step_us=256, odd_us=odd_us)
    chooser, dims = rules.Chooser(made), {"m": 2304, "k": 3072}
    found = (chooser.choose if is_answered else chooser.unshown)(dims)
    assert found is not None and found[0] == {"bm": 512, "bk": 640}
    assert (chooser.choose(dims) is None) != is_answered
