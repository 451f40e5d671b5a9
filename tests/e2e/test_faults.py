"""A candidate that attacks its compiler costs itself, never the search."""

import psutil
import pytest

from autotune.wording.outcome import group_text, reason_of
from tests.e2e.fault_search import EXPECTED, REFUSED, search_faults, temporary_folder
from tests.e2e.leftovers import wait_for_none

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def own_folder(tmp_path_factory):
    with temporary_folder(tmp_path_factory.mktemp("faults") / "tmp") as folder:
        yield folder


@pytest.fixture(scope="module")
def others():
    """What other tests have started, and still use."""
    return psutil.Process().children(recursive=True)


@pytest.fixture(scope="module")
def run(own_folder, others):
    """What hangs costs the limit; what works needs a second of it, in which nobody counts how long
    it waits for a processor."""
    return search_faults(own_folder.parent, limit_s=8)


def test_the_search_ends_normally_and_loses_no_candidate(run):
    assert run.result.stopped_by == "exhausted"
    assert len(run.result.trials) == len(run.kept) == len(EXPECTED)
    assert set(run.kept) == set(EXPECTED)
    assert run.kept["works"].number == 0


@pytest.mark.parametrize("behaviour", EXPECTED)
def test_each_candidate_has_its_outcome_and_a_reason(run, behaviour):
    kind, words = EXPECTED[behaviour]
    outcome = run.kept[behaviour].outcome
    assert (outcome.kind, words in reason_of(outcome)) == (kind, True), outcome


@pytest.mark.parametrize("behaviour", REFUSED)
def test_a_fault_while_tracing_costs_one_point(run, behaviour):
    words = REFUSED[behaviour]
    assert sum(n for group, n in run.space.refused.items() if words in group_text(group)) == 1
    assert sum(run.space.refused.values()) == len(REFUSED)
    assert run.space.raw_points == len(EXPECTED) + len(REFUSED)


def test_a_crash_keeps_the_last_lines_of_the_log(run):
    assert "signal 6" in getattr(run.kept["aborts"].outcome, "log_tail", "")


def test_nothing_is_left_behind(run, own_folder, others):
    processes, folders, _ = wait_for_none(own_folder, 60)
    assert (processes, folders) == ([], [])
    assert psutil.Process().children(recursive=True) == others
