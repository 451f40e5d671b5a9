"""What follows a check: a config that holds is published for the new toolchain, one that does not
is searched again."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from autotune.declaring.calls.from_problem import called
from autotune.domain.compilers import Compilers, VerifyConfig
from autotune.domain.errors import NoLegalConfigError
from autotune.domain.key import KernelRef
from autotune.domain.outcome import Estimated
from autotune.domain.problem import Config
from autotune.domain.record import Check, CheckVerdict, Decision, Method, Record
from autotune.domain.store import Store, tell_of
from autotune.publishing.opening import opened, running
from autotune.publishing.publish import (
    NO_DEFAULT,
    Publication,
    evidence_of,
    verdict_on,
    wrong_result,
)
from autotune.publishing.task import Plan, TuningObserver, TuningTask
from autotune.publishing.tuning import tune_one

Hear = Callable[[str], None]


def publish_checked(
    compilers: Compilers, store: Store, check: Check, record: Record, ref: KernelRef, hear: Hear
) -> Check:
    """Run the gate under the new toolchain, and publish the config that it passes: answers are
    exact then. The check again, with what the gate found; nothing is published that is broken,
    not estimated, wrong or not verified."""
    winner, config = check.winner, usable_config(check)
    if config is None or not isinstance(winner, Estimated) or check.chip is not check.key.chip:
        return check
    question = VerifyConfig(ref=ref, problem=check.key.problem, config=config, chip=check.chip)
    verdict = verdict_on(compilers, question, hear)
    if verdict.ok is None:
        return replace(check, detail=f"not verified: {verdict.said}")
    if not verdict.ok:
        wrong = wrong_result(winner.estimate, verdict)
        return replace(check, verdict=CheckVerdict.BROKEN, winner=wrong)
    store.save_record(
        replace(
            record,
            key=check.target,
            config=config,
            estimate=winner.estimate,
            default=evidence_of(record.default.config, check.default)
            if check.default
            else NO_DEFAULT,
            is_default=record.is_default,
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
    compilers: Compilers,
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
    compilers: Compilers,
    store: Store,
    plan: Plan,
    checks: Sequence[Check],
    refs: Mapping[str, KernelRef],
    watching: Callable[[Check], TuningObserver],
    say: Callable[[Publication | NoLegalConfigError], None],
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
            problem_of=lambda _, problem=check.key.problem: problem,  # type: ignore[misc]
            start_from=(usable_config(check) or check.config,),
            options=check.toolchain.options,
        )
        try:
            with watching(check) as watch:
                tuned = tune_one(running(compilers), opened(store), task, plan, watch)
        except NoLegalConfigError as error:
            say(error)
            refused = replace(check, detail=str(error))
            store.save_check(refused)
            tell_of(store, [refused])
            continue
        if tuned.publication is None:
            raise KeyboardInterrupt
        say(tuned.publication)
