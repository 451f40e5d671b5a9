"""The oldest tables that are brought along. A new database gets today's tables at once, so there is
nothing to do; what changes them after this is a migration that follows."""

from collections.abc import Sequence

revision: str = "0013"
down_revision: str | None = None
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    """Nothing: see above."""
