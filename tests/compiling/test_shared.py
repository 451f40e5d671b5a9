"""What holds for every chip is asked for once."""

from dataclasses import replace

import pytest

from autotune.compiling.pool import SharedAcrossChips
from autotune.domain.compilers import DescribeKernel, TraceConfig, Traces, VerifyConfig
from autotune.domain.evidence import Verdict
from autotune.domain.key import Chip, KernelRef
from autotune.domain.problem import Problem, make_config
from tests.samples.matching import SPEC
from tests.samples.traces import trace

REF = KernelRef(path="kernel.py", attribute="KERNEL")
PROBLEM = Problem(dims=(("n", 8),), dtype="float32")
CONFIG = make_config({"block": 8})
RIGHT = Verdict(ok=True, reason="right")
TRACED = TraceConfig(ref=REF, problem=PROBLEM, config=CONFIG, orders=True)


def verify(config=CONFIG, chip=Chip.V5E):
    return VerifyConfig(ref=REF, problem=PROBLEM, config=config, chip=chip)


def answering(answer):
    return lambda _: answer


class Counting:
    """Gives the same verdict each time."""

    def __init__(self, verdict=RIGHT):
        self.asked, self.verdict = 0, verdict

    def __call__(self, _):
        self.asked += 1
        return self.verdict


def shared(*, asks_chip=False):
    known = SharedAcrossChips()
    known.answer(TRACED, answering(Traces([trace()], asks_chip)))
    return known


def test_traces_and_verdicts_are_shared_whatever_the_chip_and_the_limit():
    known, count = shared(), Counting()
    other_chip = TraceConfig(ref=REF, problem=PROBLEM, config=CONFIG, orders=True, chip=Chip.V6E)
    assert known.traces(other_chip) == Traces([trace()])
    for limit, chip in ((None, Chip.V5E), (1 << 25, Chip.V6E)):
        question = verify(CONFIG.replace(vmem_limit_bytes=limit), chip)
        assert known.answer(question, count) == RIGHT
    assert count.asked == 1
    known.answer(verify(make_config({"block": 4})), count)
    assert count.asked == 2


def test_a_kernel_that_asks_for_its_chip_shares_nothing():
    known, count = shared(asks_chip=True), Counting()
    assert known.traces(TRACED) is None
    for _ in range(2):
        known.answer(verify(), count)
    assert count.asked == 2


def test_another_source_knows_nothing_of_the_one_before():
    known, count = shared(), Counting()
    for fingerprint in ("a", "b"):
        known.answer(DescribeKernel(ref=REF), answering(replace(SPEC, fingerprint=fingerprint)))
        known.answer(TRACED, answering(Traces([trace()])))
        known.answer(verify(), count)
    assert count.asked == 2


def test_what_could_not_be_verified_is_tried_again():
    known, count = shared(), Counting()
    known.answer(verify(), Counting(Verdict(ok=None, reason="it hung")))

    def broken(_):
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        known.answer(verify(), broken)
    assert known.answer(verify(), count) == RIGHT
    assert count.asked == 1
