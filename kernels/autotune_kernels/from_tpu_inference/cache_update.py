"""vLLM's update of the paged cache of keys and values: runs of new tokens are copied to where their
pages are. Where these lie is known: pages in random order."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from autotune import Array, Axis, Config, Kernel, Option, Problem
from autotune_kernels.from_tpu_inference import checked
from autotune_kernels.parts import part

_KERNEL = "tpu_inference.kernels.ragged_paged_attention.v2.ragged_kv_cache_update"
_VMEM_LIMIT_BYTES = 40 << 20  # the kernel's own
_MOST_SLICES = 64  # of a block, by its own formula


def _run_length(problem: Problem) -> int:
    return 1 if problem.option("batch") == "decode" else problem["page_size"]


def _runs(problem: Problem) -> Any:
    """First token in the cache, first new token and length of each run: int32 [3, runs]."""
    page, tokens = problem["page_size"], problem["tokens"]
    length = _run_length(problem)
    starts = np.arange(0, tokens, length)
    pages = np.random.default_rng(0).permutation(problem["pages"])[: len(starts)]
    return np.stack([pages * page, starts, np.full(len(starts), length)]).astype(np.int32)


def _padded(problem: Problem) -> Any:
    """A whole number of the largest blocks."""
    runs = _runs(problem)
    return np.pad(runs, ((0, 0), (0, -runs.shape[1] % _MOST_SLICES)))


def _count(problem: Problem) -> Any:
    return np.array([_runs(problem).shape[1]], np.int32)


def _inputs(problem: Problem) -> list[Array]:
    row = (problem["heads"], problem["head_dim"])
    slices, cached = _padded(problem), problem["pages"] * problem["page_size"]
    return [
        Array(name="new_kv", shape=(problem["tokens"], *row), dtype=problem.dtype),
        Array(name="slices", shape=slices.shape, dtype="int32", values=partial(_padded, problem)),
        Array(name="kv_cache", shape=(cached, *row), dtype=problem.dtype, donated=True),
        Array(name="num_slices", shape=(1,), dtype="int32", values=partial(_count, problem)),
    ]


def _build(problem: Problem, config: Config) -> Callable[..., Any]:
    return partial(
        part(_KERNEL).kv_cache_update,
        page_size=problem["page_size"],
        num_slices_per_block=config["slices_per_block"],
    )


def _reference(problem: Problem) -> Callable[..., Any]:
    runs = _runs(problem)
    cached, new = (
        np.concatenate([first + np.arange(n) for first, n in zip(starts, runs[2], strict=True)])
        for starts in runs[:2]
    )
    return lambda new_kv, _, cache, __: cache.at[cached].set(new_kv[new])


def _own_choice(problem: Problem, _chip: str) -> dict[str, int]:
    module, dtype = part(_KERNEL), jnp.dtype(problem.dtype)
    page = module._get_page_size_bytes(
        problem["page_size"], problem["heads"], problem["head_dim"], dtype
    )
    function = module._get_num_slices_per_kv_cache_update_block
    return {"slices_per_block": function(page, _VMEM_LIMIT_BYTES)}


def _check(problem: Problem) -> str | None:
    if problem["head_dim"] % 128:
        return f"head_dim={problem['head_dim']} must be a multiple of 128"
    if problem.option("batch") == "prefill" and problem["tokens"] % problem["page_size"]:
        return f"tokens={problem['tokens']} must be whole pages of {problem['page_size']}"
    runs = problem["tokens"] // _run_length(problem)
    return f"{runs} runs need as many pages" if runs > problem["pages"] else None


def _reduced(problem: Problem) -> Problem:
    """Three blocks of up to eight runs."""
    runs = min(24, _runs(problem).shape[1])
    length = _run_length(problem)
    return problem.with_dims(tokens=runs * length, pages=min(problem["pages"], runs + 2))


KERNEL = Kernel(
    name="vllm_kv_cache_update",
    dims=("tokens", "pages", "page_size", "heads", "head_dim"),
    dtypes=("bfloat16", "float32"),
    options=(Option(name="batch", choices=("prefill", "decode"), default="prefill"),),
    axes=(Axis(name="slices_per_block", choices=lambda _: [1, 2, 4, 8, 16, 32, _MOST_SLICES]),),
    default=lambda _: {"slices_per_block": 8},
    default_on=_own_choice,
    inputs=_inputs,
    build=_build,
    reference=_reference,
    check=checked(_check),
    reduced=_reduced,
    doc="vLLM's update of the paged cache (tpu-inference); heads: of keys and values together",
)
