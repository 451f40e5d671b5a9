"""Do the compiler options that packages set give the same verdict and VMEM as in plain JAX?

    python -m benchmarks compiler_options PACKAGES… [--steps steps.jsonl] [--write FILE]

PACKAGES: folders of maxtext, sgl_jax and tpu_inference. Options are read from their files, and from
flags of training recipes (``compiler_flags`` of each line of ``--steps``). Each option alone
compiles one kernel for one chip, each set of a file five kernels for three chips: once as
`autotune` does, once by plain JAX in a process that loads libtpu with the flags. What was compared
stands in a file beside FILE (``.jsonl``), and is not compared again.
"""

import argparse
import json
import multiprocessing
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from autotune.compiling import libtpu
from autotune.compiling.pool import CompilerPool
from autotune.declaring.discovery import find_kernel
from autotune.domain.arguments import ProblemWords
from autotune.domain.codec import from_data, to_data
from autotune.domain.compiler_options import CHANGES_NOTHING, as_flags, canonical, parsed
from autotune.domain.compilers import CompileConfig, CompiledConfig, DescribeChip, ListChoices
from autotune.domain.errors import AutotuneError
from autotune.domain.key import Chip, installed_toolchain
from autotune.domain.outcome import OutOfVmem
from autotune.domain.problem import Config, Problem, make_config
from autotune.estimating.space import default_config
from autotune.searching.subject import describe_subject
from benchmarks.calibration.tokamax_rows import append_done, read_done

_CHIPS = (Chip.V5E, Chip.V6E, Chip.V7X)
_KERNELS: tuple[
    tuple[str, str, str, dict[str, int]], ...
] = (  # name, shape, dtype, what of the config is not the default
    ("rmsnorm", "2048x1024", "bf16", {}),
    ("matmul", "16384x128x128", "f32", {"block_m": 8192, "block_k": 128, "block_n": 128}),
    ("flash_attention", "1x2x2x1024x1024x128", "bf16", {}),
    ("jax_flash_attention", "1x2x1024x1024x128", "bf16", {}),
    ("jax_gmm", "1024x512x512x4", "bf16", {}),
)
_TEXT = {".py", ".sh", ".md", ".yml", ".yaml", ".ipynb"}
_FLAG = re.compile(r"--(xla_\w+)=([\w.:\-]+)|[\"'](xla_\w+)[\"']\]?\s*[:=]\s*[\"']?([\w.:\-]+)")
_SKIP = re.compile(r"xla_(?:gpu|dump|cpu|metadata)\w*|xla_force_host_platform_device_count")
_VMEM = re.compile(
    r'"used_scoped_memory_configs":\[\{"memory_space":"1","offset":"\d+","size":"(\d+)"'
)
_VALUE = re.compile(r"true|false|-?[\d.]+|[A-Z_0-9]+|[a-z_]+(?::[a-z]+)?", re.IGNORECASE)
_OUT, _REFUSED = "out of VMEM", "refused"
_Pair = tuple[str, str]


class _Compared(NamedTuple):
    """VMEM bytes of each case, or why there are none; None where the options are refused."""

    plain: list[Any] | None
    here: list[Any] | None


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("packages", nargs="*", type=Path)
    arguments.add_argument("--steps", type=Path)
    arguments.add_argument("--write", type=Path)
    given = arguments.parse_args()
    sets = dict(_sets(given.packages, given.steps))
    with CompilerPool(1) as pool:
        text = _report(pool, sets, given.write and given.write.with_suffix(".jsonl"))
    given.write.write_text(text) if given.write else print(text)


def _sets(packages: Sequence[Path], steps: Path | None) -> Iterator[tuple[str, dict[str, str]]]:
    """The options of each file, by a name that begins with the package's."""
    for package in packages:
        for file in sorted(path for path in package.rglob("*") if path.suffix in _TEXT):
            options = _options(file.read_text(errors="replace"))
            if options:
                yield f"{package.name}/{file.relative_to(package)}", options
    for line in steps.read_text().splitlines() if steps else ():
        step = json.loads(line)
        options = _options(step.get("compiler_flags") or "")
        if options:
            yield f"recipes/{step['recipe']}", options


