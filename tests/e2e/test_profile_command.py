"""``autotune profile`` and ``autotune explain --source`` with the real TPU compiler."""

import json

import pytest

from tests.servers.commands import autotune

pytestmark = pytest.mark.slow

FUNCTION = """
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

def body(x_ref, o_ref):
    o_ref[...] = jnp.exp(x_ref[...]).T

def turned(x):
    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape[::-1], x.dtype))(x)

def plain(x):
    return x + 1

def around(x):
    return turned(jnp.cumsum(x, 0))
"""


def profiled(folder, *words):
    done = autotune(*words, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def adds_up(call):
    return call["cycles"] == sum(n for row in call["rows"] for _, n in row["cycles"]) > 0


@pytest.mark.parametrize("chip", ["v5e", "v5p", "v6e", "v7x"])
def test_a_function_that_nobody_declared(tmp_path, chip):
    (tmp_path / "mine.py").write_text(FUNCTION)
    given = ("--args", "x=f32[128,256]", "--chip", chip)
    data = profiled(tmp_path, "profile", "mine.py:turned", *given)
    (call,) = data["profiles"][0]["calls"]
    texts = [row["frames"][-1]["text"] for row in call["rows"] if row["frames"]]
    assert adds_up(call) and texts == ["o_ref[...] = jnp.exp(x_ref[...]).T"]
    refused = autotune("profile", "mine.py:plain", *given, cwd=tmp_path)
    assert refused.returncode == 2
    assert "no pallas_call" in refused.stderr and "Traceback" not in refused.stderr


def test_a_trial_takes_what_was_estimated_line_by_line(tmp_path):
    search = ("search", "matmul", "--shape", "m=512,k=512,n=512", "--chip", "v5e", "--trials", "2")
    assert autotune(*search, cwd=tmp_path).returncode == 0
    data = profiled(tmp_path, "explain", "1", "2", "--source")
    for trial, named in zip(data["trials"], data["source"], strict=True):
        (call,) = named["calls"]
        us = call["cycles"] / call["clock_hz"] * 1e6
        assert adds_up(call) and us == pytest.approx(trial["explanation"]["kernel_us"], rel=1e-3)
        assert named["name"].startswith(f"trial {trial['id']}: block_")
        steps = [row for row in call["rows"] if "steps of the pipeline" in dict(row["cycles"])]
        maps = [row["frames"][-1]["text"] for row in steps if row["frames"]]
        assert len(maps) == 3 and all("grid.index_map(lambda" in text for text in maps)
