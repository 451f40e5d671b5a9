"""A job keeps the end of its lease and the claim of its holder, its log how an attempt ended; what
was pushed and never checked is told from what was searched here, or checked; a key has compiler
options, and a trial its profile; programs are timed to see how far estimates are off."""

from collections.abc import Sequence
from functools import reduce

import sqlalchemy as sa
from alembic import op
from sqlalchemy import Column, String, Text

from autotune_db.tables import (
    CALIBRATIONS,
    CANDIDATES,
    CHECKS,
    JOB_LOGS,
    JOBS,
    KEYS,
    PROFILES,
    RECORDS,
    SNAPSHOTS,
    TEXT_PARTS,
    TRIALS,
    UtcDateTime,
)

revision: str = "0014"
down_revision: str | None = "0013"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_NEW_SNAPSHOT = f"""INSERT INTO {SNAPSHOTS.name} (record_id, base_id, floor, created_at, note)
SELECT record_id, base_id, floor, CURRENT_TIMESTAMP, 'what was pushed and never checked is claimed'
FROM {SNAPSHOTS.name} WHERE id = (SELECT max(id) FROM {SNAPSHOTS.name})
AND EXISTS (SELECT id FROM {RECORDS.name} WHERE claimed)"""  # noqa: S608 (names of tables)


def upgrade() -> None:
    """Records that a token brought are claimed, unless a worker with the database has checked
    them. Where there are some a new snapshot says so: clients keep what has the same number."""
    op.add_column(JOBS.name, Column("lapses_at", UtcDateTime))
    op.add_column(JOBS.name, Column("claim", String(64), nullable=False, server_default=""))
    op.add_column(JOB_LOGS.name, Column("ended", Text))
    PROFILES.create(op.get_bind())
    CALIBRATIONS.create(op.get_bind())
    options = Column("compiler_options", Text, nullable=False, server_default="")
    op.add_column(KEYS.name, options)
    op.add_column(KEYS.name, Column("text", Text, nullable=False, server_default=""))
    op.add_column(
        KEYS.name, Column("trial_count", sa.BigInteger, nullable=False, server_default="0")
    )
    parts: list[sa.ColumnElement[str]] = [KEYS.c[name] for name in TEXT_PARTS]
    counted = sa.select(sa.func.count()).where(TRIALS.c.key_id == KEYS.c.id)
    text = sa.func.lower(reduce(lambda text, part: text + "\n" + part, parts))
    op.execute(KEYS.update().values(text=text, trial_count=counted.scalar_subquery()))
    op.add_column(RECORDS.name, Column("claimed", sa.Boolean, nullable=False, server_default="0"))
    op.add_column(RECORDS.name, Column("until_id", _ID))
    op.add_column(RECORDS.name, Column("digest", String(32), nullable=False, server_default=""))
    op.drop_index(f"ix_{RECORDS.name}_key_id_id", RECORDS.name)
    columns = ["key_id", "claimed", "id", "until_id"]
    op.create_index(f"ix_{RECORDS.name}_{'_'.join(columns)}", RECORDS.name, columns)
    where = sa.text("until_id IS NOT NULL")
    op.create_index(f"ix_{RECORDS.name}_until_id", RECORDS.name, ["until_id"], sqlite_where=where)
    op.create_index(f"ix_{KEYS.name}_newest_trial", KEYS.name, ["newest_trial"])
    is_pushed = (RECORDS.c.pushed_by != "") & ~RECORDS.c.evidence.contains('"checked_by":')
    op.execute(RECORDS.update().where(is_pushed).values(claimed=True))
    op.execute(_NEW_SNAPSHOT)
    costs = Column("costs_us", sa.Double, nullable=False, server_default="0")
    op.add_column(CHECKS.name, costs)
    op.create_index(f"ix_{CHECKS.name}_verdict_costs_us", CHECKS.name, ["verdict", "costs_us"])
    op.drop_table("autotune_pushes")
    op.drop_table("autotune_spaces")
    op.add_column(CANDIDATES.name, Column("record_id", _ID))
    op.create_index(f"ix_{CANDIDATES.name}_record_id", CANDIDATES.name, ["record_id"])
