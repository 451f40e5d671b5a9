"""The states of what pages show: each has one word, which means the same everywhere, a colour and a
sentence. The page ``/states`` lists them."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from autotune.domain.browsing import SILENT, SearchedKey
from autotune.domain.record import Record, Standing
from autotune_service.pages.call import PageCall
from autotune_service.pages.upgrades import fate

DEFAULT_WINS = "default", "nothing is faster than the kernel's own default"
STATES: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "problems": {
        "proven": ("best", "a machine with this database compiled it, and the gate passed it"),
        "claimed": ("vmem", "whoever pushed it says that it is right; nobody has checked it yet"),
        "not verified": ("failed", "the gate was not asked, or could not say"),
        "default wins": DEFAULT_WINS,
        "searching": ("good", "a search of it runs now"),
        "unpublished": ("vmem", "trials have times, and none is published"),
        "nothing fits": ("failed", "no trial has a time: each says why"),
        "missing": ("vmem", "it was asked for, and nobody has searched it"),
    },
    "marks of a problem, beside its state": {
        "broken elsewhere": ("failed", "a check found that it does not work somewhere else"),
        "stale": ("illegal", "of an older source of its kernel than the newest"),
        "predicted": ("untimed", "its default was not compiled: what it takes is predicted"),
        "measured": ("best", "a TPU has timed it, and that decided"),
    },
    "trials": {
        "estimated": ("good", "compiled, and its time estimated"),
        "compiled, not estimated": ("untimed", "compiled, but no time can be given"),
        "out of VMEM": ("vmem", "needs more VMEM than is allowed"),
        "illegal": ("illegal", "against a rule of Pallas on TPU"),
        "compile failed": ("failed", "the compiler refused it"),
        "timed out": ("failed", "the compiler took too long"),
        "crashed": ("failed", "the compiler crashed"),
        "wrong result": ("wrong", "compiled, but its result is wrong"),
    },
    "roles of a trial": {
        "winner": ("best", "its config is what is served"),
        "default": ("default", "the kernel's own default"),
    },
    "checks under another toolchain or chip": {
        "wrong": ("wrong", "the result is wrong there"),
        "broken": ("failed", "it does not compile there, and no VMEM limit mends that"),
        "needs limit": ("vmem", "it compiles there under a higher VMEM limit"),
        "slower": ("vmem", "slower there by more than estimates can mistake"),
        "default wins": DEFAULT_WINS,
        "not checked": ("untimed", "it could not be looked at"),
        "faster": ("best", "faster there by more than estimates can mistake"),
        "same": ("good", "works there, and takes as long"),
    },
    "jobs": {
        "queued": ("default", "waits for a worker"),
        "running": ("good", "a worker has it"),
        "done": ("best", "ended as it should"),
        "failed": ("failed", "ended with an error"),
        "cancelled": ("illegal", "somebody stopped it"),
    },
    "snapshots and records": {
        "in force": ("best", "what questions are answered from"),
        "served": ("best", "the answer for its problem now"),
    },
    "next steps": {"can gain": ("good", "other configs may be faster: it is far from its bound")},
}
WORDS = {word: state for group in STATES.values() for word, state in group.items()}


def colour_of(word: str) -> str:
    """The class of its colour; of what a newer version has written, that of a failure."""
    return WORDS.get(word, ("failed", ""))[0]


def meaning_of(word: str) -> str:
    return WORDS.get(word, ("", ""))[1]


def show(_: PageCall) -> dict[str, Any]:
    """All of them."""
    return {"groups": STATES}


def states_of(
    call: PageCall, problems: Sequence[SearchedKey], records: Sequence[Record | None]
) -> list[tuple[str, ...]]:
    """The state of each, then its marks."""
    ids = [searched.id for searched in problems]
    searching = call.browse.searching(ids, datetime.now(UTC) - SILENT)
    checks = call.browse.failures(ids)
    newest = dict(iter(call.snapshot.index.kernels))  # the source that was described last
    broken = {n.key_id for n in checks if not fate(n.check, call.snapshot)[0]}
    return [
        _states(searched, record, searching, broken, newest)
        for searched, record in zip(problems, records, strict=True)
    ]


def _states(
    searched: SearchedKey,
    record: Record | None,
    searching: Collection[int],
    broken: Collection[int],
    newest: Mapping[str, str],
) -> tuple[str, ...]:
    key = searched.key
    is_older = newest.get(key.kernel, key.fingerprint) != key.fingerprint
    if record is None:
        first = "searching" if searched.id in searching else _unpublished(searched)
        return (first, *["stale"] * is_older)
    marks = {
        "searching": searched.id in searching,
        "broken elsewhere": searched.id in broken,
        "stale": is_older,
        "predicted": record.default.is_predicted,
        "measured": record.method == "measured",
    }
    return (_published(record), *(word for word, holds in marks.items() if holds))


def _unpublished(searched: SearchedKey) -> str:
    if not searched.trials:
        return "missing"
    return "unpublished" if searched.best_us else "nothing fits"


def _published(record: Record) -> str:
    if record.standing is Standing.CLAIMED:
        return "claimed"
    if not record.verified:
        return "not verified"
    return "default wins" if record.is_default else "proven"
