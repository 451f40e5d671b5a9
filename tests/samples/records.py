"""Trials, keys and records for the tests of the database; also for the processes they start."""

from datetime import UTC, datetime, timedelta

from autotune.domain.key import Chip, KernelSpec, Key, Toolchain, installed_toolchain
from autotune.domain.outcome import (
    CompileFailed,
    Crashed,
    Estimate,
    Estimated,
    Illegal,
    NotEstimated,
    OutOfVmem,
    TimedOut,
    WrongResult,
)
from autotune.domain.problem import Config, Option, Problem, ProblemSpec
from autotune.domain.record import Evidence, Method, Record, Trial

NOON = datetime(2026, 1, 2, 12, 0, 0, 123456, tzinfo=UTC)
NASTY = "line 1\nline 2\t'; DROP TABLE trials; -- \0 \ud800 \U0001f600 \x7f {db} %s"


def estimate(time_us=12.3456789012345, **changes):
    fields = {
        "time_us": time_us,
        "compute_us": 0.1,
        "memory_us": 1 / 3,
        "overhead_us": 5e-324,
        "fill_us": 1.7976931348623157e308,
        "limited_by": "HBM",
        "model": "schedule-1",
        "vmem_used_bytes": 2**40,
        "vmem_allowed_bytes": 0,
        "hbm_bytes": 2**62,
        "flops": 2**70,
        "notes": ("first", NASTY),
    }
    return Estimate(**{**fields, **changes})


OUTCOMES = (
    Estimated(estimate=estimate(), program="abc"),
    Estimated(estimate=estimate(notes=()), program=""),
    NotEstimated(reason=NASTY, vmem_used_bytes=3, program="def"),
    Illegal(reason="second-minor block 12 is no multiple of 8"),
    OutOfVmem(reason="too big", used_bytes=2**34, allowed_bytes=2**24, by_rule=True),
    OutOfVmem(reason="too big", used_bytes=2**34, allowed_bytes=2**24),
    CompileFailed(reason="no", unsupported=True, message=NASTY * 1000),
    TimedOut(reason="slow", limit_s=0.1),
    Crashed(reason="SIGABRT", log_tail=NASTY),
    WrongResult(reason="off by 3", estimate=estimate(7.0)),
    WrongResult(reason="off by 3"),
)


def key(kernel="matmul", *, m=4096, chip=Chip.V5E, jax="0.9.0"):
    problem = Problem(
        dims=(("m", m), ("k", 128), ("a", 1)),
        dtype="bfloat16",
        options=(("transposed", True), ("activation", "gelu"), ("depth", 2)),
    )
    toolchain = Toolchain(jax=jax, jaxlib=jax, libtpu="0.0.30")
    return Key(kernel=kernel, fingerprint="f00d", problem=problem, chip=chip, toolchain=toolchain)


def config(bm=128):
    return Config(
        axes=(("bm", bm), ("bk", 512), ("fuse", True), ("mode", "x"), ("a", 1)),
        grid_order=("n", "m", "k"),
        dimension_semantics=("parallel", "parallel", "arbitrary"),
        vmem_limit_bytes=2**24,
    )


def trial(number=0, outcome=OUTCOMES[0], bm=None):
    return Trial(
        number=number,
        config=config(bm if bm is not None else 8 * (number + 1)),
        outcome=outcome,
        seconds=1.5 + number / 3,
        created_at=NOON + timedelta(seconds=number),
    )


def record(of=None, time_us=5.5, created_at=NOON):
    return Record(
        key=of or key(),
        config=config(),
        estimate=estimate(time_us),
        default=Evidence(config=Config(axes=()), time_us=9.25),
        baseline=Evidence(config=None, time_us=3.5, expected_us=7.25, note=NASTY),
        is_default=False,
        reason="",
        verification=NASTY,
        verified=True,
        trials=17,
        method=Method.ESTIMATED,
        created_at=created_at,
    )


def spec(name="matmul", fingerprint="f00d"):
    options = (
        Option(name="transposed", choices=(False, True), default=False),
        Option(name="activation", choices=("none", "gelu"), default="none"),
    )
    return KernelSpec(
        name=name,
        fingerprint=fingerprint,
        problems=ProblemSpec(dims=("m", "k", "a"), dtypes=("bfloat16", "float32"), options=options),
        axes=("bm", "bk"),
        grid=("n", "m"),
        doc=NASTY,
    )


def key_here(spec, shape, chip):
    """Of a problem of the kernel, under the installed toolchain."""
    toolchain = installed_toolchain()
    assert toolchain is not None
    problem = spec.problems.parse(shape, None, ())
    return Key(
        kernel=spec.name,
        fingerprint=spec.fingerprint,
        problem=problem,
        chip=chip,
        toolchain=toolchain,
    )


def save_trial(store, key, trial):
    """Keep one; false where its number or its config is there already."""
    return store.save_trials(key, [trial]) == 1
