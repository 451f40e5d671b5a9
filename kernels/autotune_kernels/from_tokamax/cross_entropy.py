"""tokamax's linear softmax cross entropy: the loss of a language model without its logits, forward
and backward."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autotune import Array, Axis, Config, Kernel, Option, Problem
from autotune.declaring.kernel import block_sizes
from autotune_kernels.parts import needing, part

_OPS = "tokamax._src.ops.linear_softmax_cross_entropy_loss.pallas_mosaic_tpu"
_BLOCKS = {"b_block_size": "tokens", "h_block_size": "hidden", "v_block_size": "vocabulary"}


def _labels(problem: Problem) -> Any:
    """int32 [tokens]."""
    return np.random.default_rng(0).integers(0, problem["vocabulary"], problem["tokens"], np.int32)


def _activations(problem: Problem) -> str:
    """Losses are often taken of float32 activations with bfloat16 weights."""
    return problem.dtype if problem.option("x") == "as w" else str(problem.option("x"))


def _inputs(problem: Problem) -> list[Array]:
    tokens, hidden, vocabulary = (problem[dim] for dim in _BLOCKS.values())
    return [
        Array(name="x", shape=(tokens, hidden), dtype=_activations(problem)),
        Array(name="labels", shape=(tokens,), dtype="int32", values=lambda: _labels(problem)),
        Array(name="w", shape=(hidden, vocabulary), dtype=problem.dtype, std=hidden**-0.5),
    ]


def _gradient_inputs(problem: Problem) -> list[Array]:
    """The loss's own gradient, and what the forward pass keeps: the log of the row sums, which is
    that of normal logits."""
    typical = np.log(problem["vocabulary"]) + 0.5
    return [
        Array(name="dout", shape=(), dtype="float32", values=lambda: np.float32(1.0)),
        Array(
            name="lse",
            shape=(problem["tokens"],),
            dtype="float32",
            values=lambda: np.full(problem["tokens"], typical, np.float32),
        ),
        *_inputs(problem),
    ]


def _build(_: Problem, config: Config) -> Callable[..., Any]:
    function = part(f"{_OPS}_kernel").linear_softmax_cross_entropy_loss_fwd_pallas_mosaic_tpu
    return lambda x, labels, w: function(x, labels, w, **dict(config.axes))


def _build_gradient(_: Problem, config: Config) -> Callable[..., Any]:
    function = part(f"{_OPS}_kernel").linear_softmax_cross_entropy_loss_bwd_pallas_mosaic_tpu
    return lambda *given: function(*given, **dict(config.axes))


def _plain(_: Problem) -> Callable[..., Any]:
    def loss(x: Any, labels: Any, w: Any) -> Any:
        logits = jnp.dot(x, w, preferred_element_type=jnp.float32)
        lse = jax.nn.logsumexp(logits, axis=-1)
        chosen = jnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
        return jnp.sum(lse - chosen), lse

    return loss


def _plain_gradient(_: Problem) -> Callable[..., Any]:
    def gradient(dout: Any, lse: Any, x: Any, labels: Any, w: Any) -> Any:
        logits = jnp.dot(x, w, preferred_element_type=jnp.float32)
        delta = jnp.exp(logits - lse[:, None]) - jax.nn.one_hot(labels, w.shape[1])
        delta = dout * delta
        dx = jnp.dot(delta, w.T.astype(jnp.float32))
        dw = jnp.dot(x.T.astype(jnp.float32), delta)
        return dx, dw

    return gradient


def _tokamax_config(problem: Problem, *, backward: bool) -> dict[str, int]:
    """Its own heuristics for the TPU that the code is told of."""
    ops = part(_OPS)
    name = "PallasMosaicTpuLinearSoftmaxCrossEntropyLoss"
    x, labels, w = (jax.ShapeDtypeStruct(a.shape, a.dtype) for a in _inputs(problem))
    if backward:
        row = jax.ShapeDtypeStruct(labels.shape, jnp.float32)
        scalar = jax.ShapeDtypeStruct((), jnp.float32)
        bound = getattr(ops, f"{name}Vjp")().bind((row,), scalar, scalar, x, labels, w)
    else:
        bound = getattr(ops, name)().bind(x, labels, w)
    chosen = bound.heuristics_config
    return {name: getattr(chosen, name) for name in _BLOCKS}


def _default(problem: Problem) -> dict[str, int]:
    """What its functions have as defaults, as far as the problem allows."""
    given = {"b_block_size": 1024, "h_block_size": 512, "v_block_size": 2048}
    return {
        name: max((s for s in _sizes(problem[dim]) if s <= given[name]), default=given[name])
        for name, dim in _BLOCKS.items()
    }


def _sizes(extent: int) -> list[int]:
    """The kernel wants whole lanes."""
    return [s for s in block_sizes(extent, minimum=128, maximum=4096) if s % 128 == 0]


def _choices(dim: str, problem: Problem) -> list[int]:
    return _sizes(problem[dim])


def _check(problem: Problem) -> str | None:
    bad = [dim for dim in _BLOCKS.values() if problem[dim] % 128]
    return f"{bad[0]}={problem[bad[0]]} must be a multiple of 128" if bad else None


def _constraint(problem: Problem, config: Config) -> str | None:
    """Where inputs and outputs have buffers of their own (jax 0.12), the step that has nothing to
    add to the gradient of the weights still writes its block back, and with two blocks the next
    step but one reads it at that time. The bytes are the same, but it is a race; tokamax's own
    heuristics never cut so."""
    module, size = part(f"{_OPS}_kernel"), config["h_block_size"]
    is_apart = getattr(module, "_HAS_SEPARATE_INPUT_OUTPUT_BUFFERING", False)
    if is_apart and -(-problem["hidden"] // size) == 2:
        return "hidden in two blocks: a gradient of w is read while it is written back"
    return None


def _kernel(name: str, *, backward: bool, **parts: Any) -> Kernel:
    return Kernel(
        name=name,
        dims=tuple(_BLOCKS.values()),
        dtypes=("bfloat16", "float32"),
        options=(Option(name="x", choices=("as w", "float32"), default="as w"),),
        axes=tuple(
            Axis(name=name, choices=partial(_choices, dim), dim=dim)
            for name, dim in _BLOCKS.items()
        ),
        default=_default,
        default_on=lambda problem, _: _tokamax_config(problem, backward=backward),
        check=needing("tokamax", "tokamax", _check),
        **parts,
    )


FORWARD = _kernel(
    "tokamax_cross_entropy",
    backward=False,
    inputs=_inputs,
    build=_build,
    reference=_plain,
    doc="tokamax linear softmax cross entropy: loss and the log of the row sums",
)
BACKWARD = _kernel(
    "tokamax_cross_entropy_gradient",
    backward=True,
    inputs=_gradient_inputs,
    build=_build_gradient,
    reference=_plain_gradient,
    constraint=_constraint,
    doc="its gradients of the activations and of the weights",
)
