"""The tuned config of a problem, in model code, while it is traced.

    TUNED = Tuned(KERNEL, declared_in=__file__, source=BundleSource("configs.bundle"))

    def scale(x):
        problem = TUNED.problem(dtype=x.dtype, rows=x.shape[0], columns=x.shape[1])
        return KERNEL.build(problem, TUNED.config(problem))(x)

An answer for a problem stays, so that a function that is traced again gets the same config, until
``autotune.refresh``, another ``autotune.configure``, or the end of an outage. Nothing here raises
because a config is missing or a source is broken, unless it is strict: the answer is then the
kernel's default, logged once for each problem. No JAX is imported here.
"""

import logging
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from inspect import signature
from pathlib import Path
from shlex import quote
from typing import Any

from autotune.answering.generation import GENERATION
from autotune.answering.matching import DEFAULT, EXACT, KINDS, Match, MatchKind, checked_kinds
from autotune.answering.sources import ENVIRONMENT, Source, is_strict, with_settings
from autotune.declaring.calls.listening import LISTENER
from autotune.declaring.calls.text import call_text
from autotune.declaring.kernel import Axis, Kernel
from autotune.domain.arguments import problem_arguments
from autotune.domain.errors import AutotuneError, InvalidInputError
from autotune.domain.key import (
    KernelRef,
    Key,
    Toolchain,
    installed_toolchain,
    parse_chip,
    process_toolchain,
)
from autotune.domain.problem import (
    ARBITRARY,
    PARALLEL,
    AxisValue,
    Config,
    OptionValue,
    Problem,
    make_config,
)
from autotune.domain.record import Record, Times
from autotune.domain.visible import Shown
from autotune.python.fingerprint_cache import known_fingerprint
from autotune.python.verdicts import refused_by_rules
from autotune.wording.match import why
from autotune.wording.units import micros


def misfit(kernel: Kernel, problem: Problem, config: Config, chip: str) -> str | None:
    """Why not, in one sentence; None where it can: each value is a choice or the default's."""
    given, known = dict(config.axes), {axis.name: axis for axis in kernel.axes}
    if given.keys() != known.keys():
        return (
            f"it gives {', '.join(given) or 'nothing'}, the axes of the kernel are "
            f"{', '.join(known) or 'none'}"
        )
    for name, value in given.items():
        if not (
            _fits(known[name], problem, value) or _is_default(kernel, problem, chip, name, value)
        ):
            return f"{name}={value!r} is no choice of that axis for {problem}"
    refused = kernel.constraint(problem, config) if kernel.constraint else None
    return refused or _misfit_of_grid(kernel, config)


def of_another_default(
    kernel: Kernel, record: Record, times_us: Callable[[Key, Mapping[str, AxisValue]], Times]
) -> str | None:
    """Why it may be slower than the default that the kernel has now, in one sentence; None where it
    was compared with that, or the ``times_us`` of its key and these axes show that it is not. They
    are asked for only where the defaults differ."""
    key, compared = record.key, record.default.config or Config(axes=())
    known = dict(compared.axes)
    try:
        today = kernel.default_axes(key.problem, key.chip.value)
    except ImportError:  # of a package that is not here: another runs the same kernel
        return None
    if known.keys() != today.keys() or today in (known, dict(record.config.axes)):
        return None
    known_us = times_us(key, today).get(record.estimate.model)
    if known_us is not None and record.estimate.time_us <= known_us:
        return None
    time = "has no known time" if known_us is None else f"takes {micros(known_us)}"
    return f"was compared with the default {compared}; today's, {make_config(today)}, {time}"


def _fits(axis: Axis, problem: Problem, value: AxisValue) -> bool:
    """A choice, or a block that somebody has found: no longer than what it cuts. Of sequences any,
    where there is nothing to choose: the batch has none that it cuts."""
    block, choices = max(0, value) if type(value) is int else 0, list(axis.choices(problem))
    if axis.dim is not None and 0 < block <= problem[axis.dim]:
        return True
    if not choices and axis.lengths is not None:
        return block > 0
    same = [choice for choice in choices if type(choice) is type(value)]
    return value in same and not (type(value) is int and value < 0)


