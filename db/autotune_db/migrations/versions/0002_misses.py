"""What was asked for and not there."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

_TABLE = "autotune_misses"
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        _TABLE,
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("key_id", _ID, nullable=False),
        sa.Column("count", _ID, nullable=False),
        sa.Column("first_at", _TIME, nullable=False),
        sa.Column("last_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{_TABLE}")),
        sa.ForeignKeyConstraint(["key_id"], ["autotune_keys.id"], name=op.f(f"fk_{_TABLE}_key_id")),
        sa.UniqueConstraint("key_id", name=op.f(f"uq_{_TABLE}_key_id")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f(f"ix_{_TABLE}_count"), _TABLE, ["count"])


def downgrade() -> None:
    op.drop_table(_TABLE)
