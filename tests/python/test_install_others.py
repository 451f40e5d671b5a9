"""``autotune.install`` and the packages that are in no environment of the repository: their code
looks the blocks up, and their kernel is the program that it is with these blocks given. Each
test runs where its package is; ``test_in_the_field`` runs them under ``AUTOTUNE_FIELD_PYTHON``."""

import os
import subprocess
from functools import partial
from importlib.metadata import distribution
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import autotune
from tests.samples.installed import PublishedAxes, array, program, told

ROOT = Path(__file__).parents[2]
KIND, CHIP = "TPU v6 lite", "v6e"


@pytest.mark.slow
def test_in_the_field(tmp_path):
    """Nothing of ours is installed there: what pip would install is laid beside it."""
    python = os.environ.get("AUTOTUNE_FIELD_PYTHON")
    if not python:
        pytest.skip("AUTOTUNE_FIELD_PYTHON names no interpreter with packages of others")
    installed = Path(str(distribution("pallas-autotune").locate_file("")))
    for place in (*installed.glob("pallas_autotune-*.dist-info"), installed / "platformdirs"):
        (tmp_path / place.name).symlink_to(place)
    files = [
        f"tests/python/test_{name}.py"
        for name in ("install", "install_others", "static_rules", "helion")
    ]
    options = ["-q", "--noconftest", "-c", os.devnull, "--rootdir", ".", "-m", "not slow"]
    ours = [ROOT / part for part in ("", "kernels", "db", "service", "tests/samples/stand_ins")]
    paths = os.pathsep.join(map(str, (*ours, tmp_path)))
    environment = {**os.environ, "PYTHONPATH": paths, "JAX_PLATFORMS": "cpu"}
    environment["XDG_CACHE_HOME"] = str(tmp_path)
    command = [python, "-m", "pytest", *options, *files]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(autouse=True)
def clean():
    with told(KIND):
        yield
    autotune.uninstall()
    autotune.configure()
    jax.clear_caches()


def installed(package, **axes):
    source = PublishedAxes(**axes)
    autotune.configure(source=source, chip=CHIP)
    assert autotune.install(package) == [package]
    return source


TILES = {"tile_m": 256, "tile_k": 256, "tile_n": 128, "input_buffer_count": 3}
RAGGED = array("bfloat16", 512, 256), array("bfloat16", 4, 256, 384), array("int32", 4)


def test_tokamax():
    pytest.importorskip("tokamax")
    from tokamax import AutotuningResult
    from tokamax._src import config
    from tokamax._src.ops.ragged_dot import pallas_mosaic_tpu as ragged

    op = ragged.PallasMosaicTpuRaggedDot()
    tuned, users_own = ragged.Config(**TILES), ragged.Config(tile_m=64)

    def trace(config):
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


def _time():
    from tokamax._src.benchmarking import BenchmarkData

    return BenchmarkData(0.0, 0.0, (1.0,), {})


def test_tokamax_gradients():
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


def traces_as_given(package, kernel, axes, *calls):
    """``calls``: the kernel without blocks, and with these blocks given."""
    (plain, given), arrays = calls[:2], calls[2:]
    default, explicit = program(plain, *arrays), program(given, *arrays)
    source = installed(package, **{kernel: axes})
    assert default != explicit == program(plain, *arrays)
    autotune.uninstall()
    assert program(plain, *arrays) == default
    return source


@pytest.fixture
def on_a_tpu(monkeypatch):
    """Packages look at the first device, of which this machine has none."""

    class Device:
        device_kind, platform = KIND, "tpu"

    monkeypatch.setattr(jax, "devices", lambda *_: [Device()])


QUANTIZED = array("bfloat16", 256, 1024), array("int8", 512, 1024), array("float32", 512)
SIZES = {"batch_block_size": 256, "out_block_size": 256, "in_block_size": 512}


@pytest.mark.usefixtures("on_a_tpu")
@pytest.mark.parametrize(
    ("package", "module"),
    [
        ("tpu-inference", "tpu_inference.kernels.quantized_matmul"),
        ("sglang-jax", "sgl_jax.srt.kernels.quantized_matmul.quantized_matmul_kernels"),
    ],
)
def test_quantized_matmul(package, module):
    kernel = pytest.importorskip(f"{module}.kernel").quantized_matmul_kernel
    value = pytest.importorskip(f"{module}.tuned_block_sizes").TunedValue(*SIZES.values())
    source = traces_as_given(
        package,
        "vllm_quantized_matmul",
        SIZES,
        lambda *a: kernel(*a, x_q_dtype=jnp.int8),
        lambda *a: kernel(*a, x_q_dtype=jnp.int8, tuned_value=value),
        *QUANTIZED,
    )
    assert (
        source.problem("vllm_quantized_matmul") == "m=256,k=1024,n=512,dtype=bfloat16,weights=int8"
    )


