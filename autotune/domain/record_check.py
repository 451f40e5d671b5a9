"""What is known of a record's config under another toolchain: it travels with the record."""

from dataclasses import dataclass
from enum import StrEnum

from autotune.domain.limits import Text, Time, When
from autotune.domain.toolchain import Toolchain


class CheckVerdict(StrEnum):
    """The worst first. *broken*: it does not compile, and no VMEM limit mends that. *needs limit*:
    it compiles under a higher one. *slower*, *faster*: by more than estimates can mistake. *default
    wins*: the kernel's own default is faster now. *not checked*: why is in ``Check.cause``."""

    BROKEN = "broken"
    NEEDS_LIMIT = "needs limit"
    SLOWER = "slower"
    DEFAULT_WINS = "default wins"
    NOT_CHECKED = "not checked"
    FASTER = "faster"
    SAME = "same"

    @property
    def is_usable(self) -> bool:
        """Whether the config may be handed to a model that runs this toolchain."""
        return self not in (CheckVerdict.BROKEN, CheckVerdict.NEEDS_LIMIT)

    @property
    def compiles(self) -> bool:
        """Whether the config is known to compile as it is."""
        return self.is_usable and self is not CheckVerdict.NOT_CHECKED

    @property
    def wants_retuning(self) -> bool:
        """Whether a search could find something better."""
        return self in _TO_RETUNE


_TO_RETUNE = (
    CheckVerdict.BROKEN,
    CheckVerdict.NEEDS_LIMIT,
    CheckVerdict.SLOWER,
    CheckVerdict.DEFAULT_WINS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCheck:
    """The verdict on a record's config under another toolchain, on the record's own chip.
    ``finding`` is one sentence; ``time_us`` None where it has no time there."""

    toolchain: Toolchain
    verdict: CheckVerdict
    checked_at: When
    time_us: Time | None = None
    finding: Text = ""
