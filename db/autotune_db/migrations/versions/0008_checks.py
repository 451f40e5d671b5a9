"""What became of records under other toolchains and on other chips."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0008"
down_revision: str | None = "0007"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_CHECKS = "autotune_checks"


def upgrade() -> None:
    op.create_table(
        _CHECKS,
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("key_id", _ID, nullable=False),
        sa.Column("target_id", _ID, nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("checked_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{_CHECKS}")),
        sa.UniqueConstraint("key_id", "target_id", name=op.f(f"uq_{_CHECKS}_key_id_target_id")),
        sa.ForeignKeyConstraint(
            ["key_id"], ["autotune_keys.id"], name=op.f(f"fk_{_CHECKS}_key_id")
        ),
        sa.ForeignKeyConstraint(
            ["target_id"], ["autotune_keys.id"], name=op.f(f"fk_{_CHECKS}_target_id")
        ),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f(f"ix_{_CHECKS}_checked_at"), _CHECKS, ["checked_at"])


def downgrade() -> None:
    op.drop_table(_CHECKS)
