"""A kernel made by hand whose steps cost the same in every problem: what one teaches another."""

from concurrent.futures import Future
from dataclasses import replace
from math import nan
from types import SimpleNamespace

import numpy as np
import pytest

from autotune.domain.comparison import expected_range
from autotune.domain.explanation import StepCost
from autotune.domain.key import Chip
from autotune.domain.outcome import Estimated
from autotune.domain.problem import Problem, make_config
from autotune.domain.record import default_trial
from autotune.estimating.cost_model.prediction import pipeline, predicted_us
from autotune.estimating.roofline import roofline
from autotune.estimating.space import Candidate, Space
from autotune.searching.loop import Search, open_search
from autotune.searching.one_config import compile_config, evaluate, keep_trials
from autotune.searching.option_axes import no_options
from autotune.searching.subject import SearchLimits
from autotune.searching.transfer import ENOUGH_OWN, lessons_of
from tests.fakes.compiler import FakeCompilers, Quiet
from tests.publishing.test_publish import SUBJECT
from tests.samples.database import new_store
from tests.samples.records import save_trial
from tests.samples.searching import run_search
from tests.samples.simulations import compiled, simulation
from tests.samples.traces import V5E, operand, trace

BLOCKS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
DEFAULT = 3  # of them
_ROW_BYTES = 256


def subject(rows):
    problem = Problem(dims=(("rows", rows),), dtype="bfloat16")
    return replace(SUBJECT, problem=problem, chip=V5E)


def traced(rows, block):
    steps = rows // block
    counts = {"fetches": steps, "blocks": steps, "blocks_total": steps}
    x = operand((rows, 128), (block, 128), hbm_bytes=rows * _ROW_BYTES, **counts)
    return trace(x, replace(x, is_output=True), grid=(steps,), vector_ops=rows * 128)


def core_us(block):
    """Blocks above 256 rows spill."""
    return 0.3 + 0.002 * block + 0.00002 * max(0, block - 256) ** 2


def space(rows, blocks=BLOCKS):
    found = [
        Candidate(
            config=make_config({"block": block}),
            trace=traced(rows, block),
            roofline=roofline(traced(rows, block), V5E),
        )
        for block in blocks
    ]
    return Space(candidates=found, default=found[DEFAULT].config, default_verdict=None)


def time_us(rows, block, chip=V5E.chip):
    libtpu = SUBJECT.toolchain.libtpu
    calls, step_us = [pipeline(traced(rows, block), V5E)], np.array([core_us(block)])
    return float(predicted_us(calls, step_us, chip, libtpu)[0])


def compilers(rows, factor=1.0, placed=(), timed_on=V5E.chip, **more):
    """``placed``: blocks whose operand XLA puts in VMEM ahead of the call."""

    def answer(config):
        steps, block = rows // config["block"], config["block"]
        run = simulation(time_us(rows, block, timed_on) * factor)
        run |= {
            "bundle_cycles": core_us(block) * factor * steps * 1000,
            "stall_cycles": 0,
            "steps": steps,
            "vmem_operands": (0,) if block in placed else (),
        }
        return traced(rows, block), compiled(run, program=str(block))

    return FakeCompilers(compiled=answer, **more)


def search(store, rows, *, method="gp", of=None, factor=1.0, placed=(), **limits):
    return run_search(
        compilers(rows, factor, placed),
        store,
        of or subject(rows),
        space(rows),
        SearchLimits(**limits),
        Quiet(),
        method=method,
    )


def best(result):
    timed = [trial for trial in result.trials if trial.estimate]
    found = min(timed, key=lambda trial: trial.estimate.time_us if trial.estimate else 0.0)
    return int(found.config["block"])


@pytest.fixture
def store(tmp_path):
    with new_store(tmp_path / "db.db") as opened:
        yield opened


@pytest.fixture
def known(tmp_path):
    """Has three problems of which each candidate was predicted and compiled: filled once for all
    tests, each of which has its copy."""
    with new_store(tmp_path / "known.db", confirmed) as opened:
        yield opened


