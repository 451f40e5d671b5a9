"""Kernels of JAX, tokamax and tpu-inference, declared in ``autotune_kernels``, from a source with
one small fault. Where a package is not installed, its cases have no source.

``packages.json`` lists edits that do harm, by kernel, fault and text: the whole problem, run as it
is, is wrong with them. It is made by

    python -m tests.samples.twins.packages [CASE...]

which takes edits of every fault in turn, in an order drawn once, and keeps the first that do harm.
"""

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from math import inf
from pathlib import Path
from random import Random
from types import ModuleType
from typing import NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from autotune.compiling.child.verify import gate
from autotune.compiling.child.verify.interpreter import LATE, NotRunError, WrongRunError
from autotune.compiling.child.verify.work import WorkMeter
from autotune.declaring.kernel import Kernel
from autotune.domain.evidence import ProofLevel
from autotune.domain.key import Chip
from autotune.domain.problem import AxisValue, Config, Problem, make_config
from tests.samples.twins.mutator import Mutation, mutations

FILE = Path(__file__).with_suffix(".json")
_JAX = "jax.experimental.pallas.ops.tpu"
_TOKAMAX = "tokamax._src.ops"
_VLLM = "tpu_inference.kernels"
_EACH = 8  # twins of a case that are kept
_TRIED = 24
CHIP = Chip.V5E


class Case(NamedTuple):
    """``module``: whose source is broken, in ``functions``; ``declaration``: ``module:NAME``, in
    ``autotune_kernels``."""

    module: str
    functions: tuple[str, ...]
    declaration: str
    shape: str
    options: tuple[str, ...]
    config: dict[str, AxisValue]
    dtype: str = "float32"

    @property
    def source(self) -> str:
        """Empty where the package is not installed."""
        try:
            spec = importlib.util.find_spec(self.module)
        except ModuleNotFoundError:
            return ""
        return Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""

    def mutations(self) -> list[Mutation]:
        return mutations(self.source, frozenset(self.functions))


_FLASH = {"block_q": 128, "block_k_major": 256, "block_k": 128}
_DKV = dict.fromkeys(("block_q_dkv", "block_k_dkv"), 128)
_SPLASH = "heads=2,kv_heads=1,seq=768,qk_dim=128,v_dim=128"
_TILES = dict.fromkeys(("tile_m", "tile_k", "tile_n"), 128)

