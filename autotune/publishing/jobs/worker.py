"""Runs tuning jobs, one after another, until it is told to stop."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from autotune.declaring.calls.text import call_text
from autotune.declaring.fingerprint import fingerprint
from autotune.domain.compilers import Compilers, DescribeKernel, DescribeToolchain
from autotune.domain.errors import AutotuneError, KernelImportError, StoreError
from autotune.domain.job import LEASE_S, Ability, Job, Progress, Queue, State, log_end
from autotune.domain.key import Chip, KernelRef, KernelSpec
from autotune.domain.problem import Problem
from autotune.domain.record import Record
from autotune.domain.store import CandidateState, KeyResult, Rechecked, Store
from autotune.domain.visible import visible_lines
from autotune.publishing.publish import Publication, opened, running
from autotune.publishing.task import Plan, TuningObserver, TuningTask
from autotune.publishing.tuning import tune_one
from autotune.searching.subject import SearchLimits

_log = logging.getLogger("autotune.worker")

_BEATS = 4  # heartbeats in a lease
_STOPPED = "its worker was stopped"
_LOST = "it was cancelled, or may be another worker's by now"

Recheck = Callable[[Compilers, Record, KernelRef, str], Rechecked]
"""As ``autotune.publishing.checking.record_check`` has it."""


class Lease:
    """Says that the worker lives, and what it has said, a few times in each lease; learns when it
    is to stop.

    ``stop_wanted``: the job was cancelled or is another worker's, or nobody could be told for so
    long that it may be. ``answered``: called whenever the queue has answered.
    """

    def __init__(
        self,
        jobs: Queue,
        job: Job,
        lease_s: float,
        stopping: threading.Event | None = None,
        answered: Callable[[], object] = lambda: None,
    ) -> None:
        self.progress = Progress()
        self._stopping, self._answered = stopping or threading.Event(), answered
        self.stop_wanted = False
        self._jobs, self._job, self._lease_s = jobs, job, lease_s
        self._log = self._written = ""
        self._is_refused = False
        self._writing = threading.Lock()  # else an older text may come after a newer one
        self._heard = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)

    def __enter__(self) -> "Lease":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def is_stopped(self) -> bool:
        """Whether the job is to be left: that, or the worker ends."""
        return self.stop_wanted or self._stopping.is_set()

    def holds(self) -> bool:
        """Ask now, before something that only the holder may do."""
        self._beat()
        return not self.stop_wanted

    def say(self, line: str, level: int = logging.INFO) -> None:
        """A line of the job's log, which is written after the next sign of life."""
        line = visible_lines(line)
        _log.log(level, "job %s: %s", self._job.number, line)
        self._log = log_end(f"{self._log}{datetime.now(UTC):%H:%M:%S} {line}\n")

    def write_log(self) -> None:
        """Now, before the job ends. One that cannot be written is no reason to stop."""
        with self._writing:
            text = self._log
            try:
                if text != self._written and self._jobs.write_log(self._job, text):
                    self._written = text
            except StoreError as error:
                if not self._is_refused:
                    _log.warning("no log for job %s: %s", self._job.number, error)
                self._is_refused = True

    def _live(self) -> None:
        while not self.stop_wanted and not self._ended.wait(self._lease_s / _BEATS):
            if self._beat():
                self.write_log()

    def _beat(self) -> bool:
        """Whether it was heard."""
        begun, is_heard = time.monotonic(), False
        try:
            is_heard = self._jobs.heartbeat(self._job, self.progress)
            self._answered()
            if is_heard:
                self._heard = begun
            else:
                self.stop_wanted = True
        except StoreError as error:
            _log.warning("no heartbeat for job %s: %s", self._job.number, error)
        if time.monotonic() - self._heard > self._lease_s:
            self.stop_wanted = True
        return is_heard


class JobObserver(TuningObserver):
    """Watches a job, which ends with its lease."""

    def message(self, published: Publication, untimed: Chip | None) -> str:
        """What became of it. ``untimed``: its chip, where times on a TPU were wanted and none is
        attached."""
        raise NotImplementedError