def fastest(rows):
    return min(BLOCKS, key=lambda block: time_us(rows, block))


def taught(store, problems=(1 << 14,)):
    for rows in problems:
        assert search(store, rows).stopped_by == "exhausted"


def test_another_problem_is_predicted_and_its_best_confirmed(store):
    taught(store)
    found = search(store, 1 << 17)
    assert found.stopped_by == "prediction"
    assert len(found.trials) <= 4  # the default, the best, and one for each idle compiler
    assert best(found) == fastest(1 << 17)


@pytest.mark.parametrize("asked", [{"full": True}, {"method": "random"}])
def test_who_asks_for_the_full_search_gets_it(store, asked):
    taught(store)
    found = search(store, 1 << 17, **asked)
    assert (found.stopped_by, len(found.trials)) == ("exhausted", len(BLOCKS))


@pytest.mark.parametrize("changed", ["fingerprint", "chip", "dtype", "toolchain"])
def test_costs_of_another_body_only_say_what_to_try_first(store, changed):
    taught(store)
    of = subject(1 << 17)
    match changed:
        case "fingerprint":
            of = replace(of, spec=replace(of.spec, fingerprint="edited"))
        case "chip":
            of = replace(of, chip=replace(of.chip, chip=Chip.V5P))
        case "dtype":
            of = replace(of, problem=replace(of.problem, dtype="float32"))
        case _:
            of = replace(of, toolchain=replace(of.toolchain, libtpu="0.0.42"))
    found = search(store, 1 << 17, of=of)
    assert found.stopped_by == "exhausted"
    assert best(replace(found, trials=found.trials[:2])) == fastest(1 << 17)


class Asked(list[int]):
    """Lessons that say nothing, and how many trials they knew each time they were asked."""

    are_sure, worth = True, 0.01

    def predict(self, candidates, others, own):
        self.append(len(own))
        return object()


def advised(store, trials, size):
    """A search with so many trials and compilers."""
    taught(store)
    one = store.trials(subject(1 << 14).key)[0]
    kept = [replace(one, number=n) for n in range(trials)]
    study = SimpleNamespace(predict=lambda _: None, ask=lambda: None, is_settled=lambda _: False)
    compilers = FakeCompilers()
    compilers.size = size
    own = [store, subject(1 << 14), space(1 << 14), study, Quiet(), kept]
    told = Asked()
    options = no_options(subject(1 << 14))
    return Search(compilers, *own, options, goal=200, lessons=told), told, study


def test_an_old_prediction_ends_nothing(store):
    """While many are learned from together, what the last ones have shown is asked for first."""
    found, asked, study = advised(store, 17, size=2)
    found.start()
    found.trials, found.stopped_by, study.is_settled = (
        found.trials + found.trials[:3],
        "",
        lambda _: True,
    )
    found.start()
    assert (found.stopped_by, asked) == ("prediction", [17, 20])


@pytest.mark.parametrize(
    ("size", "step", "known"),
    [(2, 20, [20, 40, 60]), (32, 20, [20, 60]), (2, 2, [2, 4, 6]), (32, 2, [2, 6])],
)
def test_as_many_are_learned_from_together_as_run(store, size, step, known):
    found, asked, _ = advised(store, step, size)
    for _ in range(3):
        found.start()
        found.trials, found.stopped_by = found.trials + found.trials[:step], ""
    assert asked == known


def with_model(trial, model):
    assert isinstance(trial.outcome, Estimated)
    estimate = replace(trial.outcome.estimate, model=model)
    return replace(trial, outcome=replace(trial.outcome, estimate=estimate))


def test_times_of_another_model_teach_nothing(store):
    taught(store)
    own, candidates = subject(1 << 17).key, space(1 << 17).candidates
    lessons, others = lessons_of(own, V5E, space(1 << 17)), store.timed_trials(own, 99)
    older = [(key, with_model(trial, "older")) for key, trial in others]
    assert lessons is not None and lessons.predict(candidates, older, []) is None


