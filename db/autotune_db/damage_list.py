"""Rows that cannot be read."""

from collections.abc import Sequence

from sqlalchemy import Connection, func, inspect, or_, select

from autotune_db import query, rows, searches
from autotune_db import tables as t
from autotune_db.checks import check_from_row
from autotune_db.damage import readable
from autotune_db.transaction import Adapter, reads

_IS_IN_USE = or_(t.RECORDS.c.until_id.is_(None), t.RECORDS.c.until_id > 0)
_READS = (
    (select(t.KERNELS), rows.kernel_from_row),
    (select(t.KEYS), rows.key_from_row),
    (select(t.TRIALS), rows.trial_from_row),
    (query.with_keys(t.RECORDS).where(_IS_IN_USE), rows.record_from_row),
    (query.with_keys(t.MISSES), rows.miss_from_row),
    (select(t.SNAPSHOTS), lambda row: row.created_at.tzinfo),
    (select(t.CHECKS), check_from_row),
    (select(t.KNOWN_CONFIGS), searches.config_from_row),
    (select(t.CALIBRATIONS), searches.measured_from_row),
    (select(t.WORKLOADS), searches.workload_from_row),
    (select(t.PROFILES), searches.profile_from_row),
    (select(t.CANDIDATES), rows.candidate_from_row),
    (select(t.JOBS), rows.job_from_row),
    (select(t.SEARCHES), rows.status_from_row),
    (select(t.AUDIT), rows.audit_entry_from_row),
    (select(t.TOKENS), rows.token_from_row),
)


MOST_ROWS = 10**15  # in a table: no database comes so far


class SqlDamage(Adapter):
    """What reads of all else leave out."""

    @reads
    def lost_tables(self, connection: Connection) -> Sequence[str]:
        """Those that somebody has dropped."""
        return sorted(t.METADATA.tables.keys() - set(inspect(connection).get_table_names()))

    @reads
    def damaged(self, connection: Connection) -> Sequence[tuple[str, int, str]]:
        """Table, number and why. What is read with its key is whole where only that is damaged."""
        damaged: list[tuple[str, int, str]] = []
        for statement, make in _READS:
            columns = statement.selected_columns
            if {"key_id", "problem"} <= {*columns.keys()}:
                keys = [number for name, number, _ in damaged if name == t.KEYS.name]
                statement = statement.where(columns.key_id.not_in(keys))
            for _ in readable(connection, statement, make, lambda *row: damaged.append(row)):
                pass
        for name, table in t.METADATA.tables.items():
            last = connection.scalar(select(func.max(table.c.id))) or 0
            if last > MOST_ROWS:
                damaged.append((name, last, "its number leaves too few for those that follow"))
        return damaged

    @reads
    def orphans(self, connection: Connection) -> Sequence[tuple[str, int, str]]:
        """The same of rows that belong to one that is gone. PostgreSQL keeps that from happening,
        and so does SQLite, but for its own command."""
        if query.is_postgresql(connection):
            return []
        lost = connection.exec_driver_sql("PRAGMA foreign_key_check")
        return [(name, n, f"its row of {other} is gone") for name, n, other, _ in lost]
