"""What a change to the source of a kernel saves, as the simulator computes it."""

from dataclasses import dataclass
from typing import Annotated

from autotune.domain.change import SourceChange
from autotune.domain.codec import OmitDefault
from autotune.domain.evidence import Verdict
from autotune.domain.limits import MOST_NAMES, Count, Limit, Share, Text, Time
from autotune.domain.profile import SourceLine


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFinding:
    """``changes``: one, or several together. ``before_us``: None of a kernel that does not compile
    without them. ``margin``: the share by which two times must differ to be told apart.
    ``verdict``: of the gate on the changed kernel. ``diff``: empty where the source has no edit
    that is safe; ``same_program``: whether the edited source compiles to the program that was
    simulated, None where that could not be tried."""

    changes: Annotated[tuple[SourceChange, ...], Limit(longest=MOST_NAMES)]
    lines: Annotated[tuple[SourceLine, ...], Limit(longest=MOST_NAMES)]
    before_us: Time | None
    after_us: Time
    margin: Share
    verdict: Verdict
    diff: OmitDefault[Text] = ""
    same_program: OmitDefault[bool | None] = None

    @property
    def gain(self) -> float:
        """The share of the time that is saved; 1 where there was no time."""
        return 1.0 - self.after_us / self.before_us if self.before_us else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """``findings``: those that save the most first; ``together``: of several that go together.
    ``tried``: how many changes were compiled; ``wrong``: what saves time, and the gate refuses.
    ``reason``: why the kernel has no time without a change; empty where it has one."""

    time_us: Time | None
    findings: Annotated[tuple[SourceFinding, ...], Limit(longest=1_000)]
    together: SourceFinding | None
    wrong: Annotated[tuple[SourceFinding, ...], Limit(longest=1_000)]
    tried: Count
    reason: OmitDefault[Text] = ""
