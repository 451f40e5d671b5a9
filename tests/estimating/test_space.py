"""From raw points to candidates: the default's verdict, merging, refusals, limits."""

from dataclasses import replace

import pytest

from autotune.domain.errors import InvalidInputError, NoLegalConfigError
from autotune.domain.key import Choices, KernelRef
from autotune.domain.outcome import (
    CompileFailed,
    Illegal,
    LimitSource,
    OutOfVmem,
    ParallelAfterArbitrary,
    Rule,
)
from autotune.domain.problem import ProblemSpec
from autotune.estimating.space import (
    around,
    climb,
    explore,
    limit_named,
    refusal_group,
    some_untraced,
    widen,
)
from autotune.wording.outcome import error_text, reason_of
from tests.fakes.compiler import FakeCompilers
from tests.samples.traces import V5E, operand, trace

PROBLEM = ProblemSpec(dims=("n",), dtypes=("float32",)).parse("4096")
REF = KernelRef(path="k.py", attribute="K")


def traced(config):
    """A copy of [4096, 4096] in square blocks over a grid (i, j), in both orders."""
    size = config["size"]
    n = -(-4096 // size)
    orders = []
    for _ in ("ij", "ji"):
        varies = (True, True)
        both = {
            "varies": varies,
            "exclusive": varies,
            "fetches": n * n,
            "blocks": n * n,
            "blocks_total": n * n,
            "hbm_bytes": 4096 * 4096 * 4,
        }
        x = operand((4096, 4096), (size, size), "float32", **both)
        out = operand((4096, 4096), (size, size), "float32", name="out", is_output=True, **both)
        made = trace(x, out, grid=(n, n), io_bytes=2 * 4096 * 4096 * 4)
        orders.append(
            replace(
                made,
                dimension_semantics=config.dimension_semantics,
                vmem_limit_bytes=config.vmem_limit_bytes,
            )
        )
    return orders


def fixed(config):
    """The same from a kernel that sets its semantics and limit itself."""
    own = {"dimension_semantics": ("parallel", "arbitrary"), "vmem_limit_bytes": 24 << 20}
    return [replace(made, **own) for made in traced(config)]


def mapped(config):
    """The same under ``vmap``, which puts an axis in front of the grid: a config names the others,
    as JAX wants it."""
    found = []
    for made in traced(config):
        operands = tuple(
            replace(op, varies=(True, *op.varies), exclusive=(True, *op.exclusive))
            for op in made.operands
        )
        given = config.dimension_semantics
        found.append(
            replace(
                made,
                grid=(6, *made.grid),
                operands=operands,
                added_axes=(0,),
                dimension_semantics=("parallel", *given) if given else (),
            )
        )
    return found


def explored(sizes, default, answer=traced, *, grid=("i", "j")):
    choices = Choices(axes={"size": list(sizes)}, default={"size": default}, grid=grid)
    return explore(FakeCompilers(traced=answer), REF, PROBLEM, choices, V5E)


def test_what_takes_too_long_to_trace_is_traced_when_it_is_asked_for():
    choices = Choices(axes={"size": [256, 512, 1024, 2048]}, default={"size": 512}, grid=("i", "j"))
    compilers = FakeCompilers(traced=traced)
    first = explore(compilers, REF, PROBLEM, choices, V5E, enough_s=0.0)
    assert len(compilers.traced_chips) == 3 + 1 + 1  # what it passes on, the default, a point
    assert len(first.untraced) == 3 and configs(first) > {(512, "ij")}
    assert (("size", 512),) not in around(first, first.default)
    widen(first, some_untraced(first))
    whole = explore(compilers, REF, PROBLEM, choices, V5E)
    assert not first.untraced and configs(first) == configs(whole)
    assert (first.raw_points, first.refused) == (whole.raw_points, whole.refused)


def configs(space):
    return {(c.config["size"], "".join(c.config.grid_order)) for c in space.candidates}


def test_both_orders_are_candidates_and_the_default_is_one_of_them():
    space = explored([512, 1024], 512)
    assert configs(space) == {(512, "ij"), (512, "ji"), (1024, "ij"), (1024, "ji")}
    assert space.default_verdict is None
    assert space.default in [c.config for c in space.candidates]
    assert space.default.dimension_semantics == ("parallel", "parallel")


def test_orders_that_only_move_axes_of_one_block_are_merged():
    space = explored([4096], 4096)
    assert (space.raw_points, space.merged, len(space.candidates)) == (2, 1, 1)


def test_blocks_start_on_the_lowest_limit_that_can_hold_them():
    space = explored([512, 1024, 2048], 512)
    limits = {c.config["size"]: c.config.vmem_limit_bytes for c in space.candidates}
    # two f32 arrays, double buffered: 4 MiB, 16 MiB, 64 MiB
    assert limits == {512: None, 1024: None, 2048: 64 << 20}


def test_what_a_kernel_sets_itself_is_not_tuned():
    space = explored([512, 1024, 2048], 512, fixed)
    assert not space.passed_on.semantics and not space.passed_on.limit
    assert {c.config.dimension_semantics for c in space.candidates} == {()}
    assert {c.config.vmem_limit_bytes for c in space.candidates} == {None}
    assert {c.trace.dimension_semantics for c in space.candidates} == {("parallel", "arbitrary")}
    assert {size for size, _ in configs(space)} == {512, 1024}  # 2048 needs 64 MiB of 24
    assert all(climb(candidate, V5E) is None for candidate in space.candidates)
    refused = space.first_refused
    assert isinstance(refused, OutOfVmem) and refused.limited_by == LimitSource.KERNEL
    assert (refused.used_bytes, refused.allowed_bytes) == (64 << 20, 24 << 20)
    assert space.refused == {refusal_group(refused): 2}
    assert "`compiler_params` with `vmem_limit_bytes` >= 67_108_864" in reason_of(refused)


def test_semantics_of_its_own_that_are_against_the_rules_are_refused():
    def wrong(config):
        own = ("arbitrary", "parallel")
        return [replace(made, dimension_semantics=own) for made in traced(config)]

    with pytest.raises(NoLegalConfigError) as error:
        explored([512], 512, wrong)
    first = error.value.first
    assert isinstance(first, Illegal) and first.violation == ParallelAfterArbitrary(axis=1)


def test_a_default_outside_the_choices_is_a_candidate_too():
    assert (256, "ij") in configs(explored([512], 256))


def test_a_default_that_cannot_work_has_a_verdict_and_is_no_candidate():
    space = explored([512], 2048)
    assert isinstance(space.default_verdict, OutOfVmem) and space.default_verdict.by_rule
    space = explored([512], 100)
    assert isinstance(space.default_verdict, Illegal)
    assert space.default_verdict.rule == Rule.BLOCK_ALIGNMENT


def test_points_are_refused_with_their_reasons():
    space = explored([100, 512, 4096], 512)
    assert space.refused[Illegal(rule=Rule.BLOCK_ALIGNMENT)] == 2
    assert space.raw_points == 6
    assert {size for size, _ in configs(space)} == {512, 4096}


def test_what_one_line_raises_is_counted_together_whatever_its_figures():
    def answer(config):
        size = config["size"]
        place = "ValueError k.py:7" if size != 2048 else "ValueError k.py:9"
        bad = CompileFailed(reason=f"{size} does not divide", raised_at=place)
        return traced(config) if size == 512 else bad

    space = explored([256, 512, 1024, 2048], 512, answer)
    counts = {group.reason: n for group, n in space.refused.items()}
    assert counts == {"256 does not divide": 2, "2048 does not divide": 1}


def test_the_compilers_verdict_says_who_set_the_limit():
    found = OutOfVmem(reason="", used_bytes=20 << 20, allowed_bytes=16 << 20)
    tuned, own = explored([512], 512), explored([512], 512, fixed)
    config = tuned.default
    said = limit_named(tuned, config, found, V5E)
    assert (said.limited_by, said.remedy_bytes) == (LimitSource.COMPILER, None)
    set_by_config = config.replace(vmem_limit_bytes=16 << 20)
    assert limit_named(tuned, set_by_config, found, V5E).limited_by == LimitSource.CONFIG
    whole = replace(found, used_bytes=130 << 20, allowed_bytes=128 << 20)
    assert limit_named(tuned, config, whole, V5E).limited_by == LimitSource.CHIP
    said = limit_named(own, config, found, V5E)
    assert (said.limited_by, said.remedy_bytes) == (LimitSource.COMPILER, 20_971_520)


def test_no_legal_config_is_an_error_that_counts_the_reasons():
    with pytest.raises(NoLegalConfigError) as error:
        explored([100, 300], 100)
    aligned = Illegal(rule=Rule.BLOCK_ALIGNMENT)
    assert (error.value.points, error.value.refused) == (4, ((aligned, 4),))
    assert "is not a multiple of 128" in error_text(error.value)


def test_a_problem_larger_than_hbm_is_refused():
    def huge(config):
        return [trace(*t.operands, grid=t.grid, io_bytes=1 << 40) for t in traced(config)]

    with pytest.raises(InvalidInputError, match=r"needs 1024\.0 GiB of HBM, v5e has"):
        explored([512], 512, huge)


def test_semantics_are_for_the_grid_that_the_kernel_was_written_for():
    """JAX refuses others: "Length of grid does not match length of dimension semantics"."""
    space = explored([512], 512, mapped)
    assert space.passed_on.semantics
    assert configs(space) == {(512, "ij"), (512, "ji")}
    for found in space.candidates:
        assert found.config.dimension_semantics == ("parallel", "parallel")
        assert found.trace.dimension_semantics == ("parallel",) * 3