class Worker:
    """``refs``: the kernels that it may be asked for, by name. ``name`` is of this process alone.
    ``watching``: makes who watches a job. ``plan``: how jobs are tuned, but for their trials.
    ``recheck``: how pushed records are checked; None: it takes no such jobs. ``answered``: called
    whenever the queue has answered, for those who want to know that this worker lives.

    A job that a worker leaves, however it ends, is given to another one.
    """

    def __init__(
        self,
        compilers: Compilers,
        store: Store,
        jobs: Queue,
        refs: Mapping[str, KernelRef],
        *,
        name: str,
        watching: Callable[[Lease], JobObserver],
        lease_s: float = LEASE_S,
        poll_s: float = 2.0,
        plan: Plan | None = None,
        recheck: Recheck | None = None,
        answered: Callable[[], object] = lambda: None,
    ) -> None:
        self._compilers, self._store, self._jobs, self._refs = compilers, store, jobs, refs
        self._name, self._plan, self._watching = name, plan or Plan(), watching
        self._recheck, self._answered = recheck, answered
        self._kernels: dict[str, tuple[KernelRef, KernelSpec]] = {}
        self._lease_s, self._poll_s = lease_s, poll_s
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Give the job back as soon as what is being compiled is done."""
        self._stopping.set()

    def ability(self) -> Ability:
        """Describes the kernels in the database, so that jobs for them can be asked for."""
        known: dict[str, str] = {}
        for name, ref in self._refs.items():
            try:
                spec = self._described(ref)
            except AutotuneError as error:
                _log.warning("kernel %s cannot be tuned here: %s", name, error)
                continue
            self._store.save_kernel(spec)
            known[spec.name] = spec.fingerprint
            self._kernels[spec.name] = ref, spec
        checks = self._recheck is not None
        return Ability(
            kernels=known, toolchain=self._compilers.ask(DescribeToolchain()), checks=checks
        )

    def _described(self, ref: KernelRef) -> KernelSpec:
        """Of a decorated function as it was searched last: its source does not say how it is
        called. Raises ``AutotuneError``."""
        try:
            return self._compilers.ask(DescribeKernel(ref=ref))
        except KernelImportError:
            for spec in self._store.kernels():
                if spec.form and fingerprint(ref, spec.form) == spec.fingerprint:
                    return spec
            raise

    def _ref(self, kernel: str, problem: Problem) -> KernelRef:
        ref, spec = self._kernels[kernel]
        return replace(ref, call=call_text(spec.form, problem)) if spec.form else ref

    def run(self, *, drain: bool = False) -> int:
        """How many jobs were run. ``drain``: stop when there is nothing to do."""
        able, done = self.ability(), 0
        _log.info("%s runs %d kernels with %s", self._name, len(able.kernels), able.toolchain)
        while not self._stopping.is_set():
            try:
                job = self._jobs.claim(self._name, able, self._lease_s)
                self._answered()
            except StoreError as error:
                _log.warning("no job can be claimed: %s", error)
                job = None
            else:
                if job is None and drain:
                    break
            if job is None:
                self._stopping.wait(self._poll_s)
                continue
            self._do(job)
            done += 1
        return done

    def _do(self, job: Job) -> None:
        asked = job.request
        lease = Lease(self._jobs, job, self._lease_s, self._stopping, self._answered)
        lease.say(f"attempt {job.attempt}: {asked.kernel} {asked.problem} on {asked.chip}")
        try:
            with lease:
                work = self._tune if asked.candidate is None else self._check
                state, message = work(job, lease)
                if state is None:
                    self._give_back(job, lease, _STOPPED, counts=False)
                else:
                    self._finish(job, lease, state, message)  # may take long: it sends the trials
        except StoreError as error:
            self._give_back(job, lease, str(error), counts=True)
        except AutotuneError as error:
            with suppress(StoreError):  # its lease ends, and another finds the same
                self._finish(job, lease, State.FAILED, str(error))
        except Exception as error:
            _log.exception("job %s", job.number)
            self._give_back(job, lease, f"{type(error).__name__}: {error}", counts=True)
        except BaseException:
            self._give_back(job, lease, _STOPPED, counts=False)
            raise

    def _tune(self, job: Job, lease: Lease) -> tuple[State | None, str]:
        """How it ended, and what is to be said of it; None: it was cancelled, is another worker's,
        or this one is to stop."""
        request, plan = job.request, self._plan
        task = TuningTask(
            ref=self._ref(request.kernel, request.problem),
            chip=request.chip,
            problem=request.problem,
            options=(request.toolchain or self._compilers.ask(DescribeToolchain())).options,
        )
        plan = replace(plan, limits=SearchLimits(trials=request.trials))
        observer = self._watching(lease)
        compilers = running(self._compilers)
        publication = tune_one(compilers, opened(self._store), task, plan, observer).publication
        if publication is None:
            return None, ""
        is_timed = plan.timing is None or plan.times(request.chip)
        state = State.DONE if publication.record else State.FAILED
        return state, observer.message(publication, None if is_timed else request.chip)

    def _check(self, job: Job, lease: Lease) -> tuple[State | None, str]:
        """The same of a job that checks a pushed record."""
        assert self._recheck is not None and job.request.candidate is not None
        candidate = self._store.candidate(job.request.candidate)
        if candidate is None or candidate.decision.state is not CandidateState.UNVERIFIED:
            return State.DONE, "it was decided before"
        pushed, ref = candidate.record, self._ref(job.request.kernel, job.request.problem)
        rechecked = self._recheck(self._compilers, pushed, ref, self._name)
        if self._stopping.is_set() or not lease.holds():
            return None, ""
        if rechecked.record is not None:
            result = KeyResult(record=rechecked.record, trials=rechecked.trials)
            self._store.push((), [result], pushed.pushed_by)
        self._store.decide(candidate.number, rechecked.decision)
        decided = rechecked.decision.state is not CandidateState.UNVERIFIED
        said = f"{rechecked.decision.state}: {rechecked.decision.finding}"
        return State.DONE if decided else State.FAILED, said

    def _finish(self, job: Job, lease: Lease, state: State, message: str) -> None:
        lease.say(message, logging.WARNING if state is State.FAILED else logging.INFO)
        lease.write_log()
        if self._jobs.finish(job, state, visible_lines(message)):
            _log.info("job %s is %s", job.number, state)

    def _give_back(self, job: Job, lease: Lease, message: str, *, counts: bool) -> None:
        was_lost = lease.stop_wanted and not counts
        lease.say(_LOST if was_lost else message, logging.WARNING if counts else logging.INFO)
        lease.write_log()
        with suppress(StoreError):  # else its lease ends
            self._jobs.give_back(job, visible_lines(message), counts=counts)
