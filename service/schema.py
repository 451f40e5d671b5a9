"""What goes in and out, for OpenAPI, and for the routes that are not in a hurry."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.lookup import MAX_QUESTIONS


class ErrorDetail(BaseModel):
    code: str
    message: str
    field: str | None = None


class Error(BaseModel):
    error: ErrorDetail


class Versions(BaseModel):
    jax: str
    jaxlib: str
    libtpu: str


class ProblemData(BaseModel):
    dims: dict[str, int] = Field(examples=[{"m": 1024, "k": 1024, "n": 1024}])
    dtype: str | None = Field(None, examples=["bfloat16"])
    options: dict[str, str | int | bool] | None = None


class Question(BaseModel):
    """``fingerprint``: by default that of the newest record. ``chip`` and ``toolchain``: by
    default those of the whole call."""

    kernel: str = Field(examples=["matmul"])
    fingerprint: str | None = None
    problem: ProblemData
    chip: str | None = None
    toolchain: Versions | None = None


class LookupRequest(BaseModel):
    questions: list[Question] = Field(max_length=MAX_QUESTIONS)
    chip: str | None = Field(None, examples=["v5e"])
    toolchain: Versions | None = None
    snapshot: int | str | None = Field(None, examples=["latest"])


class ConfigData(BaseModel):
    axes: dict[str, int | str | bool]
    grid_order: list[str]
    dimension_semantics: list[str]
    vmem_limit_bytes: int | None


class Answer(BaseModel):
    """``config`` is null for *default*: the kernel's own default is meant. ``record`` is what is
    published, with its own key and what stands behind it; times in microseconds."""

    match: Literal["exact", "toolchain", "nearest", "default"]
    config: ConfigData | None
    why: str
    record: dict[str, Any] | None


class LookupResponse(BaseModel):
    snapshot: int
    answers: list[Answer | Error]


class ConfigResponse(Answer):
    snapshot: int


class SnapshotData(BaseModel):
    number: int
    created_at: datetime


class Snapshots(BaseModel):
    in_force: int
    snapshots: list[SnapshotData]


class MissData(BaseModel):
    key: dict[str, Any]
    count: int
    first_at: datetime
    last_at: datetime


class Misses(BaseModel):
    misses: list[MissData]


class Health(BaseModel):
    """``database``: whether the last look for a newer snapshot succeeded."""

    status: Literal["ok"]
    snapshot: int
    records: int
    database: Literal["ok", "unavailable"]
