"""What a config is compared with: what became of it before an upgrade, or before a change."""

from collections.abc import Iterable
from dataclasses import dataclass

from autotune.declaring.calls.from_problem import call_of
from autotune.domain.key import KernelSpec, Key
from autotune.domain.outcome import Estimated, NotEstimated, Outcome
from autotune.domain.problem import Config
from autotune.domain.record import Record, Unchecked


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorConfig:
    """``config`` of ``key``, None for the kernel's own default, whatever that is; ``outcome``: what
    became of it there, None where nothing is known, and ``why``; ``cause``: what a check against
    nothing is left unchecked for. ``is_default``: it is the default. ``default``: the default as
    its search had it, where that is known. ``call``: of a decorated function, such a call in
    words."""

    key: Key
    config: Config | None
    outcome: Outcome | None
    is_default: bool = False
    default: Config | None = None
    why: str = ""
    call: str = ""
    cause: Unchecked = Unchecked.NO_BASELINE

    @property
    def failed(self) -> bool:
        """Whether it could not be used before."""
        return self.outcome is not None and vmem_bytes(self.outcome) is None


def prior_of(record: Record, kernels: Iterable[KernelSpec] = (), asked: str = "") -> PriorConfig:
    """What is published, as its search or its check estimated it. ``kernels``: what is known of
    kernels; ``asked``: as in ``call_of``."""
    return PriorConfig(
        key=record.key,
        config=record.config,
        outcome=Estimated(estimate=record.estimate, program=""),
        is_default=record.is_default,
        default=record.default.config,
        call=call_of(kernels, record.key, asked),
    )


def vmem_bytes(outcome: Outcome | None) -> int | None:
    """What a config that compiles uses of VMEM."""
    if isinstance(outcome, Estimated):
        return outcome.estimate.vmem_used_bytes
    return outcome.vmem_used_bytes if isinstance(outcome, NotEstimated) else None
