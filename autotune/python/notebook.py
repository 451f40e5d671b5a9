"""What the commands do, from Python: ``autotune.search``, ``estimate``, ``compare``, ``lookup``.

Each asks compiler processes of its own and leaves none behind. A kernel is a function under
``autotune.tunable``, followed by its arguments; or the name of a declaration, as on the command
line, with ``shape=``.
"""

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from autotune.domain.config import AxisValue, Config
from autotune.domain.errors import AutotuneError, InvalidInputError
from autotune.domain.job import DEFAULT_TRIALS
from autotune.domain.kernel_ref import KernelRef
from autotune.domain.problem import OptionValue, Problem
from autotune.domain.record import Record

if TYPE_CHECKING:
    from autotune.answering.sources import Source
    from autotune.compiling.pool import CompilerPool
    from autotune.declaring.calls.function import FunctionKernel
    from autotune.publishing.publish import Publication
    from autotune.python.tuned import TunedConfig
    from autotune.searching.result import SearchResult
    from autotune.searching.subject import Subject
    from autotune.wording.config_estimate import ConfigEstimate

_DESCRIBING = ("shape", "dtype", "options")  # of a declaration alone

Configs = Config | Mapping[str, AxisValue]


@runtime_checkable
class TunableFunction(Protocol):
    """What ``autotune.tunable`` makes of a function."""

    declaration: "FunctionKernel"

    def ref(self, *args: Any, **kwargs: Any) -> KernelRef:
        """Where the compiler process finds it, and such a call in words."""

    def problem(self, *args: Any, **kwargs: Any) -> Problem:
        """The key of a call."""

    def asking(self, source: "Source | None") -> "TunableFunction":
        """The same function with configs from this source."""

    def answer(self, *args: Any, **kwargs: Any) -> "TunedConfig":
        """What a call takes, and where it comes from."""


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What a search has found: ``print`` shows its table, a notebook its table and a plot.

    ``record``: what is published now, None where nothing could be.
    """

    result: "SearchResult"
    publication: "Publication"
    place: str
    ids: Mapping[int, int | None]

    @property
    def record(self) -> Record | None:
        return self.publication.record

    @property
    def config(self) -> Config | None:
        """The published one."""
        return None if self.record is None else self.record.config

    def __str__(self) -> str:
        from autotune.cli.report import report_of, report_text

        return report_text(report_of(self.result, self.publication, self.ids, self.place))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from autotune.cli.plot import trials_svg
        from autotune.cli.report import report_html, report_of

        plot = trials_svg(self.result.trials, self.publication.winner)
        report = report_of(self.result, self.publication, self.ids, self.place)
        return report_html(report) + plot


def search(
    kernel: TunableFunction | str,
    /,
    *args: Any,
    shape: str | Mapping[str, int] | None = None,
    dtype: Any = None,
    options: Mapping[str, OptionValue] | None = None,
    chip: str | None = None,
    trials: int = DEFAULT_TRIALS,
    timeout: float | None = None,
    full: bool = False,
    db: str | None = None,
    python: str | None = None,
    compilers: int = 2,
    seed: int = 0,
    method: str = "gp",
    allow_unverified: bool = False,
    start_from: Sequence[Configs] = (),
    only: Mapping[str, Sequence[AxisValue]] | None = None,
    measure: bool = True,
    quiet: bool = False,
    **arguments: Any,
) -> Tuning:
    """Find and publish the best legal config, with a bar of progress unless ``quiet``.

    ``chip``: by default the attached TPU. ``trials``: of the key, those of earlier runs included.
    ``full``: all of them, even where what was compiled predicts that nothing faster is left.
    ``start_from``: configs to try right after the default; what they do not say is the default's.
    ``only``: the values of some axes, beside those of the default.
    ``db``: where trials and records are kept, by default where the commands keep them. Raises
    ``AutotuneError``, and ``KeyboardInterrupt`` after all that is done was kept.
    """
    given = dict(locals())
    from autotune.cli.observer import ReportingObserver
    from autotune.cli.options import chip_or_attached, open_database
    from autotune.cli.progress import terminal_observer
    from autotune.domain.arguments import asked
    from autotune.publishing.timing import Timing
    from autotune.publishing.tuning import Plan, tune
    from autotune.searching.limits import SearchLimits
    from autotune.searching.one_config import config_judge
    from autotune.searching.subject import explore_space

    _refuse_doubtful(search, kernel, args, given)
    plan = Plan(
        limits=SearchLimits(trials=trials, timeout_s=timeout, full=full),
        seed=seed,
        method=method,
        allow_unverified=allow_unverified,
        timing=Timing(seed=seed, python=python or sys.executable) if measure else None,
    )
    target = chip_or_attached(chip)
    with (
        _pool(python, compilers) as pool,
        terminal_observer(silent=quiet) as terminal,
    ):
        subject = _subject(pool, kernel, args, arguments, target, shape, dtype, options)
        if start_from:
            judge = config_judge(pool, subject)
            plan = replace(plan, start_from=tuple(map(judge.complete, start_from)))
        wanted = {name: list(map(str, values)) for name, values in (only or {}).items()}
        space = explore_space(pool, subject, terminal.tracing, wanted)
        with open_database(db, create=True) as store:
            said = asked(
                subject.ref,
                subject.spec.name,
                subject.ref.call or subject.problem,
                target,
                python or sys.executable,
            )
            told = "" if subject.ref.source else said  # of a notebook, which is no file
            observer = ReportingObserver(terminal, store.searches, subject.key, told)
            result, published = tune(pool, store, subject, space, plan, observer)
            observer.end("" if only else result.stopped_by)
            if published is None:
                raise KeyboardInterrupt
            ids = {t.number: store.trial_id(subject.key, t.number) for t in result.trials}
            return Tuning(result=result, publication=published, place=str(store), ids=ids)


def estimate(
    kernel: TunableFunction | str,
    /,
    *args: Any,
    configs: Configs | Sequence[Configs] = (),
    shape: str | Mapping[str, int] | None = None,
    dtype: Any = None,
    options: Mapping[str, OptionValue] | None = None,
    chip: str | None = None,
    python: str | None = None,
    **arguments: Any,
) -> "list[ConfigEstimate]":
    """What becomes of some configs, in their order; nothing is kept or published.

    What a config does not say is the default's; without any it is the default. Raises
    ``AutotuneError``.
    """
    given = dict(locals())
    from autotune.cli.options import chip_or_attached
    from autotune.searching.one_config import config_judge
    from autotune.wording.config_estimate import ConfigEstimate

    _refuse_doubtful(estimate, kernel, args, given)
    target = chip_or_attached(chip)
    with _pool(python, 1) as pool:
        subject = _subject(pool, kernel, args, arguments, target, shape, dtype, options)
        judge = config_judge(pool, subject)
        some = [configs] if isinstance(configs, Config | Mapping) else list(configs)
        wanted = [judge.complete(one) for one in some or [judge.default]]
        return [ConfigEstimate(config=each, outcome=judge.outcome(each)) for each in wanted]


def compare(
    kernel: TunableFunction | str, /, *args: Any, configs: Sequence[Configs], **asked: Any
) -> str:
    """Why one of two configs is faster, in the words of ``autotune explain``; the rest as in
    ``estimate``. Raises ``AutotuneError`` where one of them has no estimate."""
    from autotune.domain.comparison import NamedEstimate
    from autotune.estimating.cost_model.comparison import compare as compared
    from autotune.wording.comparison import why

    if len(configs) != 2:
        raise InvalidInputError(f"two configs are compared, not {len(configs)}")
    named = []
    for found in estimate(kernel, *args, configs=configs, **asked):
        if found.estimate is None:
            raise AutotuneError(str(found))
        named.append(NamedEstimate(name=str(found.config), estimate=found.estimate))
    return why(compared(*named))


def lookup(
    kernel: TunableFunction,
    /,
    *args: Any,
    source: "str | Path | Source | None" = None,
    **arguments: Any,
) -> "TunedConfig":
    """What a call of a decorated function takes, and where it comes from. ``source``: as in
    ``autotune.configure``. Raises nothing for a config that is missing."""
    given = dict(locals())
    from autotune.answering.sources import open_source

    _refuse_doubtful(lookup, kernel, args, given)
    opened = None if source is None else open_source(source)
    return kernel.asking(opened).answer(*args, **arguments)


def _refuse_doubtful(
    command: Callable[..., Any],
    kernel: TunableFunction | str,
    args: Sequence[Any],
    given: Mapping[str, Any],
) -> None:
    """Raises ``InvalidInputError`` where an option that was given is also an argument of the
    function, which has no value yet: nobody can say which of both is meant."""
    if not isinstance(kernel, TunableFunction):
        return
    taken = kernel.declaration.signature
    placed = taken.bind_partial(*args).arguments
    for name, option in inspect.signature(command).parameters.items():
        is_ours = option.kind is not option.KEYWORD_ONLY or name in _DESCRIBING
        if not is_ours and name in taken.parameters and given[name] != option.default:
            if name in placed or name in kernel.declaration.axes:
                continue
            raise InvalidInputError(
                f"{kernel.declaration.name} has an argument {name}, which is also an option of "
                f"autotune.{command.__name__}: give the argument by its place, or search on the "
                f"command line with --args '{name}=…'"
            )


@contextmanager
def _pool(python: str | None, size: int) -> "Iterator[CompilerPool]":
    from autotune.compiling.libtpu import IN_COMPILER
    from autotune.compiling.pool import CompilerPool

    if os.environ.get(IN_COMPILER):
        raise AutotuneError(
            "the module of this kernel searches as it is imported: put that under "
            'if __name__ == "__main__":'
        )
    with CompilerPool(size, python=python or sys.executable) as pool:
        yield pool


def _subject(
    pool: "CompilerPool",
    kernel: TunableFunction | str,
    args: Sequence[Any],
    arguments: Mapping[str, Any],
    chip: Any,
    shape: str | Mapping[str, int] | None,
    dtype: Any,
    options: Mapping[str, OptionValue] | None,
) -> "Subject":
    from autotune.python.tuned import dtype_name
    from autotune.searching.subject import describe_subject

    if isinstance(kernel, TunableFunction):
        own = {"shape": shape, "dtype": dtype, "options": options}  # it may have such an argument
        own = {name: value for name, value in own.items() if value is not None}
        try:
            kernel.declaration.signature.bind_partial(**own)
        except TypeError as error:
            raise InvalidInputError(
                f"{kernel.declaration.name}: {error}: a call is described by its arguments, as in "
                'jax.ShapeDtypeStruct((256, 512), "bfloat16")'
            ) from error
        arguments = {**arguments, **own}
        ref = kernel.ref(*args, **arguments)
        problem = kernel.problem(*args, **arguments)
        return describe_subject(pool, ref, chip, lambda _: problem)
    if not isinstance(kernel, str) or args or arguments or shape is None:
        raise InvalidInputError(
            "give a function under autotune.tunable with its arguments, or the name of a "
            "declaration (matmul, path/to/file.py:NAME) with shape="
        )
    from autotune.declaring.discovery import find_kernel

    name = None if dtype is None else dtype_name(dtype)
    if isinstance(shape, str):
        words = [f"{key}={value}" for key, value in (options or {}).items()]
        text = shape
        return describe_subject(
            pool, find_kernel(kernel), chip, lambda spec: spec.problems.parse(text, name, words)
        )
    sizes = shape
    return describe_subject(
        pool,
        find_kernel(kernel),
        chip,
        lambda spec: spec.problems.problem(sizes, name, options or {}),
    )
