"""The tuning loop with a scripted compiler: order, budgets, reuse, climbing, interruption."""

from concurrent.futures import Future
from dataclasses import replace

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from autotune.domain.compilers import Attempt
from autotune.domain.key import Choices
from autotune.domain.outcome import CompileFailed, Estimated, Illegal, OutOfVmem
from autotune.domain.problem import Config
from autotune.estimating.space import Space, explore
from autotune.searching.loop import open_search
from autotune.searching.subject import SearchLimits
from tests.fakes.compiler import FakeCompilers, MemoryStore, Quiet
from tests.publishing.test_publish import SUBJECT
from tests.samples import candidates as candidatesamples
from tests.samples.records import record, save_trial
from tests.samples.searching import run_search
from tests.samples.simulations import compiled, simulation
from tests.samples.traces import operand
from tests.samples.traces import trace as trace_of


def answer(config):
    one = candidatesamples.candidate(
        config["block_m"], config["block_n"], config.grid_order, config.vmem_limit_bytes
    )
    if not candidatesamples.fits(one):
        return OutOfVmem(reason="too big", used_bytes=2, allowed_bytes=1)
    time_us = candidatesamples.time_us(one)
    return one.trace, compiled(simulation(time_us), program=str(time_us))


def space(verdict=None):
    candidates = candidatesamples.space()
    return Space(candidates=candidates, default=candidates[0].config, default_verdict=verdict)


def search(store, trials, *, where=None, watcher=None, timeout_s=None, seed=0, start_from=()):
    compilers = FakeCompilers(compiled=answer)
    kept = store
    result = run_search(
        compilers,
        kept,
        SUBJECT,
        where or space(),
        SearchLimits(trials=trials, full=True, timeout_s=timeout_s),
        watcher or Quiet(),
        seed=seed,
        start_from=start_from,
    )
    return result, compilers


def test_the_default_is_trial_0_and_nothing_is_compiled_twice():
    store = MemoryStore()
    result, compiler = search(store, 30)
    assert store.kept[0].number == 0
    assert store.kept[0].config == space().default
    assert len(compiler.compiled_configs) == len(set(compiler.compiled_configs)) == 30
    assert [t.number for t in store.kept] == list(range(30))
    assert result.stopped_by == "trials"


class HeldCompilers(FakeCompilers):
    """``finish`` answers what was asked longest ago."""

    def __init__(self, size):
        super().__init__()
        self.size, self.asked = size, list[tuple[Config, Future[Attempt]]]()

    def submit(self, question):
        self.asked.append((question.config, Future()))
        return self.asked[-1][1]

    def finish(self):
        config, future = self.asked.pop(0)
        self.compiled_configs.append(config)
        future.set_result(Attempt(answer=answer(config), seconds=0.1))
        return future


@pytest.mark.parametrize(("size", "at_once"), [(2, 1), (16, 16)])
def test_many_compilers_do_not_wait_for_the_default(size, at_once):
    some = space().candidates[:16]
    few = replace(space(), candidates=some, default=some[-1].config)
    compilers, store, given = HeldCompilers(size), MemoryStore(), few.candidates[5].config
    limits = SearchLimits(trials=16, full=True)
    own = open_search(compilers, store, SUBJECT, few, limits, Quiet(), start_from=[given])
    for _ in range(size):
        own.start()
    assert len(compilers.asked) == at_once
    own.collect([compilers.finish()])
    while not own.stopped_by:
        own.start()
        if compilers.asked:
            own.collect([compilers.finish()])
    tried = compilers.compiled_configs
    assert tried[0] == few.default and tried.index(given) <= at_once
    assert len(tried) == len(set(tried)) == 16
    assert {t.number: t.config for t in store.kept}[0] == few.default


def test_what_won_under_other_toolchains_is_tried_right_after_the_default():
    store = MemoryStore()
    own = record(SUBJECT.key)
    wins = candidatesamples.candidate(512, 2048, ("n", "m")).config
    elsewhere = replace(SUBJECT.key, toolchain=replace(SUBJECT.toolchain, jax="0.1"))
    no_candidate = candidatesamples.candidate(3, 5).config
    there = replace(own, key=elsewhere, config=replace(wins, vmem_limit_bytes=1 << 25))
    other_problem = SUBJECT.problem.with_dims(**{SUBJECT.problem.dims[0][0]: 16})
    others = [
        replace(own, key=elsewhere, config=no_candidate),
        replace(there, key=replace(elsewhere, problem=other_problem), config=space().default),
    ]
    store.published = [*others, there]
    search(store, 2)
    assert [trial.config for trial in store.kept] == [space().default, wins]
    again = MemoryStore()
    again.published = [there]
    search(again, 1)
    assert len(again.kept) == 1


def test_a_refused_default_is_still_trial_0_without_compiling():
    store = MemoryStore()
    where = space(verdict=Illegal(reason="misaligned"))
    where.candidates = where.candidates[1:]
    _, compiler = search(store, 5, where=where)
    assert store.kept[0].outcome == Illegal(reason="misaligned")
    assert where.default not in compiler.compiled_configs


def test_a_second_run_reuses_and_goes_on_where_the_first_stopped():
    store = MemoryStore()
    _, first = search(store, 10)
    result, second = search(store, 25)
    assert result.reused == 10
    assert not set(first.compiled_configs) & set(second.compiled_configs)
    assert len(second.compiled_configs) == 15
    again, third = search(store, 25)
    assert third.compiled_configs == []
    assert len(again.trials) == 25


