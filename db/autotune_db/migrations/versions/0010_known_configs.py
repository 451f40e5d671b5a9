"""Configs that tables of others have."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0010"
down_revision: str | None = "0009"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

_KNOWN = "autotune_known_configs"


def upgrade() -> None:
    op.create_table(
        _KNOWN,
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("digest", sa.String(32), nullable=False),
        sa.Column("kernel", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{_KNOWN}")),
        sa.UniqueConstraint("digest", name=op.f(f"uq_{_KNOWN}_digest")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f(f"ix_{_KNOWN}_kernel"), _KNOWN, ["kernel"])


def downgrade() -> None:
    op.drop_table(_KNOWN)
