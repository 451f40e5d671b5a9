"""What becomes of a published record under another toolchain or on another chip."""

from dataclasses import dataclass, replace
from enum import StrEnum

from autotune.domain.chip import Chip
from autotune.domain.codec import Local, OmitDefault, OmitNone
from autotune.domain.config import Config
from autotune.domain.key import Key
from autotune.domain.limits import Bytes, Text, Time, When, Word
from autotune.domain.outcome import Outcome
from autotune.domain.record_check import CheckVerdict
from autotune.domain.toolchain import Toolchain


class Unchecked(StrEnum):
    """Why something was not checked."""

    SOURCE_CHANGED = "source changed"
    NO_KERNEL = "no kernel"
    NO_CHIP = "no chip"
    NO_ESTIMATE = "no estimate"
    NO_ANSWER = "no answer"
    NO_PROBLEM = "no problem"
    OTHER_MODEL = "other model"
    NO_BASELINE = "no baseline"
    NOT_VERIFIED = "not verified"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The verdict on the config of the record of ``key``, under ``toolchain`` on ``chip``.

    ``winner``, ``default``: what became of both there, None where it was not asked. Times in
    microseconds, ``before_us`` under the record's own toolchain and chip. ``least_limit_bytes``:
    the least ``vmem_limit_bytes`` that is enough where ``needed_bytes`` of VMEM are more than the
    ``allowed_bytes``; ``passes_limit``: whether the kernel hands a
    config's limit to its ``pallas_call``. ``verified``: the gate passed it there, and without
    ``against`` it is published for it. ``cause``: why it was not checked, ``before``: what had
    become of it under the record's own toolchain, where that is the reason. ``pushed_by``: the name
    of the token that brought it.

    ``against``: what another source of the kernel was compared with, empty where both are the same
    source; ``fingerprint``: of that other source, ``is_default``: its default was compared.

    ``asked``: what a command on this machine says for the kernel, its problem and the chip, where
    a name of the catalogue and a shape do not.
    """

    key: Key
    config: Config
    toolchain: Toolchain
    chip: Chip
    verdict: CheckVerdict
    checked_at: When
    winner: Outcome | None = None
    default: Outcome | None = None
    before_us: Time | None = None
    after_us: Time | None = None
    default_us: Time | None = None
    xla_us: Time | None = None
    least_limit_bytes: Bytes | None = None
    needed_bytes: Bytes | None = None
    allowed_bytes: Bytes | None = None
    passes_limit: bool = False
    verified: bool = False
    cause: Unchecked | None = None
    detail: Text = ""
    pushed_by: OmitDefault[Word] = ""
    before_vmem_bytes: Local[OmitNone[int | None]] = None
    vmem_bytes: Local[OmitNone[int | None]] = None
    against: Local[OmitDefault[str]] = ""
    fingerprint: Local[OmitDefault[str]] = ""
    is_default: Local[OmitDefault[bool]] = False
    asked: Local[OmitDefault[str]] = ""
    before: OmitNone[Outcome | None] = None

    @property
    def target(self) -> Key:
        """The key that its trials are kept under."""
        source = self.fingerprint or self.key.fingerprint
        return replace(self.key, fingerprint=source, chip=self.chip, toolchain=self.toolchain)

    def unchecked(self, cause: Unchecked, detail: str = "") -> "Check":
        """The same without a verdict, and why."""
        return replace(self, verdict=CheckVerdict.NOT_CHECKED, cause=cause, detail=detail)