def test_costs_that_teach_nothing_are_passed_over(store):
    taught(store)
    for trial in store.trials(subject(1 << 14).key):
        assert isinstance(trial.outcome, Estimated)
        empty = replace(trial.outcome, step=StepCost(core_us=nan, facts=()))
        store.replace_outcome(subject(1 << 14).key, trial.config, empty)
    assert best(search(store, 1 << 17)) == fastest(1 << 17)


def test_what_is_wrong_is_learned_from(store):
    """Costs of a kernel that was edited since are no truth: the search goes on until they agree."""
    taught(store)
    slower = replace(subject(1 << 14).key, fingerprint="edited")
    for trial in store.trials(subject(1 << 14).key):
        assert isinstance(trial.outcome, Estimated)
        step = trial.outcome.step
        twisted = replace(step, core_us=step.core_us * trial.config["block"] ** 0.5)
        save_trial(store, slower, replace(trial, outcome=replace(trial.outcome, step=twisted)))
    assert best(search(store, 1 << 17)) == fastest(1 << 17)


def confirmed(store, problems=(1 << 15, 1 << 16, 1 << 17)):
    """Problems of which each candidate was predicted and compiled."""
    taught(store)
    for rows in problems:
        search(store, rows, full=True)


NEXT = 1 << 18


def test_a_default_that_is_predicted_well_is_not_compiled(known):
    found = search(known, NEXT)
    assert (found.stopped_by, best(found)) == ("prediction", fastest(NEXT))
    # the best, and one for the idle compiler
    assert [trial.number for trial in found.trials] == [1, 2]
    assert found.default is not None and found.default.is_predicted
    assert found.default.config == space(NEXT).default
    assert found.default.expected_us == pytest.approx(time_us(NEXT, BLOCKS[DEFAULT]), rel=0.05)
    least, most = expected_range(found.default)
    assert least < time_us(NEXT, BLOCKS[DEFAULT]) < most


class Busy(FakeCompilers):
    """Answers when it is told to."""

    size = 4

    def submit(self, question):
        self.compiled_configs.append(question.config)
        return Future()


def opened(store, **limits):
    busy = Busy()
    some = subject(NEXT), space(NEXT), SearchLimits(**limits), Quiet()
    return open_search(busy, store, *some), busy


def answer(found, factor=1.0):
    """All that runs comes out as predicted, or ``factor`` times as slow."""
    for future, one in list(found.running.items()):
        made = compile_config(compilers(NEXT, factor), found.subject, one.config)
        future.set_result(made.result())
    found.collect(list(found.running))


def test_without_a_default_to_wait_for_every_compiler_is_kept_busy(known):
    found, busy = opened(known)
    for _ in range(busy.size):
        found.start()
    assert len(busy.compiled_configs) == busy.size
    assert busy.compiled_configs[0] != space(NEXT).default


@pytest.mark.parametrize(("slower", "compiled"), [(1.0, False), (1.5, True)])
def test_a_default_is_judged_by_all_that_ran(known, slower, compiled):
    found, busy = opened(known, trials=3)
    for _ in range(4):
        found.start()
    assert len(busy.compiled_configs) == 2 and not found.is_ready
    answer(found, slower)
    found.start()
    assert (space(NEXT).default in busy.compiled_configs) == compiled
    assert found.stopped_by == ("" if compiled else "trials")


@pytest.mark.parametrize("limits", [{"trials": 1}, {"timeout_s": -1.0}])
def test_what_is_hoped_of_a_default_is_no_result(known, limits):
    found = search(known, NEXT, **limits)
    assert [(t.number, t.config) for t in found.trials] == [(0, space(NEXT).default)]
    assert found.default is None


