"""Who may do what at a service: roles, and the tokens that carry them."""

import re
from dataclasses import dataclass
from datetime import datetime

from autotune.domain.errors import InvalidInputError

READER, WRITER, ADMIN = "reader", "writer", "admin"
ROLES = (READER, WRITER, ADMIN)
"""Each may do what those before it may."""


_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]{0,99}")


def check_name(name: str) -> None:
    """Raises ``InvalidInputError`` for a name that people could mistake for another one."""
    if not _NAME.fullmatch(name):
        raise InvalidInputError(
            "a name must have 1 to 100 characters, of a to z, A to Z, digits and _.+@-, "
            f"not {name!r:.50}"
        )


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
        return self.role in ROLES and ROLES.index(self.role) >= ROLES.index(role)

    def is_valid(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)
