"""The exceptions that reach a user. Each message is one sentence: what was wrong, what is right."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.domain.outcome import Failure


class AutotuneError(Exception):
    """Anything that ends a command with a message instead of a traceback. Exit code 2."""


class InvalidInputError(AutotuneError):
    """What the user gave cannot be understood or is out of range."""


class UnknownNameError(InvalidInputError):
    """A kernel, chip, dimension, dtype or option that does not exist."""


class NoLegalConfigError(AutotuneError):
    """The problem has no configuration that could work, of so many ``points``. ``refused``: the
    outcomes that most of them have in common, each with their number; ``first``: of the first."""

    def __init__(
        self,
        message: str,
        points: int = 0,
        refused: "Sequence[tuple[Failure, int]]" = (),
        first: "Failure | None" = None,
    ) -> None:
        super().__init__(message)
        self.points, self.refused, self.first = points, tuple(refused), first


class StoreError(AutotuneError):
    """The database cannot be used: missing, read-only, corrupt, locked, or of another version."""


class NoDatabaseError(StoreError):
    """There is none yet, or one of an older version: who may write makes it, or brings it along."""


class UnstorableError(StoreError):
    """A text or number that was given cannot be kept: the database itself is well."""


class ServiceError(AutotuneError):
    """The service cannot be used: down, too slow, or it answers what this version cannot read.

    ``status``: of the answer, where there was one that refused; ``retry_after_s``: what it said.
    """

    def __init__(self, message: str, status: int | None = None, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.status, self.retry_after_s = status, retry_after_s


class CompilerUnavailableError(AutotuneError):
    """The compiler process cannot be started: no JAX, no libtpu, or a broken interpreter."""


class KernelImportError(AutotuneError):
    """A kernel declaration cannot be loaded."""


class NoDeclarationError(KernelImportError):
    """Its file has nothing of that name."""
