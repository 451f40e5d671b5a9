"""The whole way on the CPU: compiled in one process, loaded, warmed up and timed in another, raced.

Wall clock, and labelled so; the candidates are plain JAX functions.
"""

from pathlib import Path

import pytest

from autotune.compiling.protocol import Loaded
from autotune.domain.codec import from_data, to_data
from autotune.domain.evidence import (
    NOT_COMPARED,
    Measurement,
    MeasurementCandidate,
    NotMeasured,
    TimedNote,
)
from autotune.domain.key import KernelRef
from autotune.domain.problem import ProblemSpec, make_config
from autotune.measuring.session import (
    Child,
    MeasuringTask,
    Program,
    RaceLimits,
    Session,
    measuring_process,
)

pytestmark = pytest.mark.slow

WORK = MeasuringTask(
    ref=KernelRef(
        path=str(Path(__file__).parents[1] / "samples" / "plain_kernels.py"), attribute="KERNEL"
    ),
    problem=ProblemSpec(dims=("n",), dtypes=("float32",)).parse("64"),
    chip=None,
    seed=3,
)
HANGS_S = 20
"""Until a candidate that hangs is killed: the right ones beside it need a fraction of a second."""
PATIENCE = 6
"""Runs at most, until one has its machine for itself."""


def config(repeats, how="right"):
    return make_config({"repeats": repeats, "how": how})


QUICK, SLOW = config(1), config(300)


@pytest.fixture(scope="module")
def processes():
    made = []
    yield made
    assert not [process for process in made if process.running]


@pytest.fixture
def measure(pool, processes):
    def run(*configs, platform="cpu", number=0, programs=(), candidate_s=600):
        given = programs or ("",) * len(configs)
        candidates = [
            MeasurementCandidate(config=c, program=p) for c, p in zip(configs, given, strict=True)
        ]
        limits = RaceLimits(seconds=3600, samples=80, candidate_s=candidate_s)
        for _ in range(PATIENCE):
            processes.append(measuring_process(platform))
            session = Session(pool, processes[-1], WORK, number=number, limits=limits)
            found = session.measure(candidates, configs[-1] if configs else None)
            if isinstance(found, NotMeasured) or not _changed_in_the_middle(found):
                break
        return found

    return run


def _changed_in_the_middle(found):
    """A machine that others use: what was timed in its slower state alone is not compared."""
    return bool(found.void) or any(timed.refused == NOT_COMPARED for timed in found.timed)


def measured(found):
    assert isinstance(found, Measurement), found
    return found


def test_the_faster_one_wins_and_every_sample_is_kept(measure):
    found = measured(measure(QUICK, SLOW))
    assert found.method == "wall clock" and found.device == "cpu, device 0 of 1"
    assert found.timed[0].config == QUICK  # three hundred times less work
    slow = found.of(SLOW)
    assert slow is not None and slow.ratio is not None and slow.low is not None
    assert slow.ratio > 1 and slow.low <= slow.ratio <= (slow.high or 0)
    assert min(len(timed.samples_us) for timed in found.timed) >= 2
    assert found.baseline is not None and found.baseline.median_us
    assert not any(timed.refused or timed.note for timed in found.timed)
    assert from_data(Measurement, to_data(found)) == found


def test_the_same_program_is_measured_once(measure):
    found = measured(measure(QUICK, config(1, "raises"), SLOW, programs=("a", "a", "b")))
    twin, first = found.of(config(1, "raises")), found.of(QUICK)
    assert first is not None and twin is not None
    assert twin.samples_us == first.samples_us and twin.note == TimedNote.SAME_PROGRAM
    assert not twin.refused  # it was never run


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("dies", "it ended the measuring process: the measuring process died of SIGABRT"),
        ("hangs", f"it was killed: no answer within {HANGS_S} s"),
        ("raises", "a candidate that raises when it runs"),
    ],
)
def test_a_candidate_that_misbehaves_costs_only_itself(measure, how, reason):
    limit_s = HANGS_S if how == "hangs" else 600
    found = measured(measure(QUICK, config(1, how), SLOW, candidate_s=limit_s))
    bad = found.of(config(1, how))
    assert bad is not None and reason in bad.refused and bad.samples_us == ()
    assert {t.config for t in found.timed if not t.refused} == {QUICK, SLOW, None}


def test_what_runs_its_callback_in_another_process_is_compiled_there(measure):
    """Its executable cannot be written to a file: it is compiled by the process that runs it."""
    found = measured(measure(config(1, "called"), SLOW))
    called = found.of(config(1, "called"))
    assert called is not None and not called.refused and called.samples_us
    assert called.note == TimedNote.COMPILED_HERE or "is refused here" in called.note


def test_a_device_that_is_not_there_is_one_sentence(measure):
    assert measure(QUICK, number=7) == NotMeasured(
        "there is no device 7: this machine has 1, counted from 0"
    )


def test_without_a_tpu_it_says_so_and_does_not_hang(measure):
    found = measure(QUICK, platform="tpu")
    assert (
        isinstance(found, NotMeasured)
        and "accelerator" in found.reason
        and "\n" not in found.reason
    )


def test_an_executable_that_is_refused_is_compiled_again(tmp_path):
    path = tmp_path / "program"
    path.write_bytes(b"of another libtpu")
    child = Child(measuring_process("cpu"), WORK)
    try:
        child.open()
        loaded = child.load(Program(name="c0", config=QUICK, path=path))
        assert isinstance(loaded, Loaded) and loaded.compiled_here and loaded.refusal
        assert all(isinstance(us, float) and us > 0 for us in child.sample(["c0", "c0"]))
    finally:
        child.close()
