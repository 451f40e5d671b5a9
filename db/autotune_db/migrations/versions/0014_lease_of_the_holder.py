"""A job keeps the end of its lease and the claim of its holder, its log how an attempt ended."""

from collections.abc import Sequence

from alembic import op
from sqlalchemy import Column, String, Text

from autotune_db.tables import JOB_LOGS, JOBS, UtcDateTime

revision: str = "0014"
down_revision: str | None = "0013"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.add_column(JOBS.name, Column("lapses_at", UtcDateTime))
    op.add_column(JOBS.name, Column("claim", String(64), nullable=False, server_default=""))
    op.add_column(JOB_LOGS.name, Column("ended", Text))
