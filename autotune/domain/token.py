"""Who may do what at the service: bearer tokens and their roles."""

from dataclasses import dataclass
from datetime import datetime

READER, WRITER, ADMIN = "reader", "writer", "admin"
ROLES = (READER, WRITER, ADMIN)
"""Each may do what those before it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What is known of a token; the secret itself is shown once and kept by nobody but its owner.

    ``name`` stands beside everything that is written with it.
    """

    number: int
    name: str
    role: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def may(self, role: str) -> bool:
        """Whether its role is at least this one."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def is_valid(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)
