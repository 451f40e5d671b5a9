"""Records and questions for the tests of matching, the service and the client."""

from dataclasses import replace
from datetime import UTC, datetime

from autotune.domain.key import Chip, KernelSpec, Key, Toolchain
from autotune.domain.outcome import Estimate
from autotune.domain.problem import Config, Option, Problem, ProblemSpec
from autotune.domain.record import Evidence, Method, Record
from autotune.domain.rule import BlockAxis, CompiledBlocks, CostTerm, ShapeRule

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
OPTION = Option(name="causal", choices=(False, True), default=False)
SPEC = KernelSpec(
    name="mm",
    fingerprint="f00d",
    problems=ProblemSpec(dims=("m", "k"), dtypes=("bfloat16", "float32"), options=(OPTION,)),
    axes=("bm", "unroll"),
    grid=("m",),
    cuts=(("bm", "m"),),
)


def question(
    m=1024,
    k=128,
    *,
    jax="0.10.2",
    kernel="mm",
    dtype="bfloat16",
    causal=False,
    chip=Chip.V5E,
    fingerprint="f00d",
):
    problem = Problem(dims=(("m", m), ("k", k)), dtype=dtype, options=(("causal", causal),))
    toolchain = Toolchain(jax=jax, jaxlib=jax, libtpu="0.0.42")
    return Key(
        kernel=kernel, fingerprint=fingerprint, problem=problem, chip=chip, toolchain=toolchain
    )


def record(key=None, bm=256, *, used=100, allowed=250):
    estimate = Estimate(
        time_us=5.5,
        compute_us=1.0,
        memory_us=2.0,
        overhead_us=0.5,
        fill_us=0.25,
        limited_by="HBM",
        model="schedule-1",
        vmem_used_bytes=used,
        vmem_allowed_bytes=allowed,
        hbm_bytes=10,
        flops=20,
        notes=("a note",),
    )
    key = key or question()
    block = min(bm, max(dict(key.problem.dims).get("m", bm), 128))
    return Record(
        key=key,
        config=Config(
            axes=(("bm", block), ("unroll", True)),
            grid_order=("m",),
            dimension_semantics=("parallel",),
        ),
        estimate=estimate,
        default=Evidence(config=Config(axes=(("bm", 128), ("unroll", False))), time_us=9.25),
        baseline=Evidence(config=None, time_us=3.5, expected_us=7.25, note="a bound"),
        is_default=False,
        reason="faster",
        verification="two cores",
        verified=True,
        trials=17,
        method=Method.ESTIMATED,
        created_at=NOON,
    )


def older(of, jax):
    """The same record, tuned with another JAX."""
    toolchain = replace(of.key.toolchain, jax=jax, jaxlib=jax)
    return replace(of, key=replace(of.key, toolchain=toolchain))


def ruled():
    """A step costs as much as any other, so the largest block that was compiled is the answer."""
    compiled = CompiledBlocks(
        config=record(bm=512).config,
        dims=(("m", 4096), ("k", 128)),
        vmem_used_bytes=100,
        vmem_allowed_bytes=250,
    )
    return ShapeRule(
        made_at=NOON,
        least=(("m", 300), ("k", 128)),
        most=(("m", 4096), ("k", 128)),
        axes=(BlockAxis(name="bm", dim="m", sizes=(128, 256, 512)),),
        divides=(),
        grows=(),
        runs=(),
        inside=(),
        compiled=(compiled,),
        costs=(CostTerm(us=1.0, of=(), each_step=True),),
        left_out=12,
        problems=9,
        median_regret=0.01,
        worst_regret=0.05,
        nearest_regret=0.2,
        default_regret=0.4,
    )
