"""One rival autotuner before the suite of broken kernels, under the interpreter that has it.

    python -m benchmarks.harness.rivals_worker tune-jax < CASES

Reads one case a line, as JSON. Prints one JSON object a line: what the rival is, then what it did
with each case. Kernels run in plain TPU interpret mode, as rivals' own documentation has it for
machines without a TPU.
"""

import contextlib
import importlib
import io
import json
import logging
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from inspect import Parameter, Signature
from pathlib import Path
from typing import IO, Any

from autotune.domain.problem import AxisValue, Problem

Axes = Mapping[str, AxisValue]
Tuner = Callable[[Callable[..., Any], tuple[Any, ...], Sequence[Axes]], Axes]

_COMPLAINT = re.compile(
    r"\b(wrong|incorrect|mismatch\w*|inaccura\w*|differs?|nans?|races?)\b", re.I
)

_ERROR = re.compile(r"\s*[\w.]*(Error|Exception): ")
_QUOTED = re.compile(r"'\w+'")  # a config's own value is called 'wrong'


def tune_jax(function: Callable[..., Any], arrays: tuple[Any, ...], configs: Sequence[Axes]) -> Any:
    """One worker, because interpret mode has one memory for the whole process."""
    tuned = importlib.import_module("tune_jax").tune(
        function, hyperparams=_values(configs), max_workers=1
    )
    tuned(*arrays)
    return dict(tuned.optimal_hyperparams)


def tonno(function: Callable[..., Any], arrays: tuple[Any, ...], configs: Sequence[Axes]) -> Any:
    """What it has chosen is in its cache, a new one for each question."""
    rival = importlib.import_module("tonno")
    with tempfile.TemporaryDirectory(prefix="tonno-") as folder:
        os.environ["TONNO_CACHE_DIR"] = folder
        rival.autotune(configs=[dict(config) for config in configs], name="case")(function)(*arrays)
        (by_shape,) = json.loads(Path(folder, "case.json").read_text(encoding="utf-8")).values()
        (entry,) = by_shape.values()
    return entry["config"]


def pallas_forge(
    function: Callable[..., Any], arrays: tuple[Any, ...], configs: Sequence[Axes]
) -> Any:
    """It reports a config that raises and goes on; with none left its report is empty."""
    tune = importlib.import_module("pallas_forge.tune").tune
    report = tune(function, lambda _: arrays, _values(configs), n_warmup=1, n_repeat=5)
    if not report.best(1):
        raise RuntimeError("its report is empty")
    return report.best(1)[0].config


RIVALS: Mapping[str, Tuner] = {"tune-jax": tune_jax, "tonno": tonno, "pallas-forge": pallas_forge}


def _values(configs: Sequence[Axes]) -> dict[str, list[AxisValue]]:
    """By axis, as rivals want it that search the product of all axes: ours differ in one."""
    return {name: list(dict.fromkeys(c[name] for c in configs)) for name in configs[0]}


def answer(rival: str, case: Mapping[str, Any]) -> dict[str, Any]:
    """What the rival chooses of both configs, and whether it takes the broken one alone."""
    kernel = _declared(Path(case["path"]), case["kernel"])
    problem = kernel.problem_spec.parse(case["shape"])
    default = dict(kernel.default(problem))
    function = _function(kernel, problem, default, tuple(case["wrong"]))
    arrays = tuple(_arrays(kernel, problem))
    wrong, right = case["wrong"], case["right"]
    both = _ask(RIVALS[rival], function, arrays, [right, wrong])
    alone = _ask(RIVALS[rival], function, arrays, [wrong])
    named = {json.dumps(right): "right", json.dumps(wrong): "broken"}
    for asked in (both, alone):
        asked["chosen"] = named.get(json.dumps(asked["chosen"]))
    return {"case": case["case"], "both": both, "alone": alone}


def _declared(file: Path, attribute: str) -> Any:
    """The declaration, found as the command line finds one in a file."""
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    return getattr(importlib.import_module(file.stem), attribute)


def _ask(
    tuner: Tuner, function: Callable[..., Any], arrays: tuple[Any, ...], configs: Sequence[Axes]
) -> dict[str, Any]:
    """The config that it has chosen, the error that it has raised, and what it has said."""
    from jax.experimental.pallas import tpu as pltpu

    chosen, error = None, ""
    with _heard() as heard:
        try:
            chosen = dict(tuner(function, arrays, configs))
        except Exception as raised:
            error = f"{type(raised).__name__}: {str(raised).strip()}"
    pltpu.reset_tpu_interpret_mode_state()
    lines = [line.strip() for line in heard.getvalue().splitlines()]
    named = [line for line in (*error.splitlines(), *lines) if _ERROR.match(line)]
    error = named[-1][:300] if error and named else error[:300]
    said = [line for line in lines if _COMPLAINT.search(_QUOTED.sub("", line))]
    return {"chosen": chosen, "error": error, "said": said[-1][:300] if said else ""}


@contextlib.contextmanager
def _heard() -> Iterator[io.StringIO]:
    """Whatever is printed or logged."""
    heard = io.StringIO()
    handler = logging.StreamHandler(heard)
    logging.getLogger().addHandler(handler)
    try:
        with contextlib.redirect_stdout(heard), contextlib.redirect_stderr(heard):
            yield heard
    finally:
        logging.getLogger().removeHandler(handler)


def _function(
    kernel: Any, problem: Problem, default: Axes, tuned: Sequence[str]
) -> Callable[..., Any]:
    """The kernel as rivals want it: jitted, its axes are static arguments with defaults."""
    import jax
    from jax.experimental.pallas import tpu as pltpu

    from autotune.domain.problem import make_config

    def run(*arrays: Any, **axes: AxisValue) -> Any:
        with pltpu.force_tpu_interpret_mode():
            return kernel.build(problem, make_config({**default, **axes}))(*arrays)

    names = [array.name for array in kernel.inputs(problem)]
    run.__signature__ = Signature(  # type: ignore[attr-defined]
        [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        + [Parameter(name, Parameter.KEYWORD_ONLY, default=default[name]) for name in tuned]
    )
    jitted: Callable[..., Any] = jax.jit(run, static_argnames=tuple(tuned))
    return jitted


def _arrays(kernel: Any, problem: Problem) -> Iterator[Any]:
    import jax

    for seed, array in enumerate(kernel.inputs(problem)):
        yield jax.random.normal(jax.random.key(seed), array.shape, array.dtype)


def main() -> None:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    rival = sys.argv[1]
    answers = _private_answers()
    try:
        installed = version(rival)
    except PackageNotFoundError:
        print(json.dumps({"installed": None}), file=answers, flush=True)
        return
    print(json.dumps({"installed": installed, "jax": version("jax")}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(rival, json.loads(line))), file=answers, flush=True)


def _private_answers() -> IO[str]:
    """What libraries print must not come between the answers."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


if __name__ == "__main__":
    main()
