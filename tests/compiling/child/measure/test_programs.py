"""Compiled for a TPU that is not there, and written; timed on a GPU where there is one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.declaring.discovery import find_kernel
from autotune.domain.compilers import DescribeKernel, ListChoices, WriteExecutable
from autotune.domain.evidence import Measurement, MeasurementCandidate
from autotune.domain.key import Chip, KernelRef
from autotune.domain.outcome import CompileFailed
from autotune.domain.problem import ProblemSpec, make_config
from autotune.measuring.session import MeasuringTask, RaceLimits, Session, measuring_process

pytestmark = pytest.mark.slow


def _spec(pool, ref):
    return pool.ask(DescribeKernel(ref=ref))


def test_an_executable_for_a_tpu_is_written_without_one(pool, tmp_path):
    ref = find_kernel("matmul")
    problem = _spec(pool, ref).problems.parse("256x256x256", "bfloat16", [])
    default = pool.ask(ListChoices(ref=ref, problem=problem, chip=Chip.V5E)).default
    config = make_config(default, grid_order=("m", "n", "k"))
    for name, given in (("c0", config), ("xla", None)):
        path = tmp_path / name
        failure = pool.ask(
            WriteExecutable(
                ref=ref, problem=problem, config=given, name=name, chip=Chip.V5E, path=str(path)
            )
        )
        assert failure is None, failure
        assert f"measured_{name}".encode() in path.read_bytes()


def test_what_does_not_compile_is_an_outcome(pool, tmp_path):
    ref = find_kernel("matmul")
    problem = _spec(pool, ref).problems.parse("256x256x256", "bfloat16", [])
    failure = pool.ask(
        WriteExecutable(
            ref=ref,
            problem=problem,
            config=make_config({}),
            name="c0",
            chip=Chip.V5E,
            path=str(tmp_path / "c0"),
        )
    )
    assert isinstance(failure, CompileFailed) and not (tmp_path / "c0").exists()


def _why_no_gpu():
    """Why nothing can be timed on a GPU here, or an empty text."""
    if shutil.which("nvidia-smi") is None:
        return "no GPU is attached to this machine (there is no nvidia-smi)"
    look = "import jax; assert jax.devices()[0].platform == 'gpu'"
    surroundings = {**os.environ, "JAX_PLATFORMS": "cuda"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", look],
            env=surroundings,
            check=False,
            capture_output=True,
            text=True,
            timeout=600,
        )
    except subprocess.TimeoutExpired:
        return "JAX does not open the GPU within two minutes"
    said = done.stderr.strip().splitlines()[-1:]
    return "" if done.returncode == 0 else f"JAX does not open the GPU: {''.join(said)[:200]}"


def test_a_jitted_function_is_timed_on_a_gpu_through_its_device_plane(pool):
    reason = _why_no_gpu()
    if reason:
        pytest.skip(reason)
    plain = KernelRef(
        path=str(Path(__file__).parents[3] / "samples" / "plain_kernels.py"), attribute="KERNEL"
    )
    work = MeasuringTask(
        ref=plain, chip=None, problem=ProblemSpec(dims=("n",), dtypes=("float32",)).parse("512")
    )
    configs = [make_config({"repeats": n, "how": "right"}) for n in (1, 300)]
    session = Session(
        pool,
        measuring_process("cuda"),
        work,
        compile_elsewhere=False,
        limits=RaceLimits(seconds=60, samples=80),
    )
    found = session.measure([MeasurementCandidate(config=c) for c in configs], configs[1])
    assert isinstance(found, Measurement), found
    assert not any(timed.refused for timed in found.timed), found
    assert found.method == "device time" and found.timed[0].config == configs[0]
    slow = found.of(configs[1])
    assert slow is not None and slow.ratio is not None and slow.ratio > 10  # 300 times the work
    assert found.baseline is not None and found.baseline.median_us
