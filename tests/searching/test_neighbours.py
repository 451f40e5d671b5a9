"""Which untried candidates lie next to the best."""

from dataclasses import replace

from autotune.estimating.space import Candidate
from autotune.searching.surrogate import Neighbours, is_ragged
from tests.samples import candidates as candidatesamples
from tests.samples.traces import operand

ALL = candidatesamples.space()


def index(m: int, n: int, order: tuple[str, ...] = ("m", "n")) -> int:
    return next(
        i
        for i, c in enumerate(ALL)
        if (c.config["block_m"], c.config["block_n"], c.config.grid_order) == (m, n, order)
    )


def near(untried: list[int], best: int = index(1024, 512)) -> list[int]:
    return Neighbours(ALL).of(best, untried)


def test_one_doubling_along_each_axis_and_the_other_order() -> None:
    everything = [i for i in range(len(ALL)) if i != index(1024, 512)]
    expected = [
        index(512, 512),
        index(2048, 512),
        index(1024, 256),
        index(1024, 1024),
        index(1024, 512, ("n", "m")),
    ]
    assert near(everything) == sorted(expected)


def test_what_was_tried_is_jumped_over() -> None:
    assert near([index(4096, 512), index(1024, 128)]) == sorted(
        [index(4096, 512), index(1024, 128)]
    )
    assert near([index(128, 512), index(1024, 128)]) == [index(1024, 128)]


def test_two_things_that_differ_are_no_neighbour() -> None:
    assert near([index(512, 256), index(512, 512, ("n", "m"))]) == []


def ragged(block: int) -> Candidate:
    """Blocks of so many rows of 1024."""
    one = candidatesamples.candidate(block, 512)
    x = operand((1024, 128), (block, 128))
    return replace(one, trace=replace(one.trace, operands=(x,)))


def test_whole_blocks_have_no_ragged_neighbours_and_ragged_ones_have_both() -> None:
    whole, odd, half = ragged(512), ragged(384), ragged(256)
    assert [is_ragged(c.trace) for c in (whole, odd, half)] == [False, True, False]
    near_them = Neighbours([whole, odd, half])
    assert near_them.of(0, [1, 2]) == [2]
    assert near_them.of(1, [0, 2]) == [0]
