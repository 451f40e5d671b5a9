"""Who hears of calls to tunable functions and of configs that are asked for, while a model is
traced."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Protocol

from autotune.domain.key import KernelRef
from autotune.domain.problem import Problem

MakeRef = Callable[..., KernelRef]


class CallListener(Protocol):
    """Hears of each call while it is traced."""

    def called(self, ref: MakeRef, args: Any, kwargs: Any) -> AbstractContextManager[Any]:
        """A decorated function is called inside of what this gives; ``ref`` names the call."""

    def asked(self, ref: KernelRef, problem: Problem) -> None:
        """A ``Tuned`` kernel is asked for its config."""


LISTENER: ContextVar[CallListener | None] = ContextVar("autotune_listener", default=None)
