"""Taking in what another machine has found."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sqlalchemy import select
from sqlalchemy.orm import Session

from autotune.domain.kernel_spec import KernelSpec
from autotune.domain.trial import KeyResult, Pushed, Record
from autotune_db import query, rows, snapshots
from autotune_db.adapter import Adapter
from autotune_db.records import add_record, exists
from autotune_db.tables import KernelRow, RecordRow, SnapshotRow, TrialRow


class SqlPushes(Adapter):
    """Implements ``PushTarget``."""

    def push(self, kernels: Iterable[KernelSpec], results: Sequence[KeyResult], by: str) -> Pushed:
        specs = [{**rows.kernel_values(spec), "created_at": self._clock()} for spec in kernels]
        signed = [_signed(result, by) for result in results]

        def write(session: Session, _: bool) -> Pushed:
            query.one_publisher(session)
            for values in specs:
                query.insert(session, KernelRow, values)
            trials = sum(_add_trials(session, result) for result in signed)
            for one in signed:
                if one.refusals is not None:
                    query.save_refusals(session, one.record.key, one.refusals, again=False)
            before = snapshots.latest(session)
            wins = [one.record for one in signed if not _superseded(session, before, one.record)]
            new = [add_record(session, one) for one in wins if not exists(session, one)]
            if new:
                note = f"{len(new)} pushed, up to record {new[-1]}"
                before = snapshots.publish(session, new[-1], self._clock(), by=by, note=note)
            number = before.id if before else 0
            lost = len(signed) - len(wins)
            return Pushed(records=len(new), trials=trials, lost=lost, snapshot=number)

        return self._work.write(write)


def _signed(result: KeyResult, by: str) -> KeyResult:
    """Who pushed it is for us to say, not for the push."""
    trials = tuple(replace(trial, pushed_by=by) for trial in result.trials)
    return replace(result, record=replace(result.record, pushed_by=by), trials=trials)


def _superseded(session: Session, row: SnapshotRow | None, record: Record) -> bool:
    """Whether the published record of the key is newer, faster by the same kind of evidence, or
    measured where this one is only estimated.

    What is there already does not lose: it may be pushed again.
    """
    key_id = query.find_key(session, record.key)
    number = snapshots.record_id(session, row, key_id) if row and key_id else None
    found = session.get(RecordRow, number) if number else None
    if found is None:
        return False
    its = rows.record_from_row(found, record.key)
    faster = _same_kind(record, its) and its.time_us < record.time_us
    firmer = its.method == "measured" and record.method != "measured"
    return found.created_at > record.created_at or faster or firmer


def _same_kind(one: Record, other: Record) -> bool:
    """Whether their times may be compared: by the same model, or measured in the same way."""
    if one.method != other.method:
        return False
    if one.measurement is not None and other.measurement is not None and one.method == "measured":
        return one.measurement.method == other.measurement.method
    return one.estimate.model == other.estimate.model


def _add_trials(session: Session, result: KeyResult) -> int:
    """How many are new: a config that was tried keeps its own evidence; a number that is taken
    becomes the next."""
    if not result.trials:
        return 0
    key_id = query.key_id(session, result.record.key)
    known = select(TrialRow.number, TrialRow.config_digest).where(TrialRow.key_id == key_id)
    found = list(session.execute(known))
    numbers, configs = {number for number, _ in found}, {config for _, config in found}
    before = len(configs)
    for trial in result.trials:
        values = rows.trial_values(trial)
        if values["config_digest"] not in configs:
            number = trial.number if trial.number not in numbers else max(numbers) + 1
            session.add(TrialRow(**{**values, "number": number, "key_id": key_id}))
            numbers.add(number)
            configs.add(values["config_digest"])
    return len(configs) - before
