"""What the engine asks of the world: small protocols, each named by who asks.

Adapters live elsewhere and are passed in by the commands and the service. A method of a database
commits before it returns, and raises ``StoreError`` when the database cannot be used.
"""

from autotune.ports.access import AuditLog, Tokens
from autotune.ports.checks import CheckStore
from autotune.ports.history import ReleaseStore, TrialHistory
from autotune.ports.jobs import Jobs, Queue
from autotune.ports.known_configs import KnownConfigStore
from autotune.ports.lookup import (
    LookupStore,
    MissCounter,
    MissLog,
    RecordFinder,
    RuntimeStore,
    SnapshotStore,
)
from autotune.ports.pages import KeyPages, OverviewPages, Pages, ProblemPages, TrialPages
from autotune.ports.push import (
    CandidateStore,
    CandidateTarget,
    JobResultStore,
    PushSource,
    PushTarget,
    ResultStore,
)
from autotune.ports.search import PublishStore, SearchStatuses, SearchStore, WorkerStore

__all__ = [
    "AuditLog",
    "CandidateStore",
    "CandidateTarget",
    "CheckStore",
    "JobResultStore",
    "Jobs",
    "KeyPages",
    "KnownConfigStore",
    "LookupStore",
    "MissCounter",
    "MissLog",
    "OverviewPages",
    "Pages",
    "ProblemPages",
    "PublishStore",
    "PushSource",
    "PushTarget",
    "Queue",
    "RecordFinder",
    "ReleaseStore",
    "ResultStore",
    "RuntimeStore",
    "SearchStatuses",
    "SearchStore",
    "SnapshotStore",
    "Tokens",
    "TrialHistory",
    "TrialPages",
    "WorkerStore",
]
