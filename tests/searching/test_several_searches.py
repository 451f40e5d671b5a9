"""Several searches over the same compilers: who gets the next trial."""

from dataclasses import replace

from autotune.domain.outcome import CompileFailed
from autotune.searching.loop import open_search
from autotune.searching.run import run_searches
from autotune.searching.subject import SearchLimits
from autotune.searching.transfer import ENOUGH_OWN
from tests.fakes.compiler import FakeCompilers, MemoryStore
from tests.searching.test_loop import SUBJECT, Quiet, answer, space


class Recording(FakeCompilers):
    """Knows which search asked, by the dimension of its problem."""

    def __init__(self, stop_after=10**6):
        super().__init__(compiled=answer)
        self.order: list[int] = []
        self._stop_after = stop_after

    def submit(self, question):
        self.order.append(question.problem.dims[0][1])
        return super().submit(question)

    def enough(self):
        return len(self.order) >= self._stop_after


def searches(compilers, weights, trials=12):
    """One for each size of the first dimension, with its weight."""
    opened, stores = [], []
    for size, weight in weights.items():
        store = MemoryStore()
        name = SUBJECT.problem.dims[0][0]
        problem = SUBJECT.problem.with_dims(**{name: size})
        subject, limits = replace(SUBJECT, problem=problem), SearchLimits(trials=trials)
        opened.append(
            open_search(compilers, store, subject, space(), limits, Quiet(), weight=weight)
        )
        stores.append(store)
    return opened, stores


def run(running, compilers, **limits):
    """The sizes of those that were said to be over, in turn."""
    over = []
    done = over.append
    run_searches(running, compilers.size, finished=done, **limits)
    return [search.subject.problem.dims[0][1] for search in over]


def test_each_gets_its_first_trials_before_any_gets_its_last():
    compilers = Recording()
    running, stores = searches(compilers, {8: 1.0, 16: 1000.0, 32: 10.0})
    assert sorted(run(running, compilers, timeout_s=600.0)) == [8, 16, 32]
    assert [len(store.kept) for store in stores] == [12, 12, 12]
    assert sorted(compilers.order[:3]) == [8, 16, 32]
    assert {size: compilers.order[:12].count(size) for size in (8, 16, 32)} == {8: 4, 16: 4, 32: 4}
    assert all(search.stopped_by == "trials" for search in running)


def test_the_rest_goes_where_it_pays():
    compilers = Recording(stop_after=ENOUGH_OWN + 4)  # with more its own trials say what is left
    running, stores = searches(compilers, {8: 1.0, 16: 1e6}, trials=40)
    run(running, compilers, timeout_s=600.0, stop=compilers.enough)
    counts = [compilers.order.count(size) for size in (8, 16)]
    assert counts[0] <= 5
    assert counts[1] >= ENOUGH_OWN - 1
    assert [search.stopped_by for search in running] == ["interrupted", "interrupted"]
    assert sum(len(store.kept) for store in stores) == len(compilers.order)


def test_without_a_limit_of_time_those_of_a_kernel_follow_one_another():
    compilers = Recording()
    running, _ = searches(compilers, {8: 1.0, 16: 1000.0, 32: 10.0})
    assert run(running, compilers) == [8, 16, 32]
    # The next one's default runs where the first of one that is ahead of it is not done.
    assert compilers.order[:14].count(8) == 12
    assert compilers.order[:24].count(32) <= 1


def test_when_time_is_up_each_has_its_default():
    compilers = Recording()
    running, stores = searches(compilers, {8: 1.0, 16: 1.0, 32: 1.0})
    assert sorted(run(running, compilers, timeout_s=-1.0)) == [8, 16, 32]
    assert [[trial.config for trial in store.kept] for store in stores] == [[space().default]] * 3
    assert all(search.stopped_by == "timeout" for search in running)


def test_what_always_fails_does_not_starve_the_others():
    class Failing(Recording):
        def submit(self, question):
            self._compiled = failed if question.problem.dims[0][1] == 8 else answer
            return super().submit(question)

    def failed(_):
        return CompileFailed(reason="no")

    compilers = Failing(stop_after=40)
    running, _ = searches(compilers, {8: 1.0, 16: 30.0}, trials=60)
    run(running, compilers, timeout_s=600.0, stop=compilers.enough)
    assert compilers.order.count(16) > 10
