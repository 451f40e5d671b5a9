"""Kernels and what was tried: for searches, and for those who look back."""

import logging
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, delete, func, insert, or_, select, update

from autotune.domain.browsing import SearchedKey
from autotune.domain.codec import to_data
from autotune.domain.key import Chip, KernelSpec, Key
from autotune.domain.outcome import Outcome
from autotune.domain.problem import Config, Problem
from autotune.domain.record import Trial
from autotune_db import query, rows
from autotune_db.damage import readable
from autotune_db.query import MAX_ID, Query
from autotune_db.rows import AnyRow
from autotune_db.tables import KERNELS, KEYS, TRIALS, digest
from autotune_db.transaction import Adapter, reads, writes

_log = logging.getLogger("autotune.db")


class SqlKernels(Adapter):
    """Descriptions of kernels."""

    @writes
    def save_kernel(self, connection: Connection, spec: KernelSpec) -> None:
        by = rows.kernel_values(spec)
        values = {"spec": by.pop("spec")}  # in the place of what somebody pushed for this source
        query.upsert(connection, KERNELS, by, values, created_at=self._clock())

    def offer_kernels(self, specs: Sequence[KernelSpec]) -> None:
        """Keep what somebody else says of kernels that nothing is known of yet, up to a number."""
        known = self._work.read(query.kernel_names)
        if any((spec.name, spec.fingerprint) not in known for spec in specs):
            now = self._clock()
            left = self._work.write(lambda connection, _: query.add_kernels(connection, specs, now))
            if left:
                _log.warning("%d kernels are not described: there are %d", left, len(known))

    def kernel(self, name: str, fingerprint: str | None = None) -> KernelSpec | None:
        wanted = _newest_kernels().where(KERNELS.c.name == name)
        if fingerprint is not None:
            wanted = wanted.where(KERNELS.c.fingerprint == fingerprint)
        return self._first(wanted, rows.kernel_from_row)

    def kernels(self) -> Sequence[KernelSpec]:
        specs = self._rows(_newest_kernels(), rows.kernel_from_row)
        return sorted(specs, key=lambda spec: spec.name)  # collations differ between servers


