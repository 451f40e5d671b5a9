"""Who pushed what, pins and roll-backs, jobs, tokens, and misses by kind of answer."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TIME = sa.DateTime(timezone=True)
_MISSES, _SNAPSHOTS = "autotune_misses", "autotune_snapshots"
_PINS, _JOBS, _TOKENS = "autotune_pins", "autotune_jobs", "autotune_tokens"
_NEW_TEXTS = (
    ("autotune_trials", "pushed_by", ""),
    ("autotune_records", "pushed_by", ""),
    (_SNAPSHOTS, "note", ""),
    (_SNAPSHOTS, "made_by", ""),
    (_MISSES, "answer", "default"),
)
_ONE_EACH = (
    "DELETE FROM autotune_misses WHERE id NOT IN "
    "(SELECT min(id) FROM autotune_misses GROUP BY key_id)"
)


def upgrade() -> None:
    for table, column, before in _NEW_TEXTS:
        new = sa.Column(column, sa.Text(), server_default=before, nullable=False)
        op.add_column(table, new)
    op.add_column(_SNAPSHOTS, sa.Column("base_id", _ID, nullable=True))
    op.add_column(_SNAPSHOTS, sa.Column("floor", _ID, server_default="0", nullable=False))
    _misses_are_unique_by("key_id", "answer", instead_of=("key_id",))
    _create_pins()
    _create_jobs()
    _create_tokens()


def downgrade() -> None:
    for table in (_TOKENS, _JOBS, _PINS):
        op.drop_table(table)
    op.execute(sa.text(_ONE_EACH))
    _misses_are_unique_by("key_id", instead_of=("key_id", "answer"))
    for column in ("floor", "base_id"):
        op.drop_column(_SNAPSHOTS, column)
    for table, column, _ in reversed(_NEW_TEXTS):
        op.drop_column(table, column)


def _misses_are_unique_by(*columns: str, instead_of: tuple[str, ...]) -> None:
    with op.batch_alter_table(_MISSES, table_kwargs={"sqlite_autoincrement": True}) as batch:
        batch.drop_constraint(op.f(f"uq_{_MISSES}_{'_'.join(instead_of)}"), type_="unique")
        batch.create_unique_constraint(op.f(f"uq_{_MISSES}_{'_'.join(columns)}"), list(columns))


def _texts(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text(), nullable=False) for name in names]


def _times(*names: str) -> list[sa.Column[object]]:
    return [sa.Column(name, _TIME, nullable=True) for name in names]


def _create_pins() -> None:
    op.create_table(
        _PINS,
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("key_id", _ID, nullable=False),
        sa.Column("record_id", _ID, nullable=False),
        sa.Column("from_id", _ID, nullable=False),
        sa.Column("until_id", _ID, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{_PINS}")),
        sa.ForeignKeyConstraint(["key_id"], ["autotune_keys.id"], name=op.f(f"fk_{_PINS}_key_id")),
        sa.ForeignKeyConstraint(
            ["record_id"], ["autotune_records.id"], name=op.f(f"fk_{_PINS}_record_id")
        ),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f(f"ix_{_PINS}_key_id"), _PINS, ["key_id"])


def _create_jobs() -> None:
    op.create_table(
        _JOBS,
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("open_digest", sa.String(32), nullable=True),
        *_texts("kernel", "fingerprint", "jax", "jaxlib", "libtpu", "request", "state"),
        *_texts("created_by", "worker", "progress", "message"),
        sa.Column("created_at", _TIME, nullable=False),
        *_times("started_at", "heard_at", "finished_at"),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("cancel_wanted", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{_JOBS}")),
        sa.UniqueConstraint("open_digest", name=op.f(f"uq_{_JOBS}_open_digest")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f(f"ix_{_JOBS}_state_id"), _JOBS, ["state", "id"])


def _create_tokens() -> None:
    op.create_table(
        _TOKENS,
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        *_texts("name", "role"),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        *_times("expires_at", "revoked_at"),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{_TOKENS}")),
        sa.UniqueConstraint("digest", name=op.f(f"uq_{_TOKENS}_digest")),
        sqlite_autoincrement=True,
    )
