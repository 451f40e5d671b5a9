"""Sending what was tuned here to a service, and what a service must not take.

And the queue of a service, for workers that do not share its database.
"""

import json
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from http.client import HTTPException
from math import inf
from typing import Any

from autotune.answering.http import Remote
from autotune.domain.claims import impossible
from autotune.domain.codec import from_data, to_data
from autotune.domain.errors import InvalidInputError, ServiceError, StoreError
from autotune.domain.evidence import DEVICE_TIME
from autotune.domain.job import Ability, Job, Progress, State
from autotune.domain.key import KernelSpec
from autotune.domain.limits import MOST_CHARACTERS
from autotune.domain.outcome import Estimated
from autotune.domain.record import Check, CheckVerdict, Method, Record
from autotune.domain.store import KeyResult, Pushed, Store

_MOST_BYTES = 8 << 20  # of one call; the service takes twice as much
_MOST_RESULTS = 500
_MOST_CHECKS = 50  # each with the compiler's message, which may be long
_MOST_AHEAD = timedelta(hours=1)  # of another machine's clock
_NOISE = 1.02  # the medians of all samples may differ so, where pairs of them decided
_PAUSES_S = (1.0, 5.0)
MAY_PASS = (408, 429, 500, 502, 503, 504)
"""Statuses of a service that may be back soon."""

_Data = dict[str, Any]


def checked(result: KeyResult, spec: KernelSpec | None, now: datetime) -> KeyResult:
    """The result, its key in the spelling of its kernel, which ``spec`` describes.

    Raises ``InvalidInputError`` with one sentence for what cannot be true or must not be published.
    """
    key = result.record.key
    if spec is None or (spec.name, spec.fingerprint) != (key.kernel, key.fingerprint):
        raise InvalidInputError(f"there is no description of {key.kernel} [{key.fingerprint}]")
    record = replace(result.record, key=key.declared(spec.problems), checked_by="")
    why = _of_result(result, spec, now) or _of_record(record) or _of_winner(result)
    if why is not None:
        raise InvalidInputError(why)
    return replace(result, record=record)


def _of_result(result: KeyResult, spec: KernelSpec, now: datetime) -> str | None:
    tried_at = (trial.created_at for trial in result.trials)
    why = _yet_to_come(max((result.record.created_at, *tried_at)), now)
    if why is not None:
        return why
    default = result.record.default.config
    others = {trial.config for trial in result.trials} | ({default} if default else set())
    for config in (result.record.config, *others):
        why = impossible(config, default, spec, result.record.key)
        if why is not None:
            return why
    return None


def _yet_to_come(made_at: datetime, now: datetime) -> str | None:
    if made_at <= now + _MOST_AHEAD:
        return None
    return f"it was made at {made_at.isoformat()}, which is yet to come"


def _of_record(record: Record) -> str | None:
    if not record.verified:
        return f"it was not verified: {record.verification or record.proof.ran}"[:300]
    estimate, default, limit = record.estimate, record.default, record.config.vmem_limit_bytes
    if estimate.vmem_used_bytes > min(estimate.vmem_allowed_bytes, limit or inf):
        return "it uses more VMEM than is allowed"
    if record.is_default is not (record.config == default.config):
        said = "another" if record.is_default else "the default's"
        return (
            f"it is called {'the default' if record.is_default else 'better'} and has {said} config"
        )
    if record.method == Method.MEASURED:
        return _of_measurement(record)
    if default.time_us is not None and estimate.time_us > default.time_us:
        return f"it is slower than the default, which takes {default.time_us:g} µs"
    return None


def _of_winner(result: KeyResult) -> str | None:
    """Of its own trial, where that came with it."""
    record = result.record
    for trial in result.trials:
        if trial.config == record.config and not isinstance(trial.outcome, Estimated):
            return f"its own trial says that its config is {trial.outcome.kind}"
    return None


def _of_measurement(record: Record) -> str | None:
    run = record.measurement
    if run is None or run.void:
        return "it is called measured and has no measurement that decides"
    if run.method != DEVICE_TIME:
        return f"it was measured by {run.method}, which is no time of a TPU"
    winner = run.of(record.config)
    if winner is None or winner.refused or not winner.samples_us:
        return "it is called measured and its config was not"
    default = record.default.config and run.of(record.default.config)
    if default and default.median_us and (winner.median_us or 0.0) > default.median_us * _NOISE:
        return f"it was measured to be slower than the default: {default.median_us:g} µs"
    return None


