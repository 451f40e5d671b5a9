"""The snapshots that a process of the service holds: lookups never wait for a database."""

import asyncio
import logging
from collections import Counter, OrderedDict
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import NamedTuple

from autotune.answering.bundle import bundle_to_bytes, is_possible, new_bundle, slim
from autotune.answering.layered import Layered
from autotune.answering.matching import EXACT, KINDS, Index, beside_default, exact_match
from autotune.domain.chip import Chip
from autotune.domain.errors import StoreError
from autotune.domain.kernel_spec import KernelSpec
from autotune.domain.key import Identity, Key, identity_of
from autotune.domain.record import Record
from autotune.domain.snapshot import Change
from autotune.domain.store import Store
from autotune.domain.toolchain import Toolchain
from autotune.wording.publication import in_words
from autotune_service.api.answers import encode
from autotune_service.errors import HttpError, unavailable

_log = logging.getLogger("autotune.service")

_MOST_OLDER = 4  # snapshots beside the one in force
_MOST_INEXACT = 20_000  # answers that had to be looked for, of each snapshot
_MOST_REPLY_BYTES = 8 << 20  # of calls and what they were answered with
_REPLY_BYTES = 300  # of each beside these: three objects and a place in a dictionary
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)

Published = tuple[str, Chip, Toolchain]
Answer = tuple[str, bytes]
"""How it fits, and the JSON text."""
_ALL = beside_default(KINDS)


class IndexedSnapshot:
    """One snapshot with its answers as JSON. ``exact`` holds one for each record.

    ``published``: for each kernel the fingerprint of its newest record here: what is meant where
    none is given. ``newest`` has also those that have no record yet. ``made_at``: of those that
    are or were in force.
    """

    def __init__(
        self,
        number: int,
        index: Index,
        exact: Layered[Identity, bytes],
        published: dict[str, str],
        made_at: datetime | None = None,
    ) -> None:
        self.number, self.index, self.exact, self.published = number, index, exact, published
        self.made_at = made_at
        self.newest = dict(iter(index.kernels)) | published
        self._inexact: dict[tuple[Identity, frozenset[str]], Answer] = {}
        self._bundle: bytes | None = None

    def __len__(self) -> int:
        return len(self.exact)

    def answer(self, key: Key, accept: frozenset[str] = _ALL) -> Answer:
        """How it fits, and the best answer of an accepted kind, or *default*. What is not exact may
        take milliseconds: for a thread."""
        identity = identity_of(key)
        exact = self.exact.get(identity) if EXACT in accept else None
        if exact is not None:
            return EXACT, exact
        asked = identity, accept
        inexact = self._inexact.get(asked)
        if inexact is None:
            match = self.index.match(key, accept)
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
        published = {record.key.kernel: record.key.fingerprint for record in reversed(light)}
        index = self.index.changed(Change(records=light, removed=removed), kernels)
        return IndexedSnapshot(number, index, exact, self.published | published, made_at)

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
            self._bundle = bundle_to_bytes(new_bundle(records, self.number, kernels, created_at))
        return self._bundle


EMPTY = IndexedSnapshot(0, Index(), Layered(), {})


class Reply(NamedTuple):
    """What a whole call is answered with, from which snapshot, and how many of its answers
    were encoded when that was loaded."""

    content: bytes
    snapshot: int
    encoded: int


class SnapshotCache:
    """``current`` is replaced as a whole, so that a call that took it keeps one snapshot.

    ``replies`` holds what calls were answered with from it, by their body: the hosts of a fleet
    start with the same questions. ``claimed``: it has also what is not proven.
    """

    def __init__(self, store: Store, *, claimed: bool = False) -> None:
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
                number, made_at = await self._latest()
                self._put_in_force(await asyncio.to_thread(self._read, number, EMPTY, made_at))
                self._is_loaded = True

    async def refresh(self) -> None:
        """Takes over what is newer, once it is loaded. Raises ``StoreError``; what is held stays
        then."""
        if not self._is_loaded:
            return
        async with self._one_refresh:
            number, made_at = await self._latest()
            if number > self.current.number:
                newer = await asyncio.to_thread(self._read, number, self.current, made_at)
                self._keep(self.current)
                self._put_in_force(newer)

    def _put_in_force(self, snapshot: IndexedSnapshot) -> None:
        self.current, self.replies, self._reply_bytes = snapshot, dict[bytes, Reply](), 0

    def keep_reply(self, body: bytes, reply: Reply) -> None:
        """For the same body again, unless it is from another snapshot. All were encoded: others
        are counted each time."""
        if reply.snapshot == self.current.number:
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
                self._keep(await asyncio.to_thread(self._read, number, EMPTY))
            return self._older[number]

    async def _latest(self) -> tuple[int, datetime | None]:
        """The number of the newest, and when it was made."""
        newest = await asyncio.to_thread(self._store.snapshots, 1)
        return (newest[0].number, newest[0].created_at) if newest else (0, None)

    def _read(
        self, number: int, base: IndexedSnapshot, made_at: datetime | None = None
    ) -> IndexedSnapshot:
        change = self._store.snapshot_change(number, since=base.number, claimed=self._claimed)
        if change is None:
            raise HttpError(404, "unknown_snapshot", f"there is no snapshot {number}", "snapshot")
        return base.changed(number, change, list(reversed(self._store.kernels())), made_at)

    def _keep(self, snapshot: IndexedSnapshot) -> None:
        self._older[snapshot.number] = snapshot
        while len(self._older) > _MOST_OLDER:
            self._older.popitem(last=False)
