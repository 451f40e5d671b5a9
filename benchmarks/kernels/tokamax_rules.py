"""What rows of tokamax's caches mean, which several versions wrote. Needs no tokamax."""

from typing import Any

_RAGGED_DOT = "pallas_mosaic_tpu_ragged_dot"
_MB, _MIB = 10**6, 1 << 20
# What was measured on v6e gathered by the cores themselves: with this, programs take the memory at
# their peak that was measured, byte by byte, without it up to 8 % less; on v5p and v7x without it.
# Without it, libtpu 0.0.48 makes the measured memory of gathers on v6e and v7x.
_AS_MEASURED = {"v6e": "xla_tpu_offload_gather_to_sparsecore=false"}
# Many plain ragged dots of v5e, v5p and v6e were measured without the kernel that libtpu 0.0.44 has
# for them. Rows do not say which: the memory at their peak does, byte by byte.
_WITHOUT_KERNEL = "xla_tpu_enable_ragged_dot_kernel=false"
_WHOLE = 0.01  # of a byte: what a number of bytes is written to


def config_as_read(row: dict[str, Any]) -> dict[str, Any]:
    """As tokamax 0.0.17 reads it: it exchanges two tiles where weights are transposed, which those
    on v5e and v7x did not: 0.0.12 has these rows, or the same tiles, and exchanges none. What came
    to v7x since 0.0.16 lists its groups (docs/results/accuracy.md: which program was measured)."""
    config: dict[str, Any] = row["config"]
    dims = row["problem"].get("ragged_dot_dimension_numbers") or {}
    is_transposed = dims.get("dot_dimension_numbers", [()])[0] == [[1], [2]]
    is_new = row["chip"] == "v7x" and isinstance(row["problem"].get("group_sizes"), list)
    is_old = row["chip"] in ("v5e", "v7x") and not is_new
    if not is_old or row["family"] != _RAGGED_DOT or not is_transposed:
        return config
    return config | {"tile_k": config["tile_n"], "tile_n": config["tile_k"]}


def has_gradients_of_operands(row: dict[str, Any]) -> bool:
    """Whether gradients have the dtypes of what they are of, where this tokamax has float32: so
    cross entropies of XLA on v6e and v7x need the memory that was measured, byte by byte."""
    is_entropy = row["family"] == "linear_softmax_cross_entropy_loss_vjp"
    return is_entropy and row["chip"] in ("v6e", "v7x")


def compiler_options(row: dict[str, Any]) -> list[str | None]:
    """What a row may have been compiled with, as it is written for the compiler."""
    always = _AS_MEASURED.get(row["chip"])
    if row["family"] != "ragged_dot":
        return [always]
    return [always, f"{always} {_WITHOUT_KERNEL}" if always else _WITHOUT_KERNEL]


def peak_in_mb(written: float) -> float:
    """``peak_memory_mb`` of a row, in 10^6 bytes. The oldest rows of v7x have it in MiB: taken so
    where MB would be no whole number of bytes."""
    return written if _is_whole(written * _MB) else written * _MIB / _MB


def _is_whole(count: float) -> bool:
    return abs(count - round(count)) < _WHOLE
