"""Results as tuning machines push them: each says in its reason whose it is, so that it can be
found again."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from autotune.answering.push import result_to_data
from autotune.domain.codec import to_data
from autotune.domain.key import Chip, KernelSpec, Key, Toolchain
from autotune.domain.outcome import Estimate, Estimated
from autotune.domain.problem import Config, Problem, ProblemSpec
from autotune.domain.record import Evidence, Method, Record, Trial
from autotune.domain.store import KeyResult

SPEC = KernelSpec(
    name="loaded",
    fingerprint="0123456789ab",
    axes=("block_m", "mark"),
    grid=("m",),
    problems=ProblemSpec(dims=("m", "k"), dtypes=("bfloat16",)),
    cuts=(("block_m", "m"),),
)
TOOLCHAIN = Toolchain(jax="0.10.2", jaxlib="0.10.2", libtpu="0.0.42.1")
SHARED = 20
"""Keys that all writers push."""


def key(writer: int, number: int) -> Key:
    """One that only this writer has; 0 for the writer: shared keys, and those before all load."""
    dims = (("m", 128 * (number + 1)), ("k", 128 * (writer + 1)))
    return Key(
        kernel=SPEC.name,
        fingerprint=SPEC.fingerprint,
        chip=Chip.V5E,
        toolchain=TOOLCHAIN,
        problem=Problem(dims=dims, dtype="bfloat16"),
    )


def result(key: Key, reason: str, mark: int, time_us: float = 16.5) -> KeyResult:
    """A record with two trials; ``mark`` makes their configs unlike all others of the key."""
    made_at = datetime.now(UTC)
    estimate = Estimate(
        time_us=time_us,
        compute_us=12.3,
        memory_us=7.7,
        overhead_us=0.6,
        fill_us=3.7,
        limited_by="pipeline fill",
        model="schedule-3",
        vmem_used_bytes=3370000,
        vmem_allowed_bytes=16777216,
        hbm_bytes=6291456,
        flops=2147483648,
        error=0.06,
        notes=("a note as long as notes are in records of real searches",),
    )
    configs = [
        Config(
            axes=(("block_m", block), ("mark", mark)),
            grid_order=("m",),
            dimension_semantics=("parallel",),
        )
        for block in (64, 128)
    ]
    record = Record(
        key=key,
        config=configs[0],
        estimate=estimate,
        default=Evidence(config=configs[1], time_us=1000.0),
        baseline=Evidence(config=None, time_us=10.9, expected_us=20.1, note="a lower bound"),
        is_default=False,
        reason=reason,
        verified=True,
        verification="interpret mode",
        trials=2,
        method=Method.ESTIMATED,
        created_at=made_at,
    )
    trials = tuple(
        Trial(
            number=number,
            config=config,
            outcome=Estimated(estimate=estimate, program="p"),
            seconds=0.5,
            created_at=made_at,
        )
        for number, config in enumerate(configs)
    )
    return KeyResult(record=record, trials=trials)


def push_body(results: list[KeyResult]) -> dict[str, Any]:
    return {"kernels": [to_data(SPEC)], "results": list(map(result_to_data, results))}


def lookup_body(keys: list[Key], snapshot: int | None = None) -> dict[str, Any]:
    questions = [
        {
            "kernel": asked.kernel,
            "fingerprint": asked.fingerprint,
            "problem": to_data(asked.problem),
        }
        for asked in keys
    ]
    body = {"chip": "v5e", "toolchain": asdict(TOOLCHAIN), "questions": questions}
    return body if snapshot is None else {**body, "snapshot": snapshot}
