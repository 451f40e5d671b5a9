"""However a search is stopped, each candidate that was finished is a trial."""

from concurrent.futures import Future
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.domain.compilers import Attempt
from autotune.domain.errors import CompilerUnavailableError, StoreError
from autotune.domain.outcome import CompileFailed
from autotune.domain.problem import make_config
from autotune.domain.record import Trial
from autotune.estimating.space import Space
from autotune.searching.loop import Search
from autotune.searching.option_axes import no_options
from autotune.searching.run import run_searches

CONFIGS = [make_config({"block": n}) for n in range(4)]
DONE = Attempt(answer=CompileFailed(reason="no"), seconds=0.1)


class Store:
    def __init__(self):
        self.kept: list[Trial] = []
        self.lost = False

    def save_trials(self, key, trials):
        if self.lost:
            raise StoreError("the disk is gone")
        self.kept += trials
        return len(trials)

    def timed_trials(self, key, most):
        return []

    def numbers(self):
        return [trial.config["block"] for trial in self.kept]


class Compilers:
    """Each candidate is compiled, or has failed, when it is submitted."""

    size = 3

    def __init__(self, *results):
        self._results = list(results)
        self.asked: list[Future[Any]] = []

    def submit(self, _):
        future = Future()
        self.asked.append(future)
        found = self._results.pop(0)
        if isinstance(found, Exception):
            future.set_exception(found)
        elif found is not None:
            future.set_result(found)
        return future


def stopped(compilers, store, watch):
    """Why a search of three candidates stopped, after trial 0."""
    first = Trial(
        number=0, config=CONFIGS[0], outcome=DONE.answer, seconds=0.1, created_at=datetime.now(UTC)
    )
    candidates = [SimpleNamespace(config=config) for config in CONFIGS]
    waiting = iter(candidates[1:])
    study = SimpleNamespace(
        ask=lambda: next(waiting, None), tell=lambda *told, **more: None, predict=lambda _: None
    )
    space = Space(candidates=candidates, default=CONFIGS[0], default_verdict=None)
    spec = SimpleNamespace(name="kernel")
    subject = SimpleNamespace(key="key", spec=spec, chip=None, question=lambda kind, **_: kind)
    observer = SimpleNamespace(trial_done=watch)
    fakes = (compilers, store)
    options = no_options(subject)
    search = Search(*fakes, subject, space, study, observer, [first], options, goal=100)
    run_searches([search], compilers.size)
    return search.stopped_by


def quiet(trial):
    pass


def ctrl_c_when_done(compilers, *numbers):
    """At each trial, once these are done too."""

    def watch(trial):
        for number in numbers:
            if not compilers.asked[number - 1].done():
                compilers.asked[number - 1].set_result(DONE)
        raise KeyboardInterrupt

    return watch


@pytest.mark.parametrize(("finished", "kept"), [([3], [1, 3]), ([2, 3], [1, 2])])
def test_ctrl_c_keeps_what_was_finished_and_not_yet_collected(finished, kept):
    """A second one, while that is collected, is no traceback."""
    store, compilers = Store(), Compilers(DONE, None, None)
    assert stopped(compilers, store, ctrl_c_when_done(compilers, *finished)) == "interrupted"
    assert sorted(store.numbers()) == kept


def test_a_lost_compiler_keeps_the_others():
    store = Store()
    with pytest.raises(CompilerUnavailableError):
        stopped(Compilers(CompilerUnavailableError("no room"), DONE, DONE), store, quiet)
    assert sorted(store.numbers()) == [2, 3]


def test_a_lost_store_is_told_once():
    store = Store()
    store.lost = True
    with pytest.raises(StoreError, match="the disk is gone"):
        stopped(Compilers(DONE, DONE, DONE), store, quiet)
