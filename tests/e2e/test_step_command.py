"""Whole steps of models through the real compiler, first answers alone: they take seconds."""

import json
import os
import sys
from pathlib import Path

import jax
import pytest
from click.testing import CliRunner

import autotune
from autotune.cli.main import cli
from autotune.domain.errors import AutotuneError
from autotune.domain.step import Basis
from autotune.wording.units import micros
from autotune_db import open_store

MODEL = """
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import NamedSharding, PartitionSpec


def layer(x, w):
    with jax.named_scope("mlp"):
        return x + jnp.tanh(x @ w["up"]) @ w["down"]


def weights(layers):
    shape = lambda *sizes: jax.ShapeDtypeStruct((layers, *sizes), jnp.bfloat16)
    return {"up": shape(2048, 8192), "down": shape(8192, 2048)}


@jax.jit
def forward(w, x):
    return jax.lax.scan(lambda x, w: (jax.checkpoint(layer)(x, w), None), x, w)[0]


def loss(w, x):
    return jnp.sum(forward(w, x).astype(jnp.float32) ** 2)


def update(w, x):
    return jax.tree.map(lambda w, g: (w - 1e-3 * g).astype(w.dtype), w, jax.grad(loss)(w, x))


train = jax.jit(update, donate_argnums=0)
FOUR, EIGHT = weights(4), weights(8)


def until(x, w):
    return jax.lax.while_loop(lambda x: jnp.max(x) < 9.0, lambda x: x @ w, x)


def once(x, w):
    return x @ w


def some(x, n):
    def copy(n, x, o):
        o[...] = x[...]

    block = pl.BlockSpec((8, 128), lambda i, n: (i, 0))
    known = pltpu.with_memory_space_constraint(jnp.arange(4), pltpu.HBM)
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(n[0],), in_specs=[block], out_specs=block
    )
    return pl.pallas_call(copy, jax.ShapeDtypeStruct(x.shape, x.dtype), grid_spec=spec)(known, x)


devices = jax.devices()
mesh = jax.make_mesh((len(devices),), ("x",))
rows = NamedSharding(mesh, PartitionSpec("x"))
total = jax.jit(
    jax.shard_map(
        lambda x: jax.lax.psum(x, "x"), mesh=mesh, in_specs=rows.spec, out_specs=PartitionSpec()
    )
)
ROWS = jax.ShapeDtypeStruct((8192, 4096), jnp.float32, sharding=rows)
"""


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


def answer(function, *options, code=0):
    command = ["step", function, "--chip", "v5e", "--budget", "0s", "--json", *options]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == code, (result.output, result.exception)
    return json.loads(result.stdout)


def step(function, *options):
    (found,) = answer(function, *options)["steps"]
    assert sum(part["time_us"] for part in found["parts"]) == pytest.approx(found["time_us"])
    return found


def test_a_step_counts_each_layer_once(model):
    """Four more layers take what their arithmetic takes, twice: forward, recomputed, gradients."""
    four, eight = (
        step(f"{model}:train", "--args", f"w={name},x=bf16[4096,2048]", "--tokens", "4096")
        for name in ("FOUR", "EIGHT")
    )
    flops = 2 * 4096 * 2048 * 8192 * 2  # of a layer, forward
    made = [sum(part["flops"] for part in found["parts"]) for found in (four, eight)]
    assert 3 * 4 * flops <= made[1] - made[0] <= 4 * 4 * flops
    assert four["time_us"] > made[0] / 197e12 * 1e6
    assert eight["time_us"] / four["time_us"] == pytest.approx(2, rel=0.01)
    assert {"mlp", "mlp (backward)"} <= {part["scope"] for part in four["parts"]}
    assert four["tokens_per_s"] == pytest.approx(4096e6 / four["time_us"])
    assert not four["is_whole"] and four["error"] > 0.2
    assert 0 < four["hbm_bytes"] < eight["hbm_bytes"]  # known before the code is
    lines = {part["line"].rpartition("/")[2] for part in four["parts"]}
    layer = 1 + MODEL[: MODEL.index("return x + jnp.tanh")].count("\n")
    assert f"model.py:{layer}" in lines


def test_a_loop_that_data_end_is_said_and_not_guessed(model):
    found = step(f"{model}:until", "--args", "x=f32[1024,1024],w=f32[1024,1024]")
    (line,) = found["undecided"]
    assert line.startswith(f"{model}:") and found["error"] is None


def test_a_kernel_whose_grid_data_decide_leaves_the_step_a_time(model):
    """Beside what is known, and only placed in memory."""
    found = step(f"{model}:some", "--args", "x=f32[1024,128],n=i32[1]", "--budget", "2m")
    (reason,) = found["refused"]
    assert "scalar" in reason or "data" in reason
    assert "Pallas kernels" in {part["kind"] for part in found["parts"]}


def test_a_sum_over_a_slice_goes_over_its_links(model):
    found = step(f"{model}:total", "--args", "x=ROWS", "--topology", "2x2")
    assert found["devices"] == 4
    (links,) = (part for part in found["parts"] if part["kind"] == "collectives")
    shard = 8192 * 4096 * 4 / 4
    assert links["time_us"] > 2 * shard * 3 / 4 / (2 * 45e3)  # both links of a corner
    assert answer(f"{model}:total", "--args", "x=ROWS", "--topology", "2x2x2", code=1)["failed"]


