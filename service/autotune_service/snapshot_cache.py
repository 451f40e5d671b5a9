"""The snapshots that a process of the service holds: lookups never wait for a database."""

import asyncio
import json
import logging
from collections import Counter, OrderedDict
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NamedTuple

from autotune.answering.bundle import bundle_to_bytes, is_possible, new_bundle, slim
from autotune.answering.layered import Layered
from autotune.answering.matching import EXACT, KINDS, Index, Match, beside_default, exact_match
from autotune.domain.codec import to_data
from autotune.domain.errors import StoreError
from autotune.domain.key import Chip, Identity, KernelSpec, Key, Toolchain, identity_of
from autotune.domain.problem import Config
from autotune.domain.record import Change, Record, Standing, snapshot_id
from autotune.domain.store import Store
from autotune.wording.match import known_finding, why
from autotune.wording.publication import in_words
from autotune_service.errors import HttpError, unavailable

_log = logging.getLogger("autotune.service")

_MOST = 10**15  # no database comes so far
_MOST_OLDER = 4  # snapshots beside the one in force
_MOST_INEXACT = 20_000  # answers that had to be looked for, of each snapshot
_MOST_REPLY_BYTES = 8 << 20  # of calls and what they were answered with
_REPLY_BYTES = 300  # of each beside these: three objects and a place in a dictionary
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_WENT_BACK = (
    "the database went back: snapshot %d (%s) is not in it any more, %d (%s) is in force now. It "
    "was restored, or a replica that lags took over: push again what was published since its copy"
)

Made = tuple[int, datetime | None]
"""The number of a snapshot, and when it was made: another one with its number has another time."""

Published = tuple[str, Chip, Toolchain]
Answer = tuple[str, bytes]
"""How it fits, and the JSON text."""
_ALL = beside_default(KINDS)


class IndexedSnapshot:
    """One snapshot with its answers as JSON. ``exact`` holds one for each record.

    ``published``: for each kernel the fingerprint of its newest record here: what is meant where
    none is given. A claimed one counts where the kernel is not among ``proven``, which have a
    record that is. ``newest`` has also those that have no record yet. ``made_at``: of those that
    are or were in force, which ``id`` tells from others with their number.
    """

    def __init__(
        self,
        number: int,
        index: Index,
        exact: Layered[Identity, bytes],
        published: dict[str, str],
        made_at: datetime | None = None,
        proven: frozenset[str] = frozenset(),
    ) -> None:
        self.number, self.index, self.exact, self.published = number, index, exact, published
        self.proven = proven
        self.made_at, self.id = made_at, snapshot_id(number, made_at)
        self.newest = dict(iter(index.kernels)) | published
        self._inexact: dict[tuple[Identity, frozenset[str], frozenset[Config]], Answer] = {}
        self._bundle: bytes | None = None

    def __len__(self) -> int:
        return len(self.exact)

    def answer(
        self, key: Key, accept: frozenset[str] = _ALL, without: frozenset[Config] = frozenset()
    ) -> Answer:
        """How it fits, and the best answer of an accepted kind, or *default*. What is not exact may
        take milliseconds: for a thread."""
        identity = identity_of(key)
        exact = self.exact.get(identity) if EXACT in accept and not without else None
        if exact is not None:
            return EXACT, exact
        asked = identity, accept, without
        inexact = self._inexact.get(asked)
        if inexact is None:
            match = self.index.match(key, accept, without)
            inexact = match.kind, encode(match, key)
            if len(self._inexact) >= _MOST_INEXACT:
                self._inexact.clear()
            self._inexact[asked] = inexact
        return inexact

    def changed(
        self,
        number: int,
        change: Change,
        kernels: list[KernelSpec],
        made_at: datetime | None = None,
    ) -> "IndexedSnapshot":
        """The next one: shares what stays, changes nothing here."""
        specs = {(spec.name, spec.fingerprint): spec for spec in kernels}
        light, removed = [], list(change.removed)
        for record in change.records:
            if is_possible(record, specs):
                light.append(slim(record))
            else:
                removed.append(record.key)
                _log.warning("not handed out: the times or config of %s cannot be", record.key)
        exact = self.exact.changed(
            {identity_of(record.key): encode(exact_match(record), record.key) for record in light},
            take=map(identity_of, removed),
        )
        newest = {r.key.kernel: r.key.fingerprint for r in reversed(light)}
        of_proven = {
            r.key.kernel: r.key.fingerprint
            for r in reversed(light)
            if r.standing is Standing.PROVEN
        }
        claimed = {name: newest[name] for name in newest.keys() - self.proven}
        index = self.index.changed(replace(change, records=light, removed=removed), kernels)
        published, proven = self.published | claimed | of_proven, self.proven | of_proven.keys()
        return IndexedSnapshot(number, index, exact, published, made_at, proven)

    @cached_property
    def places(self) -> "Counter[Published]":
        """How many records there are by kernel, chip and toolchain. For a thread, as all that
        looks at each record."""
        keys = (record.key for record in self.index)
        return Counter((key.kernel, key.chip, key.toolchain) for key in keys)

    @cached_property
    def broken(self) -> int:
        """How many records are known not to work under another toolchain that has none of its
        own."""
        return sum(self._is_missed_elsewhere(record) for record in self.index)

    def _is_missed_elsewhere(self, record: Record) -> bool:
        return any(
            self.index.exact(replace(record.key, toolchain=check.toolchain)) is None
            for check in record.checks
            if not check.verdict.is_usable
        )

    def bundle(self) -> bytes:
        """The same bytes in every process, whatever way it came by the records."""
        if self._bundle is None:
            records = sorted(map(in_words, self.index), key=lambda record: str(record.key))
            created_at = max((record.created_at for record in records), default=_BEGINNING)
            kernels = sorted(self.index.kernels.values(), key=lambda s: (s.name, s.fingerprint))
            self._bundle = bundle_to_bytes(
                new_bundle(records, self.number, kernels, created_at, self.id)
            )
        return self._bundle