CASES = {
    "flash": Case(
        f"{_JAX}.flash_attention",
        ("_flash_attention_kernel_single_batch", "_flash_attention_impl"),
        "from_jax.flash_attention:FORWARD",
        "1x1x640x1024x128",
        (),
        _FLASH,
    ),
    "flash_causal": Case(
        f"{_JAX}.flash_attention",
        (
            "below_or_on_diag",
            "_flash_attention_kernel_single_batch",
            "_flash_attention_impl",
        ),
        "from_jax.flash_attention:FORWARD",
        "1x1x1024x1024x128",
        ("causal=true",),
        _FLASH,
    ),
    "flash_dkv": Case(
        f"{_JAX}.flash_attention",
        ("_flash_attention_dkv_kernel", "_flash_attention_bwd_dkv"),
        "from_jax.flash_attention:DKV",
        "1x1x1024x1024x128",
        (),
        {**_DKV, "block_q_major_dkv": 256, "block_k_major_dkv": 256},
    ),
    "flash_dq": Case(
        f"{_JAX}.flash_attention",
        ("_flash_attention_dq_kernel", "_flash_attention_bwd_dq"),
        "from_jax.flash_attention:DQ",
        "1x1x640x1024x128",
        ("causal=true",),
        {"block_q_dq": 128, "block_k_major_dq": 256, "block_k_dq": 128},
    ),
    "gmm": Case(
        f"{_JAX}.megablox.gmm",
        ("make_group_metadata", "_get_store_mask", "gmm"),
        "from_jax.megablox:GMM",
        "640x320x256x5",
        ("sizes=skewed",),
        _TILES,
    ),
    "tgmm": Case(
        f"{_JAX}.megablox.gmm",
        ("make_group_metadata", "_get_store_mask", "tgmm"),
        "from_jax.megablox:TGMM",
        "640x256x256x5",
        ("sizes=skewed",),
        _TILES,
    ),
    "splash": Case(
        f"{_JAX}.splash_attention.splash_attention_kernel",
        ("flash_attention_kernel", "_apply_mask_and_soft_cap", "_splash_attention_forward"),
        "from_jax.splash_attention:FORWARD",
        _SPLASH,
        ("mask=causal",),
        {"block_q": 128, "block_kv": 256, "block_kv_compute": 128},
    ),
    "splash_dkv": Case(
        f"{_JAX}.splash_attention.splash_attention_kernel",
        ("_flash_attention_dkv_kernel", "_splash_attention_bwd_dkv"),
        "from_jax.splash_attention:DKV",
        _SPLASH,
        ("mask=causal",),
        {"block_q_dkv": 128, "block_kv_dkv": 256, "block_kv_dkv_compute": 128},
    ),
    "paged": Case(
        f"{_JAX}.paged_attention.paged_attention_kernel",
        ("paged_flash_attention_kernel", "paged_flash_attention_kernel_inline_seq_dim"),
        "from_jax.paged_attention:PAGED",
        "3x8x2x8x16x128",
        ("lengths=uniform",),
        {"pages_per_compute_block": 2},
        "bfloat16",
    ),
    "ragged_paged": Case(
        f"{_JAX}.ragged_paged_attention.kernel",
        ("ragged_paged_attention_kernel", "ragged_paged_attention"),
        "from_jax.ragged_paged_attention:RAGGED",
        "3x64x4x2x8x16x128",
        ("batch=mixed",),
        {"num_kv_pages_per_block": 2, "num_queries_per_block": 16},
    ),
    "tokamax_gmm": Case(
        f"{_TOKAMAX}.ragged_dot.pallas_mosaic_tpu_kernel",
        ("make_group_metadata", "_get_store_mask", "gmm"),
        "from_tokamax.ragged_dot:KERNEL",
        "640x320x256x3",
        ("mode=fwd",),
        _TILES,
    ),
    "tokamax_tgmm": Case(
        f"{_TOKAMAX}.ragged_dot.pallas_mosaic_tpu_kernel",
        ("make_group_metadata", "_get_store_mask", "tgmm"),
        "from_tokamax.ragged_dot:KERNEL",
        "640x256x256x3",
        ("mode=drhs",),
        _TILES,
    ),
    "tokamax_loss": Case(
        f"{_TOKAMAX}.linear_softmax_cross_entropy_loss.pallas_mosaic_tpu_kernel",
        ("linear_softmax_cross_entropy_loss_forward_pallas_kernel", "calculate_xw_tiled"),
        "from_tokamax.cross_entropy:FORWARD",
        "384x384x640",
        (),
        dict.fromkeys(("b_block_size", "h_block_size", "v_block_size"), 128),
    ),
    "tokamax_loss_gradient": Case(
        f"{_TOKAMAX}.linear_softmax_cross_entropy_loss.pallas_mosaic_tpu_kernel",
        ("linear_softmax_cross_entropy_loss_backward_pallas_kernel",),
        "from_tokamax.cross_entropy:BACKWARD",
        "384x384x384",
        (),
        dict.fromkeys(("b_block_size", "h_block_size", "v_block_size"), 128),
    ),
    "tokamax_splash": Case(
        f"{_TOKAMAX}.experimental.tpu.splash_attention.splash_attention_kernel",
        ("flash_attention_kernel", "_apply_mask_and_soft_cap", "_splash_attention_forward"),
        "from_tokamax.splash_attention:FORWARD",
        "heads=2,kv_heads=1,seq=768,head_dim=128",
        (),
        {"block_q": 128, "block_kv": 256, "block_kv_compute": 128},
    ),
    "vllm_gmm": Case(
        f"{_VLLM}.megablox.gmm",
        ("make_group_metadata", "_get_store_mask", "gmm"),
        "from_tpu_inference.grouped:KERNEL",
        "640x320x256x3",
        (),
        _TILES,
    ),
    "vllm_flash": Case(
        f"{_VLLM}.flash_attention.kernel",
        (
            "below_or_on_diag",
            "_flash_attention_kernel_single_batch",
            "_flash_attention_impl",
        ),
        "from_tpu_inference.flash_attention:KERNEL",
        "1x1x1024x128",
        ("causal=true",),
        _FLASH,
    ),
    "vllm_cache_update": Case(
        f"{_VLLM}.ragged_paged_attention.v2.ragged_kv_cache_update",
        ("_kv_cache_update_kernel", "_kv_cache_update", "kv_cache_update"),
        "from_tpu_inference.cache_update:KERNEL",
        "192x20x16x4x128",
        ("batch=prefill",),
        {"slices_per_block": 4},
    ),
    "vllm_quantized": Case(
        f"{_VLLM}.quantized_matmul.kernel",
        ("matmul_kernel", "quantized_matmul_kernel"),
        "from_tpu_inference.quantized_matmul:KERNEL",
        "384x512x384",
        (),
        dict.fromkeys(("batch_block_size", "out_block_size", "in_block_size"), 128),
        "bfloat16",
    ),
}


