"""``autotune.install`` and the packages that are in no environment of the repository: their code
looks the blocks up, and their kernel is the program that it is with these blocks given. Each
test runs where its package is; ``test_in_the_field`` runs them under ``AUTOTUNE_FIELD_PYTHON``."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest

import autotune
from tests.samples.installed import PublishedAxes, array, program, told

ROOT = Path(__file__).parents[2]
KIND, CHIP = "TPU v6 lite", "v6e"


@pytest.mark.slow
def test_in_the_field() -> None:
    python = os.environ.get("AUTOTUNE_FIELD_PYTHON")
    if not python:
        pytest.skip("AUTOTUNE_FIELD_PYTHON names no interpreter with packages of others")
    files = ["tests/python/test_install.py", "tests/python/test_install_others.py"]
    options = ["-q", "--noconftest", "-c", os.devnull, "--rootdir", ".", "-m", "not slow"]
    paths = os.pathsep.join((str(ROOT), str(ROOT / "tests" / "samples" / "stand_ins")))
    environment = {**os.environ, "PYTHONPATH": paths, "JAX_PLATFORMS": "cpu"}
    command = [python, "-m", "pytest", *options, *files]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with told(KIND):
        yield
    autotune.uninstall()
    autotune.configure()
    jax.clear_caches()


def installed(package: str, **axes: Any) -> PublishedAxes:
    source = PublishedAxes(**axes)
    autotune.configure(source=source, chip=CHIP)
    assert autotune.install(package) == [package]
    return source


TILES = {"tile_m": 256, "tile_k": 256, "tile_n": 128, "input_buffer_count": 3}
RAGGED = array("bfloat16", 512, 256), array("bfloat16", 4, 256, 384), array("int32", 4)


def test_tokamax() -> None:
    pytest.importorskip("tokamax")
    from tokamax import AutotuningResult
    from tokamax._src import config
    from tokamax._src.ops.ragged_dot import pallas_mosaic_tpu as ragged

    op = ragged.PallasMosaicTpuRaggedDot()
    tuned, users_own = ragged.Config(**TILES), ragged.Config(tile_m=64)

    def trace(config: Any) -> str:
        return program(lambda *a: op.replace(config=config)(*a[:2], group_sizes=a[2]), *RAGGED)

    with config.cross_compile(True):
        default, explicit = trace(None), trace(tuned)
        source = installed("tokamax", tokamax_ragged_dot=TILES)
        assert default != explicit == trace(None)
        assert source.problem("tokamax_ragged_dot").endswith("dtype=bfloat16,mode=fwd")
        assert trace(users_own) not in (explicit, default)
        bound = op.bind(*RAGGED[:2], group_sizes=RAGGED[2])
        users = bound.cached_autotuning_data.__class__({users_own: _time()})
        with AutotuningResult(KIND, ((bound, users),)):
            assert trace(None) == trace(users_own)
        autotune.uninstall()
        assert trace(None) == default


def _time() -> Any:
    from tokamax._src.benchmarking import BenchmarkData

    return BenchmarkData(0.0, 0.0, (1.0,), {})


def test_tokamax_gradients() -> None:
    pytest.importorskip("tokamax")
    from tokamax._src import config
    from tokamax._src.ops.ragged_dot import pallas_mosaic_tpu as ragged

    op = ragged.PallasMosaicTpuRaggedDot()
    source = installed("tokamax", tokamax_ragged_dot=TILES)
    with config.cross_compile(True):
        sums = jax.grad(lambda *a: op(*a[:2], group_sizes=a[2]).sum().astype("f4"), (0, 1))
        program(sums, *RAGGED)
    modes = {dict(key.problem.options)["mode"] for key in source.asked}
    assert modes == {"fwd", "dlhs", "drhs"}
