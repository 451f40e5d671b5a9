"""What goes in and out, for OpenAPI, and for the routes that are not in a hurry."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from autotune.domain.chip import Chip
from autotune.domain.job import DEFAULT_TRIALS, LEASE_S, MOST_ATTEMPTS, MOST_LOG, MOST_TRIALS, State
from autotune.domain.record_candidate import CandidateState
from autotune_service.api.fields import Count, Flag, Name, Part, Text, whole
from autotune_service.api.uploads import (
    MOST_RESULTS,
    KernelIn,
    ProblemIn,
    ProgressIn,
    RecordCheckIn,
    Versions,
)

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


class ConfigData(BaseModel):
    axes: dict[str, int | str | bool]
    grid_order: list[str]
    dimension_semantics: list[str]
    vmem_limit_bytes: int | None


class Answer(BaseModel):
    """``config`` is null for *default*: the kernel's own default is meant. ``record`` is what is
    published, with its own key and what stands behind it; times in microseconds. ``check``: what is
    known of a *toolchain* answer under the toolchain that was asked for; missing where nothing is.
    What is known not to work there is no answer. ``expected_regret``: of a *rule*, as a share of
    the best time; its ``record`` is the one that carries it."""

    match: Literal["exact", "toolchain", "rule", "nearest", "default"]
    config: ConfigData | None
    why: str
    record: dict[str, Any] | None
    check: RecordCheckIn | None = None
    expected_regret: float | None = None


class LookupResponse(BaseModel):
    snapshot: int
    answers: list[Answer | Error]


class ConfigResponse(Answer):
    snapshot: int


class SnapshotData(BaseModel):
    """``made_by``: the name of the token with which it was made, empty where it was searched."""

    number: int
    created_at: datetime
    note: str
    made_by: str


class MissData(BaseModel):
    """``answer``: what was given instead. ``number`` is for ``POST /v1/jobs``."""

    number: int
    key: dict[str, Any]
    answer: str
    count: int
    first_at: datetime
    last_at: datetime


class Page(BaseModel):
    """``next``: the ``cursor`` of the next page; null where this is the last one."""

    next: Cursor | None


class Snapshots(Page):
    in_force: int
    snapshots: list[SnapshotData]


class Misses(Page):
    misses: list[MissData]


class RecordData(BaseModel):
    """``number`` is for pinning."""

    number: int
    record: dict[str, Any]


class Records(Page):
    records: list[RecordData]


class CandidateData(BaseModel):
    """``record`` is as it was pushed: all of it is what the token of its ``pushed_by`` says."""

    number: int
    record: dict[str, Any]
    state: CandidateState
    finding: str
    created_at: datetime
    decided_at: datetime | None


class Candidates(Page):
    candidates: list[CandidateData]


class AuthorData(BaseModel):
    """``token``: its number; null for the commands of the machine of the database."""

    name: str
    token: int | None
    address: str


class AuditData(BaseModel):
    number: int
    created_at: datetime
    author: AuthorData
    action: str
    change: str


class Audit(Page):
    entries: list[AuditData]


class PushResponse(BaseModel):
    """How many records and trials were new; ``lost``: records that are older than the published one
    of their key, or slower by the same kind of evidence. ``checks``: how many of those that were
    sent are in force; only where some were. ``candidates``: only where the service checks what is
    pushed: how many records wait for that."""

    records: int
    trials: int
    lost: int
    snapshot: int
    checks: int | None = None
    candidates: int | None = None


class Made(BaseModel):
    snapshot: int


class JobRequest(Part):
    """Either ``miss``, the number of a miss, or what is to be searched: ``kernel``, ``problem`` and
    ``chip``. ``fingerprint`` and ``toolchain``: any that a worker has, unless they are given."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"miss": 7, "trials": 50}]}
    )

    miss: Annotated[int, Field(strict=True, ge=1, le=10**15)] | None = None
    kernel: Name | None = Field(None, examples=["matmul"])
    problem: ProblemIn | None = None
    chip: Chip | None = Field(None, examples=["v5e"])
    fingerprint: Name | None = None
    toolchain: Versions | None = None
    trials: Annotated[int, Field(strict=True, ge=1, le=MOST_TRIALS)] = DEFAULT_TRIALS


class ProgressData(BaseModel):
    done: int
    goal: int
    best_us: float | None
    default_us: float | None
    note: str


class JobData(BaseModel):
    """``heard_at``: the last sign of life of its worker; ``message``: what came of it."""

    number: int
    request: dict[str, Any]
    state: State
    created_at: datetime
    created_by: str
    attempt: int
    worker: str
    cancel_wanted: bool
    started_at: datetime | None
    heard_at: datetime | None
    finished_at: datetime | None
    progress: ProgressData
    message: str


class JobLogData(BaseModel):
    """``text``: what its workers have said in this attempt, or the end of it, in lines."""

    attempt: int
    text: str


class JobLogs(BaseModel):
    logs: list[JobLogData] = Field(max_length=MOST_ATTEMPTS)


class ClaimRequest(Part):
    """``worker`` names one process. ``kernels``: those that it has, which jobs may be asked for
    from then on; it takes jobs for these versions of them and for its toolchain. ``lease_s``: after
    how many silent seconds a job may be taken from another worker."""

    worker: Name = Field(examples=["tpu-vm-3-4711"])
    kernels: list[KernelIn] = Field(max_length=MOST_RESULTS)
    toolchain: Versions
    lease_s: Annotated[float, Field(ge=1, le=3600, allow_inf_nan=False)] = LEASE_S


class Claimed(BaseModel):
    """``job`` is null where there is nothing to do."""

    job: JobData | None


class Turn(Part):
    """``worker`` and ``attempt`` as the claimed job has them: whose it is."""

    worker: Annotated[str, Field(strict=True, max_length=500)]
    attempt: Count


class BeatRequest(Turn):
    progress: ProgressIn


class LogRequest(Turn):
    """``text``: all that the worker has said in this attempt, or the end of it."""

    text: Annotated[str, Field(strict=True, max_length=MOST_LOG)]


class FinishRequest(Turn):
    state: Literal["done", "failed"]
    message: Text


class GiveBackRequest(Turn):
    """``counts``: as one of the attempts after which the job has failed."""

    message: Text
    counts: Flag = False


class Holds(BaseModel):
    """False: stop, the job was cancelled or is another worker's now."""

    holds: bool


class JobList(Page):
    jobs: list[JobData]


class HealthData(BaseModel):
    """``database``: whether the last look for a newer snapshot succeeded."""

    status: Literal["ok", "not ready"]
    snapshot: int
    records: int
    database: Literal["ok", "unavailable"]