class Edit(NamedTuple):
    """As the file has it. ``line`` tells edits of the same text apart."""

    case: str
    fault: str
    line: int
    old: str
    new: str

    def mutation(self) -> Mutation | None:
        """Where it is in the installed JAX; None where that has another source."""
        same = (m for m in CASES[self.case].mutations() if m[:4] == self[1:])
        return next(same, None)

    def __str__(self) -> str:
        return f"{self.case}-{self.fault.replace(' ', '_')}-{self.line}-{self.new[:20]}"


def edits() -> list[Edit]:
    return [Edit(*row) for row in json.loads(FILE.read_text(encoding="utf-8"))]


@contextmanager
def declared(case: Case, source: str) -> Iterator[tuple[Kernel, Problem, Config]]:
    """The declaration over a module of this source, its problem and its config."""
    name = case.module
    original = importlib.import_module(name)
    broken = ModuleType(name)
    broken.__package__, broken.__file__ = original.__package__, original.__file__
    sys.modules[name] = broken
    try:
        exec(compile(source, f"<{case.module}>", "exec"), vars(broken))
        module, attribute = case.declaration.split(":")
        kernel = getattr(_fresh(f"autotune_kernels.{module}"), attribute)
        problem = kernel.problem_spec.parse(case.shape, case.dtype, case.options)
        axes = {**kernel.default_axes(problem, CHIP.value), **case.config}
        yield kernel, problem, make_config(axes)
    finally:
        sys.modules[name] = original


def _fresh(name: str) -> ModuleType:
    """A module executed once more."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def harm(case: Case, source: str) -> str:
    """Of one run of the whole problem: what is wrong in it, or nothing; *?* where it cannot be
    run."""
    with declared(case, source) as (kernel, problem, config):
        try:
            subject = gate._Subject(kernel, problem, config, CHIP)
            difference = subject.compared(
                subject.run(0, LATE, ProofLevel.FULL), WorkMeter(inf, lambda _: None)
            )
        except WrongRunError as error:
            return error.check.value
        except NotRunError:
            return "?"
    return difference.check.value


def drawn(case: Case) -> list[Mutation]:
    """Edits of every fault in turn."""
    by_fault: dict[str, list[Mutation]] = {}
    for mutation in Random(0).sample(found := case.mutations(), len(found)):
        by_fault.setdefault(mutation.fault, []).append(mutation)
    rounds = zip_longest(*by_fault.values())
    return [mutation for each in rounds for mutation in each if mutation is not None]


def main(names: list[str]) -> None:
    for name in names or CASES:
        case, harmful = CASES[name], list[Edit]()
        kept = [edit for edit in (edits() if FILE.exists() else ()) if edit.case != name]
        assert not harm(case, case.source), name
        for mutation in drawn(case)[:_TRIED]:
            told = harm(case, mutation.apply(case.source))
            print(
                f"{name}: {mutation.fault}, line {mutation.line}: {told or 'harmless'}", flush=True
            )
            if told not in ("", "?"):
                harmful.append(Edit(name, *mutation[:4]))
            FILE.write_text(json.dumps(sorted(kept + harmful), indent=1) + "\n", encoding="utf-8")
            if len(harmful) == _EACH:
                break


if __name__ == "__main__":
    main(sys.argv[1:])
