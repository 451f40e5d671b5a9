"""Two estimates beside each other."""

from dataclasses import dataclass

from autotune.domain.outcome import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedEstimate:
    """An estimate and what to call its candidate."""

    name: str
    estimate: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """``times_as_fast`` is at least 1. ``margin``: the share by which the times must differ to be
    told apart; else it is a ``tie``. ``gained_us``: by part, the slower's time less the faster's;
    () where the parts are not known.
    """

    faster: NamedEstimate
    slower: NamedEstimate
    times_as_fast: float
    margin: float
    tie: bool
    gained_us: tuple[tuple[str, float], ...]
