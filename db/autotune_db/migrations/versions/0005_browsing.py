"""How far searches are; and the outcomes of a key, counted and listed from an index alone."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0005"
down_revision: str | None = "0004"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TRIALS, _SEARCHES = "autotune_trials", "autotune_searches"
_INDEX = f"ix_{_TRIALS}_key_id_kind_number"


def upgrade() -> None:
    op.create_index(op.f(_INDEX), _TRIALS, ["key_id", "kind", "number"])
    op.create_table(
        _SEARCHES,
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("key_id", _ID, nullable=False),
        sa.Column("space", sa.Text(), nullable=False),
        sa.Column("progress", sa.Text(), nullable=False),
        sa.Column("over", sa.Boolean(), nullable=False),
        sa.Column("heard_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{_SEARCHES}")),
        sa.UniqueConstraint("key_id", name=op.f(f"uq_{_SEARCHES}_key_id")),
        sa.ForeignKeyConstraint(
            ["key_id"], ["autotune_keys.id"], name=op.f(f"fk_{_SEARCHES}_key_id")
        ),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    op.drop_table(_SEARCHES)
    op.drop_index(op.f(_INDEX), _TRIALS)
