"""How much longer does a model of 100 problems start after ``autotune.install``?

    python -m benchmarks install [--shapes 34] [--starts 7]

Each start is a process of its own that has imported JAX and the kernel. Medians, in processor time
of its main thread, and by the clock: ``import autotune`` with all that ``install`` needs;
``install``, which reads the workload; and JAX's lookups while each shape is traced, the first of
which makes the one call of a service that has a record for each problem, three for each shape. The
first start of all reads the sources of the kernels. Without the workload each lookup is a call of
the service. Python's bytecode is on disk, as where the package is installed.
"""

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from autotune.answering.sources import configure
from autotune.domain.problem import make_config
from autotune.domain.workload import Workload, workload_problem, workload_text
from autotune_db import open_store
from benchmarks.harness.servers import sample, server

KERNEL = "jax_flash_attention"
Times = dict[str, list[float]]
"""By step, milliseconds of the main thread and by the clock."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--shapes", type=int, default=34)
    parser.add_argument("--starts", type=int, default=7)
    parser.add_argument("--url", help="of a service: one start, as JSON")
    parser.add_argument("--workload", default="")
    given = parser.parse_args()
    lengths = [128 * number for number in range(1, given.shapes + 1)]
    os.environ["JAX_PLATFORMS"] = "cpu"
    if given.url:
        print(json.dumps(_start(given.url, given.workload, lengths)))
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.toml")
        with server("service", _database(Path(folder, "a.db"), lengths, file)) as port:
            os.environ |= {"XDG_CACHE_HOME": folder, "PYTHONPYCACHEPREFIX": folder}
            os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
            for workload in (str(file), ""):
                print("with the workload" if workload else "without a workload")
                command = [sys.executable, "-m", "benchmarks", "install"]
                command += [f"--url=http://127.0.0.1:{port}", f"--workload={workload}"]
                command += [f"--shapes={given.shapes}"]
                starts = [subprocess.check_output(command) for _ in range(given.starts)]
                _show(*map(json.loads, starts))


def _show(first: Times, *starts: Times) -> None:
    for step in first:
        own_ms, wall_ms = (median(start[step][i] for start in starts) for i in (0, 1))
        row = f"  {step:16} {own_ms:7.1f} ms, {wall_ms:7.1f} by the clock"
        print(f"{row}; the first {first[step][0]:7.1f} and {first[step][1]:7.1f}")


def _start(url: str, workload: str, lengths: list[int]) -> Times:
    from jax.experimental.pallas.ops.tpu import flash_attention as _  # noqa: F401 (the model's)

    logging.getLogger("autotune").setLevel(logging.ERROR)
    times: Times = {}
    with _timed(times, "import"):
        import autotune
        from autotune.answering.http import Remote
        from autotune.python import install

    autotune.configure(source=url, chip="v5e")
    calls, lookup = [0], install._axes

    def counted(*given: Any, **more: Any) -> bytes:
        calls[0] += given[1] == "POST"
        return call(*given, **more)

    def timed(*given: Any) -> Any:
        with _timed(times, "lookups"):
            return lookup(*given)

    call = Remote.call
    with patch.object(Remote, "call", counted), patch.object(install, "_axes", timed):
        with _timed(times, "install"):
            autotune.install("jax", workload=workload or None)
        _trace(lengths)
    both = zip(times["install"], times["lookups"], strict=True)
    return {**times, "install, lookups": [sum(pair) for pair in both], "questions": [calls[0]] * 2}


@contextmanager
def _timed(times: Times, step: str) -> Iterator[None]:
    before = time.thread_time(), time.perf_counter()
    yield
    spent = (time.thread_time() - before[0]) * 1e3, (time.perf_counter() - before[1]) * 1e3
    times[step] = [a + b for a, b in zip(times.get(step, (0.0, 0.0)), spent, strict=True)]


def _trace(lengths: list[int]) -> None:
    import jax
    from jax.experimental.pallas.ops.tpu import flash_attention as flash

    for length in lengths:
        array = jax.ShapeDtypeStruct((1, 8, length, 128), "bfloat16")
        jax.eval_shape(flash.flash_attention, array, array, array)


def _database(path: Path, lengths: list[int], workload: Path) -> str:
    """With a record for each shape, and each shape in the workload: forward and both gradients."""
    from autotune.python import install

    problems = []
    with open_store(str(path), create=True) as store:
        for suffix, axes in _AXES.items():
            tuned = install._tuned(f"{KERNEL}{suffix}")
            for length in lengths:
                sizes = {"batch": 1, "heads": 8, "q_len": length, "kv_len": length}
                problem = tuned.problem(dtype="bfloat16", head_dim=128, **sizes)
                problems.append(workload_problem(f"{KERNEL}{suffix}", problem))
                configure(source=str(path), chip="v5e")
                default = make_config(tuned.kernel.default_axes(problem, None))
                record = replace(sample(0), key=tuned.key(problem), config=make_config(axes))
                store.save_record(replace(record, default=replace(record.default, config=default)))
    workload.write_text(workload_text(Workload(problems=tuple(problems))))
    return str(path)


_AXES = {
    "": {"block_q": 128, "block_k_major": 128, "block_k": 128, "block_b": 1},
    "_dkv": dict.fromkeys(
        ("block_q_major_dkv", "block_q_dkv", "block_k_major_dkv", "block_k_dkv"), 128
    ),
    "_dq": dict.fromkeys(("block_q_dq", "block_k_major_dq", "block_k_dq"), 128),
}
