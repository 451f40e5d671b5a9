"""Where a model's configs come from: a service, a bundle, a database; and the one setting for it.

    autotune.configure(source="http://tuning:8700")

or ``AUTOTUNE_SOURCE`` in the environment. No JAX and no database is imported before it is needed.
"""

import hashlib
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from autotune.answering import matching
from autotune.answering.bundle import Tried, read_bundle
from autotune.answering.generation import GENERATION
from autotune.domain.errors import InvalidInputError, StoreError
from autotune.domain.folders import cache_folder
from autotune.domain.key import Key, identity_of, parse_chip
from autotune.domain.problem import AxisValue, Config
from autotune.domain.record import Times, timed_configs, times_us

if TYPE_CHECKING:
    from autotune.domain.store import Store

ENVIRONMENT = "AUTOTUNE_SOURCE"
STORES = "autotune.stores"  # the entry points of what opens a database
ACCEPT: tuple[str, ...] = matching.KINDS[:-1]  # all but *default*


class Source(Protocol):
    """Where published records come from. Both may raise: the runtime then takes the default.
    ``match`` may take a third argument ``without``, configs that cannot be taken: then it is asked
    for the next best where one is refused. A method ``lookup`` is told of the keys of a workload
    at once. ``keeps_proofs``, False where it is missing: that a
    record is *proven* is what its database says, not whoever wrote a file."""

    def match(self, key: Key, accept: Collection[str] = ACCEPT) -> matching.Match:
        """The best answer of an accepted kind, else *default*."""

    def miss(self, key: Key, kind: matching.MatchKind = matching.DEFAULT) -> None:
        """Take note of a key that has no record of its own, and got this."""


class BundleAnswers:
    """Records of a bundle file, read when the first is asked for. ``misses`` counts by key."""

    def __init__(self, path: str | Path, *, accept_claimed: bool = False) -> None:
        self._path, self._claimed = Path(path), accept_claimed
        self._index: matching.Index | None = None
        self._tried: Tried = {}
        self._generation = GENERATION.number
        self.misses: dict[Key, int] = {}

    def __str__(self) -> str:
        return str(self._path)

    def match(
        self, key: Key, accept: Collection[str] = ACCEPT, without: Collection[Config] = ()
    ) -> matching.Match:
        """Raises ``InvalidInputError`` for a file that cannot be read."""
        if self._index is None or self._generation != GENERATION.number:
            generation, bundle = GENERATION.number, read_bundle(self._path)
            accepted = bundle.accepted(claimed=self._claimed)
            claims = {record.key for record in bundle.records} - {r.key for r in accepted}
            self._index = matching.Index(accepted, bundle.kernels, claims)
            self._generation, self._tried = generation, bundle.tried
        return self._index.match(key, accept, without)

    def times_us(self, key: Key, axes: Mapping[str, AxisValue]) -> Times:
        """What its database knew when it was written."""
        return times_us(self._tried.get(identity_of(key), ()), axes)

    def miss(self, key: Key, kind: matching.MatchKind = matching.DEFAULT) -> None:  # noqa: ARG002
        self.misses[key] = self.misses.get(key, 0) + 1


class StoreAnswers:
    """Records of a database, such as ``autotune_db.open_store(url)``; it keeps the misses."""

    keeps_proofs = True

    def __init__(self, store: "Store", *, accept_claimed: bool = False) -> None:
        self._store, self._claimed = store, accept_claimed

    def __str__(self) -> str:
        return str(self._store)

    def match(
        self, key: Key, accept: Collection[str] = ACCEPT, without: Collection[Config] = ()
    ) -> matching.Match:
        return matching.match_in(self._store, key, accept, without, claimed=self._claimed)

    def times_us(self, key: Key, axes: Mapping[str, AxisValue]) -> Times:
        """What was tried for exactly this key with these axes: a source may know it."""
        return times_us(timed_configs(self._store.trials(key)), axes)

    def miss(self, key: Key, kind: matching.MatchKind = matching.DEFAULT) -> None:
        self._store.save_misses({(key, kind): 1})


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """What ``configure`` has set. ``chip``: None is the one that JAX sees first. ``strict``: a
    config that cannot be looked up is an error, not the default."""

    source: Source | None = None
    accept: tuple[str, ...] = ACCEPT
    chip: str | None = None
    strict: bool = False


_settings: SourceSettings | None = None