def test_a_default_that_others_compile_later_is_still_trial_0(known):
    """A rule is judged by it, a check too: they know no search."""
    trials, key, default = search(known, NEXT).trials, subject(NEXT).key, space(NEXT).default
    outcome = evaluate(compilers(NEXT), subject(NEXT), default)
    assert default_trial(trials) is None
    (kept,) = keep_trials(known, key, trials, [(default, outcome, 0.0)], default=default)
    assert (kept.number, default_trial(known.trials(key))) == (0, kept)
    found = search(known, NEXT)
    assert found.default is None and default_trial(found.trials) == kept


@pytest.mark.parametrize("slower", [1.5, 0.6])
def test_a_surprise_has_the_default_compiled(known, slower):
    """What was compiled is not as predicted: nothing is believed of what was not."""
    found = search(known, NEXT, factor=slower)
    assert found.default is None
    assert [t.number for t in found.trials if t.config == space(NEXT).default] == [0]


def test_few_or_bad_predictions_are_not_believed(store):
    confirmed(store, problems=(1 << 15,))
    assert search(store, NEXT).default is None
    confirmed(store)
    for rows in (1 << 15, 1 << 16, 1 << 17):
        for trial in store.trials(subject(rows).key):
            outcome = trial.outcome
            assert isinstance(outcome, Estimated) and outcome.step is not None
            wrong = replace(outcome.step, predicted_us=outcome.estimate.time_us * 1.4)
            store.replace_outcome(subject(rows).key, trial.config, replace(outcome, step=wrong))
    assert search(store, NEXT << 1).default is None


def test_its_own_trials_are_enough_in_time(store):
    """Of a first problem: the steps of its candidates are known before all are compiled."""
    counts = []
    for chip in (V5E.chip, Chip.V6E):  # the second one's are known from the first, but for a few
        of, many = subject(NEXT), space(NEXT, blocks=range(8, 8 * 65, 8))
        of = replace(of, chip=replace(V5E, chip=chip))
        found = run_search(compilers(NEXT, timed_on=chip), store, of, many, SearchLimits(), Quiet())
        assert found.stopped_by == "prediction"
        counts.append(len(found.trials))
    assert counts[1] < ENOUGH_OWN <= counts[0] < 40


def test_a_body_that_is_another_one_here_ends_nothing(known, monkeypatch):
    """A Python ``if`` of the kernel makes the likely winner of this problem another program."""
    slow, plain = fastest(NEXT), core_us
    monkeypatch.setattr(
        f"{__name__}.core_us", lambda block: plain(block) * (1.5 if block == slow else 1.0)
    )
    assert fastest(NEXT) != slow
    assert best(search(known, NEXT)) == fastest(NEXT)


def test_a_problem_whose_predictions_are_right_again_is_believed(store):
    """One that was far off has taught; nobody waits for as many trials as of a first problem."""
    taught(store)
    found = subject(NEXT)
    lessons = lessons_of(found.key, V5E, space(NEXT))
    assert lessons is not None
    some = list(store.trials(subject(1 << 14).key))
    assert len(some) > 3

    def predicted(trial, factor):
        assert isinstance(trial.outcome, Estimated) and trial.outcome.step
        predicted_us = trial.outcome.estimate.time_us * factor
        step = replace(trial.outcome.step, predicted_us=predicted_us)
        return replace(trial, outcome=replace(trial.outcome, step=step))

    def sure(factors):
        others = [(subject(1 << 14).key, trial) for trial in some]
        pairs = zip(some, factors, strict=False)
        own = [(found.key, predicted(trial, factor)) for trial, factor in pairs]
        lessons.predict(space(NEXT).candidates, others, own)
        return lessons.are_sure

    assert sure([1.0]) and not sure([3.0]) and not sure([1.0, 3.0, 1.0, 1.0])
    assert sure([3.0, 1.0, 1.0, 1.0])


def test_arrays_that_xla_moves_for_some_blocks_alone_have_others_tried(known):
    """What it does around a call is not the same for all of them then."""
    assert search(known, NEXT).stopped_by == "prediction"
    found = search(known, NEXT << 1, placed=[fastest(NEXT << 1)])
    assert found.stopped_by != "prediction" and len(found.trials) > 2
