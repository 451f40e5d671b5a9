"""The queue of a service, for workers that do not share its database."""

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPException
from typing import Any

from autotune.answering.http import Remote
from autotune.answering.push import MAY_PASS, send, whole_result
from autotune.domain.codec import from_data, to_data
from autotune.domain.errors import ServiceError, StoreError
from autotune.domain.job import Ability, Job, Progress, State
from autotune.domain.key import KernelSpec, Key
from autotune.domain.store import Store

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
        version = self._able.kernels[asked.kernel]
        key = Key(
            kernel=asked.kernel,
            fingerprint=version,
            problem=asked.problem,
            chip=asked.chip,
            toolchain=self._able.toolchain,
        )
        record = self._store.record(key)
        if record is None:
            raise StoreError(f"there is no record of {key} to be sent")
        spec = self._spec(asked.kernel, version)
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
