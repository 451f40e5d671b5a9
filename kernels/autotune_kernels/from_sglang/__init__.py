"""The TPU kernels of sglang-jax, declared for the search as its package has them (0.1.0rc0)."""

from autotune_kernels.parts import Check, needing


def checked(check: Check = lambda _: None) -> Check:
    """``check`` where the package is installed, else the sentence that it is not."""
    return needing("sgl_jax", "sglang-jax", check)
