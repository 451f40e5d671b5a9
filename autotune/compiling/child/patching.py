"""Replacing what JAX does while something is traced or run."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def patched(owner: Any, **replacements: Any) -> Iterator[None]:
    """Attributes of a module or a class are others while it lasts."""
    before = {name: getattr(owner, name) for name in replacements}
    try:
        for name, value in replacements.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)
