"""Why an answer fits the question that was asked, in one sentence each."""

from autotune.domain.key import Key
from autotune.domain.record import Record
from autotune.domain.toolchain import Toolchain

EXACT = "published for exactly this"


def other_toolchain(record: Record, asked: Toolchain) -> str:
    return f"tuned with {record.key.toolchain}, {_known(record, asked)}"


def known_not_to_work(record: Record, asked: Toolchain) -> str:
    """Why the default is meant although there is a record."""
    return f"tuned with {record.key.toolchain}, but {_known(record, asked)}"


def _known(record: Record, asked: Toolchain) -> str:
    check = record.check(asked)
    if check is None:
        return f"not checked again with {asked}"
    return f"checked on {check.checked_at:%Y-%m-%d} with {asked}: {check.verdict}, {check.finding}"


def other_shape(record: Record) -> str:
    return (
        f"tuned for {record.key.problem}: the same blocks fit into this shape, divide what "
        "they divided there, and need no more VMEM than is allowed; not compiled for it"
    )


def nothing_published(key: Key) -> str:
    return f"nothing is published for {key}, nor anything that is known to be legal for it"
