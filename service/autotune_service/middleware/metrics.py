"""What Prometheus is told. With several processes their values are added up through files in
``PROMETHEUS_MULTIPROC_DIR``, which ``autotune serve`` sets."""

import os
import platform
from bisect import bisect_left
from datetime import UTC, datetime
from functools import partial

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    multiprocess,
)

from autotune.answering.matching import EXACT, KINDS
from autotune.domain.job import State
from autotune.domain.version import VERSION

CONTENT_TYPE = CONTENT_TYPE_LATEST
DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
REFUSED = "refused"
OTHER = "other"
MOST_KERNELS = 200
"""Names of kernels that misses are counted under; those beyond are ``OTHER``."""

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
_STREAM_BUCKETS = (0.1, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0)

_lookups = Counter("autotune_lookups", "Questions answered, by how the answer fits.", ["match"])
_misses = Counter(
    "autotune_misses", "Questions whose answer was not exact, by kernel.", ["kernel", "match"]
)
_unanswered_claims = Counter(
    "autotune_claims_not_answered", "Such questions that only a claimed record is for."
)
_durations = Histogram(
    "autotune_request_duration_seconds", "Time to answer a call.", ["route"], buckets=_BUCKETS
)
_streams = Histogram(
    "autotune_stream_duration_seconds",
    "How long a page that follows a search was connected.",
    buckets=_STREAM_BUCKETS,
)
_requests = Counter("autotune_requests", "Calls, by route and status.", ["route", "status"])
_gauge = partial(Gauge, multiprocess_mode="mostrecent")
_jobs = _gauge("autotune_jobs", "Tuning jobs by state.", ["state"])
_snapshot = _gauge("autotune_snapshot", "The snapshot in force.")
_records = _gauge("autotune_records", "Records in it that everybody is answered with.")
CLAIMED = _gauge("autotune_claimed_records", "Keys that have claimed records only.")
_made = _gauge("autotune_snapshot_created_seconds", "When it was made, as Unix time.")
_age = _gauge("autotune_snapshot_age_seconds", "How old it is.")
BROKEN = _gauge(
    "autotune_broken_records",
    "Records that do not work under another toolchain, where nothing has replaced them.",
)
_build = _gauge("autotune_build_info", "Always 1.", ["version", "python"])
_went_back = Counter(
    "autotune_database_went_back", "How often it had lost snapshots that were in force."
)
DATABASE_UP = _gauge("autotune_database_up", "Whether the last look at the database succeeded.")


class _Times:
    """Calls by how long they took; one bucket for each limit, and one for all that is longer."""

    def __init__(self) -> None:
        self.counts = [0] * (len(_BUCKETS) + 1)
        self.total = 0.0

    def hand_on(self, to: Histogram) -> None:
        """All at once, which the library has no call for: one by one takes longer than a lookup."""
        for bucket, count in zip(to._buckets, self.counts, strict=True):
            if count:
                bucket.inc(count)
        to._sum.inc(self.total)
        self.counts, self.total = [0] * len(self.counts), 0.0


class CallMeter:
    """Counts of one process, in plain numbers that are handed on now and then: a counter of the
    library takes longer.

    ``names_kernels``: not where reading is closed, because everybody may read the metrics.
    """

    def __init__(self, *, names_kernels: bool = True) -> None:
        self._names_kernels = names_kernels
        self._answers = dict.fromkeys((*KINDS, REFUSED), 0)
        self._missed: dict[tuple[str, str], int] = {}
        self._kernels: set[str] = set()
        self._times: dict[str, _Times] = {}
        self._statuses: dict[tuple[str, int], int] = {}
        self._made_at: datetime | None = None
        self._times_back = self._claims = 0
        for match in self._answers:
            _lookups.labels(match)  # 0 is a value: a rate needs one to begin with
        _build.labels(VERSION, platform.python_version()).set(1)

    def answered(
        self, match: str, count: int = 1, *, kernel: str = OTHER, claim: bool = False
    ) -> None:
        """``kernel``: one that is known, of a question that is not refused. ``claim``: a claimed
        record is for what was asked."""
        self._answers[match] += count
        self._claims += claim
        if match not in (EXACT, REFUSED):
            if self._names_kernels and len(self._kernels) < MOST_KERNELS:
                self._kernels.add(kernel)
            asked = (kernel if kernel in self._kernels else OTHER), match
            self._missed[asked] = self._missed.get(asked, 0) + count

    def streamed(self, route: str, status: int, seconds: float) -> None:
        """A call that is meant to last: its time says nothing of how fast calls are answered."""
        _streams.observe(seconds)
        self._statuses[route, status] = self._statuses.get((route, status), 0) + 1

    def called(self, route: str, status: int, seconds: float) -> None:
        times = self._times.get(route)
        if times is None:
            times = self._times[route] = _Times()
        times.counts[bisect_left(_BUCKETS, seconds)] += 1
        times.total += seconds
        self._statuses[route, status] = self._statuses.get((route, status), 0) + 1

    def holds(self, snapshot: int, records: int, made_at: datetime | None) -> None:
        self._made_at = made_at
        _snapshot.set(snapshot)
        _records.set(records)
        _made.set(made_at.timestamp() if made_at else 0)

    def went_back(self, times: int) -> None:
        """In all, since the process began."""
        _went_back.inc(times - self._times_back)
        self._times_back = times

    def jobs(self, counts: dict[str, int]) -> None:
        for state in State:
            _jobs.labels(state).set(counts.get(state, 0))

    def hand_on(self) -> None:
        """In the thread that counts."""
        for match, count in self._answers.items():
            if count:
                self._answers[match] = 0
                _lookups.labels(match).inc(count)
        _unanswered_claims.inc(self._claims)
        self._claims = 0
        missed, self._missed = self._missed, {}
        for (kernel, match), count in missed.items():
            _misses.labels(kernel, match).inc(count)
        for route, times in self._times.items():
            times.hand_on(_durations.labels(route))
        statuses, self._statuses = self._statuses, {}
        for (route, status), count in statuses.items():
            _requests.labels(route, str(status)).inc(count)

    def text(self) -> bytes:
        """In the format of Prometheus: what was handed on."""
        if self._made_at is not None:
            _age.set((datetime.now(UTC) - self._made_at).total_seconds())
        if DIRECTORY not in os.environ:
            return generate_latest(REGISTRY)
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
