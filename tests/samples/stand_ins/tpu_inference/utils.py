"""The names that kernels take from the package's ``utils``, which imports torch and vLLM."""

from typing import Any

TPU_HEAD_SIZE_ALIGNMENT = 128


def align_to(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def get_dtype_packing(dtype: Any) -> int:
    """Values of a dtype in 32 bits."""
    from jax._src import dtypes

    return 32 // int(dtypes.itemsize_bits(dtype))


def get_device_name() -> str:
    """Of no device: the kernels' own tables have nothing for it."""
    return "none"
