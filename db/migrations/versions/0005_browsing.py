"""The outcomes of a key are counted, and listed by kind, from an index alone."""

from collections.abc import Sequence

from alembic import op

revision: str = "0005"
down_revision: str | None = "0004"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

_TRIALS = "autotune_trials"
_INDEX = f"ix_{_TRIALS}_key_id_kind_number"


def upgrade() -> None:
    op.create_index(op.f(_INDEX), _TRIALS, ["key_id", "kind", "number"])


def downgrade() -> None:
    op.drop_index(op.f(_INDEX), _TRIALS)
