"""What the commands do, from Python: ``autotune.search``, ``estimate``, ``step``, ``lookup`` ….

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
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from autotune.answering.sources import Source, open_source
from autotune.compiling.limits import CANDIDATE_LIMIT_S
from autotune.declaring.calls.function import abstract
from autotune.declaring.calls.place import place_of
from autotune.declaring.calls.text import arguments_text
from autotune.domain.arguments import ProblemWords
from autotune.domain.compiler_options import canonical, over, process_options, value_text
from autotune.domain.errors import AutotuneError, InvalidInputError
from autotune.domain.job import DEFAULT_TRIALS
from autotune.domain.key import KernelRef
from autotune.domain.problem import AxisValue, Config, OptionValue, Problem
from autotune.domain.record import Record
from autotune.python.decorator import Tunable, decorated
from autotune.python.tuned import TunedConfig, dtype_name
from autotune.wording.outcome import ConfigEstimate, ConfigEstimates, reason_of

if TYPE_CHECKING:
    from autotune.compiling.pool import CompilerPool
    from autotune.domain.step import Step
    from autotune.publishing.publish import Publication
    from autotune.publishing.task import TuningResult
    from autotune.wording.profile import Profiles

P = ParamSpec("P")
R = TypeVar("R")

_DESCRIBING = ("shape", "dtype", "options")  # of a declaration alone

Configs = Config | Mapping[str, AxisValue]


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What a search has found: ``print`` shows its table, a notebook its table and a plot.

    ``record``: what is published now, None where nothing could be.
    """

    result: "TuningResult"
    publication: "Publication"
    place: str
    ids: Mapping[int, int]

    @property
    def record(self) -> Record | None:
        return self.publication.record

    @property
    def config(self) -> Config | None:
        """The published one."""
        return None if self.record is None else self.record.config

    def __str__(self) -> str:
        from autotune.wording.report import report_text

        return report_text(self.result)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from autotune.wording.plot import trials_svg
        from autotune.wording.report import report_html

        plot = trials_svg(self.result.trials, self.publication.winner)
        return report_html(self.result) + plot


def _apart(command: Callable[P, R]) -> Callable[P, R]:
    """A decorator: refuses an option that is also an argument of the kernel's function, which has
    no value yet: nobody can say which of both is meant. Raises ``InvalidInputError``."""
    options = {
        name: parameter.default
        for name, parameter in inspect.signature(command).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and name not in _DESCRIBING
    }

    @wraps(command)
    def checked(*args: P.args, **given: P.kwargs) -> R:
        kernel, *placed = args or (None,)
        if isinstance(kernel, Tunable):
            function = kernel.declaration.signature
            known = {*function.bind_partial(*placed).arguments, *kernel.declaration.axes}
            for name in options.keys() & function.parameters.keys() & given.keys() - known:
                if given[name] != options[name]:
                    raise InvalidInputError(
                        f"{kernel.declaration.name} has an argument {name}, which is also an "
                        f"option of autotune.{command.__name__}: give the argument by its place, "
                        f"or search on the command line with --args '{name}=…'"
                    )
        return command(*args, **given)

    return checked


@_apart
def search(
    kernel: Tunable[..., Any] | str,
    /,
    *args: Any,
    shape: str | int | Mapping[str, int] | Sequence[int] | None = None,
    dtype: Any = None,
    options: Mapping[str, OptionValue] | None = None,
    chip: str | None = None,
    trials: int = DEFAULT_TRIALS,
    timeout: float | None = None,
    full: bool = False,
    db: str | None = None,
    python: str | None = None,
    compiler_options: Mapping[str, object] | None = None,
    compilers: int = 2,
    seed: int = 0,
    method: str = "gp",
    allow_unverified: bool = False,
    start_from: Sequence[Configs] = (),
    only: Mapping[str, Sequence[AxisValue]] | None = None,
    tune_compiler_options: Mapping[str, Sequence[object]] | None = None,
    measure: bool = True,
    quiet: bool = False,
    **arguments: Any,
) -> Tuning:
    """Find and publish the best legal config, with a bar of progress unless ``quiet``.

    ``chip``: by default the attached TPU. ``trials``: of the key, those of earlier runs included.
    ``full``: all of them, even where what was compiled predicts that nothing faster is left.
    ``start_from``: configs to try right after the default; what they do not say is the default's.
    ``only``: the values of some axes, beside those of the default.
    ``compiler_options``: as ``jax.jit`` takes them, over those of this process;
    ``tune_compiler_options``: values of some that are searched as well, beside none of them.
    ``db``: where trials and records are kept, by default where the commands keep them. Raises
    ``AutotuneError``, and ``KeyboardInterrupt`` after all that is done was kept.
    """
    from autotune.measuring.attached import chip_or_attached
    from autotune.publishing.task import Plan, Timing, TuningTask
    from autotune.publishing.tuning import tune_one
    from autotune.searching.subject import SearchLimits
    from autotune.wording.bars import terminal_observer
    from autotune_db import open_store

    plan = Plan(
        limits=SearchLimits(trials=trials, timeout_s=timeout, full=full),
        seed=seed,
        method=method,
        allow_unverified=allow_unverified,
        timing=Timing() if measure else None,
        python=python or sys.executable,
        options=_options(compiler_options),
    )
    target = chip_or_attached(chip)
    ref, problem = _problem(kernel, args, arguments, shape, dtype, options)
    task = TuningTask(
        ref=ref,
        chip=target,
        problem=problem,
        start_from=tuple(start_from),
        only={name: list(map(str, values)) for name, values in (only or {}).items()},
        tuned_options={
            name: list(map(value_text, values))
            for name, values in (tune_compiler_options or {}).items()
        },
    )
    with terminal_observer(silent=quiet) as observer:
        new_compilers = partial(_pool, python, compilers, plan.options)
        tuned = tune_one(new_compilers, partial(open_store, db), task, plan, observer)
    if tuned.publication is None:
        raise KeyboardInterrupt
    return Tuning(
        result=tuned, publication=tuned.publication, place=tuned.place, ids=dict(tuned.ids)
    )