@pytest.mark.usefixtures("on_a_tpu")
@pytest.mark.parametrize(
    ("package", "module"),
    [
        ("tpu-inference", "tpu_inference.kernels.megablox.gmm"),
        ("sglang-jax", "sgl_jax.srt.kernels.gmm.megablox_gmm_kernel.gmm"),
    ],
)
def test_grouped_products(package, module):
    gmm = pytest.importorskip(module).gmm
    source = traces_as_given(
        package,
        "vllm_gmm",
        {"tile_m": 256, "tile_k": 256, "tile_n": 128},
        lambda *a: gmm(*a, preferred_element_type=jnp.bfloat16),
        lambda *a: gmm(*a, preferred_element_type=jnp.bfloat16, tiling=(256, 256, 128)),
        *RAGGED,
    )
    assert source.problem("vllm_gmm") == "m=512,k=256,n=384,groups=4,dtype=bfloat16"


@pytest.mark.usefixtures("on_a_tpu")
def test_flash_attention_of_vllm():
    module = pytest.importorskip("tpu_inference.kernels.flash_attention.kernel")
    axes = {"block_q": 256, "block_k_major": 512, "block_k": 256}
    sizes = module.BlockSizes(block_b=1, **axes)
    source = traces_as_given(
        "tpu-inference",
        "vllm_flash_attention",
        axes,
        lambda *a: module.flash_attention(*a, causal=True),
        lambda *a: module.flash_attention(*a, causal=True, block_sizes=sizes),
        *[array("bfloat16", 2, 4, 1024, 128)] * 3,
    )
    assert source.problem("vllm_flash_attention").endswith("dtype=bfloat16,causal=true")


def paged(dim):
    """Eight sequences of 16 pages of 16, four heads of keys."""
    name = "kernel" if dim == 128 else "kernel_hd64"
    module = pytest.importorskip(f"tpu_inference.kernels.ragged_paged_attention.v3.{name}")
    cache = module.get_kv_cache_shape(128, 16, 4, dim, jnp.bfloat16)
    heads = [array("bfloat16", 64, count, dim) for count in (8, 4, 4)]
    integers = [array("int32", size) for size in (8, 128, 9, 3)]
    return [*heads, array("bfloat16", *cache), *integers]


@pytest.mark.usefixtures("on_a_tpu")
def test_ragged_paged_attention_of_vllm():
    arrays = paged(128)
    from tpu_inference.kernels.ragged_paged_attention.v3.kernel import ragged_paged_attention

    blocks = {"d": (1, 64, 1, 32), "m": (16, 128, 8, 64)}
    names = "bq_sz", "bkv_sz", "bq_csz", "bkv_csz"
    axes = {f"{c}_{n}": v for c in blocks for n, v in zip(names, blocks[c], strict=True)}
    given = {f"{c}_block_sizes": blocks["d" if c == "d" else "m"] for c in "dpm"}
    source = traces_as_given(
        "tpu-inference",
        "vllm_ragged_paged_attention",
        axes,
        ragged_paged_attention,
        lambda *a: ragged_paged_attention(*a, **given),
        *arrays,
    )
    expected = "seqs=8,tokens=64,kv_len=256,page_size=16,heads=8,kv_heads=4,head_dim=128"
    expected += ",dtype=bfloat16,batch=mixed,window=0,soft_cap=False"
    assert source.problem("vllm_ragged_paged_attention") == expected


@pytest.mark.usefixtures("on_a_tpu")
def test_ragged_paged_attention_of_vllm_for_heads_of_64():
    arrays = paged(64)
    from tpu_inference.kernels.ragged_paged_attention.v3 import kernel_hd64

    axes = {"num_kv_pages_per_block": 4, "num_queries_per_block": 8}
    source = traces_as_given(
        "tpu-inference",
        "vllm_ragged_paged_attention_64",
        axes,
        kernel_hd64.ragged_paged_attention_hd64,
        lambda *a: kernel_hd64.ragged_paged_attention_hd64(*a, **axes),
        *arrays,
    )
    assert source.problem("vllm_ragged_paged_attention_64").startswith(
        "seqs=8,tokens=64,kv_len=256"
    )


MASKED = {"sliding_window": 512, "soft_cap": 30.0}