def _is_default(kernel: Kernel, problem: Problem, chip: str, name: str, value: AxisValue) -> bool:
    """A search tries it, even if it is no choice."""
    with suppress(ImportError):  # of a package that is not here
        default = kernel.default_axes(problem, chip)[name]
        return type(default) is type(value) and default == value
    return False


def _misfit_of_grid(kernel: Kernel, config: Config) -> str | None:
    order, semantics = config.grid_order, config.dimension_semantics
    if order and sorted(order) != sorted(kernel.grid):
        return f"its grid order {' > '.join(order)} does not name {', '.join(kernel.grid)}"
    if any(semantic not in (PARALLEL, ARBITRARY) for semantic in semantics):
        return f"its dimension semantics are {', '.join(map(str, semantics))}"
    if kernel.grid and semantics and len(semantics) != len(kernel.grid):
        return f"it has semantics for {len(semantics)} grid axes of {len(kernel.grid)}"
    limit = config.vmem_limit_bytes
    if limit is not None and (type(limit) is not int or limit <= 0):
        return f"its VMEM limit is {limit!r} bytes"
    return None


_log = logging.getLogger("autotune")

_installed = cache(installed_toolchain)  # of a process that traces it does not change
_MOST_REFUSED = 4  # records of a problem: the next one is asked for
_ASKED_AGAIN = "it is asked again in the background, and by autotune.refresh()"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TunedConfig(Shown):
    """``match``: *exact*, *toolchain*, *rule*, *nearest* or *default*; ``record``: what it
    comes from, None for a default; ``why``: one sentence."""

    config: Config
    match: str
    record: Record | None = None
    why: str = ""

    def __str__(self) -> str:
        return f"{self.config}\n  {self.match}: {self.why}"