@_apart
def estimate(
    kernel: Tunable[..., Any] | str,
    /,
    *args: Any,
    configs: Configs | Sequence[Configs] = (),
    shape: str | int | Mapping[str, int] | Sequence[int] | None = None,
    dtype: Any = None,
    options: Mapping[str, OptionValue] | None = None,
    chip: str | None = None,
    python: str | None = None,
    compiler_options: Mapping[str, object] | None = None,
    **arguments: Any,
) -> "list[ConfigEstimate]":
    """What becomes of some configs, in their order; nothing is kept or published.

    What a config does not say is the default's; without any it is the default. Raises
    ``AutotuneError``.
    """
    from autotune.measuring.attached import chip_or_attached
    from autotune.searching.one_config import config_judge
    from autotune.searching.subject import describe_subject

    target = chip_or_attached(chip)
    ref, problem = _problem(kernel, args, arguments, shape, dtype, options)
    given = [configs] if isinstance(configs, Config | Mapping) else list(configs)
    with _pool(python, 1, _options(compiler_options)) as pool:
        judge = config_judge(pool, describe_subject(pool, ref, target, problem))
        wanted = [judge.complete(config) for config in given or [judge.default]]
        return ConfigEstimates(
            ConfigEstimate(config=each, outcome=judge.outcome(each)) for each in wanted
        )


@_apart
def profile(
    kernel: Callable[..., Any] | str,
    /,
    *args: Any,
    configs: Configs | Sequence[Configs] = (),
    shape: str | int | Mapping[str, int] | Sequence[int] | None = None,
    dtype: Any = None,
    options: Mapping[str, OptionValue] | None = None,
    chip: str | None = None,
    python: str | None = None,
    compiler_options: Mapping[str, object] | None = None,
    **arguments: Any,
) -> "Profiles":
    """Which lines of the source the time of some configs goes to: ``print`` shows a table, a
    notebook beside each line when it is busy in one grid step.

    ``kernel``: any function that makes a ``pallas_call`` as well, followed by its arguments. The
    rest is as in ``estimate``. Raises ``AutotuneError``.
    """
    from autotune.domain.compilers import DescribeChip
    from autotune.measuring.attached import chip_or_attached
    from autotune.searching.profiles import STEPS, ask_profiles
    from autotune.wording.profile import Profiles, config_profile

    target, asked = chip_or_attached(chip), None
    if isinstance(kernel, Tunable | str):
        ref, asked = _problem(kernel, args, arguments, shape, dtype, options)
    else:
        ref = _called(kernel, args, arguments, contents=True)
    given = [configs] if isinstance(configs, Config | Mapping) else list(configs)
    with _pool(python, 1, _options(compiler_options)) as pool:
        answers = ask_profiles(
            *(pool, ref, target, asked),
            lambda judge: map(judge.complete, given or [judge.default]),
            STEPS,
        )
        info = pool.ask(DescribeChip(chip=target, options=_options(compiler_options)))
    return Profiles(config_profile(name, answer, info) for name, answer in answers.items())


def compare(
    kernel: Tunable[..., Any] | str, /, *args: Any, configs: Sequence[Configs], **asked: Any
) -> str:
    """Why one of two configs is faster, in the words of ``autotune explain``; the rest as in
    ``estimate``. Raises ``AutotuneError`` where one of them has no estimate."""
    from autotune.domain.comparison import NamedEstimate
    from autotune.domain.comparison import compare as compared
    from autotune.wording.facts import why

    if len(configs) != 2:
        raise InvalidInputError(f"two configs are compared, not {len(configs)}")
    named = []
    for judged in estimate(kernel, *args, configs=configs, **asked):
        if judged.estimate is None:
            raise AutotuneError(str(judged))
        named.append(NamedEstimate(name=f"config {judged.config}", estimate=judged.estimate))
    return why(compared(*named))


@_apart
def lookup(
    kernel: Tunable[..., Any],
    /,
    *args: Any,
    source: "str | Path | Source | None" = None,
    **arguments: Any,
) -> "TunedConfig":
    """What a call of a decorated function takes, and where it comes from. ``source``: as in
    ``autotune.configure``. Raises nothing for a config that is missing."""
    opened = None if source is None else open_source(source)
    return decorated(kernel).asking(opened).answer(*args, **arguments)


