"""Kernels and what was tried: for searches, and for those who look back."""

import logging
from collections.abc import Sequence

from sqlalchemy import Connection, update

from autotune.domain.chip import Chip
from autotune.domain.kernel_spec import KernelSpec
from autotune.domain.key import Key
from autotune.domain.outcome import Outcome
from autotune.domain.refusals import Refusals
from autotune.domain.trial import KeySummary, Trial
from autotune_db import query, rows
from autotune_db.adapter import Adapter
from autotune_db.query import MAX_ID
from autotune_db.tables import KERNELS, TRIALS

_log = logging.getLogger("autotune.db")


class SqlKernels(Adapter):
    """Descriptions of kernels, for all ports that ask for them."""

    def save_kernel(self, spec: KernelSpec) -> None:
        values = {**rows.kernel_values(spec), "created_at": self._clock()}
        own = {"spec": values["spec"]}  # in the place of what somebody pushed for this source
        by = ["name", "fingerprint"]
        self._work.write(lambda connection, _: query.upsert(connection, KERNELS, values, by, own))

    def offer_kernels(self, specs: Sequence[KernelSpec]) -> None:
        """Keep what somebody else says of kernels that nothing is known of yet, up to a number."""
        known = self._work.read(query.kernel_names)
        if any((spec.name, spec.fingerprint) not in known for spec in specs):
            now = self._clock()
            left = self._work.write(lambda connection, _: query.add_kernels(connection, specs, now))
            if left:
                _log.warning("%d kernels are not described: there are %d", left, len(known))

    def kernel(self, name: str, fingerprint: str | None = None) -> KernelSpec | None:
        statement = query.kernels(name, fingerprint).limit(1)
        found = self._work.read(lambda s: list(map(rows.kernel_from_row, s.execute(statement))))
        return found[0] if found else None

    def kernels(self) -> Sequence[KernelSpec]:
        statement = query.kernels()
        found = self._work.read(lambda s: list(map(rows.kernel_from_row, s.execute(statement))))
        return sorted(found, key=lambda spec: spec.name)  # collations differ between servers


class SqlTrials(Adapter):
    """A ``TrialHistory`` and a ``ResultStore``; with ``SqlKernels`` a ``SearchStore``."""

    # The key of the last trial, and its number: one that has trials is there for good.
    _last_key: tuple[Key | None, int] = None, 0

    def save_refusals(self, key: Key, refusals: Refusals) -> None:
        self._work.write(lambda s, _: query.save_refusals(s, key, refusals))

    def refusals(self, key: Key) -> Refusals | None:
        return self._work.read(lambda s: query.refusals(s, query.find_key(s, key)))

    def save_trials(self, key: Key, trials: Sequence[Trial]) -> int:
        values = [rows.trial_values(trial) for trial in trials]
        known, known_id = self._last_key

        def save(connection: Connection, again: bool) -> tuple[int, int]:
            key_id = known_id if key == known else query.key_id(connection, key)
            for place, (trial, own) in enumerate(zip(trials, values, strict=True)):
                added = query.insert(connection, TRIALS, {**own, "key_id": key_id})
                if added is not None:
                    query.count_in(connection, key_id, added, own)
                # The connection may have broken after the commit of the first attempt.
                elif not (again and _is_there(connection, key, trial)):
                    return place, key_id
            return len(trials), key_id

        count, key_id = self._work.write(save)
        self._last_key = key, key_id
        return count

    def replace_outcome(self, key: Key, number: int, outcome: Outcome) -> None:
        own = TRIALS.c.key_id == query.id_of(key), TRIALS.c.number == number
        statement = update(TRIALS).where(*own).values(rows.outcome_values(outcome))

        def write(connection: Connection, _: bool) -> None:
            ids = connection.scalars(statement.returning(TRIALS.c.key_id)).all()
            query.lock_keys(connection, ids)
            query.sum_up(connection, ids)

        self._work.write(write)

    def trials(self, key: Key) -> Sequence[Trial]:
        statement = query.trials(key)
        return self._work.read(lambda s: list(map(rows.trial_from_row, s.execute(statement))))

    def timed_trials(self, key: Key, most: int) -> Sequence[tuple[Key, Trial]]:
        statement = query.timed_trials(key, most)

        def find(connection: Connection) -> list[tuple[Key, Trial]]:
            found = connection.execute(statement)
            return [(rows.key_from_row(row), rows.trial_from_row(row)) for row in found]

        return self._work.read(find)

    def history(
        self, kernel: str | None = None, chip: Chip | None = None, limit: int = 50
    ) -> Sequence[KeySummary]:
        keys = query.tried_keys(kernel, chip).limit(limit)
        return self._work.read(lambda s: query.summaries(s, s.execute(keys)))

    def trial(self, trial_id: int) -> tuple[Key, Trial] | None:
        if not 0 < trial_id <= MAX_ID:
            return None
        statement = query.with_keys(TRIALS).where(TRIALS.c.id == trial_id)

        def find(connection: Connection) -> tuple[Key, Trial] | None:
            row = connection.execute(statement).one_or_none()
            return (rows.key_from_row(row), rows.trial_from_row(row)) if row else None

        return self._work.read(find)

    def trial_ids(self, key: Key) -> dict[int, int]:
        wanted = query.trials(key).with_only_columns(TRIALS.c.number, TRIALS.c.id)
        return self._work.read(lambda s: {row.number: row.id for row in s.execute(wanted)})


def _is_there(connection: Connection, key: Key, trial: Trial) -> bool:
    same_number = query.trials(key).where(TRIALS.c.number == trial.number)
    return trial in map(rows.trial_from_row, connection.execute(same_number))
