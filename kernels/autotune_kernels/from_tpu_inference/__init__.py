"""The TPU kernels of vLLM (tpu-inference), declared for the search as its package has them (0.32).

It is installed with ``vllm-tpu``, whose users have all that it imports.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

from autotune_kernels.parts import Check, needing


def checked(check: Check = lambda _: None) -> Check:
    """``check`` where the package is installed, else the sentence that it is not."""
    return needing("tpu_inference", "tpu-inference", check)


@contextmanager
def told(*modules: Any) -> Iterator[None]:
    """Their ``get_tpu_version`` says which TPU the code is traced for: it looks at the first device
    of this machine, which has none."""
    version = _version()
    with ExitStack() as stack:
        for module in modules:
            stack.enter_context(patch.object(module, "get_tpu_version", lambda: version))
        yield


def telling(function: Callable[..., Any], *modules: Any) -> Callable[..., Any]:
    """``function`` with that told while it is traced."""

    @wraps(function)
    def traced(*given: Any) -> Any:
        with told(*modules):
            return function(*given)

    return traced


def _version() -> int:
    """Of the TPU that code under trace is told of; a v6e where it is told of none."""
    from jax.experimental.pallas import tpu as pltpu

    try:
        return int(pltpu.get_tpu_info().generation)
    except (ValueError, NotImplementedError):
        return 6
