"""Which published record answers a question: *exact*, *toolchain*, *rule*,
*nearest*, or *default*.

Pure functions of the records of one snapshot: the same question has the same answer for ever, in
the service and in the client that holds the snapshot. What cannot be shown to be legal and within
VMEM by arithmetic is not offered.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from autotune.answering.layered import Layered
from autotune.answering.nearest_shape import BySize, Cuts, by_size, nearest
from autotune.answering.nearest_toolchain import nearest_toolchain
from autotune.domain.compiler_options import vmem_limit_bytes
from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Identity, KernelSpec, Key, Toolchain, identity_of
from autotune.domain.problem import Config, Problem
from autotune.domain.record import Change, Record, RecordCheck

if TYPE_CHECKING:
    from autotune.answering.rule_answers import AskedRule
    from autotune.domain.store import Store


class MatchKind(StrEnum):
    """How an answer fits the question, the best first."""

    EXACT = "exact"
    TOOLCHAIN = "toolchain"
    RULE = "rule"
    NEAREST = "nearest"
    DEFAULT = "default"


EXACT, TOOLCHAIN, RULE, NEAREST, DEFAULT = KINDS = tuple(MatchKind)

_Group = tuple[Any, ...]
_Groups = Layered[_Group, dict[Identity, Record]]

_LEAST_LIMIT_BYTES = 16 << 20  # of all chips, without options, for a kernel that asks for none


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """``config`` and ``record`` are None for *default*: the kernel's own default is meant then,
    which only its declaration knows. ``why``: the sentence of a service; empty for what was matched
    here (``autotune.wording.match.why`` makes it). ``check``: what is known of the config under the
    toolchain that was asked for, where it was tuned with another one. Of *rule* the ``record`` is
    the one that carries it, and the ``expected_regret`` its median one; where that
    has no rule, its blocks are made to fit.

    ``passed_over``: a record that is nearer, and known not to work there. Of *default*:
    ``not_accepted``, the kind of a better answer; ``earlier``, what is published for an earlier
    source of the kernel. ``has_claim``: a claimed record is for exactly what was asked, and claims
    are not accepted. ``unreachable``: why the service could not be asked, of an answer from
    disk."""

    kind: MatchKind
    config: Config | None
    record: Record | None
    why: str = ""
    check: RecordCheck | None = None
    expected_regret: float | None = None
    passed_over: Record | None = None
    not_accepted: MatchKind | None = None
    earlier: Record | None = None
    has_claim: bool = False
    unreachable: str = ""


class Index:
    """The records of one snapshot, one for each key, ready to be asked. Never changes."""

    def __init__(
        self,
        records: Iterable[Record] = (),
        kernels: Iterable[KernelSpec] = (),
        claims: Iterable[Key] = (),
    ) -> None:
        """``claims``: keys that have claimed records only, which answer nobody here."""
        self._claims = frozenset(map(identity_of, claims))
        self.kernels = {(spec.name, spec.fingerprint): spec for spec in kernels}
        self._exact: Layered[Identity, Record] = Layered()
        self._toolchains: _Groups = Layered()
        self._shapes: _Groups = Layered()
        self._rules: _Groups = Layered()
        self._by_size: dict[_Group, BySize] = {}  # of the groups that were asked for
        self._choosers: dict[_Group, AskedRule | None] = {}  # of these, too
        self._change(records, ())

    def changed(self, change: Change, kernels: Iterable[KernelSpec]) -> "Index":
        """Another index, with the records in the place of those of the same keys."""
        new = Index(kernels=(*self.kernels.values(), *kernels))
        new._exact, new._toolchains, new._shapes = self._exact, self._toolchains, self._shapes
        new._rules = self._rules
        claims = {identity_of(key): is_claimed for key, is_claimed in change.claims.items()}
        new._claims = self._claims - claims.keys() | {of for of in claims if claims[of]}
        new._change(change.records, change.removed)
        return new

    def __len__(self) -> int:
        return len(self._exact)

    def __iter__(self) -> Iterator[Record]:
        return self._exact.values()

    def exact(self, key: Key) -> Record | None:
        return self._exact.get(identity_of(key))

    def has_claim(self, key: Key) -> bool:
        """Whether a claimed record is there for exactly this key, and no proven one."""
        return identity_of(key) in self._claims

    def match(
        self, key: Key, accept: Collection[str] = KINDS, without: Collection[Config] = ()
    ) -> Match:
        """The best answer of an accepted kind, in the order of the words above. ``without``:
        configs that whoever asks cannot take."""
        key = self._as_declared(key)
        match = self._match(key, identity_of(key), accept, without)
        return replace(match, has_claim=self.has_claim(key)) if self._claims else match

    def _match(
        self, key: Key, asked: Identity, accept: Collection[str], without: Collection[Config]
    ) -> Match:
        record = self._exact.get(asked)
        if record is not None and EXACT in accept and record.config not in without:
            return exact_match(record)
        others = [
            any_version for any_version in self._any_versions(asked) if any_version is not record
        ]
        broken = [other for other in others if _is_unusable(other, key.toolchain)]
        unusable = {*without, *(other.config for other in broken)}
        inexact = self._inexact(key, asked, others, unusable, accept)
        if inexact is None and len(beside_default(accept)) < len(KINDS) - 1:
            best = self.match(key, KINDS, without)
            if best.kind != DEFAULT:
                return default_match(not_accepted=best.kind)
        if not broken:
            return inexact or default_match(earlier=self._earlier(key, asked))
        nearer = nearest_toolchain(key.toolchain, broken)
        return replace(inexact or default_match(), passed_over=nearer)

    def _earlier(self, key: Key, asked: Identity) -> Record | None:
        """The last that was published for another source of the kernel."""
        earlier = [
            record
            for name, version in self.kernels
            if name == key.kernel and version != key.fingerprint
            for record in self._any_versions(asked._replace(fingerprint=version))
        ]
        return max(earlier, key=lambda record: record.created_at, default=None)

    def _any_versions(self, identity: Identity) -> Iterable[Record]:
        return (self._toolchains.get(_any_toolchain(identity)) or {}).values()

    def _inexact(
        self,
        key: Key,
        asked: Identity,
        others: Sequence[Record],
        broken: Collection[Config],
        accept: Collection[str],
    ) -> Match | None:
        """``broken``: configs that do not work for this problem there, whoever's."""
        usable = [other for other in others if other.config not in broken]
        if usable and TOOLCHAIN in accept:
            record = nearest_toolchain(key.toolchain, usable)
            return _match(TOOLCHAIN, record, record.check(key.toolchain))
        by_rule = self._by_rule(key.problem, asked) if RULE in accept else None
        if by_rule is not None and by_rule.config not in broken:
            return by_rule
        near = self._near(key, asked, broken) if {NEAREST, RULE} & {*accept} else {}
        return next(
            (near[kind] for kind in (NEAREST, RULE) if kind in near and kind in accept), None
        )

    def _by_rule(self, problem: Problem, asked: Identity) -> Match | None:
        """By the newest rule of the kernel there."""
        group = any_problem(asked)
        carriers = self._rules.get(group)
        if not carriers:
            return None
        if group not in self._choosers:
            from autotune.answering.rule_answers import newest_rule  # few models need one

            self._choosers[group] = newest_rule(carriers.values())
        chooser = self._choosers[group]
        config = chooser and chooser.config(problem)
        if not chooser or config is None:
            return None
        return Match(
            kind=RULE,
            config=config,
            record=chooser.record,
            expected_regret=chooser.rule.median_regret,
        )

    def _near(
        self, key: Key, asked: Identity, broken: Collection[Config]
    ) -> dict[MatchKind, Match]:
        """Of another shape. *Rule*: with other blocks."""
        cuts = self._cuts(key)
        if not cuts:
            return {}
        group = _any_shape(asked, cuts)
        if group not in self._by_size:
            self._by_size[group] = by_size((self._shapes.get(group) or {}).values())
        best = nearest(key.problem, self._by_size[group], cuts, broken)
        kinds = {kind: best[kind is RULE] for kind in (NEAREST, RULE) if (kind is RULE) in best}
        return {
            kind: Match(kind=kind, config=config, record=record)
            for kind, (record, config) in kinds.items()
        }

    def _as_declared(self, key: Key) -> Key:
        """In the spelling of its kernel, where that is known and takes such a problem."""
        spec = self.kernels.get((key.kernel, key.fingerprint))
        try:
            return key.declared(spec.problems) if spec else key
        except InvalidInputError:
            return key

    def _cuts(self, key: Key) -> Cuts:
        spec = self.kernels.get((key.kernel, key.fingerprint))
        return spec.cuts if spec else ()

    def _change(self, records: Iterable[Record], removed: Iterable[Key]) -> None:
        put = {identity_of(record.key): record for record in records}
        gone = {identity_of(key): key for key in removed}
        self._exact = self._exact.changed(put, gone)
        self._toolchains = _regroup(
            self._toolchains, put, gone, lambda identity, _: _any_toolchain(identity)
        )
        self._shapes = _regroup(self._shapes, put, gone, self._shape_group)
        ruled = {identity: record for identity, record in put.items() if record.rule is not None}
        if not ruled and not len(self._rules):
            return
        old = gone | {identity: record.key for identity, record in put.items()}
        self._rules = _regroup(self._rules, ruled, old, partial(self._rule_group, ruled))

    def _rule_group(
        self, ruled: Mapping[Identity, Record], identity: Identity, _: Key
    ) -> _Group | None:
        """None where no record has, or had, a rule."""
        group = any_problem(identity)
        return group if identity in ruled or self._rules.get(group) else None

    def _shape_group(self, identity: Identity, key: Key) -> _Group | None:
        """None: no other shape is ever offered for this kernel."""
        cuts = self._cuts(key)
        return _any_shape(identity, cuts) if cuts else None