def _options(text: str) -> dict[str, str]:
    pairs = ((m[1] or m[3], (m[2] or m[4]).rstrip(".:")) for m in _FLAG.finditer(text))
    return {
        name: value.lower() if value.lower() in ("true", "false") else value
        for name, value in pairs
        if not _SKIP.fullmatch(name) and _VALUE.fullmatch(value)
    }


def _cases(pool: CompilerPool) -> list[dict[str, Any]]:
    cases = []
    for name, shape, dtype, axes in _KERNELS:
        for chip in _CHIPS:
            ref = find_kernel(name)
            words = ProblemWords(shape=shape, dtype=dtype)
            subject = describe_subject(pool, ref, chip, words)
            config = default_config(pool.ask(subject.question(ListChoices)))
            config = make_config({**dict(config.axes), **axes}, grid_order=config.grid_order)
            cases.append(
                {
                    "kernel": name,
                    "chip": chip.value,
                    "problem": to_data(subject.problem),
                    "config": to_data(config),
                }
            )
    return cases


def _compared(
    pool: CompilerPool, cases: Sequence[Mapping[str, Any]], options: str, done: Path | None
) -> _Compared:
    """Both, or what the file has of them."""
    question = {"options": options, "cases": len(cases), "by": str(installed_toolchain())}
    for row in read_done(done):
        if question.items() <= row.items():
            return _Compared(row["plain"], row["here"])
    both = _Compared(_plain(cases, options), _here(pool, cases, options))
    append_done(done, question | both._asdict())
    print(options[:60], len(cases), "same" if both.plain == both.here else both, flush=True)
    return both


def _plain(cases: Sequence[Mapping[str, Any]], options: str) -> list[Any] | None:
    """By plain JAX with the flags; None where libtpu does not start with them."""
    forks = multiprocessing.get_context("forkserver")  # one that has imported JAX, not libtpu
    forks.set_forkserver_preload(["jax.experimental.topologies", __name__])
    with ProcessPoolExecutor(1, mp_context=forks) as process:
        try:
            return process.submit(_plainly, cases, as_flags(options)).result()
        except RuntimeError:  # libtpu raises, or ends the process
            return None


def _plainly(cases: Sequence[Mapping[str, Any]], flags: str) -> list[Any]:
    """In that process: VMEM bytes, or why there are none."""
    import importlib

    import jax
    from jax.experimental import topologies
    from jax.sharding import SingleDeviceSharding

    jax.config.update("jax_platforms", "cpu")
    os.environ |= {
        "TPU_SKIP_MDS_QUERY": "1",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "TPU_ACCELERATOR_TYPE": "v5litepod-4",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "LIBTPU_INIT_ARGS": flags,
    }

    @cache
    def sharding(chip: str) -> SingleDeviceSharding:
        described = topologies.get_topology_desc(**libtpu.topology(Chip(chip)))
        return SingleDeviceSharding(described.devices[0])

    results: list[Any] = []
    for case in cases:
        ref = find_kernel(case["kernel"])
        kernel = getattr(importlib.import_module(ref.module or ""), ref.attribute)
        problem, config = from_data(Problem, case["problem"]), from_data(Config, case["config"])
        arrays = [
            jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding(case["chip"]))
            for array in kernel.inputs(problem)
        ]
        try:
            text = jax.jit(kernel.build(problem, config)).lower(*arrays).compile().as_text()
            calls = [line for line in text.splitlines() if "tpu_custom_call" in line]
            results.append(sum(int(size) for line in calls for size in _VMEM.findall(line)))
        except Exception as error:
            message = str(error)
            results.append(_OUT if "vmem" in message.lower() else message.splitlines()[0][:120])
    return results