class SqlTrials(Adapter):
    """What was tried for each key."""

    def save_trials(self, key: Key, trials: Sequence[Trial]) -> int:
        values = [rows.trial_values(trial) for trial in trials]

        def save(connection: Connection, again: bool) -> int:
            # No number is kept: after a restore it may be that of another key.
            key_id = query.find_key(connection, key) or query.key_id(connection, key)
            query.lock_keys(connection, [key_id])
            taken = len(trials) if _add_at_once(connection, key_id, values) else 0
            for trial, columns in zip(trials[taken:], values[taken:], strict=True):
                row = {**columns, "key_id": key_id}
                is_new = query.insert(connection, TRIALS, row) is not None
                if not is_new and _make_room(connection, key_id, columns):
                    is_new = query.insert(connection, TRIALS, row) is not None
                # The connection may have broken after the commit of the first attempt.
                there = _of_key(key).where(TRIALS.c.number == trial.number)
                known = readable(connection, there, rows.trial_from_row) if again else ()
                if not (is_new or trial in known):
                    break
                taken += 1
            query.sum_up(connection, [key_id])
            return taken

        return self._work.write(save)

    @writes
    def replace_outcome(
        self, connection: Connection, key: Key, config: Config, outcome: Outcome
    ) -> None:
        same = TRIALS.c.config_digest == digest(to_data(config))
        trial = TRIALS.c.key_id == query.id_of(key), same
        changed = update(TRIALS).where(*trial).values(rows.outcome_values(outcome))
        ids = connection.scalars(changed.returning(TRIALS.c.key_id)).all()
        query.lock_keys(connection, ids)
        query.sum_up(connection, ids)

    @writes
    def place_default(self, connection: Connection, key: Key, default: Config) -> None:
        key_id = query.key_id(connection, key)
        query.lock_keys(connection, [key_id])
        columns = TRIALS.c.id, TRIALS.c.number, TRIALS.c.config_digest
        tried = connection.execute(select(*columns).where(TRIALS.c.key_id == key_id)).all()
        wanted = digest(to_data(default))
        moved = [row for row in tried if (row.number == 0) != (row.config_digest == wanted)]
        last = max((row.number for row in tried), default=0)
        for row in sorted(moved, key=lambda row: row.number):  # what was the default, first
            number = 0 if row.number else last + 1
            connection.execute(update(TRIALS).where(TRIALS.c.id == row.id).values(number=number))
        if moved:
            query.sum_up(connection, [key_id])

    def trials(self, key: Key, *, pushed: bool = False) -> Sequence[Trial]:
        only = () if pushed else (TRIALS.c.pushed_by == "",)
        return self._rows(_of_key(key).where(*only), rows.trial_from_row)

    def timed_trials(self, key: Key, most: int) -> Sequence[tuple[Key, Trial]]:
        """The large columns are read of these trials only."""
        libtpu = rows.toolchain_values(key.toolchain)["libtpu"]
        same = (KEYS.c.chip == key.chip.value) & (KEYS.c.libtpu == libtpu)
        others = KEYS.c.id != func.coalesce(query.id_of(key), 0)
        ids = select(TRIALS.c.id).join(KEYS).where(KEYS.c.kernel == key.kernel, others)
        ids = ids.where(TRIALS.c.time_us.is_not(None), TRIALS.c.pushed_by == "")
        nearest = ids.order_by(same.desc(), TRIALS.c.id.desc()).limit(most)
        wanted = query.with_keys(TRIALS).where(TRIALS.c.id.in_(nearest)).order_by(TRIALS.c.id)
        return self._rows(wanted, _with_key)

    @reads
    def history(
        self,
        connection: Connection,
        kernel: str | None = None,
        chip: Chip | None = None,
        limit: int = 50,
        problem: Problem | None = None,
    ) -> Sequence[SearchedKey]:
        return query.latest_tried(connection, limit, kernel, chip, problem)

    def trial(self, trial_id: int) -> tuple[Key, Trial] | None:
        wanted = query.with_keys(TRIALS).where(TRIALS.c.id == trial_id)
        return self._first(wanted, _with_key) if 0 < trial_id <= MAX_ID else None

    def trial_ids(self, key: Key) -> dict[int, int]:
        wanted = _of_key(key).with_only_columns(TRIALS.c.number, TRIALS.c.id)
        return dict(self._rows(wanted, lambda row: (int(row.number), int(row.id))))


def _newest_kernels() -> Query:
    return select(KERNELS).order_by(KERNELS.c.id.desc())


def _of_key(key: Key) -> Query:
    return select(TRIALS).where(TRIALS.c.key_id == query.id_of(key)).order_by(TRIALS.c.number)


def _with_key(row: AnyRow) -> tuple[Key, Trial]:
    return rows.key_from_row(row), rows.trial_from_row(row)


def _make_room(connection: Connection, key_id: int, values: dict[str, Any]) -> bool:
    """What is searched here takes the place of what was pushed, with its config or number."""
    same = (TRIALS.c[name] == values[name] for name in ("config_digest", "number"))
    gone = delete(TRIALS).where(TRIALS.c.key_id == key_id, TRIALS.c.pushed_by != "", or_(*same))
    return bool(connection.scalars(gone.returning(TRIALS.c.id)).all())


def _add_at_once(connection: Connection, key_id: int, values: Sequence[dict[str, Any]]) -> bool:
    """Several trials in a few statements, where all of them are new; else none of them."""
    if not 1 < len(values) <= query.AT_ONCE:
        return False
    given = {name: {each[name] for each in values} for name in ("number", "config_digest")}
    same = or_(*(TRIALS.c[name].in_(taken) for name, taken in given.items()))
    there = select(TRIALS.c.id).where(TRIALS.c.key_id == key_id, same).limit(1)
    if any(len(taken) < len(values) for taken in given.values()) or connection.scalar(there):
        return False
    connection.execute(insert(TRIALS), [{**each, "key_id": key_id} for each in values])
    return True
