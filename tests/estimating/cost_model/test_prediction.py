"""Times of pipelines whose steps have a known cost, against arithmetic and the real compiler."""

from dataclasses import replace

import numpy as np
import pytest

from autotune.declaring.discovery import find_kernel
from autotune.domain.arguments import ProblemWords
from autotune.domain.compilers import CompileConfig
from autotune.domain.key import Chip
from autotune.domain.outcome import Estimated
from autotune.estimating.cost_model.estimate import estimate
from autotune.estimating.cost_model.prediction import pipeline, predicted_us, step_facts
from autotune.estimating.simulator import constants, dma
from autotune.estimating.simulator.lowering import HBM_READ, HBM_WRITE, STEP, WAITED, CoreWork
from autotune.searching.one_config import config_judge
from autotune.searching.subject import describe_subject
from tests.samples.traces import MIB, V5E, operand, trace

LIBTPU = "0.0.35"


def moved(steps, block_bytes, rows=1.0, **fields):
    """A block each step; ``rows``: how much of the last block there is."""
    size = round((steps - 1 + rows) * 8)
    total = round((steps - 1 + rows) * block_bytes)
    known = {"fetches": steps, "blocks": steps, "blocks_total": steps, "hbm_bytes": total}
    return operand((size, 128), (8, 128), **{**known, **fields})


def calls(steps, block_bytes, rows=1.0):
    return trace(moved(steps, block_bytes, rows), grid=(steps,))


def us(call, core_us, in_vmem=()):
    calls = [pipeline(call, V5E, in_vmem)]
    return float(predicted_us(calls, np.array([core_us]), V5E.chip, LIBTPU)[0])


@pytest.mark.parametrize("rows", [1.0, 0.5])
def test_short_steps_wait_for_the_bytes_that_there_are(rows):
    bytes_us = (7 + rows) * MIB / V5E.hbm_bytes_per_s * 1e6
    assert bytes_us < us(calls(8, MIB, rows), 0.05) < 1.25 * bytes_us


@pytest.mark.parametrize("core_us", [0.05, 3.0])
def test_a_long_grid_goes_on_as_it_began(core_us):
    one, many = (us(calls(steps, MIB // 4), core_us) for steps in (150, 15_000))
    assert many == pytest.approx(100 * one, rel=0.02)


def test_a_grid_that_depends_on_data_has_facts():
    assert dict(step_facts(replace(calls(8, MIB), grid=(0,)), V5E))["core_us"] > 0


def events(call, cycles, granule_bytes):
    """What a listing of such a pipeline is read as."""

    def moved(outputs, step):
        for (is_output, number), sizes in call.moves.items():
            if is_output is outputs and step < call.steps and sizes[step] > 0.0:
                yield number, sizes[step] / granule_bytes

    written = {}
    for step in range(-1, call.steps):
        clock = max(0, step) * cycles
        if step >= 0:
            yield clock, 0.0, 0.0, STEP, CoreWork(0, 0, 0, 0)
        for number, amount in moved(False, step + 1):
            yield clock, amount, number, HBM_READ, (0.0,)
        for number, amount in moved(False, step) if step >= 0 else ():
            yield clock + 20.0, amount, number, WAITED, ()
        for number, amount in moved(True, step) if step >= 0 else ():
            yield clock + cycles, amount, number, HBM_WRITE, (0.0,)
            if number in written:
                yield clock + cycles, written[number], number, WAITED, ()
            written[number] = amount
    for number, amount in written.items():
        yield call.steps * cycles, amount, number, WAITED, ()


def pipelines():
    """Of several grids and operands: of one step, of ragged edges, of blocks that stay."""
    left = moved(3, MIB // 4, 0.3, varies=(True, False))
    right = moved(8, MIB // 8, varies=(False, True), hbm_bytes=3 * MIB)
    accumulated, each = replace(left, is_output=True), replace(right, is_output=True)
    found = [
        trace(left, right, accumulated, grid=(3, 8)),
        trace(left, right, each, grid=(3, 8)),
        trace(right, left, grid=(3, 8)),
        trace(moved(4, 4096, varies=(True, False), is_output=True), grid=(4, 4)),
        calls(1, MIB),
        calls(64, 4096),
    ]
    return [pipeline(one, V5E) for one in found]


@pytest.mark.parametrize("chip", [Chip.V5E, Chip.V5P, Chip.V7X])  # V5P: two cores share
@pytest.mark.parametrize("core_us", [0.02, 0.4, 3.0])
def test_calls_side_by_side_take_as_long_as_each_replayed(chip, core_us):
    known = constants.load(chip.value, LIBTPU)
    cycles, work = core_us * known.clock_hz / 1e6, CoreWork(0, 0, 0, 0)
    together = predicted_us(pipelines(), np.full(6, core_us), chip, LIBTPU)
    for one, found in zip(pipelines(), together, strict=True):
        final = (one.steps * cycles, 0.0, 0.0, STEP, work)
        line = dma.replay(list(events(one, cycles, known.granule_bytes)), dma.shared(known), final)
        assert found == pytest.approx(line.end.cycles / known.clock_hz * 1e6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "shape"),
    [
        ("matmul", "512x1024x512"),
        ("matmul", "384x700x512"),
        ("flash_attention", "1x2x2x512x1024x128"),
    ],
)
def test_the_real_compilers_steps_make_the_time_of_its_listing(pool, kernel, shape):
    ref = find_kernel(kernel)
    subject = describe_subject(pool, ref, Chip.V5E, ProblemWords(shape=shape))
    problem, chip = subject.problem, subject.chip
    judge = config_judge(pool, subject)
    for config in map(
        judge.read, ("default", "block_m=256" if kernel == "matmul" else "block_q=256")
    ):
        answer = pool.ask(
            CompileConfig(ref=ref, problem=problem, config=config, chip=chip.chip)
        ).answer
        assert isinstance(answer, tuple)
        found = estimate(*answer, chip)
        assert isinstance(found, Estimated)
        calls = [pipeline(answer[0], chip, found.step.in_vmem)]
        core_us = np.array([found.step.core_us])
        (predicted,) = predicted_us(calls, core_us, chip.chip, subject.toolchain.libtpu)
        assert predicted == pytest.approx(found.estimate.kernel_us, rel=0.1)
