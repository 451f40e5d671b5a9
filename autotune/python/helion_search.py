"""Helion's own search without a TPU: it gets estimates where it would measure.

A compiler process imports the kernel and calls its ``jax_fn`` with each config. Nothing runs: a
config with another result is not noticed. Helion's cache of configs, which knows no chip but the
attached one, is left alone.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache, partial
from inspect import signature
from math import inf
from pathlib import Path
from typing import Any

from autotune.declaring.calls.function import abstract
from autotune.declaring.calls.place import place_of
from autotune.declaring.calls.text import arguments_text
from autotune.domain.arguments import ProblemWords
from autotune.domain.errors import AutotuneError, InvalidInputError
from autotune.domain.key import Chip, KernelRef
from autotune.measuring.attached import chip_or_attached
from autotune.python.notebook import _options, _pool
from autotune.wording.outcome import ConfigEstimate

_SOURCE = """
import autotune
import helion
from {module} import {name} as _theirs

@autotune.tunable(config_={configs})
def {name}({parameters}, *, config_={configs}[0]):
    return _kernel(config_).jax_fn({parameters})

def _kernel(config):
    configs, settings = [helion.Config.from_json(config)], helion.Settings(**{settings})
    return helion.Kernel(getattr(_theirs, "fn", _theirs), configs=configs, settings=settings)
"""


def helion_search(
    *, chip: str | None = None, python: str | None = None, compilers: int = 2
) -> Callable[..., Any]:
    """What ``helion.kernel`` takes as ``autotuner_fn``: the search that Helion's settings name,
    with estimates for ``chip``, by default the attached one. The rest as in ``autotune.search``.
    The search raises ``AutotuneError`` where no config has an estimate."""
    target = chip_or_attached(chip)
    open_pool = partial(_pool, python, compilers, _options(None))

    def search_of(kernel: Any, args: Sequence[Any], **more: Any) -> Any:
        from helion.runtime.settings import default_autotuner_fn

        search = default_autotuner_fn(kernel, args, **more).autotuner
        search._benchmark_provider_cls = partial(_provider(), target, open_pool)
        search.settings.autotune_benchmark_fn = lambda estimated, **_: [run() for run in estimated]
        return search

    return search_of


@cache
def _provider() -> Any:
    from helion.autotuner.benchmark_provider import BenchmarkProvider, BenchmarkResult

    from autotune.searching.one_config import config_judge
    from autotune.searching.subject import describe_subject

    class Estimates(BenchmarkProvider):  # type: ignore[misc]
        mutated_arg_indices = ()

        def __init__(self, chip: Chip, open_pool: Callable[[], Any], **given: Any) -> None:
            self._chip, self._open_pool, self._given = chip, open_pool, given
            self._fn, self._has_time = given["kernel"].kernel.fn, False
            arguments = dict(zip(signature(self._fn).parameters, given["args"], strict=True))
            self._words = ProblemWords(call=arguments_text(abstract(arguments)))

        def setup(self) -> None:
            self._pools = ExitStack()
            self._pool = self._pools.enter_context(self._open_pool())

        def cleanup(self) -> None:
            self._pools.close()

        def benchmark(self, configs: Sequence[Any], **_: Any) -> list[Any]:
            """The function of each config returns its time, where another's would take it."""
            results = []
            for config, said in zip(configs, self._estimates(configs), strict=True):
                time_ms = said.estimate.time_us / 1e3 if said.estimate else inf
                run = partial(lambda time_ms, *_: time_ms, time_ms)
                status = "ok" if said.estimate else "error"
                results.append(BenchmarkResult(config, run, time_ms, status, None))
                self._given["log"].debug(str(said))
            self._given["autotune_metrics"].num_configs_tested += len(configs)
            self._has_time |= any(result.perf < inf for result in results)
            if results and not self._has_time:
                raise AutotuneError(f"no config of {self._fn.__name__} has an estimate: {said}")
            return results

        def _estimates(self, configs: Sequence[Any]) -> "list[ConfigEstimate]":
            texts = [config.to_json() for config in configs]
            ref = _ref(self._fn, self._given["settings"], texts)
            subject = describe_subject(self._pool, ref, self._chip, self._words)
            judge = config_judge(self._pool, subject)

            def judged(text: str) -> ConfigEstimate:
                config = judge.complete({"config_": text})
                return ConfigEstimate(config=config, outcome=judge.outcome(config))

            with ThreadPoolExecutor(self._pool.size) as threads:
                return list(threads.map(judged, texts))

    return Estimates


def _ref(fn: Any, settings: Any, configs: Sequence[str]) -> KernelRef:
    """Raises ``InvalidInputError`` for a kernel that no other process can import."""
    place = place_of(fn.__qualname__, fn.__module__, fn.__code__.co_filename)
    path = Path(place.path)
    if not path.is_file():
        raise InvalidInputError(f"{fn.__name__} is in no file: move it to a module")
    given = settings.to_dict()
    plain = [name for name in given if type(given[name]) in (bool, int, float, str)]
    source = _SOURCE.format(
        module=place.module or path.stem,
        name=fn.__name__,
        configs=[*dict.fromkeys(configs)],
        settings={name: given[name] for name in plain if not name.startswith("autotune_")},
        parameters=", ".join(signature(fn).parameters),
    )
    beside = Path(place.root or path.parent, "helion_search.py")
    return KernelRef(path=str(beside), attribute=fn.__name__, source=source)