def possible_check(check: Check, spec: KernelSpec | None, now: datetime) -> Check:
    """The check, its key in the spelling of its kernel, which ``spec`` describes.

    Raises ``InvalidInputError`` with one sentence for what cannot be true.
    """
    key = check.key
    if spec is None or (spec.name, spec.fingerprint) != (key.kernel, key.fingerprint):
        raise InvalidInputError(f"there is no description of {key.kernel} [{key.fingerprint}]")
    if check.against:
        raise InvalidInputError("it compares two sources, which only its machine has")
    declared = replace(check, key=key.declared(spec.problems))
    why = impossible(check.config, None, spec, declared.key) or _of_check(declared, now)
    if why is not None:
        raise InvalidInputError(why)
    return declared


def _of_check(check: Check, now: datetime) -> str | None:
    why = _yet_to_come(check.checked_at, now)
    if why is not None:
        return why
    if check.target == check.key:
        return "a record is not checked where it was made"
    if (check.cause is None) is (check.verdict is CheckVerdict.NOT_CHECKED):
        return "it has a cause if, and only if, it was not checked"
    if check.verdict is CheckVerdict.NEEDS_LIMIT and not check.least_limit_bytes:
        return "it does not say which limit is needed"
    compiles = isinstance(check.winner, Estimated)
    if compiles if check.verdict is CheckVerdict.BROKEN else check.verdict.compiles > compiles:
        return (
            f"it is called {check.verdict}, and its winner {'has' if compiles else 'has no'} time"
        )
    return None


def send(
    remote: Remote, kernels: Sequence[KernelSpec], results: Iterable[KeyResult]
) -> Iterator[tuple[int, Pushed]]:
    """Push in parts; after each, how many results it had and what became of them.

    A part is tried again when the service may be back soon: what is there already changes nothing.
    Raises ``ServiceError``.
    """
    for part in _parts(map(result_to_data, results)):
        yield len(part), _push(remote, kernels, results=part)


def send_checks(
    remote: Remote, kernels: Sequence[KernelSpec], checks: Sequence[Check]
) -> Iterator[Pushed]:
    """The same for checks, after the records that they are about."""
    for start in range(0, len(checks), _MOST_CHECKS):
        part = checks[start : start + _MOST_CHECKS]
        data = [_clipped(to_data(check, sent=True)) for check in part]
        yield _push(remote, kernels, results=[], checks=data)


def _push(remote: Remote, known: Iterable[KernelSpec], **parts: Sequence[_Data]) -> Pushed:
    """``parts`` of the call, and the descriptions of their kernels."""
    specs = {(spec.name, spec.fingerprint): spec for spec in known}
    values = (data for part in parts.values() for data in part)
    keys = [data["key"] if "key" in data else data["record"]["key"] for data in values]
    used = sorted({(key["kernel"], key["fingerprint"]) for key in keys})
    kernels = [to_data(specs[name], sent=True) for name in used if name in specs]
    body = json.dumps({"kernels": kernels, **parts}).encode()
    return from_data(Pushed, json.loads(_insist(remote, body)))


def _insist(remote: Remote, body: bytes) -> bytes:
    for pause_s in _PAUSES_S:
        try:
            return remote.call("POST", "/v1/results", body)
        except ServiceError as error:
            if error.status not in MAY_PASS:
                raise
        except OSError:
            pass
        time.sleep(pause_s)
    return remote.call("POST", "/v1/results", body)


def _parts(results: Iterable[_Data]) -> Iterator[list[_Data]]:
    """As many as fit into one call."""
    part, size = list[_Data](), 0
    for data in results:
        length = len(json.dumps(data))
        if part and (size + length > _MOST_BYTES or len(part) == _MOST_RESULTS):
            yield part
            part, size = [], 0
        part.append(data)
        size += length
    if part:
        yield part


def whole_result(store: Store, record: Record) -> KeyResult:
    """A record with all that its search has found."""
    return KeyResult(record=record, trials=tuple(store.trials(record.key)))


def result_to_data(result: KeyResult) -> _Data:
    """Plain JSON data, as ``POST /v1/results`` takes it: longer texts end with an ellipsis."""
    data: _Data = _clipped(to_data(result, sent=True))
    return data


def _clipped(data: Any) -> Any:
    if isinstance(data, str):
        return data if len(data) <= MOST_CHARACTERS else data[: MOST_CHARACTERS - 1] + "…"
    if isinstance(data, dict):
        return {name: _clipped(value) for name, value in data.items()}
    return list(map(_clipped, data)) if isinstance(data, list | tuple) else data


