"""Tuned configs for a model server, all in one call, whatever state the service is in.

    client = Client("http://tuning:8700", cache="/var/cache/model/configs.bundle")
    for question, answer in zip(questions, client.lookup(questions)):
        ...  # answer.config, answer.match …; None: the kernel's own default

A service that is down, slow, or answers what cannot be read is logged once; the answers then come
from the snapshot that was kept on disk, else they are *default*. It is asked again in the
background; once it answers, ``match`` does. Only the standard library and
light modules of this package are imported: this runs before every start of a model.
"""

import json
import logging
import random
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard
from urllib.parse import quote, urlencode
from weakref import WeakMethod

from autotune.answering import matching
from autotune.answering.bundle import bundle_from_bytes, read_bundle, write_whole
from autotune.answering.generation import GENERATION, RETRY_AFTER_S
from autotune.answering.http import Remote, read_answer
from autotune.domain.arguments import ProblemWords
from autotune.domain.codec import to_data
from autotune.domain.errors import AutotuneError, InvalidInputError, ServiceError
from autotune.domain.key import Identity, Key, Toolchain, identity_of
from autotune.domain.problem import AxisValue, Config
from autotune.domain.record import Times

_log = logging.getLogger("autotune")

MAX_QUESTIONS = 1_000  # in one call; more are asked for in several, of one snapshot
_DOWNLOAD_S = 60.0  # for a whole snapshot, which nobody waits for
_TOO_MANY_CALLS = 429  # in this second: it does not fail
_ALL = matching.beside_default(matching.KINDS)
_LABEL = ".note"  # beside the cache: what is in it, so that it need not be read to know