class Tuned:
    """A kernel with the records that are published for it.

    ``declared_in`` and ``attribute``: the file that declares the kernel, and its name there: what
    was tuned from another version of that file is not taken. A relative path is beside the file
    that says it. ``source``: by default what ``autotune.configure`` or ``AUTOTUNE_SOURCE`` says.
    ``accept``: which answers are taken beside the default. ``chip``: the TPU to answer for, by
    default the one that JAX sees first. ``toolchain``: by default what is installed, with the
    compiler options of this process.
    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        declared_in: str | Path,
        source: Source | None = None,
        attribute: str = "KERNEL",
        accept: Collection[str] | None = None,
        chip: str | None = None,
        toolchain: Toolchain | None = None,
    ) -> None:
        """Raises ``InvalidInputError`` for an answer to accept that there is not."""
        beside = sys._getframe(1).f_globals.get("__file__") or ""
        path = Path(beside).absolute().parent / declared_in if beside else Path(declared_in)
        self._use(kernel, KernelRef(path=str(path), attribute=attribute))
        self.source = source
        self._accept = None if accept is None else checked_kinds(accept)
        self._chip, self._toolchain = chip, toolchain

    @classmethod
    def at(cls, kernel: Kernel, ref: KernelRef, source: Source | None = None) -> "Tuned":
        """A kernel that stands at ``ref``; without a source with what is configured."""
        made = cls.__new__(cls)
        made._use(kernel, ref)
        made.source, made._accept, made._chip, made._toolchain = source, None, None, None
        return made

    def _use(self, kernel: Kernel, ref: KernelRef) -> None:
        self.kernel, self._ref, self.spec = kernel, ref, kernel.problem_spec
        self._fingerprint = ""  # read once, at the first question
        self._answers: dict[Problem, TunedConfig] = {}
        self._generation = GENERATION.number
        self._said: set[tuple[Problem, str]] = set()
        self._lock = threading.Lock()

    def problem(self, *, dtype: Any = None, **sizes: OptionValue) -> Problem:
        """The problem with these dimensions and options; ``dtype``: its name, a NumPy dtype, or a
        type such as ``jnp.float32``.

        Raises ``InvalidInputError`` with a sentence for names and values that the kernel does not
        have: that is a mistake in the calling code.
        """
        spec = self.spec
        dims: dict[str, Any] = {name: sizes.pop(name) for name in spec.dims if name in sizes}
        return spec.problem(dims, None if dtype is None else dtype_name(dtype), sizes)

    def config(self, problem: Problem) -> Config:
        """The published config, or the kernel's default."""
        return self.answer(problem).config

    def answer(self, problem: Problem) -> TunedConfig:
        """The same for a problem until it is to be asked for again. Raises what is wrong with the
        source where that is strict."""
        listener = LISTENER.get()
        if listener is not None and not self.kernel.form:
            listener.asked(self._ref, problem)
        with self._lock:
            if self._generation != GENERATION.number:
                self._generation, self._answers = GENERATION.number, {}
            if problem not in self._answers:
                self._answers[problem] = self._look_up(problem)
            return self._answers[problem]

    def _look_up(self, problem: Problem) -> TunedConfig:
        chip, key = self._chip, None
        try:
            settings = with_settings(self.source, self._accept, chip)
            chip = settings.chip
            if settings.source is None:
                reason = f"no source is set: autotune.configure(source=…) or {ENVIRONMENT}"
                if settings.strict:
                    raise InvalidInputError(reason)
                return self._default(problem, chip, reason, logging.INFO)
            key = self._key(problem, chip)
            match, wrong, is_published = self._fitting(settings.source, key, settings.accept)
        except Exception as error:  # a broken source must not stop a model from starting
            if is_strict(self.source):
                raise
            if key is not None:  # the source has failed
                GENERATION.next_later()
            reason = f"no config can be looked up ({error_sentence(error)})"
            return self._default(problem, chip, reason)
        if not is_published:
            self._record_miss(settings.source, key, match.kind)
        if match.record is None or match.config is None:
            remedy = _ASKED_AGAIN if match.unreachable else self._remedy(key)
            return self._default(problem, chip, f"{wrong or why(match, key)}; {remedy}")
        if wrong:
            self._say(problem, logging.WARNING, "%s", wrong)
        level = logging.INFO if match.kind == EXACT else logging.WARNING
        said = why(match, key)
        self._say(problem, level, "%s takes %s, %s: %s", self, match.config, match.kind, said)
        return TunedConfig(config=match.config, match=match.kind, record=match.record, why=said)

    def _fitting(
        self, source: Source, key: Key, accept: Collection[str]
    ) -> tuple[Match, str, bool]:
        """The best answer whose config can be handed to the kernel; what is wrong with a better
        one, empty where nothing is; whether the key has a usable record of its own, accepted or
        not."""
        wrong, left, is_published = "", {*accept, EXACT}, False
        refused: list[Config] = []
        while True:
            kinds = [kind for kind in KINDS if kind in left]
            match = source.match(key, kinds, **({"without": refused} if refused else {}))
            is_published = is_published or match.kind == EXACT
            if match.kind in left and match.kind not in accept:
                left.remove(match.kind)  # only whether it is there was asked
                continue
            if match.config is None or not (bad := self._refused(source, key, match)):
                return match, wrong, is_published
            is_published = False
            wrong = f"what {source} published for it, {match.config}, {bad}"
            if match.kind not in left:  # it answers what was not asked for
                default = replace(match, kind=DEFAULT, config=None, record=None)
                return default, wrong, is_published
            is_new = match.config not in refused and len(refused) < _MOST_REFUSED
            if is_new and "without" in signature(source.match).parameters:
                refused.append(match.config)
            else:
                left.remove(match.kind)

    def _refused(self, source: Source, key: Key, match: Match) -> str:
        """Why what is published is not taken; empty where it is."""
        if match.config and (bad := misfit(self.kernel, key.problem, match.config, key.chip)):
            return f"does not fit: {bad}"
        times_us: Any = getattr(source, "times_us", lambda *_: {})
        if match.record and (slower := of_another_default(self.kernel, match.record, times_us)):
            return slower
        if match.config is None:
            return ""
        is_proven = bool(match.kind == EXACT and match.record and match.record.proves(match.config))
        is_proven = is_proven and getattr(source, "keeps_proofs", False)
        return refused_by_rules(self.kernel, key, match.config, is_proven=is_proven)

    def __str__(self) -> str:
        return f"{self.kernel.name} ({self._ref})"

    def _remedy(self, key: Key) -> str:
        if not Path(self._ref.path).is_file():  # a notebook's
            return f"search it with {self._ref.attribute}.search(…, chip={key.chip.value!r})"
        place = quote(f"{self._ref.path}:{self._ref.attribute}")
        problem, form = key.problem, self.kernel.form
        asked = f"--args {quote(call_text(form, problem))}" if form else problem_arguments(problem)
        return f"search it with `autotune search {place} {asked} --chip {key.chip}`"

    def _record_miss(self, source: Source, key: Key, kind: MatchKind) -> None:
        try:
            source.miss(key, kind)
        except Exception as error:
            _log.warning("autotune: a miss could not be recorded (%s)", error_sentence(error))

    def _default(
        self, problem: Problem, chip: str | None, reason: str, level: int = logging.WARNING
    ) -> TunedConfig:
        try:
            axes = self.kernel.default_axes(problem, _chip_name(chip))
        except ImportError:  # the kernel's package has a default of its own, and is not here
            axes = self.kernel.default_axes(problem, None)
        config = make_config(axes, grid_order=self.kernel.grid)
        self._say(problem, level, "%s takes its default, %s: %s", self, config, reason)
        return TunedConfig(config=config, match=DEFAULT, why=reason)

    def _say(self, problem: Problem, level: int, form: str, *parts: object) -> None:
        """Once of a problem, however often it is asked for again."""
        if not _log.isEnabledFor(level):
            return
        text = form % parts
        if (problem, text) not in self._said:
            self._said.add((problem, text))
            _log.log(level, "autotune: %s", text)

    def key(self, problem: Problem) -> Key:
        """What is asked for. Raises ``AutotuneError`` where no chip or toolchain is known."""
        return self._key(problem, with_settings(self.source, self._accept, self._chip).chip)

    def _key(self, problem: Problem, chip: str | None) -> Key:
        self._toolchain = self._toolchain or process_toolchain(_installed())
        if self._toolchain is None:
            raise InvalidInputError("no JAX with libtpu is installed here")
        self._fingerprint = self._fingerprint or known_fingerprint(self._ref, self.kernel.form)
        return Key(
            kernel=self.kernel.name,
            fingerprint=self._fingerprint,
            problem=problem,
            chip=parse_chip(chip or _first_device_kind()),
            toolchain=self._toolchain,
        )


def _chip_name(chip: str | None) -> str | None:
    try:
        return parse_chip(chip or _first_device_kind()).value
    except Exception:  # no TPU: what the kernel takes anywhere
        return None


def dtype_name(dtype: Any) -> str:
    """``jnp.float32`` has no name but that of its dtype; ``np.float32`` that of its class."""
    for named in (dtype, getattr(dtype, "dtype", None)):
        name = getattr(named, "name", None)
        if isinstance(name, str):
            return name
    return str(dtype.__name__ if isinstance(dtype, type) else dtype)


def _first_device_kind() -> str:
    import jax

    return str(jax.devices()[0].device_kind)


def error_sentence(error: Exception) -> str:
    return str(error) if isinstance(error, AutotuneError) else f"{type(error).__name__}: {error}"
