"""What a rule knows of HBM: arrays that are read again, while the core works."""

from dataclasses import replace
from itertools import product
from math import ceil

import pytest

from autotune.answering import rules
from autotune.domain import explanation as parts
from autotune.domain.rule import CostTerm, HbmTerm
from autotune.estimating.simulator import MODEL
from autotune.tables.rule_fit import make_rule
from tests.samples.estimates import estimate
from tests.samples.matching import question, record
from tests.samples.rule_costs import call_us

BLOCKS = (128, 256, 512)
SIZES = (640, 1100, 2048, 3000, 4096)
LATENCY_US = 0.3
ROWS = HbmTerm(us=1e-3, of=("m",))
AGAIN = HbmTerm(us=3e-3, of=("k",), again=("bm",), where=("bk",))


def traffic_us(m, k, bm, bk):
    """The columns are read again for each block of rows, but where they are one block."""
    return 1e-3 * m + 3e-3 * k * (ceil(m / bm) if bk < k else 1)


def busy_us(m, k, bm, bk):
    """More the higher a block: what moves less is not what the core likes."""
    return ceil(m / bm) * ceil(k / bk) * (0.05 + 5e-6 * bm * bk + 1e-3 * bm)


def call(m, k, bm, bk):
    busy, moved = busy_us(m, k, bm, bk), traffic_us(m, k, bm, bk)
    latency = LATENCY_US * ceil(m / bm) * ceil(k / bk)
    return max(busy, moved, (busy + moved + latency) / 2) + 0.5


def made(moved=traffic_us, *, traffic=True):
    known = {}
    for m, k in product(SIZES, repeat=2):
        known[question(m, k)] = [
            (
                replace(record().config, axes=(("bm", bm), ("bk", bk))),
                estimate(
                    {parts.ISSUE: busy_us(m, k, bm, bk)},
                    time_us=call(m, k, bm, bk),
                    memory_us=moved(m, k, bm, bk),
                    model=MODEL,
                    flops=ceil(m / bm) * bm * ceil(k / bk) * bk,
                    vmem_used_bytes=bm * bk,
                    vmem_allowed_bytes=1 << 20,
                ),
            )
            for bm, bk in product((*BLOCKS, m), (*BLOCKS, k))
            if bm <= m and bk <= k
        ]
    passed = [(key, pairs[0][0]) for key, pairs in known.items()]
    found = make_rule(known, passed, (("bm", "m"), ("bk", "k")), traffic=traffic)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def rule():
    return made()


def test_arrays_that_are_read_again_are_told_by_the_traffic(rule):
    found = sorted(rule.hbm, key=lambda term: term.us)
    assert [replace(term, us=0.0) for term in found] == [
        replace(term, us=0.0) for term in (ROWS, AGAIN)
    ]
    assert [term.us for term in found] == pytest.approx([1e-3, 3e-3])
    assert rule.latency_us == pytest.approx(LATENCY_US, rel=0.2)


def worst(rule):
    """Times as long as the fastest blocks."""
    found = []
    for m, k in product((700, 1500, 2300, 4000), repeat=2):
        chosen = rules.Chooser(rule).choose({"m": m, "k": k})
        best = min(call(m, k, bm, bk) for bm, bk in product((*BLOCKS, m), (*BLOCKS, k)))
        found.append(call(m, k, **chosen[0]) / best)
    return max(found)


def test_what_moves_less_is_chosen_where_hbm_takes_longer(rule):
    without = made(traffic=False)
    assert without.hbm == () and worst(rule) < 1.01 < 1.1 < worst(without)


def test_traffic_that_no_arrays_explain_is_left_to_the_costs():
    """As where XLA puts some into VMEM ahead of the call."""
    ruled = made(lambda m, k, bm, bk: traffic_us(m, k, bm, bk) * (1 + (m + bk) % 3 / 30))
    assert ruled.hbm == () and ruled.latency_us == 0
    assert not any(term.waits for term in ruled.costs)
    unknown = made(lambda *_: 0.0)
    assert unknown.hbm == () and unknown.costs


WAITS = (
    CostTerm(us=2e-4, of=("bm",), each_step=True),
    CostTerm(us=0.01, of=("bk",), each_step=True, waits=True),
    CostTerm(us=0.02, of=("bm", "bk"), each_step=False, waits=True),
    CostTerm(us=1e-3, of=("bm",), each_step=True, tiles=True, waits=True),
    CostTerm(us=0.3, of=("bk",), each_step=False, each_block="bm", waits=True),
)


@pytest.mark.parametrize(
    ("core_us", "moved_us", "both_us"), [(9.0, 2.0, 9.0), (2.0, 9.0, 9.0), (5.0, 4.0, 6.0)]
)
def test_the_longer_of_core_and_hbm_is_waited_for(rule, core_us, moved_us, both_us):
    """Where they take about as long, the latencies of reads, 3 us of all steps, are not hidden."""
    some = replace(rule, latency_us=0.3)
    assert rules.together_us(some, core_us, moved_us, 10) == pytest.approx(both_us)
    assert rules.together_us(replace(some, latency_us=0.0), core_us, moved_us, 10) == max(
        core_us, moved_us
    )


@pytest.mark.parametrize("hbm", [(), (ROWS,), (ROWS, AGAIN)])
@pytest.mark.parametrize("us", [1e-3, 10.0])
def test_it_costs_what_was_fitted(rule, hbm, us):
    """Whichever of the core and HBM takes longer."""
    hbm = tuple(replace(term, us=us * term.us) for term in hbm)
    costs = WAITS if hbm else tuple(replace(term, waits=False) for term in WAITS)
    axes = tuple(replace(axis, sizes=BLOCKS) for axis in rule.axes)
    ruled = replace(rule, axes=axes, hbm=hbm, costs=costs)
    for m, k in product((700, 1500, 2300, 4000), repeat=2):
        found = rules.Chooser(ruled).choose({"m": m, "k": k})
        times = {
            (bm, bk): call_us(ruled, {"m": m, "k": k, "bm": bm, "bk": bk})
            for bm, bk in product((*BLOCKS, m), (*BLOCKS, k))
        }
        assert times[found[0]["bm"], found[0]["bk"]] == pytest.approx(min(times.values()))
