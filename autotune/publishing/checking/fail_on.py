"""Which verdicts fail a run of continuous integration (``check --fail-on``): its exit codes."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from autotune.domain.comparison import margin
from autotune.domain.errors import InvalidInputError
from autotune.domain.outcome import Estimated
from autotune.domain.record import Check, CheckVerdict, Unchecked
from autotune.publishing.checking.run import worst_first

WRONG, UNKNOWN = 1, 3  # exit codes

_SLOWER, _VMEM = "slower", "vmem"
_VERDICTS = {
    _SLOWER: (CheckVerdict.SLOWER,),
    "wrong": (CheckVerdict.WRONG,),
    "broken": (CheckVerdict.BROKEN, CheckVerdict.NEEDS_LIMIT),
    "default-wins": (CheckVerdict.DEFAULT_WINS,),
    "not-checked": (CheckVerdict.NOT_CHECKED,),
}


_COMPARED = (CheckVerdict.SLOWER, CheckVerdict.SAME, CheckVerdict.FASTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailOn:
    """``slower``: the share that counts as slower or faster, None for what estimates can be
    mistaken by. ``more_vmem``: the share of VMEM more that fails, None for any."""

    verdicts: frozenset[CheckVerdict]
    slower: float | None = None
    more_vmem: float | None = None

    def judged(self, checks: Iterable[Check]) -> list[Check]:
        """The same, the worst first, slower and faster by this share."""
        return sorted(map(self._judged, checks), key=worst_first)

    def _judged(self, check: Check) -> Check:
        if self.slower is None or check.verdict not in _COMPARED:
            return check
        return replace(check, verdict=_by_share(check, self.slower) or check.verdict)

    def fails(self, check: Check) -> bool:
        """Whether it is a reason for exit code 1."""
        before, now = check.before_vmem_bytes, check.vmem_bytes
        if check.verdict in self.verdicts or self._is_slower_too(check):
            return True
        if self.more_vmem is None or before is None or now is None:
            return False
        return now > before * (1 + self.more_vmem)

    def _is_slower_too(self, check: Check) -> bool:
        """Of one that its default beats, which is all that its verdict says."""
        won, asked = check.winner, CheckVerdict.SLOWER in self.verdicts
        if not (
            asked and check.verdict is CheckVerdict.DEFAULT_WINS and isinstance(won, Estimated)
        ):
            return False
        least = margin(won.estimate, won.estimate) if self.slower is None else self.slower
        return _by_share(check, least) is CheckVerdict.SLOWER

    def exit_code(self, checks: Iterable[Check]) -> int:
        """What is new has nothing to be compared with: that is no reason to fail."""
        listed = list(checks)
        if any(map(self.fails, listed)):
            return WRONG
        unknown = (c for c in listed if c.verdict is CheckVerdict.NOT_CHECKED)
        return UNKNOWN if any(c.cause is not Unchecked.NO_BASELINE for c in unknown) else 0


def _by_share(check: Check, share: float) -> CheckVerdict | None:
    """What the times say; None where there are none to compare."""
    before, after = check.before_us, check.after_us
    if before is None or after is None or check.chip is not check.key.chip:
        return None
    if after > before * (1 + share):
        return CheckVerdict.SLOWER
    return CheckVerdict.FASTER if after < before * (1 - share) else CheckVerdict.SAME


ALL_WRONG = FailOn(verdicts=frozenset(v for v in CheckVerdict if v.wants_retuning))


def parse_fail_on(text: str | None) -> FailOn:
    """``slower:5%,broken,vmem:10%``; all that is wrong without one. Raises
    ``InvalidInputError``."""
    if text is None:
        return ALL_WRONG
    verdicts = {CheckVerdict.WRONG}  # that is no matter of taste
    shares: dict[str, float | None] = {}
    for part in text.split(","):
        name, colon, share = part.strip().partition(":")
        if name not in (*_VERDICTS, _VMEM) or (colon and name not in (_SLOWER, _VMEM)):
            raise InvalidInputError(
                f"{part.strip()!r} is nothing to fail on: give one or more of {_SLOWER}[:5%], "
                f"{_VMEM}[:10%], {', '.join(n for n in _VERDICTS if n != _SLOWER)}"
            )
        verdicts.update(_VERDICTS.get(name, ()))
        shares[name] = _share(part, share) if colon else None
    more_vmem = shares.get(_VMEM) or 0.0 if _VMEM in shares else None
    return FailOn(verdicts=frozenset(verdicts), slower=shares.get(_SLOWER), more_vmem=more_vmem)


def _share(part: str, text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not (text.endswith("%") and 0 <= share < 10):
        raise InvalidInputError(f"{part.strip()!r} has no share: write it as slower:5%")
    return share
