"""What a model calls, and how often: counted by hand."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import jax
import pytest
from jax.experimental import pallas as pl

import autotune
from autotune.cli.collect import hlo_kernels
from autotune.cli.reports import undeclared_line
from autotune.compiling.child import declarations, known_kernels
from autotune.compiling.child.collecting import collect
from autotune.compiling.child.loading import Loader, LoadError
from autotune.declaring.discovery import installed_kernels
from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Chip, KernelRef
from autotune.domain.workload import Workload, read_workload, workload_text

MODEL = """
import jax, jax.numpy as jnp
import autotune
import autotune_kernels.matmul as mm
from autotune_kernels.matmul import KERNEL
from autotune_kernels.rmsnorm import KERNEL as NORM
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

TUNED = autotune.Tuned(KERNEL, declared_in=mm.__file__, chip="v5e")

def elementwise(body, x, block, **more):
    spec = pl.BlockSpec((block, x.shape[1]), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(
        body, grid=(x.shape[0] // block,), in_specs=[spec], out_specs=spec, out_shape=shape, **more
    )(x)

@autotune.tunable(block=[128, 256])
def double(x, *, block=256):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2
    return elementwise(body, elementwise(body, x, block), block)

@autotune.tunable(block=[128, 256])
def counted(x, lengths, *, block=256):
    return double(x, block=block)

def known(x, given):
    import numpy as np
    def inside(x, lengths, by=0):
        layer = lambda x, _: (counted(x, lengths + by), None)
        return jax.lax.scan(layer, x, length=2)[0]
    x = jax.jit(inside)(x, np.int32([3, 5])) + counted(x, given)
    x = jax.jit(inside, static_argnames="by")(x, jnp.full(2, 4), by=1)
    ref = jax.new_ref(given) if hasattr(jax, "new_ref") else x[0, :2].astype("int32")
    x = jax.jit(lambda x, lengths: counted(x, lengths))(x, ref[...])
    ask = lambda: jax.pure_callback(lambda: np.int32([8, 8]), jax.ShapeDtypeStruct((2,), jnp.int32))
    x = counted(x, jax.jit(ask)())
    for lengths in (np.int32([1, 2]), np.int32([3, 4])):
        x = traced_once(x, lengths)
    return x

traced_once = jax.jit(lambda x, lengths: counted(x, lengths))

@jax.custom_vjp
def differentiable(x):
    return double(x)

differentiable.defvjp(lambda x: (double(x), None), lambda _, g: (double(g),))

def matmul(x):
    problem = TUNED.problem(m=x.shape[0], k=x.shape[1], n=x.shape[1], dtype=x.dtype)
    return KERNEL.build(problem, TUNED.config(problem))(x, x)

def add_one(x):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...] + 1
    params = pltpu.CompilerParams(vmem_limit_bytes=1 << 25)
    return elementwise(body, x, 128, name="add_one", compiler_params=params)

def norm(x):
    spec = NORM.problem_spec.problem({"rows": x.shape[0], "features": x.shape[1]}, str(x.dtype), {})
    config = autotune.Config(
        axes=(("block_rows", 64), ("block_features", 128)), grid_order=NORM.grid
    )
    return NORM.build(spec, config)(x, jnp.zeros(x.shape[1], x.dtype))

def step(x, layers):
    @jax.checkpoint
    def layer(x, _):
        x = jax.jit(double)(matmul(x))
        x = jax.lax.fori_loop(0, 3, lambda _, y: add_one(y), x)
        return norm(x), None
    x = jax.lax.scan(layer, x, None, length=layers)[0]
    x = jax.lax.while_loop(lambda y: y.sum() < 0, add_one, x)
    return matmul(x)

def gradient(x):
    return jax.grad(lambda x: differentiable(x).sum())(x)

def rematted(x):
    layer = jax.checkpoint(lambda x, _: (differentiable(x) * x, None))
    return jax.grad(lambda x: jax.lax.scan(layer, x, None, length=4)[0].sum())(x)

def batched(x):
    return jax.vmap(lambda x: norm(double(x)))(x)

def many(x):
    x = jax.vmap(jax.jit(double))(x)
    x = jax.vmap(lambda x: jax.lax.scan(lambda x, _: (double(x), None), x, None, length=4)[0])(x)
    return jax.vmap(matmul)(x)

def activated(x):
    for activation in ("none", "gelu", "gelu"):
        problem = TUNED.problem(
            m=x.shape[0], k=x.shape[1], n=x.shape[1], dtype=x.dtype, activation=activation
        )
        x = KERNEL.build(problem, TUNED.config(problem))(x, x)
    again = KERNEL.build(problem, TUNED.config(problem))
    return jax.lax.fori_loop(0, 5, lambda _, x: again(x, x), x)

def attention(q, scale):
    from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention
    return flash_attention(q, q, q, causal=True, sm_scale=scale)

def packed(q, ids, window=255):
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernel
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
    names = "q kv kv_compute q_dkv kv_dkv kv_dkv_compute q_dq kv_dq"
    sizes = kernel.BlockSizes(**{f"block_{name}": 256 for name in names.split()})
    shape = (q.shape[2],) * 2
    mask = masks.CausalMask(shape)
    mask = mask & masks.LocalMask(shape, (window, 256), 0) if window else mask
    attend = kernel.make_splash_mha_single_device(
        masks.MultiHeadMask([mask] * q.shape[1]), block_sizes=sizes, attn_logits_soft_cap=30.0
    )
    segmented = jax.vmap(lambda q, ids: attend(q, q, q, kernel.SegmentIds(ids, ids)))
    return jax.grad(lambda q: segmented(q, ids).sum())(q)

def grouped(x, weights, sizes):
    from jax.experimental.pallas.ops.tpu.megablox import gmm
    loss = lambda w: gmm(x, w, sizes, jnp.bfloat16, (128, 256, 512)).astype(jnp.float32).sum()
    return jax.grad(loss)(weights)

def product(x):
    from jax.experimental.pallas.ops.tpu.matmul import matmul
    layer = lambda x, _: (matmul(x, x, block_shape=(256, 128), block_k=512), None)
    return jax.lax.scan(layer, x, length=3)[0]

def pipelined(x, n):
    def body(n_ref, x_ref, o_ref):
        def inner(x_ref, o_ref):
            o_ref[...] = x_ref[...] * 2
        spec = pl.BlockSpec((64, 128), lambda i: (i, 0))
        pltpu.emit_pipeline(inner, grid=(4,), in_specs=[spec], out_specs=[spec])(x_ref, o_ref)
        spec, grid = pl.BlockSpec((32, 128), lambda _, i: (i, 0)), (1, n_ref[0])
        pltpu.emit_pipeline(inner, grid=grid, in_specs=[spec], out_specs=[spec])(x_ref, o_ref)
    whole, words = pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec(memory_space=pltpu.SMEM)
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    with jax.named_scope("layer"):
        return pl.pallas_call(body, in_specs=[words, whole], out_specs=whole, out_shape=shape)(n, x)

def scattered(x):
    from jax.experimental.pallas import tpu_sc
    mesh = tpu_sc.VectorSubcoreMesh(core_axis_name="c", subcore_axis_name="s", num_cores=2)
    def copy(x_ref, o_ref, rows, here, there):
        pltpu.sync_copy(x_ref, o_ref)
        @pl.loop(0, 3)
        def _(turn):
            pltpu.sync_copy(x_ref.at[rows], here)
            pltpu.sync_copy(here.at[pl.ds(turn, 4)], o_ref.at[pl.ds(turn * 4, 4)])
            pltpu.sync_copy(here, o_ref.at[rows])
    scratch = [pltpu.VMEM((8,), jnp.int32), *(pltpu.VMEM((8, 128), x.dtype) for _ in "ab")]
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.kernel(copy, shape, mesh=mesh, name="copy", scratch_types=scratch)(x)

def mapped(x):
    from jax.experimental.pallas import tpu_sc
    mesh = tpu_sc.VectorSubcoreMesh(core_axis_name="c", subcore_axis_name="s", num_cores=2)
    refs = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))
    jax.jit(lambda: pl.core_map(mesh)(lambda: pltpu.sync_copy(*refs)))()
    return refs[1][...]

