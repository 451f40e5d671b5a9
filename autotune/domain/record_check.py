"""What is known of a record's config under another toolchain: it travels with the record."""

from dataclasses import dataclass
from enum import StrEnum

from autotune.domain.codec import OmitDefault, OmitNone
from autotune.domain.limits import Bytes, Text, Time, When
from autotune.domain.outcome import Outcome
from autotune.domain.toolchain import Toolchain


class CheckVerdict(StrEnum):
    """The worst first. *wrong*: of two sources, by the gate. *broken*: it does not compile, and no
    VMEM limit mends that. *needs limit*: it compiles under a higher one. *slower*, *faster*: by
    more than estimates can mistake. *default wins*: the kernel's own default is faster now. *not
    checked*: why is in ``Check.cause``."""

    WRONG = "wrong"
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
        return self not in _UNUSABLE

    @property
    def compiles(self) -> bool:
        """Whether the config is known to compile as it is."""
        return self.is_usable and self is not CheckVerdict.NOT_CHECKED

    @property
    def wants_retuning(self) -> bool:
        """Whether a search could find something better."""
        return self in _TO_RETUNE


_UNUSABLE = CheckVerdict.WRONG, CheckVerdict.BROKEN, CheckVerdict.NEEDS_LIMIT
_TO_RETUNE = (*_UNUSABLE, CheckVerdict.SLOWER, CheckVerdict.DEFAULT_WINS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCheck:
    """The verdict on a record's config under another toolchain, on the record's own chip.
    ``time_us``: None where it has no time there. Of one that does not compile: its ``outcome``, the
    bytes of VMEM that it needs and may have, and a ``detail``. ``finding``: the sentence of an
    older version."""

    toolchain: Toolchain
    verdict: CheckVerdict
    checked_at: When
    time_us: Time | None = None
    finding: Text = ""
    outcome: OmitNone[Outcome | None] = None
    needed_bytes: OmitNone[Bytes | None] = None
    allowed_bytes: OmitNone[Bytes | None] = None
    detail: OmitDefault[Text] = ""