class ServiceAnswers:
    """Asks the service at ``url``; ``None``: only what ``cache`` holds, a bundle file.

    ``cache``: where the newest snapshot is kept, written in the background after a call that was
    answered from a newer one. ``timeout_s``: for a whole call, connecting included. ``snapshot``:
    ask for this one instead of the newest. ``strict``: raise ``ServiceError`` instead of falling
    back. ``token``: for a service that is closed, by default what ``AUTOTUNE_TOKEN`` holds.
    ``accept_claimed``: also take records that nobody but who pushed them has verified. Safe to
    share between threads. It is a ``Source`` for ``autotune.Tuned``.
    """

    def __init__(
        self,
        url: str | None,
        *,
        cache: str | Path | None = None,
        timeout_s: float = 2.0,
        snapshot: int | None = None,
        strict: bool = False,
        token: str | None = None,
        accept_claimed: bool = False,
    ) -> None:
        """Nothing is asked yet. Raises ``InvalidInputError`` for what is no address."""
        self._service = None if url is None else Remote(url, timeout_s, token)
        self._cache = None if cache is None else Path(cache)
        self._pinned, self.strict, self._claimed = snapshot, strict, accept_claimed
        self._answers: dict[tuple[Identity, frozenset[str]], matching.Match] = {}
        self._generation = GENERATION.number
        self._unanswered: tuple[Sequence[Key], Collection[str]] = (), ()
        self._disk: matching.Index | None = None
        self._disk_is_own = False
        self._retry_after = 0.0
        self._said: set[str] = set()
        self._refresh_thread: threading.Thread | None = None
        self._refresh_lock = threading.Lock()  # asked for, and after a lookup
        self._snapshot_id = ""
        self.snapshot: int | None = None
        """The snapshot that the last answers came from; None before, and for defaults."""

    def __str__(self) -> str:
        return str(self._service or self._cache)

    @property
    def keeps_proofs(self) -> bool:
        """Not where a file answers that did not come from this service."""
        return self._service is not None and (self._disk is None or self._disk_is_own)

    def lookup(
        self,
        questions: Sequence[Key],
        accept: Collection[str] = matching.KINDS,
        without: Collection[Config] = (),
    ) -> list[matching.Match]:
        """One answer each, in the same order, all from one snapshot: the best of an accepted kind.
        ``without``: configs that cannot be taken.

        Raises ``InvalidInputError`` for a kind that there is not, and nothing else unless
        ``strict``: then ``ServiceError`` when the service cannot be used.
        """
        accept = matching.checked_kinds(accept)
        self._begin_generation()
        try:
            answers = self._ask(questions, accept, without)
        except Exception as error:
            if self.strict and isinstance(error, AutotuneError):
                raise
            if self.strict:
                why = f"{type(error).__name__}: {error}"
                raise ServiceError(f"the service cannot be used: {why}") from error
            answers = self._without_service(questions, accept, without, error)
        if not without:
            for key, answer in zip(questions, answers, strict=True):
                self._answers[identity_of(key), matching.beside_default(accept)] = answer
        return answers

    def lookup_shape(
        self, kernel: str, words: ProblemWords, *, chip: str, toolchain: Toolchain
    ) -> matching.Match:
        """The answer for a problem that is named without a call, for the newest version of the
        kernel that has records: the service knows its dimensions.

        For people: raises ``ServiceError`` with the sentence of the service.
        """
        query = {**to_data(toolchain), "chip": chip, "shape": words.shape}
        query |= {"option": list(words.options)} | ({"dtype": words.dtype} if words.dtype else {})
        query |= {"snapshot": str(self._pinned)} if self._pinned is not None else {}
        query |= {"accept_claimed": "true"} if self._claimed else {}
        with self._for_people() as service:
            path = f"/v1/configs/{quote(kernel, safe='')}?{urlencode(query, doseq=True)}"
            answer = json.loads(service.call("GET", path))
            self.snapshot = int(answer["snapshot"])
            return read_answer(None, answer)

    def times_us(self, key: Key, axes: Mapping[str, AxisValue]) -> Times:
        """What was tried for exactly this key with these axes, as the service last said it here;
        nothing where an older one answers, or none ever did."""
        problem = key.problem
        query: dict[str, Any] = {**to_data(key.toolchain), "chip": key.chip.value}
        query |= {"fingerprint": key.fingerprint, "dtype": problem.dtype}
        query["shape"] = ",".join(f"{name}={size}" for name, size in problem.dims)
        query |= {"option": [f"{name}={value}" for name, value in problem.options]}
        query |= {"axis": [f"{name}={value}" for name, value in axes.items()]}
        path = f"/v1/configs/{quote(key.kernel, safe='')}/times?{urlencode(query, doseq=True)}"
        known = self._known_times().get(path, {})
        if self._service is None or time.monotonic() < self._retry_after:
            return known
        try:
            times = json.loads(self._service.call("GET", path))["times_us"]
            said = {str(model): float(time_us) for model, time_us in times.items()}
            if said != known and self._cache is not None:
                all_times = self._known_times() | {path: said}
                write_whole(self._beside_cache(".times"), json.dumps(all_times).encode())
            return said
        except Exception as error:  # it only keeps a record from being taken
            _log.debug("autotune: %s", error)
            return known

    def _known_times(self) -> dict[str, Times]:
        """Beside the cache, by question."""
        try:
            times = self._beside_cache(".times").read_bytes() if self._cache else b"{}"
            return dict(json.loads(times))
        except (OSError, ValueError, TypeError):
            return {}

    @contextmanager
    def _for_people(self) -> Iterator[Remote]:
        """The service; whatever is wrong with it or its answer becomes one sentence."""
        if self._service is None:
            raise InvalidInputError("no service was given")
        try:
            yield self._service
        except ServiceError:
            raise
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise ServiceError(f"the service at {self._service} cannot be used: {why}") from error

    def match(
        self, key: Key, accept: Collection[str] = matching.KINDS, without: Collection[Config] = ()
    ) -> matching.Match:
        """The best answer of an accepted kind; asks only for what no ``lookup`` has asked for."""
        identity, accept = identity_of(key), matching.checked_kinds(accept)
        self._begin_generation()
        for kinds in (matching.KINDS, accept) if not without else ():
            known = self._answers.get((identity, matching.beside_default(kinds)))
            if known is not None and known.kind in (*accept, matching.DEFAULT):
                return known  # the best of all is the best of some, and a default says why itself
        return self.lookup([key], accept, without)[0]

    def _begin_generation(self) -> None:
        """Forgets what was asked before the last ``autotune.refresh``."""
        if self._generation != GENERATION.number:
            self._generation = GENERATION.number
            self._answers, self._disk, self._retry_after = {}, None, 0.0

    def miss(self, key: Key, kind: matching.MatchKind = matching.DEFAULT) -> None:
        """The service has counted it when it was asked."""

    def refresh(self) -> bool:
        """Keeps the snapshot of the last answers, else the newest, on disk; whether it is there
        now. Raises ``ServiceError`` when the service cannot be used, ``OSError`` of the disk."""
        if self._service is None or self._cache is None:
            return False
        wanted = self.snapshot if self.snapshot is not None else self._pinned
        with self._refresh_lock:
            if wanted is None or self._label() != self._label_of(wanted, self._snapshot_id):
                path = f"/v1/snapshots/{'latest' if wanted is None else wanted}"
                path += "?accept_claimed=true" if self._claimed else ""
                content = self._service.call("GET", path, timeout_s=_DOWNLOAD_S)
                bundle = bundle_from_bytes(content, "the snapshot of the service")
                label = self._label_of(bundle.snapshot, bundle.snapshot_id)
                write_whole(self._cache, content)
                write_whole(self._beside_cache(_LABEL), label.encode())
        return True

    def _ask(
        self, questions: Sequence[Key], accept: Collection[str], without: Collection[Config] = ()
    ) -> list[matching.Match]:
        if self._service is None or not questions:
            return self._offline(questions, accept, without)
        if time.monotonic() < self._retry_after and not self.strict:
            raise ServiceError("it failed a moment ago")
        answers: list[matching.Match] = []
        snapshot = self._pinned
        try:
            for start in range(0, len(questions), MAX_QUESTIONS):
                part = questions[start : start + MAX_QUESTIONS]
                snapshot, matches = self._ask_at_once(part, accept, without, snapshot)
                answers += matches
        except Exception as error:
            if not _is_busy(error):
                self._retry_after = time.monotonic() + RETRY_AFTER_S
            raise
        self.snapshot = snapshot
        self._start_refresh()
        return answers

    def _ask_at_once(
        self,
        questions: Sequence[Key],
        accept: Collection[str],
        without: Collection[Config],
        pinned: int | None,
    ) -> tuple[int, list[matching.Match]]:
        assert self._service is not None
        kinds, asked = matching.beside_default(accept), [to_data(key) for key in questions]
        data: dict[str, Any] = {"questions": asked, "snapshot": pinned}
        data |= {} if kinds == _ALL else {"accept": sorted(kinds)}
        data |= {"accept_claimed": True} if self._claimed else {}
        data |= {"without": [to_data(config) for config in without]} if without else {}
        answer = json.loads(_patiently(self._service, json.dumps(data).encode()))
        number, answers = answer["snapshot"], answer["answers"]
        self._snapshot_id = str(answer.get("snapshot_id", ""))
        if type(number) is not int or pinned not in (None, number):
            raise ServiceError(f"it answered from snapshot {number!r} instead of {pinned}")
        matches = [read_answer(*pair) for pair in zip(questions, answers, strict=True)]
        return number, [
            match
            if match.kind in (*kinds, matching.DEFAULT)
            else matching.default_match(not_accepted=match.kind)
            for match in matches
        ]

    def _offline(
        self, questions: Sequence[Key], accept: Collection[str], without: Collection[Config]
    ) -> list[matching.Match]:
        index = self._disk_index()
        return [index.match(key, accept, without) for key in questions]

    def _without_service(
        self,
        questions: Sequence[Key],
        accept: Collection[str],
        without: Collection[Config],
        error: Exception,
    ) -> list[matching.Match]:
        """As the disk has it, until the service answers."""
        self._say_once(
            f"the service at {self._service}",
            f"cannot be used ({type(error).__name__}: {error}): configs come from the snapshot on "
            "disk where there is one, else they are defaults; it is asked again in the background",
        )
        self._unanswered = questions, accept
        GENERATION.next_later(WeakMethod(self._answers_again))
        answers = self._offline(questions, accept, without)
        return [replace(answer, unreachable=f"{self._service}: {error}") for answer in answers]

    def _answers_again(self) -> bool:
        self._retry_after = 0.0
        try:
            self._ask(*self._unanswered)
        except Exception:
            return False
        self._said.clear()
        _log.warning(
            "autotune: the service at %s answers again: what is traced from now on takes its "
            "configs; what JAX has compiled keeps its blocks",
            self._service,
        )
        return True

    def _disk_index(self) -> matching.Index:
        if self._disk is None:
            self._disk, self.snapshot = matching.Index(), None
            try:
                # where there is a service, it may never have been there
                if self._cache and (self._service is None or self._cache.exists()):
                    bundle = read_bundle(self._cache)
                    label = self._label_of(bundle.snapshot, bundle.snapshot_id)
                    self._disk_is_own = self._label() == label
                    records = bundle.accepted(claimed=self._claimed or self._disk_is_own)
                    self._disk = matching.Index(records, bundle.kernels)
                    self.snapshot = bundle.snapshot
            except Exception as error:  # a damaged file must not stop a model either
                if self.strict:
                    raise
                _log.warning("autotune: no snapshot on disk can be used (%s)", error)
        return self._disk

    def _say_once(self, subject: str, text: str) -> None:
        if subject not in self._said:
            self._said.add(subject)
            _log.warning("autotune: %s %s", subject, text)

    def _start_refresh(self) -> None:
        if self._cache is None or (self._refresh_thread and self._refresh_thread.is_alive()):
            return
        self._refresh_thread = threading.Thread(target=self._refresh_quietly, daemon=True)
        self._refresh_thread.start()

    def _refresh_quietly(self) -> None:
        try:
            self.refresh()
        except Exception as error:
            self._say_once("the snapshot", f"could not be kept on disk ({error})")

    def _beside_cache(self, ending: str) -> Path:
        assert self._cache is not None
        return self._cache.with_name(self._cache.name + ending)

    def _label_of(self, number: int | None, snapshot_id: str) -> str:
        """``snapshot_id``: empty where the service is older and says none."""
        label = f"snapshot {f'{number} {snapshot_id}'.strip()} of {self._service}"
        return label + " with what is claimed" * self._claimed

    def _label(self) -> str | None:
        try:
            there = self._cache is not None and self._cache.exists()
            return self._beside_cache(_LABEL).read_text() if there else None
        except OSError:
            return None


def _patiently(remote: Remote, body: bytes) -> bytes:
    """A service that takes no more calls in this second is asked again, while the time allows."""
    deadline, left_s = time.monotonic() + remote.timeout_s, remote.timeout_s
    busy: ServiceError | None = None
    while True:
        try:
            return remote.call("POST", "/v1/lookup", body, left_s)
        except Exception as error:
            if not _is_busy(error):
                raise busy or error from None  # too little time was left for another answer
            busy = error
        pause_s = max(0.1, busy.retry_after_s * random.uniform(1, 1.5))  # noqa: S311 (not all at once)
        if time.monotonic() + pause_s >= deadline:
            raise busy
        time.sleep(pause_s)
        left_s = max(deadline - time.monotonic(), 0.001)


def _is_busy(error: Exception) -> TypeGuard[ServiceError]:
    return isinstance(error, ServiceError) and error.status == _TOO_MANY_CALLS