def mixed(x):
    from jax._src.pallas import mpmd
    from jax.experimental.pallas import tpu_sc
    meshes = (tpu_sc.ScalarSubcoreMesh(axis_name="c", num_cores=2),
              pltpu.create_tensorcore_mesh("core", num_cores=1))
    copies = [lambda x, o, rows=rows: pltpu.sync_copy(x.at[rows], o.at[rows])
              for rows in (pl.ds(0, 8), pl.ds(16, 16))]
    x = pltpu.with_memory_space_constraint(x, pltpu.HBM)
    return mpmd.mpmd_map(list(zip(meshes, copies)), pltpu.HBM(x.shape, x.dtype))(x)

def meshed(x):
    import numpy as np
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("rows",))
    rows = jax.sharding.PartitionSpec("rows")
    on_tpu = jax.devices()[0].platform == "tpu" == jax.default_backend()
    body = double if on_tpu else (lambda x: x)
    return jax.shard_map(body, mesh=mesh, in_specs=rows, out_specs=rows, check_vma=False)(x)

def made(x):
    import inspect
    shape, names = list(inspect.signature(jax.make_mesh).parameters)[:2]
    mesh = jax.make_mesh(**{shape: (1,), names: ("rows",)})
    assert [one.platform for one in mesh.devices.flat] == ["tpu"]
    assert jax.local_devices(backend="tpu") == jax.devices("tpu") == jax.devices()
    assert jax.local_devices(backend="cpu") == jax.devices("cpu") != jax.devices()
    with jax.default_device(jax.devices("cpu")[0]):
        return double(x + jnp.ones(x.shape))

