"""What workers have said of their jobs; the best so far of a search from an index alone."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0013"
down_revision: str | None = "0012"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_LOGS, _TRIALS = "autotune_job_logs", "autotune_trials"
_BY_TIME = "ix_autotune_trials_key_id_time_us"


def upgrade() -> None:
    op.create_table(
        _LOGS,
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("job_id", _ID, nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("earlier", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["autotune_jobs.id"], name=op.f(f"fk_{_LOGS}_job_id")),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{_LOGS}")),
        sa.UniqueConstraint("job_id", "attempt", name=op.f(f"uq_{_LOGS}_job_id_attempt")),
        sqlite_autoincrement=True,
    )
    op.drop_index(_BY_TIME, _TRIALS)
    op.create_index(f"{_BY_TIME}_number", _TRIALS, ["key_id", "time_us", "number"])


def downgrade() -> None:
    op.drop_index(f"{_BY_TIME}_number", _TRIALS)
    op.create_index(_BY_TIME, _TRIALS, ["key_id", "time_us"])
    op.drop_table(_LOGS)