def test_what_an_older_model_estimated_is_estimated_again():
    store = MemoryStore()
    search(store, 10)
    older = next(t for t in store.kept if isinstance(t.outcome, Estimated))
    assert isinstance(older.outcome, Estimated)
    stale = replace(older.outcome.estimate, model="an older one", time_us=0.001)
    store.replace_outcome(SUBJECT.key, older.config, replace(older.outcome, estimate=stale))
    result, again = search(store, 10)
    assert again.compiled_configs == [older.config]
    assert store.kept[older.number] == older and older in result.trials


def test_what_is_out_of_vmem_climbs_and_the_climbed_one_survives_a_resume():
    store = MemoryStore()
    result, _ = search(store, 1000)
    assert result.stopped_by == "exhausted"
    limits = {t.config.vmem_limit_bytes for t in store.kept}
    assert limits == {None, 32 << 20, 64 << 20, 128 << 20}
    raised = [t for t in store.kept if t.config.vmem_limit_bytes == 32 << 20]
    assert any(t.outcome.kind == "estimated" for t in raised)
    lower = {
        t.config.replace(vmem_limit_bytes=32 << 20)
        for t in store.kept
        if t.outcome.kind == "out of VMEM" and t.config.vmem_limit_bytes is None
    }
    assert {t.config for t in raised} == lower
    _, again = search(store, 1000)
    assert again.compiled_configs == []


def test_blocks_of_the_default_that_do_not_fit_are_tried_under_higher_limits_first():
    store, where = MemoryStore(), space()
    too_big = next(c for c in where.candidates if not candidatesamples.fits(c))
    result, _ = search(store, 4, where=replace(where, default=too_big.config))
    own = [t for t in store.kept if t.config.axes == too_big.config.axes]
    assert [t.number for t in own] == list(range(len(own)))
    limits = [t.config.vmem_limit_bytes for t in own]
    assert limits == [None, 32 << 20, 64 << 20, 128 << 20][: len(own)] and len(own) > 1
    assert [t.outcome.kind for t in own[:-1]] == ["out of VMEM"] * (len(own) - 1)
    assert own[-1].outcome.kind == "estimated"
    assert len(result.trials) == 4
    capped = MemoryStore()
    search(capped, 1, where=replace(space(), default=too_big.config))
    assert len(capped.kept) == 1


def test_numpy_has_one_thread_while_a_search_runs():
    class Watcher(Quiet):
        def trial_done(self, trial):
            seen.append(threads())

    def threads():
        return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}

    seen = []
    with threadpool_limits(2, user_api="blas"):
        search(MemoryStore(), 3, watcher=Watcher())
        assert threads() == {2}
    assert seen == [{1}] * 3


def test_two_machines_on_one_key_do_not_take_each_others_numbers():
    """Another machine saves trials, some of the same configs, between our reading and saving."""
    ahead, store = MemoryStore(), MemoryStore()
    search(ahead, 9)

    class Watching(Quiet):
        def trial_done(self, trial):
            super().trial_done(trial)
            if self.done == 1:
                for theirs in ahead.kept:
                    number = max(t.number for t in store.kept) + 1
                    save_trial(store, SUBJECT.key, replace(theirs, number=number))

    result, _ = search(store, 20, watcher=Watching())
    assert len({t.number for t in store.kept}) == len(store.kept)
    assert len({t.config for t in store.kept}) == len(store.kept)
    assert all(t in store.kept for t in result.trials)


def test_what_all_is_compared_with_is_tried_even_where_enough_is_known():
    store = MemoryStore()
    search(store, 4)
    known = {trial.config for trial in store.kept}
    today, other = [c.config for c in candidatesamples.space() if c.config not in known][:2]
    result, _ = search(store, 4, start_from=[today, other])
    assert [trial.config for trial in store.kept][4:] == [today]
    assert result.stopped_by == "trials"


def traced(config):
    """Of a copy of [4096, 4096], in both orders. All that differs from the default in one axis is
    refused."""
    block, both = (config["block_m"], config["block_n"]), (True, True)
    if (block[0] == 256) != (block[1] == 1024):
        return CompileFailed(reason="beside the default")
    known = {"dtype": "float32", "varies": both, "exclusive": both}
    arrays = [operand((4096, 4096), block, is_output=output, **known) for output in (False, True)]
    grid = (4096 // block[0], 4096 // block[1])
    return [trace_of(*arrays, grid=grid), trace_of(*arrays, grid=grid[::-1])]


@pytest.mark.parametrize("method", ["gp", "tpe", "random"])
def test_a_space_that_takes_long_to_trace_is_traced_where_it_is_fast(method, monkeypatch):
    monkeypatch.setattr("autotune.searching.loop._TRACED_S", 0.0)  # a point at a time
    axes = {n: list(candidatesamples.SIZES) for n in ("block_m", "block_n")}
    default = {"block_m": 256, "block_n": 1024}
    choices = Choices(axes=axes, default=default, grid=("m", "n"))
    compilers = FakeCompilers(compiled=answer, traced=traced)
    given = compilers, SUBJECT.ref, SUBJECT.problem, choices, SUBJECT.chip
    first, whole = explore(*given, enough_s=0.0), explore(*given)
    for trials, stopped_by in ((12, "trials"), (100, "exhausted")):
        few = replace(first, candidates=list(first.candidates), untraced=dict(first.untraced))
        limits = SearchLimits(trials=trials, full=True)
        store = MemoryStore()
        result = run_search(compilers, store, SUBJECT, few, limits, Quiet(), method=method)
        assert result.stopped_by == stopped_by
        assert bool(few.untraced) is (trials == 12)
    tried = {trial.config for trial in result.trials}
    assert tried == {candidate.config for candidate in whole.candidates}
    resumed = replace(first, candidates=list(first.candidates), untraced=dict(first.untraced))
    again = run_search(compilers, store, SUBJECT, resumed, limits, Quiet(), method=method)
    assert (again.stopped_by, len(again.trials)) == ("exhausted", len(tried))
