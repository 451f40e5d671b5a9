"""Results as tuning machines push them: each says in its reason whose it is, so that it can be
found again."""

from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from autotune.answering.push import result_to_data
from autotune.domain.codec import to_data
from autotune.domain.key import Chip, KernelSpec, Key, Toolchain
from autotune.domain.outcome import Estimated
from autotune.domain.problem import Config, Problem, ProblemSpec
from autotune.domain.record import Evidence, Trial
from autotune.domain.store import KeyResult
from benchmarks.harness.servers import sample

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
    estimate = replace(sample(0).estimate, time_us=time_us)
    configs = [
        Config(
            axes=(("block_m", block), ("mark", mark)),
            grid_order=("m",),
            dimension_semantics=("parallel",),
        )
        for block in (64, 128)
    ]
    record = replace(
        sample(0),
        key=key,
        config=configs[0],
        estimate=estimate,
        default=Evidence(config=configs[1], time_us=1000.0),
        reason=reason,
        verification="interpret mode",
        trials=2,
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
