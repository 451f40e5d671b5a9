"""The TPU kernels of vLLM (tpu-inference), declared for the search as its package has them (0.32).

It is installed with ``vllm-tpu``, whose users have all that it imports.
"""

from autotune_kernels.parts import Check, needing


def checked(check: Check = lambda _: None) -> Check:
    """``check`` where the package is installed, else the sentence that it is not."""
    return needing("tpu_inference", "tpu-inference", check)
