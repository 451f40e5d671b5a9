"""The space against the real compiler: canonical, and rising limits."""

from collections import Counter

import pytest

from autotune.declaring.discovery import find_kernel
from autotune.domain.arguments import ProblemWords
from autotune.domain.key import Chip
from autotune.domain.outcome import Estimated, OutOfVmem
from autotune.domain.problem import make_config
from autotune.estimating.space import climb
from autotune.searching.one_config import compile_config, evaluate, outcome_of
from autotune.searching.subject import describe_subject, explore_space


def _explored(pool, kernel, shape, chip):
    ref = find_kernel(kernel)
    subject = describe_subject(pool, ref, chip, ProblemWords(shape=shape))
    return subject, explore_space(pool, subject, lambda *_: None)


@pytest.mark.parametrize(
    ("kernel", "shape", "chip"),
    [
        ("matmul", "256x256x512", Chip.V5P),
        ("matmul", "256x512x256", Chip.V6E),
        ("flash_attention", "2x2x2x256x384x128", Chip.V4),
        ("vector_add", "10000", Chip.V5E),
    ],
)
def test_no_two_candidates_compile_to_the_same_program(pool, kernel, shape, chip):
    subject, space = _explored(pool, kernel, shape, chip)
    pending = [compile_config(pool, subject, c.config) for c in space.candidates]
    outcomes = [outcome_of(future.result(), subject.chip) for future in pending]
    assert {o.kind for o in outcomes} == {"estimated"}
    programs = Counter(o.program for o in outcomes if isinstance(o, Estimated))
    assert max(programs.values()) == 1


def test_semantics_that_are_left_out_compile_to_what_is_kept(pool):
    """One core: semantics change nothing. Megacore: the divided axis decides."""
    config = make_config(
        {"block_m": 128, "block_k": 128, "block_n": 128}, grid_order=("m", "n", "k")
    )

    def program(chip, semantics):
        subject, _ = _explored(pool, "matmul", "256x256x256", chip)
        words = tuple({"P": "parallel", "A": "arbitrary"}[letter] for letter in semantics)
        chosen = config.replace(dimension_semantics=words)
        outcome = evaluate(pool, subject, chosen)
        assert isinstance(outcome, Estimated)
        return outcome.program

    assert program(Chip.V5E, "PPA") == program(Chip.V5E, "PAA") == program(Chip.V5E, "AAA")
    assert program(Chip.V5P, "PPA") == program(Chip.V5P, "PAA")
    assert program(Chip.V5P, "PPA") != program(Chip.V5P, "AAA")


def test_a_candidate_climbs_to_the_limit_that_holds_it(pool):
    """1024-blocks of bf16 need 16 MiB by arithmetic and 18.4 MiB with the compiler's spills: v5e
    refuses them under its own limit of 16 MiB and takes them under the next."""
    subject, space = _explored(pool, "matmul", "2048x2048x2048", Chip.V5E)
    candidate = next(
        c
        for c in space.candidates
        if dict(c.config.axes) == {"block_m": 1024, "block_k": 1024, "block_n": 1024}
    )
    assert candidate.config.vmem_limit_bytes is None
    refused = evaluate(pool, subject, candidate.config)
    assert isinstance(refused, OutOfVmem)
    assert not refused.by_rule
    assert refused.used_bytes > refused.allowed_bytes == 16 << 20
    higher = climb(candidate, subject.chip)
    assert higher is not None and higher.config.vmem_limit_bytes == 32 << 20
    taken = evaluate(pool, subject, higher.config)
    assert isinstance(taken, Estimated)
    assert 16 << 20 < taken.estimate.vmem_used_bytes <= 32 << 20
