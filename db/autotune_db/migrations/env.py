"""What Alembic runs around the scripts: inside the transaction of whoever called."""

from alembic import context

from autotune_db.engine import VERSION_TABLE
from autotune_db.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=VERSION_TABLE,
    include_name=lambda name, kind, _: (
        kind != "table" or name in METADATA.tables  # the others are Optuna's
    ),
)
with context.begin_transaction():
    context.run_migrations()
