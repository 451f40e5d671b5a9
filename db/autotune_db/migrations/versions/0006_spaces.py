"""Where the rules leave nothing of the space of a key."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0006"
down_revision: str | None = "0005"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_SPACES = "autotune_spaces"


def upgrade() -> None:
    op.create_table(
        _SPACES,
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("key_id", _ID, nullable=False),
        sa.Column("refusals", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{_SPACES}")),
        sa.UniqueConstraint("key_id", name=op.f(f"uq_{_SPACES}_key_id")),
        sa.ForeignKeyConstraint(
            ["key_id"], ["autotune_keys.id"], name=op.f(f"fk_{_SPACES}_key_id")
        ),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    op.drop_table(_SPACES)