def beside_default(accept: Collection[str]) -> frozenset[str]:
    """*default* is always an answer."""
    return frozenset(accept) - {DEFAULT}


def checked_kinds(accept: Collection[str]) -> tuple[str, ...]:
    """Raises ``InvalidInputError`` for one that there is not."""
    given = (accept,) if isinstance(accept, str) else tuple(accept)
    for kind in given:
        if kind not in KINDS:
            raise InvalidInputError(f"accept={kind!r}: choose among {', '.join(KINDS[:-1])}")
    return given


def exact_match(record: Record) -> Match:
    """The answer to what a record was published for."""
    return _match(EXACT, record)


def match_in(
    store: "Store",
    key: Key,
    accept: Collection[str] = KINDS,
    without: Collection[Config] = (),
    *,
    claimed: bool = False,
) -> Match:
    """From the newest snapshot of a database. Raises ``StoreError``."""
    exact = store.record(key, claimed=claimed)
    if exact is not None and EXACT in accept and exact.config not in without:
        return exact_match(exact)
    records = store.records(key.kernel, key.chip, claimed=claimed)
    claims = () if claimed or exact or store.record(key, claimed=True) is None else (key,)
    return Index(records, store.kernels(), claims).match(key, accept, without)


def _is_unusable(record: Record, toolchain: Toolchain) -> bool:
    """Known not to work there; or, where nobody has checked, not known to fit into its VMEM."""
    known = record.check(toolchain)
    if known is not None:
        return not known.verdict.is_usable
    tuned, asked = (
        vmem_limit_bytes(options) or _LEAST_LIMIT_BYTES
        for options in (record.key.toolchain.options, toolchain.options)
    )
    is_lower = asked < tuned and record.config.vmem_limit_bytes is None
    return is_lower and record.estimate.vmem_used_bytes > asked