def entered(x):
    mesh = jax.make_mesh((1,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.sharding.PartitionSpec("rows")
    with jax.set_mesh(mesh):
        return jax.shard_map(double, in_specs=rows, out_specs=rows, check_vma=False)(x)

placed = jax.jit(double, in_shardings=None)

def trained(q):
    return jax.grad(lambda q: attention(q, 1.0).sum())(q)

def broken(x):
    double(x)
    raise RuntimeError("there is no layer 7")
"""


def collected(folder, function, call, chip=None, *, declare=False):
    path = folder / "model.py"
    path.write_text(MODEL)
    known = (
        "matmul",
        "rmsnorm",
        *(f"jax_splash_attention{part}" for part in ("", "_dq", "_dkv")),
        *(f"jax_flash_attention{part}" for part in ("", "_dq", "_dkv")),
        "jax_gmm",
        "jax_tgmm",
    )
    refs = {name: installed_kernels()[name] for name in known}
    ref = KernelRef(path=str(path), attribute=function, call=call)
    return collect(Loader(), ref, chip, refs, declare=declare)


def weights(found):
    return {Path(one.kernel).name: one.weight for one in found.problems} | {
        one.name: one.weight for one in found.undeclared
    }


def test_calls_are_counted_through_all_that_a_model_is_made_of(tmp_path):
    found = collected(tmp_path, "step", "x=f32[256,256], layers=5")
    assert weights(found) == {
        "model.py:double": 5,
        "matmul.py:KERNEL": 6,
        "rmsnorm": 5,
        "add_one": 3 * 5 + 1,
    }
    by_name = {Path(one.kernel).name: one for one in found.problems}
    assert by_name["model.py:double"].args == "x=float32[256,256]"
    assert by_name["matmul.py:KERNEL"].shape == "m=256,k=256,n=256"
    assert by_name["rmsnorm"].config == "block_rows=64,block_features=128"
    (other,) = found.undeclared
    assert (other.grid, other.blocks) == ((2,), ((128, 256), (128, 256)))
    assert (other.vmem_bytes, other.limit_bytes) == (2 * 2 * 128 * 256 * 4, 1 << 25)


def test_a_gradient_counts_its_own_calls_and_vmap_its_batch(tmp_path):
    assert weights(collected(tmp_path, "gradient", "x=f32[256,256]")) == {"model.py:double": 2}
    again = weights(collected(tmp_path, "rematted", "x=f32[256,256]"))
    assert again == {"model.py:double": 4 + 4 + 4}  # forward, recomputed, backward
    found = weights(collected(tmp_path, "batched", "x=f32[3,256,256]"))
    assert (found["rmsnorm"], found["model.py:double"]) == (3, 3)
    found = weights(collected(tmp_path, "many", "x=f32[3,256,256]"))
    assert found == {"model.py:double": 3 + 3 * 4, "matmul.py:KERNEL": 3}


def test_problems_that_differ_in_an_option_have_their_own_calls(tmp_path):
    found = collected(tmp_path, "activated", "x=f32[256,256]")
    by_option = {one.options: one.weight for one in found.problems}
    assert sorted(by_option.values()) == [1, 2 + 5], by_option


def test_a_scale_is_no_part_of_a_problem(tmp_path):
    for scale in ("1.0", "0.3"):
        (found,) = collected(tmp_path, "attention", f"q=bf16[1,2,512,128], scale={scale}").problems
        assert (found.kernel, found.options) == ("jax_flash_attention", ("causal=true",))
    trained = {one.kernel for one in collected(tmp_path, "trained", "q=bf16[1,2,512,128]").problems}
    assert trained >= {"jax_flash_attention_dq", "jax_flash_attention_dkv"}


@pytest.mark.parametrize(("window", "mask"), [(255, "local"), (0, "causal")])
def test_attention_of_packed_documents_and_its_gradient_are_problems(tmp_path, window, mask):
    call = f"q=bf16[3,2,1024,128], ids=i32[3,1024], window={window}"
    found = collected(tmp_path, "packed", call)
    stored = str(mask == "local").lower()
    options = f"mask={mask}", f"stored={stored}", "segments=true", "soft_cap=true"
    assert found.undeclared == []
    assert {one.kernel: one.weight for one in found.problems} == {
        f"jax_splash_attention{part}": 3 for part in ("", "_dkv", "_dq")
    }
    for one in found.problems:
        assert set(options) <= set(one.options) and set(one.config.split("=")) & {"256"}
    (forward,) = (one for one in found.problems if one.kernel == "jax_splash_attention")
    assert "residuals=true" in forward.options


def test_groups_are_seen_in_a_gradient_and_tiles_may_be_larger_than_the_whole(tmp_path):
    call = "x=bf16[1024,512], weights=bf16[4,512,384], sizes=i32[4]"
    found = collected(tmp_path, "grouped", call)
    assert found.undeclared == []
    assert {one.kernel: one.config for one in found.problems} == dict.fromkeys(
        ("jax_gmm", "jax_tgmm"), "tile_m=128,tile_k=256,tile_n=512"
    )
    assert {one.shape for one in found.problems} >= {"m=1024,k=512,n=384,groups=4"}


def test_a_declaration_of_a_call_makes_the_same_call(tmp_path):
    found = collected(tmp_path, "product", "x=f32[512,512]", declare=True)
    (made,) = found.declarations
    assert (made.name, made.weight, found.undeclared) == ("matmul", 3, [])
    assert made.args == "x=float32[512,512], y=float32[512,512]"
    home = {"autotune": autotune, "__name__": "found"}
    home |= {name.partition(".")[0]: importlib.import_module("jax") for name in made.imports[1:]}
    exec(compile(made.code.format(name=made.name), __file__, "exec"), home)
    kernel = home["matmul"].declaration
    assert kernel.defaults == {"block_shape_0": 256, "block_shape_1": 128, "block_k": 512}
    x = jax.ShapeDtypeStruct((512, 512), "float32")
    assert "grid=(2, 4, 1)" in str(jax.make_jaxpr(home["matmul"])(x, x))


def test_whose_blocks_are_no_argument_is_not_declared(tmp_path):
    found = collected(tmp_path, "attention", "q=f32[1,1,128,64], scale=1.0", Chip.V5E, declare=True)
    assert not found.declarations


def test_integers_that_a_model_knows_are_in_its_problems(tmp_path):
    """Through a ``jit`` and a loop, constants, computed and given; not those that may change, or of
    a ``jit`` that is traced once for several."""
    found = collected(tmp_path, "known", "x=f32[256,256], given=i32[2]@[7, 9]").problems
    call = "x=float32[256,256], lengths=int32[2]"
    assert {one.args: one.weight for one in found} == {
        f"{call}@[3, 5]": 2,
        f"{call}@[7, 9]": 1,
        f"{call}@[5, 5]": 2,
        call: 4,
    }


def test_buffers_of_a_pipeline_and_its_place_are_listed(tmp_path):
    (found,) = collected(tmp_path, "pipelined", "x=f32[256,128],n=i32[1]", Chip.V5E).undeclared
    assert found.scratch == ("float32[2,64,128]",) * 2 + ("float32[2,32,128]",) * 2
    assert [p.grid for p in found.pipelines] == [(4,), (1, 0)]
    assert [p.blocks for p in found.pipelines] == [((64, 128), (64, 128)), ((32, 128), (32, 128))]
    assert "and a pipeline, grid 1x?, blocks [32,128] [32,128]" in undeclared_line(found)
    assert read_workload(workload_text(Workload(undeclared=(found,)))).undeclared == (found,)
    assert found.vmem_bytes == 2 * 2 * (64 + 32) * 128 * 4
    assert (found.scope, found.operands[1:]) == ("layer", ("float32[256,128]",) * 2)
    line = next(n for n, text in enumerate(MODEL.split("\n"), 1) if "in_specs=[words" in text)
    assert found.source == f"{tmp_path / 'model.py'}:{line}"


@pytest.mark.skipif(not hasattr(pl, "kernel"), reason="this JAX has no kernels for SparseCores")
@pytest.mark.filterwarnings("ignore:.*core_map|.*core_mesh:DeprecationWarning")  # jax 0.12
def test_kernels_for_sparse_cores_are_listed(tmp_path):
    (found,) = collected(tmp_path, "scattered", "x=f32[256,128]", Chip.V6E).undeclared
    assert (found.name, found.core, found.grid) == ("copy", "SparseCore", (2, 16))
    assert found.dmas == (
        "1 x 131072 bytes hbm to hbm",
        "3 x 4096 bytes hbm to vmem, by index",
        "3 x 2048 bytes vmem to hbm",
        "3 x 4096 bytes vmem to hbm, by index",
    )
    assert read_workload(workload_text(Workload(undeclared=(found,)))).undeclared == (found,)
    (found,) = collected(tmp_path, "mapped", "x=f32[256,128]", Chip.V6E).undeclared
    assert (found.vmem_bytes, found.dmas) == (0, ("1 x 131072 bytes hbm to hbm",))
    assert found.source.startswith(f"{tmp_path / 'model.py'}:")
    if importlib.util.find_spec("jax._src.pallas.mpmd"):  # jax 0.9
        (found,) = collected(tmp_path, "mixed", "x=f32[256,128]", Chip.V6E).undeclared
        assert (found.core, found.dmas) == ("SparseCore+TensorCore", ("1 x 4096 bytes hbm to hbm",))


@pytest.mark.parametrize("function", ["meshed", "made", "entered", "placed"])
def test_a_model_with_a_mesh_of_its_own_is_told_that_it_has_the_chip(tmp_path, function):
    found = collected(tmp_path, function, "x=f32[512,256]", Chip.V5E)
    assert weights(found) == {"model.py:double": 1}
    assert jax.devices()[0].platform == "cpu"


def test_a_model_that_cannot_be_traced_says_why_and_what_was_found(tmp_path):
    found = collected(tmp_path, "broken", "x=f32[256,256]")
    assert found.error == "RuntimeError: there is no layer 7"
    assert weights(found) == {"model.py:double": 1}
    with pytest.raises(LoadError, match="no function missing"):
        collected(tmp_path, "missing", "")


def test_kernels_of_an_hlo_module_are_named_and_counted():
    call = '%{} = f32[8] custom-call(%x), custom_call_target="tpu_custom_call", metadata={{{}}}'
    lines = [
        call.format("closed_call.1", 'op_name="jit(f)/jit(main)/scale/pallas_call"'),
        call.format("closed_call.2", 'op_name="jit(f)/jit(main)/scale/pallas_call"'),
        call.format(
            "flash.5", 'op_name="jit(f)/while/body/jit(flash)/pallas_call" stack_frame_id=4'
        ),
        call.format("my_kernel.7", ""),
        '%y = f32[8] custom-call(%x), custom_call_target="Sharding"',
    ]
    found = hlo_kernels("HloModule m\n" + "\n".join(lines))
    assert [(one.name, one.weight) for one in found] == [
        ("scale", 2),
        ("flash", 1),
        ("my_kernel", 1),
    ]


def test_a_user_collects_from_python_what_the_command_does(tmp_path, monkeypatch):
    (tmp_path / "my_model.py").write_text(MODEL)
    monkeypatch.syspath_prepend(str(tmp_path))
    my_model = importlib.import_module("my_model")
    array = jax.ShapeDtypeStruct((256, 256), "float32")
    jax.eval_shape(jax.jit(my_model.double), array)  # what JAX keeps of it is not taken
    with autotune.collect() as earlier:
        earlier.trace(lambda x: my_model.norm(my_model.double(my_model.double(x))), array)
        earlier.trace(jax.jit(my_model.double), array)
    assert sorted(one.weight for one in earlier.workload.problems) == [1, 3]
    with autotune.collect() as workload:
        workload.trace(my_model.step, array, layers=5)
        jax.eval_shape(lambda x: my_model.double(x), array)
        with pytest.raises(RuntimeError, match="there is no layer 7"):
            workload.trace(my_model.broken, array)
    workload.save(tmp_path / "model.toml")
    saved = read_workload((tmp_path / "model.toml").read_text())
    found = {Path(one.kernel).name: one.weight for one in (*saved.problems,)}
    assert found == {"my_model.py:double": 5 + 1 + 1, "matmul.py:KERNEL": 6, "rmsnorm": 5}
    assert [(one.name, one.weight) for one in saved.undeclared] == [("add_one", 16)]
    jax.eval_shape(lambda x: my_model.double(x), array)  # after the block nobody listens
    assert {Path(one.kernel).name: one.weight for one in workload.workload.problems} == found


def test_a_workload_that_nobody_could_load_is_not_saved(tmp_path):
    with autotune.collect() as workload:
        nested = autotune.collect()
        with pytest.raises(InvalidInputError, match="__main__"):
            nested.__enter__()
    with pytest.raises(InvalidInputError, match=r"workload\.trace"):
        workload.save(tmp_path / "model.toml")


CHOOSING = """
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

def attend(queries, cache, kv_lens, page_indices, *, block_sizes: "tuple[int, int] | None" = None,
           rest_blocks: "tuple[int, int] | None" = None):
    def run(queries, *, bq_sz, bkv_sz):
        def body(lens_ref, pages_ref, q_ref, cache_ref, o_ref, keys_ref):
            o_ref[...] = q_ref[...] + lens_ref[0]
        rows = pl.BlockSpec((bq_sz, 128), lambda i, *_: (i, 0))
        spec = pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(queries.shape[0] // bq_sz,),
            in_specs=[rows, pl.BlockSpec(memory_space=pl.ANY)],
            out_specs=rows,
            scratch_shapes=[pltpu.VMEM((bkv_sz, 128), cache.dtype)],
        )
        shape, name = jax.ShapeDtypeStruct(queries.shape, queries.dtype), f"attend-{bq_sz}-{bkv_sz}"
        call = pl.pallas_call(body, grid_spec=spec, out_shape=shape, name=name)
        return call(kv_lens, page_indices, queries, cache)
    (rows, keys), (others, more) = block_sizes or (64, 256), rest_blocks or (32, 512)
    return run(run(queries, bq_sz=rows, bkv_sz=keys), bq_sz=others, bkv_sz=more)
"""


def test_references_stand_in_modules_beside_it_that_are_imported(tmp_path, monkeypatch):
    (tmp_path / "served").mkdir()
    (tmp_path / "served/reference.py").write_text("import sys\nsys.exit(3)")
    (tmp_path / "served/test.py").write_text("def a_ref(x): ...\ndef another(x): ...")
    functions = ("plain(x)", "two(x, y)", "_load(path)", "assert_close(x)")
    (tmp_path / "served/ref.py").write_text("".join(f"def {f}: ...\n" for f in functions))
    (tmp_path / "served/kernel.py").write_text("import served.ref, served.test\ndef fast(x): ...")
    monkeypatch.syspath_prepend(tmp_path)
    fast = importlib.import_module("served.kernel").fast
    assert list(declarations._references(fast, 1)) == ["served.ref.plain", "served.test.a_ref"]
    assert "served.reference" not in sys.modules


def test_sizes_that_a_function_chooses_itself_are_axes(tmp_path, monkeypatch):
    (tmp_path / "choosing.py").write_text(CHOOSING)
    monkeypatch.syspath_prepend(tmp_path)
    call = "queries=f32[512,128], cache=f32[64,16,2,128], kv_lens=i32[4], page_indices=i32[32]"
    ref = KernelRef(path="", attribute="attend", module="choosing", root=str(tmp_path), call=call)
    found = collect(Loader(), ref, Chip.V5E, {}, declare=True)
    (made,) = found.declarations  # of both kernels
    assert not found.undeclared
    listed, *_ = collect(Loader(), ref, Chip.V5E, {}).undeclared
    assert listed.scalars == ("int32[4]", "int32[32]")
    assert "rest_blocks_0=32, rest_blocks_1=512" in made.code
    assert "block_sizes=(block_sizes_0, block_sizes_1)" in made.code
    assert "block_sizes_0=64, block_sizes_1=256" in made.code
    assert "np.arange(page_indices.shape[0]) % cache.shape[0]" in made.code
    assert "page_indices.shape[0] // kv_lens.shape[0] * cache.shape[1]" in made.code


OWN = """
import dataclasses, jax, jax.numpy as jnp
from jax.experimental import pallas as pl

@dataclasses.dataclass(frozen=True)
class Doubled:
    rows: int = 64
    block: int = 128  # which nothing reads

    def __call__(self, x, scale, rows):
        def body(x, scale, rows, out):
            _, gradients = jax.vjp(lambda x, s: (x * s[:, None]).sum(1), x[...], scale[...])
            of_x, of_scale = gradients(scale[...])  # for JAX, scale lies where it was made
            out[...] = of_x + of_scale[:, None]
        spec = pl.BlockSpec((self.rows, x.shape[1]), lambda i: (i, 0))
        specs = [spec, *[pl.BlockSpec((self.rows,), lambda i: (i,))] * 2]
        grid, shape = (x.shape[0] // self.rows,), jax.ShapeDtypeStruct(x.shape, x.dtype)
        return pl.pallas_call(body, grid=grid, in_specs=specs, out_specs=spec, out_shape=shape)(
            x, scale, rows)

def step(x):
    return jax.jit(Doubled(128))(x, jnp.ones(512), jnp.arange(512) // 256)

def steps(x):
    return [Doubled(128)(x, jnp.ones(512), jnp.arange(512) // by) for by in (256, 128)]

def doubled_ref(x, scale, rows):
    return x + scale

def product_ref(x):
    return x * x
"""

LOOKED_UP = """
def looked_up(x, {0}=None, {1}=None, num_heads=None, chunk=None):
    {2}, {3} = {0}, {1}
    if None in ({0}, {1}):
        {2}, {3}, num_heads, chunk = 64, 128, 128, 32
    def body(x, out):
        out[...] = 2 * x[...]
    spec, grid = pl.BlockSpec(({2}, {3}), lambda i, j: (i, j)), (x.shape[0] // {2}, 512 // {3})
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(body, grid=grid, in_specs=[spec], out_specs=spec, out_shape=shape)(x)
"""


@pytest.mark.parametrize("names", [("tm", "tn", "tm", "tn"), ("bq", "bk", "rows", "cols")])
def test_sizes_that_come_from_a_table_together_are_axes(names, tmp_path, monkeypatch):
    """By their names in the function, or tried in pairs."""
    place = tmp_path / f"table_of_{names[0]}.py"
    place.write_text(OWN + LOOKED_UP.format(*names))
    monkeypatch.syspath_prepend(tmp_path)
    ref = KernelRef(path=str(place), attribute="looked_up", call="x=f32[512,512]")
    (made,) = collect(Loader(), ref, Chip.V6E, {}, declare=True).declarations
    assert "def {name}(x, *, " + f"{names[0]}=64, {names[1]}=128)" in made.code
    assert "chunk" not in made.code  # which no kernel is cut by


def test_an_object_with_sizes_of_the_file_itself_is_declared(tmp_path, monkeypatch):
    """Under the name that the file of declarations imports it by, where there is one."""
    for place in (tmp_path / "my-kernels.py", tmp_path / "5kernels.py"):
        place.write_text(OWN)
        ref = KernelRef(path=str(place), attribute="step", call="x=f32[512,128]")
        assert not collect(Loader(), ref, None, {}, declare=True).declarations
    (tmp_path / "own_kernels.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    place = str(tmp_path / "own_kernels.py")
    ref = KernelRef(path=place, attribute="step", call="x=f32[512,128]")
    (made,) = collect(Loader(), ref, Chip.V6E, {}, declare=True).declarations
    assert (made.name, made.imports) == ("Doubled", ("autotune", "own_kernels"))
    assert "def {name}(x, scale, rows, *, rows_size=128)" in made.code
    assert made.args.endswith(f"rows=int32[512]@{[0] * 256 + [1] * 256}")  # known in its jit, too
    assert "own_kernels.Doubled.__call__(" in made.code
    assert "# reference=own_kernels.doubled_ref," in made.code and "product_ref" not in made.code
    assert "self=own_kernels.Doubled(rows=rows_size, block=128)" in made.code
    (made,) = collect(
        Loader(), replace(ref, attribute="steps"), None, {}, declare=True
    ).declarations
    assert made.weight == 2 and made.args.endswith("rows=int32[512]")  # each call has other ones


SERVED = """
import jax, choosing
import jax.numpy as jnp
from autotune import Array, Axis, Kernel

attend = jax.jit(choosing.attend, static_argnames=("block_sizes", "rest_blocks"))

def inputs(problem):
    seqs, pages = problem["seqs"], problem["seqs"] * problem["pages"]
    shapes = {"queries": (problem["tokens"], 128), "cache": (pages, 16, 2, 128)}
    integers = {"kv_lens": (seqs,), "page_indices": (pages,)}
    return [
        *(Array(name=name, shape=shape, dtype=problem.dtype) for name, shape in shapes.items()),
        *(Array(name=name, shape=shape, dtype="int32") for name, shape in integers.items()),
    ]

def build(_, config):
    return lambda *given: attend(*given, block_sizes=(config["rows"], config["keys"]))

KERNEL = Kernel(
    name="served", dims=("seqs", "tokens", "pages"), dtypes=("float32",), inputs=inputs,
    build=build, default=lambda _: {"rows": 8, "keys": 16},
    default_on=lambda _, chip: {"rows": 16, "keys": 512},
    axes=(
        Axis(name="rows", choices=lambda _: [8, 64]), Axis(name="keys", choices=lambda _: [16, 256])
    ),
    sizes=lambda queries, _, lens, table: {
        "seqs": lens[0], "tokens": queries[0], "pages": table[0] // lens[0]
    },
)

def model(queries, cache, kv_lens, page_indices, blocks):
    def layer(x, _):
        return attend(x, cache, kv_lens, page_indices, block_sizes=blocks), None
    return jax.lax.scan(layer, queries, length=3)[0]
"""


@pytest.mark.parametrize("config", [(64, 256), (16, 512), (32, 128)])
def test_what_a_jitted_function_is_given_says_its_problem(tmp_path, monkeypatch, config):
    """A cache has any number of pages, and one call of the function makes two kernels; the second
    blocks are those that it has on the chip, the last are no choice, but likely."""
    (tmp_path / "choosing.py").write_text(CHOOSING)
    (tmp_path / "served.py").write_text(SERVED)
    monkeypatch.syspath_prepend(tmp_path)
    call = "queries=f32[512,128], cache=f32[99,16,2,128], kv_lens=i32[4], page_indices=i32[32]"
    path = str(tmp_path / "served.py")
    ref = KernelRef(path=path, attribute="model", call=f"{call}, blocks={config}")
    known = {"served": KernelRef(path=path, attribute="KERNEL")}
    likely = autotune.Config(axes=(("rows", 32), ("keys", 128)))
    found = collect(Loader(), ref, Chip.V5E, known, likely=[likely])
    assert not found.undeclared
    (problem,) = found.problems
    assert (problem.kernel, problem.weight) == ("served", 3)
    assert problem.shape == "seqs=4,tokens=512,pages=8"
    assert problem.config == "rows={},keys={}".format(*config)


WINDOWED = """
import jax, model
from autotune import Array, Axis, Kernel, Option

def windowed(x, window, rows, named):
    def body(x_ref, o_ref):
        place = jax.lax.broadcasted_iota("int32", x_ref.shape, 0)
        o_ref[...] = jax.numpy.where(place < window, x_ref[...], 0)
    return model.elementwise(body, x, rows, name=f"windowed-{rows}" + f"-sw_{window}" * named)

def declared(named):
    def build(problem, config):
        built.append(problem)
        return lambda x: windowed(x, problem.option("window"), config["rows"], named)

    return Kernel(
        name="windowed", dims=("rows",), dtypes=("float32",), build=build,
        options=(Option(name="window", choices=(0, 32, 128, 384), default=0),),
        axes=(Axis(name="rows", choices=lambda _: [1, 2, 4, 8, 16, 32, 64, 96]),),
        default=lambda _: {"rows": 1},
        inputs=lambda p: [Array(name="x", shape=(p["rows"], 128), dtype=p.dtype)],
    )

built, NAMED, UNNAMED = [], declared(True), declared(False)
"""


@pytest.mark.parametrize("kernel", ["NAMED", "UNNAMED"])
def test_a_call_with_a_number_that_no_option_lists_is_given_up_soon(tmp_path, monkeypatch, kernel):
    monkeypatch.setattr(known_kernels, "_MOST_TRACED", 16)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "windows.py").write_text(WINDOWED)
    monkeypatch.syspath_prepend(tmp_path)
    place = {"path": "", "module": "windows", "root": str(tmp_path)}
    known = {"windowed": KernelRef(attribute=kernel, **place)}

    def collected(window, rows):
        call = f"x=f32[384,128], window={window}, rows={rows}, named={kernel == 'NAMED'}"
        return collect(Loader(), KernelRef(attribute="windowed", call=call, **place), None, known)

    (problem,) = collected(32, 32).problems
    assert (problem.options, problem.config) == (("window=32",), "rows=32")
    built = importlib.import_module("windows").built
    built.clear()
    assert not collected(256, 2).problems
    assert len(built) <= (4 if kernel == "NAMED" else 16)


DIVIDED = """
import jax, model

def sharded(x, *, mesh, block=128):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...] + 1
    part = jax.sharding.PartitionSpec("x")
    own = lambda x: model.elementwise(body, x, block, name="sharded")
    return jax.shard_map(own, mesh=mesh, in_specs=part, out_specs=part, check_vma=False)(x)

def step(x):
    kinds = (jax.sharding.AxisType.Auto,)
    return sharded(x, mesh=jax.make_mesh((1,), ("x",), axis_types=kinds))
"""


@pytest.mark.skipif(not hasattr(jax, "shard_map"), reason="this JAX has another name for it")
def test_a_function_that_is_given_a_mesh_is_declared_with_its_axes(tmp_path, monkeypatch):
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "divided.py").write_text(DIVIDED)
    monkeypatch.syspath_prepend(tmp_path)
    place = {"path": "", "module": "divided", "root": str(tmp_path)}
    ref = KernelRef(attribute="step", call="x=f32[512,128]", **place)
    (made,) = collect(Loader(), ref, Chip.V5E, {}, declare=True).declarations
    assert "mesh={'x': 1}" in made.code
    assert "mesh=jax.sharding.get_abstract_mesh()" in made.code