@pytest.mark.usefixtures("on_a_tpu")
@pytest.mark.parametrize("dim", [64, 128])
def test_the_problem_that_a_model_has_is_asked_for(dim):
    """A window in the arguments of the kernel alone, sinks, and heads that are padded to 128."""
    arrays, end = paged(dim), "_hd64" if dim == 64 else ""
    name = f"tpu_inference.kernels.ragged_paged_attention.v3.kernel{end}"
    attend = getattr(pytest.importorskip(name), f"ragged_paged_attention{end}")
    kernel = "vllm_ragged_paged_attention" + ("_64" if end else "")
    sinks = [array("float32", 8)] if end else []
    plain = program(partial(attend, sliding_window=256), *arrays, *sinks)
    source = installed("tpu-inference")
    program(partial(attend, **MASKED), *arrays, *sinks)
    expected = "window=512,soft_cap=True" + (",sinks=True" if end else "")
    assert source.problem(kernel).endswith(f"batch=mixed,{expected}")
    if not end:
        arrays[:3] = [array("bfloat16", 64, count, 80) for count in (8, 4, 4)]
        program(attend, *arrays)
        assert "head_dim=80," in source.problem(kernel)
    asked = len(source.asked)
    other = {"sliding_window": 256} if end else {"update_kv_cache": False}
    program(partial(attend, **other), *arrays, *sinks)
    assert len(source.asked) == asked
    assert program(partial(attend, sliding_window=256), *paged(dim), *sinks) == plain


def test_vllm_finds_the_plug_in(monkeypatch):
    from importlib.metadata import entry_points

    module = pytest.importorskip("tpu_inference.kernels.megablox.gmm")
    (plug_in,) = entry_points(group="vllm.general_plugins", name="autotune")
    before = module.get_tuned_block_sizes
    plug_in.load()()
    assert module.get_tuned_block_sizes is before
    monkeypatch.setenv("AUTOTUNE_INSTALL", "tpu-inference")
    plug_in.load()()
    assert module.get_tuned_block_sizes is not before


BLOCKS = {"block_q": 1024, "block_kv": 2048, "block_kv_compute": 512}


@pytest.fixture
def maxtext(tmp_path):
    """Its own start of a run, with flags."""
    pyconfig = pytest.importorskip("maxtext.configs.pyconfig")
    given = {"run_name": "a", "enable_checkpointing": False, "dataset_type": "synthetic"}
    given |= {"model_name": "llama3.1-8b", "max_target_length": 4096, "hardware": "cpu"}
    given |= {"base_output_directory": str(tmp_path), "skip_jax_distributed_system": True}
    file = f"{pyconfig.MAXTEXT_CONFIGS_DIR}/base.yml"

    def start(**flags):
        return pyconfig.initialize(["train", file], **given, **flags)

    return start


def test_flags_of_maxtext(maxtext):
    dq = {"block_q_dq": 256, "block_kv_dq": 1024}
    source = installed("maxtext", jax_splash_attention=BLOCKS, jax_splash_attention_dq=dq)
    config = maxtext()
    assert (config.sa_block_q, config.sa_block_kv, config.eval_sa_block_kv) == (1024, 2048, 2048)
    assert (config.sa_block_q_dq, config.sa_block_q_dkv) == (256, 512)
    expected = "heads=32,kv_heads=8,seq=4096,qk_dim=128,v_dim=128,dtype=bfloat16,mask=causal"
    assert source.problem("jax_splash_attention").startswith(expected)
    assert len(source.asked) == 3
    autotune.uninstall()
    assert maxtext().sa_block_q == 512


@pytest.mark.parametrize("flags", [{"sa_block_kv": 512}, {"ici_tensor_parallelism": 4}])
def test_flags_that_somebody_sets_stay(maxtext, flags):
    source = installed("maxtext", jax_splash_attention=BLOCKS)
    assert maxtext(**flags).sa_block_q == 512
    assert source.asked == []


def test_fused_experts_of_vllm():
    """As its kernel asks, which needs the devices of a mesh."""
    kernel = pytest.importorskip("tpu_inference.kernels.fused_moe.v1.kernel")
    names = "bt", "bf", "bd1", "bd2", "btc", "bfc", "bd1c", "bd2c"
    axes = dict(zip(names, (32, 512, 512, 512, 32, 256, 256, 256), strict=True))
    source = installed("tpu-inference", vllm_fused_moe=axes)
    key = {"hidden_size": 1024, "intermediate_size": 512, "num_experts": 8, "top_k": 2}
    key |= {"t_packing": 2, "w_packing": 2, "num_tokens": 256, "ep_size": 4}
    assert kernel.get_tuned_block_sizes(**key) == (*axes.values(),)
    expected = "tokens=256,experts=8,top_k=2,hidden=1024,intermediate=512,devices=4,dtype=bfloat16"
    assert source.problem("vllm_fused_moe") == expected
    kernel.get_tuned_block_sizes(**{**key, "w_packing": 4})  # weights of eight bits
    assert len(source.asked) == 1
