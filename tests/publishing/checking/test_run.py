"""Checks of records with a scripted compiler and a real database."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from autotune.domain.codec import from_data, to_data
from autotune.domain.compilers import DescribeChip, DescribeKernel
from autotune.domain.errors import (
    CompilerUnavailableError,
    InvalidInputError,
    KernelImportError,
    NoDeclarationError,
    NoLegalConfigError,
)
from autotune.domain.evidence import FailedCheck, Proof, Standard, Verdict
from autotune.domain.key import Chip, Choices, KernelRef, Toolchain
from autotune.domain.outcome import (
    CompileFailed,
    Crashed,
    Estimated,
    NotEstimated,
    OutOfVmem,
    TimedOut,
)
from autotune.domain.record import Check, CheckVerdict, Trial, Unchecked
from autotune.estimating.simulator import MODEL
from autotune.publishing.checking.against import compare_revision
from autotune.publishing.checking.fail_on import ALL_WRONG, UNKNOWN
from autotune.publishing.checking.record_check import PriorConfig, prior_of
from autotune.publishing.checking.run import CheckRun, publish_checked, retune_each
from autotune.publishing.publish import Publication
from autotune.publishing.task import Plan, TuningObserver
from autotune.searching.subject import SearchLimits
from autotune.wording.match import action, finding
from tests.fakes.compiler import TOOLCHAIN, FakeCompilers
from tests.samples import matching, simulations
from tests.samples.database import new_store
from tests.samples.records import save_trial
from tests.samples.repository import repository
from tests.samples.simulations import simulation
from tests.samples.traces import MIB, V5E, scratch, trace

REF = KernelRef(path="mm.py", attribute="MM")
REFS = {"mm": REF}
FAILED = CompileFailed(reason="no")
OWN = Choices(
    axes={"bm": [128, 256], "unroll": [True]}, default={"bm": 128, "unroll": True}, grid=("m",)
)
OLD = Toolchain(jax="0.1", jaxlib="0.1", libtpu="0.1")


def published(time_us=50.0, *, model=MODEL, chip=Chip.V5E):
    own = matching.record(matching.question(chip=chip))
    estimate = replace(own.estimate, time_us=time_us, model=model, resolution=0.05)
    return replace(own, key=replace(own.key, toolchain=OLD), estimate=estimate)


def times(**by_block):
    return {int(name[2:]): time for name, time in by_block.items()}


def needs(config, mib=4):
    return trace(
        scratch=(scratch((mib * MIB // 512, 128)),), vmem_limit_bytes=config.vmem_limit_bytes
    )


def compilers(taking, *, mib=None, refused=None, passes_limit=True, meanwhile=None):
    """``taking``: microseconds by block; ``mib``: of VMEM, for certain; ``meanwhile``: what happens
    while a block is compiled."""

    def traced(config):
        kept = config if passes_limit else config.replace(vmem_limit_bytes=None)
        return [needs(kept, (mib or {}).get(config["bm"], 4))]

    def compiled(config):
        block = config["bm"]
        (meanwhile or {}).get(block, lambda: None)()
        if block in (refused or {}):
            return (refused or {})[block]
        used = (mib or {}).get(block, 4)
        listed = simulation(taking[block])
        done = simulations.compiled(listed, program=str(block), used=used * MIB)
        return needs(config, used), done

    return FakeCompilers(
        spec=matching.SPEC,
        compiled=compiled,
        traced=traced,
        verified=lambda _: Verdict(ok=True, reason="right"),
        choices=OWN,
        chip=V5E,
    )


@pytest.fixture
def store(tmp_path):
    with new_store(tmp_path / "checks.db") as opened:
        yield opened


def check(store, fake, *records, chips=()):
    known = {record.key for record in store.records()}
    for record in records:
        if record.key not in known:
            store.save_record(record)
    return CheckRun(compilers=fake, store=store, refs=REFS).run(
        [prior_of(one) for one in records], chips, lambda _: None
    )


@pytest.mark.parametrize(
    ("taking", "verdict"),
    [
        (times(bm128=90, bm256=50), CheckVerdict.SAME),
        (times(bm128=90, bm256=60), CheckVerdict.SLOWER),
        (times(bm128=90, bm256=40), CheckVerdict.FASTER),
        (times(bm128=30, bm256=50), CheckVerdict.DEFAULT_WINS),
    ],
)
def test_the_verdict_is_of_the_times(store, taking, verdict):
    (found,) = check(store, compilers(taking), published())
    assert found.verdict is verdict
    assert (found.after_us, found.default_us) == (taking[256], taking[128])


def test_a_trial_is_kept_beside_those_of_another_thread_on_the_same_key(store):
    """As when records of two chips are checked on one: both have the same key there."""
    record = published()
    target = replace(record.key, toolchain=TOOLCHAIN)
    theirs = Trial(
        number=1,
        config=replace(record.config, dimension_semantics=("arbitrary",)),
        outcome=CompileFailed(reason="no"),
        seconds=0.0,
        created_at=matching.NOON,
    )
    fake = compilers(
        times(bm128=90, bm256=50), meanwhile={256: lambda: save_trial(store, target, theirs)}
    )
    check(store, fake, record)
    kept = store.trials(target)
    assert [(trial.number, trial.config) for trial in kept[1:]] == [
        (1, theirs.config),
        (2, record.config),
    ]


def test_what_cannot_fit_by_arithmetic_is_not_compiled(store):
    fake = compilers(times(bm128=90, bm256=50), mib={256: 200})
    (found,) = check(store, fake, published())
    assert found.verdict is CheckVerdict.BROKEN
    assert isinstance(found.winner, OutOfVmem) and found.winner.by_rule
    assert [config["bm"] for config in fake.compiled_configs] == [128]


@pytest.mark.parametrize(("passes_limit", "limits"), [(True, [20 * MIB]), (False, [])])
def test_what_needs_a_limit_is_compiled_once_under_the_least(store, passes_limit, limits):
    """Not where the kernel passes none: it is told the least."""
    taking = times(bm128=90, bm256=50)
    fake = compilers(taking, mib={256: 20}, passes_limit=passes_limit)
    (found,) = check(store, fake, published())
    assert (found.verdict, found.least_limit_bytes) == (CheckVerdict.NEEDS_LIMIT, 20 * MIB)
    assert (found.needed_bytes, found.allowed_bytes) == (20 * MIB, 16 * MIB)
    assert found.passes_limit is passes_limit
    compiled = [(config["bm"], config.vmem_limit_bytes) for config in fake.compiled_configs]
    assert [limit for block, limit in compiled if block == 256] == limits


def test_times_of_two_models_are_not_compared(store):
    (found,) = check(store, compilers(times(bm128=90, bm256=60)), published(model="an older one"))
    assert (found.verdict, found.cause) == (CheckVerdict.NOT_CHECKED, Unchecked.OTHER_MODEL)


def test_what_an_older_model_estimated_is_estimated_again(store):
    record = published()
    target = replace(record.key, toolchain=TOOLCHAIN)
    stale = Estimated(estimate=replace(record.estimate, time_us=1.0, model="old"), program="")
    kept = Trial(
        number=1, config=record.config, outcome=stale, seconds=0.0, created_at=matching.NOON
    )
    save_trial(store, target, kept)
    (found,) = check(store, compilers(times(bm128=90, bm256=50)), record)
    assert found.after_us == 50
    (trial,) = [one for one in store.trials(target) if one.config == record.config]
    assert trial.number == 1
    assert trial.estimate is not None and trial.estimate.time_us == 50


@pytest.mark.parametrize(
    ("model", "xla", "verdict"),
    [(None, False, "slower"), ("old", False, "same"), (None, True, "same")],
)
def test_a_check_is_made_again_where_it_says_less_than_is_asked(store, model, xla, verdict):
    (first,) = check(store, compilers(times(bm128=90, bm256=50)), published())
    winner = replace(first.winner, estimate=replace(first.winner.estimate, model=model or MODEL))
    store.save_check(replace(first, verdict=CheckVerdict.SLOWER, winner=winner))
    run = CheckRun(compilers=compilers(times(bm128=90, bm256=50)), store=store, refs=REFS, xla=xla)
    (again,) = run.run([prior_of(published())], (), lambda _: None)
    assert again.verdict == verdict


def test_all_that_is_found_is_one_snapshot(store):
    records = [published(), published(chip=Chip.V6E)]
    check(store, compilers(times(bm128=90, bm256=50)), *records)
    assert store.snapshots(1)[0].number == 3
    assert [one.checks[0].verdict for one in store.records()] == [CheckVerdict.SAME] * 2
    check(store, compilers(times(bm128=90, bm256=50)), *records)
    assert store.snapshots(1)[0].number == 3


def test_what_is_published_after_a_check_has_the_default_with_its_config(store):
    record = published()
    fails = {128: CompileFailed(reason="no such thing")}
    fake = compilers(times(bm256=50), refused=fails)
    (found,) = check(store, fake, record)
    assert publish_checked(fake, store, found, record, REF, list[str]().append).verified
    kept = store.record(found.target)
    assert kept.default.config == record.default.config
    assert kept.default.failure == CompileFailed(reason="no such thing")


def test_a_chip_that_the_toolchain_does_not_know_stops_no_other(store):
    """As jax 0.6 does not know v7x."""

    class WithoutV7x(FakeCompilers):
        def answer(self, question):
            if isinstance(question, DescribeChip) and question.chip is Chip.V7X:
                raise CompilerUnavailableError("this libtpu cannot compile for v7x")
            return super().answer(question)

    fake = compilers(times(bm128=90, bm256=50))
    fake.__class__ = WithoutV7x
    known, unknown = check(store, fake, published(), published(chip=Chip.V7X))[::-1]
    assert (known.verdict, unknown.cause) == (CheckVerdict.SAME, Unchecked.NO_CHIP)
    assert finding(unknown) == "the toolchain does not know the chip"
    assert "cannot compile for v7x" in action(unknown)


def test_another_chip_is_checked_under_the_toolchain_that_searched(store):
    fake = compilers(times(bm128=90, bm256=50))
    searched = replace(published(), key=replace(published().key, toolchain=fake.toolchain))
    (found,) = check(store, fake, searched, chips=(searched.key.chip, Chip.V6E))
    assert (found.chip, found.verdict) == (Chip.V6E, CheckVerdict.SAME)


def test_that_a_problem_has_no_legal_config_there_is_kept(store):
    record, said = published(), list[Publication | NoLegalConfigError]()
    fake = compilers(times(), mib={128: 200, 256: 200})
    found = check(store, fake, record)
    assert found[0].verdict is CheckVerdict.BROKEN
    plan = Plan(limits=SearchLimits(trials=2))
    retune_each(fake, store, plan, found, REFS, lambda _: TuningObserver(), said.append)
    assert len(said) == 1 and isinstance(said[0], NoLegalConfigError)
    kept = store.check(found[0].key, found[0].target)
    assert kept is not None and kept.detail.startswith("no legal configuration")
    served = store.record(record.key)
    assert served is not None and served.checks[0].detail == kept.detail


def compared(store, fake, prior):
    run = CheckRun(compilers=fake, store=store, refs=REFS, against="main (abc)")
    (found,) = run.run([prior], (), lambda _: None)
    return found


def test_another_source_is_compared_only_where_that_is_asked_for(store):
    own = published()
    record = replace(own, key=replace(own.key, fingerprint="older"))
    fake = compilers(times(bm128=10, bm256=60))
    (refused,) = check(store, fake, record)
    assert (refused.cause, fake.compiled_configs) == (Unchecked.SOURCE_CHANGED, [])
    assert action(refused).startswith("retune: autotune search mm.py:MM --shape m=")
    found = compared(store, fake, prior_of(record))
    assert (found.verdict, found.before_us, found.after_us) == (CheckVerdict.SLOWER, 50, 60)
    assert (found.key.fingerprint, found.target.fingerprint) == ("older", "f00d")
    assert [config["bm"] for config in fake.compiled_configs] == [256]
    assert [trial.number for trial in store.trials(found.target)] == [1]  # 0 is the default's
    assert [one.checks for one in store.records()] == [()]


def test_a_decorated_function_is_searched_again_by_its_call(store):
    """As the place of this machine has it; a service is not told where that is."""
    own = published()
    record = replace(own, key=replace(own.key, fingerprint="older"))
    older = replace(matching.SPEC, fingerprint="older", form="{'x': ['m', 'k']} []")
    run = CheckRun(compilers=compilers({}), store=store, refs=REFS)
    (found,) = run.run([prior_of(record, [older])], (), lambda _: None)
    assert action(found).startswith(
        "retune: autotune search mm.py:MM --args 'x=bfloat16[1024,128]' --chip v5e --jax "
    )
    assert "mm.py" not in action(from_data(Check, to_data(found, sent=True)))


def test_the_default_of_a_source_is_compared_with_its_own(store):
    before = prior_of(published(50.0)).outcome
    prior = PriorConfig(key=published().key, config=None, outcome=before, is_default=True)
    found = compared(store, compilers(times(bm128=90, bm256=50)), prior)
    assert (found.verdict, found.config["bm"], found.after_us) == (CheckVerdict.SLOWER, 128, 90)


@pytest.mark.parametrize(
    ("before", "works", "cause", "says"),
    [
        (None, True, Unchecked.NO_BASELINE, "it did not work before: it had another name"),
        (None, False, None, ""),
        (FAILED, True, Unchecked.NO_BASELINE, "it did not work before: compile failed: no"),
        (FAILED, False, Unchecked.NO_BASELINE, "it did not work before: compile failed: no"),
        (TimedOut(reason="slow", limit_s=1), True, Unchecked.NO_ANSWER, "before: timed out: slow"),
        (Crashed(reason="died"), True, Unchecked.NO_ANSWER, "before: crashed: died"),
        (
            NotEstimated(reason="a loop", vmem_used_bytes=1, program="p"),
            True,
            Unchecked.NO_ESTIMATE,
            "before: compiled, not estimated: a loop",
        ),
    ],
)
def test_what_has_nothing_to_be_compared_with(store, before, works, cause, says):
    """A baseline that is not known is not one that failed."""
    own = published()
    prior = PriorConfig(key=own.key, config=own.config, outcome=before, why="it had another name")
    fake = compilers(times(bm256=50), refused={} if works else {256: FAILED})
    found = compared(store, fake, prior)
    if cause is None:
        assert found.verdict is CheckVerdict.BROKEN
        return
    assert (found.verdict, found.cause) == (CheckVerdict.NOT_CHECKED, cause)
    assert action(found) == says
    is_unknown = cause is not Unchecked.NO_BASELINE
    assert ALL_WRONG.exit_code([found]) == (UNKNOWN if is_unknown else 0)


@pytest.mark.parametrize(
    ("raised", "cause", "code"),
    [
        (KernelImportError("no jnp2"), Unchecked.NO_ANSWER, UNKNOWN),
        (NoDeclarationError("no MM"), Unchecked.NO_BASELINE, 0),
        (InvalidInputError("no such size"), Unchecked.NO_BASELINE, 0),
    ],
)
def test_a_revision_that_cannot_be_loaded_is_not_one_without_the_kernel(
    tmp_path, raised, cause, code
):
    class Refusing(FakeCompilers):
        def answer(self, question):
            if isinstance(question, DescribeKernel):
                raise raised
            return super().answer(question)

    tree = repository(tmp_path / "r", {"mm.py": ""})
    refusing, stores = compilers({}), iter("ab")
    refusing.__class__ = Refusing
    refs = {"mm": KernelRef(path=str(tree / "mm.py"), attribute="MM")}
    asked = [PriorConfig(key=published().key, config=published().config, outcome=None)]
    fake, done = compilers(times(bm256=50)), list[Check]()
    (found,) = compare_revision(
        "main",
        lambda: nullcontext(refusing),
        lambda: new_store(tmp_path / f"{next(stores)}.db"),
        fake,
        refs,
        asked,
        done.append,
    )
    assert (found.cause, found.detail, done) == (cause, str(raised), [found])
    assert ALL_WRONG.exit_code([found]) == code


@pytest.mark.parametrize(
    ("said", "time_us", "verdict", "code"),
    [
        (Verdict(ok=True), 50, CheckVerdict.SAME, 0),
        (Verdict(ok=False, check=FailedCheck.VALUES), 50, CheckVerdict.WRONG, 1),
        (Verdict(ok=False, check=FailedCheck.VALUES), 90, CheckVerdict.WRONG, 1),
        (Verdict(ok=None, reason="timed out"), 50, CheckVerdict.NOT_CHECKED, UNKNOWN),
        (Verdict(ok=None, reason="timed out"), 90, CheckVerdict.SLOWER, 1),
        (
            Verdict(ok=True, proof=Proof(standard=Standard.DEFAULT)),
            50,
            CheckVerdict.NOT_CHECKED,
            UNKNOWN,
        ),
    ],
)
def test_what_the_gate_says_of_a_source(store, said, time_us, verdict, code):
    fake = compilers(times(bm256=time_us))
    fake._verified = lambda _: said
    run = CheckRun(compilers=fake, store=store, refs=REFS, against="main", hear=print)
    (found,) = run.run([prior_of(published(50.0))], (), lambda _: None)
    assert (found.verdict, ALL_WRONG.exit_code([found])) == (verdict, code)
    assert found.verified is (verdict is CheckVerdict.SAME)
    assert [config["bm"] for config in fake.verified_configs] == [256]
    if found.verified:
        assert finding(found).endswith("verified")  # nothing is published
    elif verdict is CheckVerdict.NOT_CHECKED:
        assert found.cause is Unchecked.NOT_VERIFIED and action(found)


def test_what_does_not_compile_is_not_verified(store):
    fake = compilers({}, refused={256: CompileFailed(reason="no")})
    run = CheckRun(compilers=fake, store=store, refs=REFS, against="main", hear=print)
    (found,) = run.run([prior_of(published())], (), lambda _: None)
    assert (found.verdict, fake.verified_configs) == (CheckVerdict.BROKEN, [])
