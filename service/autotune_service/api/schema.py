"""What goes in and out, for OpenAPI, and for the routes that are not in a hurry."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field

from autotune.domain.browsing import AuditEntry, Miss
from autotune.domain.job import (
    DEFAULT_TRIALS,
    LEASE_S,
    LEAST_LEASE_S,
    MOST_ATTEMPTS,
    MOST_LEASE_S,
    MOST_LOG,
    MOST_TRIALS,
    Job,
    JobLog,
    Progress,
)
from autotune.domain.key import Chip, KernelSpec, Toolchain
from autotune.domain.problem import Config, Problem
from autotune.domain.record import Check, RecordCheck, Snapshot, Standing
from autotune.domain.store import KeyResult
from autotune_service.api.forms import Answered, Count, Name, Part, Sent, Text, whole

MOST_RESULTS = 1_000
_RESULTS = Field(max_length=MOST_RESULTS)

SnapshotName = Annotated[str, Field(pattern=r"^(latest|[0-9]{1,15})$")]
Cursor = Annotated[str, Field(pattern=r"^[0-9]{1,15}(-[0-9]{1,15})?$")]
"""Where the next page begins, as the answer before it said."""

SnapshotNumber = Annotated[int, Field(strict=True, ge=0, le=10**15), BeforeValidator(whole)]


class ErrorDetail(BaseModel):
    code: str
    message: str
    field: str | None = None


class Error(BaseModel):
    error: ErrorDetail


class Answer(BaseModel):
    """``config`` is null for *default*: the kernel's own default is meant. ``record`` is what is
    published, with its own key and what stands behind it; times in microseconds. ``check``: what is
    known of a *toolchain* answer under the toolchain that was asked for; missing where nothing is.
    What is known not to work there is no answer. ``expected_regret``: of a *rule*, as a share of
    the best time; its ``record`` is the one that carries it. ``standing``: whether the record is
    *proven* with this database, or *claimed* by who pushed it; null where there is none."""

    match: Literal["exact", "toolchain", "rule", "nearest", "default"]
    config: Answered[Config] | None
    why: str
    record: dict[str, Any] | None
    standing: Standing | None
    check: Answered[RecordCheck] | None = None
    expected_regret: float | None = None


class LookupResponse(BaseModel):
    """``snapshot_id``: another one may have the number after the database was restored."""

    snapshot: int
    snapshot_id: str
    answers: list[Answer | Error]


class ConfigResponse(Answer):
    snapshot: int


class TimesResponse(BaseModel):
    """By the model of the estimate, in microseconds; empty where it was not tried."""

    times_us: dict[str, float]


class Page(BaseModel):
    """``next``: the ``cursor`` of the next page; null where this is the last one."""

    next: Cursor | None


class Snapshots(Page):
    in_force: int
    snapshots: Sequence[Answered[Snapshot]]


class Misses(Page):
    misses: Sequence[Answered[Miss]]


class NumberedRecord(BaseModel):
    """``number`` is for pinning."""

    number: int
    standing: Standing
    record: dict[str, Any]


class Records(Page):
    records: list[NumberedRecord]


class Audit(Page):
    entries: Sequence[Answered[AuditEntry]]


class Made(BaseModel):
    snapshot: int


class PushRequest(Part):
    """``kernels`` describes every kernel of the results and checks."""

    kernels: Annotated[list[Sent[KernelSpec]], FailFast(), _RESULTS]
    results: Annotated[list[Sent[KeyResult]], FailFast(), _RESULTS]
    checks: Annotated[list[Sent[Check]], FailFast(), _RESULTS] = Field([])


class JobRequest(Part):
    """Either ``miss``, the number of a miss, or what is to be searched: ``kernel``, ``problem`` and
    ``chip``. ``fingerprint`` and ``toolchain``: any that a worker has, unless they are given."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"miss": 7, "trials": 50}]}
    )

    miss: Annotated[int, Field(strict=True, ge=1, le=10**15)] | None = None
    kernel: Name | None = Field(None, examples=["matmul"])
    problem: Sent[Problem] | None = None
    chip: Chip | None = Field(None, examples=["v5e"])
    fingerprint: Name | None = None
    toolchain: Sent[Toolchain] | None = None
    trials: Annotated[int, Field(strict=True, ge=1, le=MOST_TRIALS)] = DEFAULT_TRIALS


class JobLogs(BaseModel):
    logs: Sequence[Answered[JobLog]] = Field(max_length=MOST_ATTEMPTS)


class ClaimRequest(Part):
    """``worker`` names one process. ``kernels``: those that it has, which jobs may be asked for
    from then on; it takes jobs for these versions of them and for its toolchain. ``lease_s``: after
    how many silent seconds its job may be given to another worker."""

    worker: Name = Field(examples=["tpu-vm-3-4711"])
    kernels: Annotated[list[Sent[KernelSpec]], FailFast(), _RESULTS]
    toolchain: Sent[Toolchain]
    lease_s: Annotated[float, Field(strict=True, ge=LEAST_LEASE_S, le=MOST_LEASE_S)] = LEASE_S


class Claimed(BaseModel):
    """``job`` is null where there is nothing to do."""

    job: Answered[Job] | None


class Turn(Part):
    """``worker`` and ``attempt`` as the claimed job has them: whose it is."""

    worker: Annotated[str, Field(strict=True, max_length=500)]
    attempt: Count


class BeatRequest(Turn):
    progress: Sent[Progress]


class LogRequest(Turn):
    """``text``: all that the worker has said in this attempt, or the end of it."""

    text: Annotated[str, Field(strict=True, max_length=MOST_LOG)]


class FinishRequest(Turn):
    state: Literal["done", "failed"]
    message: Text


class GiveBackRequest(Turn):
    """``counts``: as one of the attempts after which the job has failed."""

    message: Text
    counts: Annotated[bool, Field(strict=True)] = False


class Holds(BaseModel):
    """False: stop, the job was cancelled or is another worker's now."""

    holds: bool


class JobList(Page):
    jobs: Sequence[Answered[Job]]


class HealthData(BaseModel):
    """``database``: whether the last look for a newer snapshot succeeded. ``went_back_at``: when
    this process saw that the database had lost snapshots. ``troubles``: sentences for people."""

    status: Literal["ok", "not ready"]
    snapshot: int
    snapshot_id: str
    went_back_at: datetime | None = None
    records: int
    database: Literal["ok", "unavailable"]
    troubles: Annotated[list[str], Field(max_length=6)] = []