def configure(
    source: "str | Path | Source | None" = None,
    *,
    accept: Collection[str] = ACCEPT,
    chip: str | None = None,
    strict: bool = False,
    accept_claimed: bool = False,
) -> None:
    """Say where the configs of this process come from, at any time: what is traced from now on asks
    there, what JAX has compiled keeps its blocks.

    ``source``: the URL of a service, a bundle file, a database (its URL or file), or an object like
    ``Client``; None: what ``AUTOTUNE_SOURCE`` says. The last snapshot of a service at a URL is kept
    under ``~/.cache/pallas-autotune`` (``XDG_CACHE_HOME``), and answers while the service is down.
    ``accept``: which answers are taken beside the kernel's default. ``chip``: the TPU to answer
    for, by default the one that JAX sees first. ``strict``: a call whose config cannot be looked up
    raises what was wrong; where nothing is published, the default is right. ``accept_claimed``: a
    source at a URL or path also answers with what nobody but who pushed it has verified.
    Raises ``InvalidInputError`` for what is none of these, ``UnknownNameError`` for another chip.
    """
    global _settings
    if chip:
        parse_chip(chip)  # a wrong name is refused now, not when a kernel is called
    kinds = matching.checked_kinds(accept)
    for name, flag in (("strict", strict), ("accept_claimed", accept_claimed)):
        if not isinstance(flag, bool):
            raise InvalidInputError(f"{name}={flag!r}: give True or False")
    opened = _opened(source, accept_claimed=accept_claimed, strict=strict)
    _settings = SourceSettings(source=opened, accept=kinds, chip=chip, strict=strict)
    GENERATION.next()


def refresh() -> None:
    """Have every problem that is traced from now on asked for again, of the service or file as it
    is then. What JAX has compiled keeps its blocks: ``jax.clear_caches()`` has it traced again."""
    GENERATION.next()


def is_strict(source: Source | None) -> bool:
    """Whether a question to this source, or to the configured one, must be answered or raise."""
    configured = _settings or SourceSettings()
    asked = configured.source if source is None else source
    return configured.strict or bool(getattr(asked, "strict", False))


def settings() -> SourceSettings:
    """What was configured, else what the environment says. Raises ``InvalidInputError`` as
    ``configure`` does."""
    global _settings
    if _settings is None:
        _settings = SourceSettings(source=_opened(None))
    return _settings


def _opened(source: "str | Path | Source | None", **how: bool) -> Source | None:
    given = os.environ.get(ENVIRONMENT, "") if source is None else source
    return None if given == "" else open_source(given, **how)


def _snapshot_file(url: str) -> Path | None:
    """Where the last snapshot of a service is kept."""
    folder = cache_folder()
    return folder and folder / f"{hashlib.sha256(url.encode()).hexdigest()[:12]}.bundle"


def open_source(
    source: "str | Path | Source", *, accept_claimed: bool = False, strict: bool = False
) -> Source:
    """The service, bundle or database at a URL or path; an object as it is. Raises
    ``AutotuneError``."""
    if not isinstance(source, str | Path):
        if not callable(getattr(source, "match", None)):
            raise InvalidInputError(
                f"source={source!r} answers nothing: give the URL of a service, a bundle file, a "
                "database, or an object with the methods match and miss, such as autotune.Client"
            )
        return source
    place = str(source)
    if place.startswith(("http://", "https://")):
        from autotune.answering.client import ServiceAnswers  # a bundle needs no network

        cache = _snapshot_file(place + " claimed" * accept_claimed)
        return ServiceAnswers(place, cache=cache, strict=strict, accept_claimed=accept_claimed)
    if "://" not in place and not _is_sqlite(Path(place)):
        path = Path(place)
        if not path.is_file():
            raise InvalidInputError(
                f"there is no file {path.absolute()}: a source is the URL of a service, a bundle "
                "that `autotune export` wrote, or a database"
            )
        return BundleAnswers(path, accept_claimed=accept_claimed)
    return StoreAnswers(_open_database(place), accept_claimed=accept_claimed)


def _open_database(place: str) -> "Store":
    """By the installed package that keeps databases, which the engine does not know."""
    from importlib.metadata import entry_points  # a bundle and a service start without

    openers = tuple(entry_points(group=STORES, name="database"))
    if not openers:  # an editable install of before this entry point existed
        raise StoreError(
            f"no installed package declares the entry point {STORES}, which opens databases: "
            "install pallas-autotune again"
        )
    store: Store = openers[0].load()(place)
    return store


def _is_sqlite(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(15) == b"SQLite format 3"
    except OSError:
        return False


def with_settings(
    source: Source | None, accept: Collection[str] | None, chip: str | None
) -> SourceSettings:
    """What a caller has said for itself in the place of what is configured."""
    # what the environment says may not open, and is not asked for beside a source
    configured = (
        settings() if source is None else replace(_settings or SourceSettings(), source=source)
    )
    if accept is None and not chip:
        return configured
    return replace(
        configured,
        accept=configured.accept if accept is None else matching.checked_kinds(accept),
        chip=chip or configured.chip,
    )
