"""What checks have found, noted on the published records. A service that is sent checks needs this,
and nothing of how they are made."""

from collections.abc import Sequence

from autotune.domain.check import Check
from autotune.domain.record_check import RecordCheck
from autotune.domain.store import Store


def tell_of(store: Store, checks: Sequence[Check], by: str = "") -> None:
    """The published records say what is known of them: what is broken is not handed out. All in
    one new snapshot; a check on another chip says nothing of what a record is used for."""
    notes = [
        (check.key, check.config, as_record_check(check))
        for check in checks
        if check.chip is check.key.chip and check.cause is None and not check.against
    ]
    if notes:
        store.publish_checks(notes, by)


def as_record_check(check: Check) -> RecordCheck:
    """What travels with the record."""
    return RecordCheck(
        toolchain=check.toolchain,
        verdict=check.verdict,
        checked_at=check.checked_at,
        time_us=check.after_us,
        outcome=None if check.verdict.compiles else check.winner,
        needed_bytes=check.needed_bytes,
        allowed_bytes=check.allowed_bytes,
        detail=check.detail,
    )
