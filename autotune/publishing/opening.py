"""How the driver of a search comes to compilers and to the database: it opens them, or they are
there."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from autotune.domain.compilers import Compilers
from autotune.domain.store import Store

NewCompilers = Callable[[], AbstractContextManager[Compilers]]
"""Opens compilers for as long as they are needed."""


class OpenStore(Protocol):
    """Opens the database; one that is not there is made where ``create`` is true. Raises
    ``StoreError``."""

    def __call__(self, *, create: bool) -> AbstractContextManager[Store]: ...


def running(compilers: Compilers) -> NewCompilers:
    """Compilers that are there already, and stay."""
    return lambda: nullcontext(compilers)


def opened(store: Store) -> OpenStore:
    """A database that is open already, and stays."""
    return lambda *, create: nullcontext(store)  # noqa: ARG005 (it is there)