def encode(match: Match, key: Key) -> bytes:
    """The answer to ``key`` as one JSON object: match, config, why, the record with its evidence
    and its own key, and where it was checked with the toolchain that was asked for, what was found.
    Without its rule, which is large."""
    data: dict[str, Any] = {
        "match": match.kind,
        "config": match.config and to_data(match.config),
        "why": why(match, key),
        "record": match.record and to_data(replace(in_words(match.record), rule=None)),
        "standing": match.record and match.record.standing,
    }
    if match.check is not None:
        data["check"] = to_data(replace(match.check, finding=known_finding(match.check)))
    if match.expected_regret is not None:
        data["expected_regret"] = match.expected_regret
    return json.dumps(data, separators=(",", ":")).encode()


EMPTY = IndexedSnapshot(0, Index(), Layered(), {})


class Reply(NamedTuple):
    """What a whole call is answered with, from which snapshot, and how many of its answers
    were encoded when that was loaded."""

    content: bytes
    snapshot: str
    encoded: int


class SnapshotCache:
    """``current`` is replaced as a whole, so that a call that took it keeps one snapshot.

    ``replies`` holds what calls were answered with from it, by their body: the hosts of a fleet
    start with the same questions. ``claimed``: it has also what is not proven. ``went_back``: how
    often, and when last, the database had gone back to before what was held.
    """

    def __init__(self, store: Store, *, claimed: bool = False) -> None:
        self.went_back: tuple[int, datetime | None] = 0, None
        self._put_in_force(EMPTY)
        self._store, self._claimed, self._is_loaded = store, claimed, False
        self._older: OrderedDict[int, IndexedSnapshot] = OrderedDict()
        self._one_refresh, self._one_load = asyncio.Lock(), asyncio.Lock()

    async def load(self) -> None:
        """The newest snapshot, before the first call. Raises ``StoreError``."""
        if self._is_loaded:
            return
        async with self._one_refresh:
            if not self._is_loaded:
                newest = await asyncio.to_thread(self._at, None)
                self._put_in_force(await asyncio.to_thread(self._read, newest, EMPTY))
                self._is_loaded = True

    async def refresh(self) -> None:
        """Takes over what is newer, once it is loaded; where the database was restored, or a
        replica that lags took over, what it has now. Raises ``StoreError``; what is held stays
        then."""
        if not self._is_loaded:
            return
        async with self._one_refresh:
            before, newest = self.current, await asyncio.to_thread(self._at, None)
            made = before.number, before.made_at
            if newest == made:
                return
            goes_on = await asyncio.to_thread(self._at, before.number) == made
            newer = await asyncio.to_thread(self._read, newest, before if goes_on else EMPTY)
            if goes_on:
                self._keep(before)
            else:
                self._older.clear()
                self.went_back = self.went_back[0] + 1, datetime.now(UTC)
                _log.error(_WENT_BACK, before.number, before.id, newer.number, newer.id)
            self._put_in_force(newer)

    def _put_in_force(self, snapshot: IndexedSnapshot) -> None:
        self.current, self.replies, self._reply_bytes = snapshot, dict[bytes, Reply](), 0

    def keep_reply(self, body: bytes, reply: Reply) -> None:
        """For the same body again, unless it is from another snapshot. All were encoded: others
        are counted each time."""
        if reply.snapshot == self.current.id:
            size = len(body) + len(reply.content) + _REPLY_BYTES
            if self._reply_bytes + size > _MOST_REPLY_BYTES:
                self._put_in_force(self.current)
            self.replies[body] = reply
            self._reply_bytes += size

    def in_memory(self, number: int | None) -> IndexedSnapshot | None:
        """The snapshot with that number, or the one in force; None for one that has to be read."""
        if number is None or number == self.current.number:
            return self.current
        older = self._older.get(number)
        if older is not None:
            self._older.move_to_end(number)
        return older

    async def at(self, number: int | None) -> IndexedSnapshot:
        """The snapshot with that number, or the one in force. Raises ``HttpError``."""
        there = self.in_memory(number)
        if there is not None:
            return there
        assert number is not None
        try:
            return await self._load_older(number)
        except StoreError as error:
            raise unavailable(error) from error

    async def _load_older(self, number: int) -> IndexedSnapshot:
        if number > self.current.number:  # published within the last second, or never
            await self.refresh()
        async with self._one_load:  # it may take seconds: what is newer does not wait for it
            if number == self.current.number:
                return self.current
            if number not in self._older:
                at_most = await asyncio.to_thread(self._at, number)
                wanted = at_most if at_most[0] == number else (number, None)
                self._keep(await asyncio.to_thread(self._read, wanted, EMPTY))
            return self._older[number]

    def _at(self, number: int | None) -> Made:
        """The newest, or the newest up to a number."""
        newest = self._store.snapshots(1, None if number is None else min(number, _MOST) + 1)
        return (newest[0].number, newest[0].created_at) if newest else (0, None)

    def _read(self, made: Made, base: IndexedSnapshot) -> IndexedSnapshot:
        number, made_at = made
        change = self._store.snapshot_change(number, since=base.number, claimed=self._claimed)
        if change is None:
            raise HttpError(404, "unknown_snapshot", f"there is no snapshot {number}", "snapshot")
        return base.changed(number, change, list(reversed(self._store.kernels())), made_at)

    def _keep(self, snapshot: IndexedSnapshot) -> None:
        self._older[snapshot.number] = snapshot
        while len(self._older) > _MOST_OLDER:
            self._older.popitem(last=False)
