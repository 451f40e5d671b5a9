"""``autotune collect``: the workload of a model."""

import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from http.client import HTTPException
from importlib.util import find_spec
from itertools import chain, count
from pathlib import Path
from typing import Any

import click

from autotune.answering.http import Remote
from autotune.cli import shared
from autotune.cli.problems import problem_options
from autotune.declaring.discovery import installed_kernels
from autotune.domain.arguments import ProblemWords
from autotune.domain.codec import from_data, to_data
from autotune.domain.compilers import Collected, CollectKernels, DeclaredCall, ReadCall
from autotune.domain.errors import InvalidInputError, ServiceError
from autotune.domain.key import Chip, KernelRef, Key, parse_chip
from autotune.domain.workload import (
    UndeclaredKernel,
    Workload,
    WorkloadProblem,
    workload_problem,
    workload_text,
)
from autotune.wording.output import echo
from autotune.wording.units import counted

_LIMIT_S, _MEMORY_GIB = 600.0, 16.0
_MOST_MISSES, _PAGE, _SERVICE_S = 10_000, 100, 30.0
_CALL = re.compile(r'^[^\n]*custom_call_target="tpu_custom_call"[^\n]*$', re.MULTILINE)
_INSTRUCTION = re.compile(r"%([\w.-]*?)(?:\.\d+)? = ")
_KERNEL_NAME = re.compile(r'kernel_name[\\"]*[:=] ?[\\"]*([\w.-]+)|op_name="([^"]+)/pallas_call')

_DECLARED = '''"""Kernels of a model, as `autotune collect --declare` has found them. Whoever has a
reference in plain JAX adds it, or takes a `# reference=` that is one. What is marked HOLE
is a guess."""
'''

_TRANSFORMS = re.compile(r"^.*\(|\)+$")  # jit(…), transpose(jvp(…))


@click.command()
@click.argument("model", required=False, metavar="[MODULE:FUNCTION]")
@problem_options
@shared.repeated_option(
    "--chip", "chips", help="For the workload; the model is traced for the first."
)
@shared.flag_option("--from-misses", help="Take what was asked for and nobody has tuned.")
@click.option("--url", metavar="URL", help="Misses of this service, not a database.")
@click.option(
    "--from-hlo",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The kernels of a dumped HLO module, named and counted.",
)
@shared.output_option(
    "--declare",
    "declarations",
    metavar="FILE.py",
    help="Write declarations of undeclared kernels there: they become problems.",
)
@shared.output_option("--output", "-o", help="Write it there; default: print it.")
@shared.interpreter_options
@shared.database_and_json
def collect(
    model: str | None,
    words: ProblemWords,
    chips: tuple[str, ...],
    from_misses: bool,
    url: str | None,
    from_hlo: Path | None,
    declarations: Path | None,
    output: Path | None,
    python: str,
    database: str | None,
    as_json: bool,
) -> None:
    """Write the workload of a model, for `autotune tune`.

    The function is traced with abstract values, without a TPU; MODULE is importable from here, or
    path/to/file.py. Calls of decorated functions, `Tuned` kernels and kernels of the catalogue
    become problems. Their weight is how often loops run them. Every other pallas_call is listed as
    undeclared, or declared with --declare. Exit code 1: it could not be traced to its end,
    or nothing was found.
    """
    if sum(map(bool, (model, from_misses, from_hlo))) != 1:
        raise InvalidInputError("give one of MODULE:FUNCTION, --from-misses and --from-hlo FILE")
    if url is not None and not from_misses:
        raise InvalidInputError("--url belongs to --from-misses")
    if declarations is not None and (model is None or declarations.suffix != ".py"):
        raise InvalidInputError("--declare writes a FILE.py, of the kernels of a model")
    error = ""
    if model is not None:
        workload, error = _of_model(model, words, chips, python, declarations)
    elif from_hlo is not None:
        workload = Workload(undeclared=hlo_kernels(from_hlo.read_text(errors="replace")))
    else:
        workload = Workload(problems=_missed(database) if url is None else _missed_of(url))
    if not (error or workload.problems or workload.undeclared):
        error = "no kernel was found in it"
    if as_json:
        data = [to_data(entry) for entry in workload.problems]
        kernels = [to_data(entry) for entry in workload.undeclared]
        shared.print_json({"problems": data, "undeclared": kernels, "error": error})
    elif output is not None:
        beside = tuple(_beside(problem, output.parent.resolve()) for problem in workload.problems)
        shared.write_file(output, workload_text(replace(workload, problems=beside)))
        problems = counted(len(workload.problems), "problem")
        echo(f"{output}: {problems}, {counted(len(workload.undeclared), 'kernel')} undeclared")
        if model is not None and ".py:" in model and not error and (words.call or not words):
            given = {"--args": words.call, "--python": "" if python == sys.executable else python}
            asked = [model, *chain(*filter(all, given.items()), *(("--chip", c) for c in chips))]
            echo(f"its whole step is timed by: autotune step {shlex.join(asked)}", err=True)
    else:
        click.echo(workload_text(workload), nl=False)
    if error:
        echo(f"{model or from_hlo or 'misses'}: {error}", err=True)
    sys.exit(1 if error else 0)


def _beside(problem: WorkloadProblem, folder: Path) -> WorkloadProblem:
    """As a workload in the folder names it: `autotune tune` looks for files from there."""
    place, _, name = problem.kernel.rpartition(":")
    file = Path(place).resolve()
    near = file.relative_to(folder) if file.is_relative_to(folder) else file
    return replace(problem, kernel=f"{near}:{name}") if place.endswith(".py") else problem


