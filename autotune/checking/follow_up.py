"""What follows a check: a config that holds is published for the new toolchain, one that does not
is searched again."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from autotune.domain.check import Check
from autotune.domain.config import Config
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.outcome import Estimated, WrongResult
from autotune.domain.record import Evidence, Method, Record
from autotune.domain.record_check import CheckVerdict
from autotune.ports.compilers import Compilers, Verifier
from autotune.ports.search import PublishStore, WorkerStore
from autotune.publishing.publish import Publication, publish
from autotune.searching.loop import Observer, SearchLimits, run_search
from autotune.searching.subject import describe_subject, explore_space
from autotune.wording import publication as words
from autotune.wording.checks import checked_reason


def publish_checked(
    verifier: Verifier, store: PublishStore, check: Check, record: Record, ref: KernelRef
) -> Check:
    """Run the gate under the new toolchain, and publish the config that it passes: answers are
    exact then. The check again, with what the gate found; nothing is published that is broken,
    not estimated, wrong or not verified."""
    winner, config = check.winner, usable_config(check)
    if config is None or not isinstance(winner, Estimated) or check.chip is not check.key.chip:
        return check
    verdict = verifier.verify(ref, check.key.problem, config, check.chip)
    if verdict.ok is None:
        return replace(check, detail=words.verification(verdict))
    if not verdict.ok:
        wrong = WrongResult(
            reason=verdict.reason, estimate=winner.estimate, check=verdict.check.value
        )
        return replace(check, verdict=CheckVerdict.BROKEN, winner=wrong)
    store.save_record(
        replace(
            record,
            key=check.target,
            config=config,
            estimate=winner.estimate,
            default=_default(check),
            is_default=record.is_default,
            reason=checked_reason(check),
            verification=words.verification(verdict),
            verified=True,
            trials=2,
            method=Method.ESTIMATED,
            created_at=datetime.now(UTC),
            pushed_by="",
            measurement=None,
        )
    )
    return replace(check, verified=True)


def usable_config(check: Check) -> Config | None:
    """The config that works there: the record's own, with the limit that it needs; None where
    none is known to."""
    if check.verdict is CheckVerdict.NEEDS_LIMIT and check.passes_limit:
        return check.config.replace(vmem_limit_bytes=check.least_limit_bytes)
    usable = check.verdict.is_usable and check.verdict is not CheckVerdict.NOT_CHECKED
    return check.config if usable else None


def retune(
    compilers: Compilers,
    store: WorkerStore,
    check: Check,
    ref: KernelRef,
    *,
    limits: SearchLimits,
    observer: Observer,
    tracing: Callable[[int, int], None] = lambda _done, _total: None,
    announce: Callable[[str], None] = lambda _: None,
    study_url: str | None = None,
    allow_unverified: bool = False,
) -> Publication:
    """Search the problem of a check there, from its config on, and publish what is found."""
    subject = describe_subject(compilers, ref, check.chip, lambda _: check.key.problem)
    space = explore_space(compilers, subject, tracing)
    result = run_search(
        compilers,
        store,
        subject,
        space,
        limits,
        observer,
        study_url=study_url,
        start_from=[usable_config(check) or check.config],
    )
    if result.stopped_by == "interrupted":
        raise KeyboardInterrupt
    return publish(compilers, store, result, allow_unverified=allow_unverified, announce=announce)


def _default(check: Check) -> Evidence:
    outcome = check.default
    if outcome is None:
        return Evidence(config=None, time_us=None, note="the default was not tried")
    note = "" if isinstance(outcome, Estimated) else f"{outcome.kind}: {outcome.reason}"
    return Evidence(config=None, time_us=check.default_us, note=note)
