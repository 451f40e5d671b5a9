"""What gets published: only what is right, and only what beats the default."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.evidence import FailedCheck, Verdict
from autotune.domain.key import KernelRef, KernelSpec, Toolchain
from autotune.domain.outcome import CompileFailed, Estimated, Outcome, WrongResult
from autotune.domain.problem import ProblemSpec, make_config
from autotune.domain.record import CheckVerdict, Decision, GateState, Record, RecordCheck
from autotune.estimating.roofline import Roofline
from autotune.estimating.space import Candidate, Space
from autotune.publishing.estimated_ties import by_rule
from autotune.publishing.publish import finalists, publish, same_verdict
from autotune.searching.subject import SearchResult, Subject
from autotune.wording.publication import TIE_RULE, publication_reason, record_verification
from tests.fakes.compiler import FakeCompilers
from tests.samples import records
from tests.samples.records import estimate
from tests.samples.traces import V5E, trace

CHIP = replace(V5E, hbm_bytes_per_s=8e11, bf16_ops_per_s=2e14)
SPEC = KernelSpec(
    name="k",
    fingerprint="f",
    axes=("b",),
    grid=(),
    problems=ProblemSpec(dims=("n",), dtypes=("bfloat16",)),
)
SUBJECT = Subject(
    ref=KernelRef(path="k.py", attribute="K"),
    spec=SPEC,
    problem=SPEC.problems.parse("8"),
    chip=CHIP,
    toolchain=Toolchain(jax="1", jaxlib="1", libtpu="1"),
)
RESOLUTION = 0.03


def estimated(time_us, *, vmem=1, resolution=RESOLUTION):
    found = estimate(time_us, vmem_used_bytes=vmem, resolution=resolution)
    return Estimated(estimate=found, program=str(time_us))


def trial(number, outcome):
    config = make_config({"b": number})
    return replace(records.trial(number, outcome), config=config, seconds=0.0)


def gate(verdicts):
    """Answers by the value of axis b; what is not named is right."""

    def verified(config):
        ok = verdicts.get(config["b"], True)
        wrong = {"check": FailedCheck.VALUES, "error": 33.0, "where": "output 0 at (1,)"}
        return Verdict(ok=ok, reason="because", **(wrong if ok is False else {}))

    return FakeCompilers(verified=verified)


def verified_blocks(compilers):
    """The values of axis b that were verified, in turn."""
    return [config["b"] for config in compilers.verified_configs]


class FakeStore:
    def __init__(self, known=()):
        self.known = known
        self.saved: list[Record] = []
        self.wrong: dict[int, Outcome] = {}

    def records(self, kernel=None, chip=None):
        return self.known

    def record(self, key):
        return next((known for known in self.known if known.key == key), None)

    def save_record(self, record):
        self.saved.append(record)

    def replace_outcome(self, key, config, outcome):
        self.wrong[int(config["b"])] = outcome


def run(outcomes, verdicts=None, known=(), seconds=0.0, **options):
    trials = [replace(trial(n, outcome), seconds=seconds) for n, outcome in enumerate(outcomes)]
    line = Roofline(compute_us=1, memory_us=1, overhead_us=0, fill_us=0, cores=1)
    space = Space(
        candidates=[Candidate(config=trials[0].config, trace=trace(io_bytes=800), roofline=line)],
        default=trials[0].config,
        default_verdict=None,
    )
    result = SearchResult(
        subject=SUBJECT, space=space, trials=trials, reused=0, stopped_by="trials", seconds=0.0
    )
    compilers, store = gate(verdicts or {}), FakeStore(known)
    any_store = store
    return publish(compilers, any_store, result, **options), store, compilers


def test_the_fastest_right_one_wins():
    published, store, compiler = run([estimated(100), estimated(50), estimated(40)])
    assert published.winner is not None and published.winner.number == 2
    assert store.saved[0].verified and not store.saved[0].is_default
    assert verified_blocks(compiler) == [2]
    assert publication_reason(published) == "estimated 2.50 times as fast as the default"


@pytest.mark.parametrize(("seconds", "budget_s"), [(0.1, 15.0), (40.0, 80.0)])
def test_a_verification_may_take_what_its_search_took(seconds, budget_s):
    asked = run([estimated(100), estimated(50)], seconds=seconds)[2].budgets
    assert asked == [budget_s]


def test_what_won_before_is_not_verified_again():
    times = [estimated(100), estimated(50), estimated(40)]
    first = run(times)[1].saved[0]
    published, store, compiler = run(times, known=[first])
    assert verified_blocks(compiler) == []
    assert store.saved == [] and published.record == first
    check = RecordCheck(
        toolchain=SUBJECT.toolchain, verdict=CheckVerdict.FASTER, checked_at=records.NOON
    )
    rule: Any = "of blocks"
    for known in (first.with_check(check), replace(first, rule=rule)):
        assert run(times, known=[known])[1].saved == []
    pushed = replace(first, pushed_by="somebody")
    unverified = replace(first, verified=False)
    other = replace(first, key=replace(first.key, fingerprint="another"))
    for record in (pushed, unverified, other):
        assert verified_blocks(run(times, known=[record])[2]) == [2]
    assert verified_blocks(run([*times, estimated(30)], known=[first])[2]) == [3]


def test_a_wrong_one_is_marked_and_the_next_is_tried():
    published, store, _ = run([estimated(100), estimated(50), estimated(40)], {2: False})
    assert published.winner is not None and published.winner.number == 1
    assert store.wrong == {
        2: WrongResult(
            reason="because",
            estimate=estimated(40).estimate,
            check="values",
            error=33.0,
            where="output 0 at (1,)",
        )
    }
    assert published.wrong[0][0].number == 2


def test_a_wrong_default_is_not_published_either():
    published, store, _ = run([estimated(100), estimated(50)], {0: False, 1: False})
    assert published.record is None and store.saved == []
    assert list(store.wrong) == [1, 0]


@pytest.mark.parametrize("time_us", [100.0, 98.0, 150.0])
def test_within_the_margin_the_default_is_the_record(time_us):
    published, store, _ = run([estimated(100), estimated(time_us)])
    assert store.saved[0].is_default
    assert "nothing was estimated to be faster than the default" in publication_reason(published)


def test_what_cannot_be_verified_is_passed_over():
    published, store, compiler = run(
        [estimated(100), estimated(50), estimated(40), estimated(45)], {2: None, 3: False}
    )
    assert verified_blocks(compiler) == [2, 3, 1]
    assert published.winner is not None and published.winner.number == 1
    assert store.saved[0].verified and list(store.wrong) == [3]
    assert [t.number for t, _ in published.unverified] == [2]
    assert [t.number for t in published.ties] == [1]


def test_nothing_is_published_where_nothing_can_be_verified():
    published, store, _ = run([estimated(100), estimated(50)], {0: None, 1: None})
    assert published.record is None and store.saved == []
    assert [verdict.reason for _, verdict in published.unverified] == ["because"] * 2
    assert publication_reason(published).endswith(": because")


def test_so_many_are_tried_and_no_more():
    """Each costs many seconds; the default comes after them."""
    outcomes = [estimated(100), *(estimated(50 - number) for number in range(20))]
    published, _, compiler = run(outcomes, dict.fromkeys(range(21), None))
    assert published.record is None
    assert len(verified_blocks(compiler)) == 8 + 1 and verified_blocks(compiler)[-1] == 0


def test_what_cannot_be_verified_is_published_only_on_request_and_labelled():
    _, store, _ = run([estimated(100), estimated(50)], {1: None}, allow_unverified=True)
    assert store.saved[0].verified is False
    assert record_verification(store.saved[0]) == "not verified: because"


def test_without_a_default_that_compiles_the_best_is_published_with_the_reason():
    published, store, _ = run([CompileFailed(reason="no"), estimated(50)])
    assert store.saved[0].default.time_us is None
    assert published.record.default.failure == CompileFailed(reason="no")


def test_the_baseline_is_a_lower_bound_of_operations_and_arguments():
    published, _, _ = run([estimated(100)])
    # 2e8 operations at 2e14/s are 1 us; 800 bytes at 8e11/s are 0.001 us; XLA's own 1e9 bytes
    # would be 1250 us and are no bound.
    assert published.baseline.time_us == pytest.approx(1.0)


def test_among_ties_the_rule_decides_and_the_reason_says_so():
    """40 and 41 are within 3 % of each other, 43 is not; the second needs less VMEM."""
    outcomes = [estimated(100), estimated(40, vmem=9), estimated(41, vmem=5), estimated(43)]
    published, _, _ = run(outcomes)
    assert published.winner is not None and published.winner.number == 2
    assert [t.number for t in published.ties] == [1, 2]
    assert published.record is not None and published.record.decision == Decision(tied=2)
    assert f"chosen by {TIE_RULE}, among 2" in publication_reason(published)
    published, _, compiler = run(outcomes, {2: False, 1: False})
    assert verified_blocks(compiler) == [2, 1, 3]  # the ties by rule, then by time


def test_a_verdict_is_that_of_its_program():
    same = [replace(estimated(40), program="one"), replace(estimated(40, vmem=2), program="one")]
    right = [replace(estimated(40, vmem=9), program="two")] * 2
    published, store, compiler = run([estimated(100), *same, *right], {1: False})
    assert verified_blocks(compiler) == [1, 4]
    assert [t.number for t in published.ties] == [3, 4]
    refused, verified = [GateState.REFUSED] * 2, [GateState.VERIFIED] * 2
    assert [published.states.get(n) for n in range(5)] == [None, *refused, *verified]
    assert {n: type(outcome) for n, outcome in store.wrong.items()} == {
        1: WrongResult,
        2: WrongResult,
    }


def test_what_races_in_parallel_may_be_right_in_order():
    outcome = replace(estimated(40), program="one")
    parallel = trial(1, outcome)
    config = parallel.config.replace(dimension_semantics=("parallel",))
    parallel = replace(parallel, config=config)
    in_order = trial(2, outcome)
    race, wrong = (Verdict(ok=False, check=c) for c in (FailedCheck.RACE, FailedCheck.VALUES))
    for verdict, same in ((race, [1]), (wrong, [1, 2]), (Verdict(ok=True), [1])):
        shared = same_verdict(parallel, verdict, [parallel, in_order])
        assert [t.number for t in shared] == same


def test_among_ties_the_certain_one_goes_before_the_small_one():
    """Vague: more than twice the narrowest error bar. Those that are alike are told by VMEM."""

    def of(number, error, vmem):
        found = estimated(40, vmem=vmem)
        return trial(number, replace(found, estimate=replace(found.estimate, error=error)))

    vague, unknown = of(1, 0.41, vmem=1), of(2, None, vmem=2)
    certain, nearly = of(3, 0.07, vmem=9), of(4, 0.13, vmem=5)
    assert by_rule([vague, unknown, certain, nearly]) == [nearly, certain, vague, unknown]


@given(st.lists(st.floats(1, 1000), min_size=1, max_size=12), st.randoms())
def test_finalists_beat_the_default_beyond_doubt(times, rng):
    trials = [trial(n, estimated(t, vmem=rng.randrange(5))) for n, t in enumerate(times)]
    found = finalists(trials, trials[0])
    assert found[-1].number == 0
    better = sorted(t for t in times[1:] if t < times[0] * (1 - RESOLUTION))
    assert len(found) == min(8, len(set(better))) + 1
    assert all(times[t.number] in better for t in found[:-1])
    if better:
        assert times[found[0].number] * (1 - RESOLUTION) <= better[0]
