"""Tokens, and what was written with them; the service's ``middleware/access.py`` asks for one."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from autotune.domain.audit import AuditEntry
from autotune.domain.token import Token


class AuditLog(Protocol):
    """What was written, and by whom."""

    def entries(self, limit: int = 50, before: int | None = None) -> Sequence[AuditEntry]:
        """The newest first; ``before``: those with smaller numbers."""


class Tokens(Protocol):
    """Bearer tokens. Only digests of the secrets are kept."""

    def create(self, name: str, role: str, expires_at: datetime | None) -> tuple[Token, str]:
        """A new one, and its secret, which cannot be had again. Raises ``InvalidInputError`` where
        a valid one has this name: what is written with it carries the name."""

    def list(self) -> Sequence[Token]:
        """All, revoked and expired ones too."""

    def revoke(self, number: int) -> Token | None:
        """It is valid no more. None: there is no such token."""

    def find(self, secret: str) -> Token | None:
        """The valid token with this secret."""

    def valid(self) -> Mapping[str, Token]:
        """All valid ones by the SHA-256 of their secrets, in hexadecimal digits."""