def _of_model(
    model: str, words: ProblemWords, chips: Sequence[str], python: str, declare: Path | None
) -> tuple[Workload, str]:
    place, _, function = model.rpartition(":")
    if not place or not function:
        raise InvalidInputError(f"{model!r} is not MODULE:FUNCTION or path/to/file.py:FUNCTION")
    if place.endswith(".py"):
        if not Path(place).is_file():
            raise InvalidInputError(f"there is no file {place}")
        ref = KernelRef(path=str(Path(place).resolve()), attribute=function)
    else:
        top, here = place.partition(".")[0], Path.cwd()
        root = str(here) if (here / top).exists() or (here / f"{top}.py").exists() else ""
        ref = KernelRef(path="", attribute=function, module=place, root=root)
    chip = parse_chip(chips[0]) if chips else None
    collected = calls_of(ref, words, chip, python, declare=bool(declare))
    problems, undeclared = tuple(collected.problems), tuple(collected.undeclared)
    if declare is not None and collected.declarations:
        problems += _declared(declare, collected.declarations)
    elif declare is not None and not collected.error:
        why = "no undeclared kernel has block sizes that an importable function is given"
        why = why if undeclared else "no kernel is undeclared"
        echo(f"{declare} is not written: {why}", err=True)
    if declare is not None:
        _tell_of_imports(declare, ref, collected)
    workload = Workload(problems=problems, undeclared=undeclared, chips=tuple(chips))
    return workload, collected.error and f"it could not be traced to its end: {collected.error}"


def calls_of(
    ref: KernelRef, words: ProblemWords, chip: Chip | None, python: str, **more: Any
) -> Collected:
    """What a model calls, traced in a process of its own; ``more``: of ``CollectKernels``. Raises
    ``AutotuneError``."""
    known = installed_kernels()
    names, refs = tuple(known), tuple(known.values())
    with shared.new_pool(1, _LIMIT_S, _MEMORY_GIB, python) as pool:
        ref = pool.ask(ReadCall(ref=ref, words=words))
        return pool.ask(CollectKernels(ref=ref, chip=chip, names=names, refs=refs, **more))


def _tell_of_imports(declare: Path, ref: KernelRef, collected: Collected) -> None:
    """Which modules of the model others do not find, or cannot name."""
    model = Path(ref.path or f"{ref.root}/_")
    files = (model, declare.resolve())
    root, place = (next(f for f in p.parents if not (f / "__init__.py").exists()) for p in files)
    is_own = any(kernel.source.startswith(f"{model}:") for kernel in collected.undeclared)
    if is_own and not model.stem.isidentifier():
        echo(f"no kernel of {model.name} can be declared: no module has such a name", err=True)
    tops = {name.partition(".")[0] for call in collected.declarations for name in call.imports}
    near = [n for n in sorted(tops) if (root / n).is_dir() or (root / f"{n}.py").is_file()]
    if root != place and (lacks := ", ".join(name for name in near if find_spec(name) is None)):
        remedy = f"write it there, or set PYTHONPATH={root}"
        echo(f"{declare} imports {lacks} from {root}: {remedy}", err=True)


def _declared(path: Path, calls: Sequence[DeclaredCall]) -> tuple[WorkloadProblem, ...]:
    """The problems of a file of declarations, which is written; functions are numbered by name."""
    codes: dict[str, str] = {}
    problems = []
    for call in calls:
        numbered = (call.name + f"_{number}" * (number > 1) for number in count(1))
        taken = set(codes.values())
        name = codes.setdefault(call.code, next(n for n in numbered if n not in taken))
        kernel = f"{path}:{name}"
        problems.append(WorkloadProblem(kernel=kernel, args=call.args, weight=call.weight))
    modules = {"autotune", *(module for call in calls for module in call.imports)}
    imports = "".join(f"import {module}\n" for module in sorted(modules))
    bodies = "".join(f"\n\n{code.replace('{name}', name)}" for code, name in codes.items())
    shared.write_file(path, f"{_DECLARED}\nimport numpy as np\n{imports}{bodies}")
    return tuple(problems)


def hlo_kernels(text: str) -> tuple[UndeclaredKernel, ...]:
    """Each kernel of an HLO module by its name, with how many instructions call it."""
    names = Counter(_kernel_name(line) for line in _CALL.findall(text))
    return tuple(UndeclaredKernel(name=name, weight=float(n)) for name, n in names.items())


def _kernel_name(line: str) -> str:
    if match := _KERNEL_NAME.search(line):
        return match[1] or _TRANSFORMS.sub("", match[2].rpartition("/")[2])
    instruction = _INSTRUCTION.search(line)
    return instruction[1] if instruction else "kernel"


def _missed(database: str | None) -> tuple[WorkloadProblem, ...]:
    """Weighted by how often they were asked for."""
    with shared.open_database(database, create=False) as store:
        return tuple(_wanted(miss.key, miss.count) for miss in store.misses(_MOST_MISSES))


def _missed_of(url: str) -> tuple[WorkloadProblem, ...]:
    problems: list[WorkloadProblem] = []
    cursor, remote = "", Remote(url, _SERVICE_S)
    try:
        while len(problems) < _MOST_MISSES:
            page = json.loads(remote.call("GET", f"/v1/misses?limit={_PAGE}{cursor}"))
            for miss in page["misses"]:
                problems.append(_wanted(from_data(Key, miss["key"]), miss["count"]))
            if page["next"] is None:
                break
            cursor = f"&cursor={page['next']}"
    except (OSError, HTTPException, ValueError, LookupError) as error:
        raise ServiceError(f"the service at {url} cannot be used: {error}") from error
    return tuple(problems)


def _wanted(key: Key, count: int) -> WorkloadProblem:
    problem = workload_problem(key.kernel, key.problem, float(count), (key.chip.value,))
    return replace(problem, compiler_options=key.toolchain.options)
