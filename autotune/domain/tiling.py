"""Tiles of arrays in HBM and VMEM: what is stored is whole ones."""

from autotune.domain.dtype import memory_bits


def round_up(size: int, multiple: int) -> int:
    """The next multiple."""
    return -(-size // multiple) * multiple


def values_per_word(dtype: str) -> int:
    """How many share a word of 32 bits: rows of narrow types do."""
    return max(1, 32 // memory_bits(dtype))


def sublane_tile(rows: int, least: int, most: int = 8) -> int:
    """Rows of a tile: the power of two that holds ``rows``, from ``least`` to ``most``.

    Source: ``infer_tiling`` in jax/_src/pallas/mosaic/tpu_info.py (``infer-memref-layout``).
    """
    tile = least
    while tile < min(rows, most):
        tile *= 2
    return tile
