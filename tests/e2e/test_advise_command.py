"""``autotune advise`` with the real TPU compiler, on kernels as people write them first."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.samples import naive
from tests.servers.commands import autotune

pytestmark = pytest.mark.slow

SOURCE = Path(naive.__file__).read_text(encoding="utf-8")


def advised(folder, name, call, chip, *more, source=SOURCE):
    (folder / "mine.py").write_text(source)
    done = autotune(
        "advise", f"mine.py:{name}", "--args", call, "--chip", chip, "--json", *more, cwd=folder
    )
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)["advice"]


def test_parallel_axes_on_two_cores_and_a_patch_that_applies(tmp_path):
    advice = advised(tmp_path, "softmax", "x=f32[2048,1024]", "v5p", "--apply", "it.patch")
    (finding,) = advice["findings"]
    (change,) = finding["changes"]
    assert change["kind"] == "parallel grid axes" and change["value"] == "P"
    assert finding["before_us"] == advice["time_us"] > 1.5 * finding["after_us"]
    assert finding["verdict"]["ok"] and finding["same_program"]
    assert (tmp_path / "mine.py").read_text() == SOURCE
    subprocess.run(["patch", "-p1", "-i", "it.patch"], cwd=tmp_path, check=True)
    assert 'dimension_semantics=("parallel",)' in (tmp_path / "mine.py").read_text()


PROJECTED = """
def _project_body(x_ref, y_ref, out_ref):
    wide = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)
    out_ref[...] = wide.astype(out_ref.dtype)


def project(x, y):
    return pl.pallas_call(
        _project_body,
        grid=(x.shape[0] // 128, y.shape[1] // 4096),
        in_specs=[
            pl.BlockSpec((128, x.shape[1]), lambda i, j: (i, 0)),
            pl.BlockSpec((y.shape[0], 4096), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((128, 4096), lambda i, j: (i, j)),
        out_shape=jax.ShapeDtypeStruct((x.shape[0], y.shape[1]), x.dtype),
    )(x, y)
"""


def test_another_order_of_the_grid_and_what_the_call_costs(tmp_path):
    """A weight is fetched again for each block of rows; two cores make the right order faster."""
    call = "x=bf16[2048,512],y=bf16[512,8192]"
    advice = advised(tmp_path, "project", call, "v5p", source=SOURCE + PROJECTED)
    (turned,) = (f for f in advice["findings"] if f["changes"][0]["value"] == "10")
    assert turned["verdict"]["ok"] and turned["same_program"]
    assert turned["before_us"] > 1.5 * turned["after_us"]
    assert "grid=(y.shape[1] // 4096, x.shape[0] // 128)" in turned["diff"]
    together = advice["together"]
    assert together["verdict"]["ok"] and together["after_us"] < 0.6 * turned["after_us"]
    assert [change["kind"] for change in together["changes"]][1:] == [turned["changes"][0]["kind"]]
    (cost,) = advice["costs"]
    assert cost["change"]["value"].startswith(f"{2 * 2048 * 512 * 8192},0,")
    assert "cost_estimate=pl.CostEstimate(flops=17_179_869_184, " in cost["diff"]


SMALL = """
def add(x, y):
    block = pl.BlockSpec((8, 128), lambda i, j: (i, j))
    return pl.pallas_call(
        lambda x, y, out: out.__setitem__(..., x[...] + y[...]),
        grid=(x.shape[0] // 8, x.shape[1] // 128),
        in_specs=[block] * 2,
        out_specs=block,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
    )(x, y)
"""


def test_small_blocks_get_a_third_buffer(tmp_path):
    advice = advised(tmp_path, "add", "x=f32[64,512],y=f32[64,512]", "v6e", source=SOURCE + SMALL)
    (buffers,) = advice["findings"]
    assert buffers["changes"][0]["kind"] == "more buffers" and buffers["verdict"]["ok"]
    assert buffers["after_us"] < 0.9 * buffers["before_us"]
    assert "diff" not in buffers
