"""How fast each published problem is: its time, and how many times as fast as its default and as
plain XLA."""

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.domain.key import Key
from autotune.domain.record import Record
from autotune_db.browse import SqlBrowse
from autotune_service.pages.call import once_for_each_snapshot
from autotune_service.pages.speed import speed
from autotune_service.snapshot_cache import IndexedSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Of one record. ``key_id``: the number of its key; ``is_predicted``: the default was not
    compiled. Times as fast are as measured where that decided, else as estimated."""

    key: Key
    key_id: int
    time_us: float
    over_default: float | None
    over_xla: float | None
    is_predicted: bool = False


@once_for_each_snapshot
def gains(snapshot: IndexedSnapshot, browse: SqlBrowse) -> Mapping[int, Gain]:
    """By the number of the key. For a thread: all records are looked at."""
    records = list(snapshot.index)
    numbers = browse.numbers([record.key for record in records])
    known = [_gain(record, numbers[record.key]) for record in records if record.key in numbers]
    return {gain.key_id: gain for gain in known}


def _gain(record: Record, key_id: int) -> Gain:
    fast = speed(record)
    known = fast.measured_over_default or fast.over_default
    return Gain(
        key=record.key,
        key_id=key_id,
        time_us=record.estimate.time_us,
        over_default=known or fast.predicted_over_default,
        is_predicted=not known and record.default.is_predicted,
        over_xla=fast.measured_over_xla or fast.over_xla_own,
    )