def _any_toolchain(identity: Identity) -> _Group:
    return identity._replace(toolchain=("", "", "", ""))


def any_problem(identity: Identity) -> Identity:
    """Of the same dtype and options: what one rule is of."""
    return identity._replace(dims=())


def _any_shape(identity: Identity, cuts: Cuts) -> _Group:
    """Without the sizes of dimensions that are cut; all others must be equal anyway."""
    cut = {dim for _, dim in cuts}
    dims = tuple((name, 0 if name in cut else size) for name, size in identity.dims)
    return identity._replace(dims=dims)


def _regroup(
    groups: _Groups,
    put: Mapping[Identity, Record],
    gone: Mapping[Identity, Key],
    name_of: Callable[[Identity, Key], _Group | None],
) -> _Groups:
    """``name_of``: of the group that a key stands in, if it stands in one."""
    fresh: dict[_Group, dict[Identity, Record]] = {}

    def group(identity: Identity, key: Key) -> dict[Identity, Record]:
        name = name_of(identity, key)
        if name is None:
            return {}
        if name not in fresh:
            fresh[name] = dict(groups.get(name) or {})
        return fresh[name]

    for identity, key in gone.items():
        group(identity, key).pop(identity, None)
    for identity, record in put.items():
        group(identity, record.key)[identity] = record
    return groups.changed(fresh)


def _match(kind: MatchKind, record: Record, check: RecordCheck | None = None) -> Match:
    return Match(kind=kind, config=record.config, record=record, check=check)


def default_match(
    *, why: str = "", not_accepted: MatchKind | None = None, earlier: Record | None = None
) -> Match:
    return Match(
        kind=DEFAULT, config=None, record=None, why=why, not_accepted=not_accepted, earlier=earlier
    )
