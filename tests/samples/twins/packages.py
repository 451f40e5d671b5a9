"""Kernels of JAX's package, declared in ``autotune_kernels``, from a source with one small fault.

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
from pathlib import Path
from random import Random
from types import ModuleType
from typing import NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from autotune.compiling.child.verify import gate
from autotune.compiling.child.verify.interpreter import LATE, NotRunError, WrongRunError
from autotune.declaring.kernel import Kernel
from autotune.domain.key import Chip
from autotune.domain.problem import AxisValue, Config, Problem, make_config
from autotune.domain.verdict import ProofLevel
from tests.samples.twins.mutator import Mutation, mutations

FILE = Path(__file__).with_suffix(".json")
_JAX = "jax.experimental.pallas.ops.tpu"
_DECLARED = "autotune_kernels.from_jax"
_EACH = 8  # twins of a case that are kept
_TRIED = 24
CHIP = Chip.V5E


class Case(NamedTuple):
    """``module``: whose source is broken, in ``functions``; ``declaration``: ``module:NAME``."""

    module: str
    functions: tuple[str, ...]
    declaration: str
    shape: str
    options: tuple[str, ...]
    config: dict[str, AxisValue]
    dtype: str = "float32"

    @property
    def source(self) -> str:
        spec = importlib.util.find_spec(f"{_JAX}.{self.module}")
        assert spec is not None and spec.origin is not None
        return Path(spec.origin).read_text(encoding="utf-8")

    def mutations(self) -> list[Mutation]:
        return mutations(self.source, frozenset(self.functions))


_FLASH = {"block_q": 128, "block_k_major": 256, "block_k": 128}
_DKV = dict.fromkeys(("block_q_dkv", "block_k_dkv"), 128)
_SPLASH = "heads=2,kv_heads=1,seq=768,qk_dim=128,v_dim=128"

CASES = {
    "flash": Case(
        "flash_attention",
        ("_flash_attention_kernel_single_batch", "_flash_attention_impl"),
        "flash_attention:FORWARD",
        "1x1x640x1024x128",
        (),
        _FLASH,
    ),
    "flash_causal": Case(
        "flash_attention",
        (
            "below_or_on_diag",
            "_flash_attention_kernel_single_batch",
            "_flash_attention_impl",
        ),
        "flash_attention:FORWARD",
        "1x1x1024x1024x128",
        ("causal=true",),
        _FLASH,
    ),
    "flash_dkv": Case(
        "flash_attention",
        ("_flash_attention_dkv_kernel", "_flash_attention_bwd_dkv"),
        "flash_attention:DKV",
        "1x1x1024x1024x128",
        (),
        {**_DKV, "block_q_major_dkv": 256, "block_k_major_dkv": 256},
    ),
    "flash_dq": Case(
        "flash_attention",
        ("_flash_attention_dq_kernel", "_flash_attention_bwd_dq"),
        "flash_attention:DQ",
        "1x1x640x1024x128",
        ("causal=true",),
        {"block_q_dq": 128, "block_k_major_dq": 256, "block_k_dq": 128},
    ),
    "gmm": Case(
        "megablox.gmm",
        ("make_group_metadata", "_get_store_mask", "gmm"),
        "megablox:GMM",
        "640x320x256x5",
        ("sizes=skewed",),
        {"tile_m": 128, "tile_k": 128, "tile_n": 128},
    ),
    "tgmm": Case(
        "megablox.gmm",
        ("make_group_metadata", "_get_store_mask", "tgmm"),
        "megablox:TGMM",
        "640x256x256x5",
        ("sizes=skewed",),
        {"tile_m": 128, "tile_k": 128, "tile_n": 128},
    ),
    "splash": Case(
        "splash_attention.splash_attention_kernel",
        ("flash_attention_kernel", "_apply_mask_and_soft_cap", "_splash_attention_forward"),
        "splash_attention:FORWARD",
        _SPLASH,
        ("mask=causal",),
        {"block_q": 128, "block_kv": 256, "block_kv_compute": 128},
    ),
    "splash_dkv": Case(
        "splash_attention.splash_attention_kernel",
        ("_flash_attention_dkv_kernel", "_splash_attention_bwd_dkv"),
        "splash_attention:DKV",
        _SPLASH,
        ("mask=causal",),
        {"block_q_dkv": 128, "block_kv_dkv": 256, "block_kv_dkv_compute": 128},
    ),
    "paged": Case(
        "paged_attention.paged_attention_kernel",
        ("paged_flash_attention_kernel", "paged_flash_attention_kernel_inline_seq_dim"),
        "paged_attention:PAGED",
        "3x8x2x8x16x128",
        ("lengths=uniform",),
        {"pages_per_compute_block": 2},
        "bfloat16",
    ),
    "ragged_paged": Case(
        "ragged_paged_attention.kernel",
        ("ragged_paged_attention_kernel", "ragged_paged_attention"),
        "ragged_paged_attention:RAGGED",
        "3x64x4x2x8x16x128",
        ("batch=mixed",),
        {"num_kv_pages_per_block": 2, "num_queries_per_block": 16},
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
    name = f"{_JAX}.{case.module}"
    original = importlib.import_module(name)
    broken = ModuleType(name)
    broken.__package__, broken.__file__ = original.__package__, original.__file__
    sys.modules[name] = broken
    try:
        exec(compile(source, f"<{case.module}>", "exec"), vars(broken))
        module, attribute = case.declaration.split(":")
        kernel = getattr(_fresh(f"{_DECLARED}.{module}"), attribute)
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
            difference = subject.compared(subject.run(0, LATE, ProofLevel.FULL))
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
