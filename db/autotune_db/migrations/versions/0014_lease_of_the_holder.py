"""The end of a lease is kept with its job."""

from collections.abc import Sequence

from alembic import op
from sqlalchemy import Column

from autotune_db.tables import JOBS, UtcDateTime

revision: str = "0014"
down_revision: str | None = "0013"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.add_column(JOBS.name, Column("lapses_at", UtcDateTime))
