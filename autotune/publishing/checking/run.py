"""Many records under one toolchain: side by side, each verdict kept before the next begins."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from autotune.domain.arguments import asked
from autotune.domain.compilers import (
    Compilers,
    DescribeChip,
    DescribeKernel,
    DescribeToolchain,
    VerifyConfig,
)
from autotune.domain.errors import (
    CompilerUnavailableError,
    InvalidInputError,
    KernelImportError,
    NoDeclarationError,
)
from autotune.domain.key import Chip, ChipInfo, KernelRef, Toolchain
from autotune.domain.problem import Config
from autotune.domain.record import Check, CheckVerdict, Unchecked
from autotune.domain.store import Store, tell_of
from autotune.domain.verdict import Standard
from autotune.publishing.checking.prior import PriorConfig, vmem_bytes
from autotune.publishing.checking.record_check import RecordChecker
from autotune.publishing.publish import verdict_on, wrong_result
from autotune.searching.subject import Subject


@dataclass(slots=True, kw_only=True)
class CheckRun:
    """``refs``: where kernels are, by name. ``again``: also what was checked before. ``against``:
    what another source of the kernels is compared with; empty: a source that is not the one that
    was tuned is not checked. ``xla``: as ``RecordChecker`` has it. ``hear``: of a
    verification that goes on; what compiles is verified where it is given."""

    compilers: Compilers
    store: Store
    refs: Mapping[str, KernelRef]
    again: bool = False
    against: str = ""
    xla: bool = False
    hear: Callable[[str], None] | None = None

    def run(
        self, priors: Sequence[PriorConfig], chips: Sequence[Chip], done: Callable[[Check], None]
    ) -> list[Check]:
        """Verdicts on each on each chip, its own where none is given. ``done`` hears of each as
        soon as it is kept."""
        here, pairs = self.compilers.ask(DescribeToolchain()), self.pairs(priors, chips)
        there = [(prior, _target(here, prior), chip) for prior, chip in pairs]
        places = {(chip, toolchain.options) for _, toolchain, chip in there}
        infos = {place: self._info(*place) for place in places}
        checks: list[Check] = []
        threads = ThreadPoolExecutor(self.compilers.size, "checks")
        try:
            pending = [
                threads.submit(
                    self._checked,
                    prior,
                    self._blank(prior, toolchain, chip),
                    infos[chip, toolchain.options],
                )
                for prior, toolchain, chip in there
            ]
            for future in as_completed(pending):
                checks.append(future.result())
                done(checks[-1])
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            tell_of(self.store, checks)
        return sorted(checks, key=worst_first)

    def pairs(
        self, priors: Sequence[PriorConfig], chips: Sequence[Chip]
    ) -> list[tuple[PriorConfig, Chip]]:
        """What is checked where: not again where it was searched, under the same toolchain on the
        same chip."""
        here = self.compilers.ask(DescribeToolchain())
        return [
            (prior, chip)
            for prior in priors
            for chip in chips or (prior.key.chip,)
            if self.against or (prior.key.toolchain, prior.key.chip) != (_target(here, prior), chip)
        ]

    def _info(self, chip: Chip, options: str) -> ChipInfo | str:
        """Why there is none: older toolchains do not know newer chips."""
        try:
            return self.compilers.ask(DescribeChip(chip=chip, options=options))
        except CompilerUnavailableError as error:
            return str(error)

    def _checked(self, prior: PriorConfig, blank: Check, chip: ChipInfo | str) -> Check:
        known = None if self.again else self.store.check(blank.key, blank.target)
        if known is not None and known.config == prior.config and known.cause is None:
            return known
        check = self._asked(prior, blank, chip)
        self.store.save_check(check)
        return check

    def _asked(self, prior: PriorConfig, blank: Check, chip: ChipInfo | str) -> Check:
        ref = self.refs.get(prior.key.kernel)
        if ref is None:
            return blank.unchecked(Unchecked.NO_KERNEL, "")
        if isinstance(chip, str):
            return blank.unchecked(Unchecked.NO_CHIP, chip)
        ref = replace(ref, call=prior.call)
        if not self.against and (ref.call or not ref.module):
            what = ref.call or prior.key.problem
            blank = replace(blank, asked=asked(ref, prior.key.kernel, what, blank.chip))
        try:
            spec = self.compilers.ask(DescribeKernel(ref=ref))
            if self.against:
                blank = replace(blank, fingerprint=spec.fingerprint)
            elif spec.fingerprint != prior.key.fingerprint:
                return blank.unchecked(Unchecked.SOURCE_CHANGED, spec.fingerprint)
            self.store.save_kernel(spec)
            subject = Subject(
                ref=ref,
                spec=spec,
                problem=prior.key.problem,
                chip=chip,
                toolchain=blank.toolchain,
            )
            check = RecordChecker(
                compilers=self.compilers,
                store=self.store,
                subject=subject,
                prior=prior,
                blank=blank,
                xla=self.xla,
            ).check()
            return self._verified(check, subject, self.hear) if self.hear else check
        except NoDeclarationError as error:
            return blank.unchecked(Unchecked.NO_KERNEL, str(error))
        except InvalidInputError as error:
            return blank.unchecked(Unchecked.NO_PROBLEM, str(error))
        except KernelImportError as error:
            return blank.unchecked(Unchecked.NO_ANSWER, str(error))

    def _verified(self, check: Check, subject: Subject, hear: Callable[[str], None]) -> Check:
        """With what the gate says of a config that compiles. Where the kernel has no reference, it
        only compares the config with the default."""
        winner = check.winner
        if vmem_bytes(winner) is None or check.verdict is CheckVerdict.NEEDS_LIMIT:
            return check
        question = subject.question(VerifyConfig, config=check.config)
        verdict = verdict_on(self.compilers, question, hear)
        if verdict.ok is False:
            wrong = wrong_result(getattr(winner, "estimate", None), verdict)
            return replace(check, verdict=CheckVerdict.WRONG, winner=wrong)
        if verdict.ok and verdict.proof.standard is Standard.REFERENCE:
            return replace(check, verified=True)
        why = verdict.said if verdict.ok is None else "the kernel has no reference: give it one"
        if check.verdict in (CheckVerdict.SAME, CheckVerdict.FASTER):
            return check.unchecked(Unchecked.NOT_VERIFIED, why)
        return replace(check, detail=check.detail or f"not verified: {why}")

    def _blank(self, prior: PriorConfig, toolchain: Toolchain, chip: Chip) -> Check:
        return Check(
            key=prior.key,
            config=prior.config or Config(axes=()),
            toolchain=toolchain,
            chip=chip,
            verdict=CheckVerdict.NOT_CHECKED,
            checked_at=datetime.now(UTC),
            against=self.against,
            is_default=prior.is_default and bool(self.against),
        )


def _target(here: Toolchain, prior: PriorConfig) -> Toolchain:
    """With the options of these compilers; where they have none, with those it was tuned with."""
    return here if here.options else replace(here, options=prior.key.toolchain.options)


_RANK = {verdict: rank for rank, verdict in enumerate(CheckVerdict)}


def worst_first(check: Check) -> tuple[int, str]:
    """Sort key: by verdict, then by kernel and problem."""
    return _RANK[check.verdict], f"{check.key.kernel} {check.key.problem} {check.chip}"