CLAIM_HEADER = "Autotune-Claim"
_WITHIN_S = 10.0  # a fraction of a lease


class RemoteJobs:
    """Implements ``autotune.domain.job.Queue`` with calls to the service.

    ``store``: the worker's own database, where its searches and the descriptions of its kernels
    are. What a job has found is sent from there before the job is called done. ``StoreError`` where
    the service may be back soon, ``ServiceError`` where it refuses.
    """

    def __init__(self, remote: Remote, store: Store) -> None:
        self._remote, self._store = remote, store
        self._able: Ability | None = None
        self._claim = secrets.token_urlsafe()
        self._described: list[dict[str, Any]] = []

    def claim(self, worker: str, able: Ability, lease_s: float) -> Job | None:
        if able != self._able:  # a worker asks every other second, and is able to the same
            specs = (self._spec(*item) for item in able.kernels.items())
            self._described = [to_data(spec, sent=True) for spec in specs]
            self._able = able
        asked = {
            "worker": worker,
            "kernels": self._described,
            "toolchain": to_data(able.toolchain),
            "lease_s": lease_s,
        }
        job = self._call("/v1/claims", asked, self._claim)["job"]
        if job is None:
            return None
        # Until then the same: where an answer was lost, the next one is the same job.
        mine, self._claim = self._claim, secrets.token_urlsafe()
        return replace(from_data(Job, job), claim=mine)

    def heartbeat(self, job: Job, progress: Progress) -> bool:
        # A token may be replaced: the lease decides.
        return self._tell_gently(job, "heartbeat", {"progress": to_data(progress, sent=True)})

    def write_log(self, job: Job, text: str) -> bool:
        return self._tell_gently(job, "log", {"text": text})  # an older service has no such route

    def finish(self, job: Job, state: State, message: str) -> bool:
        if state is State.DONE:
            self._send(job)
        return self._tell(job, "finish", {"state": state.value, "message": message})

    def give_back(self, job: Job, message: str, *, counts: bool) -> bool:
        # Where it is refused, its lease ends.
        return self._tell_gently(job, "give-back", {"message": message, "counts": counts})

    def _send(self, job: Job) -> None:
        """The record and its trials. It may lose against what others have found meanwhile."""
        assert self._able is not None
        asked = job.request
        spec = self._spec(asked.kernel, self._able.kernels[asked.kernel])
        key = spec.key(asked.problem, asked.chip, self._able.toolchain)
        record = self._store.record(key)
        if record is None:
            raise StoreError(f"there is no record of {key} to be sent")
        with self._understood():
            for _ in send(self._remote, [spec], [whole_result(self._store, record)]):
                pass

    def _spec(self, name: str, version: str) -> KernelSpec:
        spec = self._store.kernel(name, version)
        if spec is None:
            raise StoreError(f"there is no description of {name} [{version}]")
        return spec

    def _tell_gently(self, job: Job, what: str, data: Mapping[str, Any]) -> bool:
        """A refusal does not end the worker."""
        try:
            return self._tell(job, what, data)
        except ServiceError as error:
            raise StoreError(str(error)) from error

    def _tell(self, job: Job, what: str, data: Mapping[str, Any]) -> bool:
        whose = {"worker": job.worker, "attempt": job.attempt}
        path = f"/v1/jobs/{job.number}/{what}"
        answer = self._call(path, {**whose, **data}, job.claim, _WITHIN_S)
        return bool(answer["holds"])

    def _call(
        self, path: str, data: Mapping[str, Any], claim: str, within_s: float | None = None
    ) -> dict[str, Any]:
        """``claim`` is a header: services of before refuse a field that they do not know."""
        body, header = json.dumps(data).encode(), {CLAIM_HEADER: claim}
        with self._understood():
            answer = self._remote.call("POST", path, body, within_s, **header)
            try:
                return dict(json.loads(answer))
            except (TypeError, ValueError) as error:
                raise ServiceError(f"{self._remote} is no service of this kind") from error

    @contextmanager
    def _understood(self) -> Iterator[None]:
        try:
            yield
        except ServiceError as error:
            if error.status in MAY_PASS:
                raise StoreError(f"the service at {self._remote}: {error}") from error
            raise
        except (OSError, HTTPException) as error:
            why = f"the service at {self._remote} cannot be reached: {error}"
            raise StoreError(why) from error
