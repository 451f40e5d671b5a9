"""What holds for every chip is asked for once."""

from collections.abc import Callable

import pytest

from autotune.compiling.protocol import Traces
from autotune.compiling.shared import SharedAcrossChips
from autotune.domain.config import make_config
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.problem import Problem
from autotune.domain.verdict import Verdict
from tests.samples.traces import trace

REF = KernelRef(path="kernel.py", attribute="KERNEL")
PROBLEM = Problem(dims=(("n", 8),), dtype="float32")
CONFIG = make_config({"block": 8})
RIGHT = Verdict(ok=True, reason="right")


def shared(*, asks_chip: bool = False) -> SharedAcrossChips:
    found = SharedAcrossChips()
    found.traces(REF, PROBLEM)
    found.take(REF, PROBLEM, (CONFIG, True), Traces([trace()], asks_chip))
    return found


def counting(verdict: Verdict, asked: list[str]) -> Callable[[], Verdict]:
    def verify() -> Verdict:
        asked.append("verify")
        return verdict

    return verify


def test_traces_and_verdicts_are_shared_whatever_the_limit() -> None:
    one, asked = shared(), list[str]()
    assert one.traces(REF, PROBLEM) == {(CONFIG, True): [trace()]}
    for limit in (None, 1 << 25):
        config = CONFIG.replace(vmem_limit_bytes=limit)
        assert one.verdict(REF, PROBLEM, config, counting(RIGHT, asked)) == RIGHT
    assert len(asked) == 1
    other = make_config({"block": 4})
    one.verdict(REF, PROBLEM, other, counting(RIGHT, asked))
    assert len(asked) == 2


def test_a_kernel_that_asks_for_its_chip_shares_nothing() -> None:
    one, asked = shared(), list[str]()
    one.take(REF, PROBLEM, (CONFIG, False), Traces([trace()], asks_chip=True))
    assert one.traces(REF, PROBLEM) == {}
    for _ in range(2):
        one.verdict(REF, PROBLEM, CONFIG, counting(RIGHT, asked))
    assert len(asked) == 2


def test_another_source_knows_nothing_of_the_one_before() -> None:
    one, asked = shared(), list[str]()
    one.described(REF, "a")
    one.verdict(REF, PROBLEM, CONFIG, counting(RIGHT, asked))
    one.described(REF, "b")
    assert one.traces(REF, PROBLEM) == {}
    one.take(REF, PROBLEM, (CONFIG, True), Traces([trace()]))
    one.verdict(REF, PROBLEM, CONFIG, counting(RIGHT, asked))
    assert len(asked) == 2


def test_what_could_not_be_verified_is_tried_again() -> None:
    one, asked = shared(), list[str]()
    one.verdict(REF, PROBLEM, CONFIG, counting(Verdict(ok=None, reason="it hung"), asked))

    def broken() -> Verdict:
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        one.verdict(REF, PROBLEM, CONFIG, broken)
    assert one.verdict(REF, PROBLEM, CONFIG, counting(RIGHT, asked)) == RIGHT
    assert len(asked) == 2