def test_what_was_compiled_before_is_not_waited_for(model, tmp_path, monkeypatch):
    """The first answer of the second time is the last of the first. JAX's own cache stays empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "jax"))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    args = ("--args", "x=bf16[512,512],w=bf16[512,512]")
    whole, again = (step(f"{model}:once", *args, "--budget", budget) for budget in ("10m", "0s"))
    assert whole == again and whole["is_whole"] and whole["hbm_bytes"] > 3 * 512 * 512 * 2
    simulated = [part for part in whole["parts"] if part["basis"] == Basis.SIMULATED]
    assert sum(part["time_us"] for part in simulated) > 0
    other = step(f"{model}:once", "--args", "x=bf16[512,512],w=bf16[512,256]")
    assert 0 < other["hbm_bytes"] < whole["hbm_bytes"]
    assert not (tmp_path / "jax").exists()


def test_chips_side_by_side_with_prices(model, tmp_path):
    prices = tmp_path / "prices.toml"
    prices.write_text("v5e = 1.0\nv6e = 2.0\n")
    args = ("--args", "w=FOUR,x=bf16[4096,2048]", "--tokens", "4096", "--prices", str(prices))
    both = answer(f"{model}:forward", *args, "--chip", "v6e")["steps"]
    assert [found["chip"] for found in both] == ["v5e", "v6e"]
    assert both[1]["time_us"] < both[0]["time_us"]
    for found, price in zip(both, (1.0, 2.0), strict=True):
        cost = price / 3600 / found["tokens_per_s"] * 1e6
        assert found["cost_per_million_tokens"] == pytest.approx(cost)
    prices.write_text('v5e = "cheap"\n')
    refused = CliRunner().invoke(cli, ["step", f"{model}:forward", "--chip", "v5e", *args])
    assert "is no price" in str(refused.exception)


TUNED = """
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

import autotune


@autotune.tunable(block_rows=autotune.block("x.-2", minimum=8))
def double(x, *, block_rows=8):
    def body(x_ref, out_ref):
        out_ref[...] = x_ref[...] * 2

    spec = pl.BlockSpec((block_rows, x.shape[1]), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    grid = (x.shape[0] // block_rows,)
    return pl.pallas_call(body, grid=grid, in_specs=[spec], out_specs=spec, out_shape=shape)(x)


def step(x, layers):
    return jax.lax.scan(lambda x, _: (double(x), None), x, length=layers)[0]
"""


def test_before_and_after_a_search(tmp_path):
    path, database = tmp_path / "tuned.py", str(tmp_path / "tuned.db")
    path.write_text(TUNED)
    search = ["search", f"{path}:double", "--args", "x=bf16[4096,512]", "--chip", "v5e"]
    assert CliRunner().invoke(cli, [*search, "--trials", "4", "--db", database]).exit_code == 0
    args = ("--args", "x=bf16[4096,512],layers=8", "--tuned", database, "--budget", "1m")
    found = step(f"{path}:step", *args)
    assert found["time_us"] < 0.7 * found["before_us"]
    workload = tmp_path / "model.toml"
    workload.write_text(
        'chips = ["v5e"]\nstep = "tuned.py:step"\nstep_args = "x=bf16[4096,512],layers=8"\n'
        '[[problem]]\nkernel = "tuned.py:double"\nargs = "x=bf16[4096,512]"\nweight = 8\n'
    )
    tune = CliRunner().invoke(cli, ["tune", str(workload), "--trials", "4", "--db", database])
    line = f"the step on v5e: {micros(found['before_us'])} → {micros(found['time_us'])} a step"
    assert tune.exit_code == 0 and line in tune.stdout
    with open_store(database) as store:
        tuned, _ = store.workloads.find("model")
    assert [step.after_us for step in tuned.steps] == pytest.approx([found["time_us"]])
    of_file = ["step", "--workload", str(workload), "--tuned", database, "--budget", "1m", "--json"]
    (same,) = json.loads(CliRunner().invoke(cli, of_file).stdout)["steps"]
    assert same["chip"] == "v5e" and same["time_us"] == pytest.approx(found["time_us"])
    twin = str(Path(sys.executable).with_name("python3"))
    check = ["check", "--workload", str(workload), "--chip", "v6e", "--python", twin]
    assert "the step on v6e: " in CliRunner().invoke(cli, [*check, "--db", database]).stdout
    assert os.environ.get("AUTOTUNE_SOURCE") is None


def test_from_python_and_until_the_end(model):
    """With its code compiled, all is simulated, and HBM known."""
    found = autotune.step(f"{model}:forward", "w=FOUR", "x=bf16[256,2048]", chip="v5e")
    assert found.is_whole and found.share_us(Basis.SIMULATED) > 0.9 * found.time_us
    assert 4 * 2 * 2048 * 8192 * 2 < found.hbm_bytes < found.hbm_capacity_bytes
    with pytest.raises(AutotuneError, match="no function nothing"):
        autotune.step(f"{model}:nothing", chip="v5e")


def test_a_function_that_nobody_else_can_find_is_refused():
    with pytest.raises(AutotuneError, match="defined inside a function"):
        autotune.step(lambda x: x, jax.ShapeDtypeStruct((8,), "float32"), chip="v5e")
