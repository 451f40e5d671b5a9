"""Many records under one toolchain: side by side, each verdict kept before the next begins.

What follows: a config that holds is published for the new toolchain, one that does not is searched
again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from autotune.declaring.calls.text import called
from autotune.domain import compilers as questions
from autotune.domain import errors
from autotune.domain.arguments import asked
from autotune.domain.evidence import Standard
from autotune.domain.key import Chip, ChipInfo, KernelRef, Toolchain
from autotune.domain.outcome import Estimated
from autotune.domain.problem import Config
from autotune.domain.record import Check, CheckVerdict, Decision, Method, Record, Unchecked
from autotune.domain.store import Store, tell_of
from autotune.publishing import publish
from autotune.publishing.checking.record_check import (
    PriorConfig,
    RecordChecker,
    is_stale,
    vmem_bytes,
)
from autotune.publishing.task import Plan, TuningObserver, TuningTask
from autotune.publishing.tuning import tune_one
from autotune.searching.subject import Subject


@dataclass(slots=True, kw_only=True)
class CheckRun:
    """``refs``: where kernels are, by name. ``against``: what another source of the
    kernels is compared with; empty: a source that is not the one that was tuned is not checked.
    ``xla``: as ``RecordChecker`` has it. ``hear``: of a verification that goes on; what compiles is
    verified where it is given."""

    compilers: questions.Compilers
    store: Store
    refs: Mapping[str, KernelRef]
    against: str = ""
    xla: bool = False
    hear: Callable[[str], None] | None = None

    def run(
        self, priors: Sequence[PriorConfig], chips: Sequence[Chip], done: Callable[[Check], None]
    ) -> list[Check]:
        """Verdicts on each on each chip, its own where none is given. ``done`` hears of each as
        soon as it is kept."""
        here, pairs = self.compilers.ask(questions.DescribeToolchain()), self.pairs(priors, chips)
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
        here = self.compilers.ask(questions.DescribeToolchain())
        return [
            (prior, chip)
            for prior in priors
            for chip in chips or (prior.key.chip,)
            if self.against or (prior.key.toolchain, prior.key.chip) != (_target(here, prior), chip)
        ]

    def _info(self, chip: Chip, options: str) -> ChipInfo | str:
        """Why there is none: older toolchains do not know newer chips."""
        try:
            return self.compilers.ask(questions.DescribeChip(chip=chip, options=options))
        except errors.CompilerUnavailableError as error:
            return str(error)

    def _checked(self, prior: PriorConfig, blank: Check, chip: ChipInfo | str) -> Check:
        known = self.store.check(blank.key, blank.target)
        if known is not None and known.config == prior.config and self._says_all(known):
            return known
        check = self._asked(prior, blank, chip)
        self.store.save_check(check)
        return check

    def _says_all(self, known: Check) -> bool:
        """What an older model of time says is asked again, and what has no time of XLA."""
        is_new = known.cause is None and not is_stale(known.winner)
        return is_new and (known.xla_us is not None or not self.xla)

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
            spec = self.compilers.ask(questions.DescribeKernel(ref=ref))
            if self.against:
                blank = replace(blank, fingerprint=spec.fingerprint)
            elif spec.fingerprint != prior.key.fingerprint:
                return blank.unchecked(Unchecked.SOURCE_CHANGED, spec.fingerprint)
            self.store.save_kernel(spec)
            subject = Subject(
                ref=ref, spec=spec, problem=prior.key.problem, chip=chip, toolchain=blank.toolchain
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
        except errors.NoDeclarationError as error:
            return blank.unchecked(Unchecked.NO_KERNEL, str(error))
        except errors.InvalidInputError as error:
            return blank.unchecked(Unchecked.NO_PROBLEM, str(error))
        except errors.KernelImportError as error:
            return blank.unchecked(Unchecked.NO_ANSWER, str(error))

    def _verified(self, check: Check, subject: Subject, hear: Callable[[str], None]) -> Check:
        """With what the gate says of a config that compiles. Where the kernel has no reference, it
        only compares the config with the default."""
        winner = check.winner
        if vmem_bytes(winner) is None or check.verdict is CheckVerdict.NEEDS_LIMIT:
            return check
        question = subject.question(questions.VerifyConfig, config=check.config)
        verdict = publish.verdict_on(self.compilers, question, hear)
        if verdict.ok is False:
            wrong = publish.wrong_result(getattr(winner, "estimate", None), verdict)
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


Hear = Callable[[str], None]


def publish_checked(
    compilers: questions.Compilers,
    store: Store,
    check: Check,
    record: Record,
    ref: KernelRef,
    hear: Hear,
) -> Check:
    """Run the gate under the new toolchain, and publish the config that it passes: answers are
    exact then. The check again, with what the gate found; nothing is published that is broken,
    not estimated, wrong or not verified."""
    winner, config = check.winner, usable_config(check)
    if config is None or not isinstance(winner, Estimated) or check.chip is not check.key.chip:
        return check
    question = questions.VerifyConfig(
        ref=ref, problem=check.key.problem, config=config, chip=check.chip
    )
    verdict = publish.verdict_on(compilers, question, hear)
    if verdict.ok is None:
        return replace(check, detail=f"not verified: {verdict.said}")
    if not verdict.ok:
        wrong = publish.wrong_result(winner.estimate, verdict)
        return replace(check, verdict=CheckVerdict.BROKEN, winner=wrong)
    store.save_record(
        replace(
            record,
            key=check.target,
            config=config,
            estimate=winner.estimate,
            default=publish.evidence_of(record.default.config, check.default)
            if check.default
            else publish.NO_DEFAULT,
            is_default=record.is_default and config == record.config,
            decision=Decision(tuned_with=check.key.toolchain),
            reason="",
            verification="",
            verified=True,
            proof=verdict.kept_proof,
            trials=2,
            method=Method.ESTIMATED,
            created_at=datetime.now(UTC),
            pushed_by="",
            program=winner.program,
            checks=(),
            measurement=None,
        )
    )
    return replace(check, verified=True)


def publish_all_checked(
    compilers: questions.Compilers,
    store: Store,
    checks: Sequence[Check],
    records: Iterable[Record],
    refs: Mapping[str, KernelRef],
    announce: Callable[[Check], None],
    hear: Hear,
) -> list[Check]:
    """``publish_checked`` for each that was not verified before; what the gate says is kept."""
    by_key = {record.key: record for record in records}
    done = []
    for check in checks:
        ref = refs.get(check.key.kernel)
        if ref is not None and not check.verified:
            announce(check)
            here = called(ref, store.kernels(), check.key, _asked(store, check))
            check = publish_checked(compilers, store, check, by_key[check.key], here, hear)
            store.save_check(check)
        done.append(check)
    tell_of(store, done)
    return done


def _asked(store: Store, check: Check) -> str:
    return store.searches.progress(check.key).asked


def usable_config(check: Check) -> Config | None:
    """The config that works there: the record's own, with the limit that it needs; None where
    none is known to."""
    if check.verdict is CheckVerdict.NEEDS_LIMIT and check.passes_limit:
        return check.config.replace(vmem_limit_bytes=check.least_limit_bytes)
    return check.config if check.verdict.compiles else None


def retune_each(
    compilers: questions.Compilers,
    store: Store,
    plan: Plan,
    checks: Sequence[Check],
    refs: Mapping[str, KernelRef],
    watching: Callable[[Check], TuningObserver],
    say: Callable[[publish.Publication | errors.NoLegalConfigError], None],
) -> None:
    """Search the problems of all that could be better, each from its config on, and publish what is
    found. A problem that has no legal config there leaves its record alone: that is kept with the
    check, and the others go on. Raises ``KeyboardInterrupt`` for a search that was ended."""
    for check in checks:
        ref = refs.get(check.key.kernel)
        if not check.verdict.wants_retuning or ref is None:
            continue
        task = TuningTask(
            ref=called(ref, store.kernels(), check.key, _asked(store, check)),
            chip=check.chip,
            problem=check.key.problem,
            start_from=(usable_config(check) or check.config,),
            options=check.toolchain.options,
        )
        try:
            with watching(check) as watch:
                tuned = tune_one(
                    publish.running(compilers), publish.opened(store), task, plan, watch
                )
        except errors.NoLegalConfigError as error:
            say(error)
            refused = replace(check, detail=str(error))
            store.save_check(refused)
            tell_of(store, [refused])
            continue
        if tuned.publication is None:
            raise KeyboardInterrupt
        say(tuned.publication)
