"""Pushes that were taken in whole, and who wrote what."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0007"
down_revision: str | None = "0006"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TIME = sa.DateTime(timezone=True)
_PUSHES, _AUDIT = "autotune_pushes", "autotune_audit"


def upgrade() -> None:
    op.create_table(
        _PUSHES,
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{_PUSHES}")),
        sa.UniqueConstraint("digest", name=op.f(f"uq_{_PUSHES}_digest")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        _AUDIT,
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("change", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("token", _ID, nullable=True),
        sa.Column("address", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{_AUDIT}")),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    for table in (_AUDIT, _PUSHES):
        op.drop_table(table)
