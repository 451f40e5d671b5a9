"""Opening a database, and all ports that it implements."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Self

from sqlalchemy import Engine

from autotune_db import searches
from autotune_db.audit import SqlAudit
from autotune_db.candidates import SqlCandidates
from autotune_db.checks import SqlChecks
from autotune_db.damage_list import SqlDamage
from autotune_db.engine import HEAD, bring_to_head, open_engine, require_head
from autotune_db.jobs import SqlJobs
from autotune_db.misses import SqlMisses
from autotune_db.pushing import SqlPushes
from autotune_db.records import SqlRecords, SqlSnapshots
from autotune_db.tokens import SqlTokens
from autotune_db.transaction import Transactions
from autotune_db.trials import SqlKernels, SqlTrials
from autotune_db.url import Database, parse_database, translated

if TYPE_CHECKING:
    from autotune_db.browse import SqlBrowse


_now = partial(datetime.now, UTC)


def open_store(
    url: str | None = None,
    *,
    create: bool = False,
    clock: Callable[[], datetime] = _now,
    wait_s: float | None = None,
) -> "SqlStore":
    """The store at ``url`` (a URL or a file path), else in the environment, else the user's own.

    ``create`` makes the file and brings the tables up to date; without it nothing is created, and
    a database that is missing, or of another version, is refused. ``wait_s``: how long work may
    wait for a lock. Raises ``StoreError``.
    """
    database = parse_database(url)
    with translated(database):
        engine = open_engine(database, create=create, wait_s=wait_s)
        try:
            (bring_to_head if create else require_head)(engine, database)
            return SqlStore(engine, database, clock)
        except BaseException:
            engine.dispose()
            raise


def upgrade(url: str | None = None) -> str:
    """Creates the database file and tables, or brings them up to date; the version in force.

    Safe while other processes do the same. Raises ``StoreError``.
    """
    open_store(url, create=True).close()
    return HEAD


class SqlStore(
    SqlKernels,
    SqlTrials,
    SqlRecords,
    SqlSnapshots,
    SqlPushes,
    SqlCandidates,
    SqlMisses,
    SqlChecks,
    searches.SqlCalibrations,
    searches.SqlKnownConfigs,
    SqlDamage,
):
    """Everything that is kept in one database: safe to share between threads.

    The ports of ``domain.store`` that keep results are methods of its own; ``jobs``, ``tokens``,
    ``searches`` (their statuses), ``workloads``, ``profiles`` and ``browse`` (the pages) are apart.
    """

    def __init__(self, engine: Engine, database: Database, clock: Callable[[], datetime]) -> None:
        super().__init__(Transactions(engine, database), clock)
        self._database = database
        self.jobs = SqlJobs(self._work, clock)
        self.audit = SqlAudit(self._work, clock)
        self.tokens = SqlTokens(self._work, clock)
        self.searches = searches.SqlSearches(self._work, clock)
        self.workloads = searches.SqlWorkloads(self._work, clock)
        self.profiles = searches.SqlProfiles(self._work, clock)

    @cached_property
    def browse(self) -> "SqlBrowse":
        """For the pages: no command has to import it."""
        from autotune_db.browse import SqlBrowse

        return SqlBrowse(self._work, self._clock)

    @property
    def url(self) -> str:
        """For Optuna's ``RDBStorage``; holds the password, where there is one."""
        return self._database.full_url

    def __str__(self) -> str:
        return str(self._database)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._work.close()
