"""Whose records are whose: found without reading them."""

from collections.abc import Sequence

from alembic import op

revision: str = "0011"
down_revision: str | None = "0010"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

_INDEX = "ix_autotune_records_pushed_by_key_id"


def upgrade() -> None:
    op.create_index(op.f(_INDEX), "autotune_records", ["pushed_by", "key_id"])


def downgrade() -> None:
    op.drop_index(op.f(_INDEX), "autotune_records")
