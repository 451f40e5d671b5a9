"""Numbered sets of records; what was published before is the first."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

_TABLE = "autotune_snapshots"
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_FIRST = (
    "INSERT INTO autotune_snapshots (record_id, created_at) "
    "SELECT id, created_at FROM autotune_records ORDER BY id DESC LIMIT 1"
)


def upgrade() -> None:
    op.create_table(
        _TABLE,
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("record_id", _ID, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{_TABLE}")),
        sa.ForeignKeyConstraint(
            ["record_id"], ["autotune_records.id"], name=op.f(f"fk_{_TABLE}_record_id")
        ),
        sqlite_autoincrement=True,
    )
    op.execute(sa.text(_FIRST))


def downgrade() -> None:
    op.drop_table(_TABLE)
