"""A search whose finalists are timed: the real compiler, the real gate, the real measuring process;
on the CPU, in interpret mode, which no command ever does: it is wall clock and says so."""

import pytest

from autotune.declaring.discovery import find_kernel
from autotune.domain.arguments import ProblemWords
from autotune.domain.evidence import NOT_COMPARED
from autotune.domain.key import Chip
from autotune.measuring.session import MeasuringTask, RaceLimits, Session, measuring_process
from autotune.publishing.publish import publish
from autotune.searching.subject import SearchLimits, describe_subject, explore_space
from autotune_db import open_store
from tests.fakes.compiler import Quiet
from tests.samples.searching import run_search

pytestmark = pytest.mark.slow

# However busy the machine is, samples decide when a race ends, and nothing is refused as too slow.
PATIENT = RaceLimits(seconds=3600, samples=60, candidate_s=600)


def test_the_finalists_of_a_search_are_timed_and_the_record_keeps_it(pool, tmp_path):
    ref = find_kernel("vector_add")
    subject = describe_subject(pool, ref, Chip.V5E, ProblemWords(shape="4096", dtype="float32"))
    with open_store(f"sqlite:///{tmp_path / 'db'}", create=True) as store:
        result = run_search(
            pool,
            store,
            subject,
            explore_space(pool, subject, lambda *_: None),
            SearchLimits(trials=4),
            Quiet(),
        )
        session = Session(
            pool,
            measuring_process("cpu"),
            MeasuringTask(ref=ref, problem=subject.problem, chip=None),
            limits=PATIENT,
        )
        published = publish(pool, store, result, measure=session.measure)
        kept = store.record(subject.key)
    found = published.record
    assert found is not None and kept == found and found.verified
    assert found.measurement is not None and found.measurement.method == "wall clock"
    # A machine that others use may change in the middle: what was timed in its slower state alone
    # is not compared, and where it ends there nothing is decided.
    assert {t.refused for t in found.measurement.timed} <= {"", NOT_COMPARED}
    assert all(len(t.samples_us) >= 2 for t in found.measurement.timed)
    if not found.measurement.void:
        timed = found.measurement.of(found.config)
        assert timed is not None and not timed.refused
        assert found.method == "measured" and found.time_us == timed.median_us
