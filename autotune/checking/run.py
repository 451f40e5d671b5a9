"""Many records under one toolchain: side by side, each verdict kept before the next begins."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from autotune.checking.record_check import RecordChecker
from autotune.checking.selection import on_chips
from autotune.domain.check import Check, Unchecked
from autotune.domain.chip import Chip, ChipInfo
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.key import Key
from autotune.domain.record import Record
from autotune.domain.record_check import CheckVerdict, RecordCheck
from autotune.errors import InvalidInputError, KernelImportError
from autotune.ports.checks import CheckStore
from autotune.ports.compilers import Compilers
from autotune.ports.lookup import RecordFinder
from autotune.ports.search import WorkerStore
from autotune.wording.checks import finding


class CheckingStore(CheckStore, WorkerStore, RecordFinder, Protocol):
    """What checking needs: verdicts, trials, and the records that they are about."""


@dataclass(slots=True, kw_only=True)
class CheckRun:
    """``refs``: where kernels are, by name. ``again``: also what was checked before."""

    compilers: Compilers
    store: CheckingStore
    refs: Mapping[str, KernelRef]
    again: bool = False

    def run(
        self, records: Sequence[Record], chips: Sequence[Chip], done: Callable[[Check], None]
    ) -> list[Check]:
        """Verdicts on each record on each chip, its own where none is given. ``done`` hears of
        each as soon as it is kept."""
        checker = RecordChecker(
            compilers=self.compilers, store=self.store, toolchain=self.compilers.toolchain()
        )
        pairs = [(record, chip) for record in records for chip in on_chips(record, chips)]
        infos = {chip: self.compilers.chip_info(chip) for chip in {chip for _, chip in pairs}}
        found: list[Check] = []
        threads = ThreadPoolExecutor(self.compilers.size, "checks")
        try:
            pending = [
                threads.submit(self._checked, checker, record, infos[chip])
                for record, chip in pairs
            ]
            for future in as_completed(pending):
                found.append(future.result())
                done(found[-1])
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
        return sorted(found, key=worst_first)

    def _checked(self, checker: RecordChecker, record: Record, chip: ChipInfo) -> Check:
        target = Key(
            kernel=record.key.kernel,
            fingerprint=record.key.fingerprint,
            problem=record.key.problem,
            chip=chip.chip,
            toolchain=checker.toolchain,
        )
        known = None if self.again else self.store.check(record.key, target)
        if known is not None and known.config == record.config and known.cause is None:
            return known
        check = self._asked(checker, record, chip)
        self.store.save_check(check)
        self._tell_those_who_ask(record, check)
        return check

    def _tell_those_who_ask(self, record: Record, check: Check) -> None:
        """The published record says what is known of it: what is broken is not handed out."""
        if check.chip is not record.key.chip or check.cause is not None:
            return
        published = self.store.record(record.key)
        if published is None or published.config != record.config:
            return
        known = published.check(check.toolchain)
        if known is None or known.verdict is not check.verdict:
            self.store.save_record(published.with_check(as_record_check(check)))

    def _asked(self, checker: RecordChecker, record: Record, chip: ChipInfo) -> Check:
        blank = Check(
            key=record.key,
            config=record.config,
            toolchain=checker.toolchain,
            chip=chip.chip,
            verdict=CheckVerdict.NOT_CHECKED,
            checked_at=datetime.now(UTC),
        )
        ref = self.refs.get(record.key.kernel)
        if ref is None:
            return _not_checked(blank, Unchecked.NO_KERNEL, "")
        try:
            return checker.check(record, ref, chip)
        except (InvalidInputError, KernelImportError) as error:
            return _not_checked(blank, Unchecked.NO_ANSWER, str(error))


def as_record_check(check: Check) -> RecordCheck:
    """What travels with the record."""
    return RecordCheck(
        toolchain=check.toolchain,
        verdict=check.verdict,
        checked_at=check.checked_at,
        time_us=check.after_us,
        finding=finding(check),
    )


def worst_first(check: Check) -> tuple[int, str]:
    """Sort key: by verdict, then by kernel and problem."""
    order = list(CheckVerdict)
    return order.index(check.verdict), f"{check.key.kernel} {check.key.problem} {check.chip}"


def _not_checked(blank: Check, cause: Unchecked, detail: str) -> Check:
    return replace(blank, cause=cause, detail=detail)