def step(
    function: Callable[..., Any] | str,
    /,
    *args: Any,
    chip: str | None = None,
    topology: str = "",
    tokens: int = 0,
    budget: float = 300.0,
    python: str | None = None,
    compiler_options: Mapping[str, object] | None = None,
    **arguments: Any,
) -> "Step":
    """What a step of a whole model takes, as `autotune step` says it.

    ``function``: at the top of a module, jitted or not, with its arguments, whose arrays may be
    ``jax.ShapeDtypeStruct``; or the text ``path/to/model.py:NAME`` with the text of ``--args``,
    which can name trees with shardings. ``topology``: chips along each axis of a slice, as in
    ``2x4``; ``tokens``: of a step, on all devices; ``budget``: seconds. Raises ``AutotuneError``.
    """
    from autotune.domain.compilers import CompileStep
    from autotune.domain.step import Step, slice_bounds
    from autotune.measuring.attached import chip_or_attached
    from autotune.publishing.step import LIMIT_AFTER_S, timed_step

    question = CompileStep(
        ref=_called(function, args, arguments),
        chip=chip_or_attached(chip),
        bounds=slice_bounds(topology),
        budget_s=budget,
    )
    limit_s = budget + LIMIT_AFTER_S
    with _pool(python, 1, _options(compiler_options), limit_s=limit_s) as pool:
        timed = timed_step(pool, question, tokens)
    if not isinstance(timed, Step):
        raise AutotuneError(reason_of(timed))
    return timed


def _called(
    function: Callable[..., Any] | str,
    args: Sequence[Any],
    arguments: Mapping[str, Any],
    *,
    contents: bool = False,
) -> KernelRef:
    """Where a function is, and such a call of it, with the ``contents`` of its integers. Raises
    ``InvalidInputError`` where nobody else can find it."""
    from autotune.declaring.discovery import find_kernel

    if isinstance(function, str):
        return replace(find_kernel(function), call=", ".join(args))
    given = inspect.signature(function).bind(*args, **arguments).arguments
    plain = inspect.unwrap(function)
    home = vars(sys.modules[plain.__module__])
    name = next((n for n, value in home.items() if value is function), plain.__qualname__)
    text = arguments_text(abstract(dict(given), contents=contents), plain.__module__)
    file = inspect.getsourcefile(plain) or ""
    return replace(place_of(name, plain.__module__, file), call=text)


@contextmanager
def _pool(
    python: str | None, size: int, options: str, limit_s: float = CANDIDATE_LIMIT_S
) -> "Iterator[CompilerPool]":
    from autotune.compiling.libtpu import IN_COMPILER
    from autotune.compiling.pool import CompilerPool

    if os.environ.get(IN_COMPILER):
        raise AutotuneError(
            "the module of this kernel searches as it is imported: put that under "
            'if __name__ == "__main__":'
        )
    python = python or sys.executable
    with CompilerPool(size, python=python, options=options, limit_s=limit_s) as pool:
        yield pool


def _options(given: Mapping[str, object] | None) -> str:
    """Over those of this process."""
    return over(canonical(process_options(os.environ)), given or {})


def _problem(
    kernel: Tunable[..., Any] | str,
    args: Sequence[Any],
    arguments: Mapping[str, Any],
    shape: str | int | Mapping[str, int] | Sequence[int] | None,
    dtype: Any,
    options: Mapping[str, OptionValue] | None,
) -> "tuple[KernelRef, Problem | ProblemWords]":
    """Where the kernel is, and its problem. Raises ``InvalidInputError``."""
    from autotune.declaring.discovery import find_kernel

    if isinstance(kernel, Tunable):
        described = {"shape": shape, "dtype": dtype, "options": options}  # it may have such
        described = {name: value for name, value in described.items() if value is not None}
        try:
            kernel.declaration.signature.bind_partial(**described)
        except TypeError as error:
            raise InvalidInputError(
                f"{kernel.declaration.name}: {error}: a call is described by its arguments, as in "
                'jax.ShapeDtypeStruct((256, 512), "bfloat16")'
            ) from error
        arguments = {**arguments, **described}
        return kernel.ref(*args, **arguments), kernel.problem(*args, **arguments)
    if not isinstance(kernel, str) or args or arguments or shape is None:
        options_given = arguments if isinstance(kernel, str) else ()
        unknown = "".join(f"there is no option {name}: " for name in options_given)
        raise InvalidInputError(
            f"{unknown}give a function under autotune.tunable with its arguments, or the name of a "
            "declaration (matmul, path/to/file.py:NAME) with shape="
        )
    if isinstance(shape, Mapping):
        shape = ",".join(f"{name}={size}" for name, size in shape.items())
    elif not isinstance(shape, str):
        shape = str(shape) if isinstance(shape, int) else "x".join(map(str, shape))
    return find_kernel(kernel), ProblemWords(
        shape=shape,
        dtype="" if dtype is None else dtype_name(dtype),
        options=tuple(f"{name}={value}" for name, value in (options or {}).items()),
    )
