"""The order of splash attention configs against times that others measured on a real v5e.

    .venv/bin/python benchmarks/published_splash.py --rows PATH/v5e.jsonl [--python PYTHON]

The rows are forward passes of JAX's splash attention (device time, no copies around the kernel).
Their summary names no shape. The test that wrote it has the first shape here: its times are
compared too. For the other shapes only the order is.
"""

import sys
from itertools import combinations
from typing import Any

from agreement import Pair, arguments, kendall, published, save

from autotune.catalogue import find_kernel
from autotune.chip import Chip
from autotune.compiler.pool import CompilerPool
from autotune.config import make_config
from autotune.estimate import estimate
from autotune.outcome import Estimated

_SUBSET = "tunejax_splash_v5e"
_KERNEL = "jax_splash_attention"
_SHAPES = (  # heads, kv_heads, seq, qk_dim, v_dim; causal
    ("32x8x4096x192x128", True),
    ("48x48x4096x64x64", True),
    ("32x32x4096x128x128", True),
    ("16x16x8192x128x128", True),
    ("8x8x8192x64x64", False),
    ("16x16x4096x128x128", False),
)


def main() -> None:
    args = arguments(__doc__, save="keep the pairs of the first shape")
    rows = [r for r in published(args.rows, _SUBSET) if r["problem"]["pass"] == "fwd"]
    with CompilerPool(1, python=args.python) as pool:
        print(f"{pool.run(lambda c: c.toolchain())}; {len(rows)} rows of {_SUBSET}")
        for shape, causal in _SHAPES:
            print(f"\n{shape}, {'causal' if causal else 'full'}")
            pairs = [_compare(pool, shape, causal, row) for row in rows]
            _show(pairs)
            if (shape, causal) == _SHAPES[0]:
                save(pairs, args.save)


def _compare(pool: CompilerPool, shape: str, causal: bool, row: dict[str, Any]) -> Pair:
    ref = find_kernel(_KERNEL)
    spec = pool.run(lambda c: c.describe(ref))
    problem = spec.problems.parse(shape, "bfloat16", [f"mask={'causal' if causal else 'full'}"])
    config = make_config(row["config"])
    answer = pool.run(lambda c: c.compile(ref, problem, config, Chip.V5E))
    chip = pool.run(lambda c: c.chip_info(Chip.V5E))
    outcome = estimate(*answer, chip) if isinstance(answer, tuple) else answer
    if not isinstance(outcome, Estimated):
        sys.exit(f"{problem}, {row['config']}: {outcome.kind}, {outcome.reason}")
    return Pair(
        subset=_SUBSET, group=" ".join(str(value) for value in row["config"].values()),
        limited_by=outcome.estimate.limited_by, measured_us=row["time_us"],
        estimated_us=outcome.estimate.time_us,
    )  # fmt: skip


def _show(pairs: list[Pair]) -> None:
    """Times relative to the fastest row, then every pair in the wrong order."""
    first = min(pairs, key=lambda pair: pair.measured_us)
    for pair in pairs:
        print(f"  {pair.group:<16}{pair.measured_us:>8.0f}{pair.estimated_us:>8.0f} us"
              f"{pair.measured_us / first.measured_us:>8.3f}"
              f"{pair.estimated_us / first.estimated_us:>8.3f} of the first")  # fmt: skip
    print(f"  Kendall {kendall(pairs):.2f}")
    for a, b in combinations(sorted(pairs, key=lambda pair: pair.measured_us), 2):
        if a.estimated_us > b.estimated_us:
            print(f"  wrong: {a.group} before {b.group}, measured "
                  f"{b.measured_us / a.measured_us - 1:.1%} apart, estimated "
                  f"{b.estimated_us / a.estimated_us - 1:.1%}")  # fmt: skip


if __name__ == "__main__":
    main()
