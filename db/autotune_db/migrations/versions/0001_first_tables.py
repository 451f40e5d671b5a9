"""Kernels, keys, trials and records."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0001"
down_revision: str | None = None
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TIME = sa.DateTime(timezone=True)


def _id(table: str) -> tuple[sa.Column[int], sa.PrimaryKeyConstraint]:
    column: sa.Column[int] = sa.Column("id", _ID, autoincrement=True, nullable=False)
    return column, sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{table}"))


def _key_id(table: str) -> tuple[sa.Column[int], sa.ForeignKeyConstraint]:
    name = op.f(f"fk_{table}_key_id")
    constraint = sa.ForeignKeyConstraint(["key_id"], ["autotune_keys.id"], name=name)
    return sa.Column("key_id", _ID, nullable=False), constraint


def upgrade() -> None:
    _create_kernels()
    _create_keys()
    _create_trials()
    _create_records()


def _create_kernels() -> None:
    op.create_table(
        "autotune_kernels",
        *_id("autotune_kernels"),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.UniqueConstraint(
            "name", "fingerprint", name=op.f("uq_autotune_kernels_name_fingerprint")
        ),
        sqlite_autoincrement=True,
    )


def _create_keys() -> None:
    op.create_table(
        "autotune_keys",
        *_id("autotune_keys"),
        sa.Column("kernel", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("problem_digest", sa.String(32), nullable=False),
        sa.Column("chip", sa.Text(), nullable=False),
        sa.Column("jax", sa.Text(), nullable=False),
        sa.Column("jaxlib", sa.Text(), nullable=False),
        sa.Column("libtpu", sa.Text(), nullable=False),
        sa.UniqueConstraint(
            "kernel",
            "fingerprint",
            "chip",
            "problem_digest",
            "jax",
            "jaxlib",
            "libtpu",
            name=op.f("uq_autotune_keys_all"),
        ),
        sqlite_autoincrement=True,
    )


def _create_trials() -> None:
    op.create_table(
        "autotune_trials",
        *_id("autotune_trials"),
        *_key_id("autotune_trials"),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("config_digest", sa.String(32), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("time_us", sa.Double(), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.UniqueConstraint("key_id", "number", name=op.f("uq_autotune_trials_key_id_number")),
        sa.UniqueConstraint(
            "key_id", "config_digest", name=op.f("uq_autotune_trials_key_id_config_digest")
        ),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_autotune_trials_key_id_id"), "autotune_trials", ["key_id", "id"])
    op.create_index(
        op.f("ix_autotune_trials_key_id_time_us"), "autotune_trials", ["key_id", "time_us"]
    )
    op.create_index(op.f("ix_autotune_trials_kind"), "autotune_trials", ["kind"])


def _create_records() -> None:
    op.create_table(
        "autotune_records",
        *_id("autotune_records"),
        *_key_id("autotune_records"),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("time_us", sa.Double(), nullable=False),
        sa.Column("is_default", sa.Boolean(), nullable=False),
        sa.Column("verified", sa.Boolean(), nullable=False),
        sa.Column("trials", sa.BigInteger(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_autotune_records_key_id_id"), "autotune_records", ["key_id", "id"])


def downgrade() -> None:
    for table in ("records", "trials", "keys", "kernels"):
        op.drop_table(f"autotune_{table}")
