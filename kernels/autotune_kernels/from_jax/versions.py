"""What the installed JAX has of its own TPU kernels, and under which names: nothing else here
knows that JAX versions differ."""

import importlib
import inspect
from collections.abc import Callable
from typing import Any

_PACKAGE = "jax.experimental.pallas.ops.tpu"


def op(module: str, name: str) -> Any:
    """``name`` of ``jax.experimental.pallas.ops.tpu.<module>``.

    Raises ``ImportError`` with a sentence where the installed JAX has no such thing.
    """
    import jax

    try:
        return getattr(importlib.import_module(f"{_PACKAGE}.{module}"), name)
    except (ImportError, AttributeError) as error:
        raise ImportError(f"jax {jax.__version__} has no {_PACKAGE}.{module}.{name}") from error


def settings(function: Callable[..., Any], **wanted: Any) -> dict[str, Any]:
    """What of ``wanted`` is a parameter of ``function``, which may be jitted or a class.

    Raises ``TypeError`` with a sentence for a parameter that this JAX does not have; one that is
    None or False may be missing.
    """
    import jax

    known = inspect.signature(function).parameters
    for name, value in wanted.items():
        if name not in known and value not in (None, False):
            label = getattr(function, "__name__", str(function))
            raise TypeError(f"{label} of jax {jax.__version__} has no parameter {name}")
    return {name: value for name, value in wanted.items() if name in known}
