"""How much longer does a model of 100 problems start after ``autotune.install``?

    python -m benchmarks install [--shapes 34]

Wall time of ``install`` with a workload (one call of a service that has a record for each problem,
three for each shape), and of JAX's lookups while each shape is traced. Kernels are imported before.
Without the workload each lookup is a call of the service.
"""

import argparse
import logging
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
from jax.experimental.pallas.ops.tpu import flash_attention as flash

import autotune
from autotune.answering.http import Remote
from autotune.domain.problem import make_config
from autotune.domain.workload import Workload, workload_problem, workload_text
from autotune.python import install
from autotune_db import open_store
from benchmarks.harness.servers import sample, server

KERNEL = "jax_flash_attention"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--shapes", type=int, default=34)
    lengths = [128 * number for number in range(1, parser.parse_args().shapes + 1)]
    os.environ["JAX_PLATFORMS"] = "cpu"
    logging.getLogger("autotune").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.toml")
        with server("service", _database(Path(folder, "a.db"), lengths, file)) as port:
            url = f"http://127.0.0.1:{port}"
            before_ms = _tracing_ms(lengths)
            print(f"tracing {len(lengths)} shapes without it {before_ms:8.1f} ms")
            for workload in (file, None):
                _measure(url, lengths, workload)


def _measure(url: str, lengths: list[int], workload: Path | None) -> None:
    autotune.configure(source=url, chip="v5e")
    with _counted() as calls:
        started = time.perf_counter()
        autotune.install("jax", workload=workload)
        installed_ms = (time.perf_counter() - started) * 1e3
        lookups_ms = _lookups_ms(lengths)
    said = "with the workload" if workload else "without a workload"
    print(
        f"{said}: install {installed_ms:.1f} ms, lookups {lookups_ms:.1f} ms, "
        f"{calls[0]} calls of the service"
    )
    autotune.uninstall()


def _lookups_ms(lengths: list[int]) -> float:
    """Of the time that tracing takes, what is spent in lookups."""
    spent, axes = [0.0], install._axes

    def timed(*given: Any) -> Any:
        started = time.perf_counter()
        try:
            return axes(*given)
        finally:
            spent[0] += time.perf_counter() - started

    with patch.object(install, "_axes", timed):
        _tracing_ms(lengths)
    return spent[0] * 1e3


def _tracing_ms(lengths: list[int]) -> float:
    jax.clear_caches()
    started = time.perf_counter()
    for length in lengths:
        array = jax.ShapeDtypeStruct((1, 8, length, 128), "bfloat16")
        jax.eval_shape(flash.flash_attention, array, array, array)
    return (time.perf_counter() - started) * 1e3


@contextmanager
def _counted() -> Iterator[list[int]]:
    calls, call = [0], Remote.call

    def counted(*given: Any, **more: Any) -> bytes:
        calls[0] += 1
        return call(*given, **more)

    Remote.call = counted  # type: ignore[method-assign]
    try:
        yield calls
    finally:
        Remote.call = call  # type: ignore[method-assign]


def _database(path: Path, lengths: list[int], workload: Path) -> str:
    """With a record for each shape, and each shape in the workload: forward and both gradients."""
    problems = []
    with open_store(str(path), create=True) as store:
        for suffix, axes in _AXES.items():
            tuned = install._tuned(f"{KERNEL}{suffix}")
            for length in lengths:
                sizes = {"batch": 1, "heads": 8, "q_len": length, "kv_len": length}
                problem = tuned.problem(dtype="bfloat16", head_dim=128, **sizes)
                problems.append(workload_problem(f"{KERNEL}{suffix}", problem))
                autotune.configure(source=str(path), chip="v5e")
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

if __name__ == "__main__":
    main()
