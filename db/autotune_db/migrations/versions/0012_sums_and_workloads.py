"""What the trials of a key come to, beside it, so that lists read no trials; and workloads."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0012"
down_revision: str | None = "0011"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_KEYS, _WORKLOADS = "autotune_keys", "autotune_workloads"


def upgrade() -> None:
    op.add_column(_KEYS, sa.Column("newest_trial", _ID, nullable=True))
    for name in ("best_us", "default_us"):
        op.add_column(_KEYS, sa.Column(name, sa.Double(), nullable=True))
    op.execute(
        """
        UPDATE autotune_keys SET
        newest_trial =
            (SELECT max(id) FROM autotune_trials WHERE key_id = autotune_keys.id),
        best_us =
            (SELECT min(time_us) FROM autotune_trials WHERE key_id = autotune_keys.id),
        default_us =
            (SELECT time_us FROM autotune_trials WHERE key_id = autotune_keys.id AND number = 0)
        """
    )
    op.create_table(
        _WORKLOADS,
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("tuned_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{_WORKLOADS}")),
        sa.UniqueConstraint("name", name=op.f(f"uq_{_WORKLOADS}_name")),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    op.drop_table(_WORKLOADS)
    for name in ("newest_trial", "best_us", "default_us"):
        op.drop_column(_KEYS, name)
