"""What the splash attention of JAX and of tokamax have in common: options, masks, references.

- ``segments``: each token sees those of its own segment alone, as where documents are packed; here
  three are, of one length.
- ``stored``: the blocks that the mask cuts are read from memory instead of computed, as for a mask
  that is two masks at once.
- ``sinks``: each head has a logit more, without a value.
- ``soft_cap``: logits are kept within 50 by a tanh; another cap is the same problem.
- ``residuals``: a forward pass gives the log of the row sums, too, as in a step of training.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from autotune import Array, Axis, Kernel, Option, Problem
from autotune_kernels.from_jax import attention
from autotune_kernels.parts import not_multiple

SOFT_CAP = 50.0
_DOCUMENTS = 3
_WINDOW = 1024
_WINDOWS = tuple(size - less for size in (128, 256, 512, 1024, 2048, 4096) for less in (0, 1))


def flag(name: str) -> Option:
    return Option(name=name, choices=(False, True), default=False)


def kernel(
    name: str,
    dims: tuple[str, ...],
    blocks: tuple[str, ...],
    options: tuple[Option, ...],
    **parts: Any,
) -> Kernel:
    """A splash attention whose default for every block size is 128. A block that only the loop
    inside runs over (*compute*) cuts no dimension."""
    return Kernel(
        name=name,
        dims=("heads", "kv_heads", "seq", *dims),
        dtypes=("bfloat16", "float32"),
        options=(
            Option(name="mask", choices=("causal", "local", "full"), default="causal"),
            Option(name="window", choices=_WINDOWS, default=_WINDOW),
            *map(flag, ("stored", "segments", "soft_cap")),
            *options,
        ),
        axes=tuple(
            Axis(
                name=block,
                choices=lambda problem: attention.dividing_blocks(problem["seq"]),
                dim=None if block.endswith("compute") else "seq",
            )
            for block in blocks
        ),
        default=lambda _: dict.fromkeys(blocks, 128),
        **parts,
    )


def described(problem: Problem, masks: Any) -> Any:
    """The mask of one head, of a module of masks."""
    shape = (problem["seq"], problem["seq"])
    if problem.option("mask") == "local":
        mask = masks.LocalMask(shape, (int(problem.option("window")), 0), 0)
    else:
        mask = (masks.CausalMask if problem.option("mask") == "causal" else masks.FullMask)(shape)
    return mask & masks.FullMask(shape) if problem.option("stored") else mask


def visible(problem: Problem, q_ids: Any | None = None, kv_ids: Any | None = None) -> Any:
    """bool [seq, seq], or None where every position sees all."""
    shape = (problem["seq"], problem["seq"])
    seen = None
    if problem.option("mask") == "causal":
        seen = attention.causal(*shape)
    elif problem.option("mask") == "local":
        seen = attention.local(*shape, int(problem.option("window")))
    if q_ids is None or kv_ids is None:
        return seen
    same = q_ids[:, None] == kv_ids[None, :]
    return same if seen is None else seen & same


def check(problem: Problem) -> str | None:
    """What splash attention refuses, in a sentence."""
    if problem.option("stored") and problem.option("mask") == "full":
        return "mask=full cuts no block that could be stored"
    if problem.option("mask") != "local" and problem.option("window") != _WINDOW:
        return f"window={problem.option('window')} is of mask=local"
    return not_multiple(problem, "heads", "kv_heads") or not_multiple(problem, "seq", 128)


def reduced(problem: Problem) -> Problem:
    """Two heads of keys with two of queries each; a window so narrow that it skips blocks."""
    kv_heads = min(2, problem["kv_heads"])
    group = min(2, problem["heads"] // problem["kv_heads"])
    small = problem.with_dims(kv_heads=kv_heads, heads=kv_heads * group)
    return small.with_options(window=128) if small.option("mask") == "local" else small


def packed(problem: Problem) -> Any:
    """The segment of each token: int32 [seq]; all are of one where nothing is packed."""
    seq = problem["seq"]
    documents = _DOCUMENTS if problem.option("segments") else 1
    return (np.arange(seq) * documents // seq).astype(np.int32)


def forward_inputs(problem: Problem) -> list[Array]:
    """q, which is scaled by the caller, k and v; then what options add."""
    qk_dim, v_dim = _head_dims(problem)
    shapes = {"q": (problem["heads"], qk_dim), "k": (problem["kv_heads"], qk_dim)}
    shapes["v"] = (problem["kv_heads"], v_dim)
    std = {"q": attention.scale_of(qk_dim)}
    qkv = [
        Array(
            name=name,
            shape=(heads, problem["seq"], dim),
            dtype=problem.dtype,
            row_major=True,
            std=std.get(name, 1.0),
        )
        for name, (heads, dim) in shapes.items()
    ]
    return [*qkv, *_extras(problem)]


def backward_inputs(problem: Problem) -> list[Array]:
    """q, k, v, the log of the row sums of the forward pass, the gradient of its output, and the
    sums of both."""
    q, k, v, *extras = forward_inputs(problem)
    rows = (problem["heads"], problem["seq"])
    given = Array(name="logsumexp", shape=rows, dtype="float32", values=lambda: logsumexp(problem))
    return [q, k, v, given, slope(problem), Array(name="di", shape=rows, dtype="float32"), *extras]


def slope(problem: Problem) -> Array:
    """The gradient of the output."""
    shape = (problem["heads"], problem["seq"], _head_dims(problem)[1])
    return Array(name="do", shape=shape, dtype=problem.dtype, row_major=True)


def _head_dims(problem: Problem) -> tuple[int, int]:
    """Of queries and keys, and of values."""
    sizes = dict(problem.dims)
    both = sizes.get("head_dim", 0)
    return sizes.get("qk_dim", both), sizes.get("v_dim", both)


def _extras(problem: Problem) -> list[Array]:
    """The segments of queries and keys, and the sinks."""
    given = []
    if problem.option("segments"):
        given += [_segments(side, problem) for side in ("q_segments", "kv_segments")]
    if dict(problem.options).get("sinks"):
        given.append(Array(name="sinks", shape=(problem["heads"],), dtype="float32"))
    return given


def _segments(name: str, problem: Problem) -> Array:
    return Array(name=name, shape=(problem["seq"],), dtype="int32", values=lambda: packed(problem))


def by_name(problem: Problem, given: Sequence[Any]) -> dict[str, Any]:
    """Of the arguments that options add: q_segments, kv_segments and sinks, None without."""
    names = [array.name for array in _extras(problem)]
    absent = dict.fromkeys(("q_segments", "kv_segments", "sinks"))
    return absent | dict(zip(names, given, strict=True))


def soft_cap(problem: Problem) -> float | None:
    return SOFT_CAP if problem.option("soft_cap") else None


def logsumexp(problem: Problem) -> Any:
    """What normal scores give: the log of the number of keys that a row sees, and a half: float32
    [heads, seq]."""
    ids, row = packed(problem), np.arange(problem["seq"])
    first, end = (np.searchsorted(ids, ids, side) for side in ("left", "right"))
    seen = end - first if problem.option("mask") == "full" else row - first + 1
    if problem.option("mask") == "local":
        seen = np.minimum(seen, int(problem.option("window")) + 1)
    return np.broadcast_to(np.log(seen) + 0.5, (problem["heads"], problem["seq"])).astype("f4")


def plain(problem: Problem, *, convert: Any = None, residuals: bool = False) -> Callable[..., Any]:
    """XLA's attention of q, k and v as they are or converted first, in the problem's dtype."""
    with_rows = residuals or dict(problem.options).get("residuals")

    def attend(*given: Any) -> Any:
        q, k, v = (x if convert is None else x.astype(convert) for x in given[:3])
        more = by_name(problem, given[3:])
        seen = visible(problem, more["q_segments"], more["kv_segments"])
        sinks = more["sinks"]
        sinks = sinks if sinks is None else attention.grouped(sinks[:, None, None], k)
        logits = attention.scores(q, k, seen, 1.0, soft_cap(problem))
        out, rows = attention.weighted(logits, v, sinks)
        out = out.astype(problem.dtype)
        return (out, rows) if with_rows else out

    return attend


def plain_gradients(
    problem: Problem, *, convert: Any = None, scaled: Callable[[Any], Any] = lambda q: q
) -> Callable[..., Any]:
    """dq, dk and dv, in the problem's dtype, of q, k, v, logsumexp, do and di. ``scaled``: the
    queries as a kernel rounds them for its logits."""

    def gradients(*given: Any) -> Any:
        q, k, v, rows, do, di, *more_given = given
        q, k, v, do = (x if convert is None else x.astype(convert) for x in (q, k, v, do))
        more = by_name(problem, more_given)
        seen = visible(problem, more["q_segments"], more["kv_segments"])

        def weights(_: Any) -> Any:
            logits = attention.scores(scaled(q), k, seen, 1.0, soft_cap(problem))
            return jnp.exp(logits - attention.grouped(rows[..., None], k))

        every = attention.gradients(q, k, v, do, di, weights, seen, 1.0, soft_cap(problem))
        return [array.astype(problem.dtype) for array in every]

    return gradients
