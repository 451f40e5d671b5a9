"""Pushed records that are to be checked before they are published."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0009"
down_revision: str | None = "0008"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TIME = sa.DateTime(timezone=True)
_CANDIDATES, _JOBS = "autotune_candidates", "autotune_jobs"


def upgrade() -> None:
    op.create_table(
        _CANDIDATES,
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("digest", sa.String(32), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("finding", sa.Text(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("decided_at", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{_CANDIDATES}")),
        sa.UniqueConstraint("digest", name=op.f(f"uq_{_CANDIDATES}_digest")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f(f"ix_{_CANDIDATES}_state_id"), _CANDIDATES, ["state", "id"])
    op.add_column(_JOBS, sa.Column("candidate", _ID, nullable=True))


def downgrade() -> None:
    op.drop_column(_JOBS, "candidate")
    op.drop_table(_CANDIDATES)
