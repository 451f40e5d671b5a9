"""What a tuning machine may send, field by field. It is data and stays data.

The same forms as ``autotune.domain.codec`` writes; what a field means stands at its class. That the
parts fit each other is for ``autotune.answering.push.checked``.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import FailFast, Field, model_validator

from autotune.domain.check import Check, Unchecked
from autotune.domain.chip import Chip
from autotune.domain.codec import from_data
from autotune.domain.job import MOST_TRIALS
from autotune.domain.kernel_spec import KernelSpec
from autotune.domain.limits import MOST_NAMES
from autotune.domain.record import MOST_CHECKS
from autotune.domain.record_check import CheckVerdict
from autotune.domain.refusals import MOST_CELLS, Refusals
from autotune.domain.result import KeyResult
from autotune_service.api.fields import (
    Bytes,
    Choice,
    Count,
    Flag,
    Micros,
    Name,
    Names,
    Part,
    Share,
    Size,
    Text,
    Time,
    When,
    Word,
)

MOST_RESULTS = 1_000

NotFinite = Literal["inf", "-inf", "nan"]  # as ``autotune.domain.codec`` writes them
Notes = Annotated[list[Text], Field(max_length=100)]


class Versions(Part):
    jax: Name = Field(examples=["0.10.2"])
    jaxlib: Name = Field(examples=["0.10.2"])
    libtpu: Name = Field(examples=["0.0.42.1"])


class ProblemIn(Part):
    dims: dict[Name, Size] = Field(max_length=MOST_NAMES, examples=[{"m": 1024, "k": 1024}])
    dtype: Name = Field(examples=["bfloat16"])
    options: dict[Name, Choice] = Field({}, max_length=MOST_NAMES)


class KeyIn(Part):
    kernel: Name
    fingerprint: Name
    problem: ProblemIn
    chip: Chip
    toolchain: Versions


class ConfigIn(Part):
    axes: dict[Name, Choice] = Field(max_length=MOST_NAMES)
    grid_order: Names
    dimension_semantics: Names
    vmem_limit_bytes: Bytes | None


class ExplanationIn(Part):
    parts_us: list[tuple[Word, Micros]] = Field(max_length=MOST_NAMES)
    roofline_us: Micros
    mxu_us: Micros
    steps: Bytes
    dma_count: Bytes
    burst_bytes: Bytes
    least_hbm_bytes: Bytes
    vmem: list[tuple[Word, Bytes]] = Field(max_length=1_000)
    spill_bundles: Bytes


class CallTimeIn(Part):
    name: Text
    runs: Count
    time_us: Micros
    limited_by: Word
    vmem_used_bytes: Bytes


class OperationTimeIn(Part):
    name: Text
    opcode: Word
    runs: Count
    time_us: Micros
    hbm_bytes: Bytes


class EstimateIn(Part):
    time_us: Time
    compute_us: Micros
    memory_us: Micros
    overhead_us: Micros
    fill_us: Micros
    limited_by: Word
    model: Word
    vmem_used_bytes: Bytes
    vmem_allowed_bytes: Bytes
    hbm_bytes: Bytes
    flops: Annotated[int, Field(strict=True, ge=0, le=10**30)]
    notes: Notes = Field([])
    error: Share | None = None
    resolution: Share = 0.0
    explanation: ExplanationIn | None = None
    calls: list[CallTimeIn] = Field([], max_length=1_000)
    xla_us: Micros = 0.0
    operations: list[OperationTimeIn] = Field([], max_length=1_000)


class EvidenceIn(Part):
    config: ConfigIn | None
    time_us: Time | None
    expected_us: Time | None = None
    expected_error: Share | None = None
    note: Text = ""


class TimedIn(Part):
    config: ConfigIn | None
    samples_us: list[Time] = Field(max_length=10_000)
    ratio: Share | None = None
    low: Share | None = None
    high: Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)] | None = None
    slower: Flag = False
    refused: Text = ""
    note: Text = ""


class MeasurementIn(Part):
    method: Literal["device time", "wall clock"]
    device: Word
    timed: list[TimedIn] = Field(max_length=MOST_NAMES)
    stopped_by: Word
    void: Text = ""
    drift: Annotated[float, Field(strict=True, ge=-1e6, le=1e6, allow_inf_nan=False)] = 0.0
    set_aside: Count = 0
    looks: Count = 0
    seed: Count = 0
    seconds: Share = 0.0


class RecordCheckIn(Part):
    toolchain: Versions
    verdict: CheckVerdict
    checked_at: When
    time_us: Time | None = None
    finding: Text = ""


class ProofIn(Part):
    level: Literal["", "one core", "plain"] = ""
    lacks: Text = ""
    jax: Word = ""
    standard: Literal["reference", "default config"] = "reference"


class RecordIn(Part):
    """``pushed_by`` is not taken from here, it is the name of the token; nor is ``checked_by``: no
    worker of this service has seen it."""

    key: KeyIn
    config: ConfigIn
    estimate: EstimateIn
    default: EvidenceIn
    baseline: EvidenceIn
    is_default: Flag
    reason: Text
    verified: Flag
    verification: Text
    trials: Count
    method: Literal["estimated", "measured"]
    created_at: When
    pushed_by: Word = ""
    checked_by: Word = ""
    measurement: MeasurementIn | None = None
    checks: list[RecordCheckIn] = Field([], max_length=MOST_CHECKS)
    proof: ProofIn = ProofIn()


class EstimatedIn(Part):
    kind: Literal["estimated"]
    estimate: EstimateIn
    program: Word


class NotEstimatedIn(Part):
    kind: Literal["compiled, not estimated"]
    reason: Text
    vmem_used_bytes: Bytes
    program: Word


class IllegalIn(Part):
    kind: Literal["illegal"]
    reason: Text
    rule: Text = ""


class OutOfVmemIn(Part):
    kind: Literal["out of VMEM"]
    reason: Text
    used_bytes: Bytes
    allowed_bytes: Bytes
    by_rule: Flag = False
    limited_by: Text = ""


class CompileFailedIn(Part):
    kind: Literal["compile failed"]
    reason: Text
    unsupported: Flag = False
    message: Text = ""
    raised_at: Text = ""


class TimedOutIn(Part):
    kind: Literal["timed out"]
    reason: Text
    limit_s: Share


class CrashedIn(Part):
    kind: Literal["crashed"]
    reason: Text
    log_tail: Text = ""


class WrongResultIn(Part):
    kind: Literal["wrong result"]
    reason: Text
    estimate: EstimateIn | None = None
    check: Word = ""
    error: Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)] | NotFinite | None = None
    where: Text = ""


OutcomeIn = (
    EstimatedIn
    | NotEstimatedIn
    | IllegalIn
    | OutOfVmemIn
    | CompileFailedIn
    | TimedOutIn
    | CrashedIn
    | WrongResultIn
)

_Outcome = Annotated[OutcomeIn, Field(discriminator="kind")]


class CheckIn(Part):
    """What ``autotune check`` found of the config of the record of ``key``."""

    key: KeyIn
    config: ConfigIn
    toolchain: Versions
    chip: Chip
    verdict: CheckVerdict
    checked_at: When
    winner: _Outcome | None = None
    default: _Outcome | None = None
    before_us: Time | None = None
    after_us: Time | None = None
    default_us: Time | None = None
    xla_us: Time | None = None
    least_limit_bytes: Bytes | None = None
    needed_bytes: Bytes | None = None
    allowed_bytes: Bytes | None = None
    passes_limit: Flag = False
    verified: Flag = False
    cause: Unchecked | None = None
    detail: Text = ""
    pushed_by: Word = ""

    def parsed(self) -> Check:
        return from_data(Check, self.model_dump(mode="json"))


class TrialIn(Part):
    number: Count
    config: ConfigIn
    outcome: _Outcome
    seconds: Share
    created_at: When
    pushed_by: Word = ""


_CELLS = Field(max_length=MOST_CELLS)
_Cells = Annotated[list[tuple[Count, Count, Count, Count]], _CELLS, FailFast()]


class RefusalsIn(Part):
    """``cells``: for two parts, by their places among the ``values``, the cells: the places of two
    values and of the reason, and how many points there are."""

    values: list[tuple[Word, Annotated[list[Choice], _CELLS]]] = Field(max_length=MOST_NAMES)
    reasons: list[tuple[Word, Text]] = Field(max_length=MOST_CELLS)
    cells: Annotated[list[tuple[Count, Count, _Cells]], FailFast()] = Field(
        max_length=MOST_NAMES**2
    )
    sampled: Flag
    left_out: list[tuple[Word, Word]] = Field(max_length=MOST_NAMES**2)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        try:
            found = from_data(Refusals, self.model_dump(mode="json"))
        except ValueError as error:
            raise ValueError("there is no value or reason at one of the places") from error
        if sum(map(len, found.cells.values())) > MOST_CELLS:
            raise ValueError(f"there must be at most {MOST_CELLS} cells")
        return self


class ResultIn(Part):
    record: RecordIn
    trials: Annotated[list[TrialIn], FailFast()] = Field([], max_length=MOST_TRIALS)
    refusals: RefusalsIn | None = None

    def parsed(self) -> KeyResult:
        return from_data(KeyResult, self.model_dump(mode="json"))


class OptionIn(Part):
    name: Name
    choices: list[Choice] = Field(min_length=1, max_length=1_000)
    default: Choice


class KernelIn(Part):
    name: Name
    fingerprint: Name
    dims: Names
    dtypes: Names
    options: list[OptionIn] = Field([], max_length=MOST_NAMES)
    axes: Names
    grid: Names
    doc: Text = ""
    cuts: list[tuple[Name, Name]] = Field([], max_length=MOST_NAMES)

    def parsed(self) -> Any:
        return from_data(KernelSpec, self.model_dump(mode="json"))


class ProgressIn(Part):
    done: Count = 0
    goal: Count = 0
    best_us: Micros | None = None
    default_us: Micros | None = None
    note: Text = ""


class PushRequest(Part):
    """``kernels`` describes every kernel of the results and checks."""

    kernels: Annotated[list[KernelIn], FailFast()] = Field(max_length=MOST_RESULTS)
    results: Annotated[list[ResultIn], FailFast()] = Field(max_length=MOST_RESULTS)
    checks: Annotated[list[CheckIn], FailFast()] = Field([], max_length=MOST_RESULTS)