def _here(pool: CompilerPool, cases: Sequence[Mapping[str, Any]], options: str) -> list[Any] | None:
    """The same by our compilers."""
    results: list[Any] = []
    try:
        for case in cases:
            chip = Chip(case["chip"])
            pool.ask(DescribeChip(chip=chip, options=options))
            answer = pool.ask(
                CompileConfig(
                    ref=find_kernel(case["kernel"]),
                    problem=from_data(Problem, case["problem"]),
                    config=from_data(Config, case["config"]),
                    chip=chip,
                    options=options,
                )
            ).answer
            if isinstance(answer, CompiledConfig):
                calls = (answer.compiled, *answer.compiled.more)
                results.append(sum(call.vmem_used_bytes for call in calls))
            else:
                results.append(_OUT if isinstance(answer, OutOfVmem) else str(answer)[:120])
    except AutotuneError:
        return None
    return results


def _report(pool: CompilerPool, sets: Mapping[str, Mapping[str, str]], done: Path | None) -> str:
    cases, users = _cases(pool), defaultdict[_Pair, set[str]](set)
    for name, options in sets.items():
        for pair in options.items():
            users[pair].add(name.partition("/")[0])
    alone = {
        pair: _compared(pool, cases[:1], text, done)
        for pair in users
        if (text := canonical(dict([pair])))
    }
    taken = {pair for pair, both in alone.items() if both.plain is not None}
    texts = {canonical(dict(options.items() & taken)) for options in sets.values()} - {""}
    whole = {text: _compared(pool, cases, text, done) for text in sorted(texts)}
    return "\n".join([*_head(cases, alone, whole), "", *_rows(users, alone), ""])


def _head(
    cases: Sequence[Mapping[str, Any]],
    alone: Mapping[_Pair, _Compared],
    whole: Mapping[str, _Compared],
) -> Iterator[str]:
    kinds, differing = Counter[str](), list[str]()
    for text, both in sorted(whole.items()):
        nothing = [_REFUSED] * len(cases)
        for case, a, b in zip(cases, both.plain or nothing, both.here or nothing, strict=True):
            same = "the same VMEM bytes" if isinstance(a, int) else f"{a} for both"
            kinds[same if a == b else "OTHER"] += 1
            if a != b:
                options = f"with {len(parsed(text))} options"
                differing.append(f"- {case['kernel']} on {case['chip']}: {a}, here {b}, {options}")
    refused = [(both.plain is None, both.here is None) for both in alone.values()]
    yield f"Made by `python -m benchmarks compiler_options` with {installed_toolchain()}."
    yield ""
    yield (
        f"{len(alone)} options with their values, each alone: plain JAX refuses "
        f"{sum(plain for plain, _ in refused)}, we {sum(here for _, here in refused)}; the verdict "
        f"is the same for {sum(plain is here for plain, here in refused)}. {len(whole)} sets, as "
        f"the files have them and without what is refused, on {len(_KERNELS)} kernels and "
        f"{len(_CHIPS)} chips: {', '.join(f'{n} times {kind}' for kind, n in kinds.most_common())}."
    )
    yield from (["", *differing] if differing else [])


def _rows(users: Mapping[_Pair, set[str]], alone: Mapping[_Pair, _Compared]) -> Iterator[str]:
    yield "| option | value | who sets it | VMEM of rmsnorm on v5e: plain JAX | here | in the key |"
    yield "|---|---|---|---|---|---|"
    for pair, packages in sorted(users.items()):
        both = alone.get(pair)
        shown = f"{_shown(both.plain)} | {_shown(both.here)} | yes" if both else f"| | {_why(pair)}"
        yield f"| `{pair[0]}` | `{pair[1]}` | {', '.join(sorted(packages))} | {shown} |"


def _why(pair: _Pair) -> str:
    """Why it is in no key."""
    reasons = (why for pattern, why in CHANGES_NOTHING.items() if re.fullmatch(pattern, pair[0]))
    return f"no: {next(reasons, 'it is the default')}"


def _shown(result: list[Any] | None) -> str:
    return (
        "refused"
        if result is None
        else f"{result[0]:,}"
        if isinstance(result[0], int)
        else result[0]
    )
